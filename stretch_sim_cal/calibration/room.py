"""The residual block of the room: heights of the lidars' returns over small flat patches, and of patches over the
floor.

Every patch of the room has its own plane, which is eliminated (as in Liu and Zhang, BALM, RA-L 2021; Zhou et al.,
pi-LSAM, 2021). A cell of returns lies above the patch by

    height = (patch at the spot) + slope . (cell - spot) + noise

with one height per patch, but separate slopes for each lidar: on a slightly curved surface common slopes would seem to
determine a lidar's position along it. The `spot` is the point at which the lidars together determine the differences of
their heights best. So a patch gives the height of one lidar's view over another's (the gap, a plane-to-plane
residual), and the differences between the channels of each lidar, which determine their errors.

A patch of the floor has the floor's height at its spot, apart from the floor's unevenness. One lidar is enough there.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist

from stretch_sim_cal.calibration.elements import Elements, by_unknowns, elements
from stretch_sim_cal.calibration.patches import (
    FINE_RANGE,
    FLOOR_LEVEL,
    MAX_DOUBLED,
    MIN_CELLS,
    PATCH_SIZE,
    Fits,
    Members,
    Noise,
    Patches,
    assign,
    clean_cells,
    estimate_noise,
    fit_planes,
    joined,
    oriented,
    refined,
    remeasured,
    seed_patches,
    still_cells,
)
from stretch_sim_cal.calibration.problem import (
    NormalEquations,
    State,
    Unknowns,
    floor_rows,
    of_relative_poses,
    products_of_relative_poses,
    sparse_rows,
)
from stretch_sim_cal.calibration.robust import TUKEY, tukey_fit, tukey_weights
from stretch_sim_cal.calibration.surfaces import Lidar, Surface, in_base
from stretch_sim_cal.geometry.planes import Plane
from stretch_sim_cal.geometry.points import group_means
from stretch_sim_cal.geometry.transforms import by_twist
from stretch_sim_cal.sensor.unit import CHANNEL_KINDS

# Patches whose normal has a larger standard deviation (rad) are left out.
MAX_SLOPE_DEVIATION = 0.02
# Radius (m) of a person, who may move between the scans, and the number of places that are tried.
SOMEBODY, PLACES = 0.8, 30
# The noise information over what is expected of it: along bare corridors, 0.81 to 1.2 times as much was measured.
NOISE_MARGIN = 1.25
# Cells further than this (m) from a patch's first plane are not of it.
WIDEST_HEIGHT = 0.03
# Prior precision (1/m^2, 1/slope^2) of a patch's height and slopes: negligible.
WEAK = 1e-2
MAX_FLOOR_TILT = 0.05  # rad, of patches of the floor
# Patches of the floor seen by both lidars that are needed to compare their floors.
MIN_FLOOR_GAPS = 12
HARDLY_DETERMINED = 1e8


@dataclass(frozen=True)
class FloorTrust:
    """Which patches are of the floor: `trust(points)` gives their weights (N,), 0 to 1, at points (N, 3) in base_link;
    `unevenness` (m) is the standard deviation of their heights about the floor, `gate` (m) their largest distance from
    it. The patches are parallel to the floor, or, if `of_room`, fitted as those of any other surface."""

    trust: object
    unevenness: float
    gate: float
    of_room: bool = False


Pairs = Sequence[tuple[int, int]]

COUNTS, DISAGREE, NOT_FLAT, FEW, UNSURE = range(5)
VERDICTS = (
    "counts", "rejected: the lidars disagree there more than elsewhere",
    "rejected: not flat to one of the lidars", "rejected: too few returns of one of the lidars",
    "rejected: the lidars see different parts, or its normal is uncertain",
)  # fmt: skip


@dataclass(frozen=True)
class SeenPatches:
    """The patches of a room: their `centres` (P, 3), their largest `gaps` (P,) in m, of a lidar's view above that of an
    earlier one, NaN if unknown, and `verdicts` (P,), indices of `VERDICTS`."""

    centres: np.ndarray
    gaps: np.ndarray
    verdicts: np.ndarray


@dataclass(frozen=True)
class FloorPatches:
    """The patches (F,) of the floor with their `weights` (F,), 0 to 1; `unevenness` (m) is the standard deviation of
    their heights about it."""

    patches: np.ndarray
    weights: np.ndarray
    unevenness: float


@dataclass(frozen=True)
class RoomBlock:
    """The patches at one estimate.

    `surface` are the cells of all lidars; `flat` the patches and members before the selection; `members` with
    their `fits` and `variances` (K,) after it; `gaps` with the robust `weights` (G,), 0 to 1; `spots` (P, 2) of all
    patches and `patch_weights` (P, n) of each lidar's members in them. Every cell is in one patch of each of the
    `grids`. `elements` are the factors of the cells in no patch.
    """

    state: State
    surface: Surface
    noise: Noise
    grids: int
    flat: tuple[Patches, Members]
    members: Members
    fits: Fits
    variances: np.ndarray
    gaps: "Gaps"
    weights: np.ndarray
    spots: np.ndarray
    patch_weights: np.ndarray
    floor: FloorPatches
    elements: Elements | None = None
    pairs: Pairs | None = None

    @property
    def scale(self) -> float:
        """The scale of the gaps over their standard deviations; at least 1."""
        return scale_of([self])

    @property
    def num_used(self) -> float:
        """The mean number of patches per grid that two lidars see as flat and that are no outliers."""
        return np.count_nonzero(self.patch_weights[np.unique(self.gaps.patches)].any(axis=1)) / self.grids

    @property
    def rmse(self) -> float:
        """The root mean square gap (m) between the two lidars' surfaces."""
        kept = self.weights > 0
        return float(np.sqrt(np.mean(self.gaps.values[kept] ** 2))) if kept.any() else float("inf")

    def used_between(self, pair: tuple[int, int]) -> float:
        """Return the mean number of patches per grid by which two lidars are aligned."""
        of_pair = np.all(self.gaps.pairs == pair, axis=1)
        return np.count_nonzero(self.weights[of_pair]) / self.grids

    def seen(self) -> SeenPatches:
        """Return the patches with the reasons for which they are rejected."""
        patches, number = self.flat[0], len(self.flat[0].centres)
        side, num_lidars = self.surface.side[self.members.cell], len(self.state.base_from_lidar)
        by_lidar = _fits_by_lidar(self.members, self.variances, side, number, num_lidars)
        verdicts = np.full(number, UNSURE, dtype=np.uint8)
        verdicts[np.sum([fits.flat for fits in by_lidar], axis=0) < 2] = NOT_FLAT
        verdicts[np.sum([fits.counts >= MIN_CELLS for fits in by_lidar], axis=0) < 2] = FEW
        verdicts[self.gaps.patches] = DISAGREE
        verdicts[self.gaps.patches[self.weights > 0]] = COUNTS
        gaps, order = np.full(number, np.nan), np.argsort(np.abs(self.gaps.values))
        gaps[self.gaps.patches[order]] = self.gaps.values[order]
        return SeenPatches(patches.centres, gaps, verdicts)

    def noise_information(self) -> np.ndarray:
        """Return the information about the poses of all lidars but the first, (6 (n - 1), 6 (n - 1)), that may be by
        noise of the normals alone.

        A normal with a random error has a small part in every direction; over many patches of a bare corridor that adds
        up to apparent information about sliding along it. With a margin, since it varies, too.
        """
        gaps, per_gap = self.gaps, self.weights * self.gaps.shares / self.grids / self.gaps.variances
        tilts = by_twist(gaps.points[:, None], gaps.slope_axes)
        of_patches = sum(
            products_of_relative_poses(
                tilts[:, one], per_gap * gaps.slope_covariances[:, one, other], tilts[:, other], gaps.pairs,
                gaps.num_lidars,
            ) for one, other in itertools.product((0, 1), repeat=2)
        )  # fmt: skip
        return NOISE_MARGIN * (of_patches + (0.0 if self.elements is None else self.elements.noise_information()))

    def with_elements(self, measured: bool = True) -> "RoomBlock":
        """Return the block with the factors of the cells that are in no patch with a gap, their gains `measured` or
        not."""
        of_gaps, flat = np.zeros(len(self.surface.points), bool), np.zeros(len(self.patch_weights), bool)
        flat[self.gaps.patches] = True
        of_gaps[self.members.cell[flat[self.members.patch]]] = True
        return replace(self, elements=elements(self.surface, self.state, of_gaps, self.pairs, measured))

    def extents(self) -> np.ndarray:
        """Return the areas (G,) of the gaps' patches over that of the smallest patch at their range."""
        origins = np.array([pose[:3, 3] for pose in self.state.base_from_lidar])
        ranges = np.linalg.norm(self.gaps.points - origins[self.gaps.pairs[:, 0]], axis=1)
        smallest = PATCH_SIZE * np.maximum(ranges / FINE_RANGE, 1.0)
        return np.maximum(self.flat[0].sizes[self.gaps.patches] / smallest, 1.0) ** 2

    def support(self, direction: np.ndarray, outvoted: int) -> tuple[float, float, float]:
        """Return the information along a direction (6 (n - 1),) of the twists of all lidars but the first: the largest
        of `outvoted` surfaces, or of all within `SOMEBODY` of one place; that of all; and the sum of the squares of the
        surfaces' information."""
        by_gap, by_cell = self._along(direction)
        extents = self.extents()
        pieces = by_cell if self.elements is None else np.bincount(self.elements.piece, by_cell)
        # The same surface is in each grid.
        lost = np.sort(np.concatenate([by_gap / extents, pieces]))[-outvoted * self.grids :].sum()
        squares = np.sum(by_gap**2 / extents) * self.grids + np.sum(pieces**2)
        lost = max(lost, self.strongest_place(direction)[1])
        return float(lost), self.information_along(direction), float(squares)

    def information_along(self, direction: np.ndarray) -> float:
        """Return the information of all along a direction, as of `support`."""
        return float(sum(part.sum() for part in self._along(direction)))

    def strongest_place(self, direction: np.ndarray) -> tuple[np.ndarray, float]:
        """Return the point (3,) with the most information along a direction, as of `support`, within `SOMEBODY` of it,
        and that information; the origin and 0 without surfaces."""
        by_gap, by_cell = self._along(direction)
        small, points = np.concatenate([by_gap / self.extents(), by_cell]), self.gaps.points
        if self.elements is not None:
            points = np.concatenate([points, self.elements.middles])
        if not len(points):
            return np.zeros(3), 0.0
        centres = points[np.argsort(small)[-PLACES:]]
        within = (cdist(centres, points) < SOMEBODY) @ small
        return centres[within.argmax()], float(within.max())

    def _along(self, direction: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the information along a direction of each gap (G,) and of each element (K,), if there are any."""
        gaps = self.gaps
        by_gap = (gaps.jacobian @ direction * self.weights) ** 2 * gaps.shares / gaps.variances / self.grids
        return by_gap, np.zeros(0) if self.elements is None else self.elements.by_cell(direction)

    def dissent(self, lidar: int) -> tuple[np.ndarray, float]:
        """Return the share (6,) of the patches' information about each component of a lidar's twist, about the lidar
        itself, that is of patches rejected as outliers, and their number per grid."""
        gaps = self.gaps
        normals = self.flat[0].normals[gaps.patches]
        levers = gaps.points - self.state.base_from_lidar[lidar][:3, 3]
        rows = by_twist(levers, normals)
        of_lidar = np.any(gaps.pairs == lidar, axis=1)
        information = rows**2 / (gaps.variances * self.extents())[:, None] * of_lidar[:, None]
        rejected = (self.weights == 0) & of_lidar
        total = np.maximum(information.sum(axis=0), np.finfo(float).tiny)
        return information[rejected].sum(axis=0) / total, np.count_nonzero(rejected) / self.grids

    def floor_gap(self, lidar: int = 1) -> tuple[np.ndarray, np.ndarray] | None:
        """Return a lidar's floor minus the first one's, (height in m, tilt about x, tilt about y in rad), with its
        covariance (3, 3); None if they see too little of the same floor. The floor's shape cancels."""
        between = np.all(self.gaps.pairs == (0, lidar), axis=1)
        chosen = np.isin(self.gaps.patches, self.floor.patches) & (self.weights > 0) & between
        if np.count_nonzero(chosen) < MIN_FLOOR_GAPS * self.grids:
            return None
        rows = floor_rows(self.state.floor, self.gaps.points[chosen])[:, :3]
        values, weights = self.gaps.values[chosen], (self.weights / self.gaps.variances)[chosen] / self.grids
        information = (rows * weights[:, None]).T @ rows
        if np.linalg.cond(information) > HARDLY_DETERMINED:
            return None
        covariance = np.linalg.inv(information)
        increment = -covariance @ (rows * weights[:, None]).T @ values
        scatter = weights @ (values + rows @ increment) ** 2 / (np.count_nonzero(chosen) / self.grids - 3)
        return increment, max(float(scatter), 1.0) * covariance

    def only(self, patches: np.ndarray) -> "RoomBlock":
        """Return the block without the elements and without the patches that are not among `patches` (K,)."""
        kept = np.zeros(len(self.patch_weights), bool)
        kept[patches] = True
        weights = self.weights * kept[self.gaps.patches]
        return replace(self, patch_weights=self.patch_weights * kept[:, None], weights=weights, elements=None)

    def add_to(self, equations: NormalEquations, unknowns: Unknowns, lidars: Sequence[Lidar]) -> None:
        """Add the rows of the patches and of the elements to the normal equations."""
        if self.elements is not None:
            self.elements.add_to(equations, unknowns, lidars)
        patches, members = self.flat[0], self.members
        kept = np.flatnonzero(self.member_weights(members) > 0)
        if not len(kept):
            return
        jacobian, columns = self._rows(unknowns, lidars, members.only(kept))
        order = np.lexsort((columns[:, -1], self.surface.side[members.cell[kept]]))
        kept, jacobian, columns = kept[order], jacobian[order], columns[order]
        members, variances = members.only(kept), self.variances[kept]
        number = np.cumsum((self.patch_weights > 0).any(axis=1)) - 1
        group, side = number[members.patch], self.surface.side[members.cell]
        weights = self.member_weights(members) / variances / self.grids
        beside = members.coordinates - self.spots[members.patch]
        _, part = np.unique(side * len(patches.centres) + group, return_inverse=True)
        rows = [sparse_rows(jacobian, columns, unknowns.size)]
        patterns, residuals, groups = [columns[:, -1]], [members.heights], [group]
        parts, besides, all_weights = [part], [beside], [weights]
        floor = self.floor
        if len(floor.patches):
            spot = _places(patches, self.spots[floor.patches], floor.patches)
            floor_columns = np.r_[unknowns.floor, unknowns.curvature]
            over_floor = floor_rows(self.state.floor, spot)
            rows.append(sparse_rows(-over_floor, np.broadcast_to(floor_columns, over_floor.shape), unknowns.size))
            patterns.append(np.full(len(spot), -1))
            residuals.append(-self.state.height_over_floor(spot))
            groups.append(number[floor.patches])
            parts.append(np.full(len(spot), -1))
            besides.append(np.zeros((len(spot), 2)))
            # The heights of smaller patches beside each other are not independent.
            areas = np.minimum(patches.sizes[floor.patches] / (PATCH_SIZE * 2.0**FLOOR_LEVEL), 1.0) ** 2
            all_weights.append(floor.weights * areas / floor.unevenness**2 / self.grids)
        group = np.concatenate(groups)
        equations.add_eliminating(
            sparse.vstack(rows).tocsr(), *map(np.concatenate, (patterns, residuals, all_weights)), group,
            np.ones((len(group), 1)), WEAK, np.concatenate(parts), np.concatenate(besides),
        )  # fmt: skip

    def member_weights(self, members: Members) -> np.ndarray:
        """Return the weights (K,) of members by their patches and lidars."""
        return self.patch_weights[members.patch, self.surface.side[members.cell]]

    def _rows(self, unknowns: Unknowns, lidars: Sequence[Lidar], members: Members) -> tuple[np.ndarray, np.ndarray]:
        """Return the derivatives (K, c) of the members' heights by the unknowns, and the columns (K, c) of these. The
        last column tells which lidar's channel a row is of, and at which ranges."""
        patches, fits = self.flat[0], self.fits
        normals = patches.normals[members.patch]
        fitted = np.einsum("ki,ki->k", members.design, fits.coefficients[members.patch])
        above = members.heights - fitted
        # Levers at the points where the rays meet the surface, not at the noisy returns or their projections: the noise
        # would correlate with the heights, which a motion of all lidars as one body would seem to change.
        points = _places(patches, members.coordinates, members.patch) + fitted[:, None] * normals
        rows = by_twist(points, normals)
        cell, surface = members.cell, self.surface
        values, columns = by_unknowns(surface, self.state, unknowns, lidars, cell, rows, members.cosines, above)
        if not unknowns.by_surface:
            return values, columns
        shares, of_surfaces = unknowns.surface_columns(surface.side[cell], surface.channel[cell], surface.ranges[cell])
        by_range = values[:, -len(CHANNEL_KINDS), None]
        return np.hstack([values, by_range * shares]), np.hstack([columns, of_surfaces])


def _places(patches: Patches, coordinates: np.ndarray, patch: np.ndarray) -> np.ndarray:
    """Return the points (N, 3) at coordinates (N, 2) on patches (N,)."""
    return patches.centres[patch] + np.einsum("na,nai->ni", coordinates, patches.axes[patch])


def scale_of(blocks: Sequence[RoomBlock]) -> float:
    """Return the scale of the gaps of all blocks over their standard deviations; at least 1."""
    squares = freedom = 0.0
    for block in blocks:
        counting = (block.weights > 0) * block.gaps.shares / block.grids
        squares += float(np.sum(counting * block.gaps.values**2 / block.gaps.variances))
        freedom += float(np.sum(counting))
    return max(1.0, float(np.sqrt(squares / max(freedom - 6.0, 1.0))))


def room_block(
    lidars: Sequence[Lidar], state: State, noise: Noise, slack: float, grids: int,
    floor: FloorTrust | None = None, exact: bool = False, pairs: Pairs | None = None,
) -> RoomBlock:  # fmt: skip
    """Return the patches of the room at a state.

    `slack` (m) is the distance that the lidars' surfaces may still have, `grids` the number of shifted grids of
    patches. If the cells lie on their surfaces `exact`ly, none is rejected, and `noise` is not estimated.
    """
    surface = in_base(lidars, state)
    of_room = floor is None or floor.of_room
    patches, members = flat_patches(surface, noise, slack, grids, None if of_room else state.floor, pairs)
    number = len(patches.centres)
    if floor is not None:
        # Patches of the floor are parallel to it: noise of their normals would seem to determine where they are on it.
        of_floor = _on_floor(state, patches, slack, floor)[:, None] > 0
        patches = oriented(patches.centres, np.where(of_floor, state.floor.normal, patches.normals), patches.sizes)
        members = remeasured(surface, patches, members)
    fits = fit_planes(members, noise.variances(surface, members), number)
    flat = (patches, members)
    if not exact:
        noise = estimate_noise(surface, patches.normals, members, fits, noise)
        clean = clean_cells(surface, patches.centres, patches.normals, members, fits, noise, slack)
        members = members.only(clean & still_cells(surface, patches.centres, patches.normals, members, noise))
    block = _measured(lidars, state, surface, noise, grids, flat, members, slack, floor, pairs)
    return block.with_elements(measured=slack == 0.0) if of_room and not exact else block


def remeasured_block(
    lidars: Sequence[Lidar], state: State, before: RoomBlock, floor: FloorTrust | None = None
) -> RoomBlock:
    """Return the same patches and members at another state close by."""
    surface = in_base(lidars, state)
    members = remeasured(surface, before.flat[0], before.members)
    noise, grids, flat, pairs = before.noise, before.grids, before.flat, before.pairs
    block = _measured(lidars, state, surface, noise, grids, flat, members, 0.0, floor, pairs)
    return block if before.elements is None else block.with_elements()


def _measured(
    lidars: Sequence[Lidar], state: State, surface: Surface, noise: Noise, grids: int,
    flat: tuple[Patches, Members], members: Members, slack: float, floor: FloorTrust | None,
    pairs: Pairs | None,
) -> RoomBlock:  # fmt: skip
    """Return the block of selected members, with the gaps of all patches and their weights."""
    patches, number = flat[0], len(flat[0].centres)
    side, first = surface.side[members.cell], 0
    for index, lidar in enumerate(lidars):
        of_lidar = side == index
        lidar.meets(members.cell[of_lidar] - first, members.cosines[of_lidar])
        first += len(lidar.surface.points)
    variances = noise.independent(surface, members)
    by_lidar = _fits_by_lidar(members, noise.variances(surface, members), side, number, len(lidars))
    gaps = measure_gaps(patches, by_lidar, pairs)
    # The few patches that alone determine a direction must not be rejected while the lidars are not yet aligned.
    weights = tukey_fit(gaps.jacobian, gaps.values, gaps.variances + slack**2).weights
    patch_weights = np.zeros((number, len(lidars)))
    for lidars_of in gaps.pairs.T:  # a lidar counts in a patch in which it agrees with any other
        np.maximum.at(patch_weights, (gaps.patches, lidars_of), weights)
    spots = gaps.spots.copy()
    fits = fit_planes(members, variances, number)
    nothing = np.zeros(0)
    on_floor = FloorPatches(nothing.astype(int), nothing, 1.0)
    if floor is not None:
        on_floor = _floor_patches(state, patches, members, fits, gaps, spots, patch_weights, slack, floor)
    return RoomBlock(
        state, surface, noise, grids, flat, members, fits, variances, gaps, weights, spots, patch_weights, on_floor,
        pairs=pairs,
    )  # fmt: skip


def _floor_patches(
    state: State, patches: Patches, members: Members, fits: Fits, gaps: "Gaps",
    spots: np.ndarray, patch_weights: np.ndarray, slack: float, floor: FloorTrust,
) -> FloorPatches:  # fmt: skip
    """Return the patches of the floor; set the spots (P, 2) and weights (P, n) of those that one lidar sees in
    place."""
    trust = _on_floor(state, patches, slack, floor)
    is_floor = trust > 0
    seen_by_both = np.zeros(len(trust), bool)
    seen_by_both[gaps.patches] = True
    seen_by_one = is_floor & ~seen_by_both & fits.flat
    spots[seen_by_one] = group_means(members.patch, len(trust), members.coordinates)[seen_by_one]
    patch_weights[seen_by_one] = 1.0
    chosen = np.flatnonzero(is_floor & (patch_weights > 0).any(axis=1))
    at_spot = fits.coefficients[chosen, 0] + np.einsum("pa,pa->p", fits.coefficients[chosen, 1:], spots[chosen])
    residuals = state.height_over_floor(_places(patches, spots[chosen], chosen)) + at_spot
    width = TUKEY * np.sqrt(floor.unevenness**2 + fits.covariances[chosen, 0, 0] + slack**2)
    weights = tukey_weights(residuals / width) * trust[chosen]
    kept = weights > 0
    return FloorPatches(chosen[kept], weights[kept], float(np.hypot(floor.unevenness, slack)))


def _on_floor(state: State, patches: Patches, slack: float, floor: FloorTrust) -> np.ndarray:
    """Return the weights (P,), 0 to 1, of patches as parts of the floor."""
    near = np.abs(state.height_over_floor(patches.centres)) < floor.gate + slack
    level = patches.normals @ state.floor.normal > np.cos(MAX_FLOOR_TILT)
    return np.where(near & level, floor.trust(patches.centres), 0.0)


def flat_patches(
    surface: Surface, noise: Noise, slack: float, grids: int, floor: Plane | None, pairs: Pairs | None = None
) -> tuple[Patches, Members]:
    """Return patches with their planes converged, and the cells that belong to them, one patch of each grid.

    Cells of patches without a gap go to patches twice as large, and so on: channels are far apart there. With a
    `floor` they do not, since a larger patch would average the heights of an uneven floor.
    """
    patches, members, count = [], [], 0
    for grid in range(grids):
        free, sizes = surface.usable.copy(), 1 if floor is not None else MAX_DOUBLED + 1
        for doubled in range(sizes):
            seeds = seed_patches(surface, free, doubled, grid / grids, floor)
            of_size, cells = _converged(surface, free, noise, slack, seeds)
            if doubled < sizes - 1:  # only patches with a gap are kept
                variances, side = noise.variances(surface, cells), surface.side[cells.cell]
                fits = _fits_by_lidar(cells, variances, side, len(of_size.centres), len(noise.sigma))
                kept, number = np.unique(measure_gaps(of_size, fits, pairs).patches), np.full(len(of_size.centres), -1)
                number[kept] = np.arange(len(kept))
                cells = cells.only(number[cells.patch] >= 0)
                cells = replace(cells, patch=number[cells.patch])
                of_size = Patches(*(getattr(of_size, field.name)[kept] for field in fields(Patches)))
                free[cells.cell] = False
            patches.append(of_size)
            members.append(replace(cells, patch=cells.patch + count))
            count += len(of_size.centres)
    return joined(Patches, patches), joined(Members, members)


def _converged(
    surface: Surface, free: np.ndarray, noise: Noise, slack: float, patches: Patches
) -> tuple[Patches, Members]:
    """Return patches after fits of their planes, with the `free` cells (M,) that belong to them."""
    members = assign(surface, free, patches, WIDEST_HEIGHT + slack)
    for _ in range(3):
        variances = noise.variances(surface, members) + slack**2
        fits = fit_planes(members, variances, len(patches.centres))
        patches = refined(patches, fits)
        near = np.abs(fits.residuals) < np.maximum(5.0 * np.sqrt(variances), 0.5 * WIDEST_HEIGHT)
        members = remeasured(surface, patches, members.only(near))
    return patches, members


def _fits_by_lidar(
    members: Members, variances: np.ndarray, side: np.ndarray, num_patches: int, num_lidars: int
) -> list[Fits]:
    return [
        fit_planes(members.only(side == lidar), variances[side == lidar], num_patches) for lidar in range(num_lidars)
    ]


@dataclass(frozen=True)
class Gaps:
    """Plane-to-plane residuals: the height (m) of the second minus that of the first lidar of `pairs` (G, 2) at
    `points` (G, 3) along `normals` (G, 3), their `variances` (G,); `slope_axes` (G, 2, 3) and `slope_covariances` (G,
    2, 2) are the uncertainty of the normals. `patches` (G,) are the patches' numbers, `spots` (P, 2) the points of all
    patches at which the lidars' heights are compared. Of the gaps between three lidars on one patch two are
    independent: `shares` (G,) are the factors of their weights. There are `num_lidars`."""

    patches: np.ndarray
    values: np.ndarray
    variances: np.ndarray
    points: np.ndarray
    normals: np.ndarray
    slope_axes: np.ndarray
    slope_covariances: np.ndarray
    pairs: np.ndarray
    shares: np.ndarray
    spots: np.ndarray
    num_lidars: int

    @cached_property
    def jacobian(self) -> np.ndarray:
        """The derivatives (G, 6 (n - 1)) of the gaps by the twists of all lidars but the first, in the common frame."""
        return of_relative_poses(by_twist(self.points, self.normals), self.pairs, self.num_lidars)


def measure_gaps(patches: Patches, by_lidar: Sequence[Fits], pairs: Pairs | None = None) -> Gaps:
    """Return the gaps of the patches that two lidars see as flat, between every two of them, or by given `pairs`."""
    given, pairs = pairs, pairs or list(itertools.combinations(range(len(by_lidar)), 2)) or [(0, 0)]
    by_pair = [_gaps_between(patches, *(by_lidar[lidar] for lidar in pair)) for pair in pairs]
    if len(by_lidar) < 2:
        by_pair = [tuple(values[:0] for values in by_pair[0])]
    columns = [np.concatenate(values) for values in zip(*by_pair, strict=True)]
    patch, lidars = columns[0], np.repeat(np.array(pairs), [len(gaps[0]) for gaps in by_pair], axis=0)
    number = len(patches.centres)
    compared = np.zeros((number, len(by_lidar)), bool)
    compared[patch[:, None], lidars] = True
    total = sum(np.where(of_lidar[:, None, None], fits.covariances, 0.0)
                for of_lidar, fits in zip(compared.T, by_lidar, strict=True))  # fmt: skip
    spots, seen = np.zeros((number, 2)), compared.any(axis=1)
    spots[seen] = _spots(total[seen])
    weights = np.array([of_lidar / _variances_at(fits.covariances, spots)
                        for of_lidar, fits in zip(compared.T, by_lidar, strict=True)]).T  # fmt: skip
    of_pair, of_all = np.take_along_axis(weights[patch], lidars, axis=1).sum(axis=1), weights[patch].sum(axis=1)
    shares = np.where(compared[patch].sum(axis=1) > 2, of_pair / np.maximum(of_all, 1e-300), 1.0)
    if given is not None:  # one gap less is independent than lidars are compared
        of_patch = np.bincount(patch, minlength=number)
        shares = np.minimum(1.0, (compared.sum(axis=1) - 1.0)[patch] / of_patch[patch])
    return Gaps(*columns, lidars, shares, spots, len(by_lidar))


def _spots(covariances: np.ndarray) -> np.ndarray:
    """Return the points (P, 2) at which the heights of planes with these covariances (P, 3, 3) are known best."""
    return -np.linalg.solve(covariances[:, 1:, 1:], covariances[:, 1:, :1])[:, :, 0]


def _variances_at(covariances: np.ndarray, spots: np.ndarray) -> np.ndarray:
    design = np.hstack([np.ones((len(spots), 1)), spots])
    return np.einsum("gi,gij,gj->g", design, covariances, design)


def _gaps_between(patches: Patches, first: Fits, second: Fits) -> tuple[np.ndarray, ...]:
    """Return the first seven fields of the gaps between two lidars."""
    usable = np.flatnonzero(first.flat & second.flat)
    difference = first.covariances[usable] + second.covariances[usable]
    spot = _spots(difference)
    slope_deviations = 0.5 * np.sqrt(np.linalg.eigvalsh(difference[:, 1:, 1:])[:, -1])
    certain = (np.linalg.norm(spot, axis=1) < 0.75 * patches.sizes[usable]) & (slope_deviations < MAX_SLOPE_DEVIATION)
    usable, spot, difference = usable[certain], spot[certain], difference[certain]
    design = np.hstack([np.ones((len(spot), 1)), spot])
    slopes = 0.5 * (first.coefficients + second.coefficients)[usable, 1:]
    height = 0.5 * np.einsum("gi,gi->g", design, (first.coefficients + second.coefficients)[usable])
    axes = patches.axes[usable]
    normals = patches.normals[usable] - np.einsum("ga,gai->gi", slopes, axes)
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    points = patches.centres[usable] + np.einsum("ga,gai->gi", spot, axes) + height[:, None] * patches.normals[usable]
    return (
        usable, np.einsum("gi,gi->g", design, (second.coefficients - first.coefficients)[usable]),
        _variances_at(difference, spot), points, normals, axes, 0.25 * difference[:, 1:, 1:],
    )  # fmt: skip
