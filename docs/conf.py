"""The site: `make docs` builds these pages with Sphinx, MyST and Furo. On GitHub they are read as they are."""

import importlib
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert

HERE = Path(__file__).parent
OUTSIDE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")  # no pages of the site; their links are checked with it
LINK = re.compile(r"^\| \[([^\]]+)\]\(((?:api/|reproduction/)?[a-z0-9-]+)\.md\)", re.MULTILINE)

project = "fedpick"
author = "The fedpick authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["screenshots.py"]
html_theme = "furo"
html_title = "fedpick"
html_copy_source = False
html_show_copyright = False
highlight_language = "text"  # of a block that does not say what it is
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4  # the same anchors as GitHub's
html_math_renderer = "mathml"  # the browser's own: no script is fetched, so that the site is whole without a network
autodoc_typehints_format = "short"
autodoc_member_order = "groupwise"
napoleon_numpy_docstring = False
python_use_unqualified_type_names = True
linkcheck_timeout = 20
linkcheck_retries = 2


def sidebar(app: Any, page: str, source: list[str]) -> None:
    """Add the navigation to the landing pages, so that the files themselves stay plain Markdown.

    Each section of a landing page is a group, with the pages and titles of its table, in that order.
    """
    if page not in ("index", "api/index", "reproduction"):
        return
    trees = []
    for section in re.split(r"^## ", source[0], flags=re.MULTILINE)[1:]:
        caption, _, body = section.partition("\n")
        found = LINK.findall(body)
        pages = [f"{title.replace('`', '')} <{name}>" for title, name in found]
        if page == "reproduction":  # where several are "ours", the pages' own titles say more
            pages = [name for _, name in found]
        trees += ["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```"] if pages else []
    source[0] += "\n".join([*trees, ""])
    if app.builder.name == "linkcheck":
        texts = ((HERE.parent / name).read_text() for name in OUTSIDE)
        source[0] += "".join(
            f"\n- <{link}>\n" for text in texts for link in re.findall(r"\]\((https?:[^)\s]+)\)", text)
        )


def skip(app: Any, what: str, name: str, obj: Any, skipped: bool, options: Any) -> bool | None:
    """Document a name once, on the page of the room that defines it; and no "Alias for field number 0"."""
    room = (*(getattr(obj, "__module__", None) or "").split("."), "")[1]
    page = f"api/{room}"
    if what == "module" and app.env.docname != page and (HERE / f"{page}.md").exists():
        return name in getattr(importlib.import_module(f"fedpick.{room}"), "__all__", ()) or None
    return (getattr(obj, "__doc__", None) or "").startswith("Alias for field number") or None


def plain(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Escape what reStructuredText would take for markup: docstrings are plain text with ``code`` and doctests."""
    doctest = False
    for number, line in enumerate(lines):
        doctest = line.lstrip().startswith(">>>") or (doctest and bool(line.strip()))
        if not doctest:
            parts = re.split(r"(``.*?``|(?<![\w*])\*{1,2}\w[^*]*\*{1,2}(?!\w))", line)  # code and emphasis stay
            parts[::2] = [re.sub(r"([|*]|(?<=\w)_(?!\w))", r"\\\1", part) for part in parts[::2]]
            lines[number] = "".join(parts)


def signature(app: Any, what: str, name: str, obj: Any, options: Any, arguments: Any, returned: Any) -> Any:
    """Write the type of an array as people do."""
    return tuple(text and text.replace("jaxlib._jax.Array", "Array") for text in (arguments, returned))


def equation(display: str) -> Any:
    """Write an equation as MathML, in a line or as a block."""

    def visit(translator: Any, node: Any) -> None:
        translator.body.append(convert(node.astext(), display=display))
        raise nodes.SkipNode

    return visit, None


def setup(app: Any) -> None:
    """Connect the functions above to Sphinx."""
    app.connect("source-read", sidebar)
    app.connect("autodoc-skip-member", skip)
    app.connect("autodoc-process-docstring", plain, priority=400)  # before napoleon
    app.connect("autodoc-process-signature", signature)
    app.add_html_math_renderer("mathml", equation("inline"), equation("block"))
