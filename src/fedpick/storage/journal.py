"""A file that only grows: one line of JSON for each thing that happened, each with a checksum of its own."""

import json
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple


class Journal(NamedTuple):
    """Lines of plain data; what a kill leaves of a line, and a line that is damaged, is left out when it is read.

    Args:
        path: The file; it is made with the first line.

    >>> import tempfile
    >>> journal = Journal(Path(tempfile.mkdtemp()) / "rounds.jsonl")
    >>> journal.append([{"round": 1}, {"round": 2}], owner="docs")
    >>> journal.read()
    [{'round': 1}, {'round': 2}]
    """

    path: Path

    def append(self, entries: Iterable[Any], *, owner: str) -> None:
        """Add lines; they are on disk when this returns.

        Args:
            entries: What happened, as plain data.
            owner: Who writes, for the error message.
        """
        texts = [json.dumps(entry).encode() for entry in entries]
        if not texts:
            return
        lines = b"".join(b"%08x %s\n" % (zlib.crc32(text), text) for text in texts)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(b"\n" + lines if self._is_cut() else lines)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise OSError(f"{owner}: {str(self.path)!r} cannot be written ({error.strerror or error})") from None

    def read(self) -> list[Any]:
        """The lines that are whole, in their order."""
        found = []
        for line in self.path.read_bytes().split(b"\n") if self.path.exists() else ():
            checksum, _, text = line.partition(b" ")
            if text and checksum == b"%08x" % zlib.crc32(text):
                found.append(json.loads(text))
        return found

    def _is_cut(self) -> bool:
        """Whether a kill has left a part of a line."""
        if not self.path.exists() or not self.path.stat().st_size:
            return False
        with self.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read() != b"\n"
