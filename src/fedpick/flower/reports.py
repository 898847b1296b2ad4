"""What clients report, in polls and of their training: whether all is there from which the strategy learns."""

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import Message, MetricRecord

from fedpick.flower.evaluations import is_known
from fedpick.flower.history import History, RoundRow
from fedpick.flower.options import Options
from fedpick.flower.privacy import GRID
from fedpick.flower.replies import error_text, printable, read_metric
from fedpick.flower.selection import Choice
from fedpick.flower.wrapped import Wrapped
from fedpick.protocol import Losses, Report, Selection, Selector, needs, of_nonnegative_losses, too_few_rested
from fedpick.text import counted

LOG = logging.getLogger("flwr.fedpick")
NOT_NUMBERS = "with a number that is not finite"


class ReportCheck:
    """Says once what no client reports and the strategy learns from; where it is ``strict``, that is an error.

    In a trial of an app it is: all clients run the same code, and what would be compared is not the strategy. A server
    goes on without, as one client's silence must not end a federation.
    """

    def __init__(self, selector: Selector[Any], options: Options) -> None:
        self.selector, self.options = selector, options
        self.strict = False
        self.said = False
        self.nonnegative = of_nonnegative_losses(selector)  # whom negative losses mislead; None once that is said
        self.private = hasattr(
            selector, "question"
        )  # whether clients are to disguise their losses; False once it is said
        self.spent = False  # whether a client was silent because its privacy budget is spent, as it may be
        self.fewer = False  # whether it is said that the strategy inside trains fewer than were selected
        self.rests = False  # whether it is said that too few clients have rested
        self.fault = ""  # why a client did not answer, the last time

    def __call__(
        self, memory: Any, selection: Selection, report: Report, replies: Sequence[Message], answers: Losses
    ) -> str | None:
        """What is to be said of a round, each thing once.

        Args:
            memory: The strategy's, before it observes the round.
            selection: The seats.
            report: What they said.
            replies: The valid replies to training.
            answers: What the candidates said.
        """
        missing = self._missing(memory, selection, report, replies) if replies and not self.said else ""
        found = [self._unheard(missing) if missing else None, self._negative(report, answers)]
        found.append(self._undisguised(report, answers))
        return "; ".join(filter(None, found)) or None

    def _unheard(self, missing: str) -> str:
        self.said = True
        name = type(self.selector).__name__
        said = f"{name} learns from {missing!r} in the metrics of training replies, and none of a round had it"
        if self.strict:
            raise ValueError(f"Selecting: {said}; report it from the app's train function")
        LOG.warning("fedpick: %s: it chooses without", said)
        return said

    def check_clients(self, refused: Mapping[int, str], errors: Mapping[int, str]) -> None:
        """Raise, where this is ``strict``, if nodes were refused for who they say they are: fewer clients would play.

        Args:
            refused: What they say, by node.
            errors: Those of the others' apps in the first roll call, by node.
        """
        if self.strict and errors:
            rule = f"all clients must answer {self.options.query!r} messages, or fewer are compared"
            got = f"errors from {len(errors)} of them ({next(iter(errors.values()))})"
            raise ValueError(f"Selecting: {rule}, got {got}; see the app, and num-supernodes")
        if self.strict and refused:
            rule = "clients must each report a name or partition-id of their own, as context.node_config has it"
            which = sorted(set(refused.values()))[0]
            raise ValueError(f"Selecting: {rule}, got {which} from {counted(len(refused), 'more node')} than one")

    def _negative(self, report: Report, answers: Losses) -> str | None:
        """Whether a loss below 0 was heard that misleads the strategy; ``loss_range`` allows none unless it is set."""
        lowest = min(float(np.fmin.reduce(np.asarray(heard), initial=0.0)) for heard in (report.loss, answers))
        if self.nonnegative is None or lowest == 0:
            return None
        said = f"{self.nonnegative} is for losses of at least 0, and a client reported {lowest:.4g}"
        self.nonnegative = None
        LOG.warning("fedpick: %s: it may choose the wrong clients", said)
        return said

    def _undisguised(self, report: Report, answers: Losses) -> str | None:
        """Whether a loss was heard that no client says who disguises its own as the strategy wants."""
        if not self.private:
            return None
        strategy: Any = self.selector
        of_bits = strategy.mechanism == "bit"
        heard = np.asarray(report.loss if strategy.poll == "none" else answers, np.float64)
        steps = heard / (1.0 if of_bits else float(strategy.clip) / GRID)
        plain = np.abs(steps - np.rint(steps)) > 1e-3 + 1e-6 * np.abs(steps)  # which float32 rounds
        plain |= of_bits & (heard > 1)
        if not plain.any():
            return None
        self.private = False
        said = f"{type(strategy).__name__} is to hear no exact losses, and a client reported {heard[plain][0]:.6g}"
        if self.strict:
            alike = f"with the mechanism {strategy.mechanism!r} and a clip of {strategy.clip:g}"
            raise ValueError(f"Selecting: {said}; the app's clients need a fedpick.flower.client.Privacy {alike}")
        LOG.warning("fedpick: %s undisguised: its clients need a fedpick.flower.client.Privacy", said)
        return f"{said} undisguised"

    def check_poll(self, rows: Sequence[RoundRow], choice: Choice | None = None, clients: int = 0) -> None:
        """Raise, where this is ``strict``, if no poll has had a valid answer and half of the clients were asked by now.

        One round in which nobody answers does not suffice where few are asked: these may be the ones that fail.

        Args:
            rows: The rounds played.
            choice: That of the round under way; None at the end of the run, when it does not matter who was asked.
            clients: The number of clients.
        """
        if choice is not None and choice.asked:
            self.spent |= choice.answered + len(choice.faults) < len(choice.asked)
            self.fault = choice.faults[-1] if choice.faults else self.fault
        asked = {client for row in rows for client in row.asked} | set(choice.asked if choice else ())
        heard = bool(choice and choice.answered) or any(loss == loss for row in rows for loss in row.answers)
        if not self.strict or self.spent or heard or not asked or 2 * len(asked) < clients:
            return
        owner, kind, name = type(self.selector).__name__, self.options.query, self.options.poll_loss
        which = "norm" if self.selector.poll == "norm" else name
        rule = f"{kind!r} messages must be answered with a valid {which!r} for {owner}, which polls"
        got = f"got none from the {len(asked)} clients that were asked{f' ({self.fault})' if self.fault else ''}"
        where = f"see the app's {kind!r} handler{', and poll_loss and loss_range' if which != 'norm' else ''}"
        raise ValueError(f"Selecting: {rule}, {got}; {where}")

    def check_rest(self, clients: int, server_round: int, history: History) -> None:
        """Say once that a ``Cooldown`` leaves so few clients that losses decide little or nothing.

        Args:
            clients: How many are there.
            server_round: The round, from 1.
            history: Where it is noted.
        """
        said = None if self.rests else too_few_rested(self.selector, clients, server_round - 1)
        if said is not None:
            self.rests = True
            LOG.warning("fedpick: %s", said)
            history.pending.append(said)

    def check_sent(self, wrapped: Wrapped, sent: int, selected: int, history: History) -> None:
        """Say once that the strategy inside trains fewer than were selected, as one does that draws nodes by itself.

        Args:
            wrapped: The strategy.
            sent: How many messages it sends.
            selected: How many clients were selected.
            history: Where it is noted.
        """
        if sent < selected and not self.fewer:
            self.fewer = True
            name = type(wrapped.layers[-1]).__name__
            said = f"{name} trains {sent} of the {selected} clients that were selected"
            LOG.warning("fedpick: %s", said)
            history.pending.append(said)

    def check_evaluations(
        self, replies: Sequence[Message], usable: Sequence[Message], key: str, history: History
    ) -> None:
        """Count the evaluations on clients that cannot be used, and say why, each reason once.

        Args:
            replies: All of them.
            usable: Those that can be averaged.
            key: The metric by which they are.
            history: Where they are counted; where all are of a model that has come to NaN, it measures that.
        """
        used = {id(reply) for reply in usable}
        for reply in (reply for reply in replies if id(reply) not in used):
            history.count_unusable("clients", _why_unusable(reply, key))
        if not usable and any(_why_unusable(reply, key) == NOT_NUMBERS for reply in replies):
            history.measure({"loss": math.nan})
        self.check_names([next(iter(reply.content.metric_records.values())) for reply in usable], "clients", history)

    def check_names(self, records: Sequence[MetricRecord], where: str, history: History) -> None:
        """The same for evaluations in which no number is a loss or an accuracy by its name.

        Args:
            records: Their metrics.
            where: "clients" or "the server".
            history: Where they are counted.
        """
        for record in records:
            if not is_known(record, training=where == "clients"):
                names = ", ".join(sorted(set(record) - {"num-examples"})) or "nothing"
                history.count_unusable(where, printable(f"without a loss or an accuracy among {names}"))

    def _missing(self, memory: Any, selection: Selection, report: Report, replies: Sequence[Message]) -> str:
        """The name of a metric that the strategy learns from and no reply has; "" where there is none."""

        def lacks(name: str) -> bool:
            return not any(name in record for reply in replies for record in reply.content.metric_records.values())

        if "square_loss" in needs(self.selector) and lacks(self.options.square_loss):
            return self.options.square_loss
        unheard = lacks(self.options.train_loss) and _learns(self.selector, memory, selection, report)
        return self.options.train_loss if unheard else ""

    def without_loss(
        self, memory: Any, selection: Selection, report: Report, updates: Mapping[int, Message]
    ) -> list[int]:
        """The seats that report a training loss which is none, such as NaN, where the strategy learns from it.

        It would remember of such a client that it has never trained, and rpow-d and UCB-CS would always choose it.
        """
        name, losses = self.options.train_loss, np.asarray(report.loss)
        wrong = [
            i
            for i, reply in updates.items()
            if np.isnan(losses[i]) and any(name in record for record in reply.content.metric_records.values())
        ]
        return wrong if wrong and _learns(self.selector, memory, selection, report) else []


def _learns(selector: Selector[Any], memory: Any, selection: Selection, report: Report) -> bool:
    """Whether the strategy would remember something else if all training losses were known.

    One that polls in every round chooses by the polls, whatever else it remembers. One that skips polls, as ``Auto`` at
    d = m, then learns from training; a mixture, if a strategy in it does.
    """
    if selector.poll != "none":
        if hasattr(selector, "disguise"):
            return False  # where it polls, it hands on no training losses
        if hasattr(selector, "selectors"):
            return any(
                _learns(each, own, selection, report) for each, own in zip(selector.selectors, memory, strict=True)
            )
        if hasattr(selector, "selector"):
            return _learns(selector.selector, getattr(memory, "inner", memory), selection, report)
        if not getattr(selector, "skips_poll", False):
            return False
    told = report._replace(loss=jnp.where(selection.weights > 0, jnp.float32(1), report.loss))
    found = (jax.tree.leaves(selector.observe(memory, selection, each)) for each in (told, report))
    return not all(np.array_equal(one, other, equal_nan=True) for one, other in zip(*found, strict=True))


def _why_unusable(reply: Message, key: str) -> str:
    """Why an evaluation cannot be averaged."""
    if reply.has_error():
        return error_text(reply)
    records = list(reply.content.metric_records.values()) if reply.has_content() else []
    if len(records) != 1:
        return f"with {len(records)} records of metrics, and not one"
    return NOT_NUMBERS if read_metric(reply, key) >= 0 else f"without a valid {key!r}"
