"""The queries of a round: the roll call, which says who is here, and the poll, which asks the candidates."""

import logging
import math
import time
from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedpick.flower.checkpoint import ServerState
from fedpick.flower.clients import identity_order
from fedpick.flower.messages import exchange
from fedpick.flower.options import RESUME, Options, OutageError
from fedpick.flower.replies import (
    error_text,
    is_silence,
    read_identity,
    read_loss,
    read_metric,
    read_seconds,
    read_size,
)
from fedpick.protocol import Poll

LOG = logging.getLogger("flwr.fedpick")
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0  # seconds between two calls of those who failed, where too few are here
APP_FAILED = (1, 2)  # Flower's codes of errors that are the ClientApp's own
HANDLER = """
    @app.query("{name}")
    def {name}(message, context):
        metrics = {{"num-examples": len(my_data), "partition-id": context.node_config["partition-id"]}}
        if "arrays" in message.content:
            metrics["{loss}"] = mean_loss(message.content["arrays"], my_data)
        return Message(RecordDict({{"metrics": MetricRecord(metrics)}}), reply_to=message)
"""


class Queries(NamedTuple):
    """The two queries of a round: the roll call (identity and size) and the poll (loss)."""

    grid: Grid
    state: ServerState
    options: Options
    server_round: int  # Flower's number of the round
    arrays_key: str  # the record names that the strategy uses
    config_key: str

    def roll_call(self, wanted: int, again: bool = False) -> None:
        """Bring the table up to date: new nodes are asked once, others when their quarantine is over.

        With ``again``, all are asked, for facts that change from round to round. The first call waits until ``wanted``
        clients have answered, at most ``wait`` seconds, and asks those again that were silent.
        """
        table, first = self.state.clients, not self.state.clients.called
        end = time.monotonic() + (self.options.wait if first else 0.0)
        logged = -float("inf")
        answers: dict[int, Message] = {}
        faults: dict[int, str] = {}
        silent: set[int] = set()
        while True:
            listed = set(self.grid.get_node_ids())
            table.update_nodes(listed)
            answers = {node: reply for node, reply in answers.items() if node in listed}
            called = [node for node in table.to_call(listed, self.state.rounds, again) if node not in answers]
            answers |= self._call(called, faults, silent if first else None)
            if first and not answers and faults:
                self._check_faults({node: faults[node] for node in listed if node in faults}, len(listed), wanted)
            present = {table.node_of[client] for client in np.flatnonzero(table.available()).tolist()}
            here = len(present | answers.keys())
            failed = len((listed & faults.keys()) - present - answers.keys())  # they answer with errors, and are here
            left = end - time.monotonic()
            if here >= wanted or (here and here + failed >= wanted) or left <= 0:
                break
            if time.monotonic() - logged > 10:
                logged = time.monotonic()
                LOG.info("fedpick: %d of %d clients have answered; waiting up to %.0f s", here, wanted, left)
            time.sleep(min(0.5, left))
        if first:
            table.called = True
            for node in (silent & listed) - answers.keys() - faults.keys():
                table.quarantine_node(node, self.state.rounds, self.options.quarantine, silent=True)
            table.errors = {node: why for node, why in faults.items() if node in listed and node not in answers}
            table.grow(len({self._identity(node, reply) for node, reply in answers.items()}))
        self._enter(answers)
        self._wait_for_enough(wanted)

    def _wait_for_enough(self, wanted: int) -> None:
        """Wait while too few clients are here to play a round; those in quarantine are called, too, ever less often."""
        table, options, began = self.state.clients, self.options, time.monotonic()
        logged, due, pause = -float("inf"), began, FIRST_PAUSE
        faults: dict[int, str] = {}
        while (here := int((table.available() & (table.sizes() > 0)).sum())) < options.min_clients:
            left = began + options.outage - time.monotonic()
            if left <= 0:
                empty = int((table.available() & (table.sizes() == 0)).sum())
                without = f" and {empty} without examples" if empty else ""
                few = f"{here} of at least {options.min_clients} clients are here{without}, after {options.outage:g} s"
                why = f" (the last fault: {list(faults.values())[-1]})" if faults else ""
                raise OutageError(f"Selecting: {few}{why}; {RESUME}")
            if time.monotonic() - logged > 10:
                logged = time.monotonic()
                LOG.warning("fedpick: %d clients are here; waiting up to %.0f s for more", here, left)
            time.sleep(min(0.5, left))
            listed = set(self.grid.get_node_ids())
            table.update_nodes(listed)
            if time.monotonic() >= due:
                table.release(self.state.rounds)
                due, pause = time.monotonic() + pause, min(2 * pause, LONGEST_PAUSE)
            answers = self._call(table.to_call(listed, self.state.rounds), faults)
            self._enter(answers)
            faults = {node: why for node, why in faults.items() if node in listed and node not in answers}
            if faults and not any(table.identities):
                self._check_faults(faults, len(listed), wanted)

    def poll(
        self, asked: Sequence[int], kind: Poll, told: Mapping[str, float] | None = None
    ) -> tuple[NDArray[np.float32], tuple[str, ...]]:
        """The answers of these clients, Float[K], and why some of them are NaN: those clients are quarantined.

        Where they answer and nobody has a valid loss, it is the app that gives none, or the model, and nobody is.
        With the kind "norm" they train, keep what they have trained, and answer the norm of their update. Who says that
        its privacy budget is spent is silent without being quarantined. ``told`` goes along.
        """
        table, arrays = self.state.clients, self.state.arrays
        losses, faults = np.full(len(table), np.nan, np.float32), []
        settings: dict[str, Any] = dict(told or {})
        settings |= {"batch-size": self.options.batch} if kind == "batch" else {}
        settings |= {"fedpick-poll": "norm"} if kind == "norm" else {}
        name, bounds = (
            (self.options.poll_loss, self.options.loss_range) if kind != "norm" else ("norm", (0.0, math.inf))
        )
        sent = [self._query(table.node_of[k], {"fedpick-client": k, **settings}, arrays) for k in asked]
        replies = dict(zip(asked, exchange(self.grid, sent, self.options.poll_timeout), strict=True))
        without: list[int] = []
        for client, reply in replies.items():
            losses[client] = read_loss(reply, name, bounds)
            if np.isnan(losses[client]) and read_metric(reply, "budget-spent") == 1:
                LOG.info("fedpick: the privacy budget of %s is spent", table.identities[client])
            elif np.isnan(losses[client]):
                faults.append(self._why(reply, kind))
                LOG.warning("fedpick: %s did not answer the poll: %s", table.identities[client], faults[-1])
                if reply is not None and reply.has_content():
                    without.append(client)
                else:
                    table.quarantine(client, self.state.rounds, self.options.quarantine, silent=is_silence(reply))
            else:
                table.failures[client] = 0
        for client in without if np.isfinite(losses).any() else ():
            table.quarantine(client, self.state.rounds, self.options.quarantine)
        heard = {client: float(losses[client]) for client, reply in replies.items() if reply and reply.has_content()}
        self.state.watch.hear("poll", heard, self.state.rounds)
        return losses, tuple(faults)

    def _check_faults(self, faults: Mapping[int, str], here: int, wanted: int) -> None:
        """Raise where all who are here answer with errors of their apps: it would not be otherwise in a while."""
        missing = all("function registered" in why for why in faults.values())
        if len(faults) < here or not (missing or here >= wanted):
            return
        said = f"all {here} clients that are here answered the roll call with an error ({next(iter(faults.values()))})"
        kind, _, name = self.options.query.partition(".")
        lines = (
            HANDLER.format(name=name, loss=self.options.poll_loss) if kind == "query" and name.isidentifier() else ""
        )
        rule = f"a ClientApp must answer {self.options.query!r} messages"
        raise ValueError(f"Selecting: {rule}, got none that does: {said}{'; add:' if lines else ''}{lines}")

    def _call(self, nodes: Sequence[int], faults: dict[int, str], silent: set[int] | None = None) -> dict[int, Message]:
        """The replies of those who answer; others are quarantined. ``faults`` gets the errors of their own apps.

        Who is silent is entered in ``silent`` where it is given, and not quarantined.
        """
        sent = [self._roll(node) for node in nodes]
        table, answers = self.state.clients, {}
        for node, reply in zip(nodes, exchange(self.grid, sent, self.options.poll_timeout), strict=True):
            if reply is not None and reply.has_content():
                answers[node] = reply
                continue
            if reply is not None and reply.has_error() and reply.error.code in APP_FAILED:
                faults[node] = error_text(reply)
            if silent is None or not is_silence(reply) or node not in silent:
                who = table.identities[table.client_at[node]] if node in table.client_at else f"node {node}"
                LOG.warning("fedpick: %s did not answer the roll call: %s", who, self._why(reply))
            if silent is not None and is_silence(reply):
                silent.add(node)
            else:
                table.quarantine_node(node, self.state.rounds, self.options.quarantine, is_silence(reply))
        return answers

    def _enter(self, answers: Mapping[int, Message]) -> None:
        """Enter those who answered, in an order that depends on who they are and not on when they answered."""
        table = self.state.clients
        named = [(self._identity(node, reply), node) for node, reply in answers.items()]
        nameless = any(identity == f"node={node}" for identity, node in named)
        if nameless and not table.warned and self.options.identity == "reported":
            table.warned = True
            LOG.warning(
                "fedpick: clients should report a partition-id or a name; without one a client that restarts is "
                "a new client, and picks are not reproducible"
            )
        for identity, node in sorted(named, key=lambda entry: (identity_order(entry[0]), table.order(*entry))):
            if not self._admit(node, identity, answers.keys()):
                table.refused[node] = identity
                table.quarantine_node(node, self.state.rounds, self.options.quarantine)
                continue
            client = table.join(node, identity, read_size(answers[node]), self.state.rounds)
            self._enter_facts(client, answers[node])
        table.warn_of_claims()

    def _identity(self, node: int, reply: Message) -> str:
        reported = read_identity(reply) if self.options.identity == "reported" else None
        return reported or f"node={node}"

    def _admit(self, node: int, identity: str, answered: Set[int]) -> bool:
        """Whether a node may have this identity: nobody else has it, or who has it does not answer any more."""
        table = self.state.clients
        before = table.identities[table.client_at[node]] if node in table.client_at else identity
        holder = table.holder(identity)
        if before != identity:
            LOG.warning("fedpick: node %s was %s and now reports %s; refused", node, before, identity)
            return False
        if holder is None or holder == node:
            return True
        (reply,) = (
            (None,) if holder in answered else exchange(self.grid, [self._roll(holder)], self.options.poll_timeout)
        )
        if holder in answered or (reply is not None and reply.has_content()):
            LOG.warning("fedpick: node %s reports %s, which is node %s; refused", node, identity, holder)
            return False
        LOG.warning("fedpick: %s is now node %s; node %s does not answer", identity, node, holder)
        table.forget_node(holder)
        return True

    def _roll(self, node: int) -> Message:
        """The message that calls a node."""
        # A handler of evaluate messages, which may serve as well, expects a model in each of them.
        arrays = self.state.arrays if self.options.query.startswith("evaluate") else ArrayRecord()
        return self._query(node, {}, arrays)

    def _enter_facts(self, client: int, reply: Message) -> None:
        """Enter what a client says of itself; a duration that was measured counts more than what it expects."""
        table = self.state.clients
        if np.isnan(table.expected_duration[client]):
            table.expected_duration[client] = read_seconds(reply, "expected-duration")
        table.upload_duration[client] = read_seconds(reply, "upload-duration")
        table.leaving[client] = read_metric(reply, "leaving") > 0

    def _query(self, node: int, settings: Mapping[str, Any], arrays: ArrayRecord) -> Message:
        content = RecordDict({self.config_key: ConfigRecord({"server-round": self.server_round, **settings})})
        if len(arrays):
            content[self.arrays_key] = arrays
        kind, ttl, group = self.options.query, self.options.poll_timeout, str(self.server_round)
        return Message(content, dst_node_id=node, message_type=kind, ttl=ttl, group_id=group)

    def _why(self, reply: Message | None, kind: Poll | None = None) -> str:
        if reply is None:
            return f"no reply within {self.options.poll_timeout:g} s (poll_timeout)"
        if reply.has_error():
            return error_text(reply)
        return "no norm of an update, which answer(train=...) gives" if kind == "norm" else "no valid loss"
