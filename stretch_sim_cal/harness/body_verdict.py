"""The fitted body shape against the robot's true outline at every pose of the collection."""

from pathlib import Path

import numpy as np

from stretch_sim_cal.calibration.body.model_file import load_body_shape_model
from stretch_sim_cal.calibration.body.shape import enclosing_shape
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.points import convex_hull
from stretch_sim_cal.geometry.transforms import apply
from stretch_sim_cal.harness.truth import Truth
from stretch_sim_cal.harness.verdict import StageVerdict, stage_quantities
from stretch_sim_cal.recording.dataset import read_dataset
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.kinematics import link_transforms
from stretch_sim_cal.robot.surfaces import robot_surfaces

LOWEST, HIGHEST = 0.06, 1.6
"""What counts as body, in m above the floor: below it wheels and base touch the floor's noise, above it nothing is met."""


class TrueOutlines:
    """The outline of the simulated robot, payload included, projected onto the true floor."""

    def __init__(self, truth: Truth):
        self._model = load_model(truth.description_file)
        self._surfaces = robot_surfaces(self._model)
        self._footprint_from_base = truth.footprint_from_base_link

    def at(self, joints: dict[str, float]) -> np.ndarray:
        """Return the corners (K, 2) of the convex outline in base_footprint at these joint values (by URDF name)."""
        known = {name: value for name, value in joints.items() if name in self._model.joints}
        transforms = link_transforms(self._model, known)
        footprint_from_root = self._footprint_from_base @ np.linalg.inv(transforms["base_link"])
        corners = [
            _between_heights(apply(footprint_from_root @ transforms[link], surface.vertices)[surface.faces])
            for link, surface in self._surfaces.items()
        ]
        return convex_hull(np.vstack(corners))


def _between_heights(triangles: np.ndarray) -> np.ndarray:
    """Return (x, y) of every corner (M, 2) of triangles (F, 3, 3) cut to the heights that count as body."""
    parts = [triangles.reshape(-1, 3)]
    start, end = triangles.reshape(-1, 3), triangles[:, [1, 2, 0]].reshape(-1, 3)
    for height in (LOWEST, HIGHEST):
        crossing = (start[:, 2] - height) * (end[:, 2] - height) < 0
        a, b = start[crossing], end[crossing]
        share = (height - a[:, 2]) / (b[:, 2] - a[:, 2])
        parts.append(a + share[:, None] * (b - a))
    points = np.vstack(parts)
    inside = (points[:, 2] >= LOWEST - 1e-9) & (points[:, 2] <= HIGHEST + 1e-9)
    return points[inside, :2]


def judge_body_shape(model_file: Path, dataset: Path, truth: Truth, tolerances: dict[str, float]) -> StageVerdict:
    """Hold a fitted body shape against the true outline at the joint values of every sample.

    Protrusion is how far the true outline reaches outside the shape for that pose. The excess area ratio is the fitted
    area over that of the smallest shape of the same kind around the true outlines that it stands for (those of all
    poses with the same grid point), the largest over the grid.
    """
    model = load_body_shape_model(model_file)
    poses = posed_outlines(model_file, dataset, truth)
    if not poses:
        raise InputError(f"{dataset}: holds no sample")
    groups: dict[tuple[float, ...], list[dict]] = {}
    for pose in poses:
        groups.setdefault(tuple(np.round(pose["fitted"].vector, 9)), []).append(pose)
    ratios = []
    for group in groups.values():
        smallest = enclosing_shape(np.vstack([pose["truth"] for pose in group]), model.shape_fitting_method)
        ratios.append(group[0]["fitted"].area / smallest.area)
    worst = max(pose["protrusion"] for pose in poses)
    return StageVerdict(
        "body_shape",
        stage_quantities(
            "body_shape",
            tolerances,
            max_protrusion_mm=(1e3 * worst, f"{len(poses)} poses", "nothing outside"),
            excess_area_ratio=(max(ratios), f"{len(groups)} shapes", f"smallest {model.shape_fitting_method}"),
        ),
    )


def posed_outlines(model_file: Path, dataset: Path, truth: Truth) -> list[dict]:
    """Return for every sample its `title`, true outline `truth` (K, 2), returns `points` (N, 2), fitted shape
    `fitted`, its boundary `shape` (M, 2) and `protrusion` in m."""
    model = load_body_shape_model(model_file)
    outlines = TrueOutlines(truth)
    poses = []
    for sample in read_dataset(dataset).samples:
        fitted = model.shape_at(sample.commanded["arm"], sample.commanded["wrist_yaw"])
        outline = outlines.at(sample.joints)
        body = (sample.points[:, 2] > LOWEST) & (sample.points[:, 2] < HIGHEST)
        near = body & (np.hypot(sample.points[:, 0], sample.points[:, 1]) < 1.5)
        poses.append({
            "title": f"arm {sample.commanded['arm']:.2f} m, yaw {np.degrees(sample.commanded['wrist_yaw']):.0f} deg, "
                     f"lift {sample.commanded['lift']:.2f} m",
            "truth": outline,
            "points": sample.points[near, :2],
            "fitted": fitted,
            "shape": fitted.outline(200),
            "protrusion": fitted.protrusion(outline),
        })  # fmt: skip
    return poses
