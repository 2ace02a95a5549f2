"""Gazebo behind the interface of the embedded simulator, stepped in a closed loop. Simulated time begins when the robot
stands stowed in its world and all lidars have published."""

import contextlib
import dataclasses
import math
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import scratch_folder
from stretch_sim_cal.sensor.unit import CENTRE, CENTRE_SHARE, FIRING_SHARE, HARMONICS, directions, turned
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.gazebo import description, messages, running
from stretch_sim_cal.simulation.gazebo.description import FLOOR_JOINTS, STEP
from stretch_sim_cal.simulation.gazebo.installation import Installation, find_gazebo
from stretch_sim_cal.simulation.gazebo.rays import CastRays, cast_rays, grid_for
from stretch_sim_cal.simulation.gazebo.running import LEFT_OUT, NOT_CAST, Clouds, GazeboJoints, RunningWorld
from stretch_sim_cal.simulation.lidar import Echoes, Lidar, Rays
from stretch_sim_cal.simulation.setup import SimulationSetup

ROBOT = "stretch"
# Of simulated time, in s.
WARM_UP = 3.0
STOW_TIME = 20.0
ARRIVING = 2 * STEP  # in which joints come to where they are led
BASE_PATIENCE = 10  # scans in which a base that is led to where it was comes there
SAME_PLACE = 1e-7  # m, rad: Gazebo's base is where the true one is; a command late, it is a step of motion away
LIDAR_NOTES = {
    "cpu": "sees collision shapes, mirrors and glass as walls; people do not walk",
    "gpu": "sees visuals, mirrors and glass as walls; people do not walk",
}
SAME_DIRECTION = np.deg2rad(0.01)  # rad: a cloud's directions are those that are expected of it
SAME_SURFACE = 0.1  # m: returns that are farther than this from what the embedded ray caster sees lie on something else
# m: a renderer's round shapes are up to 1.7 mm off.
SAME_POINT = 0.005
FEWEST_RETURNS = 100
# Of a renderer's errors along the published directions, those along the texels' are a twentieth;
# of another renderer's not.
BETTER = 0.5


class GazeboSimulator:
    """A simulation of `setup` in a Gazebo of its own, as a context, with the interface of `EmbeddedSimulator`; each
    step of the joints takes Gazebo's robot to where `driving` is.

    `lidar` is "auto", "gpu" or "cpu", `window` opens Gazebo's window as well. `installation` replaces the installed
    one; `log` is a file for Gazebo's output. Raises `InputError` if Gazebo, its bindings or the lidar are missing, and
    `RunFailure` with Gazebo's last output if Gazebo fails.
    """

    idle_factor = EmbeddedSimulator.idle_factor
    """As of `EmbeddedSimulator`."""

    def __init__(
        self, setup: SimulationSetup, lidar: str = "auto", window: bool = False,
        installation: Installation | None = None, log: Path | None = None,
    ):  # fmt: skip
        installation = installation or find_gazebo()
        self.setup, self.lidar, self._window = setup, installation.lidar(lidar), window
        self._generation = installation.generation
        if setup.floor is not None:
            raise InputError("floor: uneven floors are not supported in Gazebo; use the embedded simulator")
        # What is true is computed in one place for both simulators.
        self._described = described = EmbeddedSimulator(setup)
        self.sensor, self.period, self.driving = described.sensor, described.period, described.driving
        steps = self.period / STEP
        if round(steps) < 1 or abs(steps - round(steps)) > 1e-6:
            wanted = f"a multiple of {STEP:g} s, as at 5, 8, 10, 20 or 40 Hz; use the embedded simulator for others"
            rate = f"the sensor's rate of {self.sensor.rate:g} Hz"
            raise InputError(f"{rate}: in Gazebo the time from scan to scan has to be {wanted}")
        self.nominal_description, self.true_description = described.nominal_description, described.true_description
        self.notes: list[str] = []
        self._unsettled = self._in_pieces = False
        self._base = dict.fromkeys(FLOOR_JOINTS, 0.0) if self.driving is not None else {}
        self._skipped = 0  # ns
        self._unnoticed: list[tuple[int, int]] = []  # begin and end, ns of Gazebo's time, since somebody listens
        self._complaints: list[str] = []
        self._resources = contextlib.ExitStack()
        self._rays = {
            device: cast_rays(
                grid_for(sensor := described.sensors[device], self.lidar), self.lidar,
                described.lidar(device).rays(0).directions.astype(float), description.ray_height(sensor),
            )
            for device in setup.profile.lidars
        }  # fmt: skip
        self._world: RunningWorld | None = None
        try:
            self._start(installation, log)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "GazeboSimulator":
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @property
    def warnings(self) -> list[str]:
        """What this Gazebo's lidars do not show, and its errors while it loaded world and robot; one line each."""
        return [f"Gazebo {self._generation}, {self.lidar} lidar: {LIDAR_NOTES[self.lidar]}", *self._complaints]

    @property
    def time(self) -> float:
        return (self._world.time + self._skipped - self._origin) * 1e-9 + self.joints.owed

    def start_time(self, lidar: str, tick: int) -> float:
        """Return when Gazebo takes scan `tick` of a lidar, in s; all its rays are cast at that instant."""
        return (self._first_scan[lidar] - self._origin) * 1e-9 + tick * self.period

    def listen(self, wanted: bool) -> None:
        """Have scans cast from now on (as at the beginning), or not; a scan costs Gazebo a third of a second. Without
        listeners Gazebo's time passes only as far as its joints need it (but in its window)."""
        changed = [clouds for clouds in self._clouds.values() if clouds.listening != wanted]
        if not changed:
            return
        self._unsettled = False
        self.joints.catch_up()
        self._in_pieces = self.joints.in_pieces = not wanted and not self._window
        if beside := self._skipped % round(self.period * 1e9):  # the lidars' beat is that of Gazebo's time
            self.joints.lead(beside * 1e-9)
            self._skipped -= beside
        for clouds in changed:
            clouds.listen(wanted)
        self._unnoticed.clear()
        if wanted:
            self._let_settle()
            self._let_all_publish()

    def _lead(self, targets: Mapping[str, float], duration: float) -> messages.JointStates:
        taken = duration
        if self._in_pieces:
            taken = min(duration, ARRIVING)
            self._skipped += round((duration - taken) * 1e9)
        self._lead_base()
        states = self._step(targets, taken)
        if self._in_pieces:
            self._world.rest()
        return states

    def _step(self, targets: Mapping[str, float], duration: float) -> messages.JointStates:
        states = self._world.lead({**targets, **self._base}, duration)
        if self._unsettled:
            self._let_settle()
        return states

    def _let_settle(self) -> None:
        """Let the renderer rest, again after every step until all lidars have been rendered: the second lidar's first
        cloud may come only with the first one's next."""
        if self.lidar == "gpu":
            lately, clouds = self._unsettled, list(self._clouds.values())
            self._unsettled = not all(one.rendered(self.period) for one in clouds)
            self._world.settle(lambda: lately or any(one.rendered(self.period) for one in clouds))

    def _let_all_publish(self) -> None:
        """Have all lidars publish on their beat before simulated time goes on: one may begin a scan later."""
        deadline, period = time.monotonic() + running.SILENCE_TIMEOUT, round(self.period * 1e9)
        while time.monotonic() < deadline:
            with self._letting_time_pass_unnoticed():
                pass
            now = self._world.time
            beats = {lidar: now - (now - first) % period for lidar, first in self._first_scan.items()}
            if all(self._clouds[lidar].taken_at(beat) != LEFT_OUT for lidar, beat in beats.items()):
                return
        raise self._world.failure(f"Gazebo's lidars do not all publish within {running.SILENCE_TIMEOUT:g} s")

    @contextlib.contextmanager
    def _letting_time_pass_unnoticed(self) -> Iterator[None]:
        """A context in which time passes in Gazebo only, some scans' periods. At its end base and joints are again
        where they are led to at present."""
        period, begin = round(self.period * 1e9), self._world.time
        yield
        rest = (begin - self._world.time) % period
        rest += period * (rest < ARRIVING * 1e9)
        self.joints.lead(rest * 1e-9)
        end = self._world.time
        self._skipped -= end - begin
        self._unnoticed.append((begin, end))

    def scan(self, lidar: str, tick: int, drawn: int | None = None) -> np.ndarray | None:
        """Return scan `tick` of a lidar by name as points (M,) of `POINT_DTYPE` in the lidar's frame, with the noise of
        tick `drawn` (by default the same); None without a listener when it began. All its points have the time at which
        it is cast. Its time has to have passed; only the latest scans are kept. Raises `RunFailure` if the lidar is
        silent, or the base does not come to where it is led.

        A scan that Gazebo left out, or cast with its base elsewhere, is cast again: which scans there are depends
        neither on the machine's load nor on when Gazebo takes commands."""
        if lidar not in self._clouds:
            raise InputError(f"lidar '{lidar}': use one of {', '.join(self._clouds)}")
        period, stamp, start = round(self.period * 1e9), self._stamp(lidar, tick), self.start_time(lidar, tick)
        raw = self._clouds[lidar].taken_at(stamp)
        states = self.joints.states_at(stamp)
        if raw == LEFT_OUT or raw != NOT_CAST and not self._base_is_there(states, start):
            raw, states = self._cast_again(lidar, start, states)
        newest = [clouds.newest for clouds in self._clouds.values()]
        if not self._window and None not in newest and min(newest) + period > self._world.time:  # nothing more is due
            self._world.rest()
        if raw == NOT_CAST:
            return None
        # A unit's errors and noise come here and not in Gazebo, whose noise would neither be repeatable nor leave
        # what is too near recognisable.
        self._described.joints.place(self.joints.positions_of(states))
        drawn = tick if drawn is None else drawn
        return measured(self._described, lidar, drawn, start, self._rays[lidar], messages.cloud_points(raw))

    def _stamp(self, lidar: str, tick: int) -> int:
        """Return when (ns of Gazebo's time) scan `tick` of a lidar is cast."""
        stamp = self._first_scan[lidar] + tick * round(self.period * 1e9) - self._skipped
        for begin, end in reversed(self._unnoticed):
            if stamp < end:
                stamp -= end - begin
        return stamp

    def _cast_again(self, lidar: str, start: float, states: messages.JointStates) -> tuple[bytes, messages.JointStates]:
        """Return a lidar's cloud and Gazebo's joints, with joints as in `states` and the base as at a time `start`."""
        joints = {name: states.positions[name] for name in sorted(self.joints.movable)}
        period, first, arriving = round(self.period * 1e9), self._first_scan[lidar], round(ARRIVING * 1e9)
        deadline, short = time.monotonic() + running.SILENCE_TIMEOUT, 0
        with self._letting_time_pass_unnoticed():
            self._lead_base(start)
            while time.monotonic() < deadline:
                now = self._world.time
                beat = now + arriving + (first - now - arriving) % period
                states = self._step(joints, (beat - now) * 1e-9)
                raw = self._clouds[lidar].taken_at(beat)
                if raw == LEFT_OUT:
                    continue
                if self._base_is_there(states, start):
                    return raw, states
                short += 1
                if short == BASE_PATIENCE:
                    x, y, yaw = self._base_gaps(states, start)
                    short_by = f"{x:+.4f} m, {y:+.4f} m, {math.degrees(yaw):+.2f} deg short of its commanded pose"
                    cause = "something is in its way, or its controllers do not lead it"
                    raise self._world.failure(f"Gazebo's base is {short_by}: {cause}")
            raise self._world.failure(f"Gazebo's lidar {lidar} leaves out every scan")

    def _lead_base(self, time: float | None = None) -> None:
        """Have the base led to where it is now, or was at a `time` (s), its yaw by the shortest way."""
        if self.driving is not None:
            x, y, yaw = self._base_at(self.driving.now if time is None else time)
            before = self._base["floor_yaw_joint"]
            yaw = before + math.remainder(yaw - before, 2 * math.pi)
            self._base = dict(zip(FLOOR_JOINTS, (x, y, yaw), strict=True))

    def _base_at(self, time: float) -> tuple[float, float, float]:
        pose = self.driving.poses(np.array([time]))[0]
        return float(pose[0, 3]), float(pose[1, 3]), math.atan2(pose[1, 0], pose[0, 0])

    def _base_gaps(self, states: messages.JointStates, time: float) -> tuple[float, float, float]:
        """Return how far (m, m, rad) Gazebo's base is, by its joints, from where it was at a time (s)."""
        there, here = self._base_at(time), (states.positions[name] for name in FLOOR_JOINTS)
        x, y, yaw = (one - other for one, other in zip(there, here, strict=True))
        return x, y, math.remainder(yaw, 2 * math.pi)

    def _base_is_there(self, states: messages.JointStates, time: float) -> bool:
        return self.driving is None or max(map(abs, self._base_gaps(states, time))) < SAME_PLACE

    def ground_truth(self) -> dict[str, Any]:
        return self._described.ground_truth()

    def move_base(self, world_from_floor: np.ndarray) -> None:
        """As of `EmbeddedSimulator`, with the next steps. Raises `InputError` for a robot that cannot drive."""
        if self.driving is None:
            fixed = "the robot is fixed to Gazebo's world and cannot be pushed; use the embedded simulator for that"
            raise InputError(f"{self.setup.profile.source} has no 'base:', so {fixed}")
        self._described.move_base(world_from_floor)

    def close(self) -> None:
        """End Gazebo and remove its files; a second call does nothing."""
        if self._world is not None:
            again = f"subscribed again after silence, {self._world.renewals} times"
            self.notes += filter(None, (self._world.renewals and again, self._world.close()))
            self._world = None
        self._resources.close()

    def _start(self, installation: Installation, log: Path | None) -> None:
        name, text = description.gazebo_world(self.setup.world, self.lidar)
        folder = self._resources.enter_context(scratch_folder())
        options = [] if self._window else ["-s"]
        if options and self.lidar == "gpu" and not os.environ.get("DISPLAY"):
            options.append("--headless-rendering")  # by EGL
        self._world = world = RunningWorld(installation, name, folder, options, log)
        robot, described = folder / "robot.urdf", self._described
        world.world.write_text(text, encoding="utf-8")
        text = description.gazebo_description(self.setup, described.sensors, described.geometry, self.lidar, folder)
        robot.write_text(text, encoding="utf-8")
        world.start()
        self._clouds = {device: Clouds(world, f"/{description.cloud_topic(device)}/points") for device in self._rays}
        for clouds in self._clouds.values():
            clouds.listen(True)
        world.spawn(ROBOT, robot)
        self._unsettled = True  # no cloud comes before time passes
        self._let_settle()
        self._warm_up()
        self._stow()
        # Time counts from now on, and scans from the next one of each lidar.
        self._origin, period = world.time, round(self.period * 1e9)
        self._first_scan = {
            device: clouds.newest + period * -(-(self._origin - clouds.newest) // period)
            for device, clouds in self._clouds.items()
        }
        self._complaints = world.complaints
        for device in self._clouds:
            self._check_rays(device)

    def _warm_up(self) -> None:
        world, silent = self._world, list(self._clouds)
        while world.time < WARM_UP * 1e9:
            world.advance(self.period)
            if self._unsettled:
                self._let_settle()
            controllers = world.controllers_listen([*sorted(self._described.joints.movable), *self._base])
            silent = [device for device, clouds in self._clouds.items() if clouds.newest is None]
            if world.states is not None and controllers and not silent:
                return
        if world.states is None:
            raise world.failure("the robot has not appeared in Gazebo")
        if silent:
            hint = "; probably there is no renderer (try Mesa and xvfb-run, or --lidar cpu)" * (self.lidar == "gpu")
            lidars = f"{self.lidar} lidar {' and '.join(silent)}"
            raise world.failure(f"Gazebo's {lidars} has not published within {WARM_UP:g} s{hint}")
        raise world.failure("Gazebo's joint controllers do not respond")

    def _stow(self) -> None:
        joints = GazeboJoints(self._described.geometry.model, self._world.states, self._lead, self.setup.profile)
        pose = {name: value for name, value in self.setup.profile.stowed.items() if name in joints.ranges}
        joints.command(pose)
        deadline = self._world.time + STOW_TIME * 1e9
        while joints.moving or joints.missing(pose):
            if self._world.time > deadline:
                late = ", ".join(f"{name} by {gap:+.4f}" for name, gap in joints.missing(pose).items())
                raise self._world.failure(f"Gazebo's joints do not reach the stowed pose, missing {late}")
            joints.step(self.period)
        self.joints = joints

    def _check_rays(self, device: str) -> None:
        """Compare the newest cloud's directions with the expected ones, and a renderer's ranges with the embedded ray
        caster's; if they differ, take the points as published, with as much more noise."""
        rays, cloud = self._rays[device], messages.cloud_points(self._clouds[device].newest_cloud)
        wrong, errors = rays.misdirected(cloud), {"published": np.inf, "sampled": np.inf}
        if self.lidar == "gpu":
            ranges = rays.ranges(cloud)
            for kind in errors:
                expected, _, _ = self._described.along(device, getattr(rays, kind), rays.height)
                with np.errstate(invalid="ignore"):
                    gaps = np.abs(ranges - expected)
                near = gaps < SAME_SURFACE  # not of misses, nor beside an edge
                errors[kind] = float(np.median(gaps[near])) if near.sum() >= FEWEST_RETURNS else np.inf
        if wrong > SAME_DIRECTION:
            cause = f"publishes {np.degrees(wrong):.3f} deg off the rays that it was given"
        elif self.lidar == "gpu" and not errors["sampled"] < BETTER * errors["published"]:
            of_texels, of_published = (f"{1e3 * errors[kind]:.2f} mm" for kind in ("sampled", "published"))
            cause = f"has ranges that do not fit the texels' directions (median {of_texels} off) "
            cause += f"better than the published ones ({of_published})"
        else:
            return
        lidar = self._described.lidar(device)
        more = 1.4826 * errors["published"] if np.isfinite(errors["published"]) else 0.0
        noise = float(np.hypot(lidar.sensor.range_noise, more))
        lidar.sensor = dataclasses.replace(lidar.sensor, range_noise=noise)
        self._rays[device] = dataclasses.replace(rays, exact=False)
        used = f"its points are used as published, with {1e3 * noise:.1f} mm of noise"
        expect = "expect errors of centimetres on slanted surfaces"
        self._complaints.append(f"Gazebo's {self.lidar} lidar {device} {cause}: {used}; {expect}")


def measured(
    described: EmbeddedSimulator, side: str, tick: int, start: float, rays: CastRays, cloud: np.ndarray
) -> np.ndarray:
    """Return the points of `POINT_DTYPE` that a lidar's unit publishes of a cloud of Gazebo's, begun at `start` in s.
    Positions are Gazebo's; normals and reflectivities come from `described` with joints and base where they were.
    Points that it does not have (edges, objects of Gazebo's) get a surface of the sensor's reflectivity that faces the
    lidar."""
    ranges = rays.ranges(cloud)
    points = rays.points(cloud)
    distances, normals, reflectivities = described.along(side, rays.directions, rays.height, start)
    with np.errstate(invalid="ignore"):
        same = np.abs(ranges - distances) < SAME_POINT
    normals[~same] = np.nan
    reflectivities = np.where(same, reflectivities, described.sensors[side].reflectivity).astype(np.float32)
    return published(described.lidar(side), tick, start, points, normals, reflectivities)


def published(
    lidar: Lidar, tick: int, start: float, xyz: np.ndarray, normals: np.ndarray, reflectivities: np.ndarray | float
) -> np.ndarray:
    """Return the points of `POINT_DTYPE` that a unit publishes of exact points (N, 3) float32 in its frame, in firing
    order, not finite for misses, on surfaces of unit normals (N, 3; NaN: facing the lidar) and reflectivities (N,).
    `start` (s) is when it casts the scan."""
    sensor, values, model = lidar.sensor, lidar.unit.values, lidar.model
    points = np.ascontiguousarray(xyz.T, dtype=float)  # by coordinate: (3, N) is three times as fast here
    hit = np.isfinite(points).all(axis=0)
    points[:, ~hit] = 1.0
    channels = np.tile(np.arange(sensor.num_channels), len(xyz) // sensor.num_channels)
    corrected = sensor.optical_centre * sensor.driver.distance_correction
    turn = values[model.of_kind("channel_azimuth")] + values[FIRING_SHARE] * sensor.firing_azimuths
    turn, offsets = turn[channels], sensor.azimuth_offsets[channels]
    first, second = values[HARMONICS].reshape(2, 2)
    x, y, z = values[CENTRE] + values[CENTRE_SHARE] * sensor.optical_centre + corrected
    ways, eccentric = points, 0.0
    for _ in range(4):  # the rotor's azimuth, where the ray begins, and so the ray, depend on each other
        rotor = np.arctan2(ways[1], ways[0]) - turn - offsets - eccentric
        cosine, sine = np.cos(rotor), np.sin(rotor)
        eccentric = first @ [cosine, sine] + second @ [cosine**2 - sine**2, 2 * cosine * sine]
        ways = np.array([points[0] - cosine * x + sine * y, points[1] - sine * x - cosine * y, points[2] - z])
    distances = np.sqrt(np.einsum("in,in->n", ways, ways))
    # Of the ray that the unit sends out, from its turning optical centre: on the robot itself Gazebo's, from the axis,
    # comes in by several degrees otherwise.
    cosines = np.abs(np.einsum("ni,in->n", normals, ways)) / distances
    cosines = np.where(np.isfinite(cosines), cosines, 1.0).astype(np.float32)
    nominal = directions(
        np.arcsin(np.clip(ways[2] / distances, -1.0, 1.0)) - values[model.of_kind("channel_elevation")][channels],
        np.arctan2(ways[1], ways[0]) - turn - eccentric,
    ).astype(np.float32)
    centres = turned(rotor, corrected).astype(np.float32) if corrected.any() else None
    # What is too near for Gazebo's own origin blocks the ray without a return, wherever the unit's begins.
    points[2] -= description.ray_height(sensor)
    near = np.einsum("in,in->n", points, points) < sensor.range_min**2
    distances = np.where(hit & ~near, distances, np.inf).astype(np.float32)
    result, _ = lidar.measure(Rays(tick, None, nominal, nominal, centres), Echoes(distances, cosines, reflectivities))
    result["timestamp"] = start
    return result
