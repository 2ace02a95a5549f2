"""The evidence of returns for a body shape: the robot's pose, payloads, and links that are misplaced or missing.

The model's surfaces represent all returns that they explain: their projection is exact, the returns are noisy and never
show hidden parts. Other returns are sorted by the frame in which they are constant (`payload.py`): those that belong to
a link become a surface, all others are reported and left out.

It assumes that only the arm moves, that joint values are of the time of the clouds, and that a right description is
right to a centimetre.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from stretch_sim_cal.calibration.body import returns as seen
from stretch_sim_cal.calibration.body.outline import RobotOutline
from stretch_sim_cal.calibration.body.payload import UnmodelledObject, payload_surface, smoothed, unmodelled_objects
from stretch_sim_cal.geometry.points import convex_hull
from stretch_sim_cal.geometry.rays import RangeImage
from stretch_sim_cal.geometry.transforms import apply, inverse, rotation_angle
from stretch_sim_cal.robot.surfaces import Surface

SMALLEST_MOTION = 0.001  # m: a smaller motion of the model is not applied
MIN_RETURNS = 100  # from the robot in a pose, below which a warning is given
SEEN_THROUGH = 0.6  # share of a link's returns from behind it, above which the link is misplaced
SEEN_RETURNS = 60
BIN = np.deg2rad(1.5)  # of a direction in which one return may hide a place behind it
FLOOR_RETURNS = 20_000  # of a pose that are looked at


@dataclass(frozen=True)
class PoseReturns:
    """One pose: `points` (N, 3) in base_footprint, floor included, their `lidars` (N,), None if unknown, and the poses
    (4, 4) of the model's links at the measured joint values."""

    name: str
    points: np.ndarray
    lidars: np.ndarray | None
    footprint_from_link: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class BodyEvidence:
    """The result. `seen_from_model` (4, 4) moves the model, in base_footprint, to the pose in which the lidars see it.

    `payloads` are by name the link that carries them and their surface in its frame. Per pose: `returns` (K, 2) from
    the robot, smoothed, `outliers` (K, 2) that are not of the robot, and `misplaced`, the links whose pose is not the
    model's.
    """

    seen_from_model: np.ndarray
    registration: seen.BodyRegistration | None
    payloads: dict[str, tuple[str, Surface]]
    returns: list[np.ndarray]
    outliers: list[np.ndarray]
    misplaced: list[list[str]]
    warnings: list[str] = field(default_factory=list)


class SeenRobot:
    """The model's surfaces, moved to the pose in which the lidars see them, and payloads."""

    def __init__(self, surfaces: Mapping[str, Surface], evidence: BodyEvidence | None, settings: seen.EvidenceSettings):
        self._moved = np.eye(4) if evidence is None else evidence.seen_from_model
        self._carried = {} if evidence is None else evidence.payloads
        everything = dict(surfaces) | {name: surface for name, (_, surface) in self._carried.items()}
        self._outline = RobotOutline(everything, settings.lowest, settings.highest)

    def hulls(
        self, footprint_from_link: Mapping[str, np.ndarray], sizes: Sequence[int] | None = None
    ) -> list[np.ndarray]:
        """As of `RobotOutline.hulls`."""
        frames = {link: self._moved @ transform for link, transform in footprint_from_link.items()}
        frames |= {name: frames[link] for name, (link, _) in self._carried.items()}
        return self._outline.hulls(frames, sizes)


def gather_evidence(
    poses: Sequence[PoseReturns], surfaces: Mapping[str, Surface], lidars: np.ndarray,
    settings: seen.EvidenceSettings | None = None, smoothed_returns: int = 1500,
) -> BodyEvidence:  # fmt: skip
    """Return the evidence in the returns of all poses of a robot whose links have `surfaces`.

    `lidars` (L, 3) are the described positions of the lidars in base_footprint, in the order of the numbers in
    `PoseReturns.lidars`. Of the robot's returns in a pose up to `smoothed_returns` go into `returns`.
    """
    settings = settings or seen.EvidenceSettings()
    noise = settings.range_noise
    clouds, seen_by, stand_for = zip(*(_compared(pose, lidars, settings) for pose in poses), strict=True)
    frames = [pose.footprint_from_link for pose in poses]
    views = seen.robot_views(surfaces, frames)
    registration = seen.register_returns(clouds, seen_by, views, lidars, noise)
    seen_from_model, warnings = _motion(registration)
    model_from_seen = inverse(seen_from_model)
    origins = apply(model_from_seen, lidars)
    spread = {link: seen.spread_points(surface.triangles, seen.SPACING) for link, surface in surfaces.items()}
    sightings = [
        seen.compare(
            apply(model_from_seen, cloud), by, origins, cloud[:, 2] > settings.lowest, view, spread, frame, noise
        )
        for cloud, by, view, frame in zip(clouds, seen_by, views, frames, strict=True)
    ]

    def images() -> list[list[RangeImage]]:
        by_pose = []
        for pose in poses:
            cloud = apply(model_from_seen, np.asarray(pose.points[:, :3], dtype=float))
            by_pose.append([RangeImage(BIN) for _ in origins])
            for lidar, image in enumerate(by_pose[-1] if pose.lidars is not None else []):
                image.add(cloud[pose.lidars == lidar] - origins[lidar])
        return by_pose

    objects = unmodelled_objects(sightings, frames, surfaces, origins, images)
    held = [item for item in objects if item.kind == "payload"]
    payloads = {
        f"payload {number}": (item.link, payload_surface(item, sightings, frames, noise))
        for number, item in enumerate(held, start=1)
    }
    misplaced = _misplaced(sightings, stand_for, list(surfaces))
    names = [pose.name for pose in poses]
    counts = [np.count_nonzero(sighting.on_model) for sighting in sightings]
    warnings += [
        f"{name}: only {count} returns from the robot"
        for name, count in zip(names, counts, strict=True) if count < MIN_RETURNS
    ]  # fmt: skip
    warnings += _disagreements(names, objects, misplaced)
    returns, outliers = [], []
    for sighting, frame in zip(sightings, frames, strict=True):
        of_payload = np.zeros(len(sighting.points), dtype=bool)
        for item in held:
            of_payload |= sighting.extra & item.holds(sighting.points, frame[item.link])
        of_robot, others = sighting.on_model | of_payload, sighting.extra & ~of_payload
        points = smoothed(sighting.points[of_robot], sighting.directions[of_robot], noise, smoothed_returns)
        returns.append(convex_hull(apply(seen_from_model, points)[:, :2]))
        outliers.append(apply(seen_from_model, sighting.points[others])[:, :2])
    return BodyEvidence(seen_from_model, registration, payloads, returns, outliers, misplaced, warnings)


def _compared(
    pose: PoseReturns, lidars: np.ndarray, settings: seen.EvidenceSettings
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the points that are compared with the model, in double precision, the lidar of each, -1 if unknown, and
    the number of returns that each represents: those between the heights of the body, and some of the floor's, for
    links that are seen through. Points near a lidar are of its housing and head."""
    points = np.asarray(pose.points[:, :3], dtype=float)
    apart = seen.nearest_range(points, lidars) > seen.OWN_HEAD
    counts = (points[:, 2] > settings.lowest) & (points[:, 2] < settings.highest)
    floor = np.flatnonzero(apart & (points[:, 2] <= settings.lowest))
    every = max(1, len(floor) // FLOOR_RETURNS)
    body = np.flatnonzero(apart & counts)
    chosen = np.concatenate([body, floor[::every]])
    stands_for = np.where(np.arange(len(chosen)) < len(body), 1, every)
    return points[chosen], np.full(len(chosen), -1) if pose.lidars is None else pose.lidars[chosen], stands_for


def _motion(registration: seen.BodyRegistration | None) -> tuple[np.ndarray, list[str]]:
    """Return seen_from_model (4, 4), the identity if the returns show no significant motion, and warnings."""
    if registration is None:
        return np.eye(4), ["too few returns are near the model to determine where the lidars see the robot"]
    seen_from_model, reach, standard_error = registration
    if reach <= max(SMALLEST_MOTION, 3 * standard_error):
        return np.eye(4), []
    message = (
        f"the returns show the robot displaced by up to {1e3 * reach:.1f} mm and "
        f"{np.degrees(rotation_angle(seen_from_model)):.2f} deg from where its description has it: the left lidar's "
        "mount is off, or the floor calibration; the shape is fitted where the returns show the robot"
    )
    return seen_from_model, [message]


def _misplaced(
    sightings: Sequence[seen.Sighting], stand_for: Sequence[np.ndarray], links: Sequence[str]
) -> list[list[str]]:
    """Return for each pose the links through which the lidars see surfaces behind them."""
    by_pose = []
    for sighting, weights in zip(sightings, stand_for, strict=True):
        behind = sighting.through
        through = np.bincount(sighting.links[behind], weights[behind], minlength=len(links))
        on = np.bincount(sighting.links[sighting.on_model & (sighting.links >= 0)], minlength=len(links))
        wrong = (through >= SEEN_RETURNS) & (through > SEEN_THROUGH * (through + on))
        by_pose.append([links[i] for i in np.flatnonzero(wrong)])
    return by_pose


def _disagreements(
    names: Sequence[str], objects: Sequence[UnmodelledObject], misplaced: Sequence[Sequence[str]]
) -> list[str]:
    """Return a sentence for each object, and for each misplaced link."""
    messages = []
    passing: dict[tuple[int, ...], list[UnmodelledObject]] = {}
    for item in objects:
        size = f"{' x '.join(f'{100 * length:.0f}' for length in item.size)} cm"
        place = f"({', '.join(f'{value:.2f}' for value in item.centre)}) m in {item.link}"
        if item.kind == "payload":
            messages.append(
                f"an object of {size} at {place} moves with the robot but is not in its description; it is "
                "enclosed (if it is not part of the robot, remove it and collect again)"
            )
        elif item.kind == "room":
            messages.append(
                f"an object of {size} at {place} stands beside the robot in {_samples(names, item.samples)}; ignored"
            )
        else:
            passing.setdefault(item.samples, []).append(item)
    for samples, parts in passing.items():
        near = sorted({part.link for part in parts})
        messages.append(
            f"{_samples(names, samples)}: returns near {', '.join(near)} that other poses do not show: a person or a "
            "wrong joint value; ignored, collect these poses again"
        )
    by_poses: dict[tuple[int, ...], list[str]] = {}
    for link in sorted({link for links in misplaced for link in links}):
        by_poses.setdefault(tuple(i for i, links in enumerate(misplaced) if link in links), []).append(link)
    for wrong, links in by_poses.items():
        seen_through = f"{_samples(names, wrong)}: the lidars see through {', '.join(links)}"
        if len(wrong) > len(names) / 2:
            messages.append(f"{seen_through}: is a part of the description missing on the robot?")
        else:
            messages.append(f"{seen_through}, off their joint values; check the joints and collect again")
    return messages


def _samples(names: Sequence[str], chosen: Sequence[int]) -> str:
    if len(chosen) == len(names) > 1:
        return "all samples"
    return ", ".join(names[i] for i in chosen)
