"""The command line: what each command prints, and what each mistake is answered with."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import types
from typing import NamedTuple

import pytest
import torch
import typer.main

from annotated_transformer import (
    __version__,
    checkpoints,
    cli,
    cli_options,
    costs,
    decoding,
    evaluation,
    inference,
    recipes,
    tasks,
)
from annotated_transformer.batching import encode
from annotated_transformer.config import BASE, BIG, CHOICES, SMALL, TINY, TransformerConfig
from annotated_transformer.model import Transformer
from annotated_transformer.tokens import Tokenizer
from annotated_transformer.training import TrainingSettings

posix = pytest.mark.skipif(os.name != "posix", reason="pipes and signals as POSIX has them")

COMMANDS = ("train", "translate", "evaluate", "export", "info")
SMALLER = {"d_model": 16, "d_ff": 19, "h": 2, "N": 1}
SETTINGS = {"steps": 7, "max_tokens": 300, "save_every": 3, "validate_every": 4, "translate": 3, "warmup_steps": 2}


def sets(**changes):
    return [part for name, value in changes.items() for part in ("--set", f"{name}={value}")]


class Result(NamedTuple):
    code: int
    out: str
    err: str


def call(*arguments, stdin=b""):
    """Run a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as left:
            cli.main([str(argument) for argument in arguments])
    return Result(left.value.code or 0, out.getvalue(), err.getvalue())


def start(*arguments, launcher=("-m", "annotated_transformer"), **options):
    """Run a command in a process of its own."""
    path = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    return subprocess.Popen(
        [sys.executable, *launcher, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of a few steps, as the command line makes it; nothing is written to it afterwards."""
    folder = tmp_path_factory.mktemp("cli") / "Run"
    result = call("train", "reversing", "-o", folder, *sets(**SMALLER, **SETTINGS))
    assert result.code == 0, result
    assert result.out == ""
    return folder, result.err


@pytest.fixture(scope="module")
def folder(run):
    return run[0]


@pytest.fixture(scope="module")
def languages(tmp_path_factory):
    """A model of two languages that has learned nothing."""
    folder = tmp_path_factory.mktemp("cli") / "languages"
    tokenizer = Tokenizer.train(["12345 67890"], kind="word", languages=("de", "zh"))
    torch.manual_seed(0)
    model = Transformer(TINY.replace(vocab_size=tokenizer.vocab_size, **SMALLER))
    checkpoints.save_model(folder, model, tokenizer)
    return folder


@pytest.fixture
def texts(tmp_path):
    """A folder of parallel text."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for part, lines in {"train": 20, "val": 3, "test_a": 2, "test_b": 1}.items():
        for ending in ("en", "fr"):
            text = "".join(f"{ending} {part} {line}\n" for line in range(lines))
            (folder / f"{part}.{ending}").write_text(text, encoding="utf-8")
    return folder


def weights(folder):
    model, _ = checkpoints.load_model(checkpoints.find(folder))
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


# --- help --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [(), *((command,) for command in COMMANDS)])
def test_help_ends_with_examples_on_lines_of_their_own(command):
    result = call(*command, "--help")
    assert result.code == 0
    _, _, examples = result.out.partition("Examples:\n")
    assert re.search(rf"(?m)^    annotated-transformer {''.join(command)}.*\S$", examples)


def test_every_example_is_a_command_that_there_is():
    group = typer.main.get_command(cli.app)
    count = 0
    for command in group.commands.values():
        text = command.epilog.replace("\\\n", " ").partition("Examples:\n")[2]
        for line in text.splitlines():
            words = shlex.split(line.split("| ")[-1].split(" > ")[0])
            name = words[words.index("-m" if words[0] == "torchrun" else words[0]) + 1 :]
            name = name[1:] if words[0] == "torchrun" else name
            assert name[0] in COMMANDS
            if "--help" not in name:
                group.commands[name[0]].make_context(name[0], name[1:])  # an unknown option would raise
                count += 1
    assert count >= 12


@pytest.mark.parametrize("command", [(), *((command,) for command in COMMANDS if command != "info")])
def test_a_command_without_anything_helps(command):
    result = call(*command)
    assert "Examples:" in result.out + result.err


def test_version():
    assert call("--version") == (0, f"annotated-transformer {__version__}\n", "")


def test_the_program_has_its_name(root):
    line = re.search(r'(?m)^annotated-transformer = "(.+):(.+)"$', (root / "pyproject.toml").read_text())
    assert getattr(importlib.import_module(line[1]), line[2]) is cli.main
    process = start("--version")
    out, err = process.communicate()
    assert (process.returncode, out.decode().strip(), err) == (0, f"annotated-transformer {__version__}", b"")


# --- settings ----------------------------------------------------------------------------------------------------


def samples(kind):
    """For each field, a text and the value that it is to give."""
    for field in dataclasses.fields(kind):
        default = field.default
        if field.name in CHOICES:
            yield field.name, CHOICES[field.name][1], CHOICES[field.name][1]
        elif field.name in ("schedule", "precision"):
            word = {"schedule": "linear", "precision": "bfloat16"}[field.name]
            yield field.name, word, word
        elif isinstance(default, bool):
            yield field.name, str(not default).lower(), not default
        elif field.type.startswith("float"):
            yield field.name, "1e-3", 1e-3
            if default is None or default >= 1:
                yield field.name, "2", 2.0
        else:
            yield field.name, "11", 11
            if default is not None and default > 1000:
                yield field.name, "1e4", 10_000
        if default is None:
            wanted = BASE.d_model // BASE.h if field.name in ("d_k", "d_v") else None
            yield field.name, "None", wanted


@pytest.mark.parametrize(
    ("name", "text", "value"), [sample for kind in (TransformerConfig, TrainingSettings) for sample in samples(kind)]
)
def test_every_field_can_be_set(name, text, value):
    other = {"d_model": "h=1", "h": "d_model=22", "peak": "schedule=linear"}.get(
        name, "seed=5" if name != "seed" else "keep=5"
    )
    read = cli_options.read_changes([f"{name}={text}", other], TransformerConfig, TrainingSettings)
    config, settings = (cli_options.configure(before, read) for before in (BASE, TrainingSettings()))
    found = getattr(config if hasattr(config, name) else settings, name)
    assert found == value
    assert type(found) is type(value)
    changed = {name, other.partition("=")[0]} | ({"d_k", "d_v"} if name in ("d_model", "h") else set())
    for before, now in ((BASE, config), (TrainingSettings(), settings)):
        for field in dataclasses.fields(before):
            assert field.name in changed or getattr(now, field.name) == getattr(before, field.name)


def test_fields_change_together_and_the_last_counts():
    read = cli_options.read_changes(["d_model=21", "h=2", "h=3"], TransformerConfig)
    config = cli_options.configure(BASE, read)
    assert (config.d_model, config.h, config.d_k) == (21, 3, 7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("steps", "it takes NAME=VALUE, got 'steps'."),
        ("stepz=3", "there is no field 'stepz'; there are d_model, d_ff,"),
        ("replace=3", "there is no field 'replace'"),
        ("steps=many", "steps takes a whole number, got 'many'."),
        ("steps=1.5", "steps takes a whole number, got '1.5'."),
        ("steps=inf", "steps takes a whole number, got 'inf'."),
        ("steps=none", "steps takes a whole number, got 'none'."),
        ("peak=high", "peak takes a number or none, got 'high'."),
        ("attention_bias=yes", "attention_bias takes true or false, got 'yes'."),
        ("steps=0", "steps must be at least 1, got 0."),
        ("steps=9", "steps must be more than warmup_steps = 100 with the schedule 'linear', got 9."),
        ("p_drop=1", "p_drop is the share of units that are dropped, from 0 up to below 1"),
        ("factor=nan", "factor must be"),
        ("tied=some", "tied must be one of all, target, none, got 'some'."),
        ("h=3", "h must divide d_model when d_k is not given"),
        ("vocab_size=100", "vocab_size is the tokenizer's; --vocabulary changes it."),
    ],
)
def test_a_wrong_change_is_explained(tmp_path, change, message):
    result = call("train", "reversing", "-o", tmp_path / "run", "--set", change)
    assert result.code == 2
    assert f"Invalid value for '--set': {message}" in result.err
    assert not (tmp_path / "run").exists()


def test_sizes_and_settings_are_those_of_the_recipe(tmp_path, texts, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "annotated_transformer.runs.train",
        lambda model, tokenizer, pairs, settings, **_: (
            seen.append((model.config, settings, tokenizer)) or [{"step": 1}]
        ),
    )
    call("train", "reversing", "-o", tmp_path / "a")
    call("train", "reversing", "-o", tmp_path / "b", "--preset", "small", "--tokens", "word", *sets(N=1, peak=1e-4))
    call("train", texts, "--target", "fr", "-o", tmp_path / "c", *sets(**SMALLER), "--vocabulary", 270)
    (a, a_settings, a_tokens), (b, b_settings, b_tokens), (c, c_settings, c_tokens) = seen
    ours, others = recipes.recipe("reversing"), recipes.recipe("texts")
    assert (a, a_settings, a_tokens.kind) == (ours.config.replace(vocab_size=14), ours.settings, ours.tokens)
    assert (b, b_settings) == (SMALL.replace(vocab_size=14, N=1), ours.settings.replace(peak=1e-4))
    assert (ours.tokens, b_tokens.kind) == ("character", "word")
    assert (c, c_settings) == (others.config.replace(vocab_size=270, **SMALLER), others.settings)
    assert (c_tokens.kind, c_tokens.vocab_size) == (others.tokens, 270)


def test_only_a_model_of_several_languages_is_told_which():
    for languages, known in ((("zh", "de"), ("de", "zh")), (("de",), ())):
        corpus = tasks.dates(size=30, languages=languages)
        tokenizer = cli_options.make_tokenizer(corpus, "word", 99)
        assert tokenizer.languages == known
        assert tokenizer.vocab_size <= 99
        assert "\N{REPLACEMENT CHARACTER}" not in tokenizer.decode(tokenizer.encode("2024"))


# --- train -------------------------------------------------------------------------------------------------------


def test_training_says_what_it_does(run):
    folder, err = run
    lines = err.splitlines()
    size = sum(parameter.numel() for parameter in weights(folder).values())
    assert lines[0] == f"{size:,} parameters, 14 tokens, 20,000 pairs, on cpu."
    assert re.fullmatch(r"Step 4: validation loss \d\.\d+, perplexity \d+\.\d+, BLEU .+, chrF .+, exact .+%", lines[1])
    assert lines[2].startswith("Step 7: validation loss ")
    assert lines[3] == f"Step 7 is saved. Try it: annotated-transformer translate --model {folder}"
    assert len(lines) == 4
    config, settings = (
        TransformerConfig(p_drop=0.0, vocab_size=14, **SMALLER),
        json.loads((folder / "run.json").read_text()),
    )
    assert checkpoints.load_config(checkpoints.find(folder)) == config
    assert {name: settings["settings"][name] for name in SETTINGS} == SETTINGS


def test_a_run_goes_on_without_any_other_option(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "run")
    for last in ("00000007", "00000006"):
        shutil.rmtree(tmp_path / "run" / "checkpoints" / last)
    result = call("train", "--resume", tmp_path / "run")
    assert result.code == 0
    assert "Step 7 is saved." in result.err
    resumed, whole = weights(tmp_path / "run"), weights(folder)
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)


def test_what_changes_no_step_may_be_set_when_a_run_goes_on(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "run")
    assert call("train", "--resume", tmp_path / "run", "--set", "keep=2").code == 0
    result = call("train", "--resume", tmp_path / "run", *sets(N=2, steps=9))
    assert result.code == 1
    assert "cannot go on like this: N was 1 and is now 2; steps was 7 and is now 9." in result.err


def test_the_papers_schedule_takes_no_peak_from_a_recipe(tmp_path):
    changes = sets(**SMALLER, steps=1, warmup_steps=1, schedule="paper")
    assert call("train", "dates", "-o", tmp_path / "run", *changes).code == 0
    assert json.loads((tmp_path / "run" / "run.json").read_text())["settings"]["peak"] is None
    result = call("train", "dates", "-o", tmp_path / "other", *changes, *sets(peak=0.1))
    assert result.code == 2
    assert "paper takes factor instead, got 0.1." in result.err


def test_a_run_on_a_folder_goes_on_from_another_place(tmp_path, texts, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = ("texts", "--target", "fr", "-o", "run", "--tokens", "word", *sets(**SMALLER, **SETTINGS, longest=9))
    assert call("train", *given).code == 0
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "00000007")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert call("train", "--resume", "../run").code == 0
    assert checkpoints.find("../run").name == "00000007"
    result = call("evaluate", "-m", "../run", "--beam", 1)
    assert [line.split()[:3] for line in result.out.splitlines()[1:]] == [["test_a", "fr", "2"], ["test_b", "fr", "1"]]


def test_a_vocabulary_that_is_too_small_leaves_no_folder(tmp_path, texts, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = call("train", "texts", "--target", "fr", "-o", "run", "--tokens", "bpe", "--vocabulary", 5)
    assert result.code == 2
    assert "Invalid value for '--vocabulary': vocab_size must be at least" in " ".join(result.err.split())
    assert not (tmp_path / "run").exists()


def test_events_are_written_again_when_a_run_goes_on(tmp_path, texts, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = ("texts", "--target", "fr", "-o", "run", "--tokens", "word", *sets(**SMALLER, **SETTINGS, longest=9))
    assert call("train", *given, "--tensorboard").code == 0
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "00000007")
    result = call("train", "--resume", "run")
    assert "Goes on from step 6 of 7." in result.err
    assert len(list((tmp_path / "run" / "tensorboard").iterdir())) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reversing"], "name the data and a new folder (--out), or a run that is to go on (--resume)."),
        (["-o", "{tmp}/new"], "name the data and a new folder (--out), or a run that is to go on (--resume)."),
        (["copying", "--resume", "{run}"], "a run goes on with what it began with, without the data (copying)."),
        (["--resume", "{run}", "-o", "{tmp}/new"], "a run goes on with what it began with, without --out."),
        (["--resume", "{run}", "--preset", "base"], "a run goes on with what it began with, without --preset."),
        (["reversing", "-o", "{tmp}/new", "--languages", "de"], "reversing takes no --languages; it takes neither."),
        (["reversing", "-o", "{tmp}/new", "--preset", "huge"], "'huge' is not one of 'tiny', 'small', 'base', 'big'"),
        (["reversing", "-o", "{tmp}/new", "--tokens", "wordpiece"], "'wordpiece' is not one of 'bpe', "),
        (["reversing", "-o", "{tmp}/new", "--device", "gpu"], "'gpu' cannot be had here: "),
        (["reversing", "-o", "{tmp}/new", "--device", "meta"], "'meta' cannot be had here: "),
        (["reversing", "-o", "{tmp}/new", "--colour"], "No such option: --colour"),
    ],
)
def test_a_command_that_makes_no_sense_is_explained(folder, tmp_path, arguments, message):
    result = call("train", *(argument.format(tmp=tmp_path, run=folder) for argument in arguments))
    assert (result.code, result.out) == (2, "")
    assert message in " ".join(result.err.split())
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing", "-o", "{tmp}/new"], "There is no folder 'nothing', and no such task: these are dates, numbers,"),
        (["{tmp}", "-o", "{tmp}/new"], "{tmp} has nothing for train: no train.en with train.de"),
        (["{tmp}/file", "-o", "{tmp}/new"], "{tmp}/file is a file; the folder that it is in was wanted."),
        (["dates", "--languages", "tlh-x", "-o", "{tmp}/new"], "languages must be names that Babel knows"),
        (["reversing", "-o", "{run}"], "folder {run} holds a run already: resume it, or choose another."),
        (["reversing", "-o", "{tmp}"], "folder {tmp} is not empty, and holds no run: choose another."),
        (["reversing", "-o", "{tmp}/file/run"], "{tmp}/file/run: Not a directory."),
        (["reversing", "-o", "{tmp}/new", "--set", "longest=2"], "at most longest = 2 tokens a side; there are none."),
        (["--resume", "{tmp}"], "{tmp} holds no run that could go on: there is no run.json in it."),
        (["--resume", "{tmp}/nowhere"], "{tmp}/nowhere holds no run that could go on"),
    ],
)
def test_what_goes_wrong_in_training_is_one_line(folder, tmp_path, arguments, message):
    (tmp_path / "file").write_text("")
    result = call("train", *(argument.format(tmp=tmp_path, run=folder) for argument in arguments))
    assert (result.code, result.out) == (1, "")
    assert len(result.err.splitlines()) <= 2  # the first may say how large the model is
    assert result.err.splitlines()[-1].startswith(f"Error: {message.format(tmp=tmp_path, run=folder)}"[:7])
    assert message.format(tmp=tmp_path, run=folder) in result.err


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="a folder in which nobody can write")  # noqa: PTH112
def test_a_folder_that_cannot_be_written_is_named(folder):
    assert call("train", "reversing", "-o", "/proc/run") == (1, "", "Error: /proc/run: No such file or directory.\n")
    result = call("export", "-m", folder, "-o", "/proc/model")
    assert (result.code, result.out) == (1, "")
    assert re.fullmatch(r"Error: /proc/\S+: No such file or directory\.\n", result.err)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "run.json is damaged, or not JSON"),
        ("[]", "run.json is damaged, or another version's"),
        ("{}", "run.json is damaged, or another version's: 'asked'"),
        ('{"asked": {}, "config": {"depth": 1}, "settings": {}}', "run.json is damaged, or another version's"),
        ('{"asked": {}, "config": {}, "settings": {}}', "it was not begun on the command line"),
    ],
)
def test_a_damaged_run_is_named(tmp_path, text, message):
    (tmp_path / "run.json").write_text(text)
    result = call("train", "--resume", tmp_path)
    assert result.code == 1
    assert message in result.err


def test_a_run_that_diverges_says_so_and_ends_with_1(tmp_path):
    changes = {**SETTINGS, "peak": 1e30, "warmup_steps": 1, "steps": 50}
    result = call("train", "reversing", "-o", tmp_path / "run", *sets(**SMALLER, **changes))
    assert result.code == 1
    assert re.search(r"(?m)^Error: step \d+ gave the loss ", result.err)


def test_traceback_may_stand_anywhere(tmp_path):
    for given in (["--traceback", "train", "--resume", tmp_path], ["train", "--resume", tmp_path, "--traceback"]):
        with pytest.raises(FileNotFoundError, match="holds no run that could go on"), contextlib.redirect_stderr(None):
            cli.main([str(argument) for argument in given])


def test_our_own_mistakes_keep_their_traceback(monkeypatch):
    def make_mistake(*_):
        raise AssertionError("ours")

    monkeypatch.setattr(costs, "parameters", make_mistake)
    with pytest.raises(AssertionError, match="ours"):
        cli.main(["info"])


# --- translate ---------------------------------------------------------------------------------------------------


def translated(folder, *sentences, **search):
    model, tokenizer = checkpoints.load_model(checkpoints.find(folder))
    return decoding.translate(model, tokenizer, list(sentences), **search)


def test_arguments_a_file_and_standard_input_are_translated_alike(folder, tmp_path):
    lines = ["12345", "", "987654", "11111"]
    wanted = "".join(translation.text + "\n" for translation in translated(folder, *lines))
    assert wanted.count("\n") == 4
    assert len(set(wanted.splitlines())) >= 2
    assert call("translate", "-m", folder, *lines) == (0, wanted, "")
    text = "12345\r\n\n  987654 \n11111".encode("utf-8-sig")  # another system's lines, blanks, no newline at the end
    assert call("translate", "-m", folder, stdin=text) == (0, wanted, "")
    assert call("translate", "-m", folder, "--line-by-line", stdin=text) == (0, wanted, "")
    (tmp_path / "lines.txt").write_bytes(text)
    assert call("translate", "-m", folder, "--file", tmp_path / "lines.txt") == (0, wanted, "")


def test_nothing_becomes_nothing(folder, tmp_path):
    assert call("translate", "-m", folder, stdin=b"") == (0, "", "")
    (tmp_path / "empty").touch()
    assert call("translate", "-m", folder, "-f", tmp_path / "empty") == (0, "", "")
    assert call("translate", "-m", folder, stdin=b"\n") == (0, "\n", "")


def test_many_lines_keep_their_order(folder, monkeypatch):
    batches = []
    monkeypatch.setattr(
        decoding,
        "translate",
        lambda model, tokenizer, lines, **_: (
            batches.append(len(lines)) or [decoding.Translation(line, 0.0, [], []) for line in lines]
        ),
    )
    text = "".join(f"{number}\n" for number in range(600))
    assert call("translate", "-m", folder, stdin=text.encode()).out == text
    assert batches == [256, 256, 88]


def test_the_search_is_the_one_that_was_asked_for(folder):
    for options, search in (
        (["--beam", 1], {"beam": 1}),
        (["--beam", 3, "--alpha", 2.0], {"beam": 3, "alpha": 2.0}),
    ):
        (wanted,) = translated(folder, "12345", **search)
        found = call("translate", "-m", folder, "--scores", *options, "12345")
        assert found == (0, f"{wanted.score:.3f}\t{wanted.text}\n", "")


def test_n_best_prints_so_many_lines_for_each_sentence(folder):
    (wanted,) = translated(folder, "12345", n_best=3)
    result = call("translate", "-m", folder, "--n-best", 3, "12345", "")
    lines = [f"{hypothesis.score:.3f}\t{hypothesis.text}" for hypothesis in wanted.n_best]
    assert len(lines) == 3
    assert result == (0, "\n".join([*lines, *["0.000\t"] * 3]) + "\n", "")


def test_a_model_of_several_languages_is_told_which(languages):
    result = call("translate", "-m", languages, "12345")
    assert (result.code, result.err) == (1, "Error: language must be one of de, zh, got none.\n")
    result = call("translate", "-m", languages, "-l", "fr", "12345")
    assert (result.code, "language must be one of the tokenizer's (de, zh), got 'fr'" in result.err) == (1, True)
    (wanted,) = translated(languages, "12345", language="zh")
    assert call("translate", "-m", languages, "-l", "zh", "12345").out.strip() == wanted.text.strip()


def test_eight_bits_translate_on_the_cpu(folder, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)  # even where there is a GPU
    model, tokenizer = checkpoints.load_model(checkpoints.find(folder))
    (wanted,) = decoding.translate(inference.prepare(model, int8=True), tokenizer, ["12345"])
    assert wanted.score != translated(folder, "12345")[0].score
    found = call("translate", "-m", folder, "--int8", "--scores", "12345")
    assert found == (0, f"{wanted.score:.3f}\t{wanted.text}\n", "")


def test_a_translation_is_one_line(folder, monkeypatch):
    monkeypatch.setattr(decoding, "translate", lambda *_, **__: [decoding.Translation("a\nb\u2028c", 0.0, [], [])])
    assert call("translate", "-m", folder, "12345").out == "a b c\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["-m", "{run}", "12345", "--file", "x"], 2, "give sentences or --file, not both."),
        (["12345"], 2, "Missing option '--model'"),
        (["-m", "{run}", "--beam", "0", "12345"], 2, "Invalid value for '--beam'"),
        (["-m", "{run}", "--n-best", "5", "12345"], 1, "Error: n_best must be"),
        (["-m", "{run}", "--alpha", "high", "12345"], 2, "Invalid value for '--alpha'"),
        (["-m", "{run}", "--device", "cuda:99", "12345"], 2, "'cuda:99' cannot be had here: "),
        (["-m", "nowhere", "12345"], 1, "Error: there is no model 'nowhere': no folder of that name has a config.json"),
        (["-m", "{tmp}/begun", "12345"], 1, "Error: the run in {tmp}/begun has no checkpoint yet."),
        (["-m", "{tmp}/silent", "12345"], 1, "Error: {tmp}/silent has no tokenizer.json, without which"),
        (["-m", "{run}", "-f", "{tmp}/nothing"], 1, "Error: There is no file {tmp}/nothing; the folder has "),
        (["-m", "{run}", "-f", "{tmp}"], 1, "Error: {tmp} is a folder; a file of text was wanted."),
        (["-m", "{run}", "-f", "{tmp}/latin"], 1, "Error: {tmp}/latin, line 2: byte 4, 0xe9, is not UTF-8."),
        (["-m", "{run}", "12345", "caf\udce9"], 1, "Error: sentence 2 is not UTF-8."),
        (["-m", "{run}"], 1, "Error: standard input, line 2 is not UTF-8."),
    ],
)
def test_what_goes_wrong_in_translating_is_one_line(folder, tmp_path, arguments, code, message):
    (tmp_path / "begun").mkdir()
    shutil.copy(folder / "run.json", tmp_path / "begun")
    shutil.copytree(checkpoints.find(folder), tmp_path / "silent")
    (tmp_path / "silent" / "tokenizer.json").unlink()
    (tmp_path / "latin").write_bytes("12345\ncafé\n".encode("latin-1"))
    given = (argument.format(tmp=tmp_path, run=folder) for argument in arguments)
    result = call("translate", *given, stdin="12345\ncafé\n".encode("latin-1"))
    assert (result.code, result.out) == (code, "")
    assert message.format(tmp=tmp_path) in result.err
    assert code == 2 or result.err.count("\n") == 1


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_damaged_model_is_named(folder, tmp_path, name):
    shutil.copytree(checkpoints.find(folder), tmp_path / "model")
    (tmp_path / "model" / name).write_text("{")
    result = call("translate", "-m", tmp_path / "model", "12345")
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
    assert result.err.startswith(f"Error: {tmp_path / 'model' / name} ")


@posix
def test_a_line_is_answered_before_the_next_is_written(folder):
    process = start("translate", "-m", folder, "--line-by-line", "--beam", 1)
    for sentence in ("12345", "987654"):
        process.stdin.write(f"{sentence}\n".encode())
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], 120)
        assert ready
        assert process.stdout.readline().decode().strip() == translated(folder, sentence, beam=1)[0].text
    out, err = process.communicate()
    assert (process.returncode, out, err) == (0, b"", b"")


@posix
def test_a_reader_that_leaves_early_is_no_error(folder):
    process = start("translate", "-m", folder, "--line-by-line", "--beam", 1)
    process.stdin.write(b"12345\n")
    process.stdin.flush()
    assert process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    _, err = process.communicate(b"12345\n" * 50)
    assert (process.returncode, err) == (1, b"")


def test_the_output_is_utf_8_whatever_the_terminal_speaks(folder, tmp_path, monkeypatch):
    text = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(decoding, "translate", lambda *_, **__: [decoding.Translation("März 三", 0.0, [], [])])
    monkeypatch.setattr(sys, "stdout", text)
    with pytest.raises(SystemExit):
        cli.main(["translate", "-m", str(folder), "12345"])
    assert text.buffer.getvalue().decode() == "März 三\n"


# --- evaluate ----------------------------------------------------------------------------------------------------


def test_a_model_is_judged_by_set(folder):
    result = call("evaluate", "-m", folder, "reversing", "--beam", 1, "--limit", 7)
    assert (result.code, result.err) == (0, "")
    model, tokenizer = checkpoints.load_model(checkpoints.find(folder))
    corpus = tasks.reversing()
    for part, pairs in (("test", corpus.test["test"]), ("validation", corpus.validation)):
        found = evaluation.translation_scores(model, tokenizer, pairs[:7], beam=1)
        loss = evaluation.cross_entropy(model, encode(pairs[:7], tokenizer))
        perplexity = 2.718281828459045**loss
        wanted = [
            part,
            "7",
            f"{perplexity:.3f}",
            f"{found['bleu']:.1f}",
            f"{found['chrf']:.1f}",
            f"{found['exact']:.1%}",
        ]
        result = call("evaluate", "-m", folder, "--beam", 1, "--limit", 7, "--part", part)  # the run's own data
        assert result.out.splitlines()[0].split() == ["set", "pairs", "perplexity", "BLEU", "chrF", "exact"]
        assert [line.split() for line in result.out.splitlines()[1:]] == [wanted]


def test_each_language_has_a_line_and_a_signature(languages):
    options = ("--languages", "zh,de", "--limit", 2, "--beam", 1, "--signature", "--part", "validation")
    result = call("evaluate", "-m", languages, "dates", *options)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert [line.split()[:3] for line in lines[1:3]] == [["validation", "de", "2"], ["validation", "zh", "2"]]
    assert len({line.index("%") for line in lines[1:3]}) == 1  # columns
    assert [line.partition(": ")[0] for line in lines[3:]] == [
        f"{metric}, validation {language}" for language in ("de", "zh") for metric in ("bleu", "chrf")
    ]
    assert "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:" in lines[3]
    assert "|tok:zh|" in lines[5]


def test_text_is_judged_by_files(folder, texts):
    result = call("evaluate", "-m", folder, texts, "--target", "fr", "--beam", 1)
    assert [line.split()[:3] for line in result.out.splitlines()[1:]] == [["test_a", "fr", "2"], ["test_b", "fr", "1"]]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["-m", "{run}", "nothing"], 1, "Error: There is no folder 'nothing', and no such task"),
        (["-m", "{tmp}/nowhere"], 1, "Error: there is no model"),
        (["-m", "{tmp}/model"], 2, "name the data: only the folder of a run says what its model was trained on."),
        (["-m", "{run}", "--languages", "de"], 2, "--languages belong to data that are named."),
        (["-m", "{run}", "{tmp}/texts", "--target", "fr"], 1, "Error: {tmp}/texts has no test set."),
        (["-m", "{run}", "reversing", "--limit", "0"], 2, "Invalid value for '--limit'"),
        (["-m", "{run}", "reversing", "--part", "train"], 2, "'train' is not one of 'validation', 'test'"),
    ],
)
def test_what_goes_wrong_in_judging_is_explained(folder, tmp_path, texts, arguments, code, message):
    for path in texts.glob("test*"):
        path.unlink()
    shutil.copytree(checkpoints.find(folder), tmp_path / "model")
    result = call("evaluate", *(argument.format(tmp=tmp_path, run=folder) for argument in arguments))
    assert (result.code, result.out) == (code, "")
    assert message.format(tmp=tmp_path) in " ".join(result.err.split())


def test_a_language_that_the_model_has_not_is_named(languages):
    result = call("evaluate", "-m", languages, "dates", "--languages", "ja")
    assert (result.code, "language must be one of the tokenizer's (de, zh), got 'ja'" in result.err) == (1, True)


# --- export ------------------------------------------------------------------------------------------------------


def test_an_exported_model_translates_alike(folder, tmp_path):
    result = call("export", "-m", folder, "-o", tmp_path / "model")
    assert (result.code, result.err) == (0, "")
    size = sum(path.stat().st_size for path in (tmp_path / "model").iterdir())
    assert result.out == f"Written: {tmp_path / 'model'} ({size / 1e6:.1f} MB)\n"
    names = sorted(path.name for path in (tmp_path / "model").iterdir())
    assert names == ["config.json", "model.safetensors", "tokenizer.json"]
    assert call("translate", "-m", tmp_path / "model", "12345") == call("translate", "-m", folder, "12345")


def test_half_the_size_and_an_average(folder, tmp_path):
    whole = call("export", "-m", folder, "-o", tmp_path / "whole")
    half = call("export", "-m", folder, "-o", tmp_path / "half", "--half")
    assert (whole.code, half.code) == (0, 0)
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("whole", "half")]
    assert 0.4 < sizes[1] / sizes[0] < 0.7
    assert call("export", "-m", folder, "-o", tmp_path / "mean", "--average", 2).code == 0
    first, last = (weights(folder / "checkpoints" / name) for name in ("00000006", "00000007"))
    for name, mean in weights(tmp_path / "mean").items():
        torch.testing.assert_close(mean, (first[name] + last[name]) / 2)


def test_onnx_is_asked_for_with_the_model_and_the_folder(folder, tmp_path, monkeypatch):
    asked = []
    module = types.ModuleType("annotated_transformer.export")
    module.export_onnx = lambda *arguments: asked.append(arguments)
    monkeypatch.setitem(sys.modules, "annotated_transformer.export", module)
    assert call("export", "-m", folder, "-o", tmp_path / "model", "--onnx").code == 0
    ((model, where),) = asked
    assert (type(model), where) == (Transformer, tmp_path / "model")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["-m", "{run}"], 2, "Missing option '--out'"),
        (["-m", "{run}", "-o", "{tmp}"], 1, "Error: {tmp} is there and holds no model; choose another"),
        (["-m", "{run}", "-o", "{run}"], 1, "Error: {run} is there and holds no model; choose another"),
        (
            ["-m", "{run}", "-o", "{tmp}/new", "--average", "9"],
            1,
            "{run} has fewer checkpoints, 3, than the 9 to average.",
        ),
        (["-m", "{run}", "-o", "{tmp}/file/model"], 1, "Error: {tmp}/file: File exists."),
    ],
)
def test_what_goes_wrong_in_exporting_is_explained(folder, tmp_path, arguments, code, message):
    (tmp_path / "file").write_text("")
    before = sorted(folder.rglob("*"))
    result = call("export", *(argument.format(tmp=tmp_path, run=folder) for argument in arguments))
    assert (result.code, result.out) == (code, "")
    assert message.format(tmp=tmp_path, run=folder) in result.err
    assert sorted(folder.rglob("*")) == before


# --- info --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "config", "length"),
    [
        ([], BASE, 25),
        (["--preset", "big", "--length", "7"], BIG, 7),
        (sets(vocab_size=31, attention_bias="true", d_k=5, tied="none"), None, 25),
    ],
)
def test_the_costs_are_those_of_the_formulas(arguments, config, length):
    config = config or BASE.replace(vocab_size=31, attention_bias=True, d_k=5, tied="none")
    result = call("info", *arguments)
    assert (result.code, result.err) == (0, "")
    fields, _, rest = result.out.partition("\n\n")
    assert dict(line.split() for line in fields.splitlines()) == {
        field.name: str(getattr(config, field.name)) for field in dataclasses.fields(config)
    }
    numbers = [int(re.sub(",", "", found)) for found in re.findall(r"(?m)^  .* ([\d,]+)$", rest)]
    blocks, flops = costs.parameters(config), costs.forward_flops(config, length, length)
    assert numbers == [
        *(blocks[name] for name in ("embeddings", "attention", "feed-forward", "norms")),
        sum(blocks.values()),
        4 * sum(blocks.values()),
        costs.training_bytes(config),
        costs.cache_bytes(config, length, length),
        *(flops[name] for name in ("encoder", "decoder", "generator")),
        sum(flops.values()),
        costs.training_flops(config, length, length),
    ]


def test_the_parameters_of_a_model_are_those_it_has(folder):
    result = call("info", "-m", folder)
    assert f" {sum(parameter.numel() for parameter in weights(folder).values()):,}\n" in result.out
    assert "d_ff               19\n" in result.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-m", "{run}", "--set", "N=2"], "a model's sizes are what they are"),
        (["--set", "steps=2"], "there is no field 'steps'; there are d_model, "),
        (["--length", "0"], "Invalid value for '--length'"),
    ],
)
def test_what_goes_wrong_in_asking_is_explained(folder, arguments, message):
    result = call("info", *(argument.format(run=folder) for argument in arguments))
    assert (result.code, result.out) == (2, "")
    assert message in result.err


# --- processes and signals ---------------------------------------------------------------------------------------


@posix
def test_ctrl_c_saves_and_the_run_goes_on(tmp_path, texts):
    settings = {**SETTINGS, "steps": 200, "validate_every": 50, "translate": 0, "save_every": 0, "max_tokens": 40}
    given = ("train", texts, "--target", "fr", "--tokens", "word", *sets(**SMALLER, **settings))
    process = start(*given, "-o", tmp_path / "Run")
    for line in process.stderr:
        if line.startswith(b"Step 50:"):
            process.send_signal(signal.SIGINT)
            break
    err = process.stderr.read().decode()
    out, _ = process.communicate()
    assert (process.returncode, out) == (130, b"")
    where = tmp_path / "Run"
    message = rf"Stopped after step (\d+); step \1 is saved in {where}; train --resume {where} goes on\.\n"
    found = re.fullmatch(message, err.splitlines(keepends=True)[-1])
    assert found
    assert 50 <= int(found[1]) < 200
    assert "Traceback" not in err
    assert [folder.name for folder in checkpoints.checkpoint_folders(where)] == [f"{int(found[1]):08}"]
    assert call("train", "--resume", where).code == 0
    assert call(*given, "-o", tmp_path / "whole").code == 0
    resumed, whole = weights(where), weights(tmp_path / "whole")
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)


def test_ctrl_c_before_a_step_ends_with_130_and_one_line(tmp_path, monkeypatch):
    def interrupt(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr(tasks, "load", interrupt)
    assert call("train", "reversing", "-o", tmp_path / "run") == (130, "", "Interrupted.\n")


TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "annotated_transformer")


@posix
def test_two_processes_train_as_one_that_takes_their_batches_in_turn(tmp_path, texts):
    settings = {**SETTINGS, "max_tokens": 40}  # several batches
    given = ("train", texts, "--target", "fr", "--tokens", "word", *sets(**SMALLER, **settings))
    process = start(*given, "-o", tmp_path / "two", launcher=TORCHRUN)
    _, err = process.communicate()
    assert process.returncode == 0, err.decode()
    assert err.decode().count("20 pairs") == 1  # one of them speaks
    assert call(*given, "-o", tmp_path / "one", "--set", "accumulate=2").code == 0
    two, one = weights(tmp_path / "two"), weights(tmp_path / "one")
    for name, expected in one.items():
        torch.testing.assert_close(two[name], expected, rtol=1e-4, atol=1e-5)
    logs = [
        [json.loads(line) for line in (tmp_path / name / "log.jsonl").read_text().splitlines()]
        for name in ("one", "two")
    ]
    assert [entry["step"] for entry in logs[0]] == [entry["step"] for entry in logs[1]]
    assert [entry["tokens"] for entry in logs[0] if "loss" in entry] == [e["tokens"] for e in logs[1] if "loss" in e]
    # One process can go on for two, if its steps have the batches of theirs.
    shutil.rmtree(tmp_path / "two" / "checkpoints" / "00000007")
    result = call("train", "--resume", tmp_path / "two")
    assert (result.code, "a step had 2 batches and now has 1: accumulate times processes" in result.err) == (1, True)
    assert call("train", "--resume", tmp_path / "two", "--set", "accumulate=2").code == 0
    two = weights(tmp_path / "two")
    for name, expected in one.items():
        torch.testing.assert_close(two[name], expected, rtol=1e-4, atol=1e-5)


@posix
def test_an_error_in_several_processes_has_no_traceback_of_ours(tmp_path):
    process = start("train", tmp_path / "nowhere", "-o", tmp_path / "run", launcher=TORCHRUN)
    _, err = process.communicate()
    assert process.returncode == 1
    ours = [line for line in err.decode().splitlines() if "no such task" in line]
    assert ours
    assert all(re.match(r"Error in process [01]: There is no folder ", line) for line in ours)
    assert "cli.py" not in err.decode()


# --- the model that ships ----------------------------------------------------------------------------------------


def test_a_shipped_model_translates_into_the_language_of_its_name():
    german, chinese = (call("translate", "-m", name, "Select the file.").out.strip() for name in ("en-de", "en-zh"))
    assert "Datei" in german
    assert "文件" in chinese
    assert call("translate", "-m", "en-de", "-l", "zh", "Select the file.").out.strip() == chinese
    assert call("translate", "-m", "en-de-zh", "Select the file.").code != 0  # which of the two, it does not say


def test_a_shipped_model_is_judged_in_the_language_of_its_name():
    result = call("evaluate", "-m", "en-zh", "software-docs", "--limit", 1, "--beam", 1)
    assert [line.split()[1] for line in result.out.splitlines()[1:]] == ["zh"] * 3
