"""What came out of the items, on a page (paper.html), in Markdown (reproduction.md) and as pictures."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from fedpick.paper.claims import Claim
from fedpick.paper.item import Table
from fedpick.paper.items import ItemResult
from fedpick.paper.settings import Size
from fedpick.report import figure, heading, page, paragraph, table, write_chart
from fedpick.storage import RunStore, write_atomic

TITLE = "Power-of-Choice client selection, reproduced"
PAPER = (
    "Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice Selection Strategies (Cho, Wang, "
    "Joshi, 2020)"
)
RULES = (
    'Checks compare runs of the same seeds in pairs, with a 95 % interval (Student\'s t). "About x" is held to mean a '
    'mean of at least four fifths of x, "as well as" that the interval lies within two points of accuracy. A check is '
    "met (yes), met in its direction but not in its size (partly), not decided by our runs (unclear), or contradicted "
    "(no). A claim is reproduced if all its checks are met, not reproduced if none is even partly, and partly "
    "reproduced otherwise."
)
OURS = {"reproduced": "holds", "partly reproduced": "holds partly", "not reproduced": "does not hold"}


def write(done: Sequence[ItemResult], size: Size, store: RunStore, command: str, folder: Path) -> list[Path]:
    """paper.html, reproduction.md and figures/ (SVG, PDF, PNG) in the folder."""
    figures = [
        path
        for each in done
        if each.outcome is not None
        for chart in each.outcome.charts
        for path in drawing.saved(chart, folder / "figures")
    ]
    return [
        written(folder / "paper.html", as_page(done, size, store, command)),
        written(folder / "reproduction.md", as_markdown(done, size, store, command, "figures")),
        *figures,
    ]


def write_docs(done: Sequence[ItemResult], size: Size, store: RunStore, command: str, docs: Path) -> Path:
    """reproduction.md for a documentation folder, with its pictures as img/paper-*.svg."""
    for each in done:
        for chart in each.outcome.charts if each.outcome else ():
            (path,) = drawing.saved(chart, docs / "img", ("svg",))
            path.replace(path.with_name(f"paper-{path.name}"))
    return written(docs / "reproduction.md", as_markdown(done, size, store, command, "img", "paper-"))


def as_page(done: Sequence[ItemResult], size: Size, store: RunStore, command: str) -> str:
    """Everything as one HTML file."""
    links = [each.item.name for each in done]
    parts = [
        paragraph(f"Every figure and table of: {PAPER}."),
        paragraph(_extent(size), "mark"),
        table("Verdicts", ("item", "what", "verdict"), _overview(done), links=links),
        paragraph(RULES, "soft"),
    ]
    for each in done:
        item = each.item
        parts += [heading(f"{item.source}: {item.title}", anchor=item.name), paragraph(item.about, "soft")]
        if each.outcome is None:
            parts.append(paragraph(f"Left out: {each.left_out}", "mark"))
            continue
        parts.append(paragraph(f"Verdict: {_verdict(each)}{_label(size)}", "mark"))
        parts += [figure(chart) for chart in each.outcome.charts]
        parts += [table(t.title, t.columns, t.rows) for t in each.outcome.tables]
        for claim in each.outcome.claims:
            parts.append(heading(f"{_told(claim, item.source)}: {claim.words}", 3))
            parts.append(paragraph(f"{claim.source}: {claim.reason}.", "soft"))
            parts.append(table("", ("check", "met", "found"), claim.checks))
        parts += [paragraph(remark, "soft") for remark in each.outcome.remarks]
    parts += [heading("How this was made"), paragraph(f"Command: {command}")]
    parts.append(table("Runs", ("device", "versions", "runs"), _made(store)))
    return page(TITLE + ("" if size.whole else f" ({size.name} version)"), parts)


def as_markdown(
    done: Sequence[ItemResult], size: Size, store: RunStore, command: str, pictures: str, prefix: str = ""
) -> str:
    """The same in Markdown; ``pictures`` is the folder of the SVG files."""
    lines = [f"# {TITLE}", "", f"Every figure and table of: {PAPER}.", "", f"**{_extent(size)}**", ""]
    rows = [
        (f"[{name}](#{_anchor(each)})", what, verdict)
        for each, (name, what, verdict) in zip(done, _overview(done), strict=True)
    ]
    lines += [*_markdown(Table("", ("item", "what", "verdict"), tuple(rows))), RULES, ""]
    for each in done:
        item = each.item
        lines += [f"## {item.source}: {item.title}", "", item.about, ""]
        if each.outcome is None:
            lines += [f"**Left out:** {each.left_out}", ""]
            continue
        lines += [f"**Verdict: {_verdict(each)}{_label(size)}**", ""]
        for chart in each.outcome.charts:
            lines += [f"![{chart.text}]({pictures}/{prefix}{chart.name}.svg)", ""]
        for found in each.outcome.tables:
            lines += _markdown(found)
        for claim in each.outcome.claims:
            lines += [f"**{_told(claim, item.source)}:** {claim.words} ({claim.source}) {claim.reason}.", ""]
            lines += _markdown(Table("", ("check", "met", "found"), claim.checks))
        for remark in each.outcome.remarks:
            lines += [remark, ""]
    lines += ["## How this was made", "", "```", command, "```", ""]
    lines += _markdown(Table("", ("device", "versions", "runs"), _made(store)))
    return "\n".join(lines)


def _extent(size: Size) -> str:
    what = (
        f"Fashion-MNIST with {size.seeds} partitions and {size.fashion_rounds} rounds, others with {size.draws} draws"
    )
    if size.whole:
        return f"Full version: {what}."
    return f"The {size.name} version ({what}), less than the paper did: its verdicts are a first look, no result."


def _overview(done: Iterable[ItemResult]) -> list[tuple[str, str, str]]:
    return [(each.item.source, each.item.title, _verdict(each)) for each in done]


def _verdict(each: ItemResult) -> str:
    if each.outcome is None:
        return "left out"
    verdict = each.outcome.verdict
    return OURS[verdict] if each.item.source == "ours" else verdict


def _told(claim: Claim, source: str) -> str:
    words = OURS[claim.verdict] if source == "ours" else claim.verdict
    return words.capitalize()


def _label(size: Size) -> str:
    return "" if size.whole else f" ({size.name} version)"


def _anchor(each: ItemResult) -> str:
    """As GitHub makes it from the heading."""
    text = f"{each.item.source}: {each.item.title}".lower()
    return "".join(letter for letter in text if letter.isalnum() or letter in " -").replace(" ", "-")


def _markdown(found: Table) -> list[str]:
    def cells(row: Iterable[str]) -> str:
        return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |"

    title = [f"{found.title}:", ""] if found.title else []
    return [*title, cells(found.columns), "|" + "---|" * len(found.columns), *map(cells, found.rows), ""]


def _made(store: RunStore) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(map(str, made)) for made in store.provenance(store.identities()))
