"""A training run: the loop, its log, its checkpoints, and how it ends and goes on (sections 5 and 6.1).

A run's folder holds ``run.json`` (what was asked for), ``log.jsonl`` (one entry a line) and ``checkpoints/``, in which
each folder is a whole model with all that it takes to go on.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist
from tqdm import tqdm  # type: ignore[import-untyped]

from . import checkpoints, evaluation, require
from .batching import Example, encode
from .model import Transformer
from .tasks import Pair
from .tokens import Tokenizer
from .training import Diverged, Trainer, TrainingSettings

__all__ = ["due", "read_log", "require_free", "train"]


def train(
    model: Transformer,
    tokenizer: Tokenizer,
    pairs: Sequence[Pair],
    settings: TrainingSettings,
    *,
    validation: Sequence[Pair] = (),
    folder: Path | str | None = None,
    resume: bool = False,
    tensorboard: bool = False,
    watch: Callable[[dict[str, Any]], object] | None = None,
    asked: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Train a model, in place, to the last step of its settings.

    A terminal shows a progress bar. Ctrl-C ends the run after the step it is in; with a folder, that step is saved.

    Args:
        model: Its weights are changed; on the device it is on.
        tokenizer: Makes token ids of the pairs.
        pairs: What to learn from.
        settings: See there.
        validation: Pairs to judge the model by; none, and there is no validation.
        folder: Where checkpoints and the log go; nothing is written if it is not given.
        resume: Go on from the last checkpoint in ``folder``; start if there is none.
        tensorboard: Write TensorBoard's event files into ``folder`` too; needs the extra ``tensorboard``.
        watch: Called with each entry of the log as it comes.
        asked: What else is to stand in ``run.json``, such as where the data came from.

    Returns:
        The log, an entry every ``log_every`` steps with ``step``, ``epoch``, ``loss`` (smoothed, nats per target token,
        mean over the steps since the last entry), ``learning_rate``, ``norm`` (of the last gradient), ``tokens`` (of
        the target, since the start) and ``tokens_per_second``; and one at each validation with ``step``,
        ``validation_loss`` (not smoothed), ``perplexity``, and ``bleu``, ``chrf`` and ``exact`` where sentences are
        translated.

    Raises:
        Diverged: If the loss is not finite any more.
        FileExistsError: If ``folder`` holds a run and ``resume`` is not set.
        KeyboardInterrupt: After Ctrl-C, when the checkpoint is written.
        ValueError: If the folder's run has other settings or other data, or its last checkpoint is damaged; if the
            tokenizer is not the model's; if no pair is short enough to learn from, or one is too long for the model.
            A run may go on in another number of processes if ``accumulate`` makes up for it.
    """
    require.instance("settings", settings, TrainingSettings)
    encoded = encode(pairs, tokenizer)
    places = [place for place, example in enumerate(encoded) if example.length <= settings.longest]
    examples = [encoded[place] for place in places]
    if not examples:
        raise ValueError(f"pairs must hold some of at most longest = {settings.longest} tokens a side; there are none.")
    held_out = encode(validation, tokenizer)
    _require_fit(model, tokenizer, [*examples, *held_out])
    trainer = Trainer(model, examples, settings)
    run = _Run(Path(folder), trainer, tokenizer, asked or {}) if folder is not None else None
    log: list[dict[str, Any]] = []
    window = _Window()

    def note(entry: dict[str, Any]) -> None:
        log.append(entry)
        if trainer.rank == 0:
            if run:
                run.log(entry, tensorboard)
            if watch:
                watch(entry)

    with ExitStack() as stack:
        if run:
            stack.enter_context(run.alone(resume))
            before, window = run.begin()
            log.extend(before)
        stop = stack.enter_context(_finishing_the_step())
        bar = stack.enter_context(
            tqdm(total=settings.steps, initial=trainer.step, unit="step", disable=None if trainer.rank == 0 else True)
        )
        validated = any(entry["step"] == trainer.step and "validation_loss" in entry for entry in log)
        if held_out and trainer.step and due(trainer.step, settings.validate_every, settings.steps) and not validated:
            note(_validate(trainer, tokenizer, validation, held_out))  # the run was cut off while it was at it
        while trainer.step < settings.steps:
            try:
                step = trainer.make_step(stop=stop.is_set())
            except Diverged as error:
                error.indices = [places[index] for index in error.indices]  # long pairs had been left out
                raise
            window.add(step)
            bar.update()
            if due(trainer.step, settings.log_every, settings.steps):
                entry = window.entry(trainer)
                bar.set_postfix(loss=f"{entry['loss']:.3f}", tokens=f"{entry['tokens_per_second']:,}/s", refresh=False)
                note(entry)
            if run and (due(trainer.step, settings.save_every, settings.steps) or step["stop"]):
                run.save(dataclasses.asdict(window))
            if step["stop"]:
                where = f"; step {trainer.step} is saved in {folder}" if run else ""
                raise KeyboardInterrupt(f"stopped after step {trainer.step}{where}")
            if held_out and due(trainer.step, settings.validate_every, settings.steps):
                note(_validate(trainer, tokenizer, validation, held_out))
    model.eval()
    return log


def require_free(folder: Path | str, resume: bool = False) -> None:
    """Refuse a folder that a run must not write into.

    Raises:
        FileExistsError: If it holds a run and ``resume`` is not set, or something else than a run.
    """
    folder = Path(folder)
    if (folder / "run.json").exists():
        if not resume:
            raise FileExistsError(f"folder {folder} holds a run already: resume it, or choose another.")
    elif any(not path.name.startswith(".") and path.name != checkpoints.TOKENIZER for path in folder.glob("*")):
        # A run that is killed at its very start may leave a tokenizer alone.
        raise FileExistsError(f"folder {folder} is not empty, and holds no run: choose another.")


def due(step: int, every: int, last: int) -> bool:
    """Tell whether something that happens every so many steps, and at the last, happens at this one."""
    return step == last or (every > 0 and step % every == 0)


@dataclass
class _Window:
    """What is added up between two entries of the log."""

    loss: float = 0.0
    steps: int = 0
    tokens: int = 0
    all_tokens: int = 0
    norm: float = 0.0
    learning_rate: float = 0.0

    def __post_init__(self) -> None:
        self._start = time.perf_counter()

    def add(self, step: dict[str, float]) -> None:
        self.loss += step["loss"]
        self.steps += 1
        self.tokens += int(step["tokens"])
        self.norm, self.learning_rate = step["norm"], step["learning_rate"]

    def entry(self, trainer: Trainer) -> dict[str, Any]:
        """Make an entry of the log and begin anew."""
        now = time.perf_counter()
        self.all_tokens += self.tokens
        entry = {
            "step": trainer.step,
            "epoch": trainer.epoch,
            "loss": self.loss / self.steps,
            "learning_rate": self.learning_rate,
            "norm": self.norm,
            "tokens": self.all_tokens,
            "tokens_per_second": round(self.tokens / (now - self._start)),
        }
        self.loss, self.steps, self.tokens, self._start = 0.0, 0, 0, now
        return entry


class _Run:
    """A run's folder: ``run.json``, ``log.jsonl``, and ``checkpoints/`` with one folder a checkpoint."""

    def __init__(self, folder: Path, trainer: Trainer, tokenizer: Tokenizer, asked: Mapping[str, Any]) -> None:
        self.folder, self.trainer, self.tokenizer, self.asked = folder, trainer, tokenizer, dict(asked)
        self.path, self.log_path = folder / "run.json", folder / "log.jsonl"
        self.writer: Any = None

    def begin(self) -> tuple[list[dict[str, Any]], _Window]:
        """Start the folder, or go back to its last checkpoint; return the log so far and what was added up."""
        trainer = self.trainer
        facts = {
            "config": dataclasses.asdict(trainer.model.config),
            "settings": dataclasses.asdict(trainer.settings),
            "data": _fingerprint(trainer.examples),
            "batches": trainer.settings.accumulate * trainer.processes,  # in a step
            "asked": self.asked,
        }
        if self.path.exists():
            before = checkpoints.read_json(self.path)
            try:
                self._require_same(before, facts)
            except (AttributeError, KeyError, TypeError) as error:
                raise ValueError(f"{self.path} is damaged, or another version's: {error}") from error
            facts["asked"] = self.asked or before.get("asked", {})
        saved = checkpoints.checkpoint_folders(self.folder)
        try:
            window = _Window(**trainer.restore(saved[-1])) if saved else _Window()
        except (FileNotFoundError, TypeError, ValueError) as error:
            where = f"step {int(saved[-2].name)}" if len(saved) > 1 else "the start"
            raise ValueError(
                f"the last checkpoint cannot be read: {error} Delete the folder {saved[-1]}, and the run goes on from "
                f"{where}."
            ) from error
        log = [entry for entry in read_log(self.log_path) if entry["step"] <= trainer.step]
        if trainer.processes > 1:
            dist.barrier()  # all have read before one writes
        if trainer.rank == 0:
            for left in (self.folder / "checkpoints").glob(".*"):  # by a process that was killed
                checkpoints.remove(left)
            with checkpoints.moved_into_place(self.folder / checkpoints.TOKENIZER) as beside:
                self.tokenizer.save(beside)
            with checkpoints.moved_into_place(self.path) as beside:
                checkpoints.write_json(beside, facts)
            with checkpoints.moved_into_place(self.log_path) as beside:  # without what came after the checkpoint
                beside.write_text("".join(json.dumps(entry) + "\n" for entry in log), encoding="utf-8")
        return log, window

    def log(self, entry: dict[str, Any], tensorboard: bool) -> None:
        with self.log_path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        if tensorboard:
            self.writer = self.writer or _summary_writer(self.folder / "tensorboard", self.trainer.step)
            for name, value in entry.items():
                if name != "step":
                    self.writer.add_scalar(name, value, entry["step"])
            self.writer.flush()

    def save(self, window: dict[str, Any]) -> None:
        """Write a checkpoint unless it is there, and remove those that are not to be kept."""
        if self.trainer.rank == 0:
            folder = self.folder / "checkpoints" / f"{self.trainer.step:08}"
            if not folder.exists():
                self.trainer.save(folder, self.tokenizer, window)
            for old in checkpoints.checkpoint_folders(self.folder)[: -self.trainer.settings.keep]:
                checkpoints.remove(old)
        if self.trainer.processes > 1:
            dist.barrier()

    @contextmanager
    def alone(self, resume: bool) -> Iterator[None]:
        """Refuse a second run in the same folder at the same time; the system forgets the lock of a killed process."""
        require_free(self.folder, resume)
        if sys.platform == "win32" or self.trainer.rank:
            yield
            return
        import fcntl

        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FileExistsError(f"another process is training in {self.folder}.") from None
            yield

    def _require_same(self, before: Any, now: dict[str, Any]) -> None:
        changes = [
            f"{name} was {before[part].get(name)!r} and is now {value!r}"
            for part in ("config", "settings")
            for name, value in now[part].items()
            if before[part].get(name) != value and name not in _MAY_CHANGE
        ]
        if before["data"] != now["data"]:
            changes.append("the training data are not the same")
        if before["batches"] != now["batches"]:
            changes.append(
                f"a step had {before['batches']} batches and now has {now['batches']}: accumulate times processes"
            )
        if changes:
            raise ValueError(
                f"{self.folder} holds a run that cannot go on like this: {'; '.join(changes)}. "
                f"What may change: {', '.join(_MAY_CHANGE)}."
            )


# What may differ when a run goes on: none of it changes a step. For ``accumulate`` the number of batches decides.
_MAY_CHANGE = ("log_every", "validate_every", "translate", "save_every", "keep", "accumulate")


def _validate(
    trainer: Trainer, tokenizer: Tokenizer, validation: Sequence[Pair], examples: Sequence[Example]
) -> dict[str, Any]:
    """Judge the model; every process does, which takes no longer than waiting for one."""
    longest = max(example.length for example in examples)
    loss = evaluation.cross_entropy(trainer.model, examples, max(4096, longest))
    entry = {"step": trainer.step, "validation_loss": loss, "perplexity": math.exp(min(loss, 700.0))}
    chosen = validation[: trainer.settings.translate]
    return entry | evaluation.translation_scores(trainer.model, tokenizer, chosen, beam=1) if chosen else entry


def _require_fit(model: Transformer, tokenizer: Tokenizer, examples: Sequence[Example]) -> None:
    """Say at once what would else come up after hours."""
    config = model.config
    if tokenizer.vocab_size != config.vocab_size:
        raise ValueError(
            f"tokenizer must be the model's: it has {tokenizer.vocab_size} tokens, the model {config.vocab_size}."
        )
    longest = max(example.length for example in examples)
    if config.positions == "learned" and longest > config.max_length:
        raise ValueError(
            f"a sentence has {longest} tokens, more than the {config.max_length} positions that the model learns: "
            "give it a larger max_length, or leave long pairs out."
        )


def _fingerprint(examples: Sequence[Example]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for example in examples:
        digest.update(repr((example.source, example.target)).encode())
    return digest.hexdigest()


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the entries of a run's log; a line that was being written when the process was killed is none."""
    entries = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        with suppress(json.JSONDecodeError):
            entries.append(json.loads(line))
    return entries


@contextmanager
def _finishing_the_step() -> Iterator[threading.Event]:
    """Let Ctrl-C, and a polite request to end, wait until the step is made; a second one does not wait."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # only the main thread may handle signals
        return

    def handle(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _summary_writer(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ModuleNotFoundError(
            'tensorboard is not installed: pip install "annotated-transformer[tensorboard]"'
        ) from error
    return SummaryWriter(str(folder), purge_step=step)
