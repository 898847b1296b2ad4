"""What is done where nothing is learnt: a ruined model is rolled back, and a run without updates ends with an error."""

import logging
import time
from collections.abc import Iterable, Sequence
from typing import Any

from flwr.app import ArrayRecord, Message
from numpy.typing import NDArray

from fedpick.flower.checkpoint import ServerState
from fedpick.flower.options import RESUME, OutageError
from fedpick.flower.replies import check_update, is_silence, trained_loss
from fedpick.flower.training import Round
from fedpick.flower.watch import SERVER, Watch
from fedpick.flower.wrapped import Wrapped

LOG = logging.getLogger("flwr.fedpick")
FEW_ROUNDS = 2  # that may pass without an update, however long they take


class Recovery:
    """The last good model with what the strategy then remembered, and when an update came last.

    ``rolled_back`` says that the model was replaced by it, and Flower does not know yet; ``refused`` that what
    the strategy has made of this round's updates is not finite.
    """

    def __init__(self, wrapped: Wrapped, quarantine: int, outage: float) -> None:
        self.wrapped, self.quarantine, self.outage = wrapped, quarantine, outage
        self.good: tuple[ArrayRecord, dict[str, NDArray[Any]]] | None = None
        self.rolled_back = self.refused = False
        self.last_update, self.empty = time.monotonic(), 0  # when an update came; rounds since, without one
        self.last_fault = ""  # why there was none

    def begin(self, state: ServerState, arrays: ArrayRecord) -> None:
        """Begin with this model, in which nothing is wrong."""
        state.watch = Watch(state.rounds)
        self.good = (arrays, self.wrapped.memory())

    def judge(self, state: ServerState, server_round: int) -> bool:
        """Whether the model was ruined. Then the last good one takes its place, and who has ruined it is quarantined.

        Clients that were quarantined for what they said of the ruined model are pardoned.
        """
        watch, table = state.watch, state.clients
        if not watch.ruined or self.good is None:
            if watch.good == state.rounds and not watch.senders:
                self.good = (state.arrays, self.wrapped.memory_copy())
            return False
        guilty = watch.suspects()
        for client in watch.broken - {SERVER, *guilty}:
            table.pardon(client)
        for client in guilty:
            table.blame(client, state.rounds, self.quarantine)
        names = ", ".join(str(table.identities[client]) for client in guilty)
        back = f"back to the model after round {watch.good}, and quarantine for its sender: {names}"
        said = f"the losses broke at once after a very large update; {back}"
        LOG.warning("fedpick round %d: %s", server_round, said)
        state.history.pending.append(said)
        state.arrays, memory = self.good
        self.wrapped.roll_back(memory)
        watch.roll_back()
        self.rolled_back = True
        return True

    def valid_updates(
        self, state: ServerState, loss: str, server_round: int, current: Round, replies: Iterable[Message]
    ) -> dict[int, Message]:
        """The updates that may enter the average, by seat; a client without one is quarantined.

        ``loss`` is the name of the loss in training.
        """
        self.refused = False
        answered = {reply.metadata.reply_to_message_id: reply for reply in replies}
        found = {i: answered.get(message.metadata.message_id) for i, message in current.messages.items()}
        needed = self.wrapped.setting("train_loss_key", None)  # of QFedAvg, which averages by it
        faults = {i: check_update(reply, current.model, needed) for i, reply in found.items()}
        table, seats = state.clients, current.choice.seats
        silent = {seats[i] for i, reply in found.items() if is_silence(reply)}
        spoke = {i: reply for i, reply in found.items() if reply is not None and reply.has_content()}
        losses = {seats[i]: trained_loss(reply, faults[i], loss) for i, reply in spoke.items()}
        state.watch.hear("train", losses, state.rounds)
        if self.judge(state, server_round):  # not their fault, and what they sent is worth nothing
            found = {i: reply for i, reply in found.items() if i not in spoke}
            faults = {i: faults[i] for i in found}
        for column in (table.failures, table.train_failures):
            column[[seats[i] for i, fault in faults.items() if fault is None]] = 0
        for client, fault in {seats[i]: fault for i, fault in faults.items() if fault is not None}.items():
            LOG.warning("fedpick round %d: no update from %s: %s", server_round, table.identities[client], fault)
            table.quarantine(client, state.rounds, self.quarantine, training=True, silent=client in silent)
            self.last_fault = fault
        return {i: reply for i, reply in found.items() if reply is not None and faults[i] is None}

    def refuse(
        self, state: ServerState, server_round: int, memory: dict[str, NDArray[Any]], odd: Sequence[int]
    ) -> None:
        """Keep the model, and what the strategy remembered, where what it has made of the updates is not finite.

        ``odd`` has the clients whose metrics are not finite: a strategy may have averaged by them.
        """
        self.wrapped.roll_back(memory)
        self.refused = True
        table, name = state.clients, type(self.wrapped.layers[0]).__name__
        for client in odd:
            table.quarantine(client, state.rounds, self.quarantine, training=True)
        who = ", ".join(str(table.identities[client]) for client in odd)
        self.last_fault = f"what {name} made of the updates is not finite"
        said = f"{self.last_fault}: the model stays as it was"
        said += f", and quarantine for who reports metrics that are not finite: {who}" if odd else ""
        LOG.warning("fedpick round %d: %s", server_round, said)
        state.history.pending.append(said)

    def note_updates(self, number: int) -> None:
        """Enter how many updates a round had."""
        self.empty = 0 if number else self.empty + 1
        self.last_update = time.monotonic() if number else self.last_update

    def outage_error(self, state: ServerState, at_end: bool = False) -> OutageError | None:
        """The error of a run where no client has returned an update for long or, at its end, ever."""
        stuck = self.empty > FEW_ROUNDS and time.monotonic() - self.last_update > self.outage
        never = at_end and self.empty > 0 and not any(row.returned for row in state.history.rows)
        if not (stuck or never) or self.wrapped.setting("fraction_train", 1.0) == 0:  # 0: the strategy trains nobody
            return None
        why = f" (the last fault: {self.last_fault})" if self.last_fault else ""
        return OutageError(f"Selecting: no client has returned an update in {self.empty} rounds{why}; {RESUME}")
