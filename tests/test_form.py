"""Mistakes in a strategy of one's own: one sentence each, from check_selector, simulate and Flower alike."""

import random
import time
import types
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpick import (
    Clients,
    Cooldown,
    LawBrokenError,
    PowerOfChoice,
    Selection,
    check_selector,
    pick,
    pytree,
    round_keys,
    sampling,
    static,
)
from fedpick.protocol import check_strategy
from fedpick.purity import is_own, trace_again
from fedpick.pytrees import whole_fields
from fedpick.sim import (
    Digits,
    Federation,
    Local,
    Logistic,
    Quadratic,
    QuadraticModel,
    Synthetic,
    fit,
    from_apply,
    simulate,
)
from fedpick.sim.preflight import check_schedule
from fedpick.tracing import check_methods

K = 5


class Plain:
    m: int = static()
    poll = "none"

    def init(self, num_clients):
        return jnp.zeros(num_clients, jnp.float32)

    def propose(self, key, state, clients):
        return clients.available

    def select(self, key, state, clients, candidates, losses):
        return sampling.seat(*sampling.top_k(key, state, candidates, self.m))

    def observe(self, state, selection, report):
        return state


def made(name="Mine", **parts):
    """A strategy like Plain, with other parts."""
    common = {name: part for name, part in vars(Plain).items() if not name.startswith("__") or "annotations" in name}
    return pytree(type(name, (), {**common, "__module__": __name__, **parts}))


def seats(change):
    """A select that changes what a right one gives."""
    return lambda self, *given: change(*Plain.select(self, *given))


WRONG = {
    "select gives a tuple": (
        {"select": seats(lambda clients, weights: (clients, weights))},
        r"Mine.select must give a Selection of m=2 clients and weights, got \(int32\[2\], float32\[2\]\)",
    ),
    "select gives an array": (
        {"select": seats(lambda clients, weights: clients)},
        r"Mine.select must give a Selection of m=2 clients and weights, got int32\[2\]",
    ),
    "select gives None": ({"select": lambda *given: None}, "Mine.select must give a Selection of m=2 .*, got None"),
    "lists": (
        {"select": lambda *given: Selection([1, 2], [0.5, 0.5])},
        "Mine.select must give a Selection of m=2 clients and weights, which are arrays, got Selection",
    ),
    "too few weights": (
        {"select": seats(lambda clients, weights: Selection(clients, weights[:1]))},
        r"Mine.select must give .*, got shapes \(2,\) and \(1,\)",
    ),
    "clients are floats": (
        {"select": seats(lambda clients, weights: Selection(weights, weights))},
        "Mine.select must give .*, int32 and float32, got float32 and float32",
    ),
    "weights are whole": (
        {"select": seats(lambda clients, weights: Selection(clients, clients))},
        "Mine.select must give .*, int32 and float32, got int32 and int32",
    ),
    "candidates are numbers of clients": (
        {"propose": lambda self, key, state, clients: jnp.arange(clients.size.shape[0])},
        r"Mine.propose must give a mask bool\[\d+\], True for each client that is meant, got int32",
    ),
    "candidates are of m clients": (
        {"propose": lambda self, key, state, clients: clients.available[:2]},
        r"Mine.propose must give a mask bool\[\d+\], .*, got bool\[2\]",
    ),
    "propose gives None": (
        {"propose": lambda *given: None},
        r"Mine.propose must give a mask bool\[\d+\], .*, got None",
    ),
    "observe gives None": (
        {"observe": lambda *given: None},
        r"Mine.observe must return a state of the form that init gives, float32\[\d+\], got None",
    ),
    "init gives a text": (
        {"init": lambda *given: {"kind": "mine"}},
        r"Mine.init must give a state of arrays and numbers, got 'mine' at \['kind'\]",
    ),
    "init takes nothing": ({"init": lambda self: ()}, r"Mine.init must be a method of \(num_clients\), got \(\)"),
    "select takes less": (
        {"select": lambda self, key, state: ()},
        r"Mine.select must be a method of \(key, state, clients, candidates, losses\), got \(key, state\)",
    ),
    "poll is None": ({"poll": None}, "Mine: poll must be one of 'none', 'full', 'batch', 'norm', got None"),
    "a flag is a word": ({"unbiased": "yes"}, "Mine: unbiased must be True or False, got 'yes'"),
    "a flag is a number": ({"one_key": 1}, "Mine: one_key must be True or False, got 1"),
    "a flag is None": ({"weights_sum_to_1": None}, "Mine: weights_sum_to_1 must be True or False, got None"),
    "no method": ({"asks": True}, "Mine: asks must be a method, got True"),
    "needs a text": ({"needs": "loss"}, "Mine: needs must be a set of names, such as {'duration'}, got 'loss'"),
    "needs what is not": ({"needs": {"luck"}}, "Mine: needs must be among expected_duration, .*, got 'luck'"),
    "sketches of no length": ({"needs": {"sketch"}}, "Mine: sketch_size must be a whole number, got None"),
    "work": ({"work": "K log K"}, "Mine: work must be one of 'K', 'K s', 'K.2', got 'K log K'"),
}


def play(selector, **options):
    return simulate(Quadratic(K=K), QuadraticModel(), selector, Local(tau=1, b=1, eta=1e-3), rounds=2, **options)


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_of_form_is_one_sentence(name):
    parts, sentence = WRONG[name]
    selector = made(**parts)(2)
    with pytest.raises(ValueError, match=f"^{sentence}"):
        play(selector)
    with pytest.raises(LawBrokenError, match=f"^{sentence}"):
        check_selector(selector)


@pytest.mark.parametrize("name", ["select gives a tuple", "candidates are numbers of clients", "clients are floats"])
def test_pick_says_the_same(name):
    parts, sentence = WRONG[name]
    clients = Clients(size=jnp.ones(K), available=jnp.ones(K, bool))
    with pytest.raises(ValueError, match=f"^{sentence}"):
        pick(made(**parts)(2), round_keys(0, 0), jnp.zeros(K), clients, None)


@pytest.mark.parametrize("m", [2.5, "a", True, jnp.int32(2)])
def test_m_is_a_whole_number(m):
    with pytest.raises(ValueError, match=r"^Mine: m must be a whole number.*, got "):
        check_strategy("simulate", made()(m))


def test_m_is_static_and_a_missing_method_is_named():
    loose = pytree(type("Loose", (Plain,), {"__annotations__": {"m": int}, "m": 2, "__module__": __name__}))
    with pytest.raises(ValueError, match=r"^Loose: m must be static, as in `m = fedpick\.static\(\)`, and is a data"):
        play(loose(2))
    incomplete = made()
    del incomplete.observe
    for use in (play, Cooldown):
        with pytest.raises(ValueError, match=r"Mine must have observe, as fedpick\.Selector says"):
            use(incomplete(2))


def test_a_state_that_changes_its_form_is_refused_by_a_compiled_loop():
    grows = made(observe=lambda self, state, *given: jnp.concatenate([state, state]))
    with pytest.raises(ValueError, match=r"^Mine.observe must return .*, float32\[5\], got float32\[10\]"):
        play(grows(2))
    other = made(observe=lambda self, state, *given: state.astype(jnp.int32))
    with pytest.raises(ValueError, match=r"^Mine.observe must return .*, float32\[5\], got int32\[5\]"):
        play(other(2))
    branches = made(select=lambda self, key, state, *more: Plain.select(self, key, state, *more) if state[0] else None)
    with pytest.raises(ValueError, match=r"^Mine\.select must be code that JAX can trace, got: Attempted boolean"):
        play(branches(2))


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("weight", [jnp.nan, jnp.inf, -1])
def test_weights_that_are_none_end_the_run(weight, jit):
    heavy = made(select=seats(lambda clients, weights: Selection(clients, weights * jnp.float32(weight))))
    with pytest.raises(ValueError, match=r"Mine.select must give weights that are finite and at least 0, got"):
        play(heavy(2), jit=jit)


COUNT = [0]
COMPILED = jax.jit(lambda: jnp.float32(np.random.rand()))


def count():
    COUNT[0] += 1
    return COUNT[0] // 2


IMPURE = {
    "numpy": lambda: np.random.rand(),
    "coin": lambda: np.random.randint(2),
    "array": lambda: np.random.rand(K),
    "generator": lambda: np.random.default_rng().random(),
    "python": random.random,
    "clock": lambda: time.perf_counter_ns() % 1_000_003,
    "every other trace": count,
    "compiled": lambda: COMPILED(),
}


def drawing(draw):
    return made(select=lambda self, key, state, *more: Plain.select(self, key, state + draw(), *more))(2)


@pytest.mark.parametrize("name", IMPURE)
def test_a_draw_that_jax_does_not_see_is_refused(name):
    with pytest.raises(ValueError, match=r"^Mine.select must be a pure function: it gave another program when traced"):
        check_methods(drawing(IMPURE[name]), K)


def test_what_simulate_refuses():
    sentence = "must be a pure function: it gave another program when traced again"
    with pytest.raises(ValueError, match=f"^Mine.select {sentence}"):
        play(Cooldown(drawing(IMPURE["numpy"])).selector)
    with pytest.raises(ValueError, match=f"^Cooldown.select {sentence}"):
        play(Cooldown(drawing(IMPURE["numpy"]), rounds=1))
    with pytest.raises(ValueError, match=f"^PowerOfChoice.select {sentence}"):
        play(PowerOfChoice(2, 3, score=lambda loss, size: loss * np.random.rand()))
    with pytest.raises(LawBrokenError, match=f"^Mine.select {sentence}"):
        check_selector(drawing(IMPURE["python"]))

    @pytree
    class Weather:
        def __call__(self, key, t, num_clients):
            return jnp.asarray(np.random.rand(num_clients) < 0.5)

    with pytest.raises(ValueError, match=f"^Weather {sentence}"):
        play(made()(2), availability=Weather())
    data = Synthetic(1, 1, K=K, dim=3, classes=2)
    model = from_apply(lambda key: jnp.float32(np.random.rand(3, 2)), lambda w, x, key: x @ w)
    with pytest.raises(ValueError, match=f"^model.init {sentence}"):
        simulate(data, model, PowerOfChoice(2, 3), Local(tau=1, b=1, eta=1e-3), rounds=2)


def test_data_that_change_are_refused(monkeypatch):
    class Lots:
        def __init__(self, draw):
            self.draw = draw

        def federation(self):
            y = np.arange(20) % 2
            return Federation.from_arrays(self.draw().reshape(20, 1), y, np.arange(20) % 4, test=None)

    local = Local(tau=1, b=1, eta=1e-3)
    with pytest.raises(ValueError, match=r"^Lots.federation must be a pure function: it gave other data when called"):
        simulate(Lots(lambda: np.random.rand(20)), Logistic(), made()(2), local, rounds=1)
    simulate(Lots(lambda: np.random.default_rng(0).random(20)), Logistic(), made()(2), local, rounds=1)
    clock = iter((0.0, 3.0))  # the first time, scikit-learn is imported
    monkeypatch.setattr(fit, "time", types.SimpleNamespace(monotonic=lambda: next(clock)))
    with pytest.raises(ValueError, match=r"^Digits.federation must be a pure function"):
        fit.make_federation(Digits(lambda labels: np.random.randint(0, 4, len(labels))))


def test_what_is_pure_passes_and_the_generators_stay_as_they_are():
    def seeded():
        np.random.seed(3)
        return np.random.rand(K)

    before = random.getstate(), np.random.get_state()[1].tolist()
    check_methods(drawing(seeded), K)
    relu = made(select=lambda self, key, state, *more: Plain.select(self, key, jax.nn.relu(state), *more))
    check_methods(relu(2), K)  # its text names an object by its address
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


def test_what_is_own():
    assert not is_own(Cooldown(PowerOfChoice(2, 3)))
    assert is_own(Cooldown(made()(2)))
    assert is_own(PowerOfChoice(2, 3, score=lambda loss, size: loss))
    assert not is_own(QuadraticModel().build(Quadratic(K=K).federation()).init)


def test_functions_are_traced_one_at_a_time():
    """Programs are compiled ahead in other threads, and the generators of all are those of all threads."""
    x = np.zeros(3, np.float32)
    with ThreadPoolExecutor(4) as pool:
        shapes = list(pool.map(lambda _: trace_again("f", ValueError, lambda x: jnp.tanh(x) + 1, x).shape, range(200)))
    assert set(shapes) == {(3,)}


def counting():
    """A strategy whose memory is Python's numbers, as those of the first round are written."""
    return made(
        init=lambda self, num_clients: {"t": 0, "mean": 0.0, "seen": False},
        select=lambda self, key, state, *more: Plain.select(self, key, jnp.arange(5.0) + state["mean"], *more),
        observe=lambda self, state, *more: {"t": state["t"] + 1, "mean": state["mean"] / 2, "seen": True},
    )(2)


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_state_of_numbers_is_one(seeds):
    records = play(counting(), seeds=seeds).records
    assert np.sort(records["clients"][0]).tolist() == [[3, 4], [3, 4]]


def test_a_state_holds_no_random_key():
    keeps = made(init=lambda *given: jax.random.key(3))
    with pytest.raises(ValueError, match=r"^Mine.init must give a state of arrays and numbers, got a random key; draw"):
        play(keeps(2))


def test_a_seat_goes_to_a_candidate():
    last = made(
        poll="full",
        propose=lambda self, key, state, clients: clients.available & (jnp.arange(K) < 3),
        select=lambda self, key, state, clients, candidates, losses: sampling.seat(
            jnp.argsort(losses)[-self.m :].astype(jnp.int32), jnp.ones(self.m, bool)
        ),
    )  # a sort puts NaN, which are all but the candidates, last
    with pytest.raises(ValueError, match=r"^simulate: Mine must ask .*, got one who .* is no candidate .* in round 0"):
        play(last(2))


@pytree
class Evenly:
    """Every other client, by NumPy."""

    def __call__(self, key, t, num_clients):
        return np.arange(num_clients) % 2 == 0


def branching(t):
    return 1.0 if t < 3 else 0.1


@pytree
class Named:
    name: str = "mine"

    def __call__(self, key, t, num_clients):
        return jnp.ones(num_clients, bool)


@pytree
class Branches(Evenly):
    def __call__(self, key, t, num_clients):
        return jnp.ones(num_clients, bool) if t < 3 else jnp.zeros(num_clients, bool)


@pytree
class Untimed(Evenly):
    def __call__(self, key):
        return jnp.ones(K, bool)


def test_an_availability_of_ones_own():
    assert play(made()(2), availability=Evenly()).records["available"].tolist() == [[3, 3]]
    with pytest.raises(ValueError, match=r"^Branches must be code that JAX can trace, got: Attempted boolean"):
        play(made()(2), availability=Branches())
    with pytest.raises(ValueError, match=r"^Untimed must be code that JAX can trace, got TypeError: .*arguments"):
        play(made()(2), availability=Untimed())
    with pytest.raises(
        ValueError, match=r"^Named: name must be a number, or a field of fedpick.static\(\), got 'mine'"
    ):
        play(made()(2), availability=Named())


@pytree
class Several:
    def __call__(self, t):
        return jnp.ones(3, jnp.float32)


SCHEDULES = {
    "branches": (branching, "must be code that JAX can trace, got: Attempted boolean"),
    "draws": (lambda t: np.random.rand(), "must be a pure function: it gave another program when traced again"),
    "two arguments": (lambda t, rounds: 1.0, r"must be code that JAX can trace, got TypeError: .* 'rounds'"),
    "several": (Several(), r"must give one number, got float32\[3\]"),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_of_ones_own(name):
    schedule, sentence = SCHEDULES[name]
    local = Local(tau=1, b=1, eta=1e-3, schedule=schedule)
    with pytest.raises(ValueError, match=f"^Local.schedule {sentence}"):
        simulate(Quadratic(K=K), QuadraticModel(), made()(2), local, rounds=2)


def test_a_swept_schedule_is_one_number_for_each_run():
    @pytree
    class Fall:
        factor: float = 0.5

        def __call__(self, t):
            return self.factor ** t.astype(jnp.float32)

    check_schedule(Local(tau=1, b=1, eta=1e-3, schedule=Fall(jnp.array([0.5, 0.9]))), 3)


@pytest.mark.parametrize(
    ("schedule", "value"),
    [(lambda t: -1.0, "-1 for round 0"), (lambda t: 2.0 - t, "-1 for round 3"), (lambda t: jnp.nan, "nan for")],
)
def test_a_schedule_gives_a_learning_rate_for_every_round(schedule, value):
    with pytest.raises(ValueError, match=rf"^Local.schedule must give a finite number, .*every round, got {value}"):
        check_schedule(Local(tau=1, b=1, eta=1e-3, schedule=schedule), 4)


@pytest.mark.parametrize("score", [lambda loss: loss, lambda loss, size: loss["mean"]])
def test_whatever_a_score_raises_is_one_sentence(score):
    with pytest.raises(ValueError, match=r"^PowerOfChoice.select must be code that JAX can trace, got TypeError: "):
        play(PowerOfChoice(2, 3, score=score))


def test_the_check_says_it_of_what_cannot_be_traced():
    branches = made(select=lambda self, key, state, *more: Plain.select(self, key, state, *more) if state[0] else None)
    with pytest.raises(LawBrokenError, match=r"^Mine.select must be code that JAX can trace, got: Attempted boolean"):
        check_selector(branches(2))


@pytest.mark.parametrize(
    ("declared", "whole"),
    [
        ('Float[Array, " K"]', True),
        ("Float[Array, ' K 2'] | None", True),
        ("jax.Array", True),
        ("np.ndarray | None", True),
        ('float | Float[Array, ""]', False),
        ("float", False),
    ],
)
def test_a_type_that_is_imported_for_checkers_alone(declared, whole):
    """Under TYPE_CHECKING the names mean nothing when the program runs: the text tells an array from a number."""
    kind = pytree(
        type("Mine", (), {"__annotations__": {"field": declared, "other": "Missing"}, "__module__": __name__})
    )
    assert whole_fields(kind(np.arange(3.0), 1.0)) == (frozenset({"field"}) if whole else frozenset())
