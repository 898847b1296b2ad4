"""The site: `make docs` builds these pages with Sphinx, MyST and Furo. On GitHub they are read as they are."""

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert

HERE = Path(__file__).parent
OUTSIDE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")  # no pages of the site; their links are checked with it

project = "fedpick"
author = "the authors of fedpick"
extensions = ["myst_parser"]
exclude_patterns = ["screenshots.py"]
html_theme = "furo"
html_title = "fedpick"
html_copy_source = False
html_show_copyright = False
highlight_language = "text"  # of a block that does not say what it is
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4  # the same anchors as GitHub's
html_math_renderer = "mathml"  # the browser's own: no script is fetched, so that the site is whole without a network
linkcheck_timeout = 20
linkcheck_retries = 2


def sidebar(app: Any, page: str, source: list[str]) -> None:
    """Add the table of contents to the landing page, so that the file itself stays plain Markdown.

    First the pages in the order in which the landing page names them, then all others.
    """
    if page != "index":
        return
    named = re.findall(r"\]\(([a-z-]+)\.md", source[0])
    pages = list(dict.fromkeys([*named, *sorted(path.stem for path in HERE.glob("*.md") if path.stem != "index")]))
    source[0] += "\n".join(["", "```{toctree}", ":hidden:", "", *pages, "```", ""])
    if app.builder.name == "linkcheck":
        texts = ((HERE.parent / name).read_text() for name in OUTSIDE)
        source[0] += "".join(
            f"\n- <{link}>\n" for text in texts for link in re.findall(r"\]\((https?:[^)\s]+)\)", text)
        )


def equation(display: str) -> Any:
    """Write an equation as MathML, in a line or as a block."""

    def visit(translator: Any, node: Any) -> None:
        translator.body.append(convert(node.astext(), display=display))
        raise nodes.SkipNode

    return visit, None


def setup(app: Any) -> None:
    """Tell Sphinx."""
    app.connect("source-read", sidebar)
    app.add_html_math_renderer("mathml", equation("inline"), equation("block"))
