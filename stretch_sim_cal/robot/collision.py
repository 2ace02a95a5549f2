"""Checks whether a robot comes closer to itself or to the floor than a margin."""

from collections.abc import Iterable, Iterator
from itertools import combinations

import fcl
import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.robot.kinematics import Positions, link_transforms, random_positions
from stretch_sim_cal.robot.model import Joint, RobotModel
from stretch_sim_cal.robot.surfaces import Surface, link_surfaces

FLOOR = "floor"  # name of the floor in a colliding pair
SAMPLES = 24  # configurations in which a pair must be too close every time to be taken as close by design


class SelfCollision:
    """Finds the links of a robot that come closer to each other than `margin` (m), by their collision shapes.

    Pairs close by design are left out: links that do not move against each other or are connected by one joint, parts
    of one telescope (only parallel prismatic joints between them, beside those of `still`), fingers that close (each on
    one joint of the same body, and too close at position zero), pairs too close in every one of some random
    configurations, and pairs between which only joints of `still` move. `floor` (m) is its height in the root's frame;
    only links are checked against it that other joints than those of `still` may raise."""

    def __init__(self, model: RobotModel, margin: float = 0.01, floor: float | None = None, still: Iterable[str] = ()):
        if not margin >= 0:
            raise InputError(f"the margin of a collision check is {margin}, it must be 0 or more")
        self.model, self.margin, self.floor, self._still = model, margin, floor, set(still)
        surfaces = link_surfaces(model, "collision")
        self.links = [link for link in model.order if link in surfaces]
        self._shapes = [_Shape(surfaces[link]) for link in self.links]
        if not self._shapes:
            raise InputError(f"robot '{model.name}' has no collision shapes, so collisions cannot be checked")
        self._centres, self._halves = (np.array([getattr(shape, part) for shape in self._shapes])
                                       for part in ("centre", "half"))  # fmt: skip
        self._pairs = self._pairs_to_check()
        # Links whose lowest point changes its height: wheels and the base stay on the floor.
        positions = random_positions(model, SAMPLES, seed=1)
        frames = self._frames({name: value for name, value in positions.items() if name not in self._still})
        self._above_floor = [i for i, shape in enumerate(self._shapes) if np.ptp(shape.lowest(frames[:, i])) > 1e-3]

    def colliding_pairs(self, positions: Positions) -> list[tuple[str, str]]:
        """Return the pairs of links closer than the margin in one configuration, with `FLOOR` for the floor."""
        frames = self._frames(positions)[0]
        found = [(self.links[a], self.links[b]) for a, b in self._close(frames, self._pairs)]
        return found + [(self.links[index], FLOOR) for index in np.flatnonzero(self._on_floor(frames))]

    def is_free(self, positions: Positions) -> bool:
        """Return whether nothing is closer than the margin; cheaper than listing the pairs."""
        return bool(self.free(positions)[0])

    def free(self, positions: Positions) -> np.ndarray:
        """Return in which of N configurations nothing is closer than the margin (N,)."""
        frames = self._frames(positions)
        result = ~self._on_floor(frames).any(axis=-1)
        for index in np.flatnonzero(result):
            result[index] = next(iter(self._close(frames[index], self._pairs)), None) is None
        return result

    def _frames(self, positions: Positions) -> np.ndarray:
        """Return root_from_link (N, L, 4, 4) of the links with shapes; N is 1 for one configuration."""
        transforms = link_transforms(self.model, positions, self.links)
        return np.stack([transforms[link].reshape(-1, 4, 4) for link in self.links], axis=1)

    def _close(self, frames: np.ndarray, pairs: np.ndarray) -> Iterator[tuple[int, int]]:
        """Yield which of the pairs (P, 2) are closer than the margin: boxes first, then triangles."""
        if not len(pairs):
            return
        centres = np.einsum("lij,lj->li", frames[:, :3, :3], self._centres) + frames[:, :3, 3]
        halves = np.einsum("lij,lj->li", np.abs(frames[:, :3, :3]), self._halves)
        first, second = pairs.T
        gaps = np.abs(centres[first] - centres[second]) - halves[first] - halves[second]
        near = pairs[(gaps < self.margin).all(axis=1)]
        for index in np.unique(near):
            self._shapes[index].object.setTransform(fcl.Transform(frames[index, :3, :3], frames[index, :3, 3]))
        for a, b in near:
            both = self._shapes[a].object, self._shapes[b].object
            if fcl.distance(*both) < self.margin if self.margin else fcl.collide(*both) > 0:
                yield int(a), int(b)

    def _on_floor(self, frames: np.ndarray) -> np.ndarray:
        result = np.zeros(frames.shape[:-2], dtype=bool)
        if self.floor is not None:
            for index in self._above_floor:
                lowest = self._shapes[index].lowest(frames[..., index, :, :])
                result[..., index] = lowest < self.floor + self.margin
        return result

    def _pairs_to_check(self) -> np.ndarray:
        between = {
            pair: [joint for joint in self.model.between(*(self.links[index] for index in pair)) if joint.variables]
            for pair in combinations(range(len(self.links)), 2)
        }
        ways = {
            pair: way for pair, way in between.items()
            if len(way) > 1 and not self._is_telescope(way) and not {joint.name for joint in way} <= self._still
        }  # fmt: skip
        fingers = {pair for pair, way in ways.items() if len(way) == 2 and not self._is_chain(pair, way)}
        by_design = set(self._close(self._frames({})[0], _as_array(fingers)))
        always = set(ways)
        for frames in self._frames(random_positions(self.model, SAMPLES, seed=0)):
            always = set(self._close(frames, _as_array(always)))
        return _as_array(set(ways) - by_design - always)

    def _is_chain(self, pair: tuple[int, int], way: list[Joint]) -> bool:
        """Return whether all moving joints between two links lie above one of them."""
        above = [{joint.name for joint in self.model.chain(self.links[index])} for index in pair]
        return any({joint.name for joint in way} <= each for each in above)

    def _is_telescope(self, way: list[Joint]) -> bool:
        way = [joint for joint in way if joint.name not in self._still]
        if not way or any(joint.type != "prismatic" for joint in way):
            return False
        # The axes are compared at position zero: prismatic joints do not turn each other.
        frames = link_transforms(self.model, {}, [joint.child for joint in way])
        directions = [frames[joint.child][:3, :3] @ joint.unit_axis for joint in way]
        return all(np.linalg.norm(np.cross(directions[0], direction)) < 1e-6 for direction in directions)


class _Shape:
    def __init__(self, surface: Surface):
        low, high = surface.vertices.min(axis=0), surface.vertices.max(axis=0)
        self.centre, self.half = (low + high) / 2, (high - low) / 2
        self.corners = surface.corners
        bounding = fcl.BVHModel()
        bounding.beginModel(len(surface.vertices), len(surface.faces))
        bounding.addSubModel(surface.vertices, surface.faces)
        bounding.endModel()
        self.object = fcl.CollisionObject(bounding)

    def lowest(self, frames: np.ndarray) -> np.ndarray:
        return (frames[..., 2, :3] @ self.corners.T).min(axis=-1) + frames[..., 2, 3]


def _as_array(pairs: Iterable[tuple[int, int]]) -> np.ndarray:
    return np.array(sorted(pairs), dtype=int).reshape(-1, 2)
