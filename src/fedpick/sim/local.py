"""Local training, tau steps on mini-batches of a client's own data."""

from dataclasses import KW_ONLY
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax  # type: ignore[import-untyped]
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from fedpick import sampling
from fedpick.pytrees import pytree, static
from fedpick.sim.federation import Federation
from fedpick.sim.models import Model, Params
from fedpick.sim.optimizers import Number, Optimizer, OwnSchedule, RateSchedule, StepDecay, optimizer
from fedpick.validation import natural, one_of, require


@pytree
class Local:
    """Local training: tau steps of an optimiser on mini-batches of b samples, from the global model.

    Args:
        tau: Steps.
        b: Samples in a mini-batch.
        eta: Learning rate; in round t it is ``eta * schedule(t)``.
        schedule: A ``StepDecay``, a schedule of optax, or any function of t that JAX can trace.
        weight_decay: Adds decay * w to the gradient.
        prox: Adds prox * (w - global model) to the gradient (FedProx).
        batches: "distinct", uniformly and without replacement inside a batch, min(b, D_k) samples, as the paper's code;
            "replace", b independent draws; "epochs", through shuffled data, the last batch being what is left.
        optimizer: "sgd", "momentum", "adam", "adagrad", "yogi", or a function of the learning rate such as
            ``optax.adam``; in a file, also its address, such as "optax:lion".

    >>> Local(tau=30, b=64, eta=0.005, schedule=StepDecay(at=(150, 300))).tau
    30
    """

    tau: int = static()
    b: int = static()
    eta: Number
    _: KW_ONLY
    schedule: RateSchedule = StepDecay()
    weight_decay: Number | None = None
    prox: Number | None = None
    batches: Literal["distinct", "replace", "epochs"] = static(default="distinct")
    optimizer: str | Optimizer = static(default="sgd")

    def __post_init__(self) -> None:
        natural(self, "tau", self.tau)
        natural(self, "b", self.b)
        optimizer(self, self.optimizer)
        if not callable(self.schedule) or isinstance(self.schedule, type):
            raise ValueError(
                f"Local: schedule must be a function of the round t, such as StepDecay, got {self.schedule!r}"
            )
        if jax.tree_util.all_leaves([self.schedule]):
            object.__setattr__(self, "schedule", OwnSchedule(self.schedule))
        one_of(self, "batches", self.batches, ("distinct", "replace", "epochs"))
        for name in ("eta", "weight_decay", "prox"):
            if name == "eta" or getattr(self, name) is not None:
                require(self, name, getattr(self, name), "finite and at least 0", lambda x: (x >= 0) & (x < jnp.inf))

    def regularized(self, gradient: Params, w: Params, start: Params) -> Params:
        """The gradient with weight decay and the proximal term; where they are None, nothing is read or added."""
        for factor, origin in ((self.weight_decay, None), (self.prox, start)):
            if factor is not None:
                factor = jnp.asarray(factor, jnp.float32)
                away = w if origin is None else jax.tree.map(jnp.subtract, w, origin)
                gradient = jax.tree.map(lambda g, x, factor=factor: g + factor * x, gradient, away)
        return gradient

    def samples(self, count: Int[Array, "..."]) -> Int[Array, "..."]:
        """How many samples a client of ``count`` processes in tau steps."""
        if self.batches == "replace":
            return jnp.full_like(count, self.tau * self.b)
        if self.batches == "distinct":
            return self.tau * jnp.minimum(count, self.b)
        per_epoch = -(-count // self.b)
        whole, rest = self.tau // per_epoch, self.tau % per_epoch
        return whole * count + jnp.minimum(rest * self.b, count)


class Trained(NamedTuple):
    """A local model, the mean of the mini-batch losses seen on the way, and that of the samples' squared losses."""

    params: Params
    loss: Float[Array, ""]
    square_loss: Float[Array, ""] | None = None


def train(
    federation: Federation,
    model: Model,
    local: Local,
    *,
    params: Params,
    client: Int[Array, ""],
    key: PRNGKeyArray,
    t: Int[Array, ""],
    unroll: int = 1,
    squares: bool = False,
) -> Trained:
    """The local model after tau steps, and the mean of the tau mini-batch losses seen on the way.

    Args:
        federation: The clients and their data.
        model: The model.
        local: Local training.
        params: Parameters of the global model, where the steps start.
        client: The client.
        key: Random key, from ``seat_key``.
        t: The round, for the learning rate.
        unroll: Steps that are compiled at a stretch.
        squares: Whether to measure ``square_loss``.
    """
    batch_key, noise_key = jax.random.split(key)
    start, count = federation.start[client], federation.count[client]
    index, used = draw_batches(batch_key, count, local, federation.largest)
    parts = used.astype(jnp.float32) / used.sum(axis=1, keepdims=True).astype(jnp.float32)
    one_size = local.batches != "epochs"
    method = optimizer(local, local.optimizer)(jnp.asarray(local.eta, jnp.float32) * local.schedule(t))

    def step(carry: Any, batch: Any) -> Any:
        # Few arrays to take a step's part from, and no sum: each would be a kernel more per step on a GPU.
        (w, memory, total), ((sample, y), part, key, x) = carry, batch
        part = parts[0] if one_size else part
        x = federation.prepare(federation.inputs(sample) if x is None else x)

        def loss(w: Params) -> tuple[Float[Array, ""], Any]:
            real, losses = part > 0, model.losses(w, x, y, key)
            of_samples = jnp.where(real, part * losses, jnp.float32(0))
            return of_samples.sum(), (of_samples, of_samples * losses) if squares else of_samples

        gradient, of_samples = jax.grad(loss, has_aux=True)(w)
        change, memory = method.update(local.regularized(gradient, w, params), memory, w)
        return (optax.apply_updates(w, change), memory, jax.tree.map(jnp.add, total, of_samples)), None

    row = federation.locate(start + index)
    samples = jnp.stack([row, federation.y[row]], axis=1)
    fetched = None if federation.host is None else federation.inputs(row)  # for all steps at once
    inputs = (samples, None if one_size else parts, jax.random.split(noise_key, local.tau), fetched)
    none = jnp.zeros(local.b, jnp.float32)
    totals = (none, none) if squares else none
    (trained, _, total), _ = lax.scan(step, (params, method.init(params), totals), inputs, unroll=unroll)
    return Trained(trained, *(part.sum() / local.tau for part in jax.tree.leaves(total)))


def draw_batches(
    key: PRNGKeyArray, count: Int[Array, ""], local: Local, largest: int
) -> tuple[Int[Array, "tau b"], Bool[Array, "tau b"]]:
    """Places within a client's own data for each step, and which of the b slots hold a sample."""
    shape = (local.tau, local.b)
    if local.batches == "replace":
        return sampling.integers(key, shape, count), jnp.ones(shape, bool)
    if local.batches == "epochs":
        return _epochs(key, count, local, largest)
    return distinct(key, count, shape)


def distinct(
    key: PRNGKeyArray, count: Int[Array, ""], shape: tuple[int, int]
) -> tuple[Int[Array, "tau b"], Bool[Array, "tau b"]]:
    """min(b, count) different places per row, every subset equally likely.

    Floyd's algorithm: slot i draws from 0..last[i], and takes last[i] itself where the draw is taken.

    Args:
        key: Random key.
        count: Number of samples of the client.
        shape: (tau, b).
    """
    b = shape[1]
    number = jnp.minimum(count, b)
    slot = jnp.arange(b, dtype=jnp.int32)
    last = count - number + slot
    drawn = sampling.integers(key, shape, jnp.broadcast_to(jnp.maximum(last, 0)[None, :] + 1, shape))
    # A loop is many kernels on a GPU, and a table of all pairs of slots three times slower than a loop on a CPU.
    chosen = lax.platform_dependent(drawn, last, cpu=_slot_by_slot, default=_all_slots)
    used = jnp.broadcast_to((slot < number)[None, :], shape)
    return jnp.where(used, chosen, 0), used


def _slot_by_slot(drawn: Int[Array, "tau b"], last: Int[Array, " b"]) -> Int[Array, "tau b"]:
    def choose(i: int | Int[Array, ""], chosen: Int[Array, "tau b"]) -> Int[Array, "tau b"]:
        taken = jnp.any(chosen == drawn[:, i][:, None], axis=1)
        return chosen.at[:, i].set(jnp.where(taken, last[i], drawn[:, i]))

    chosen: Int[Array, "tau b"] = lax.fori_loop(0, last.shape[0], choose, jnp.full_like(drawn, -1))
    return chosen


def _all_slots(drawn: Int[Array, "tau b"], last: Int[Array, " b"]) -> Int[Array, "tau b"]:
    """The same at once. A draw is taken when an earlier slot drew it too, or when it is the ``last`` of an earlier slot
    that had to take that: a chain of earlier and earlier slots, followed for all of them in log2(b) doublings."""
    slot = jnp.arange(last.shape[0], dtype=jnp.int32)
    earlier = (slot[:, None] > slot[None, :])[None]
    taken = jnp.any((drawn[:, :, None] == drawn[:, None, :]) & earlier, axis=2)
    owner = drawn - last[0]  # the slot whose ``last`` was drawn
    before = jnp.where((owner >= 0) & (owner < slot[None, :]), owner, slot[None, :])
    for _ in range((last.shape[0] - 1).bit_length()):
        taken |= jnp.take_along_axis(taken, before, axis=1)
        before = jnp.take_along_axis(before, before, axis=1)
    return jnp.where(taken, last[None, :], drawn)


def _epochs(
    key: PRNGKeyArray, count: Int[Array, ""], local: Local, largest: int
) -> tuple[Int[Array, "tau b"], Bool[Array, "tau b"]]:
    tau, b = local.tau, local.b
    per_epoch = -(-count // b)
    step = jnp.arange(tau, dtype=jnp.int32)
    epoch, within = step // per_epoch, step % per_epoch

    def order(epoch: Int[Array, ""]) -> Int[Array, " largest"]:
        lot = sampling.uniforms(jax.random.fold_in(key, epoch), (largest,))
        own = jnp.arange(largest, dtype=jnp.int32) < count
        return jnp.argsort(jnp.where(own, lot, jnp.inf)).astype(jnp.int32)

    place = within[:, None] * b + jnp.arange(b, dtype=jnp.int32)[None, :]
    used = place < count
    index = lax.map(lambda now: order(now[0])[now[1]], (epoch, jnp.where(used, place, 0)))
    return jnp.where(used, index, 0), used
