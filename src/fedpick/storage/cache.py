"""What is kept between invocations to save time: compiled programs, and the script of every page."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import platformdirs

from fedpick.storage.atomic import write_atomic


def cache_folder() -> Path | None:
    """The user's folder for it; ``FEDPICK_CACHE`` names another, and switches it off where it is empty."""
    named = os.environ.get("FEDPICK_CACHE")
    if named == "":
        return None
    return Path(named) if named else platformdirs.user_cache_path("fedpick")


def cached_text(name: str, make: Callable[[], str]) -> str:
    """A text that takes long to make, from the file of this name in the cache, where it is put the first time.

    Args:
        name: The name of the file, which must change where the text does.
        make: Makes the text.
    """
    folder = cache_folder()
    if folder is None:
        return make()
    path = folder / name
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        text = make()
    with contextlib.suppress(OSError, ValueError):  # a home that cannot be written to: made each time
        write_atomic(path, text, owner="cache")
    return text
