"""Small flat patches in the cells of all lidars together, and the assignment of cells to them.

A cell is assigned by the point at which its ray meets the patch's plane, not by its noisy point, and points are trimmed
symmetrically about the plane: neither choice depends on the sign of the noise, so neither biases the plane.
"""

from dataclasses import dataclass, fields

import numpy as np
import small_gicp

from stretch_sim_cal.calibration.surfaces import Surface
from stretch_sim_cal.geometry.planes import Plane
from stretch_sim_cal.geometry.points import group_means, group_sums, voxel_keys

# Edge of a patch (m) up to `FINE_RANGE` (m) from the lidars; it doubles with every doubling of the range. Wider as seen
# from a lidar, the shape of whatever is near would look like an error of its ranges.
PATCH_SIZE = 0.1
FINE_RANGE = 1.0
MAX_LEVEL = 5
# Patches without a gap are doubled so many times. Those of the floor are not, and begin with this level.
MAX_DOUBLED, FLOOR_LEVEL = 3, 2
# Standard deviations by which the residuals of a flat patch may exceed their expectation.
MAX_EXCESS = 4.0
MIN_CELLS = 6
CANDIDATES = 4
MIN_NORMAL_COSINE = np.cos(np.deg2rad(35.0))
# Rays at grazing incidence have little information, and real lidars have larger errors there.
MIN_INCIDENCE_COSINE = 0.1
MAX_PLANARITY = 0.1
# The largest distance (m) from the floor of a patch that only one lidar sees.
FLOOR_GATE = 0.1


@dataclass(frozen=True)
class Patches:
    """Planes through `centres` (G, 3) with `normals` (G, 3), in-plane axes `axes` (G, 2, 3) and edges `sizes` (G,)."""

    centres: np.ndarray
    normals: np.ndarray
    axes: np.ndarray
    sizes: np.ndarray


@dataclass(frozen=True)
class Members:
    """Cells that belong to patches, one row each.

    `cell` (K,) and `patch` (K,) index the surface and the patches; `coordinates` (K, 2) is where the cell's ray meets
    the patch's plane, along its axes, `heights` (K,) the point's distance from the plane, `cosines` (K,) of incidence.
    """

    cell: np.ndarray
    patch: np.ndarray
    coordinates: np.ndarray
    heights: np.ndarray
    cosines: np.ndarray

    @property
    def design(self) -> np.ndarray:
        """The rows (K, 3) that a plane's height and slopes are multiplied by to give the members' heights."""
        return np.hstack([np.ones((len(self.cell), 1)), self.coordinates])

    def only(self, wanted: np.ndarray) -> "Members":
        """Return the rows of a mask (K,), or of these indices."""
        rows = np.flatnonzero(wanted) if wanted.dtype == bool else wanted
        return Members(*(getattr(self, field.name).take(rows, axis=0) for field in fields(self)))

    def each_cell_once(self) -> "Members":
        """Return the first row of every cell."""
        return self.only(np.unique(self.cell, return_index=True)[1])


def seed_patches(surface: Surface, free: np.ndarray, doubled: int, shift: float, floor: Plane | None) -> Patches:
    """Return initial patches of the flat ones of `free` cells (M,), grouped by voxel and by the axis of their normals.

    The grid of voxels is shifted by a share `shift` of its edge along all three axes; the edges are `doubled` so many
    times more than by their range. A patch needs cells of two lidars, unless it lies on the `floor`.
    """
    flat = np.flatnonzero(free & (surface.planarity < MAX_PLANARITY))
    points, normals = surface.points[flat], surface.normals[flat]
    by_range = np.floor(np.log2(np.maximum(surface.ranges[flat], 1e-3) / FINE_RANGE)) + 1
    least = 0 if floor is None else FLOOR_LEVEL
    level = np.minimum(np.clip(by_range, least, MAX_LEVEL).astype(int) + doubled, MAX_LEVEL)
    size = PATCH_SIZE * 2.0**level
    axis = np.argmax(np.abs(normals), axis=1)
    facing = 2 * axis + (normals[np.arange(len(axis)), axis] < 0)
    key = (voxel_keys(points / size[:, None] + shift, 1.0) * 8 + facing) * (MAX_LEVEL + 1) + level
    _, first, group, counts = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    seen_by = group_sums(group, len(counts), np.eye(surface.num_lidars)[surface.side[flat]]) >= 1
    centres = group_means(group, len(counts), points)
    wanted = np.count_nonzero(seen_by, axis=1) >= 2
    if floor is not None:
        wanted |= (facing[first] == 4) & (np.abs(floor.distance(centres)) < FLOOR_GATE)
    kept = (counts >= MIN_CELLS) & wanted
    centres = centres[kept]
    return oriented(centres, group_sums(group, len(counts), normals)[kept], size[first][kept])


def oriented(centres: np.ndarray, normals: np.ndarray, sizes: np.ndarray) -> Patches:
    """Return patches with these centres and sizes that face along normals (P, 3) of any length."""
    normals = normals / np.linalg.norm(normals, axis=1, keepdims=True)
    helper = np.eye(3)[np.argmin(np.abs(normals), axis=1)]
    first = np.cross(normals, helper)
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    return Patches(centres, normals, np.stack([first, np.cross(normals, first)], axis=1), sizes)


def joined(kind: type, parts: list):
    """Return the rows of several `Patches`, or of others whose fields are all arrays, as one."""
    return kind(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(kind)))


def assign(surface: Surface, free: np.ndarray, patches: Patches, gate: float) -> Members:
    """Return every `free` cell (M,) with the nearest patch that faces as it does and whose plane passes within `gate`
    (m)."""
    best = np.full(len(surface.points), -1)
    nearest = np.full(len(surface.points), np.inf)
    chosen, candidates = np.flatnonzero(free), []
    if len(patches.centres):
        index, squares = small_gicp.KdTree(patches.centres).batch_knn_search(surface.points[chosen], CANDIDATES)
        near = squares < (2.0 * PATCH_SIZE * 2.0**MAX_LEVEL) ** 2
        candidates = [(chosen[own], patch[own].astype(np.int64)) for patch, own in zip(index.T, near.T, strict=True)]
    for cell, patch in candidates:
        normals = patches.normals.take(patch, axis=0)
        agrees = np.einsum("ki,ki->k", normals, surface.normals.take(cell, axis=0)) > MIN_NORMAL_COSINE
        cell, patch = cell[agrees], patch[agrees]
        members = _members(surface, patches, cell, patch)
        distance = np.sqrt(np.einsum("ka,ka->k", members.coordinates, members.coordinates)) / patches.sizes[patch]
        fits = (
            (members.cosines > MIN_INCIDENCE_COSINE) & (np.abs(members.heights) < gate)
            & (distance < np.minimum(0.75, nearest[cell]))
        )  # fmt: skip
        best[cell[fits]] = patch[fits]
        nearest[cell[fits]] = distance[fits]
    cell = np.flatnonzero(best >= 0)
    return _members(surface, patches, cell, best[cell])


def _members(surface: Surface, patches: Patches, cell: np.ndarray, patch: np.ndarray) -> Members:
    # take: a quarter of the time of an index in brackets.
    normals, centres, axes = (of.take(patch, axis=0) for of in (patches.normals, patches.centres, patches.axes))
    rays, origins, points = (of.take(cell, axis=0) for of in (surface.rays, surface.origins, surface.points))
    cosines = -np.einsum("ki,ki->k", normals, rays)
    safe = np.where(np.abs(cosines) > 1e-3, cosines, 1e-3)
    distances = np.einsum("ki,ki->k", normals, origins - centres) / safe
    hits = origins + distances[:, None] * rays - centres
    return Members(
        cell, patch, np.einsum("kai,ki->ka", axes, hits), np.einsum("ki,ki->k", normals, points - centres), cosines
    )  # fmt: skip


def remeasured(surface: Surface, patches: Patches, members: Members) -> Members:
    """Return the same memberships, measured against moved patches or a moved surface."""
    return _members(surface, patches, members.cell, members.patch)


@dataclass(frozen=True)
class Fits:
    """A plane `height = h + a s + b t` over each patch: `coefficients` (G, 3), `covariances` (G, 3, 3), `residuals`
    (K,) of the members, `counts` (G,) and `chi_squares` (G,): the sum of squared residuals over their variances."""

    coefficients: np.ndarray
    covariances: np.ndarray
    residuals: np.ndarray
    counts: np.ndarray
    chi_squares: np.ndarray

    @property
    def flat(self) -> np.ndarray:
        """A mask (G,) of the patches with enough members, and residuals that noise explains."""
        freedom = np.maximum(self.counts - 3.0, 1.0)
        return (self.counts >= MIN_CELLS) & (self.chi_squares / freedom < 1.0 + MAX_EXCESS * np.sqrt(2.0 / freedom))


def fit_planes(members: Members, variances: np.ndarray, num_patches: int) -> Fits:
    """Return the weighted least-squares plane of every patch through its members of variances (K,).

    A patch with fewer than three members, or members on a line, gets a covariance so large that it does not count.
    """
    design = members.design
    weights = 1.0 / variances
    first, second = np.triu_indices(3)
    products = group_sums(members.patch, num_patches, (weights[:, None] * design)[:, first] * design[:, second])
    information = np.empty((num_patches, 3, 3))
    information[:, first, second] = information[:, second, first] = products
    # A weak prior (1 m high, 1000 % steep) keeps undetermined parameters finite.
    information += np.diag([1.0, 0.01, 0.01])
    covariances = np.linalg.inv(information)
    right_side = group_sums(members.patch, num_patches, (weights * members.heights)[:, None] * design)
    coefficients = np.einsum("gij,gj->gi", covariances, right_side)
    residuals = members.heights - np.einsum("ki,ki->k", design, coefficients[members.patch])
    return Fits(
        coefficients, covariances, residuals, np.bincount(members.patch, minlength=num_patches),
        np.bincount(members.patch, weights=weights * residuals**2, minlength=num_patches),
    )  # fmt: skip


def refined(patches: Patches, fits: Fits) -> Patches:
    """Return the patches moved onto the planes fitted to them; those with too few members stay."""
    enough = (fits.counts >= MIN_CELLS)[:, None]
    height, slopes = fits.coefficients[:, :1], fits.coefficients[:, 1:]
    centres = patches.centres + np.where(enough, height * patches.normals, 0.0)
    normals = patches.normals - np.where(enough, np.einsum("ga,gai->gi", slopes, patches.axes), 0.0)
    return oriented(centres, normals, patches.sizes)
