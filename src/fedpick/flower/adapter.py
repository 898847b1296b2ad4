"""Around each round of a Flower strategy: roll call, poll, choice; what came back, what is learnt, what is kept."""

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedpick.flower import replies as read
from fedpick.flower.choice import Choice, choose, grown, observed
from fedpick.flower.evaluation import Evaluate, Evaluation, by_server, over_clients
from fedpick.flower.exchange import Window
from fedpick.flower.inner import everybody_in_sight, setting
from fedpick.flower.keeping import Keeping
from fedpick.flower.options import Options
from fedpick.flower.record import Record, Row
from fedpick.flower.rollcall import Letter, Rollcall
from fedpick.protocol import Report, Selector, round_keys

LOG = logging.getLogger("flwr.fedpick")
Aggregated = tuple[ArrayRecord | None, MetricRecord | None]
Numbers = np.ndarray[Any, Any]


class Round(NamedTuple):
    """A round under way."""

    choice: Choice
    messages: dict[int, Message]  # by seat
    available: int
    began: float


class Adapter:
    """A federation between and within rounds; ``Selecting`` and its mixin only pass calls on to it."""

    def __init__(self, selector: Selector[Any], options: Options, strategy: Strategy) -> None:
        if selector.poll == "batch" and options.batch is None:
            raise ValueError("Selecting: batch must be given, the b of the mini-batch that cpow-d asks for, got None")
        self.selector, self.options, self.strategy = selector, options, strategy
        self.rollcall = Rollcall(options, _lines(selector, options))
        self.evaluation = Evaluation(strategy)
        self.record = Record()
        self.state: Any = None
        self.arrays = ArrayRecord()
        self.rounds = 0  # played so far
        self.skip = 0  # rounds of this start() that an earlier run of the server has played
        self.under_way: Round | None = None
        self.keeping = Keeping(options.folder, strategy) if options.folder is not None else None
        self.begun = False

    def begin(self, arrays: ArrayRecord) -> None:
        """Take up what an earlier run of the server has left in the folder; only the first call does anything."""
        if not self.begun:
            self.begun, self.arrays = True, arrays
            if self.keeping is not None:
                self.keeping.take_up(self)

    def configure(
        self, server_round: int, arrays: ArrayRecord, grid: Grid, configure: Callable[[Grid], Iterable[Message]]
    ) -> list[Message]:
        """The training messages of a round, one for each seat that is taken."""
        self.begin(arrays)
        if server_round <= self.skip:
            return []
        began, self.skip, self.arrays = time.monotonic(), 0, arrays
        letter = Letter(
            arrays,
            setting(self.strategy, "arrayrecord_key", "arrays"),
            setting(self.strategy, "configrecord_key", "config"),
            server_round,
        )
        lines = len(self.rollcall.roster)
        roster = self.rollcall.call(grid, self.rounds, self._wanted(), letter)
        if self.state is None:
            self.state = self.selector.init(len(roster))
        elif len(roster) != lines:
            self.state = grown(self.selector, self.state, len(roster))
        size, available = roster.sizes(), roster.available()

        def poll(lines: list[int]) -> dict[int, float]:
            batch = self.options.batch if self.selector.poll == "batch" else None
            return self.rollcall.poll(grid, self.rounds, lines, letter, batch)

        keys = round_keys(self.options.seed, self.rounds)
        choice = choose(self.selector, self.state, keys, size, available, poll, self.options.fallback)
        nodes = [roster.node[int(choice.clients[seat])] for seat in choice.seats]
        messages: dict[int, Message] = {}
        if nodes and setting(self.strategy, "fraction_train", 1.0) != 0:  # 0: it says that nobody is to train
            with everybody_in_sight(self.strategy, len(nodes)):
                messages = _seated(list(configure(Window(grid, nodes))), choice, nodes)
        self.under_way = Round(choice, messages, int(available.sum()), began)
        self._tell(server_round, self.under_way)
        return list(messages.values())

    def aggregate(
        self, server_round: int, replies: Iterable[Message], aggregate: Callable[[list[Message]], Aggregated]
    ) -> Aggregated:
        """What the strategy makes of the updates that may be believed, in the order of the seats."""
        answered = {reply.metadata.reply_to_message_id: reply for reply in replies}
        if server_round <= self.skip:
            return self.arrays.copy(), None
        if self.under_way is None:
            raise ValueError(f"Selecting: round {server_round} must be configured before it is aggregated")
        played, self.under_way = self.under_way, None
        choice = played.choice
        model = {name: array.numpy() for name, array in self.arrays.items()}
        good = self._believed(server_round, played, answered, model)
        losses = np.full(len(choice.clients), np.nan, np.float32)
        for seat, reply in good.items():
            losses[seat] = read.loss(reply, self.options.train_loss, self.options.loss_range)
        weights = _rescaled(choice.weights, list(good))
        arrays, metrics = self._average(list(good.values()), weights[list(good)], model, aggregate)
        self.arrays = self.arrays if arrays is None else arrays
        self.state = observed(self.selector, self.state, choice, Report(jnp.asarray(losses)))
        self.rounds += 1
        self.record.rows.append(self._row(played, list(good), weights, losses))
        if self.keeping is not None:
            self.keeping.keep(self)
        row = self.record.rows[-1]
        came = f"{row.returned} of {row.trained} came back"
        LOG.info("fedpick round %d: %s; train loss %.4g; %.1f s", server_round, came, row.train_loss, row.seconds)
        return arrays, metrics

    def configure_evaluate(
        self, server_round: int, grid: Grid, configure: Callable[[Grid], Iterable[Message]]
    ) -> list[Message]:
        """The strategy's evaluation, among the clients that are there and trusted."""
        self.evaluation.messages = []
        return [] if server_round <= self.skip else self.evaluation.configure(grid, self.rollcall.roster, configure)

    def aggregate_evaluate(
        self, replies: Iterable[Message], aggregate: Callable[[list[Message]], MetricRecord | None]
    ) -> MetricRecord | None:
        """What the strategy makes of the evaluations that it can read."""
        answers = list(replies)
        for line in self.evaluation.silent(answers):
            LOG.warning("fedpick: %s did not answer the evaluation", self.rollcall.roster.identities[line])
            self.rollcall.roster.strike(line, self.rounds - 1, self.options.quarantine)
        good = self.evaluation.believed(answers)
        if not good:
            return None
        key = setting(self.strategy, "weighted_by_key", "num-examples")
        self.record.measure(self.rounds, **over_clients(good, key))
        return aggregate(good)

    def watched(self, evaluate: Evaluate) -> Evaluate:
        """The server's own evaluation, recorded; rounds that an earlier run has played are not evaluated again."""

        def evaluate_and_record(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            found = None if server_round < self.skip else evaluate(server_round, arrays)
            if found is not None:
                self.record.measure(self.rounds, **by_server(found))
            return found

        return evaluate_and_record

    def finish(self) -> None:
        """Keep what was measured after the last round, too."""
        if self.keeping is not None and self.rounds:
            self.keeping.keep(self)

    def summary(self) -> None:
        """Log what selects, and how patient it is."""
        options = self.options
        LOG.info("\t├──> fedpick: %r, seed %d", self.selector, options.seed)
        LOG.info("\t│\t├── polls: %s, %g s each", options.query, options.poll_timeout)
        LOG.info("\t│\t└── quarantine: %d rounds; nobody answers: %s", options.quarantine, options.fallback)

    def _wanted(self) -> int:
        least = int(setting(self.strategy, "min_available_nodes", 1))
        return max(self.options.clients or 0, self.selector.m or 1, least)

    def _believed(
        self, server_round: int, played: Round, answered: dict[str, Message], model: dict[str, Numbers]
    ) -> dict[int, Message]:
        """The updates that may enter the average, by seat; who sent no such update goes into quarantine."""
        good: dict[int, Message] = {}
        failed: dict[int, str] = {}  # line -> why
        for seat, message in played.messages.items():
            reply, line = answered.get(message.metadata.message_id), int(played.choice.clients[seat])
            why = read.fault(reply, model)
            if reply is not None and why is None:
                good[seat] = reply
            else:
                failed[line] = str(why)
        roster = self.rollcall.roster
        roster.good([int(played.choice.clients[seat]) for seat in good])
        for line, why in failed.items():
            LOG.warning("fedpick round %d: no update of %s: %s", server_round, roster.identities[line], why)
            roster.strike(line, self.rounds, self.options.quarantine)
        return good

    def _average(
        self, good: list[Message], weights: Numbers, model: dict[str, Numbers], aggregate: Callable[..., Aggregated]
    ) -> Aggregated:
        if not good:
            return None, None
        key = setting(self.strategy, "weighted_by_key", "num-examples")
        if self.options.weights == "selection":
            read.weigh(good, weights.tolist(), key)
            total = float(weights.sum(dtype=np.float64))
            if abs(total - 1) > 1e-5:
                read.scale(good, model, total)
        elif not all(0 <= read.metric(reply, key) < math.inf for reply in good) or not any(
            read.metric(reply, key) > 0 for reply in good
        ):
            LOG.warning("fedpick: not all clients say how many examples they have; they count the same")
            read.weigh(good, [1.0] * len(good), key)
        for word in read.agree(good):
            LOG.warning("fedpick: not all clients have a metric %r; it is left out", word)
        return aggregate(good)

    def _row(self, played: Round, back: list[int], weights: Numbers, losses: Numbers) -> Row:
        choice, size = played.choice, self.rollcall.roster.size
        known = [seat for seat in back if losses[seat] == losses[seat]]
        total = float(weights[known].sum())
        limit = self.options.batch if self.selector.poll == "batch" else None
        return Row(
            clients=[int(choice.clients[seat]) if seat in back else -1 for seat in range(len(weights))],
            weights=weights.tolist(),
            train_loss=float(weights[known] @ losses[known]) / total if known else math.nan,
            available=played.available,
            polled=len(choice.asked),
            trained=len(played.messages),
            returned=len(back),
            poll_samples=float(np.minimum(size[choice.asked], limit or math.inf).sum()),
            train_samples=math.nan,  # how many passes a client makes over its data is its own affair
            seconds=time.monotonic() - played.began,
        )

    def _tell(self, server_round: int, round_: Round) -> None:
        choice, roster = round_.choice, self.rollcall.roster
        asked = f", {len(choice.answers)} of {len(choice.asked)} polled answered" if choice.asked else ""
        names = [str(roster.identities[int(choice.clients[seat])]) for seat in choice.seats]
        more = f" and {len(names) - 10} more" if len(names) > 10 else ""
        chosen = f"{choice.how}: {', '.join(names[:10])}{more}" if names else "nobody to train, the model stays"
        LOG.info("fedpick round %d: %d clients are here%s; %s", server_round, round_.available, asked, chosen)


def _lines(selector: Selector[Any], options: Options) -> int:
    """How many clients the selector needs to have lines for, even if they are not there yet."""
    d = getattr(selector, "d", 0)
    return max(options.clients or 0, selector.m or 1, int(d) if isinstance(d, int | np.integer) else 0)


def _seated(messages: list[Message], choice: Choice, nodes: Sequence[int]) -> dict[int, Message]:
    """The strategy's messages by seat, each saying for which seat it is, so that a client in two seats trains twice.

    Messages to nodes that were not chosen are dropped; a strategy that sends one where a node has two seats has it
    copied.
    """
    by_node: dict[int, list[Message]] = {}
    for message in messages:
        by_node.setdefault(message.metadata.dst_node_id, []).append(message)
    found: dict[int, Message] = {}
    for seat, node in zip(choice.seats, nodes, strict=True):
        own = by_node.get(node)
        if own:
            message = own.pop(0) if len(own) > 1 else own[0]
            found[seat] = _for_seat(message, seat, int(choice.clients[seat]))
    return found


def _for_seat(message: Message, seat: int, line: int) -> Message:
    content = RecordDict(dict(message.content.items()))
    place = {"fedpick-seat": seat, "fedpick-client": line}
    name = next(iter(content.config_records), "config")
    content[name] = ConfigRecord({**dict(content.config_records.get(name, {})), **place})
    about = message.metadata
    return Message(
        content, dst_node_id=about.dst_node_id, message_type=about.message_type, ttl=about.ttl, group_id=about.group_id
    )


def _rescaled(weights: Numbers, back: list[int]) -> Numbers:
    """The weights of those who came back, scaled up to the total that was meant."""
    left = np.zeros_like(weights)
    left[back] = weights[back]
    total = left.sum()
    return left * (weights.sum() / total) if total > 0 else left
