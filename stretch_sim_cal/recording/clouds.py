"""The byte layout of `sensor_msgs/PointCloud2`: from messages of any layout to arrays, and back to the driver's own. A
message is anything with its attributes, of rclpy or read from a recording by `rosbags`."""

import array
import sys
from typing import Any, NamedTuple

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.sensor.points import POINT_DTYPE, RETURN_COLUMNS, are_returns, coordinates, is_dense

CLOUD_TYPE = "sensor_msgs/msg/PointCloud2"
# sensor_msgs/PointField: INT8 = 1 .. FLOAT64 = 8.
DATATYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}
_DATATYPE_OF = {code: datatype for datatype, code in DATATYPES.items()}

# m: points of a real scan lie between these, whatever its units; bytes read in a false order or place do not. Beyond
# MARKER are drivers' marks for "no return".
NEAREST, FARTHEST, MARKER = 1e-6, 1e6, 1e30
IMPOSSIBLE_SHARE = 0.1


class FieldLayout(NamedTuple):
    """One field of a cloud, in the words of `sensor_msgs/PointField`."""

    name: str
    offset: int
    datatype: int
    count: int


def returns_from_message(message: Any) -> np.ndarray:
    """Return the returns in a cloud as (N, 5) float32: x, y, z, ring, intensity, or (N, 3) if the message lacks one of
    these, in the message's frame and order. Points that are not finite, or lie exactly at the lidar's origin (drivers'
    mark for "no return"), are left out, and so are those that repeat an earlier one bit by bit, as nearly all second
    ones of dual returns do. Raises `InputError` if the message has no x, y, z or its bytes do not fit its own
    description, also by what they say."""
    records = records_from_message(message)
    points = _xyz(message, records)
    kept = are_returns(points)
    others = RETURN_COLUMNS[points.shape[1] :]
    if any(name not in records.dtype.names for name in others):
        return points[kept]
    columns = [records[name][kept].astype(np.float32) for name in others]
    usable = np.abs(columns[-1]) <= FARTHEST  # intensities, where only the odd one may be none
    _check_share(message, (~usable).sum(), len(usable), f"intensities exceed {FARTHEST:.0e} or are not numbers")
    columns[-1] = np.where(usable, np.maximum(columns[-1], 0.0), 0.0)
    return np.column_stack([points[kept], *columns])


def scan_from_message(message: Any) -> np.ndarray:
    """Return all points of a cloud as published, misses and repetitions included: a structured array (N,) of the fields
    of `POINT_DTYPE` that the message has. Raises `InputError` as `returns_from_message` does."""
    records = records_from_message(message)
    _xyz(message, records)
    names = [name for name in POINT_DTYPE.names if name in records.dtype.names]
    scan = np.empty(len(records), [(name, POINT_DTYPE[name]) for name in names])
    for name in names:
        scan[name] = records[name]
    return scan


def message_bytes(scan: np.ndarray) -> array.array:
    """Return the `data` of a message for a structured array of points (N,), packed as its dtype says. It is an
    `array.array("B")`, which rclpy takes as it is; from bytes or lists it would copy element by element."""
    data = array.array("B")
    data.frombytes(memoryview(np.ascontiguousarray(scan)).cast("B") if scan.size else b"")
    return data


def layout(dtype: np.dtype = POINT_DTYPE) -> list[FieldLayout]:
    """Return the `fields` of a message whose points are of a structured `dtype`; `point_step` is its `itemsize`."""
    result = []
    for name in dtype.names:
        kind, offset = dtype.fields[name][:2]
        code = kind.base.str[1:]
        if code not in _DATATYPE_OF:
            raise InputError(f"a cloud cannot store field {name} of type {kind}")
        result.append(FieldLayout(name, offset, _DATATYPE_OF[code], int(np.prod(kind.shape, dtype=int))))
    return result


def cloud_attributes(scan: np.ndarray) -> dict[str, Any]:
    """Return the attributes of a message for a structured array of points (N,), but for `header`, `fields` and `data`;
    it is dense if no point marks a miss."""
    size, orders = scan.dtype.itemsize, {scan.dtype[name].base.byteorder for name in scan.dtype.names} - {"|"}
    big_endian = sys.byteorder == "big" if orders == {"="} else orders == {">"}
    return {
        "height": 1, "width": len(scan), "is_bigendian": big_endian, "point_step": size,
        "row_step": size * len(scan), "is_dense": is_dense(scan),
    }  # fmt: skip


def records_from_message(message: Any) -> np.ndarray:
    """Return all points of a message as structured records (height * width,), fields in the message's own order. Raises
    `InputError` if its bytes do not fit its description."""
    if message.point_step <= 0 and message.width * message.height > 0:
        raise InputError(f"{_describe(message)}: point_step is {message.point_step}")
    dtype = _record_dtype(message)
    height, width = int(message.height), int(message.width)
    if height * width == 0:
        return np.empty(0, dtype)
    row_step = int(message.row_step)
    if height == 1 or row_step == 0:
        row_step = width * int(message.point_step)
    if row_step < width * message.point_step:
        points = f"{width} points of {message.point_step} bytes"
        raise InputError(f"{_describe(message)}: row_step {row_step} is shorter than {points}")
    data = np.frombuffer(message.data, np.uint8) if isinstance(message.data, bytes) else message.data
    data = np.ascontiguousarray(data, dtype=np.uint8)
    needed = (height - 1) * row_step + width * int(message.point_step)
    spare = row_step if height > 1 else int(message.point_step)
    if not needed <= data.size < needed + spare:
        raise InputError(f"{_describe(message)}: has {data.size} bytes, its description requires {needed}")
    grid = np.ndarray((height, width), dtype, buffer=data.data, strides=(row_step, int(message.point_step)))
    return grid.reshape(-1)


def _record_dtype(message: Any) -> np.dtype:
    order = ">" if message.is_bigendian else "<"
    names, formats, offsets = [], [], []
    for field in message.fields:
        if field.datatype not in DATATYPES:
            raise InputError(f"{_describe(message)}: field {field.name} has the unknown datatype {field.datatype}")
        kind = np.dtype(order + DATATYPES[field.datatype])
        count = int(field.count) or 1  # some drivers leave count at 0 and mean 1
        if field.offset + count * kind.itemsize > message.point_step:
            raise InputError(f"{_describe(message)}: field {field.name} reaches beyond point_step {message.point_step}")
        if field.name in names or not field.name:
            continue  # unnamed padding, or a name given twice: the first one counts
        names.append(field.name)
        formats.append(kind if count == 1 else (kind, (count,)))
        offsets.append(int(field.offset))
    if not names:
        raise InputError(f"{_describe(message)}: has no fields")
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": int(message.point_step)})


def _xyz(message: Any, records: np.ndarray) -> np.ndarray:
    if missing := [name for name in "xyz" if name not in records.dtype.names]:
        raise InputError(f"point cloud: has no field {', '.join(missing)}; it has {', '.join(records.dtype.names)}")
    points = coordinates(records)
    extent = np.abs(points).max(axis=1)  # NaN of points that have one
    possible = ((extent >= NEAREST) & (extent <= FARTHEST)).sum()
    impossible = ((extent > 0.0) & (extent < MARKER)).sum() - possible
    said = f"points are nearer than a micrometre or farther than {FARTHEST / 1e3:.0f} km"
    _check_share(message, impossible, possible + impossible, said)
    return points


def _check_share(message: Any, impossible: int, total: int, said: str) -> None:
    if impossible > IMPOSSIBLE_SHARE * total:
        fault = "its is_bigendian, point_step or fields are false"
        raise InputError(f"{_describe(message)}: {impossible / total:.0%} of its {said}: {fault}")


def _describe(message: Any) -> str:
    header = getattr(message, "header", None)
    return f"point cloud in frame '{getattr(header, 'frame_id', '')}'"
