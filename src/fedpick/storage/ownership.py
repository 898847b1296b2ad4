"""Which files are fedpick's own: a file of the user's is not overwritten."""

import re
from collections.abc import Iterable
from pathlib import Path

MARKS = {  # by the names of the files; a damaged one is known by its first lines still
    "report.html": rb"fedpick",
    "summary.json": rb'\A\s*\{\s*"answer":',
    "paper.html": rb"fedpick",
    "reproduction.md": rb"\A# Power-of-Choice client selection, reproduced",
    "arena.html": rb"fedpick",
    "arena.md": rb"\A# The arena: results",
    "arena.json": rb'\A\s*\{.*"(problems|about)":',
    "map.csv": rb'\A# \{"version":',
    "when-it-pays.md": rb"\A# When it pays",
}


def is_own(path: Path) -> bool:
    """Whether fedpick wrote a file, by its mark; an empty file counts, because nothing of it is lost.

    Args:
        path: The file; its mark is that of its name, or else the word fedpick, which pages and pictures have.

    >>> is_own(Path(__file__)), is_own(Path(__file__).parent)
    (True, False)
    """
    if not path.is_file():
        return False
    content = path.read_bytes()
    return not content or re.search(MARKS.get(path.name, rb"fedpick"), content, re.DOTALL) is not None


def check_own(owner: str, folder: Path, names: Iterable[str]) -> None:
    """Raise where a folder has a file of the user's under one of these names.

    Args:
        owner: Who would write, for the error message.
        folder: The folder.
        names: The names of the files.

    >>> check_own("paper", Path("a folder that is not there"), ["paper.html"])
    """
    for path in (folder / name for name in names):
        if path.exists() and not is_own(path):
            raise ValueError(
                f"{owner}: {path} must be fedpick's to be written again, and is not; choose another folder"
            )
