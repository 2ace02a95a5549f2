"""Real recordings: ours beside the published method and GICP, against each other and between scenes of one rig.

    python benchmarks/real_data.py --data DIR [--plot FILE]

Every file or folder in DIR is a recording (docs/real_data.md says where some come from):
    NAME.npz                   keys scene/lidar/field, or frame/field for one lidar, whose azimuth columns are then split
                               into two; fields xyz (N, 3), and intensity, ring, timestamp (N,)
    NAME/SCENE/LIDAR.pcd       one frame of each lidar; NAME/SCENE/LIDAR/FRAME.pcd for several
    NAME.mcap, NAME/ (rosbag2) every topic of PointCloud2 is a lidar
NAME.yaml beside it says how the lidars stand, by name, in the frame of the first one:
    {first: top, height: 2.0, others: {left: {xyz: [0, 0, 0], rpy_deg: [0, 0, 90], known: false}}}
`known` is true for published extrinsics, false for a first guess; `height` (m) is about that of the first lidar over the
floor, and without it the floor is not looked for.

There is no truth but for a lidar that was split. What can be said without: how far results of scenes of the same rig are
apart, in units of what they say of themselves, NEES over its six degrees of freedom; above 3 is overconfident.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import numpy as np
import small_gicp

from stretch_sim_cal import command, validate
from stretch_sim_cal.calibration.alignment.planes import AlignmentSettings, PlaneAlignment
from stretch_sim_cal.calibration.floor.support_method import FloorSettings, SupportFloor
from stretch_sim_cal.calibration.published import PublishedAlignment, PublishedCodeFloor
from stretch_sim_cal.calibration.results import AlignmentResult
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import read_yaml
from stretch_sim_cal.geometry.planes import Plane, floor_error, footprint_from_base
from stretch_sim_cal.geometry.transforms import apply, error, from_xyz_rpy, inverse, log
from stretch_sim_cal.recording.clouds import fields_from_message
from stretch_sim_cal.recording.rosbag import Recording

CLOUD = np.dtype([("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("intensity", "<f4"), ("ring", "<u2")])
POINT_CLOUD = "sensor_msgs/msg/PointCloud2"
MAX_FRAMES = 20
# GICP from a far first guess: voxels of so many metres, correspondences from wide to narrow.
GICP_VOXEL, GICP_WIDTHS = 0.3, (2.0, 1.0, 0.5)
# Floor is used as far as this (m) around the lidar, and searched so far (m) from the height that was said.
FLOOR_RADIUS, FLOOR_SEARCH = 8.0, 0.3


@dataclass
class Rig:
    """Recordings of lidars that stand still to each other: by scene and lidar the `clouds`, structured arrays of frames; the
    `first` lidar, where the others are in its frame as far as said, with whether that is `known`, and its `height` (m)."""

    name: str
    scenes: dict[str, dict[str, list[np.ndarray]]]
    first: str
    others: dict[str, np.ndarray | None]
    known: set[str] = field(default_factory=set)
    height: float | None = None


def main() -> int:
    """Run all recordings of a folder, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of recordings")
    parser.add_argument("--plot", type=Path, help="draw the first rig of several scenes into this file")
    args = parser.parse_args()
    drawn = False
    for rig in rigs(args.data):
        print(f"## {rig.name}\n")
        for other, guess in rig.others.items():
            found = {scene: align(rig, scene, other, guess) for scene in rig.scenes}
            print(alignment_table(rig, other, found) + "\n")
            if args.plot and not drawn and len(found) > 1:
                draw(rig, other, found, args.plot)
                drawn = True
        if rig.height is not None:
            print(floor_table(rig, rig.height) + "\n")
    return 0


# Reading.


def rigs(folder: Path) -> Iterator[Rig]:
    """Yield the recordings in a folder. Raises `InputError` if there is none, or one cannot be read."""
    if not folder.is_dir():
        raise InputError(f"--data {folder}: is no folder")
    found = [path for path in sorted(folder.iterdir()) if path.is_dir() or path.suffix in (".npz", ".mcap", ".db3")]
    if not found:
        raise InputError(f"--data {folder}: holds no .npz, .mcap, rosbag2 folder or folder of .pcd files")
    for path in found:
        if path.suffix == ".npz":
            scenes = read_npz(path)
        elif path.is_file() or (path / "metadata.yaml").is_file():
            scenes = {path.stem: read_bag(path)}
        else:
            scenes = read_pcds(path)
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


def read_pcds(path: Path) -> dict[str, dict[str, list[np.ndarray]]]:
    """Return the clouds of a folder of .pcd files by scene and lidar."""
    scenes: dict[str, dict[str, list[np.ndarray]]] = {}
    for file in sorted(path.rglob("*.pcd")):
        parts = file.relative_to(path).with_suffix("").parts
        if len(parts) not in (2, 3):
            raise InputError(f"{file}: was expected at SCENE/LIDAR.pcd or SCENE/LIDAR/FRAME.pcd in {path}")
        scenes.setdefault(parts[0], {}).setdefault(parts[1], []).append(read_pcd(file))
    if not scenes:
        raise InputError(f"{path}: is no rosbag2 recording and holds no .pcd file")
    return scenes


def read_pcd(path: Path) -> np.ndarray:
    """Return a .pcd file, ascii or binary, as a cloud. Raises `InputError` naming what is wrong with it."""
    content = path.read_bytes()
    header: dict[str, list[str]] = {}
    position = 0
    while "DATA" not in header:
        end = content.find(b"\n", position)
        if end < 0 or position > 10_000:
            raise InputError(f"{path}: has no line DATA; it is no .pcd file")
        words = content[position:end].decode("ascii", "replace").split("#")[0].split()
        position = end + 1
        if words:
            header[words[0]] = words[1:]
    try:
        counts = [int(count) for count in header.get("COUNT", ["1"] * len(header["FIELDS"]))]
        kinds = [
            np.dtype(f"<{kind.lower()}{size}") for kind, size in zip(header["TYPE"], header["SIZE"], strict=True)
        ]  # fmt: skip
        number = int(header["POINTS"][0])
        names = [name if name != "_" else f"_{index}" for index, name in enumerate(header["FIELDS"])]
        dtype = np.dtype([(n, k, (c,)) if c > 1 else (n, k) for n, k, c in zip(names, kinds, counts, strict=True)])
        if header["DATA"] == ["binary"]:
            points = np.frombuffer(content, dtype, number, position)
        elif header["DATA"] == ["ascii"]:
            rows = np.loadtxt(content[position:].decode("ascii").splitlines(), ndmin=2, max_rows=number)
            points = np.zeros(len(rows), dtype)
            for column, name in zip(np.cumsum([0, *counts[:-1]]), names, strict=True):
                if dtype[name].shape == ():
                    points[name] = np.nan_to_num(rows[:, column]) if dtype[name].kind in "iu" else rows[:, column]
        else:
            raise InputError(
                f"{path}: DATA {' '.join(header['DATA'])}: convert it to binary (pcl_convert_pcd_ascii_binary)"
            )
        xyz = np.column_stack([points[name] for name in "xyz"])
    except (KeyError, ValueError, IndexError, TypeError) as problem:
        raise InputError(f"{path}: its header does not fit what it holds: {problem}") from problem
    fields = {name: points[name] for name in ("intensity", "ring") if name in names}
    seen = np.isfinite(xyz).all(axis=1) & xyz.any(axis=1)
    return cloud(xyz[seen], **{name: values[seen] for name, values in fields.items()})


# Running.


@dataclass(frozen=True)
class Aligned:
    """What the methods answer in one scene: ours, of all frames and of the halves of several; the transforms (4, 4) of the
    published method and of GICP in three steps, None without a first guess."""

    ours: AlignmentResult
    halves: tuple[AlignmentResult, AlignmentResult] | None
    published: np.ndarray | None
    gicp: np.ndarray | None


def coordinates(points: np.ndarray) -> np.ndarray:
    """Return the coordinates (N, 3) of a cloud."""
    return np.column_stack([points[name] for name in "xyz"]).astype(float)


def solve(method, pairs: list):
    """Return what a method answers to pairs of clouds."""
    for pair in pairs:
        method.add(*pair)
    return method.solve()


def align(rig: Rig, scene: str, other: str, guess: np.ndarray | None) -> Aligned:
    """Return what the methods answer in one scene."""
    pairs = list(zip(rig.scenes[scene][rig.first], rig.scenes[scene][other], strict=False))
    ours = solve(PlaneAlignment(guess, AlignmentSettings()), pairs)
    halves = None
    if len(pairs) > 1:
        middle = len(pairs) // 2
        halves = tuple(
            solve(PlaneAlignment(guess, AlignmentSettings()), part) for part in (pairs[:middle], pairs[middle:])
        )
    if guess is None:
        return Aligned(ours, halves, None, None)
    bare = [tuple(coordinates(points) for points in pair) for pair in pairs]
    gicp = guess
    left, right = (np.concatenate([pair[side] for pair in bare]) for side in (0, 1))
    for width in GICP_WIDTHS:
        gicp = small_gicp.align(
            left, right, init_T_target_source=gicp, registration_type="GICP", downsampling_resolution=GICP_VOXEL,
            max_correspondence_distance=width, num_threads=1, max_iterations=100,
        ).T_target_source  # fmt: skip
    return Aligned(ours, halves, solve(PublishedAlignment(guess), bare).right_to_left, gicp)


def scatter(transforms: list[np.ndarray]) -> np.ndarray:
    """Return the variances (6, 6) with which transforms (4, 4) of several scenes scatter, zero for one."""
    if len(transforms) < 2:
        return np.zeros((6, 6))
    return np.diag(np.var([log(one @ inverse(transforms[0])) for one in transforms], axis=0, ddof=1))


def nees(
    first: AlignmentResult, second: AlignmentResult | np.ndarray, second_covariance: float | np.ndarray = 0.0
) -> float:
    """Return the squared difference of two results in units of their covariances, over 6; a plain transform has the one given."""
    other, covariance = second, first.covariance + second_covariance
    if isinstance(second, AlignmentResult):
        other, covariance = second.right_to_left, covariance + second.covariance
    twist = log(other @ inverse(first.right_to_left))
    return float(twist @ np.linalg.solve(covariance, twist)) / 6


def off(first: np.ndarray | None, second: np.ndarray | None) -> str:
    """Return how far two transforms are apart, in mm and deg."""
    if first is None or second is None:
        return "-"
    distance, angle = error(first, second)
    return f"{1e3 * distance:.1f} mm {np.degrees(angle):.2f} deg"


def alignment_table(rig: Rig, other: str, found: dict[str, Aligned]) -> str:
    """Return the tables of one pair of lidars as Markdown."""
    known = rig.others[other] if other in rig.known else None
    gicp_covariance = scatter([one.gicp for one in found.values() if one.gicp is not None])
    lines = [
        f"{rig.first} and {other}:", "",
        "| scene | ours says, one sigma (largest axis) | surfaces apart | ours from GICP | NEES / dof, both "
        + ("| ours from published extrinsics | NEES / dof | GICP from those | published method from those " if known is not None else "")
        + "| published method from GICP | warnings and refusals |",
        "|---" * (11 if known is not None else 7) + "|",
    ]  # fmt: skip
    for scene, one in found.items():
        deviations = np.sqrt(np.diag(one.ours.covariance))
        cells = [
            scene, f"{1e3 * deviations[:3].max():.1f} mm {np.degrees(deviations[3:].max()):.2f} deg",
            f"{1e3 * one.ours.rmse:.1f} mm", off(one.ours.right_to_left, one.gicp),
            "-" if one.gicp is None else f"{nees(one.ours, one.gicp, gicp_covariance):.2f}",
        ]  # fmt: skip
        if known is not None:
            cells += [
                off(one.ours.right_to_left, known), f"{nees(one.ours, known):.2f}", off(one.gicp, known),
                off(one.published, known),
            ]  # fmt: skip
        said = [
            sentence.split(":")[0].split(";")[0].split(",")[0] for sentence in one.ours.warnings + one.ours.refusals
        ]
        lines.append(f"| {' | '.join([*cells, off(one.published, one.gicp), '; '.join(said) or '-'])} |")
    between = [
        (f"{a} and {b}", found[a].ours, found[b].ours, (found[a], found[b])) for a, b in combinations(found, 2)
    ] + [
        (f"{scene}, first and second half of the frames", *one.halves, None)
        for scene, one in found.items() if one.halves is not None
    ]  # fmt: skip
    if between:
        lines += ["", "| between | ours | NEES / dof | GICP | published method |", "|---|---|---|---|---|"]
    for name, first, second, pair in between:
        rest = (
            ("-", "-") if pair is None else (off(pair[0].gicp, pair[1].gicp), off(pair[0].published, pair[1].published))
        )
        lines.append(
            f"| {name} | {off(first.right_to_left, second.right_to_left)} | {nees(first, second):.2f} | {' | '.join(rest)} |"
        )
    return "\n".join(lines)


def floor_table(rig: Rig, height: float) -> str:
    """Return what the floor methods find under the first lidar, from it and another one, as Markdown; ours looks for it at
    about `height` (m)."""
    other = next(iter(rig.others))
    footprint_from_lidar = footprint_from_base(Plane(np.array([0.0, 0.0, 1.0]), height))
    lines = [
        f"Floor under {rig.first}, from it and {other}:", "",
        "| scene | height, ours (one sigma) | tilt, one sigma | published method from ours | refusals |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for scene, clouds in rig.scenes.items():
        pairs = list(zip(clouds[rig.first], clouds[other], strict=False))
        aligned = solve(PlaneAlignment(rig.others[other], AlignmentSettings()), pairs)
        settings = FloorSettings(
            right_to_left_covariance=aligned.covariance, radius=FLOOR_RADIUS, search_height=FLOOR_SEARCH
        )
        ours = solve(SupportFloor(np.eye(4), aligned.right_to_left, footprint_from_lidar, settings), pairs)
        if not np.isfinite(ours.covariance).all():
            lines.append(f"| {scene} | - | - | - | {'; '.join(ours.refusals)} |")
            continue
        bare = [tuple(coordinates(points) for points in pair) for pair in pairs]
        published = solve(PublishedCodeFloor(np.eye(4), aligned.right_to_left, footprint_from_lidar), bare).plane
        deviations = np.sqrt(np.diag(ours.covariance))
        tilt = np.degrees(floor_error(published, ours.plane)[1])
        said = [sentence.split(":")[0].split(";")[0] for sentence in ours.refusals]
        lines.append(
            f"| {scene} | {ours.plane.offset:.4f} m ({1e3 * deviations[0]:.1f} mm) | {np.degrees(deviations[1:].max()):.2f} deg "
            f"| {1e3 * (published.offset - ours.plane.offset):.0f} mm {tilt:.2f} deg | {'; '.join(said) or '-'} |"
        )
    return "\n".join(lines)


def draw(rig: Rig, other: str, found: dict[str, Aligned], path: Path) -> None:
    """Draw a rig: one scene from above, and where each scene's results put the other lidar."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (view, places) = pyplot.subplots(1, 2, figsize=(12, 5.5), layout="constrained")
    scene = next(iter(found))
    right = apply(found[scene].ours.right_to_left, coordinates(rig.scenes[scene][other][0]))
    for points, colour, name in (
        (coordinates(rig.scenes[scene][rig.first][0]), "0.6", rig.first),
        (right, "tab:red", other),
    ):
        view.plot(points[:, 0], points[:, 1], ",", color=colour)
        view.plot([], [], "s", color=colour, label=name)
    view.set(
        xlim=(-30, 30), ylim=(-30, 30), aspect="equal", xlabel="x / m", ylabel="y / m", title=f"scene {scene}, ours"
    )
    view.legend(loc="upper right")
    for index, (name, one) in enumerate(found.items()):
        deviations = 1e3 * np.sqrt(np.diag(one.ours.covariance))
        x, y, _ = 1e3 * one.ours.right_to_left[:3, 3]
        label = "ours, one sigma" if not index else None
        places.errorbar(x, y, deviations[1], deviations[0], "o", color="tab:blue", capsize=3, label=label)
        places.annotate(name, (x, y), textcoords="offset points", xytext=(5, 5))
        if one.gicp is not None:
            places.plot(*(1e3 * one.gicp[:2, 3]), "x", color="tab:orange", label=None if index else "GICP")
    places.set(xlabel="x / mm", ylabel="y / mm", aspect="equal", title=f"place of {other} in the frame of {rig.first}")
    places.margins(0.1)
    places.legend()
    places.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
    pyplot.close(figure)


if __name__ == "__main__":
    sys.exit(command.run(main))
