"""Every Python block in README and docs runs, in order, in one session per file."""

import re
from pathlib import Path

import pytest

import fedpick

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


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
