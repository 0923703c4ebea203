"""What the commands have in common: their options, and what becomes of these."""

from __future__ import annotations

import codecs
import dataclasses
import inspect
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:
    import torch

    from .config import TransformerConfig
    from .model import Transformer
    from .tasks import Corpus
    from .tokens import Tokenizer
    from .training import TrainingSettings

__all__ = [
    "Part",
    "Preset",
    "Request",
    "Tokens",
    "configure",
    "device_named",
    "groups",
    "joined_processes",
    "load",
    "load_corpus",
    "make_tokenizer",
    "preset_config",
    "read_changes",
    "read_run",
    "request",
    "sentences_from",
]


_Settings = TypeVar("_Settings", "TransformerConfig", "TrainingSettings")


class Preset(str, Enum):
    """The sizes that have a name in ``config``."""

    tiny = "tiny"
    small = "small"
    base = "base"
    big = "big"


class Tokens(str, Enum):
    """What a token can be."""

    bpe = "bpe"
    unigram = "unigram"
    word = "word"
    character = "character"


class Part(str, Enum):
    """What a model can be judged on."""

    validation = "validation"
    test = "test"


Request = dict[str, Any]
"""What ``tasks.load`` is called with; a run keeps it, so that it can go on with the same data."""

ModelOption = Annotated[
    str, typer.Option("--model", "-m", help="Folder of a run, a checkpoint or a model, or the name of a shipped model.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Change a field, as in steps=2000; a wrong name lists them all. May be given several times.",
    ),
]
DeviceOption = Annotated[
    str | None, typer.Option(help="cpu, cuda, cuda:1, mps.  [default: cuda if there is one, else cpu]")
]
SourceOption = Annotated[
    str | None, typer.Option(help="Language of the source: how its files in a folder end.  [default: en]")
]
TargetOption = Annotated[str | None, typer.Option(help="Language of the target.  [default: de]")]
LanguagesOption = Annotated[
    str | None, typer.Option(help="Target languages, of data that have several: de,zh.  [default: all]")
]
BeamOption = Annotated[int, typer.Option(min=1, help="Hypotheses followed side by side (6.1); 1 is greedy.")]
AlphaOption = Annotated[float, typer.Option(help="Exponent of the length penalty (6.1).")]


# Settings


def preset_config(preset: Preset) -> TransformerConfig:
    """Return the configuration of a preset."""
    from . import config

    sizes: TransformerConfig = getattr(config, preset.value.upper())
    return sizes


def configure(config: _Settings, changes: Mapping[str, Any]) -> _Settings:
    """Apply those changes that are to fields of a configuration, or of training settings.

    Raises:
        typer.BadParameter: If a field cannot have its value.
    """
    ours = {field.name for field in dataclasses.fields(config)}
    try:
        return config.replace(**{name: value for name, value in changes.items() if name in ours})
    except (TypeError, ValueError) as error:
        raise _bad_set(str(error)) from None


def read_changes(changes: Iterable[str] | None, *kinds: type) -> dict[str, Any]:
    """Read each ``NAME=VALUE`` as a value of the field of that name.

    Raises:
        typer.BadParameter: If none of the dataclasses ``kinds`` has the field, or its type does not have the value.
    """
    fields = {field.name: field for kind in kinds for field in dataclasses.fields(kind)}
    read = {}
    for change in changes or []:
        name, equals, text = (part.strip() for part in change.partition("="))
        if not equals:
            raise _bad_set(f"it takes NAME=VALUE, got {change!r}.")
        if name not in fields:
            raise _bad_set(f"there is no field {name!r}; there are {', '.join(fields)}.")
        read[name] = _value(fields[name], text)
    return read


def _value(field: dataclasses.Field[Any], text: str) -> Any:
    kind = str(field.type).removesuffix(" | None")
    what, read = _KINDS[kind]
    may_be_none = field.default is None
    if may_be_none and text.lower() == "none":
        return None
    try:
        return read(text)
    except (KeyError, ValueError, OverflowError):
        none = " or none" if may_be_none else ""
        raise _bad_set(f"{field.name} takes {what}{none}, got {text!r}.") from None


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        number = float(text)  # 1e5
        if number != int(number):
            raise
        return int(number)


def _switch(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


_KINDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "int": ("a whole number", _whole),
    "float": ("a number", float),
    "bool": ("true or false", _switch),
    "str": ("a word", str),
}


def _bad_set(message: str) -> typer.BadParameter:
    return typer.BadParameter(message, param_hint="'--set'")


# Data


def request(data: str, source: str | None, target: str | None, languages: str | None) -> Request:
    """Note which data are asked for; a folder by its whole path, so that it is found from another one too."""
    from . import tasks

    known = data in tasks.TASKS or tasks.WMT.fullmatch(data)
    name = data if known or not Path(data).exists() else str(Path(data).resolve())
    several = None if languages is None else [part.strip() for part in languages.split(",") if part.strip()]
    asked = {"name": name, "source": source, "target": target, "languages": several}
    return {option: value for option, value in asked.items() if value is not None}


def load_corpus(asked: Request) -> Corpus:
    """Load what was asked for.

    Raises:
        typer.BadParameter: If these data do not take an option.
    """
    from . import tasks

    try:
        return tasks.load(**asked)
    except TypeError:
        takes = inspect.signature(tasks.TASKS.get(asked["name"], tasks.read_folder)).parameters
        taken = [f"--{name}" for name in ("source", "target", "languages") if name in takes]
        given = [f"--{name}" for name in asked if name != "name" and f"--{name}" not in taken]
        raise typer.BadParameter(
            f"{asked['name']} takes no {' and no '.join(given)}; it takes {' and '.join(taken) or 'neither'}."
        ) from None


def make_tokenizer(corpus: Corpus, kind: str, vocabulary: int) -> Tokenizer:
    """Make one vocabulary for both sides (5.1), with a token for each target language if there are several."""
    from .tokens import Tokenizer

    languages = sorted({pair.language for pair in corpus.train if pair.language is not None})
    texts = (text for pair in corpus.train for text in (pair.source, pair.target))
    several = tuple(languages) if len(languages) > 1 else ()  # a model of one need not be told which
    try:
        return Tokenizer.train(texts, kind=kind, vocab_size=vocabulary, languages=several)
    except ValueError as error:
        if str(error).startswith("vocab_size"):
            raise typer.BadParameter(str(error), param_hint="'--vocabulary'") from None
        raise


def sentences_from(arguments: Sequence[str] | None, file: Path | None) -> Iterator[str]:
    """Yield the sentences to translate as they come: arguments, lines of a file, or of standard input.

    Raises:
        ValueError: If one is not UTF-8; the message says which.
    """
    from . import tasks

    if file is not None:
        yield from (line.strip() for line in tasks.lines(file))
    elif arguments:
        yield from (_text(f"sentence {number}", os.fsencode(text)) for number, text in enumerate(arguments, start=1))
    else:
        for number, line in enumerate(sys.stdin.buffer, start=1):
            yield _text(f"standard input, line {number}", line.removeprefix(codecs.BOM_UTF8) if number == 1 else line)


def _text(where: str, line: bytes) -> str:
    try:
        return line.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise ValueError(f"{where} is not UTF-8.") from None


def groups(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    """Take so many lines at a time; none is waited for before its group is due."""
    remaining = iter(lines)
    while group := list(itertools.islice(remaining, size)):
        yield group


# Models and runs


def load(name: str, device: torch.device | None = None) -> tuple[Transformer, Tokenizer]:
    """Load a model that can read text.

    Raises:
        FileNotFoundError: If there is none, or it has no tokenizer.
        ValueError: If a file is damaged.
    """
    from . import checkpoints

    folder = checkpoints.find(name)
    model, tokenizer = checkpoints.load_model(folder)
    if tokenizer is None:
        raise FileNotFoundError(f"{folder} has no {checkpoints.TOKENIZER}, without which the model reads no text.")
    return (model if device is None else model.to(device)), tokenizer


def read_run(folder: Path) -> tuple[Request, TransformerConfig, TrainingSettings]:
    """Read what a run was asked for, its model's sizes and its settings.

    Raises:
        FileNotFoundError: If there is no run.
        ValueError: If its file is damaged, or ``train`` has not begun it.
    """
    from . import checkpoints
    from .config import TransformerConfig
    from .training import TrainingSettings

    path = folder / "run.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no run that could go on: there is no run.json in it.")
    run = checkpoints.read_json(path)
    try:
        asked, config, settings = run["asked"], TransformerConfig(**run["config"]), TrainingSettings(**run["settings"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged, or another version's: {error}") from None
    if "name" not in asked:
        raise ValueError(f"{path} does not say what data the run has: it was not begun on the command line.")
    return asked, config, settings


# Devices and processes


def device_named(name: str | None) -> torch.device:
    """Find a device.

    Raises:
        typer.BadParameter: If it is not there.
    """
    import torch

    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.ones(1, device=name).cpu()  # "meta" has a name, and holds no numbers
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise typer.BadParameter(f"{name!r} cannot be had here: {reason}.", param_hint="'--device'") from None
    return torch.device(name)


@contextmanager
def joined_processes(device: str | None) -> Iterator[torch.device]:
    """Join the other processes if torchrun has started several; each GPU then has a process of its own."""
    import torch

    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield device_named(device)
        return
    on_gpu = device == "cuda" or (device is None and torch.cuda.is_available())
    place = device_named(f"cuda:{os.environ['LOCAL_RANK']}" if on_gpu else device or "cpu")
    if on_gpu:
        torch.cuda.set_device(place)
    torch.distributed.init_process_group("nccl" if on_gpu else "gloo")
    try:
        yield place
    finally:
        torch.distributed.destroy_process_group()
