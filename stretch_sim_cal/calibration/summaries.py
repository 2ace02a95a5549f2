"""The stages of a result in words and in plain numbers, for terminals and machines: nodes and commands say the same."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from stretch_sim_cal.calibration.alignment.joint_estimate import AnotherPlace
from stretch_sim_cal.calibration.calibration_file import ARRAY, CalibrationFile
from stretch_sim_cal.calibration.mounts.file import each_mount
from stretch_sim_cal.calibration.mounts.result import MountSettings, MountsResult, total_deviations
from stretch_sim_cal.calibration.mounts.robot import MountedRobot, proposed
from stretch_sim_cal.calibration.observability import UNOBSERVED
from stretch_sim_cal.calibration.results import FloorResult, LidarPoses
from stretch_sim_cal.calibration.wheel_odometry import Wheels
from stretch_sim_cal.command import listed
from stretch_sim_cal.geometry.planes import floor_of_footprint
from stretch_sim_cal.geometry.transforms import SIDES, error, inverse, to_xyz_rpy

# The share by which a standard deviation has to become smaller for a further standing place to be proposed.
WORTH = 0.1


class Stage(NamedTuple):
    """A part of a result: its `name`, the `result` object with refusals and warnings, its `numbers` (plain numbers and
    arrays in mm and deg, with standard deviations) and `lines` for the terminal, and the line that proposes a further
    standing place or pose, "" without one."""

    name: str
    result: Any
    numbers: dict[str, Any]
    lines: list[str]
    proposal: str = ""


def placed_in(pose: np.ndarray) -> dict:
    """Return a pose (4, 4) as position (m) and fixed-axis angles (deg)."""
    xyz, rpy = to_xyz_rpy(pose)
    return {"xyz": xyz, "rpy_deg": np.degrees(rpy)}


def _deviations(covariance: np.ndarray) -> dict:
    """Return the standard deviations of a covariance (6, 6) of a pose."""
    deviations = np.sqrt(np.diag(covariance))
    return {"standard_deviation_mm": 1e3 * deviations[:3], "standard_deviation_deg": np.degrees(deviations[3:])}


def _moved(described: np.ndarray, pose: np.ndarray, before: str) -> dict:
    """Return the distance and angle of a pose (4, 4) from the described one."""
    moved, turned = error(described, pose)
    return {f"moved_from_{before}_mm": 1e3 * moved, f"turned_from_{before}_deg": np.degrees(turned)}


def alignment_stage(
    aligned: LidarPoses, described: Mapping[str, np.ndarray], another_place: AnotherPlace | None = None
) -> Stage:
    """Return an alignment against the `described` poses (4, 4) in base_link by name. That of two lidars by another
    method is with its frames, and with the gain of `another_place`, if it is known and large enough."""
    if len(aligned.names) == 1:
        return Stage("alignment", aligned, {}, ["one lidar: there is nothing to align"])
    if len(aligned.names) > len(SIDES) or aligned.method == ARRAY:
        return _lidars_stage(aligned, described)
    left, right = described.values()
    result, further = aligned.aligned(*aligned.names), None
    if another_place is not None and another_place.gain.max() >= WORTH:
        both = np.column_stack([another_place.before, another_place.after])
        further = {"turn_deg": np.degrees(another_place.turn), "standard_deviation_mm": (1e3 * both[0]).tolist(),
                   "standard_deviation_deg": np.degrees(both[1]).tolist()}  # fmt: skip
    right_to_left = result.right_to_left
    numbers = {
        "method": result.method, "num_frames": result.num_frames, "right_to_left": right_to_left,
        **placed_in(right_to_left), **_deviations(result.covariance),
        "right_in_base_link": placed_in(left @ right_to_left),
        **_moved(inverse(left) @ right, right_to_left, "first_guess"), "rmse_mm": result.rmse * 1e3,
        "overlap": result.overlap,
        "directions": [asdict(direction) | {"observed": direction.observed} for direction in result.directions],
        "diagnostics": result.diagnostics, "further_place": further,
    }  # fmt: skip
    base, places = numbers["right_in_base_link"], result.diagnostics.get("places", 1)
    standing = f" from {places} standing places" if places > 1 else ""
    agree = f"surfaces agree to {numbers['rmse_mm']:.2f} mm (rms)"
    agree = agree if math.isfinite(result.rmse) else "no surface agrees"
    lines = [
        f"right lidar in the left lidar's frame ({result.method}, {result.num_frames} pairs of clouds{standing}):",
        f"  xyz  {listed(numbers['xyz'], 5)} m    standard deviation {listed(numbers['standard_deviation_mm'], 3)} mm",
        f"  rpy  {listed(numbers['rpy_deg'], 4)} deg  standard deviation"
        f" {listed(numbers['standard_deviation_deg'], 4)} deg (about the left lidar's x, y, z)",
        f"  in base_link: xyz {listed(base['xyz'], 5)} m, rpy {listed(base['rpy_deg'], 4)} deg",
        f"  {numbers['moved_from_first_guess_mm']:.2f} mm and {numbers['turned_from_first_guess_deg']:.3f} deg from the"
        " initial guess",
        f"  {agree}, overlap {100 * result.overlap:.0f} %",
    ]
    for each in result.directions:
        deviation, bound = each.formatted(each.standard_deviation, ".4f"), each.formatted(each.bound, ".3g")
        unknown = "" if each.observed else "  <- not determined by this scene"
        lines.append(f"  {each.name}: {deviation} (bound {bound}){unknown}")
    if further is None:
        return Stage("alignment", aligned, numbers, lines)
    (before, after), (angle_before, angle_after) = (further[f"standard_deviation_{of}"] for of in ("mm", "deg"))
    lines.append(
        f"  a further standing place that would help most: the robot turned by {further['turn_deg']:.0f} deg (the "
        f"standard deviation of lidar to lidar, {before:.2f} mm and {angle_before:.4f} deg on each axis, would be "
        f"{100 * (1 - after / before):.0f} % and {100 * (1 - angle_after / angle_before):.0f} % smaller)"
    )
    return Stage("alignment", aligned, numbers, lines, lines[-1].strip())


def _lidars_stage(result: LidarPoses, described: Mapping[str, np.ndarray]) -> Stage:
    """Return the lidars against the `described` poses (4, 4) by name: each in the first one's frame and in base_link,
    and every pair with its standard deviations, and whether it was used."""
    (first, *others), to_first = result.names, result.to_first
    lidars = {name: {"in_base_link": placed_in(pose)} for name, pose in result.base_from_lidar.items()}
    for name, pose in to_first.items():
        nominal = inverse(described[first]) @ described[name]
        lidars[name] |= {f"to_{first}": pose, **placed_in(pose), **_moved(nominal, pose, "description")}
    pairs = [
        {
            "lidars": list(pair.names), "used": pair.used, "overlap": pair.overlap,
            **_deviations(result.covariance(*pair.names)), "refusals": list(pair.refusals),
        } for pair in result.pairs
    ]  # fmt: skip
    numbers = {"num_frames": result.num_frames, "lidars": lidars, "pairs": pairs, "diagnostics": result.diagnostics}
    how = "in one estimate" if result.method == ARRAY else f"by {result.method}, each with {first}"
    lines = [f"{len(result.names)} lidars {how} ({numbers['num_frames']} clouds of each), to {first}:"]
    for name in others:
        pose = lidars[name]
        off = f"{pose['moved_from_description_mm']:.2f} mm and {pose['turned_from_description_deg']:.3f} deg"
        place = f"xyz {listed(pose['xyz'], 5)} m, rpy {listed(pose['rpy_deg'], 4)} deg"
        lines.append(f"  {name}: {place}; {off} from the description")
    for pair in pairs:
        mm, deg = pair["standard_deviation_mm"], pair["standard_deviation_deg"]
        seen = f"overlap {100 * pair['overlap']:.0f} %" if pair["used"] else "no common view, linked by others"
        known = np.all(mm < 500.0 * UNOBSERVED)
        text = f"standard deviation {listed(mm, 3)} mm, {listed(deg, 4)} deg" if known else "not determined"
        lines.append(f"  {' - '.join(pair['lidars'])}: {text} ({seen})")
    return Stage("lidars", result, numbers, lines)


def wheels_stage(result: Wheels) -> Stage:
    """Return the lidars against the wheels."""
    numbers = wheels_numbers(result)
    return Stage("wheels", result, numbers, wheels_lines(result, numbers))


def wheels_numbers(result: Wheels) -> dict:
    """Return the lidars against the wheels as plain numbers and arrays: mm, deg, standard deviations."""
    lidars = {}
    for name, pose in result.footprint_from_lidar.items():
        planar, covariance = result.planar(name)
        deviations = np.sqrt(np.diag(covariance))
        lidars[name] = {
            "base_footprint_from_lidar": pose, **placed_in(pose), "x_mm": 1e3 * planar[0], "y_mm": 1e3 * planar[1],
            "yaw_deg": np.degrees(planar[2]), "standard_deviation_mm": 1e3 * deviations[:2],
            "standard_deviation_yaw_deg": np.degrees(deviations[2]),
        }  # fmt: skip
    return {
        "num_stations": len(result.stations), "lidars": lidars, "odometry": result.odometry, "slip": result.slip,
        "stations": [pose[:2, 3].tolist() for pose in result.stations], "enough": result.enough,
        "more": None if result.gain is None else result.gain.words,
    }  # fmt: skip


def wheels_lines(result: Wheels, numbers: dict) -> list[str]:
    """Return the lidars against the wheels and their `wheels_numbers` as lines for the terminal."""
    stations = f"({numbers['num_stations']} stations)"
    lines = [f"lidars relative to the centre of rotation and the direction of driving {stations}:"]
    for name, pose in numbers["lidars"].items():
        place = f"x {pose['x_mm']:.2f} mm, y {pose['y_mm']:.2f} mm, yaw {pose['yaw_deg']:.3f} deg"
        known = f"{listed(pose['standard_deviation_mm'], 2)} mm, {pose['standard_deviation_yaw_deg']:.3f} deg"
        lines.append(f"  {name}: {place}, standard deviation {known}")
    odometry = numbers["odometry"]
    text = ", ".join(
        f"{what} {100 * odometry[name]:+.2f} % (+- {100 * odometry[f'{name}_std']:.2f} %)"
        for name, what in (("scale_x", "along x"), ("scale_y", "along y"), ("turn", "in angle"))
    )
    if "clock" in odometry:
        late = f"{1e3 * odometry['clock']:.1f} ms (+- {1e3 * odometry['clock_std']:.1f} ms)"
        text = f"{text}; its stamps are late by {late}"
    slip = f"slip {numbers['slip']:.1f} times the expected"
    lines.append(f"  odometry reads more than the truth by: {text}; {slip}")
    if numbers["more"] is not None:
        lines.append(f"  to improve: {numbers['more']}")
    return lines


def floor_stage(result: FloorResult, nominal_footprint_from_base: np.ndarray) -> Stage:
    """Return a floor against that of the description (4, 4), with its support; of none that it is not known."""
    normal = result.plane.normal
    nominal = floor_of_footprint(nominal_footprint_from_base)
    deviations = np.sqrt(np.diag(result.covariance))
    numbers = {
        "method": result.method, "num_frames": result.num_frames, "num_inliers": result.num_inliers,
        "footprint_from_base": result.footprint_from_base, "normal": normal, "offset": result.plane.offset,
        "height_mm": result.plane.offset * 1e3, "height_standard_deviation_mm": deviations[0] * 1e3,
        "tilt_deg": np.degrees([-normal[1], normal[0]]), "tilt_standard_deviation_deg": np.degrees(deviations[1:]),
        "higher_than_described_mm": (result.plane.offset - nominal.offset) * 1e3, "rmse_mm": result.rmse * 1e3,
        "support_area_m2": result.support.area if result.support else None,
        "support_gap_deg": float(np.degrees(result.support.gap)) if result.support else None,
        "diagnostics": result.diagnostics,
    }  # fmt: skip
    title = f"floor in base_link ({result.method}, {result.num_frames} pairs of clouds, {result.num_inliers} returns):"
    if not np.isfinite(result.covariance).all():
        return Stage("floor", result, numbers, [f"{title} unknown"])
    deviation, relative = numbers["height_standard_deviation_mm"], numbers["higher_than_described_mm"]
    tilts = [f"{listed(numbers[key], 4)} deg" for key in ("tilt_deg", "tilt_standard_deviation_deg")]
    lines = [
        title,
        f"  base_link lies {numbers['height_mm']:.2f} mm above it, standard deviation {deviation:.3f} mm"
        f" ({relative:+.2f} mm relative to the description)",
        f"  tilt of the floor about base x, y: {tilts[0]}, standard deviation {tilts[1]}",
        f"  returns scatter {numbers['rmse_mm']:.2f} mm (rms) about the plane",
    ]
    if result.support:
        gap = f"widest gap around the robot {numbers['support_gap_deg']:.0f} deg"
        lines.append(f"  supported by {result.support.area:.1f} m2 of floor, {gap}")
    return Stage("floor", result, numbers, lines)


def mounts_stage(result: MountsResult, robot: MountedRobot, settings: MountSettings, file: CalibrationFile) -> Stage:
    """Return extrinsics of a robot, and the further pose that would help most, if one would; lidars without returns
    from the robot are placed by the file's transforms."""
    lidars = {}
    for side, (pose, covariance) in each_mount(file, result).items():
        position, angle = total_deviations(covariance, pose)
        distance, turned = error(robot.nominal[side], pose)
        lidars[side] = {
            "base_link_from_lidar": pose, **placed_in(pose),
            "from_description_mm": 1e3 * distance, "from_description_deg": np.degrees(turned),
            "standard_deviation_mm": 1e3 * position, "standard_deviation_deg": np.degrees(angle),
        }  # fmt: skip
    offsets = {offset.joint: offset.numbers | {"separable": offset.separable} for offset in result.joint_offsets}
    numbers = {
        "num_samples": result.num_samples, "num_points": result.num_points, "rmse_mm": 1e3 * result.rmse, **lidars,
        "joint_offsets": offsets, "diagnostics": result.diagnostics,
    }  # fmt: skip
    lines = [f"lidars in base_link, from {result.num_samples} arm poses, {result.num_points} returns of the robot:"]
    for side, pose in lidars.items():
        lines.append(
            f"  {side:<5} xyz {listed(pose['xyz'], 5)} m, rpy {listed(pose['rpy_deg'], 4)} deg, standard deviation "
            f"{pose['standard_deviation_mm']:.2f} mm {pose['standard_deviation_deg']:.3f} deg; "
            f"{pose['from_description_mm']:.1f} mm and {pose['from_description_deg']:.2f} deg from the description"
        )
        if side not in result.directions:
            lines.append("        by its transform to the left one")
            continue
        weakest = max(result.directions[side], key=lambda direction: direction.standard_deviation / direction.bound)
        lines.append(f"        least certain: {weakest.name}")
    for offset in result.joint_offsets:
        value, deviation = offset.value, offset.standard_deviation
        scale, unit = (float(np.degrees(1.0)), "deg") if offset.turns else (1e3, "mm")
        lines.append(
            f"  {offset.joint} is {scale * value:+.2f} {unit} from its reading (+- {scale * deviation:.2f} {unit}) "
            f"and moves {100 * offset.scale:+.2f} % further (+- {100 * offset.scale_deviation:.2f} %)"
        )
    if (proposal := proposed(result, robot, settings)) is not None:
        share = proposal.deviation / proposal.before
        position, angle = max(map(result.total_deviations_of, result.directions))
        lines.append(
            f"  a further pose that would help most: {proposal.name} (the less certain lidar's standard deviation "
            f"{1e3 * position:.2f} mm and {np.degrees(angle):.3f} deg would be {100 * (1 - share):.0f} % smaller)"
        )
    return Stage("mounts", result, numbers, lines, "" if proposal is None else lines[-1].strip())


def plain(value: Any) -> Any:
    """Return `value` in what JSON has; it has no infinity, so an unbounded deviation becomes null."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
