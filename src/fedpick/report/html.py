"""A page: one self-contained HTML file that works from disk, offline, on a phone, in print, light and dark."""

import functools
import html
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from fedpick.report.altair_charts import altair, to_altair
from fedpick.report.charts import Chart

ALONE = " Click a name in the legend to see it alone."
SHORT = 24  # letters of a cell that is kept on one line
STYLE = """
:root { color-scheme: light dark;
  --ink: #1b1b1b; --soft: #5b5b5b; --line: #d5d5d5; --paper: #ffffff; --tint: #f3f4f6; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ececec; --soft: #a8a8a8; --line: #444444; --paper: #16181c; --tint: #22252b; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 66rem; padding: 1rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { line-height: 1.2; } h2 { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: 1rem; }
h3 { margin-bottom: 0.3rem; } .soft { color: var(--soft); } a { color: inherit; }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: 0.88rem; overflow-wrap: break-word; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: 0.25rem 0.5rem; text-align: left; vertical-align: top; }
th { background: var(--tint); } caption { text-align: left; font-weight: 600; padding-bottom: 0.3rem; }
.short { white-space: nowrap; } .unseen { position: absolute; clip-path: inset(50%); }
.mark { font-weight: 600; } .answer { font-size: 1.25rem; line-height: 1.4; }
pre { background: var(--tint); padding: 0.6rem; margin: 0; }
figure { margin: 1rem 0; } figcaption { color: var(--soft); font-size: 0.88rem; }
.chart svg text { fill: var(--ink) !important; } .chart svg { max-width: none; }
.chart svg .background { fill: none; }
@media print { .wide { overflow: visible; } h2 { break-before: page; } details { display: block; } }
"""
DRAW = """
document.querySelectorAll("script[type='application/json'][data-chart]").forEach((spec) => {
  const place = document.getElementById(spec.dataset.chart);
  const actions = { export: true, source: false, compiled: false, editor: false };
  vegaEmbed(place, JSON.parse(spec.textContent), { renderer: "svg", actions })
    .catch((error) => { place.textContent = "The chart could not be drawn: " + error; });
});
"""


def page(title: str, parts: Iterable[str]) -> str:
    """The whole file; ``parts`` are pieces of HTML such as ``paragraph``, ``table`` and ``figure`` give."""
    body = "\n".join(parts)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escaped(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{STYLE}</style>\n</head>\n'
        f"<body>\n<main>\n<h1>{escaped(title)}</h1>\n{body}\n</main>\n<script>{_library()}</script>\n<script>{DRAW}</script>\n"
        "</body>\n</html>\n"
    )


def escaped(text: object) -> str:
    """Text as HTML that shows it and runs nothing.

    >>> escaped("<script>")
    '&lt;script&gt;'
    """
    return html.escape(str(text))


def heading(text: str, level: int = 2, anchor: str = "", unseen: bool = False) -> str:
    """A heading, and a place to link to; unseen where a picture shows it, for those who have the page read to them."""
    name = (f' id="{escaped(anchor)}"' if anchor else "") + (' class="unseen"' if unseen else "")
    return f"<h{level}{name}>{escaped(text)}</h{level}>"


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph."""
    return f'<p class="{kind}">{escaped(text)}</p>' if kind else f"<p>{escaped(text)}</p>"


def code(text: str) -> str:
    """A line to type."""
    return f'<div class="wide"><pre><code>{escaped(text)}</code></pre></div>'


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], links: Sequence[str] = ()) -> str:
    """A table that scrolls by itself where the screen is narrow; ``links`` are anchors for the first column."""
    head = "".join(f'<th scope="col">{escaped(column)}</th>' for column in columns)
    body = ""
    for place, row in enumerate(rows):
        cells = [escaped(cell) for cell in row]
        kinds = [' class="short"' if len(cell) <= SHORT else "" for cell in row]
        if links:
            cells[0] = f'<a href="#{escaped(links[place])}">{cells[0]}</a>'
        body += "<tr>" + "".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds, cells, strict=True)) + "</tr>\n"
    caption = f"<caption>{escaped(title)}</caption>" if title else ""
    return f'<div class="wide"><table>{caption}<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>'


def figure(chart: Chart) -> str:
    """A chart that can be hovered over, clicked and saved."""
    clear = {**to_altair(chart).to_dict(), "background": "transparent"}  # light or dark as the page is
    spec = json.dumps(clear, sort_keys=True).replace("<", "\\u003c")
    name = f"chart-{escaped(chart.name)}"
    text = escaped(chart.text)
    return (
        f'<figure><div class="wide"><div class="chart" id="{name}" role="img" aria-label="{text}"></div></div>'
        f'<script type="application/json" data-chart="{name}">{spec}</script>'
        f"<figcaption>{text}{'' if chart.kind == 'heat' else ALONE}</figcaption></figure>"
    )


def written(path: Path, text: str) -> Path:
    """The text in a file, whole or not at all."""
    part = path.with_name(f".part-{os.getpid()}-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise ValueError(f"report: {str(path)!r} cannot be written ({error})") from None
    return path


@functools.cache
def _library() -> str:
    """Vega, Vega-Lite and vega-embed as one script."""
    altair()
    import vl_convert

    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return bundle.replace("</script", "<\\/script")
