"""One round of federated averaging with any selector: what the strategy decides, what the seats do, what it learns."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from fedpick.protocol import (
    Clients,
    Report,
    Selector,
    disguised,
    init_key,
    needs,
    pick,
    polled,
    round_keys,
    seat_key,
)
from fedpick.pytrees import pytree, static
from fedpick.sim.availability import Always, Availability, Devices, Failures
from fedpick.sim.classification import NamedMetric
from fedpick.sim.evaluation import Evaluation, evaluate
from fedpick.sim.federation import Federation
from fedpick.sim.liars import Lies, encoded, squares_of
from fedpick.sim.local import Local, Trained, train, train_seats
from fedpick.sim.models import Model, Params, barrier
from fedpick.sim.optimizers import Server, weighted_sum
from fedpick.sim.polls import POLLS
from fedpick.sim.records import UNWEIGHTED, UPDATES, Choice, Outcome, Record, Request, lawful
from fedpick.sim.spread import spread_candidates, spread_rows
from fedpick.updates import measure


@pytree
class Setup:
    """Everything that decides a run, except its seed.

    A setup of many runs has an array with one entry per run for each number of the selector, of ``local`` or of
    ``server`` that differs between them, and may have a federation for each. All else is shared.
    """

    federation: Federation
    model: Model
    selector: Selector[Any]
    local: Local
    server: Server = Server()
    availability: Availability = Always()
    failures: Failures = Failures()
    devices: Devices = Devices()
    lies: Lies | None = None
    unroll: int = static(default=1)
    mesh: Mesh | None = static(default=None)
    metrics: tuple[NamedMetric, ...] = static(default=())

    def map_own(self, function: Callable[[Any], Any]) -> "Setup":
        """Apply a function to every number that may differ between runs."""
        selector, local, server = jax.tree.map(function, (self.selector, self.local, self.server))
        return dataclasses.replace(self, selector=selector, local=local, server=server)

    def rows(self, runs: int | slice) -> "Setup":
        """The setup of one run or of some of the runs."""
        own = self.map_own(lambda leaf: leaf[runs] if jnp.ndim(leaf) else leaf)
        return dataclasses.replace(own, federation=self.federation.rows(runs))

    def axes(self) -> "Setup":
        """The axis of the runs in each leaf for ``jax.vmap``, None where it is shared.

        What all runs share stays a single number: a copy for each would be read at every step.
        """
        own = self.map_own(lambda leaf: 0 if jnp.ndim(leaf) else None)
        shared: Setup = jax.tree.map(lambda leaf: None, self)
        parts: Any = {"selector": own.selector, "local": own.local, "server": own.server}
        return dataclasses.replace(shared, federation=self.federation.axes(), **parts)


class RunState(NamedTuple):
    """The state of a run between two rounds; ``chosen`` sums the weights of each client since the last evaluation."""

    params: Params
    selector: Any
    server: Any
    chosen: Float[Array, " K"]

    def reset_chosen(self) -> "RunState":
        """The same after an evaluation."""
        return self._replace(chosen=jnp.zeros_like(self.chosen))

    def evaluate(self, setup: Setup) -> Evaluation:
        """The metrics of the present model."""
        return evaluate(setup.federation, setup.model, self.params, self.chosen, setup.metrics)


def first_model(model: Model, seed: Any) -> Params:
    """The initial model of a run."""
    return model.init(init_key(seed))


def begin(setup: Setup, params: Params) -> RunState:
    """The state of a run before its first round."""
    K = setup.federation.num_clients
    return RunState(params, setup.selector.init(K), setup.server.init(params), jnp.zeros(K, jnp.float32))


def one_round(
    setup: Setup, seed: Any, progress: RunState, t: Any, inspect: Callable[..., Any] | None = None
) -> tuple[RunState, Record]:
    """World, propose, poll, select, train, average, observe: the paper's equation (2) for any selector.

    Args:
        setup: A single run's setup.
        seed: The run's seed.
        progress: The state before the round.
        t: The round, from 0.
        inspect: Trains the seats instead of ``jax.vmap``, one by one in plain Python; for debugging.
    """
    choice = choose(setup, seed, progress.selector, progress.params, t)
    outcome, record = work(setup, progress, t, choice, Request.of(setup.selector), inspect)
    memory = learn(setup.selector, progress.selector, choice, outcome)
    return RunState(outcome.params, memory, outcome.server, outcome.chosen), record


def choose(setup: Setup, seed: Any, state: Any, params: Params, t: Any) -> Choice:
    """World, propose, poll, select: the strategy's own part of a round."""
    federation, selector, local = setup.federation, setup.selector, setup.local
    K, count = federation.num_clients, federation.count
    keys = round_keys(seed, t)
    here, fails = jax.random.split(keys.world)
    model_bytes = _bytes(params)
    size = federation.size if setup.lies is None else setup.lies.sizes(federation.size, t)
    clients = Clients(size, jnp.asarray(setup.availability(here, t, K)), **_facts(setup, seed, t, model_bytes))
    kind = POLLS.get(selector.poll)

    def poll(key: PRNGKeyArray, asked: Bool[Array, " K"]) -> Float[Array, " K"]:
        assert kind is not None
        key, now = keys.train if kind.trains else key, jnp.asarray(t, jnp.int32)

        def answer(shared: Any, asked: Bool[Array, " K"]) -> Float[Array, " K"]:
            federation, model, local, params, key, t = shared
            return kind.answers(federation, model, local, params=params, asked=asked, key=key, t=t)

        answers = spread_candidates(answer, (federation, setup.model, local, params, key, now), asked)
        told = answers if setup.lies is None else setup.lies.answers(answers, t)
        answers = disguised(selector, key, state, told, jnp.arange(K, dtype=jnp.int32))
        answers = answers if setup.lies is None else encoded(selector, state, told, answers, setup.lies.claimed(t, K))
        if not kind.trains:
            return answers
        duration = setup.devices.poll_seconds(kind.samples(count, local), model_bytes, kind.trains)
        return jnp.where(duration <= jnp.asarray(setup.devices.deadline, jnp.float32), answers, jnp.nan)

    candidates, answers, selection = pick(selector, keys, state, clients, poll)
    selection = lawful(selection, candidates, clients.available)
    asked = candidates & Request.of(selector).enquires if kind is None else polled(selector, candidates, state)
    evaluated = kind.samples(count, local) if kind is not None else jnp.zeros_like(count)
    data = jax.random.key_data
    return Choice(clients, asked, evaluated, answers, selection, fails=data(fails), train=data(keys.train))


def work(
    setup: Setup,
    progress: RunState,
    t: Any,
    choice: Choice,
    request: Request,
    inspect: Callable[..., Any] | None = None,
) -> tuple[Outcome, Record]:
    """Train, average: the part of a round that strategies share.

    Of the setup's selector it uses no more than how it measures updates, and nothing of its state.
    """
    federation, local, selection, asked = setup.federation, setup.local, choice.selection, choice.asked
    K, count, trains = federation.num_clients, federation.count, request.trained
    fails, key = (jax.random.wrap_key_data(data, impl="threefry2x32") for data in (choice.fails, choice.train))
    model_bytes = _bytes(progress.params)
    filled, seated = selection.weights > 0, jnp.maximum(selection.clients, 0)
    seats = jnp.arange(seated.shape[0], dtype=jnp.int32)
    kept = asked[seated] if trains else None  # who has trained for the poll, when there were no seats yet
    seats = seats if kept is None else jnp.where(kept, 0, seats)

    own_keys = jax.vmap(functools.partial(seat_key, key))(seats, seated)
    now, squares = jnp.asarray(t, jnp.int32), "square_loss" in request.measured

    def training(shared: Any, clients: Int[Array, " n"], keys: Key[Array, " n"]) -> Trained:
        federation, model, local, params, t = shared
        options: dict[str, Any] = {"params": params, "t": t, "squares": squares, "unroll": setup.unroll}
        return train_seats(federation, model, local, clients=clients, keys=keys, **options)

    if inspect is None:
        shared = federation, setup.model, local, progress.params, now
        trained = spread_rows(training, shared, seated, own_keys)
    else:
        options: dict[str, Any] = {"params": progress.params, "t": now, "squares": squares}
        alone = functools.partial(train, federation, setup.model, local, **options)
        trained = inspect(lambda key, client: alone(client=client, key=key), own_keys, selection)

    told, claimed = trained.loss, None
    if setup.lies is not None:
        told, claimed = setup.lies.reports(trained.loss, seated, t, K), setup.lies.claimed(t, K)[seated]
        trained = trained._replace(params=setup.lies.updates(trained.params, progress.params, seated, t, K))
    samples = local.samples(count)
    seconds = setup.devices.train_seconds(samples, model_bytes)
    duration, worked = seconds[seated], filled
    if kept is not None:
        duration = jnp.where(kept, setup.devices.upload_seconds(model_bytes, K)[seated], duration)
        worked = filled & ~kept
    deadline = jnp.asarray(setup.devices.deadline, jnp.float32)
    back = filled & ~setup.failures(fails, t, K)[seated] & (duration <= deadline)
    weights = _rescaled(selection.weights, back)
    before = barrier(progress.params)  # or XLA keeps the copies that the seats started from, only to subtract them
    change = setup.server.combine(weights, trained.params, before)
    params, server = setup.server.update(progress.params, change, progress.server, back.any())
    line = jnp.where(back, seated, K)
    poll_time = jnp.where(
        asked, setup.devices.poll_seconds(choice.evaluated, model_bytes, trains), jnp.float32(0)
    ).max()
    poll_time = jnp.minimum(poll_time, deadline) if trains else jnp.float32(0) if request.enquires else poll_time
    train_time = jnp.where(filled, jnp.minimum(duration, deadline), jnp.float32(0)).max()
    seen: dict[str, Any] = {"loss": told, "duration": duration}
    if trained.square_loss is not None:
        seen["square_loss"] = trained.square_loss if claimed is None else squares_of(told, trained)
    if request.measured & UPDATES:
        changes = jax.tree.map(lambda new, old: new - old[None], trained.params, before)
        labels = federation.classes
        seen |= jax.vmap(lambda change: measure(setup.selector, jax.tree.leaves(change), labels=labels))(changes)
    outcome = Outcome(
        params,
        server,
        chosen=progress.chosen.at[line].add(weights, mode="drop"),
        seats={name: jnp.where(back.reshape(-1, *[1] * (x.ndim - 1)), x, jnp.nan) for name, x in seen.items()},
        poll_duration=poll_time,
        claimed=claimed,
    )
    return outcome, Record(
        clients=jnp.where(back | (selection.clients <= UNWEIGHTED), selection.clients, -1),
        selected=jnp.where(filled, selection.clients, -1),
        weights=weights,
        train_loss=jnp.where(back.any(), weighted_sum(weights, trained.loss) / weights.sum(), jnp.nan),
        available=jnp.sum(choice.clients.available, dtype=jnp.int32),
        polled=jnp.sum(asked, dtype=jnp.int32),
        trained=jnp.sum(filled, dtype=jnp.int32),
        returned=jnp.sum(back, dtype=jnp.int32),
        poll_samples=jnp.int32(0) if trains else jnp.sum(jnp.where(asked, choice.evaluated, 0), dtype=jnp.int32),
        train_samples=jnp.sum(jnp.where(worked, samples[seated], 0), dtype=jnp.int32)
        + (jnp.sum(jnp.where(asked, choice.evaluated, 0), dtype=jnp.int32) if trains else 0),
        seconds=poll_time + train_time,
    )


def learn(selector: Selector[Any], state: Any, choice: Choice, outcome: Outcome) -> Any:
    """Observe: the strategy's state after a round, of which it sees the losses of the seats and what it needs."""
    clients = choice.clients
    of_round = {
        "polled": choice.answers,
        "poll_duration": outcome.poll_duration,
        "size": jnp.where(clients.available, clients.size, jnp.float32(0)),
    }
    known = {name: part for name, part in {**outcome.seats, **of_round}.items() if name in needs(selector)}
    told, key = outcome.seats["loss"], jax.random.wrap_key_data(choice.train, impl="threefry2x32")
    said = disguised(selector, key, state, told, jnp.maximum(choice.selection.clients, 0))
    said = said if outcome.claimed is None else encoded(selector, state, told, said, outcome.claimed)
    return selector.observe(state, choice.selection, Report(said, **known))


def _bytes(params: Params) -> int:
    return sum(leaf.nbytes for leaf in jax.tree.leaves(params))


def _facts(setup: Setup, seed: Any, t: Any, model_bytes: int) -> dict[str, Array]:
    """The facts that the strategy needs: what each device takes, and who will be gone in the next round."""
    wanted, K, devices, facts = needs(setup.selector), setup.federation.num_clients, setup.devices, {}
    if "expected_duration" in wanted:
        facts["expected_duration"] = devices.train_seconds(setup.local.samples(setup.federation.count), model_bytes)
    if "upload_duration" in wanted:
        facts["upload_duration"] = devices.upload_seconds(model_bytes, K)
    if "leaving" in wanted:
        later, _ = jax.random.split(round_keys(seed, t + 1).world)
        facts["leaving"] = ~setup.availability(later, t + 1, K)
    return facts


def _rescaled(weights: Float[Array, " m"], back: Bool[Array, " m"]) -> Float[Array, " m"]:
    """The weights of the seats that came back, scaled up to the total of all."""
    left = jnp.where(back, weights, jnp.float32(0))
    total = left.sum()
    return left * jnp.where(total > 0, weights.sum() / jnp.where(total > 0, total, 1), jnp.float32(1))
