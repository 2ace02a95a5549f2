"""The truth that only the simulator knows, in the frames in which a calibration can be judged.

A calibration from clouds alone is expressed in *the lidar's base_link*: the frame in which the left lidar is exactly
where the description says. An error of the left mount itself moves that frame against the physical base_link, so floor
and outline are brought into it before anything is compared. Where a calibration claims to know the mounts, nothing is:
it is judged in the physical base_link.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from stretch_sim_cal import files
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.mounts.file import stored_mounts
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.planes import Plane, footprint_from_base
from stretch_sim_cal.geometry.transforms import check_rigid, inverse

TRANSFORMS = (
    "base_link_from_lidar_left",
    "base_link_from_lidar_right",
    "nominal_base_link_from_lidar_left",
    "nominal_base_link_from_lidar_right",
)


@dataclass(frozen=True)
class Truth:
    """True poses (4x4) of both lidars in the physical base_link, where the description has them, and the true floor.

    With `mounts_known` the calibration that is judged is one of the physical base_link.
    """

    base_link_from_lidar_left: np.ndarray
    base_link_from_lidar_right: np.ndarray
    nominal_base_link_from_lidar_left: np.ndarray
    nominal_base_link_from_lidar_right: np.ndarray
    floor_in_base_link: Plane
    description_file: Path
    mounts_known: bool = False

    @property
    def right_to_left(self) -> np.ndarray:
        """lidar_left_from_lidar_right."""
        return inverse(self.base_link_from_lidar_left) @ self.base_link_from_lidar_right

    @property
    def nominal_right_to_left(self) -> np.ndarray:
        """lidar_left_from_lidar_right as the description has it."""
        return inverse(self.nominal_base_link_from_lidar_left) @ self.nominal_base_link_from_lidar_right

    @property
    def lidar_base_from_base(self) -> np.ndarray:
        """From the physical base_link into the one in which the calibration is expressed."""
        if self.mounts_known:
            return np.eye(4)
        return self.nominal_base_link_from_lidar_left @ inverse(self.base_link_from_lidar_left)

    @property
    def floor(self) -> Plane:
        """The true floor in the base_link in which the calibration is expressed."""
        return self.floor_in_base_link.moved(self.lidar_base_from_base)

    @property
    def footprint_from_base_link(self) -> np.ndarray:
        """From the physical base_link into the true base_footprint of the calibration's base_link."""
        return footprint_from_base(self.floor) @ self.lidar_base_from_base

    def for_calibration(self, file: CalibrationFile) -> "Truth":
        """Return the truth in the frame in which that calibration is expressed."""
        return replace(self, mounts_known=stored_mounts(file) is not None)


def load_truth(path: str | Path) -> Truth:
    """Return the truth in a simulator's JSON file. Raises `InputError` for a file that is not one."""
    try:
        data = json.loads(files.read_text(path))
        floor = data["floor_in_base_link"]
        return Truth(
            **{name: check_rigid(data[name], f"{path}: {name}") for name in TRANSFORMS},
            floor_in_base_link=Plane.from_coefficients(floor["normal"], floor["offset"]),
            description_file=Path(path).parent / data["description_file"],
        )
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: line {error.lineno} is not valid JSON: {error.msg}") from error
    except (KeyError, TypeError) as error:
        raise InputError(f"{path}: is not a simulator's truth: {error} is missing or of a wrong kind") from error
