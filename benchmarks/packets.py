"""Raw packets of Hesai and Velodyne lidars, as ROS 2 recordings hold them (sqlite3; pandar_msgs/PandarScan and
velodyne_msgs/VelodyneScan), as clouds in the lidar's own frame. Of a firing's two returns, the second one is left out
where it repeats the first bit by bit."""

import csv
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from stretch_sim_cal.errors import InputError

CLOUD = np.dtype([("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("intensity", "<f4"), ("ring", "<u2"), ("column", "<i4")])
DUAL = (0x39, 0x3A, 0x3B, 0x3C, 0x3E)
MICROSECONDS = {"vlp16": (2.304, 55.296), "vlp32": (2.304, 55.296), "vls128": (2.665, 53.3)}
VELODYNE_PACKET = 1206  # bytes
VELODYNE_UNIT = {"vlp16": 0.002, "vlp32": 0.004, "vls128": 0.004}
HALF_TURN = 180
# A turn counts if it covers so much of the circle (deg).
WHOLE_TURN = 350


@dataclass(frozen=True)
class Layout:
    """A Hesai packet: bytes of the header, blocks, channels, bytes before a block's azimuth, bytes of a return, where
    the return mode is after the last block, where the header has the unit of range (mm; None: 4 mm), and the maker's
    name of the kind."""

    header: int
    blocks: int
    channels: int
    before: int
    bytes_each: int
    mode: int
    unit: int | None
    name: str


HESAI = {
    "40p": Layout(0, 10, 40, 2, 3, 14, None, "Pandar40P"),
    "64": Layout(8, 6, 64, 0, 3, 14, 5, "Pandar64"),
    "qt64": Layout(12, 4, 64, 0, 4, 16, 9, "PandarQT64"),
    "qt128": Layout(12, 2, 128, 0, 4, 33, 9, "PandarQT128"),
    "xt16": Layout(12, 8, 16, 0, 4, 10, 9, "PandarXT16"),
    "xt32": Layout(12, 8, 32, 0, 4, 10, 9, "PandarXT32"),
    "xt32m": Layout(12, 6, 32, 0, 4, 10, 9, "PandarXT32M"),
}


def hesai_scans(recording: Path, kind: str, angles: Path) -> list[np.ndarray]:
    """Return the whole turns in a recording of a Hesai `kind` (a key of `HESAI`), its channels' elevations and azimuths
    (deg) from a table (Channel, Elevation, Azimuth). Raises `InputError` naming the file."""
    layout = HESAI[kind]
    rows = []
    with open(angles, newline="") as lines:
        for row in csv.reader(lines):
            if row and row[0].strip().isdigit():
                rows.append([float(value) for value in row[1:3]])
    elevations, beside = np.radians(np.array(rows)).T
    if len(elevations) != layout.channels:
        raise InputError(f"{angles}: has {len(elevations)} channels, {layout.name} has {layout.channels}")
    packets = read_packets(recording, 1500, 4)
    each = layout.before + 2 + layout.channels * layout.bytes_each
    body = packets[:, layout.header : layout.header + layout.blocks * each]
    blocks = body.reshape(len(packets), layout.blocks, each).astype(np.int64)
    azimuths = (blocks[..., layout.before] + 256 * blocks[..., layout.before + 1]) / 100.0
    returns = blocks[..., layout.before + 2 :].reshape(-1, layout.blocks, layout.channels, layout.bytes_each)
    unit = 4 if layout.unit is None else int(packets[0, layout.unit])
    distances = 1e-3 * unit * (returns[..., 0] + 256 * returns[..., 1])
    mode = int(packets[0, layout.header + layout.blocks * each + layout.mode])
    shape = (-1, _returns_a_firing(mode), layout.channels)
    azimuth = azimuths.reshape(shape[:2])[:, 0]
    angle = np.broadcast_to(np.radians(azimuth)[:, None] + beside, (len(azimuth), layout.channels))
    # Hesai counts azimuths clockwise from y.
    return _turns(
        azimuth, distances.reshape(shape), returns[..., 2].reshape(shape), np.pi / 2 - angle, elevations,
        np.arange(layout.channels), np.arange(len(azimuth))[:, None],
    )  # fmt: skip


def velodyne_scans(recording: Path, kind: str, calibration: Path) -> list[np.ndarray]:
    """Return the whole turns in a recording of a Velodyne `kind` (a key of `VELODYNE_UNIT`), the lasers' angles (rad)
    from the driver's calibration file. Raises `InputError` naming the file."""
    lasers = yaml.safe_load(calibration.read_text())["lasers"]
    elevations = np.array([laser["vert_correction"] for laser in lasers])
    beside = np.array([laser["rot_correction"] for laser in lasers])
    return velodyne_turns(read_packets(recording, VELODYNE_PACKET, 0), kind, elevations, beside)


def velodyne_turns(packets: np.ndarray, kind: str, elevations: np.ndarray, beside: np.ndarray) -> list[np.ndarray]:
    """Return the whole turns in the packets (P, 1206) of a Velodyne `kind` (a key of `VELODYNE_UNIT`) whose lasers have
    `elevations` and azimuths `beside` the rotor's (rad). Channels are numbered from below."""
    blocks = packets[:, :1200].reshape(-1, 12, 100).astype(np.int64)
    azimuths = (blocks[..., 2] + 256 * blocks[..., 3]) / 100.0
    returns = blocks[..., 4:].reshape(len(packets), 12, 32, 3)
    together = 4 if kind == "vls128" else 1  # blocks that hold one firing of all lasers
    shape = (-1, together * _returns_a_firing(int(packets[0, 1204])))
    azimuth = azimuths.reshape(shape)[:, 0]
    lasers_of = (-1, shape[1] // together, 32 * together)
    distances = VELODYNE_UNIT[kind] * (returns[..., 0] + 256 * returns[..., 1]).reshape(lasers_of)
    ahead = np.diff(azimuth)
    rate = np.median(np.where(ahead < -HALF_TURN, ahead + 360.0, ahead))
    number = np.arange(32 * together)
    step, cycle = MICROSECONDS[kind]
    fired, laser, column = number // 2 * step / cycle, number, np.arange(len(azimuth))[:, None]
    if kind == "vlp16":  # two firings a block
        fired, laser = (number % 16 * step + number // 16 * cycle) / (2 * cycle), number % 16
        column = 2 * column + number // 16
    elif kind == "vls128":
        fired = (number // 8 + number // 64) * step / cycle
    angle = np.radians(azimuth[:, None] + rate * fired) - beside[laser]
    ring = np.argsort(np.argsort(elevations))[laser]
    intensity = returns[..., 2].reshape(lasers_of)
    return _turns(azimuth, distances, intensity, -angle, elevations[laser], ring, column)


def _returns_a_firing(mode: int) -> int:
    return 3 if mode == 0x3D else 2 if mode in DUAL else 1


def _turns(azimuth, distances, intensity, angle, elevations, ring, column) -> list[np.ndarray]:
    """Return a cloud for each whole turn, from the rotor's azimuth (F,) (deg) of firings, their ranges and intensities
    (F, returns, C), and the rays' azimuths (F, C) and elevations (C,) (rad)."""
    ahead = np.diff(np.round(100.0 * azimuth).astype(int), prepend=round(100.0 * azimuth[0]))  # the packets' unit
    ahead = np.where(ahead < -100 * HALF_TURN, ahead + 36000, ahead)
    turned = np.cumsum(np.clip(ahead, 0, 100 * HALF_TURN))
    seen = distances > 0
    for later in range(1, distances.shape[1]):
        for earlier in range(later):
            seen[:, later] &= distances[:, later] != distances[:, earlier]
    scans = []
    for number in range(int(turned[-1]) // 36000 + 1):
        own = np.flatnonzero(turned // 36000 == number)
        if not len(own) or np.ptp(turned[own]) < 100 * WHOLE_TURN:
            continue
        firing, which, channel = np.nonzero(seen[own])
        firing += own[0]
        cloud = np.zeros(len(firing), CLOUD)
        far, up, around = distances[firing, which, channel], elevations[channel], angle[firing, channel]
        cloud["x"], cloud["y"] = far * np.cos(up) * np.cos(around), far * np.cos(up) * np.sin(around)
        cloud["z"], cloud["ring"] = far * np.sin(up), ring[channel]
        cloud["intensity"] = intensity[firing, which, channel]
        cloud["column"] = np.broadcast_to(column, angle.shape)[firing, channel] - column[own[0], 0]
        scans.append(cloud)
    return scans


def read_packets(recording: Path, size: int, behind: int) -> np.ndarray:
    """Return the packets (P, size) of all messages in an sqlite3 recording; each one has so many bytes `behind` it.
    Raises `InputError` if the file is none, or torn."""
    try:
        with closing(sqlite3.connect(f"file:{recording}?mode=ro", uri=True)) as base:
            messages = [bytes(data) for (data,) in base.execute("SELECT data FROM messages ORDER BY timestamp")]
    except sqlite3.Error as problem:
        raise InputError(f"{recording}: cannot be read as an sqlite3 recording: {problem}") from problem
    found = []
    for message in messages:
        # After 4 bytes: stamp, length of the frame's name and the name, then the number of packets; numbers lie on
        # multiples of 4 bytes.
        start = 16 + -(-int.from_bytes(message[12:16], "little") // 4) * 4
        count, stride = int.from_bytes(message[start : start + 4], "little"), -(-(8 + size + behind) // 4) * 4
        content = message[start + 4 :].ljust(count * stride, b"\0")
        if not count or len(content) - len(message) + start + 4 > 4:
            raise InputError(f"{recording}: a message is not one of packets of {size} bytes; get the file again")
        rows = np.frombuffer(content, np.uint8, count * stride).reshape(count, stride)
        found.append(rows[:, 8 : 8 + size])
    if not found:
        raise InputError(f"{recording}: holds no message")
    return np.concatenate(found)
