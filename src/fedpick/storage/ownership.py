"""Which files are fedpick's own: a file of the user's is not overwritten."""

import re
from collections.abc import Iterable
from pathlib import Path

MARKS = {  # by the names of the files, or how they end; a damaged one is known by its first lines still
    "summary.json": rb'\A\s*\{\s*"answer":',
    "reproduction.md": rb"\A# Power-of-Choice client selection, reproduced",
    "arena.md": rb"\A# The arena: results",
    "arena.json": rb'\A\s*\{.*"(problems|about)":',
    "map.csv": rb'\A# \{"version":',
    "when-it-pays.md": rb"\A# When it pays",
    ".html": rb'<meta name="generator" content="fedpick">',
    ".svg": rb"<!-- fedpick -->\s*\Z",
    ".pdf": rb"\n% fedpick\s*\Z",
    ".png": rb"tEXtSoftware\x00fedpick",
}


def is_own(path: Path) -> bool:
    """Whether fedpick wrote a file, by its mark; an empty file counts, because nothing of it is lost.

    Args:
        path: The file; its mark is that of its name, or of how it ends. One that merely speaks of fedpick has none.

    >>> is_own(Path(__file__)), is_own(Path(__file__).parent)
    (False, False)
    """
    if not path.is_file():
        return False
    content, mark = path.read_bytes(), MARKS.get(path.name) or MARKS.get(path.suffix)
    return not content or (mark is not None and re.search(mark, content, re.DOTALL) is not None)


def is_drawing(path: Path) -> bool:
    """Whether a file is a picture or a page that fedpick drew, wherever it was told to put it.

    Args:
        path: The file.
    """
    return path.suffix in MARKS and is_own(path)


def is_table_of_runs(path: Path) -> bool:
    """Whether a file is the table of the metrics of runs that ``--csv`` writes.

    Args:
        path: The file.
    """
    if not path.is_file():
        return False
    with path.open("rb") as lines:
        head = lines.readline(1000)
    return head.startswith(b"seed,") and b",round," in head and b",loss" in head


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
            rule = "must be fedpick's to be written again, and is not; move it away, or choose another folder"
            raise ValueError(f"{owner}: {path} {rule}")
