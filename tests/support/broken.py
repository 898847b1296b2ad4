"""Strategies that are broken on purpose, each in one realistic way, with the law or claim that must catch it."""

import jax
import jax.numpy as jnp

from fedpick import Ledger, PowerOfChoice, Selection, pytree, sampling, static

BROKEN = {}


def broken(says, **parameters):
    """Register a broken pow-d; ``says`` is what the check must say of it."""

    def add(kind):
        kind = pytree(kind)
        BROKEN[kind.__name__] = (kind(**{"m": 2, "d": 4, **parameters}), says)
        return kind

    return add


def weight(clients):
    return jnp.where(clients.available, clients.size.astype(jnp.float32), jnp.float32(0))


@broken("candidates_by_share")
class UniformCandidates(PowerOfChoice):
    def propose(self, key, state, clients):
        return sampling.race(key, (weight(clients) > 0).astype(jnp.float32), self.d)


@broken("law 7")
class CandidatesWithReplacement(PowerOfChoice):
    """Leaves seats empty that could be filled, when the draws fall on too few clients."""

    def propose(self, key, state, clients):
        able = weight(clients)
        drawn = sampling.draw(key, able, 4)
        return jnp.zeros(able.shape, bool).at[drawn].set(jnp.any(able > 0))


@broken("unbiased")
class SaysThatItIsUnbiased(PowerOfChoice):
    unbiased = True


@broken("highest_loss_first")
class TiesById(PowerOfChoice):
    def select(self, key, state, clients, candidates, losses):
        score, chosen = jax.lax.top_k(jnp.where(candidates & ~jnp.isnan(losses), losses, -jnp.inf), self.m)
        return sampling.seat(chosen, score > -jnp.inf)


@broken("law 6")
class EmptySeatIsTheLastClient(PowerOfChoice):
    def init(self, num_clients):
        return jnp.full(num_clients, 1e9, jnp.float32)

    def propose(self, key, state, clients):
        return sampling.race(key, weight(clients), self.d)

    def select(self, key, state, clients, candidates, losses):
        return sampling.seat(*sampling.top_k(key, losses, candidates & ~jnp.isnan(losses), self.m))

    def observe(self, state, selection, report):
        return state.at[selection.clients].set(jnp.nan_to_num(report.loss))


@broken("law 6")
class EmptySeatForgetsTheLastClient(EmptySeatIsTheLastClient):
    def init(self, num_clients):
        return jnp.full(num_clients, jnp.nan, jnp.float32)

    def observe(self, state, selection, report):
        return state.at[selection.clients].set(report.loss)


@broken("law 6")
class EmptySeatCounts(EmptySeatIsTheLastClient):
    def init(self, num_clients):
        return jnp.zeros(num_clients, jnp.int32)

    def observe(self, state, selection, report):
        return state.at[selection.clients].add(1)


@broken("law 6")
class SilentClientsEligible(PowerOfChoice):
    def select(self, key, state, clients, candidates, losses):
        return PowerOfChoice.select(self, key, state, clients, candidates, jnp.nan_to_num(losses))


@broken("law 6")
class SilentClientsAnswerFromMemory(PowerOfChoice):
    def select(self, key, state, clients, candidates, losses):
        return PowerOfChoice.select(
            self, key, state, clients, candidates, jnp.where(jnp.isnan(losses), state.loss, losses)
        )


@broken("law 7")
class WeightsGrowWithTheRounds(PowerOfChoice):
    def select(self, key, state, clients, candidates, losses):
        chosen, weights = PowerOfChoice.select(self, key, state, clients, candidates, losses)
        return Selection(chosen, weights * jnp.where(state.round > 0, jnp.float32(3), jnp.float32(1)))


@broken("law 7")
class EmptySeatsOfClientZero(PowerOfChoice):
    def select(self, key, state, clients, candidates, losses):
        chosen, weights = PowerOfChoice.select(self, key, state, clients, candidates, losses)
        return Selection(jnp.maximum(chosen, 0), weights)


@broken("law 4")
class KeyOfItsOwn(PowerOfChoice):
    def propose(self, key, state, clients):
        return PowerOfChoice.propose(self, jax.random.key(0), state, clients)

    def select(self, key, state, clients, candidates, losses):
        return PowerOfChoice.select(self, jax.random.key(0), state, clients, candidates, losses)


@broken("law 6")
class SomebodyWhereNobodyIs(PowerOfChoice):
    def select(self, key, state, clients, candidates, losses):
        clients, weights = PowerOfChoice.select(self, key, state, clients, candidates, losses)
        return Selection(jnp.maximum(clients, 0), jnp.where(weights.sum() > 0, weights, jnp.float32(1 / 2)))


@broken("law 1")
class StateChangedInSelect(PowerOfChoice):
    def init(self, num_clients):
        return {"ledger": Ledger.init(num_clients), "asked": jnp.int32(0)}

    def propose(self, key, state, clients):
        return PowerOfChoice.propose(self, key, state["ledger"], clients)

    def select(self, key, state, clients, candidates, losses):
        state["asked"] = state["asked"] + 1
        return PowerOfChoice.select(self, key, state["ledger"], clients, candidates, losses)

    def observe(self, state, selection, report):
        return {**state, "ledger": state["ledger"].observe(selection, report)}


@broken("law 3", d=4)
class RecompilesOnNewD(PowerOfChoice):
    d: int = static()


@broken("law 3", d=4)
class CannotTraceD(PowerOfChoice):
    def propose(self, key, state, clients):
        chosen, filled = sampling.first_k(sampling.arrivals(key, weight(clients)), int(self.d))
        return jnp.zeros(clients.size.shape, bool).at[chosen].set(filled)


@broken("law 5")
class PicksDependOnX64(PowerOfChoice):
    def propose(self, key, state, clients):
        arrival = jax.random.exponential(key, clients.size.shape).astype(jnp.float32)
        able = weight(clients)
        return sampling.first_k_mask(jnp.where(able > 0, arrival / able, jnp.inf), self.d)


@broken("law 7")
class WeightsDoNotSumToOne(PowerOfChoice):
    def select(self, key, state, clients, candidates, losses):
        chosen, weights = PowerOfChoice.select(self, key, state, clients, candidates, losses)
        return Selection(chosen, jnp.where(weights > 0, jnp.float32(1 / 2), jnp.float32(0)))


@broken("law 7")
class WeightsBySizeTwice(PowerOfChoice):
    """A size-weighted mean without the normalisation."""

    def select(self, key, state, clients, candidates, losses):
        chosen, weights = PowerOfChoice.select(self, key, state, clients, candidates, losses)
        return Selection(chosen, weights * sampling.shares(clients.size.astype(jnp.float32))[chosen])


@broken("law 2")
class UnavailableClientChosen(PowerOfChoice):
    def propose(self, key, state, clients):
        return sampling.race(key, clients.size.astype(jnp.float32), self.d)


@broken("law 2")
class WrongClientWhenDIsBelowK(PowerOfChoice):
    """Returns places in the list of candidates for ids of clients."""

    def select(self, key, state, clients, candidates, losses):
        chosen, weights = PowerOfChoice.select(self, key, state, clients, candidates, losses)
        place = jnp.cumsum(candidates, dtype=jnp.int32)[chosen] - 1
        return Selection(jnp.where(weights > 0, place, -1), weights)


@broken("highest_loss_first", loss="stale")
class StaleLossNotInfiniteAtFirst(PowerOfChoice):
    def init(self, num_clients):
        return Ledger.init(num_clients)._replace(loss=jnp.zeros(num_clients, jnp.float32))


@broken("highest_loss_first")
class LowestLossFirst(PowerOfChoice):
    def select(self, key, state, clients, candidates, losses):
        return PowerOfChoice.select(self, key, state, clients, candidates, -losses)


@broken("highest_loss_first", loss="stale")
class LowestLastLossFirst(PowerOfChoice):
    """The clients that never trained first, as they should be, and then the lowest of those that did."""

    def select(self, key, state, clients, candidates, losses):
        return PowerOfChoice.select(self, key, state._replace(loss=-state.loss), clients, candidates, losses)


@broken("highest_loss_first")
class LowestLossFirstOnceTrained(PowerOfChoice):
    def select(self, key, state, clients, candidates, losses):
        losses = jnp.where(state.round > 0, -losses, losses)
        return PowerOfChoice.select(self, key, state, clients, candidates, losses)


@broken("highest_loss_first")
class LargestSquareFirst(PowerOfChoice):
    """Takes for granted that a loss is not negative."""

    def select(self, key, state, clients, candidates, losses):
        return PowerOfChoice.select(self, key, state, clients, candidates, jnp.square(losses))


@broken("law 4")
class KeyReusedBetweenProposeAndSelect(PowerOfChoice):
    """Keeps a key of its own and uses it for both: the client that won the race also wins the ties."""

    def init(self, num_clients):
        return Ledger.init(num_clients), jax.random.key(3)

    def propose(self, key, state, clients):
        ledger, own = state
        return PowerOfChoice.propose(self, own, ledger, clients)

    def select(self, key, state, clients, candidates, losses):
        ledger, own = state
        return PowerOfChoice.select(self, own, ledger, clients, candidates, losses)

    def observe(self, state, selection, report):
        ledger, own = state
        return ledger.observe(selection, report), jax.random.split(own)[0]


# Law 4 compares traced rounds with a plain loop. Law 3, which is checked before it, compares two traced rounds; in one
# of them the sizes are a constant, and whether that is a tracer there depends on the version of JAX.
@broken("law [34]")
class CoinOfItsOwn(PowerOfChoice):
    """Seeds itself by whether JAX is tracing, as global random state does."""

    def propose(self, key, state, clients):
        traced = isinstance(clients.size, jax.core.Tracer)
        return PowerOfChoice.propose(self, jax.random.key(1) if traced else key, state, clients)


@broken("law 5")
class StateGrowsWider(PowerOfChoice):
    def init(self, num_clients):
        return Ledger.init(num_clients)._replace(round=jnp.int8(0))

    def observe(self, state, selection, report):
        return state._replace(round=jnp.int32(0)).observe(selection, report)


@broken("law 8")
class SortsEverybody(PowerOfChoice):
    def propose(self, key, state, clients):
        arrival = sampling.arrivals(key, weight(clients))
        place = jnp.argsort(jnp.argsort(arrival)).astype(jnp.int32)
        return (place < self.d) & (arrival < jnp.inf)


@broken("law 8")
class SortsEverybodyByTopK(PowerOfChoice):
    def propose(self, key, state, clients):
        arrival, order = jax.lax.top_k(-sampling.arrivals(key, weight(clients)), clients.size.shape[0])
        first = (jnp.arange(order.shape[0], dtype=jnp.int32) < self.d) & (arrival > -jnp.inf)
        return jnp.zeros(order.shape, bool).at[order].set(first)


@broken("law 8")
class SquareMemory(PowerOfChoice):
    def select(self, key, state, clients, candidates, losses):
        wider = jnp.broadcast_to(losses, (16, *losses.shape)).max(axis=0)
        return PowerOfChoice.select(self, key, state, clients, candidates, wider)
