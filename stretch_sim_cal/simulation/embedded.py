"""The embedded simulator: a robot in a world, its joints, and the scans of its lidars, without ROS. The base's motion
during a scan is simulated (each ray begins where the lidar is when it is fired), that of joints is not."""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.planes import LEVEL, Plane
from stretch_sim_cal.geometry.transforms import SIDES, apply, check_rigid, inverse
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.robot.kinematics import link_transforms
from stretch_sim_cal.robot.model import RobotModel
from stretch_sim_cal.robot.profile import RobotProfile, stretch_profile
from stretch_sim_cal.robot.surfaces import Surface, Surfaces, joined, link_surfaces, robot_surfaces
from stretch_sim_cal.sensor.points import are_returns, coordinates, returns_of
from stretch_sim_cal.sensor.sensor import Sensor, Sensors, for_each
from stretch_sim_cal.simulation.driving import DrivingBase, OdometryErrors
from stretch_sim_cal.simulation.joints import Joints
from stretch_sim_cal.simulation.lidar import Lidar
from stretch_sim_cal.simulation.optics import Cast, Hits, Optics, Scene
from stretch_sim_cal.simulation.setup import SimulationSetup, simulated_description, true_link
from stretch_sim_cal.simulation.solids import Undulation
from stretch_sim_cal.simulation.worlds import World, load_world

FLOOR = 2000  # of random numbers


class RobotGeometry:
    """The surfaces of the true robot, at any joint positions. `movable` are the joints that may ever move. No lidar
    sees its own housing. A housing that is a link is seen by the other lidars; one in another link's mesh, as in the
    Stretch's head, by neither: there it lies below the other's horizon.

    `surfaces` are by link in link frames, a true lidar's link holds its collar; `housings` are those of the links that
    are the lidars themselves, by lidar, in the model's root frame; `moved` are the links that joints move."""

    def __init__(self, model: RobotModel, movable: Collection[str], profile: RobotProfile | None = None):
        self.model = model
        profile = profile or stretch_profile()
        self._base = profile.base_frame
        self.surfaces = robot_surfaces(model, profile)
        if profile.housing_link in self.surfaces:
            self.surfaces |= _mounts_apart(model, profile, self.surfaces[profile.housing_link])
        own, transforms = _own_links(model, profile), link_transforms(model)
        self.housings = {f"{name} lidar": each.moved(transforms[true_link(name)]) for name, each in own.items()}
        moved = model.moved_by(movable)
        self.moved = [link for link in self.surfaces if link in moved]

    def resting(self) -> dict[str, Surface]:
        """Return the surfaces by link that no joint moves, in the root frame, without `housings`."""
        return self._placed([link for link in self.surfaces if link not in self.moved], {})

    def moving(self, positions: Mapping[str, float]) -> dict[str, Surface]:
        """Return the surfaces by link that joints move, at those positions, in the root frame."""
        return self._placed(self.moved, positions)

    def in_base(self, positions: Mapping[str, float]) -> dict[str, Surface]:
        """Return all surfaces by link at those positions, in the base frame."""
        base_from_root = inverse(link_transforms(self.model, positions, [self._base])[self._base])
        placed = self.resting() | self.moving(positions) | self.housings
        return {link: surface.moved(base_from_root) for link, surface in placed.items()}

    def _placed(self, links: list[str], positions: Mapping[str, float]) -> dict[str, Surface]:
        transforms = link_transforms(self.model, positions, links)
        return {link: self.surfaces[link].moved(transforms[link]) for link in links}


def _mounts_apart(model: RobotModel, profile: RobotProfile, shell: Surface) -> dict[str, Surface]:
    link, frames = profile.housing_link, profile.housed_links(model)
    transforms = link_transforms(model, {}, [link, *frames.values()])
    rest = np.ones(len(shell.faces), dtype=bool)
    mounts = {}
    for side, frame in frames.items():
        lidar_from_shell = inverse(transforms[frame]) @ transforms[link]
        near = profile.lidars[side].housing.holds(apply(lidar_from_shell, shell.vertices), collar=True)
        mount = near[shell.faces].any(axis=1) & rest
        # Drawn around the nominal lidar, it stands around the true one.
        mounts[true_link(side)] = shell.with_faces(mount).moved(lidar_from_shell)
        rest &= ~mount
    return {link: shell.with_faces(rest)} | mounts


def _own_links(model: RobotModel, profile: RobotProfile) -> dict[str, Surface]:
    """Return by lidar the surfaces of the links that are a lidar itself, in the lidar's frame."""
    own = {
        name: [link for link in lidar.unseen if model.links[link].collisions] for name, lidar in profile.lidars.items()
    }
    if not any(own.values()):
        return {}
    surfaces, transforms = link_surfaces(model), link_transforms(model, {})
    from_root = {name: inverse(transforms[profile.lidars[name].link_in(model)]) for name in own}
    return {
        name: joined(surfaces[link].moved(from_root[name] @ transforms[link]) for link in links)
        for name, links in own.items() if links
    }  # fmt: skip


class EmbeddedSimulator:
    """A simulation of `setup`, its robot stowed at the world's origin. `sensors` are by lidar, `sensor` is the left
    one's and may be given as an object; descriptions are URDF texts; `joints` moves the robot, and `driving` drives it
    (None if its profile has no base). Raises `InputError` for worlds, sensors and payloads that cannot be used."""

    idle_factor = 4.0
    """The largest real-time factor while nothing but time is waited for."""

    def __init__(self, setup: SimulationSetup, sensor: Sensors = None):
        self.setup = setup
        given = for_each(sensor, len(setup.profile.lidars)) if sensor else setup.sensors().values()
        self.sensors: dict[str, Sensor] = dict(zip(setup.profile.lidars, given, strict=True))
        self.sensor = self.sensors["left"]
        self.world: World = load_world(setup.world)
        self.profile = setup.profile
        self.nominal_description = setup.nominal_description
        self.true_description = simulated_description(setup)
        model = parse_urdf(self.true_description, source="simulated description")
        self.joints = Joints(model, self.profile)
        self.geometry = RobotGeometry(model, self.joints.movable, self.profile)
        self.joints.place({name: value for name, value in self.profile.stowed.items() if name in self.joints.ranges})
        self._lidars = {
            device: Lidar(setup.sensor_of(device, kind), device, setup.seed, setup.unit_seed, number)
            for number, (device, kind) in enumerate(self.sensors.items())
        }
        self._nominal_links = self.profile.lidar_links(model)
        links = [self.profile.base_frame, *map(true_link, self.sensors), *self._nominal_links.values()]
        self._root_from_link = link_transforms(model, {}, links)
        self._world_from_root = np.eye(4)
        self.driving = self._base_on_floor()
        self._added: dict[str, Surface] = {}
        materials = self.world.materials
        self._optics = {device: Optics(materials, kind.reflectivity) for device, kind in self.sensors.items()}
        self._static: dict[str, Scene] | None = None
        self._people = [Scene({actor.name: actor.surface}) for actor in self.world.actors]
        self._moving: tuple[dict[str, float], Scene] | None = None
        self._apart: tuple[Scene, dict[str, Scene]] | None = None

    @property
    def warnings(self) -> list[str]:
        """What of the world is not simulated, or not in the obvious way; one line each."""
        tables = {device: self.setup.angle_table_of(device, kind) for device, kind in self.sensors.items()}
        own = [f"{device} lidar: with the unit's own angle table, {table}" for device, table in tables.items() if table]
        return [*self.world.warnings, *self.world.notes, *own]

    @property
    def period(self) -> float:
        return self.sensor.period

    def start_time(self, lidar: str, tick: int) -> float:
        """Return when scan `tick` of a lidar begins, in s of simulated time by its own clock."""
        return self.lidar(lidar).start_time(tick)

    def listen(self, wanted: bool) -> None:
        """Do nothing: scans are cast on request. (Gazebo casts them while it has subscribers.)"""

    def scan(self, lidar: str, tick: int, drawn: int | None = None) -> np.ndarray:
        """Return scan `tick` of a lidar by name: points (M,) of `POINT_DTYPE` in its frame, in firing order, with
        misses and second returns if the sensor has them (`xyz` and `labelled_scan` leave both out).

        Equal seed, tick, joint positions, motion of the base and surroundings give equal scans, whatever was scanned
        before. Random numbers and walking people are those of tick `drawn` (by default the same)."""
        scan = self._measured(lidar, tick, tick if drawn is None else drawn)[0]
        if drawn not in (None, tick):
            scan["timestamp"] += self.start_time(lidar, tick) - self.start_time(lidar, drawn)
        return scan

    def labelled_scan(self, lidar: str, tick: int) -> tuple[np.ndarray, np.ndarray, list[str]]:
        """Return a scan's returns (M,), the index (M,) of the surface of each, and the surfaces' names: links of the
        robot (a lidar's link: its collar), shapes of the world ("model/link/shape") and added ones."""
        points, surfaces, names = self._measured(lidar, tick, tick)
        returns = are_returns(coordinates(points))
        return points[returns], surfaces[returns], names

    def point_pairs(self, count: int, first_tick: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the points (N, 3) and (M, 3), float64, of left and right scans in their lidars' frames."""
        for tick in range(first_tick, first_tick + count):
            yield tuple(xyz(self.scan(device, tick)) for device in SIDES)

    def recorded_pairs(self, count: int, first_tick: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the returns (N,) and (M,) of left and right scans, of `POINT_DTYPE`, as from a recording."""
        for tick in range(first_tick, first_tick + count):
            yield tuple(returns_of(self.scan(device, tick)) for device in SIDES)

    def along(
        self, lidar: str, directions: np.ndarray, height: float = 0.0, time: float | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return what rays from `height` m up a lidar's axis meet along unit directions (N, 3) in its frame: distances
        (N,) in m (inf for nothing), unit normals (N, 3) of either side, and reflectivities (N,). Exact, without walking
        people; the base is where it was at a `time` (s), by default now."""
        self._stand(time)
        root_from_lidar = self.floor_from_lidar(lidar)
        begin = root_from_lidar[:3, 3] + height * root_from_lidar[:3, 2]
        hits = Hits(begin, directions @ root_from_lidar[:3, :3].T, self._scenes(lidar, None))
        normals = hits.normals(np.arange(len(directions))) @ root_from_lidar[:3, :3]
        return hits.distances, normals, self._optics[lidar].reflectivities(hits)

    def view(self, lidar: str) -> dict[str, float]:
        """Return the share of a lidar's rays on each link of the robot, largest first, and other housings ("LIDAR
        lidar")."""
        root_from_lidar = self.floor_from_lidar(lidar)
        self._stand(None)
        rays = self.lidar(lidar).rays(0).directions @ root_from_lidar[:3, :3].T.astype(np.float32)
        hits = Hits(root_from_lidar[:3, 3], rays, self._scenes(lidar, None))
        met = hits.surfaces()
        shares = np.bincount(met[met >= 0], minlength=len(hits.names)) / len(met)
        seen = {name: float(share) for name, share in zip(hits.names, shares, strict=True) if share > 0}
        ordered = sorted(seen.items(), key=lambda item: -item[1])
        return {name: share for name, share in ordered if name not in self.world.surfaces}

    def ground_truth(self) -> dict[str, Any]:
        """Return the ground truth, ready for JSON; transforms are 4x4 nested lists. `units` are as in unit files,
        `lidars` the poses in base_link. `true_description` belongs into the `description_file`."""
        true, nominal = (
            {name: self.base_from_lidar(name, described).tolist() for name in self._lidars}
            for described in (False, True)
        )
        pair, floor, between = [side for side in SIDES if side in true], self.floor_in_base, {}
        if "right" in true:
            left_from_right = inverse(self.base_from_lidar("left")) @ self.base_from_lidar("right")
            between["lidar_left_from_lidar_right"] = left_from_right.tolist()
        return {
            "world": self.world.name,
            "seed": self.setup.seed,
            **{f"base_link_from_lidar_{side}": true[side] for side in pair},
            **{f"nominal_base_link_from_lidar_{side}": nominal[side] for side in pair},
            **between,
            "lidars": true,
            "nominal_lidars": nominal,
            "floor_in_base_link": {"normal": floor.normal.tolist(), "offset": floor.offset},
            "units": {device: lidar.described() for device, lidar in self._lidars.items()},
            "description_file": "true_robot.urdf",
            "lidar_geometry": self.profile.lidar_geometry,
            **({"odometry": asdict(self.driving.errors)} if self.driving is not None else {}),
            **({"robot": self.setup.robot_keys["robot"]} if "robot" in self.setup.robot_keys else {}),
        }

    def base_from_lidar(self, lidar: str, nominal: bool = False) -> np.ndarray:
        """Return base_link_from_lidar (4, 4), the true one, or that of the description."""
        root_from_lidar = self.floor_from_lidar(lidar)
        if nominal:
            root_from_lidar = self._root_from_link[self._nominal_links[lidar]]
        return inverse(self._root_from_link[self.profile.base_frame]) @ root_from_lidar

    def floor_from_lidar(self, lidar: str) -> np.ndarray:
        """Return the true pose (4, 4) of a lidar in the frame of the floor about which the base drives."""
        self.lidar(lidar)
        return self._root_from_link[true_link(lidar)]

    @property
    def floor_in_base(self) -> Plane:
        """The true floor, the world's z = 0, in base_link."""
        return LEVEL.moved(inverse(self._root_from_link[self.profile.base_frame]))

    def true_surfaces(self) -> dict[str, Surface]:
        """Return the true robot's surfaces by link in base_link, payload included."""
        return self.geometry.in_base(self.joints.joint_positions)

    def move_base(self, world_from_floor: np.ndarray) -> None:
        """Put the robot at a pose world_from_floor (4, 4), as if pushed; on an uneven floor at its x, y, yaw."""
        pose = check_rigid(world_from_floor, "world_from_floor")
        if self.driving is not None:
            self.driving.place(pose[0, 3], pose[1, 3], math.atan2(pose[1, 0], pose[0, 0]))
            if self.driving.floor is not None:
                pose = self.driving.poses(np.array([self.driving.now]))[0]
        self._set_pose(pose)

    def add_surface(self, name: str, surface: Surface | None) -> None:
        """Add a surface in world coordinates (a person, for instance); None removes it again."""
        self._added.pop(name, None)
        if surface is not None:
            self._added[name] = surface
        self._moving = self._apart = None

    def _base_on_floor(self) -> DrivingBase | None:
        """Return the base at the world's origin, and lay the floor that the setup asks for."""
        base, setup, floor = self.profile.base, self.setup, None
        if setup.floor is not None:
            if base is None:
                raise InputError(f"floor: {self.profile.source} has no 'base:' with the wheels' places")
            rms, wavelength = setup.floor
            random = np.random.default_rng(np.random.SeedSequence(setup.seed, spawn_key=(FLOOR,)))
            floor = Undulation.drawn(rms, (wavelength, 2 * wavelength), random)
            self.world = replace(self.world, surfaces=floor.laid(self.world.surfaces, "floor"))
        if base is None:
            return None
        driving = DrivingBase(base, OdometryErrors.drawn(setup.odometry, setup.seed), setup.seed, floor)
        if floor is not None:
            self._world_from_root = driving.poses(np.zeros(1))[0]
        return driving

    def _set_pose(self, world_from_root: np.ndarray) -> None:
        if not np.array_equal(self._world_from_root, world_from_root):  # setting up takes a tenth of a second
            self._world_from_root, self._static = world_from_root, None

    def _stand(self, time: float | None) -> None:
        """Put the robot where the base stood at a time (s), by default where it is now."""
        if self.driving is not None and self.driving.driven:
            self._set_pose(self.driving.poses(np.array([self.driving.now if time is None else time]))[0])

    def _measured(self, lidar: str, tick: int, drawn: int) -> tuple[np.ndarray, np.ndarray, list[str]]:
        """Return a scan's points (M,), an index (M,) of what each one lies on (-1: nothing), and its names."""
        device = self.lidar(lidar)
        rays = device.rays(drawn)
        cast = self._casting(device, device.start_time(tick), device.start_time(drawn) + self.period / 2)
        seen, other, names = self._optics[lidar].scan(device, rays, self.floor_from_lidar(lidar), cast)
        points, numbers = device.measure(rays, seen, other)
        again = seen.surfaces
        if other is not None:
            again = np.where(np.isfinite(other.distances), other.surfaces, seen.surfaces)
        return points, np.concatenate([seen.surfaces, again])[numbers], names

    def _casting(self, device: Lidar, begin: float, time: float) -> Cast:
        if self.driving is None or self.driving.is_still(begin, begin + self.period):
            self._stand(begin)
            scenes = self._scenes(device.device, time)
            return lambda origins, ways, _rows: Hits(origins, ways, scenes)
        if self._apart is None:
            self._apart = Scene(self.world.surfaces | self._added), self._with_housings(self.geometry.resting())
        world, resting = self._apart
        robot = [resting[device.device], Scene(self.geometry.moving(self.joints.joint_positions))]
        root_from_world = inverse(self.driving.poses(begin + device.firing_times))
        around = [(world, root_from_world), *((scene, root_from_world @ at) for scene, at in self._walking(time))]

        def cast(origins: np.ndarray, ways: np.ndarray, rows: np.ndarray | None) -> Hits:
            placed = [scene.at(poses if rows is None else poses[rows]) for scene, poses in around]
            return Hits(origins, ways, [*placed, *robot])

        return cast

    def _walking(self, time: float) -> list[tuple[Scene, np.ndarray]]:
        """Return the people who walk, and world_from_feet (4, 4) of each at a simulated time."""
        return [(scene, actor.pose(time)) for actor, scene in zip(self.world.actors, self._people, strict=True)]

    def _with_housings(self, surfaces: Surfaces) -> dict[str, Scene]:
        """Return the scene of surfaces by lidar, each with the other lidars' housings."""
        housings = self.geometry.housings
        if not housings:
            return dict.fromkeys(self._lidars, Scene(surfaces))
        of_others = {
            side: {name: housing for name, housing in housings.items() if name != f"{side} lidar"}
            for side in self._lidars
        }
        return {side: Scene(dict(surfaces) | others) for side, others in of_others.items()}

    def _scenes(self, lidar: str, time: float | None) -> list[Scene]:
        """Return the scenes for a lidar's rays in the root frame, with the people at a `time` (None: without)."""
        root_from_world, positions = inverse(self._world_from_root), self.joints.joint_positions

        def in_root(surfaces: Surfaces) -> dict[str, Surface]:
            return {name: surface.moved(root_from_world) for name, surface in surfaces.items()}

        if self._static is None:
            self._static = self._with_housings(in_root(self.world.surfaces) | self.geometry.resting())
            self._moving = None
        if self._moving is None or self._moving[0] != positions:
            self._moving = (positions, Scene(self.geometry.moving(positions) | in_root(self._added)))
        walking = [] if time is None else self._walking(time)
        return [self._static[lidar], self._moving[1], *(scene.at(root_from_world @ at) for scene, at in walking)]

    def lidar(self, name: str) -> Lidar:
        """Return a lidar, with its unit's true values. Raises `InputError` for unknown names."""
        if name not in self._lidars:
            raise InputError(f"lidar '{name}': use one of {', '.join(self._lidars)}")
        return self._lidars[name]


def xyz(points: np.ndarray) -> np.ndarray:
    """Return the coordinates (M, 3) float64 of a scan's returns, without misses and repetitions."""
    found = coordinates(points)
    return found[are_returns(found)].astype(float)
