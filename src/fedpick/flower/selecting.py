"""``Selecting``: a Flower strategy around any Flower strategy, whose clients are chosen by a selector."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Self

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedpick.flower.history import History
from fedpick.flower.messages import FilteredGrid
from fedpick.flower.options import Options
from fedpick.flower.round import Adapter, Aggregated
from fedpick.flower.trial import TRIAL
from fedpick.protocol import Selector, check_strategy
from fedpick.text import shown

LOG = logging.getLogger("flwr.fedpick")


class SelectingMixin(Strategy):
    """``Selecting`` for a strategy that overrides ``start()``: a base class to put in front of it.

    A ``start()`` of the class itself, in front of the mixin, must call ``super().start()``.

    >>> from flwr.serverapp.strategy import FedAvg
    >>> from fedpick import PowerOfChoice
    >>> class Mine(SelectingMixin, FedAvg):
    ...     "A strategy of one's own, which may have a start() of its own."
    >>> strategy = Mine(fraction_evaluate=0.5).select_with(PowerOfChoice(m=3, d=6), seed=7)
    """

    adapter: Adapter | None = None

    def select_with(self, selector: Selector[Any], **options: Any) -> Self:
        """Have a selector pick the clients; returns the strategy itself.

        Args:
            selector: What picks the clients.
            **options: The keyword options of ``Selecting``.
        """
        check_strategy("Selecting", selector)
        self.adapter = Adapter(selector, Options(**options), self, inside=super())  # type: ignore[arg-type]
        return self

    @property
    def history(self) -> History:
        """The rounds played so far (``history.rows``) and the metrics measured (``history.measured``)."""
        return self._adapter.state.history

    @property
    def _adapter(self) -> Adapter:
        if self.adapter is None:
            raise ValueError(f"{type(self).__name__}: select_with(selector) must come before start(), got none")
        return self.adapter

    def start(self, grid: Grid, initial_arrays: ArrayRecord, *args: Any, **options: Any) -> Result:
        """The rounds, by the ``start()`` of the strategy behind, with its arguments; ``evaluate_fn`` is recorded."""
        trial, rounds = TRIAL.get(), args[0] if args else options.get("num_rounds", 3)
        if trial is not None:
            rounds = trial.rounds or rounds
            args, options = (rounds, *args[1:]), {name: v for name, v in options.items() if name != "num_rounds"}
            if len(args) > 1:
                args = (rounds, trial.patience(args[1]), *args[2:])
            elif "timeout" in options:
                options["timeout"] = trial.patience(options["timeout"])
            self.adapter = trial.take_over(self._adapter, rounds)
        if len(args) == 5:
            *args, options["evaluate_fn"] = args  # type: ignore[assignment]
        if options.get("evaluate_fn") is not None:
            options["evaluate_fn"] = self._adapter.record_evaluations(options["evaluate_fn"])
        everybody = FilteredGrid(grid)
        self._adapter.seconds = everybody.seconds
        try:
            self._adapter.begin(initial_arrays, everybody)
            if 0 < rounds <= self._adapter.skip:
                LOG.warning("fedpick: num_rounds is %d, all of which were played before: nobody trains", rounds)
            result = super().start(everybody, initial_arrays, *args, **options)
            self._adapter.skip = max(0, self._adapter.skip - rounds)  # the next start() goes on behind these
            self._adapter.check_updates(at_end=True)
            if self._adapter.recovery.rolled_back:  # what was measured after the last round shows that it was ruined
                result.arrays = self._adapter.state.arrays
            self._adapter.state.history.flush()
            self._adapter.save(at_end=True)  # with what was measured after the last round
        finally:
            self._adapter.end()
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return self._adapter.configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Aggregated:
        return self._adapter.aggregate_train(server_round, replies)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return self._adapter.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        return self._adapter.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        """Log the selector with its options in the form of Flower's summaries, and the strategy's own settings."""
        own = self._adapter.options
        LOG.info("\t├──> fedpick: %r, seed %d, weights: %s", self._adapter.selector, own.seed, own.weights)
        LOG.info("\t│\t├── polls: %s, %g s each; if nobody answers: %s", own.query, own.poll_timeout, own.fallback)
        LOG.info("\t│\t└── the fraction and minimum of nodes to train, and their weights, below do not count")
        self._adapter.inside.summary()


@dataclass(eq=False, repr=False)
class Selecting(SelectingMixin, Options):
    """A Flower strategy that trains the clients which a selector picks, and is otherwise the strategy inside.

    ``Selecting(FedAvg(), PowerOfChoice(m=3, d=6))`` is Power-of-Choice on Flower.

    Args:
        strategy: Any Flower strategy that does not override ``start()`` (for those see ``SelectingMixin``).
        selector: What picks the clients.
        seed: The random seed of the picks.
        clients: K, the number of clients to wait for before the first round; the seats m unless given.
        wait: Seconds to wait for them at most.
        query: The type of the messages that ask for sizes and losses.
        poll_timeout: Seconds that a client has to answer one.
        quarantine: Rounds for which a client that failed is left alone; doubled at each failure, up to eight times.
        min_clients: A round waits until this many clients are here.
        outage: Seconds to wait for them at most, and to go on while no client returns an update; then the run ends with
            an ``OutageError``, and resumes when it is started again with the same folder.
        fallback: When nobody answers the poll, "rand" draws the seats by size among the others; "skip" trains nobody.
        batch: b, the size of the mini-batch that cpow-d polls.
        poll_loss: The name of the loss in the metrics of a poll's reply.
        train_loss: The name of the loss in the metrics of a training reply.
        square_loss: The name of the mean of the squared losses there, for strategies that need it, such as Oort.
        duration: The name of the seconds that training took there; by default the server's clock measures them.
        loss_range: The lowest and the highest loss that is valid; another one counts as no answer.
        weights: "selection" averages with the weights of the selector (plainly, for Power-of-Choice), "examples"
            with the clients' own num-examples.
        folder: Where the state and the history are kept; a server that starts again with the same folder resumes.
        size_cap: No client counts more than this many times the largest of the others, of whom the largest tenth are
            left out; None believes every size.
        sizes: The number of examples of clients where the server knows it, by identity ("partition-id=3",
            "name=Oslo"); it stands, whatever they report.
        size_caps: The most that these clients may report, by identity; ``size_cap`` is then not for them.
        identity: Who a client is: "reported", the name or partition-id that it reports, or "node", its node id, which
            with node authentication belongs to its registered key.
        norm_bound: An update that is longer than this many times the median of the round is shortened to that; None
            takes each as it is. It takes three seats to have a median that one of them does not set.

    >>> from flwr.serverapp.strategy import FedAvg
    >>> from fedpick import PowerOfChoice
    >>> Selecting(FedAvg(), PowerOfChoice(m=3, d=6), seed=7, poll_timeout=20)
    Selecting(FedAvg, PowerOfChoice(m=3, d=6, loss='full', score=LocalLoss(by_size=False)))
    """

    strategy: Strategy
    selector: Selector[Any]

    def __post_init__(self) -> None:
        name, rule = type(self.strategy).__name__, None
        if not isinstance(self.strategy, Strategy):
            rule = "a Strategy of flwr.serverapp.strategy"
        elif type(self.strategy).start is not Strategy.start:
            rule = f"one with Flower's own start(); make `class Mine(SelectingMixin, {name})` instead"
        if rule is not None:
            raise ValueError(f"Selecting: strategy must be {rule}, got {shown(self.strategy)}")
        super().__post_init__()
        check_strategy("Selecting", self.selector)
        self.adapter = Adapter(self.selector, self, self.strategy, inside=self.strategy)

    def __repr__(self) -> str:
        return f"Selecting({type(self.strategy).__name__}, {self.selector!r})"

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Play Flower's rounds; rounds that an earlier run of the server has played are skipped.

        Args:
            grid: Flower's grid.
            initial_arrays: The first model.
            num_rounds: The number of rounds, with those of earlier runs.
            timeout: Seconds for training, and for evaluation; what is not done by then is dropped.
            train_config: Settings for the clients' training.
            evaluate_config: Settings for the clients' evaluation.
            evaluate_fn: The server's own evaluation; what it returns is recorded in the history.
        """
        return super().start(
            grid, initial_arrays, num_rounds, timeout, train_config, evaluate_config, evaluate_fn=evaluate_fn
        )
