"""Training: what a step is, and a run's state between two steps, in one process or many (section 5).

On one kind of machine, with one version of PyTorch, a run is a function of its settings, its data and its seed. Each
batch draws its dropout from a seed of its own, made of the run's seed, the step, and the batch's place in the step. So
a run that was killed goes on from its last checkpoint to the very weights that it would have had, and a step shared by
several processes is the step of one process that takes their batches in turn.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel

from . import checkpoints, require
from .batching import Batch, Example, collate, plan
from .model import Transformer
from .optimization import SCHEDULES, adam, clip, make_schedule, projected_cross_entropy
from .tokens import PAD, Tokenizer

__all__ = ["Diverged", "Trainer", "TrainingSettings", "seed_of"]


@dataclass(frozen=True)
class TrainingSettings:
    """How a model is trained; the defaults are the paper's for its base model (section 5).

    Attributes:
        steps: Number of updates of the weights (5.2).
        max_tokens: Size of a batch, in tokens of the longer side with its padding; 5.1 speaks of about 25,000.
        pool: Number of batches whose pairs are sorted by length together, which saves padding (5.1); 0 for none.
        longest: Pairs with a longer side than this, in tokens, are left out.
        accumulate: Number of batches whose gradients make one step, in each process.
        schedule: How the learning rate follows the step: ``"paper"`` (Equation 3), ``"linear"`` or ``"cosine"``.
        warmup_steps: Steps in which the learning rate rises.
        factor: Of the paper's schedule.
        peak: The highest learning rate of the other schedules, which fall to 0 at the last step; Equation 3's if not
            given.
        beta_1: Adam's memory of the gradients (5.3).
        beta_2: Adam's memory of their squares.
        epsilon: What Adam adds to the root of the squares.
        eps_ls: Share of the label that is smoothed over the vocabulary (5.4).
        max_norm: Gradients longer than this are shortened to it; the paper names no clipping.
        precision: ``"float32"``, or ``"bfloat16"`` for the products, on a GPU or a CPU that has instructions for them.
        seed: Decides the order of the batches, and dropout.
        log_every: Steps between two lines of the log.
        validate_every: Steps between two validations; 0 for none but the last.
        translate: How many sentences of the validation set are translated, greedily, at each validation.
        save_every: Steps between two checkpoints; 0 for none but the last.
        keep: How many checkpoints are kept, the last ones.
    """

    steps: int = 100_000
    max_tokens: int = 25_000
    pool: int = 100
    longest: int = 256
    accumulate: int = 1
    schedule: str = "paper"
    warmup_steps: int = 4000
    factor: float = 1.0
    peak: float | None = None
    beta_1: float = 0.9
    beta_2: float = 0.98
    epsilon: float = 1e-9
    eps_ls: float = 0.1
    max_norm: float | None = None
    precision: str = "float32"
    seed: int = 0
    log_every: int = 50
    validate_every: int = 1000
    translate: int = 200
    save_every: int = 1000
    keep: int = 5

    def __post_init__(self) -> None:
        for name in ("steps", "max_tokens", "longest", "accumulate", "warmup_steps", "log_every", "keep"):
            require.integer(name, getattr(self, name), least=1)
        for name in ("pool", "validate_every", "translate", "save_every", "seed"):
            require.integer(name, getattr(self, name), least=0)
        for name in ("factor", "epsilon"):
            require.positive(name, getattr(self, name))
        for name in ("beta_1", "beta_2", "eps_ls"):
            value = getattr(self, name)
            require.number(name, value)
            if not 0 <= value < 1:
                raise ValueError(f"{name} must lie from 0 up to below 1, got {value}.")
        for name in ("peak", "max_norm"):
            if getattr(self, name) is not None:
                require.positive(name, getattr(self, name))
        for name, choices in {"schedule": SCHEDULES, "precision": ("float32", "bfloat16")}.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}.")
        if self.schedule != "paper" and self.steps <= self.warmup_steps:
            raise ValueError(
                f"steps must be more than warmup_steps = {self.warmup_steps} with the schedule {self.schedule!r}, "
                f"got {self.steps}."
            )
        # Of any width, to hear at once of what does not go together.
        make_schedule(self.schedule, 1, self.warmup_steps, self.factor, steps=self.steps, peak=self.peak)

    def replace(self, **changes: Any) -> TrainingSettings:
        """Return a copy with some fields changed.

        Raises:
            TypeError: If there is no field of that name.
        """
        known = [field.name for field in dataclasses.fields(self)]
        for name in changes:
            if name not in known:
                raise TypeError(f"TrainingSettings has no field {name!r}; its fields are {', '.join(known)}.")
        return dataclasses.replace(self, **changes)


class Diverged(FloatingPointError):  # noqa: N818  # it names what happened, as KeyboardInterrupt does
    """The loss or the gradient is no longer finite; the weights are still those of the step before.

    Attributes:
        step: The step that could not be made.
        indices: The sentence pairs in it, by their places in the training data, counted from 0.
    """

    def __init__(self, step: int, loss: float, norm: float, indices: list[int]) -> None:
        super().__init__(step, loss, norm, indices)
        self.step, self.loss, self.norm, self.indices = step, loss, norm, indices

    def __str__(self) -> str:
        named = ", ".join(map(str, self.indices[:10]))
        more = f" and {len(self.indices) - 10} more" if len(self.indices) > 10 else ""
        return (
            f"step {self.step} gave the loss {self.loss} and a gradient of norm {self.norm}. The weights are still "
            f"those of step {self.step - 1}. Its batches hold the training pairs {named}{more}, counted from 0. The "
            "last checkpoint leads here again; a new run with a lower learning rate, a longer warm-up, or max_norm may "
            "not."
        )


class Trainer:
    """What a run is at one moment: weights, Adam's averages, and its place in the data.

    Args:
        model: Trained in place, on the device it is on.
        examples: The training pairs as token ids.
        settings: See there.

    Attributes:
        step: Number of steps made.
        epoch: Number of times that the data have been gone through.
    """

    def __init__(self, model: Transformer, examples: Sequence[Example], settings: TrainingSettings) -> None:
        require.instance("model", model, Transformer)
        require.instance("settings", settings, TrainingSettings)
        if not examples:
            raise ValueError("examples must hold at least one sentence pair, got none.")
        if model.config.pad_id != PAD:
            raise ValueError(f"model must have the pad_id {PAD} of every tokenizer here, got {model.config.pad_id}.")
        self.model, self.examples, self.settings = model, examples, settings
        self.device = next(model.parameters()).device
        self.rank, self.processes = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        loss = _Loss(model, settings.eps_ls)
        self.loss: nn.Module = loss if self.processes == 1 else DistributedDataParallel(loss)
        self.optimizer = adam(model, (settings.beta_1, settings.beta_2), settings.epsilon)
        self.learning_rate = make_schedule(
            settings.schedule,
            d_model=model.config.d_model,
            warmup_steps=settings.warmup_steps,
            steps=settings.steps,
            factor=settings.factor,
            peak=settings.peak,
        )
        self.step = self.epoch = self.place = 0
        self._batches = self._stream()

    def make_step(self, *, stop: bool = False) -> dict[str, float]:
        """Change the weights once, by the mean gradient over all target tokens of the step's batches.

        Args:
            stop: Tell the other processes that this one wants to end.

        Returns:
            ``loss`` in nats per target token, ``tokens`` of the target, ``norm`` of the gradient, ``learning_rate``,
            and ``stop``, above 0 if any process wants to end.

        Raises:
            Diverged: If the loss or the gradient is not finite.
        """
        self.step += 1
        picked = [next(self._batches) for _ in range(self.settings.accumulate * self.processes)]
        tokens = sum(len(self.examples[index].target) + 1 for indices in picked for index in indices)
        self.model.train()
        self.optimizer.zero_grad()
        # Process r takes the batches r, r + processes, ...; what it adds up are shares of the mean over all of them.
        mine = list(enumerate(picked))[self.rank :: self.processes]
        total = torch.zeros(2, dtype=torch.float64)
        for place, indices in mine:
            torch.manual_seed(seed_of(self.settings.seed, self.step, place))
            batch = collate(self.examples, indices).to(self.device)
            with self._accumulating(last=place == mine[-1][0]), self._precision():
                loss = self.loss(batch) / tokens
                (loss * self.processes).backward()  # DistributedDataParallel takes the mean over the processes
            total[0] += loss.detach().double().cpu()
        total[1] = stop
        if self.processes > 1:
            dist.all_reduce(total := total.to(self.device))
        norm = clip(self.model.parameters(), self.settings.max_norm or math.inf)
        if not math.isfinite(total[0]) or not math.isfinite(norm):
            self.step -= 1
            raise Diverged(self.step + 1, float(total[0]), norm, sorted(itertools.chain.from_iterable(picked)))
        rate = self.learning_rate(self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        return {"loss": float(total[0]), "tokens": tokens, "norm": norm, "learning_rate": rate, "stop": float(total[1])}

    def save(self, folder: Path, tokenizer: Tokenizer | None = None, extra: dict[str, Any] | None = None) -> None:
        """Write a checkpoint: a model's folder, which ``load_model`` reads too, with what it takes to go on.

        Args:
            folder: Moved into place when it is complete.
            tokenizer: Saved beside the model.
            extra: What the caller wants back from ``restore``.
        """
        names: dict[Tensor, str] = {parameter: name for name, parameter in self.model.named_parameters()}
        averages = {
            f"{names[parameter]}:{key}": value
            for parameter, state in self.optimizer.state.items()
            for key, value in state.items()
        }
        place = {"step": self.step, "epoch": self.epoch, "place": self.place, "extra": extra or {}}
        with checkpoints.moved_into_place(folder) as beside:
            beside.mkdir()
            checkpoints.write_model(beside, self.model, tokenizer)
            checkpoints.write_tensors(beside / "optimizer.safetensors", averages)
            checkpoints.write_json(beside / "state.json", place)

    def restore(self, folder: Path) -> dict[str, Any]:
        """Go back to what ``save`` wrote, and return its ``extra``.

        Raises:
            FileNotFoundError: If a file is missing.
            ValueError: If a file is damaged or another model's.
        """
        weights = folder / checkpoints.WEIGHTS
        checkpoints.load_weights(self.model, checkpoints.load_tensors(weights), weights)
        parameters = dict(self.model.named_parameters())
        self.optimizer.state.clear()
        averages = folder / "optimizer.safetensors"
        for key, value in checkpoints.load_tensors(averages).items():
            name, _, kind = key.rpartition(":")
            if name not in parameters:
                raise ValueError(f"{averages} does not fit the model: unknown {key!r}.")
            state = self.optimizer.state[parameters[name]]
            # Adam counts its steps on the processor, unless it runs as one kernel on the device.
            on_device = kind != "step" or self.optimizer.defaults["fused"]
            state[kind] = value.to(parameters[name].device) if on_device else value
        place = checkpoints.read_json(folder / "state.json")
        try:
            self.step, self.epoch, self.place = (int(place[name]) for name in ("step", "epoch", "place"))
            extra: dict[str, Any] = dict(place["extra"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{folder / 'state.json'} is damaged, or another version's: {error!r}.") from error
        kinds = {"step", "exp_avg", "exp_avg_sq"} if self.step else set()
        if any(self.optimizer.state[parameter].keys() != kinds for parameter in parameters.values()):
            raise ValueError(f"{averages} does not fit the model: it lacks some of its parameters.")
        self._batches = self._stream()
        return extra

    def _stream(self) -> Iterator[list[int]]:
        """The batches from where the run stands, epoch after epoch, without end."""
        while True:
            settings = self.settings
            batches = plan(self.examples, settings.max_tokens, settings.pool, settings.seed, self.epoch)
            while self.place < len(batches):
                self.place += 1
                yield batches[self.place - 1]
            self.epoch, self.place = self.epoch + 1, 0

    def _accumulating(self, last: bool) -> AbstractContextManager[None]:
        """Exchange gradients with the other processes after the last batch of a step only."""
        if isinstance(self.loss, DistributedDataParallel) and not last:
            return self.loss.no_sync()
        return nullcontext()

    @contextmanager
    def _precision(self) -> Iterator[None]:
        """Compute in the type that the settings ask for."""
        if self.settings.precision == "float32":
            yield
            return
        # Backwards, a CPU's fused kernel is many times slower in this type; the products by themselves are faster.
        kernel = sdpa_kernel(SDPBackend.MATH) if self.device.type == "cpu" else nullcontext()
        with torch.autocast(self.device.type, dtype=torch.bfloat16), kernel:
            yield


class _Loss(nn.Module):
    """The smoothed cross-entropy of a batch, summed over its target tokens (5.4)."""

    def __init__(self, model: Transformer, eps_ls: float) -> None:
        super().__init__()
        self.model, self.eps_ls = model, eps_ls

    def forward(self, batch: Batch) -> Tensor:
        hidden = self.model.decode(batch.target, self.model.encode(batch.source))
        weight = self.model.generator.weight
        return projected_cross_entropy(hidden, weight, batch.labels, self.eps_ls, self.model.config.pad_id)


def seed_of(*numbers: int) -> int:
    """Mix some integers into one seed of 32 bits, which is what PyTorch's generator on a CPU takes in."""
    return int.from_bytes(hashlib.blake2b(repr(numbers).encode(), digest_size=4).digest(), "big")
