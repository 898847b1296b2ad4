"""Code of one's own that an experiment names by address, by the content of its files."""

import functools
import hashlib
import inspect
import re
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedpick import registry

_ADDRESS = re.compile(r"[\w./-]+:[A-Za-z_][\w.]*")
_PACKAGE = Path(__file__).resolve().parents[1]


def own_code(plain: Any) -> dict[str, str]:
    """The addresses in plain data that lead to code of one's own, and the SHA-256 sums of the files that have it.

    Installed packages do not count, and neither does what such a file imports.

    >>> own_code({"server": {"optimizer": "optax:sgd"}, "name": "a: b"})
    {}
    """
    if isinstance(plain, Mapping):
        return {address: code for part in plain.values() for address, code in own_code(part).items()}
    if isinstance(plain, list | tuple):
        return {address: code for part in plain for address, code in own_code(part).items()}
    if not isinstance(plain, str) or not _ADDRESS.fullmatch(plain):
        return {}
    try:
        code = _sum_of_file(registry.load(plain))
    except (ValueError, TypeError):  # no address, or nothing that has a file
        return {}
    return {plain: code} if code else {}


@functools.lru_cache(maxsize=256)
def _sum_of_file(found: Any) -> str:
    """The sum of the file of a class or function, as it was when first asked for; "" for one of a package."""
    file = Path(inspect.getfile(found)).resolve()
    libraries = [Path(path).resolve() for name, path in sysconfig.get_paths().items() if "lib" in name]
    if any(file.is_relative_to(folder) for folder in (*libraries, _PACKAGE)):
        return ""
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
