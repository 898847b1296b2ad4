"""Other ways to find d, to compare auto with: each as its idea has it, on the same candidates and polls."""

from typing import Any, ClassVar, Literal, NamedTuple

import jax.numpy as jnp

from fedpick import Auto, PowerOfChoice
from fedpick.protocol import Clients, Losses, Mask, Poll, Report, Selection
from fedpick.pytrees import pytree, static
from fedpick.selectors.auto import Course

FALL = 0.02  # of the loss: less is no progress
Rule = Literal["fixed", "halving", "two-sided", "gap", "crossover"]


class Memory(NamedTuple):
    """d, the moving averages of the mean polled loss and of the gap, and what the rules compare them with."""

    d: Any
    lowest: Any
    loss: Any
    gap: Any
    best: Any
    since: Any
    block: Any  # the loss when the block began
    gain: Any  # of the first block of a pair
    base: Any  # d of that block
    t: Any


@pytree
class Rival:
    """pow-d, or auto's seats by loss (``guided``), with d by another rule.

    fixed: d stays. halving: d is halved when the mean polled loss (moving average, 0.8) has not fallen by 2 % in
    ``wait`` rounds. two-sided: as halving, and times 1.5 every ``wait`` rounds while it falls. gap: every ``wait``
    rounds d is halved where the loss fell by less than a tenth of the gap between the selected losses and the mean of
    all polled. crossover: blocks of ``wait`` rounds in pairs, d and then 2 d or d / 2; the better of the two stays.
    """

    m: int = static()
    most: int = static()
    start: int = static()
    rule: Rule = static(default="fixed")
    guided: bool = static(default=False)
    wait: int = static(default=15)
    correction: float = 0.3

    poll: ClassVar[Poll] = "full"
    skips_poll: ClassVar[bool] = True
    one_key: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({"polled"})

    def _auto(self) -> Auto:
        return Auto(self.m, self.most, correction=self.correction)

    def _course(self, state: Memory, K: int) -> Course:
        return self._auto().init(K)._replace(d=state.d.astype(jnp.int32), lowest=state.lowest)

    def init(self, num_clients: int) -> Memory:
        d, zero = jnp.float32(min(self.start, num_clients)), jnp.float32(0)
        return Memory(d, zero, zero, zero, jnp.float32(jnp.inf), jnp.int32(0), zero, zero, d, jnp.int32(0))

    def propose(self, key: Any, state: Memory, clients: Clients) -> Mask:
        if self.guided:
            return self._auto().propose(key, self._course(state, len(clients.size)), clients)
        inner = PowerOfChoice(self.m, jnp.round(state.d).astype(jnp.int32))
        return inner.propose(key, inner.init(len(clients.size)), clients)

    def select(self, key: Any, state: Memory, clients: Clients, candidates: Mask, losses: Losses) -> Selection:
        if self.guided:
            return self._auto().select(key, self._course(state, len(clients.size)), clients, candidates, losses)
        known = jnp.where(candidates.sum() > self.m, losses, jnp.float32(1))
        inner = PowerOfChoice(self.m, self.m)
        return inner.select(key, inner.init(len(clients.size)), clients, candidates, known)

    def observe(self, state: Memory, selection: Selection, report: Report) -> Memory:
        assert report.polled is not None
        answered, m, most = ~jnp.isnan(report.polled), jnp.float32(self.m), jnp.float32(self.most)
        seated = (selection.weights > 0) & ~jnp.isnan(report.loss)
        trained = jnp.sum(report.loss, where=seated) / jnp.maximum(seated.sum(), 1)
        mean = jnp.sum(report.polled, where=answered) / jnp.maximum(answered.sum(), 1)
        loss = jnp.where(answered.any(), mean, trained)
        picked = jnp.where(selection.weights > 0, report.polled[selection.clients], jnp.nan)
        ahead = jnp.nanmean(picked) - mean
        gap = jnp.where(jnp.isnan(ahead), jnp.float32(0), ahead)
        lowest = jnp.minimum(state.lowest, jnp.min(report.polled, where=answered, initial=0))

        first = state.t == 0
        average = jnp.where(first, loss, 0.8 * state.loss + 0.2 * loss)
        gap = jnp.where(first, gap, 0.8 * state.gap + 0.2 * gap)
        block = jnp.where(first, average, state.block)
        t = state.t + 1
        fell = average - lowest < (1 - FALL) * (state.best - lowest)
        since = jnp.where(fell, 0, state.since + 1)
        stuck, turn = since >= self.wait, t % self.wait == 0
        half = jnp.where(state.d / 2 < 1.1 * m, m, state.d / 2)
        d, base, gain = state.d, state.base, state.gain
        if self.rule == "halving":
            d = jnp.where(stuck, half, d)
        elif self.rule == "two-sided":
            d = jnp.where(stuck, half, jnp.where(turn, jnp.minimum(1.5 * d, most), d))
        elif self.rule == "gap":
            d = jnp.where(turn & (block - average < 0.1 * gap), half, d)
        elif self.rule == "crossover":
            now = jnp.log(jnp.maximum(block - lowest, 1e-9)) - jnp.log(jnp.maximum(average - lowest, 1e-9))
            pair = t // self.wait
            one, two = turn & (pair % 2 == 1), turn & (pair % 2 == 0)  # the first block of a pair has ended, the second
            other = jnp.where((pair // 2) % 2 == 0, jnp.minimum(2 * base, most), jnp.maximum(base / 2, m))
            base = jnp.where(two & (now > gain), d, base)
            d = jnp.where(one, other, jnp.where(two, base, d))
            gain = jnp.where(one, now, gain)
        moved = stuck | (d != state.d)
        return Memory(
            d=jnp.asarray(d, jnp.float32),
            lowest=lowest,
            loss=average,
            gap=gap,
            best=jnp.where(fell | moved, average, state.best),
            since=jnp.where(moved, 0, since).astype(jnp.int32),
            block=jnp.where(turn, average, block),
            gain=gain,
            base=base,
            t=t,
        )
