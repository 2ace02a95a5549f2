"""Gazebo's messages, read from the bytes that a real Gazebo has sent."""

import lzma
from pathlib import Path

import numpy as np
import pytest

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.simulation.gazebo import messages
from stretch_sim_cal.simulation.gazebo.messages import encode, fields, signed

DATA = Path(__file__).parents[1] / "data"


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


def test_a_cloud_without_coordinates_says_what_it_has():
    message = encode((2, encode((1, "range"), (3, 6))), (3, 1), (4, 1), (6, 4), (8, b"\0\0\0\0"))
    with pytest.raises(InputError, match="no field x, y, z; it has range"):
        messages.cloud_points(message)


def test_numbers_survive_the_wire():
    values = [0, 1, 127, 128, 300, 2**31, 2**63 - 1, -1, -(2**31)]
    read = [signed(value) for _, value in fields(encode(*[(1, value) for value in values]))]
    assert read == values
    assert [value for _, value in fields(messages.double(-0.125))] == [-0.125]


def test_requests_are_the_bytes_that_protobuf_makes_of_them():
    # From the published definitions, serialised by protobuf's own compiler and runtime.
    assert messages.world_control(100) == bytes.fromhex("10012064")
    assert messages.double(0.5) == bytes.fromhex("11000000000000e03f")
    assert messages.entity_factory("a", "b") == bytes.fromhex("1a0162420161")
    assert messages.boolean(bytes.fromhex("1001"))
    assert not messages.boolean(b"")


def test_joint_states_and_clock_are_read():
    joint = encode((2, "lift_joint"), (10, encode((10, 0.25), (11, -0.5))))
    states = messages.joint_states(encode((2, "stretch"), (6, joint)))
    assert states.positions == {"lift_joint": 0.25}
    assert states.velocities == {"lift_joint": -0.5}
    clock = encode((2, encode((1, 9))), (4, encode((1, 3), (2, 25_000_000))))
    assert messages.clock_times(clock) == (3_025_000_000, 9_000_000_000)
