"""Does a calibration go on to hold? A sequential test over looks that are taken now and then while the robot stands.

A look finds lidar to lidar and floor anew, and where each lidar is against the robot's own surfaces, and gives for each
of these *blocks* the residual against the stored calibration with its covariance. Each block is tested along a set of
directions for a shift of a given size with Page's cumulative sum of log-likelihood ratios (CUSUM, Biometrika 41, 1954).

Looks from one standing place share what that place does to them (surfaces that are not flat, glass, a floor that
slopes), so they are no independent evidence. A place has an effect of its own, normal with a standard deviation that is
estimated from the scatter of the places themselves and never taken for smaller than a prior one. Before enough are
known, the first ones count beside one place of `FIRST` times the prior, without the largest, which may be of a change.
The evidence of a place is that of the mean of its last looks, and it is bounded however long the robot stands there;
that of several places adds up:

    S = max(0, S of the places before) + max_k  d / (V_k + R_k) * (m_k - e_k - d / 2)

with the shift `d` that is looked for, the mean `m_k` of the looks at this place since the k-th along a direction, and
its variance `R_k`. What the place does to them is what its looks before the k-th show, `e_k` with variance `V_k`;
without any, 0 with the places' variance `G`. So a change while the robot stands is noticed in a look or two, whatever
places do. Since what a place does may change a little (somebody moves a chair), V_k is never taken for less than
WANDER^2 G. The exponential of each summand has expectation 1 or less while nothing has changed, so with the threshold
ln(directions * looks a month * WINDOW) there is less than about one false alarm a month.

The stored calibration has an error of its own, which is in every look. The median of the first places estimates it, and
is taken off as far as it is small.

Where the lidars are on the robot, a single arm pose determines only up to the errors of the robot's model, which is the
same in every look of that pose. So the first looks of a pose are the baseline of those that follow. The baseline's own
error is the same for all of them: it counts with the place's effect, and places do not add up.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from stretch_sim_cal.calibration.mounts.rays import LidarRays, PosedSample, posed
from stretch_sim_cal.calibration.mounts.robot import MountedRobot
from stretch_sim_cal.calibration.robust import TUKEY, robust_deviation, tukey_weights
from stretch_sim_cal.calibration.verification import FoundAnew
from stretch_sim_cal.geometry.planes import floor_between
from stretch_sim_cal.geometry.transforms import SIDES, inverse, log

WINDOW = 10  # looks within which a change is to be noticed, and that may be its first
WANDER = 0.5  # of a place's standard deviation: how much what it does changes while the robot stands there
MONTH = 30 * 86400.0  # s
LENGTH, ANGLE = 5e-3, math.radians(0.2)  # the shifts (m, rad) that are looked for
# Of a place's effect beforehand (m, rad; one standard deviation): twice what generated rooms do to realistic lidars
# (benchmarks/watch.py), since real rooms do more.
PLACE_LENGTH, PLACE_ANGLE = 7e-4, math.radians(0.02)
PLACES_NEEDED = 6  # steps from place to place, of which the median says something
STEPS_NEEDED = 20  # from look to look, likewise
FIRST = 1.5  # times the prior standard deviation: what a place's effect is taken to have before any place is known
REMEMBERED = 200  # places
MEDIAN, QUARTILES = 0.4549, {1: 1.3233, 2: math.log(4.0), 3: 1.3695}  # of chi-squared over its degrees of freedom
OFFSET_PLACES, OFFSET_SIGMAS = (
    20,
    2.0,
)  # the first places, of which the median is the stored calibration's own error, up to so
# many of a place's prior standard deviations
OVER = 0.5  # of the threshold, below which a change is over
CAP = 2.0  # thresholds that a sum may reach: what was temporary is over after about as many places as it took
BASELINE_LOOKS = 20  # with the arm in one pose, before where its lidars are on the robot is compared with them

HOLDS, CHANGED = "holds", "changed"


def _directions(size: int) -> np.ndarray:
    """Return unit vectors (M, size) both ways along axes and diagonals: no vector is more
    than 28 deg from one of them."""
    vectors = np.array([v for v in product((-1, 0, 1), repeat=size) if any(v)], dtype=float)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@dataclass(frozen=True)
class Block:
    """One thing that is watched: columns of its look's vector that are lengths (m) or angles (rad),
    tested for a `shift`; a place's effect has the standard deviation `place` beforehand. `remedy` is
    what to do if it has changed. `own`: whether it is of a lidar against its returns from the robot."""

    name: str
    vector: str
    columns: slice
    angular: bool
    remedy: str
    own: bool = False

    @property
    def adds_up(self) -> bool:
        """Whether the evidence of several places does."""
        return not self.own

    @property
    def shift(self) -> float:
        return ANGLE if self.angular else LENGTH

    @property
    def place(self) -> float:
        return PLACE_ANGLE if self.angular else PLACE_LENGTH

    def say(self, value: float) -> str:
        """Return a length or an angle with its unit."""
        return f"{math.degrees(value):.2f} deg" if self.angular else f"{1e3 * value:.1f} mm"


_ANEW = "calibrate again (ros_calibrate_robot), after looking whether a lidar or its bracket is loose"
_FLOOR = (
    "look whether the robot stands on its floor with all wheels; if it does, calibrate again "
    "(ros_calibrate_robot --from floor)"
)
PARTS = (("translation", slice(0, 3)), ("rotation", slice(3, 6)))
BLOCKS = (
    Block("lidar to lidar, translation", "lidars", slice(0, 3), False, _ANEW),
    Block("lidar to lidar, rotation", "lidars", slice(3, 6), True, _ANEW),
    Block("floor, height", "floor", slice(0, 1), False, _FLOOR),
    Block("floor, tilt", "floor", slice(1, 3), True, _FLOOR),
    *(
        Block(f"{side} lidar on the robot, {what}", side, columns, what == "rotation", _ANEW, own=True)
        for side in SIDES for what, columns in PARTS
    ),
)  # fmt: skip


def blocks(further: Iterable[str] = ()) -> tuple[Block, ...]:
    """Return what is watched of a robot, with `further` lidars beyond two by name."""
    return BLOCKS + tuple(
        block
        for name in further for what, columns in PARTS
        for block in (
            Block(f"left to {name} lidar, {what}", between(name), columns, what == "rotation", _ANEW),
            Block(f"{name} lidar on the robot, {what}", name, columns, what == "rotation", _ANEW, own=True),
        )
    )  # fmt: skip


def between(name: str) -> str:
    """Return the name of the vector of a lidar against the left one."""
    return "lidars" if name == "right" else f"lidars {name}"


@dataclass(frozen=True)
class Look:
    """What one look gave: at `stamp` (s), at the standing place of that number, residual (n,) and covariance (n, n) by
    vector: `lidars` (twist in the left lidar's frame), `floor` (height, tilt about x, about y), `left` and `right`
    (twists about the lidar's origin, base_link's axes, of where its returns from the robot have it against where it is
    stored to be); of each lidar beyond two `lidars NAME` and `NAME` likewise. `arm` names the arm's pose, `refused`
    says why something is missing."""

    stamp: float
    place: int
    vectors: Mapping[str, tuple[np.ndarray, np.ndarray]]
    arm: str = ""
    refused: tuple[str, ...] = ()


def vectors_of(found: FoundAnew) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the residuals of what was found anew against the stored calibration."""
    vectors = {}
    for name, aligned in found.aligned.items():
        twist = log(aligned.right_to_left @ inverse(found.file.to_left[name]))
        vectors[between(name)] = (twist, aligned.covariance)
    if found.floor is not None:
        up = np.array([0.0, 0.0, 1.0])
        before, now = found.file.floor_plane.facing(up), found.floor.plane.facing(up)
        vectors["floor"] = (floor_between(before, now), found.floor.covariance)
    return vectors


OWN_GATE = 0.03  # m along the ray: further off it is not of the model
OWN_INCIDENCE = 0.3  # cosine; more grazing, the range says little
OWN_PRIOR = (0.02, math.radians(2.0))  # m, rad: what lies between the stored pose and what a look may show
OWN_NOISE = 1e-3  # m; no lidar's returns scatter by less about a model
OWN_STEPS, OWN_ENOUGH = 5, 100


def own_twist(
    model: PosedSample, base_from_lidar: np.ndarray, points: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return by which twist (6,) about the lidar's origin its returns (N, 3) from the robot are best explained, and its
    covariance (6, 6); None for too few returns. What the model is wrong in is in it, the same in
    every look of one arm pose."""
    matches = model.match(LidarRays(points), base_from_lidar, OWN_GATE, OWN_INCIDENCE)
    if len(matches.distances) < OWN_ENOUGH:
        return None
    jacobian = np.column_stack([matches.normals, np.cross(matches.hits - base_from_lidar[:3, 3], matches.normals)])
    prior = np.diag([OWN_PRIOR[0] ** -2] * 3 + [OWN_PRIOR[1] ** -2] * 3)
    twist = np.zeros(6)
    for _ in range(OWN_STEPS):
        residual = matches.distances + jacobian @ twist
        noise = max(robust_deviation(residual), OWN_NOISE)
        weights = tukey_weights(residual / (TUKEY * noise)) / noise**2
        information = (jacobian * weights[:, None]).T @ jacobian + prior
        twist = twist - np.linalg.solve(information, (jacobian * weights[:, None]).T @ residual + prior @ twist)
    return twist, np.linalg.inv(information)


def own_vectors(
    robot: MountedRobot,
    positions: Mapping[str, float],
    poses: Mapping[str, np.ndarray],
    clouds: Mapping[str, np.ndarray],
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return by lidar `own_twist` of its returns (N, 3), with the robot's joints at `positions` (m, rad, by the
    description's names) and the lidars stored to be at `poses` (4, 4) in base_link."""
    (model,) = posed([robot.sample("look", positions, clouds)], robot.surfaces)
    found = {name: own_twist(model, poses[name], model.near(cloud, poses[name])) for name, cloud in clouds.items()}
    return {name: twist for name, twist in found.items() if twist is not None}


AZIMUTHS, ELEVATIONS = 180, 60
SAME_WITHIN, SAME_SHARE, FEWEST = 0.05, 0.8, 200  # m, of the directions, and how many of them are needed


class Panorama:
    """How far a lidar sees in every direction: shows whether the robot stands where it stood."""

    def __init__(self, points: np.ndarray):
        ranges = np.linalg.norm(points, axis=1)
        azimuth = np.arctan2(points[:, 1], points[:, 0]) / (2 * np.pi) % 1.0
        elevation = np.arcsin(np.clip(points[:, 2] / np.maximum(ranges, 1e-9), -1, 1)) / np.pi + 0.5
        cell = (azimuth * AZIMUTHS).astype(int) % AZIMUTHS * ELEVATIONS + np.minimum(
            (elevation * ELEVATIONS).astype(int), ELEVATIONS - 1
        )
        self._ranges = np.full(AZIMUTHS * ELEVATIONS, np.nan)
        order = np.lexsort((ranges, cell))
        cells, first, counts = np.unique(cell[order], return_index=True, return_counts=True)
        self._ranges[cells] = ranges[order][first + counts // 2]

    def same(self, other: "Panorama") -> bool:
        """Return whether most directions show the same range; a person who walked by changes few."""
        both = np.isfinite(self._ranges) & np.isfinite(other._ranges)
        if both.sum() < FEWEST:
            return False
        apart = np.abs(self._ranges[both] - other._ranges[both])
        return bool(np.mean(apart < SAME_WITHIN * np.maximum(1.0, self._ranges[both])) > SAME_SHARE)


COUNT, NEXT, VARIANCE, RESIDUAL = 0, 1, 2, slice(3, None)  # columns of the sums of looks


class Standing:
    """The looks at one place, for one block with residuals (n,), tested along directions (M, n).

    Kept are their sums (M, 3 + n) up to each of the last looks: how many, the stamp of the look after, the variances
    along the direction, the residuals; and those up to where, for each direction, a change has most likely begun."""

    def __init__(self, place: int, directions: np.ndarray):
        self.place, self._directions = place, directions
        self._upto = deque([np.zeros((len(directions), 3 + directions.shape[1]))], maxlen=WINDOW + 1)
        self._kept: np.ndarray | None = None
        self._traces: deque[float] = deque(maxlen=WINDOW)
        self.last: tuple[np.ndarray, np.ndarray] | None = None

    def add(self, stamp: float, residual: np.ndarray, covariance: np.ndarray) -> None:
        """Take a look's residual (n,) and covariance (n, n)."""
        sums = self._upto[-1].copy()
        self._upto[-1][:, NEXT] = stamp
        sums[:, COUNT] += 1
        sums[:, VARIANCE] += np.einsum("di,ij,dj->d", self._directions, covariance, self._directions)
        sums[:, RESIDUAL] += residual
        self._upto.append(sums)
        self._traces.append(float(np.trace(covariance)) / len(residual))
        self.last = residual, covariance

    def before(self) -> np.ndarray:
        """Return the sums (C, M, 3 + n) of the looks before each change that may be."""
        return np.stack([*list(self._upto)[:-1], *([] if self._kept is None else [self._kept])])

    def since(self, before: np.ndarray) -> np.ndarray:
        """Return the sums of the looks that are not in `before`."""
        return self._upto[-1] - before

    def keep(self, before: np.ndarray) -> None:
        """Remember the sums (M, 3 + n) before the most likely change by direction."""
        self._kept = before

    def along(self, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the means and their variances (..., M) along the directions; the variance of no look is infinite."""
        counts = sums[..., COUNT]
        some = np.maximum(counts, 1.0)
        means = (sums[..., RESIDUAL] * self._directions).sum(axis=-1) / some
        return means, np.where(counts > 0, sums[..., VARIANCE] / some**2, np.inf)

    @property
    def mean(self) -> np.ndarray:
        """Of the last looks, (n,)."""
        sums = self.since(self._upto[0])[0]
        return sums[RESIDUAL] / sums[COUNT]

    @property
    def variance(self) -> float:
        """Of the mean, the mean over its components."""
        return sum(self._traces) / len(self._traces) ** 2


@dataclass(frozen=True)
class State:
    """What is known of a block: its `verdict`, by how much (m or rad) it is off in the direction in which it is most,
    with the standard deviation of that, since when (s), and which `shift` would be noticed within ten looks."""

    block: Block
    verdict: str
    value: float
    deviation: float
    since: float | None
    noticeable: float

    def sentence(self) -> str:
        """Return the state as one line."""
        off = (
            f"{self.block.say(self.value)} from the stored calibration, standard deviation "
            f"{self.block.say(self.deviation)}"
        )
        if self.verdict == CHANGED:
            return f"{self.block.name} has changed: {off}; {self.block.remedy}"
        return (
            f"{self.block.name}: {off}; a change of {self.block.say(self.noticeable)} would "
            f"be noticed within {WINDOW} looks"
        )


class BlockTest:
    """The sequential test of one block."""

    def __init__(self, block: Block, threshold: float):
        self.block, self.threshold = block, threshold
        self.directions = _directions(block.columns.stop - block.columns.start)
        self._before = np.zeros(len(self.directions))  # sums of the places before, per direction
        self._began: list[float | None] = [None] * len(self.directions)  # when each of them left zero
        self._now: Standing | None = None
        self._steps: deque[float] = deque(maxlen=REMEMBERED)  # squared, from place to place, over what looks explain
        self._within: deque[float] = deque(maxlen=REMEMBERED)  # squared, from look to look, over what is expected
        self._last: Standing | None = None
        self._first: list[np.ndarray] = []  # means of the first places
        self._few: list[float] = []  # their squares over n, until `PLACES_NEEDED` steps are known
        self._offset = np.zeros(block.columns.stop - block.columns.start)
        self._sums = self._before.copy()
        self.changed = False  # whether the shift that is looked for is there
        self._common = np.zeros(len(self.directions))
        self._scale, self.place_variance = 1.0, self._scatter_of_places()

    def add(
        self, stamp: float, place: int, residual: np.ndarray, covariance: np.ndarray, common: np.ndarray | None = None
    ) -> None:
        """Take a look's residual (n,) and covariance (n, n) of this block's columns; `common` (n, n) is that of an
        error that all looks share."""
        if common is not None:
            self._common = np.einsum("di,ij,dj->d", self.directions, common, self.directions) + self.place_variance
        if self._now is not None and self._now.place != place:
            self._leave()
        if self._now is None:
            self._now = Standing(place, self.directions)
        elif self._now.last is not None:
            expected = np.diag(covariance + self._now.last[1])
            self._within.extend((residual - self._now.last[0]) ** 2 / expected)
            self._scale = self._scatter_of_looks()
        self._now.add(stamp, residual, covariance)
        ratios, before, _ = self._evidence()
        self._now.keep(before)
        self._sums = np.minimum(self._before + ratios, CAP * self.threshold)
        # What was noticed is not taken back by a look or two that say less.
        self.changed = self._sums.max() >= (OVER * self.threshold if self.changed else self.threshold)

    def _leave(self) -> None:
        """The robot goes: what its place said is added up."""
        sums, began = self._sums, self._evidence()[1][:, NEXT]
        for index, value in enumerate(sums):
            if value <= 0.0:
                self._began[index] = None
            elif self._began[index] is None:
                self._began[index] = float(began[index])
        if self.block.adds_up:
            self._before = np.maximum(sums, 0.0)
        if len(self._few) <= PLACES_NEEDED:
            self._few.append(float(self._now.mean @ self._now.mean) / len(self._now.mean))
            self.place_variance = self._scatter_of_places()
        if self._last is not None:
            step = self._now.mean - self._last.mean
            explained = self._scale * (self._now.variance + self._last.variance)
            self._steps.append(float(step @ step) / len(step) / 2.0 / QUARTILES[len(step)] - explained / 2.0)
            self.place_variance = self._scatter_of_places()
        if self.block.adds_up and len(self._first) < OFFSET_PLACES and sums.max() < OVER * self.threshold:
            self._first.append(self._now.mean)
            if len(self._first) >= PLACES_NEEDED:
                bound = OFFSET_SIGMAS * self.block.place
                self._offset = np.clip(np.median(self._first, axis=0), -bound, bound)
        self._last, self._now = self._now, None

    def _evidence(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the log-likelihood ratio (M,) of the present place along each direction, the sums before the change
        that it is of, and the variance (M,) of the mean since."""
        before, alike = self._now.before(), self.place_variance + self._common
        offset = self.directions @ self._offset
        means, variances = self._now.along(self._now.since(before))
        earlier, of_earlier = self._now.along(before)
        known = alike / (alike + self._scale * of_earlier)  # 0 without looks before, 1 with many
        effect = known * (earlier - offset)
        total = np.maximum(1.0 - known, WANDER**2) * alike + self._scale * variances
        shift = self.block.shift
        ratios = shift / total * (means - offset - effect - shift / 2.0)
        best = ratios.argmax(axis=0), np.arange(len(alike))
        return ratios[best], before[best], total[best]

    def _scatter_of_looks(self) -> float:
        """Return how many times larger the looks of one place scatter than their covariance says; at least 1."""
        enough = len(self._within) >= STEPS_NEEDED
        return max(1.0, float(np.median(self._within)) / MEDIAN) if enough else 1.0

    def _scatter_of_places(self) -> float:
        """Return the variance of a place's effect: the prior one, or what the places
        themselves show if that is more."""
        prior = self.block.place**2
        if len(self._steps) < PLACES_NEEDED:
            # The places so far beside one of `FIRST`; without the largest, which may be of a change.
            known = [FIRST**2 * prior, *(sorted(self._few)[:-1] if len(self._few) > 1 else self._few)]
            return max(prior, sum(known) / len(known))
        # A shift is one large step among many: the upper quartile does not see it, but it does see places that scatter
        # with a longer tail than a normal distribution has.
        return max(prior, float(np.quantile(self._steps, 0.75)))

    def state(self) -> State:
        """Return what is known now."""
        if self._now is None:
            return State(self.block, HOLDS, 0.0, 0.0, None, self.block.shift)
        worst = int(np.argmax(self._sums))
        _, before, variances = self._evidence()
        since_then = self._now.since(before)[worst]
        changed = self.changed
        size = float(np.linalg.norm(since_then[RESIDUAL] / since_then[COUNT] if changed else self._now.mean))
        since = self._began[worst] or float(before[worst, NEXT]) if changed else None
        deviation = math.sqrt(variances[worst])
        alike, last = self.place_variance + self._common[worst], self._now.last[1]
        settled = alike + self._scale * float(np.trace(last)) / len(last) / WINDOW
        # The shift s for which WINDOW looks give the threshold: d / V (s - d / 2) = h, in the direction worst covered.
        noticeable = (self.threshold * settled / self.block.shift + self.block.shift / 2.0) / math.cos(
            math.radians(28.0)
        )
        return State(self.block, CHANGED if changed else HOLDS, size, deviation, since, noticeable)


class Watch:
    """All blocks of one stored calibration; `period` (s) is the time from look to look, which the rate of false alarms,
    one a month, counts in; `further` are the lidars beyond two."""

    def __init__(self, period: float, further: Iterable[str] = ()):
        watched = blocks(further)
        count = sum(len(_directions(block.columns.stop - block.columns.start)) for block in watched)
        threshold = math.log(count * WINDOW * max(MONTH / period, 1.0))
        self.tests = {block.name: BlockTest(block, threshold) for block in watched}
        self._own = {block.vector for block in watched if block.own}
        self._seen: set[str] = set()
        self._baselines: dict[tuple[str, str], list[tuple[np.ndarray, np.ndarray]]] = {}

    def add(self, look: Look) -> None:
        """Take a look. One whose data said nothing of a block leaves that block as it is."""
        for name, (residual, covariance) in look.vectors.items():
            common = None
            if name in self._own:
                learned = self._baselines.setdefault((name, look.arm), [])
                if len(learned) < BASELINE_LOOKS:
                    learned.append((residual, covariance))
                    continue
                residual = residual - np.mean([known for known, _ in learned], axis=0)
                common = np.sum([known for _, known in learned], axis=0) / len(learned) ** 2
            for test in self.tests.values():
                if test.block.vector == name:
                    columns = test.block.columns
                    shared = None if common is None else common[columns, columns]
                    test.add(look.stamp, look.place, residual[columns], covariance[columns, columns], shared)
                    self._seen.add(test.block.name)

    def states(self) -> list[State]:
        """Return what is known of every block that was seen so far."""
        return [test.state() for name, test in self.tests.items() if name in self._seen]

    @property
    def changed(self) -> list[State]:
        return [test.state() for test in self.tests.values() if test.changed]


def moved_lidar(states: Sequence[State]) -> str:
    """Return which lidar has moved, as far as the robot's own returns tell, or, of more than two lidars, which ones of
    them go on to agree; "" if they do not."""
    changed = [state.block for state in states if state.verdict == CHANGED]
    apart = {block.vector for block in changed if not block.own and block.vector != "floor"}
    pairs = {state.block.vector for state in states if not state.block.own and state.block.vector != "floor"}
    named = list(dict.fromkeys(block.vector for block in changed if block.own)) if apart else []
    if len(pairs) > 1 and len(apart) == 1 and not named:
        named = [apart.pop().removeprefix("lidars").strip() or "right"]
    elif len(pairs) > 1 and apart == pairs and not named:
        named = ["left"]  # all others agree among themselves, or as many have moved
    if len(named) > 1:
        return "both lidars have moved" if len(pairs) == 1 else f"lidars {' and '.join(named)} have moved"
    return f"the {named[0]} lidar has moved" if named else ""
