"""A dataset's `metadata.yaml`: what it says of the folder and of every sample, checked."""

import hashlib
import math
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import read_yaml
from stretch_sim_cal.recording import JOINTS

FORMAT = 1
FRAME = "base_footprint"
METADATA = "metadata.yaml"
DESCRIPTION = "description.urdf"
SAME_POSE = 1e-6  # m or rad; commanded values come from a grid, so equal poses are equal to rounding


def read_metadata(directory: Path) -> dict:
    """Return a folder's metadata, its samples' entries checked. Raises `InputError` naming the file and what is wrong."""
    path = directory / METADATA
    if not path.is_file():
        raise InputError(f"{path}: no such file; is {directory} a body-shape dataset?")
    metadata = read_yaml(path)
    if "rosbag2_bagfile_information" in metadata:
        raise InputError(
            f"{directory}: is a rosbag2 recording; a folder of arm poses is needed, as ros_calibrate_lidar_mounts and "
            "ros_collect_body_shape_data write it"
        )
    if metadata.get("format", FORMAT) != FORMAT:
        raise InputError(f"{path}: has format {metadata['format']}, this tool reads format {FORMAT}")
    if metadata.get("frame", FRAME) != FRAME:
        raise InputError(f"{path}: its points are in frame '{metadata['frame']}', '{FRAME}' was expected")
    if not isinstance(metadata.get("samples"), list):
        raise InputError(f"{path}: has no list 'samples'")
    for key, kind, name in (("info", dict, "mapping"), ("skipped", list, "list")):
        if not isinstance(metadata.get(key) or kind(), kind):
            raise InputError(f"{path}: '{key}' is not a {name}")
    seen: set[int] = set()
    for index, entry in enumerate(metadata["samples"]):
        _check_entry(path, index, entry)
        if entry["id"] in seen:
            raise InputError(f"{path}: two samples have the id {entry['id']}")
        seen.add(entry["id"])
    return metadata


def _check_entry(path: Path, index: int, entry) -> None:
    """Replace the values of a sample's entry by checked ones. Raises `InputError` naming the sample."""
    if not isinstance(entry, dict) or not isinstance(entry.get("id"), int):
        raise InputError(f"{path}: samples[{index}] is not a mapping with an integer 'id'")
    where = f"{path}: sample {entry['id']}"
    file = entry.get("file")
    if not isinstance(file, str) or not re.fullmatch(r"[\w.-]+\.npz", file):
        raise InputError(f"{where}: 'file' is not the name of an .npz file in this folder")
    entry["commanded"] = checked_pose(entry.get("commanded"), f"{where}: commanded")
    # Published datasets hold commanded values only.
    entry["actual"] = checked_pose(entry.get("actual", entry["commanded"]), f"{where}: actual")
    joints = entry.get("joints") or {}
    if not isinstance(joints, dict):
        raise InputError(f"{where}: 'joints' is not a mapping of joint values")
    entry["joints"] = {str(name): checked_number(value, f"{where}: joints: {name}") for name, value in joints.items()}


def checked_pose(values, where: str) -> dict[str, float]:
    """Return the values of `JOINTS`. Raises `InputError`, beginning with `where`, where one is missing or no number."""
    if not isinstance(values, Mapping):
        raise InputError(f"{where}: is not a mapping of {', '.join(JOINTS)}")
    missing = [joint for joint in JOINTS if joint not in values]
    if missing:
        raise InputError(f"{where}: has no {', '.join(missing)}")
    return {joint: checked_number(values[joint], f"{where}: {joint}") for joint in JOINTS}


def checked_number(value, where: str) -> float:
    """Return a finite number. Raises `InputError`, beginning with `where`, for anything else."""
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float, np.integer, np.floating))
        or not math.isfinite(value)
    ):
        raise InputError(f"{where}: {value!r} is not a finite number")
    return float(value)


def sha256(text: str) -> str:
    """Return the hash by which a description is known again."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
