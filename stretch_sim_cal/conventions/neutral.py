"""What holds for any robot's description, whatever convention it keeps. Each rule yields one finding for each
departure; shapes are looked at with all joints at zero."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.conventions.measures import UP, frames_in, shown, turn_deg
from stretch_sim_cal.conventions.profile import Finding, by_level, error, info, warning
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.rays import RayTarget
from stretch_sim_cal.geometry.transforms import from_xyz_rpy
from stretch_sim_cal.robot.kinematics import link_transforms
from stretch_sim_cal.robot.model import Link, RobotModel
from stretch_sim_cal.robot.surfaces import LARGEST, Surface, geometry_surface, joined, lowest_points, wheel_joints

BASE, FOOTPRINT = "base_link", "base_footprint"
LIDAR_NAMES, NO_LIDAR = ("lidar", "velodyne", "ouster", "hesai", "laser"), ("imu", "optical", "mount", "tower", "base")
CAMERA_FROM_OPTICAL = from_xyz_rpy((0.0, 0.0, 0.0), (-np.pi / 2, 0.0, -np.pi / 2))[:3, :3]
SMALLEST = 5e-4  # m: extents of a link's shape below it, or above `LARGEST`, are in other units
STICKS_OUT = 0.05  # m that a visual shape may be beyond the collision shape
FLOOR_OFF, DEEP = 0.005, 0.02  # m between wheels and base_footprint that is worth a warning, or an error
GYRATION = 2.0  # times a shape's largest half extent, beyond which no such mass lies in it
SOLID = 5.0  # times the inertia of a solid shape, or that part of it, from which there is a finding
TURNS = 4 * np.pi  # rad: limits beyond it are in degrees
UPRIGHT_DEG, OPTICAL_DEG = 20.0, 1.0
RING = 360  # rays of a lidar, around its axis, and their elevations in deg
ELEVATIONS = (-10.0, 0.0, 10.0)
BLOCKED = 0.5  # share of them that may end on the robot within a metre
NEAR = 1.0


@dataclass(frozen=True)
class Shaped:
    """A model with the shapes that can be read, by kind and link in the links' own frames."""

    model: RobotModel
    surfaces: dict[str, dict[str, Surface]]

    @property
    def solid(self) -> dict[str, Surface]:
        """The collision shapes, of links without any the visual ones."""
        return self.surfaces["visual"] | self.surfaces["collision"]


def lint_neutral(model: RobotModel) -> list[Finding]:
    """Return what is wrong with a description whatever its convention, errors first."""
    surfaces: dict[str, dict[str, Surface]] = {"visual": {}, "collision": {}}
    findings = []
    for link, kind in itertools.product(model.links.values(), surfaces):
        found = []
        for shape in link.shapes(kind):
            try:
                found.append(geometry_surface(shape, kind))
            except InputError as problem:
                fix = "correct its name, or name the folder of its package (--package)"
                findings.append(error("mesh", link.name, str(problem), fix))
        if found:
            surfaces[kind][link.name] = joined(found)
    shaped = Shaped(model, surfaces)
    findings += [finding for rule in RULES for finding in rule(shaped)]
    return by_level(findings)


def masses(shaped: Shaped) -> Iterator[Finding]:
    """A link that moves has a mass, and inertias are those of a body of its size."""
    for link in shaped.model.links.values():
        joint, inertial = shaped.model.parent_joint(link.name), link.inertial
        shape = shaped.solid.get(link.name)
        if inertial is None:
            if joint is not None and joint.variables and shape is not None:
                message = f"it moves ({joint.name}) and has no <inertial>; simulators drop it or refuse the robot"
                yield warning("mass-missing", link.name, message, "give it mass and inertia")
            continue
        moments = np.linalg.eigvalsh(inertial.inertia)
        if inertial.mass == 0 and not moments.any():
            yield warning("mass", link.name, "its mass is 0", "leave <inertial> out, or give it a mass")
            continue
        if inertial.mass == 0 or moments[0] <= 0:
            numbers = f"mass {inertial.mass:g} kg with principal moments {shown(moments)} kg m2"
            yield error("inertia", link.name, f"{numbers} is physically impossible", "all of them have to be above 0")
        elif moments[2] > (moments[0] + moments[1]) * (1 + 1e-6):
            message = f"of its principal moments {shown(moments)} kg m2 one exceeds the sum of the others"
            yield error("inertia", link.name, message, "physically impossible: compute them again")
        elif shape is not None:
            centre = inertial.link_from_inertial[:3, 3]
            reach = float(np.linalg.norm(shape.vertices - centre, axis=1).max())
            gyration = float(np.sqrt(moments[2] / inertial.mass))
            if gyration > GYRATION * reach:
                where = f"{gyration:.3g} m from its centre, its shape ends at {reach:.3g} m"
                message = f"{inertial.mass:g} kg would lie {where}"
                yield warning("inertia-size", link.name, message, "compute it in kg m2 from shape and mass")
            else:
                yield from _of_shape(link, moments)
            low, high = shape.vertices.min(axis=0), shape.vertices.max(axis=0)
            outside = float(np.max(np.maximum(low - centre, centre - high)))
            if outside > max(0.05, 0.2 * float(np.max(high - low))):
                message = f"its centre of mass {shown(centre)} is {outside:.3g} m outside its shape"
                yield warning("centre-of-mass", link.name, message, "give <inertial> its own origin")


def _of_shape(link: Link, moments: np.ndarray) -> Iterator[Finding]:
    """Inertias are near those of a link's one box, cylinder or sphere, if it were solid: a hint, as few are."""
    if len(link.collisions) != 1 or link.collisions[0].kind == "mesh":
        return
    shape = link.collisions[0]
    if shape.kind == "box":
        x, y, z = shape.size**2 / 12
    else:
        x = y = z = shape.radius**2 / 5
        if shape.kind == "cylinder":
            x, y, z = shape.radius**2 / 4, shape.radius**2 / 4, shape.length**2 / 12
    solid = link.inertial.mass * np.sort([y + z, x + z, x + y])
    factor = float(np.max(np.abs(np.log(moments / solid))))
    if factor > np.log(SOLID):
        text = f"its principal moments are {shown(1e3 * moments)} g m2, those of its {shape.kind} if it were solid "
        yield info("inertia-shape", link.name, text + shown(1e3 * solid), "none needed if the mass is distributed so")


def joints(shaped: Shaped) -> Iterator[Finding]:
    """Joints can move: limits with a range, a velocity and an effort, in rad and m."""
    for joint in shaped.model.moving_joints():
        limit = joint.limit
        if limit is None:
            continue
        if joint.type in ("revolute", "prismatic") and limit.lower == limit.upper:
            message = f"its limits are both {limit.lower:g}: it cannot move"
            yield warning("limits", joint.name, message, "give it a range, or make it fixed")
        for name, value in (("velocity", limit.velocity), ("effort", limit.effort)):
            if value == 0:
                message = f"its {name} limit is 0: controllers and simulators never move it"
                yield warning("limits", joint.name, message, f"give its {name}")
        if joint.type == "revolute" and max(abs(limit.lower), abs(limit.upper)) > TURNS:
            message = f"limits {limit.lower:g} to {limit.upper:g} are more than two turns"
            yield warning("units", joint.name, message, "limits are in rad, not deg")
        if joint.type == "prismatic" and limit.upper - limit.lower > LARGEST:
            message = f"it moves by {limit.upper - limit.lower:g} m"
            yield warning("units", joint.name, message, "limits are in m, not mm")


def shapes(shaped: Shaped) -> Iterator[Finding]:
    """Shapes are in m, each is there once, and collision shapes hold what is visible."""
    visuals, collisions = shaped.surfaces["visual"], shaped.surfaces["collision"]
    for link in shaped.model.links.values():
        for kind in (each for each, known in shaped.surfaces.items() if link.name in known):
            size = np.ptp(shaped.surfaces[kind][link.name].vertices, axis=0)
            if size.max() > LARGEST or size.max() < SMALLEST:
                message = f"its {kind} shape is {shown(size)} m in size"
                yield error("units", link.name, message, 'scale the mesh (scale="0.001 0.001 0.001" for mm)')
            same = [
                a.kind for a, b in itertools.combinations(link.shapes(kind), 2)
                if a.form == b.form and np.array_equal(a.link_from_geometry, b.link_from_geometry)
            ]  # fmt: skip
            if same:
                message = f"its {kind} contains the same {same[0]} twice"
                yield warning("duplicate", link.name, message, "remove one of them")
        if link.name in visuals and link.name not in collisions and np.ptp(visuals[link.name].vertices) > STICKS_OUT:
            message = "it has a visual shape and no collision shape: planners and lidars of simulators do not see it"
            yield warning("collision-missing", link.name, message, "give it a collision shape")
        elif link.name in visuals and link.name in collisions:
            seen, solid = visuals[link.name].vertices, collisions[link.name].vertices
            out = float(np.max([solid.min(axis=0) - seen.min(axis=0), seen.max(axis=0) - solid.max(axis=0)]))
            if out > STICKS_OUT:
                message = f"its visual shape is up to {1e3 * out:.0f} mm beyond the collision shape"
                yield warning("collision-visual", link.name, message, "enlarge the collision shape")


def floor(shaped: Shaped) -> Iterator[Finding]:
    """Wheels reach the floor, which is where base_footprint is, and nothing is below it."""
    model = shaped.model
    if FOOTPRINT not in model.links or not shaped.solid:
        return
    height = float(link_transforms(model, {}, [FOOTPRINT])[FOOTPRINT][2, 3])
    lowest = {link: z - height for link, z in lowest_points(model, shaped.solid).items()}
    rolling = {joint.child for joint in wheel_joints(model, shaped.solid)} & set(lowest)
    if rolling and abs(gap := min(lowest[link] for link in rolling)) > FLOOR_OFF:
        link = min(sorted(rolling), key=lambda name: lowest[name])
        message = f"its lowest point is {1e3 * abs(gap):.0f} mm {'above' if gap > 0 else 'below'} {FOOTPRINT}"
        found = error if abs(gap) > DEEP else warning
        yield found("wheels-floor", link, message, f"put {FOOTPRINT} on the floor, below the wheels")
    for link, z in lowest.items():
        if link not in rolling and z < min([-DEEP, *(lowest[each] - FLOOR_OFF for each in rolling)]):
            message = f"it reaches {-1e3 * z:.0f} mm below {FOOTPRINT} with all joints at 0"
            yield warning("below-floor", link, message, "correct its pose or its shape")


def frames(shaped: Shaped) -> Iterator[Finding]:
    """REP 105: there is a base_link; REP 103: its z is up, x forward, and optical frames look along z."""
    model = shaped.model
    if BASE not in model.links:
        message = f"there is no {BASE} (the root is {model.root})"
        yield warning("base-link", model.root, message, f"call the base's link {BASE} (REP 105)")
    else:
        at_zero = frames_in(model, BASE)
        for joint in wheel_joints(model, shaped.solid):
            axis = at_zero[joint.child][:3, :3] @ joint.unit_axis
            # What something hangs on is a caster's fork, whose axis is upright.
            if not model.child_joints(joint.child) and abs(axis @ UP) > np.sin(np.radians(UPRIGHT_DEG)):
                message = f"the axis of this wheel, {shown(axis)} in {BASE}, is not level"
                yield error("rep103-up", joint.name, message, f"let z of {BASE} point up (REP 103)")
    for joint in model.joints.values():
        if "optical" in joint.child and joint.variables == 0 and "optical" not in joint.parent:
            off = turn_deg(CAMERA_FROM_OPTICAL.T @ joint.parent_from_joint[:3, :3])
            if off > OPTICAL_DEG:
                message = f"it is {off:.3g} deg from z forward, x right, y down of {joint.parent}"
                fix = "give its joint rpy -pi/2 0 -pi/2, unless the camera is mounted so (REP 103)"
                yield info("rep103-optical", joint.child, message, fix)


def lidars(shaped: Shaped) -> Iterator[Finding]:
    """A lidar looks out: not into a shape that it stands in, nor mostly at the robot."""
    model = shaped.model
    named = [
        link for link in model.order
        if any(word in link.lower() for word in LIDAR_NAMES) and not any(word in link.lower() for word in NO_LIDAR)
    ]  # fmt: skip
    parents = {model.parent_joint(link).parent for link in named if model.parent_joint(link) is not None}
    at_zero = link_transforms(model)
    for link in (each for each in named if each not in parents):
        fixed = {joint.child for joint in model.child_joints(link) if not joint.variables}
        own = {link, *(parent for parent in parents if parent in named), *fixed}
        others = [shape.moved(at_zero[each]) for each, shape in shaped.solid.items() if each not in own]
        if not others:
            continue
        angles = np.arange(RING) * 2 * np.pi / RING
        rays = np.concatenate([
            np.column_stack([np.cos(e) * np.cos(angles), np.cos(e) * np.sin(angles), np.full(RING, np.sin(e))])
            for e in np.radians(ELEVATIONS)
        ]) @ at_zero[link][:3, :3].T  # fmt: skip
        share = np.mean(RayTarget(joined(others).triangles).cast(at_zero[link][:3, 3], rays)[0] < NEAR)
        if share > BLOCKED:
            message = f"{100 * share:.0f} % of its surroundings within 10 deg of level in its frame are the robot"
            found = warning if own & set(shaped.solid) else info  # a frame alone may lie in its housing's shape
            fix = "correct its pose (z is the spin axis, out of the dome), unless that shape is its own housing"
            yield found("lidar-view", link, message, fix)


RULES: tuple[Callable[[Shaped], Iterator[Finding]], ...] = (masses, joints, shapes, floor, frames, lidars)
