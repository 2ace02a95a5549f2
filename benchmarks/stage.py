"""A lidar with few channels on a stage: two poses, a few centimetres and up to 20 deg apart, two scans each, in rooms,
gardens or behind laths. Ours beside one GICP and the published method on the same scans, from the same first guess.

    python benchmarks/stage.py [--sensors vlp16 xt32] [--seeds 30] [--unknown] [--units] [--disturbed] [--place garden]
"""

import argparse
import itertools
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import trimesh
from comparing import chi_square, drawn_twist
from scipy import stats

from stretch_sim_cal.calibration.clouds import given_clouds
from stretch_sim_cal.calibration.methods import alignment_method
from stretch_sim_cal.calibration.results import AlignmentResult
from stretch_sim_cal.calibration.settings import AlignmentSettings
from stretch_sim_cal.errors import Refused
from stretch_sim_cal.geometry.transforms import SIDES, error, exp, from_xyz_rpy
from stretch_sim_cal.robot.surfaces import Surface
from stretch_sim_cal.sensor.points import returns_of
from stretch_sim_cal.sensor.sensor import Sensor, load_sensor
from stretch_sim_cal.simulation.lidar import Lidar
from stretch_sim_cal.simulation.optics import Hits, Optics, Scene
from stretch_sim_cal.simulation.rooms import Room, write_room
from stretch_sim_cal.simulation.worlds import load_world

METHODS = ("planes", "gicp", "published")
SCANS = 2
LIMIT = float(stats.chi2.isf(2.0 * stats.norm.sf(4.0), 6))  # of six values, as improbable as 4 sigma of one
YAWS = (0.0, 10.0, -10.0, 20.0, -20.0)  # deg


class Stage:
    """One room and two poses of one lidar: `scans` by side, and `truth`, right_to_left (4, 4)."""

    def __init__(
        self, sensor: Sensor, seed: int, apart: float = 0.06, two_units: bool = False, disturbed: bool = False,
        scans: int = SCANS, place: str = "room",
    ):  # fmt: skip
        random = np.random.default_rng(seed)
        if place in PLACES:
            self._room, self._optics = _scene(PLACES[place](random)), Optics({}, sensor.reflectivity)
        else:
            self._room, self._optics = self._generated_room(sensor, random)
        self.sensor, self.seed = sensor, seed
        turn = np.radians([*random.normal(0.0, 1.0, 2), random.uniform(-180, 180)])
        left = from_xyz_rpy([*random.uniform(-0.3, 0.3, 2), random.uniform(0.5, 1.0)], turn)
        along, way = random.uniform(0.0, apart), random.uniform(0.0, 2.0 * np.pi)
        self.truth = from_xyz_rpy(
            [along * np.cos(way), along * np.sin(way), 0.0], [0.0, 0.0, np.radians(random.choice(YAWS))]
        )
        # Somebody stands there in one scan of one pose, in some 6 % of the view.
        somebody = _person(left, random) if disturbed else None
        self.scans = {
            side: [self._scan(pose, side, tick, two_units, somebody if (side, tick) == ("right", 0) else None)
                   for tick in range(scans)]
            for side, pose in zip(SIDES, (left, left @ self.truth), strict=True)
        }  # fmt: skip

    @staticmethod
    def _generated_room(sensor: Sensor, random: np.random.Generator) -> tuple[Scene, Optics]:
        room = Room(
            length=random.uniform(5, 9), width=random.uniform(4, 6), height=random.uniform(2.4, 3.0),
            furniture=int(random.integers(4, 12)), wall_rms=0.003, floor_rms=0.003, yaw=random.uniform(-np.pi, np.pi),
        )  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            world = load_world(write_room(room, random, Path(folder)))
        return Scene(world.surfaces), Optics(world.materials, sensor.reflectivity)

    def guess(self, distance: float = 0.01, angle: float = 1.0) -> np.ndarray:
        """Return a first guess (4, 4) that is so far off: m, deg."""
        return exp(drawn_twist(np.random.default_rng([self.seed, 1]), distance, np.radians(angle))) @ self.truth

    def align(self, method: str, known: bool, guess: np.ndarray) -> AlignmentResult:
        """Return what a method makes of the scans, the sensor `known` or not."""
        found = alignment_method(method)(guess, AlignmentSettings(sensor=self.sensor if known else None))
        for pair in zip(*self.scans.values(), strict=True):
            found.add(*given_clouds(found, *pair))
        return found.solve()

    def _scan(self, pose: np.ndarray, side: str, tick: int, two_units: bool, somebody: Scene | None) -> np.ndarray:
        unit = self.seed + 1 if two_units and side == "right" else self.seed
        lidar = Lidar(self.sensor, "left", self.seed, unit)
        rays, scenes = lidar.rays(tick + 100 * SIDES.index(side)), [self._room, *([somebody] if somebody else [])]
        seen, other, _ = self._optics.scan(lidar, rays, pose, lambda begin, way, _rows: Hits(begin, way, scenes))
        return returns_of(lidar.measure(rays, seen, other)[0])


def _garden(random: np.random.Generator) -> dict[str, trimesh.Trimesh]:
    """Return level ground with bushes, trees and perhaps a wall or two, within 25 m of the origin: leaves are triangles
    of some 10 cm, anyhow."""
    meshes = {"ground": trimesh.creation.box((80.0, 80.0, 0.1), from_xyz_rpy([0.0, 0.0, -0.05], [0.0] * 3))}
    for number in range(random.integers(10, 25)):
        bearing, distance = random.uniform(-np.pi, np.pi), random.uniform(3.0, 25.0)
        foot, tree = distance * np.array([np.cos(bearing), np.sin(bearing)]), random.random() < 0.5
        radii = random.uniform(1.0, 2.5, 3) if tree else random.uniform(0.4, 1.2, 3)
        height = random.uniform(3.0, 4.5) if tree else 0.8 * radii[2]
        if tree:
            trunk = from_xyz_rpy([*foot, height / 2.0], [0.0] * 3)
            meshes[f"trunk {number}"] = trimesh.creation.cylinder(random.uniform(0.08, 0.25), height, transform=trunk)
        ways = random.normal(size=(3000 if tree else 1500, 1, 3))
        ways *= random.uniform(0.6, 1.0, (len(ways), 1, 1)) ** 0.5 / np.linalg.norm(ways, axis=2, keepdims=True)
        corners = ways * radii + random.normal(size=(len(ways), 3, 3)) * 0.06 + [*foot, height]
        corners[..., 2] = np.maximum(corners[..., 2], 0.02)
        meshes[f"leaves {number}"] = trimesh.Trimesh(
            corners.reshape(-1, 3), np.arange(corners.size // 3).reshape(-1, 3)
        )
    for number in range(random.integers(0, 3)):
        bearing, distance = random.uniform(-np.pi, np.pi), random.uniform(10.0, 25.0)
        foot, yaw = distance * np.array([np.cos(bearing), np.sin(bearing)]), bearing + random.normal(0.0, 0.3)
        wall = from_xyz_rpy([*foot, 2.0], [0.0, 0.0, yaw])
        meshes[f"wall {number}"] = trimesh.creation.box((0.3, random.uniform(5.0, 15.0), 4.0), wall)
    return meshes


def _laths(random: np.random.Generator) -> dict[str, trimesh.Trimesh]:
    """Return a room with three boxes, and laths of 4 cm at intervals of 7 cm before its walls, 8.5 cm from them."""
    length, width, height, pitch = random.uniform(5.0, 8.0), random.uniform(4.0, 6.0), 3.0, 0.07
    meshes = {
        name: trimesh.creation.box((length, width, 0.1), from_xyz_rpy([0.0, 0.0, z], [0.0] * 3))
        for name, z in (("floor", -0.05), ("ceiling", height + 0.05))
    }
    for wall, (wide, half) in enumerate(itertools.product((0, 1), (-0.5, 0.5))):
        across, along = (length, width) if wide else (width, length)
        heading = from_xyz_rpy([0.0] * 3, [0.0, 0.0, np.pi / 2.0 if wide else 0.0])
        # Size, offset along the wall, and distance behind its face.
        boxes = [((along, 0.1, height), 0.0, 0.05)]
        boxes += [((0.04, 0.03, height), (n + 0.5) * pitch - along / 2.0, -0.1) for n in range(int(along / pitch))]
        meshes[f"wall {wall}"] = trimesh.util.concatenate([
            trimesh.creation.box(size, heading @ from_xyz_rpy(
                [offset, np.sign(half) * (across / 2.0 + behind), height / 2.0], [0.0] * 3
            )) for size, offset, behind in boxes
        ])  # fmt: skip
    for number in range(3):
        size = random.uniform(0.3, 0.9, 3)
        foot = [random.uniform(1.0, side / 2.0 - 0.6) * random.choice([-1, 1]) for side in (length, width)]
        pose = from_xyz_rpy([*foot, size[2] / 2.0], [0.0, 0.0, random.uniform(0.0, 3.0)])
        meshes[f"box {number}"] = trimesh.creation.box(size, pose)
    return meshes


PLACES = {"garden": _garden, "laths": _laths}


def _scene(meshes: Mapping[str, trimesh.Trimesh]) -> Scene:
    return Scene(
        {name: Surface(np.asarray(mesh.vertices), np.asarray(mesh.faces)) for name, mesh in meshes.items()}
    )  # fmt: skip


def _person(pose: np.ndarray, random: np.random.Generator) -> Scene:
    """Return a box as large as a person, 1.2 m from a lidar."""
    box = trimesh.creation.box((0.35, 0.5, 1.8))
    bearing = random.uniform(-np.pi, np.pi)
    placed = from_xyz_rpy([1.2 * np.cos(bearing), 1.2 * np.sin(bearing), 0.0], [0.0, 0.0, bearing])
    return _scene({"person": box.apply_transform(pose @ placed)})


def judged(result: AlignmentResult, truth: np.ndarray) -> tuple[bool, float, float, float]:
    """Return whether a result is refused, its errors in mm and deg, and its NEES over six degrees of freedom."""
    distance, angle = error(truth, result.right_to_left)
    squared = chi_square(truth, result.right_to_left, result.covariance) / 6.0
    return bool(result.refusals), 1e3 * distance, float(np.degrees(angle)), squared


def main() -> None:
    """Print a row per sensor and method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sensors", nargs="+", default=["vlp16", "xt32"], help="names in config/, or sensor files")
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--first-seed", type=int, default=3001, help="seeds below 3001 were used while developing")
    parser.add_argument("--unknown", action="store_true", help="the sensor is not known to ours")
    parser.add_argument("--units", action="store_true", help="two units with errors of their own")
    parser.add_argument("--disturbed", action="store_true", help="somebody stands in one scan")
    parser.add_argument(
        "--place", choices=["room", *PLACES], default="room", help="laths: walls with laths before them"
    )
    parser.add_argument("--apart", type=float, default=0.06, metavar="M", help="the poses are at most so far apart")
    parser.add_argument(
        "--guess", nargs=2, type=float, default=(10.0, 1.0), metavar=("MM", "DEG"), help="first guess off"
    )
    args = parser.parse_args()
    print("| sensor | method | refused | median | worst accepted | NEES / dof | accepted, over 4 sigma |")
    print("|---|---|---|---|---|---|---|")
    for name in args.sensors:
        rows: dict[str, list] = {method: [] for method in METHODS}
        for seed in range(args.first_seed, args.first_seed + args.seeds):
            stage = Stage(
                load_sensor(name), seed, args.apart, two_units=args.units, disturbed=args.disturbed, place=args.place
            )  # fmt: skip
            guess = stage.guess(1e-3 * args.guess[0], args.guess[1])
            for method, found in rows.items():
                try:
                    found.append(judged(stage.align(method, not args.unknown, guess), stage.truth))
                except Refused:
                    found.append((True, np.nan, np.nan, np.nan))
        for method, found in rows.items():
            refused, distances, angles, squared = np.array(found, dtype=float).T
            kept = refused == 0
            worst = f"{distances[kept].max():.2f} mm {angles[kept].max():.3f} deg" if kept.any() else "-"
            wrong = np.count_nonzero(6.0 * squared[kept] > LIMIT)
            print(
                f"| {name} | {method} | {int(refused.sum())} of {len(found)} | {np.nanmedian(distances):.2f} mm "
                f"{np.nanmedian(angles):.4f} deg | {worst} | {np.nanmean(squared):.2f} | {wrong} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
