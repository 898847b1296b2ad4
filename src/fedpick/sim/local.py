"""Local training, tau steps on mini-batches of a client's own data."""

from collections.abc import Callable
from dataclasses import KW_ONLY
from typing import Any, NamedTuple, get_args

import jax
import jax.numpy as jnp
import optax  # type: ignore[import-untyped]
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from fedpick.pytrees import pytree, static
from fedpick.sim.federation import Federation
from fedpick.sim.minibatches import Batches, draw_batches
from fedpick.sim.models import Model, Params
from fedpick.sim.optimizers import Number, Optimizer, OwnSchedule, RateSchedule, StepDecay, optimizer
from fedpick.text import shown
from fedpick.validation import natural, one_of, require

SIDE_BY_SIDE = 8  # clients whose steps are operations of one loop; more take long to compile


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
    batches: Batches = static(default="distinct")
    optimizer: str | Optimizer = static(default="sgd")

    def __post_init__(self) -> None:
        natural(self, "tau", self.tau)
        natural(self, "b", self.b)
        optimizer(self, self.optimizer)
        if not callable(self.schedule) or isinstance(self.schedule, type):
            raise ValueError(
                f"Local: schedule must be a function of the round t, such as StepDecay, got {shown(self.schedule)}"
            )
        if jax.tree_util.all_leaves([self.schedule]):
            object.__setattr__(self, "schedule", OwnSchedule(self.schedule))
        one_of(self, "batches", self.batches, get_args(Batches))
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
    steps = _steps(federation, model, local, params=params, client=client, key=key, t=t, squares=squares)
    end, _ = lax.scan(steps.take, steps.begin, steps.inputs, unroll=unroll)
    return _trained(end, local)


def train_seats(
    federation: Federation,
    model: Model,
    local: Local,
    *,
    params: Params,
    clients: Int[Array, " m"],
    keys: Key[Array, " m"],
    t: Int[Array, ""],
    unroll: int = 1,
    squares: bool = False,
) -> Trained:
    """``train`` for several clients at once, from the same model, each with its own key: arrays [m, ...].

    They are one batch, or where the model is not ``batched``, operations side by side in the same loop over steps.

    Args:
        federation: The clients and their data.
        model: The model.
        local: Local training.
        params: Parameters of the global model, where the steps start.
        clients: The clients.
        keys: A random key for each, from ``seat_key``.
        t: The round, for the learning rate.
        unroll: Steps that are compiled at a stretch.
        squares: Whether to measure ``square_loss``.
    """
    if model.trainer is not None and not squares:
        trained: Trained = model.trainer(federation, local, params=params, clients=clients, keys=keys, t=t)
        return trained
    shared: dict[str, Any] = {"params": params, "t": t, "squares": squares}

    def one(client: Int[Array, ""], key: PRNGKeyArray) -> Trained:
        return train(federation, model, local, client=client, key=key, unroll=unroll, **shared)

    def side_by_side(clients: Int[Array, " n"], keys: Key[Array, " n"]) -> Trained:
        seats = range(clients.shape[0])
        steps = [_steps(federation, model, local, client=clients[i], key=keys[i], **shared) for i in seats]

        def take(carries: list[Any], inputs: list[Any]) -> tuple[list[Any], None]:
            return [steps[i].take(carries[i], inputs[i])[0] for i in seats], None

        ends, _ = lax.scan(take, [seat.begin for seat in steps], [seat.inputs for seat in steps], unroll=unroll)
        stacked: Trained = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[_trained(end, local) for end in ends])
        return stacked

    if model.batched:
        return jax.vmap(one)(clients, keys)
    whole, rest = divmod(clients.shape[0], SIDE_BY_SIDE)
    if whole == 0 or (whole == 1 and rest == 0):
        return side_by_side(clients, keys)
    cut = whole * SIDE_BY_SIDE
    groups = jax.tree.map(lambda x: x[:cut].reshape(whole, SIDE_BY_SIDE, *x.shape[1:]), (clients, keys))
    by_group = lax.map(lambda group: side_by_side(*group), groups)
    trained = jax.tree.map(lambda x: x.reshape(cut, *x.shape[2:]), by_group)
    if rest:
        others = side_by_side(clients[cut:], keys[cut:])
        trained = jax.tree.map(lambda *parts: jnp.concatenate(parts), trained, others)
    return trained


def draw_rows(
    federation: Federation, local: Local, client: Int[Array, ""], key: PRNGKeyArray
) -> tuple[Int[Array, "tau b"], Bool[Array, "tau b"]]:
    """The rows of the samples that a client takes in each step, and which of the b slots hold one."""
    shape = (local.tau, local.b)
    index, used = draw_batches(key, federation.count[client], shape, local.batches, federation.largest)
    return federation.locate(federation.start[client] + index), used


class _Steps(NamedTuple):
    """The loop of local training: what it begins with, what each step takes, and the step."""

    begin: Any
    inputs: Any
    take: Callable[[Any, Any], tuple[Any, None]]


def _steps(
    federation: Federation,
    model: Model,
    local: Local,
    *,
    params: Params,
    client: Int[Array, ""],
    key: PRNGKeyArray,
    t: Int[Array, ""],
    squares: bool,
) -> _Steps:
    batch_key, noise_key = jax.random.split(key)
    row, used = draw_rows(federation, local, client, batch_key)
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

    samples = jnp.stack([row, federation.y[row]], axis=1)
    fetched = None if federation.host is None else federation.inputs(row)  # for all steps at once
    inputs = (samples, None if one_size else parts, jax.random.split(noise_key, local.tau), fetched)
    none = jnp.zeros(local.b, jnp.float32)
    totals = (none, none) if squares else none
    return _Steps((params, method.init(params), totals), inputs, step)


def _trained(end: Any, local: Local) -> Trained:
    trained, _, total = end
    return Trained(trained, *(part.sum() / local.tau for part in jax.tree.leaves(total)))
