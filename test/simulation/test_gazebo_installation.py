"""Which Gazebo is installed, and which of its lidars is used."""

import pytest

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.simulation.gazebo import installation
from stretch_sim_cal.simulation.gazebo.installation import Installation


@pytest.mark.parametrize(
    "modules, module",
    [
        (["transport13"], "gz.transport13"),
        (["transport13", "transport15", "transport14"], "gz.transport15"),
        (["transport"], "gz.transport"),
        (["transport99", "transport14"], "gz.transport14"),
    ],
)
def test_bindings_of_every_known_generation_are_found(modules, module):
    assert installation.choose_bindings(modules)[0] == module


@pytest.mark.parametrize(
    "modules, told", [([], "not the Python bindings of its transport"), (["transport12"], "unknown generation")]
)
def test_missing_and_unknown_bindings_are_named(modules, told):
    with pytest.raises(InputError, match=told):
        installation.choose_bindings(modules)


def test_what_ros_has_installed_is_found_although_python_does_not_look_there(monkeypatch, tmp_path):
    vendor = tmp_path / "opt" / "gz_transport_vendor" / "lib" / "python"
    (vendor / "gz" / "transport13").mkdir(parents=True)
    (vendor / "gz" / "transport13" / "__init__.py").write_text("")
    program = tmp_path / "opt" / "gz_tools_vendor" / "bin" / "gz"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(tmp_path))
    found = installation.find_gazebo()
    assert (found.generation, found.bindings, found.python_path) == ("Harmonic", "gz.transport13", str(vendor))
    assert not found.has_cpu_lidar
    plugins = tmp_path / "opt" / "gz_sim_vendor" / "lib" / "gz-sim-8" / "plugins"
    plugins.mkdir(parents=True)
    (plugins / "libgz-sim-cpu-lidar-system.so").write_text("")
    assert installation.find_gazebo().has_cpu_lidar


def test_without_gazebo_the_reason_says_what_to_install(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(InputError, match="apt install"):
        installation.find_gazebo()


def test_the_lidar_is_chosen_by_what_gazebo_has():
    harmonic = Installation("gz", "gz.transport13", "Harmonic", has_cpu_lidar=False)
    assert harmonic.lidar("auto") == "gpu"
    with pytest.raises(InputError, match="no CPU lidar"):
        harmonic.lidar("cpu")
    assert Installation("gz", "gz.transport", "newer than Jetty", has_cpu_lidar=True).lidar("auto") == "cpu"
