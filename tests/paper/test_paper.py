"""The paper's items: each runs in a tiny form, concludes, is drawn and written; and the rules of the verdicts."""

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from support.outcomes import SMALL, complete
from typer.testing import CliRunner

from fedpick.cli import app
from fedpick.experiment import run_missing
from fedpick.paper import (
    FULL,
    ITEMS,
    LATER,
    QUICK,
    Check,
    Claim,
    ItemResult,
    Outcome,
    Reproduction,
    as_markdown,
    as_page,
    comparisons,
    get_items,
    published,
    reproduce,
    settings,
    timing,
    write_report,
)
from fedpick.results import Interval, Result
from fedpick.sim import Dirichlet, FashionMNIST, Federation, federations_of, pixels, simulate
from fedpick.storage import RunStore

PAPER = Path(__file__).parents[3] / "shared" / "paper" / "power-of-choice.tex"


@functools.cache
def stand_in(partition):
    """Images that are not Fashion-MNIST, of its shape and labels: tests need no data set."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, 3000)
    x = (rng.integers(0, 120, (3000, 28, 28)) + 13 * y[:, None, None]).astype(np.uint8)
    test = (x[:300], y[:300])
    return Federation.from_partition(x, y, partition, test=test, classes=10, prepare=pixels, name="stand-in")


def with_stand_in(patch):
    patch.setattr("fedpick.paper.items.find_fashion_mnist", lambda: Path())
    # Several seeds that share their samples are dealt out at once, by a list of partitions.
    patch.setattr(
        FashionMNIST,
        "federation",
        lambda self: stand_in(tuple(self.partition) if isinstance(self.partition, list) else self.partition),
    )


# Most of the programs, in make test-all. What each concludes from runs that are made up is in test_conclusions.py.
HEAVY = tuple(name for name in ITEMS if name not in ("fig1", "tifl"))  # one of the theory, one of runs


def run_everything(folder, *names):
    """Every run of these items in its smallest form."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        with_stand_in(patch)
        warnings.simplefilter("ignore")
        run_missing([e for name in names for e in ITEMS[name].experiments(SMALL).values()], RunStore(folder))


def concluded(folder, names):
    """These items concluded, from runs of a process in which XLA compiles many programs quickly and not well."""
    environment = {
        **os.environ,
        "FEDPICK_CACHE": "",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", "--xla_backend_optimization_level=0"),
    }
    code = "import sys, test_paper; test_paper.run_everything(*sys.argv[1:])"
    subprocess.run([sys.executable, "-c", code, folder, *names], check=True, env=environment)
    store = RunStore(folder)
    with pytest.MonkeyPatch.context() as patch:
        with_stand_in(patch)
        items = [ITEMS[name] for name in names]
        return store, {result.item.name: result for result in reproduce(items, SMALL, store)}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return concluded(tmp_path_factory.mktemp("paper"), [name for name in ITEMS if name not in HEAVY])


@pytest.fixture(scope="module")
def heavy(tmp_path_factory):
    return concluded(tmp_path_factory.mktemp("heavy"), HEAVY)


def test_the_stand_in_is_dealt_by_several_partitions_as_by_each(monkeypatch):
    with_stand_in(monkeypatch)
    data = [FashionMNIST(Dirichlet(K=100, alpha=0.3, seed=seed)) for seed in (0, 1)]
    counts = federations_of(data).count
    np.testing.assert_array_equal(counts, [one.federation().count for one in data])


def test_no_item_of_the_paper_is_missing():
    figures = {f"Figure {number}" for number in (1, "2a", "2b", 3, 4, 5, 6, 7, 8)}
    sources = {item.source for item in ITEMS.values() if item not in LATER}
    assert sources == figures | {"Table 1", "Table 2", "ours"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in HEAVY)) for n in ITEMS])
def test_every_item_concludes(name, request):
    _, found = request.getfixturevalue("heavy" if name in HEAVY else "tiny")
    complete(found[name].outcome)


def test_it_is_written_down(tiny, tmp_path):
    store, found = tiny
    done = list(found.values())
    reproduction = Reproduction(done, SMALL, store, "fedpick paper --all")
    everything = [*done, *(ItemResult(item, None) for name, item in ITEMS.items() if name not in found)]
    assert reproduction._replace(results=everything).about.startswith("Every figure and table of: Client Selection")
    paths = write_report(reproduction, tmp_path)
    charts = [chart.name for each in done for chart in each.outcome.charts]
    assert len(charts) == len(set(charts))
    assert {path.name for path in paths} == {
        "paper.html", "reproduction.md", *(f"{name}.{kind}" for name in charts for kind in ("svg", "pdf", "png"))
    }  # fmt: skip
    text = (tmp_path / "paper.html").read_text()
    assert len(text) < 3e6
    assert "http://" not in re.sub(r"http://www\.w3\.org[^\"' ]*", "", text.split("<script>")[0])  # nothing from afar
    assert text.count("data-chart=") == len(charts)
    assert "tiny version" in text
    assert as_page(reproduction) == text  # byte for byte
    markdown = (tmp_path / "reproduction.md").read_text()
    for each in done:
        assert f"## {each.item.source}: {each.item.title}" in markdown
    for name in charts:
        assert f"(figures/{name}.svg)" in markdown
    for anchor in re.findall(r"\]\(#([^)]*)\)", markdown):
        headings = {re.sub(r"[^a-z0-9 -]", "", line[3:].lower()).replace(" ", "-") for line in markdown.splitlines()}
        assert anchor in headings


def test_published_numbers_are_those_of_the_paper():
    if not PAPER.exists():
        pytest.skip("the paper's source is not here")
    tex = PAPER.read_text()
    for alpha, columns in published.TABLES.items():
        start = tex.index(f"with $\\alpha={alpha:g}$.")
        lines = tex[start : tex.index("\\end{tabular}", start)]
        numbers = [
            float(n)
            for n in re.findall(r"\d+\.\d+|\d+", re.sub(r"\\cmidrule.*|\\begin.*|.*multicolumn.*|.*pow-d.*", "", lines))
        ]
        for column in columns.values():
            for value in (column.r60, column.t_comp, column.accuracy, column.spread):
                assert value in numbers


def test_without_fashion_mnist_the_rest_is_done(tmp_path, monkeypatch):
    def gone():
        raise ConnectionError("fashion_mnist: could not download it; name a folder with FEDPICK_DATA")

    monkeypatch.setattr("fedpick.paper.items.find_fashion_mnist", gone)
    one, four = reproduce(get_items(["fig1", "fig4"]), SMALL, RunStore(tmp_path))
    assert one.outcome is not None
    assert four.outcome is None
    reproduction = Reproduction([one, four], SMALL, RunStore(tmp_path), "")
    assert "FEDPICK_DATA" in as_markdown(reproduction, "figures/")
    assert "Left out: fashion_mnist" in as_page(reproduction)


def test_the_paper_settings():
    experiment = settings.fashion(settings.FULL, settings.FEW["rand"], 0.3)
    assert (experiment.rounds, experiment.local.tau, experiment.local.b, experiment.local.eta) == (500, 30, 64, 0.005)
    assert experiment.local.schedule.at == (150, 300)
    assert experiment.model.objective == "minus-probability"
    assert len(experiment.seeds) >= 5
    assert experiment.for_seed(4).data.partition.seed == 4
    assert settings.quadratic(settings.FULL, settings.FEW["rand"], 30).rounds == 15_000
    assert settings.synthetic(settings.FULL, settings.FEW["rand"]).local.schedule.at == (300, 600)


# The rules


def result(accuracies, rounds=(0, 1)):
    values = np.asarray(accuracies, float)
    loss = 1 - values
    metrics = {"test_accuracy": values, "loss": loss}
    runs = [{"seed": s} for s in range(len(values))]
    return Result(runs, np.ones(2) / 2, 4, evaluated=np.asarray(rounds), metrics=metrics, records={})


BASE = result([[0.1, 0.50], [0.1, 0.52], [0.1, 0.51]])


@pytest.mark.parametrize(
    ("ends", "met"),
    [
        ((0.60, 0.62, 0.61), "yes"),
        ((0.57, 0.59, 0.58), "partly"),
        ((0.72, 0.74, 0.73), "partly"),  # twice as much is not about as much
        ((0.50, 0.60, 0.45), "unclear"),
        ((0.4, 0.4, 0.4), "no"),
    ],
)
def test_a_gain_of_about_ten_points(ends, met):
    better = result([[0.1, end] for end in ends])
    assert comparisons.gain("", better, BASE, 10.0).met == met


def test_above_as_well_and_times():
    slightly = result([[0.1, 0.51], [0.1, 0.53], [0.1, 0.525]])
    assert comparisons.above("", slightly, BASE).met == "yes"
    assert comparisons.above("", BASE, slightly).met == "no"
    assert comparisons.as_well("", result([[0.1, 0.50], [0.1, 0.53], [0.1, 0.51]]), BASE).met == "yes"
    assert comparisons.as_well("", result([[0.1, 0.6], [0.1, 0.5], [0.1, 0.55]]), BASE).met == "unclear"
    assert comparisons.as_well("", result([[0.1, 0.7], [0.1, 0.71], [0.1, 0.72]]), BASE).met == "no"
    one = result([[0.1, 0.9]])
    assert comparisons.above("", one, result([[0.1, 0.5]])).met == "unclear"  # one seed proves nothing
    assert "one seed" in comparisons.above("", one, result([[0.1, 0.5]])).evidence
    assert comparisons.factor_above_one("", [2.0, 2.1, 1.9], 2.0) == Check("", "yes", "2.00 [1.76, 2.26] times")
    assert comparisons.factor_above_one("", [1.2, 1.3, 1.25], 2.0).met == "partly"
    assert comparisons.factor_above_one("", [0.5, 3.0, 1.0]).met == "unclear"
    assert comparisons.factor_above_one("", [0.5, 0.5, 0.51]).met == "no"


def test_rounds_until_goes_by_the_mean_over_seeds():
    both = result([[0.1, 0.9, 0.5, 0.9], [0.1, 0.2, 0.9, 0.9]], rounds=(0, 2, 4, 6))
    assert comparisons.rounds_until(both) == 4
    assert comparisons.rounds_until(both, 0.99) == float("inf")
    assert comparisons.sooner("", both, result([[0.1, 0.1, 0.1, 0.7]] * 2, (0, 2, 4, 6))).met == "yes"


def test_speed_ups_count_who_never_gets_there():
    fast = result([[0.1, 0.6, 0.6], [0.1, 0.6, 0.6], [0.1, 0.1, 0.1], [0.1, 0.1, 0.1]], (0, 2, 4))
    slow = result([[0.1, 0.1, 0.6], [0.1, 0.1, 0.1], [0.1, 0.6, 0.6], [0.1, 0.1, 0.1]], (0, 2, 4))
    found, counted = comparisons.speed_up(fast, slow, "loss", 0.5)
    assert (found, counted) == (Interval(2.0, 0.0, float("inf")), 3)
    assert comparisons.speed_up(result([[0.1, 0.1]]), result([[0.1, 0.1]]), "loss", 0.5)[1] == 0


def test_a_larger_spread_of_ours_cannot_make_a_mean_agree():
    def met(values):
        return comparisons.equal_means("", np.array(values), 66.0, 0.5, 3).met

    assert met(np.linspace(65, 67, 10)) == "yes"
    assert met([66.0]) == met(np.linspace(50, 80, 10)) == met(np.linspace(52, 70, 10)) == "unclear"
    assert met(np.linspace(59, 61, 10)) == "no"
    ours, theirs = np.linspace(65, 67.5, 10), np.array([65.2, 66.0, 66.8])
    found = comparisons.equal_means("", ours, theirs.mean(), theirs.std(ddof=1), 3)
    low, high = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval()
    assert f"66.2 against 66.0: {Interval(ours.mean() - 66, low, high)} points" == found.evidence
    apart = comparisons.mean_difference(ours, theirs.mean(), theirs.std(ddof=1), 3)
    np.testing.assert_allclose(apart, (ours.mean() - 66, low, high), rtol=1e-6)


def test_a_smaller_version_says_so_in_every_verdict_and_describes_what_was_run():
    quick = replace(FULL, name="quick", fashion_rounds=30)
    assert "1e-4, 30 rounds; trained" in ITEMS["table1"].setting(quick)
    assert "1e-4, 500 rounds; trained" in ITEMS["table1"].setting(FULL)
    assert "300 and 600, 800 rounds" in ITEMS["fig3"].setting(FULL)
    assert (quick.label, FULL.label) == (" (quick version)", "")
    assert not any("{" in item.setting(FULL) for item in ITEMS.values())


@pytest.mark.parametrize("size", [QUICK, FULL])
def test_a_smaller_version_says_so_in_the_title_of_every_picture(size, tmp_path):
    results = reproduce(get_items(["fig1"]), size, RunStore(tmp_path))
    (chart,) = results[0].outcome.charts
    (plain,) = ITEMS["fig1"].conclude(None).charts
    assert chart == replace(plain, title="Two clients: the one of higher loss, or one at random" + size.label)
    write_report(Reproduction(results, size, RunStore(tmp_path), ""), tmp_path)
    drawn = (tmp_path / "figures" / "fig1.svg").read_text()
    assert ("one at random (quick version)<" in drawn) == (size is QUICK)


def test_verdicts():
    def claim(*met):
        return Claim("", "", tuple(Check(f"{place}", one, "x") for place, one in enumerate(met)))

    assert claim("yes", "yes").verdict == "reproduced"
    assert claim("yes", "no").verdict == claim("partly").verdict == "partly reproduced"
    assert claim("no").verdict == claim("unclear", "no").verdict == "not reproduced"
    assert claim("unclear", "unclear").verdict == "undecided"
    assert claim("yes", "no").reason == "1 of 2 checks are met; not, or not surely: 1 (x)"


# One that polls and one that does not; the others are in make test-all.
@pytest.mark.parametrize(
    "name",
    [
        "rand",
        *(
            pytest.param(f"{n}, d = {d}", marks=pytest.mark.slow)
            for n, d in (("cpow-d", 6), ("pow-d", 6), ("rpow-d", 50))
        ),
    ],
)
def test_t_comp_is_timed_on_the_rounds_that_the_simulator_plays(name):
    experiment = settings.fashion(replace(SMALL, fashion_rounds=3), settings.FEW[name], 0.3)
    federation = stand_in(experiment.data.partition)
    timed = timing.TimedRun(experiment, federation)
    by_hand = []
    for t in range(3):
        phases = timed.round(t)
        assert (phases[0] > 0) == (name in ("pow-d, d = 6", "cpow-d, d = 6"))
        assert min(phases[1:]) > 0
        by_hand.append(np.asarray(timed.selection.clients))
    model, local = experiment.model.build(federation), experiment.local
    with pytest.warns(UserWarning, match="simulate: b=64"):
        played = simulate(federation, model, experiment.selector, local, rounds=3, progress=False)
    np.testing.assert_array_equal(played.records["clients"][0], by_hand)


# The command line


def command(*arguments):
    return CliRunner().invoke(app, ["paper", *arguments])


@pytest.mark.slow
def test_the_list(tmp_path):
    answer = command("--list", "--quick", "-o", str(tmp_path / "none"))
    assert answer.exit_code == 0
    for name in ITEMS:
        assert name in answer.output
    assert not (tmp_path / "none").exists()
    later = command("--list", "--later", "-o", str(tmp_path / "none")).output
    assert "oort" in later
    assert "fig3" not in later


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["fig33"], "did you mean 'fig3'?"),
        ([], "say --all, --later or --list"),
        (["--all", "table1"], "paper: an item must not be named with --all, which has it, got 'table1'"),
        (["--later", "oort"], "paper: an item must not be named with --later, which has it, got 'oort'"),
        (["fig1", "-o", "FILE"], "cannot be written to"),
    ],
)
def test_wrong_uses(arguments, sentence, tmp_path):
    (tmp_path / "file").write_text("")
    arguments = [str(tmp_path / "file") if argument == "FILE" else argument for argument in arguments]
    answer = command(*arguments)
    assert answer.exit_code == 1
    assert sentence in answer.output


def test_an_item_from_the_command_line(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("x")
    answer = command("fig1", "--quick", "-o", str(tmp_path / "out"), "--docs", str(tmp_path / "docs"))
    assert answer.exit_code == 0, answer.output
    assert "mine.txt: not written by fedpick" in answer.output
    assert (tmp_path / "out" / "paper.html").exists()
    assert "| [Figure 1](reproduction/fig1.md) |" in (tmp_path / "docs" / "reproduction.md").read_text()
    page = (tmp_path / "docs" / "reproduction" / "fig1.md").read_text()
    assert page.startswith("# Figure 1: The two-client example\n")
    assert "(../img/paper-fig1.svg)" in page
    assert [path.name for path in (tmp_path / "docs" / "img").iterdir()] == ["paper-fig1.svg"]
    again = command("fig1", "--quick", "-o", str(tmp_path / "out"))
    assert "paper.html: not written" not in again.output


def test_the_page_keeps_the_items_that_it_has(tmp_path, monkeypatch):
    size = ["--quick", "--seeds", "1", "-o", str(tmp_path)]
    assert command("fedcor", *size).exit_code == 0
    alone = (tmp_path / "reproduction.md").read_text()
    monkeypatch.setattr("sys.argv", ["fedpick", "paper", "fig1", *size])
    assert command("fig1", *size).exit_code == 0
    for name, mark in (("reproduction.md", "## FedCor: "), ("paper.html", 'id="fedcor"')):
        assert mark in (tmp_path / name).read_text()
    both = (tmp_path / "reproduction.md").read_text()
    assert "## Figure 1: " in both
    assert "\nfedpick paper fedcor fig1 --quick --seeds 1\n" in both  # what makes all of it
    assert "\nA part of the reproduction of: Client Selection" in both
    verdict = re.search(r"## FedCor: .*?(?=\n## )", alone, re.DOTALL)[0]
    assert verdict in both
    for path in (tmp_path / "runs").iterdir():
        shutil.rmtree(path)
    less = command("fig1", *size)
    assert "paper: the page is made without fedcor: its runs are gone\n" in less.output
    assert 'id="fedcor"' not in (tmp_path / "paper.html").read_text()


@pytest.mark.parametrize("lost", [(), ("paper.html", "figures/fig1.*"), ("reproduction.md",)])
def test_a_page_of_another_size_is_not_replaced(lost, tmp_path):
    assert command("fig1", "--quick", "-o", str(tmp_path)).exit_code == 0
    for path in [path for name in lost for path in tmp_path.glob(name)]:
        path.unlink()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for other, name in (((), "full"), (("--quick", "--seeds", "1"), "quick, 1-seed")):
        answer = command("fedcor", *other, "-q", "-o", str(tmp_path))
        rule = f"must not have a page of another size than the {name} version, and has one"
        assert answer.stderr == f"paper: {tmp_path} {rule}; choose another folder with -o\n"
        assert answer.exit_code == 1
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert command("fig1", "--quick", "-o", str(tmp_path)).exit_code == 0


def test_docs_of_another_size_are_not_replaced(tmp_path):
    docs = tmp_path / "docs"
    assert command("fig1", "-q", "-o", str(tmp_path / "full"), "--docs", str(docs)).exit_code == 0
    before = {path: path.read_bytes() for path in docs.rglob("*") if path.is_file()}
    answer = command("fig1", "--quick", "-q", "-o", str(tmp_path / "quick"), "--docs", str(docs))
    rule = "must not have a page of another size than the quick version, and has one"
    assert answer.stderr == f"paper: {docs} {rule}; choose another folder with --docs\n"
    assert answer.exit_code == 1
    assert not (tmp_path / "quick").exists()
    assert {path: path.read_bytes() for path in docs.rglob("*") if path.is_file()} == before
    assert command("fig1", "-q", "-o", str(tmp_path / "full"), "--docs", str(docs)).exit_code == 0


def test_the_terminal_says_what_the_page_says(tmp_path, monkeypatch):
    """What the paper does not have is not reproduced: it holds, or does not."""
    wrong = Outcome((Claim("It does.", "ours", (Check("it does", "no", "-1"),)),))
    ours = replace(ITEMS["fig1"], source="ours", conclude=lambda runs: wrong)
    monkeypatch.setitem(ITEMS, "fig1", ours)
    answer = command("fig1", "--quick", "-o", str(tmp_path))
    assert f"ours, {ours.title}: does not hold (quick version)" in answer.stderr
    assert "Verdict: does not hold (quick version)" in (tmp_path / "paper.html").read_text()


def test_the_quick_and_the_full_version_have_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for size in (["--quick"], []):
        assert command("fig1", *size).exit_code == 0
    assert "quick version" in (tmp_path / "paper-quick" / "paper.html").read_text()
    assert "quick version" not in (tmp_path / "paper" / "paper.html").read_text()
    assert "paper-quick with --quick" in " ".join(re.sub("[│╭╰─]", "", command("--help").output).split())


@pytest.mark.slow
def test_everything_in_the_quick_form(tmp_path):
    call = [Path(sys.executable).with_name("fedpick"), "paper", "--all", "--quick", "-o", tmp_path]
    done = subprocess.run(call, capture_output=True, text=True, check=False, timeout=3600)
    assert done.returncode == 0, done.stderr
    assert "quick version" in (tmp_path / "paper.html").read_text()
    assert json.loads(next((tmp_path / "findings").glob("skews-*")).read_text())["found"]
