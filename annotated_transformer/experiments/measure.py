"""What a computation costs: floating-point operations, memory and time."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

__all__ = ["cpu_seconds", "matmul_flops", "peak_bytes"]


def matmul_flops(run: Callable[[], object]) -> int:
    """Count the floating-point operations of the matrix products that ``run`` makes, two for a multiply-add.

    PyTorch's counter looks at explicit matrix products alone: it counts nothing for element-wise functions, and nothing
    for fused attention on a CPU.

    Args:
        run: Called once, without arguments.
    """
    with FlopCounterMode(display=False) as counter:
        run()
    return int(counter.get_total_flops())


def peak_bytes(run: Callable[[], object]) -> int:
    """Return the most bytes that tensors made inside ``run`` held at one time.

    Every tensor an operation returns is followed until it is freed. What a kernel needs for itself is not seen.

    Args:
        run: Called once, without arguments; what it returns still counts when it ends.
    """
    live = _LiveBytes()
    with live:
        run()
    return live.peak


def cpu_seconds(run: Callable[[], object], repeats: int = 5) -> float:
    """Return the least processor time of several calls on one thread, in seconds, after one call that does not count.

    Args:
        run: Called ``repeats + 1`` times, without arguments.
        repeats: Number of calls that are timed.

    Raises:
        ValueError: If ``repeats`` is below 1.
    """
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, got {repeats}.")
    threads, seconds = torch.get_num_threads(), []
    torch.set_num_threads(1)  # processor time adds up over threads, waiting ones included
    try:
        run()
        for _ in range(repeats):
            start = time.process_time()
            run()
            seconds.append(time.process_time() - start)
    finally:
        torch.set_num_threads(threads)
    return min(seconds)


class _LiveBytes(TorchDispatchMode):
    """Adds up the storage of every tensor that an operation returns, and takes it off when the storage is freed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._followed: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = {_address(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and _address(tensor) not in self._followed | given:
                self._follow(tensor.untyped_storage())
        return result

    def _follow(self, storage: torch.UntypedStorage) -> None:
        address, size = storage.data_ptr(), storage.nbytes()
        self._followed.add(address)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, address, size)

    def _forget(self, address: int, size: int) -> None:
        self._followed.discard(address)
        self.now -= size


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
