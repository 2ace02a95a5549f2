"""Clouds of every layout that drivers and simulators publish become the same arrays, of returns of their own."""

from types import SimpleNamespace

import numpy as np
import pytest

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.recording import clouds
from stretch_sim_cal.recording.clouds import POINT_DTYPE, layout, returns_from_message, scan_from_message
from stretch_sim_cal.sensor.points import are_returns, coordinates, is_dense


def message_of(records, height=1, row_padding=0, data=None):
    width = len(records) // height
    step = records.dtype.itemsize
    rows = np.frombuffer(records.tobytes(), np.uint8).reshape(height, width * step)
    padded = np.pad(rows, ((0, 0), (0, row_padding)), constant_values=255)
    attributes = clouds.cloud_attributes(records) | {"height": height, "width": width}
    return SimpleNamespace(
        header=SimpleNamespace(frame_id="lidar_left_link"), fields=layout(records.dtype),
        data=padded.tobytes() if data is None else data, **attributes | {"row_step": width * step + row_padding},
    )  # fmt: skip


def scan_of(dtype=POINT_DTYPE, count=12):
    rng = np.random.default_rng(1)
    records = np.zeros(count, dtype)
    for name in "xyz":
        records[name] = rng.normal(size=count)
    if "ring" in dtype.names:
        records["ring"] = np.arange(count) * 1000
    return records


def xyz(records):
    return np.stack([records[name] for name in "xyz"], axis=1).astype(np.float32)


def test_the_driver_layout_has_26_bytes_per_point():
    assert POINT_DTYPE.itemsize == 26
    assert [(f.name, f.offset, f.datatype, f.count) for f in layout()] == [
        ("x", 0, 7, 1), ("y", 4, 7, 1), ("z", 8, 7, 1), ("intensity", 12, 7, 1), ("ring", 16, 4, 1),
        ("timestamp", 18, 8, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", [bytes, list, lambda raw: np.frombuffer(raw, np.uint8)])
def test_data_may_be_any_sequence_of_bytes_and_a_field_s_count_zero(kind):
    scan = scan_of()
    message = message_of(scan, data=kind(scan.tobytes()))
    message.fields = [field._replace(count=0) for field in message.fields]
    np.testing.assert_array_equal(returns_from_message(message)[:, :3], xyz(scan))


def test_big_endian_organised_padded_and_extra_fields():
    dtype = np.dtype({
        "names": ["ring", "z", "normal", "x", "y"], "formats": [">u2", ">f8", (">f4", (3,)), ">f8", ">f8"],
        "offsets": [1, 8, 16, 32, 40], "itemsize": 53,
    })  # fmt: skip
    scan = scan_of(dtype)
    message = message_of(scan, height=3, row_padding=7)
    assert message.is_bigendian
    np.testing.assert_array_equal(returns_from_message(message)[:, :3], xyz(scan))
    records = clouds.records_from_message(message)
    np.testing.assert_array_equal(records["ring"], scan["ring"])
    assert records["normal"].shape == (12, 3)
    assert scan_from_message(message)["ring"].dtype == np.uint16


def test_points_that_are_no_returns_are_left_out():
    scan = scan_of()
    scan["x"][3] = np.nan
    scan["z"][5] = np.inf
    for name in "xyz":
        scan[name][7] = 0.0
    keep, returns = np.delete(np.arange(12), [3, 5, 7]), returns_from_message(message_of(scan))
    np.testing.assert_array_equal(returns[:, :3], xyz(scan)[keep])
    np.testing.assert_array_equal(returns[:, 3], scan["ring"][keep])
    assert len(scan_from_message(message_of(scan))) == 12
    scan = scan_of(count=0)
    assert returns_from_message(message_of(scan, data=clouds.message_bytes(scan)))[:, :3].shape == (0, 3)
    assert are_returns(xyz(scan)).shape == (0,)


@pytest.mark.parametrize(("change", "says"), [
    ({"data": b"\0" * 100}, "100 bytes, its description requires 312"),
    ({"fields": [f for f in layout() if f.name != "z"]}, "no field z"), ({"fields": []}, "no fields"),
    ({"point_step": 20}, "timestamp reaches beyond point_step 20"), ({"point_step": 0}, "point_step is 0"),
    ({"fields": [f._replace(datatype=9) for f in layout()]}, "unknown datatype 9"),
    ({"height": 2, "row_step": 11}, "row_step 11 is shorter"),
    ({"width": 11}, "312 bytes, its description requires 286"),
])  # fmt: skip
def test_a_message_that_contradicts_itself_is_refused(change, says):
    message = message_of(scan_of())
    vars(message).update(change)
    with pytest.raises(InputError, match=says):
        returns_from_message(message)


FALSE = {
    "byte order": {"is_bigendian": True},
    "point step": {"point_step": 30, "width": 900, "row_step": 27_000},
    "offset": {"fields": [f._replace(offset=f.offset + 1) for f in layout()[:3]]},
    "datatype": {"fields": [f._replace(datatype=6) for f in layout()[:3]]},
}


@pytest.mark.parametrize("what", FALSE)
def test_bytes_that_cannot_be_points_under_their_description_are_refused(what):
    scan = np.zeros(1100, POINT_DTYPE)
    random = np.random.default_rng(1)
    for axis in "xyz":
        scan[axis] = random.uniform(-30, 30, len(scan))
    scan[::3] = 0  # misses
    scan["timestamp"] = 1.7e9 + 1e-5 * np.arange(len(scan))
    message = message_of(scan)
    vars(message).update(FALSE[what])
    message.data = message.data[: message.point_step * message.width]
    for read in (returns_from_message, scan_from_message):
        with pytest.raises(InputError, match="% of its points are nearer than a micrometre or farther than 1000 km"):
            read(message)


def test_intensities_that_are_none_are_refused_and_the_odd_one_is_zero():
    scan = scan_of(count=40)
    scan["intensity"] = 7.0
    scan["intensity"][:2] = np.nan, -3.0
    assert returns_from_message(message_of(scan))[:3, 4].tolist() == [0.0, 0.0, 7.0]
    scan["intensity"][:10] = 3e30
    with pytest.raises(InputError, match="25% of its intensities exceed 1e.06 or are not numbers: its is_bigendian"):
        returns_from_message(message_of(scan))


def test_second_returns_that_repeat_the_first_are_left_out_and_marks_for_no_return_are_no_false_bytes():
    scan = np.zeros(100, POINT_DTYPE)
    scan["x"] = np.r_[np.full(50, np.finfo(np.float32).max), np.full(25, np.inf), np.full(24, np.nan), 2.0]
    assert 2.0 in returns_from_message(message_of(scan))[:, 0]
    both = np.tile(scan_of(), 2)
    both["x"][16] += 1e-6  # a second return of its own, however near
    returns, kept = returns_from_message(message_of(both)), [*range(12), 16]
    np.testing.assert_array_equal(returns[:, :3], xyz(both)[kept])
    np.testing.assert_array_equal(returns[:, 3], both["ring"][kept])


def test_of_points_that_are_equal_bit_by_bit_the_first_is_kept():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(5000, 3)).astype(np.float32)[rng.integers(0, 2000, 20000)]
    points[rng.random(20000) < 0.1] = 0.0
    points[rng.random(20000) < 0.01, 1] = np.nan
    kept, expected, seen = are_returns(points), np.zeros(20000, bool), set()
    for row, point in enumerate(points):
        key = point.tobytes()
        expected[row] = np.isfinite(point).all() and point.any() and key not in seen
        seen.add(key)
    np.testing.assert_array_equal(kept, expected)

    points = np.ones(3, POINT_DTYPE)
    assert is_dense(points) and coordinates(points).shape == (3, 3)  # and with a miss it is not
    for x, y, z in ((0, 0, 0), (np.nan, 1, 1)):
        points["x"][1], points["y"][1], points["z"][1] = x, y, z
        assert not is_dense(points)
