"""Every Python block in README and docs runs, in order, in one session per file; links between files lead somewhere."""

import functools
import json
import re
from pathlib import Path

import pytest

import fedpick

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINKED = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "examples").rglob("README.md"))]
LINKED += sorted((ROOT / "examples").glob("*.ipynb"))


@functools.cache
def prose(page):
    """The Markdown of a page or notebook without its code."""
    text = page.read_text()
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return re.sub(r"^(```+).*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)


@functools.cache
def anchors(page):
    """What GitHub calls the headings of a page."""
    found = set()
    for heading in re.findall(r"^#{1,6} +(.*?) *$", prose(page), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        again = (f"{anchor}-{number}" for number in range(1, 100))
        found.add(anchor if anchor not in found else next(name for name in again if name not in found))
    return found


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.name)
def test_every_link_between_files_leads_somewhere(page):
    text = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", prose(page))
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        goal = (page.parent / path).resolve() if path else page
        if not goal.exists() or not goal.is_relative_to(ROOT):
            broken.append(f"{link}: there is no such file")
        elif anchor and anchor not in anchors(goal):
            broken.append(f"{link}: there is no such heading")
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_on_the_page_runs(page):
    session = {"__name__": page.stem}
    for block in re.finditer(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        line = page.read_text()[: block.start(1)].count("\n")
        exec(compile("\n" * line + block[1], str(page), "exec"), session)


def test_the_table_of_strategies_is_the_table():
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    table = {name: tuple(cell.strip() for cell in cells.split(" | ")) for name, cells in rows}
    assert table == {
        name: (row.picks, row.polled, row.messages, row.traffic, row.reference)
        for name, row in fedpick.STRATEGIES.items()
    }
    assert list(table) == list(fedpick.STRATEGIES)
