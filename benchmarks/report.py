"""From results to what a page shows: tables, single numbers, and whether a goal is met."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from annotated_transformer import recordings

OURS, PREPARED, INT8 = "this book", "this book, prepared", "this book, int8"
BASELINE, MARIAN = "torch.nn.Transformer", "Marian"
LENIENCE = 0.05
"""Within this share of a goal is on it: measurements differ by as much."""

MIB = 2**20
Results = Mapping[str, Any]


@dataclass(frozen=True)
class Goal:
    """What a number should be.

    Attributes:
        value: The number.
        at_most: Whether less is better.
        floor: The floor's number on the machine on which the goal was set.
    """

    value: float
    at_most: bool = False
    floor: float | None = None

    def met(self, value: float) -> bool:
        """Whether ``value`` is as good, or within 5 % of it."""
        if self.at_most:
            return value <= self.value * (1 + LENIENCE)
        return value >= self.value * (1 - LENIENCE)

    def __str__(self) -> str:
        return f"{'≤' if self.at_most else '≥'}\N{NO-BREAK SPACE}{figure(self.value)}"


GOALS = {
    ("training", "tiny", 32): Goal(2.1, floor=3.32), ("training", "small", 32): Goal(1.5, floor=2.18),
    ("training", "base", 32): Goal(1.35, floor=1.79),
    ("memory", "small"): Goal(0.45, at_most=True), ("memory", "base"): Goal(0.47, at_most=True),
    ("encoder", "small", 32): Goal(1.1, floor=1.44), ("encoder", "base", 32): Goal(1.05, floor=1.21),
    ("greedy", "tiny", 1): Goal(2.4, floor=5.5), ("greedy", "small", 1): Goal(3, floor=5.5),
    ("greedy", "base", 1): Goal(2.8, floor=3.0),
    ("greedy", "tiny", 32): Goal(8, floor=16), ("greedy", "small", 32): Goal(13, floor=21),
    ("greedy", "base", 32): Goal(10.5, floor=12),
    ("beam", "tiny", 1): Goal(3.2, floor=6.8), ("beam", "small", 1): Goal(4.6, floor=7.8),
    ("beam", "base", 1): Goal(4, floor=3.8),
    "int8": Goal(20), "attention": Goal(8.6), "attention memory": Goal(8.6 / 1032, at_most=True),
    "import": Goal(1.02, at_most=True), "padding": Goal(0.06, at_most=True),
}  # fmt: skip
"""By section, model and batch."""


def over_marian(size: str, batch: int) -> Goal:
    """How many times as fast as Marian's decoding ours should be."""
    return Goal(1.3 if size == "base" and batch == 1 else 1.5)


@dataclass(frozen=True)
class Table:
    """A header and rows of texts."""

    header: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        """Return the table as Markdown; the first column is left-aligned, the others right."""
        lines = [self.header, [":--"] + ["--:"] * (len(self.header) - 1), *self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def load(folder: Path | None = None) -> Results:
    """Read the results that are kept in the repository, or those of another folder."""
    recording = recordings.read("results", folder or Path(__file__).parent)
    return {**recording["results"], "environment": recording["environment"], "settings": recording["settings"]}


def figure(value: float) -> str:
    """Write a number with three digits, or two behind the point."""
    if value and abs(value) < 0.1:
        return f"{value:.2g}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 100 else f"{value:,.0f}"


def spread(median: float, least: float, most: float) -> str:
    """Write a median and its range."""
    return f"**{figure(median)}** ({figure(least)}–{figure(most)})"


def judged(value: float, goal: Goal | None) -> str:
    """Write a goal, and whether it is met."""
    return "–" if goal is None else f"{goal}: {'met' if goal.met(value) else 'short'}"


def of_floor(row: Mapping[str, Any], name: str, goal: Goal | None) -> str:
    """Write which share of the floor's speed something reaches, and in brackets what the goal was of its floor."""
    if "floor" not in row["speed"]:
        return "–"
    reached = f"{row['speed'][name][0] / row['speed']['floor'][0]:.0%}"
    return f"{reached} ({goal.value / goal.floor:.0%})" if goal and goal.floor else reached


def tables(results: Results) -> dict[str, Table]:
    """Make every table that the results have something for, by its name."""
    made = {name: maker(results) for name, maker in TABLES.items()}
    return {name: table for name, table in made.items() if table.rows}


def training(results: Results) -> Table:
    """A training step, as many times as fast as the baseline's."""
    peers = ["x-transformers", MARIAN]
    rows = []
    for row in results.get("training", []):
        goal = GOALS[("training", row["size"], 32)]
        ours = row["speed"][OURS]
        cells = [_speed(row, name) for name in peers]
        own = [spread(*ours), _speed(row, "floor"), of_floor(row, OURS, goal), judged(ours[0], goal)]
        rows.append([row["size"], *cells, *own])
    return Table(["model", *peers, "this book", "floor", "of the floor", "goal"], rows)


def memory(results: Results) -> Table:
    """What a step needs beyond weights and averages, as a share of the baseline's."""
    peers = ["x-transformers", MARIAN]
    rows = []
    for row in results.get("memory", []):
        goal, share = GOALS[("memory", row["size"])], _shares(row["bytes"], BASELINE)
        if OURS in share:
            cells = [figure(share[name]) if name in share else "–" for name in peers]
            size = f"{row['bytes'][BASELINE] / MIB:,.0f} MiB"
            own = f"**{figure(share[OURS])}**"
            rows.append([row["size"], size, *cells, own, judged(share[OURS], goal)])
    return Table(["model", BASELINE, *peers, "this book", "goal"], rows)


def encoder(results: Results) -> Table:
    """Reading, as many times as fast as the baseline."""
    return _inference(results, "encoder", {"x-transformers": "x-transformers", MARIAN: MARIAN})


def greedy(results: Results) -> Table:
    """Writing the most probable token, as many times as fast as the baseline."""
    engine = {"CTranslate2": "CTranslate2", "CTranslate2, int8": "the same, 8 bits", INT8: "this book, 8 bits"}
    return _inference(results, "greedy", {"x-transformers": "x-transformers", MARIAN: MARIAN, **engine})


def beam(results: Results) -> Table:
    """Writing with beam search, as many times as fast as the baseline."""
    engine = {"CTranslate2": "CTranslate2", "CTranslate2, int8": "the same, 8 bits", INT8: "this book, 8 bits"}
    return _inference(results, "beam", {MARIAN: MARIAN, **engine})


def _inference(results: Results, section: str, columns: Mapping[str, str]) -> Table:
    rows = []
    for row in results.get(section, []):
        size, batch, ours = row["size"], row["batch"], row["speed"][PREPARED]
        cells = [_speed(row, name) for name in columns]
        goal = GOALS.get((section, size, batch))
        own = [spread(*ours), _speed(row, "floor"), of_floor(row, PREPARED, goal), judged(ours[0], goal)]
        rows.append([size, str(batch), *cells, *own])
    return Table(["model", "batch", *columns.values(), "this book", "floor", "of the floor", "goal"], rows)


def others(results: Results) -> Table:
    """Goals that are not a model's speed beside the baseline's; and how far we are ahead of Marian's decoding."""
    rows: list[list[str]] = []

    def add(what: str, value: float, goal: Goal, text: str | None = None) -> None:
        rows.append([what, text or figure(value), judged(value, goal)])

    for row in results.get("encoder", []):
        rivals = {name: row["speed"][name][0] for name in (BASELINE, "x-transformers", MARIAN) if name in row["speed"]}
        if rivals:
            best = max(rivals, key=lambda name: rivals[name])
            quotient = row["speed"][PREPARED][0] / rivals[best]
            add(f"encoder, {row['size']}: speed over {best}, the fastest of the others", quotient, Goal(1))
    for section, task in (("greedy", "greedy"), ("beam", "beam 4")):
        for row in results.get(section, []):
            if MARIAN in row["speed"]:
                size, batch = row["size"], row["batch"]
                quotient = row["speed"][PREPARED][0] / row["speed"][MARIAN][0]
                add(f"{task}, batch {batch}, {size}: speed over Marian", quotient, over_marian(size, batch))
    for row in results.get("greedy", []):
        if row["size"] == "base" and row["batch"] > 1:
            ours = row["speed"][INT8]
            add(f"greedy, batch {row['batch']}, base, 8 bits: speed over {BASELINE}", ours[0], GOALS["int8"])
    for row in results.get("lengths", [])[-1:]:
        n, process = row["length"], row.get("process") or {}
        add(f"causal attention, n = {n}: speed over written out", row["speed"]["fused"][0], GOALS["attention"])
        if process.get("fused"):
            each = " of ".join(f"{figure(process[name] / MIB)} MiB" for name in ("fused", "written out"))
            share = process["fused"] / process["written out"]
            add(f"causal attention, n = {n}: memory, of that written out", share, GOALS["attention memory"], each)
    for row in results.get("import", []):
        add("import, times that of PyTorch alone", 1 / row["speed"][OURS][0], GOALS["import"])
    if shares := results.get("padding"):
        value = shares["pools of 100 batches, sorted"]
        add("padding, a share of batches of 4,096 tokens", value, GOALS["padding"])
    return Table(["what", "measured", "goal"], rows)


def ablations(results: Results) -> Table:
    """How many times as long a task takes without a technique."""
    rows = [[row["technique"], row["task"], row["size"], spread(*row["times"])] for row in results.get("ablations", [])]
    return Table(["technique", "task", "model", "without it, times as long"], rows)


def lengths(results: Results) -> Table:
    """Attention as the sequence grows."""
    rows = [
        [f"{row['length']:,}"]
        + [f"{1000 * row['seconds'][name]:,.1f}" for name in ("written out", "fused")]
        + [f"{row['bytes'][name] / MIB:,.1f}" for name in ("written out", "fused")]
        for row in results.get("lengths", [])
    ]
    return Table(["n", "written out, ms", "fused, ms", "written out, MiB", "fused, MiB"], rows)


def padding(results: Results) -> Table:
    """Share of padding by scheme."""
    rows = [[name, percent(share)] for name, share in results.get("padding", {}).items()]
    rows.sort(key=lambda row: -results["padding"][row[0]])
    return Table(["batches", "padding"], rows)


TABLES: dict[str, Callable[[Results], Table]] = {
    "training": training, "memory": memory, "encoder": encoder, "greedy": greedy, "beam": beam, "others": others,
    "ablations": ablations, "lengths": lengths, "padding": padding,
}  # fmt: skip


def complete(results: Results) -> bool:
    """Whether every section has been measured."""
    return {*TABLES, "import", "batches", "widths", "recording"} - {"others"} <= set(results)


def percent(share: float) -> str:
    """Write a share in percent."""
    return f"{100 * share:.1f} %" if share < 0.1 else f"{100 * share:.0f} %"


def numbers(results: Results) -> dict[str, str]:
    """The single numbers that the page's sentences name."""
    found: dict[str, str] = {}
    for section in ("training", "encoder", "greedy", "beam"):
        for row in results.get(section, []):
            key = f"{section} {row['size']} {row['batch']}"
            found |= {f"{key} {name}": figure(speed[0]) for name, speed in row["speed"].items()}
            found |= {f"{key} {name} seconds": figure(seconds) for name, seconds in row["seconds"].items()}
    for row in results.get("memory", []):
        if row["bytes"].get(OURS):
            times = {name: size / row["bytes"][OURS] for name, size in row["bytes"].items()}
            found |= {f"memory {row['size']} {name}": figure(quotient) for name, quotient in times.items()}
    for row in results.get("ablations", []):
        found[f"{row['technique']}, {row['task']}, {row['size']}"] = figure(row["times"][0])
    for row in results.get("lengths", []):
        n = row["length"]
        found |= {f"fused {n}": figure(row["speed"]["fused"][0])}
        found |= {f"{name} {n} MiB": figure(held / MIB) for name, held in row["bytes"].items()}
    for row in results.get("recording", []):
        seconds, held = row["seconds"], row["bytes"]
        found["recording, time"] = figure(seconds["recorded"] / seconds["plain"])
        found["recording, memory"] = figure(held["recorded"] / held["plain"])
    found |= {f"padding, {name}": percent(share) for name, share in results.get("padding", {}).items()}
    if batches := results.get("batches"):
        first, last = batches[0], batches[-1]
        found["largest batch"] = str(last["batch"])
        found["batch, time"] = figure(last["seconds"] / first["seconds"])
        found["batch, rate"] = figure(last["batch"] / first["batch"] * first["seconds"] / last["seconds"])
    if widths := results.get("widths"):
        first, last = widths[0], widths[-1]
        found["widest beam"] = str(last["width"])
        found["beam, time"] = figure(last["seconds"] / first["seconds"])
    found |= {f"version {package}": version for package, version in results.get("versions", {}).items()}
    if environment := results.get("environment"):
        found |= {name: str(environment[name]) for name in ("processor", "python", "torch")}
    goals = [row[-1] for table in tables(results).values() if "goal" in table.header for row in table.rows]
    found["goals"] = str(sum(": " in goal for goal in goals))
    found["goals met"] = str(sum(goal.endswith("met") for goal in goals))
    dates = recordings.read("date-task")["results"]["cpu_seconds"]
    found["dates"], found["dates, seeds"] = f"{statistics.median(dates):.0f}", str(len(dates))
    return found


def _speed(row: Mapping[str, Any], name: str) -> str:
    return figure(row["speed"][name][0]) if name in row["speed"] else "–"


def _shares(sizes: Mapping[str, int | None], baseline: str) -> dict[str, float]:
    whole = sizes.get(baseline)
    return {name: size / whole for name, size in sizes.items() if size is not None} if whole else {}
