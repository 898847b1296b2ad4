"""The reproduction as a page (paper.html), in Markdown (reproduction.md) and as pictures."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fedpick.paper.claims import RULES, Verdict
from fedpick.paper.item import Item, Table
from fedpick.paper.items import ITEMS, LATER, ItemResult
from fedpick.paper.settings import Size
from fedpick.report import Chart, figure, heading, page, paragraph, table, write_chart
from fedpick.storage import RunStore, write_atomic

TITLE = "Power-of-Choice client selection, reproduced"
PAPER = (
    "Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice Selection Strategies (Cho, Wang, "
    "Joshi, 2020)"
)
CHECK_COLUMNS = ("check", "met", "found")
RUN_COLUMNS = ("device", "versions", "runs")


class Reproduction(NamedTuple):
    """What a report is written from: the results of the items, their size, the store of their runs, and the command."""

    results: Sequence[ItemResult]
    size: Size
    store: RunStore
    command: str

    @property
    def charts(self) -> Iterator[Chart]:
        """The charts of all items."""
        return (chart for result in self.results if result.outcome is not None for chart in result.outcome.charts)

    @property
    def about(self) -> str:
        """What was reproduced, all or a part of it, in a sentence."""
        missing = ITEMS.keys() - {item.name for item in LATER} - {result.item.name for result in self.results}
        return f"{'A part of the reproduction' if missing else 'Every figure and table'} of: {PAPER}."

    @property
    def extent(self) -> str:
        """How much was run, in a sentence."""
        return self.size.extent

    @property
    def label(self) -> str:
        """What is appended to titles and verdicts of a smaller version."""
        return self.size.label

    @property
    def provenance(self) -> tuple[tuple[str, ...], ...]:
        """Rows of devices, versions and numbers of runs."""
        return tuple(tuple(map(str, row)) for row in self.store.provenance(name for name, _ in self.store.runs()))


def write_report(reproduction: Reproduction, folder: Path) -> list[Path]:
    """Write paper.html, reproduction.md and figures/ (SVG, PDF, PNG); return their paths.

    Args:
        reproduction: Results of the items, and the store of their runs.
        folder: Where to write.
    """
    texts = {"paper.html": as_page(reproduction), "reproduction.md": as_markdown(reproduction, "figures/")}
    pages = [write_atomic(folder / name, text, owner="paper") for name, text in texts.items()]
    kinds = ("svg", "pdf", "png")
    figures = folder / "figures"
    return pages + [write_chart(chart, figures / f"{chart.name}.{k}") for chart in reproduction.charts for k in kinds]


def write_docs(reproduction: Reproduction, docs: Path) -> Path:
    """Write the documentation: reproduction.md with the verdicts, a page for each item, and pictures as SVG.

    Args:
        reproduction: Results of the items, and the store of their runs.
        docs: The documentation folder.
    """
    for chart in reproduction.charts:
        write_chart(chart, docs / "img" / f"paper-{chart.name}.svg")
    for result in reproduction.results:
        lines = _item_lines(result, reproduction, "../img/paper-", "#")
        write_atomic(docs / "reproduction" / f"{result.item.name}.md", "\n".join(lines), owner="paper")
    links = [f"reproduction/{result.item.name}.md" for result in reproduction.results]
    lines = [*_head(reproduction, links, ("## Verdicts", "")), *_tail(reproduction)]
    return write_atomic(docs / "reproduction.md", "\n".join(lines), owner="paper")


def as_page(reproduction: Reproduction) -> str:
    """The whole report as one HTML file."""
    links = [result.item.name for result in reproduction.results]
    parts = [
        paragraph(reproduction.about),
        paragraph(reproduction.extent, "mark"),
        table("Verdicts", ("item", "what", "verdict"), _overview(reproduction), links=links),
        paragraph(RULES, "soft"),
    ]
    for item, outcome, left_out in reproduction.results:
        parts += [heading(_title(item), anchor=item.name), paragraph(item.setting(reproduction.size), "soft")]
        if outcome is None:
            parts.append(paragraph(f"Left out: {left_out}", "mark"))
            continue
        parts.append(paragraph(f"Verdict: {_verdict(item, outcome.verdict, reproduction)}", "mark"))
        parts += [figure(chart) for chart in outcome.charts]
        parts += [table(each.title, each.columns, each.rows) for each in outcome.tables]
        for claim in outcome.claims:
            parts.append(heading(f"{_verdict(item, claim.verdict, reproduction).capitalize()}: {claim.statement}", 3))
            parts.append(paragraph(f"{claim.source}: {claim.reason}.", "soft"))
            parts.append(table("", CHECK_COLUMNS, claim.checks))
        parts += [paragraph(remark, "soft") for remark in outcome.remarks]
    parts += [heading("How this was made"), paragraph(f"Command: {reproduction.command}")]
    parts.append(table("Runs", RUN_COLUMNS, reproduction.provenance))
    return page(TITLE + reproduction.label, parts)


def as_markdown(reproduction: Reproduction, pictures: str) -> str:
    """The report in Markdown.

    Args:
        reproduction: Results of the items, and the store of their runs.
        pictures: What the names of the SVG files begin with.
    """
    lines = _head(reproduction, [f"#{_anchor(result.item)}" for result in reproduction.results])
    for result in reproduction.results:
        lines += _item_lines(result, reproduction, pictures, "##")
    return "\n".join(lines + _tail(reproduction))


def _head(reproduction: Reproduction, links: Sequence[str], title: Sequence[str] = ()) -> list[str]:
    """What was reproduced, and every verdict with a link to the item."""
    lines = [f"# {TITLE}", "", reproduction.about, "", f"**{reproduction.extent}**", "", *title]
    overview = zip(links, _overview(reproduction), strict=True)
    rows = tuple((f"[{source}]({link})", what, verdict) for link, (source, what, verdict) in overview)
    return [*lines, *_markdown(Table("", ("item", "what", "verdict"), rows)), RULES, ""]


def _tail(reproduction: Reproduction) -> list[str]:
    lines = ["## How this was made", "", "```", reproduction.command, "```", ""]
    return lines + _markdown(Table("", RUN_COLUMNS, reproduction.provenance))


def _item_lines(result: ItemResult, reproduction: Reproduction, pictures: str, level: str) -> list[str]:
    """An item: its setting, its verdict, charts and tables, and its claims with their checks."""
    item, outcome, left_out = result
    lines = [f"{level} {_title(item)}", "", item.setting(reproduction.size), ""]
    if outcome is None:
        return [*lines, f"**Left out:** {left_out}", ""]
    lines += [f"**Verdict: {_verdict(item, outcome.verdict, reproduction)}**", ""]
    for chart in outcome.charts:
        lines += [f"![{chart.text}]({pictures}{chart.name}.svg)", ""]
    for each in outcome.tables:
        lines += _markdown(each)
    for claim in outcome.claims:
        verdict = _verdict(item, claim.verdict, reproduction).capitalize()
        lines += [f"**{verdict}:** {claim.statement} ({claim.source}) {claim.reason}.", ""]
        lines += _markdown(Table("", CHECK_COLUMNS, claim.checks))
    for remark in outcome.remarks:
        lines += [remark, ""]
    return lines


def _overview(reproduction: Reproduction) -> list[tuple[str, str, str]]:
    return [
        (item.source, item.title, "left out" if outcome is None else _verdict(item, outcome.verdict, reproduction))
        for item, outcome, _ in reproduction.results
    ]


def _verdict(item: Item, verdict: Verdict, reproduction: Reproduction) -> str:
    return item.wording(verdict) + reproduction.label


def _title(item: Item) -> str:
    return f"{item.source}: {item.title}"


def _anchor(item: Item) -> str:
    """The anchor that GitHub derives from the heading."""
    text = _title(item).lower()
    return "".join(letter for letter in text if letter.isalnum() or letter in " -").replace(" ", "-")


def _markdown(rows_of_text: Table) -> list[str]:
    def line(row: Iterable[str]) -> str:
        return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |"

    title, columns, rows = rows_of_text.title, rows_of_text.columns, rows_of_text.rows
    caption = [f"{title}:", ""] if title else []
    return [*caption, line(columns), "|" + "---|" * len(columns), *map(line, rows), ""]
