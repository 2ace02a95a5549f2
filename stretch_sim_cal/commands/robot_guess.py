"""The profile that a robot's description determines (`robot init`): frames, lidars, wheels, the arm's joints, which of
them the body shape follows, the stowed pose, and plans whose poses touch nothing."""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from stretch_sim_cal.calibration.body.returns import RobotOutline
from stretch_sim_cal.conventions import kept
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import SIDES, apply, inverse
from stretch_sim_cal.robot.collision import SelfCollision
from stretch_sim_cal.robot.kinematics import link_transform, link_transforms
from stretch_sim_cal.robot.sdf_as_urdf import LIDAR_SENSORS
from stretch_sim_cal.robot.surfaces import Surface, link_surfaces, lowest_points, wheel_joints

SURE_WORDS = ("lidar", "velodyne", "ouster", "hesai", "pandar")
LIDAR_WORDS = (*SURE_WORDS, "laser", "scan")
SIDE_WORDS = (("left", "front", "_1", "_l"), ("right", "rear", "back", "_2", "_r"))
BASES, FOOTPRINTS = (
    ("base_link", "base", "root_link", "chassis_link"),
    ("base_footprint", "footprint", "base_footprint_link"),
)
SMALL = 0.12  # m: joints that move parts by less are fingers and the like
MARGIN = 0.01  # m between parts in a pose that is proposed
QUARTER = 1.57  # rad
WITH_ROOM = 60  # of them, from which that of the plans is taken
ENDLESS = 3.14  # rad to either side that a joint without limits is taken to turn
FLOOR_OFF = 0.002  # m from the floor frame to the wheels' lowest point that is worth a word
TRIED = 300  # random poses, of which some with a small outline may be the stowed one
SPEED = {True: 0.10, False: 0.5}  # m/s, rad/s: far below what joints can do
COMPARED = 20  # free poses in which it is seen how much a joint changes the outline
NODES = 7  # values of a joint in the grids that are looked at
BOXES, STOWS = 6, 3  # plans, each with stowed poses, of which the first whose poses are reached is taken
FOLLOWED_FROM = 0.15  # m that the outline has to change by along a joint for the shape to follow it


@dataclass(frozen=True)
class Choice:
    """A stowed pose, plans whose grids are free of collisions, and which joints' ranges these do not go through."""

    stow: dict
    plans: dict
    narrowed: list[str]


@dataclass
class Guess:
    """A profile's content, with open questions, and `choices` of its poses, best first."""

    data: dict = field(default_factory=dict)
    choices: list[Choice] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)


def guess_profile(given, left: str | None, right: str | None, sensor: str | None, further: Sequence[str]) -> Guess:
    """Return the profile that a description (`conventions.normal_form.Description`) determines; `further` are frames of
    lidars beyond two. Raises `InputError` for links that it has not, and for lidars that are ambiguous."""
    model = given.model()
    convention = kept(model)
    guess = Guess({"name": model.name, "convention": "none" if convention is None else convention.name})
    if convention is not None:
        guess.found.append(f"convention: {convention.name} is kept")
    else:
        departures = "it keeps none (stretch-sim-cal lint --profile lists the departures)"
        guess.open.append(f"convention: {departures}; it is used as it is")
    frames: dict[str, str] = {}
    other = next(link for link in model.order if link not in FOOTPRINTS)
    for key, names in (("base_frame", BASES), ("footprint_frame", FOOTPRINTS)):
        frames[key] = next((link for link in names if link in model.links), "") or frames.get("base_frame", other)
        if frames[key] not in names:
            guess.open.append(f"{key}: no link is called {names[0]}; {frames[key]} was chosen")
    guess.data |= frames
    guess.found.append("frames: base {base_frame}, on the floor {footprint_frame}".format(**frames))
    guess.data["sensor"] = sensor or "jt128_ideal"
    if sensor is None:
        guess.open.append("sensor: a description does not name it; jt128_ideal is a placeholder: give --sensor")
    further = [model.checked_link(link) for link in further]
    lidars = _lidars(given, model, left, right, further, guess)
    names = [*SIDES, *_names_of(lidars[len(SIDES) :])]
    guess.data["lidars"] = {
        side: {"frame": link, "topic": f"/lidar_points_{side}", "unseen": _own_links(model, link)}
        for side, link in zip(names, lidars, strict=False)
    }
    if len(lidars) > 2:
        guess.found.append(f"further lidars: {', '.join(map(' '.join, zip(names[2:], lidars[2:], strict=True)))}")
    topics = " and ".join(f"/lidar_points_{side}" for side in guess.data["lidars"])
    guess.open.append(f"lidars: topic: a description does not name it; placeholder: {topics}")
    try:
        surfaces = {link: surface for link, surface in link_surfaces(model).items() if len(surface.faces)}
    except InputError as problem:
        guess.open.append(f"joints and plans: the shapes are needed: {problem}")
        return guess
    wheels = wheel_joints(model, surfaces)
    _floor(model, surfaces, wheels, guess)
    _joints(model, surfaces, wheels, guess)
    return guess


def _floor(model, surfaces: Mapping[str, Surface], wheels: Sequence, guess: Guess) -> None:
    lowest = lowest_points(model, surfaces)
    footprint = guess.data["footprint_frame"]
    if not lowest:
        return
    turning = {link for link in lowest for joint in wheels if joint in model.chain(link)}
    name, what = min(turning or lowest, key=lowest.get), "wheels" if turning else "shapes"
    gap = lowest[name] - float(link_transform(model, {}, footprint)[2, 3])
    if abs(gap) > FLOOR_OFF:
        guess.open.append(
            f"footprint_frame: the lowest point of its {what} ({name}) is {1e3 * abs(gap):.0f} mm "
            f"{'above' if gap > 0 else 'below'} {footprint}, which is assumed to be on the floor"
        )
    else:
        guess.found.append(f"floor: {footprint} is at the lowest point of its {what} ({name})")


def _lidars(given, model, left: str | None, right: str | None, further: Sequence[str], guess: Guess) -> tuple[str, ...]:
    """Return the frames of both lidars, left (or front) first, and of further ones; of one if there is no other."""
    if left is not None and right is not None:
        return model.checked_link(left), model.checked_link(right), *further
    sensors = [
        (element.get("reference"), sensor)
        for element in given.root.iter("gazebo") for sensor in element.iter("sensor")
        if sensor.get("type") in LIDAR_SENSORS
    ]  # fmt: skip
    planar = [link for link, sensor in sensors if _is_planar(sensor)]
    if planar:
        guess.found.append(f"not a lidar, scans one plane: {', '.join(planar)}")
    named = [link for link in model.order if link not in planar and any(word in link.lower() for word in LIDAR_WORDS)]
    sure = [link for link in named if any(word in link.lower() for word in SURE_WORDS)]
    if sure and len(sure) < len(named):
        others = [link for link in named if link not in sure]
        guess.found.append(f"assumed to be a laser that scans a single plane: {', '.join(others)}")
        named = sure
    candidates = list(dict.fromkeys(link for link, _ in sensors if link not in planar and link in model.links))
    candidates, named, sure = ([link for link in links if link not in further] for links in (candidates, named, sure))
    if not candidates or (sure and len(candidates) != 2 and not set(candidates) <= set(sure)):
        candidates = named  # what scans and is not called a lidar, such as a range finder, is none
    if len(candidates) > 2:  # a housing and the frame in it: the one below has the rays
        parents = {model.parent_joint(link).parent for link in candidates if model.parent_joint(link) is not None}
        candidates = [link for link in candidates if link not in parents] or candidates
    for word in LIDAR_WORDS if len(candidates) > 2 else ():
        if len(alike := [link for link in candidates if word in link.lower()]) == 2:
            candidates = alike
            break
    if len(candidates) == 1 and right is None and left in (None, candidates[0]):
        guess.found.append(f"lidars: one, {candidates[0]}")
        guess.open.append("lidars: one was found; name another one with --right LINK")
        return (candidates[0],)
    chosen = [link for link in (left, right) if link is not None]
    candidates = [link for link in candidates if link not in chosen]
    if len(candidates) > 2 - len(chosen):
        sided = [
            [link for link in candidates if any(word.strip("_") in _words(link) for word in words)]
            for words in SIDE_WORDS
        ]
        pair = [[given] if given else found for given, found in zip((left, right), sided, strict=True)]
        if all(len(found) == 1 for found in pair):
            chosen = left, right = [found[0] for found in pair]
            further, candidates = [*further, *(link for link in candidates if link not in chosen)], []
    if len(candidates) != 2 - len(chosen):
        raise InputError(
            f"{given.source}: {len(candidates)} links could be lidars ({', '.join(candidates) or 'none'}); name both "
            "with --left LINK --right LINK, and further ones with --lidar LINK"
        )
    if chosen:
        pair = (left or candidates[0], right or candidates[0])
    else:
        at_zero = link_transforms(model, {})

        def rank(link: str) -> tuple:
            in_name = [any(word in link.lower() for word in words) for words in SIDE_WORDS]
            return in_name[1] - in_name[0], -at_zero[link][1, 3], -at_zero[link][0, 3], link

        pair = tuple(sorted(candidates, key=rank))
    guess.found.append(f"lidars: left {pair[0]}, right {pair[1]}")
    return *pair, *further


def _words(link: str) -> list[str]:
    return [word for word in re.split("[^a-z0-9]+", link.lower()) if word]


def _names_of(links: Sequence[str]) -> list[str]:
    """Return what a profile calls lidars beyond two: by what their frames' names say beside lidar and link."""
    names: list[str] = []
    for link in links:
        words = [word for word in _words(link) if word not in (*LIDAR_WORDS, "link", "frame", "optical", "sensor")]
        name = "_".join(words)
        taken = (*SIDES, *names)
        names.append(name if name and name[0].isalpha() and name not in taken else f"lidar_{len(taken) + 1}")
    return names


def _is_planar(sensor) -> bool:
    """Return whether a sensor's element says how it scans, with at most one sample upwards."""
    samples = [element.findtext("samples") for element in sensor.iter("vertical")]
    says = next(sensor.iter("scan"), None) is not None
    return says and all(text is None or text.strip() in ("0", "1") for text in samples)


def _own_links(model, link: str) -> list[str]:
    """Return the links of a lidar itself: its frame, the ones named as a lidar that it is fixed in, all fixed in it."""
    own = [link]
    joint = model.parent_joint(link)
    while joint is not None and not joint.variables and any(word in joint.parent.lower() for word in LIDAR_WORDS):
        own.append(joint.parent)
        joint = model.parent_joint(joint.parent)
    for name in list(own):
        own += [j.child for j in model.child_joints(name) if not j.variables and j.child not in own]
    return own


def _joints(model, surfaces: Mapping[str, Surface], wheels: Sequence, guess: Guess) -> None:
    """Add the joints of the arm, from the base outwards, and, as not planned, the others (head, fingers)."""
    moving = [joint for joint in model.moving_joints() if joint.variables == 1 and joint not in wheels]
    limited = [joint for joint in moving if np.ptp(_limits(joint)) > 0]
    if wheels:
        guess.found.append(f"wheels, excluded from poses: {', '.join(joint.name for joint in wheels)}")
    far = [joint for joint in limited if _reach(model, surfaces, joint) > SMALL]
    chains = [[joint for joint in model.chain(end.child) if joint in far] for end in far]
    arm = max(chains, key=len, default=[])  # from the base outwards
    if not arm:
        guess.found.append("joints: none moves a large part; one body shape for all poses")
    data, asked, tied = {}, [], set()
    for parts in _telescopes(model, arm):
        names = [joint.name for joint in parts]
        tied |= set(names)
        name = _short(names[0]).rstrip("0123456789").removesuffix("_l").rstrip("_") or _short(names[0])
        speed = min(SPEED[True], *(len(parts) * joint.limit.velocity or SPEED[True] for joint in parts))
        data[name] = {"command": f"{name}_joint", "linear": True, "tie": "sum", "parts": names, "speed": speed}
        asked.append((name, f"{', '.join(names)} are assumed to be one telescope; write the name that its driver uses"))
    for joint in [*(joint for joint in arm if joint in limited), *(joint for joint in limited if joint not in arm)]:
        if joint.name in tied:
            continue
        data[_short(joint.name)] = entry = {"command": joint.name, "linear": joint.type == "prismatic"}
        if joint not in arm:
            entry["planned"] = False
            continue
        speed = SPEED[entry["linear"]]
        entry["speed"] = min(speed, (joint.limit and joint.limit.velocity) or speed)
        if joint.type == "continuous":
            entry["limits"] = [-ENDLESS, ENDLESS]
            asked.append((joint.name, "has no limits; half a turn to either side is assumed"))
        if joint.limit is not None and not joint.limit.velocity:
            asked.append((joint.name, "its velocity limit is 0, so no simulator moves it: correct it"))
    guess.open += [f"joints: {name}: {question}" for name, question in asked]
    if data:
        guess.data["joints"] = data
    if arm:
        order = list(dict.fromkeys(_named(joint, data) for joint in arm))
        guess.data["joints"] = {name: data[name] for name in [*order, *(name for name in data if name not in order)]}
        _poses(model, surfaces, arm, order, guess)


def _named(joint, data: dict) -> str:
    return next(name for name, entry in data.items() if joint.name in (entry["command"], *entry.get("parts", ())))


def _telescopes(model, arm: Sequence) -> list[list]:
    """Return the runs of two and more prismatic joints along one direction, each on the next, with equal ranges."""
    frames = link_transforms(model, {}, [joint.child for joint in arm])

    def goes_on(last, joint) -> bool:
        along, before = (frames[each.child][:3, :3] @ each.unit_axis for each in (joint, last))
        return np.allclose(before, along, atol=1e-3) and _limits(last) == _limits(joint)

    found: list[list] = []
    for joint in arm:
        if found and found[-1][-1].type == joint.type == "prismatic" and goes_on(found[-1][-1], joint):
            found[-1].append(joint)
        else:
            found.append([joint])
    return [parts for parts in found if len(parts) > 1]


def _limits(joint) -> tuple[float, float]:
    """Return a joint's limits (m, rad), those that it is taken to have if it turns endlessly."""
    if joint.type == "continuous":
        return -ENDLESS, ENDLESS
    return (0.0, 0.0) if joint.limit is None else (joint.limit.lower, joint.limit.upper)


def _reach(model, surfaces: Mapping[str, Surface], joint) -> float:
    """Return how far (m) the joint moves a part at most: over its range, or as it turns it."""
    if joint.type == "prismatic":
        return joint.limit.upper - joint.limit.lower
    below = [link for link in model.order if joint in model.chain(link) and link in surfaces]
    frames = link_transforms(model, {}, [joint.child, *below])
    from_root = inverse(frames[joint.child])
    points = (apply(from_root @ frames[link], surfaces[link].vertices) for link in below)
    return max((float(np.linalg.norm(np.cross(p, joint.unit_axis), axis=1).max()) for p in points), default=0.0)


def _poses(model, surfaces: Mapping[str, Surface], arm: Sequence, order: Sequence[str], guess: Guess) -> None:
    """Add the joints that the shape follows, the stowed pose, and plans; `order` are the arm's joints by profile."""
    footprint = guess.data["footprint_frame"]
    still = {joint.name for joint in model.moving_joints() if joint not in arm}
    collision = SelfCollision(model, MARGIN, float(link_transform(model, {}, footprint)[2, 3]), still=still)
    outline = RobotOutline(surfaces)
    parts = {name: [joint for joint in arm if _named(joint, guess.data["joints"]) == name] for name in order}
    ranges = {name: _range(joints) for name, joints in parts.items()}

    def described(pose: dict) -> dict:
        return {joint.name: value / len(parts[name]) for name, value in pose.items() for joint in parts[name]}

    def hull(pose: dict) -> np.ndarray:
        frames = link_transforms(model, described(pose), [*surfaces, footprint])
        return outline.hull({link: inverse(frames[footprint]) @ frames[link] for link in surfaces})

    def size(pose: dict) -> float:
        return float(np.linalg.norm(hull(pose), axis=1).max())

    random = np.random.default_rng(0)
    zero = {name: min(max(0.0, low), high) for name, (low, high) in ranges.items()}
    tried = [zero, *({name: float(random.uniform(*ends)) for name, ends in ranges.items()} for _ in range(TRIED))]
    free = [pose for pose in tried if collision.is_free(described(pose))]
    stowed = "a description has none; chosen among random poses without collisions for a small outline"
    guess.open.append(f"stow: {stowed if free else 'all tried poses collide; write one'}")

    def change(name: str) -> float:
        """Return how much (m) the outline changes along a joint at most, over poses of the others."""
        along = []
        for pose in free[:COMPARED] or [zero]:
            corners = [hull(pose | {name: value}) for value in np.linspace(*ranges[name], 5)]
            extents = np.array([np.concatenate([each.min(axis=0), each.max(axis=0)]) for each in corners])
            along.append(np.ptp(extents, axis=0).max())
        return float(max(along))

    changes = {name: change(name) for name in order}
    most = [name for name in sorted(changes, key=changes.get, reverse=True) if changes[name] > FOLLOWED_FROM][:2]
    followed = [name for name in order if name in most]
    grids = {name: np.linspace(*ranges[name], NODES) for name in followed}
    nodes = dict(zip(followed, np.meshgrid(*grids.values(), indexing="ij"), strict=True))

    def choice(pose: dict, box: tuple[slice, ...], stow: dict) -> Choice:
        chosen = {name: values[part] for (name, values), part in zip(grids.items(), box, strict=True)}
        ends = {name: (float(values[0]), float(values[-1])) for name, values in chosen.items()}
        still = {name: [rounded(pose[name], ranges[name])] for name in order}
        swept = {name: {"from": round(low, 3), "to": round(high, 3)} for name, (low, high) in ends.items()}
        plans = {
            plan: still | {name: {"count": count} | span for name, span in swept.items()}
            for plan, count in (("quick", 2), ("demo", 4), ("default", 6))
        }
        narrowed = [f"{name} {a:.3g} to {b:.3g}" for name, (a, b) in ends.items() if (a, b) != ranges[name]]
        return Choice({name: rounded(value, ranges[name]) for name, value in stow.items()}, plans, narrowed)

    boxes = []
    for pose in free[:WITH_ROOM]:
        free_nodes = collision.free(described(pose | {name: mesh.ravel() for name, mesh in nodes.items()}))
        boxes.append((*largest_box(free_nodes.reshape((NODES,) * len(followed))), pose))
    boxes.sort(key=lambda each: each[0], reverse=True)
    smallest = sorted(free, key=size)[:STOWS]
    for _, box, pose in boxes[:BOXES]:
        inside = [
            pose | dict(zip(followed, map(float, each), strict=True))
            for each in itertools.product(*(values[part] for values, part in zip(grids.values(), box, strict=True)))
        ]
        guess.choices += [choice(pose, box, stow) for stow in [*smallest, min(inside, key=size)]]
    if not guess.choices:
        guess.choices = [choice(zero, (slice(0, NODES),) * len(followed), zero)]
    turning = [_reach(model, surfaces, joint) for joint in arm if joint.type != "prismatic"]
    best, reach = guess.choices[0], round(max([0.1, *turning]), 2)
    guess.data |= {"shape_joints": followed, "reach": reach, "stow": [best.stow], "plans": best.plans}
    guess.data["check_joints"] = list(order)
    guess.found.append(
        f"arm: {', '.join(order)}; the body shape follows "
        + (" and ".join(f"{name} (outline {changes[name]:.2f} m)" for name in followed) or "none of them")
    )


def largest_box(free: np.ndarray) -> tuple[float, tuple[slice, ...]]:
    """Return the largest box of free nodes (bool, an axis per joint): its share of the grid's ranges, its slices."""
    spans = [[(low, high) for low in range(n) for high in range(low + 1, n)] for n in free.shape]
    best = (0.0, tuple(slice(0, 1) for _ in free.shape))
    for ends in itertools.product(*spans):
        box = tuple(slice(low, high + 1) for low, high in ends)
        size = float(np.prod([(high - low) / (n - 1) for (low, high), n in zip(ends, free.shape, strict=True)]))
        if size > best[0] and free[box].all():
            best = (size, box)
    return best


def rounded(value: float, ends: tuple[float, float]) -> float:
    """Return a joint's value as it is written down, within its range."""
    return min(max(round(float(value), 2), ends[0]), ends[1])


def _range(joints: Sequence) -> tuple[float, float]:
    """Return the range (m, rad) of plans, of a telescope the whole one: at most a quarter turn to either side."""
    low, high = (len(joints) * limit for limit in _limits(joints[0]))
    if joints[0].type != "prismatic" and max(low, -QUARTER) < min(high, QUARTER):
        low, high = max(low, -QUARTER), min(high, QUARTER)
    return round(low + 5e-4, 3), round(high - 5e-4, 3)


def _short(name: str) -> str:
    return name.removesuffix("_joint").removeprefix("joint_")
