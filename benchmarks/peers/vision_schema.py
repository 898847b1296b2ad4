"""Import this before a framework that imports torchvision, where torchvision is built for a GPU and PyTorch is not.

Its compiled operators do not load there, and the import fails where their shapes are registered. None is used here.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch  # type: ignore[import-not-found]


def unregistered(*arguments: Any, **options: Any) -> Callable[[Any], Any]:
    """In place of ``torch.library.register_fake``: registers nothing."""
    return lambda function: function


try:
    import torchvision  # type: ignore[import-not-found]
except RuntimeError:
    for name in [name for name in sys.modules if name.startswith("torchvision")]:
        del sys.modules[name]
    register, torch.library.register_fake = torch.library.register_fake, unregistered
    import torchvision  # noqa: F401

    torch.library.register_fake = register
