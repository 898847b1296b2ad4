"""``Selecting``: a Flower strategy around any Flower strategy, whose clients are chosen by a selector."""

from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedpick.flower.adapter import Adapter, Aggregated
from fedpick.flower.exchange import Window
from fedpick.flower.options import Options
from fedpick.protocol import Selector


class Selecting(Strategy):
    """A Flower strategy that trains the clients which a selector picks, and is otherwise the strategy inside.

    ``Selecting(FedAvg(), PowerOfChoice(m=3, d=6))`` is Power-of-Choice on Flower. The options are those of
    ``fedpick.flower.Options``: seed, time-outs, quarantine, the folder in which the state is kept, and more.

    >>> from flwr.serverapp.strategy import FedAvg
    >>> from fedpick import PowerOfChoice
    >>> Selecting(FedAvg(), PowerOfChoice(m=3, d=6), seed=7, poll_timeout=20)
    Selecting(FedAvg, PowerOfChoice(m=3, d=6, loss='full', metric=LocalLoss(by_size=False)))
    """

    def __init__(self, strategy: Strategy, selector: Selector[Any], **options: Any) -> None:
        if not isinstance(strategy, Strategy):
            raise ValueError(f"Selecting: strategy must be a Strategy of flwr.serverapp.strategy, got {strategy!r}")
        if type(strategy).start is not Strategy.start:
            name = type(strategy).__name__
            rule = f"one with Flower's own start(); make `class Mine(SelectingMixin, {name})` instead"
            raise ValueError(f"Selecting: strategy must be {rule}, got {strategy!r}")
        self.strategy, self.adapter = strategy, Adapter(selector, Options.of(**options), strategy)

    def __repr__(self) -> str:
        return f"Selecting({type(self.strategy).__name__}, {self.adapter.selector!r})"

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
        """Flower's own rounds. ``timeout`` bounds training and evaluation, and what is not done by then is dropped."""
        self.adapter.begin(initial_arrays)
        watched = None if evaluate_fn is None else self.adapter.watched(evaluate_fn)
        result = super().start(
            Window(grid), initial_arrays, num_rounds, timeout, train_config, evaluate_config, watched
        )
        self.adapter.finish()
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The training messages of the strategy inside, to the clients that were picked."""
        configure = lambda seen: self.strategy.configure_train(server_round, arrays, config, seen)  # noqa: E731
        return self.adapter.configure(server_round, arrays, grid, configure)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Aggregated:
        """What the strategy inside makes of the updates that may be believed."""
        aggregate = lambda good: self.strategy.aggregate_train(server_round, good)  # noqa: E731
        return self.adapter.aggregate(server_round, replies, aggregate)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The evaluation of the strategy inside, among the clients that are there and trusted."""
        configure = lambda seen: self.strategy.configure_evaluate(server_round, arrays, config, seen)  # noqa: E731
        return self.adapter.configure_evaluate(server_round, grid, configure)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """What the strategy inside makes of the evaluations that it can read."""
        aggregate = lambda good: self.strategy.aggregate_evaluate(server_round, good)  # noqa: E731
        return self.adapter.aggregate_evaluate(replies, aggregate)

    def summary(self) -> None:
        """Log what is around the strategy, and the strategy's own settings."""
        self.adapter.summary()
        self.strategy.summary()


class SelectingMixin(Strategy):
    """The same for a strategy that overrides ``start()``: put it in front, and say what selects.

    >>> from flwr.serverapp.strategy import FedAvg
    >>> from fedpick import PowerOfChoice
    >>> class Mine(SelectingMixin, FedAvg):
    ...     "One's own strategy, with a start() of its own."
    >>> strategy = Mine(fraction_evaluate=0.5).select_with(PowerOfChoice(m=3, d=6), seed=7)
    """

    adapter: Adapter | None = None

    def select_with(self, selector: Selector[Any], **options: Any) -> "SelectingMixin":
        """Have this selector pick the clients, with the options of ``Selecting``; returns the strategy itself."""
        self.adapter = Adapter(selector, Options.of(**options), self)
        return self

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As in ``Selecting``."""
        configure = super().configure_train  # type: ignore[safe-super]
        return self._adapter().configure(
            server_round, arrays, grid, lambda seen: configure(server_round, arrays, config, seen)
        )

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Aggregated:
        """As in ``Selecting``."""
        aggregate = super().aggregate_train  # type: ignore[safe-super]
        return self._adapter().aggregate(server_round, replies, lambda good: aggregate(server_round, good))

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As in ``Selecting``."""
        configure = super().configure_evaluate  # type: ignore[safe-super]
        return self._adapter().configure_evaluate(
            server_round, grid, lambda seen: configure(server_round, arrays, config, seen)
        )

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """As in ``Selecting``."""
        aggregate = super().aggregate_evaluate  # type: ignore[safe-super]
        return self._adapter().aggregate_evaluate(replies, lambda good: aggregate(server_round, good))

    def summary(self) -> None:
        """As in ``Selecting``."""
        self._adapter().summary()
        super().summary()  # type: ignore[safe-super]

    def _adapter(self) -> Adapter:
        if self.adapter is None:
            raise ValueError(f"{type(self).__name__}: select_with(selector) must come before start(), got none")
        return self.adapter
