"""Point-to-plane factors of common surfaces that are not flat patches: furniture, plants, edges, and walls of which a
lidar with few channels sees one line.

Each cell of one lidar is compared with each other lidar's nearest cell, along the mean of both normals. Normals are
fitted across channels (`surfaces.py`): fitted along single channels, they would indicate no motion of two lidars at
nearly one position. Shapes between the cells make such residuals larger than the noise, and correlated within a piece
of furniture. So their standard deviation is that of the residuals of their piece of `PIECE`: with that of all, which is
the ground's, whatever leaves happen to be near would confirm any pose. It is taken about the piece's median: leaves
scatter about any, while a wall that stands elsewhere for one lidar contradicts the others, and must not count less for
it. Their covariance of the poses is a sandwich over these pieces (H. White, "A heteroskedasticity-consistent covariance
matrix estimator", Econometrica 1980): its mean over all directions, or more in those in which it is larger, as in a
street along the road and in yaw by twice (less in the others cost accuracy).

If a lidar moves, other cells become neighbours, and the residuals change by less than their derivatives say: in rooms
by 0.5 to 0.9 of that, among leaves by less than 0.2. The ratio, the gain, is measured by moving the lidars a little
(`_reductions`), with the weights that they have then: further than a standard deviation of the residuals, walls seem to
have none, either. The information about a direction falls with the square of its gain. That about the lidars' errors
given the poses falls with the smallest gain of a range offset and an incidence error, measured in the same way:
neighbouring leaves also seem to show that the ranges of two lidars agree. In real and simulated rooms, 16 to 32
channels, the covariance of the sandwich alone is too small by a factor of 4 to 7: `CORRELATED` is a margin for a gain
of 0.45, below which the gain itself counts.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.linalg import block_diag, eigh
from scipy.spatial import cKDTree

from stretch_sim_cal.calibration.clouds import CELL_WIDTH
from stretch_sim_cal.calibration.problem import (
    NormalEquations,
    State,
    Unknowns,
    columns_of,
    of_relative_poses,
    products_of_relative_poses,
    sparse_rows,
)
from stretch_sim_cal.calibration.robust import MAD, TUKEY, products, robust_deviation, tukey_weights
from stretch_sim_cal.calibration.surfaces import NORMAL_NEIGHBOURS, Lidar, Surface
from stretch_sim_cal.geometry.points import lengths
from stretch_sim_cal.geometry.transforms import by_twist, exp
from stretch_sim_cal.sensor.unit import CHANNEL_KINDS, LEAST_COSINE, OF_SCANS, SCALARS, longer_by_incidence

PIECE = 1.6  # m
CORRELATED = 5.0  # variance of an estimate by these factors alone, over that of the sandwich, at least
# A lidar is moved by this share of the residuals' deviation to measure gains: further, all residuals are outliers.
# Gains are uncertain by `UNSURE` over the root of the number of cells that are moved (measured with 600 to 800 cells:
# 0.15); those of fewer factors than the last, as of two domes that hardly overlap, are not measured.
MOVED, UNSURE, LEAST_GAIN, FEWEST_MOVED = 0.5, 4.0, 0.01, 300
MOVED_CELLS, OF_PAIR = 3000, 100  # at most so many cells are moved, or so many of each pair
MAX_PLANARITY = 0.3
MIN_NORMAL_COSINE = 0.7
# The largest distance of two cells of one surface: as a share of the gap between channels, and at least (m).
WITHIN_GAP, WITHIN = 0.7, 0.05
LEAST_DEVIATION = 0.002  # m
# The residuals of all count in the deviation of a piece as so many of its own: with 5 or 20 columns of a QT64 are
# refused.
OF_ALL = 30.0
FEWEST = 50
COMMON = 6 + len(SCALARS) + len(OF_SCANS)  # of a row's entries, those of no channel


@dataclass(frozen=True)
class Elements:
    """The factors: cells `seen` (K,) of a surface against cells `against` (K,) of another lidar's, `pairs` (K, 2) being
    the lidars of the latter and the former, with `normals` (K, 3) at `middles` (K, 3) between both, `residuals` (K,) in
    m, `weights` (K,), robust and by the deviations of their pieces, one `variance` (m2) and the variances `tilts` (K,)
    of the normals (rad2). `piece` (K,) numbers the pieces. Their `information` (6 (n - 1), 6 (n - 1)) about the poses
    is that of the sandwich, reduced by the gains: X = `reduction` Y `reduction`'. That about the lidars' errors given
    the poses is that of the rows times `of_units`."""

    surface: Surface
    state: State
    seen: np.ndarray
    against: np.ndarray
    pairs: np.ndarray
    middles: np.ndarray
    normals: np.ndarray
    residuals: np.ndarray
    weights: np.ndarray
    variance: float
    tilts: np.ndarray
    piece: np.ndarray
    information: np.ndarray
    reduction: np.ndarray
    of_units: float

    @cached_property
    def jacobian(self) -> np.ndarray:
        """The derivatives (K, 6 (n - 1)) of the residuals by the twists in base_link of all lidars but the first. The
        mean of both normals turns by half: as if the cell lay between both, so that a rotation of all as one body
        changes nothing."""
        rows = by_twist(self.middles, self.normals)
        return of_relative_poses(rows, self.pairs, len(self.state.base_from_lidar))

    def by_cell(self, direction: np.ndarray) -> np.ndarray:
        """Return the information (K,) of each factor along a direction (6 (n - 1),) of the twists of all lidars but the
        first."""
        shares = (self.jacobian @ direction) ** 2 * self.weights
        return shares * (direction @ self.information @ direction / max(shares.sum(), 1e-300))

    def noise_information(self) -> np.ndarray:
        """Return the information about the poses of all lidars but the first, (6 (n - 1), 6 (n - 1)), that may be by
        the normals' noise alone."""
        weights, number = self.weights * self.tilts / self.variance, len(self.state.base_from_lidar)
        total = np.zeros((6 * number - 6, 6 * number - 6))
        for axis in np.eye(3):
            across = axis - self.normals * (self.normals @ axis)[:, None]
            rows = by_twist(self.middles, across)
            total += products_of_relative_poses(rows, weights, rows, self.pairs, number)
        return self.reduction @ total @ self.reduction.T

    def add_to(self, equations: NormalEquations, unknowns: Unknowns, lidars: Sequence[Lidar]) -> None:
        """Add the factors to the normal equations."""
        size = unknowns.num_without_surfaces
        of_rows = NormalEquations.empty(size)
        self._add_rows(of_rows, unknowns, lidars)
        # The solution for the poses, T x = t, has the sandwich's information; the rest, the lidars' errors given the
        # poses, has a share of that of the rows.
        poses = unknowns.free_poses
        before = unknowns.of_free_poses(of_rows.information) + 1e-9 / self.variance * np.eye(len(poses))
        solved = np.linalg.solve(before, np.column_stack([of_rows.information[poses], of_rows.gradient[poses]]))
        added = (self.information - self.of_units * before) @ solved
        change = solved[:, :-1].T @ added[:, :-1]
        equations.information[:size, :size] += self.of_units * of_rows.information + (change + change.T) / 2.0
        equations.gradient[:size] += self.of_units * of_rows.gradient + solved[:, :-1].T @ added[:, -1]

    def _add_rows(self, equations: NormalEquations, unknowns: Unknowns, lidars: Sequence[Lidar]) -> None:
        """Add the factors' rows as if they were independent."""
        # Each cell's height changes where its ray meets the common plane in the middle between both, as of patches
        # (room.py). Ranges are longer along rays to that point: by the cells' own rays, what shape a surface has
        # between them would look like an error of ranges that the lidars have in common.
        weights, rows = self.weights / self.variance, by_twist(self.middles, self.normals)
        parts = []
        for cell, sign in ((self.seen, 1.0), (self.against, -1.0)):
            rays = self.middles - self.surface.origins[cell]
            cosines = -np.einsum("ki,ki->k", self.normals, rays) / lengths(rays)
            parts.append(by_unknowns(
                self.surface, self.state, unknowns, lidars, cell, rows, cosines, sign * self.residuals / 2.0
            ))  # fmt: skip
        # Channels are few entries in many columns; poses and scalars are in the same columns for all factors of one
        # pair of lidars.
        (values, columns), (of_channels, places) = (
            (np.hstack([parts[0][0][:, part], -parts[1][0][:, part]]), np.hstack([each[:, part] for _, each in parts]))
            for part in (slice(COMMON), slice(COMMON, None))
        )
        channels, weighted = (
            sparse_rows(each, places, len(equations.gradient)) for each in (of_channels, weights[:, None] * of_channels)
        )
        equations.information += (channels.T @ weighted).toarray()
        equations.gradient -= weighted.T @ self.residuals
        # The rows at which the factors of a pair of lidars begin.
        ends = np.flatnonzero(np.diff(self.pairs, axis=0, prepend=-1, append=-1).any(axis=1)).tolist()
        for begin, end in itertools.pairwise(ends):
            rows = slice(begin, end)
            kept, place = np.unique(columns[begin], return_inverse=True)
            common = values[rows] @ np.eye(len(kept))[place]
            common_weighted = weights[rows, None] * common
            both = channels[rows].T @ common_weighted
            equations.information[np.ix_(kept, kept)] += common.T @ common_weighted
            equations.information[:, kept] += both
            equations.information[kept] += both.T
            equations.gradient[kept] -= common_weighted.T @ self.residuals[rows]


def by_unknowns(
    surface: Surface, state: State, unknowns: Unknowns, lidars: Sequence[Lidar], cell: np.ndarray,
    by_twist: np.ndarray, cosines: np.ndarray, above: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Return the derivatives (K, 39) by the unknowns of the heights of cells (K,) over planes, `above` (K,) at present,
    and their columns (K, 39), those of channels last. `by_twist` (K, 6), the normal first, are the derivatives by the
    twist of their lidar, `cosines` (K,) those of incidence of their rays on the planes, or of rays close to these."""
    side, cosines, first = surface.side[cell], np.clip(cosines, LEAST_COSINE, 1.0), 0
    shape = len(cell), COMMON + len(CHANNEL_KINDS)
    values, columns = np.zeros(shape), np.zeros(shape, dtype=np.int64)
    values[:, :6] = by_twist
    for number, lidar in enumerate(lidars):
        rows = np.flatnonzero(side == number)
        cells = cell[rows] - first
        columns[rows, :6] = columns_of(unknowns.poses[number])
        columns[rows, 6:] = unknowns.unit_columns(number, lidar.returns.channel[cells])
        values[rows, 6:] = np.hstack(lidar.model.sensitivity(
            lidar.returns.only(cells), cosines[rows], by_twist[rows, :3] @ state.base_from_lidar[number][:3, :3],
            state.units[number], -above[rows] / cosines[rows], -cosines[rows],
        ))  # fmt: skip
        first += len(lidar.surface.points)
    return values, columns


def elements(
    surface: Surface, state: State, left_out: np.ndarray, pairs: Sequence[tuple[int, int]] | None = None,
    measured: bool = True,
) -> Elements | None:  # fmt: skip
    """Return the factors of all lidars' cells at a state, or of given `pairs` of lidars, without the cells `left_out`
    (M,), their gains `measured` or not; None for too few."""
    usable = surface.usable & ~left_out & (surface.planarity < MAX_PLANARITY)
    number = len(state.base_from_lidar)
    if number < 2:
        return None
    matching = _Matching.of(surface, usable, number)
    pairs = pairs or list(itertools.combinations(range(number), 2))
    ways = [way for first, second in pairs for way in ((second, first), (first, second))]
    parts = zip(*(matching.between(*way)[:5] for way in ways), strict=True)
    seen, against, normals, middles, residuals = map(np.concatenate, parts)
    if len(seen) < FEWEST:
        return None
    deviation = max(robust_deviation(residuals), LEAST_DEVIATION)
    _, pieces = np.unique(np.floor(surface.points / PIECE).astype(int), axis=0, return_inverse=True)
    pieces = pieces.ravel()
    matching = replace(matching, deviation=deviation, piece=pieces)
    # Of the differences between n lidars n - 1 are independent.
    rows, sides = by_twist(middles, normals), surface.side[np.column_stack([against, seen])]
    signs = np.sign(sides[:, 1] - sides[:, 0])
    weights = matching.weights(seen, residuals, signs, sides.min(axis=1) * number + sides.max(axis=1))
    weights *= (number - 1.0) / len(pairs)
    jacobian = of_relative_poses(rows, sides, number)
    information = products_of_relative_poses(rows, weights, rows, sides, number) + 1e-9 * np.eye(jacobian.shape[1])
    remaining = residuals - jacobian @ np.linalg.solve(information, jacobian.T @ (weights * residuals))
    _, piece = np.unique(pieces[seen], return_inverse=True)
    of_piece = sparse.csr_array((np.ones(len(piece)), (np.arange(len(piece)), piece)))
    by_piece = products(of_piece, weights * remaining, jacobian)
    root = np.linalg.cholesky(information)
    half = np.linalg.solve(root, by_piece.T)
    sandwich, axes = np.linalg.eigh(half @ half.T)
    tilts = (surface.planarity[seen] + surface.planarity[against]) / (4.0 * NORMAL_NEIGHBOURS)
    variance = CORRELATED * max(float(np.mean(sandwich)), deviation**2)
    reduction, of_units = np.eye(len(root)), 1.0
    if measured and len(seen) >= FEWEST_MOVED:
        reduction, of_units = _reductions(matching, pairs, root)
    axes = reduction @ root @ axes
    of_poses = (axes / np.maximum(CORRELATED * sandwich, variance)) @ axes.T
    return Elements(
        surface, state, seen, against, sides, middles, normals, residuals, weights, variance, tilts, piece, of_poses,
        reduction, of_units,
    )  # fmt: skip


Moves = tuple[np.ndarray, np.ndarray]
"""Motions (C, 4, 4) of a lidar, and changes (C, 2) of its range offset and incidence error (m)."""
MOVE = 6 + 2


@dataclass(frozen=True)
class _Matching:
    """The cells `of_lidar` of a surface, the `trees` of their points, how far (M,) from each cell others may be of the
    same surface. Of their residuals: the standard `deviation` (m) of all, and the numbers (M,) of each cell's
    `piece`."""

    surface: Surface
    of_lidar: Sequence[np.ndarray]
    trees: Sequence[cKDTree | None]
    within: np.ndarray
    deviation: float = np.nan
    piece: np.ndarray | None = None

    @classmethod
    def of(cls, surface: Surface, usable: np.ndarray, number: int) -> "_Matching":
        """Return the `usable` ones (M,) of the cells of so many lidars."""
        of_lidar = [np.flatnonzero(usable & (surface.side == lidar)) for lidar in range(number)]
        trees = [cKDTree(surface.points[cells]) if len(cells) else None for cells in of_lidar]
        return cls(surface, of_lidar, trees, np.maximum(WITHIN_GAP * surface.ranges * surface.gaps, WITHIN))

    def between(self, one: int, other: int, moves: Moves | None = None, every: int = 1) -> tuple[np.ndarray, ...]:
        """Return the cells (K,) of one lidar that are near one of the other's with a similar normal, the latter (K,),
        the mean normals (K, 3), the middles (K, 3) between both, and the distances (K,) of the former above the latter;
        of `every` so manyth cell, moved before by each of C `moves`, whose numbers (K,) come last."""
        surface, cells, others = self.surface, self.of_lidar[one][::every], self.of_lidar[other]
        if self.trees[other] is None or not len(cells):
            none = cells[:0]
            return none, none, np.zeros((0, 3)), np.zeros((0, 3)), np.zeros(0), none
        points, normals, rays = surface.points[cells], surface.normals[cells], surface.rays[cells]
        number = np.zeros(len(cells), dtype=np.int64)
        if moves is not None:
            (changes, longer), errors = moves, _errors(normals, rays)
            number, cells = np.repeat(np.arange(len(changes)), len(cells)), np.tile(cells, len(changes))
            points, normals, rays = (each @ changes[:, :3, :3].swapaxes(1, 2) for each in (points, normals, rays))
            points += changes[:, None, :3, 3] + (longer @ errors.T)[:, :, None] * rays
            points, normals, rays = (each.reshape(-1, 3) for each in (points, normals, rays))
        # Beyond this the nearest cell is too far away, whichever it is.
        distances, nearest = self.trees[other].query(points, distance_upper_bound=self.within[others].max())
        kept = np.flatnonzero(nearest < len(others))
        kept = kept[distances[kept] < self.within[others[nearest[kept]]]]
        alike = np.einsum("ki,ki->k", normals[kept], surface.normals[others[nearest[kept]]]) > MIN_NORMAL_COSINE
        kept = kept[alike]
        against = others[nearest[kept]]
        normals = normals[kept] + surface.normals[against]
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
        # Errors at grazing incidence are not modelled below this cosine: factors beyond would bias them.
        each_ray = (rays[kept], surface.rays[against])
        steep = np.all([np.einsum("ki,ki->k", normals, -each) > LEAST_COSINE for each in each_ray], axis=0)
        kept, against, normals = kept[steep], against[steep], normals[steep]
        cells, points = cells[kept], points[kept]
        beside = _beside(surface, points, against)
        above = np.einsum("ki,ki->k", normals, points - beside)
        return cells, against, normals, (points + beside) / 2.0, above, number[kept]

    def weights(
        self, cells: np.ndarray, residuals: np.ndarray, signs: np.ndarray, number: np.ndarray, every: int = 1
    ) -> np.ndarray:
        """Return the weights (K,) of residuals (K,) of cells (K,), `every` so manyth: robust, and by the deviations of
        their pieces, apart for each `number` (K,) of a pair or a move. `signs` (K,) are those of the second lidar."""
        ratios = residuals / self.deviation
        rougher = _rougher(signs * ratios, number * len(self.piece) + self.piece[cells], OF_ALL / every)
        return tukey_weights(ratios / (TUKEY * rougher)) / rougher**2

    def gradients(self, pair: tuple[int, int], moves: Moves, back: Moves, every: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the gradients (C, 8) of a pair's factors by the second lidar's twist, range offset and incidence
        error, with that lidar moved by C `moves`, the first one by their opposites `back`, and their derivative (8, 8)
        at the last move, as long as no other cells become neighbours and no weights change, of `every` so manyth
        cell."""
        ways = ((pair[::-1], 1.0), (pair, -1.0))
        parts = [self.between(*way, moved, every) for (way, _), moved in zip(ways, (moves, back), strict=True)]
        cells, _, normals, middles, residuals, number = map(np.concatenate, zip(*parts, strict=True))
        signs = np.repeat([sign for _, sign in ways], [len(part[0]) for part in parts])
        rays = self.surface.rays[cells]
        along = np.einsum("ki,ki->k", normals, rays)[:, None]
        rows = np.column_stack([by_twist(middles, normals), along * _errors(normals, rays)])
        weighted = rows * self.weights(cells, residuals, signs, number, every)[:, None]
        gradients = np.zeros((len(moves[1]), MOVE))
        np.add.at(gradients, number, (signs * residuals)[:, None] * weighted)
        still = number == len(gradients) - 1
        return gradients, weighted[still].T @ rows[still]


def _rougher(ratios: np.ndarray, piece: np.ndarray, of_all: float) -> np.ndarray:
    """Return the standard deviation (K,), at least 1, about its median of each one's piece by the `ratios` (K,) of
    residuals, of the pieces numbered `piece` (K,), to the deviation of all, which counts as `of_all` of them."""
    _, of_one, count = np.unique(piece, return_inverse=True, return_counts=True)
    middle = np.cumsum(count) - count + count // 2
    apart = np.abs(ratios - ratios[np.lexsort((ratios, of_one))[middle]][of_one])
    own = (MAD * apart[np.lexsort((apart, of_one))[middle]]) ** 2
    return np.sqrt(np.maximum((count * own + of_all) / (count + of_all), 1.0))[of_one]


def _reductions(matching: _Matching, pairs: Sequence[tuple[int, int]], root: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the matrix (6 (n - 1), 6 (n - 1)) that reduces an information about the poses by gains that are smaller
    than `CORRELATED` allows for, and the factor for that about the lidars' errors given the poses. The gains are the
    derivative of the factors' gradient, measured by moving the lidars, or changing their ranges, over that with the
    same neighbours: a symmetric matrix in coordinates in which the information, root root', is 1."""
    number, length = len(matching.of_lidar), MOVED * matching.deviation
    lengths = np.array([length] * 3 + [length / float(np.median(matching.surface.ranges))] * 3 + [length] * 2)
    steps = np.concatenate([np.diag(lengths), -np.diag(lengths), np.zeros((1, MOVE))])
    moves, back = ((np.array([exp(step[:6]) for step in own]), own[:, 6:]) for own in (steps, -steps))
    cells = sum(len(matching.of_lidar[lidar]) for lidar in itertools.chain(*pairs))
    every = max(1, cells // max(MOVED_CELLS, OF_PAIR * len(pairs)))
    unsure = UNSURE * min(cells, MOVED_CELLS) ** -0.5
    response, expected = np.zeros((2, 6 * number - 4, 6 * number - 4))
    for pair in pairs:
        gradients, derivative = matching.gradients(pair, moves, back, every)
        measured = ((gradients[:MOVE] - gradients[MOVE : 2 * MOVE]) / (2.0 * lengths[:, None])).T
        second_against_first = np.eye(number)[1:, pair[1]] - np.eye(number)[1:, pair[0]]
        between = block_diag(np.kron(second_against_first[:, None], np.eye(6)), np.eye(2))
        response += between @ measured @ between.T
        expected += between @ derivative @ between.T
    expected += 1e-9 * np.eye(len(expected))
    poses, errors = slice(0, -2), slice(-2, None)
    # The errors with the poses that go with them: what these factors say about errors given the poses.
    given = np.vstack([-np.linalg.solve(expected[poses, poses], expected[poses, errors]), np.eye(2)])
    of_errors = given.T @ response @ given
    least_gain = eigh((of_errors + of_errors.T) / 2.0, given.T @ expected @ given, eigvals_only=True)[0]
    gain = np.linalg.solve(expected[poses, poses], response[poses, poses])
    whitened = root.T @ np.linalg.solve(root, gain.T).T
    gains, axes = np.linalg.eigh((whitened + whitened.T) / 2.0)
    axes = root @ axes
    return (axes * _reduced(gains, unsure)) @ np.linalg.inv(axes), float(_reduced(least_gain, unsure)) ** 2


def _errors(normals: np.ndarray, rays: np.ndarray) -> np.ndarray:
    """Return how much longer ranges (N, 2) on surfaces with these normals (N, 3) are by a range offset and by an
    incidence error of 1."""
    cosines = np.abs(np.einsum("ni,ni->n", normals, rays))
    return np.column_stack([np.ones(len(cosines)), longer_by_incidence(cosines)])


def _reduced(gains: np.ndarray, unsure: float) -> np.ndarray:
    """Return gains over those that `CORRELATED` allows for, both less what they are `unsure` of, at most 1."""
    return np.clip((gains - unsure) / (CORRELATED**-0.5 - unsure), LEAST_GAIN, 1.0)


def _beside(surface: Surface, seen: np.ndarray, against: np.ndarray) -> np.ndarray:
    """Return the points (K, 3) of the cells `against` (K,), interpolated along their row to be beside the points `seen`
    (K, 3): on the line through the next cell of the row that is of the same surface, the one on that side if there is
    one.

    A fitted normal turns less than the surface does, so a remaining distance along a row looks like a height. If the
    rows of two lidars are divided at a constant angle from each other, these heights would be a rotation over a whole
    room, by up to a tenth of that angle.
    """
    points, start = surface.points, surface.points[against]
    offset, best, moved = seen - start, np.full(len(seen), -np.inf), start.copy()
    for step in (-1, 1):
        following = np.clip(against + step, 0, len(points) - 1)
        along = points[following] - start
        squares = np.einsum("ki,ki->k", along, along)
        same = (
            (surface.row[following] == surface.row[against]) & (surface.side[following] == surface.side[against])
            & (following != against) & (squares < (2.0 * CELL_WIDTH * surface.ranges[against]) ** 2 + WITHIN**2)
            & (np.einsum("ki,ki->k", surface.normals[following], surface.normals[against]) > MIN_NORMAL_COSINE)
        )  # fmt: skip
        share = np.einsum("ki,ki->k", offset, along) / np.maximum(squares, 1e-12)
        better = same & (share > best)
        best[better] = share[better]
        moved[better] = start[better] + share[better, None] * along[better]
    return moved
