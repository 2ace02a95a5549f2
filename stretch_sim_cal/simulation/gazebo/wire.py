"""Protobuf's wire format, as far as gz.msgs uses it: https://protobuf.dev/programming-guides/encoding/."""

import struct
from collections.abc import Iterator

from stretch_sim_cal.errors import InputError

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5


def fields(message: bytes | memoryview) -> Iterator[tuple[int, int | float | memoryview]]:
    """Yield (field number, value) of a serialised message in its order.

    Values are unsigned integers for varints, floats for fixed64 and fixed32 (gz.msgs has no fixed integers), and bytes
    without a copy for everything that has a length. Raises `InputError` for bytes that are no message.
    """
    view = memoryview(message)
    at = 0
    while at < len(view):
        key, at = _varint(view, at)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, at = _varint(view, at)
            yield number, value
            continue
        if kind == LENGTH:
            length, at = _varint(view, at)
        elif kind in (FIXED64, FIXED32):
            length = 8 if kind == FIXED64 else 4
        else:
            raise InputError(f"message: wire type {kind} at byte {at} is not known")
        if at + length > len(view):
            raise InputError(f"message: field {number} needs {length} bytes, {len(view) - at} are left")
        part = view[at : at + length]
        at += length
        yield number, part if kind == LENGTH else struct.unpack("<d" if kind == FIXED64 else "<f", part)[0]


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
    bytes (nested messages are given serialised)."""
    message = bytearray()
    for number, value in parts:
        if isinstance(value, float):
            message += _number(number << 3 | FIXED64) + struct.pack("<d", value)
        elif isinstance(value, int):
            message += _number(number << 3 | VARINT) + _number(int(value))
        else:
            content = value.encode() if isinstance(value, str) else value
            message += _number(number << 3 | LENGTH) + _number(len(content)) + content
    return bytes(message)


def _number(value: int) -> bytes:
    if value < 0:
        value += 1 << 64
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
