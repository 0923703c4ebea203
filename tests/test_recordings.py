"""Recordings keep what they were given, write the same bytes again, and refuse what cannot be kept."""

import copy
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from annotated_transformer import book_files, recordings

COMMITTED = sorted((Path(__file__).parents[1] / "book" / "recordings").glob("*"))


def write(folder, name="run", **changes):
    fields = {"settings": {"d_k": [2, 4]}, "results": {"loss": [0.5, 0.25]}, "seeds": [0, 1]} | changes
    return recordings.write(name, folder=folder, **fields)


@pytest.mark.parametrize("path", [path for path in COMMITTED if path.name != ".gitkeep"], ids=lambda path: path.name)
def test_every_committed_recording_is_one(path):
    assert path.suffix == ".json"
    assert recordings.read(path.stem, path.parent)["name"] == path.stem


def test_what_is_written_is_read(tmp_path):
    path = write(tmp_path)
    recording = recordings.read("run", tmp_path)
    assert path == tmp_path / "run.json"
    assert recording["settings"] == {"d_k": [2, 4]}
    assert recording["results"] == {"loss": [0.5, 0.25]}
    assert recording["seeds"] == [0, 1]


def test_the_environment_is_recorded(tmp_path):
    write(tmp_path)
    environment = recordings.read("run", tmp_path)["environment"]
    assert environment["torch"] == torch.__version__
    assert environment["threads"] == torch.get_num_threads()
    assert environment["device"] == "cpu"
    assert environment["processor"]


def test_the_same_experiment_writes_the_same_bytes(tmp_path):
    first = write(tmp_path, results={"b": 1, "a": {"d": 2, "c": 3}}).read_bytes()
    assert write(tmp_path, results={"a": {"c": 3, "d": 2}, "b": 1}).read_bytes() == first
    assert list(json.loads(first)) == sorted(json.loads(first))


def test_arrays_tensors_and_numbers_become_plain(tmp_path):
    results = {
        "tensor": torch.tensor([[1.0, 2.5]]),
        "array": np.arange(3),
        "scalar": np.float32(0.1),
        "third": 1 / 3,
        "tiny": 1.23456789e-12,
        "pair": (True, None),
        "empty": {},
    }
    write(tmp_path, results=results)
    assert recordings.read("run", tmp_path)["results"] == {
        "tensor": [[1.0, 2.5]],
        "array": [0, 1, 2],
        "scalar": 0.1,
        "third": 0.333333,
        "tiny": 1.23457e-12,
        "pair": [True, None],
        "empty": {},
    }


def test_a_list_of_numbers_stays_on_one_line(tmp_path):
    text = write(tmp_path, results={"loss": list(range(100)), "rows": [[1, 2], [3, 4]]}).read_text()
    assert '"loss": [0, 1, 2' in text
    assert "\n      [1, 2],\n" in text
    assert len(text.splitlines()) < 30
    assert text.endswith("}\n")


@pytest.mark.parametrize("name", ["", "Run", "a_b", "a/b", "../a", "a.json", "-a", "a--b", "ä", None, 3])
def test_bad_names_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match="name must be lower-case words"):
        write(tmp_path, name=name)
    with pytest.raises(ValueError, match="name must be lower-case words"):
        recordings.read(name, tmp_path)


@pytest.mark.parametrize("number", [math.nan, math.inf, torch.tensor([1.0, math.nan])])
def test_numbers_must_be_finite(tmp_path, number):
    with pytest.raises(ValueError, match=r"results\['loss'\].*must be finite"):
        write(tmp_path, results={"loss": number})
    assert not list(tmp_path.iterdir())


def test_keys_must_be_strings(tmp_path):
    with pytest.raises(TypeError, match=r"results\['a'\]: keys must be strings, got 64"):
        write(tmp_path, results={"a": {64: 1}})


def test_other_things_are_refused_with_their_place(tmp_path):
    with pytest.raises(TypeError, match=r"settings\['x'\]\[1\]: a recording cannot hold set"):
        write(tmp_path, settings={"x": [1, {2}]})


@pytest.mark.parametrize("seeds", [["0"], [0.5], [True]])
def test_seeds_must_be_integers(tmp_path, seeds):
    with pytest.raises(ValueError, match="seeds must be integers"):
        write(tmp_path, seeds=seeds)


def test_seeds_must_be_a_list(tmp_path):
    with pytest.raises(TypeError, match="seeds must be a list of integers, got 3"):
        write(tmp_path, seeds=3)


def test_no_results_is_no_recording(tmp_path):
    with pytest.raises(ValueError, match="results must not be empty"):
        write(tmp_path, results={})


def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    old = write(tmp_path).read_text()

    def full(*_arguments, **_options):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(OSError, match="disk full"):
            write(tmp_path, results={"loss": 1})
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
    assert (tmp_path / "run.json").read_text() == old


def test_a_folder_that_does_not_exist(tmp_path):
    with pytest.raises(FileNotFoundError, match=re.escape(f"folder must exist, and there is no {tmp_path / 'none'}.")):
        write(tmp_path / "none")


def test_the_default_folder_is_the_books(tmp_path, monkeypatch):
    (tmp_path / "recordings").mkdir()
    monkeypatch.setattr(book_files, "_CHECKOUT", tmp_path)
    monkeypatch.setattr(book_files, "_INSTALLED", tmp_path / "none")
    assert write(None) == tmp_path / "recordings" / "run.json"
    assert recordings.read("run")["seeds"] == [0, 1]
    with pytest.raises(FileNotFoundError, match=r"recordings/other\.json"):
        recordings.read("other")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.pop("seeds"), "exactly the fields"),
        (lambda r: r.update(date="today"), "exactly the fields"),
        (lambda r: r.update(name="other"), "calls itself 'other'"),
        (lambda r: r.update(settings=[]), "settings must be of type dict"),
        (lambda r: r["environment"].pop("torch"), "environment of recording 'run'"),
        (lambda r: r["environment"].update(threads="2"), "threads must be of type int"),
    ],
)
def test_validation_finds_what_is_wrong(tmp_path, change, message):
    recording = json.loads(write(tmp_path).read_text())
    changed = copy.deepcopy(recording)
    change(changed)
    recordings.validate(recording, "run")
    with pytest.raises(ValueError, match=message):
        recordings.validate(changed, "run")
    (tmp_path / "run.json").write_text(json.dumps(changed))
    with pytest.raises(ValueError, match=message):
        recordings.read("run", tmp_path)


def test_a_file_that_is_not_json(tmp_path):
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(ValueError, match=r"run\.json is not JSON"):
        recordings.read("run", tmp_path)


def test_a_list_is_not_a_recording():
    with pytest.raises(ValueError, match="got list"):
        recordings.validate([], "run")


def test_an_experiment_goes_on_with_what_the_same_settings_gave(tmp_path):
    assert recordings.earlier("run", {"d_k": [2, 4]}, tmp_path) == {}
    write(tmp_path)
    assert recordings.earlier("run", {"d_k": [2, 4]}, tmp_path) == {"loss": [0.5, 0.25]}
    assert recordings.earlier("run", {"d_k": [2, 5]}, tmp_path) == {}
