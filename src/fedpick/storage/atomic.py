"""Atomic writes: the only place where fedpick writes a file. A file is replaced as a whole or not at all."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

PART = ".part-"  # prefix of what is being written


@contextlib.contextmanager
def atomic_file(path: str | Path, *, owner: str) -> Iterator[IO[bytes]]:
    """A binary file to write to, which takes the place of ``path`` when the block ends without an error.

    A full disk, a kill or Ctrl-C leaves what was there before. The content is on disk when this returns.

    Args:
        path: The file; its folder is made where it does not exist.
        owner: Who writes, for the error message.
    """
    path = Path(path)
    part = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=PART, delete=False) as part:
            yield part
            part.flush()
            os.fsync(part.fileno())
        os.chmod(part.name, 0o644)
        os.replace(part.name, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise OSError(f"{owner}: {str(path)!r} cannot be written ({error.strerror or error})") from None
    finally:
        if part is not None:
            Path(part.name).unlink(missing_ok=True)


def write_atomic(path: str | Path, content: str | bytes, *, owner: str) -> Path:
    """Write a whole file atomically.

    Args:
        path: The file; its folder is made where it does not exist.
        content: Bytes, or text, which becomes UTF-8.
        owner: Who writes, for the error message.

    >>> import tempfile
    >>> write_atomic(Path(tempfile.mkdtemp()) / "note.txt", "hello", owner="docs").read_text()
    'hello'
    """
    with atomic_file(path, owner=owner) as file:
        file.write(content.encode() if isinstance(content, str) else content)
    return Path(path)


def _sync_folder(folder: Path) -> None:
    """Flush the new name to disk, where the system can."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
