"""t_comp: the seconds of a round whose clients compute in parallel, phase by phase.

A round is the slowest candidate's poll, the server's choice, and the slowest selected client's training. Clients are
timed one by one, each with its own data, after everything has been compiled. The strategies take turns round by round,
so that a busy machine slows all of them equally.
"""

import functools
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpick.experiment import Experiment
from fedpick.protocol import Clients, Report, Selector, client_key, init_key, pick, round_keys, seat_key
from fedpick.sim import Federation, Local, Model, distinct, full_losses, train


class Phases(NamedTuple):
    """Seconds of the phases of a round."""

    poll: float
    choice: float
    training: float


def seconds_per_round(experiments: dict[str, Experiment], rounds: int) -> dict[str, dict[str, float]]:
    """Mean seconds of each phase of a round and in total, for every experiment (all of the same data)."""
    federation = next(iter(experiments.values())).federation(0)
    runs = {name: TimedRun(experiment, federation) for name, experiment in experiments.items()}
    seconds: dict[str, list[Phases]] = {name: [] for name in experiments}
    first, *others = runs.values()
    first.round(0)  # the first round warms up: what all share is compiled here, then what each has of its own
    with ThreadPoolExecutor() as beside:
        list(beside.map(lambda run: run.round(0), others))
    for t in range(1, rounds + 1):
        for name, run in runs.items():
            seconds[name].append(run.round(t))
    means = {name: np.mean(phases, axis=0) for name, phases in seconds.items()}
    return {name: {**Phases(*map(float, mean))._asdict(), "total": float(mean.sum())} for name, mean in means.items()}


class TimedSelector:
    """A strategy whose decisions are compiled and timed, for ``pick``."""

    def __init__(self, selector: Selector[Any]) -> None:
        self.selector, self.seconds = selector, 0.0
        self.m, self.poll = selector.m, selector.poll
        self.init, self.observe = selector.init, selector.observe

    def propose(self, *arguments: Any) -> Any:
        return self._timed(_propose, *arguments)

    def select(self, *arguments: Any) -> Any:
        return self._timed(_select, *arguments)

    def _timed(self, program: Any, *arguments: Any) -> Any:
        decision, seconds = _timed(program, self.selector, *arguments)
        self.seconds += seconds
        return decision


class TimedRun:
    """Federated averaging round by round, client by client, with a stopwatch."""

    def __init__(self, experiment: Experiment, federation: Federation) -> None:
        self.selector, self.federation = experiment.selector, federation
        self.model, self.local = experiment.model.build(federation), experiment.local
        self.clients = Clients(federation.size, jnp.ones(federation.num_clients, bool))
        self.state = self.selector.init(federation.num_clients)
        self.params = self.model.init(init_key(0))

    def round(self, t: int) -> Phases:
        """Play round t and time its phases."""
        keys, timed, polling = _keys(t), TimedSelector(self.selector), 0.0
        own = (self.model, self.federation, self.local, self.params)

        def poll(key: Any, asked: Any) -> Any:
            nonlocal polling
            losses = np.full(len(asked), np.nan, np.float32)
            for client in np.flatnonzero(asked):
                losses[client], seconds = _timed(_POLLS[self.selector.poll], *own, client, key)
                polling = max(polling, seconds)
            return losses

        self.selection = pick(timed, keys, self.state, self.clients, poll).selection
        models, losses, training = [], [], 0.0
        for seat, client in enumerate(np.asarray(self.selection.clients)):
            key = _seat_key(keys.train, seat, int(client))
            trained, seconds = _timed(_train, *own, client, key, np.int32(t))
            models.append(trained.params)
            losses.append(trained.loss)
            training = max(training, seconds)
        self.params, self.state = _conclude(self.selector, self.state, self.selection, models, losses)
        return Phases(polling, timed.seconds, training)


# Programs of one client or of the server, the same for all strategies.


@jax.jit
def _keys(t: Any) -> Any:
    return round_keys(0, t)


_seat_key = jax.jit(seat_key)


@jax.jit
def _conclude(selector: Any, state: Any, selection: Any, models: Any, losses: Any) -> Any:
    """The average of the models, and what the strategy learns; nobody's stopwatch runs."""
    params = jax.tree.map(lambda *leaves: jnp.tensordot(selection.weights, jnp.stack(leaves), 1), *models)
    return params, selector.observe(state, selection, Report(jnp.stack(losses)))


@jax.jit
def _propose(selector: Any, *arguments: Any) -> Any:
    return selector.propose(*arguments)


@jax.jit
def _select(selector: Any, *arguments: Any) -> Any:
    return selector.select(*arguments)


@functools.partial(jax.jit, static_argnums=0)
def _train(model: Model, federation: Federation, local: Local, params: Any, client: Any, key: Any, t: Any) -> Any:
    return train(federation, model, local, params=params, client=client, key=key, t=t)


@functools.partial(jax.jit, static_argnums=0)
def _poll_all(model: Model, federation: Federation, local: Local, params: Any, client: Any, key: Any) -> Any:
    asked = jnp.arange(federation.num_clients, dtype=jnp.int32) == client
    return full_losses(federation, model, params, asked=asked)[client]


@functools.partial(jax.jit, static_argnums=0)
def _poll_batch(model: Model, federation: Federation, local: Local, params: Any, client: Any, key: Any) -> Any:
    (index,), (used,) = distinct(client_key(key, client), federation.count[client], (1, local.b))
    sample = federation.locate(federation.start[client] + index)
    losses = model.losses(params, federation.prepare(federation.inputs(sample)), federation.y[sample], None)
    return jnp.mean(losses, where=used)


_POLLS = {"full": _poll_all, "batch": _poll_batch}


def _timed(program: Any, *arguments: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    output = jax.block_until_ready(program(*arguments))  # type: ignore[no-untyped-call]
    return output, time.perf_counter() - start
