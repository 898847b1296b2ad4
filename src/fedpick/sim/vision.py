"""Models of images: the convolutional network of federated averaging, and a small residual network."""

import functools
import itertools
import math
from dataclasses import KW_ONLY, dataclass
from typing import get_args

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, PRNGKeyArray

from fedpick.sim.federation import Federation
from fedpick.sim.layers import classes_of, flat, uniform_layer
from fedpick.sim.models import Model, Objective, Params, from_apply
from fedpick.text import shown
from fedpick.validation import one_of, owner_name, require


@dataclass(frozen=True)
class CNN:
    """The convolutional network of McMahan et al. 2017: 5x5 convolutions of 32 and 64 channels, 512 units, ReLU.

    Each convolution keeps the size of the image and is followed by a 2x2 max pool. Weights and biases start uniform on
    +-1/sqrt(fan-in). The data are images of shape (height, width) or (height, width, channels), or flat squares.

    Args:
        channels: Channels of the convolutions.
        kernel: Side of their kernels, an odd number.
        hidden: Units of the dense layer.
        objective: "cross-entropy", or "minus-probability" as the paper's code.

    >>> CNN(channels=(8, 16)).hidden
    512
    """

    channels: tuple[int, ...] = (32, 64)
    kernel: int = 5
    hidden: int = 512
    _: KW_ONLY
    objective: Objective = "cross-entropy"

    def __post_init__(self) -> None:
        _check_widths(self, self.channels)
        for width in self.channels:
            require(self, "channels", width, "at least 1", lambda n: n >= 1, whole=True)
        require(self, "kernel", self.kernel, "an odd number", lambda n: (n >= 1) & (n % 2 == 1), whole=True)
        require(self, "hidden", self.hidden, "at least 1", lambda n: n >= 1, whole=True)
        one_of(self, "objective", self.objective, get_args(Objective))

    def build(self, federation: Federation) -> Model:
        image = image_shape(self, federation, 2 ** len(self.channels))
        return _cnn(image, self.channels, self.kernel, self.hidden, classes_of(self, federation), self.objective)


@dataclass(frozen=True)
class ResNet:
    """A small residual network (He et al. 2016) with group normalisation, which unlike that of batches is no state.

    A 3x3 convolution, then for each of ``channels`` so many blocks of two 3x3 convolutions; from one width to the next
    the image is halved. With three widths and 3 blocks each it is the ResNet-20 of CIFAR-10; 1 gives a ResNet-8.

    Args:
        channels: The widths.
        blocks: Blocks of each width.
        groups: Groups of channels that are normalised together; divides every width.
        objective: "cross-entropy", or "minus-probability" as the paper's code.

    >>> ResNet().channels
    (16, 32, 64)
    """

    channels: tuple[int, ...] = (16, 32, 64)
    blocks: int = 1
    groups: int = 8
    _: KW_ONLY
    objective: Objective = "cross-entropy"

    def __post_init__(self) -> None:
        require(self, "blocks", self.blocks, "at least 1", lambda n: n >= 1, whole=True)
        require(self, "groups", self.groups, "at least 1", lambda n: n >= 1, whole=True)
        _check_widths(self, self.channels)
        for width in self.channels:
            rule = f"multiples of groups={self.groups}"
            require(self, "channels", width, rule, lambda n: (n >= 1) & (n % self.groups == 0), whole=True)
        one_of(self, "objective", self.objective, get_args(Objective))

    def build(self, federation: Federation) -> Model:
        image = image_shape(self, federation, 2 ** (len(self.channels) - 1))
        return _resnet(image, self.channels, self.blocks, self.groups, classes_of(self, federation), self.objective)


def _check_widths(owner: object, channels: object) -> None:
    if not isinstance(channels, tuple):
        raise ValueError(f"{owner_name(owner)}: channels must be a tuple of widths, got {shown(channels)}")


def image_shape(owner: object, federation: Federation, least: int) -> tuple[int, int, int]:
    """Height, width and channels of the images of a federation; neither side below ``least``."""
    shape = federation.x.shape[1:]
    side = math.isqrt(shape[0]) if len(shape) == 1 else 0
    if side and side**2 == shape[0]:
        shape = (side, side)
    if len(shape) == 3 and shape[0] in (1, 3) and shape[1] == shape[2] and shape[2] not in (1, 3):
        found = f"{shape}, which look like channels first: np.moveaxis(x, 1, -1) puts them last"
        raise ValueError(f"{owner_name(owner)}: data must be images (height, width, channels), got samples of {found}")
    if len(shape) not in (2, 3) or min(shape[:2]) < least:
        rule = (
            f"images (height, width) or (height, width, channels), or flat squares, of at least {least} pixels a side"
        )
        raise ValueError(f"{owner_name(owner)}: data must be {rule}, got samples of shape {federation.x.shape[1:]}")
    height, width, channels = (*shape, 1)[:3]
    return height, width, channels


def convolution(x: Array, w: Array, stride: int = 1) -> Array:
    """A convolution of images [n, height, width, channels] that keeps their size, or divides it by the stride."""
    return lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def max_pool(x: Array) -> Array:
    """The maxima of 2x2 squares; an odd last row or column is left out."""
    n, height, width, channels = x.shape
    x = x[:, : height // 2 * 2, : width // 2 * 2]
    return x.reshape(n, height // 2, 2, width // 2, 2, channels).max(axis=(2, 4))


def group_norm(x: Array, scale: Array, shift: Array, groups: int) -> Array:
    """Wu and He 2018: mean 0 and variance 1 over each group of channels of an image."""
    n, height, width, channels = x.shape
    grouped = x.reshape(n, height * width, groups, channels // groups)
    mean = grouped.mean(axis=(1, 3), keepdims=True)
    off = grouped - mean
    variance = (off * off).mean(axis=(1, 3), keepdims=True)
    normal = (off * lax.rsqrt(variance + jnp.float32(1e-5))).reshape(x.shape)
    return normal * scale[None, None, None, :] + shift[None, None, None, :]


@functools.cache
def _cnn(
    image: tuple[int, int, int], channels: tuple[int, ...], kernel: int, hidden: int, classes: int, objective: Objective
) -> Model:
    height, width, first = image
    pools = 2 ** len(channels)
    units = (height // pools) * (width // pools) * (channels[-1] if channels else first)

    def init(key: PRNGKeyArray) -> Params:
        before = (first, *channels)
        shapes: list[tuple[int, ...]] = [(kernel, kernel, *pair) for pair in itertools.pairwise(before)]
        shapes += [(units, hidden), (hidden, classes)]
        return [uniform_layer(jax.random.fold_in(key, layer), shape) for layer, shape in enumerate(shapes)]

    def apply(params: Params, x: Array, key: PRNGKeyArray | None) -> Array:
        x = x.reshape(-1, *image)
        *convolutions, dense, last = params
        for layer in convolutions:
            x = max_pool(jax.nn.relu(convolution(x, layer["w"]) + layer["b"][None, None, None, :]))
        x = jax.nn.relu(flat(x) @ dense["w"] + dense["b"][None, :])
        logits: Array = x @ last["w"] + last["b"][None, :]
        return logits

    return from_apply(init, apply, objective)


@functools.cache
def _resnet(
    image: tuple[int, int, int], channels: tuple[int, ...], blocks: int, groups: int, classes: int, objective: Objective
) -> Model:
    def block_shapes() -> list[tuple[int, int, int]]:
        """Channels in and out and the stride of each block."""
        before, shapes = channels[0], []
        for stage, width in enumerate(channels):
            for block in range(blocks):
                shapes.append((before, width, 2 if stage and block == 0 else 1))
                before = width
        return shapes

    def normalised(key: PRNGKeyArray, kernel: int, before: int, width: int) -> Params:
        spread = jnp.float32(math.sqrt(2 / (kernel**2 * before)))
        w = spread * jax.random.normal(key, (kernel, kernel, before, width), jnp.float32)
        return {"w": w, "scale": jnp.ones(width, jnp.float32), "shift": jnp.zeros(width, jnp.float32)}

    def init(key: PRNGKeyArray) -> Params:
        first, last, *others = jax.random.split(key, 2 + len(block_shapes()))
        found = []
        for own, (before, width, stride) in zip(others, block_shapes(), strict=True):
            one, two, three = jax.random.split(own, 3)
            block = {"one": normalised(one, 3, before, width), "two": normalised(two, 3, width, width)}
            found.append(block if stride == 1 else {**block, "short": normalised(three, 1, before, width)})
        head = uniform_layer(last, (channels[-1], classes))
        return {"first": normalised(first, 3, image[2], channels[0]), "blocks": found, "last": head}

    def layer(x: Array, own: Params, stride: int = 1) -> Array:
        return group_norm(convolution(x, own["w"], stride), own["scale"], own["shift"], groups)

    def apply(params: Params, x: Array, key: PRNGKeyArray | None) -> Array:
        x = jax.nn.relu(layer(x.reshape(-1, *image), params["first"]))
        for own, (_, _, stride) in zip(params["blocks"], block_shapes(), strict=True):
            inner = layer(jax.nn.relu(layer(x, own["one"], stride)), own["two"])
            x = jax.nn.relu(inner + (layer(x, own["short"], stride) if stride > 1 else x))
        logits: Array = x.mean(axis=(1, 2)) @ params["last"]["w"] + params["last"]["b"][None, :]
        return logits

    return from_apply(init, apply, objective)
