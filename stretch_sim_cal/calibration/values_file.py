"""The robot's `stretch_calibration_values.yaml`: calibrated origins of joints for its description, and so for
robot_state_publisher.

Entries are written by the vendor's function, on a copy that replaces the file when it is complete; the replaced file is
kept as a backup.
"""

import datetime
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stretch_sim_cal import files
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import to_xyz_rpy
from stretch_sim_cal.robot.stretch import vendor_package

FILE_NAME = "stretch_calibration_values.yaml"
FORMAT_VERSION = "2.0"
JOINTS = "joint_calibration"


@dataclass(frozen=True)
class JointOrigin:
    """A fixed joint of the description: `parent_from_child` (4, 4) is its origin."""

    name: str
    parent: str
    child: str
    parent_from_child: np.ndarray

    @property
    def xyz(self) -> str:
        """The origin's translation as in a URDF."""
        return " ".join(repr(float(value)) for value in to_xyz_rpy(self.parent_from_child)[0])

    @property
    def rpy(self) -> str:
        """The origin's rotation as in a URDF (fixed axes)."""
        return " ".join(repr(float(value)) for value in to_xyz_rpy(self.parent_from_child)[1])


def default_values_path(environment: Mapping[str, str] | None = None) -> Path:
    """Return the file's path in `$HELLO_FLEET_PATH/$HELLO_FLEET_ID/`, with `~/stretch_user` for an unset path. Raises
    `InputError` if `HELLO_FLEET_ID` is not set."""
    environment = os.environ if environment is None else environment
    fleet_id = environment.get("HELLO_FLEET_ID")
    if not fleet_id:
        unknown = "HELLO_FLEET_ID is not set, so the robot's folder is unknown"
        raise InputError(f"{FILE_NAME}: {unknown}; set it, or give a path")
    return Path(environment.get("HELLO_FLEET_PATH") or "~/stretch_user").expanduser() / fleet_id / FILE_NAME


def lidar_joints(head_from_left: np.ndarray, right_to_left: np.ndarray, parent: str = "head_link") -> list[JointOrigin]:
    """Return the Stretch's lidar joints: the left one as described, the right one by the alignment."""
    return [
        JointOrigin("lidar_left_joint", parent, "lidar_left_link", head_from_left),
        JointOrigin("lidar_right_joint", parent, "lidar_right_link", head_from_left @ right_to_left),
    ]


def base_joint(footprint_from_base: np.ndarray) -> JointOrigin:
    """Return the Stretch's joint between base_footprint and base_link with the calibrated floor."""
    return JointOrigin("base_ref", "base_footprint", "base_link", footprint_from_base)


def record_joints(
    path: str | Path, joints: Sequence[JointOrigin], robot_id: str, extra: Mapping[str, Any] | None = None
) -> Path | None:
    """Write joints into a values file, all or none, with `extra` in every entry (method, covariance), and return the
    backup of the replaced one, if any. Raises `InputError` for a file that cannot be read, which stays, or written."""
    path = Path(path)
    with files.locked(path):
        text = values_text(path, joints, robot_id, datetime.datetime.now().isoformat(), extra)
        backup = files.keep_backup(path)
        files.write_text(path, text)
    return backup


def values_text(
    path: str | Path, joints: Sequence[JointOrigin], robot_id: str, timestamp: str,
    extra: Mapping[str, Any] | None = None,
) -> str:  # fmt: skip
    """Return the text of the values file at `path` (which need not exist) with the joints recorded."""
    vendor_package()
    from stretch4_urdf.utils.calibration_utils import record_joint_calibration

    old = _existing(Path(path))
    with files.scratch_folder() as folder:
        copy = folder / FILE_NAME
        if old:
            files.write_yaml(copy, old)
        for joint in joints:
            record_joint_calibration(
                joint_name=joint.name, xyz=joint.xyz, rpy=joint.rpy, parent=joint.parent, child=joint.child,
                robot_id=str(robot_id), timestamp=timestamp, extra=dict(extra or {}), filepath=str(copy),
            )  # fmt: skip
        data = files.read_yaml(copy) if copy.exists() else {"version": FORMAT_VERSION, JOINTS: {}}
    # The vendor's function drops unknown keys; they are added again.
    unknown = {key: value for key, value in old.items() if key not in ("version", JOINTS, "robot_calibration", *data)}
    return files.yaml_text({**data, **unknown}, flow_style=False)


def _existing(path: Path) -> dict[str, Any]:
    """Return the mapping in a values file, {} without one; the vendor's reader ignores invalid files."""
    if not path.exists() or not files.read_text(path).strip():
        return {}
    data = files.read_yaml(path)
    for key in (JOINTS, "robot_calibration"):
        if key in data and not isinstance(data[key], dict):
            raise InputError(f"{path}: '{key}' is not a mapping; repair the file or move it away")
    return data
