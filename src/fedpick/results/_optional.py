"""Optional dependencies, imported on first use with a helpful error."""

import importlib
import importlib.util
from typing import Any


def require_package(owner: str, package: str, *, extra: str) -> None:
    """Raise unless the package is installed.

    >>> require_package("Result", "pandas", extra="frames")
    """
    if importlib.util.find_spec(package) is None:
        install = f"pip install 'fedpick[{extra}]', or '.[{extra}]' in a clone"
        raise ModuleNotFoundError(f"{owner}: needs {package}; install it with {install}")


def import_package(owner: str, package: str, *, extra: str) -> Any:
    """Import the package.

    >>> import_package("Result", "polars", extra="frames").__name__
    'polars'
    """
    require_package(owner, package, extra=extra)
    return importlib.import_module(package)
