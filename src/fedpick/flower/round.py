"""One round on Flower, straight down: roll call, pick, train, check the updates, average, observe, save."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedpick.flower.checkpoint import Checkpointer, ServerState
from fedpick.flower.clients import ClientTable
from fedpick.flower.evaluations import client_metrics, eval_losses, evaluators, has_loss, server_metrics
from fedpick.flower.history import History
from fedpick.flower.messages import AppId, FilteredGrid, changed, messages_by_seat
from fedpick.flower.options import Options
from fedpick.flower.queries import Queries
from fedpick.flower.recovery import Recovery
from fedpick.flower.replies import (
    bound_examples,
    drop_uncommon_metrics,
    is_credible,
    is_finite,
    keep_whole,
    unify_names,
    usable_evaluations,
    used_weights,
    weigh,
)
from fedpick.flower.reports import ReportCheck
from fedpick.flower.selection import announced, choose, observe, resize_memory
from fedpick.flower.sizes import bound_claims, bound_weights
from fedpick.flower.training import Round, compile_selector, rescale
from fedpick.flower.watch import SERVER
from fedpick.flower.wrapped import Wrapped
from fedpick.protocol import Selector, least_clients, needs

LOG = logging.getLogger("flwr.fedpick")
Aggregated = tuple[ArrayRecord | None, MetricRecord | None]
Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]


class Adapter:
    """Plays the rounds of a Flower strategy with the clients that a selector picks; ``Selecting`` calls it.

    ``inside`` has the strategy's own methods: it is the strategy or, for a ``SelectingMixin``, its ``super()``.
    """

    def __init__(self, selector: Selector[Any], options: Options, strategy: Strategy, inside: Strategy) -> None:
        if selector.poll == "batch" and options.batch is None:
            raise ValueError("Selecting: batch must be given, the b of cpow-d: Selecting(..., batch=32), got None")
        self.selector, self.options, self.wrapped, self.inside = selector, options, Wrapped(strategy), inside
        self.wrapped.check_folder(options.folder)
        rows = max(options.clients or 0, least_clients(selector))
        self.state = ServerState(ArrayRecord(), ClientTable(rows), History())
        self.state.clients.limits = options.size_limits
        self.check_reports = ReportCheck(selector, options)
        self.skip = 0  # rounds of this start() that an earlier run of the server has played
        self.current: Round | None = None
        self.seconds: Mapping[str, float] = {}  # that each training reply took, by the id of the message it answers
        self.evaluations: list[Message] = []  # the messages that ask clients to evaluate, in this round
        self.checkpointer: Checkpointer | None = None
        self.recovery = Recovery(self.wrapped, options.quarantine, options.outage)
        self.reseed: Callable[..., None] = lambda *_: None  # in a trial, which draws the same where it goes on later

    def begin(self, arrays: ArrayRecord, grid: Grid) -> None:
        """Resume from the folder, if a run of this federation left a state there; only the first call does so."""
        self.recovery = Recovery(self.wrapped, self.options.quarantine, self.options.outage)
        if self.checkpointer is not None:
            self.checkpointer.open()
        elif self.options.folder is not None:
            first_model = self._resume(arrays, Path(self.options.folder), AppId.of(grid))
            if self.skip and self.state.first_model != first_model:
                LOG.info("fedpick: this first model is not the one of the folder, whose own goes on")
                self._roll_call(self._queries(self.skip, grid))  # it may be of another federation
        if not self.skip:  # with this model
            self.recovery.begin(self.state, arrays)

    def end(self) -> None:
        """Leave the folder to others."""
        if self.checkpointer is not None:
            self.checkpointer.close()

    def _resume(self, arrays: ArrayRecord, folder: Path, app: AppId) -> str:
        strategies = [type(layer).__name__ for layer in self.wrapped.layers]
        self.checkpointer = Checkpointer(folder, self.selector, self.options, strategies, arrays, app)
        self.checkpointer.open()
        state = self.checkpointer.restore()
        if state is not None:
            self.state, self.skip = state, state.rounds
            self.state.clients.limits = self.options.size_limits
            self.wrapped.restore(state.wrapped)
            before = self.checkpointer.restore_round(state.watch.good) if state.watch.good else None
            self.recovery.good = (arrays, {}) if state.watch.good == 0 else None
            if before is not None:
                self.recovery.good = (before.arrays, before.wrapped)
        return self.checkpointer.first_model

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """The training messages of a round, one for each seat that is taken.

        They are the strategy's own: it sees the chosen nodes only, and trains all of them.
        """
        self.reseed(server_round, "train")
        if self.recovery.good is None and not self.skip:
            self.begin(arrays, grid)
        if server_round <= self.skip:
            return []
        arrays = self.state.arrays if self.recovery.rolled_back else arrays
        config.update(self.state.config if self.skip else {})  # as the strategy had changed it
        self.skip, self.state.arrays = 0, arrays
        queries = self._queries(server_round, grid)
        self.check_updates()
        self._roll_call(queries)
        began, choice = time.monotonic(), choose(self.selector, queries)  # waiting for clients is no part of a round
        if self.recovery.judge(self.state, server_round):
            arrays, choice = self.state.arrays, choose(self.selector, queries)
            self.recovery.judge(self.state, server_round)
        self.check_reports.check_poll(self.state.history.rows, choice, len(self.state.clients))
        self.check_reports.check_rest(choice.available, server_round, self.state.history)
        nodes = {i: self.state.clients.node_of[client] for i, client in choice.seats.items()}
        messages: dict[int, Message] = {}
        if nodes and self.wrapped.setting("fraction_train", 1.0) != 0:  # 0: the strategy trains nobody
            chosen, number = FilteredGrid(grid, list(nodes.values())), len(nodes)
            with self.wrapped.override(fraction_train=1.0, min_train_nodes=number, min_available_nodes=number):
                given = dict(config)
                sent = list(self.inside.configure_train(server_round, arrays, config, chosen))
            self.state.config |= changed(given, config)
            messages = messages_by_seat(sent, choice.seats, nodes, announced(self.selector, self.state.memory, True))
            self.check_reports.check_sent(self.wrapped, len(messages), number, self.state.history)
        self.current = Round(choice, messages, began, {name: array.numpy() for name, array in arrays.items()})
        LOG.info("fedpick round %d: %s", server_round, choice.describe(self.state.clients.identities))
        return list(messages.values())

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Aggregated:
        """What the strategy makes of the valid updates, in the order of the seats."""
        self.reseed(server_round, "aggregate")
        state = self.state
        if server_round <= self.skip:
            return state.arrays.copy(), None
        if self.current is None:
            raise ValueError(f"Selecting: round {server_round} must be configured before it is aggregated")
        current, self.current = self.current, None
        selection, model = current.choice.selection, current.model
        updates = self.recovery.valid_updates(state, self.options.train_loss, server_round, current, replies)
        norms = current.norms(updates, self.options.norm_bound, state.clients.identities)
        report = current.report(self.selector, self.options, updates=updates, seconds=self.seconds, table=state.clients)
        weights = rescale(np.asarray(selection.weights), list(updates))
        arrays, metrics = None, None
        if updates:
            valid, clients = list(updates.values()), [current.choice.seats[i] for i in updates]
            odd = [client for client, reply in zip(clients, valid, strict=True) if not is_credible(reply)]
            own = weights[list(updates)] if self.options.weights == "selection" else None
            unify_names(valid, self.wrapped.arrays_key)
            key, memory = self.wrapped.weight_key, self.wrapped.memory_copy()
            if own is None and (factor := self.options.size_cap) is not None:
                sizes = state.clients.sizes()
                bound_examples(valid, key, lambda claims: bound_weights(claims, sizes[clients], factor, sizes.max()))
            weigh(valid, own, model, key)
            weights[list(updates)] = own if own is not None else used_weights(valid, key)
            arrays, metrics = self.inside.aggregate_train(server_round, valid)
            if arrays is None or is_finite(arrays):
                state.watch.sent(norms)
                arrays = arrays if arrays is None else keep_whole(arrays, model)
            else:
                arrays = None
                self.recovery.refuse(state, server_round, memory, odd)
        state.arrays = state.arrays if arrays is None else arrays
        if self.recovery.rolled_back:
            arrays, self.recovery.rolled_back = state.arrays, False
        wrong = self.check_reports.without_loss(state.memory, selection, report, updates)
        for client in (current.choice.seats[i] for i in wrong):
            LOG.warning("fedpick round %d: no valid loss from %s", server_round, state.clients.identities[client])
            state.clients.quarantine(client, state.rounds, self.options.quarantine, training=True)
        said = self.check_reports(state.memory, selection, report, list(updates.values()), current.choice.losses)
        before, state.memory = state.memory, observe(self.selector, state.memory, selection, report)
        samples = current.poll_samples(self.options.batch if self.selector.poll == "batch" else None, state.clients)
        row = current.row(list(updates), weights, np.asarray(report.loss), samples)
        state.history.rows.append(row)
        self.recovery.note_updates(0 if self.recovery.refused else len(updates))
        why = state.history.note_decisions(self.selector, before, state.memory, current.choice.remark, said)
        if why is not None:
            LOG.info("fedpick round %d: %s", server_round, why)
        self.save()
        done = f"{row.returned} of {row.trained} returned; train loss {row.train_loss:.4g}; {row.seconds:.1f} s"
        LOG.info("fedpick round %d: %s", server_round, done)
        return arrays, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """The strategy's evaluation on the clients that answer; it asks for no more of them than there are."""
        self.reseed(server_round, "evaluate")
        table, self.evaluations = self.state.clients, []
        missed = server_round == self.skip and "loss" not in self.state.history.measured.get(self.skip, {})
        if missed and self.wrapped.setting("fraction_evaluate", 1.0) != 0:  # the server was killed before it came
            self._roll_call(self._queries(server_round, grid))
        nodes = [table.node_of[client] for client in np.flatnonzero(table.reachable()).tolist()]
        if nodes and (missed or server_round > self.skip):
            names = ("min_evaluate_nodes", "min_available_nodes")
            fewest = {name: min(len(nodes), self.wrapped.setting(name, len(nodes))) for name in names}
            with self.wrapped.override(**fewest):
                asked = self.inside.configure_evaluate(server_round, arrays, config, FilteredGrid(grid, nodes))
                self.evaluations = list(asked)
        return self.evaluations

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """What the strategy makes of the evaluations that it can average; silent clients are quarantined.

        An error of a client's own is an answer (an app may have no evaluation at all); one that the SuperLink made for
        it is not.
        """
        answers, table = list(replies), self.state.clients
        about = [message.metadata for message in self.evaluations]
        silent = {each.dst_node_id for each in about} - {reply.metadata.src_node_id for reply in answers}
        for client in sorted({table.client_at[node] for node in silent if node in table.client_at}):
            LOG.warning("fedpick: %s did not answer the evaluation", table.identities[client])
            table.quarantine(client, self.state.rounds - 1, self.options.quarantine, silent=True)
        key = self.wrapped.weight_key
        clients = {each.message_id: table.client_at.get(each.dst_node_id, -1) for each in about}
        losses = eval_losses(answers, {name: k for name, k in clients.items() if k >= 0 and not table.quarantined[k]})
        self.state.watch.hear("evaluate", losses, self.state.rounds)
        self.recovery.judge(self.state, server_round)
        usable = usable_evaluations(answers, clients, key)
        self.check_reports.check_evaluations(answers, usable, key, self.state.history)
        if not usable:
            return None
        who = [table.identities[clients[reply.metadata.reply_to_message_id]] for reply in usable]
        bound_examples(usable, key, lambda claims: bound_claims(claims, self.options.size_limits, who))
        history = self.state.history
        history.measure(client_metrics(usable, key, history, self.check_reports.strict) | evaluators(who))
        drop_uncommon_metrics(usable)
        return self.inside.aggregate_evaluate(server_round, usable)

    def record_evaluations(self, evaluate: Evaluate) -> Evaluate:
        """The server's own evaluation, recorded; rounds that an earlier run has played are not evaluated again."""

        def evaluate_and_record(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            found = None if server_round < self.skip else evaluate(server_round, arrays)
            if found is not None:
                history = self.state.history
                self.check_reports.check_names([found], "the server", history)
                history.measure(measured := server_metrics(found, history, self.check_reports.strict))
                if server_round == self.state.rounds and has_loss(found):
                    self.state.watch.hear("server", {SERVER: measured["test_loss"]}, server_round)
                    self.recovery.judge(self.state, server_round)
            return found

        return evaluate_and_record

    def check_updates(self, at_end: bool = False) -> None:
        """End the run where no client has returned an update for long; these rounds are not played."""
        if at_end:
            self.check_reports.check_poll(self.state.history.rows)
        error = self.recovery.outage_error(self.state, at_end)
        if error is not None and self.checkpointer is not None:
            self.state.history.drop(self.recovery.empty)
            self.checkpointer.rewind(self.state)
        if error is not None:
            raise error

    def save(self, at_end: bool = False) -> None:
        """Write a checkpoint, if there is a folder and a round was played."""
        if self.checkpointer is not None and self.state.rounds:
            self.wrapped.warn_of_unsaved()
            self.state.wrapped = self.wrapped.memory()
            self.checkpointer.save(self.state, at_end)

    def _queries(self, server_round: int, grid: Grid) -> Queries:
        keys = (self.wrapped.arrays_key, self.wrapped.setting("configrecord_key", "config"))
        return Queries(grid, self.state, self.options, server_round, *keys)

    def _roll_call(self, queries: Queries) -> None:
        """Bring the table of clients up to date, and the selector's memory to its length."""
        state, rows, first = self.state, len(self.state.clients), not self.state.clients.called
        known = state.clients.named() if first else set()
        wanted = max(self.options.clients or 0, self.selector.m or 1, self.wrapped.setting("min_available_nodes", 1))
        queries.roll_call(wanted, again="leaving" in needs(self.selector))
        self.check_reports.check_clients(state.clients.refused, state.clients.errors)
        here = {state.clients.identities[client] for client in state.clients.node_of}
        if known and here and not known & here:
            rule = "must be of this federation, and none of the clients that are here is of it"
            folder, some = str(self.options.folder), sorted(known)[:3]
            raise ValueError(f"Selecting: folder {rule}, got {folder!r} with {some}; give this one a folder of its own")
        if state.memory is None or len(state.clients) != rows:
            state.memory = resize_memory(self.selector, state.memory, len(state.clients))
        if first or len(state.clients) != rows:
            compile_selector(self.selector, queries)
