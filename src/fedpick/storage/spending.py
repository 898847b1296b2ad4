"""What was spent of a budget, in a file of its own: it is never read as less than was written."""

import json
import logging
import math
from pathlib import Path

import filelock

from fedpick.storage.atomic import write_atomic
from fedpick.storage.locks import lockable
from fedpick.text import brief, shown

LOG = logging.getLogger("fedpick")
FORMAT = "fedpick-spending"


def spend(path: str | Path, amount: float, budget: float, *, owner: str, spent: float = 0.0) -> float | None:
    """Add to what was spent, unless it would then be more than the budget; what is spent by now, None where it is not.

    It is on disk before this returns, and processes that spend at once wait for each other. Where there is no file, it
    is made, and that is logged; one that cannot be read is an error, and its folder must be there.

    Args:
        path: The file.
        amount: What to add.
        budget: The most that may be spent.
        owner: Who spends, for error messages.
        spent: What was surely spent before, whatever the file says.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "spent.json"
    >>> [spend(file, 0.5, 1.0, owner="docs") for _ in range(3)]
    [0.5, 1.0, None]
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise ValueError(f"{owner}: file must be in a folder that is there, got {str(path)!r}")
    lock = path.with_name(f".{path.name}.lock")
    with lockable(lock), filelock.FileLock(lock):
        before = max(spent, _read(path, owner))
        after = before + amount
        if after > budget * (1 + 1e-6):
            return None
        write_atomic(path, json.dumps({"format": FORMAT, "spent": after}) + "\n", owner=owner)
    return after


def _read(path: Path, owner: str) -> float:
    """What the file says was spent, 0 where there is none."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        found = plain["spent"] if plain["format"] == FORMAT else None
        if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < math.inf:
            raise ValueError(f"it says {shown(found)}")
        return float(found)
    except FileNotFoundError:
        LOG.warning("%s: file %r is new: nothing was spent before", owner, str(path))
        return 0.0
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        rule = "must say what was spent, and it cannot be read"
        raise ValueError(f"{owner}: file {rule} ({brief(error)}), got {str(path)!r}") from None
