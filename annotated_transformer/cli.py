"""The command line: train a model, translate with it, judge it, export it, and say what one costs."""

from __future__ import annotations

import dataclasses
import math
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .cli_options import (
    AlphaOption,
    BeamOption,
    DeviceOption,
    LanguagesOption,
    ModelOption,
    Part,
    Preset,
    SetOption,
    SourceOption,
    TargetOption,
    Tokens,
    configure,
    device_named,
    groups,
    joined_processes,
    load,
    load_corpus,
    make_tokenizer,
    preset_config,
    read_changes,
    read_run,
    request,
    sentences_from,
)

__all__ = ["app", "main"]

# What a wrong argument, file or folder raises here, and what a diverging run does; all else is a mistake of ours.
USER_ERRORS = (ValueError, OSError, ImportError, FloatingPointError)


class Commands(TyperGroup):
    """Commands that answer an error of the user's with one line, unless they are asked for the traceback."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take --traceback out from wherever it stands."""
        own = args[: args.index("--")] if "--" in args else args
        ctx.meta["traceback"] = "--traceback" in own
        return super().parse_args(ctx, [arg for arg in own if arg != "--traceback"] + args[len(own) :])

    def invoke(self, ctx: Any) -> Any:
        """Run a command; the exit status is 1 after an error, 130 after Ctrl-C."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            text = str(interrupt) or "interrupted"
            _say(f"{text[:1].upper()}{text[1:]}.")
            raise typer.Exit(130) from None
        except BrokenPipeError:  # whoever read the output has stopped reading; Typer ends quietly
            raise
        except USER_ERRORS as error:
            if ctx.meta["traceback"]:
                raise
            process = f" in process {os.environ['RANK']}" if int(os.environ.get("WORLD_SIZE", "1")) > 1 else ""
            typer.echo(f"Error{process}: {_reason(error)}", err=True)
            raise typer.Exit(1) from None


def _examples(*lines: str) -> str:
    """Write examples at the end of a command's help."""
    # The backspace tells Typer to leave the lines as they are.
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


app = typer.Typer(
    cls=Commands,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help='The Transformer of "Attention Is All You Need": train one, translate with it, see what it costs.',
    epilog=_examples(
        "annotated-transformer train dates --out runs/dates",
        'annotated-transformer translate --model runs/dates --language de "March 8, 2024"',
        "annotated-transformer train --help",
    ),
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"annotated-transformer {sys.modules[__package__].__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    traceback: Annotated[bool, typer.Option("--traceback", help="Show where in the code an error arose.")] = False,
) -> None:
    """Take what stands before a command; ``Commands`` has looked at --traceback."""


@app.command(
    no_args_is_help=True,
    epilog=_examples(
        "annotated-transformer train dates --out runs/dates",
        "annotated-transformer train --resume runs/dates",
        "annotated-transformer train my-texts --target fr --out runs/en-fr --preset base --set steps=50000",
        "torchrun --standalone --nproc-per-node 8 -m annotated_transformer train wmt14 \\",
        "    --out runs/wmt14 --set precision=bfloat16",
    ),
)
def train(
    context: typer.Context,
    data: Annotated[
        str | None,
        typer.Argument(
            help="dates, numbers, copying, reversing, software-docs, wmt14, or a folder with train.en and train.de, "
            "val.en and val.de, and test.en and test.de if you like."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A new folder for the run.")] = None,
    resume: Annotated[
        Path | None, typer.Option(help="The folder of a run that is to go on. It needs no other option.")
    ] = None,
    preset: Annotated[
        Preset | None,
        typer.Option(help="The model's sizes.  [default: small; tiny for a generated task, base for wmt14]"),
    ] = None,
    changes: SetOption = None,
    source: SourceOption = None,
    target: TargetOption = None,
    languages: LanguagesOption = None,
    tokens: Annotated[
        Tokens | None, typer.Option(help="What a token is.  [default: bpe; word or character for a generated task]")
    ] = None,
    vocabulary: Annotated[
        int | None, typer.Option(min=1, help="The most tokens there may be.  [default: 8000; 37000 for wmt14]")
    ] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard's event files too.")] = False,
    device: DeviceOption = None,
) -> None:
    """Train a model.

    Sizes and settings are those that suit the data: for wmt14 the paper's (section 5); for a generated task such that
    a tiny model learns it on a CPU in minutes; for text of your own in between. --set changes any field of
    TransformerConfig and of TrainingSettings. Ctrl-C ends the run after the step it is in, and saves it.
    """
    import torch

    from . import checkpoints, recipes, runs
    from .config import TransformerConfig
    from .model import Transformer
    from .tokens import Tokenizer
    from .training import TrainingSettings

    changed = read_changes(changes, TransformerConfig, TrainingSettings)
    if changed.get("schedule") == "paper":
        changed.setdefault("peak", None)  # that of the recipe belongs to the recipe's own schedule
    with joined_processes(device) as place:
        if resume is not None:
            _refuse_others(context, "resume", "changes", "tensorboard", "device")
            asked, config, settings = read_run(resume)
            corpus, tokenizer = load_corpus(asked), Tokenizer.load(resume / "tokenizer.json")
            config, settings = configure(config, changed), configure(settings, changed)
            tensorboard = tensorboard or (resume / "tensorboard").is_dir()
            made = checkpoints.checkpoint_folders(resume)
            _say(f"Goes on from step {int(made[-1].name) if made else 0} of {settings.steps}.")
        elif data is None or out is None:
            raise typer.BadParameter("name the data and a new folder (--out), or a run that is to go on (--resume).")
        else:
            runs.require_free(out)
            if "vocab_size" in changed:
                raise typer.BadParameter(
                    "vocab_size is the tokenizer's; --vocabulary changes it.", param_hint="'--set'"
                )
            recipe = recipes.recipe(data)
            sizes = recipe.config if preset is None else preset_config(preset)
            settings = configure(recipe.settings, changed)
            configure(sizes, changed)  # so that a mistake is found before anything takes long
            asked = request(data, source, target, languages)
            corpus = load_corpus(asked)
            out.mkdir(parents=True, exist_ok=True)
            kind = recipe.tokens if tokens is None else tokens.value
            try:
                tokenizer = make_tokenizer(corpus, kind, vocabulary or recipe.vocabulary)
            except BaseException:
                with suppress(OSError):
                    out.rmdir()  # unless there is something in it
                raise
            config = configure(sizes, {"vocab_size": tokenizer.vocab_size, **changed})
        folder = resume or out
        assert folder is not None
        torch.manual_seed(settings.seed)
        model = Transformer(config).to(place)
        size = sum(parameter.numel() for parameter in model.parameters())
        _say(f"{size:,} parameters, {tokenizer.vocab_size:,} tokens, {len(corpus.train):,} pairs, on {place}.")
        try:
            runs.train(
                model, tokenizer, corpus.train, settings,
                validation=corpus.validation, folder=folder, resume=resume is not None, tensorboard=tensorboard,
                watch=_say_entry, asked=asked,
            )  # fmt: skip
        except KeyboardInterrupt as stop:
            raise KeyboardInterrupt(f"{stop}; train --resume {folder} goes on" if str(stop) else "") from None
    language = f" --language {tokenizer.languages[0]}" if tokenizer.languages else ""
    _say(f"Step {settings.steps} is saved. Try it: annotated-transformer translate --model {folder}{language}")


@app.command(
    no_args_is_help=True,
    epilog=_examples(
        'annotated-transformer translate --model en-de "Select the file."',
        'annotated-transformer translate --model runs/dates --language de "Saturday, November 29, 2036"',
        "annotated-transformer translate -m runs/dates -l ja --file dates.txt > answers.txt",
        "cat dates.txt | annotated-transformer translate -m runs/dates -l zh",
    ),
)
def translate(
    model: ModelOption,
    sentences: Annotated[
        list[str] | None, typer.Argument(help="What to translate.  [default: the lines of standard input]")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="A file of text, one sentence to a line; .gz and .xz too.")
    ] = None,
    language: Annotated[
        str | None, typer.Option("--language", "-l", help="Into which language, for a model of several.")
    ] = None,
    beam: BeamOption = 4,
    alpha: AlphaOption = 0.6,
    n_best: Annotated[int, typer.Option(min=1, help="How many translations of each sentence, with scores.")] = 1,
    scores: Annotated[
        bool, typer.Option("--scores", help="Print each translation's score and a tab before it.")
    ] = False,
    line_by_line: Annotated[
        bool, typer.Option("--line-by-line", help="Answer each line before the next is read.")
    ] = False,
    int8: Annotated[bool, typer.Option("--int8", help="Compute with weights of 8 bits, on a CPU.")] = False,
    device: DeviceOption = None,
) -> None:
    """Translate sentences: arguments, the lines of a file, or the lines of standard input.

    Line n of the output belongs to line n of the input: an empty line stays an empty line. With --n-best N, each
    sentence has N lines.
    """
    from . import checkpoints, decoding, inference

    if sentences and file:
        raise typer.BadParameter("give sentences or --file, not both.")
    loaded, tokenizer = load(model, device_named("cpu" if int8 and device is None else device))
    language = language or checkpoints.language_of(model)
    loaded = inference.prepare(loaded, int8=int8)
    interactive = not sentences and file is None and sys.stdin.isatty()
    if interactive:
        typer.echo("One sentence to a line; Ctrl-D ends.", err=True)
    at_once = 1 if interactive or line_by_line else 256
    for lines in groups(sentences_from(sentences, file), at_once):
        for translation in decoding.translate(
            loaded, tokenizer, lines, language=language, beam=beam, alpha=alpha, n_best=n_best
        ):
            found = translation.n_best or (translation,) * n_best  # an empty sentence has one translation
            for hypothesis in found:
                score = f"{hypothesis.score:.3f}\t" if scores or n_best > 1 else ""
                typer.echo(score + " ".join(hypothesis.text.splitlines()))


@app.command(
    no_args_is_help=True,
    epilog=_examples(
        "annotated-transformer evaluate --model runs/dates",
        "annotated-transformer evaluate --model en-de software-docs --signature",
        "annotated-transformer evaluate -m runs/en-fr my-texts --target fr --part validation --signature",
    ),
)
def evaluate(
    model: ModelOption,
    data: Annotated[str | None, typer.Argument(help="As for train.  [default: what the run was trained on]")] = None,
    part: Annotated[Part, typer.Option(help="Which part of the data.")] = Part.test,
    source: SourceOption = None,
    target: TargetOption = None,
    languages: LanguagesOption = None,
    beam: BeamOption = 4,
    alpha: AlphaOption = 0.6,
    limit: Annotated[
        int | None, typer.Option(min=1, help="The first so many pairs of each set and language.  [default: all]")
    ] = None,
    signature: Annotated[
        bool, typer.Option("--signature", help="Print sacrebleu's signatures, by which a score is cited.")
    ] = False,
    device: DeviceOption = None,
) -> None:
    """Judge a model: perplexity per token, BLEU and chrF by sacrebleu, and the share of exact matches.

    Each set and each language has a line of its own.
    """
    from . import checkpoints, evaluation
    from .batching import encode

    checkpoints.find(model)
    if data is not None:
        asked = request(data, source, target, languages)
    elif (source, target, languages) != (None, None, None):
        raise typer.BadParameter("--source, --target and --languages belong to data that are named.")
    elif (Path(model) / "run.json").exists():
        asked, _, _ = read_run(Path(model))
    else:
        raise typer.BadParameter("name the data: only the folder of a run says what its model was trained on.")
    loaded, tokenizer = load(model, device_named(device))
    corpus = load_corpus(asked)
    sets = corpus.test if part is Part.test else {"validation": corpus.validation}
    asked_for = checkpoints.language_of(model)  # by the model's name
    if asked_for is not None:
        sets = {name: [pair for pair in pairs if pair.language == asked_for] for name, pairs in sets.items()}
    if not any(sets.values()):
        raise ValueError(f"{asked['name']} has no {part.value} set.")
    width = max(len(f"{name} {pair.language or ''}") for name, pairs in sets.items() for pair in pairs)
    typer.echo(f"{'set':<{width}} {'pairs':>6} {'perplexity':>10} {'BLEU':>6} {'chrF':>6} {'exact':>7}")
    signatures: dict[str, str] = {}
    for name, pairs in sets.items():
        for language in sorted({pair.language for pair in pairs}, key=str):
            group = [pair for pair in pairs if pair.language == language][:limit]
            perplexity = math.exp(min(evaluation.cross_entropy(loaded, encode(group, tokenizer)), 700.0))
            found = evaluation.translation_scores(loaded, tokenizer, group, beam=beam, alpha=alpha)
            label = f"{name} {language or ''}"
            typer.echo(
                f"{label:<{width}} {len(group):>6} {perplexity:>10.3f} {found['bleu']:>6.1f} {found['chrf']:>6.1f} "
                f"{found['exact']:>7.1%}"
            )
            signatures |= {f"{metric}, {label}": text for metric, text in evaluation.signatures(language).items()}
    if signature:
        for what, text in signatures.items():
            typer.echo(f"{what}: {text}")


@app.command(
    no_args_is_help=True,
    epilog=_examples(
        "annotated-transformer export --model runs/dates --out models/dates --half",
        "annotated-transformer export -m runs/en-fr --average 5 -o models/en-fr --onnx",
    ),
)
def export(
    model: ModelOption,
    out: Annotated[Path, typer.Option("--out", "-o", help="A new folder for the model, or a model's to replace.")],
    average: Annotated[int, typer.Option(min=1, help="Average the last so many checkpoints of a run (6.1).")] = 1,
    half: Annotated[bool, typer.Option("--half", help="Store numbers of 16 bits: half the size.")] = False,
    onnx: Annotated[bool, typer.Option("--onnx", help="Write ONNX files too, checked with onnxruntime.")] = False,
) -> None:
    """Write a model's folder, which translate reads: weights, configuration and tokenizer, without the training."""
    import torch

    from . import checkpoints

    if average > 1:
        folders = checkpoints.checkpoint_folders(model)
        if len(folders) < average:
            raise ValueError(f"{model} has fewer checkpoints, {len(folders)}, than the {average} to average.")
        loaded, tokenizer = checkpoints.average(folders[-average:])
    else:
        loaded, tokenizer = load(model)
    checkpoints.save_model(out, loaded, tokenizer, dtype=torch.float16 if half else None)
    if onnx:
        from .export import export_onnx

        export_onnx(loaded, out)
    size = sum(path.stat().st_size for path in out.iterdir())
    typer.echo(f"Written: {out} ({size / 1e6:.1f} MB)")


@app.command(
    epilog=_examples(
        "annotated-transformer info --preset big",
        "annotated-transformer info --preset base --set vocab_size=32000 --length 100",
        "annotated-transformer info --model runs/dates",
    )
)
def info(
    model: Annotated[str | None, typer.Option("--model", "-m", help="As for translate; instead of a preset.")] = None,
    preset: Annotated[Preset, typer.Option(help="The model's sizes.")] = Preset.base,
    changes: SetOption = None,
    length: Annotated[
        int, typer.Option(min=1, help="Tokens of the source, and of the target, that are counted for.")
    ] = 25,
) -> None:
    """Say what a model costs: parameters, memory, and the floating-point operations of one sentence pair."""
    from . import checkpoints, costs
    from .config import TransformerConfig

    if model is not None and changes:
        raise typer.BadParameter("a model's sizes are what they are: --set belongs to a preset.")
    if model is not None:
        config = checkpoints.load_config(checkpoints.find(model))
    else:
        config = configure(preset_config(preset), read_changes(changes, TransformerConfig))
    for field in dataclasses.fields(config):
        typer.echo(f"{field.name:<18} {getattr(config, field.name)}")
    parameters = costs.parameters(config)
    flops = costs.forward_flops(config, length, length)
    typer.echo("\nparameters")
    for block, count in [*parameters.items(), ("all", sum(parameters.values()))]:
        typer.echo(f"  {block:<36} {count:>18,}")
    typer.echo("memory, bytes in float32")
    for what, count in (
        ("weights", 4 * sum(parameters.values())),
        ("weights, gradients, Adam's averages", costs.training_bytes(config)),
        (f"cache of one sentence of {length} tokens", costs.cache_bytes(config, length, length)),
    ):
        typer.echo(f"  {what:<36} {count:>18,}")
    typer.echo(f"operations, one pair of {length} tokens a side")
    for what, count in [
        *flops.items(),
        ("all", sum(flops.values())),
        ("training step", costs.training_flops(config, length, length)),
    ]:
        typer.echo(f"  {what:<36} {count:>18,}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, and exit: 0 when all went well, 1 or 2 after an error of the user's, 130 after Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8")  # as the input is, whatever the terminal's language
    app(None if arguments is None else list(arguments), prog_name="annotated-transformer")


def _refuse_others(context: Any, *allowed: str) -> None:
    """Refuse options that a run which goes on would not heed."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name)
        if parameter.name not in allowed and source is not None and source.name == "COMMANDLINE":
            name = (
                parameter.opts[0]
                if parameter.opts[0].startswith("-")
                else f"the data ({context.params[parameter.name]})"
            )
            raise typer.BadParameter(f"a run goes on with what it began with, without {name}.")


def _reason(error: BaseException) -> str:
    """What went wrong, in plain words: for the system's errors the file and the reason, without a number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
    return str(error)


def _say(text: str) -> None:
    """Tell the user something, once, however many processes there are."""
    if os.environ.get("RANK", "0") == "0":
        typer.echo(text, err=True)


def _say_entry(entry: dict[str, Any]) -> None:
    """Write a line for each validation; what comes in between, the progress bar shows."""
    if "validation_loss" not in entry:
        return
    from tqdm import tqdm  # type: ignore[import-untyped]

    parts = [f"validation loss {entry['validation_loss']:.3f}", f"perplexity {entry['perplexity']:.2f}"]
    parts += [f"{name} {entry[key]:.1f}" for key, name in (("bleu", "BLEU"), ("chrf", "chrF")) if key in entry]
    parts += [f"exact {entry['exact']:.1%}"] if "exact" in entry else []
    tqdm.write(f"Step {entry['step']}: {', '.join(parts)}", file=sys.stderr)


if __name__ == "__main__":
    main()
