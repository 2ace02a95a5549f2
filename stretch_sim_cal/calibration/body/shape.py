"""Fits enclosing shapes to the robot's outline over a grid of arm extension and wrist yaw, which are interpolated
linearly between grid points, as in the published readers (method: docs/body_shape.md)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import shapely
from scipy.optimize import linprog
from scipy.sparse import block_array, csr_array, eye_array, kron, vstack

from stretch_sim_cal.calibration.body import FIT_METHODS
from stretch_sim_cal.calibration.body.model import BodyShapeModel, interpolation
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry import enclosing
from stretch_sim_cal.geometry.points import spanning_hull
from stretch_sim_cal.geometry.shapes import Shape, TaperedCapsule, capsule_area, capsule_distance
from stretch_sim_cal.robot.profile import RobotProfile, stretch_profile

SAME_VALUE = 1e-6
STRAIGHT = 1e-7  # m, by which a corner may be beside a straight edge

SHORTEST = {True: 0.02, False: np.deg2rad(4.0)}  # m, rad: steps along an axis are not divided into shorter ones
SPACING = {True: 0.03, False: np.deg2rad(5.0)}  # m, rad: the spacing at which the robot is compared with the shapes

AS_GOOD = 1.01  # an option of at most this much more area than the smallest is as good
CHANGE_COST = 0.5  # of a squared change (m^2), in shares of the area: 10 cm cost as much as half a percent
SWEEPS = 8
TIE = 9  # decimals of costs that are the same: of two the first is taken, whatever the last bits are

OutlinesAt = Callable[[Sequence[np.ndarray]], list[np.ndarray]]
"""Gives for sets of commanded poses (N, J) the corners (K, 2) of the hull around the robot in all poses of each set."""
Place = tuple[float, float]  # values along both axes
Axes = tuple[list[float], list[float]]
"""Increasing values along both axes of the grid; of the Stretch arm extension (m) and wrist yaw (rad)."""
Fit = Callable[[Place, np.ndarray, Sequence[Shape]], list[Shape]]
"""Gives for a place, the hull to enclose there and the shapes beside it the possible shapes, the smallest first."""


@dataclass(frozen=True)
class PoseEvidence:
    """The area that the robot covers in one pose: points (K, 2) in base_footprint at the commanded values of its
    joints."""

    name: str
    commanded: Mapping[str, float]
    points: np.ndarray


class EvidenceGrid:
    """Hulls to enclose over the joints that the shape follows, by the profile up to two of its planned joints; `axes`
    are the values of the samples. An axis that the shape does not depend on has only the first value."""

    def __init__(
        self, samples: Sequence[PoseEvidence], arm_dependent: bool = True, yaw_dependent: bool = True,
        outlines_at: OutlinesAt | None = None, profile: RobotProfile | None = None,
    ):  # fmt: skip
        profile = profile or stretch_profile()
        self._samples, self._outlines_at = samples, outlines_at
        self._joints, self.followed = profile.planned, profile.shape_joints
        names = profile.planned_names
        missing = 2 - len(self.followed)  # axes, for which columns of zeros stand
        self._columns = [*map(names.index, self.followed), *range(len(names), len(names) + missing)]
        self._poses = np.array([[s.commanded[joint] for joint in names] + missing * [0.0] for s in samples])
        values = [_distinct(self._poses[:, joint]) for joint in self._columns]
        self._dependent = np.array([arm_dependent, yaw_dependent]) & [len(v) > 1 for v in values]
        self.axes: Axes = tuple(v if depends else v[:1] for v, depends in zip(values, self._dependent, strict=True))
        self._hulls: dict[Place, np.ndarray] = {}
        self._unions: dict[tuple[Place, ...], np.ndarray] = {}
        lacking = [self.described(place) for place in grid_points(self.axes) if not len(self._members(place))]
        if lacking and outlines_at is None:
            remedy = "collect it, or fit with the model's own surfaces as evidence"
            raise InputError(f"no sample at {'; '.join(lacking)}; {remedy}")
        self.warnings = [f"no sample at {name}: the evidence is the model's surfaces only" for name in lacking]

    def per_axis(self, values: Mapping[bool, float]) -> list[float]:
        """Return for each of two axes the value for joints in m (True) or in rad (False)."""
        linear = {joint.name: joint.linear for joint in self._joints}
        return [*(values[linear[joint]] for joint in self.followed), values[False], values[False]][:2]

    def described(self, place: Sequence[float]) -> str:
        """Return a place on the axes in words."""
        units = self.per_axis({True: "m", False: "rad"})
        words = [f"{joint} {at:.3f} {unit}" for joint, at, unit in zip(self.followed, place, units, strict=False)]
        return ", ".join(words) or "the only pose"

    def covered_ranges(self) -> dict[str, tuple[float, float]]:
        """Return the lowest and highest commanded value of every joint."""
        ranges = zip(self._poses.min(axis=0).tolist(), self._poses.max(axis=0).tolist(), strict=True)
        return {joint.name: both for joint, both in zip(self._joints, ranges, strict=False)}

    def hulls(self, places: Sequence[Place]) -> list[np.ndarray]:
        """Return the hull at each of several (extension, yaw)."""
        keys = [(round(float(first), 7), round(float(second), 7)) for first, second in places]
        new = [place for place in dict.fromkeys(keys) if place not in self._hulls]
        outlines = [np.empty((0, 2))] * len(new)
        if new and self._outlines_at:
            outlines = self._outlines_at([self._union_of_poses(place)[:, : len(self._joints)] for place in new])
        for place, outline in zip(new, outlines, strict=True):
            seen = [self._samples[i].points for i in self._members(place)]
            # Independent of the last bits: swept straight parts have many corners that are hardly any.
            rounded = shapely.multipoints(np.concatenate([outline, *seen]).round(8))
            hull = shapely.simplify(shapely.convex_hull(rounded), STRAIGHT)
            corners = shapely.get_coordinates(hull)
            self._hulls[place] = corners[:-1] if hull.geom_type == "Polygon" else corners
        return [self._hulls[key] for key in keys]

    def _members(self, place: Place) -> np.ndarray:
        off = np.abs(self._poses[:, self._columns] - place) > SAME_VALUE
        return np.flatnonzero(~(off & self._dependent).any(axis=1))

    def _union_of_poses(self, place: Place) -> np.ndarray:
        """Return the poses (N, J) whose outlines are enclosed together at this place: the other joints have the values
        of the samples at the grid points around it, and values between these."""
        columns = np.array(self._columns)[self._dependent]
        corners = tuple((e, y) for e in _around(self.axes[0], place[0]) for y in _around(self.axes[1], place[1]))
        if corners not in self._unions:
            members = np.unique(np.concatenate([self._members(corner) for corner in corners]))
            poses = self._poses[members] if len(members) else self._poses.copy()
            poses[:, columns] = 0.0
            steps = [*(joint.step for joint in self._joints), 1.0, 1.0]
            self._unions[corners] = with_values_between(np.unique(poses, axis=0), steps)
        poses = self._unions[corners].copy()
        poses[:, columns] = np.array(place)[self._dependent]
        return poses


def with_values_between(poses: np.ndarray, steps: Sequence[float]) -> np.ndarray:
    """Return poses (N, J) with others between neighbours, those that differ in one joint only, at `steps` or closer."""
    steps = np.array(steps)
    while True:
        filled = poses
        for joint in range(poses.shape[1]):
            filled = _filled_along(filled, joint, steps[joint])
        if len(filled) <= max(200, len(poses)):  # of one union; steps are widened if there would be more
            return np.unique(filled, axis=0)  # in an order in which joints that carry others move seldom
        steps = steps * 1.5


def _filled_along(poses: np.ndarray, joint: int, step: float) -> np.ndarray:
    others = np.delete(np.arange(poses.shape[1]), joint)
    ordered = poses[np.lexsort((poses[:, joint], *poses[:, others].T))]
    new = [poses]
    for start, end in zip(ordered[:-1], ordered[1:], strict=True):
        count = int(np.ceil((end[joint] - start[joint]) / step - 1e-9))
        if count > 1 and (np.abs(end - start)[others] <= SAME_VALUE).all():
            between = np.repeat(start[None], count - 1, axis=0)
            between[:, joint] = np.linspace(start[joint], end[joint], count + 1)[1:-1]
            new.append(between)
    return np.concatenate(new)


def _distinct(values: np.ndarray) -> list[float]:
    ordered = np.unique(values)
    return ordered[np.concatenate([[True], np.diff(ordered) > SAME_VALUE])].tolist()


def _around(axis: Sequence[float], at: float) -> list[float]:
    same = [value for value in axis if abs(value - at) <= SAME_VALUE]
    if same:
        return same
    after = int(np.clip(np.searchsorted(axis, at), 1, max(1, len(axis) - 1)))
    return [axis[after - 1], axis[min(after, len(axis) - 1)]]


def grid_points(axes: Axes) -> list[Place]:
    """Return all pairs of values, row by row."""
    return [(e, y) for e in axes[0] for y in axes[1]]


def neighbours(size: int, count: int) -> np.ndarray:
    """Return the pairs (E, 2) of adjacent grid points, of `size` in rows of `count`, in ascending order."""
    index = np.arange(size).reshape(-1, count)
    pairs = ((index[:-1], index[1:]), (index[:, :-1], index[:, 1:]))
    return np.concatenate([np.column_stack([a.ravel(), b.ravel()]) for a, b in pairs])


def most_alike(options: Sequence[Sequence[Shape]], count: int) -> list[Shape]:
    """Return one of the `options` of each grid point (row by row, `count` to a row, the smallest first), with the order
    of ends, axes and vertices for which its numbers are most like those of adjacent grid points."""
    shapes, pairs = [shapes[0] for shapes in options], neighbours(len(options), count)
    if isinstance(shapes[0], TaperedCapsule):
        shapes = _chosen_capsules(options, pairs)
        # The inner disc of a capsule that is a circle is arbitrary.
        pairs = [(a, b) for a, b in (*pairs, *pairs[::-1, ::-1]) if shapes[b].is_circle and not shapes[a].is_circle]
    for a, b in pairs if hasattr(shapes[0], "like") else ():
        shapes[b] = shapes[b].like(shapes[a])
    return shapes


def _chosen_capsules(options: Sequence[Sequence[TaperedCapsule]], pairs: np.ndarray) -> list[TaperedCapsule]:
    """Return for each grid point the capsule, of those as good as its smallest, with ends in either order, that changes
    least from adjacent ones (iterated conditional modes)."""
    forms = []
    for capsules in options:
        good = [capsule for capsule in capsules if capsule.area <= AS_GOOD * capsules[0].area]
        vectors = np.array([form.vector for capsule in good for form in (capsule, capsule.swapped())])
        forms.append((vectors, np.repeat([capsule.area / capsules[0].area - 1 for capsule in good], 2)))
    beside = [[*pairs[pairs[:, 1] == index, 0], *pairs[pairs[:, 0] == index, 1]] for index in range(len(forms))]
    chosen: dict[int, int] = {}
    for _ in range(SWEEPS):
        before = chosen.copy()
        for index, (vectors, cost) in enumerate(forms):
            for other in filter(chosen.__contains__, beside[index]):
                change = ((vectors - forms[other][0][chosen[other]]) ** 2).sum(axis=1)
                cost = cost + CHANGE_COST * change
            chosen[index] = int(np.round(cost, TIE).argmin())
        if chosen == before:
            break
    return [TaperedCapsule.from_vector(vectors[chosen[index]]) for index, (vectors, _) in enumerate(forms)]


def with_shapes(grid: EvidenceGrid, axes: Axes, fit: Fit, fitted: dict[Place, list[Shape]]) -> list[Shape]:
    """Return the shapes at the grid points, row by row; missing ones are `fitted`, starting at adjacent ones."""
    places = grid_points(axes)
    pairs = neighbours(len(places), len(axes[1]))
    for index, (place, hull) in enumerate(zip(places, grid.hulls(places), strict=True)):
        if place not in fitted:
            beside = [places[other] for other in pairs[pairs[:, ::-1] == index]]
            fitted[place] = fit(place, hull, [fitted[other][0] for other in beside if other in fitted])
    return most_alike([fitted[place] for place in places], len(axes[1]))


def refined(grid: EvidenceGrid, fit: Fit, above: float, max_grid_points: int) -> tuple[Axes, list[Shape]]:
    """Return the axes with added values where a shape halfway would have to be inflated by more than `above` (m), and
    the shapes at all grid points, row by row. The worst step is halved repeatedly, up to `max_grid_points`."""
    axes, shortest = grid.axes, grid.per_axis(SHORTEST)
    fitted: dict[Place, list[Shape]] = {}
    while True:
        shapes, places, count = with_shapes(grid, axes, fit, fitted), grid_points(axes), len(axes[1])
        pairs = neighbours(len(places), count)
        vectors = np.array([shape.vector for shape in shapes])
        halfway = [tuple(np.mean([places[a], places[b]], axis=0)) for a, b in pairs]
        missing = type(shapes[0]).protrusions(vectors[pairs].mean(axis=1), grid.hulls(halfway)) if halfway else []
        worst, step = above, None
        for (a, b), outside in zip(pairs, missing, strict=True):
            axis, index = (0, a // count) if a // count != b // count else (1, a % count)
            size = (len(axes[axis]) + 1) * len(axes[1 - axis])
            length = axes[axis][index + 1] - axes[axis][index]
            if outside.round(7) > worst and length / 2 >= shortest[axis] and size <= max_grid_points:
                worst, step = outside.round(7), (axis, index)
        if step is None:
            return axes, shapes
        axis, index = step
        finer = np.insert(axes[axis], index + 1, np.mean(axes[axis][index : index + 2])).tolist()
        axes = (finer, axes[1]) if axis == 0 else (axes[0], finer)


DOUBTFUL = 1e-3  # m: if more sticks out, capsules are fitted together and not only inflated
ROUNDS = 8

MOST_CHANGE = 1.25  # of a capsule's number from grid point to grid point, over that of the outline
STILL = 0.004  # m, by which they may always change
MOST_AREA = 1.015  # of a requested capsule, over the smallest one
ADDED = 0.3  # the weight of an added grid point's area, over that of a requested one
PRICES = (1000.0, 10.0, 50.0)  # of a metre outside, a metre of change and the smallest area
TRUST, LEAST_TRUST = 0.1, 5e-4  # m: the first step, and the shortest
STEPS = 16
REACH = 3.0  # trusts: corners farther inside than this stay inside
SECTORS, DIRECTIONS = 16, 64
DECIMALS = 7  # of a program's numbers, whose last bits depend on the processor


def covering(evidence: EvidenceGrid, axes: Axes, shapes: list[Shape]) -> tuple[list[Shape], float, float]:
    """Return the shapes (row by row), changed so that interpolated ones enclose the hulls between them, and the largest
    protrusion of the robot from interpolated shapes (m), before and after. Verified halfway along all steps, and at
    least as closely as `SPACING`. Area is added at grid points that were not asked for, if possible."""
    grid = grid_points(axes)
    finer = tuple(_divided(values, most) for values, most in zip(axes, evidence.per_axis(SPACING), strict=True))
    between = [place for place in grid_points(finer) if place not in grid]
    if not between:
        return shapes, 0.0, 0.0
    places = [*grid, *between]
    weights, outlines = _weights(axes, places), evidence.hulls(places)

    def missing(shapes: Sequence[Shape]) -> np.ndarray:
        return type(shapes[0]).protrusions(weights @ np.array([shape.vector for shape in shapes]), outlines)

    before = missing(shapes)[len(grid) :].max()
    asked = np.array([place in grid_points(evidence.axes) for place in grid])
    if isinstance(shapes[0], TaperedCapsule):
        together = _Together(shapes, weights, outlines, neighbours(len(grid), len(axes[1])), asked)
        if before > DOUBTFUL or together.changes_too_fast:
            shapes = together.fitted()
    for _ in range(ROUNDS):
        outside = missing(shapes)
        if outside.max() <= 1e-4:  # m that may stick out between grid points, on the verified grid
            break
        needed = 1.02 * outside.round(7)  # the same on every processor, and so is the solution
        cost = np.where(asked, 20.0, 1.0)  # of the inflation of a requested grid point, over that of an added one
        least = linprog(cost, A_ub=-weights, b_ub=-needed, bounds=(0, None), method="highs").x
        shapes = [shape.inflated(float(by)) if by > 0 else shape for shape, by in zip(shapes, least, strict=True)]
    shapes = [shape.grown_to_enclose(hull) for shape, hull in zip(shapes, outlines, strict=False)]  # exactly, there
    return shapes, float(before), float(missing(shapes).max())


def _divided(values: list[float], spacing: float) -> list[float]:
    counts = 2 * np.maximum(1, np.ceil(np.diff(values) / (2 * spacing) - 1e-6)).astype(int)
    steps = zip(values[:-1], values[1:], counts, strict=True)
    return np.concatenate([*(np.linspace(a, b, n + 1)[:-1] for a, b, n in steps), values[-1:]]).tolist()


def _weights(axes: Axes, places: Sequence[Place]) -> csr_array:
    """Return the weights (P, G) of the grid points at each place."""
    entries = [
        (wi * wj, row, i * len(axes[1]) + j)
        for row, (extension, yaw) in enumerate(places)
        for i, wi in zip(*interpolation(axes[0], extension), strict=True)
        for j, wj in zip(*interpolation(axes[1], yaw), strict=True)
    ]
    weights, rows, columns = zip(*entries, strict=True)
    return csr_array((weights, (rows, columns)), shape=(len(places), len(axes[0]) * len(axes[1])))


class _Together:
    """The smallest capsules of G grid points, and their constraints. `weights` (P, G) interpolate them at P places with
    `hulls` (K, 2), the grid points first; `pairs` (E, 2) are adjacent; `asked` (G,) are requested. A program's unknowns
    are the steps of the capsules' numbers (6 G), and the violations at each place, pair and requested capsule."""

    def __init__(self, capsules, weights: csr_array, hulls: Sequence[np.ndarray], pairs: np.ndarray, asked: np.ndarray):
        self._numbers = np.array([capsule.vector for capsule in capsules])
        self._least = np.array([capsule.area for capsule in capsules])
        self._weights, self._asked = weights, np.flatnonzero(asked)
        self._share = np.where(asked, 1.0, ADDED) / self._least
        self._corners = np.concatenate(hulls)
        self._place = np.repeat(np.arange(len(hulls)), [len(hull) for hull in hulls])
        one = eye_array(len(capsules), format="csr")
        self._steps = one[pairs[:, 0]] - one[pairs[:, 1]]
        angles = np.arange(DIRECTIONS) * (2 * np.pi / DIRECTIONS)
        directions = np.stack([np.cos(angles), np.sin(angles)])
        reach = np.array([(hull @ directions).max(axis=0) for hull in hulls[: len(capsules)]])
        # The outline's change from one grid point to the next is the Hausdorff distance, of convex sets.
        self._most_change = MOST_CHANGE * np.abs(self._steps @ reach).max(axis=1, initial=0.0) + STILL

    @property
    def changes_too_fast(self) -> bool:
        return bool((np.abs(self._steps @ self._numbers).max(axis=1, initial=0.0) > self._most_change).any())

    def fitted(self) -> list[TaperedCapsule]:
        """Return capsules for all grid points, starting at the smallest ones."""
        numbers, trust = self._numbers, TRUST
        distances, gradients = self._distances(numbers)
        watched = self._outermost(distances, gradients)
        cost = self._cost(numbers, distances)
        for _ in range(STEPS):
            # Few corners are active: those that a step brings outside are constraints of the next program.
            candidate = self._step(numbers, distances, gradients, watched & (distances > -REACH * trust), trust)
            ahead, by_numbers = self._distances(candidate)
            watched |= self._outermost(ahead, by_numbers)
            gain = cost - self._cost(candidate, ahead)
            if gain > 0:
                numbers, distances, gradients, cost = candidate, ahead, by_numbers, cost - gain
                if gain < 2e-3 * len(numbers):  # of the cost of a capsule: a step with a smaller gain is the last
                    break
            elif (trust := trust / 2) < LEAST_TRUST:
                break
        return [TaperedCapsule.from_vector(vector) for vector in numbers]

    def _distances(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the distances (C,) of all corners from the capsules (G, 6) at their places, and their gradients."""
        return capsule_distance((self._weights @ numbers)[self._place], self._corners)

    def _cost(self, numbers: np.ndarray, distances: np.ndarray) -> float:
        """Return the weighted areas of capsules (G, 6), plus the prices of violated constraints."""
        areas = np.array([capsule_area(vector)[0] for vector in numbers])
        outside = np.zeros(self._weights.shape[0])
        np.maximum.at(outside, self._place, distances)
        change = np.abs(self._steps @ numbers).max(axis=1, initial=0.0) - self._most_change
        area = (areas / self._least)[self._asked] - MOST_AREA
        missed = [float(np.maximum(values, 0.0).sum()) for values in (outside, change, area)]
        return float(self._share @ areas + np.dot(PRICES, missed))

    def _outermost(self, distances: np.ndarray, gradients: np.ndarray) -> np.ndarray:
        """Return the mask of corners close to a boundary or outside that are outermost in some direction."""
        near = np.flatnonzero(distances > -0.002)  # m: a corner this near to a capsule's boundary may constrain it
        away = -(gradients[near, :2] + gradients[near, 3:5])
        sector = ((np.arctan2(away[:, 1], away[:, 0]) + np.pi) * (SECTORS / (2 * np.pi))).astype(int)
        key = self._place[near] * (SECTORS + 1) + sector
        order = np.lexsort((-distances[near], key))
        outermost = np.zeros(len(distances), dtype=bool)
        outermost[near[order[np.unique(key[order], return_index=True)[1]]]] = True
        return outermost

    def _step(self, numbers, distances, gradients, watched: np.ndarray, trust: float) -> np.ndarray:
        """Return the capsules (G, 6) of the linear program about the present ones (G, 6)."""
        areas, by_numbers = (np.array(values) for values in zip(*map(capsule_area, numbers), strict=True))
        place, each, asked = self._place[watched], eye_array(6), self._asked
        first = _rows(gradients[watched]) @ kron(self._weights[place], each)
        change = kron(self._steps, each)
        of_pair = kron(eye_array(self._steps.shape[0]), np.ones((6, 1)))
        area = _rows(by_numbers / self._least[:, None])[asked]
        rows = block_array([
            [first, -eye_array(self._weights.shape[0], format="csr")[place], None, None],
            [change, None, -of_pair, None],
            [-change, None, -of_pair, None],
            [area, None, None, -eye_array(len(asked))],
        ], format="csr")  # fmt: skip
        now, allowed = (self._steps @ numbers).ravel(), np.repeat(self._most_change, 6)
        room = MOST_AREA - (areas / self._least)[asked]
        limits = np.concatenate([-distances[watched], allowed - now, allowed + now, room])
        slacks = (self._weights.shape[0], self._steps.shape[0], len(asked))
        goal = np.concatenate([(self._share[:, None] * by_numbers).ravel(), np.repeat(PRICES, slacks)])
        low = np.full(numbers.shape, -trust)
        low[:, [2, 5]] = np.maximum(-trust, np.minimum(1e-6 - numbers[:, [2, 5]], 0.0))  # radii stay positive
        # The dual program has only as many rows as there are unknowns, its multipliers, and takes half of the time. Of
        # several equally good solutions, the result depends on every bit: all is rounded.
        rows.data, each = rows.data.round(DECIMALS), eye_array(len(goal), format="csr")
        dual = linprog(
            np.concatenate([limits.round(9), np.full(low.size, trust), -low.ravel(), np.zeros(sum(slacks))]),
            A_eq=vstack([rows, each[: low.size], -each]).T.tocsc(), b_eq=-goal.round(DECIMALS),
            method="highs-ds", options={"presolve": False},
        )  # fmt: skip
        return numbers if dual.x is None else numbers + dual.eqlin.marginals[: low.size].reshape(-1, 6)


def _rows(values: np.ndarray) -> csr_array:
    return csr_array((values.ravel(), np.arange(values.size), np.arange(0, values.size + 1, 6)))


ENCLOSING = {
    "tapered_capsule": enclosing.enclosing_capsule, "circle": enclosing.enclosing_circle,
    "ellipse_opencv": enclosing.enclosing_algebraic_ellipse, "ellipse_min_enclosing": enclosing.enclosing_ellipse,
    "ellipse_axis_aligned": enclosing.enclosing_axis_aligned_ellipse,
    "convex_polygon": lambda points: enclosing.enclosing_polygon(points, BodyShapeSettings.vertices),
}  # fmt: skip
FEW_STARTS = 1  # of the search for a capsule at an added grid point, besides the adjacent capsules


@dataclass(frozen=True)
class BodyShapeSettings:
    """How a body shape is fitted. `vertices` bounds those of a `convex_polygon`. Grid points are added, up to
    `max_grid_points`, where an interpolated shape would have to be inflated by more than `refine_above` (m)."""

    method: str = "tapered_capsule"
    arm_dependent: bool = True
    yaw_dependent: bool = True
    vertices: int = 16
    refine_above: float = 0.002
    max_grid_points: int = 80


@dataclass(frozen=True)
class BodyShapeFit:
    """The model and, by sample, the evidence's protrusion (m, at most 1e-6 at grid points) and the shape's area.
    `protrusion_between` is the largest between grid points on the verified grid, before and after the shapes were
    changed to enclose it; None if the outline between them is unknown."""

    model: BodyShapeModel
    protrusions: np.ndarray
    areas: np.ndarray
    protrusion_between: tuple[float, float] | None
    warnings: list[str] = field(default_factory=list)


def enclosing_shape(points: np.ndarray, method: str = "tapered_capsule") -> Shape:
    """Return the shape of least area around points (N, 2) by one of `FIT_METHODS`, to 1e-6 m; `ellipse_opencv` is the
    algebraic fit, scaled to enclose. Raises `InputError` for an unknown method, and for points that span no area."""
    if method not in ENCLOSING:
        raise InputError(f"'{method}' is not a fit method; available: {', '.join(FIT_METHODS)}")
    return ENCLOSING[method](points)


def fit_body_shape(
    samples: Sequence[PoseEvidence], settings: BodyShapeSettings | None = None, outlines_at: OutlinesAt | None = None,
    profile: RobotProfile | None = None,
) -> BodyShapeFit:  # fmt: skip
    """Return the body shape that encloses the evidence of all samples. Joints that the shape does not depend on are
    covered by the union over the samples, and with `outlines_at` over the values between them. `profile` is by default
    the Stretch's. Raises `InputError` with a grid point that has no evidence, or too little for a shape."""
    settings = settings or BodyShapeSettings()
    if not samples:
        raise InputError("no samples: a body shape needs one or more")
    grid = EvidenceGrid(samples, settings.arm_dependent, settings.yaw_dependent, outlines_at, profile)
    asked_for = grid_points(grid.axes)
    normals = None
    if settings.method == "convex_polygon":
        normals = enclosing.common_normals(list(map(spanning_hull, grid.hulls(asked_for))), settings.vertices)

    def fit(place: Place, hull: np.ndarray, neighbours: Sequence[Shape] = ()) -> list[Shape]:
        try:
            if normals is not None:
                return [enclosing.polygon_with_normals(hull, normals)]
            if settings.method == "tapered_capsule":
                few = (FEW_STARTS,) if neighbours and place not in asked_for else ()
                return enclosing.capsule_minima(hull, neighbours, *few)
            return [enclosing_shape(hull, settings.method)]
        except InputError as error:
            raise InputError(f"{grid.described(place)}: {error}") from error

    axes, between = grid.axes, None
    if outlines_at is None:
        shapes = with_shapes(grid, axes, fit, {})
    else:
        axes, shapes = refined(grid, fit, settings.refine_above, settings.max_grid_points)
        shapes, *between = covering(grid, axes, shapes)
    rows = [shapes[i : i + len(axes[1])] for i in range(0, len(shapes), len(axes[1]))]
    model = BodyShapeModel(settings.method, *map(tuple, axes), rows, grid.covered_ranges(), axes=grid.followed)
    at_samples = [model.shape_for(sample.commanded) for sample in samples]
    protrusions = [shape.protrusion(sample.points) for shape, sample in zip(at_samples, samples, strict=True)]
    areas = np.array([shape.area for shape in at_samples])
    return BodyShapeFit(model, np.array(protrusions), areas, tuple(between) if between else None, grid.warnings)
