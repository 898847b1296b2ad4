"""Every strategy once, a world for them to live in, and three ways to play its rounds."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np

import fedpick
from fedpick import Clients, Report, pick, round_keys
from fedpick.protocol import MEASURED, needs
from fedpick.updates import lengths

EVERY = {
    "rand": {"m": 3},
    "rand-distinct": {"m": 3},
    "uniform": {"m": 3},
    "full": {},
    "pow-d": {"m": 3, "d": 6},
    "cpow-d": {"m": 3, "d": 6, "score": fedpick.ClippedLoss(0.5)},
    "rpow-d": {"m": 3, "d": 6},
    "adapow-d": {"m": 3, "rounds": 100, "steps": 5, "score": fedpick.QFairLoss(2.0)},
    "adapow-d-switch": {"m": 3, "rounds": 100},
    "adapow-d-halving": {"m": 3, "rounds": 100, "halvings": 1},
    "auto": {"m": 3, "most": 9},
    "auto-c": {"m": 3},
    "afl": {"m": 3},
    "afl-sqrt-size": {"m": 3},
    "ucb-cs": {"m": 3},
    "oort": {"m": 3, "samples": 20, "exploration_min": 0.3, "pacer_step": 5, "blacklist_rounds": 40},
    "tifl": {"m": 3, "tiers": 3, "interval": 4, "rounds": 60},
    "fedcs": {"m": 3, "d": 6, "deadline": 8.0},
    "refl": {"m": 3},
    "clustered-size": {"m": 3},
    "ocs": {"m": 3, "d": 6},
    "aocs": {"m": 3},
    "k-vib": {"m": 3, "rounds": 60},
    "clustered-similarity": {"m": 3, "sketch_size": 8},
    "divfl": {"m": 3, "sketch_size": 16},
    "hics-fl": {"m": 3, "rounds": 100, "classes": 4},
    "fedcor": {"m": 3, "warmup": 4, "interval": 20, "first_steps": 5, "steps": 5, "dimension": 4},
    "cooldown": {"selector": fedpick.PowerOfChoice(3, 6), "rounds": 2},
    "rank-clip": {"selector": fedpick.PowerOfChoice(3, 6), "share": 0.75},
    "credits": {"selector": fedpick.PowerOfChoice(3, 6), "strikes": 2, "rounds": 3},
    "private": {"selector": fedpick.PowerOfChoice(3, 6), "epsilon": 2.0, "budget": 8.0},
    "explore": {"selector": fedpick.AFL(3), "share": 0.4},
    "mixture": {"selectors": (fedpick.Rand(3), fedpick.PowerOfChoice(3, 6)), "probabilities": (0.25, 0.75)},
    "fedau": {"selector": fedpick.Rand(3), "cutoff": 4},
}
# One of each kind stands for those that are alike, which are in make test-all where a test is made for every name.
ALIKE = {
    *("rand-distinct", "adapow-d-switch", "adapow-d-halving", "afl-sqrt-size", "ucb-cs", "tifl", "refl"),
    *("clustered-size", "aocs", "divfl", "hics-fl", "fedcor", "explore", "fedau", "auto-c"),
    *("rank-clip", "credits", "private"),
}
STATIC = {  # numbers that set shapes, beside m
    "auto": ("most",),
    "tifl": ("tiers",),
    "fedcs": ("d",),
    "clustered-similarity": ("sketch_size", "groups"),
    "divfl": ("sketch_size", "pool"),
    "hics-fl": ("classes", "groups"),
    "fedcor": ("dimension", "history"),
}
K = 12


def every():
    return {name: fedpick.strategy(name, **parameters) for name, parameters in EVERY.items()}


def world(number, partial, seed=0):
    """Facts, answers and training losses by round; one answer in five is silence, and one fact in five is unknown."""
    rng = np.random.default_rng(seed)
    size = np.broadcast_to(rng.integers(0, 50, K), (number, K)).astype(np.int32)
    available = rng.random((number, K)) < (rng.choice([0.0, 0.3, 0.6, 0.9], (number, 1)) if partial else 2.0)
    answers, training = rng.gamma(1.0, size=(2, number, K)).astype(np.float32)
    answers[rng.random((number, K)) < 0.2] = np.nan
    training[rng.random((number, K)) < 0.2] = np.nan
    durations = rng.gamma(2.0, size=(2, number, K)).astype(np.float32)
    durations[rng.random((2, number, K)) < 0.2] = np.nan
    leaving = rng.random((number, K)) < 0.3
    clients = Clients(*map(jnp.asarray, (size, available, durations.sum(axis=0), durations[1], leaving)))
    return clients, jnp.asarray(answers), jnp.asarray(training)


def one_round(selector, seed, state, now):
    t, clients, answers, training = now
    candidates, losses, selection = pick(selector, round_keys(seed, t), state, clients, lambda key, asked: answers)
    loss = jnp.where(selection.weights > 0, training[selection.clients], jnp.nan)
    way = (selection.clients + 1).astype(jnp.float32)[:, None]  # of each client's vectors, in every round
    wide = {
        name: loss[:, None] * jnp.cos(way * jnp.arange(n, dtype=jnp.float32)[None, :])
        for name, n in lengths(selector).items()
    }
    size = jnp.where(clients.available, clients.size.astype(jnp.float32), 0)
    of_round = {"polled": losses, "poll_duration": jnp.float32(0.1), "size": size}
    said = of_round | {"duration": 1 + loss, "norm": loss, "square_loss": 1.5 * loss**2, **wide}
    report = Report(loss, **{name: said[name] for name in MEASURED if name in needs(selector)})
    return selector.observe(state, selection, report), (candidates, selection)


def scan(selector, seed, worlds):
    times = jnp.arange(worlds[1].shape[0], dtype=jnp.int32)
    return jax.lax.scan(lambda state, now: one_round(selector, seed, state, now), selector.init(K), (times, *worlds))


def loop(selector, seed, worlds):
    state, played, worlds = selector.init(K), [], jax.tree.map(np.asarray, worlds)
    for t in range(worlds[1].shape[0]):
        state, picks = one_round(selector, seed, state, (t, *jax.tree.map(lambda x, t=t: jnp.asarray(x[t]), worlds)))
        played.append(picks)
    return state, jax.tree.map(lambda *leaves: np.stack(leaves), *played)


@contextlib.contextmanager
def compilations():
    """The names of the functions that JAX compiles meanwhile."""
    names = []

    def listen(event, seconds, fun_name="", **rest):
        if event == "/jax/core/compile/backend_compile_duration":
            names.append(fun_name.removeprefix("jit(").removesuffix(")").removeprefix("jit_"))

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield names
    jax.monitoring.clear_event_listeners()
