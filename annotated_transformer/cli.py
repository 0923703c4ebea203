"""The command line: train a model, translate with it, judge it, export it, and say what one costs."""

from __future__ import annotations

import dataclasses
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import __version__

if TYPE_CHECKING:
    from .config import TransformerConfig
    from .model import Transformer
    from .tokens import Tokenizer

__all__ = ["app", "main"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help='The Transformer of "Attention Is All You Need": train it, translate with it, look at it.',
    epilog="annotated-transformer COMMAND --help says more, with examples.",
)


class Preset(str, Enum):
    """The sizes that have a name."""

    tiny = "tiny"
    small = "small"
    base = "base"
    big = "big"


class Part(str, Enum):
    """What a model can be judged on."""

    validation = "validation"
    test = "test"


ModelOption = Annotated[
    str,
    typer.Option("--model", "-m", help="A run's folder, a checkpoint's or a model's, or the name of a shipped model."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="Change a field of the model or of the training; may be repeated."
    ),
]
DeviceOption = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps; the best there is if not given.")]
SourceOption = Annotated[
    str | None, typer.Option(help="Language of the source, the ending of its files in a folder; en if not given.")
]
TargetOption = Annotated[str | None, typer.Option(help="Language of the target; de if not given.")]
LanguagesOption = Annotated[
    str | None, typer.Option(help="Target languages of a data set that has several, with commas: de,zh.")
]


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
    traceback: Annotated[bool, typer.Option("--traceback", help="Show where in the code an error arose.")] = False,
) -> None:
    """Look at what stands before the command; ``main`` looks at --traceback."""
    if version:
        typer.echo(f"annotated-transformer {__version__}")
        raise typer.Exit


@app.command(no_args_is_help=True)
def train(
    data: Annotated[
        str | None,
        typer.Argument(
            help="dates, numbers, copying, reversing, software-docs, wmt14, or a folder with train.en, train.de, ..."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A new folder for the run.")] = None,
    resume: Annotated[
        Path | None, typer.Option(help="The folder of a run that is to go on. It needs no other option.")
    ] = None,
    preset: Annotated[Preset, typer.Option(help="The model's sizes.")] = Preset.tiny,
    changes: SetOption = None,
    source: SourceOption = None,
    target: TargetOption = None,
    languages: LanguagesOption = None,
    tokens: Annotated[
        str | None, typer.Option(help="What a token is: bpe, unigram, word or character; it depends on the data.")
    ] = None,
    vocabulary: Annotated[int, typer.Option(help="Number of different tokens, for bpe and unigram.")] = 8000,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard's event files too.")] = False,
    device: DeviceOption = None,
) -> None:
    r"""Train a model.

    \b
    annotated-transformer train dates -o runs/dates --set steps=2000
    annotated-transformer train --resume runs/dates
    annotated-transformer train my-corpus --source en --target fr -o runs/en-fr --preset small
    torchrun --nproc-per-node 8 -m annotated_transformer train wmt14 -o runs/wmt14 --preset base

    Ctrl-C ends the run after a step and saves it. The settings are the paper's (section 5) but for the data it names:
    see the fields of TransformerConfig and TrainingSettings, which --set changes.
    """
    from . import runs, tasks
    from .model import Transformer
    from .tokens import Tokenizer

    if (resume is None) == (out is None):
        raise typer.BadParameter("give either --out, a new folder, or --resume, the folder of a run.")
    with _processes(device) as place:
        if resume is not None:
            if data is not None or changes:
                raise typer.BadParameter("a run goes on with the data and the settings that it began with.")
            asked, config, settings = _read_run(resume)
            tokenizer = Tokenizer.load(resume / "tokenizer.json")
            corpus = tasks.load(**asked)
        else:
            if data is None:
                raise typer.BadParameter("name the data to learn from.")
            asked = _asked(data, source, target, languages)
            corpus = tasks.load(**asked)
            tokenizer = _tokenizer(corpus, tokens or _TOKENS.get(data, "bpe"), vocabulary)
            config, settings = _changed(preset, changes or [], tokenizer.vocab_size)
        import torch

        torch.manual_seed(settings.seed)
        model = Transformer(config).to(place)
        _say(f"{_count(model):,} parameters, {tokenizer.vocab_size:,} tokens, {len(corpus.train):,} pairs, on {place}")
        folder = resume or out
        assert folder is not None
        log = runs.train(
            model, tokenizer, corpus.train, settings,
            validation=corpus.validation, folder=folder, resume=resume is not None, tensorboard=tensorboard,
            watch=_say_entry, asked=asked,
        )  # fmt: skip
        last = log[-1]["step"] if log else settings.steps
        _say(
            f"Step {last} of {settings.steps} is saved in {folder}. Translate: annotated-transformer translate -m {folder}"
        )


@app.command(no_args_is_help=True)
def translate(
    model: ModelOption,
    sentences: Annotated[
        list[str] | None, typer.Argument(help="What to translate; standard input if not given.")
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="A text file, one sentence a line.")] = None,
    language: Annotated[
        str | None, typer.Option("--language", "-l", help="Into which language, of a model of several.")
    ] = None,
    beam: Annotated[int, typer.Option(help="Hypotheses followed side by side; 1 is greedy (6.1: 4).")] = 4,
    alpha: Annotated[float, typer.Option(help="Exponent of the length penalty (6.1: 0.6).")] = 0.6,
    n_best: Annotated[int, typer.Option(help="How many translations of each sentence, with their scores.")] = 1,
    scores: Annotated[bool, typer.Option("--scores", help="Print each translation's score before it.")] = False,
    line_by_line: Annotated[
        bool, typer.Option("--line-by-line", help="Answer each line before the next is read.")
    ] = False,
    int8: Annotated[bool, typer.Option("--int8", help="Compute with 8-bit weights: faster for large models.")] = False,
    device: DeviceOption = None,
) -> None:
    r"""Translate sentences: arguments, the lines of a file, or the lines of standard input.

    \b
    annotated-transformer translate -m runs/dates -l de "Saturday, November 29, 2036"
    annotated-transformer translate -m runs/dates -l ja --file dates.txt > answers.txt
    cat dates.txt | annotated-transformer translate -m runs/dates -l zh

    An empty line stays an empty line, so that line n of the output belongs to line n of the input.
    """
    from . import decoding, inference

    if sentences and file:
        raise typer.BadParameter("give sentences or --file, not both.")
    loaded, tokenizer = _load(model, _device(device))
    loaded = inference.prepare(loaded, int8=int8)
    interactive = not sentences and file is None and sys.stdin.isatty()
    if interactive:
        typer.echo("One sentence a line; Ctrl-D ends.", err=True)
    at_once = 1 if interactive or line_by_line else 256
    for lines in _groups(_lines(sentences, file), at_once):
        for translation in decoding.translate(
            loaded, tokenizer, lines, language=language, beam=beam, alpha=alpha, n_best=n_best
        ):
            for hypothesis in translation.n_best or (translation,):
                score = f"{hypothesis.score:.3f}\t" if scores or n_best > 1 else ""
                typer.echo(score + hypothesis.text.replace("\n", " "))
        sys.stdout.flush()


@app.command(no_args_is_help=True)
def evaluate(
    model: ModelOption,
    data: Annotated[str, typer.Argument(help="As for train.")],
    part: Annotated[Part, typer.Option(help="Which part of the data.")] = Part.test,
    source: SourceOption = None,
    target: TargetOption = None,
    languages: LanguagesOption = None,
    beam: Annotated[int, typer.Option(help="As for translate.")] = 4,
    alpha: Annotated[float, typer.Option(help="As for translate.")] = 0.6,
    limit: Annotated[int | None, typer.Option(help="Only so many sentence pairs of each set.")] = None,
    device: DeviceOption = None,
) -> None:
    r"""Judge a model: perplexity, BLEU and chrF by sacrebleu, and the share of exact matches.

    \b
    annotated-transformer evaluate -m runs/dates dates
    annotated-transformer evaluate -m runs/en-fr my-corpus --source en --target fr --part validation
    """
    import math

    from . import evaluation, tasks
    from .batching import encode

    loaded, tokenizer = _load(model, _device(device))
    corpus = tasks.load(**_asked(data, source, target, languages))
    sets = corpus.test if part is Part.test else {"validation": corpus.validation}
    if not any(sets.values()):
        raise ValueError(f"{data} has no {part.value} set.")
    typer.echo(f"{'set':<14} {'pairs':>6} {'perplexity':>10} {'BLEU':>6} {'chrF':>6} {'exact':>7}")
    for name, pairs in sets.items():
        for language in sorted({pair.language for pair in pairs}, key=str):
            group = [pair for pair in pairs if pair.language == language][:limit]
            perplexity = math.exp(evaluation.cross_entropy(loaded, encode(group, tokenizer)))
            found = evaluation.translation_scores(loaded, tokenizer, group, beam=beam, alpha=alpha)
            label = name if language is None else f"{name} {language}"
            typer.echo(
                f"{label:<14} {len(group):>6} {perplexity:>10.3f} {found['bleu']:>6.1f} {found['chrf']:>6.1f} "
                f"{found['exact']:>7.1%}"
            )


@app.command(no_args_is_help=True)
def export(
    model: ModelOption,
    out: Annotated[Path, typer.Option("--out", "-o", help="A new folder for the model.")],
    average: Annotated[int, typer.Option(help="Average the last so many checkpoints of a run (6.1: 5).")] = 1,
    half: Annotated[bool, typer.Option("--half", help="Store 16 bits a number, half the size.")] = False,
    onnx: Annotated[bool, typer.Option("--onnx", help="Write ONNX files too, checked with onnxruntime.")] = False,
) -> None:
    r"""Write a model's folder: weights, configuration, tokenizer.

    \b
    annotated-transformer export -m runs/dates --average 5 --half -o models/dates
    """
    import torch

    from . import checkpoints

    if average > 1:
        folders = checkpoints.checkpoint_folders(model)
        if len(folders) < average:
            raise ValueError(f"{model} has {len(folders)} checkpoints, fewer than the {average} to average.")
        loaded, tokenizer = checkpoints.average(folders[-average:])
    else:
        loaded, tokenizer = _load(model, None)
    checkpoints.save_model(out, loaded, tokenizer, dtype=torch.float16 if half else None)
    if onnx:
        from .export import export_onnx

        export_onnx(loaded, out)
    size = sum(path.stat().st_size for path in out.iterdir())
    typer.echo(f"Written: {out} ({size / 1e6:.1f} MB)")


@app.command()
def info(
    model: Annotated[str | None, typer.Option("--model", "-m", help="As for translate; instead of a preset.")] = None,
    preset: Annotated[Preset, typer.Option(help="The model's sizes.")] = Preset.base,
    changes: SetOption = None,
    length: Annotated[int, typer.Option(help="Tokens of source and target for which the operations are counted.")] = 25,
) -> None:
    r"""Say what a model costs: parameters, memory, floating-point operations.

    \b
    annotated-transformer info --preset big
    annotated-transformer info --preset base --set vocab_size=32000 --length 100
    """
    from . import costs

    config = _load(model, None)[0].config if model is not None else _changed(preset, changes or [], None)[0]
    if model is not None and changes:
        raise typer.BadParameter("the sizes of a model that is there cannot be changed.")
    for field in dataclasses.fields(config):
        typer.echo(f"{field.name:<18} {getattr(config, field.name)}")
    typer.echo("")
    blocks = costs.parameters(config)
    for block, count in [*blocks.items(), ("all", sum(blocks.values()))]:
        typer.echo(f"{'parameters, ' + block:<34} {count:>15,}")
    for what, size in (
        ("weights", 4 * sum(blocks.values())),
        ("weights, gradients, Adam's averages", costs.training_bytes(config)),
        (f"cache of a sentence of {length}", costs.cache_bytes(config, length, length)),
    ):
        typer.echo(f"{what:<38} {size / 2**20:>8,.1f} MiB")
    flops = costs.forward_flops(config, length, length)
    for part, count in [*flops.items(), ("training step", costs.training_flops(config, length, length))]:
        typer.echo(f"{'operations, ' + part:<34} {count:>15,}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; an error of the user's is one line and exit status 1 or 2, Ctrl-C is 130."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        app(given, prog_name="annotated-transformer")
    except KeyboardInterrupt as interrupt:
        typer.echo(f"\n{str(interrupt).capitalize() or 'Interrupted'}.", err=True)
        sys.exit(130)
    except BrokenPipeError:  # whoever read the output has stopped reading
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (ValueError, TypeError, OSError, ImportError, FloatingPointError) as error:
        if "--traceback" in given:
            raise
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)


# What a token is, where it is not a piece of a word.
_TOKENS = {"dates": "word", "numbers": "character", "copying": "word", "reversing": "word"}


def _changed(preset: Preset, changes: Iterable[str], vocab_size: int | None) -> tuple[TransformerConfig, Any]:
    """Apply ``name=value`` to the fields of the model's configuration and of the training settings."""
    from . import config
    from .training import TrainingSettings

    chosen: TransformerConfig = getattr(config, preset.value.upper())
    settings = TrainingSettings()
    if vocab_size is not None:
        chosen = chosen.replace(vocab_size=vocab_size)
    for change in changes:
        name, equals, text = change.partition("=")
        if not equals:
            raise typer.BadParameter(f"--set takes NAME=VALUE, got {change!r}.")
        if vocab_size is not None and name == "vocab_size":
            raise typer.BadParameter("vocab_size is the tokenizer's; --vocabulary changes it.")
        if hasattr(chosen, name):
            chosen = chosen.replace(**{name: _value(text)})
        elif hasattr(settings, name):
            settings = settings.replace(**{name: _value(text)})
        else:
            fields = [field.name for kind in (chosen, settings) for field in dataclasses.fields(kind)]
            raise typer.BadParameter(f"there is no field {name!r} to --set; there are {', '.join(fields)}.")
    return chosen, settings


def _value(text: str) -> Any:
    """Read a value as what the field holds: a whole number, a number, true or false, none, or a word."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    with suppress(ValueError):
        return int(text)
    with suppress(ValueError):
        return float(text)
    return text


def _read_run(folder: Path) -> tuple[dict[str, Any], TransformerConfig, Any]:
    """What a run was asked for, its configuration and its settings."""
    from . import checkpoints
    from .config import TransformerConfig
    from .training import TrainingSettings

    if not (folder / "run.json").is_file():
        raise FileNotFoundError(f"{folder} holds no run that could go on: there is no run.json in it.")
    run = checkpoints.read_json(folder / "run.json")
    return run["asked"], TransformerConfig(**run["config"]), TrainingSettings(**run["settings"])


def _tokenizer(corpus: Any, kind: str, vocabulary: int) -> Tokenizer:
    """One vocabulary for both sides, as in section 5.1."""
    from .tokens import Tokenizer

    languages = sorted({pair.language for pair in corpus.train if pair.language is not None})
    texts = (text for pair in corpus.train for text in (pair.source, pair.target))
    # A model of one language need not be told which.
    return Tokenizer.train(
        texts, kind=kind, vocab_size=vocabulary, languages=tuple(languages) if len(languages) > 1 else ()
    )


def _load(name: str, device: Any) -> tuple[Transformer, Tokenizer]:
    from . import checkpoints

    folder = checkpoints.find(name)
    model, tokenizer = checkpoints.load_model(folder)
    if tokenizer is None:
        raise FileNotFoundError(f"{folder} has no tokenizer.json.")
    return (model.to(device) if device is not None else model), tokenizer


def _device(name: str | None) -> Any:
    import torch

    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device {name!r} is not to be had here: {str(error).splitlines()[0]}") from None


class _processes:  # noqa: N801  # reads as a phrase: with _processes(device) as place
    """Join the other processes if torchrun has started several; each has a device of its own."""

    def __init__(self, device: str | None) -> None:
        self.several = int(os.environ.get("WORLD_SIZE", "1")) > 1
        self.device = device

    def __enter__(self) -> Any:
        import torch

        if not self.several:
            return _device(self.device)
        cuda = torch.cuda.is_available() and self.device in (None, "cuda")
        torch.distributed.init_process_group("nccl" if cuda else "gloo")
        if not cuda:
            return _device(self.device or "cpu")
        place = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(place)
        return place

    def __exit__(self, *_: object) -> None:
        if self.several:
            import torch

            torch.distributed.destroy_process_group()


def _say(text: str) -> None:
    if os.environ.get("RANK", "0") == "0":
        typer.echo(text, err=True)


def _say_entry(entry: dict[str, Any]) -> None:
    """One line for each validation; what comes in between, the progress bar shows."""
    if "validation_loss" not in entry:
        return
    from tqdm import tqdm

    parts = [f"step {entry['step']}", f"validation loss {entry['validation_loss']:.3f}"]
    parts += [f"perplexity {entry['perplexity']:.2f}"]
    parts += [f"{name} {entry[key]:.1f}" for key, name in (("bleu", "BLEU"), ("chrf", "chrF")) if key in entry]
    parts += [f"exact {entry['exact']:.1%}"] if "exact" in entry else []
    tqdm.write(", ".join(parts), file=sys.stderr)


def _count(model: Transformer) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _asked(data: str, source: str | None, target: str | None, languages: str | None) -> dict[str, Any]:
    """What ``tasks.load`` is called with: the data and what else was given."""
    several = None if languages is None else [language.strip() for language in languages.split(",") if language.strip()]
    options = {"name": data, "source": source, "target": target, "languages": several}
    return {name: value for name, value in options.items() if value is not None}


def _lines(sentences: list[str] | None, file: Path | None) -> Iterator[str]:
    """The sentences to translate, one after the other, as they come."""
    if sentences:
        yield from sentences
    elif file is not None:
        from .tasks import lines

        yield from lines(file)
    else:
        for number, line in enumerate(sys.stdin.buffer, start=1):
            try:
                yield line.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                raise ValueError(f"standard input, line {number}: not UTF-8.") from None


def _groups(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    remaining = iter(lines)
    while group := list(itertools.islice(remaining, size)):
        yield group


if __name__ == "__main__":
    main()
