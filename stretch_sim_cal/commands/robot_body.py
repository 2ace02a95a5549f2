"""The robot description as the body-shape fit needs it: surfaces, where links are, outlines at commanded values."""

from collections.abc import Mapping, Sequence

import numpy as np

from stretch_sim_cal.calibration.body.evidence import SeenRobot
from stretch_sim_cal.calibration.body.grid import OutlinesAt
from stretch_sim_cal.calibration.body.model import description_hash
from stretch_sim_cal.calibration.body.outline import LinkSurface, RobotOutline
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import inverse
from stretch_sim_cal.recording.dataset import Sample
from stretch_sim_cal.robot.kinematics import link_transforms
from stretch_sim_cal.robot.model import RobotModel
from stretch_sim_cal.robot.profile import RobotProfile, stretch_profile
from stretch_sim_cal.robot.surfaces import outline_surfaces


class RobotBody:
    """A robot's surfaces and kinematics, seen from base_footprint.

    `footprint_from_base_link` is the calibrated transform of the recording; without it the description's own is used.
    Raises `InputError` for a description that is not of the `profile`'s robot (by default the Stretch), or whose meshes
    cannot be read.
    """

    def __init__(
        self, model: RobotModel, footprint_from_base_link: np.ndarray | None = None, profile: RobotProfile | None = None
    ):
        self.profile = profile = profile or stretch_profile()
        limits, frames = profile.commanded_limits(model), (profile.base_frame, profile.footprint_frame)
        missing = [link for link in frames if link not in model.links]
        missing += ["lidars"] if len(profile.lidar_links(model)) < 2 else []
        missing += [name for name in profile.commands.values() if name not in limits]
        if missing:
            raise InputError(
                f"robot '{model.name}': has no {', '.join(missing)}; a {profile.name}'s description is needed"
            )
        self.model = model
        self._base = profile.base_frame
        self.limits = {joint: limits[name] for joint, name in profile.commands.items()}
        self.outline = {
            link: LinkSurface.of(surface.vertices, surface.faces)
            for link, surface in outline_surfaces(model, profile).items()
            if len(surface.faces)
        }
        """What counts as the body, by link."""
        unseen = {link for lidar in profile.lidars.values() for link in lidar.unseen}
        self.surfaces = {link: surface for link, surface in self.outline.items() if link not in unseen}
        """What the lidars see of it: all but themselves."""
        at_zero = link_transforms(model, {})
        if footprint_from_base_link is None:
            footprint_from_base_link = inverse(at_zero[profile.footprint_frame]) @ at_zero[self._base]
        self.footprint_from_base_link = footprint_from_base_link
        base = inverse(at_zero[self._base])
        self.lidars = np.array(
            [(footprint_from_base_link @ base @ at_zero[link])[:3, 3] for link in profile.lidar_links(model)]
        )
        """The lidars' places (L, 3) in base_footprint as the description has them, left first."""
        self.hash = description_hash(model, self.outline, profile)

    def transforms(self, positions: Mapping[str, float | np.ndarray]) -> dict[str, np.ndarray]:
        """Return footprint_from_link (..., 4, 4) of every link with a surface; positions are by description name."""
        known = {name: value for name, value in positions.items() if name in self.model.joints}
        frames = link_transforms(self.model, known, [*self.outline, self._base])
        footprint_from_root = self.footprint_from_base_link @ inverse(frames[self._base])
        return {link: footprint_from_root @ frames[link] for link in self.outline}

    def positions(self, sample: Sample, values: Mapping[str, float] | None = None) -> dict[str, float]:
        """Return joint positions by description name: all measured ones of a sample, and `values` (of the planned joints), which
        by default are the measured ones of the sample."""
        if values is None and sample.joints:
            return dict(sample.joints)
        values = sample.actual if values is None else values
        return dict(sample.joints) | self.profile.joint_positions(
            self.model, {name: values[joint] for joint, name in self.profile.commands.items()}
        )

    def outside_limits(self, values: Mapping[str, float], tolerance: float = 1e-3) -> list[str]:
        """Return, as text, which of the values of the planned joints are outside the description's limits."""
        return [
            f"{joint} {values[joint]:.3f} is not in [{limit.lower:.3f}, {limit.upper:.3f}]"
            for joint, limit in self.limits.items()
            if not limit.lower - tolerance <= values[joint] <= limit.upper + tolerance
        ]

    def outlines_at(self, robot: RobotOutline | SeenRobot, others: Mapping[str, float]) -> OutlinesAt:
        """Return the function that `fit_body_shape` asks for outlines; `others` are positions of all other joints."""

        def outlines(sets: Sequence[np.ndarray]) -> list[np.ndarray]:
            poses = np.concatenate(sets)
            commanded = dict(zip(self.profile.commands.values(), poses.T, strict=True))
            frames = self.transforms(dict(others) | self.profile.joint_positions(self.model, commanded))
            return robot.hulls(frames, [len(part) for part in sets])

        return outlines
