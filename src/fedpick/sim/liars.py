"""Clients that lie: about their losses, about their sizes, and in the models that they send."""

import dataclasses
import warnings
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from fedpick import sampling
from fedpick.metrics import Numbers
from fedpick.protocol import init_key
from fedpick.pytrees import pytree, static
from fedpick.results import Result
from fedpick.sim.local import Trained
from fedpick.sim.models import Params
from fedpick.validation import one_of, require

Attack = Literal["none", "inflate", "max", "just-above", "deflate", "silent"]
ModelAttack = Literal["none", "flip", "idle"]
MOST = 1e30  # the loss that "max" says
QUANTILE = 0.9  # of the honest answers, which "just-above" exceeds
ABOVE = 1.1  # times
BOUND = 2.0  # of sizes, where they are lied about


@pytree
class Liars:
    """Some of the clients lie, always the same ones, drawn by ``seed``; the others do not know.

    Their losses, in polls and after training, are what ``attack`` says: ``factor`` times the truth ("inflate"), 1e30
    ("max"), a little more than what nine of ten honest clients say ("just-above", which no liar could know so exactly),
    0 ("deflate", to be left alone), or nothing after training, as if nobody had asked ("silent", which keeps the first
    rank in strategies that try everybody once). A loss counts from the lowest value of the objective (0; -1 for
    minus-probability): ten times the truth is ten times as far above it. Their sizes are ``size`` times the truth. The
    model that they send is the update with its sign changed, ``factor`` times as large ("flip"), or no update ("idle").

    With a ``bound`` no client counts more than so many times the largest size that is surely honest, as on Flower; that
    cuts a large honest client, too. Unless it is given, it is 2 in the rounds in which sizes are lied about, and other
    lies leave all sizes as they are. One that is given holds in all rounds, whatever is lied about: compare it with
    honest clients under the same bound (``Liars(share, bound=...)``).

    Args:
        share: Share of the clients that lie, by default none of them.
        attack: What they say of their losses.
        model_attack: What they send.
        start: The first round in which they lie.
        factor: Of "inflate" and "flip".
        size: Times their size that they claim.
        bound: As for ``sampling.size_bound``; infinity believes everything, None is 2 where sizes are lied about.
        seed: Who lies.

    >>> Liars(share=0.4, attack="max").who(5).sum()
    np.int64(2)
    """

    share: float = 0.0
    attack: Attack = static(default="none")
    model_attack: ModelAttack = static(default="none")
    start: int = 0
    _: dataclasses.KW_ONLY
    factor: float = 10.0
    size: float = 1.0
    bound: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        require(self, "share", self.share, "at least 0 and at most 1", lambda x: (x >= 0) & (x <= 1), one=True)
        one_of(self, "attack", self.attack, get_args(Attack))
        one_of(self, "model_attack", self.model_attack, get_args(ModelAttack))
        require(self, "start", self.start, "at least 0", lambda n: n >= 0, whole=True, one=True)
        require(self, "factor", self.factor, "above 0 and at most 1e6", lambda x: (x > 0) & (x <= 1e6), one=True)
        require(self, "size", self.size, "above 0 and at most 1e20", lambda x: (x > 0) & (x <= 1e20), one=True)
        if self.bound is not None:
            require(self, "bound", self.bound, "at least 1", lambda x: x >= 1, one=True)
        require(self, "seed", self.seed, "at least 0", lambda n: n >= 0, whole=True, one=True)

    def warn_of_no_effect(self, K: int, rounds: int) -> None:
        """Warn where a setting has no effect: a share that is left out is 0, and a share alone is an honest baseline.

        Args:
            K: The number of clients.
            rounds: The number of rounds.
        """
        about = (self.attack, self.model_attack, self.size) != ("none", "none", 1.0)
        why = ""
        if not about and (self.start or self.factor != Liars.factor):
            why = 'attack and model_attack are "none" and size is 1, so that nobody lies; give attack="max" or another'
        elif about and not self.who(K).any():
            what = "is 0" if self.share == 0 else f"must make at least one of {K} clients, got {self.share:g}"
            why = f"share {what}, so that nobody lies; give one, such as share={max(0.1, 1 / K):.2g}"
        elif about and rounds and self.start >= rounds:
            why = f"start={self.start} is after the last of {rounds} rounds, so that nobody lies"
        elif self.factor != Liars.factor and self.attack != "inflate" and self.model_attack != "flip":
            why = f'factor={self.factor:g} has no effect: it is of attack="inflate" and model_attack="flip"'
        if why:
            warnings.warn(f"Liars: {why}", stacklevel=4)

    def who(self, K: int) -> Numbers:
        """Who lies.

        Args:
            K: The number of clients.
        """
        return np.asarray(self.lies().mask(K))

    def lies(self, lowest: float = 0.0) -> "Lies":
        """The same as numbers, so that all attacks are one program.

        Args:
            lowest: The lowest value that a loss can take.
        """
        times = {"none": 1.0, "idle": 0.0, "flip": -self.factor}[self.model_attack]
        numbers = (self.share, self.start, self.seed, get_args(Attack).index(self.attack), self.factor)
        bound, bounded = (
            (self.bound, 0) if self.bound is not None else (BOUND if self.size != 1 else np.inf, self.start)
        )
        return Lies(*map(jnp.asarray, (*numbers, self.size, bound, bounded, times, lowest)))

    def capture(self, result: Result) -> Numbers:
        """The part of all weight in the averages that the liars had, for each run: share, where nothing helps them."""
        clients, weights = (result.records[name] for name in ("clients", "weights"))
        lying = self.who(result.share.shape[-1])[clients] & (clients >= 0)
        held: Numbers = (weights * lying).sum(axis=(1, 2)) / weights.sum(axis=(1, 2))
        return held

    def amplification(self, result: Result) -> Numbers:
        """How many times their share of the clients the liars have of all weight, for each run."""
        times: Numbers = self.capture(result) / self.who(result.share.shape[-1]).mean()
        return times

    def honest_loss(self, result: Result) -> Numbers:
        """The last loss over the data of the honest clients, for each run."""
        honest = ~self.who(result.share.shape[-1]) * np.asarray(result.shares)
        loss: Numbers = (honest * result.metrics["client_loss"][:, -1]).sum(axis=1) / honest.sum(axis=1)
        return loss

    def worst_honest_loss(self, result: Result) -> Numbers:
        """The last loss of the honest client that has the highest, for each run."""
        worst: Numbers = result.metrics["client_loss"][:, -1][:, ~self.who(result.share.shape[-1])].max(axis=1)
        return worst

    def excluded(self, result: Result) -> Numbers:
        """The share of honest clients without a seat in the last half of the rounds, for each run."""
        out: Numbers = self._out(result)[:, ~self.who(result.share.shape[-1])].mean(axis=1)
        return out

    def detection(self, result: Result) -> tuple[Numbers, Numbers]:
        """How well who has no seat in the last half of the rounds tells who lies: precision and recall, for each run.

        Precision is NaN where everybody has a seat.
        """
        out, liars = self._out(result), self.who(result.share.shape[-1])
        found, kept_out = (out & liars).sum(axis=1), out.sum(axis=1)
        return np.where(kept_out > 0, found / np.maximum(kept_out, 1), np.nan), found / liars.sum()

    def _out(self, result: Result) -> Numbers:
        """Who has no seat in the last half of the rounds, [R, K]; a seat whose update was lost is one."""
        clients = result.records.get("selected", result.records["clients"])  # a file of before has no other
        late = clients[:, clients.shape[1] // 2 :].reshape(len(clients), -1)
        return ~np.array([np.isin(np.arange(result.share.shape[-1]), row) for row in late])


class Lies(NamedTuple):
    """What liars do, as numbers: ``attack`` is the place of its name, ``times`` what the update is multiplied by.

    ``bounded`` is the first round in which sizes are bounded, ``lowest`` is the lowest value that a loss can take.
    """

    share: Array
    start: Array
    seed: Array
    attack: Array
    factor: Array
    size: Array
    bound: Array
    bounded: Array
    times: Array
    lowest: Array

    def mask(self, K: int) -> Bool[Array, " K"]:
        """Who lies, of K clients."""
        number = jnp.round(self.share.astype(jnp.float32) * K).astype(jnp.int32)
        return sampling.first_k_mask(jax.random.uniform(init_key(self.seed), (K,)), number)

    def sizes(self, size: Float[Array, " K"], t: Any) -> Float[Array, " K"]:
        """How large each client counts in round t, after what it claims and how far that is believed."""
        claimed = jnp.where(self.now(t, size.shape[0]), size * self.size.astype(jnp.float32), size)
        bound = jnp.where(jnp.asarray(t, jnp.int32) >= self.bounded, sampling.size_bound(claimed, self.bound), jnp.inf)
        return jnp.minimum(claimed, bound)

    def answers(self, losses: Float[Array, " K"], t: Any) -> Float[Array, " K"]:
        """What the clients answer to a poll; NaN for those that are not asked.

        Those of "silent" answer when asked: who does not has no seat.
        """
        lying = self.now(t, losses.shape[0]) & ~self._is("silent")
        return jnp.where(lying & ~jnp.isnan(losses), self._said(losses, lying), losses)

    def reports(self, losses: Float[Array, " m"], clients: Int[Array, " m"], t: Any, K: int) -> Float[Array, " m"]:
        """What the clients of the seats say of their losses after training."""
        lying = self.now(t, K)[clients]
        return jnp.where(lying, self._said(losses, lying), losses)

    def updates(self, trained: Params, before: Params, clients: Int[Array, " m"], t: Any, K: int) -> Params:
        """The models that the clients of the seats send.

        Args:
            trained: What they have trained, [m, ...].
            before: The model of the server.
            clients: The client of each seat.
            t: The round.
            K: The number of clients.
        """
        times = self.times.astype(jnp.float32)
        lying = self.now(t, K)[clients] & (times != 1)

        def send(new: Array, old: Array) -> Array:
            column = lying.reshape(-1, *[1] * old.ndim)
            return jnp.where(column, old[None] + times * (new - old[None]), new)

        return jax.tree.map(send, trained, before)

    def now(self, t: Any, K: int) -> Bool[Array, " K"]:
        """Who lies in round t, of K clients."""
        return self.mask(K) & (jnp.asarray(t, jnp.int32) >= self.start)

    def claimed(self, t: Any, K: int) -> Bool[Array, " K"]:
        """Whose losses are lies in round t; who only sends another update, or claims another size, tells the truth."""
        return self.now(t, K) & ~self._is("none") & ~self._is("silent")

    def _is(self, attack: Attack) -> Bool[Array, ""]:
        return self.attack == get_args(Attack).index(attack)

    def _said(self, losses: Float[Array, " n"], lying: Bool[Array, " n"]) -> Float[Array, " n"]:
        honest = ~lying & ~jnp.isnan(losses)
        number = honest.sum(dtype=jnp.int32)
        most = sampling.nth_smallest(losses, honest, number - sampling.portion(1 - QUANTILE, number))
        lowest = self.lowest.astype(jnp.float32)
        said: dict[Attack, Array] = {
            "inflate": lowest + (losses - lowest) * self.factor.astype(jnp.float32),
            "max": jnp.full_like(losses, MOST),
            "just-above": jnp.where(jnp.isnan(most), losses, jnp.maximum(losses, lowest + ABOVE * (most - lowest))),
            "deflate": jnp.full_like(losses, lowest),
            "silent": jnp.full_like(losses, jnp.nan),
        }
        return jnp.select([self._is(attack) for attack in said], list(said.values()), losses)


def squares_of(told: Float[Array, " m"], trained: Trained) -> Float[Array, " m"]:
    """The mean squared losses that go with what the seats say of their losses: their own where they tell the truth."""
    assert trained.square_loss is not None
    said: Float[Array, " m"] = jnp.where(told == trained.loss, trained.square_loss, jnp.minimum(told * told, MOST))
    return said


def encoded(
    selector: Any, state: Any, told: Float[Array, " n"], said: Float[Array, " n"], claimed: Bool[Array, " n"]
) -> Float[Array, " n"]:
    """What is said of the losses, where a strategy lets clients disguise them: who lies adds no noise to its claim.

    Args:
        selector: The strategy.
        state: Its memory.
        told: The losses, or those that are claimed, NaN for silence.
        said: The same in disguise.
        claimed: Which of them are claimed.
    """
    encode = getattr(selector, "encode", None)
    plain = told if encode is None else encode(state, told)
    return jnp.where(claimed & ~jnp.isnan(told), plain, said)
