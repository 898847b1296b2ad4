"""How a client disguises its losses, and what it keeps of their cost."""

import math
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from flwr.app import Context, Message, MetricRecord

from fedpick.storage import spend
from fedpick.validation import check_path, one_of, require

SPENT = "fedpick-privacy"  # where a client's context has what its answers have cost
GRID = 1024  # steps from 0 to clip: finer digits of a noisy answer could say more than the noise hides


@dataclass(frozen=True)
class Privacy:
    """How a client disguises its losses, and for how long; the server's strategy is a ``fedpick.Private`` alike.

    The noise comes from the operating system's random numbers on the client. What was spent is kept in the context of
    the client app, which begins anew with every run of Flower and with the SuperNode, and therefore in a file, too,
    where one is given: the budget is then one for all runs. A server that asks once more gets no answer.

    Args:
        epsilon: What an answer costs.
        budget: What all answers may cost.
        mechanism: "bit", whether the loss is above the threshold that the server announces, or "laplace".
        clip: The highest loss that "laplace" says, before the noise.
        file: Where what was spent is kept beyond a run; its folder must be there, and each client needs its own.
    """

    epsilon: float = 1.0
    budget: float = math.inf
    mechanism: Literal["bit", "laplace"] = "bit"
    clip: float = 10.0
    file: str | Path | None = None

    def __post_init__(self) -> None:
        require(self, "epsilon", self.epsilon, "above 0 and at most 100", lambda x: (x > 0) & (x <= 100))
        require(self, "budget", self.budget, "at least 0", lambda x: x >= 0)
        one_of(self, "mechanism", self.mechanism, ("bit", "laplace"))
        require(self, "clip", self.clip, "above 0 and at most 1e6", lambda x: (x > 0) & (x <= 1e6))
        if self.file is not None:
            check_path("Privacy", "file", self.file)

    def disguise(self, loss: float, message: Message, context: Context) -> float | None:
        """What the client says instead of its loss; None where its budget is spent, or nobody would hear it.

        Args:
            loss: The loss.
            message: The poll, or the training message.
            context: The context of the client app, where what was spent in this run is kept.
        """
        if not self.is_heard(message) or not self._pay(context):
            return None
        chance = secrets.SystemRandom()
        if self.mechanism == "bit":
            lie = chance.random() < 1 / (1 + math.exp(self.epsilon))
            return float((loss > _threshold(message)) != lie)
        cut = self.clip if math.isnan(loss) else min(max(loss, 0.0), self.clip)
        noise = chance.expovariate(1.0) - chance.expovariate(1.0)
        step = self.clip / GRID
        return max(0.0, round((cut + noise * self.clip / self.epsilon) / step) * step)

    def is_heard(self, message: Message) -> bool:
        """Whether the server would use an answer: a bit needs its threshold, and who polls does not ask in training.

        Args:
            message: The poll, or the training message.
        """
        unheard = settings_of(message).get("fedpick-unheard") == 1
        return not unheard and not (self.mechanism == "bit" and math.isnan(_threshold(message)))

    def _pay(self, context: Context) -> bool:
        """Whether the budget holds for one more answer; it is paid for before it is given."""
        kept: Any = context.state.metric_records[SPENT]["spent"] if SPENT in context.state else 0.0
        spent: float | None = float(kept) + self.epsilon
        if self.file is not None:
            spent = spend(self.file, self.epsilon, self.budget, owner="Privacy", spent=float(kept))
        if spent is None or spent > self.budget * (1 + 1e-6):
            return False
        context.state[SPENT] = MetricRecord({"spent": spent})
        return True


def settings_of(message: Message) -> dict[str, Any]:
    """What the configs of a message say."""
    return {key: value for record in message.content.config_records.values() for key, value in record.items()}


def _threshold(message: Message) -> float:
    return float(settings_of(message).get("fedpick-threshold", math.nan))
