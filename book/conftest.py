"""Which chapters nbval passes over: one that reads published weights, where these are not installed.

``make test`` installs them, and sets BOOK_WEIGHTS to "required", so that nothing is passed over there.
"""

import os

import pytest

from annotated_transformer.pretrained import files

NEED_WEIGHTS = {"6-3-beyond-translation.ipynb"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip every cell of such a chapter, and say what is missing."""
    missing = files.missing()
    if missing and os.environ.get("BOOK_WEIGHTS") != "required":
        skip = pytest.mark.skip(
            reason=f"needs {', '.join(missing)}: make weights"
        )
        for item in items:
            if item.path.name in NEED_WEIGHTS:
                item.add_marker(skip)
