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


def pytest_terminal_summary(terminalreporter) -> None:
    """Print the table of parity errors: for each subject, the largest difference that any test saw."""
    errors: dict[str, list[float]] = {}
    for report in terminalreporter.stats.get("passed", []) + terminalreporter.stats.get("failed", []):
        for name, found in report.user_properties:
            if name == "parity":
                worst = errors.setdefault(found["subject"], [0.0, 0.0])
                worst[:] = [max(pair) for pair in zip(worst, (found["output"], found["gradient"]), strict=True)]
    if errors:
        terminalreporter.section("parity errors: largest absolute difference, float64")
        width = max(map(len, errors))
        for subject, (output, gradient) in sorted(errors.items()):
            terminalreporter.write_line(f"{subject:{width}}  outputs {output:.1e}  gradients {gradient:.1e}")
