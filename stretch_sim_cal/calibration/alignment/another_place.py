"""The gain of a further standing place: the predicted standard deviation of the relative pose of two lidars after the
robot is turned on the spot, given the first view of the room.

The patches that both lidars saw are turned with the room about base_link's z axis, and every cell is predicted to hit
the patch that is nearest to its direction. Its returns lie on the patch, so they add information and change nothing.
The lidars' errors under their priors are common to all places: the patches are seen by other channels, at other ranges
and incidences. A cell whose part of the room was not visible before (a wall, mostly, while the floor is seen all
around) counts once more as it did in the first view.
"""

from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import small_gicp

from stretch_sim_cal.calibration.alignment.joint_estimate import JointEstimate, equations_of
from stretch_sim_cal.calibration.patches import MIN_INCIDENCE_COSINE
from stretch_sim_cal.calibration.problem import RIGHT
from stretch_sim_cal.calibration.room import RoomBlock, remeasured_block, room_block
from stretch_sim_cal.calibration.solver import Solver
from stretch_sim_cal.calibration.surfaces import Lidar
from stretch_sim_cal.geometry.transforms import apply, from_xyz_rpy, inverse

TURN = np.radians(90.0)
# A cell hits a patch that was seen so near (rad) to its direction: channels of sparse lidars are as far apart.
NEAR = np.radians(3.0)
# The largest distance of hits from a patch's centre, in its size; as cells are assigned to patches.
REACH = 0.75


@dataclass(frozen=True)
class AnotherPlace:
    """Standard deviations (2,) of lidar to lidar in m and rad, each the root mean square over the axes: `before`, and
    `after` the robot was turned by `turn` (rad) and as many frames were taken again."""

    before: np.ndarray
    after: np.ndarray
    turn: float = TURN

    @property
    def gain(self) -> np.ndarray:
        """The shares (2,) by which they would be smaller."""
        return 1.0 - self.after / self.before


def after_turning(
    lidars: tuple[Lidar, Lidar], estimate: JointEstimate, solver: Solver, covariance: np.ndarray,
    base_from_left: np.ndarray,
) -> AnotherPlace:  # fmt: skip
    """Return the gain of a turn on the spot, given the estimate from the place at which the lidars have these cells.
    By what the `covariance` (6, 6) that is said of it exceeds its own, that after the turn is expected to do, too."""
    block = estimate.blocks[0]
    rotation = from_xyz_rpy([0.0, 0.0, 0.0], [0.0, 0.0, -TURN])
    again = _looking_again(lidars, block, inverse(base_from_left) @ rotation @ base_from_left)
    turned = room_block(again, block.state, block.noise, 0.0, block.grids, exact=True)
    known = np.concatenate([lidar.surface.usable for lidar in again])
    unseen = replace(block, members=block.members.only(~known[block.members.cell]), elements=None)
    unseen = remeasured_block(lidars, block.state, unseen, None)
    added = equations_of((turned, unseen), (again, lidars), solver.unknowns)
    noise_information = estimate.equations.noise + unseen.noise_information() + turned.noise_information()
    both = deepcopy(solver).solve(estimate.equations.plus(added), block.state, noise_information)
    before, after = (_deviations(each.covariance[RIGHT, RIGHT]) for each in (estimate.solution, both))
    said = _deviations(covariance)
    return AnotherPlace(said, said * after / before)


def _deviations(covariance: np.ndarray) -> np.ndarray:
    return np.sqrt(np.diag(covariance).reshape(2, 3).mean(axis=1))


def _looking_again(lidars: tuple[Lidar, Lidar], block: RoomBlock, turned: np.ndarray) -> tuple[Lidar, Lidar]:
    """Return the lidars with their cells on the patches that they would hit with the room `turned` (4, 4) in the left
    lidar's frame; the other cells are not usable."""
    patches, state = block.flat[0], block.state
    members = block.members.only(block.member_weights(block.members) > 0)
    # Cells of no patch (-1) hide those behind them.
    number = np.full(len(block.surface.points), -1)
    number[members.cell] = members.patch
    points, normals = apply(turned, block.surface.points), patches.normals @ turned[:3, :3].T
    centres = apply(turned, patches.centres)
    result, first = [], 0
    for side, lidar in enumerate(lidars):
        cells = slice(first, first := first + len(lidar.surface.points))
        origins, rays = block.surface.origins[cells], block.surface.rays[cells]
        to_lidar = inverse(state.base_from_lidar[side])
        seen = apply(to_lidar, points)
        index = small_gicp.KdTree(seen / np.linalg.norm(seen, axis=1, keepdims=True))
        nearest, squares = index.batch_knn_search(rays @ to_lidar[:3, :3].T, 1)
        patch = np.where(squares[:, 0] < NEAR**2, number[nearest[:, 0].astype(np.int64)], -1)
        normal, centre = normals[patch], centres[patch]
        cosines = -np.einsum("ki,ki->k", normal, rays)
        ahead = cosines > MIN_INCIDENCE_COSINE
        ranges = np.einsum("ki,ki->k", normal, origins - centre) / np.where(ahead, cosines, 1.0)
        hits = origins + ranges[:, None] * rays
        inside = np.linalg.norm(hits - centre, axis=1) < REACH * patches.sizes[patch]
        usable = lidar.surface.usable & (patch >= 0) & ahead & (ranges > 0) & inside
        result.append(_seeing(lidar, usable, apply(to_lidar, hits), normal @ to_lidar[:3, :3].T, state.units[side]))
    return tuple(result)


def _seeing(lidar: Lidar, usable: np.ndarray, hits: np.ndarray, normals: np.ndarray, values: np.ndarray) -> Lidar:
    """Return a lidar with errors of the parameters `values` whose `usable` cells (M,) see surfaces at `hits` (M, 3)
    with `normals` (M, 3), in its frame."""
    before = lidar.surface
    hits = np.where(usable[:, None], hits, before.points)
    surface = replace(
        before, points=hits, normals=np.where(usable[:, None], normals, before.normals),
        planarity=np.where(usable, 0.0, 1.0), usable=usable,
    )  # fmt: skip
    # Their returns are on the surface after correction of the lidar's errors.
    published = 2.0 * hits - Lidar(surface, lidar.model).corrected(values).points
    return Lidar(replace(surface, points=published), lidar.model)
