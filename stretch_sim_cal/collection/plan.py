"""Which arm poses a collection visits, in which order and on which paths, so that nothing touches anything.

Free of ROS. A pose holds the values (m, rad) of the planned joints of the robot's profile, the joints of a dataset; of
the Stretch (lift, arm, wrist_yaw, wrist_pitch, wrist_roll). The robot moves one joint at a time: its path then does not
depend on the ratio of its joints' speeds, and is the one that was checked.

The grid's free poses are the nodes of a graph, moves of one joint between neighbours its edges. Poses that are not
free, or that no free path leads to, are skipped and listed. The tour goes from pose to the nearest one not yet visited.
"""

import functools
import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from stretch_sim_cal.collection.settings import CollectionSettings
from stretch_sim_cal.errors import Refused
from stretch_sim_cal.robot.collision import SelfCollision
from stretch_sim_cal.robot.kinematics import link_transform
from stretch_sim_cal.robot.model import RobotModel
from stretch_sim_cal.robot.profile import RobotProfile, stretch_profile

Pose = tuple[float, ...]
Free = Callable[[Sequence[Pose]], Sequence[bool] | np.ndarray]
"""Returns of each pose whether nothing is nearer than some margin: many at once cost little more than one."""

# Entries into the grid that are tried from the robot's pose, nearest first.
ENTRIES = 24
PAIRS_SHOWN = 3  # links that touch, in the reason for a pose that is left out
LATENCY = 0.15
"""Seconds that a move takes beside moving: command, arrival noticed."""


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
        """Return the seconds of simulated or real time that the moves take at these speeds
        (per joint, m/s or rad/s)."""
        return sum(travel_time(a, b, speeds) + LATENCY for a, b in itertools.pairwise(self.tour))

    def after(self, number: int) -> "Plan":
        """Return the rest of the plan after its first `number` visits."""
        return Plan(self.visits[number - 1].pose, self.visits[number:], self.way_back)


def travel_time(a: Pose, b: Pose, speeds: Sequence[float]) -> float:
    """Return the seconds that a move takes in which the joints go from `a` to `b` one after the other."""
    return sum(abs(y - x) / speed for x, y, speed in zip(a, b, speeds, strict=False))


def plan_collection(
    start: Pose,
    grids: Sequence[Sequence[float]],
    speeds: Sequence[float],
    free: Free,
    explain: Callable[[Pose], str],
    margin: float,
    done: Callable[[Pose], bool] = lambda pose: False,
    outright: Free | None = None,
    profile: RobotProfile | None = None,
) -> Plan:
    """Return the tour over a grid (values per joint) from the robot's present pose.

    `free` returns whether no parts are nearer than `margin` (m) to each other in poses, `explain` which parts are in
    one, `done` whether a pose is captured already, `outright` whether no parts touch (by default none do): a robot that
    stands with parts nearer than the margin (stowed, say) may leave that pose without it.
    Raises `Refused` if the present pose touches, or no pose of the grid can be reached from it.
    """
    profile = profile or stretch_profile()
    outright = outright or (lambda poses: [True] * len(poses))
    cramped = not all(free([start]))
    if cramped and not all(outright([start])):
        raise Refused(
            f"the robot's model says that parts touch where the arm is now ({describe(start, profile)}): "
            f"{explain(start)}; move the arm to a free pose (for example /home_the_robot) and try again"
        )
    graph = _Graph(grids, speeds, free, margin, profile)
    plan = Plan(start)
    wanted = set()
    for node in graph.nodes():
        pose = graph.pose(node)
        if done(pose):
            continue
        if graph.is_free(node):
            wanted.add(node)
        else:
            plan.skipped.append(Skipped(pose, explain(pose)))
    if not wanted:
        return plan
    entry = _entry(start, graph, outright if cramped else free)
    if entry is None:
        raise Refused(
            f"no path free of collisions leads from where the arm is now ({describe(start, profile)}) to a pose of the "
            "plan; move the arm to a roomier pose (for example /home_the_robot) and try again"
        )
    approach, node = entry
    way_in = approach
    while wanted:
        path = graph.path_to_nearest(node, wanted)
        if path is None:
            break
        node = path[-1]
        wanted.discard(node)
        poses = _merged([plan.visits[-1].pose if plan.visits else start, *way_in, *(graph.pose(n) for n in path[1:])])
        way_in = ()
        plan.visits.append(Visit(graph.pose(node), tuple(poses[1:]) or (graph.pose(node),)))
    plan.skipped += [Skipped(graph.pose(node), "no path free of collisions leads there") for node in sorted(wanted)]
    back = graph.path_to_nearest(node, {entry[1]})
    plan.way_back = tuple(
        _merged([*(graph.pose(n) for n in back), *reversed(approach[:-1]), start])[1:] if back else ()
    )
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
        pairs = with_margin.colliding_pairs(positions([pose]))
        return ", ".join(f"{a} near {b}" for a, b in pairs[:PAIRS_SHOWN]) + (
            ", ..." if len(pairs) > PAIRS_SHOWN else ""
        )

    return plan_collection(
        start,
        [settings.grids[joint] for joint in profile.planned_names],
        [settings.speeds[joint] for joint in profile.planned_names],
        free=free,
        outright=lambda poses: free(poses, outright()),
        explain=explain,
        margin=settings.margin,
        done=done,
        profile=profile,
    )


def describe(pose: Pose, profile: RobotProfile | None = None) -> str:
    """Return a pose in words."""
    names = (profile or stretch_profile()).planned_names
    return ", ".join(f"{joint} {value:.3g}" for joint, value in zip(names, pose, strict=False)) or "the only pose"


def samples_between(a: Pose, b: Pose, margin: float, profile: RobotProfile | None = None) -> Iterator[Pose]:
    """Yield poses strictly between `a` and `b`, so close that no part moves further than `margin` from the nearest one.

    Parts that are free with that margin in all of them (and in `a` and `b`) cannot touch anything in between.
    """
    profile = profile or stretch_profile()
    reach = (1.0 if joint.linear else profile.reach for joint in profile.planned)
    moved = sum(abs(y - x) * length for x, y, length in zip(a, b, reach, strict=False))
    count = math.ceil(moved / (2.0 * max(margin, 0.005)))
    for index in range(1, count):
        share = index / count
        yield tuple(x + share * (y - x) for x, y in zip(a, b, strict=False))


class _Graph:
    """Free poses of a grid and the free moves of one joint between neighbours; both are found out when asked for."""

    def __init__(
        self, grids: Sequence[Sequence[float]], speeds: Sequence[float], free: Free, margin: float,
        profile: RobotProfile,
    ):  # fmt: skip
        self._profile = profile
        self._grids = grids
        self.speeds = speeds
        self._free = free
        self._margin = margin
        self._edges: dict[tuple, bool] = {}
        nodes = list(self.nodes())
        self._nodes = dict(zip(nodes, free([self.pose(node) for node in nodes]), strict=True))

    def nodes(self) -> Iterator[tuple[int, ...]]:
        return itertools.product(*(range(len(values)) for values in self._grids))

    def pose(self, node: tuple[int, ...]) -> Pose:
        return tuple(values[index] for values, index in zip(self._grids, node, strict=False))

    def is_free(self, node: tuple[int, ...]) -> bool:
        return bool(self._nodes[node])

    def move_is_free(self, a: Pose, b: Pose, free: Free) -> bool:
        return all(free([b, *samples_between(a, b, self._margin, self._profile)]))

    def _neighbours(self, node: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], float]]:
        for joint, step in itertools.product(range(len(node)), (-1, 1)):
            index = node[joint] + step
            if not 0 <= index < len(self._grids[joint]):
                continue
            other = (*node[:joint], index, *node[joint + 1 :])
            if self._edge_is_free(node, other):
                yield other, travel_time(self.pose(node), self.pose(other), self.speeds)

    def _edge_is_free(self, a: tuple[int, ...], b: tuple[int, ...]) -> bool:
        key = (min(a, b), max(a, b))
        if key not in self._edges:
            ends_free = self.is_free(a) and self.is_free(b)
            self._edges[key] = ends_free and self.move_is_free(self.pose(a), self.pose(b), self._free)
        return self._edges[key]

    def path_to_nearest(self, start: tuple[int, ...], targets: set) -> list[tuple[int, ...]] | None:
        """Return the quickest path (nodes, `start` first) to whichever target is nearest; None if none is reached."""
        best = {start: 0.0}
        came_from: dict = {start: None}
        queue = [(0.0, start)]
        while queue:
            time, node = heapq.heappop(queue)
            if time > best[node]:
                continue
            if node in targets:
                path = [node]
                while came_from[path[-1]] is not None:
                    path.append(came_from[path[-1]])
                return path[::-1]
            for other, cost in self._neighbours(node):
                if time + cost < best.get(other, math.inf):
                    best[other] = time + cost
                    came_from[other] = node
                    heapq.heappush(queue, (time + cost, other))
        return None


def _entry(start: Pose, graph: _Graph, free: Free) -> tuple[tuple[Pose, ...], tuple[int, ...]] | None:
    """Return a free way (poses, the start left out) from `start` to a free node of the grid, and that node."""
    nodes = sorted(graph.nodes(), key=lambda node: travel_time(start, graph.pose(node), graph.speeds))
    way_is_free = functools.cache(lambda a, b: graph.move_is_free(a, b, free))
    for node in itertools.islice(filter(graph.is_free, nodes), ENTRIES):
        target = graph.pose(node)
        moving = [joint for joint in range(len(start)) if start[joint] != target[joint]]
        for order in itertools.permutations(moving):
            way = _one_by_one(start, target, order)
            if all(way_is_free(a, b) for a, b in itertools.pairwise([start, *way])):
                return tuple(way), node
    return None


def _one_by_one(start: Pose, target: Pose, order: Sequence[int]) -> list[Pose]:
    poses, pose = [], list(start)
    for joint in order:
        pose[joint] = target[joint]
        poses.append(tuple(pose))
    return poses


def _merged(poses: Sequence[Pose]) -> list[Pose]:
    """Return the poses without those that only pass through: the same joint moves on in the same direction."""
    result: list[Pose] = []
    for pose in poses:
        if result and pose == result[-1]:
            continue
        if len(result) >= 2 and _same_direction(result[-2], result[-1], pose):
            result.pop()
        result.append(pose)
    return result


def _same_direction(a: Pose, b: Pose, c: Pose) -> bool:
    first, second = np.sign(np.subtract(b, a)), np.sign(np.subtract(c, b))
    return bool(np.array_equal(first, second) and np.count_nonzero(first) == 1)
