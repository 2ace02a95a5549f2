"""The clouds that a run keeps for its pictures, and both as a part of a page that a user can
turn: WebGL, without a network.

A page holds the points of each lidar in its own frame, as 16-bit numbers, and the lidar's poses before and after.
`clouds_3d.js` draws them.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup

from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.mounts.file import left_pose
from stretch_sim_cal.calibration.observations import Observations
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.points import rank_in_cell, voxel_keys
from stretch_sim_cal.geometry.transforms import SIDES, apply
from stretch_sim_cal.harness.pages import rendered
from stretch_sim_cal.harness.processes import RunFiles
from stretch_sim_cal.harness.verdict import load_truth
from stretch_sim_cal.recording.dataset import cloud_name

MOST_POINTS = 50_000  # of both clouds
CELL = 0.1  # m
SPOT = (0.5, 0.1)  # m, sideways and up: so near to the spot all points are shown that there are, up to a tenth of all
STEPS = 32767  # from 0 to the farthest coordinate
OPEN = 1.8  # m: without the ceiling one looks into the room
COLOURS = {"left": (0x1F, 0x6F, 0xB4), "right": (0xE0, 0x7B, 0x00)}
BOUND = 0.98  # of the points lie within the first view: a return through a window lies far out


@dataclass(frozen=True)
class CapturedClouds:
    """Returns (N, 3) or (N, 5) by side in the lidars' frames, and the described base_link_from_lidar (4, 4) by side.
    The right one may be a further lidar, called `other`."""

    returns: Mapping[str, np.ndarray]
    described: Mapping[str, np.ndarray]
    other: str = "right"

    @classmethod
    def load(cls, files: RunFiles, other: str = "right") -> "CapturedClouds":
        """Return the clouds of the left and an `other` lidar of a run or a session; described poses that were not kept
        with them are the simulator's. Raises `InputError` if there are none."""
        if not files.clouds.is_file():
            raise InputError("no clouds were captured")
        with np.load(files.clouds, allow_pickle=False) as arrays:
            if (key := cloud_name(other)) not in arrays:
                raise InputError(f"no clouds of lidar {other} were captured")
            returns = {"left": arrays["left"], "right": arrays[key]}
            if "base_from_left" in arrays:
                described = {"left": arrays["base_from_left"], "right": arrays[f"base_from_{other}"]}
            else:
                nominal = load_truth(files.truth).nominal_base_from_lidar
                described = {"left": nominal["left"], "right": nominal[other]}
        return cls(returns, described, other)

    def points(self, known: Observations | None = None) -> dict[str, np.ndarray]:
        """Return the points (N, 3) by side, without the lidars' own errors if these are `known` (see `usable`)."""
        return {
            side: known.corrected(name, self.returns[side]) if known else self.returns[side][:, :3]
            for side, name in zip(SIDES, ("left", self.other), strict=True)
        }

    def usable(self, known: Observations | None) -> Observations | None:
        """Return observations if they can correct these returns: both know the rings."""
        rings = all(cloud.shape[1] >= 5 for cloud in self.returns.values())
        return known if known is not None and known.by_ring and rings else None

    def poses(self, file: CalibrationFile) -> dict[str, np.ndarray]:
        """Return base_link_from_lidar (4, 4) by side as calibrated. Raises `InputError` if the lidars are not."""
        if self.other not in file.to_left:
            raise InputError("the lidars are not aligned")
        left = left_pose(file, self.described["left"])
        return {"left": left, "right": left @ file.to_left[self.other]}

    def poses_before(self, old: CalibrationFile | None = None) -> dict[str, np.ndarray]:
        """Return the poses as described, or with the right lidar's from the left one's by an `old` calibration."""
        if old is None or self.other not in old.to_left:
            return dict(self.described)
        return {"left": self.described["left"], "right": self.described["left"] @ old.to_left[self.other]}


def placed(points: Mapping[str, np.ndarray], poses: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the points (N, 3) by side in base_link."""
    return {side: apply(poses[side], points[side]) for side in SIDES}


def turnable(
    clouds: Mapping[str, np.ndarray],
    before: Mapping[str, np.ndarray],
    after: Mapping[str, np.ndarray],
    spot: np.ndarray | None,
    other: str = "right",
) -> str:
    """Return HTML: both clouds (N, 3) by side, each in its lidar's frame, with base_link_from_lidar (4, 4) before and
    after, and the place `spot` (3,) in base_link that shows the difference best, if any."""
    in_base = placed(clouds, after)
    lidars = {side: (side if side == "left" else other, colour) for side, colour in COLOURS.items()}
    both = np.concatenate(list(in_base.values()))
    low, high = (round(float(np.quantile(both[:, 2], share)), 2) for share in (1.0 - BOUND, BOUND))
    data = {
        "clouds": [
            _cloud(side, clouds[side][_chosen(in_base[side], spot)], before[side], after[side]) for side in SIDES
        ],
        "reach": round(float(np.quantile(np.linalg.norm(both[:, :2], axis=1), BOUND)), 2),
        "spot": [round(float(value), 3) for value in (np.zeros(3) if spot is None else spot)],
    }
    return rendered(
        "turnable", lidars=lidars, low=low, high=high + 0.3, open=min(OPEN, high + 0.3), at_wall=spot is not None,
        data=Markup(json.dumps(data)), script=Markup(Path(__file__).with_suffix(".js").read_text(encoding="utf-8")),
    )  # fmt: skip


def _cloud(side: str, points: np.ndarray, before: np.ndarray, after: np.ndarray) -> dict:
    reach = float(np.abs(points).max(initial=1e-3))
    scaled = np.round(points.astype(float) / reach * STEPS).astype("<i2")
    poses = {
        when: (pose @ np.diag([reach / STEPS] * 3 + [1.0])).T.ravel().tolist()  # column by column
        for when, pose in (("before", before), ("after", after))
    }
    colour = [round(value / 255, 3) for value in COLOURS[side]]
    return {"name": side, "points": base64.b64encode(scaled.tobytes()).decode(), "colour": colour, **poses}


def _chosen(points: np.ndarray, spot: np.ndarray | None) -> np.ndarray:
    """Return the indices of the points (N, 3) to show: those at the spot, then evenly over the surfaces' cells."""
    count = MOST_POINTS // len(SIDES)
    _, cell, counts = np.unique(voxel_keys(points, CELL), return_inverse=True, return_counts=True)
    number = rank_in_cell(cell, counts)
    if spot is not None:
        away = np.abs(points - spot)
        near = np.flatnonzero((away[:, :2].max(axis=1) < SPOT[0]) & (away[:, 2] < SPOT[1]))
        number[near[: count // 10]] = -1
    return np.sort(np.argsort(number, kind="stable")[:count])
