"""Code of one's own that an experiment names by address, by the content of its files."""

import functools
import hashlib
import inspect
import re
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedpick import registry

_ADDRESS = re.compile(r"[\w./-]+:[A-Za-z_][\w.]*")
_PACKAGE = Path(__file__).resolve().parents[1]


def own_code(plain: Any) -> dict[str, str]:
    """The addresses in plain data that lead to code of one's own, and the SHA-256 sums of the files that have it.

    Installed packages do not count; modules of one's own from which such a file imports modules, classes or functions
    do.

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
        code = _sum_of_files(registry.load(plain))
    except (ValueError, TypeError):  # no address, or nothing that has a file
        return {}
    return {plain: code} if code else {}


@functools.lru_cache(maxsize=256)
def _sum_of_files(found: Any) -> str:
    """The sum of the files of a class or function, as they were when first asked for; "" for one of a package.

    They are its own, and those of one's own modules that it takes something from.
    """
    waiting, files = [inspect.getmodule(found)], {}
    while waiting:
        module = waiting.pop()
        file = _own_file(module)
        if file is None or file in files:
            continue
        files[file] = hashlib.sha256(file.read_bytes()).hexdigest()
        values = list(vars(module).values())
        waiting += [value if inspect.ismodule(value) else _home(value) for value in values]
    sums = sorted(files.values())
    return hashlib.sha256("".join(sums).encode()).hexdigest() if sums else ""


def _home(value: Any) -> Any:
    """The module of a class or function; None for anything else."""
    known = inspect.isclass(value) or inspect.isroutine(value)
    return sys.modules.get(getattr(value, "__module__", None) or "") if known else None


def _own_file(module: Any) -> Path | None:
    """The file of a module that is neither of an installed package nor of fedpick."""
    if getattr(module, "__file__", None) is None:
        return None
    file = Path(module.__file__).resolve()
    libraries = [Path(path).resolve() for name, path in sysconfig.get_paths().items() if "lib" in name]
    installed = any(file.is_relative_to(folder) for folder in (*libraries, _PACKAGE))
    return file if file.is_file() and not installed else None
