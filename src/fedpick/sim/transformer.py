"""A transformer of sequences of codes whose base is frozen and whose adapters are trained."""

import functools
import zipfile
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, PRNGKeyArray

from fedpick.metrics import Numbers
from fedpick.sim.federation import Federation
from fedpick.sim.layers import classes_of, uniform_layer
from fedpick.sim.models import Model, Objective, Params, from_apply
from fedpick.sim.sequences import one_hot, sequence_length
from fedpick.storage import file_sha256
from fedpick.validation import one_of, require

BLOCK = ("query", "key", "value", "out", "up", "up_shift", "down", "down_shift", "scale1", "shift1", "scale2", "shift2")


@dataclass(frozen=True)
class Transformer:
    """A transformer whose weights are frozen, with trained adapters (LoRA, Hu et al. 2022) and a trained last layer.

    To the query and value matrices W of each block a product A B of rank ``rank`` is added. A starts random and B at
    zero, so that training starts from the base. Only A, B and the last layer, which reads the mean over the sequence,
    are parameters: they are what is trained, sent and counted as traffic. The base is one copy for all clients and
    runs. Samples are sequences of codes, as of ``CharLSTM``.

    Args:
        width: Numbers that stand for a code.
        layers: Blocks of attention and a dense network of four times the width.
        rank: Rank of the adapters.
        heads: Heads of the attention; divides the width.
        vocabulary: Number of codes; a code beyond them counts as none.
        alpha: The adapters' part is multiplied by alpha / rank; by default alpha is the rank.
        base: An ``.npz`` with the frozen weights, as ``transformer_base`` names them; by default they are random.
        seed: What random frozen weights are drawn by.
        objective: "cross-entropy", or "minus-probability" as the paper's code.

    >>> Transformer(width=64, rank=4).heads
    4
    """

    width: int = 128
    layers: int = 2
    rank: int = 8
    _: KW_ONLY
    heads: int = 4
    vocabulary: int = 256
    alpha: float | None = None
    base: str | None = None
    seed: int = 0
    objective: Objective = "cross-entropy"

    def __post_init__(self) -> None:
        for name in ("width", "layers", "rank", "heads", "vocabulary"):
            require(self, name, getattr(self, name), "at least 1", lambda n: n >= 1, whole=True)
        require(self, "heads", self.heads, f"a divisor of width={self.width}", lambda n: self.width % n == 0)
        one_of(self, "objective", self.objective, get_args(Objective))

    @property
    def sha256(self) -> str | None:
        """What the file of the base holds, as a sum: another file of this name is another experiment."""
        return None if self.base is None else file_sha256(self._file())

    def _file(self) -> Path:
        assert self.base is not None
        if not zipfile.is_zipfile(self.base):
            raise ValueError(f"Transformer: base must be an .npz that numpy.savez wrote, got {self.base!r}")
        return Path(self.base)

    def build(self, federation: Federation) -> Model:
        shape = (self.vocabulary, sequence_length(self, federation, self.vocabulary), self.width, self.layers)
        scale = (self.rank if self.alpha is None else self.alpha) / self.rank
        classes = classes_of(self, federation)
        model = _adapted(self.layers, self.width, self.rank, self.heads, scale, classes, self.objective)
        if self.base is None:
            base = _random_base(*shape, self.seed)
        else:
            base = _stored_base(self.base, self._file().stat().st_mtime_ns, *shape)
        losses, predict = model.functions
        return Model(model.init, losses, predict, model.lowest, base=base, logits=model.apply)


def transformer_base(vocabulary: int, length: int, width: int, *, layers: int, seed: int = 0) -> dict[str, Numbers]:
    """Random frozen weights of a ``Transformer`` by name, as an ``.npz`` of your own has them.

    "code" [vocabulary, width] and "place" [length, width] are the embeddings. Block i has "i.query", "i.key",
    "i.value", "i.out" [width, width], "i.up" [width, 4 width], "i.up_shift", "i.down" [4 width, width], "i.down_shift",
    and the layer normalisations before attention and network, "i.scale1", "i.shift1", "i.scale2", "i.shift2"; "scale"
    and "shift" are of the last one.

    Args:
        vocabulary: Number of codes.
        length: Codes in a sequence.
        width: Numbers that stand for a code.
        layers: Blocks.
        seed: What they are drawn by.

    >>> transformer_base(10, 5, 4, layers=1)["0.up"].shape
    (4, 16)
    """
    rng = np.random.default_rng(seed)

    def normal(*shape: int, spread: float) -> Any:
        return (spread * rng.standard_normal(shape)).astype(np.float32)

    ones, zeros = np.ones(width, np.float32), np.zeros(width, np.float32)
    base = {"code": normal(vocabulary, width, spread=1.0), "place": normal(length, width, spread=0.1)}
    for layer in range(layers):
        for name in ("query", "key", "value", "out"):
            base[f"{layer}.{name}"] = normal(width, width, spread=width**-0.5)
        base[f"{layer}.up"] = normal(width, 4 * width, spread=width**-0.5)
        base[f"{layer}.down"] = normal(4 * width, width, spread=(4 * width) ** -0.5)
        base |= {f"{layer}.up_shift": np.zeros(4 * width, np.float32), f"{layer}.down_shift": zeros}
        base |= {f"{layer}.{name}": ones for name in ("scale1", "scale2")}
        base |= {f"{layer}.{name}": zeros for name in ("shift1", "shift2")}
    return base | {"scale": ones, "shift": zeros}


@functools.lru_cache(maxsize=4)  # one copy for all experiments of a process
def _random_base(vocabulary: int, length: int, width: int, layers: int, seed: int) -> dict[str, Array]:
    made = transformer_base(vocabulary, length, width, layers=layers, seed=seed)
    return {name: jnp.asarray(array) for name, array in made.items()}


@functools.lru_cache(maxsize=4)
def _stored_base(path: str, changed: int, vocabulary: int, length: int, width: int, layers: int) -> dict[str, Array]:
    expected = {name: array.shape for name, array in transformer_base(vocabulary, length, width, layers=layers).items()}
    with np.load(path, allow_pickle=False) as file:
        found = {name: file[name] for name in file.files}
    for name, shape in expected.items():
        if name not in found or found[name].shape != shape or found[name].dtype.kind != "f":
            what = f"{found[name].dtype} of shape {found[name].shape}" if name in found else "none"
            raise ValueError(f"Transformer: base must hold {name!r}, numbers of shape {shape}, got {what} in {path!r}")
    return {name: jnp.asarray(found[name], jnp.float32) for name in expected}


@functools.cache
def _adapted(layers: int, width: int, rank: int, heads: int, scale: float, classes: int, objective: Objective) -> Model:
    def init(key: PRNGKeyArray) -> Params:
        last, *own = jax.random.split(key, 1 + 2 * layers)
        spread = jnp.float32(width**-0.5)
        pairs = [
            {
                "A": spread * jax.random.normal(own_key, (width, rank), jnp.float32),
                "B": jnp.zeros((rank, width), jnp.float32),
            }
            for own_key in own
        ]
        blocks = [{"query": query, "value": value} for query, value in zip(pairs[::2], pairs[1::2], strict=True)]
        return {"blocks": blocks, "last": uniform_layer(last, (width, classes))}

    def apply(params: Params, x: Array, key: PRNGKeyArray | None, base: dict[str, Array]) -> Array:
        n, length = x.shape
        states = (one_hot(x, base["code"].shape[0]) @ base["code"] + base["place"][None]).reshape(-1, width)
        for layer, own in enumerate(params["blocks"]):
            frozen = {name: base[f"{layer}.{name}"] for name in BLOCK}
            inner = _normal(states, frozen["scale1"], frozen["shift1"])
            query, value = (
                inner @ frozen[name] + jnp.float32(scale) * ((inner @ own[name]["A"]) @ own[name]["B"])
                for name in ("query", "value")
            )
            parts = [part.reshape(n, length, heads, -1) for part in (query, inner @ frozen["key"], value)]
            states = states + _attention(*parts).reshape(-1, width) @ frozen["out"]
            inner = _normal(states, frozen["scale2"], frozen["shift2"])
            inner = jax.nn.gelu(inner @ frozen["up"] + frozen["up_shift"][None, :])
            states = states + inner @ frozen["down"] + frozen["down_shift"][None, :]
        mean = _normal(states, base["scale"], base["shift"]).reshape(n, length, width).mean(axis=1)
        logits: Array = mean @ params["last"]["w"] + params["last"]["b"][None, :]
        return logits

    return from_apply(init, apply, objective)


def _attention(query: Array, key: Array, value: Array) -> Array:
    """Every place of a sequence attends to every place: [n, length, heads, width of a head]."""
    scores = jnp.einsum("nqhd,nkhd->nhqk", query, key) * jnp.float32(query.shape[-1] ** -0.5)
    return jnp.einsum("nhqk,nkhd->nqhd", jax.nn.softmax(scores), value)


def _normal(x: Array, scale: Array, shift: Array) -> Array:
    off = x - x.mean(axis=1, keepdims=True)
    variance = (off * off).mean(axis=1, keepdims=True)
    return off * lax.rsqrt(variance + jnp.float32(1e-5)) * scale[None, :] + shift[None, :]
