"""Whether the room is clear around everything that the arm is going to sweep over, before (`Sweep`) and while it moves
(`RoomWatch`); and the part of a scan around the robot."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import minimum_filter
from scipy.spatial import cKDTree

from stretch_sim_cal.collection.plan import Pose, samples_between
from stretch_sim_cal.collection.settings import CollectionSettings
from stretch_sim_cal.geometry.points import voxel_keys
from stretch_sim_cal.geometry.rays import RangeImage
from stretch_sim_cal.geometry.transforms import apply
from stretch_sim_cal.robot.kinematics import link_transforms
from stretch_sim_cal.robot.model import RobotModel
from stretch_sim_cal.robot.profile import RobotProfile
from stretch_sim_cal.robot.surfaces import outline_surfaces, surface_points

ROBOT_WITHIN = 0.25  # m from the robot as it stands, within which points belong to it
FLOOR_WITHIN = 0.08  # m; lower points are floor: the plan keeps the arm off it
SPACING = 0.03  # m between the points on surfaces
ENOUGH = 5  # points that are no noise
# Of a capture: heights (m) down to which points are kept, and up to which they are thinned as floor, well below where
# an outline begins to count (0.06 m).
BELOW_FLOOR, THINNED_AS_FLOOR = 0.5, 0.04
# Of the room that is watched.
CELL = np.deg2rad(2.0)  # of a direction; coarser than the rows of any lidar that is used
NEARER = 0.3  # m in front of the range before: more than noise, mixed pixels, and a robot that rocks on its wheels
REACH = 2.0  # m from the base's axis: the arm's 1.1 m, and a step
HEIGHTS = (0.15, 2.1)  # m above the floor
OWN = 0.12  # m from the model, with extrinsics errors of up to a few cm and 2 deg
COLUMN = 0.5  # m, edge of the square on the floor for one person
# Directions with such a return in one square: a person at 2 m fills over a hundred of two lidars', a hand about ten.
ENOUGH_DIRECTIONS = 10
LOOKS = 2  # one after the other


@dataclass(frozen=True)
class Obstacle:
    """The number of points in the robot's way, and the nearest one (3,) in base_footprint."""

    count: int
    nearest: np.ndarray


class Sweep:
    """The robot's surfaces, as points. Joints (m, rad) are by the driver's names for commanded ones, by the
    description's for others (see `RobotProfile.commanded_positions`); names that the model lacks do not matter."""

    def __init__(self, model: RobotModel, profile: RobotProfile):
        self._model, self._profile = model, profile
        arm = dict.fromkeys(profile.commands.values(), 0.0)
        moving = model.moved_by(profile.joint_positions(model, arm).keys())
        surfaces = outline_surfaces(model, profile)
        self._points = {link: surface_points(surface, SPACING) for link, surface in surfaces.items()}
        self._moving = [link for link in self._points if link in moving]

    def at(self, joints: Mapping[str, float], links: Sequence[str] | None = None) -> np.ndarray:
        """Return points (N, 3) on the surfaces of `links` (default: all) with the joints at these positions."""
        links = list(self._points) if links is None else links
        positions = self._profile.joint_positions(self._model, joints)
        known = {name: value for name, value in positions.items() if name in self._model.joints}
        transforms = link_transforms(self._model, known, links)
        return np.concatenate([apply(transforms[link], self._points[link]) for link in links])

    def foreign(self, points: np.ndarray, joints: Mapping[str, float], within: float = ROBOT_WITHIN) -> np.ndarray:
        """Return which of the points (N, 3) are further than `within` (m) from the robot (N,)."""
        return cKDTree(self.at(joints)).query(points, distance_upper_bound=within)[0] == np.inf

    def obstacle(
        self, points: np.ndarray, tour: list[Pose], joints: Mapping[str, float], clearance: float
    ) -> Obstacle | None:
        """Return which of `points` (N, 3), seen with the arm at the tour's first pose, come closer than `clearance` (m)
        to the model on the tour; `joints` has the others. Points near the robot as it stands are taken to be on it.
        What the lidars do not see (behind the robot, below a table top) is not found."""

        def joints_in(pose: Pose) -> dict[str, float]:
            return dict(joints) | dict(zip(self._profile.commands.values(), pose, strict=False))

        points = points[points[:, 2] > FLOOR_WITHIN]
        foreign = points[self.foreign(points, joints_in(tour[0]))]
        if not len(foreign):
            return None
        tree, nearest = cKDTree(foreign), np.full(len(foreign), np.inf)  # m from the robot, of those in its way
        dense = (
            pose
            for a, b in itertools.pairwise(tour)
            for pose in (a, *samples_between(a, b, max(clearance, 0.05), self._profile), b)
        )
        for pose in {tuple(round(value, 3) for value in pose): pose for pose in dense}.values():
            distances, indices = tree.query(self.at(joints_in(pose), self._moving), distance_upper_bound=clearance)
            near = distances < clearance
            np.minimum.at(nearest, indices[near], distances[near])
        count = np.count_nonzero(np.isfinite(nearest))
        return Obstacle(count, foreign[np.argmin(nearest)]) if count >= ENOUGH else None


def cropped(points: np.ndarray, footprint_from_lidar: np.ndarray, settings: CollectionSettings) -> np.ndarray:
    """Return those of a lidar's returns (N, 3 or 5), in its frame, that are around the robot, downsampled to one in
    every cube of edge `cell`; of the floor, most of the returns and none of the outline, of edge `floor_cell`."""
    seen = apply(footprint_from_lidar, points[:, :3])
    near = np.hypot(seen[:, 0], seen[:, 1]) <= settings.crop_radius
    near &= (seen[:, 2] >= -BELOW_FLOOR) & (seen[:, 2] <= settings.crop_height)
    points, height = points[near], seen[near, 2]
    floor = np.abs(height) < THINNED_AS_FLOOR
    kept = [_one_per_cell(points[floor], settings.floor_cell), _one_per_cell(points[~floor], settings.cell)]
    return np.concatenate(kept)


def _one_per_cell(points: np.ndarray, cell: float) -> np.ndarray:
    _, first = np.unique(voxel_keys(points[:, :3], cell), return_index=True)
    return points[np.sort(first)]


class RoomWatch:
    """Learns the nearest range of each lidar in every direction before the arm moves, then looks for returns well in
    front of it that are not near the robot's model. An intruder from a region that no lidar saw before is not detected:
    this is no safety function, and does not replace the hand at the run-stop. Clouds (N, 3 or 5), each in its lidar's
    frame, and `footprint_from_lidar` (4, 4) are by lidar."""

    def __init__(self, model: RobotModel, footprint_from_lidar: Mapping[str, np.ndarray], profile: RobotProfile):
        self._sweep = Sweep(model, profile)
        self._poses = dict(footprint_from_lidar)
        self._images = {name: RangeImage(CELL) for name in self._poses}
        self._seen = 0

    def learn(self, clouds: Mapping[str, np.ndarray]) -> None:
        for name, cloud in clouds.items():
            self._images[name].add(cloud)

    def look(self, clouds: Mapping[str, np.ndarray], states: Sequence[Mapping[str, float]]) -> np.ndarray | None:
        """Return the place (2,) in base_footprint (m) of an intruder in clouds that were scanned while the joints (as
        of `Sweep`) went through `states`; None until it was seen in `LOOKS` looks one after the other."""
        found = self._new(clouds, states)
        self._seen = 0 if found is None else self._seen + 1
        return found if self._seen >= LOOKS else None

    def _new(self, clouds: Mapping[str, np.ndarray], states: Sequence[Mapping[str, float]]) -> np.ndarray | None:
        points, cells = [], []
        for number, (name, cloud) in enumerate(clouds.items()):
            image = self._images[name]
            directions, ranges = image.cells(cloud)
            allowed = minimum_filter(image.nearest, size=3, mode=("wrap", "nearest")).reshape(-1)
            chosen = np.flatnonzero(ranges < allowed[directions] - NEARER)
            seen = apply(self._poses[name], cloud[chosen, :3])
            near = np.hypot(seen[:, 0], seen[:, 1]) < REACH
            near &= (seen[:, 2] > HEIGHTS[0]) & (seen[:, 2] < HEIGHTS[1])
            points.append(seen[near])
            cells.append(directions[chosen][near] + number * image.nearest.size)
        where, which = np.concatenate(points), np.concatenate(cells)
        if len(where) < ENOUGH_DIRECTIONS:
            return None
        for joints in states:
            foreign = self._sweep.foreign(where, joints, OWN)
            where, which = where[foreign], which[foreign]
        squares = np.floor(where[:, :2] / COLUMN).astype(np.int64)
        for square in np.unique(squares, axis=0):
            # With its neighbours on two sides, so that people on a border are not missed.
            inside = ((squares - square >= 0) & (squares - square <= 1)).all(axis=1)
            if len(np.unique(which[inside])) >= ENOUGH_DIRECTIONS:
                return where[inside, :2].mean(axis=0)
        return None
