"""What of a run is evaluated and stored."""

from dataclasses import KW_ONLY, dataclass

import numpy as np

from fedpick.metrics import METRICS, check_part, name_on_test_set
from fedpick.text import shown
from fedpick.validation import flag, one_of, require


@dataclass(frozen=True)
class Metrics:
    """What is evaluated and stored.

    Args:
        every: Rounds between evaluations; by default there are fifty.
        target: A metric of which the first round at ``value`` is looked for.
        value: The value to reach.
        clients: Whether to store every client's loss and accuracy.
        model: Whether to store the final model.
        test: What else is measured on the test set: "f1", "auc", "calibration", or addresses such as
            "my.module:metric" of JAX functions of the logits [n, classes] and the labels [n].

    >>> Metrics(every=10, target="test_accuracy", value=0.6).target
    'test_accuracy'
    """

    every: int | None = None
    target: str | None = None
    value: float | None = None
    _: KW_ONLY
    clients: bool = True
    model: bool = False
    test: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.test, tuple) or not all(isinstance(name, str) for name in self.test):
            raise ValueError(f"metrics: test must be a tuple of names, such as ('f1', 'auc'), got {shown(self.test)}")
        if self.every is not None:
            require("metrics", "every", self.every, "at least 1", lambda n: n >= 1, whole=True, one=True)
        if self.target is not None:
            one_of("metrics", "target", self.target, self.names)
        if (self.target is None) != (self.value is None):
            raise ValueError(
                f"metrics: target and value must be given together, got {shown(self.target)}, {shown(self.value)}"
            )
        if self.value is not None:
            require("metrics", "value", self.value, "finite", np.isfinite, one=True)
            check_part("metrics", "value", str(self.target), self.value)
        for name in ("clients", "model"):
            flag("metrics", name, getattr(self, name))

    @property
    def names(self) -> tuple[str, ...]:
        """What can be a target."""
        return (*METRICS, *map(name_on_test_set, self.test))
