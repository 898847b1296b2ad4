"""One round on Flower, straight down: roll call, pick, train, check the updates, average, observe, save."""

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from fedpick.flower.checkpoint import Checkpointer, ServerState
from fedpick.flower.clients import ClientTable, Queries, QueryContext
from fedpick.flower.evaluation import ClientEvaluation, Evaluate, client_metrics, server_metrics
from fedpick.flower.history import History, Row
from fedpick.flower.messages import (
    FilteredGrid,
    drop_uncommon_metrics,
    messages_by_seat,
    read_loss,
    read_metric,
    scale_updates,
    set_weights,
    update_fault,
)
from fedpick.flower.options import Options
from fedpick.flower.selection import Choice, choose, observe, resize_memory
from fedpick.flower.wrapped import Wrapped
from fedpick.protocol import Report, Selector, round_keys

LOG = logging.getLogger("flwr.fedpick")
Aggregated = tuple[ArrayRecord | None, MetricRecord | None]
Aggregate = Callable[[list[Message]], Aggregated]  # the wrapped strategy's, of the updates that it is to see
Configure = Callable[[Grid], Iterable[Message]]  # the wrapped strategy's, of the grid that it is to see


class Round(NamedTuple):
    """A round under way: the decision, and the training messages by seat."""

    choice: Choice
    messages: dict[int, Message]
    available: int
    began: float


class Adapter:
    """Plays the rounds of a Flower strategy with the clients that a selector picks; ``Selecting`` calls it."""

    def __init__(self, selector: Selector[Any], options: Options, strategy: Strategy) -> None:
        if selector.poll == "batch" and options.batch is None:
            raise ValueError("Selecting: batch must be given, the b of the mini-batch that cpow-d asks for, got None")
        self.selector, self.options, self.wrapped = selector, options, Wrapped(strategy)
        if options.folder is not None and self.wrapped.has_accountant:
            rule = "folder must be None for a strategy with a privacy accountant, which cannot be saved"
            raise ValueError(f"Selecting: {rule}, got {str(options.folder)!r}")
        d = getattr(selector, "d", 0)
        rows = max(options.clients or 0, selector.m or 1, int(d) if isinstance(d, int | np.integer) else 0)
        self.state = ServerState(0, ArrayRecord(), ClientTable(rows), History(), memory=None, wrapped={})
        self.queries, self.evaluation = Queries(options), ClientEvaluation(self.wrapped)
        self.skip = 0  # rounds of this start() that an earlier run of the server has played
        self.current: Round | None = None
        self.checkpointer: Checkpointer | None = None
        self.begun = False

    def begin(self, arrays: ArrayRecord) -> None:
        """Resume from the folder, if a run of this federation left a state there; only the first call does anything."""
        if self.begun:
            return
        self.begun, self.state = True, self.state._replace(arrays=arrays)
        if self.options.folder is not None:
            shapes = {name: tuple(array.shape) for name, array in arrays.items()}
            self.checkpointer = Checkpointer(
                Path(self.options.folder), self.selector, self.options, self.wrapped.names, shapes
            )
            state = self.checkpointer.restore()
            if state is not None:
                self.state, self.skip = state, state.rounds
                self.wrapped.restore(state.wrapped)
                LOG.info("fedpick: resuming after %d rounds", state.rounds)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, grid: Grid, configure: Configure
    ) -> list[Message]:
        """The training messages of a round, one for each seat that is taken."""
        self.begin(arrays)
        if server_round <= self.skip:
            return []
        began, self.skip, self.state = time.monotonic(), 0, self.state._replace(arrays=arrays)
        keys = (self.wrapped.setting("arrayrecord_key", "arrays"), self.wrapped.setting("configrecord_key", "config"))
        context = QueryContext(arrays, *keys, server_round)
        self._roll_call(grid, context)
        available = int(self.state.clients.available().sum())
        choice = self._choose(grid, context)
        messages = self._train(grid, choice, configure)
        self.current = Round(choice, messages, available, began)
        self._log_choice(server_round, self.current)
        return list(messages.values())

    def aggregate_train(self, server_round: int, replies: Iterable[Message], aggregate: Aggregate) -> Aggregated:
        """What the strategy makes of the valid updates, in the order of the seats."""
        if server_round <= self.skip:
            return self.state.arrays.copy(), None
        if self.current is None:
            raise ValueError(f"Selecting: round {server_round} must be configured before it is aggregated")
        current, self.current = self.current, None
        selection = current.choice.selection
        model = {name: array.numpy() for name, array in self.state.arrays.items()}
        updates = self._valid_updates(server_round, current, replies, model)
        losses = np.full(len(selection.weights), np.nan, np.float32)
        for i, reply in updates.items():
            losses[i] = read_loss(reply, self.options.train_loss, self.options.loss_range)
        weights = _rescale(np.asarray(selection.weights), list(updates))
        arrays, metrics = self._average(list(updates.values()), weights[list(updates)], model, aggregate)
        memory = observe(self.selector, self.state.memory, selection, Report(jnp.asarray(losses)))
        model_now = self.state.arrays if arrays is None else arrays
        self.state = self.state._replace(rounds=self.state.rounds + 1, arrays=model_now, memory=memory)
        row = self._row(current, list(updates), weights, losses)
        self.state.history.rows.append(row)
        self.save()
        returned = f"{row.returned} of {row.trained} returned"
        LOG.info("fedpick round %d: %s; train loss %.4g; %.1f s", server_round, returned, row.train_loss, row.seconds)
        return arrays, metrics

    def configure_evaluate(self, server_round: int, grid: Grid, configure: Configure) -> list[Message]:
        """The strategy's evaluation on the available clients."""
        self.evaluation.asked = []
        return [] if server_round <= self.skip else self.evaluation.configure(grid, self.state.clients, configure)

    def aggregate_evaluate(
        self, replies: Iterable[Message], aggregate: Callable[[list[Message]], MetricRecord | None]
    ) -> MetricRecord | None:
        """What the strategy makes of the evaluations that it can average; silent clients are quarantined."""
        answers = list(replies)
        for client in self.evaluation.silent(answers):
            LOG.warning("fedpick: %s did not answer the evaluation", self.state.clients.identities[client])
            self.state.clients.quarantine(client, self.state.rounds - 1, self.options.quarantine)
        usable = self.evaluation.usable(answers)
        if not usable:
            return None
        self.state.history.measure(self.state.rounds, client_metrics(usable, self.wrapped.weight_key))
        return aggregate(usable)

    def record_evaluations(self, evaluate: Evaluate) -> Evaluate:
        """The server's own evaluation, recorded; rounds that an earlier run has played are not evaluated again."""

        def evaluate_and_record(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            found = None if server_round < self.skip else evaluate(server_round, arrays)
            if found is not None:
                self.state.history.measure(self.state.rounds, server_metrics(found))
            return found

        return evaluate_and_record

    def save(self) -> None:
        """Write a checkpoint, if there is a folder and a round was played."""
        if self.checkpointer is not None and self.state.rounds:
            self.checkpointer.save(self.state._replace(wrapped=self.wrapped.memory()))

    def log_summary(self) -> None:
        """Log the selector and its options, in the form of Flower's summaries."""
        options = self.options
        LOG.info("\t├──> fedpick: %r, seed %d", self.selector, options.seed)
        LOG.info("\t│\t├── polls: %s, %g s each", options.query, options.poll_timeout)
        LOG.info("\t│\t└── quarantine: %d rounds; if no client answers: %s", options.quarantine, options.fallback)

    def _roll_call(self, grid: Grid, context: QueryContext) -> None:
        """Bring the table of clients up to date, and the selector's memory to its length."""
        state, least = self.state, int(self.wrapped.setting("min_available_nodes", 1))
        wanted, rows = max(self.options.clients or 0, self.selector.m or 1, least), len(state.clients)
        self.queries.roll_call(grid, state.clients, state.rounds, wanted, context)
        if state.memory is None or len(state.clients) != rows:
            self.state = state._replace(memory=resize_memory(self.selector, state.memory, len(state.clients)))

    def _choose(self, grid: Grid, context: QueryContext) -> Choice:
        table, t = self.state.clients, self.state.rounds
        batch = self.options.batch if self.selector.poll == "batch" else None
        return choose(
            self.selector,
            round_keys(self.options.seed, t),
            self.state.memory,
            table.sizes(),
            table.available(),
            poll=lambda asked: self.queries.poll(grid, table, t, asked, context, batch),
            fallback=self.options.fallback,
        )

    def _train(self, grid: Grid, choice: Choice, configure: Configure) -> dict[int, Message]:
        """The strategy's own messages, by seat; it sees the chosen nodes only, and trains all of them."""
        nodes = {i: self.state.clients.node_of[client] for i, client in choice.seats.items()}
        if not nodes or self.wrapped.setting("fraction_train", 1.0) == 0:  # 0: the strategy trains nobody
            return {}
        with self.wrapped.train_all_visible(len(nodes)):
            messages = list(configure(FilteredGrid(grid, list(nodes.values()))))
        return messages_by_seat(messages, choice.seats, nodes)

    def _valid_updates(
        self, server_round: int, current: Round, replies: Iterable[Message], model: Mapping[str, NDArray[Any]]
    ) -> dict[int, Message]:
        """The updates that may enter the average, by seat; a client without one is quarantined."""
        answered = {reply.metadata.reply_to_message_id: reply for reply in replies}
        seats, valid = current.choice.seats, dict[int, Message]()
        faults: dict[int, str] = {}  # by client
        for i, message in current.messages.items():
            reply = answered.get(message.metadata.message_id)
            fault = update_fault(reply, model)
            if reply is not None and fault is None:
                valid[i] = reply
            else:
                faults[seats[i]] = str(fault)
        table = self.state.clients
        table.reset_failures([seats[i] for i in valid])
        for client, fault in faults.items():
            LOG.warning("fedpick round %d: no update from %s: %s", server_round, table.identities[client], fault)
            table.quarantine(client, self.state.rounds, self.options.quarantine)
        return valid

    def _average(
        self, updates: list[Message], weights: NDArray[Any], model: Mapping[str, NDArray[Any]], aggregate: Aggregate
    ) -> Aggregated:
        """What the strategy makes of the updates, with the weights of the selection or with num-examples."""
        if not updates:
            return None, None
        key = self.wrapped.weight_key
        if self.options.weights == "selection":
            set_weights(updates, weights.tolist(), key)
            total = float(weights.sum(dtype=np.float64))
            if abs(total - 1) > 1e-5:
                scale_updates(updates, model, total)
        else:
            examples = [read_metric(reply, key) for reply in updates]
            if not all(0 <= number < math.inf for number in examples) or not any(examples):
                LOG.warning("fedpick: some clients report no valid %s; all clients get the same weight", key)
                set_weights(updates, [1.0] * len(updates), key)
        for name in drop_uncommon_metrics(updates):
            LOG.warning("fedpick: metric %r is missing on some clients; left out", name)
        return aggregate(updates)

    def _row(self, current: Round, returned: list[int], weights: NDArray[Any], losses: NDArray[Any]) -> Row:
        choice, size = current.choice, self.state.clients.size
        clients = np.asarray(choice.selection.clients)
        known = [i for i in returned if losses[i] == losses[i]]
        limit = self.options.batch if self.selector.poll == "batch" else None
        return Row(
            clients=[int(clients[i]) if i in returned else -1 for i in range(len(weights))],
            weights=weights.tolist(),
            train_loss=float(weights[known] @ losses[known]) / float(weights[known].sum()) if known else math.nan,
            available=current.available,
            polled=len(choice.asked),
            trained=len(current.messages),
            returned=len(returned),
            poll_samples=float(np.minimum(size[list(choice.asked)], limit or math.inf).sum()),
            train_samples=math.nan,  # the server does not know how many passes a client makes over its data
            seconds=time.monotonic() - current.began,
        )

    def _log_choice(self, server_round: int, current: Round) -> None:
        choice = current.choice
        asked = f", {choice.answered} of {len(choice.asked)} polled answered" if choice.asked else ""
        names = [str(self.state.clients.identities[client]) for client in choice.seats.values()]
        more = f" and {len(names) - 10} more" if len(names) > 10 else ""
        chosen = f"{choice.how}: {', '.join(names[:10])}{more}" if names else "no client to train; the model stays"
        LOG.info("fedpick round %d: %d clients available%s; %s", server_round, current.available, asked, chosen)


def _rescale(weights: NDArray[np.float32], returned: list[int]) -> NDArray[np.float32]:
    """The weights of the seats that returned, scaled up to the total of all."""
    left = np.zeros_like(weights)
    left[returned] = weights[returned]
    total = left.sum()
    return left * (weights.sum() / total) if total > 0 else left
