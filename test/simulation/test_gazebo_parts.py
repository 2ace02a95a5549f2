"""Parts of the Gazebo simulator alone: what is installed, and messages as a real Gazebo has sent them."""

import lzma
from pathlib import Path

import numpy as np
import pytest

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.simulation.gazebo import installation, messages
from stretch_sim_cal.simulation.gazebo.installation import Installation
from stretch_sim_cal.simulation.gazebo.messages import encode

DATA = Path(__file__).parents[1] / "data"


@pytest.mark.parametrize(
    "modules, module",
    [
        (["transport13"], "gz.transport13"),
        (["transport13", "transport15", "transport14"], "gz.transport15"),
        (["transport"], "gz.transport"),
        (["transport99", "transport14"], "gz.transport14"),
    ],
)
def test_bindings_of_every_known_generation_are_found_and_others_named(modules, module):
    assert installation.choose_bindings(modules)[0] == module
    for none, told in (([], "not the Python bindings of its transport"), (["transport12"], "unknown generation")):
        with pytest.raises(InputError, match=told):
            installation.choose_bindings(none)


def test_what_ros_has_installed_is_found_and_without_gazebo_the_message_says_what_to_install(monkeypatch, tmp_path):
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
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(InputError, match="apt install"):
        installation.find_gazebo()


def test_the_lidar_is_chosen_by_what_gazebo_has():
    harmonic = Installation("gz", "gz.transport13", "Harmonic", has_cpu_lidar=False)
    assert harmonic.lidar("auto") == "gpu"
    with pytest.raises(InputError, match="no CPU lidar"):
        harmonic.lidar("cpu")
    assert Installation("gz", "gz.transport", "newer than Jetty", has_cpu_lidar=True).lidar("auto") == "cpu"


@pytest.fixture(scope="module")
def recorded() -> bytes:
    """One PointCloudPacked of 128 x 900 points as Gazebo serialised it, in the furnished room."""
    return lzma.decompress((DATA / "gazebo_point_cloud_packed.bin.xz").read_bytes())


def test_a_recorded_cloud_is_read_with_its_stamp_and_rays(recorded):
    assert messages.stamp(recorded) == 1182_900_000_000
    xyz = messages.cloud_points(recorded).astype(float)
    assert xyz.shape == (128, 900, 3)
    ranges = np.linalg.norm(xyz, axis=-1)
    assert np.degrees(np.arcsin(xyz[..., 2] / ranges).mean(axis=1)) == pytest.approx(
        np.linspace(-3.5, 90.0, 128), abs=1e-4
    )
    azimuths = np.unwrap(np.arctan2(xyz[0, :, 1], xyz[0, :, 0]))
    assert np.degrees(np.diff(azimuths)) == pytest.approx(0.4, abs=1e-3)
    assert ranges.min() > 0.1 and ranges.max() < 10.0


@pytest.mark.parametrize("big_endian", [False, True])
def test_either_byte_order_is_read_and_misses_are_not_finite(big_endian):
    rows = np.array([[[1, -2, 3.25], [np.inf, -np.inf, np.inf]], [[np.nan, np.inf, 0], [4, 5, 6]]])
    data = rows.astype(">f4" if big_endian else "<f4").tobytes()
    layout = [(2, encode((1, name), (2, 4 * index), (3, 6), (4, 1))) for index, name in enumerate("xyz")]
    message = encode(*layout, (3, 2), (4, 2), (5, big_endian), (6, 12), (7, 24), (8, data))
    points = messages.cloud_points(message).reshape(-1, 3)
    assert points[np.isfinite(points).all(axis=1)].tolist() == [[1, -2, 3.25], [4, 5, 6]]


@pytest.mark.parametrize("length", [10, 57, 1000, 2_000_000])
def test_a_torn_cloud_is_refused(recorded, length):
    with pytest.raises(InputError, match="message|PointCloudPacked"):
        messages.cloud_points(recorded[:length])


def test_requests_are_the_bytes_that_protobuf_makes_of_them():
    # From the published definitions, serialised by protobuf's own compiler and runtime.
    assert messages.world_control(100) == bytes.fromhex("10012064")
    assert messages.double(0.5) == bytes.fromhex("11000000000000e03f")
    assert messages.entity_factory("a", "b") == bytes.fromhex("1a0162420161")
    assert messages.boolean(bytes.fromhex("1001"))
    assert not messages.boolean(b"")
