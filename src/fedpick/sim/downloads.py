"""The official files of Fashion-MNIST: found, downloaded within bounds, and verified by size and SHA-256."""

import gzip
import hashlib
import http.client
import os
import time
import urllib.request
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import platformdirs

from fedpick.metrics import Numbers
from fedpick.storage import atomic_file
from fedpick.text import brief

MIRROR = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion"
SILENCE, LONGEST = 60.0, 1800.0  # seconds without a byte, and for a whole file
BLOCK = 1 << 16


class Published(NamedTuple):
    """What a file is known by."""

    size: int
    sha256: str


FILES = {
    "train-images-idx3-ubyte.gz": Published(
        26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"
    ),
    "train-labels-idx1-ubyte.gz": Published(29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
    "t10k-images-idx3-ubyte.gz": Published(
        4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"
    ),
    "t10k-labels-idx1-ubyte.gz": Published(5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
}


def find_fashion_mnist(data: str | Path | None = None, mirror: str = MIRROR) -> Path:
    """The folder with the four official files, downloaded first where there is none.

    Args:
        data: The folder, or its parent; by default the variable FEDPICK_DATA, then the user's cache.
        mirror: Where to download from.
    """
    given = data if data is not None else os.environ.get("FEDPICK_DATA")
    if given is not None:
        for folder in (Path(given), Path(given) / "fashion-mnist"):
            if all((folder / name).is_file() for name in FILES):
                return folder
        source = "data" if data is not None else "FEDPICK_DATA"
        raise FileNotFoundError(f"FashionMNIST: {source} must be a folder with {', '.join(FILES)}, got {str(given)!r}")
    return fetch_fashion_mnist(mirror=mirror)


def fetch_fashion_mnist(data: str | Path | None = None, mirror: str = MIRROR) -> Path:
    """Download those of the four official files that are not yet in the folder fashion-mnist.

    Args:
        data: Parent of the folder; by default the variable FEDPICK_DATA, then the user's cache.
        mirror: Where to download from.
    """
    given = data or os.environ.get("FEDPICK_DATA") or platformdirs.user_cache_path("fedpick")
    folder = Path(given) / "fashion-mnist"
    for name, published in FILES.items():
        if not (folder / name).is_file():
            download(f"{mirror}/{name}", folder / name, published)
    return folder


def verify_fashion_mnist(folder: Path) -> list[Path]:
    """The four files, each as it was published; an error where one is not."""
    paths = [folder / name for name in FILES]
    for path in paths:
        read_idx(path)
    return paths


def download(url: str, path: Path, published: Published) -> None:
    """Download a file, a block at a time; nothing is kept of one that is not as it was published.

    Args:
        url: Where it is.
        path: Where it goes.
        published: Its size, which is read at most, and its sum.
    """
    size, digest = 0, hashlib.sha256()
    try:
        with atomic_file(path, owner="FashionMNIST") as file:
            for block in _blocks(url, published.size):
                size += len(block)
                digest.update(block)
                file.write(block)
            if Published(size, digest.hexdigest()) != published:
                rule = f"must have {published.size:,} bytes and SHA-256 {published.sha256}"
                raise ValueError(f"FashionMNIST: {url} {rule}, got other content; nothing was kept")
    except _BrokenOffError as error:
        raise ConnectionError(
            f"FashionMNIST: could not download {url} ({error}); put the official files into a folder and name it with"
            " the option data or the variable FEDPICK_DATA"
        ) from None


class _BrokenOffError(Exception):
    """What was sent did not come to its end; no OSError, which is the disk's."""


def _blocks(url: str, most: int) -> Iterator[bytes]:
    """What a server sends, up to a block more than so many bytes, in a bounded time."""
    began, size = time.monotonic(), 0
    try:
        with urllib.request.urlopen(url, timeout=SILENCE) as answer:
            while size <= most and (block := answer.read(BLOCK)):
                size += len(block)
                if time.monotonic() - began > LONGEST:
                    raise TimeoutError(f"{size:,} bytes came in {LONGEST:.0f} s")
                yield block
    except (OSError, http.client.HTTPException) as error:  # urllib's are OSErrors, too
        raise _BrokenOffError(str(error) or type(error).__name__) from None


def read_idx(path: Path) -> Numbers:
    """The array in an idx file of bytes, after its sum was verified."""
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != FILES[path.name].sha256:
        rule = f"must have SHA-256 {FILES[path.name].sha256}"
        raise ValueError(f"FashionMNIST: {path.name} {rule}, got another: it is truncated or altered")
    return parse_idx(content, path.name)


def parse_idx(content: bytes, name: str) -> Numbers:
    """The array of bytes in a compressed idx file.

    Args:
        content: The file.
        name: Its name, for error messages.
    """
    try:
        plain = gzip.decompress(content)
        shape = np.frombuffer(plain, ">i4", count=plain[3], offset=4)
        return np.frombuffer(plain, np.uint8, offset=4 + 4 * plain[3]).reshape(shape)
    except (OSError, EOFError, ValueError, IndexError, zlib.error) as error:
        raise ValueError(f"FashionMNIST: {name} must be a compressed idx file, got an error: {brief(error)}") from None
