"""The images, who holds which of them, and the network."""

import functools
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found]
from torch.utils.data import DataLoader, TensorDataset  # type: ignore[import-not-found]


def network(inputs: int) -> Any:
    """The paper's multi-layer perceptron."""
    layers = torch.nn
    return layers.Sequential(
        layers.Flatten(), layers.Linear(inputs, 64), layers.ReLU(), layers.Linear(64, 30), layers.ReLU(),
        layers.Linear(30, 10),
    )  # fmt: skip


@functools.cache
def images(data: str) -> tuple[Any, Any, Any, Any]:
    """Training images and labels, test images and labels."""
    if data != "digits":
        parts = [_read(Path(data), part, kind) for part in ("train", "t10k") for kind in ("images", "labels")]
        return parts[0], parts[1], parts[2], parts[3]
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    x, y = load_digits(return_X_y=True)
    x, order = (x / 8 - 1).astype(np.float32), np.random.default_rng(0).permutation(len(y))
    test, train = np.split(order, [len(y) // 5])
    return x[train], y[train], x[test], y[test]


def _read(folder: Path, part: str, kind: str) -> Any:
    size = 3 if kind == "images" else 1
    with gzip.open(folder / f"{part}-{kind}-idx{size}-ubyte.gz") as file:
        content = np.frombuffer(file.read(), np.uint8, offset=16 if kind == "images" else 8)
    return (content.reshape(-1, 784) / 127.5 - 1).astype(np.float32) if kind == "images" else content.astype(np.int64)


def loader(data: str, client: int, clients: int, alpha: float, batch: int) -> Any:
    """The mini-batches of one client: of each label it holds a part that Dirichlet(alpha) decides."""
    x, y, _, _ = images(data)
    rng = np.random.default_rng(0)
    own = []
    for label in range(10):
        places = np.flatnonzero(y == label)
        parts = np.split(places, (np.cumsum(rng.dirichlet([alpha] * clients))[:-1] * len(places)).astype(int))
        own.append(parts[client])
    mine = np.concatenate([*own, [client]])  # nobody is left without a sample
    tensors = TensorDataset(torch.as_tensor(x[mine]), torch.as_tensor(y[mine]))
    return DataLoader(tensors, batch_size=batch, shuffle=True)
