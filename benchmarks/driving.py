"""Calibration by driving beside what standing still gives, and beside the plain way: GICP and hand-eye.

    python benchmarks/driving.py --seeds 8
    python benchmarks/driving.py --seeds 4 --sensor jt128
    python benchmarks/driving.py --seeds 8 --apart             the lidars see nothing in common from one place
    python benchmarks/driving.py --seeds 8 --uneven 3          a floor with waves of 3 mm rms over 2 m
    python benchmarks/driving.py --seeds 8 --slip 4            wheels that slip four times as much as is expected

A robot (`--robot`, by default the Stretch 4), its mounts off by 5 mm and 0.5 deg, lidars with errors of their own,
odometry with scale errors of 1 % and slip of 5 mm and 0.2 deg in 1 m; it turns by a full circle in steps of 45 deg and
back, and drives 0.6 m ahead and, if it can, sideways. "plain": one GICP from each station to the next and of both
lidars, and a hand-eye fit of x, y, yaw and the scales to odometry (A. Censi et al., 2013).
"""

import argparse
from typing import Any

import numpy as np
from scipy.optimize import least_squares

import stretch_sim_cal as cal
from stretch_sim_cal.calibration.alignment.gicp import GicpAlignment
from stretch_sim_cal.calibration.driving import Leg
from stretch_sim_cal.geometry.transforms import error, inverse
from stretch_sim_cal.robot.profile import profile_called

QUARTER = np.pi / 4
SPIN = [(0, 0, turn * QUARTER) for turn in (1, 2, 3, 4, -3, -2, -1, 0)]
AHEAD = 0.05  # m: with --apart the first lidar sees what is ahead of this, the others what is behind minus this


def drive(robot: str | None) -> list[tuple[float, ...]]:
    """Return where a robot drives to."""
    base = profile_called(robot).driven_base
    sideways = [(0.6, 0.6, 0), (0.6, 0.6, np.pi / 2)] if base.strafes else [(0.6, 0, np.pi / 2), (0.6, 0.6, np.pi / 2)]
    return [*SPIN, (0.6, 0, 0), *sideways, (0, 0, 0)]


def apart(sim: cal.Simulated) -> list[cal.simulated.Station]:
    """Return the stations as lidars see them that look ahead, the first one, and back, the others."""
    stations = []
    for station in sim.stations:
        seen = {}
        for number, (name, clouds) in enumerate(station.clouds.items()):
            pose, sign = sim.rig.base_from_lidar[name], -1.0 if number else 1.0
            ahead = [np.stack([own[axis] for axis in "xyz"], axis=1) @ pose[0, :3] + pose[0, 3] for own in clouds]
            seen[name] = [own[sign * x > AHEAD] for own, x in zip(clouds, ahead, strict=True)]
        stations.append(cal.simulated.Station(seen, station.odometry, station.world_from_footprint))
    return stations


def plain(sim: cal.Simulated, stations: list[Any]) -> tuple[tuple[float, float] | None, np.ndarray]:
    """Return how far (m, rad) GICP has the second lidar from the truth, None for a single one, and how far x, y, yaw
    (m, rad) of the first one against the wheels are."""
    names, rig, pair = sim.rig.names, sim.rig, None
    first = names[0]
    pose = (np.eye(4) if rig.footprint_from_base is None else rig.footprint_from_base) @ rig.base_from_lidar[first]
    if len(names) > 1:
        gicp = GicpAlignment(inverse(rig.base_from_lidar[first]) @ rig.base_from_lidar[names[1]])
        for clouds in zip(*(stations[0].clouds[name] for name in names[:2]), strict=True):
            gicp.add(*map(_points, clouds))
        pair = error(sim.truth.transform(*names[:2]), gicp.solve().right_to_left)
    moved, legs = [], []
    for before, after in zip(stations, stations[1:], strict=False):
        leg = Leg.along(np.vstack([before.odometry[-1], after.odometry]))
        gicp = GicpAlignment(inverse(pose) @ leg.transform(np.zeros(3)) @ pose)
        for clouds in zip(before.clouds[first], after.clouds[first], strict=True):
            gicp.add(*map(_points, clouds))
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
    return pair, np.array([*(turn @ pose[:2, 3] + [x, y] - true[:2, 3]), (angle + np.pi) % (2 * np.pi) - np.pi])


def _points(cloud: np.ndarray) -> np.ndarray:
    return np.stack([cloud[axis] for axis in "xyz"], axis=1).astype(float)


def main() -> None:
    """Print a table: what is found, by which data."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first-seed", type=int, default=101)
    parser.add_argument("--robot")
    parser.add_argument("--world", default="furnished_room")
    parser.add_argument("--sensor", default="jt128_sparse_real")
    parser.add_argument("--frames", type=int, default=5)
    parser.add_argument("--apart", action="store_true", help="lidars that see nothing in common from one place")
    parser.add_argument("--uneven", type=float, metavar="MM", help="floor, root mean square height")
    parser.add_argument("--slip", type=float, default=1.0, help="times what is expected")
    args = parser.parse_args()
    simulation: dict[str, Any] = {"odometry": {"slip_mm": 5.0 * args.slip, "slip_deg": 0.2 * args.slip}}
    if args.uneven:
        simulation["floor"] = {"rms_mm": args.uneven, "wavelength": 2}
    rows: dict[tuple[str, str], list[tuple[float, float, float, bool]]] = {}
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        sim = cal.simulate(
            args.robot, args.world, args.sensor, seed, frames=args.frames, drive=drive(args.robot),
            simulation=simulation,
        )  # fmt: skip
        stations = apart(sim) if args.apart else sim.stations
        by_gicp, by_hand_eye = plain(sim, stations)
        if by_gicp is not None:
            row = (1e3 * by_gicp[0], np.degrees(by_gicp[1]), np.nan, True)
            rows.setdefault(("lidar to lidar", "one GICP"), []).append(row)
        row = (1e3 * np.hypot(*by_hand_eye[:2]), np.degrees(abs(by_hand_eye[2])), np.nan, True)
        rows.setdefault(("against the wheels", "GICP and hand-eye"), []).append(row)
        for data, found in (
            ("standing", cal.calibrate(sim.rig, stations[0].clouds)),
            ("driving", cal.calibrate_by_driving(sim.rig, stations)),
        ):
            errors = found.errors(sim.truth)
            for off in errors.pairs.values():
                rows.setdefault(("lidar to lidar", data), []).append((*off, found.alignment.accepted))
            if errors.floor is not None:
                rows.setdefault(("floor", data), []).append((*errors.floor, found.floor.accepted))
            for off in list(errors.wheels.values())[:1]:
                rows.setdefault(("against the wheels", data), []).append((*off, found.wheels.accepted))
    print(f"| {args.seeds} robots, {args.sensor}, {args.world} | by | accepted | mm, median (worst) "
          "| deg, median (worst) | NEES/dof, mean (worst) |\n|---|---|---|---|---|---|")  # fmt: skip
    for (what, by), found in sorted(rows.items(), reverse=True):
        distances, angles, nees, accepted = np.array(found, dtype=float).T
        print(
            f"| {what} | {by} | {int(accepted.sum())} | {np.median(distances):.2f} ({distances.max():.2f}) "
            f"| {np.median(angles):.4f} ({angles.max():.4f}) | {np.mean(nees):.2f} ({nees.max():.2f}) |"
        )


if __name__ == "__main__":
    main()
