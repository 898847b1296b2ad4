"""Evaluations: the loss and accuracy of every client, and on the test set, at a given model."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from fedpick.sim.blocks import block_size
from fedpick.sim.classification import NamedMetric
from fedpick.sim.federation import Federation
from fedpick.sim.models import Model, Params, barrier
from fedpick.sim.parts import finite, means, samples_of, so_far
from fedpick.sim.spread import spread_rows

EVALUATION_BLOCK = 4096  # samples at a time in an evaluation of everything


class Evaluation(NamedTuple):
    """The metrics of a model; ``evaluate`` defines ``skew``, and ``own`` has those that were asked for by name."""

    loss: Float[Array, ""]
    client_loss: Float[Array, " K"]
    client_accuracy: Float[Array, " K"]
    test_loss: Float[Array, ""]
    test_accuracy: Float[Array, ""]
    skew: Float[Array, ""]
    own: Mapping[str, Float[Array, ""]] = {}

    def by_name(self) -> dict[str, Any]:
        """Every metric by its name."""
        named = self._asdict()
        own = named.pop("own")
        return {**named, **own}


def evaluate(
    federation: Federation,
    model: Model,
    params: Params,
    chosen: Float[Array, " K"],
    metrics: Sequence[NamedMetric] = (),
) -> Evaluation:
    """The metrics of a model.

    ``skew`` estimates rho(S, w'), the paper's selection skew: the mean over the seats since the last evaluation of
    F_k(w') - F_k*, over the same mean by share, at the present model w'. For F_k* stands the lowest value that the
    objective can take (0, or -1 for minus-probability), because the true optimum is not known.

    Args:
        federation: The clients and their data.
        model: The model.
        params: Its parameters w'.
        chosen: The sum of the weights of each client since the last evaluation.
        metrics: What else is measured on the test set.
    """
    client_loss, client_accuracy = evaluate_clients(federation, model, params)
    test_loss, test_accuracy = evaluate_test_set(federation, model, params)
    loss = jnp.sum(federation.share * client_loss)
    gap = client_loss - model.lowest
    chosen = chosen / chosen.sum()
    skew = jnp.sum(chosen * gap) / jnp.sum(federation.share * gap)
    own = measure_test_set(federation, model, params, metrics) if metrics else {}
    return Evaluation(loss, client_loss, client_accuracy, test_loss, test_accuracy, skew, own)


def evaluate_clients(
    federation: Federation, model: Model, params: Params
) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
    """The loss and accuracy of every client over all its data."""
    K, count, size, samples = federation.num_clients, federation.count, federation.part_size, federation.num_samples
    parts = -(-count // size)
    ends = so_far(parts)
    at_once = block_size(federation, model, params, EVALUATION_BLOCK) // size
    number, lanes = _even(samples if size == 1 else samples // size + K, at_once)
    owner = jnp.repeat(jnp.arange(K, dtype=jnp.int32), parts, total_repeat_length=number * lanes)
    nth = jnp.arange(number * lanes, dtype=jnp.int32) - (ends - parts)[owner]

    table = _outcome_table(federation, model, params) if _shares_samples(federation) else None

    def outcomes(shared: Any, owner: Int[Array, "blocks n"], nth: Int[Array, "blocks n"]) -> tuple[Array, Array, Array]:
        federation, model, params, table = shared

        def block(part: tuple[Int[Array, " n"], Int[Array, " n"]]) -> tuple[Array, Array, Array]:
            sample, real = samples_of(federation, *part, size)
            if table is None:
                x, y = federation.prepare(federation.inputs(sample)), federation.y[sample]
                losses, right = _outcomes(model, params, x, y)
            else:
                losses, right = table[0][sample], table[1][sample]
            loss, used = means(losses.reshape(real.shape), real)
            return loss, means(right.reshape(real.shape), real)[0], used

        found: tuple[Array, Array, Array] = lax.map(block, (owner, nth))
        return found

    blocks = owner.reshape(number, lanes), nth.reshape(number, lanes)
    by_part = spread_rows(outcomes, (federation, model, params, table), *blocks)
    loss, accuracy, used = jax.tree.map(lambda x: x.reshape(-1), by_part)

    def mean(x: Float[Array, " parts"]) -> Float[Array, " K"]:
        # Sums of sums: a float32 that adds up a hundred thousand numbers one by one is wrong in the fourth digit.
        shift = finite(x[ends - parts])
        off = jnp.where(used > 0, used.astype(jnp.float32) * (x - shift[owner]), jnp.float32(0))
        total = jax.ops.segment_sum(barrier(off), owner, K, indices_are_sorted=True)
        return shift + total / count.astype(jnp.float32)

    return mean(loss), mean(accuracy)


def evaluate_test_set(
    federation: Federation, model: Model, params: Params
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The mean loss and accuracy on the test set; NaN where there is none."""
    order = federation.test_order
    samples = (federation.test_y if order is None else order).shape[0]
    if samples == 0:
        return jnp.float32(jnp.nan), jnp.float32(jnp.nan)
    number, size = _even(samples, block_size(federation, model, params, EVALUATION_BLOCK))

    def sums(shared: Any, firsts: Int[Array, " blocks"]) -> tuple[Array, Array]:
        federation, model, params = shared

        def block(first: Int[Array, ""]) -> tuple[Array, Array]:
            start = jnp.minimum(first, samples - size)  # the last block overlaps; only its new samples count
            new = start + jnp.arange(size, dtype=jnp.int32) >= first
            if federation.test_order is None:
                x, y = (lax.dynamic_slice_in_dim(part, start, size) for part in (federation.test_x, federation.test_y))
            else:
                row = lax.dynamic_slice_in_dim(federation.test_order, start, size)
                x, y, new = federation.test_x[row], federation.test_y[row], new & (row >= 0)
            losses, right = _outcomes(model, params, federation.prepare(x), y)
            return jnp.where(new, losses, jnp.float32(0)).sum(), jnp.where(new, right, jnp.float32(0)).sum()

        found: tuple[Array, Array] = lax.map(block, firsts)
        return found

    loss, right = spread_rows(sums, (federation, model, params), size * jnp.arange(number, dtype=jnp.int32))
    if order is None:
        return loss.sum() / samples, right.sum() / samples
    one = 1 / jnp.sum(order >= 0).astype(jnp.float32)  # as XLA divides by a constant
    return loss.sum() * one, right.sum() * one


def measure_test_set(
    federation: Federation, model: Model, params: Params, metrics: Sequence[NamedMetric]
) -> dict[str, Float[Array, ""]]:
    """Metrics that need the logits of all test samples at once, which are gathered block by block.

    Args:
        federation: The clients and the test set, all of whose places are taken.
        model: A model that has logits.
        params: Its parameters.
        metrics: What is measured.
    """
    order = federation.test_order
    samples = (federation.test_y if order is None else order).shape[0]
    number, size = _even(samples, block_size(federation, model, params, EVALUATION_BLOCK))

    def logits(shared: Any, firsts: Int[Array, " blocks"]) -> Array:
        federation, model, params = shared

        def block(first: Int[Array, ""]) -> Array:
            row = first + jnp.arange(size, dtype=jnp.int32)
            row = row if federation.test_order is None else federation.test_order[row]
            found: Array = barrier(model.logits(params, federation.prepare(federation.test_x[row])))
            return found.astype(jnp.float32)

        found: Array = lax.map(block, firsts)
        return found

    firsts = jnp.minimum(size * jnp.arange(number, dtype=jnp.int32), samples - size)
    blocks = spread_rows(logits, (federation, model, params), firsts)
    labels = federation.test_y if order is None else federation.test_y[order]
    # Behind a barrier, so that a metric is computed alike whatever program it is a part of.
    whole, labels = barrier((_by_row(blocks, samples), labels))
    lost = jnp.isnan(whole).any()
    values = {metric.name: jnp.asarray(metric.function(whole, labels), jnp.float32) for metric in metrics}
    found = {name: jnp.where(lost, jnp.nan, value) for name, value in values.items()}
    measured: dict[str, Array] = barrier(found)
    return measured


def _shares_samples(federation: Federation) -> bool:
    """Whether most samples that runs have in common are this run's own: then all runs pass them through together."""
    return federation.order is not None and 2 * federation.num_samples > federation.y.shape[0]


def _outcome_table(
    federation: Federation, model: Model, params: Params
) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
    """The outcome of every sample, by row."""
    samples = federation.y.shape[0]
    number, size = _even(samples, block_size(federation, model, params, EVALUATION_BLOCK))

    def outcomes(shared: Any, firsts: Int[Array, " blocks"]) -> tuple[Array, Array]:
        federation, model, params = shared

        def block(first: Int[Array, ""]) -> tuple[Array, Array]:
            row = first + jnp.arange(size, dtype=jnp.int32)
            return _outcomes(model, params, federation.prepare(federation.inputs(row)), federation.y[row])

        found: tuple[Array, Array] = lax.map(block, firsts)
        return found

    firsts = jnp.minimum(size * jnp.arange(number, dtype=jnp.int32), samples - size)
    losses, right = spread_rows(outcomes, (federation, model, params), firsts)
    return _by_row(losses, samples), _by_row(right, samples)


def _by_row(blocks: Float[Array, "number size *more"], samples: int) -> Float[Array, " N *more"]:
    """Blocks of which the last overlaps with the one before, as one array."""
    number, size, *more = blocks.shape
    return jnp.concatenate([blocks[:-1].reshape(-1, *more), blocks[-1, number * size - samples :]])


def _outcomes(model: Model, params: Params, x: Array, y: Array) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """The loss of each sample, and 1 where its label is predicted; NaN where the loss is, which is no prediction."""
    losses, right = model.losses(params, x, y, None), (model.predict(params, x) == y).astype(jnp.float32)
    outcomes: tuple[Array, Array] = barrier((losses, jnp.where(jnp.isnan(losses), jnp.nan, right)))
    return outcomes


def _even(number: int, at_once: int) -> tuple[int, int]:
    """The number and size of blocks of about ``at_once``, such that the last one is nearly full."""
    blocks = -(-number // max(1, at_once))
    return blocks, -(-number // blocks)
