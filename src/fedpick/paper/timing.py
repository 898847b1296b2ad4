"""t_comp: how long a round takes whose clients compute at the same time, each phase timed on its own.

A round is the slowest candidate's poll, the server's choice, and the slowest selected client's training. Clients are
timed one by one, each with its own data, after everything has been compiled. The strategies take turns round by round,
so that a busy machine slows all of them alike.
"""

import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpick.experiment import Experiment
from fedpick.protocol import Clients, Report, client_key, init_key, round_keys, seat_key
from fedpick.sim import Federation, Local, Model, distinct, full_losses, train

PHASES = ("poll", "choice", "training")


def seconds_per_round(experiments: dict[str, Experiment], rounds: int) -> dict[str, dict[str, float]]:
    """Mean seconds of each phase of a round and of all together, for every experiment (of the same data)."""
    federation = next(iter(experiments.values())).for_seed(0).federation()
    timed = {name: Timed(experiment, federation) for name, experiment in experiments.items()}
    spent: dict[str, list[tuple[float, ...]]] = {name: [] for name in experiments}
    for t in range(rounds + 1):
        for name, one in timed.items():
            phases = one.round(t)
            if t > 0:  # the first round warms up
                spent[name].append(phases)
    means = {name: np.mean(phases, axis=0) for name, phases in spent.items()}
    return {
        name: {**dict(zip(PHASES, map(float, mean), strict=True)), "total": float(mean.sum())}
        for name, mean in means.items()
    }


class Timed:
    """A federation that is played by hand, with a watch."""

    def __init__(self, experiment: Experiment, federation: Federation) -> None:
        self.selector, self.federation = experiment.selector, federation
        self.model, self.local = experiment.model.build(federation), experiment.local
        self.clients = Clients(federation.size, jnp.ones(federation.num_clients, bool))
        self.state = self.selector.init(federation.num_clients)
        self.params = self.model.init(init_key(0))

    def round(self, t: int) -> tuple[float, float, float]:
        """Play round t; the seconds of its phases."""
        keys = round_keys(0, t)
        own = (self.model, self.federation, self.local, self.params)
        candidates, proposing = _watched(_propose, self.selector, keys.propose, self.state, self.clients)
        losses, polling = np.full(len(candidates), np.nan, np.float32), 0.0
        for client in np.flatnonzero(candidates) if self.selector.poll != "none" else ():
            losses[client], seconds = _watched(_POLLS[self.selector.poll], *own, client, keys.poll)
            polling = max(polling, seconds)
        facts = (self.state, self.clients, candidates, jnp.asarray(losses))
        self.selection, choosing = _watched(_select, self.selector, keys.select, *facts)
        models, reports, training = [], [], 0.0
        for seat, client in enumerate(np.asarray(self.selection.clients)):
            key = seat_key(keys.train, seat, int(client))
            (trained, loss), seconds = _watched(_train, *own, client, key, np.int32(t))
            models.append(trained)
            reports.append(loss)
            training = max(training, seconds)
        weights = self.selection.weights
        self.params = jax.tree.map(lambda *leaves: jnp.tensordot(weights, jnp.stack(leaves), 1), *models)
        self.state = self.selector.observe(self.state, self.selection, Report(jnp.stack(reports)))
        return polling, proposing + choosing, training


# Programs of one client or of the server, the same for all strategies.


@jax.jit
def _propose(selector: Any, *facts: Any) -> Any:
    return selector.propose(*facts)


@jax.jit
def _select(selector: Any, *facts: Any) -> Any:
    return selector.select(*facts)


@functools.partial(jax.jit, static_argnums=0)
def _train(model: Model, federation: Federation, local: Local, *seat: Any) -> Any:
    return train(federation, model, local, *seat)


@functools.partial(jax.jit, static_argnums=0)
def _poll_all(model: Model, federation: Federation, local: Local, params: Any, client: Any, key: Any) -> Any:
    asked = jnp.arange(federation.num_clients, dtype=jnp.int32) == client
    return full_losses(federation, model, params, asked)[client]


@functools.partial(jax.jit, static_argnums=0)
def _poll_batch(model: Model, federation: Federation, local: Local, params: Any, client: Any, key: Any) -> Any:
    (index,), (used,) = distinct(client_key(key, client), federation.count[client], (1, local.b))
    sample = federation.start[client] + index
    losses = model.losses(params, federation.prepare(federation.x[sample]), federation.y[sample], None)
    return jnp.mean(losses, where=used)


_POLLS = {"full": _poll_all, "batch": _poll_batch}


def _watched(program: Any, *arguments: Any) -> tuple[Any, float]:
    began = time.perf_counter()
    found = jax.block_until_ready(program(*arguments))  # type: ignore[no-untyped-call]
    return found, time.perf_counter() - began
