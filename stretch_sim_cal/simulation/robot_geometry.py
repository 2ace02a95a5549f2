"""The true robot as triangles: what of it moves with which link, and what of the head belongs to a lidar's mount."""

from collections.abc import Collection, Mapping

import numpy as np

from stretch_sim_cal.geometry.transforms import apply, inverse
from stretch_sim_cal.robot.kinematics import link_transforms
from stretch_sim_cal.robot.model import RobotModel
from stretch_sim_cal.robot.stretch import BASE_LINK, HEAD_LINK, LIDAR_LINKS, TRUE_LIDAR_LINKS
from stretch_sim_cal.robot.surfaces import Surface, robot_surfaces

# The collar of the head's shell around a lidar's dome, in the lidar's frame: it is part of the mount, so it goes where
# the lidar goes. Otherwise a lidar that sits 2 cm deeper than drawn would look at the inside of the shell.
MOUNT_RADIUS = 0.055
MOUNT_HEIGHTS = (-0.06, 0.03)


class RobotGeometry:
    """The surfaces of the true robot, at any joint positions. `movable` are the joints that may ever move.

    Lidars see no housings: not their own, and the other one's lies below their horizon.
    """

    def __init__(self, model: RobotModel, movable: Collection[str]):
        self.model = model
        self._surfaces = robot_surfaces(model)
        if HEAD_LINK in self._surfaces:
            self._surfaces |= _mounts_apart(model, self._surfaces[HEAD_LINK])
        self._moving = _moving_links(model, movable)

    def resting(self) -> dict[str, Surface]:
        """Return the surfaces by link that no joint moves, in the model's root frame."""
        return self._placed({}, moving=False)

    def moving(self, positions: Mapping[str, float]) -> dict[str, Surface]:
        """Return the surfaces by link that joints move, at those positions, in the model's root frame."""
        return self._placed(positions, moving=True)

    def in_base(self, positions: Mapping[str, float]) -> dict[str, Surface]:
        """Return all surfaces by link at those positions, in base_link."""
        base_from_root = inverse(link_transforms(self.model, positions, [BASE_LINK])[BASE_LINK])
        placed = self.resting() | self.moving(positions)
        return {link: surface.moved(base_from_root) for link, surface in placed.items()}

    def _placed(self, positions: Mapping[str, float], moving: bool) -> dict[str, Surface]:
        links = [link for link in self._surfaces if (link in self._moving) == moving]
        transforms = link_transforms(self.model, positions, links)
        return {link: self._surfaces[link].moved(transforms[link]) for link in links}


def _mounts_apart(model: RobotModel, head: Surface) -> dict[str, Surface]:
    """Return the head's shell without the mounts, and each mount as a surface of its true lidar's link."""
    transforms = link_transforms(model, {}, [HEAD_LINK, *LIDAR_LINKS])
    rest = np.ones(len(head.faces), dtype=bool)
    mounts = {}
    for nominal_link, true_link in zip(LIDAR_LINKS, TRUE_LIDAR_LINKS, strict=True):
        lidar_from_head = inverse(transforms[nominal_link]) @ transforms[HEAD_LINK]
        vertices = apply(lidar_from_head, head.vertices)
        near = np.hypot(vertices[:, 0], vertices[:, 1]) < MOUNT_RADIUS
        near &= (vertices[:, 2] > MOUNT_HEIGHTS[0]) & (vertices[:, 2] < MOUNT_HEIGHTS[1])
        mount = near[head.faces].any(axis=1) & rest
        # Drawn around the nominal lidar, it stands around the true one.
        mounts[true_link] = head.with_faces(mount).moved(lidar_from_head)
        rest &= ~mount
    return {HEAD_LINK: head.with_faces(rest)} | mounts


def _moving_links(model: RobotModel, movable: Collection[str]) -> set[str]:
    """Return the links that any of these joints moves."""
    moving: set[str] = set()
    for link in model.order:
        joint = model.parent_joint(link)
        if joint is not None and (joint.name in movable or joint.parent in moving):
            moving.add(link)
    return moving
