"""`make env`: does what is needed and no more, mends what was interrupted, and says in one line what is missing."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FITTING = {
    "python": "/usr/bin/python3", "version": "3.12.1", "venv": True,
    "include": "/usr/include/python3.12", "headers": True,
    "numpy": None, "rclpy": None,
}  # fmt: skip


class Machine:
    """A folder like a checkout's, in which the commands that make an environment are noted instead of run."""

    def __init__(self, module, folder: Path):
        self.module, self.folder, self.venv = module, folder, folder / ".venv"
        self.commands: list[str] = []
        self.breaks_at: str | None = None

    def run(self, step, command, environment=None):
        self.commands.append(step)
        if step == "venv":
            (self.venv / "bin").mkdir(exist_ok=True)
            (self.venv / "bin" / "python").touch()
        if step == self.breaks_at:
            (self.venv / "half_a_package").touch()
            raise KeyboardInterrupt
        return 0

    def make(self, wanted="") -> list[str]:
        """Make the environment and return the steps for which a command ran."""
        self.commands.clear()
        self.module.make(wanted)
        return sorted(set(self.commands))

    def make_and_break(self, step):
        self.breaks_at = step
        with pytest.raises(KeyboardInterrupt):
            self.make()
        self.breaks_at = None


@pytest.fixture
def machine(tmp_path, monkeypatch) -> Machine:
    monkeypatch.syspath_prepend(str(ROOT / "environment"))
    for name in ("ROS_DISTRO", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    module = importlib.import_module("make_env")
    machine = Machine(module, tmp_path)
    interface = tmp_path / "interfaces" / "some_msgs"
    interface.mkdir(parents=True)
    (interface / "package.xml").write_text("<package/>")
    (tmp_path / "environment").mkdir()
    for name in ("setup.py", "setup.cfg", "pyproject.toml", "environment/ros.txt", "environment/make_env.py"):
        (tmp_path / name).write_text(name)
    places = {
        "ROOT": tmp_path, "VENV": machine.venv, "BUILD": tmp_path / "build", "INTERFACES": tmp_path / "interfaces",
        "ROS_WHEELS": tmp_path / "environment" / "ros.txt", "MADE": machine.venv / "made",
        "UNFINISHED": machine.venv / "made" / "unfinished", "__file__": str(tmp_path / "environment" / "make_env.py"),
    }  # fmt: skip
    for name, value in (places | {"run": machine.run}).items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(module.interpreter, "probe", lambda name: dict(FITTING))
    monkeypatch.setattr(module.interpreter, "check_machine", lambda: None)
    return machine


ALL = ["check", "package", "ros", "some_msgs", "venv"]


def test_everything_is_made_from_nothing_and_nothing_the_second_time(machine, capsys):
    assert machine.make() == ALL
    assert machine.make() == []
    assert "up to date" in capsys.readouterr().out


@pytest.mark.parametrize("step", ["venv", "ros", "package"])
def test_what_pip_left_when_it_was_interrupted_is_thrown_away(machine, step):
    machine.make_and_break(step)
    assert (machine.venv / "half_a_package").exists()
    assert machine.make() == ALL
    assert not (machine.venv / "half_a_package").exists()
    assert machine.make() == []


def test_only_what_was_interrupted_or_a_change_touches_is_made_again(machine):
    machine.make_and_break("some_msgs")
    assert machine.make() == ["check", "some_msgs"]
    (machine.folder / "interfaces" / "some_msgs" / "New.msg").write_text("bool yes")
    assert machine.make() == ["check", "some_msgs"]
    (machine.folder / "setup.py").write_text("another library")
    assert machine.make() == ["check", "package"]
    (machine.folder / "environment" / "ros.txt").write_text("another ROS")
    assert machine.make() == ["check", "ros", "some_msgs"]


def test_a_moved_checkout_and_another_python_get_a_new_environment(machine, monkeypatch):
    machine.make()
    where = machine.venv / "made" / "venv"
    where.write_text(json.dumps(json.loads(where.read_text()) | {"venv": "/elsewhere/.venv"}))
    assert machine.make() == ALL
    assert machine.make("python3.12") == []
    monkeypatch.setattr(machine.module.interpreter, "probe", lambda name: FITTING | {"python": "/opt/python3.11"})
    assert machine.make("python3.11") == ALL


def test_a_sourced_ros_is_used_and_nothing_of_ros_is_installed(machine, monkeypatch, tmp_path):
    (tmp_path / "ros" / "rclpy").mkdir(parents=True)
    monkeypatch.setenv("ROS_DISTRO", "jazzy")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "ros"))
    monkeypatch.setattr(machine.module.interpreter, "probe", lambda name: FITTING | {"rclpy": "?", "numpy": "1.26.4"})
    assert machine.make() == ["check", "package", "venv"]
    assert (machine.venv / "made" / "constraints.txt").read_text() == "numpy==1.26.4\n"
    monkeypatch.delenv("ROS_DISTRO")
    assert machine.make() == ALL


@pytest.mark.parametrize(
    "lacks, says",
    [
        ({"venv": False}, "apt-get install python3.12-venv"),
        ({"venv": False, "headers": False}, "apt-get install python3.12-venv python3.12-dev"),
        ({"version": "3.10.4"}, "the ROS wheels are for 3.11 to 3.13"),
    ],
)
def test_what_the_interpreter_lacks_is_said_in_one_line(machine, monkeypatch, lacks, says):
    monkeypatch.setattr(machine.module.interpreter, "probe", lambda name: FITTING | lacks)
    with pytest.raises(machine.module.Stop, match=says) as stop:
        machine.make()
    assert "\n" not in str(stop.value)
    assert not machine.venv.exists()


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("aarch64", "Linux aarch64, there are no ROS wheels for it: install ROS 2"),
        ("x86_64", "apt-get install g"),  # there is no compiler
    ],
)
def test_what_the_machine_lacks_is_named(monkeypatch, kind, says):
    monkeypatch.syspath_prepend(str(ROOT / "environment"))
    interpreter = importlib.import_module("interpreter")
    monkeypatch.setattr(interpreter.shutil, "which", lambda name: None)
    monkeypatch.setattr(interpreter.platform, "machine", lambda: kind)
    with pytest.raises(interpreter.Stop, match=says):
        interpreter.check_machine()


def test_a_venv_that_is_not_ours_is_left_alone(tmp_path):
    (tmp_path / "environment").mkdir()
    for name in ("make_env.py", "interpreter.py"):
        (tmp_path / "environment" / name).write_text((ROOT / "environment" / name).read_text())
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "somebody's").touch()
    done = subprocess.run([sys.executable, tmp_path / "environment" / "make_env.py"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "was not made by 'make env': move it away" in done.stderr
    assert (tmp_path / ".venv" / "somebody's").exists()
