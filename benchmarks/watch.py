"""How well ros_watch_calibration does: what looks in generated rooms scatter by, false alarms, and
delays until a push is noticed.

The scatter comes from simulated scans of lidars with errors of their own: one calibration, looks in rooms and standing
places that it has not seen. From it, years of looks are drawn, for which nobody could simulate scans; places take turns
as measured, and what is drawn scatters by the factor given at the head of each column. With --hours a day of each of
--robots is simulated look by look, the clouds of every look; each robot has errors of its own, and drives from room to
room with its arm in one of a few poses. At its end the right lidar is pushed by 0.3 deg while the robot stands.
"""

import argparse
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
from comparing import described, solved
from floor import known_and_true

from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.methods import floor_method
from stretch_sim_cal.calibration.mounts.robot import MountedRobot
from stretch_sim_cal.calibration.observations import path_beside
from stretch_sim_cal.calibration.settings import FloorSettings
from stretch_sim_cal.calibration.verification import reestimate
from stretch_sim_cal.calibration.watch import (
    ANGLE,
    BASELINE_LOOKS,
    LENGTH,
    MONTH,
    DriftMonitor,
    Measurement,
    pose_vectors,
    vectors_of,
)
from stretch_sim_cal.files import write_atomic
from stretch_sim_cal.geometry.transforms import SIDES
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.sensor.points import coordinates
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.rooms import Room, write_room
from stretch_sim_cal.simulation.setup import SimulationSetup

PERIOD = 300.0  # s
PER_PLACE = 12  # looks, on average
MOST = 200  # looks until a push counts as missed
# m, rad; in the day that is simulated, a room after the other: as it drives, and at two kinds of work.
ARM = (
    {"lift_joint": 0.3, "arm_joint": 0.0, "wrist_yaw_joint": 3.0},
    {"lift_joint": 0.6, "arm_joint": 0.25, "wrist_yaw_joint": 0.0},
    {"lift_joint": 0.9, "arm_joint": 0.4, "wrist_yaw_joint": 0.8},
)
NOISE = 0.5  # of a look that is drawn, times what places scatter by
ERRORS = {
    "left": {"xyz": [0.002, -0.001, 0.003], "rpy_deg": [0.4, -0.3, 0.5]},
    "right": {"xyz": [-0.003, 0.002, 0.001], "rpy_deg": [-0.5, 0.6, -0.2]},
}
PUSH = 0.3  # deg, about the right lidar's y


def simulator(world: str, sensor: str, errors: dict = ERRORS, number: int = 0) -> EmbeddedSimulator:
    mapping = {"world": world, "sensor": sensor, "seed": 3 + number, "unit_seed": 5 + number, "lidar_errors": errors}
    return EmbeddedSimulator(SimulationSetup.from_mapping(mapping, source="benchmark"))


def errors_of(number: int) -> dict:
    random = np.random.default_rng(number)
    return {
        side: {
            "xyz": random.normal(0, 0.002, 3).tolist(), "rpy_deg": random.normal(0, 0.4, 3).tolist()
        } for side in SIDES
    }  # fmt: skip


def pushed(errors: dict) -> dict:
    roll, pitch, yaw = errors["right"]["rpy_deg"]
    return {**errors, "right": {**errors["right"], "rpy_deg": [roll, pitch + PUSH, yaw]}}


def calibrated(robot: EmbeddedSimulator, folder: Path) -> tuple[CalibrationFile, np.ndarray, np.ndarray]:
    """Return the calibration of a robot, where its left lidar is described, and footprint_from_base."""
    left, (footprint, _) = robot.base_from_lidar("left", nominal=True), known_and_true(robot)
    aligned, _ = solved({"": described(robot, robot.sensor)}, robot.recorded_pairs(20))[""]
    settings = FloorSettings(sensor=robot.sensor, observations=aligned.known)
    method = floor_method()(left, aligned.right_to_left, footprint, settings)
    floor, _ = solved({"": method}, robot.recorded_pairs(10, 20))[""]
    path = folder / "calibration.yaml"
    file = CalibrationFile().with_alignment(aligned, "robot").with_floor(floor, "robot", base_from_left=left)
    CalibrationFile.update(path, lambda _: file)
    write_atomic(path_beside(path), replace(aligned.observations, floor=floor.by_units).write)
    return CalibrationFile.load(path), left, footprint


def drawn_room(random: np.random.Generator, folder: Path) -> str:
    room = Room(
        length=random.uniform(4, 9), width=random.uniform(3.5, 7), furniture=int(random.integers(2, 12)),
        x=random.uniform(-1, 1), y=random.uniform(-1, 1), yaw=random.uniform(-3, 3), wall_rms=0.003, floor_rms=0.001,
        glass=float(random.choice([0.0, 0.3])),
    )  # fmt: skip
    return str(write_room(room, random, folder))


def day(sensor: str, hours: float, number: int) -> int:
    """Simulate a day of a robot and print what the watch says; return 1 for a false alarm, or a push that is
    not noticed in ten looks."""
    random, watch, looks, alarms = np.random.default_rng(number), DriftMonitor(PERIOD), round(hours * 3600 / PERIOD), 0
    errors, seen = errors_of(number), Counter()
    with tempfile.TemporaryDirectory() as scratch:
        robot = simulator("furnished_room", sensor, errors, number)
        file, left, footprint = calibrated(robot, Path(scratch))
        mounted = MountedRobot(parse_urdf(robot.nominal_description))
        poses = {"left": left, "right": left @ file.right_to_left}

        def look(index: int, place: int, robot: EmbeddedSimulator) -> bool:
            pose = place % len(ARM)
            robot.joints.place(ARM[pose])
            scans = [dict(zip(SIDES, pair, strict=True)) for pair in robot.recorded_pairs(2, 100 + 2 * index)]
            clouds = {side: np.concatenate([coordinates(each[side]) for each in scans]) for side in SIDES}
            own = pose_vectors(mounted, robot.joints.joint_positions, poses, clouds)
            seen.update((side, pose) for side in own)
            vectors = vectors_of(reestimate(file, scans, left, footprint, robot.sensor))
            watch.add(Measurement(PERIOD * index, place, vectors | own, str(pose)))
            return bool(watch.changed)

        place = left_there = 0
        for index in range(looks):
            if not left_there:
                place, left_there = place + 1, int(random.integers(1, 2 * PER_PLACE))
                world = drawn_room(random, Path(scratch) / str(place))
                robot = simulator(world, sensor, errors, number)
            left_there -= 1
            alarmed = look(index, place, robot)
            if alarmed and not alarms:
                print(f"  false alarm at look {index + 1}: {watch.changed[0].sentence()}")
            alarms += alarmed
        tested = {side: sum(max(0, seen[side, pose] - BASELINE_LOOKS) for pose in range(len(ARM))) for side in SIDES}
        print(
            f"robot {number}: {looks} looks in {hours:g} hours at {place} places: {alarms} with an alarm; own returns "
            f"held against the looks before: left {tested['left']}, right {tested['right']}",
            flush=True,
        )
        for state in watch.states():
            print(f"  {state.sentence()}")
        robot = simulator(world, sensor, pushed(errors), number)
        noticed_after = next((count for count in range(1, 11) if look(looks + count - 1, place, robot)), None)
    print(f"  right lidar pushed by {PUSH:g} deg: noticed after {noticed_after or 'more than 10'} looks")
    for state in watch.changed:
        print(f"  {state.sentence()}; since look {state.since / PERIOD - looks + 1:.0f} after the push", flush=True)
    return int(bool(alarms) or noticed_after is None)


def scatter(sensor: str, rooms: int) -> dict[str, np.ndarray]:
    """Return the residuals (looks, n) of one look in each of many rooms, by vector, and print how they scatter."""
    random, seen, sure = np.random.default_rng(1), {}, {}
    with tempfile.TemporaryDirectory() as scratch:
        file, left, footprint = calibrated(simulator("furnished_room", sensor), Path(scratch))
        refused = 0
        for number in range(rooms):
            robot = simulator(drawn_room(random, Path(scratch) / str(number)), sensor)
            scans = [dict(zip(SIDES, pair, strict=True)) for pair in robot.recorded_pairs(2, 100)]
            now = reestimate(file, scans, left, footprint, robot.sensor)
            refused += bool(now.open_questions)
            for name, (residual, covariance) in vectors_of(now).items():
                seen.setdefault(name, []).append(residual)
                sure.setdefault(name, []).append(np.sqrt(np.diag(covariance)))
    print(f"{sensor}: {rooms} rooms, one look of two pairs each; {refused} could not tell all")
    found = {name: np.array(residuals) for name, residuals in seen.items()}
    for name, columns, scale, unit in (
        ("lidars", slice(0, 3), 1e3, "mm"), ("lidars", slice(3, 6), np.degrees(1.0), "deg"),
        ("floor", slice(0, 1), 1e3, "mm"), ("floor", slice(1, 3), np.degrees(1.0), "deg"),
    ):  # fmt: skip
        values = scale * found[name][:, columns]
        said = scale * np.array(sure[name])[:, columns]
        print(
            f"  {name:<7} {unit:<4} mean {np.abs(values.mean(axis=0)).max():.3f}  scatter "
            f"{values.std(axis=0).max():.3f}  largest {np.abs(values).max():.3f}  said standard deviation "
            f"{np.median(said):.3f}"
        )
    return found


class Drawn:
    """Looks drawn from measured scatter: a place takes one of the measured residuals, a look adds
    noise of `noise` times it."""

    def __init__(self, found: dict[str, np.ndarray], factor: float, seed: int, noise: float = NOISE):
        self._random, self._found, self._factor, self._noise = np.random.default_rng(seed), found, factor, noise
        self._place = self._left = self._count = 0
        self._effect: dict[str, np.ndarray] = {}

    def leave(self) -> None:
        """Drive to another place before the next look."""
        self._left = 0

    def look(self, shift: dict[str, np.ndarray]) -> Measurement:
        if not self._left:
            self._place, self._left = self._place + 1, int(self._random.integers(1, 2 * PER_PLACE))
            self._effect = {
                name: self._factor * rows[self._random.integers(len(rows))] for name, rows in self._found.items()
            }
        self._left, self._count = self._left - 1, self._count + 1
        vectors = {}
        for name, rows in self._found.items():
            sigma = self._noise * self._factor * rows.std(axis=0)
            value = self._effect[name] + sigma * self._random.normal(size=len(sigma)) + shift.get(name, 0.0)
            vectors[name] = (value, np.diag(sigma**2))
        return Measurement(PERIOD * self._count, self._place, vectors)


def false_alarms(found: dict[str, np.ndarray], factor: float, months: int) -> float:
    looks, alarms = int(30 * 86400 / PERIOD), 0
    for month in range(months):
        watch, robot, alarmed = DriftMonitor(PERIOD), Drawn(found, factor, month), False
        for _ in range(looks):
            watch.add(robot.look({}))
            alarms += bool(watch.changed) and not alarmed
            alarmed = bool(watch.changed)
    return alarms / months


def bound(found: dict[str, np.ndarray], factor: float, size: float, columns: slice) -> float:
    """Return after how many looks at new places, on average, no test at one false alarm a month can be expected to
    notice a shift sooner (Lorden 1971): the logarithm of the looks between false alarms over what looks tell (the
    Kullback-Leibler divergence), with the places' scatter known, and normal."""
    rows = factor * found["lidars"][:, columns]
    places, noise = np.cov(rows.T), np.diag((NOISE * rows.std(axis=0)) ** 2)
    directions = np.random.default_rng(0).normal(size=(500, 3))
    shifts = size * directions / np.linalg.norm(directions, axis=1, keepdims=True)

    def told(looks: int) -> float:
        """Return what so many looks tell on average, in nats."""
        whole, rest = divmod(looks, PER_PLACE)
        counts = [PER_PLACE] * whole + [rest] * (rest > 0)
        information = sum(np.linalg.inv(places + noise / count) for count in counts)
        return float(np.mean(np.einsum("di,ij,dj->d", shifts, information, shifts))) / 2.0

    return next(looks for looks in range(1, MOST) if told(looks) >= np.log(MONTH / PERIOD))


def noticed(watch: DriftMonitor, look: Measurement) -> bool:
    watch.add(look)
    return any(state.block.vector == "lidars" for state in watch.changed)


def delays(
    found: dict[str, np.ndarray], factor: float, size: float, columns: slice, runs: int, after: int, drives: bool
) -> np.ndarray:
    """Return after how many looks a shift in a direction of its own is noticed that comes after so many looks, while
    the robot stands or (`drives`) on its way to another place."""
    result = []
    for run in range(runs):
        watch, robot = DriftMonitor(PERIOD), Drawn(found, factor, 1000 + run)
        for _ in range(after):
            watch.add(robot.look({}))
        if drives:
            robot.leave()
        direction = np.random.default_rng(run).normal(size=3)
        shift = np.zeros(6)
        shift[columns] = size * direction / np.linalg.norm(direction)
        result.append(next((count for count in range(1, MOST) if noticed(watch, robot.look({"lidars": shift}))), MOST))
    return np.array(result)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sensor", default="jt128_sparse_real")
    parser.add_argument("--rooms", type=int, default=24)
    parser.add_argument("--months", type=int, default=6, help="of looks every five minutes, day and night")
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--hours", type=float, help="simulate so many hours look by look in place of all that")
    parser.add_argument("--robots", type=int, default=3, help="with --hours: how many; default: %(default)s")
    parser.add_argument("--first-robot", type=int, default=0, help="with --hours: the number of the first")
    args = parser.parse_args()
    if args.hours:
        numbers = range(args.first_robot, args.first_robot + args.robots)
        return max(day(args.sensor, args.hours, number) for number in numbers)
    found, factors = scatter(args.sensor, args.rooms), (1.0, 3.0)
    print(f"{'scatter times':<48}" + "".join(f"{factor:>18g}" for factor in factors))
    rates = [false_alarms(found, factor, args.months) for factor in factors]
    print(f"{'false alarms a month':<48}" + "".join(f"{rate:>18.2f}" for rate in rates))
    for what, size, columns in (
        ("0.2 deg", ANGLE, slice(3, 6)), ("0.3 deg", 1.5 * ANGLE, slice(3, 6)), ("5 mm", LENGTH, slice(0, 3)),
        ("10 mm", 2 * LENGTH, slice(0, 3)),
    ):  # fmt: skip
        bounds = [bound(found, factor, size, columns) for factor in factors]
        name = f"{what}: bound with the scatter known"
        print(f"{name:<48}" + "".join(f"{looks:>18}" for looks in bounds))
        for after, drives in ((1, False), (1, True), (150, False), (150, True)):
            found_after = [delays(found, factor, size, columns, args.runs, after, drives) for factor in factors]
            name = f"{what}, {after} looks, {'drives' if drives else 'stands'}: median, 90 %, most"
            texts = [f"{np.median(d):.0f}, {np.percentile(d, 90):.0f}, {d.max():.0f}" for d in found_after]
            print(f"{name:<48}" + "".join(f"{text:>18}" for text in texts))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
