"""The checks of `simulate`: mistakes as one sentence before the first round, and warnings."""

import dataclasses
import logging
import warnings
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpick.form import WEIGHTS, form_of
from fedpick.metrics import METRICS, check_part
from fedpick.protocol import check_fields, check_strategy, init_key, round_keys, too_few_rested
from fedpick.purity import is_own, trace_again
from fedpick.results import Result, idle_runs, idle_sentence
from fedpick.sim.availability import Devices, Failures
from fedpick.sim.classification import NO_TEST_SET, NamedMetric
from fedpick.sim.federation import Federation
from fedpick.sim.fit import make_federation
from fedpick.sim.liars import Liars
from fedpick.sim.local import Local
from fedpick.sim.memory import check_memory, tree_bytes
from fedpick.sim.models import Model
from fedpick.sim.optimizers import Server
from fedpick.sim.records import UNLAWFUL, UNWEIGHTED, Record
from fedpick.sim.shapes import check_shapes
from fedpick.sim.stacking import federations_of, sizes_of_test_sets
from fedpick.storage import usable_cores
from fedpick.text import counted, shown
from fedpick.validation import check_path, flag, known, owner_name, require

LARGE_BATCH = 4096
LOG = logging.getLogger("fedpick")
ROUNDING = 1e-3  # of a sum of weights: thousands of seats in float32
COPIES = 4  # of the logits in a metric, about: they are sorted, and compared with every class


def check_options(
    rounds: Any, every: Any, until: Any, watch: Any, checkpoint: Any, own: Sequence[NamedMetric] = (), **flags: Any
) -> int:
    """Check the options of `simulate`; the number of rounds between evaluations."""
    require("simulate", "rounds", rounds, "at least 1", lambda n: n >= 1, whole=True)
    if checkpoint is not None:
        check_path("simulate", "checkpoint", checkpoint)
    for name, value in flags.items():
        flag("simulate", name, value)
    every = max(1, rounds // 50) if every is None else every
    require("simulate", "every", every, "at least 1", lambda n: n >= 1, whole=True)
    names = (*METRICS, *(metric.name for metric in own))
    if until is not None:
        pair = isinstance(until, tuple) and len(until) == 2
        if not (pair and until[0] in names and is_number(until[1]) and not np.isnan(until[1])):
            raise ValueError(
                f"simulate: until must be a pair of one of {', '.join(names)} and a number, got {shown(until)}"
            )
        check_direction("simulate", until[0], own)
        check_part("simulate", "until", *until)
    if watch is not None and not callable(watch):
        raise ValueError(f"simulate: watch must be something to call with a Result, got {shown(watch)}")
    return int(every)


def check_direction(owner: str, target: str, own: Sequence[NamedMetric]) -> None:
    """Raise where the metric of a target is one of the user's that does not say whether higher is better.

    Args:
        owner: What the error begins with.
        target: The metric of the target.
        own: The metrics that were asked for.
    """
    for metric in own:
        if metric.name == target and metric.higher is None:
            rule = "must say whether higher is better to be a target (its attribute higher_is_better)"
            raise ValueError(f"{owner}: metric {target} {rule}, and does not")


def check_metrics(own: Sequence[NamedMetric], federation: Federation, model: Model, *, owner: str) -> None:
    """Raise where metrics cannot be measured: no test set, no logits, too many of them, or no single number.

    Args:
        own: The metrics that were asked for.
        federation: The data.
        model: The model.
        owner: What the error begins with.
    """
    if not own:
        return
    listed = ", ".join(metric.name for metric in own)
    sizes = sizes_of_test_sets(federation)
    order = federation.test_y if federation.test_order is None else federation.test_order
    samples = int(order.shape[-1]) if sizes is None else int(sizes.min())
    if samples == 0:
        raise ValueError(f"{owner}: metrics ({listed}) need a test set; {federation.name} has none{NO_TEST_SET}")
    if model.apply is None:
        rule = f"metrics ({listed}) need a classifier: a model of from_apply, or one with logits"
        raise ValueError(f"{owner}: {rule}, got none")
    two = np.arange(min(2, samples), dtype=np.int32)
    x = jax.eval_shape(lambda: federation.prepare(federation.test_x[two]))
    params = jax.eval_shape(lambda: model.init(init_key(0)))
    shape = jax.eval_shape(model.logits, params, x).shape
    if len(shape) != 2:
        raise ValueError(f"{owner}: logits of the model must be of shape (n, classes), got {shape}")
    at_once = 1 if jax.default_backend() != "cpu" else usable_cores()
    most = int(order.shape[-1])
    check_memory(owner, f"the logits of {most:,} test samples", at_once * COPIES * 4 * most * shape[1])
    logits: Any = jax.ShapeDtypeStruct((samples, shape[1]), jnp.float32)  # type: ignore[no-untyped-call]
    labels: Any = jax.ShapeDtypeStruct((samples,), jnp.int32)  # type: ignore[no-untyped-call]
    for metric in own:
        try:
            found = jax.eval_shape(lambda x, y, metric=metric: jnp.asarray(metric.function(x, y)), logits, labels)
        except Exception as error:  # whatever a function of the user's raises
            what = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
            rule = "must be a JAX function of the logits [n, classes] and the labels [n]"
            raise ValueError(f"{owner}: metric {metric.name} {rule}, got {what}") from None
        if found.shape or found.dtype.kind not in "fiub":
            rule = "must give one number"
            raise ValueError(f"{owner}: metric {metric.name} {rule}, got shape {found.shape} of {found.dtype}")


def resolve(data: Any, model: Any) -> tuple[Federation, Model]:
    """The federation and the model, built where they are descriptions."""
    if isinstance(data, str):
        raise ValueError(f"simulate: federation must be one, such as Arrays({data!r}), got {shown(data)}")
    if isinstance(data, Sequence):
        if not data:
            raise ValueError("simulate: federation must be one, or one for each seed, got an empty list")
        data = federations_of(data)
    federation = make_federation(data) if not isinstance(data, type) and hasattr(data, "federation") else data
    if isinstance(federation, Federation) and not isinstance(model, type) and hasattr(model, "build"):
        return federation, model.build(federation)
    return federation, model


def check_kinds(
    federation: Any, model: Any, selector: Any, local: Any, server: Any, availability: Any, *more: Any
) -> None:
    """Check the types of the arguments, and the shapes and dtypes that the model gives."""
    failures, devices, liars = more
    expected = {
        "federation": (federation, Federation),
        "model": (model, Model),
        "local": (local, Local),
        "server": (server, Server),
        "failures": (failures, Failures),
        "devices": (devices, Devices),
        "liars": (liars, Liars),
    }
    for name, (value, kind) in expected.items():
        if not isinstance(value, kind):
            other = "; from_apply makes one of Flax and others, and PyTorch's run on Flower" if name == "model" else ""
            raise ValueError(f"simulate: {name} must be a {kind.__name__}{other}, got {shown(value)}")
    check_strategy("simulate", selector)
    if isinstance(availability, type) or not callable(availability):
        raise ValueError(f"simulate: availability must be one, such as Always(), got {shown(availability)}")
    if jax.tree_util.all_leaves([availability]):
        rule = "registered as a pytree: write it as a class and decorate that with fedpick.pytree"
        raise ValueError(f"simulate: availability must be {rule}, got {shown(availability)}")
    check_fields(availability)
    check_shapes(federation, model, owner="simulate")
    if is_own(model.init):
        trace_again("model.init", ValueError, model.init, round_keys(0, 0).world)


def check_schedule(local: Local, rounds: int) -> None:
    """Raise where a schedule of the user's own gives no learning rate for a round, or is no pure function.

    Args:
        local: Local training, of which a number of the schedule may be an array of values.
        rounds: The number of rounds.
    """
    schedule = jax.tree.map(lambda leaf: leaf[0] if np.ndim(leaf) else leaf, local.schedule)
    if is_own(schedule):
        found = trace_again("Local.schedule", ValueError, schedule, jnp.int32(0))
        if getattr(found, "shape", None) != ():
            raise ValueError(f"Local.schedule must give one number, got {form_of(found)}")
        values = np.asarray(jax.jit(jax.vmap(schedule))(jnp.arange(rounds, dtype=jnp.int32)))
        if len(bad := np.flatnonzero(~(np.isfinite(values) & (values >= 0)))):
            rule = "must give a finite number, at least 0, for every round"
            raise ValueError(f"Local.schedule {rule}, got {values[bad[0]]:g} for round {bad[0]}")


def check_room(federation: Federation, model: Model, seats: int, *, runs: int, rounds: int, every: int) -> int:
    """Raise where the models of all runs, or the tables of all rounds, are more than memory; the bytes of a model.

    Args:
        federation: The clients.
        model: The model.
        seats: Clients per round.
        runs: The number of runs.
        rounds: The number of rounds.
        every: Rounds between evaluations.

    >>> from fedpick.sim import Quadratic, QuadraticModel
    >>> federation = Quadratic(K=3, v=2).federation()
    >>> check_room(federation, QuadraticModel().build(federation), 2, runs=1, rounds=10, every=1)
    8
    """
    K, evaluations = federation.num_clients, -(-rounds // every) + 1
    size = tree_bytes(jax.eval_shape(lambda: model.init(init_key(0))))
    check_memory("simulate", f"the models of {runs:,} runs", runs * size)
    rows = 4 * runs * (rounds * (3 * seats + len(Record._fields)) + evaluations * 2 * K)
    check_memory("simulate", f"the records of {rounds:,} rounds in {runs:,} runs", rows)
    return size


def check_first_losses(client_loss: Any, names: Sequence[str]) -> None:
    """Raise where an initial loss [R, K] of clients, which may have names, is not finite: the model does not fit."""
    bad = np.flatnonzero(~np.isfinite(client_loss).all(axis=0))
    if len(bad):
        why = "does the model have an output for every label?"
        rule = "the loss of every client must be finite before round 0"
        who = names[bad[0]] if names else f"client {bad[0]}"
        raise ValueError(f"simulate: {rule}, got NaN for {len(bad)} of {client_loss.shape[1]}, such as {who}; {why}")


def warn_of_small_clients(federation: Federation, local: Local) -> None:
    """Warn where b is more than some clients hold."""
    count = np.asarray(federation.count)
    small = int((count < local.b).sum())
    if small and local.batches == "distinct" and local.b > 1:
        which = f"{small} of {count.size} clients"
        warnings.warn(f"simulate: b={local.b} is more than {which} hold; they use all they have", stacklevel=3)


def warn_of_long_rests(selector: Any, K: int, rounds: int) -> None:
    """Warn where a ``Cooldown`` leaves so few of K clients that losses decide little or nothing."""
    said = too_few_rested(selector, K, rounds - 1)
    if said is not None:
        warnings.warn(f"simulate: {said}", stacklevel=3)


def cut_batches(local: Local, largest: int) -> Local:
    """The same training with a smaller b, where b is far beyond what any client holds: whoever has less uses all of it.

    Slots that are always empty cost time, b squared of it. What b is cut to does not depend on the data as long as
    clients are small, so that a run is the same among runs on other data.

    Args:
        local: Local training.
        largest: The number of samples of the largest client.

    >>> cut_batches(Local(tau=2, b=10**6, eta=0.1), largest=50).b
    4096
    """
    most = max(LARGE_BATCH, 1 << (largest - 1).bit_length())
    if local.batches == "replace" or local.b <= most:
        return local
    return dataclasses.replace(local, b=most)


def check_seats(selector: Any, records: Record, first: int = 0) -> None:
    """Raise where, from a round on, a strategy chose who was away or no candidate, or weights not of sum 1."""
    for t in first + np.flatnonzero((records.clients[:, first:] == UNLAWFUL).any(axis=(0, 2)))[:1]:
        rule = "must ask and choose available clients alone, and give seats to candidates"
        known = f"got one who was away, is no candidate or does not exist in round {t}; check_selector says more"
        raise ValueError(f"simulate: {owner_name(selector)} {rule}, {known}")
    for t in first + np.flatnonzero((records.clients[:, first:] == UNWEIGHTED).any(axis=(0, 2)))[:1]:
        raise ValueError(f"simulate: {owner_name(selector)}.select must give {WEIGHTS}, got others in round {t}")
    if getattr(selector, "weights_sum_to_1", True):
        # The weight of a seat that fails goes to the others, and the sum is 0 where nobody returns.
        sums = records.weights[:, first:].sum(axis=2, dtype=np.float64)
        for run, t in np.argwhere((sums != 0) & (np.abs(sums - 1) > ROUNDING))[:1]:
            rule = "must give weights that sum to 1, or declare weights_sum_to_1 = False"
            raise ValueError(f"simulate: {owner_name(selector)} {rule}, got {sums[run, t]:.6g} in round {first + t}")


def warn_of_few_available(selector: Any, records: Record) -> None:
    """Warn where d was more than the number of available clients, the d of a strategy inside a wrapper too.

    Args:
        selector: The strategy; of a sweep over d, with the d of each run.
        records: What happened in the rounds.
    """
    inner = getattr(selector, "selector", None)
    if inner is not None:
        warn_of_few_available(inner, records)
    d = known(getattr(selector, "d", None))
    if d is None or not records.available.size:
        return
    each = np.broadcast_to(d, len(records.available))
    for value in np.unique(each):
        few = records.available[each == value] < value
        if few.any():
            what = f"fewer clients were available than d={value} in {few.mean():.0%} of the rounds"
            warnings.warn(f"simulate: {what}; all of them were candidates then", stacklevel=3)


def warn_of_idle_runs(result: Result) -> None:
    """Log where nobody trained in any round of a run."""
    for why, number in idle_runs(result).items():
        who = f"{number} of {counted(len(result.runs), 'run')}"
        LOG.warning("simulate: %s", idle_sentence(why, who))


def is_number(value: Any) -> bool:
    """Whether it is a plain number (True and False are not)."""
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)
