"""The clouds that a run keeps for its pictures: their returns, and where each lidar is, before and after."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.mounts.file import left_pose
from stretch_sim_cal.calibration.observations import Observations
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import SIDES, apply
from stretch_sim_cal.harness.processes import RunFiles
from stretch_sim_cal.harness.verdict import load_truth


@dataclass(frozen=True)
class CapturedClouds:
    """Returns (N, 3) or (N, 5) by side, each lidar's in its own frame, and base_link_from_lidar (4, 4) by side as described."""

    returns: Mapping[str, np.ndarray]
    described: Mapping[str, np.ndarray]

    @classmethod
    def load(cls, files: RunFiles) -> "CapturedClouds":
        """Return the clouds of a run or a session, the described poses being those that were kept with them, or, in a
        simulation, those that the simulator says. Raises `InputError` if there are none."""
        if not files.clouds.is_file():
            raise InputError("no clouds were captured")
        with np.load(files.clouds, allow_pickle=False) as arrays:
            returns = {side: arrays[side] for side in SIDES}
            if "base_from_left" in arrays:
                return cls(returns, {side: arrays[f"base_from_{side}"] for side in SIDES})
        truth = load_truth(files.truth)
        left, right = truth.nominal_base_link_from_lidar_left, truth.nominal_base_link_from_lidar_right
        return cls(returns, dict(zip(SIDES, (left, right), strict=True)))

    def points(self, known: Observations | None = None) -> dict[str, np.ndarray]:
        """Return the points (N, 3) by side, without the lidars' own errors if these are `known` (see `usable`)."""
        return {
            side: known.corrected(number, self.returns[side]) if known else self.returns[side][:, :3]
            for number, side in enumerate(SIDES)
        }

    def usable(self, known: Observations | None) -> Observations | None:
        """Return observations if they correct these returns: they hold the lidars' errors by ring, and the returns have rings."""
        rings = all(cloud.shape[1] >= 5 for cloud in self.returns.values())
        return known if known is not None and known.by_ring and rings else None

    def poses(self, file: CalibrationFile) -> dict[str, np.ndarray]:
        """Return base_link_from_lidar (4, 4) by side as calibrated. Raises `InputError` if the lidars are not."""
        if file.right_to_left is None:
            raise InputError("the lidars are not aligned")
        left = left_pose(file, self.described["left"])
        return {"left": left, "right": left @ file.right_to_left}

    def poses_before(self, old: CalibrationFile | None = None) -> dict[str, np.ndarray]:
        """Return the same as described, or with the right lidar where an `old` calibration has it from the left one."""
        if old is None or old.right_to_left is None:
            return dict(self.described)
        return {"left": self.described["left"], "right": self.described["left"] @ old.right_to_left}


def placed(points: Mapping[str, np.ndarray], poses: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the points (N, 3) by side in base_link."""
    return {side: apply(poses[side], points[side]) for side in SIDES}
