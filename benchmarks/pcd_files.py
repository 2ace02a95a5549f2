"""Files of the Point Cloud Library (.pcd): ascii, binary, binary_compressed."""

import struct
from pathlib import Path

import numpy as np

from stretch_sim_cal.errors import InputError

# Longest header of a .pcd file that is looked through for its last line, in bytes.
PCD_HEADER = 10_000
KNOWN = {"intensity": "<f4", "ring": "<u2", "timestamp": "<f8"}


def read_pcd(path: Path) -> np.ndarray:
    """Return the returns in a .pcd file, a structured array (N,). Raises `InputError` naming what is wrong with it."""
    content = path.read_bytes()
    header, position = pcd_header(path, content)
    try:
        counts = [int(count) for count in header.get("COUNT", ["1"] * len(header["FIELDS"]))]
        kinds = [
            np.dtype(f"<{kind.lower()}{size}") for kind, size in zip(header["TYPE"], header["SIZE"], strict=True)
        ]  # fmt: skip
        number = int(header["POINTS"][0])
        names = [name if name != "_" else f"_{index}" for index, name in enumerate(header["FIELDS"])]
        columns = list(zip(names, kinds, counts, strict=True))
        values = {
            "ascii": _pcd_ascii, "binary": _pcd_binary, "binary_compressed": _pcd_compressed,
        }[header["DATA"][0]](content[position:], columns, number)  # fmt: skip
        xyz = np.column_stack([values[name] for name in "xyz"]).astype(np.float32)
    except (KeyError, ValueError, IndexError, TypeError, struct.error) as problem:
        raise InputError(f"{path}: its header does not fit what it holds: {problem}") from problem
    seen = np.isfinite(xyz).all(axis=1) & xyz.any(axis=1)
    return cloud(xyz[seen], **{name: values[name][seen] for name in KNOWN if name in values})


def cloud(xyz: np.ndarray, **fields: np.ndarray) -> np.ndarray:
    """Return points (N, 3) with what is known of intensity, ring and timestamp as a structured array (N,)."""
    known = [name for name in KNOWN if name in fields]
    points = np.zeros(len(xyz), dtype=[(name, "<f4") for name in "xyz"] + [(name, KNOWN[name]) for name in known])
    for name, values in zip("xyz", np.asarray(xyz).T, strict=True):
        points[name] = values
    for name in known:
        points[name] = fields[name]
    return points


def pcd_header(path: Path, content: bytes) -> tuple[dict[str, list[str]], int]:
    """Return the words of each line of a .pcd file's header by the first one, and where its data begin."""
    header: dict[str, list[str]] = {}
    position = 0
    while "DATA" not in header:
        end = content.find(b"\n", position)
        if end < 0 or position > PCD_HEADER:
            raise InputError(f"{path}: has no line DATA; it is no .pcd file")
        words = content[position:end].decode("ascii", "replace").split("#")[0].split()
        position = end + 1
        if words:
            header[words[0]] = words[1:]
    return header, position


# Each of these takes what follows the header, (name, type, count) by field, and the number of points, and returns the
# fields of one number a point.


def _pcd_ascii(data: bytes, columns: list, number: int) -> dict[str, np.ndarray]:
    rows = np.loadtxt(data.decode("ascii").splitlines(), ndmin=2, max_rows=number)
    starts = np.cumsum([0, *(count for _, _, count in columns)])
    if rows.shape != (number, starts[-1]):
        raise ValueError(f"{len(rows)} points of {rows.shape[1]} numbers")
    return {
        name: (np.nan_to_num(rows[:, start]) if kind.kind in "iu" else rows[:, start]).astype(kind)
        for (name, kind, count), start in zip(columns, starts[:-1], strict=True) if count == 1
    }  # fmt: skip


def _pcd_binary(data: bytes, columns: list, number: int) -> dict[str, np.ndarray]:
    points = np.frombuffer(data, np.dtype([(name, kind, (count,)) for name, kind, count in columns]), number)
    return {name: points[name][:, 0] for name, _, count in columns if count == 1}


def _pcd_compressed(data: bytes, columns: list, number: int) -> dict[str, np.ndarray]:
    """Sizes of the compressed and the plain data, then the fields one after the other, compressed by LZF."""
    compressed, plain = struct.unpack_from("<II", data)
    unpacked = lzf_unpacked(data[8 : 8 + compressed], plain)
    values, start = {}, 0
    for name, kind, count in columns:
        if count == 1:
            values[name] = np.frombuffer(unpacked, kind, number, start)
        start += kind.itemsize * count * number
    return values


def lzf_unpacked(data: bytes, size: int) -> bytes:
    """Return what LZF (M. Lehmann's liblzf) packed, `size` bytes. Raises `ValueError` if it was something else. A byte
    below 32 is followed by so many and one bytes as they are. Another one holds, in its upper three bits, the length
    less two of a repetition (7: the next byte adds to it), and with the next one how far back it begins, less one."""
    out, position = bytearray(), 0
    while position < len(data):
        control = data[position]
        position += 1
        if control < 32:
            out += data[position : position + control + 1]
            position += control + 1
            continue
        length = control >> 5
        if length == 7:
            length += data[position]
            position += 1
        start = len(out) - ((control & 31) << 8) - data[position] - 1
        position += 1
        if start < 0:
            raise ValueError("the compressed data are torn")
        length += 2
        piece = bytes(out[start : start + length])
        out += (piece * (length // len(piece) + 1))[:length]  # what is repeated may reach into itself
    if len(out) != size:
        raise ValueError(f"the compressed data hold {len(out)} bytes, {size} were expected")
    return bytes(out)
