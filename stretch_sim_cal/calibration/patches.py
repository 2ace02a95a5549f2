"""Small flat patches in the cells of all lidars together, the assignment of cells to them, and the noise of the data,
by which cells that are not of one static, flat surface are rejected.

A cell is assigned by the point at which its ray meets the patch's plane, not by its noisy point, and points are trimmed
symmetrically about the plane: neither choice depends on the sign of the noise, so neither biases the plane.
"""

from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import small_gicp
from scipy.special import ndtri

from stretch_sim_cal.calibration.robust import chi_square_quantile
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
# Lower bounds (m), so that the weights of noise-free data are finite.
_MIN_SIGMA = 2e-4
_MIN_ROUGHNESS = 2e-4
_ENOUGH_CELLS = 100
TRIM = 4.0
# Most cells see two surfaces if by their median the variance is so many times that by a low quantile.
LOW_QUANTILE, TWO_SURFACES = 0.2, 2.0
# A step (m) that even with one return in a cell is visible in the cell's scatter.
OBVIOUS_STEP = 0.15


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

    @cached_property
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
    information += np.diag(weak := np.array([1.0, 0.01, 0.01]))
    counts = np.bincount(members.patch, minlength=num_patches)
    covariances, seen = np.tile(np.diag(1.0 / weak), (num_patches, 1, 1)), counts > 0
    covariances[seen] = np.linalg.inv(information[seen])
    right_side = group_sums(members.patch, num_patches, (weights * members.heights)[:, None] * design)
    coefficients = np.einsum("gij,gj->gi", covariances, right_side)
    residuals = members.heights - np.einsum("ki,ki->k", design, coefficients[members.patch])
    return Fits(
        coefficients, covariances, residuals, counts,
        np.bincount(members.patch, weights=weights * residuals**2, minlength=num_patches),
    )  # fmt: skip


def refined(patches: Patches, fits: Fits) -> Patches:
    """Return the patches moved onto the planes fitted to them; those with too few members stay."""
    enough = (fits.counts >= MIN_CELLS)[:, None]
    height, slopes = fits.coefficients[:, :1], fits.coefficients[:, 1:]
    centres = patches.centres + np.where(enough, height * patches.normals, 0.0)
    normals = patches.normals - np.where(enough, np.einsum("ga,gai->gi", slopes, patches.axes), 0.0)
    return oriented(centres, normals, patches.sizes)


@dataclass(frozen=True)
class Noise:
    """`sigma` (n,): standard deviation of a single range of each lidar (m); `roughness` (m): the additional standard
    deviation of the cells of a flat patch (uneven surfaces); `of_channels` (m): that of the error which all ranges of
    a channel in a patch have in common, beside the channel's error on all surfaces."""

    sigma: np.ndarray
    roughness: float
    of_channels: float = 0.0

    @classmethod
    def first(cls, num_lidars: int) -> "Noise":
        """Return the initial noise, before it is estimated."""
        return cls(np.full(num_lidars, 0.01), 0.001)

    def independent(self, surface: Surface, members: Members) -> np.ndarray:
        """Return the variances (K,) of what is independent in the members' heights: noise acts along the ray, so its
        cosine counts."""
        sigma = self.sigma[surface.side[members.cell]]
        return (sigma * members.cosines) ** 2 / surface.counts[members.cell] + self.roughness**2

    def variances(self, surface: Surface, members: Members) -> np.ndarray:
        """Return the variances (K,) of the members' heights, so much larger than `independent` ones that the mean over
        a channel's cells in a patch, whose common error does not average out, has its true variance."""
        variances = self.independent(surface, members)
        if not self.of_channels:
            return variances
        side, channel = surface.side[members.cell].astype(np.int64), surface.channel[members.cell]
        key = (members.patch * (side.max(initial=0) + 1) + side) * (channel.max(initial=0) + 1) + channel
        return variances + np.bincount(key)[key] * (self.of_channels * members.cosines) ** 2


def _along_ray(scatter: np.ndarray, normals: np.ndarray, members: Members) -> np.ndarray:
    """Return the variances (K,) along the ray that explain scatter matrices (K, 3, 3) about the members' planes."""
    normals = normals.take(members.patch, axis=0)
    across = np.einsum("ki,ki->k", normals, np.einsum("kij,kj->ki", scatter, normals))
    return np.maximum(across, 0.0) / members.cosines**2


def _variance(variances: np.ndarray, freedom: np.ndarray) -> float:
    """Return the variance that cells with these `variances` (K,), of so many degrees of freedom (K,), have in common:
    by their median, or by a low quantile if it is much smaller, since most of the cells see two surfaces then."""
    variance = float(np.median(variances / chi_square_quantile(freedom)))
    certain = freedom >= 3.0
    if np.count_nonzero(certain) >= _ENOUGH_CELLS:
        scaled = variances[certain] / chi_square_quantile(freedom[certain], float(ndtri(LOW_QUANTILE)))
        low = float(np.quantile(scaled, LOW_QUANTILE))
        variance = low if variance > TWO_SURFACES * low else variance
    return variance


def estimate_noise(surface: Surface, normals: np.ndarray, members: Members, fits: Fits, before: Noise) -> Noise:
    """Estimate the noise by the scatter within cells and between the cells of a patch; edges, and cells that see two
    surfaces, do not count."""
    counts, side = surface.counts[members.cell], surface.side[members.cell]
    freedom = surface.noise_freedom[members.cell]
    single = _along_ray(surface.noise_scatter.take(members.cell, axis=0), normals, members)
    sigma = before.sigma.copy()
    for lidar in range(len(sigma)):
        of_lidar = side == lidar
        repeated = of_lidar & (freedom >= 1.0)
        if np.count_nonzero(repeated) >= _ENOUGH_CELLS:
            sigma[lidar] = np.sqrt(_variance(single[repeated], freedom[repeated]))
        elif np.count_nonzero(of_lidar) >= _ENOUGH_CELLS:
            scaled = fits.residuals[of_lidar] ** 2 * counts[of_lidar] / members.cosines[of_lidar] ** 2
            sigma[lidar] = np.sqrt(np.median(scaled) / chi_square_quantile(1.0))
    sigma = np.maximum(sigma, _MIN_SIGMA)
    variances = (sigma[side] * members.cosines) ** 2 / counts
    # Three parameters were fitted to every patch, which reduces the residuals.
    share = 1.0 - 3.0 / np.maximum(fits.counts[members.patch], 4.0)
    return replace(before, sigma=sigma, roughness=_excess(fits.residuals**2 / share, variances))


def _excess(squares: np.ndarray, variances: np.ndarray) -> float:
    """Return the r that makes the median of `squares / (variances + r**2)` that of chi-square."""
    if not len(squares):
        return _MIN_ROUGHNESS
    low, high = _MIN_ROUGHNESS, 0.1
    squares = squares / chi_square_quantile(1.0)
    for _ in range(30):
        middle = np.sqrt(low * high)
        if 2 * np.count_nonzero(squares > variances + middle**2) > len(squares):  # the median is larger
            low = middle
        else:
            high = middle
    return float(low)


def clean_cells(surface: Surface, centres: np.ndarray, normals: np.ndarray, members: Members, fits: Fits, noise: Noise,
                slack: float) -> np.ndarray:  # fmt: skip
    """Return a mask (K,) of the members that are cells of one static surface: no outlier, not at an edge, not mixed.

    `slack` (m) is the distance that the two lidars' surfaces may still have.
    """
    inlier = np.abs(fits.residuals) <= TRIM * np.sqrt(noise.variances(surface, members)) + slack
    around = surface.neighbours.take(members.cell, axis=0)
    normal = normals.take(members.patch, axis=0)
    offsets = surface.points.take(around, axis=0) - centres.take(members.patch, axis=0)[:, None]
    heights = np.abs(np.einsum("kni,ki->kn", offsets, normal))
    cosines = np.einsum("kni,ki->kn", surface.rays.take(around, axis=0), normal)
    sigma = noise.sigma[surface.side[members.cell]][:, None]
    deviations = np.sqrt((sigma * cosines) ** 2 / surface.counts[around] + noise.roughness**2)
    # A neighbour on a much nearer or farther surface is harmless: a single return of it in a cell is rejected below.
    interior = ((heights <= 1.25 * TRIM * deviations + slack) | (heights > OBVIOUS_STEP)).all(axis=1)
    freedom = np.maximum(surface.counts[members.cell] - 1.0, 1.0)
    variances = _along_ray(surface.scatter.take(members.cell, axis=0), normals, members) * (freedom + 1.0) / freedom
    ratio = variances / noise.sigma[surface.side[members.cell]] ** 2
    unmixed = ratio <= 1.0 + TRIM * np.sqrt(2.0 / freedom) + 6.0 / freedom
    return inlier & interior & unmixed


def still_cells(surface: Surface, centres: np.ndarray, normals: np.ndarray, members: Members,
                noise: Noise) -> np.ndarray:  # fmt: skip
    """Return a mask (K,) of the members with constant height over the blocks of time; by noise one of 10 000 fails."""
    counts = surface.block_counts.take(members.cell, axis=0)
    offsets = surface.block_points.take(members.cell, axis=0) - centres.take(members.patch, axis=0)[:, None]
    heights = np.einsum("kbi,ki->kb", offsets, normals.take(members.patch, axis=0))
    variances = (noise.sigma[surface.side[members.cell]] * members.cosines)[:, None] ** 2 / np.maximum(counts, 1.0)
    weights = np.where(counts > 0, 1.0 / variances, 0.0)
    mean = (weights * heights).sum(axis=1) / weights.sum(axis=1)
    chi_square = (weights * (heights - mean[:, None]) ** 2).sum(axis=1)
    freedom = (counts > 0).sum(axis=1) - 1.0
    return chi_square <= freedom + 4.0 * np.sqrt(2.0 * freedom) + 8.0
