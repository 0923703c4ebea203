"""Time and memory, such that they can be compared on a machine that others use as well.

Time is the process's own, on one thread. What is compared runs in one process, in rounds whose order rotates, and only
ratios within a round are compared: what slows the machine down slows all down.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

Run = Callable[[], object]


def rounds(runs: Mapping[str, Run], count: int, warm_up: Mapping[str, Run] | None = None) -> dict[str, list[float]]:
    """Run everything ``count`` times in turn; return each one's processor seconds.

    Before that, everything runs once without counting, or ``warm_up`` in its place.
    """
    names = list(runs)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        (warm_up or runs)[name]()
    for turn in range(count):
        for place in range(len(names)):
            name = names[(place + turn) % len(names)]
            gc.collect()
            start = time.process_time()
            runs[name]()
            seconds[name].append(time.process_time() - start)
    return seconds


def ratios(seconds: Mapping[str, Sequence[float]], baseline: str) -> dict[str, list[float]]:
    """How many times the baseline's time each one's time goes into, round by round: median, least and most."""
    of = seconds[baseline]
    found = {}
    for name, each in seconds.items():
        quotients = [theirs / own for theirs, own in zip(of, each, strict=True)]
        found[name] = [statistics.median(quotients), min(quotients), max(quotients)]
    return found


def row(seconds: Mapping[str, Sequence[float]], baseline: str, **about: Any) -> dict[str, Any]:
    """What the results keep of some rounds."""
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    return {**about, "rounds": len(seconds[baseline]), "seconds": medians, "speed": ratios(seconds, baseline)}


def growth(make: Callable[..., Run], *args: Any) -> int | None:
    """Return by how many bytes a run raises the memory of a fresh process at its highest; ``None`` but on Linux.

    Args:
        make: Called with ``args`` in the process, returns what is run: once before, and once to be measured.
        *args: What can be sent to a process.
    """
    if not Path("/proc/self/clear_refs").exists():
        return None
    # Blocks from 64 KiB on go back to the system when they are freed, so that what is held is what is used.
    before = os.environ.get("MALLOC_MMAP_THRESHOLD_")
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"
    try:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            return int(pool.apply(_growth_here, (make, args)))
    finally:
        del os.environ["MALLOC_MMAP_THRESHOLD_"]
        if before is not None:
            os.environ["MALLOC_MMAP_THRESHOLD_"] = before


def _growth_here(make: Callable[..., Run], args: tuple[Any, ...]) -> int:
    torch.set_num_threads(1)
    run = make(*args)
    run()
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # forgets the highest so far
    before = _kib("VmRSS")
    run()
    return 1024 * (_kib("VmHWM") - before)


def _kib(field: str) -> int:
    return int(Path("/proc/self/status").read_text().split(f"{field}:")[1].split()[0])


def import_seconds(modules: str) -> float:
    """Return the processor seconds of a fresh interpreter that imports some modules and ends."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = os.times()
    subprocess.run([sys.executable, "-c", f"import {modules}"], env=environ, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system
