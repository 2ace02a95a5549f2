"""Body-shape datasets: a folder of samples, one arm pose each, that is whole after every sample and can be continued.

DIR/metadata.yaml       format, frame, info, skipped, samples[]: id, commanded, actual, joints, file, num_points; and
                        joint_names, what the planned joints are called, of other robots than the Stretch
                        and lidars, the names of those that saw it, of other robots than with a left and a right one
DIR/sample_0000.npz     points (N, 3+) float32 in base_footprint; optional left, right (N, 3+) in their lidar's frame,
                        and lidar_NAME (N, 3+) of each lidar beyond two
DIR/description.urdf    the robot's description while it was recorded
"""

import datetime
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import BROKEN_ARRAYS, read_text, read_yaml, write_atomic, write_text, write_yaml
from stretch_sim_cal.geometry.transforms import SIDES, check_rigid
from stretch_sim_cal.recording import JOINTS
from stretch_sim_cal.validate import number

FORMAT = 1
FRAME = "base_footprint"
METADATA = "metadata.yaml"
DESCRIPTION = "description.urdf"
JOINT_NAMES = "joint_names"
LIDARS, FURTHER = "lidars", "further_lidars"  # an older key: of those beyond left and right
SAME_POSE = 1e-6  # m or rad; commanded values come from a grid, so equal poses are equal to rounding


def read_metadata(directory: Path) -> dict:
    """Return a folder's metadata, checked. Raises `InputError` naming the file and what is wrong."""
    path = directory / METADATA
    if not path.is_file():
        raise InputError(f"{path}: no such file; is {directory} a body-shape dataset?")
    metadata = read_yaml(path)
    if "rosbag2_bagfile_information" in metadata:
        writers = "ros_calibrate_lidar_mounts and ros_collect_body_shape_data"
        fault = "is a rosbag2 recording; a folder of arm poses is needed, as"
        raise InputError(f"{directory}: {fault} {writers} write it")
    for key, default in (("format", FORMAT), ("frame", FRAME)):
        if metadata.get(key, default) != default:
            raise InputError(f"{path}: has {key} {metadata[key]!r}; expected {default!r}")
    samples = metadata.get("samples")
    if not isinstance(samples, list):
        raise InputError(f"{path}: has no list 'samples'")
    for key, kind in (("info", dict), ("skipped", list)):
        if not isinstance(metadata.get(key) or kind(), kind):
            raise InputError(f"{path}: '{key}' is not a {kind.__name__}")
    for index, entry in enumerate(samples):
        _check_entry(path, index, entry, _names(metadata, path, JOINT_NAMES))
    ids = [entry["id"] for entry in samples]
    if twice := {each for each in ids if ids.count(each) > 1}:
        raise InputError(f"{path}: two samples have the id {min(twice)}")
    return metadata


def _names(metadata: dict, path: Path, key: str) -> tuple[str, ...]:
    """Return the names of a dataset's planned joints (`JOINT_NAMES`), or of its lidars (`LIDARS`)."""
    usual = [*SIDES, *_names(metadata, path, FURTHER)] if key == LIDARS else [] if key == FURTHER else list(JOINTS)
    names = metadata.get(key, usual)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise InputError(f"{path}: {key} is not a list of different names")
    return tuple(names)


def _check_entry(path: Path, index: int, entry, names: Sequence[str]) -> None:
    """Replace the values of a sample's entry by checked ones. Raises `InputError` naming the sample."""
    if not isinstance(entry, dict) or not isinstance(entry.get("id"), int):
        raise InputError(f"{path}: samples[{index}] is not a mapping with an integer 'id'")
    where = f"{path}: sample {entry['id']}"
    file = entry.get("file")
    if not isinstance(file, str) or not re.fullmatch(r"[\w.-]+\.npz", file):
        raise InputError(f"{where}: 'file' is not the name of an .npz file in this folder")
    entry["commanded"] = _numbers(entry.get("commanded"), f"{where}: commanded", names)
    # Published datasets hold commanded values only.
    entry["actual"] = _numbers(entry.get("actual", entry["commanded"]), f"{where}: actual", names)
    entry["joints"] = _numbers(entry.get("joints") or {}, f"{where}: joints")


def _numbers(values, where: str, names: Sequence[str] | None = None) -> dict[str, float]:
    if not isinstance(values, Mapping):
        raise InputError(f"{where}: is not a mapping of joint values")
    if missing := [joint for joint in names or () if joint not in values]:
        raise InputError(f"{where}: has no {', '.join(missing)}")
    return {str(joint): number(values[joint], f"{where}: {joint}") for joint in (values if names is None else names)}


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


@dataclass(frozen=True)
class Sample:
    """One arm pose: joint values in m and rad, and the points seen in it. `commanded` and `actual` hold the values of
    the planned joints (`arm` is the whole extension of a Stretch); `joints` those of every joint by its name in the
    description if they were recorded, else it is empty. `points` (N, 3+) float32 in base_footprint are finite. `lidars`
    (N,) says which lidar saw each, as numbered in the dataset's `lidars`, if that is known: if the raw
    clouds hold the same returns in this order."""

    id: int
    commanded: dict[str, float]
    actual: dict[str, float]
    joints: dict[str, float]
    points: np.ndarray
    lidars: np.ndarray | None
    file: Path
    _clouds: dict[str, np.ndarray | None] = field(default_factory=dict, repr=False, compare=False)

    @property
    def name(self) -> str:
        return f"sample {self.id} ({self.file.name})"

    def cloud(self, lidar: str) -> np.ndarray | None:
        """Return a lidar's raw returns (N, 3+) float32 in its own frame, if they were kept; read when asked for."""
        if lidar not in self._clouds:
            name, where = cloud_name(lidar), f"sample {self.id} ({self.file})"
            self._clouds[lidar] = _read_cloud(self.file, where, name)
        return self._clouds[lidar]


def _read_sample(directory: Path, entry: dict, warnings: list[str], lidars: Sequence[str]) -> Sample:
    """Return the sample of an entry of the metadata, and add to `warnings` what is unusual about it."""
    path = directory / entry["file"]
    where = f"sample {entry['id']} ({path})"
    points = _read_cloud(path, where, "points")
    if points is None:
        raise InputError(f"{where}: has no array 'points'")
    if entry.get("num_points", len(points)) != len(points):
        differ = f"holds {len(points)} points, but {METADATA} has {entry['num_points']}"
        raise InputError(f"{where}: {differ}; one of them belongs to another run")
    sizes = [entry.get(f"num_{cloud}") for cloud in map(cloud_name, lidars)]
    counted = all(isinstance(size, int) and not isinstance(size, bool) and size >= 0 for size in sizes)
    known = counted and sum(sizes) == len(points)
    seen_by = np.repeat(np.arange(len(sizes), dtype=np.uint8), sizes) if known else None
    finite = np.isfinite(points[:, :3]).all(axis=1)
    if not finite.all():
        warnings.append(f"{where}: {np.count_nonzero(~finite)} of {len(points)} points are not finite and ignored")
        points, seen_by = points[finite], None if seen_by is None else seen_by[finite]
    if not len(points):
        warnings.append(f"{where}: has no points")
    return Sample(entry["id"], entry["commanded"], entry["actual"], entry["joints"], points, seen_by, path)


def _read_cloud(path: Path, where: str, name: str) -> np.ndarray | None:
    try:
        with np.load(path, allow_pickle=False) as archive:
            cloud = archive.get(name)
    except BROKEN_ARRAYS as error:
        missing = f"the file is missing, though {METADATA} lists it"
        fault = missing if isinstance(error, FileNotFoundError) else f"is truncated or not an .npz file ({error})"
        raise InputError(f"{where}: {fault}; collect this pose again") from error
    return None if cloud is None else _checked_cloud(cloud, f"{where}: {name}")


CLOUD_POSE = "base_from_"
"""Before a lidar's name: its described pose in an .npz file of clouds."""


def cloud_name(lidar: str) -> str:
    """Return the name of a lidar's cloud in an .npz file of clouds."""
    return lidar if lidar in SIDES else f"lidar_{lidar}"


def _checked_cloud(cloud, where: str) -> np.ndarray:
    cloud = np.asarray(cloud)
    if cloud.ndim != 2 or cloud.shape[1] < 3 or cloud.dtype.kind not in "fiu":
        raise InputError(f"{where}: is {cloud.dtype} of shape {cloud.shape}; expected numbers of shape (N, 3 or more)")
    return np.ascontiguousarray(cloud, dtype=np.float32)


@dataclass(frozen=True)
class Dataset:
    """All samples of a folder, the description they were recorded with, warnings about them, and the names of the
    lidars that saw them."""

    directory: Path
    samples: list[Sample]
    description_file: Path | None
    footprint_from_base_link: np.ndarray | None
    info: dict
    created: str
    warnings: list[str] = field(default_factory=list)
    joint_names: tuple[str, ...] = JOINTS
    lidars: tuple[str, ...] = SIDES


def read_dataset(directory: str | Path) -> Dataset:
    """Return the whole dataset in a folder, points that are not finite left out with a warning. Raises `InputError`
    naming the sample if a file is missing, truncated or no cloud, or if the metadata is wrong or disagrees with the
    files."""
    directory = Path(directory)
    if not directory.is_dir():
        raise InputError(f"{directory}: no such folder")
    metadata, path, warnings = read_metadata(directory), directory / METADATA, []
    lidars = _names(metadata, path, LIDARS)
    samples = [_read_sample(directory, entry, warnings, lidars) for entry in metadata["samples"]]
    if not samples:
        raise InputError(f"{path}: lists no samples; collect samples first")
    warnings += _oddities(directory, samples)
    transform = metadata.get("footprint_from_base_link")
    description = directory / DESCRIPTION
    known = metadata.get("description_sha256")
    if known and not description.is_file():
        warnings.append(f"{description}: is missing, though the samples were recorded with it")
    elif known and _sha256(read_text(description)) != known:
        warnings.append(f"{description}: is not the description that the samples were recorded with")
    if transform is not None:
        transform = check_rigid(transform, f"{path}: footprint_from_base_link")
    return Dataset(
        directory, samples, description if description.is_file() else None, transform,
        dict(metadata.get("info") or {}), str(metadata.get("created", "unknown")), warnings,
        _names(metadata, path, JOINT_NAMES), lidars,
    )  # fmt: skip


def _oddities(directory: Path, samples: list[Sample]) -> list[str]:
    """Return a warning for every file that nothing names and every pose that is there twice."""
    named = {sample.file for sample in samples}
    unnamed = sorted(path for path in directory.glob("sample_*.npz") if path not in named)
    found = [f"{path}: is not in {METADATA} and is ignored" for path in unnamed]
    poses: dict[tuple, Sample] = {}
    for sample in samples:
        pose = tuple(round(value / SAME_POSE) for value in sample.commanded.values())
        if pose in poses:
            found.append(f"{sample.name}: has the same commanded pose as {poses[pose].name}")
        poses.setdefault(pose, sample)
    return found


class DatasetWriter:
    """Writes a dataset, sample by sample; every sample is complete on disk before the metadata names it. Opening a
    folder that already holds a dataset continues it: `samples` lists what is there, `holds` tells which poses can be
    left out. `description` is the URDF text; `info` (plain YAML values) is kept with the samples;
    `footprint_from_base_link` (4, 4) is the calibrated transform that `points` went through, if it is known; `joints`
    are the names of the planned joints, `lidars` those of the lidars. Raises `InputError` if the folder
    holds something else, another description, or cannot be written."""

    def __init__(
        self, directory: str | Path, description: str | None = None, info: Mapping | None = None,
        footprint_from_base_link: np.ndarray | None = None, joints: Sequence[str] = JOINTS,
        lidars: Sequence[str] = SIDES,
    ):  # fmt: skip
        self.directory = Path(directory)
        self._joints, self._lidars = tuple(joints), tuple(lidars)
        if (self.directory / METADATA).exists():
            self._metadata = read_metadata(self.directory)
            self._check_same(description, footprint_from_base_link)
        else:
            if any(self.directory.glob("sample_*.npz")):
                raise InputError(f"{self.directory}: contains samples but no {METADATA}; choose an empty folder")
            created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            self._metadata = {"format": FORMAT, "frame": FRAME, "created": created, "samples": []}
            if self._joints != JOINTS:
                self._metadata[JOINT_NAMES] = list(self._joints)
            if self._lidars != SIDES:
                self._metadata[LIDARS] = list(self._lidars)
        if info:
            self._metadata["info"] = {**(self._metadata.get("info") or {}), **info}
        if description is not None:
            self._metadata["description_sha256"] = _sha256(description)
            write_text(self.directory / DESCRIPTION, description)
        if footprint_from_base_link is not None:
            self._metadata["footprint_from_base_link"] = np.asarray(footprint_from_base_link, dtype=float).tolist()
        self._write_metadata()

    @property
    def samples(self) -> list[dict]:
        """The entries (`id`, `commanded`, `actual`, `joints`, `file`, `num_points`) on disk."""
        return list(self._metadata["samples"])

    def holds(self, commanded: Mapping[str, float]) -> bool:
        """Return whether a whole sample of this commanded pose is on disk."""
        pose = _numbers(commanded, "commanded", self._joints)
        known = [entry["commanded"] for entry in self._metadata["samples"]]
        return any(all(abs(each[joint] - pose[joint]) <= SAME_POSE for joint in self._joints) for each in known)

    def write_sample(
        self, commanded: Mapping[str, float], actual: Mapping[str, float], points: np.ndarray,
        clouds: Mapping[str, np.ndarray] = MappingProxyType({}), joints: Mapping[str, float] = MappingProxyType({}),
    ) -> Path:  # fmt: skip
        """Write one sample (see `Sample`) and return its file. Raises `InputError` for values that are no data.
        `clouds` (N, 3+) are raw returns by lidar, in its own frame; best the same as in `points`, left first."""
        poses = {"commanded": commanded, "actual": actual}
        entry: dict = {name: _numbers(values, name, self._joints) for name, values in poses.items()}
        if joints:
            entry["joints"] = _numbers(joints, "joints")
        arrays = {"points": _checked_cloud(points, "points")}
        arrays |= {cloud_name(name): _checked_cloud(clouds[name], name) for name in self._lidars if name in clouds}
        number = 1 + max((sample["id"] for sample in self._metadata["samples"]), default=-1)
        path = self.directory / f"sample_{number:04d}.npz"
        write_atomic(path, lambda stream: np.savez_compressed(stream, **arrays))
        entry |= {"file": path.name, "num_points": len(arrays["points"])}
        entry |= {f"num_{name}": len(cloud) for name, cloud in arrays.items() if name != "points"}
        self._metadata["samples"].append({"id": number, **entry})
        self._write_metadata()
        return path

    def write_skipped(self, skipped: list) -> None:
        """Keep the list (plain YAML values) of poses that were left out, and why."""
        self._metadata["skipped"] = list(skipped)
        self._write_metadata()

    def _write_metadata(self) -> None:
        write_yaml(self.directory / METADATA, self._metadata)

    def _check_same(self, description: str | None, footprint_from_base_link: np.ndarray | None) -> None:
        metadata, path = self._metadata, self.directory / METADATA
        known, floor = metadata.get("description_sha256"), metadata.get("footprint_from_base_link")
        differs = {
            "joints of other names": _names(metadata, path, JOINT_NAMES) != self._joints,
            "other lidars": _names(metadata, path, LIDARS) != self._lidars,
            "another robot description": None not in (description, known) and _sha256(description) != known,
            "another floor calibration": footprint_from_base_link is not None
            and floor is not None
            and not np.allclose(np.array(floor), footprint_from_base_link, atol=1e-4),
        }
        if found := [what for what, other in differs.items() if other]:
            raise InputError(f"{self.directory}: was recorded with {found[0]}; choose another folder to start over")
