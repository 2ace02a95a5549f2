"""Calibration by driving beside what standing still gives, and beside the plain way: GICP and hand-eye.

    python benchmarks/driving.py --seeds 8
    python benchmarks/driving.py --seeds 4 --sensor jt128
    python benchmarks/driving.py --seeds 8 --apart             the lidars see nothing in common from one place
    python benchmarks/driving.py --seeds 8 --uneven 3          a floor with waves of 3 mm rms over 2 m
    python benchmarks/driving.py --seeds 8 --slip 4            wheels that slip four times as much as is expected
    python benchmarks/driving.py --seeds 8 --continuous        few stops, and scans on the move
    python benchmarks/driving.py --seeds 30 --rows FILE        goes on where it was cut: each robot is a line of FILE

A robot (`--robot`, by default the Stretch 4), its mounts off by 5 mm and 0.5 deg, lidars with errors of their own,
odometry with scale errors of 1 % and slip of 5 mm and 0.2 deg in 1 m; it turns by a full circle in steps of 45 deg and
back, and drives 0.6 m ahead and, if it can, sideways. "plain": one GICP from each station to the next and of both
lidars, and a hand-eye fit of x, y, yaw and the scales to odometry (A. Censi et al., 2013).

"bound" is the Cramer-Rao bound, root mean square: what the same patches, floor and odometry tell, all taken at the
truth of the first robot, under the priors of the sensor file and of odometry; what its drivers correct is known.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

import stretch_sim_cal as cal
from stretch_sim_cal.calibration import driving
from stretch_sim_cal.calibration.consistency import View, seen_by_another
from stretch_sim_cal.calibration.drive_problem import STANCE, Drive, DrivenUnknowns
from stretch_sim_cal.calibration.driving import DESCRIBED, DrivenArray
from stretch_sim_cal.calibration.lidars import lidars_at
from stretch_sim_cal.calibration.patches import Noise
from stretch_sim_cal.calibration.problem import Priors, State
from stretch_sim_cal.calibration.published import GicpAlignment, PublishedAlignment, PublishedFloor
from stretch_sim_cal.calibration.room import FloorTrust, room_block
from stretch_sim_cal.calibration.settings import AlignmentSettings
from stretch_sim_cal.calibration.solver import Solver
from stretch_sim_cal.calibration.wheel_odometry import Leg
from stretch_sim_cal.geometry.planes import floor_error
from stretch_sim_cal.geometry.transforms import about_origin, adjoint, error, inverse
from stretch_sim_cal.robot.profile import profile_called
from stretch_sim_cal.sensor.points import coordinates

QUARTER = np.pi / 4
SPIN = [(0, 0, turn * QUARTER) for turn in (1, 2, 3, 4, -3, -2, -1, 0)]
AHEAD = 0.05  # m: with --apart the first lidar sees what is ahead of this, the others what is behind minus this


def drive(robot: str | None) -> list[tuple[float, ...]]:
    base = profile_called(robot).driven_base
    sideways = [(0.6, 0.6, 0), (0.6, 0.6, np.pi / 2)] if base.strafes else [(0.6, 0, np.pi / 2), (0.6, 0.6, np.pi / 2)]
    return [*SPIN, (0.6, 0, 0), *sideways, (0, 0, 0)]


def slowly(robot: str | None, step: float) -> list[tuple[float, ...]]:
    """Return the legs of a robot that turns at 20 deg/s with a stop every `step` (deg), and drives at 0.15 m/s."""
    count = round(360 / step)
    turns = [(0, 0, np.radians(20 * sign), step / 20) for sign in count * [1] + count * [-1]]
    axes = ((1, 0), (0, 1)) if profile_called(robot).driven_base.strafes else ((1, 0),)
    return [*turns, *((sign * 0.15 * x, sign * 0.15 * y, 0, 0.8 / 0.15) for x, y in axes for sign in (1, -1))]


def standing_only(stations: list[Any]) -> list[Any]:
    """Return the stations of a drive without those on the move."""
    stood, said = [], []
    for station in stations:
        said.append(station.odometry)
        if station.sweep is None:
            stood.append(replace(station, odometry=np.vstack(said)))
            said = []
    return stood


def on_the_move(args: argparse.Namespace, seed: int, simulation: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return the rows of one robot's drive with a stop every 60 deg, and with one every 180 deg without and with scans
    on the move."""
    rows = []
    for step in (60.0, 180.0):
        sim = cal.simulate(
            args.robot, args.world, args.sensor, seed, frames=args.frames, drive=slowly(args.robot, step),
            simulation=simulation, continuous=step > 60.0,
        )  # fmt: skip
        by = f"stop every {step:.0f} deg"
        rows += rows_from(sim, cal.calibrate_by_driving(sim.rig, standing_only(sim.stations)), by)
    return rows + rows_from(sim, cal.calibrate_by_driving(sim.rig, sim.stations), "180 deg, on the move")


def apart(sim: cal.Simulated) -> list[cal.simulated.Station]:
    """Return the stations as lidars see them that look ahead, the first one, and back, the others."""
    stations = []
    for station in sim.stations:
        seen = {}
        for number, (name, clouds) in enumerate(station.clouds.items()):
            pose, sign = sim.rig.base_from_lidar[name], -1.0 if number else 1.0
            ahead = [coordinates(own).astype(float) @ pose[0, :3] + pose[0, 3] for own in clouds]
            seen[name] = [own[sign * x > AHEAD] for own, x in zip(clouds, ahead, strict=True)]
        stations.append(cal.simulated.Station(seen, station.odometry, station.world_from_footprint))
    return stations


def standing(sim: cal.Simulated, stations: list[Any]) -> list[tuple[Any, ...]]:
    """Return the rows of two lidars at the first station, by one GICP and by the published methods."""
    rig, (first, second) = sim.rig, sim.rig.names[:2]
    scans = ([coordinates(cloud).astype(float) for cloud in stations[0].clouds[name]] for name in (first, second))
    pairs = list(zip(*scans, strict=True))
    nominal, rows = inverse(rig.base_from_lidar[first]) @ rig.base_from_lidar[second], []
    for by, method in (("one GICP", GicpAlignment(nominal)), ("published", PublishedAlignment(nominal))):
        for both in pairs:
            method.add(*both)
        found = method.solve().right_to_left
        far, turned = error(sim.truth.transform(first, second), found)
        rows.append(("lidar to lidar", by, 1e3 * far, np.degrees(turned), None, True))
    floor = PublishedFloor(rig.base_from_lidar[first], found, footprint_of(rig))
    for both in pairs:
        floor.add(*both)
    result = floor.solve()
    height, tilt = floor_error(sim.truth.floor, result.plane)
    rows.append(("floor", "published", 1e3 * height, np.degrees(tilt), None, result.accepted))
    return rows


def footprint_of(rig: cal.Rig) -> np.ndarray:
    return np.eye(4) if rig.footprint_from_base is None else rig.footprint_from_base


def plain(sim: cal.Simulated, stations: list[Any]) -> np.ndarray:
    """Return how far x, y, yaw (m, rad) of the first lidar against the wheels are from the truth by GICP and a
    hand-eye fit."""
    rig, first = sim.rig, sim.rig.names[0]
    pose = footprint_of(rig) @ rig.base_from_lidar[first]
    moved, legs = [], []
    for before, after in zip(stations, stations[1:], strict=False):
        leg = Leg.along(np.vstack([before.odometry[-1], after.odometry]))
        gicp = GicpAlignment(inverse(pose) @ leg.transform(np.zeros(3)) @ pose)
        for clouds in zip(before.clouds[first], after.clouds[first], strict=True):
            gicp.add(*(coordinates(own).astype(float) for own in clouds))
        moved.append(pose @ gicp.solve().right_to_left @ inverse(pose))
        legs.append(leg)

    def misfit(values: np.ndarray) -> np.ndarray:
        off = np.eye(4)
        off[:2, 3] = values[:2]
        off[:2, :2] = [[np.cos(values[2]), -np.sin(values[2])], [np.sin(values[2]), np.cos(values[2])]]
        left = [
            inverse(leg.transform(values[3:])) @ off @ seen @ inverse(off)
            for leg, seen in zip(legs, moved, strict=True)
        ]
        slipped = [np.linalg.solve(leg.slip_root(cal.DrivingSettings()), [each[0, 3], each[1, 3], each[1, 0]])
                   for leg, each in zip(legs, left, strict=True)]  # fmt: skip
        return np.concatenate([*slipped, values[3:] / 0.02])

    x, y, yaw = least_squares(misfit, np.zeros(6), loss="soft_l1").x[:3]
    turn = np.array([[np.cos(yaw), -np.sin(yaw)], [np.sin(yaw), np.cos(yaw)]])
    true = sim.truth.footprint_from_lidar[first]
    angle = np.arctan2(true[1, 0], true[0, 0]) - np.arctan2(pose[1, 0], pose[0, 0]) - yaw
    return np.array([*(turn @ pose[:2, 3] + [x, y] - true[:2, 3]), (angle + np.pi) % (2 * np.pi) - np.pi])


class TrueDrive(DrivenArray):
    """A drive whose problem is linearised at the truth."""

    def covariance(self, sim: cal.Simulated, stations: list[Any]) -> tuple[np.ndarray, np.ndarray]:
        """Return the covariance (6 n, 6 n) of the twists of the lidars in base_footprint, and that (3, 3) of the
        odometry's scales."""
        names, simulator, lidars = sim.rig.names, sim.simulator, self._views()
        units = tuple(simulator.lidar(name).unit.values for name in names)
        state = State(tuple(sim.truth.footprint_from_lidar[name] for name in names), units)
        first, errors = inverse(stations[0].world_from_footprint), simulator.driving.errors
        poses = [first @ station.world_from_footprint for station in stations]
        drive = Drive(state, poses, np.array([*errors.scale, errors.track_width]), STANCE)
        drive = self._factors.with_variances(drive)
        unknowns = DrivenUnknowns(tuple(lidar.model for lidar in lidars[: len(names)]), len(stations))
        views = drive.views(unknowns)
        pairs = self._pairs([View(lidar.surface) for lidar in lidars], views.base_from_lidar)
        _, lidars = seen_by_another(lidars, views.base_from_lidar, pairs, AlignmentSettings())
        trust = FloorTrust(driving._near(poses), driving.LEAST_UNEVENNESS,
                           driving.ON_FLOOR, of_room=True)  # fmt: skip
        noise = room_block(lidars, views, Noise.first(len(lidars)), 0.0, 1, trust, pairs=pairs).noise
        block = room_block(lidars, views, noise, 0.0, 2, trust, pairs=pairs)
        equations, *_ = self._equations(block, drive, unknowns, lidars)
        nothing = tuple(np.zeros_like(values) for values in units)
        solver = Solver(unknowns, Priors(replace(state, units=nothing), [np.diag(DESCRIBED**2)]))
        solver.with_fixed_shares(state, solver.solve(equations, state, learn=False))
        known = solver.solve(equations, state, learn=False).covariance
        own = unknowns.pose_columns
        return known[np.ix_(own, own)], known[unknowns.scales, unknowns.scales]


def bounds(sim: cal.Simulated, stations: list[Any]) -> dict[str, tuple[float, float]]:
    """Return, by row of the table, the root mean square error that no unbiased estimate can be better than: m and
    rad."""
    rig, names = sim.rig, sim.rig.names
    lidars = lidars_at(rig.base_from_lidar, rig.sensor)
    true = TrueDrive(lidars, footprint_of(rig), None, rig.body)
    for station in stations:
        true.new_station(station.odometry)
        for together in zip(*(station.clouds[name] for name in names), strict=True):
            true.add(dict(zip(names, together, strict=True)))
    covariance, scales = true.covariance(sim, stations)
    pose = sim.truth.footprint_from_lidar[names[0]]
    over_lidar = about_origin(pose)
    planar = over_lidar @ covariance[:6, :6] @ over_lidar.T
    found = {
        "floor": (planar[2, 2], np.trace(planar[3:5, 3:5])),
        "against the wheels": (np.trace(planar[:2, :2]), planar[5, 5]),
        "odometry": (np.trace(scales[:2, :2]), (2.0 * np.pi) ** 2 * scales[2, 2]),
    }
    if len(names) > 1:
        apart = adjoint(inverse(pose)) @ np.hstack([-np.eye(6), np.eye(6)])
        pair = apart @ covariance[:12, :12] @ apart.T
        found["lidar to lidar"] = np.trace(pair[:3, :3]), np.trace(pair[3:, 3:])
    return {name: tuple(np.sqrt(each)) for name, each in found.items()}


def odometry(sim: cal.Simulated, wheels: Any) -> tuple[float, float, float]:
    """Return how far the odometry's scales are from the truth: mm in 1 m, deg in a turn, and NEES over those that the
    drive tells more of than was known."""
    true = sim.simulator.driving.errors
    values, deviations = (
        np.array([wheels.odometry[f"{name}{end}"] for name in ("scale_x", "scale_y", "turn")]) for end in ("", "_std")
    )
    off, told = values - [*true.scale, true.track_width], deviations < cal.DrivingSettings().scale * 0.9
    nees = float(np.mean((off / deviations)[told] ** 2))
    return 1e3 * float(np.linalg.norm(off[:2][told[:2]])), float(abs(360.0 * off[2])), nees


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--seeds", type=int, default=8)
    add("--first-seed", type=int, default=101)
    add("--robot")
    add("--world", default="furnished_room")
    add("--sensor", default="jt128_sparse_real")
    add("--frames", type=int, default=5)
    add("--apart", action="store_true", help="lidars that see nothing in common from one place")
    add("--uneven", type=float, metavar="MM", help="floor, root mean square height")
    add("--slip", type=float, default=1.0, help="times what is expected")
    add("--continuous", action="store_true", help="compare scans on the move with stops")
    add("--only-driving", action="store_true", help="neither standing still nor the plain way")
    add("--rows", type=Path, help="file of what is found, a robot a line; robots in it are not run again")
    args = parser.parse_args()
    simulation: dict[str, Any] = {"odometry": {"slip_mm": 5.0 * args.slip, "slip_deg": 0.2 * args.slip}}
    if args.uneven:
        simulation["floor"] = {"rms_mm": args.uneven, "wavelength": 2}
    known = args.rows.read_text().splitlines() if args.rows and args.rows.exists() else []
    robots = {found["seed"]: found for found in map(json.loads, known)}
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        if seed in robots:
            continue
        if args.continuous:
            robots[seed] = {"seed": seed, "rows": on_the_move(args, seed, simulation), "bounds": {}}
        else:
            sim = cal.simulate(
                args.robot, args.world, args.sensor, seed, frames=args.frames, drive=drive(args.robot),
                simulation=simulation,
            )  # fmt: skip
            stations = apart(sim) if args.apart else sim.stations
            robots[seed] = one_robot(sim, stations, seed, not robots, args.only_driving)
        if args.rows:
            with args.rows.open("a") as file:
                file.write(json.dumps(robots[seed]) + "\n")
    for line in table(list(robots.values()), f"{args.sensor}, {args.world}"):
        print(line)


def one_robot(sim: cal.Simulated, stations: list[Any], seed: int, bounded: bool, only_driving: bool) -> dict[str, Any]:
    """Return what is found of a robot: rows of (what, by, mm, deg, NEES or None, accepted), and the bounds by what, if
    they are asked for."""
    rows = rows_from(sim, cal.calibrate_by_driving(sim.rig, stations), "driving")
    if not only_driving:
        by_hand_eye = plain(sim, stations)
        rows += standing(sim, stations) if len(sim.rig.names) > 1 else []
        lever, angle = 1e3 * np.hypot(*by_hand_eye[:2]), np.degrees(abs(by_hand_eye[2]))
        rows.append(("against the wheels", "GICP and hand-eye", lever, angle, None, True))
        rows += rows_from(sim, cal.calibrate(sim.rig, stations[0].clouds), "standing")
    known = bounds(sim, stations) if bounded else {}
    in_units = {what: (1e3 * far, float(np.degrees(turned))) for what, (far, turned) in known.items()}
    plain_rows = [[float(each) if isinstance(each, np.floating) else each for each in row] for row in rows]
    return {"seed": seed, "rows": plain_rows, "bounds": in_units}


def rows_from(sim: cal.Simulated, found: Any, by: str) -> list[tuple[Any, ...]]:
    errors = found.errors(sim.truth)
    rows: list[tuple[Any, ...]] = [
        ("lidar to lidar", by, *off, found.alignment.accepted) for off in errors.pairs.values()
    ]
    if errors.floor is not None:
        rows.append(("floor", by, *errors.floor, found.floor.accepted))
    rows += [("against the wheels", by, *off, found.wheels.accepted) for off in list(errors.wheels.values())[:1]]
    if found.wheels is not None:
        rows.append(("odometry", by, *odometry(sim, found.wheels), found.wheels.accepted))
        clock = found.wheels.odometry.get("clock")
        if clock is not None:
            off = clock - sim.simulator.driving.errors.clock_offset
            nees = (off / found.wheels.odometry["clock_std"]) ** 2
            rows.append(("odometry's clock, ms", by, abs(1e3 * off), 0.0, float(nees), found.wheels.accepted))
    return rows


def table(robots: list[dict[str, Any]], title: str) -> list[str]:
    bound = next((robot["bounds"] for robot in robots if robot["bounds"]), {})
    rows: dict[tuple[str, str], list[list[Any]]] = {}
    for what, by, *found in (row for robot in robots for row in robot["rows"]):
        rows.setdefault((what, by), []).append(found)
    lines = [
        f"| {len(robots)} robots, {title} | by | accepted | mm, median (worst) | bound "
        "| deg, median (worst) | bound | NEES/dof, mean (worst) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    worst_first = sorted(rows.items(), key=lambda row: -np.nan_to_num(np.array(row[1], dtype=float)[:, 2]).mean())
    for (what, by), found in worst_first:
        distances, angles, nees = (np.array(each, dtype=float) for each in list(zip(*found, strict=True))[:3])
        at_least = [f"{value:.{digits}f}" for value, digits in zip(bound.get(what, ()), (2, 4), strict=False)]
        far, turned = at_least if at_least and by == "driving" else ("", "")
        said = f"{np.mean(nees):.2f} ({nees.max():.2f})" if np.isfinite(nees).all() else ""
        lines.append(
            f"| {what} | {by} | {sum(accepted for *_, accepted in found)} "
            f"| {np.median(distances):.2f} ({distances.max():.2f}) | {far} "
            f"| {np.median(angles):.4f} ({angles.max():.4f}) | {turned} | {said} |"
        )
    return lines


if __name__ == "__main__":
    main()
