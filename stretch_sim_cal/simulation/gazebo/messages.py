"""Gazebo's messages as bytes: protobuf's wire format (https://protobuf.dev/programming-guides/encoding/), as far as
gz.msgs uses it. Their fields have had the same numbers in all generations of Gazebo."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.recording.clouds import FieldLayout, records_from_message

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
FIXED = {FIXED64: "<d", FIXED32: "<f"}


def fields(message: bytes | memoryview) -> Iterator[tuple[int, int | float | memoryview]]:
    """Yield (field number, value) of a serialised message: unsigned integers for varints, floats for fixed64 and
    fixed32, views for everything with a length. Raises `InputError` for other bytes."""
    view, at = memoryview(message), 0
    while at < len(view):
        key, at = _varint(view, at)
        number, kind = key >> 3, key & 7
        if kind not in (VARINT, LENGTH, *FIXED):
            raise InputError(f"message: wire type {kind} at byte {at} is unknown")
        length, at = (struct.calcsize(FIXED[kind]), at) if kind in FIXED else _varint(view, at)
        if kind == VARINT:
            yield number, length
            continue
        if at + length > len(view):
            raise InputError(f"message: field {number} needs {length} bytes, {len(view) - at} are left")
        part = view[at : at + length]
        at += length
        yield number, struct.unpack(FIXED[kind], part)[0] if kind in FIXED else part


def signed(value: int) -> int:
    """Return an int32 or int64 that was read as unsigned."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(view) and shift < 70:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
        shift += 7
    raise InputError(f"message: ends within a number at byte {at}")


def encode(*parts: tuple[int, int | bool | float | str | bytes]) -> bytes:
    """Return a serialised message of (field number, value): ints and bools as varints, floats as doubles, the rest as
    bytes."""
    message = bytearray()
    for number, value in parts:
        if isinstance(value, float):
            message += _number(number << 3 | FIXED64) + struct.pack(FIXED[FIXED64], value)
        elif isinstance(value, int):
            message += _number(number << 3 | VARINT) + _number(int(value))
        else:
            content = value.encode() if isinstance(value, str) else value
            message += _number(number << 3 | LENGTH) + _number(len(content)) + content
    return bytes(message)


def _number(value: int) -> bytes:
    value %= 1 << 64
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


COORDINATES = ("x", "y", "z")
NANOSECONDS = 1_000_000_000


def cloud_points(message: bytes) -> np.ndarray:
    """Return the points (height, width, 3) float32 of a PointCloudPacked in the sensor's frame, one row per ring,
    lowest first; misses are not finite. Raises `InputError` for bytes that are none, or inconsistent."""
    cloud = SimpleNamespace(fields=[], height=0, width=0, is_bigendian=False, point_step=0, row_step=0, data=b"")
    names = {3: "height", 4: "width", 5: "is_bigendian", 6: "point_step", 7: "row_step", 8: "data"}
    for number, value in fields(message):
        if number == 2:
            field = {1: b"", 2: 0, 3: 0, 4: 1} | dict(fields(value))
            # As sensor_msgs/PointField, but for the data types, which are counted from 0.
            cloud.fields.append(FieldLayout(bytes(field[1]).decode(), field[2], field[3] + 1, field[4]))
        elif number in names:
            setattr(cloud, names[number], value)
    try:
        records = records_from_message(cloud)
    except InputError as error:
        raise InputError(f"PointCloudPacked: {error}") from error
    names = records.dtype.names
    if missing := [name for name in COORDINATES if name not in names]:
        raise InputError(f"PointCloudPacked: has no field {', '.join(missing)}; it has {', '.join(names)}")
    return np.stack([records[name].reshape(cloud.height, cloud.width) for name in COORDINATES], axis=-1)


def stamp(message: bytes) -> int:
    """Return the time, in ns of simulated time, in the header of a PointCloudPacked or Model."""
    return next((_time(dict(fields(value)).get(1, b"")) for number, value in fields(message) if number == 1), 0)


def clock_times(message: bytes) -> tuple[int, int]:
    """Return the simulated time of a gz.msgs.Clock, and the machine's time of sending, in ns."""
    times = {number: _time(value) for number, value in fields(message) if number in (2, 4)}
    return times.get(4, 0), times.get(2, 0)


@dataclass(frozen=True)
class JointStates:
    """Positions (m, rad) and velocities (m/s, rad/s) by joint, at simulated time `stamp` in ns."""

    stamp: int
    positions: dict[str, float]
    velocities: dict[str, float]


def joint_states(message: bytes) -> JointStates:
    """Return the joints of a gz.msgs.Model, as JointStatePublisher publishes them."""
    states = JointStates(stamp(message), {}, {})
    for number, joint in fields(message):
        if number == 6:
            content = dict(fields(joint))
            name, axis = bytes(content.get(2, b"")).decode(), dict(fields(content.get(10, b"")))
            states.positions[name] = float(axis.get(10, 0.0))
            states.velocities[name] = float(axis.get(11, 0.0))
    return states


def boolean(message: bytes) -> bool:
    return bool(dict(fields(message)).get(2, 0))


def world_control(steps: int = 0) -> bytes:
    """Return a gz.msgs.WorldControl that pauses, after so many steps of physics if there are any."""
    return encode((2, True), *([(4, steps)] if steps else []))


def entity_factory(name: str, file: str) -> bytes:
    """Return a gz.msgs.EntityFactory that creates the model in a file under a unique name."""
    return encode((3, file), (8, name))


def double(value: float) -> bytes:
    return encode((2, float(value)))


def _time(message: bytes | memoryview) -> int:
    values = dict(fields(message))
    return signed(values.get(1, 0)) * NANOSECONDS + signed(values.get(2, 0))
