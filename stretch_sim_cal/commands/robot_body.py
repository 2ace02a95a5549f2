"""The robot description as the body-shape fit needs it: surfaces, where links are, outlines at commanded values."""

from collections.abc import Mapping, Sequence

import numpy as np

from stretch_sim_cal.calibration.body.evidence import SeenRobot
from stretch_sim_cal.calibration.body.grid import OutlinesAt
from stretch_sim_cal.calibration.body.identity import description_hash
from stretch_sim_cal.calibration.body.outline import LinkSurface, RobotOutline
from stretch_sim_cal.calibration.body.shape import JOINTS
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import inverse
from stretch_sim_cal.recording.dataset import Sample
from stretch_sim_cal.robot.kinematics import link_transforms
from stretch_sim_cal.robot.model import RobotModel
from stretch_sim_cal.robot.stretch import (
    BASE_LINK,
    COMMANDED_NAMES,
    FOOTPRINT_LINK,
    commanded_limits,
    joint_positions,
    lidar_links,
)
from stretch_sim_cal.robot.surfaces import robot_surfaces


class RobotBody:
    """A robot's surfaces and kinematics, seen from base_footprint.

    `footprint_from_base_link` is the calibrated transform of the recording; without it the description's own is used.
    Raises `InputError` for a description that is not a Stretch's, or whose meshes cannot be read.
    """

    def __init__(self, model: RobotModel, footprint_from_base_link: np.ndarray | None = None):
        limits = commanded_limits(model)
        missing = [link for link in (BASE_LINK, FOOTPRINT_LINK) if link not in model.links]
        missing += ["lidars"] if len(lidar_links(model)) < 2 else []
        missing += [name for name in COMMANDED_NAMES.values() if name not in limits]
        if missing:
            raise InputError(f"robot '{model.name}': has no {', '.join(missing)}; a Stretch's description is needed")
        self.model = model
        self.limits = {joint: limits[name] for joint, name in COMMANDED_NAMES.items()}
        self.surfaces = {
            link: LinkSurface.of(surface.vertices, surface.faces)
            for link, surface in robot_surfaces(model).items()
            if len(surface.faces)
        }
        at_zero = link_transforms(model, {})
        if footprint_from_base_link is None:
            footprint_from_base_link = inverse(at_zero[FOOTPRINT_LINK]) @ at_zero[BASE_LINK]
        self.footprint_from_base_link = footprint_from_base_link
        base = inverse(at_zero[BASE_LINK])
        self.lidars = np.array(
            [(footprint_from_base_link @ base @ at_zero[link])[:3, 3] for link in lidar_links(model)]
        )
        """The lidars' places (L, 3) in base_footprint as the description has them, left first."""
        self.hash = description_hash(model, self.surfaces)

    def transforms(self, positions: Mapping[str, float | np.ndarray]) -> dict[str, np.ndarray]:
        """Return footprint_from_link (..., 4, 4) of every link with a surface; positions are by description name."""
        known = {name: value for name, value in positions.items() if name in self.model.joints}
        frames = link_transforms(self.model, known, [*self.surfaces, BASE_LINK])
        footprint_from_root = self.footprint_from_base_link @ inverse(frames[BASE_LINK])
        return {link: footprint_from_root @ frames[link] for link in self.surfaces}

    def positions(self, sample: Sample, values: Mapping[str, float] | None = None) -> dict[str, float]:
        """Return joint positions by description name: all measured ones of a sample, and `values` (of `JOINTS`), which
        by default are the measured ones of the sample."""
        if values is None and sample.joints:
            return dict(sample.joints)
        values = sample.actual if values is None else values
        return dict(sample.joints) | joint_positions(
            self.model, {COMMANDED_NAMES[joint]: values[joint] for joint in JOINTS}
        )

    def outside_limits(self, values: Mapping[str, float], tolerance: float = 1e-3) -> list[str]:
        """Return, as text, which of the values of `JOINTS` are outside the description's limits."""
        return [
            f"{joint} {values[joint]:.3f} is not in [{limit.lower:.3f}, {limit.upper:.3f}]"
            for joint, limit in self.limits.items()
            if not limit.lower - tolerance <= values[joint] <= limit.upper + tolerance
        ]

    def outlines_at(self, robot: RobotOutline | SeenRobot, others: Mapping[str, float]) -> OutlinesAt:
        """Return the function that `fit_body_shape` asks for outlines; `others` are positions of all other joints."""

        def outlines(sets: Sequence[np.ndarray]) -> list[np.ndarray]:
            poses = np.concatenate(sets)
            commanded = dict(zip((COMMANDED_NAMES[joint] for joint in JOINTS), poses.T, strict=True))
            frames = self.transforms(dict(others) | joint_positions(self.model, commanded))
            return robot.hulls(frames, [len(part) for part in sets])

        return outlines
