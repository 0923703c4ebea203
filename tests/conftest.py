"""What all tests share: the same random numbers in each, and no window system."""

import os
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "agg")

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile("book", deadline=None, derandomize=True)
hypothesis.settings.load_profile("book")


@pytest.fixture(autouse=True)
def _same_random_numbers():
    """Every test starts from one seed, whatever ran before it."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def root() -> Path:
    """The top of the checkout."""
    return Path(__file__).resolve().parents[1]
