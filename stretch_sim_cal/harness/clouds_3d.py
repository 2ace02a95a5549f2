"""A run in 3D: the clouds that it keeps for its pictures, as a part of a page that a user can turn, and its files in
the view (`view.py`) as they are written."""

import base64
import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup

from stretch_sim_cal.calibration.body.model import load_body_shape_model
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.checks import changes
from stretch_sim_cal.calibration.mounts.file import left_pose, stored_mounts
from stretch_sim_cal.calibration.observations import Observations, load_beside
from stretch_sim_cal.calibration.room import VERDICTS
from stretch_sim_cal.calibration.zones import Zones
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import version_of
from stretch_sim_cal.geometry.points import rank_in_cell, voxel_keys
from stretch_sim_cal.geometry.transforms import apply, inverse
from stretch_sim_cal.harness.pages import rendered
from stretch_sim_cal.harness.processes import Echo, RunFiles
from stretch_sim_cal.harness.verdict import load_truth
from stretch_sim_cal.recording.dataset import CLOUD_POSE, METADATA, cloud_name, read_dataset
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.kinematics import link_transforms
from stretch_sim_cal.robot.profile import profile_called
from stretch_sim_cal.robot.surfaces import robot_surfaces
from stretch_sim_cal.view import LIDARS, View

MOST_POINTS = 50_000  # of all clouds
CELL = 0.1  # m
SPOT = (0.5, 0.1)  # m, sideways and up: so near to the spot all points are shown that there are, up to a tenth of all
STEPS = 32767  # from 0 to the farthest coordinate
OPEN = 1.8  # m: without the ceiling one looks into the room
COLOURS = tuple(f"#{bytes(colour).hex()}" for colour in LIDARS)
BOUND = 0.98  # of the points lie within the first view: a return through a window lies far out
OUTLINE_CORNERS = 180

ByLidar = Mapping[str, np.ndarray]
"""Points (N, 3) or poses (4, 4) by the lidars' names, the left one first."""


@dataclass(frozen=True)
class CapturedClouds:
    """Returns (N, 3) or (N, 5) in the lidars' frames, and the described base_link_from_lidar (4, 4)."""

    returns: ByLidar
    described: ByLidar

    @classmethod
    def load(cls, files: RunFiles) -> "CapturedClouds":
        """Return the clouds of a run or a session; described poses that were not kept with them are the simulator's.
        Raises `InputError` if there are none."""
        if not files.clouds.is_file():
            raise InputError("no clouds were captured")
        with np.load(files.clouds, allow_pickle=False) as arrays:
            kept = dict(arrays)
        poses = {key.removeprefix(CLOUD_POSE): pose for key, pose in kept.items() if key.startswith(CLOUD_POSE)}
        poses = poses or load_truth(files.truth).nominal_base_from_lidar
        return cls({name: kept[cloud_name(name)] for name in poses}, poses)

    def points(self, known: Observations | None = None) -> dict[str, np.ndarray]:
        """Return the points (N, 3) by lidar, without the lidars' own errors if these are `known` (see `usable`)."""
        return {name: known.corrected(name, own) if known else own[:, :3] for name, own in self.returns.items()}

    def usable(self, known: Observations | None) -> Observations | None:
        """Return observations if they can correct these returns: both know the rings."""
        rings = all(cloud.shape[1] >= 5 for cloud in self.returns.values())
        return known if known is not None and known.by_ring and rings else None

    def poses(self, file: CalibrationFile) -> dict[str, np.ndarray]:
        """Return base_link_from_lidar (4, 4) of the calibrated lidars. Raises `InputError` if, of several, only the
        left one is."""
        first, *others = self.returns
        left = left_pose(file, self.described[first])
        poses = {first: left} | {name: left @ file.to_left[name] for name in others if name in file.to_left}
        if others and len(poses) == 1:
            raise InputError("the lidars are not aligned")
        return poses

    def poses_before(self, old: CalibrationFile | None = None) -> dict[str, np.ndarray]:
        """Return the poses as described, or relative to the left lidar by an `old` calibration where that has them."""
        to_left = {} if old is None else old.to_left
        left = self.described["left"]
        return {name: left @ to_left[name] if name in to_left else self.described[name] for name in self.returns}


def placed(points: ByLidar, poses: ByLidar) -> dict[str, np.ndarray]:
    """Return the points (N, 3) in base_link of the lidars whose poses are given."""
    return {name: apply(pose, points[name]) for name, pose in poses.items()}


def turnable(clouds: ByLidar, before: ByLidar, after: ByLidar, spot: np.ndarray | None) -> str:
    """Return HTML that `clouds_3d.js` draws by WebGL, without a network: the clouds (N, 3) by lidar, each in its frame
    as 16-bit numbers, with base_link_from_lidar (4, 4) before and after (a lidar without the latter is left out), and
    the place `spot` (3,) in base_link that shows the difference best. Raises `InputError` without points."""
    in_base = placed(clouds, after)
    colours = dict(zip(after, itertools.cycle(COLOURS)))
    every = np.concatenate(list(in_base.values()))
    if not len(every):
        raise InputError("the captured clouds have no returns")
    low, high = (round(float(np.quantile(every[:, 2], share)), 2) for share in (1.0 - BOUND, BOUND))
    count = MOST_POINTS // len(after)
    data = {
        "clouds": [
            _cloud(name, clouds[name][_chosen(points, spot, count)], before[name], after[name], colours[name])
            for name, points in in_base.items()
        ],
        "reach": round(float(np.quantile(np.linalg.norm(every[:, :2], axis=1), BOUND)), 2),
        "spot": [round(float(value), 3) for value in (np.zeros(3) if spot is None else spot)],
    }
    return rendered(
        "turnable", colours=colours, low=low, high=high + 0.3, open=min(OPEN, high + 0.3), at_wall=spot is not None,
        data=Markup(json.dumps(data)), script=Markup(Path(__file__).with_suffix(".js").read_text(encoding="utf-8")),
    )  # fmt: skip


def _cloud(name: str, points: np.ndarray, before: np.ndarray, after: np.ndarray, colour: str) -> dict:
    reach = float(np.abs(points).max(initial=1e-3))
    scaled = np.round(points.astype(float) / reach * STEPS).astype("<i2")
    poses = {
        when: (pose @ np.diag([reach / STEPS] * 3 + [1.0])).T.ravel().tolist()  # column by column
        for when, pose in (("before", before), ("after", after))
    }
    shade = [round(value / 255, 3) for value in bytes.fromhex(colour[1:])]
    return {"name": name, "points": base64.b64encode(scaled.tobytes()).decode(), "colour": shade, **poses}


def _chosen(points: np.ndarray, spot: np.ndarray | None, count: int) -> np.ndarray:
    """Return the indices of at most `count` points (N, 3): those at the spot, then evenly over the surfaces' cells."""
    _, cell, counts = np.unique(voxel_keys(points, CELL), return_inverse=True, return_counts=True)
    number = rank_in_cell(cell, counts)
    if spot is not None:
        away = np.abs(points - spot)
        near = np.flatnonzero((away[:, :2].max(axis=1) < SPOT[0]) & (away[:, 2] < SPOT[1]))
        number[near[: count // 10]] = -1
    return np.sort(np.argsort(number, kind="stable")[:count])


def show_described(view: View, seen: CapturedClouds) -> None:
    view.clouds("before", placed(seen.points(), seen.poses_before()))


def show_calibrated(view: View, seen: CapturedClouds, file: CalibrationFile) -> None:
    """Show the clouds, the patches and the floor under a calibration that holds an alignment."""
    known, poses = load_beside(file), seen.poses(file)
    points = placed(seen.points(seen.usable(known)), poses)
    view.clouds("after", points)
    if known is not None and known.patches is not None:
        verdicts = [VERDICTS[number] for number in known.patches.verdicts]
        view.patches(apply(poses["left"], known.patches.centres), known.patches.gaps, verdicts)
    if file.footprint_from_base is not None:
        in_base = np.vstack(list(points.values()))
        view.floor(apply(file.footprint_from_base, in_base), inverse(file.footprint_from_base))


class RunView:
    """Shows a run in `view` from its `files`; the `robot`'s profile is by default the truth's, or the Stretch."""

    def __init__(self, view: View, files: RunFiles, robot: str | None = None):
        self._view, self._files, self._robot = view, files, robot
        self._shown: dict[Path, tuple] = {}

    def after(self, echo: Echo) -> Echo:
        """Return an echo of processes that looks at the files after every one of them."""

        def look(process, line: str | None) -> None:
            echo(process, line)
            if line is None:
                self.update()

        return look

    def update(self) -> None:
        """Show new files; one that cannot be read gets a line in the log."""
        for path, show in (
            (self._files.clouds, self._clouds),
            (self._files.calibration, self._calibration),
            (self._files.mounts_dataset / METADATA, lambda: self._poses(self._files.mounts_dataset)),
            (self._files.body_shape_model, self._body_shape),
        ):
            version = version_of(path)
            if version in (None, self._shown.get(path)):
                continue
            self._shown[path] = version
            try:
                show()
            except InputError as error:
                self._view.say(str(error), level="WARN")

    def _clouds(self) -> None:
        self._view.stage("described")
        show_described(self._view, CapturedClouds.load(self._files))

    def _calibration(self) -> None:
        file = CalibrationFile.load(self._files.calibration)
        mounts = stored_mounts(file)
        stage = "mounts" if mounts is not None else "floor" if file.floor_plane is not None else "alignment"
        self._view.stage(stage)
        for known in changes(file, file):  # a file against itself: each part's own uncertainty
            if known.after is not None:
                self._view.series(f"{known.what}_mm", 1e3 * known.after[0])
                self._view.series(f"{known.what}_deg", float(np.degrees(known.after[1])))
        if file.to_left:
            show_calibrated(self._view, CapturedClouds.load(self._files), file)

    def _poses(self, folder: Path):
        """Show the robot's model in the poses of a dataset; return that."""
        dataset = read_dataset(folder)
        robot = load_truth(self._files.truth).robot if self._files.truth.is_file() else self._robot
        profile = profile_called(robot)
        model = load_model(dataset.description_file, mesh_folders=profile.description.packages)
        surfaces = {link: (s.vertices, s.faces) for link, s in robot_surfaces(model, profile).items() if len(s.faces)}
        self._view.robot(surfaces)
        for number, sample in enumerate(dataset.samples):
            placed = link_transforms(model, sample.joints, [*surfaces, profile.base_frame])
            base_from_root = inverse(placed[profile.base_frame])
            self._view.pose(number, {link: base_from_root @ placed[link] for link in surfaces})
        return dataset

    def _body_shape(self) -> None:
        model = load_body_shape_model(self._files.body_shape_model)
        self._view.stage("body_shape")
        dataset = self._poses(self._files.dataset)
        for number, sample in enumerate(dataset.samples):
            shape = model.shape_for(sample.commanded)
            zones = Zones.around(shape)
            self._view.pose(number, {})
            self._view.body(sample.points, shape.outline(OUTLINE_CORNERS), zones.outer.outline(OUTLINE_CORNERS))
