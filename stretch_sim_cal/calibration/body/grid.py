"""The grid of a body shape over arm extension and wrist yaw: evidence by grid point, refinement, and choice of minima.

Joints that the shape does not depend on are covered by the union over the samples and, if the outline is known at any
joint values, also over the values between them. The grid is refined if shapes interpolated between its points would
leave much of the robot outside.

The smallest capsule around a hull is one of several local minima, and which of them is the smallest changes abruptly
with the pose. Interpolating from one to another leaves the robot outside, so of minima with hardly more area those are
taken whose numbers change least: exactly along a line of the grid, by dynamic programming, and line after line along
both axes until none of them changes any more.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.points import convex_hull
from stretch_sim_cal.geometry.shapes import Shape, TaperedCapsule
from stretch_sim_cal.robot.profile import RobotProfile, stretch_profile

MAX_POSES = 200  # of one union; steps are widened if there would be more
SAME_VALUE = 1e-6
ROUNDING = 1e-8  # m: hulls are rounded to this, so that results do not depend on a processor's last bits
STRAIGHT = 1e-7  # m, by which a corner may be beside a straight edge

SHORTEST = {True: 0.02, False: np.deg2rad(4.0)}  # m, rad: steps along an axis are not divided into shorter ones
SPACING = {True: 0.03, False: np.deg2rad(5.0)}  # m, rad: the spacing at which the robot is compared with the shapes


@dataclass(frozen=True)
class BodyJoints:
    """The joints of a pose: their `names`, in the order of arrays of poses (N, J), how closely the union
    over each is taken (`steps`, m or rad), and the names of up to two of them (`axes`) that the shape
    follows; `linear` ones move in m.

    Of the Stretch: lift, arm (the whole extension), wrist yaw, pitch and roll; arm and wrist yaw are its axes.
    """

    names: tuple[str, ...]
    axes: tuple[str, ...]
    linear: frozenset[str]
    steps: tuple[float, ...]

    @classmethod
    def of(cls, profile: RobotProfile | None = None) -> "BodyJoints":
        """Return the planned joints of a robot's profile, by default the Stretch's."""
        profile = profile or stretch_profile()
        return cls(
            profile.planned_names, profile.shape_joints,
            frozenset(joint.name for joint in profile.planned if joint.linear),
            tuple(joint.step for joint in profile.planned),
        )  # fmt: skip

    def columns(self) -> tuple[int, int]:
        """Return the columns of the two axes in arrays of poses; one beyond the joints represents a missing axis."""
        found = [self.names.index(joint) for joint in self.axes]
        first, second = [*found, *range(len(self.names), len(self.names) + 2 - len(found))]
        return first, second

    def per_axis(self, values: Mapping[bool, float]) -> tuple[float, float]:
        """Return of each axis the value for joints that move in m (True), or for others."""
        first, second = [*(values[joint in self.linear] for joint in self.axes), values[False], values[False]][:2]
        return first, second

    def described(self, place: Sequence[float]) -> str:
        """Return a place on the axes in words."""
        words = zip(self.axes, place, strict=False)
        return (
            ", ".join(f"{joint} {value:.3f} {'m' if joint in self.linear else 'rad'}" for joint, value in words)
            or "the only pose"
        )


OutlinesAt = Callable[[Sequence[np.ndarray]], list[np.ndarray]]
"""Gives for sets of commanded poses (N, J) the corners (K, 2) of the hull around the robot in all poses of each set."""


@dataclass(frozen=True)
class PoseEvidence:
    """The area that the robot covers in one pose: points (K, 2) in base_footprint at the
    commanded values of its joints."""

    name: str
    commanded: Mapping[str, float]
    points: np.ndarray


class EvidenceGrid:
    """Hulls to enclose over extension and yaw; `axes` are the values that the samples were taken at.

    An axis that the shape is not to depend on, or that has one value only, has the first of its values.
    """

    def __init__(
        self,
        samples: Sequence[PoseEvidence],
        arm_dependent: bool = True,
        yaw_dependent: bool = True,
        outlines_at: OutlinesAt | None = None,
        joints: BodyJoints | None = None,
    ):
        self.joints = joints or BodyJoints.of()
        self._samples = list(samples)
        self._outlines_at = outlines_at
        self._columns = list(self.joints.columns())
        missing = 2 - len(self.joints.axes)
        values_of = ([sample.commanded[joint] for joint in self.joints.names] + missing * [0.0] for sample in samples)
        self._poses = np.array(list(values_of))
        self._dependent = np.array([arm_dependent, yaw_dependent])
        values = [_distinct(self._poses[:, joint]) for joint in self._columns]
        self._dependent &= [len(v) > 1 for v in values]
        self.axes = tuple(v if depends else v[:1] for v, depends in zip(values, self._dependent, strict=True))
        self._hulls: dict[tuple[float, float], np.ndarray] = {}
        self._unions: dict[tuple[tuple[float, float], ...], np.ndarray] = {}
        self.warnings = self._missing()

    def covered_ranges(self) -> dict[str, tuple[float, float]]:
        """Return the lowest and highest commanded value of every joint."""
        lowest, highest = self._poses.min(axis=0).tolist(), self._poses.max(axis=0).tolist()
        return {joint: (lowest[i], highest[i]) for i, joint in enumerate(self.joints.names)}

    def hulls(self, places: Sequence[tuple[float, float]]) -> list[np.ndarray]:
        """Return the hull at each of several (extension, yaw); the outlines of all are asked for at once."""
        new = [place for place in dict.fromkeys(_key(place) for place in places) if place not in self._hulls]
        known = None
        if new and self._outlines_at:
            count = len(self.joints.names)
            known = self._outlines_at([self._union_of_poses(place)[:, :count] for place in new])
        for index, place in enumerate(new):
            outline = known[index] if known is not None else np.empty((0, 2))
            seen = [self._samples[i].points for i in self._members(place)]
            self._hulls[place] = _settled_hull(np.concatenate([outline, *seen]))
        return [self._hulls[_key(place)] for place in places]

    def _members(self, place: tuple[float, float]) -> np.ndarray:
        """Return the indices of the samples that were taken at this place (at any, on axes without dependence)."""
        off = np.abs(self._poses[:, self._columns] - place) > SAME_VALUE
        return np.flatnonzero(~(off & self._dependent).any(axis=1))

    def _union_of_poses(self, place: tuple[float, float]) -> np.ndarray:
        """Return the poses (N, 5) whose outlines have to be enclosed together at this place.

        The other joints take the values of the samples at the grid points around it, and values between these.
        """
        corners = tuple((e, y) for e in _around(self.axes[0], place[0]) for y in _around(self.axes[1], place[1]))
        if corners not in self._unions:
            members = np.unique(np.concatenate([self._members(corner) for corner in corners]))
            poses = self._poses[members] if len(members) else self._poses.copy()
            poses[:, np.array(self._columns)[self._dependent]] = 0.0
            self._unions[corners] = with_values_between(np.unique(poses, axis=0), [*self.joints.steps, 1.0, 1.0])
        poses = self._unions[corners].copy()
        for joint, depends, at in zip(self._columns, self._dependent, place, strict=True):
            if depends:
                poses[:, joint] = at
        return poses

    def _missing(self) -> list[str]:
        """Return a warning for each grid point without a sample. Raises `InputError` if nothing stands in for it."""
        places = [(e, y) for e in self.axes[0] for y in self.axes[1] if not len(self._members((e, y)))]
        names = [self.joints.described(place) for place in places]
        if names and self._outlines_at is None:
            raise InputError(
                f"no sample at {'; '.join(names)}; collect it, or fit with the model's own surfaces as evidence"
            )
        return [f"no sample at {name}: the model's own surfaces alone stand for it" for name in names]


def _settled_hull(points: np.ndarray) -> np.ndarray:
    """Return the corners (K, 2) of the hull, the same ones whatever the last bits of the points (N, 2) are.

    Points are rounded to `ROUNDING`, and corners that are not a few times that beside a straight edge left out: on
    swept straight parts there are many, and whether one is a corner is a matter of the last bits.
    """
    corners = convex_hull(np.round(points / ROUNDING) * ROUNDING)
    while len(corners) > 3:
        before, after = np.roll(corners, 1, axis=0), np.roll(corners, -1, axis=0)
        edge, along = after - before, corners - before
        beside = np.abs(edge[:, 0] * along[:, 1] - edge[:, 1] * along[:, 0]) / np.hypot(*edge.T)
        flattest = int(np.round(beside / ROUNDING).argmin())
        if beside[flattest] > STRAIGHT:
            break
        corners = np.delete(corners, flattest, axis=0)
    return corners


def with_values_between(poses: np.ndarray, steps: Sequence[float]) -> np.ndarray:
    """Return poses (N, J) with others between neighbours, those that differ in one joint only, at `steps` or closer."""
    steps = np.array(steps)
    while True:
        filled = poses
        for joint in range(poses.shape[1]):
            filled = _filled_along(filled, joint, steps[joint])
        if len(filled) <= max(MAX_POSES, len(poses)):
            return np.unique(filled, axis=0)  # in an order in which joints that carry others move seldom
        steps = steps * 1.5


def _filled_along(poses: np.ndarray, joint: int, step: float) -> np.ndarray:
    others = np.delete(np.arange(poses.shape[1]), joint)
    order = np.lexsort((poses[:, joint], *poses[:, others].T))
    before, after = poses[order[:-1]], poses[order[1:]]
    gaps = after[:, joint] - before[:, joint]
    neighbours = (np.abs(after - before)[:, others] <= SAME_VALUE).all(axis=1) & (gaps > step * (1 + 1e-9))
    new = [poses]
    for start, end in zip(before[neighbours], after[neighbours], strict=True):
        count = int(np.ceil((end[joint] - start[joint]) / step - 1e-9))
        between = np.repeat(start[None], count - 1, axis=0)
        between[:, joint] = np.linspace(start[joint], end[joint], count + 1)[1:-1]
        new.append(between)
    return np.concatenate(new)


def _distinct(values: np.ndarray) -> list[float]:
    ordered = np.unique(values)
    return ordered[np.concatenate([[True], np.diff(ordered) > SAME_VALUE])].tolist()


def _around(axis: Sequence[float], at: float) -> list[float]:
    """Return the values of an increasing axis that a value lies between, or the one that it is at."""
    same = [value for value in axis if abs(value - at) <= SAME_VALUE]
    if same:
        return same
    after = int(np.clip(np.searchsorted(axis, at), 1, max(1, len(axis) - 1)))
    return [axis[after - 1], axis[min(after, len(axis) - 1)]]


def _key(place: tuple[float, float]) -> tuple[float, float]:
    return round(float(place[0]), 7), round(float(place[1]), 7)


AS_GOOD = 1.01  # an option of at most this much more area than the smallest is as good
CHANGE_COST = 0.5  # of a squared change (m^2), in shares of the area: 10 cm cost as much as half a percent
SWEEPS = 4
TIE = 9  # decimals of costs that are the same: of two the first is taken, whatever the last bits are


def most_alike(options: Sequence[Sequence[Shape]], count: int) -> list[Shape]:
    """Return one of the `options` of each grid point, which are row by row, `count` to a row, the smallest first.

    Ends, axes and vertices are named so that the numbers are most like those of the grid points beside.
    """
    if not isinstance(options[0][0], TaperedCapsule):
        shapes = [shapes[0] for shapes in options]
        for index in range(1, len(shapes)):
            if hasattr(shapes[index], "like"):
                shapes[index] = shapes[index].like(shapes[index - 1 if index % count else index - count])
        return shapes
    forms = [_forms(capsules) for capsules in options]
    chosen = _chosen_forms(forms, count)
    capsules = [TaperedCapsule.from_vector(vectors[k]) for (vectors, _), k in zip(forms, chosen, strict=True)]
    return _with_inner_discs(capsules, count)


def _forms(capsules: Sequence[TaperedCapsule]) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers (F, 6) of the capsules that are as good as the first, ends in both orders, and the costs
    (F,)."""
    good = [capsule for capsule in capsules if capsule.area <= AS_GOOD * capsules[0].area]
    forms = [form for capsule in good for form in (capsule, capsule.swapped())]
    return np.array([form.vector for form in forms]), np.array([form.area / capsules[0].area - 1 for form in forms])


def _chosen_forms(forms: list[tuple[np.ndarray, np.ndarray]], count: int) -> np.ndarray:
    """Return which form is taken at each grid point."""
    index = np.arange(len(forms)).reshape(-1, count)
    rows, columns = list(index), list(index.T)
    chosen = np.zeros(len(forms), dtype=int)
    settled = np.zeros(len(forms), dtype=bool)
    for _ in range(SWEEPS):
        before = chosen.copy()
        for line, across in [(row, count) for row in rows] + [(column, 1) for column in columns]:
            costs = [forms[i][1] + _change_from_beside(i, across, forms, chosen, settled, count) for i in line]
            chosen[line] = _cheapest_path(costs, [forms[i][0] for i in line])
            settled[line] = True
        if (chosen == before).all():
            break
    return chosen


def _change_from_beside(index, across, forms, chosen, settled, count) -> np.ndarray:
    """Return the cost of each form of a grid point for its change from those beside its line, if these are settled."""
    cost = np.zeros(len(forms[index][1]))
    for other in (index - across, index + across):
        in_grid = 0 <= other < len(forms) and (across == count or other // count == index // count)
        if in_grid and settled[other]:
            cost += _change(forms[index][0], forms[other][0][[chosen[other]]])[:, 0]
    return cost


def _cheapest_path(costs: list[np.ndarray], vectors: list[np.ndarray]) -> list[int]:
    """Return the form of each point of a line so that its costs and changes are least together (Viterbi)."""
    total, came_from = costs[0], []
    for before, after, cost in zip(vectors[:-1], vectors[1:], costs[1:], strict=True):
        through = total[:, None] + _change(before, after)
        came_from.append(np.round(through, TIE).argmin(axis=0))
        total = through.min(axis=0) + cost
    path = [int(np.round(total, TIE).argmin())]
    for previous in reversed(came_from):
        path.append(int(previous[path[-1]]))
    return path[::-1]


def _change(some: np.ndarray, others: np.ndarray) -> np.ndarray:
    return CHANGE_COST * ((some[:, None] - others) ** 2).sum(axis=2)


def _with_inner_discs(capsules: list[TaperedCapsule], count: int) -> list[TaperedCapsule]:
    """Return the capsules; of those that are circles the second disc, which is free, like that of one beside."""
    result = list(capsules)
    for order in (range(len(result)), reversed(range(len(result)))):
        for index in order:
            step = 1 if isinstance(order, range) else -1
            beside = [i for i in (index - step, index - step * count) if 0 <= i < len(result)]
            beside = [
                i
                for i in beside
                if not result[i].is_circle and (i // count == index // count or i % count == index % count)
            ]
            if result[index].is_circle and beside:
                result[index] = result[index].like(result[beside[0]])
    return result


Axes = tuple[list[float], list[float]]
"""Increasing values along both axes of the grid; of the Stretch arm extension (m) and wrist yaw (rad)."""
Hulls = Callable[[Sequence[tuple[float, float]]], list[np.ndarray]]
"""Gives for places (extension, yaw) the corners (K, 2) of the hull to enclose there."""
REFINEMENTS, MOST_PARTS = 4, 4
Fit = Callable[..., list[Shape]]
"""Gives for a place, the hull to enclose there and the shapes beside it the possible shapes, the smallest first."""


def refined(
    axes: Axes, fit: Fit, hulls: Hulls, above: float, max_grid_points: int, shortest: tuple[float, float]
) -> tuple[Axes, list[Shape]]:
    """Return the axes with values added if a shape halfway would have to be inflated by more than `above` (m), and
    the shapes at all grid points, row by row.

    The protrusion halfway falls with the square of the step, so a step is divided as often as needed; if the best shape
    changes abruptly it falls more slowly, so this is repeated. The worst steps come first, as long as
    the grid keeps to `max_grid_points`; steps shorter than `shortest` (m, rad, by axis) are left.
    """
    fitted: dict[tuple[float, float], list[Shape]] = {}
    axes, shapes = with_shapes(axes, fit, hulls, fitted)
    for _ in range(REFINEMENTS):
        wanted = _missing_halfway(axes, shapes, hulls)
        parts = _shares(axes, wanted, above, max_grid_points, shortest)
        if all((part == 1).all() for part in parts):
            break
        axes = tuple(divided(values, part) for values, part in zip(axes, parts, strict=True))
        axes, shapes = with_shapes(axes, fit, hulls, fitted)
    return axes, shapes


def with_shapes(axes: Axes, fit: Fit, hulls: Hulls, fitted: dict | None = None) -> tuple[Axes, list[Shape]]:
    """Return the axes and the shapes at their grid points, row by row; those that `fitted` does not hold yet are
    fitted, with those beside them as first guesses."""
    fitted = {} if fitted is None else fitted
    places = grid_points(axes)
    pairs = neighbours(axes)
    for index, (place, hull) in enumerate(zip(places, hulls(places), strict=True)):
        if place not in fitted:
            beside = [places[other] for other in pairs[pairs[:, ::-1] == index]]
            fitted[place] = fit(place, hull, [fitted[other][0] for other in beside if other in fitted])
    return axes, most_alike([fitted[place] for place in places], len(axes[1]))


def _shares(
    axes: Axes, wanted: list[tuple[float, int, int]], above: float, max_grid_points: int, shortest: tuple[float, float]
) -> list[np.ndarray]:
    """Return into how many parts each step of each axis is divided: one more for the one that is still worst, over and
    over, until none is worse than `above` or the grid is full."""
    parts = [np.ones(len(values) - 1, dtype=int) for values in axes]
    queue = [(-protrusion, axis, index) for protrusion, axis, index in wanted]
    heapq.heapify(queue)
    while queue and -queue[0][0] > above:
        missing, axis, index = heapq.heappop(queue)
        count = parts[axis][index] + 1
        step = axes[axis][index + 1] - axes[axis][index]
        sizes = [int(part.sum()) + 1 + (number == axis) for number, part in enumerate(parts)]
        if count <= MOST_PARTS and step / count >= shortest[axis] and sizes[0] * sizes[1] <= max_grid_points:
            parts[axis][index] = count
            heapq.heappush(queue, (missing * ((count - 1) / count) ** 2, axis, index))
    return parts


def _missing_halfway(axes: Axes, shapes: list[Shape], hulls: Hulls) -> list[tuple[float, int, int]]:
    """Return for each step of each axis how far the robot sticks out halfway at most (m), the axis and the step."""
    places, count = grid_points(axes), len(axes[1])
    pairs = neighbours(axes)
    halfway = [tuple(np.mean([places[a], places[b]], axis=0)) for a, b in pairs]
    worst: dict[tuple[int, int], float] = {}
    for (a, b), hull in zip(pairs, hulls(halfway), strict=True):
        between = type(shapes[a]).from_vector((shapes[a].vector + shapes[b].vector) / 2)
        step = (0, a // count) if a // count != b // count else (1, a % count)
        worst[step] = max(worst.get(step, 0.0), between.protrusion(hull))
    return [(round(protrusion, 7), axis, index) for (axis, index), protrusion in worst.items()]


def neighbours(axes: Axes) -> np.ndarray:
    """Return the pairs (E, 2) of grid points that are next to each other, the first before the second."""
    index = np.arange(len(axes[0]) * len(axes[1])).reshape(len(axes[0]), len(axes[1]))
    pairs = ((index[:-1], index[1:]), (index[:, :-1], index[:, 1:]))
    return np.concatenate([np.column_stack([a.ravel(), b.ravel()]) for a, b in pairs])


def grid_points(axes: Axes) -> list[tuple[float, float]]:
    return [(e, y) for e in axes[0] for y in axes[1]]


def divided(values: list[float], parts: np.ndarray) -> list[float]:
    pieces = [np.linspace(a, b, n + 1)[:-1] for a, b, n in zip(values[:-1], values[1:], parts, strict=True)]
    return np.concatenate([*pieces, values[-1:]]).tolist()
