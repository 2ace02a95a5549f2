"""Which arm poses a collection visits, in which order and on which paths, so that nothing touches anything. One joint
moves at a time: the path then does not depend on the ratio of the joints' speeds, and is the one that was checked."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from stretch_sim_cal.collection.settings import CollectionSettings
from stretch_sim_cal.errors import Refused
from stretch_sim_cal.robot.collision import SelfCollision
from stretch_sim_cal.robot.kinematics import link_transform
from stretch_sim_cal.robot.model import RobotModel
from stretch_sim_cal.robot.profile import RobotProfile

Pose = tuple[float, ...]  # values (m, rad) of the planned joints of the robot's profile, the joints of a dataset
# Returns of each pose whether nothing is nearer than some margin: many at once cost little more than one.
Free = Callable[[Sequence[Pose]], Sequence[bool] | np.ndarray]
ENTRIES = 24  # into the grid, that are tried from the robot's pose, nearest first
PAIRS_SHOWN = 3  # links that touch, in the reason for a pose that is left out
LATENCY = 0.15  # s that a move takes beside moving: command, arrival noticed


@dataclass(frozen=True)
class Visit:
    """A pose to capture and the way there: `path` are the poses after each joint's move, the last is `pose`."""

    pose: Pose
    path: tuple[Pose, ...]


@dataclass(frozen=True)
class Skipped:
    """A pose of the grid that is left out, and why."""

    pose: Pose
    reason: str


@dataclass
class Plan:
    """The whole tour: `visits` in order, the way back to the start, and the skipped poses."""

    start: Pose
    visits: list[Visit] = field(default_factory=list)
    way_back: tuple[Pose, ...] = ()
    skipped: list[Skipped] = field(default_factory=list)

    @property
    def tour(self) -> list[Pose]:
        """All poses from the start to the end, one joint moving from each to the next."""
        return [self.start, *itertools.chain.from_iterable(visit.path for visit in self.visits), *self.way_back]

    def moving_time(self, speeds: Sequence[float]) -> float:
        """Return the seconds of the robot's time that the moves take at these speeds (per joint, m/s or rad/s)."""
        return sum(travel_time(a, b, speeds) + LATENCY for a, b in itertools.pairwise(self.tour))

    def after(self, number: int) -> "Plan":
        return Plan(self.visits[number - 1].pose, self.visits[number:], self.way_back)


def travel_time(a: Pose, b: Pose, speeds: Sequence[float]) -> float:
    """Return the seconds that a move takes in which the joints go from `a` to `b` one after the other."""
    return sum(abs(y - x) / speed for x, y, speed in zip(a, b, speeds, strict=False))


def plan_collection(
    start: Pose, grids: Sequence[Sequence[float]], speeds: Sequence[float], free: Free, explain: Callable[[Pose], str],
    margin: float, outright: Free, profile: RobotProfile, done: Callable[[Pose], bool] = lambda pose: False,
) -> Plan:  # fmt: skip
    """Return the tour over a grid (values per joint) from the robot's present pose, from pose to the nearest one not
    yet visited. The grid's free poses are the nodes of a graph, moves of one joint between neighbours its edges; poses
    that are not free, or that no free path leads to, are skipped. `free` returns whether no parts are nearer than
    `margin` (m) to each other in poses, `explain` which parts are in one, `done` whether a pose is captured already,
    `outright` whether no parts touch: a robot that stands with parts nearer than the margin (stowed, say) may leave
    that pose without it. Raises `Refused` if the present pose touches, or no pose can be reached from it."""
    cramped = not all(free([start]))
    if cramped and not all(outright([start])):
        fault = f"parts touch at the arm's present pose ({describe(start, profile)}): {explain(start)}"
        remedy = "move the arm to a free pose (for example /home_the_robot) and try again"
        raise Refused(f"by the robot's model, {fault}; {remedy}")

    def move_is_free(a: Pose, b: Pose, free: Free) -> bool:
        return all(free([b, *samples_between(a, b, margin, profile)]))

    poses = list(itertools.product(*grids))
    there = np.array(free(poses), dtype=bool)
    captured = np.array([done(pose) for pose in poses], dtype=bool)
    plan = Plan(start)
    plan.skipped = [Skipped(poses[node], explain(poses[node])) for node in np.flatnonzero(~captured & ~there)]
    wanted = set(np.flatnonzero(~captured & there).tolist())
    if not wanted:
        return plan
    index = np.arange(len(poses)).reshape([len(values) for values in grids])
    beside = [
        (a, b)
        for axis, count in enumerate(index.shape)
        for a, b in zip(index.take(range(count - 1), axis).flat, index.take(range(1, count), axis).flat, strict=True)
        if there[a] and there[b] and move_is_free(poses[a], poses[b], free)
    ]
    edges = np.array(beside, dtype=int).reshape(-1, 2)
    times = [travel_time(poses[a], poses[b], speeds) for a, b in edges]
    graph = csr_array((times, edges.T), shape=(len(poses), len(poses)))

    def path_to_nearest(node: int, targets: set[int]) -> list[Pose] | None:
        """Return the poses of the quickest path to whichever target is nearest; None if none is reached."""
        reached_in, before = dijkstra(graph, directed=False, indices=node, return_predecessors=True)
        nearest = min(sorted(targets), key=reached_in.__getitem__)
        if not np.isfinite(reached_in[nearest]):
            return None
        path = [nearest]
        while path[-1] != node:
            path.append(int(before[path[-1]]))
        return [poses[each] for each in reversed(path)]

    by_distance = sorted(np.flatnonzero(there).tolist(), key=lambda node: travel_time(start, poses[node], speeds))
    way_is_free = functools.cache(functools.partial(move_is_free, free=outright if cramped else free))
    approach = _entry(start, [poses[node] for node in by_distance[:ENTRIES]], way_is_free)
    if approach is None:
        remedy = "move the arm to a roomier pose (for example /home_the_robot) and try again"
        way = f"from the arm's present pose ({describe(start, profile)}) to a pose of the plan"
        raise Refused(f"no collision-free path leads {way}; {remedy}")
    first = here = poses.index((start, *approach)[-1])
    way_in = approach
    while wanted and (path := path_to_nearest(here, wanted)):
        here = poses.index(path[-1])
        wanted.discard(here)
        moves = _merged([plan.visits[-1].pose if plan.visits else start, *way_in, *path[1:]])
        way_in = ()
        plan.visits.append(Visit(path[-1], tuple(moves[1:]) or (path[-1],)))
    plan.skipped += [Skipped(poses[node], "no collision-free path leads there") for node in sorted(wanted)]
    back = path_to_nearest(here, {first})
    plan.way_back = tuple(_merged([*back, *reversed(approach[:-1]), start])[1:] if back else ())
    return plan


def plan_of_robot(
    model: RobotModel, settings: CollectionSettings, profile: RobotProfile, start: Pose,
    others: Mapping[str, float] = {}, done: Callable[[Pose], bool] = lambda pose: False,
    collision: SelfCollision | None = None,
) -> Plan:  # fmt: skip
    """Return the tour over the grids of `settings` from the pose `start`; `others` are the positions (m, rad) of the
    description's joints that no pose moves; `collision` is this robot's with the settings' margin, if it is there
    already. Raises as `plan_collection`."""
    floor = float(link_transform(model, {}, profile.footprint_frame)[2, 3])
    still = profile.still_joints(model)
    with_margin = collision or SelfCollision(model, settings.margin, floor, still=still)
    outright = functools.cache(lambda: SelfCollision(model, 0.0, floor, still=still))  # seldom asked for
    resting = {name: value for name, value in others.items() if name in model.joints}

    def positions(poses: Sequence[Pose]) -> dict[str, float | np.ndarray]:
        commanded = dict(zip(profile.commands.values(), np.array(poses, dtype=float).T, strict=False))
        return resting | profile.joint_positions(model, commanded)

    def free(poses: Sequence[Pose], collision: SelfCollision = with_margin) -> np.ndarray:
        return np.broadcast_to(collision.free(positions(poses)), len(poses))  # a robot without joints has one pose

    def explain(pose: Pose) -> str:
        pairs = [f"{a} near {b}" for a, b in with_margin.colliding_pairs(positions([pose]))]
        return ", ".join([*pairs[:PAIRS_SHOWN], *["..."] * (len(pairs) > PAIRS_SHOWN)])

    grids, speeds = ([values[joint] for joint in profile.planned_names] for values in (settings.grids, settings.speeds))
    return plan_collection(
        start, grids, speeds, free, explain, settings.margin, lambda poses: free(poses, outright()), profile, done
    )


def duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


def describe(pose: Pose, profile: RobotProfile) -> str:
    values = zip(profile.planned_names, pose, strict=False)
    return ", ".join(f"{joint} {value:.3g}" for joint, value in values) or "the only pose"


def samples_between(a: Pose, b: Pose, margin: float, profile: RobotProfile) -> Iterator[Pose]:
    """Yield poses strictly between `a` and `b`, so close that no part moves further than `margin` from the nearest one.
    Parts that are free with that margin in all of them (and in `a` and `b`) cannot touch anything in between."""
    reach = (1.0 if joint.linear else profile.reach for joint in profile.planned)
    moved = sum(abs(y - x) * length for x, y, length in zip(a, b, reach, strict=False))
    count = math.ceil(moved / (2.0 * max(margin, 0.005)))
    for index in range(1, count):
        share = index / count
        yield tuple(x + share * (y - x) for x, y in zip(a, b, strict=False))


def _entry(start: Pose, targets: Sequence[Pose], way_is_free: Callable[[Pose, Pose], bool]) -> tuple[Pose, ...] | None:
    """Return a free path (poses, without the start) from `start` to the first of the targets that one leads to."""
    for target in targets:
        moving = [joint for joint in range(len(start)) if start[joint] != target[joint]]
        for order in itertools.permutations(moving):
            way = [start]
            for joint in order:
                way.append((*way[-1][:joint], target[joint], *way[-1][joint + 1 :]))
            if all(way_is_free(a, b) for a, b in itertools.pairwise(way)):
                return tuple(way[1:])
    return None


def _merged(poses: Sequence[Pose]) -> list[Pose]:
    """Return the poses without those that only pass through: the same joint moves on in the same direction."""
    result: list[Pose] = []
    for pose in poses:
        if result[-1:] == [pose]:
            continue
        if len(result) >= 2:
            first, second = np.sign(np.diff([*result[-2:], pose], axis=0))
            if np.array_equal(first, second) and np.count_nonzero(first) == 1:
                result.pop()
        result.append(pose)
    return result
