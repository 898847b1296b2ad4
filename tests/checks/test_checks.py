"""check_selector passes what is right, and says of each broken strategy what is broken."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.broken import BROKEN
from support.rounds import ALIKE, EVERY, STATIC, every

import fedpick
from fedpick import LawBrokenError, check_selector, sampling
from fedpick.checks import CLAIMS
from fedpick.checks.harness import Trial
from fedpick.checks.laws import check_linear, check_traceable

# A check compiles a strategy seven times. Left are one strategy of each kind of poll, of facts, of cost, of claims, and
# one made of others; those of these sets are in make test-all.
CHECKED_ALIKE = ALIKE | {
    "uniform",
    "cpow-d",
    "adapow-d",
    "afl",
    "auto",
    "oort",
    "k-vib",
    "clustered-similarity",
    "cooldown",
}
FAULTS_ALIKE = {
    "EmptySeatCounts": "EmptySeatIsTheLastClient",
    "EmptySeatForgetsTheLastClient": "EmptySeatIsTheLastClient",
    "LowestLossFirst": "StaleLossNotInfiniteAtFirst",
    "KeyReusedBetweenProposeAndSelect": "KeyOfItsOwn",
    "WeightsBySizeTwice": "WeightsDoNotSumToOne",
    "SilentClientsEligible": "SilentClientsAnswerFromMemory",
    "SortsEverybody": "SortsEverybodyByTopK",
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in CHECKED_ALIKE)) for n in EVERY])
def test_every_strategy_of_the_table_keeps_the_laws(name):
    held = check_selector(every()[name], static=STATIC.get(name, ()))
    assert [line.split(":")[0] for line in held[:8]] == [f"law {n}" for n in range(1, 9)]
    assert ("candidates_by_share" in str(held)) == ("pow" in name)
    assert ("highest_loss_first" in str(held)) == (name in ("pow-d", "rpow-d", "adapow-d-switch", "adapow-d-halving"))


@pytest.mark.no_cover
@pytest.mark.parametrize(
    "score",
    [
        pytest.param(fedpick.LocalLoss(True), id="loss", marks=pytest.mark.slow),
        pytest.param(lambda loss, size: loss * size, id="own"),
    ],
)
def test_other_scores_keep_the_laws(score):
    check_selector(fedpick.PowerOfChoice(2, 5, "stale", score), num_clients=7)


@fedpick.pytree
class Largest:
    """The keys break ties alone, of which there are none where all sizes differ."""

    m: int = fedpick.static()
    poll = "none"

    def init(self, num_clients):
        return fedpick.Ledger.init(num_clients)

    def propose(self, key, state, clients):
        return clients.available

    def select(self, key, state, clients, candidates, losses):
        return sampling.seat(*sampling.top_k(key, clients.size.astype(jnp.float32), candidates, self.m))

    def observe(self, state, selection, report):
        return state.observe(selection, report)


def test_a_strategy_that_draws_for_ties_alone_keeps_the_laws():
    check_selector(Largest(m=3))


@fedpick.pytree
class RoundRobin(Largest):
    """The next in turn: there are no ties, so that the keys decide nothing."""

    m: int = fedpick.static()

    def init(self, num_clients):
        return jnp.int32(0)

    def select(self, key, state, clients, candidates, losses):
        K = candidates.shape[0]
        turn = (jnp.arange(K, dtype=jnp.int32) - state * self.m) % K
        return sampling.seat(*sampling.top_k(key, -turn.astype(jnp.float32), candidates, self.m))

    def observe(self, state, selection, report):
        return state + jnp.int32(1)


def test_a_strategy_whose_keys_decide_nothing_keeps_the_laws():
    check_selector(RoundRobin(m=2))


@fedpick.pytree
class NoDtype(Largest):
    """A strategy whose score names no dtype."""

    def select(self, key, state, clients, candidates, losses):
        return sampling.seat(*sampling.top_k(key, jnp.zeros(candidates.shape), candidates, self.m))


def test_a_score_that_names_no_dtype_is_lawful():
    check_selector(NoDtype(m=3))


@fedpick.pytree
class FailsWithX64(Largest):
    """A strategy that takes for granted that numbers have 32 bits."""

    def select(self, key, state, clients, candidates, losses):
        bits = jax.lax.bitcast_convert_type(jnp.zeros(candidates.shape), jnp.uint32).reshape(candidates.shape)
        return sampling.seat(*sampling.top_k(key, bits.astype(jnp.float32), candidates, self.m))


def test_a_strategy_that_fails_with_x64_breaks_law_5():
    with pytest.raises(LawBrokenError, match=r"^law 5 .*with x64, .* it fails: cannot reshape"):
        check_selector(FailsWithX64(m=3))


def test_the_table_of_strategies_has_no_row_that_is_not_checked():
    assert set(EVERY) == set(fedpick.STRATEGIES)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in FAULTS_ALIKE)) for n in BROKEN])
def test_a_broken_strategy_is_caught(name):
    selector, says = BROKEN[name]
    with pytest.raises(LawBrokenError, match=f"^{says} "):
        check_selector(selector)


def test_what_stands_for_another_fault_is_caught_by_the_same_law():
    for left_out, stands in FAULTS_ALIKE.items():
        assert stands not in FAULTS_ALIKE
        assert BROKEN[left_out][1] == BROKEN[stands][1]


def test_an_empty_seat_is_not_the_last_client():
    selector, _ = BROKEN["EmptySeatIsTheLastClient"]
    with pytest.raises(LawBrokenError, match="last client where a seat is empty; an empty seat is client -1"):
        check_selector(selector)


def test_the_message_names_the_law_and_the_inputs():
    selector, _ = BROKEN["UnavailableClientChosen"]
    with pytest.raises(
        LawBrokenError, match=r"law 2 .*propose returned unavailable clients .*, on size=.*available=.*losses="
    ):
        check_selector(selector)


def test_a_strategy_must_be_a_frozen_dataclass_and_a_pytree():
    class Plain:
        m, poll = 1, "none"

    @dataclass(frozen=True)
    class NoTree:
        m: int
        poll: str = "none"

    with pytest.raises(LawBrokenError, match="Plain must be a frozen dataclass"):
        check_selector(Plain())
    with pytest.raises(LawBrokenError, match="NoTree must be a pytree"):
        check_selector(NoTree(1))

    @fedpick.pytree
    class Sometimes:
        m: int = fedpick.static()
        poll: str = fedpick.static(default="sometimes")

    with pytest.raises(LawBrokenError, match=r"Sometimes must have init, as fedpick.Selector says"):
        check_selector(Sometimes(1))
    methods = dict.fromkeys(("init", "propose", "select", "observe"))
    complete = fedpick.pytree(type("Sometimes", (Sometimes,), methods))
    with pytest.raises(LawBrokenError, match="poll must be one of 'none', 'full', 'batch', 'norm', got 'sometimes'"):
        check_selector(complete(1))


@pytest.mark.skipif(jax.__version_info__ >= (0, 11), reason="seen in JAX 0.10")
def test_a_class_that_jit_may_take_for_another_is_refused():
    @jax.tree_util.register_dataclass
    @dataclass(frozen=True)
    class Confusable:
        m: int
        poll: str = field(default="none", metadata={"static": True})

    with pytest.raises(LawBrokenError, match="Confusable: jit may confuse it with another class"):
        check_selector(Confusable(1))


@pytest.mark.no_cover
def test_numbers_of_numpy_and_jax_are_numbers_too():
    check_selector(fedpick.PowerOfChoice(2, np.int64(12), score=fedpick.ClippedLoss(jnp.float32(3))))


def test_wrong_arguments_of_the_check_itself():
    with pytest.raises(ValueError, match="check_selector: num_clients must be at least 1, got 0"):
        check_selector(fedpick.Rand(1), num_clients=0)
    with pytest.raises(ValueError, match=r"check_selector: num_clients must be at most 10,000, .* got 200,000 for m=1"):
        check_selector(fedpick.Rand(100_000))
    with pytest.raises(ValueError, match="check_selector: seed must be at least 0"):
        check_selector(fedpick.Rand(1), seed=-1)
    with pytest.raises(LawBrokenError, match="Rand must be an instance, such as"):
        check_selector(fedpick.Rand)
    with pytest.raises(LawBrokenError, match=r"LocalLoss must have m, as fedpick.Selector says"):
        check_selector(fedpick.LocalLoss())


@fedpick.pytree
class LeavesOneOut(fedpick.Rand):
    """Never asks the smallest client, which has 1 of 385 samples, and says that it is unbiased."""

    def propose(self, key, state, clients):
        return clients.available.at[0].set(False)


@pytest.mark.no_cover
@pytest.mark.parametrize("m", [1, 3])
def test_a_small_client_that_is_never_drawn_makes_a_strategy_biased(m):
    with pytest.raises(LawBrokenError, match=r"^unbiased "):
        check_selector(LeavesOneOut(m))


def test_clients_that_are_hardly_ever_drawn_do_not_make_a_strategy_biased():
    check_selector(fedpick.Rand(3), 1000)


def test_a_static_number_that_is_declared_passes():
    selector, _ = BROKEN["RecompilesOnNewD"]
    check_selector(selector, static=("d",))


def test_the_protocol_names_every_claim():
    for claim in CLAIMS:
        assert f"``{claim} = True``" in fedpick.Selector.__doc__


def test_d_may_be_all_the_clients():
    check_traceable(Trial(fedpick.PowerOfChoice(2, 4), 4, seed=0), ())


def test_a_table_of_clients_is_as_long_as_a_million():
    @fedpick.pytree
    class Prior(Largest):
        m: int = fedpick.static()
        prior: jax.Array

        def select(self, key, state, clients, candidates, losses):
            weight = jnp.where(candidates, jnp.asarray(self.prior, jnp.float32), jnp.float32(0))
            return sampling.seat(*sampling.first_k(sampling.arrivals(key, weight), self.m))

    for prior in (jnp.arange(1, 7, dtype=jnp.float32), [1, 2, 3, 4, 5, 6.0], (1, 2, 3, 4, 5, 6)):
        check_linear(Prior(2, prior), few=6)
