"""The published pages of the reproduction: what they conclude is what their numbers and the code say."""

import re
from pathlib import Path

import pytest
from test_conclusions import conclude

from fedpick.paper import ITEMS, LATER
from fedpick.paper.claims import RULES, overall
from fedpick.paper.tables1_2 import BASE, TIMED

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [name for name, item in ITEMS.items() if item not in LATER]
WORDS = "reproduced|partly reproduced|undecided|not reproduced|holds|holds partly|does not hold"


def claims(name):
    """Verdict, statement, reason and rows of every claim of a page."""
    found, rows = [], []
    for line in (DOCS / "reproduction" / f"{name}.md").read_text().splitlines():
        got = re.match(rf"^\*\*({WORDS}):\*\* (.*) (\d+ of \d+ checks are met.*)\.$", line, re.IGNORECASE)
        if got:
            rows = []
            found.append((*got.groups(), rows))
        elif found and line.startswith("| ") and not line.startswith("| check |"):
            rows.append(line.strip("| ").split(" | "))
    return found


@pytest.mark.parametrize("name", PAGES)
def test_verdicts_are_those_of_the_checks(name):
    item, page = ITEMS[name], claims(name)
    for verdict, _, reason, rows in page:
        assert verdict.lower() == item.wording(overall(met for _, met, _ in rows))
        assert reason.startswith(f"{[met for _, met, _ in rows].count('yes')} of {len(rows)} checks")
        assert all((what in reason) == (met != "yes") for what, met, _ in rows)
    whole = item.wording(overall(met for *_, rows in page for _, met, _ in rows))
    assert f"**Verdict: {whole}**" in (DOCS / "reproduction" / f"{name}.md").read_text()
    overview = (DOCS / "reproduction.md").read_text()
    assert f"](reproduction/{name}.md) | {item.title} | {whole} |" in overview
    assert RULES in overview


@pytest.mark.parametrize("name", [name for name in PAGES if name != "fig1"])
def test_claims_and_checks_are_those_of_the_code(name, monkeypatch):
    """Of checks that name our best d or a learning rate, which depend on the runs, the number is compared."""
    ours = conclude(name, monkeypatch, seed=lambda number: number).claims
    page = claims(name)
    assert [f"{claim.statement} ({claim.source})" for claim in ours] == [statement for _, statement, _, _ in page]
    if name == "rates":
        return
    assert [len(claim.checks) for claim in ours] == [len(rows) for *_, rows in page]
    if name != "fig4":
        assert [check.what for claim in ours for check in claim.checks] == [row[0] for *_, rows in page for row in rows]


@pytest.mark.parametrize("name", ["table1", "table2"])
def test_the_rule_on_t_comp_is_stated_and_is_that_of_the_verdicts(name):
    page = (DOCS / "reproduction" / f"{name}.md").read_text()
    assert f"In brackets the ratio to {BASE}. {TIMED}\n" in page
    found = re.findall(r"^\| .* (smaller|larger) \| (\w+) \| (.*) times that of", page, re.MULTILINE)
    assert len(found) == 3
    for word, met, ratio in found:
        right = (float(ratio) < 1) == (word == "smaller")
        assert met == ("unclear" if abs(float(ratio) - 1) <= 0.05 else "yes" if right else "no")


@pytest.mark.parametrize(
    ("setting", "name", "row"),
    [
        ("at C = 0.1", "fig8", "pow-d over rand: about 15 points more"),
        ("at C = 0.03 with d = 6", "table2", "pow-d, d = 6 above rand"),
        ("with d = 15", "fig4", "alpha = 2: pow-d, d = 15 over rand: about 10 points more"),
    ],
)
def test_the_gains_on_the_page_of_commands_are_those_of_their_pages(setting, name, row):
    text = " ".join((DOCS / "paper.md").read_text().split())
    (found,) = (found for *_, rows in claims(name) for what, _, found in rows if what == row)
    gain = re.escape(found.removesuffix(" points"))
    assert re.search(rf"{gain}( points)? {setting} \(\[[\w ]+\]\(reproduction/{name}\.md\)\)", text)
