"""Packages that only some of this needs: imported when they are, and missed in one sentence."""

import importlib
import importlib.util
from typing import Any


def installed(owner: str, package: str, extra: str) -> None:
    """Raise unless the package is there to be imported, and say how to get it.

    >>> installed("Result", "pandas", extra="frames")
    """
    if importlib.util.find_spec(package) is None:
        raise ModuleNotFoundError(f"{owner}: needs {package}; install it with pip install 'fedpick[{extra}]'")


def imported(owner: str, package: str, extra: str) -> Any:
    """The package.

    >>> imported("Result", "polars", extra="frames").__name__
    'polars'
    """
    installed(owner, package, extra)
    return importlib.import_module(package)
