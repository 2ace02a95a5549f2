"""Recordings of real rigs as arrays: .npz, .pcd and .bin files, rosbag2, Argoverse 2. What a folder of them has to
look like: `real_data.py`."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow
from pyarrow import feather
from scipy.spatial.transform import Rotation

from stretch_sim_cal import validate
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import read_yaml
from stretch_sim_cal.geometry.transforms import apply, from_rotation_translation, from_xyz_rpy, inverse
from stretch_sim_cal.recording.clouds import fields_from_message
from stretch_sim_cal.recording.rosbag import Recording

CLOUD = np.dtype([("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("intensity", "<f4"), ("ring", "<u2")])
POINT_CLOUD = "sensor_msgs/msg/PointCloud2"
MAX_FRAMES = 20
# A sensor log of Argoverse 2: its files, and how many rings each of its two lidars has; the upper one's come first.
AV2_EXTRINSICS, AV2_SWEEPS = "calibration/egovehicle_SE3_sensor.feather", "sensors/lidar"
AV2_QUATERNION, AV2_TRANSLATION = ("qx", "qy", "qz", "qw"), ("tx_m", "ty_m", "tz_m")
AV2_RINGS = 32
# Longest header of a .pcd file that is looked through for its last line, in bytes.
PCD_HEADER = 10_000


@dataclass
class Rig:
    """Recordings of lidars that stand still to each other: by scene and lidar the `clouds`, structured arrays
    of frames; the `first` lidar, where the others are in its frame as far as said, with whether that is
    `known`, and its `height` (m)."""

    name: str
    scenes: dict[str, dict[str, list[np.ndarray]]]
    first: str
    others: dict[str, np.ndarray | None]
    known: set[str] = field(default_factory=set)
    height: float | None = None


def rigs(folder: Path) -> Iterator[Rig]:
    """Yield the recordings in a folder. Raises `InputError` if there is none, or one cannot be read."""
    if not folder.is_dir():
        raise InputError(f"--data {folder}: is no folder")
    found = [path for path in sorted(folder.iterdir()) if path.is_dir() or path.suffix in (".npz", ".mcap", ".db3")]
    if not found:
        raise InputError(f"--data {folder}: holds no .npz, .mcap, rosbag2 folder or folder of .pcd or .bin files")
    for path in found:
        if path.suffix == ".npz":
            scenes = read_npz(path)
        elif path.is_file() or (path / "metadata.yaml").is_file():
            scenes = {path.stem: read_bag(path)}
        elif (path / AV2_EXTRINSICS).is_file():
            yield argoverse(path)
            continue
        else:
            scenes = read_files(path)
        yield rig_of(path, scenes)


def rig_of(path: Path, scenes: dict[str, dict[str, list[np.ndarray]]]) -> Rig:
    """Return a rig with what the file beside the recording says of it."""
    lidars = sorted(set.intersection(*(set(scene) for scene in scenes.values())))
    if len(lidars) < 2:
        raise InputError(f"{path}: no two lidars are in every scene; it has {', '.join(lidars) or 'none'}")
    beside = path.with_suffix(".yaml")
    data = validate.mapping(read_yaml(beside) if beside.is_file() else None, {"first", "height", "others"}, str(beside))
    height = validate.number(data["height"], f"{beside}: height", 0.0, 100.0) if "height" in data else None
    if lidars == ["even columns", "odd columns"]:
        return Rig(path.stem, scenes, lidars[0], {lidars[1]: np.eye(4)}, {lidars[1]}, height)
    first = data.get("first", lidars[0])
    said = validate.mapping(data.get("others"), set(lidars) - {first}, f"{beside}: others")
    others, known = {}, set()
    for lidar in lidars:
        if lidar == first:
            continue
        pose = validate.mapping(said.get(lidar), {"xyz", "rpy_deg", "known"}, f"{beside}: others: {lidar}")
        where = f"{beside}: others: {lidar}"
        xyz = validate.numbers(pose.get("xyz", [0.0] * 3), 3, f"{where}: xyz", -100.0, 100.0)
        rpy = validate.numbers(pose.get("rpy_deg", [0.0] * 3), 3, f"{where}: rpy_deg", -360.0, 360.0)
        others[lidar] = from_xyz_rpy(xyz, np.radians(rpy)) if pose else None
        if pose.get("known"):
            known.add(lidar)
    if first not in lidars:
        raise InputError(f"{beside}: first: '{first}' is none of {', '.join(lidars)}")
    return Rig(path.stem, scenes, first, others, known, height)


def cloud(xyz: np.ndarray, **fields: np.ndarray) -> np.ndarray:
    """Return points (N, 3) with what is known of `intensity` and `ring` as a structured array."""
    known = [name for name in CLOUD.names if name in "xyz" or name in fields]
    points = np.zeros(len(xyz), dtype=[(name, CLOUD[name]) for name in known])
    for name, values in zip("xyz", np.asarray(xyz).T, strict=True):
        points[name] = values
    for name in known[3:]:
        points[name] = fields[name]
    return points


def read_npz(path: Path) -> dict[str, dict[str, list[np.ndarray]]]:
    """Return the clouds of an .npz file by scene and lidar."""
    try:
        with np.load(path, allow_pickle=False) as data:
            keys = {key: data[key] for key in data.files}
    except (OSError, ValueError, EOFError) as problem:
        raise InputError(f"{path}: cannot be read as .npz: {problem}") from problem
    scenes: dict[str, dict[str, list[np.ndarray]]] = {}
    for key in sorted(keys):
        where, _, name = key.rpartition("/")
        if name != "xyz":
            continue
        fields = {one: keys[f"{where}/{one}"] for one in ("intensity", "ring") if f"{where}/{one}" in keys}
        points = cloud(keys[key], **fields)
        if "/" in where:
            scene, lidar = where.split("/", 1)
            scenes.setdefault(scene, {}).setdefault(lidar, []).append(points)
        else:
            if f"{where}/timestamp" not in keys or "ring" not in fields:
                raise InputError(f"{path}: {where}: a lidar alone is split by columns, which takes ring and timestamp")
            halves = scenes.setdefault("all frames", {"even columns": [], "odd columns": []})
            odd = odd_columns(fields["ring"], keys[f"{where}/timestamp"])
            halves["even columns"].append(points[~odd])
            halves["odd columns"].append(points[odd])
    if not scenes:
        raise InputError(f"{path}: has no key scene/lidar/xyz or frame/xyz")
    return scenes


def odd_columns(ring: np.ndarray, timestamp: np.ndarray) -> np.ndarray:
    """Return which points (N,) are every second one of their channel, in the order of firing."""
    order = np.lexsort((timestamp, ring))
    starts = np.searchsorted(ring[order], np.arange(int(ring.max()) + 1))
    odd = np.zeros(len(ring), dtype=bool)
    odd[order] = (np.arange(len(ring)) - starts[ring[order]]) % 2 == 1
    return odd


def read_bag(path: Path) -> dict[str, list[np.ndarray]]:
    """Return the first clouds of every lidar in a rosbag2 recording."""
    clouds: dict[str, list[np.ndarray]] = {}
    with Recording(path) as recording:
        topics = [topic for topic, kind in recording.topics.items() if kind == POINT_CLOUD]
        for topic, message in recording.messages(topics):
            frames = clouds.setdefault(topic, [])
            if len(frames) < MAX_FRAMES:
                there = {one.name for one in message.fields}
                names = [name for name in ("x", "y", "z", "intensity", "ring") if name in there]
                fields = fields_from_message(message, names, returns_only=True)
                xyz = np.column_stack([fields.pop(name) for name in "xyz"])
                frames.append(cloud(xyz, **fields))
    return clouds


def argoverse(path: Path) -> Rig:
    """Return a sensor log of Argoverse 2: every sweep a scene, since the car drives. Both lidars' points
    come in the car's frame, and are brought back into their own by the published extrinsics. Raises
    `InputError` if a file is torn."""

    def table(file: Path) -> dict[str, np.ndarray]:
        try:
            return {name: np.array(values) for name, values in feather.read_table(file).to_pydict().items()}
        except (OSError, pyarrow.ArrowInvalid) as problem:
            raise InputError(f"{file}: cannot be read as .feather: {problem}") from problem

    poses = table(path / AV2_EXTRINSICS)
    car_from_lidar = {}
    for index, name in enumerate(poses["sensor_name"]):
        quaternion, place = ([poses[key][index] for key in keys] for keys in (AV2_QUATERNION, AV2_TRANSLATION))
        rotation = Rotation.from_quat(quaternion).as_matrix()
        car_from_lidar[name.removesuffix("_lidar")] = from_rotation_translation(rotation, np.array(place))
    scenes = {}
    for file in sorted((path / AV2_SWEEPS).glob("*.feather")):
        sweep = table(file)
        points = np.column_stack([sweep[name] for name in "xyz"]).astype(float)
        rings, scene = sweep["laser_number"], scenes.setdefault(file.stem, {})
        for lidar, own in (("up", rings < AV2_RINGS), ("down", rings >= AV2_RINGS)):
            xyz = apply(inverse(car_from_lidar[lidar]), points[own])
            scene[lidar] = [cloud(xyz, ring=rings[own] % AV2_RINGS, intensity=sweep["intensity"][own])]
    if not scenes:
        raise InputError(f"{path / AV2_SWEEPS}: holds no sweep")
    up_from_down = inverse(car_from_lidar["up"]) @ car_from_lidar["down"]
    return Rig(path.name, scenes, "up", {"down": up_from_down}, {"down"})


def read_files(path: Path) -> dict[str, dict[str, list[np.ndarray]]]:
    """Return the clouds of a folder of .pcd and .bin files by scene and lidar."""
    scenes: dict[str, dict[str, list[np.ndarray]]] = {}
    for file in sorted([*path.rglob("*.pcd"), *path.rglob("*.bin")]):
        parts = file.relative_to(path).with_suffix("").parts
        if len(parts) not in (2, 3):
            raise InputError(
                f"{file}: was expected at SCENE/LIDAR{file.suffix} or SCENE/LIDAR/FRAME{file.suffix} in {path}"
            )
        read = read_pcd if file.suffix == ".pcd" else read_bin
        scenes.setdefault(parts[0], {}).setdefault(parts[1], []).append(read(file))
    if not scenes:
        raise InputError(f"{path}: is no rosbag2 recording and no Argoverse log, and holds no .pcd or .bin file")
    return scenes


def read_bin(path: Path) -> np.ndarray:
    """Return a .bin file, x, y, z, intensity of every point as float32, as a cloud. Raises
    `InputError` if it is torn."""
    content = path.read_bytes()
    if len(content) % 16:
        raise InputError(f"{path}: {len(content)} bytes are no whole number of points of four float32; get it again")
    points = np.frombuffer(content, "<f4").reshape(-1, 4)
    points = points[np.isfinite(points).all(axis=1) & points[:, :3].any(axis=1)]
    return cloud(points[:, :3], intensity=points[:, 3])


def read_pcd(path: Path) -> np.ndarray:
    """Return a .pcd file (ascii, binary, binary_compressed) as a cloud. Raises `InputError`
    naming what is wrong with it."""
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
    return cloud(xyz[seen], **{name: values[name][seen] for name in ("intensity", "ring") if name in values})


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
    """Return what LZF (M. Lehmann's liblzf) packed, `size` bytes. Raises `ValueError` if it was something else.

    A byte below 32 is followed by so many and one bytes as they are. Another one holds, in its upper three bits, the
    length less two of a repetition (7: the next byte adds to it), and with the next one how
    far back it begins, less one.
    """
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
