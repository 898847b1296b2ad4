"""What clients report, in polls and of their training: whether all is there from which the strategy learns."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import Message

from fedpick.flower.history import RoundRow
from fedpick.flower.options import Options
from fedpick.flower.selection import Choice
from fedpick.protocol import Losses, Report, Selection, Selector, needs, of_nonnegative_losses
from fedpick.text import counted

LOG = logging.getLogger("flwr.fedpick")


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
        self.spent = False  # whether a client was silent because its privacy budget is spent, as it may be
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
        found = (self._unheard(missing) if missing else None, self._negative(report, answers))
        return "; ".join(filter(None, found)) or None

    def _unheard(self, missing: str) -> str:
        self.said = True
        name = type(self.selector).__name__
        said = f"{name} learns from {missing!r} in the metrics of training replies, and none of a round had it"
        if self.strict:
            raise ValueError(f"Selecting: {said}; report it from the app's train function")
        LOG.warning("fedpick: %s: it chooses without", said)
        return said

    def check_clients(self, refused: Mapping[int, str]) -> None:
        """Raise, where this is ``strict``, if nodes were refused for who they say they are: fewer clients would play.

        Args:
            refused: What they say, by node.
        """
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
        raise ValueError(f"Selecting: {rule}, {got}; see the app's {kind!r} handler, and poll_loss and loss_range")

    def _missing(self, memory: Any, selection: Selection, report: Report, replies: Sequence[Message]) -> str:
        """The name of a metric that the strategy learns from and no reply has; "" where there is none."""

        def lacks(name: str) -> bool:
            return not any(name in record for reply in replies for record in reply.content.metric_records.values())

        if "square_loss" in needs(self.selector) and lacks(self.options.square_loss):
            return self.options.square_loss
        unheard = lacks(self.options.train_loss) and self._learns(memory, selection, report)
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
        return wrong if wrong and self._learns(memory, selection, report) else []

    def _learns(self, memory: Any, selection: Selection, report: Report) -> bool:
        """Whether the strategy would remember something else if all training losses were known; polls say it better."""
        if self.selector.poll != "none":
            return False
        told = report._replace(loss=jnp.where(selection.weights > 0, jnp.float32(1), report.loss))
        found = (jax.tree.leaves(self.selector.observe(memory, selection, each)) for each in (told, report))
        return not all(np.array_equal(one, other, equal_nan=True) for one, other in zip(*found, strict=True))
