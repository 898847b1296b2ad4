"""Losses that are private: clients say them with noise, or only whether they are high, and not for ever."""

from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from fedpick import sampling
from fedpick.protocol import Clients, Losses, Mask, Report, Selection, Selector, needs, polled
from fedpick.pytrees import pytree, static
from fedpick.selectors.wrappers import Around, check_held
from fedpick.validation import known, one_of, owner_name, require

Mechanism = Literal["bit", "laplace"]
LEAKS = {"norm", "square_loss", "sketch", "head"}  # what reports may hold of a client's data beside its loss
HIGH, LOW = 1.5, 0.5  # times the threshold: what yes and no count as
STEP, LONGEST_STEP = 0.2, 0.3  # of the threshold's logarithm


class Discretion(NamedTuple):
    """The memory of ``Private``: that of its strategy, how often each client has answered, and the threshold."""

    inner: Any
    answers: Int[Array, " K"]
    log_threshold: Float[Array, ""]


@pytree
class Private(Around):
    """A strategy that gets no exact losses: each client disguises its own (local differential privacy).

    With the mechanism "bit" a client says whether its loss is above a threshold that the server announces, the truth
    with probability e^epsilon / (1 + e^epsilon). The threshold follows the answers, so that a share ``above`` of them
    is yes. Yes counts as 1.5 times the threshold, no as half of it. With "laplace" a client cuts its loss to at most
    ``clip``, adds Laplace noise of scale clip / epsilon, and says 0 for what is negative. Either way one answer is
    epsilon-differentially private for all data of the client together, and n answers are (n epsilon)-private.

    A client whose ``budget`` is spent answers no more: it is not asked, counts like the median of those that are, and
    where all budgets are spent chance decides. Strategies that poll are not told the losses after training; those that
    do not are told these, disguised. In the simulator ``disguise`` stands for the clients; on Flower the noise is added
    by the clients (``fedpick.flower.client.Privacy``), whose own epsilon and budget count, and the server only decodes.

    It is the outermost wrapper: ``Private(Cooldown(PowerOfChoice(3, 6)))``.

    Args:
        selector: The strategy; it needs losses, and nothing else of the data.
        epsilon: Of an answer.
        budget: What the answers of a client may add up to.
        mechanism: "bit" or "laplace".
        clip: The highest loss with "laplace".
        above: The share of answers that should be yes with "bit".

    >>> from fedpick import PowerOfChoice
    >>> Private(PowerOfChoice(m=3, d=6), epsilon=2.0, budget=20.0).poll
    'full'
    """

    selector: Selector[Any]
    epsilon: float | Float[Array, ""] = 1.0
    budget: float | Float[Array, ""] = float("inf")
    mechanism: Mechanism = static(default="bit")
    clip: float | Float[Array, ""] = 10.0
    above: float | Float[Array, ""] = 0.2

    nonnegative_losses: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_held(self, "selector", self.selector, seats=True)
        leaks = sorted(needs(self.selector) & LEAKS) + (["norm"] if self.selector.poll == "norm" else [])
        if leaks:
            raise ValueError(f"{owner_name(self)}: selector must need losses only, got one that needs {leaks[0]}")
        require(self, "epsilon", self.epsilon, "above 0 and at most 100", lambda x: (x > 0) & (x <= 100))
        least = known(self.epsilon)  # a client with less would never answer, and chance alone would decide
        rule = "at least epsilon" if least is None else f"at least epsilon, which is {least}"
        require(self, "budget", self.budget, rule, lambda x: x >= (0 if least is None else least))
        one_of(self, "mechanism", self.mechanism, ("bit", "laplace"))
        require(self, "clip", self.clip, "above 0 and at most 1e6", lambda x: (x > 0) & (x <= 1e6))
        require(self, "above", self.above, "above 0 and below 1", lambda x: (x > 0) & (x < 1))

    @property
    def needs(self) -> frozenset[str]:
        return needs(self.selector) | ({"polled"} if self.poll != "none" else set())

    def init(self, num_clients: int) -> Discretion:
        return Discretion(self.selector.init(num_clients), jnp.zeros(num_clients, jnp.int32), jnp.float32(0))

    def propose(self, key: PRNGKeyArray, state: Discretion, clients: Clients) -> Mask:
        return self.selector.propose(key, state.inner, clients)

    def asks(self, state: Discretion, candidates: Mask) -> Mask:
        """Who of the candidates is polled: those whose budget is not spent.

        Args:
            state: The memory.
            candidates: The candidates.
        """
        return candidates & ~self._spent(state.answers)

    def question(self, state: Discretion) -> float:
        """The threshold that is announced to the clients; NaN where the mechanism has none.

        Args:
            state: The memory.
        """
        return float(jnp.exp(state.log_threshold)) if self.mechanism == "bit" else float("nan")

    def disguise(
        self, key: PRNGKeyArray, state: Discretion, losses: Float[Array, " n"], clients: Int[Array, " n"]
    ) -> Float[Array, " n"]:
        """What clients say instead of their losses, NaN where the budget is spent: the simulator's part.

        Args:
            key: Their randomness.
            state: The memory.
            losses: The true losses, NaN for silence.
            clients: Whose they are.
        """
        epsilon = jnp.asarray(self.epsilon, jnp.float32)
        if self.mechanism == "bit":
            flips = jax.random.uniform(key, losses.shape, jnp.float32) < jax.nn.sigmoid(-epsilon)
            bits = self.encode(state, losses)
            said = jnp.where(flips, 1 - bits, bits)
        else:
            clip = jnp.asarray(self.clip, jnp.float32)
            noise = jax.random.laplace(key, losses.shape, jnp.float32) * clip / epsilon
            said = jnp.maximum(jnp.clip(losses, 0, clip) + noise, 0)
        return jnp.where(jnp.isnan(losses) | self._spent(state.answers)[clients], jnp.nan, said)

    def encode(self, state: Discretion, losses: Float[Array, " n"]) -> Float[Array, " n"]:
        """What a client says of a loss that adds no noise: yes or no with "bit", else any number, which nobody cuts.

        Args:
            state: The memory.
            losses: The losses.
        """
        if self.mechanism == "laplace":
            return losses
        return (losses > jnp.exp(state.log_threshold)).astype(jnp.float32)

    def select(
        self, key: PRNGKeyArray, state: Discretion, clients: Clients, candidates: Mask, losses: Losses
    ) -> Selection:
        wanted = polled(self.selector, candidates) & self._spent(state.answers)
        heard = self._decoded(state, losses)
        there = ~jnp.isnan(heard)
        number = there.sum(dtype=jnp.int32)
        median = sampling.nth_smallest(heard, there, (number + 1) // 2)
        usual = jnp.where(number > 0, median, jnp.float32(1))
        return self.selector.select(key, state.inner, clients, candidates, jnp.where(wanted, usual, heard))

    def observe(self, state: Discretion, selection: Selection, report: Report) -> Discretion:
        K = state.answers.shape[0]
        line = jnp.where((selection.weights > 0) & ~jnp.isnan(report.loss), selection.clients, K)
        if report.polled is not None and self.poll != "none":
            said, seats = report.polled, jnp.full_like(report.loss, jnp.nan)
        else:
            said = jnp.full(K, jnp.nan, jnp.float32).at[line].set(report.loss, mode="drop")
            seats = self._or_usual(state, selection, self._decoded(state, report.loss))
        known = report._replace(loss=seats, polled=None)
        if "polled" in needs(self.selector):
            known = known._replace(polled=self._decoded(state, said))
        return Discretion(
            self.selector.observe(state.inner, selection, known),
            state.answers + (~jnp.isnan(said)).astype(jnp.int32),
            self._moved(state.log_threshold, said),
        )

    def _or_usual(self, state: Discretion, selection: Selection, heard: Float[Array, " m"]) -> Float[Array, " m"]:
        """The losses of the seats; the median where a client has trained that can say its own no more.

        Otherwise its last answer would count for ever, and half of the clients might never train again. Where nobody
        says anything any more it is 0: once all have had their turn, chance decides.
        """
        there = ~jnp.isnan(heard)
        number = there.sum(dtype=jnp.int32)
        usual = sampling.nth_smallest(heard, there, (number + 1) // 2)
        usual = jnp.where(number > 0, usual, jnp.float32(0))
        silent = self._spent(state.answers)[jnp.maximum(selection.clients, 0)] & (selection.weights > 0)
        return jnp.where(silent & ~there, usual, heard)

    def _spent(self, answers: Int[Array, " K"]) -> Bool[Array, " K"]:
        """Who can not answer once more."""
        epsilon, budget = (jnp.asarray(x, jnp.float32) for x in (self.epsilon, self.budget))
        over: Bool[Array, " K"] = (answers + 1).astype(jnp.float32) * epsilon > budget * jnp.float32(1 + 1e-6)
        return over

    def _decoded(self, state: Discretion, said: Float[Array, " n"]) -> Float[Array, " n"]:
        """Answers on the scale of losses."""
        if self.mechanism == "laplace":
            return said
        factor = jnp.where(said > 0.5, jnp.float32(HIGH), jnp.float32(LOW))
        heard: Float[Array, " n"] = jnp.where(jnp.isnan(said), jnp.nan, factor * jnp.exp(state.log_threshold))
        return heard

    def _moved(self, log_threshold: Float[Array, ""], said: Float[Array, " K"]) -> Float[Array, ""]:
        """The threshold after these answers: up where too many are yes, as far as their noise lets one tell."""
        if self.mechanism == "laplace":
            return log_threshold
        wrong = jax.nn.sigmoid(-jnp.asarray(self.epsilon, jnp.float32))
        there = ~jnp.isnan(said)
        number = jnp.maximum(there.sum(dtype=jnp.int32), 1).astype(jnp.float32)
        yes = jnp.sum(there & (said > 0.5), dtype=jnp.int32).astype(jnp.float32) / number
        share = (yes - wrong) / (1 - 2 * wrong)  # of the true answers, without bias
        step = jnp.clip(STEP * (share - jnp.asarray(self.above, jnp.float32)), -LONGEST_STEP, LONGEST_STEP)
        return jnp.clip(log_threshold + jnp.where(there.any(), step, jnp.float32(0)), -30.0, 30.0)
