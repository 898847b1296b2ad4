"""A mixture: in each round one of several strategies is drawn."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from fedpick import sampling
from fedpick.protocol import Clients, Losses, Mask, Poll, Report, Selection, Selector, needs, polled
from fedpick.pytrees import pytree
from fedpick.selectors.wrappers import check_held, inner_keys, seated_mask
from fedpick.text import shown
from fedpick.validation import known, require

_COSTS = ("K", "K s", "K^2")
Probability = float | Float[Array, ""]


@pytree
class Mixture:
    """One of several strategies, drawn anew in each round; all of them learn from every round.

    They have the same number of seats, those that poll ask for the same thing, and all or none ask their candidates for
    facts, as ``FedCS`` does. The candidates are those of the strategy that is drawn. Where only some of them poll and
    one is drawn that does not, its seats are the candidates, and nobody is asked; where the candidates of one that
    polls are no more than the seats, nobody is asked either, and they count as if they had all given the same answer.
    A mixture of unbiased strategies is unbiased.

    Args:
        selectors: The strategies, two or more.
        probabilities: The probability of each, with sum 1; by default they are the same.

    >>> from fedpick import PowerOfChoice, Rand
    >>> Mixture((Rand(m=3), PowerOfChoice(m=3, d=6))).probabilities
    (0.5, 0.5)
    """

    selectors: tuple[Selector[Any], ...]
    probabilities: tuple[Probability, ...] = ()

    one_key: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.selectors, Sequence) or len(self.selectors) < 2:
            raise ValueError(f"Mixture: selectors must be two or more strategies, got {shown(self.selectors)}")
        object.__setattr__(self, "selectors", tuple(self.selectors))
        for selector in self.selectors:
            check_held(self, "selectors", selector)
        _same([selector.m for selector in self.selectors], "have the same m")
        _same(sorted({selector.poll for selector in self.selectors} - {"none"}), "ask for the same thing")
        _same([_enquires(selector) for selector in self.selectors], "ask candidates for as many facts, as FedCS does")
        for field in ("sketch", "head"):
            _same(self._lengths(field), f"have the same length of a {field}")
        n = len(self.selectors)
        given = self.probabilities if len(self.probabilities) else (1 / n,) * n
        probabilities = tuple(float(p) if np.ndim(p) == 0 and known(p) is not None else p for p in given)
        object.__setattr__(self, "probabilities", probabilities)
        if len(probabilities) != n:
            raise ValueError(
                f"Mixture: probabilities must be {n} numbers, one per strategy, got {shown(probabilities)}"
            )
        for p in probabilities:
            require(self, "probabilities", p, "at least 0", lambda x: x >= 0)
        numbers = [known(p) for p in probabilities]
        if all(p is not None for p in numbers) and not np.allclose(sum(numbers), 1, atol=1e-5):  # type: ignore[arg-type]
            raise ValueError(f"Mixture: probabilities must have the sum 1, got {shown(probabilities)}")

    @property
    def m(self) -> int | None:
        return self.selectors[0].m

    @property
    def poll(self) -> Poll:
        return next((selector.poll for selector in self.selectors if selector.poll != "none"), "none")

    @property
    def needs(self) -> frozenset[str]:
        return frozenset().union(*map(needs, self.selectors))

    @property
    def skips_poll(self) -> bool:
        return self._partly_polls or any(getattr(selector, "skips_poll", False) for selector in self.selectors)

    @property
    def enquires(self) -> int:
        return _enquires(self.selectors[0])

    @property
    def unbiased(self) -> bool:
        return self._all("unbiased", False)

    @property
    def weights_sum_to_1(self) -> bool:
        return self._all("weights_sum_to_1", True)

    @property
    def fills_seats(self) -> bool:
        return self._all("fills_seats", True)

    @property
    def nonnegative_losses(self) -> bool:
        return any(getattr(selector, "nonnegative_losses", False) for selector in self.selectors)

    @property
    def work(self) -> str:
        return max((getattr(selector, "work", "K") for selector in self.selectors), key=_COSTS.index)

    @property
    def sketch_size(self) -> int:
        return self._length("sketch")

    @property
    def classes(self) -> int:
        return self._length("head")

    def init(self, num_clients: int) -> tuple[Any, ...]:
        return tuple(selector.init(num_clients) for selector in self.selectors)

    def propose(self, key: PRNGKeyArray, state: tuple[Any, ...], clients: Clients) -> Mask:
        candidates: Mask = _propose(self, key, state, clients)
        return candidates

    def select(
        self, key: PRNGKeyArray, state: tuple[Any, ...], clients: Clients, candidates: Mask, losses: Losses
    ) -> Selection:
        selection: Selection = _select(self, key, state, clients, candidates, losses)
        return selection

    def observe(self, state: tuple[Any, ...], selection: Selection, report: Report) -> tuple[Any, ...]:
        pairs = zip(self.selectors, state, strict=True)
        return tuple(selector.observe(memory, selection, report) for selector, memory in pairs)

    @property
    def _partly_polls(self) -> bool:
        """Whether some of the strategies poll, and others do not."""
        return len({selector.poll for selector in self.selectors}) > 1

    def _decides_at_once(self, selector: Selector[Any]) -> bool:
        """Whether a strategy's seats are its candidates, so that nobody is polled."""
        return self._partly_polls and selector.poll == "none"

    def _all(self, claim: str, default: bool) -> bool:
        return all(getattr(selector, claim, default) for selector in self.selectors)

    def _lengths(self, field: str) -> list[int]:
        name = {"sketch": "sketch_size", "head": "classes"}[field]
        return [int(getattr(selector, name)) for selector in self.selectors if field in needs(selector)]

    def _length(self, field: str) -> int:
        lengths = self._lengths(field)
        if not lengths:
            raise AttributeError(f"Mixture: no strategy in it needs a {field}")
        return lengths[0]


# One program in a plain Python loop over rounds.
@jax.jit
def _propose(mixture: Mixture, key: PRNGKeyArray, state: tuple[Any, ...], clients: Clients) -> Mask:
    def candidates(selector: Selector[Any], memory: Any, first: PRNGKeyArray, then: PRNGKeyArray) -> Mask:
        found = selector.propose(first, memory, clients)
        if not mixture._decides_at_once(selector):
            return found
        return seated_mask(selector.select(then, memory, clients, found, _silence(clients)), clients.size.shape[0])

    proposed: Mask = _by_the_drawn(mixture, key, state, candidates)
    return proposed


@jax.jit
def _select(
    mixture: Mixture, key: PRNGKeyArray, state: tuple[Any, ...], clients: Clients, candidates: Mask, losses: Losses
) -> Selection:
    def seats(selector: Selector[Any], memory: Any, first: PRNGKeyArray, then: PRNGKeyArray) -> Selection:
        if mixture._decides_at_once(selector):
            found = selector.propose(first, memory, clients)  # the same as in propose: the key is
            return selector.select(then, memory, clients, found, _silence(clients))
        answers = losses
        if mixture.skips_poll and not getattr(selector, "skips_poll", False):
            asked = jnp.any(polled(mixture, candidates))
            answers = jnp.where(candidates & ~asked, jnp.float32(1), losses)
        return selector.select(then, memory, clients, candidates, answers)

    selected: Selection = _by_the_drawn(mixture, key, state, seats)
    return selected


def _by_the_drawn(mixture: Mixture, key: PRNGKeyArray, state: tuple[Any, ...], act: Callable[..., Any]) -> Any:
    """``act`` with the strategy that is drawn, its memory and its two keys."""
    draw_key, inner_key, _, _ = inner_keys(mixture.selectors[0], key)
    until = jnp.cumsum(jnp.stack([jnp.asarray(p, jnp.float32) for p in mixture.probabilities]))
    drawn = jnp.sum(until / until[-1] <= sampling.uniforms(draw_key, ()), dtype=jnp.int32)
    branches = [
        functools.partial(act, selector, memory, *inner_keys(selector, inner_key)[2:])
        for selector, memory in zip(mixture.selectors, state, strict=True)
    ]
    return lax.switch(drawn, branches)  # which clamps its index


def _enquires(selector: Selector[Any]) -> int:
    return int(getattr(selector, "enquires", 0))


def _silence(clients: Clients) -> Losses:
    return jnp.full(clients.size.shape, jnp.nan, jnp.float32)


def _same(values: Sequence[Any], rule: str) -> None:
    if len(set(values)) > 1:
        raise ValueError(f"Mixture: selectors must {rule}, got {', '.join(map(repr, values))}")
