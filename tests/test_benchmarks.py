"""The benchmarks: ratios and verdicts from given numbers, a run at toy size, and the page that shows the results."""

import copy
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from annotated_transformer.config import TransformerConfig
from benchmarks import measure, peers, report, run, tasks
from benchmarks.report import Goal

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "_build" / "html" / "book" / "speed.html"
PACKAGES = {package for peer in peers.PEERS for package in peer.packages}
TOY = TransformerConfig(d_model=8, d_ff=16, h=2, N=1, vocab_size=13)


# Numbers --------------------------------------------------------------------------------------------------------------


def test_ratios_are_taken_round_by_round():
    seconds = {"slow": [4.0, 8.0, 6.0], "fast": [1.0, 4.0, 3.0]}  # the machine was half as fast in the second round
    assert measure.ratios(seconds, "slow") == {"slow": [1, 1, 1], "fast": [2, 2, 4]}


def test_a_row_keeps_medians_and_how_often():
    row = measure.row({"a": [2.0, 4.0, 3.0], "b": [1.0, 1.0, 1.0]}, "a", size="tiny")
    assert row == {
        "size": "tiny", "rounds": 3, "seconds": {"a": 3, "b": 1}, "speed": {"a": [1, 1, 1], "b": [3, 2, 4]}
    }  # fmt: skip


def test_rounds_rotate_and_the_first_does_not_count():
    order = []
    seconds = measure.rounds({name: lambda name=name: order.append(name) for name in "abc"}, 3)
    assert "".join(order) == "abc" + "abc" + "bca" + "cab"
    assert {name: len(each) for name, each in seconds.items()} == {"a": 3, "b": 3, "c": 3}


@pytest.mark.parametrize(
    ("value", "goal", "met"),
    [
        (2.0, Goal(2.0), True), (1.91, Goal(2.0), True), (1.89, Goal(2.0), False),
        (0.5, Goal(0.5, at_most=True), True), (0.52, Goal(0.5, at_most=True), True),
        (0.53, Goal(0.5, at_most=True), False), (0.1, Goal(0.5, at_most=True), True),
    ],
)  # fmt: skip
def test_a_goal_is_met_within_five_percent(value, goal, met):
    assert goal.met(value) is met
    assert report.judged(value, goal).endswith(": met" if met else ": short")


def test_memory_is_of_the_run_alone():
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("needs Linux")
    grown = measure.growth(_holds, 2**25)
    assert 0.95 * 2**25 < grown < 1.3 * 2**25


def _holds(size):
    return lambda: torch.ones(size, dtype=torch.uint8)


# Peers ----------------------------------------------------------------------------------------------------------------


def test_a_missing_peer_is_named_and_left_out(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(peers.Marian, "packages", ("torch", "no_such_package"))
    assert peers.missing()["Marian"] == "no_such_package"
    assert peers.Marian not in tasks.able("step")
    assert run.main(["--quick", "--only", "padding", "--out", str(tmp_path)]) == 0
    assert "Marian is missing: no_such_package is not installed" in capsys.readouterr().out


def test_this_package_and_torch_always_take_part():
    assert {peers.Torch, peers.Ours, peers.Floor} <= set(tasks.able("greedy"))
    assert peers.Prepared not in tasks.able("step", training=True)


def test_requirements_name_the_peers_and_nothing_else():
    lines = (ROOT / "benchmarks" / "requirements.txt").read_text().splitlines()
    pinned = [line.partition("==") for line in lines if not line.startswith("#")]
    assert all(equal and version for _, equal, version in pinned)
    assert {name.replace("-", "_") for name, _, _ in pinned} == {
        package for peer in peers.PEERS for package in peer.packages
    } - {"torch"}


@pytest.mark.parametrize("kind", [kind for kind in tasks.able("greedy") if kind is not peers.Floor])
def test_every_peer_does_its_tasks(kind):
    source = peers.make_batch(TOY, 2, 3).source
    model = kind(TOY)
    model.greedy(source, 5)
    if hasattr(model, "beam"):
        model.beam(source[:1], 5, 2)


def test_ours_writes_as_many_tokens_as_asked_for():
    model = peers.Ours(TOY)
    source = peers.make_batch(TOY, 3, 4).source
    written = peers.greedy(model.network, source, 9 - 4)
    assert [len(hypothesis.ids) + 1 for hypothesis in written] == [9] * 3  # and </s>


def test_a_step_changes_the_weights():
    for kind in (peers.Ours, peers.Torch):
        model = kind(TOY, training=True)
        before = copy.deepcopy(list(model.model.parameters()))
        model.step(peers.make_batch(TOY, 2, 3))
        assert any(not old.equal(new) for old, new in zip(before, model.model.parameters(), strict=True))


def test_what_is_switched_off_computes_the_same():
    from benchmarks import ablations

    config = TOY.replace(p_drop=0.0)
    batch = peers.make_batch(config, 2, 3)
    plain, unfused = peers.Ours(config, True), ablations.UnfusedLoss(config, True)
    unfused.network.load_state_dict(plain.network.state_dict())
    assert unfused.loss(batch).item() == pytest.approx(plain.loss(batch).item(), rel=1e-5)


# The run, the results, the page ---------------------------------------------------------------------------------------


@pytest.mark.timeout(1200)
def test_a_quick_run_measures_everything(tmp_path):
    """At toy sizes, with the peers that are installed; each section has something to show."""
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "run.py", "--quick", "--out", tmp_path],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for name, package in peers.missing().items():
        assert f"{name} is missing: {package} is not installed" in done.stdout
    results = report.load(tmp_path)
    assert set(tasks.SECTIONS) <= set(results)
    assert set(report.tables(results)) == {
        "training", "memory", "encoder", "greedy", "beam", "others", "ablations", "lengths", "padding"
    }  # fmt: skip
    for section in ("training", "encoder", "greedy", "beam"):
        for row in results[section]:
            assert row["seconds"]["floor"] < row["seconds"][report.OURS], section


def test_the_results_are_complete():
    results = report.load()
    assert report.complete(results)
    assert set(tasks.SECTIONS) <= set(results)
    assert set(results["versions"]) == {package for peer in peers.PEERS for package in peer.packages}, (
        "measured without some peer"
    )
    for row in results["training"]:
        assert set(row["speed"]) == {kind.name for kind in peers.PEERS if issubclass(kind, peers.Trained)} - {
            peers.Prepared.name, peers.Int8.name
        } | {"floor"}  # fmt: skip
    for section in ("training", "encoder", "greedy", "beam"):
        for row in results[section]:
            assert row["speed"][report.BASELINE] == [1, 1, 1]
            others = [name for name in row["seconds"] if "CTranslate2" not in name and "int8" not in name]
            assert min(others, key=row["seconds"].__getitem__) == "floor", (section, row["size"], row["batch"])


def test_every_goal_is_judged():
    results = report.load()
    measured = {(s, row["size"], row["batch"]) for s in ("training", "encoder", "greedy", "beam") for row in results[s]}
    measured |= {("memory", row["size"]) for row in results["memory"]}
    assert measured >= {key for key in report.GOALS if isinstance(key, tuple)}


def test_a_table_changes_with_the_results():
    results = copy.deepcopy(dict(report.load()))
    row = results["training"][0]
    row["speed"][report.OURS] = [1.0, 0.9, 1.1]
    shown = report.tables(results)["training"].rows[0]
    assert "**1.00** (0.90–1.10)" in shown
    assert shown[-1] == "≥\N{NO-BREAK SPACE}2.10: short"


def page_source():
    return (ROOT / "book" / "speed.md").read_text(encoding="utf-8")


def test_the_page_names_only_what_there_is():
    results = report.load()
    asked = re.findall(r"\{speed\}`([^`]+)`", page_source())
    assert len(asked) > 10
    assert set(asked) <= set(report.numbers(results))
    assert set(re.findall(r"\{speed-table\} (\S+)", page_source())) <= set(report.tables(results))


def test_the_built_page_shows_the_results():
    soup = pytest.importorskip("bs4").BeautifulSoup
    if not PAGE.exists():
        pytest.skip("the site is not built")
    page = soup(PAGE.read_text(encoding="utf-8"), "html.parser")
    shown = {tuple(_texts(row)) for table in page.find_all("table") for row in table.find_all("tr")}
    tables = report.tables(report.load())
    for name in re.findall(r"\{speed-table\} (\S+)", page_source()):
        for row in [tables[name].header, *tables[name].rows]:
            assert tuple(cell.replace("**", "") for cell in row) in shown, (name, row)


def _texts(row):
    return [cell.get_text().strip().replace("’", "'") for cell in row.find_all(["td", "th"])]  # as they are typed
