"""The program that makes .venv: when it installs, when it starts anew, and that it never trusts a half-made one."""

import sys

import pytest

from tools import environment

MINE = "{}.{}".format(*sys.version_info)


class Machine:
    """A .venv that is not there yet, and a pip that does what a test says."""

    def __init__(self):
        self.version = ""  # of .venv's Python
        self.fails = ""  # the step that goes wrong
        self.steps = []

    def run(self, command, stdout):
        step = {"venv": "venv", "pip": command[-1] if command[-1] == "check" else "install"}[command[2]]
        self.steps.append(step)
        if step == self.fails:
            return 1
        if step == "venv":
            assert "--clear" in command
            environment.VENV.mkdir(exist_ok=True)
            environment.BEGUN.unlink(missing_ok=True)
            environment.READY.unlink(missing_ok=True)
            self.version = MINE
        return 0

    def make(self, *arguments):
        """Runs the program; returns its exit status and the steps it took."""
        self.steps = []
        sys.argv = ["environment.py", *arguments]
        return environment.main(), self.steps


@pytest.fixture
def machine(tmp_path, monkeypatch):
    machine = Machine()
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text("")
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    monkeypatch.setattr(environment, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(environment, "READY", tmp_path / ".venv/book-ready")
    monkeypatch.setattr(environment, "BEGUN", tmp_path / ".venv/book-begun")
    monkeypatch.setattr(environment, "run", machine.run)
    monkeypatch.setattr(environment, "installed_version", lambda: machine.version)
    return machine


ANEW = ["venv", "install", "check"]
AS_IT_IS = ["install", "check"]


def test_makes_it_once(machine):
    assert machine.make() == (0, ANEW)
    assert machine.make() == (0, [])


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_installs_again_when_the_versions_change(machine, name):
    machine.make()
    (environment.ROOT / name).write_text("other")
    assert machine.make() == (0, AS_IT_IS)
    assert machine.make() == (0, [])


@pytest.mark.parametrize("step", ["install", "check"])
def test_a_half_made_one_is_made_anew(machine, step, capsys):
    machine.fails = step
    status, steps = machine.make()
    assert (status, steps[-1]) == (1, step)
    assert "error: " in capsys.readouterr().err
    machine.fails = ""
    assert machine.make() == (0, ANEW)
    assert machine.make() == (0, [])


def test_an_interrupted_one_is_made_anew(machine, monkeypatch, capsys):
    def interrupt(command, stdout):
        machine.run(command, stdout)
        if machine.steps[-1] == "install":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(environment, "run", interrupt)
        status, _ = machine.make()
    assert status == 130
    assert capsys.readouterr().err == "Interrupted. The next run begins anew.\n"
    assert machine.make() == (0, ANEW)


def test_one_whose_python_is_broken_is_made_anew(machine):
    machine.make()
    machine.version = ""
    assert machine.make() == (0, ANEW)


def test_a_readers_own_is_used(machine):
    environment.VENV.mkdir()
    machine.version = MINE
    assert machine.make() == (0, AS_IT_IS)


def test_another_python_is_taken_only_when_it_is_chosen(machine):
    machine.make()
    machine.version = "3.99"
    assert machine.make() == (0, [])
    assert machine.make("--chosen") == (0, ANEW)
    assert machine.make("--chosen") == (0, [])


def test_an_old_python_is_refused_unless_nothing_is_to_be_made(machine, monkeypatch, capsys):
    machine.make()
    monkeypatch.setattr(environment, "OLDEST", (99, 0))
    assert machine.make() == (0, [])
    machine.version = ""
    assert machine.make() == (1, [])
    assert "make PYTHON=python3.12 book" in capsys.readouterr().err


def test_a_missing_venv_module_is_explained(machine, capsys):
    machine.fails = "venv"
    assert machine.make() == (1, ["venv"])
    assert "python3-venv" in capsys.readouterr().err


def test_the_version_of_a_python_that_is_not_there_is_empty(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "PYTHON", tmp_path / "python")
    assert environment.installed_version() == ""
    monkeypatch.setattr(environment, "PYTHON", sys.executable)
    assert environment.installed_version() == MINE
