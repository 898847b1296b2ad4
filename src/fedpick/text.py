"""Values, errors and lists in words: short, whatever they hold."""

import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

LONGEST = 200  # characters of a value that an error shows
MOST = 12  # sentences in one error


def shown(value: Any) -> str:
    """A value in one line, its beginning where it is long.

    >>> shown("a")
    "'a'"
    """
    try:
        text = " ".join(repr(value).split())
    except RecursionError:  # lists in lists in lists
        return f"a {type(value).__name__} that is nested too deeply"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def brief(error: BaseException) -> str:
    """The first line of what another library says, its beginning where it is long.

    >>> brief(ValueError("no table\\nat line 1"))
    'no table'
    """
    line = next(iter(str(error).splitlines()), type(error).__name__)
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."


def listed(names: Sequence[str]) -> str:
    """Names one after the other, as a sentence has them.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def counted(number: int, one: str, several: str = "") -> str:
    """A number of things.

    >>> counted(1, "seed"), counted(2, "strategy", "strategies")
    ('1 seed', '2 strategies')
    """
    return f"{number} {one if number == 1 else several or f'{one}s'}"


def few_lines(sentences: Iterable[str]) -> str:
    """Sentences on lines of their own, and how many more there are where they are many.

    >>> few_lines(["a", "b"])
    'a\\nb'
    """
    lines = list(sentences)
    more = len(lines) - MOST
    return "\n".join([*lines[:MOST], f"and so on: {more} more"] if more > 1 else lines)


def blame(error: BaseException) -> str:
    """What went wrong while code of a user's own was imported, with the file and the line where it is a mistake there.

    >>> blame(ImportError("No module named 'mine'"))
    "No module named 'mine'"
    """
    if isinstance(error, ImportError | AttributeError | ValueError) and not isinstance(error, UnicodeError):
        return str(error)
    return place(error)


def place(error: BaseException, folder: str | None = None) -> str:
    """What went wrong, with the file and the line.

    Args:
        error: The error.
        folder: Whose line is said, the last that led to the error, where its code has a part in it.
    """
    frames = list(traceback.extract_tb(error.__traceback__))
    frames = [frame for frame in frames if folder is not None and is_of(frame.filename, folder)] or frames
    file, line = (error.filename, error.lineno) if isinstance(error, SyntaxError) else frames[-1][:2]
    said = error.msg if isinstance(error, SyntaxError) else brief(error)
    return f"{file}, line {line}: {type(error).__name__}: {said}"


def is_of(file: str, folder: str) -> bool:
    """Whether a file is code in a folder, and not of a package that is installed there.

    >>> is_of("app/server.py", "app"), is_of("app/.venv/lib/site-packages/numpy/core.py", "app")
    (True, False)
    """
    path = Path(file)
    return path.is_relative_to(folder) and "site-packages" not in path.relative_to(folder).parts
