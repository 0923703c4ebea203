"""Recordings: what a long experiment gave, kept as a JSON file, so that a chapter can show it without a rerun.

A recording holds five things: its ``name``; the ``settings`` and ``seeds`` that would make it again; the
``environment`` it was made in; and the ``results``. It carries no date: the same experiment writes the same bytes.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from . import book_files

__all__ = ["DIGITS", "earlier", "read", "validate", "write"]

DIGITS = 6
"""Significant digits kept of every number that is not whole."""

_FIELDS = {"environment": dict, "name": str, "results": dict, "seeds": list, "settings": dict}
_ENVIRONMENT = {"device": str, "processor": str, "python": str, "threads": int, "torch": str}
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def read(name: str, folder: Path | str | None = None) -> dict[str, Any]:
    """Read the recording of that name, and check its form.

    Args:
        name: Lower-case words joined by hyphens, such as ``"softmax-saturation"``.
        folder: Where to look; the book's recordings if not given.

    Raises:
        FileNotFoundError: There is no such recording.
        ValueError: The name is not one a recording can have, or the file is not a recording.
    """
    file_name = _file_name(name)
    path = book_files.find(f"recordings/{file_name}") if folder is None else Path(folder) / file_name
    try:
        recording = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON: {error}.") from error
    validate(recording, name)
    return dict(recording)


def earlier(name: str, settings: Mapping[str, Any], folder: Path | str | None = None) -> dict[str, Any]:
    """Return what a run with the same settings has written so far, for an experiment that goes on with it.

    Empty if there is no recording of that name, or if it was made with other settings.

    Raises:
        ValueError: The file is there and not a recording.
    """
    try:
        recording = read(name, folder)
    except FileNotFoundError:
        return {}
    return dict(recording["results"]) if recording["settings"] == settings else {}


def write(
    name: str,
    *,
    settings: Mapping[str, Any],
    results: Mapping[str, Any],
    seeds: Iterable[int],
    device: torch.device | str = "cpu",
    folder: Path | str | None = None,
) -> Path:
    """Write a recording, adding the environment; the file is complete or, if anything goes wrong, the old one.

    Arrays and tensors become lists, numbers keep ``DIGITS`` significant digits.

    Args:
        name: Lower-case words joined by hyphens, such as ``"softmax-saturation"``.
        settings: What the experiment was asked to do.
        results: What came of it; nested mappings with string keys, lists, arrays, numbers, strings.
        seeds: The random seeds used, empty where nothing is random.
        device: Where it ran.
        folder: Where to write; the checkout's ``book/recordings`` if not given.

    Returns:
        The path of the file.

    Raises:
        TypeError: A value or a key that JSON cannot hold; the message says where it stands.
        ValueError: A name that a recording cannot have; a number that is infinite or not a number.
        FileNotFoundError: No folder is given and there is no checkout, or the folder does not exist.
    """
    file_name = _file_name(name)
    if not isinstance(seeds, Iterable):
        raise TypeError(f"seeds must be a list of integers, got {seeds!r}.")
    recording = {
        "name": name,
        "settings": _plain(settings, "settings"),
        "seeds": _plain(list(seeds), "seeds"),
        "environment": _environment(torch.device(device)),
        "results": _plain(results, "results"),
    }
    validate(recording, name)
    path = (book_files.checkout() / "recordings" if folder is None else Path(folder)) / file_name
    if not path.parent.is_dir():
        raise FileNotFoundError(f"folder must exist, and there is no {path.parent}.")
    beside = path.with_name(f".{file_name}.{os.getpid()}")
    try:
        beside.write_text(_layout(recording) + "\n", encoding="utf-8", newline="\n")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return path


def validate(recording: object, name: str) -> None:
    """Check that a recording has the five fields, the environment's fields, and the name of its file.

    Raises:
        ValueError: It does not; the message says what is wrong.
    """
    _require_fields(recording, _FIELDS, f"recording {name!r}")
    assert isinstance(recording, dict)
    _require_fields(recording["environment"], _ENVIRONMENT, f"environment of recording {name!r}")
    if recording["name"] != name:
        raise ValueError(f"recording {name!r} calls itself {recording['name']!r}; it must have the name of its file.")
    if any(isinstance(seed, bool) or not isinstance(seed, int) for seed in recording["seeds"]):
        raise ValueError(f"recording {name!r}: seeds must be integers, got {recording['seeds']}.")
    if not recording["results"]:
        raise ValueError(f"recording {name!r}: results must not be empty.")


def _require_fields(fields: object, expected: Mapping[str, type], what: str) -> None:
    if not isinstance(fields, dict) or sorted(fields) != sorted(expected):
        found = ", ".join(map(str, fields)) if isinstance(fields, dict) else type(fields).__name__
        raise ValueError(f"{what} must have exactly the fields {', '.join(expected)}, got {found}.")
    for field, kind in expected.items():
        if isinstance(fields[field], bool) or not isinstance(fields[field], kind):
            raise ValueError(f"{what}: {field} must be of type {kind.__name__}, got {type(fields[field]).__name__}.")


def _file_name(name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"name must be lower-case words joined by hyphens, such as 'date-task', got {name!r}.")
    return f"{name}.json"


def _environment(device: torch.device) -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "device": str(device),
        "processor": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "threads": torch.get_num_threads(),
    }


def _processor() -> str:
    """The processor's name; ``platform.processor()`` is empty or vague on Linux."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _plain(value: Any, where: str) -> Any:
    """The value as JSON can hold it: mappings with string keys, lists, strings, booleans, rounded numbers."""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{where}: keys must be strings, got {key!r}; write them as a list beside the values.")
        return {key: _plain(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{where}: numbers must be finite, got {value}.")
        return float(f"{value:.{DIGITS}g}")
    if hasattr(value, "tolist"):  # NumPy's arrays and numbers, PyTorch's tensors
        return _plain(value.tolist(), where)
    raise TypeError(f"{where}: a recording cannot hold {type(value).__name__}.")


def _layout(value: Any, indent: str = "") -> str:
    """JSON with sorted keys, one line for each of them; a list of plain values stays on one line."""
    deeper = indent + "  "
    if isinstance(value, dict) and value:
        items = [f"{json.dumps(key, ensure_ascii=False)}: {_layout(value[key], deeper)}" for key in sorted(value)]
        opening, closing = "{", "}"
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        items = [_layout(item, deeper) for item in value]
        opening, closing = "[", "]"
    else:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    lines = ",\n".join(deeper + item for item in items)
    return f"{opening}\n{lines}\n{indent}{closing}"
