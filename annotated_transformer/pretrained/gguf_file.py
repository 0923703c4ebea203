"""GGUF, a model in one file as llama.cpp stores it, with few bits for a weight: as much of it as SmolLM2 needs.

The library ``gguf`` reads all of the format, and takes seconds for the names of a vocabulary. The tests hold this
module to it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["GGUF"]

NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TEXT, LIST = 8, 9
"""The types of what a file says, as it counts them."""

F32, Q4_1, Q8_0 = 0, 3, 8
BLOCKS = {F32: (1, 4), Q4_1: (32, 20), Q8_0: (32, 34)}
"""The types of weights: how many stand in a block, and how many bytes it takes."""


class Place(NamedTuple):
    """Where a tensor stands in the file, and in which type."""

    shape: list[int]
    kind: int
    offset: int


class GGUF:
    """What a GGUF file says of its model, and the weights.

    Args:
        path: The file.

    Attributes:
        fields: What it says: numbers, texts, and lists of them, by name.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is of another kind or version, or is cut off.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with self.path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise ValueError(f"{path} is not a GGUF file.")
            try:
                if (version := _number(file, "I")) != 3:
                    raise ValueError(f"{path} must have version 3 of the format, got {version}.")
                tensors, fields = _number(file, "Q"), _number(file, "Q")
                self.fields: dict[str, Any] = {_text(file): _value(file, _number(file, "I")) for _ in range(fields)}
                self._places = {_text(file): _place(file) for _ in range(tensors)}
            except (struct.error, KeyError):
                raise ValueError(f"{path} is cut off, or damaged.") from None
            step = self.fields.get("general.alignment", 32)
            self._start = math.ceil(file.tell() / step) * step

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield each tensor's name, and its weights as float32.

        Raises:
            ValueError: If they are of a type that is not known here, or the file is cut off.
        """
        with self.path.open("rb") as file:
            for name, (shape, kind, offset) in self._places.items():
                if kind not in BLOCKS:
                    raise ValueError(f"{self.path} has {name} in type {kind}; known are {', '.join(map(str, BLOCKS))}.")
                weights, size = BLOCKS[kind]
                length = math.prod(shape) // weights * size
                file.seek(self._start + offset)
                data = bytearray(file.read(length))
                if len(data) < length:
                    raise ValueError(f"{self.path} is cut off: {name} is not all there.")
                yield name, _numbers(torch.frombuffer(data, dtype=torch.uint8).view(-1, size), kind).reshape(shape)


def _numbers(blocks: Tensor, kind: int) -> Tensor:
    """The weights of blocks of bytes, ``(blocks, bytes)``: a few bits each, and a scale for all of a block."""
    if kind == F32:
        return blocks.view(torch.float32)
    scale = blocks[:, :2].view(torch.float16).float()
    if kind == Q8_0:
        return scale * blocks[:, 2:].view(torch.int8)
    least, pairs = blocks[:, 2:4].view(torch.float16).float(), blocks[:, 4:]  # a byte has weight i, and i + 16
    return scale * torch.cat([pairs & 15, pairs >> 4], dim=1) + least


def _number(file: IO[bytes], kind: str) -> Any:
    return struct.unpack(f"<{kind}", file.read(struct.calcsize(f"<{kind}")))[0]


def _text(file: IO[bytes]) -> str:
    return file.read(_number(file, "Q")).decode()


def _value(file: IO[bytes], kind: int) -> Any:
    if kind == TEXT:
        return _text(file)
    if kind == LIST:
        inner, length = _number(file, "I"), _number(file, "Q")
        return [_value(file, inner) for _ in range(length)]
    return _number(file, NUMBERS[kind])


def _place(file: IO[bytes]) -> Place:
    shape = [_number(file, "Q") for _ in range(_number(file, "I"))]  # the innermost axis first
    return Place(shape[::-1], _number(file, "I"), _number(file, "Q"))
