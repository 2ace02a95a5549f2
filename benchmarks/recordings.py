"""Public recordings of real lidars, as clones of their repositories hold them. `SETS` has a reader for each; what they
are and where they come from: docs/real_data.md."""

import importlib.util
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import packets
import pyarrow
from pcd_files import cloud, read_pcd
from pyarrow import feather
from scipy.spatial.transform import Rotation

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import read_yaml
from stretch_sim_cal.geometry.transforms import apply, from_rotation_translation, from_xyz_rpy, inverse
from stretch_sim_cal.sensor.points import coordinates, elevations


@dataclass(frozen=True)
class Answer:
    """A transform (4, 4) that is known, and its standard deviations per axis (m, rad), 0 if it is exact."""

    first_from_other: np.ndarray
    std_translation: float = 0.0
    std_rotation: float = 0.0


@dataclass(frozen=True)
class Recorded:
    """Frames of one lidar, or of two that stand still to each other. `clouds` has structured arrays by lidar, with x,
    y, z and as far as known intensity, ring and column (the number of a firing in its turn); `sensors` the files in
    `config/` that fit, None if there is none. Of one lidar, `still` says that it and nearly all of the scene stood
    still: every frame from every other one is a case whose answer is known. Of two, `guess` (4, 4) is where the search
    begins, `answer` what is known."""

    name: str
    clouds: dict[str, list[np.ndarray]]
    sensors: tuple[str | None, ...]
    still: bool = False
    guess: np.ndarray | None = None
    answer: Answer | None = None


NEBULA = "nebula"
NEBULA_SENSORS = {"qt64": "qt64", "xt32": "xt32", "vlp16": "vlp16", "vlp32": "vlp32c"}
# What stood still over the scans of a recording, found by comparing them.
NEBULA_KINDS = ("40p", "64", "qt64", "qt128", "xt16", "xt32", "vlp16", "vlp32", "vls128")


def read_nebula(folder: Path) -> Iterator[Recorded]:
    """tier4/nebula: raw packets of its decoders' tests."""
    root = folder / NEBULA / "src"
    for kind in NEBULA_KINDS:
        make = "hesai" if kind in packets.HESAI else "velodyne"
        files = root / f"nebula_{make}" / f"nebula_{make}" / "test_resources" / "decoder_ground_truth" / kind
        tables = root / f"nebula_{make}" / f"nebula_{make}_decoders" / "calibration"
        found = sorted(file for file in files.glob("*/*.db3") if "all_points" not in file.name)
        if not found:
            raise InputError(f"{files}: holds no recording (*/*.db3); clone tier4/nebula into {folder / NEBULA}")
        if make == "hesai":
            scans = packets.hesai_scans(found[0], kind, tables / f"{packets.HESAI[kind].name}.csv")
        else:
            scans = packets.velodyne_scans(found[0], kind, tables / f"{kind.upper()}.yaml")
        yield Recorded(f"nebula/{kind}", {kind: scans}, (NEBULA_SENSORS.get(kind),), still=True)


TWO_VLP16 = "Lidar-Calibration-and-fusion"
# The second lidar in the first one's frame (m, deg), by placement: where the plans of both fit best over all headings
# and shifts, then GICP. Height, roll and pitch are hardly determined: placements differ by tenths of a metre and some
# degrees. The repository's hand-measured poses are off by up to 1.5 m and 15 deg.
TWO_VLP16_GUESSES = {
    4: ([3.388, 2.587, -0.383], [-1.20, 2.80, -15.03]), 5: ([3.379, 2.581, -0.432], [-1.84, 3.24, -15.04]),
    6: ([3.412, 2.711, -0.038], [-2.24, -0.18, -2.47]), 7: ([3.635, 2.876, -0.490], [-2.80, 3.15, 16.70]),
    8: ([4.635, -0.357, -0.025], [-2.60, 1.68, -25.66]), 9: ([4.136, 0.020, -0.359], [-1.73, 1.49, -67.04]),
    11: ([-1.601, -3.915, 0.495], [0.93, -1.51, 7.12]), 12: ([-4.324, -1.558, 0.449], [3.68, 0.48, -46.70]),
    14: ([-1.578, -4.191, 0.629], [0.97, -6.85, 20.85]),
}  # fmt: skip
VLP16_ELEVATIONS = np.radians(np.arange(-15, 16, 2))


def read_two_vlp16(folder: Path) -> Iterator[Recorded]:
    """AmbarishGK/Lidar-Calibration-and-fusion: two VLP-16 indoors; messages that were stored twice count once."""
    root = folder / TWO_VLP16 / "data"
    places = sorted(root.glob("multi_calib_dataset_*_lidar"), key=lambda path: int(path.name.split("_")[3]))
    if not places:
        raise InputError(f"{root}: holds no multi_calib_dataset_*_lidar; clone AmbarishGK/{TWO_VLP16} into {folder}")
    for place in places:
        number = int(place.name.split("_")[3])
        frames: dict[str, list[np.ndarray]] = {}
        for lidar in ("1", "2"):
            clouds = map(read_pcd, sorted(place.glob(f"multi_calib_lidar_{lidar}_*.pcd")))
            for points in {points.tobytes(): points for points in clouds}.values():
                frames.setdefault(lidar, []).append(of_vlp16(points))
        for lidar, own in frames.items():
            yield Recorded(f"two_vlp16/{number} lidar {lidar}", {lidar: own[:2]}, ("vlp16",), still=True)
        if number in TWO_VLP16_GUESSES and len(frames) == 2:
            xyz, rpy = TWO_VLP16_GUESSES[number]
            yield Recorded(f"two_vlp16/{number}", frames, ("vlp16",) * 2, guess=from_xyz_rpy(xyz, np.radians(rpy)))


def of_vlp16(points: np.ndarray) -> np.ndarray:
    """Return a cloud of a VLP-16 with the rings that its points' elevations say."""
    xyz = coordinates(points)
    return cloud(xyz, ring=np.abs(elevations(xyz)[:, None] - VLP16_ELEVATIONS).argmin(axis=1))


def _there(path: Path, remedy: str) -> Path:
    if not path.is_file():
        raise InputError(f"{path}: is not there; {remedy}")
    return path


VLP16_GO = "vlp16-go"


def read_vlp16_go(folder: Path) -> Iterator[Recorded]:
    """einride/vlp16-go: raw packets of a VLP-16 in a room, one behind the other."""
    path = _there(folder / VLP16_GO / "testdata" / "recording.bin", f"clone einride/{VLP16_GO} into {folder}")
    content = path.read_bytes()
    if len(content) % packets.VELODYNE_PACKET:
        raise InputError(f"{path}: is not one of packets of {packets.VELODYNE_PACKET} bytes; get the file again")
    found = np.frombuffer(content, np.uint8).reshape(-1, packets.VELODYNE_PACKET)
    by_laser = VLP16_ELEVATIONS.reshape(2, -1).T.ravel()  # lower and upper half in turns
    scans = packets.velodyne_turns(found, "vlp16", by_laser, np.zeros(len(by_laser)))
    yield Recorded("vlp16_go", {"vlp16": scans}, ("vlp16",), still=True)


ACFR = "cam_lidar_calibration"
# Its commits that still have scans of a VLP-16, and of an OS1-64.
ACFR_VLP16, ACFR_OS1 = "3f8f3b5", "2b2e016"
# Scans of the VLP-16; in the first one it was 1.5 mm elsewhere.
ACFR_POSES = (8, 12, 19, 22, 29, 36)
# Sessions with the OS1-64 at two places, 0.23 m apart, and the second place in the first one (m, deg), by GICP. In
# others it was tilted by up to 0.02 deg from these.
ACFR_SESSIONS = ("2022-10-20_07-13-29", "2022-11-09_00-54-42")
ACFR_PLACES = [-0.2175, -0.062, 0.0015], [0.21, 0.12, -0.38]
ACFR_SCANS = 6  # of each session


def read_acfr(folder: Path) -> Iterator[Recorded]:
    """acfr/cam_lidar_calibration: lidars at rest while people hold a board here and there; every folder
    cam_lidar_calibration-COMMIT is one of its commits."""
    vlp16, os1 = (folder / f"{ACFR}-{commit}" / "data" for commit in (ACFR_VLP16, ACFR_OS1))
    frames = [_acfr_scan(vlp16 / "vlp", number) for number in ACFR_POSES]
    yield Recorded("acfr/vlp16", {"vlp16": frames}, ("vlp16",), still=True)
    places = {
        session: [_acfr_scan(os1 / session, number) for number in range(1, ACFR_SCANS + 1)]
        for session in ACFR_SESSIONS
    }  # fmt: skip
    for session, frames in places.items():
        yield Recorded(f"acfr/os1 {session}", {"os1": frames}, (None,), still=True)
    xyz, rpy = ACFR_PLACES
    yield Recorded("acfr/os1 places", places, (None, None), guess=from_xyz_rpy(xyz, np.radians(rpy)))


def _acfr_scan(session: Path, number: int) -> np.ndarray:
    root = session.parents[1]
    remedy = f"{root} has to be acfr/{ACFR} at commit {root.name.split('-')[-1]}"
    return read_pcd(_there(session / "pcd" / f"pose{number}_full.pcd", remedy))


# Lidars of which only columns are compared, since they moved or gave one scan: repository, owner, scans.
VLP16_SCANS = (
    ("multi_vlp_joint", "DavidHan008", ("build/left.pcd", "build/center.pcd", "build/right.pcd")),
    ("ndt_mapping", "daohu527", ("data/pcd/1.pcd", "data/pcd/3.pcd")),
)


def read_vlp16_scans(folder: Path) -> Iterator[Recorded]:
    """Single scans of VLP-16 outdoors, of several repositories."""
    for repository, owner, files in VLP16_SCANS:
        for name in files:
            path = _there(folder / repository / name, f"clone {owner}/{repository} into {folder}")
            frame = of_vlp16(read_pcd(path))
            yield Recorded(f"vlp16_scans/{repository} {path.stem}", {"vlp16": [frame]}, ("vlp16",), still=True)


OUSTER = "ouster-sdk"
# Sensor 1 in the frame of sensor 0 by the repository's tests (test_align_clouds.py), for pair 1 brought back from
# frames that the accelerometers had levelled.
POSE_DELTAS = {
    "pose_delta_1_128": (("os0_128", "os1_128"), Answer(np.array([
        [-0.833838, -0.018697, -0.551692, -2.209105], [-0.007871, 0.999727, -0.021984, 0.005561],
        [0.551953, -0.013988, -0.833758, 0.400152], [0.0, 0.0, 0.0, 1.0],
    ]), 0.1, np.radians(0.5))),
    "pose_delta_2_128": (("os1_128", "os1_128"), Answer(np.array([
        [0.99997934, -0.00546031, -0.00339061, 0.67199152], [0.00546738, 0.99998289, 0.00208084, 0.01065750],
        [0.00337919, -0.00209933, 0.99999209, 0.10954901], [0.0, 0.0, 0.0, 1.0],
    ]), 0.03, np.radians(0.15))),
}  # fmt: skip
OUSTER_SINGLE = {
    "osfs/OS-0-128_v3.0.1_1024x10_20241017_141645.osf": "os0_128", "osfs/single_scan_016.osf": "os0_128",
    "pcaps/OS-0-128-U1_v2.3.0_1024x10.pcap": "os0_128", "pcaps/OS-2-128-U1_v2.3.0_1024x10.pcap": None,
    "osfs/OS-1-128_v2.3.0_1024x10_lb_n3.osf": "os1_128", "pcaps/OS-0-32-U1_v2.2.0_1024x10.pcap": None,
}  # fmt: skip


def read_ouster(folder: Path) -> Iterator[Recorded]:
    """ouster-lidar/ouster-sdk: recordings of its tests, read by ouster-sdk itself."""
    # An empty folder of that name is no package.
    if importlib.util.find_spec("ouster") is None or importlib.util.find_spec("ouster.sdk") is None:
        raise InputError("ouster: needs the package ouster-sdk (pip install ouster-sdk)")
    root = folder / OUSTER / "tests"
    for name, (sensors, answer) in POSE_DELTAS.items():
        frames = ouster_scans(root / "osfs" / f"{name}.osf")
        yield Recorded(f"ouster/{name}", frames, sensors, guess=answer.first_from_other, answer=answer)
    for file, sensor in OUSTER_SINGLE.items():
        (frames,) = ouster_scans(root / file).values()
        whole = max(map(len, frames))
        frames = [frame for frame in frames if len(frame) > 0.9 * whole]
        # The vehicle of the OS1-128 drives.
        yield Recorded(f"ouster/{Path(file).stem}", {"lidar": frames[:1] if sensor == "os1_128" else frames},
                       (sensor,), still=True)  # fmt: skip


def ouster_scans(path: Path) -> dict[str, list[np.ndarray]]:
    """Return the clouds of every sensor in a recording of Ousters, in the sensors' own frames."""
    from ouster.sdk import core, open_source

    _there(path, "clone ouster-lidar/ouster-sdk beside the others")
    frames: dict[str, list[np.ndarray]] = {}
    with open_source(str(path)) as source:
        for together in source:
            for number, frame in enumerate(together):
                if frame is None:
                    continue
                info = frame.sensor_info
                info.sensor_to_body = np.eye(4)
                points = np.asarray(core.XYZLut(info, use_extrinsics=True)(frame)).reshape(frame.h, frame.w, 3)
                ring, column = np.nonzero(np.asarray(frame.field("RANGE")) > 0)
                scan = np.zeros(len(ring), packets.CLOUD)
                scan["x"], scan["y"], scan["z"] = points[ring, column].T
                scan["ring"], scan["column"] = ring, column
                scan["intensity"] = np.asarray(frame.field("REFLECTIVITY"))[ring, column]
                frames.setdefault(str(number), []).append(scan)
    return frames


def read_lily(folder: Path) -> Iterator[Recorded]:
    """windzu/Lily: a vehicle's lidars, one that looks around and two domes that look down; every folder Lily* is one of
    its commits, of which two have recordings of their own."""
    roots = [path for path in sorted(folder.glob("Lily*")) if (path / "data" / "top.pcd").is_file()]
    if not roots:
        raise InputError(f"{folder}: holds no Lily*/data/top.pcd; clone windzu/Lily into it")
    for root in roots:
        said = read_yaml(root / "src" / "lily" / "config.yaml")
        poses = {topic.rsplit("/", 1)[-1]: _lily_pose(pose) for topic, pose in said.items()}
        clouds = {name: [read_pcd(root / "data" / f"{name}.pcd")] for name in ("top", "front", "back")}
        for dome in sorted(poses.keys() & {"front", "back"}):
            top_from_dome = inverse(poses["top"]) @ poses[dome]
            yield Recorded(
                f"{root.name}/{dome}", {name: clouds[name] for name in ("top", dome)}, ("helios32", "bpearl"),
                guess=top_from_dome, answer=Answer(top_from_dome, 0.1, np.radians(5.0)),
            )  # fmt: skip


def _lily_pose(said: dict) -> np.ndarray:
    """Return a pose (4, 4) as one of the commits has it: six numbers under two sets of names, or a quaternion."""
    if "transform" in said:
        w, *xyz = said["transform"]["rotation"]
        rotation = Rotation.from_quat([*xyz, w]).as_matrix()
        return from_rotation_translation(rotation, np.array(said["transform"]["translation"], dtype=float))
    values = [float(said.get(key, said.get(f"tf_{key}"))) for key in ("x", "y", "z", "roll", "pitch", "yaw")]
    return from_xyz_rpy(values[:3], values[3:])


# A sensor log of Argoverse 2: its files, and how many rings each of its two lidars has; the upper one's come first.
AV2_LOG = "av2-api/tests/unit/test_data/sensor/val/7fab2350-7eaf-3b7e-a39d-6937a4c1bede"
AV2_EXTRINSICS, AV2_SWEEPS = "calibration/egovehicle_SE3_sensor.feather", "sensors/lidar"
AV2_QUATERNION, AV2_TRANSLATION = ("qx", "qy", "qz", "qw"), ("tx_m", "ty_m", "tz_m")
AV2_RINGS = 32


def read_av2(folder: Path) -> Iterator[Recorded]:
    """argoverse/av2-api: a car with two VLP-32C, driving slowly. Both lidars' points come in
    the car's frame, and are brought back into their own by the published extrinsics."""
    path = folder / AV2_LOG
    poses = _feather(_there(path / AV2_EXTRINSICS, f"clone argoverse/av2-api into {folder}"))
    car_from_lidar = {}
    for index, name in enumerate(poses["sensor_name"]):
        quaternion, place = ([poses[key][index] for key in keys] for keys in (AV2_QUATERNION, AV2_TRANSLATION))
        rotation = Rotation.from_quat(quaternion).as_matrix()
        car_from_lidar[name.removesuffix("_lidar")] = from_rotation_translation(rotation, np.array(place))
    up_from_down = inverse(car_from_lidar["up"]) @ car_from_lidar["down"]
    clouds: dict[str, list[np.ndarray]] = {"up": [], "down": []}
    for file in sorted((path / AV2_SWEEPS).glob("*.feather")):
        sweep = _feather(file)
        points = np.column_stack([sweep[name] for name in "xyz"]).astype(float)
        rings = sweep["laser_number"]
        for lidar, own in (("up", rings < AV2_RINGS), ("down", rings >= AV2_RINGS)):
            xyz = apply(inverse(car_from_lidar[lidar]), points[own])
            clouds[lidar].append(cloud(xyz, ring=rings[own] % AV2_RINGS, intensity=sweep["intensity"][own]))
    answer = Answer(up_from_down, 0.02, np.radians(0.1))
    yield Recorded("av2", clouds, (None, None), guess=up_from_down, answer=answer)


def _feather(file: Path) -> dict[str, np.ndarray]:
    try:
        return {name: np.array(values) for name, values in feather.read_table(file).to_pydict().items()}
    except (OSError, pyarrow.ArrowInvalid) as problem:
        raise InputError(f"{file}: cannot be read as .feather: {problem}") from problem


PJLAB = "SensorsCalibration"
# Where its Pandar64 stands still; in the hall and beside its boards at one place, and on a parked car.
PANDAR64 = {
    "hall": "lidar2camera/joint_calib/tool/LidarCircleDetect/data", "boards": "factory_calib/data/pcds",
    "parked": "lidar2imu/auto_calib/data/top_center_lidar",
}  # fmt: skip
STREETS = ("0001", "0002", "0003")
# First guesses of the lidars at the sides of a car (xyz in m, roll, pitch and yaw in deg), by the repository's README.
BESIDE = {"left": ((-0.068, 0.626, -0.351), (0, 0, 90)), "right": ((0.0, -0.463, -0.466), (0, 0, -90))}


def read_pandar64(folder: Path) -> Iterator[Recorded]:
    """PJLab-ADG/SensorsCalibration: a Pandar64 at rest, and, with two PandarQT, on a car in three streets, of which
    every two are halves."""
    for name, where in PANDAR64.items():
        yield Recorded(name, {"pandar64": _pcds(folder / PJLAB / where, "*.pcd")}, (None,), still=True)
    streets = folder / PJLAB / "lidar2lidar" / "auto_calib" / "data"
    for side, (xyz, rpy) in BESIDE.items():
        guess = from_xyz_rpy(xyz, np.radians(rpy))
        for pair in itertools.combinations(STREETS, 2):
            clouds = {each: [_pcds(streets / street, f"{each}*.pcd")[0] for street in pair] for each in ("top", side)}
            yield Recorded(f"street/{side} {pair[0]} {pair[1]}", clouds, (None, None), guess=guess)


def _pcds(folder: Path, names: str) -> list[np.ndarray]:
    """Return the clouds of the .pcd files in a folder, in the order of their names."""
    paths = sorted(folder.glob(names))
    if not paths:
        raise InputError(f"{folder}: holds no {names}; clone PJLab-ADG/{PJLAB} into the folder of recordings")
    return [read_pcd(path) for path in paths]


LEAST_RINGS = 32  # of which every second one is compared with the others


def rings(points: np.ndarray) -> np.ndarray | None:
    """Return the number (N,) of each point's ring in the order of elevations; None if it has too few of them."""
    if "ring" not in points.dtype.names:
        return None
    names, ring = np.unique(points["ring"], return_inverse=True)
    if len(names) < LEAST_RINGS:
        return None
    elevation = elevations(coordinates(points))
    return np.argsort(np.argsort([np.median(elevation[ring == each]) for each in range(len(names))]))[ring]


def columns(points: np.ndarray) -> np.ndarray | None:
    """Return the number (N,) of each point's firing; where the recording has none, its number among its channel's
    points in the order of time or of azimuth; None without rings."""
    names = points.dtype.names
    if "column" in names:
        return points["column"]
    if "ring" not in names:
        return None
    along = points["timestamp"] if "timestamp" in names else np.arctan2(points["y"], points["x"])
    order = np.lexsort((along, points["ring"]))
    starts = np.searchsorted(points["ring"][order], np.arange(int(points["ring"].max()) + 1))
    number = np.empty(len(points), dtype=int)
    number[order] = np.arange(len(points)) - starts[points["ring"][order]]
    return number


SETS: dict[str, Callable[[Path], Iterator[Recorded]]] = {
    "nebula": read_nebula, "two_vlp16": read_two_vlp16, "ouster": read_ouster, "lily": read_lily, "av2": read_av2,
    "pandar64": read_pandar64, "vlp16_go": read_vlp16_go, "acfr": read_acfr, "vlp16_scans": read_vlp16_scans,
}  # fmt: skip
