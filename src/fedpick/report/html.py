"""The HTML page: one self-contained file that works offline, on a phone, in print, light and dark.

The markup, style and script are the files in ``templates/``; every text is escaped by Jinja.
"""

import functools
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import Any

from fedpick.report.charts import Chart, to_plain
from fedpick.report.palette import colour_style, dark_style
from fedpick.storage import cached_text


def page(title: str, parts: Iterable[str], *, kicker: str = "", refresh: int = 0) -> str:
    """A complete HTML document.

    Args:
        title: Title and first heading.
        parts: Pieces of HTML, as ``paragraph``, ``table``, ``figure`` and the others return them.
        kicker: What kind of page it is, in a word or two above its title.
        refresh: Seconds after which an open page is read again; 0 for never.

    >>> page("Results", [paragraph("All is well.")]).startswith("<!DOCTYPE html>")
    True
    """
    template = _environment().get_template("page.html.j2")
    styles = {"light": colour_style(), "dark": colour_style(dark=True), "marks": dark_style()}
    body, script = "\n".join(parts), _library()
    given = {"title": title, "body": body, "library": script, "styles": styles, "kicker": kicker, "refresh": refresh}
    text: str = template.render(given)
    return text


def heading(text: str, level: int = 2, *, anchor: str = "", unseen: bool = False) -> str:
    """A heading.

    Args:
        text: The text, escaped.
        level: 2 for a section, 3 for a subsection.
        anchor: Identifier to link to.
        unseen: Whether it is left to screen readers.

    >>> heading("Settings", anchor="settings")
    '<h2 id="settings">Settings</h2>'
    """
    return _part("heading", text, level, anchor, unseen)


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph.

    Args:
        text: The text, escaped.
        kind: CSS class.

    >>> paragraph("<script>")
    '<p>&lt;script&gt;</p>'
    """
    return _part("paragraph", text, kind)


def code(text: str) -> str:
    """A block of code, such as a command.

    >>> code("fedpick --help")
    '<div class="wide"><pre><code>fedpick --help</code></pre></div>'
    """
    return _part("code", text)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, links: Sequence[str] = ()) -> str:
    """A table that scrolls sideways where the screen is narrow.

    Args:
        title: Caption; "" for none.
        columns: Column headings.
        rows: Cells, row by row.
        links: An anchor for the first cell of each row.

    >>> "<td class=\\"short\\">rand</td>" in table("", ["strategy"], [["rand"]])
    True
    """
    return _part("table", title, columns, rows, links)


def figure(chart: Chart) -> str:
    """An interactive chart: tooltips, a clickable legend, and a menu to save it.

    >>> from fedpick.report import dot
    >>> rows = (dot("ours", "", "rand", value=1.0, low=0.5, high=1.5),)
    >>> figure(Chart("one", "dots", title="One", text="One dot.", rows=rows)).startswith("<figure>")
    True
    """
    clear = {**to_plain(chart), "background": "transparent"}  # light or dark as the page is
    return _part("figure", chart, clear)


def part(macro: str, *arguments: Any) -> str:
    """A piece of a page by the name of its macro in ``templates/parts.html.j2``; every text is escaped.

    Args:
        macro: The macro.
        arguments: What it takes.

    >>> part("facts", [("Model", "logistic")])
    '<dl class="facts"><div><dt>Model</dt><dd>logistic</dd></div></dl>'
    """
    return _part(macro, *arguments)


def preload_page() -> None:
    """Import what a page is made with, and make its script: in a thread, while what goes on the page is computed."""
    import altair  # noqa: F401

    _environment()
    _library()


def _part(macro: str, *arguments: Any) -> str:
    return str(getattr(_environment().get_template("parts.html.j2").module, macro)(*arguments))


@functools.cache
def _environment() -> Any:
    import jinja2

    loader = jinja2.PackageLoader("fedpick.report")
    return jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, keep_trailing_newline=True)


@functools.cache
def _library() -> str:
    """Vega, Vega-Lite and vega-embed as one script, which takes a second to make."""
    import vl_convert

    def make() -> str:
        bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
        return bundle.replace("</script", "<\\/script")

    return cached_text(f"vega-embed-{version('vl-convert-python')}.js", make)
