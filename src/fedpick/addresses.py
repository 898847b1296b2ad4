"""Addresses of classes and functions: "package.module:Class", or "folder/file.py:Class"."""

import functools
import importlib
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from fedpick.text import blame

_FOLDERS: list[Path] = []  # beside files that name classes


def look_in(folder: Path) -> None:
    """Find modules in this folder, too, after those that are found anyway: a file names classes that lie beside it.

    Args:
        folder: The folder.
    """
    if folder in _FOLDERS:
        _FOLDERS.remove(folder)
    _FOLDERS.append(folder)  # the last is that of the latest file, which an error names
    if str(folder.resolve()) not in sys.path:
        sys.path.append(str(folder.resolve()))


def is_address(value: Any) -> bool:
    """Whether it is written as a "package.module:Class"; the path of a file may have any letters, but no colon.

    >>> is_address("my folder/nets.py:Net"), is_address("a: b")
    (True, False)
    """
    module, _, path = value.partition(":") if isinstance(value, str) else ("", "", "")
    return bool(module) and all(part.isidentifier() for part in path.split("."))


def module_of(address: str) -> ModuleType:
    """The module of an address that was loaded: what is there may be an object of a class of another one.

    Args:
        address: The address.

    >>> load("optax:sgd") and module_of("optax:sgd").__name__
    'optax'
    """
    name = address.partition(":")[0]
    return sys.modules[Path(name).stem if name.endswith(".py") else name]


def load(address: str, *, objects: bool = False) -> Any:
    """The class or function at "package.module:Class", or at "folder/file.py:Class".

    A module has its name only once: of two files of one name, the second is refused.

    Args:
        address: The address.
        objects: Whether anything else may be there, too.

    >>> load("optax:sgd").__name__
    'sgd'
    """
    module, _, path = address.partition(":")
    file = _file(module).resolve() if module.endswith(".py") else None
    if file is not None:  # its folder becomes one that modules are imported from
        module = file.stem
        if str(file.parent) not in sys.path:
            sys.path.append(str(file.parent))
    try:
        loaded = importlib.import_module(module)
        origin = getattr(loaded, "__file__", None)
        if file is not None and file.is_file() and (origin is None or not os.path.samefile(origin, file)):
            raise ImportError(f"the module {module} is that of {origin or 'Python'}; give the file another name")
        found: Any = functools.reduce(getattr, path.split("."), loaded)
        if not (objects or callable(found)):
            raise ImportError(f"{path} is a {type(found).__name__}")
    except (Exception, SystemExit) as error:  # a script may end the process
        why = blame(error)
        if isinstance(error, ModuleNotFoundError) and error.name == module.partition(".")[0]:
            beside = "".join(f" and {str(folder)!r}" for folder in _FOLDERS[-1:])
            why += f"; looked in installed packages, the working folder{beside}"
        raise ValueError(f"registry: {address!r} must be an importable package.module:Class ({why})") from None
    return found


def _file(name: str) -> Path:
    """The file of this name: in the working folder, else beside one that names classes."""
    return next((folder / name for folder in (Path(), *_FOLDERS) if (folder / name).is_file()), Path(name))
