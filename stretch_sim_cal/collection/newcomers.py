"""Detects intruders while the arm moves: returns from space that the lidars saw free before.

The base stands still, so each lidar keeps, for every direction, the nearest range that it measured before the arm
moved. A return well in front of that is from a new object; returns near the robot's model, at its present joints, are
the robot's. An intruder from a region that no lidar saw before (behind the robot, above it) is not detected: this is no
safety function, and does not replace the hand at the run-stop.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import minimum_filter
from scipy.spatial import cKDTree

from stretch_sim_cal.collection.clearance import Sweep
from stretch_sim_cal.collection.plan import Pose
from stretch_sim_cal.geometry.rays import RangeImage
from stretch_sim_cal.geometry.transforms import apply
from stretch_sim_cal.robot.model import RobotModel
from stretch_sim_cal.robot.profile import RobotProfile

CELL = np.deg2rad(2.0)  # of a direction; coarser than the rows of any lidar that is used
NEARER = 0.3  # m in front of the range before: more than noise, mixed pixels, and a robot that rocks on its wheels
REACH = 2.0  # m from the base's axis: the arm's 1.1 m, and a step
HEIGHTS = (0.15, 2.1)  # m above the floor
OWN = 0.12  # m from the model, with extrinsics errors of up to a few cm and 2 deg
COLUMN = 0.5  # m, edge of the square on the floor in which somebody stands
# Directions with such a return in one square: somebody at 2 m fills over a hundred of two lidars', a hand about ten.
ENOUGH = 10
LOOKS = 2  # one after the other


@dataclass(frozen=True)
class Newcomer:
    """The place (x, y) of a new object in base_footprint, in m, and the number of directions in which it is seen."""

    place: np.ndarray
    directions: int


class RoomWatch:
    """Learns the room before the arm moves, then looks for newcomers. Clouds (N, 3 or 5), each in its lidar's frame,
    and `footprint_from_lidar` (4, 4) are by lidar, of any number of them."""

    def __init__(
        self, model: RobotModel, footprint_from_lidar: Mapping[str, np.ndarray], profile: RobotProfile | None = None
    ):
        self._sweep = Sweep(model, profile)
        self._poses = dict(footprint_from_lidar)
        self._images = {name: RangeImage(CELL) for name in self._poses}
        self._seen = 0

    def learn(self, clouds: Mapping[str, np.ndarray]) -> None:
        """Take a scan of each lidar of the room without intruders."""
        for name, cloud in clouds.items():
            self._images[name].add(cloud)

    def look(
        self, clouds: Mapping[str, np.ndarray], states: Sequence[tuple[Pose, Mapping[str, float]]]
    ) -> Newcomer | None:
        """Return the intruder in clouds that were scanned while the arm and the other joints went through `states`;
        None until it was seen in `LOOKS` looks one after the other."""
        found = self._new(clouds, states)
        self._seen = self._seen + 1 if found else 0
        return found if self._seen >= LOOKS else None

    def _new(
        self, clouds: Mapping[str, np.ndarray], states: Sequence[tuple[Pose, Mapping[str, float]]]
    ) -> Newcomer | None:
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
        if len(where) < ENOUGH:
            return None
        for pose, joints in states:
            robot = cKDTree(self._sweep.at(pose, joints))
            foreign = robot.query(where, distance_upper_bound=OWN)[0] == np.inf
            where, which = where[foreign], which[foreign]
        squares = np.floor(where[:, :2] / COLUMN).astype(np.int64)
        for square in np.unique(squares, axis=0):
            # With its neighbours on two sides, so that nobody is missed for standing on a border.
            inside = ((squares - square >= 0) & (squares - square <= 1)).all(axis=1)
            count = len(np.unique(which[inside]))
            if count >= ENOUGH:
                return Newcomer(where[inside, :2].mean(axis=0), count)
        return None
