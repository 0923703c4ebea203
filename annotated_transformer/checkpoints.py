"""A model as files: its weights in safetensors, its configuration in JSON, its tokenizer beside them (section 6.1).

Nothing that is loaded can run code. Whatever is written is written beside its place and then moved there: whenever the
writer is killed, what stands in its place is whole.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from . import require
from .config import TransformerConfig
from .model import Transformer

if TYPE_CHECKING:
    from .tokens import Tokenizer

__all__ = [
    "average",
    "checkpoint_folders",
    "find",
    "language_of",
    "load_config",
    "load_model",
    "load_tensors",
    "load_weights",
    "moved_into_place",
    "read_json",
    "remove",
    "save_model",
]

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"

SHIPPED = Path(__file__).parent / "models"
"""The models that come with the package, a folder each."""

DIRECTIONS = {"en-de": ("en-de-zh", "de"), "en-zh": ("en-de-zh", "zh")}
"""More names for a shipped model of several languages: the model, and the language that the name asks it for."""


def save_model(
    folder: Path | str, model: Transformer, tokenizer: Tokenizer | None = None, dtype: torch.dtype | None = None
) -> None:
    """Write a model into a folder, from which ``load_model`` makes it again.

    Args:
        folder: Where to; it is made, and one that is there is replaced only if it holds a model already.
        model: Its parameters are written once each, tied ones too.
        tokenizer: What turns text into the model's ids.
        dtype: What the weights are stored in, such as ``torch.float16`` for half the size; as they are if not given.

    Raises:
        TypeError: If ``model`` is not a ``Transformer``, or one whose modules are not those of its ``config``, such as
            one that ``variants.with_positions`` gave another scheme: its files would make another model.
        FileExistsError: If the folder holds something else than a model.
        ValueError: If a weight is not a finite number, or too large a one for ``dtype``, or has another shape than
            ``config`` gives it.
    """
    require.instance("model", model, Transformer)
    folder = Path(folder)
    if folder.exists() and not _may_be_replaced(folder):
        raise FileExistsError(f"{folder} is there and holds no model; choose another, or empty it.")
    with moved_into_place(folder) as beside:
        beside.mkdir()
        write_model(beside, model, tokenizer, dtype)


def write_model(
    folder: Path, model: Transformer, tokenizer: Tokenizer | None = None, dtype: torch.dtype | None = None
) -> None:
    """Write a model's files into a folder that nobody reads yet."""
    _require_as_configured(model)
    weights = {name: parameter.detach().to(dtype or parameter.dtype) for name, parameter in model.named_parameters()}
    _require_finite(weights, "the model")
    write_tensors(folder / WEIGHTS, weights)
    write_json(folder / CONFIG, dataclasses.asdict(model.config))
    if tokenizer is not None:
        tokenizer.save(folder / TOKENIZER)


def load_model(folder: Path | str) -> tuple[Transformer, Tokenizer | None]:
    """Make a model, in evaluation mode and float32, of the files in a folder.

    Returns:
        The model, and its tokenizer or None.

    Raises:
        FileNotFoundError: If the folder or one of the two files is missing.
        ValueError: If a file is damaged, or the weights are not those of the configuration or not finite.
    """
    folder = Path(folder)
    model = Transformer(load_config(folder))
    load_weights(model, load_tensors(folder / WEIGHTS), folder / WEIGHTS)
    tokenizer = None
    if (folder / TOKENIZER).is_file():
        from .tokens import Tokenizer

        tokenizer = Tokenizer.load(folder / TOKENIZER)
        if tokenizer.vocab_size != model.config.vocab_size:
            raise ValueError(
                f"{folder}: the tokenizer has {tokenizer.vocab_size} tokens, and the model was made for "
                f"{model.config.vocab_size}."
            )
    return model.eval(), tokenizer


def load_config(folder: Path | str) -> TransformerConfig:
    """Read a model's configuration alone.

    Raises:
        FileNotFoundError: If the folder holds no model.
        ValueError: If the file is damaged.
    """
    path = Path(folder) / CONFIG
    if not path.is_file():
        raise FileNotFoundError(f"folder {folder} holds no model: there is no {CONFIG} in it.")
    fields = read_json(path)
    try:
        return TransformerConfig(**fields)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a model's configuration: {error}") from error


def find(name: Path | str) -> Path:
    """Find a model's folder: one of that name, the last checkpoint of a run of that name, or a model that we ship.

    A shipped model of several languages has a name for each of them besides: ``"en-de"``, ``"en-zh"``.

    Raises:
        FileNotFoundError: If there is none; the message names the models that are shipped.
    """
    folder = Path(name)
    if (folder / CONFIG).is_file():
        return folder
    saved = checkpoint_folders(folder)
    if saved:
        return saved[-1]
    if (SHIPPED / str(name) / CONFIG).is_file():
        return SHIPPED / str(name)
    if str(name) in DIRECTIONS:
        return SHIPPED / DIRECTIONS[str(name)][0]
    names = sorted([*DIRECTIONS, *(path.parent.name for path in SHIPPED.glob(f"*/{CONFIG}"))])
    if (folder / "run.json").is_file():
        raise FileNotFoundError(f"the run in {folder} has no checkpoint yet.")
    raise FileNotFoundError(
        f"there is no model {str(name)!r}: no folder of that name has a {CONFIG} or checkpoints, and the models that "
        f"come with the package are {', '.join(names) or 'none'}."
    )


def language_of(name: Path | str) -> str | None:
    """Return the language that a name of ``DIRECTIONS`` stands for; ``None`` if ``find`` finds anything else by it."""
    model, language = DIRECTIONS.get(str(name), (None, None))
    return language if model is not None and find(name) == SHIPPED / model else None


def checkpoint_folders(run: Path | str) -> list[Path]:
    """List the checkpoints of a run's folder, the oldest first."""
    folders = (path for path in (Path(run) / "checkpoints").glob("*") if path.name.isdecimal() and path.is_dir())
    return sorted(folders, key=lambda path: int(path.name))


def average(folders: Sequence[Path | str]) -> tuple[Transformer, Tokenizer | None]:
    """Average the weights of several checkpoints of one run, as section 6.1 does with the last 5 and the last 20.

    Args:
        folders: What ``save_model`` or a training run wrote; all of the same configuration.

    Returns:
        A model in evaluation mode, and its tokenizer or None.

    Raises:
        ValueError: If there are none, or their configurations differ.
    """
    if not folders:
        raise ValueError("folders must name at least one checkpoint, got none.")
    model, tokenizer = load_model(folders[0])
    sums = {name: parameter.detach().double() for name, parameter in model.named_parameters()}
    for folder in folders[1:]:
        other, _ = load_model(folder)
        if other.config != model.config:
            raise ValueError(f"only models of one configuration can be averaged; {folder} differs from {folders[0]}.")
        for name, parameter in other.named_parameters():
            sums[name] += parameter.detach()
    load_weights(model, {name: total / len(folders) for name, total in sums.items()}, "the average")
    return model, tokenizer


@torch.no_grad()
def load_weights(model: nn.Module, weights: Mapping[str, Tensor], origin: Path | str) -> None:
    """Copy tensors into the parameters of the same names.

    Raises:
        ValueError: If names or shapes are not exactly the model's, or a weight is not a finite number; the message
            names ``origin`` and some of them. Then nothing has been copied.
    """
    parameters = dict(model.named_parameters())
    missing, unknown = sorted(parameters.keys() - weights.keys()), sorted(weights.keys() - parameters.keys())
    if missing or unknown:
        raise ValueError(f"{origin} does not fit the model: missing {missing[:3]}, unknown {unknown[:3]}.")
    for name, parameter in parameters.items():
        if weights[name].shape != parameter.shape:
            raise ValueError(
                f"{origin} does not fit the model: {name} is {tuple(weights[name].shape)} there and "
                f"{tuple(parameter.shape)} in the model."
            )
    _require_finite(weights, origin)
    for name, parameter in parameters.items():
        parameter.copy_(weights[name])


def _require_finite(weights: Mapping[str, Tensor], origin: Path | str) -> None:
    for name, weight in weights.items():
        if not weight.isfinite().all():
            raise ValueError(f"{origin} is of no use: {name} holds infinite numbers or such as are none (NaN).")


def _require_as_configured(model: Transformer) -> None:
    """Refuse a model that its config does not describe, for the config is all that ``load_model`` makes it of."""
    with torch.device("meta"):  # no numbers, so neither time nor random draws
        plain = Transformer(model.config)
    kinds = {name: type(module) for name, module in plain.named_modules(remove_duplicate=False)}
    others: dict[type[nn.Module], str] = {}  # of each kind, where the first of them stands
    for name, module in model.named_modules(remove_duplicate=False):
        if type(module) is not kinds.get(name):
            wanted = kinds[name].__name__ if name in kinds else "nothing"
            others.setdefault(type(module), f"model.{name} must be {wanted}, got {type(module).__name__}")
    if others:
        raise TypeError(
            f"model must be what its config describes, for load_model makes it of that: "
            f"{'; '.join(list(others.values())[:3])}. Save the state_dict instead."
        )
    shapes = {name: parameter.shape for name, parameter in plain.named_parameters()}
    for name, parameter in model.named_parameters():
        if parameter.shape != shapes.get(name):
            raise ValueError(
                f"model must be what its config describes, for load_model makes it of that: model.{name} must be "
                f"{tuple(shapes[name]) if name in shapes else 'no parameter'}, got {tuple(parameter.shape)}."
            )


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write named tensors as one safetensors file, which those may read who may read other files.

    Raises:
        OSError: If it cannot be written, for instance because the disk is full.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file({name: tensor.contiguous().cpu() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        raise OSError(f"{path} cannot be written: {error}.") from error
    mask = os.umask(0)  # it can only be read by setting it
    os.umask(mask)
    path.chmod(0o666 & ~mask)  # safetensors writes for the owner alone


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If it is damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}.")
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged, or not a safetensors file: {error}.") from error


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON that a person can read."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If it is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no {path}.") from None
    except ValueError as error:
        raise ValueError(f"{path} is damaged, or not JSON: {error}.") from error


@contextmanager
def moved_into_place(path: Path | str) -> Iterator[Path]:
    """Let a file or a folder be written beside its place, and move it there when that has gone well.

    What is beside its place is called ``.name.part``. It is removed if writing fails; one left by a process that was
    killed is removed before the next. A folder that is replaced is called ``.name.old`` for the moment between two
    moves; should the process be killed just then, the next puts it back.

    Args:
        path: Where the file or the folder is to stand. One that stands there is replaced.

    Yields:
        The path to write to.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside, old = path.with_name(f".{path.name}.part"), path.with_name(f".{path.name}.old")
    remove(beside)
    if old.exists() and not path.exists():
        old.replace(path)
    try:
        yield beside
        _flush(beside)
        if path.is_dir():  # a folder cannot be moved onto one that is not empty
            remove(old)
            path.replace(old)
        beside.replace(path)
        _flush_entry(path.parent)
    finally:
        remove(beside)
    remove(old)


def _may_be_replaced(folder: Path) -> bool:
    return folder.is_dir() and ((folder / CONFIG).is_file() or not any(folder.iterdir()))


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there; a folder that is half removed no longer has its name."""
    if path.is_dir() and not path.is_symlink():
        if not path.name.startswith("."):
            gone = path.with_name(f".{path.name}.gone")
            if gone.exists():
                shutil.rmtree(gone)
            path = path.replace(gone)
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """Hand all bytes to the disk before the name says that they are there, or a power cut could leave an empty file."""
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            with file.open("rb+") as stream:
                os.fsync(stream.fileno())
    if path.is_dir():
        _flush_entry(path)


def _flush_entry(folder: Path) -> None:
    if os.name == "posix":  # elsewhere folders cannot be opened
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
