"""The pages in a real browser: a headless Chromium that sees them as a reader does."""

import os
import re
import shutil
import time
from dataclasses import replace

import numpy as np
import pytest
from support.made_up import made_up
from support.pages import comparison_report, summary
from support.scores import made_up as made_up_scores

from fedpick.arena import render_arena
from fedpick.compare import Comparison, ComparisonReport, render_page
from fedpick.paper import TINY, Reproduction, as_page, get_items, reproduce
from fedpick.sim import Summary
from fedpick.storage import RunStore

HOSTILE = "<script>alert(1)</script>\"'& ünï" + "long" * 20
DRAWN = (
    "document.querySelectorAll('svg.marks').length >= "
    "document.querySelectorAll('[data-chart], figure:not([hidden]) > [data-panel]').length"
)


@pytest.fixture(scope="module")
def browser():
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        assert "CI" not in os.environ, "CI must have chromium: .ci/run installs it"
        pytest.skip("needs a Chromium, such as Debian's: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        found = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    results = [made_up([60, 70, 65], accuracy=0.7), made_up([30, None, 36], accuracy=0.8)]
    compared = Comparison(("rand", HOSTILE), tuple(results), "loss", value=0.5)
    plains = ({"selector": {"kind": "Rand", "m": 1}}, {"selector": {"kind": HOSTILE}, "name": HOSTILE})
    told = ComparisonReport(compared, plains, (), command=f"fedpick compare {HOSTILE}", strategies=compared.names)
    path = tmp_path_factory.mktemp("hostile") / "report.html"
    path.write_text(render_page(told, Summary(HOSTILE, np.array([[3, 1], [0, 2]]), 0)))
    return path


SMALL = {"names": ("rand", "pow-d", "afl", "auto"), "seeds": 5, "rounds": 60}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render_page(comparison_report(**SMALL), summary()))
    return path


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Of twelve strategies and twenty seeds."""
    path = tmp_path_factory.mktemp("large") / "report.html"
    path.write_text(render_page(comparison_report(), summary()))
    return path


@pytest.fixture(scope="module")
def paper(tmp_path_factory):
    store = RunStore(tmp_path_factory.mktemp("paper"))
    results = reproduce(get_items(["fig1"]), TINY, store)
    path = store.folder / "paper.html"
    path.write_text(as_page(Reproduction(results, TINY, store, "fedpick paper fig1")))
    return path


@pytest.fixture(scope="module")
def arena(tmp_path_factory):
    scores = made_up_scores([0.0, 0.4, -0.2, 0.1], problems=8, names=("rand", "pow-d", HOSTILE, "auto"))
    path = tmp_path_factory.mktemp("arena") / "arena.html"
    path.write_text(render_arena(scores, f"Suite 1 of {HOSTILE}."))
    return path


@pytest.fixture(params=["report", "paper", "arena"])
def document(request):
    return request.getfixturevalue(request.param)


class Seen:
    """A page that is open, and what went wrong on it."""

    def __init__(self, browser, path, **options):
        for context in browser.contexts:  # a page that is open goes on working
            context.close()
        self.page = browser.new_page(**options)
        self.wrong, self.asked = [], []
        bad = ("error", "warning")
        self.page.on("console", lambda message: self.wrong.append(message.text) if message.type in bad else None)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.wrong.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_function(DRAWN)

    def text(self, selector):
        return self.page.locator(selector).first.inner_text()

    def opacities(self, name):
        """Of the lines of a panel, by colour."""
        lines = self.page.locator(f"#chart-{name} .mark-line.role-mark path").all()
        return {line.get_attribute("stroke"): float(line.get_attribute("opacity") or 1) for line in lines}


@pytest.mark.parametrize("name", ["large", "paper", "arena"])
def test_everything_is_drawn_offline_and_without_an_error_in_two_seconds(browser, request, name):
    document = request.getfixturevalue(name)
    assert document.stat().st_size < 3_000_000
    took = []
    for _ in range(5):  # the browser may have to wake up, and others may be at work on this machine
        began = time.monotonic()
        seen = Seen(browser, document)
        took.append(time.monotonic() - began)
        if took[-1] < 2:
            break
    assert took[-1] < 2
    assert seen.wrong == []
    assert [url for url in seen.asked if not url.startswith(("file:", "data:", "blob:"))] == []
    for chart in seen.page.locator("svg.marks").all():
        assert chart.locator(".mark-line path, .mark-symbol path, .mark-rect path").count() > 0
        assert chart.get_attribute("aria-label") or chart.evaluate("svg => svg.closest('[aria-label]') !== null")


def test_there_are_no_half_rounds(browser, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(render_page(comparison_report(names=("rand", "pow-d"), seeds=2, rounds=3), summary()))
    seen = Seen(browser, path)
    labels = seen.page.locator("#chart-learning-loss .role-axis >> nth=0").locator(".role-axis-label text").all()
    shown = [text for label in labels if (text := label.text_content())]
    assert len(shown) > 1
    assert all(text.isdigit() for text in shown)


def test_what_was_compared_comes_first_then_the_answer_then_numbers(browser, report):
    seen = Seen(browser, report)
    tops = [
        seen.page.locator(s).first.bounding_box()["y"] for s in (".facts", "#answer", "#cards", "#scores", ".panel")
    ]
    assert tops == sorted(tops)
    facts = seen.text(".facts")
    for word in ("Made-up data", "30, of which 3", "4 strategies, 5 seeds, 60 rounds", "31 January 2026"):
        assert word in facts
    assert seen.page.locator("#cards li").count() == 4
    assert seen.page.locator("#scores tr.winner th").inner_text().startswith("auto")
    sides = seen.page.locator("#scores tbody td").evaluate_all("cells => cells.map(c => getComputedStyle(c).textAlign)")
    assert set(sides) == {"right"}


def test_a_target_that_is_moved_changes_the_table_the_answer_the_cards_and_the_charts(browser, report):
    seen = Seen(browser, report)
    compared = comparison_report(**SMALL).comparison

    def told():
        rule = seen.page.locator("#chart-speed-up .mark-rule line").evaluate_all("n => n.map(e => e.outerHTML).join()")
        return [seen.text(part) for part in ("#goal", "#answer", "#cards", "#scores")] + [rule]

    before = told()
    seen.page.locator("#target").focus()
    for _ in range(5):
        seen.page.keyboard.press("ArrowLeft")  # to an easier one
    seen.page.wait_for_timeout(300)
    after = told()
    assert all(one != other for one, other in zip(before, after, strict=True))
    easier = float(after[0].removeprefix("loss "))
    assert easier > compared.threshold
    assert re.sub(r"\s+", " ", after[1]) == compared.at(easier).answer  # the very sentence of the terminal
    seen.page.locator("input[value=seconds]").check(force=True)
    seen.page.wait_for_timeout(600)
    assert re.sub(r"\s+", " ", seen.text("#answer")) == compared.at(easier, "seconds").answer
    assert seen.text("#seeds h3") == "Seconds to the target, seed by seed"
    assert seen.wrong == []


def test_which_d_is_drawn_where_it_is_known_and_not_where_no_run_gets_there(browser, tmp_path):
    report = comparison_report(("rand", "d6", "d12"), 3, rounds=60)
    selectors = ({"kind": "rand", "m": 3}, {"kind": "pow-d", "m": 3, "d": 6}, {"kind": "pow-d", "m": 3, "d": 12})
    plains = tuple({"selector": selector} for selector in selectors)
    for value, known in ((0.1, False), (1.7, True)):
        compared = report.comparison.at(value)
        path = tmp_path / "report.html"
        path.write_text(render_page(replace(report, comparison=compared, experiments=plains)))
        seen = Seen(browser, path)
        assert seen.page.locator("#sweep").is_visible() == known
        assert ("is not known" in seen.text("#sweep-title + .soft")) != known
        seen.page.locator("#target").focus()
        seen.page.keyboard.press("Home")  # the easiest, which every run reaches
        seen.page.wait_for_timeout(500)
        assert seen.page.locator("#sweep .mark-symbol path").count() == 2
        seen.page.keyboard.press("End")
        seen.page.wait_for_timeout(500)
        assert "nan" not in seen.text("#cards").lower()
        assert seen.wrong == []


def test_a_name_in_the_legend_isolates_a_strategy_in_every_chart(browser, report):
    seen = Seen(browser, report)
    assert set(seen.opacities("learning-loss").values()) == {1.0}
    key = seen.page.locator(".legend button", has_text="rand").first
    key.press("Enter")
    seen.page.wait_for_timeout(200)
    assert key.get_attribute("aria-pressed") == "true"
    for chart in ("learning-loss", "worst", "by-bytes"):
        shown = seen.opacities(chart)
        assert shown.pop("#777777") == 1.0  # rand's
        assert set(shown.values()) == {0.1}
    key.click()
    seen.page.wait_for_timeout(200)
    assert set(seen.opacities("worst").values()) == {1.0}


def test_values_show_where_one_points_and_are_read_by_arrow_keys(browser, report):
    seen = Seen(browser, report)
    chart = seen.page.locator("#chart-learning-loss")
    chart.hover()
    box = seen.page.locator("#learning-loss .readout-box")
    assert box.is_visible()
    assert box.locator("tr").count() == 4
    seen.page.locator("#chart-worst").focus()
    seen.page.keyboard.press("ArrowRight")
    assert seen.page.locator("#worst .readout").inner_text().startswith("round 0: ")
    assert "rand" in seen.page.locator("#worst .readout").inner_text()
    for name, words in {"profile": "data share", "partition": "0: ", "sizes": "samples", "seeds": "rand: "}.items():
        seen.page.locator(f"#chart-{name}").focus()
        seen.page.keyboard.press("ArrowDown")
        assert words in seen.page.locator(f"#{name} .readout").inner_text()
    seen.page.locator("#chart-seeds .mark-symbol.role-mark path").first.hover(force=True)
    seen.page.wait_for_selector("#vg-tooltip-element.visible")


def test_charts_can_be_saved(browser, report):
    seen = Seen(browser, report)
    with seen.page.expect_download() as saved:
        seen.page.locator("#worst [data-save=svg]").click(force=True)
    assert saved.value.suggested_filename == "worst.svg"


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("name", "narrow", "wide"), [("Wien", True, False), ("Mecklenburg-Schwerin", True, True), ("", False, False)]
)
def test_names_of_clients_are_slanted_where_they_do_not_fit(browser, tmp_path, name, narrow, wide):
    report = comparison_report(**SMALL, K=10)
    names = tuple(f"{place}{name}" for place in range(10))
    results = tuple(replace(result, clients=names) for result in report.comparison.results)
    path = tmp_path / "report.html"
    path.write_text(render_page(replace(report, comparison=replace(report.comparison, results=results))))
    for width, slanted in ((390, narrow), (1280, wide)):
        page = Seen(browser, path, viewport={"width": width, "height": 800}).page
        label = page.locator("#chart-profile .role-axis-label text", has_text="3").first
        assert ("rotate(-40)" in label.get_attribute("transform")) == slanted
        assert label.get_attribute("text-anchor") == ("end" if slanted else "middle")


def test_hostile_names_are_shown_and_not_run(browser, hostile):
    seen = Seen(browser, hostile, viewport={"width": 390, "height": 800})
    assert seen.wrong == []
    assert seen.page.locator("#scores th", has_text="<script>alert(1)</script>").first.is_visible()
    assert HOSTILE in seen.text("#answer")
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.no_cover
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_follows_the_readers_scheme(browser, document, scheme):
    seen = Seen(browser, document, color_scheme=scheme)

    def brightness(selector, what):
        script = f"node => getComputedStyle(node).{what}"
        return sum(map(int, re.findall(r"\d+", seen.page.locator(selector).first.evaluate(script))[:3]))

    ground, ink = brightness("body", "backgroundColor"), brightness("body", "color")
    label = brightness("svg.marks .role-axis-label text", "fill")
    assert (
        (ground > 600 and ink < 200 and label < 320) if scheme == "light" else (ground < 200 and min(ink, label) > 450)
    )


@pytest.mark.no_cover
@pytest.mark.parametrize("width", [pytest.param(320, marks=pytest.mark.slow), 390, 1280])
def test_no_sideways_scrolling(browser, document, width):
    seen = Seen(browser, document, viewport={"width": width, "height": 800})
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width


def test_what_is_on_the_page_at_1280_is_there_at_390(browser, report):
    wide, texts = Seen(browser, report, viewport={"width": 1280, "height": 800}), []
    cells = "nodes => nodes.map(n => n.innerText).filter(Boolean)"
    texts = wide.page.locator("#scores .value, #scores small, .panel h3, .panel p.soft").evaluate_all(cells)
    narrow = Seen(browser, report, viewport={"width": 390, "height": 800}).page
    assert narrow.locator("#scores .value, #scores small, .panel h3, .panel p.soft").evaluate_all(cells) == texts
    for chart in narrow.locator("svg.marks").all():
        box = chart.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390


@pytest.mark.no_cover
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_axe_has_no_serious_finding(browser, document, width, scheme):
    if "CI" not in os.environ:
        pytest.importorskip("axe_playwright_python", reason="needs axe-playwright-python, of the extra dev")
    from axe_playwright_python.sync_playwright import Axe

    seen = Seen(browser, document, viewport={"width": width, "height": 800}, color_scheme=scheme)
    found = Axe().run(seen.page).response["violations"]
    grave = [each for each in found if each["impact"] in ("serious", "critical")]
    assert not grave, [(each["id"], [node["html"][:200] for node in each["nodes"][:3]]) for each in grave]


def test_the_keyboard_reaches_everything(browser, report):
    seen = Seen(browser, report)
    reached = set()
    for _ in range(150):
        seen.page.keyboard.press("Tab")
        at = seen.page.evaluate("(n => n.id || n.dataset.name || n.dataset.of || n.tagName)(document.activeElement)")
        if at == "BODY":
            break
        reached.add(at)
    panels = seen.page.locator("[data-panel]").evaluate_all("nodes => nodes.map(n => n.dataset.panel)")
    assert {f"chart-{panel}" for panel in panels} <= reached
    assert {"target", "auto", "rand", "SUMMARY", "A"} <= reached


def test_it_prints(browser, document):
    seen = Seen(browser, document)
    assert len(seen.page.pdf()) > 10_000
    seen.page.emulate_media(media="print")
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_the_page_is_the_same_for_the_same_runs(report):
    assert render_page(comparison_report(**SMALL), summary()) == report.read_text()
