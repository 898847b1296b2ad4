"""t_comp: how long a round takes whose clients compute at the same time, each phase timed on its own.

A round is the slowest candidate's poll, the server's choice, and the slowest selected client's training. Clients are
timed one by one, each with its own data, after everything has been compiled. The strategies take turns round by round,
so that a busy machine slows all of them alike.
"""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpick.experiment import Experiment
from fedpick.protocol import Clients, Report, client_key, init_key, round_keys, seat_key
from fedpick.sim import Federation, Local, Model
from fedpick.sim.evaluation import full_losses
from fedpick.sim.local import distinct, train

PHASES = ("poll", "choice", "training")


def seconds_per_round(experiments: dict[str, Experiment], rounds: int) -> dict[str, dict[str, float]]:
    """Mean seconds of each phase of a round and of all together, for every experiment (of the same data)."""
    federation = next(iter(experiments.values())).drawn(0).federation()
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
        model, local = experiment.built(federation), experiment.local.build()
        self.clients = Clients(federation.size, jnp.ones(federation.num_clients, bool))
        self.state = self.selector.init(federation.num_clients)
        self.params = model.init(init_key(0))
        self.poll = _poll(self.selector.poll, model, local)
        self.train = jax.jit(lambda federation, *of_seat: train(federation, model, local, *of_seat))
        self.propose = jax.jit(self.selector.propose)
        self.select = jax.jit(self.selector.select)
        self.observe = jax.jit(self.selector.observe)

    def round(self, t: int) -> tuple[float, float, float]:
        """Play round t; the seconds of its phases."""
        keys = round_keys(0, t)
        candidates, proposing = _watched(self.propose, keys.propose, self.state, self.clients)
        losses, polling = np.full(len(candidates), np.nan, np.float32), 0.0
        for client in np.flatnonzero(candidates) if self.poll is not None else ():
            losses[client], seconds = _watched(self.poll, self.federation, self.params, client, keys.poll)
            polling = max(polling, seconds)
        self.selection, choosing = _watched(
            self.select, keys.select, self.state, self.clients, candidates, jnp.asarray(losses)
        )
        models, reports, training = [], [], 0.0
        for seat, client in enumerate(np.asarray(self.selection.clients)):
            key = seat_key(keys.train, seat, int(client))
            (trained, loss), seconds = _watched(self.train, self.federation, self.params, client, key, np.int32(t))
            models.append(trained)
            reports.append(loss)
            training = max(training, seconds)
        weights = self.selection.weights
        self.params = jax.tree.map(lambda *leaves: jnp.tensordot(weights, jnp.stack(leaves), 1), *models)
        self.state = self.observe(self.state, self.selection, Report(jnp.stack(reports)))
        return polling, proposing + choosing, training


def _poll(kind: str, model: Model, local: Local) -> Any:
    """What one candidate computes when it is asked; None where nobody is."""

    def full(federation: Federation, params: Any, client: Any, key: Any) -> Any:
        asked = jnp.arange(federation.num_clients, dtype=jnp.int32) == client
        return full_losses(federation, model, params, asked)[client]

    def batch(federation: Federation, params: Any, client: Any, key: Any) -> Any:
        (index,), (used,) = distinct(client_key(key, client), federation.count[client], (1, local.b))
        sample = federation.start[client] + index
        losses = model.losses(params, federation.prepare(federation.x[sample]), federation.y[sample], None)
        return jnp.mean(losses, where=used)

    return {"full": jax.jit(full), "batch": jax.jit(batch)}.get(kind)


def _watched(program: Any, *arguments: Any) -> tuple[Any, float]:
    began = time.perf_counter()
    found = jax.block_until_ready(program(*arguments))  # type: ignore[no-untyped-call]
    return found, time.perf_counter() - began
