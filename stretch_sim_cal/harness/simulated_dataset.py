"""Body-shape datasets from the embedded simulator without ROS, as the collecting node writes them, for tests,
benchmarks and campaigns; and how a shape compares with the true outline."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from stretch_sim_cal.calibration.body import SETTINGS_NAME
from stretch_sim_cal.calibration.body.model import BodyShapeModel
from stretch_sim_cal.calibration.body.shape import enclosing_shape
from stretch_sim_cal.calibration.observations import Observations
from stretch_sim_cal.collection.settings import load_settings
from stretch_sim_cal.files import find_shared
from stretch_sim_cal.geometry.planes import footprint_from_base
from stretch_sim_cal.geometry.shapes import Shape
from stretch_sim_cal.geometry.transforms import inverse
from stretch_sim_cal.harness.verdict import outline_of
from stretch_sim_cal.recording.dataset import DatasetWriter, Sample
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.ros.arm import CalibratedPoses, captured
from stretch_sim_cal.sensor.points import return_columns, returns_of
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator


class BodyDatasetRecorder:
    """Moves the simulated arm through poses and writes the returns of all lidars in each, from scan `first_tick` on.

    `observations` of an alignment correct the points by the lidars' intrinsics; `found` are the transforms (4, 4) of a
    calibration: of other lidars to the left one by name, and `footprint_from_base_link`; by default the true ones as
    the lidars can know them."""

    def __init__(
        self, simulator: EmbeddedSimulator, observations: Observations | None = None,
        found: tuple[Mapping[str, np.ndarray], np.ndarray] | None = None, first_tick: int = 0,
    ):  # fmt: skip
        self._simulator, self._tick = simulator, first_tick
        nominal_left = simulator.base_from_lidar("left", nominal=True)
        left_from_base = inverse(simulator.base_from_lidar("left"))
        self._lidar_base_from_base = nominal_left @ left_from_base
        left_from_lidar, self.footprint_from_base_link = found or (
            {name: left_from_base @ simulator.base_from_lidar(name) for name in simulator.sensors},
            footprint_from_base(simulator.floor_in_base.moved(self._lidar_base_from_base)),
        )
        left_from_lidar = {**left_from_lidar, "left": np.eye(4)}
        footprint_from_left = self.footprint_from_base_link @ nominal_left
        placed = {name: footprint_from_left @ left_from_lidar[name] for name in simulator.sensors}
        self._poses = CalibratedPoses(self.footprint_from_base_link, placed, observations)
        profile = simulator.profile
        limits = profile.commanded_limits(parse_urdf(simulator.nominal_description))
        file, plan = find_shared("config", SETTINGS_NAME, ".yaml"), next(iter(profile.plans), "demo")
        self._settings = load_settings(file, plan, {}, 1.0, limits, profile=profile)

    def record(self, directory: str | Path, poses: Sequence[Sequence[float]], frames: int = 2) -> None:
        """Write a sample of `frames` pairs of scans for each pose (values of the planned joints)."""
        writer = DatasetWriter(
            directory, self._simulator.nominal_description, {"tool": "simulated"}, self.footprint_from_base_link,
            self._simulator.profile.planned_names, tuple(self._simulator.profile.lidars),
        )  # fmt: skip
        for pose in poses:
            commanded = dict(zip(self._simulator.profile.planned_names, map(float, pose), strict=True))
            self._place(commanded)
            seen = self._scanned(frames)
            joints = {name: float(value) for name, value in self._simulator.joints.joint_positions.items()}
            capture = captured(seen, self._poses, self._settings, commanded, joints)
            writer.write_sample(commanded, capture.actual, capture.points, capture.clouds, capture.joints)

    def outline(self, pose: Mapping[str, float]) -> np.ndarray:
        """Return the corners (K, 2) of the true outline, payload included, at values of the planned joints."""
        self._place(pose)
        footprint_from_base_link = self.footprint_from_base_link @ self._lidar_base_from_base
        return outline_of(each.moved(footprint_from_base_link) for each in self._simulator.true_surfaces().values())

    def held_against_truth(
        self, samples: Sequence[Sample], **fits: Callable[[Sequence[Sample]], Shape | None]
    ) -> dict[str, list[tuple[float, float]]]:
        """Return by fit, for the samples at each place of the shape's axes, how far the true robot sticks out of its
        shape (m), and the shape's area over that of the smallest capsule around the true outlines."""
        places: dict[tuple[float, ...], list[Sample]] = {}
        for sample in samples:
            place = tuple(sample.commanded[joint] for joint in self._simulator.profile.shape_joints)
            places.setdefault(place, []).append(sample)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in fits}
        for here in places.values():
            true = np.vstack([self.outline(sample.commanded) for sample in here])
            least = enclosing_shape(true).area
            for name, shape_of in fits.items():
                if (shape := shape_of(here)) is not None:
                    found[name].append((shape.protrusion(true), shape.area / least))
        return found

    def protrusion_between(self, model: BodyShapeModel, poses: Sequence[Mapping[str, float]]) -> float:
        """Return how far the true robot sticks out of a model's shape (m) in the worst of any poses."""
        return max(model.shape_for(pose).protrusion(self.outline(pose)) for pose in poses)

    def _place(self, pose: Mapping[str, float]) -> None:
        commands = self._simulator.profile.commands
        self._simulator.joints.place({commands[joint]: value for joint, value in pose.items()})

    def _scanned(self, frames: int) -> dict[str, list[np.ndarray]]:
        """Return by lidar the returns (N, 5) of the next scans in its frame."""
        ticks = range(self._tick, self._tick + frames)
        self._tick += frames
        return {
            name: [return_columns(returns_of(self._simulator.scan(name, tick))) for tick in ticks]
            for name in self._simulator.sensors
        }
