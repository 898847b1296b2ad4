"""The eight laws of the protocol, and a check for each."""

import copy
import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpick.checks.harness import LawBrokenError, PlayedRound, Scenario, Trial, need, play, same, seats_report, stack
from fedpick.checks.keys import draws_alone, inner_programs
from fedpick.protocol import Selector, polled, round_keys, select_key
from fedpick.pytrees import whole_fields
from fedpick.text import brief, shown
from fedpick.updates import lengths
from fedpick.validation import known

LAWS = {
    1: "only observe makes state; propose and select can be called again and say the same",
    2: "facts are arguments, memory is state: a seat goes to a candidate, and a candidate is available now",
    3: "static fields set shapes and branches; other numbers may be traced, without a new compilation",
    4: "all randomness comes from the keys: a plain loop, jit, scan and vmap pick the same clients",
    5: "dtypes are pinned: x64 changes no pick, and the second call compiles nothing",
    6: "silence is NaN: who was polled and did not answer has no seat; with nobody left all weights are 0",
    7: "with fewer clients than seats the rest is empty, and the weights still sum to 1",
    8: "linear work: no sort of all clients, nothing larger than a few times K, unless it declares more",
}


def check_pure(trial: Trial) -> None:
    """Call propose and select twice; they return the same and change nothing."""
    selector, state = trial.selector, trial.selector.init(trial.K)
    for t, scenario in enumerate(trial.scenarios[:3]):
        before = copy.deepcopy((selector, state))
        keys = round_keys(trial.seed, t)
        twice = [selector.propose(keys.propose, state, scenario.clients) for _ in range(2)]
        _need(same(*twice), 1, f"propose returned {twice[0]}, then {twice[1]}", scenario)
        losses = jnp.where(polled(selector, twice[0], state), scenario.answers, jnp.nan)
        key = select_key(selector, keys)
        picks = [selector.select(key, state, scenario.clients, twice[0], losses) for _ in range(2)]
        _need(same(*picks), 1, f"select returned {picks[0]}, then {picks[1]}", scenario)
        _need(same(before, (selector, state)), 1, f"propose or select changed {before} into {(selector, state)}")
        state = selector.observe(state, picks[0], seats_report(selector, scenario, picks[0], losses))


def check_available(trial: Trial) -> None:
    """Seats go to candidates, and candidates are available."""
    for scenario, (_, candidates, selection) in zip(trial.scenarios, trial.rounds, strict=True):
        away = np.asarray(candidates & ~scenario.clients.available)
        _need(not away.any(), 2, f"propose returned unavailable clients {np.flatnonzero(away)}", scenario)
        seated = np.asarray(selection.clients)[np.asarray(selection.weights) > 0]
        known = (seated >= 0) & (seated < trial.K)
        _need(known.all(), 2, f"select returned clients {seated[~known]}, which do not exist", scenario)
        others = seated[~np.asarray(candidates & scenario.clients.available)[seated]]
        _need(not len(others), 2, f"select returned clients {others}, which are not candidates", scenario)


def check_traceable(trial: Trial, static: tuple[str, ...]) -> None:
    """Another value of a number compiles nothing, and a vmap over both values picks the same."""
    scenario = trial.scenarios[1]
    selector: Any = trial.selector

    def one_round(selector: Any) -> PlayedRound:
        played: PlayedRound = trial.compiled_round(selector, trial.seed, 0, selector.init(trial.K), scenario)
        return played

    def fresh(selector: Any) -> PlayedRound:
        return play(selector, trial.seed, 0, selector.init(trial.K), scenario)

    try:
        _ = trial.rounds  # while nothing is compiled
        plain = one_round(selector)
        jax.eval_shape(fresh, selector)
    except jax.errors.JAXTypeError as error:
        raise LawBrokenError(f"law 3 ({LAWS[3]}): it cannot be traced: {str(error).splitlines()[0]}") from None
    selectors, alone, changes = [selector], [plain], [f"{selector!r}"]
    for field in dataclasses.fields(selector):
        if field.name == "m" or field.name in static:
            continue
        for other in _others(selector, field.name, trial.K):
            traces = trial.traces
            changed = one_round(other)
            if jax.tree.map(jnp.shape, changed) != jax.tree.map(jnp.shape, plain):
                continue
            what = f"{field.name} = {getattr(other, field.name)!r} after {getattr(selector, field.name)!r}"
            _need(trial.traces == traces, 3, f"{what} recompiled the round; make it a data field, not a static one")
            selectors, alone, changes = [*selectors, other], [*alone, changed], [*changes, what]
    if len(selectors) > 1:
        together = jax.jit(jax.vmap(fresh))(jax.tree.map(lambda *leaves: jnp.stack(leaves), *selectors))
        for number, (one, what) in enumerate(zip(alone, changes, strict=True)):
            other = jax.tree.map(lambda leaf, number=number: leaf[number], together)
            _need(_same_picks(one, other), 3, f"{what}: a vmap over the values picks other clients than separate calls")


def check_reproducible(trial: Trial) -> None:
    """A plain loop, jit, scan and vmap pick the same clients, and the keys matter."""
    scenarios, times = stack(trial.scenarios), np.arange(len(trial.scenarios), dtype=np.int32)

    def scan(seed: Any) -> PlayedRound:
        def body(state: Any, now: Any) -> tuple[Any, PlayedRound]:
            after = play(trial.selector, seed, now[0], state, now[1])
            return after.state, after

        return jax.lax.scan(body, trial.selector.init(trial.K), (times, scenarios))[1]

    loop = stack(trial.loop(play))
    traced = jax.jit(scan).trace(trial.seed)
    seeds = np.array([trial.seed, trial.seed + 1], np.int32)
    runs = {
        "jit": stack(trial.rounds),
        "scan": traced.lower().compile()(trial.seed),
        "vmap(scan)": jax.tree.map(lambda leaf: leaf[0], jax.jit(jax.vmap(scan))(seeds)),
    }
    draws = any(equation.primitive.name == "random_bits" for equation in _equations(traced.jaxpr.jaxpr))
    if draws and trial.m < trial.K:
        # A strategy that goes by the sizes may use its keys for ties alone: then clients of one size tell. Where there
        # are no ties either, the program does.
        inputs = (trial.scenario(), trial.scenario(size=np.full(trial.K, 10)))
        varied = any(_varies(trial.draws(each, trial.selector.init(trial.K))) for each in inputs)
        _need(varied or not _draws_alone(trial), 4, "it draws random numbers that do not depend on the keys")
    for name, run in runs.items():
        seats, others = loop.selection.clients, run.selection.clients
        _need(_same_picks(loop, run), 4, f"seats by round in a plain loop: {seats}; with {name}: {others}")


def _draws_alone(trial: Trial) -> bool:
    state, scenario = trial.selector.init(trial.K), trial.scenario()
    one_round = jax.make_jaxpr(lambda seed: play(trial.selector, seed, 0, state, scenario))(trial.seed)
    return draws_alone(one_round.jaxpr, [True])


def _varies(drawn: PlayedRound) -> bool:
    """Whether candidates or seats differ between draws with keys of their own."""
    clients = drawn.selection.clients
    return bool((drawn.candidates != drawn.candidates[0]).any() or (clients != clients[0]).any())


def check_dtypes(trial: Trial) -> None:
    """One compilation for all rounds, pinned dtypes, and the same picks with x64."""
    rounds, times = trial.rounds, trial.compilations
    what = f"{len(trial.scenarios)} rounds compiled {times} times: observe must return a state of the same types"
    _need(times == 1, 5, what)
    _, candidates, selection = rounds[-1]
    dtypes = [str(x.dtype) for x in (candidates, *selection)]
    _need(dtypes == ["bool", "int32", "float32"], 5, f"expected bool, int32 and float32, got {dtypes}")
    try:
        with jax.enable_x64(True):
            wide = trial.loop(trial.compiled_round)
    except (TypeError, ValueError) as error:
        _need(False, 5, f"with x64, which makes float64 of what names no dtype, it fails: {brief(error)}")
    for t, (one, other) in enumerate(zip(rounds, wide, strict=True)):
        same = _same_picks(one, other) and _dtypes(one) == _dtypes(other)
        _need(same, 5, f"round {t} without x64: {one}; with x64: {other}", trial.scenarios[t])


def check_silence(trial: Trial) -> None:
    """No seats when nobody is available, none for silent candidates, and nothing is learnt from an empty seat."""
    for state in trial.states:
        _check_silence_from(trial, state)
    what = "observe changes what it remembers of the last client where a seat is empty"
    why = "an empty seat is client -1, which as an index is the last: leave out seats of weight 0"
    _need(not trial.takes_empty_seats_for_the_last_client(), 6, f"{what}; {why}")


def _check_silence_from(trial: Trial, state: Any) -> None:
    nobody = trial.scenario(available=False)
    candidates, selection = trial.compiled_round(trial.selector, trial.seed, 0, state, nobody)[1:]
    _need(not candidates.any(), 6, f"nobody is available, but the candidates are {np.flatnonzero(candidates)}")
    _need(not selection.weights.any(), 6, f"nobody is available, but the weights are {selection.weights}")
    if trial.selector.poll == "none":
        return
    for t in range(20):
        silent = np.random.default_rng(t).random(trial.K) < (0.5 if t else 2.0)
        scenario = trial.scenario(answers=np.where(silent, np.nan, 1.0))
        _, candidates, selection = trial.compiled_round(trial.selector, trial.seed, t, state, scenario)
        silent &= np.asarray(polled(trial.selector, candidates, state))
        seated = np.asarray(selection.clients)[np.asarray(selection.weights) > 0]
        _need(not silent[seated].any(), 6, f"silent clients {seated[silent[seated]]} have seats", scenario)


def check_seats(trial: Trial) -> None:
    """As many seats filled as there are available clients, from 1 to K (a hundred numbers), and weights that sum to 1.

    A strategy that declares ``fills_seats = False`` has to fill one.
    """
    some = np.unique(np.linspace(1, trial.K, min(trial.K, 100)).astype(int)).tolist()
    for state, present in itertools.product(trial.states, some):
        available = np.random.default_rng(present).permutation(trial.K) < present
        scenario = trial.scenario(available=available)
        clients, weights = map(
            np.asarray, trial.compiled_round(trial.selector, trial.seed, present, state, scenario).selection
        )
        _need(weights.shape == (trial.m,), 7, f"expected {trial.m} seats, got weights of shape {weights.shape}")
        _need(np.isfinite(weights).all() and (weights >= 0).all(), 7, f"the weights are {weights}", scenario)
        _need((clients[weights == 0] == -1).all(), 7, f"empty seats must have client -1, got {clients} with {weights}")
        seats = min(trial.m, present) if getattr(trial.selector, "fills_seats", True) else 1
        filled = int((weights > 0).sum())
        _need(
            filled >= seats,
            7,
            f"{present} clients are available, but {filled} of {trial.m} seats filled",
            scenario,
        )
        if getattr(trial.selector, "weights_sum_to_1", True):
            total = weights.sum()
            _need(abs(total - 1) < 1e-5, 7, f"the weights {weights} sum to {total}", scenario)


def check_linear(selector: Selector[Any], few: int) -> None:
    """Trace the program for a million clients, without running it: no full sort, no large array.

    A table of the few clients of the trials, a field that is declared as an array, is made as much longer.

    A strategy of work "K s" may hold s numbers per client, its ``sketch_size``, ``classes`` or ``dimension``; one of
    work "K^2" may compare all pairs, of a thousand clients.
    """
    work, wide = getattr(selector, "work", "K"), max([getattr(selector, "dimension", 1), *lengths(selector).values()])
    limits = {"K": 1, "K s": wide, "K^2": 1024}
    if work not in limits:
        raise LawBrokenError(f"{type(selector).__name__}: work must be one of {', '.join(limits)}, got {shown(work)}")
    K = 1024 if work == "K^2" else max(2**20, 4096 * (selector.m or 1))
    trial, tables = jax.eval_shape(lambda: Trial(selector, K, 0).scenario()), whole_fields(selector)

    def is_list(part: Any) -> bool:
        if not isinstance(part, list | tuple) or len(part) != few:
            return False
        return all((one := known(each)) is not None and one.ndim == 0 for each in part)

    def longer(path: Any, part: Any) -> Any:
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        table = name in tables or (is_list(part) and f"{name}.0" in tables)
        return np.resize(part, (K, *np.shape(part)[1:])) if table and np.shape(part)[:1] == (few,) else part

    large: Selector[Any] = jax.tree_util.tree_map_with_path(longer, selector, is_leaf=is_list)

    def one_round(scenario: Scenario) -> PlayedRound:
        return play(large, 0, 0, large.init(K), scenario)

    jaxpr = jax.make_jaxpr(one_round)(trial)
    for equation in _equations(jaxpr.jaxpr):
        size = max(math.prod(getattr(out.aval, "shape", ())) for out in equation.outvars) if equation.outvars else 0
        name = equation.primitive.name
        sorts = name == "sort" or (name == "top_k" and equation.params["k"] > K // 2)
        _need(not sorts or size < K // 2 or work != "K", 8, f"K={K}: it sorts {size} numbers")
        _need(size <= 8 * K * limits[work], 8, f"K={K}: {name} makes an array of {size} numbers")


def _others(selector: Any, name: str, K: int) -> Iterator[Any]:
    """The strategy with another value of one of its numbers, if it accepts one, with so many clients."""
    for value in _variants(getattr(selector, name)):
        try:
            other = dataclasses.replace(selector, **{name: value})
            other.init(K)
        except ValueError:
            continue
        yield other
        return


def _variants(value: Any) -> list[Any]:
    if isinstance(value, float) or (getattr(value, "shape", None) == () and jnp.issubdtype(value.dtype, jnp.floating)):
        return [value * 0.9, value + 0.1]
    if (isinstance(value, int) and not isinstance(value, bool)) or getattr(value, "shape", None) == ():
        return [value + 1, value - 1]
    leaves, tree = jax.tree.flatten(value)
    if not leaves or leaves == [value]:
        return []
    return [jax.tree.unflatten(tree, [_variants(leaf)[0] for leaf in leaves])]


def _equations(jaxpr: Any) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        yield equation
        for inner in inner_programs(equation):
            yield from _equations(inner)


def _dtypes(tree: Any) -> list[str]:
    return [str(leaf.dtype) for leaf in jax.tree.leaves(tree)]


def _same_picks(one: PlayedRound, other: PlayedRound) -> bool:
    chosen = same((one.candidates, one.selection.clients), (other.candidates, other.selection.clients))
    return chosen and bool(np.allclose(one.selection.weights, other.selection.weights, rtol=1e-6))


def _need(holds: Any, law: int, what: str, scenario: Scenario | None = None) -> None:
    need(holds, f"law {law} ({LAWS[law]})", what, scenario)
