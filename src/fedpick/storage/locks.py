"""The lock of a folder: the operating system's, which frees it when the process ends, however it ends."""

import contextlib
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import filelock

LOG = logging.getLogger("fedpick")
HELD: Counter[Path] = Counter()  # the folders of which this process has the lock


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Remember that this process has the lock of the folder."""
    HELD[folder.resolve()] += 1
    try:
        yield
    finally:
        HELD[folder.resolve()] -= 1


@contextlib.contextmanager
def lockable(path: Path) -> Iterator[None]:
    """An error that names the file where the system does not let us lock it: a read-only folder, a full disk."""
    try:
        yield
    except filelock.Timeout:  # an OSError, too
        raise
    except OSError as error:
        raise OSError(f"store: {str(path)!r} cannot be locked ({error.strerror or error})") from None


@contextlib.contextmanager
def acquired(path: Path, folder: Path) -> Iterator[None]:
    """The lock of this file, in this store; where another process has it, wait, and say so.

    Args:
        path: The file.
        folder: The store, for what is said.
    """
    lock = filelock.FileLock(path)
    with lockable(path):
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            LOG.warning("another fedpick is at work in %s; waiting until it ends", folder)
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def occupied(folder: Path, *, owner: str, wait: float) -> contextlib.ExitStack:
    """The lock of the folder, until what this returns is closed; an error where another process keeps it."""
    stack, lock = contextlib.ExitStack(), filelock.FileLock(folder / "lock")
    try:
        with lockable(folder / "lock"):
            stack.enter_context(lock.acquire(timeout=wait))
    except filelock.Timeout:
        raise ValueError(f"{owner}: folder {str(folder)!r} must not be in use by another process") from None
    stack.enter_context(held(folder))
    return stack


@contextlib.contextmanager
def lock_is_ours(folder: Path) -> Iterator[bool]:
    """Whether no other process is at work in the folder, within this context."""
    if HELD[folder.resolve()] > 0:
        yield True
        return
    lock = filelock.FileLock(folder / "lock")
    with contextlib.suppress(filelock.Timeout, OSError):
        lock.acquire(timeout=0)
    try:
        yield lock.is_locked
    finally:
        lock.release()
