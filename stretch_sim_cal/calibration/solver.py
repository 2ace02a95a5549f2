"""Solves the least-squares problem of `problem.py`, and estimates the variances of its lidars' errors from the data.

`Solver.solve` adds the priors to the blocks' normal equations and returns the change with its marginal covariance;
`Solver.marginalised` eliminates the lidars' errors, for the lidar extrinsics, which estimate the variances of the
robot model's errors themselves.

The parameters of a unit are whitened by their prior (x = L z), so that a prior may be singular. Over the lidars of one
kind, the z of each kind of errors have a covariance that is estimated from the data (empirical Bayes; D. MacKay,
"Bayesian interpolation", 1992): the sensor file has the standard deviations of units of its kind, a good unit has
smaller errors, and two units, or one lidar at two places, may differ from the file by nearly the same.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.linalg import cho_solve, lapack, solve_triangular

from stretch_sim_cal.calibration.problem import (
    FIXED,
    UNKNOWN,
    NormalEquations,
    Priors,
    State,
    Unknowns,
    columns_of,
)
from stretch_sim_cal.calibration.reduction import (
    Marginalised,
    NoisyPoses,
    SurfaceErrors,
    cholesky_root,
    information_about,
    inverse_of_root,
)
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.planes import Plane
from stretch_sim_cal.geometry.transforms import SIDES
from stretch_sim_cal.sensor.unit import (
    CENTRE,
    CENTRE_SHARE,
    CHANNEL_KINDS,
    FIRING_SHARE,
    HARMONICS,
    RANGE_SCALE,
    SCALARS,
    SCAN_MOTION,
    UNKNOWN_SENSOR,
)

# The variances of the channels' errors are estimated in at most so many steps of expectation maximisation, until their
# standard deviations change by a smaller share than the second.
VARIANCE_STEPS, CONVERGED = 4, 0.02
# The smallest standard deviation of the channels' errors over that of the sensor file.
LEAST_DEVIATION = 0.02
# The sensor file's variance, or a smaller one that was found before, counts as much as so many channels.
PRIOR_CHANNELS = 4.0
# Real lidars' channels differ by up to so many times what is assumed of unknown ones.
OF_UNKNOWN = 3.0
# A share with a smaller standard deviation is fixed: 0 and 1 are more than ten of them apart.
FIXED_BELOW = 0.1
# Lidars of one kind differ from each other, in their scalars and in each kind of channels' errors, by one of these
# shares of the sensor file's standard deviations, each in its harmonics by one of the second ones; a priori all are
# equally likely.
SHARES = np.array([1.0, 0.5, 0.25, 0.1, 0.03])
HARMONICS_SHARES = np.array([2.0, 1.0, 0.5, 0.1])
# One lidar's range scale may be outside the sensor file's: so many times further off, each with these prior odds.
FAR = (10.0, 40.0)
ODDS_OF_FAR = 0.01
# Hypotheses whose log evidence is within this of the best one's are plausible.
EVIDENCE_MARGIN = 4.0
# What is of the scans and not of the unit is so many times what `ErrorModel.scan_roots` has, with such odds; or, if the
# third is true, what lidars of one kind differ in: of a lateral offset that they have in common, all seem to be turned
# alike.
SHARES_OF_SCANS: dict[str, tuple[np.ndarray, np.ndarray | float, bool]] = {
    "scan_motion": (np.array([0.01, 0.3, 1.0, 3.0]), np.array([1.0, 0.01, 0.01, 0.01]), False),
    "wander": (np.array([0.01, 1.0, 3.0, 10.0]), 1.0, False),
    "range_order": (np.array([0.001, 0.3, 1.0, 3.0]), np.array([1.0, 0.001, 0.001, 0.001]), False),
    "firing_order": (np.array([0.001, 0.3, 1.0, 3.0]), np.array([1.0, 1e-4, 1e-4, 1e-4]), False),
    "upward_waves": (np.array([0.001, 0.3, 1.0, 3.0]), np.array([1.0, 0.001, 0.001, 0.001]), False),
    "aside_waves": (np.array([0.001, 0.3, 1.0, 3.0]), np.array([1.0, 0.001, 0.001, 0.001]), False),
    "lateral_offset": (np.array([0.001, 0.3, 1.0, 3.0]), np.array([1.0, 1e-4, 1e-4, 1e-4]), True),
}
LIKE_TURNS = ("upward_waves", "aside_waves")  # lidars that are still apart seem to have them
SCALAR_KINDS = ("scalars", "harmonics", "shares", *SHARES_OF_SCANS)
# Lidars of one kind have the same driver, which corrects the same of all, or different ones, with such odds; the shares
# of one driver differ by this variance.
ODDS_OF_DRIVERS, SAME_DRIVER = np.array([1.0, 0.02]), 1e-3
# Channels of two lidars that differ by more standard deviations of the sensor file are of no unit that it describes.
BEYOND_FILE = 2.0
# Standard deviations (m) of the errors by which a channel differs from surface to surface. Of real lidars (Pandar64,
# VLP-16, OS1-64) on walls at different ranges it is 1 to 5 mm.
BY_SURFACE = np.array([0.0001, 0.0005, 0.001, 0.002, 0.004, 0.008])
# An error of more standard deviations of its prior is not one of the units that the sensor file describes.
BEYOND_PRIOR = 4.0


@dataclass(frozen=True)
class Solution:
    """The `change` (n,) of the unknowns, and, by lidar and kind of errors, the `relative_deviations`: the standard
    deviation of this unit's errors over that of the sensor file. `root` (k, k) is the Cholesky factor of the
    information about their coordinates in a `basis` (n, k)."""

    change: np.ndarray
    relative_deviations: tuple[dict[str, float], ...]
    basis: sparse.csr_array
    root: np.ndarray

    @cached_property
    def covariance(self) -> np.ndarray:
        """The marginal covariance (n, n) of the unknowns."""
        return self.basis @ inverse_of_root(self.root) @ self.basis.T

    def covariance_of(self, columns: np.ndarray) -> np.ndarray:
        """Return the marginal covariance (c, c) of the unknowns in some columns (c,), without that of all others."""
        half = solve_triangular(self.root, self.basis[columns].toarray().T, lower=True, check_finite=False)
        return half.T @ half


def scalar_numbers(state: State, covariance: np.ndarray, names: Sequence[str] = SIDES) -> dict[str, float]:
    """Return the scalars of the lidars' errors in m, rad and ratios with their standard deviations, from their
    covariance (14 n, 14 n), by the names of the scalar and of the lidar."""
    numbers = {}
    by_lidar = np.sqrt(np.maximum(np.diag(covariance), 0.0)).reshape(len(names), len(SCALARS))
    for side, values, deviations in zip(names, state.units, by_lidar, strict=True):
        for scalar, value, deviation in zip(SCALARS, values, deviations, strict=False):
            if deviation > 0 or value:  # a fixed share has no deviation
                numbers[f"{scalar}_{side}"], numbers[f"{scalar}_{side}_std"] = float(value), float(deviation)
    return numbers


def sensor_numbers(
    unknowns: Unknowns, state: State, solution: Solution, names: Sequence[str] = SIDES
) -> dict[str, float]:
    """Return the scalars of the lidars' errors and their motion in a scan, and the standard deviations of the channels'
    errors."""
    numbers = scalar_numbers(state, solution.covariance[np.ix_(unknowns.scalars, unknowns.scalars)], names)
    for lidar, (side, model) in enumerate(zip(names, unknowns.models, strict=True)):
        if model.step:
            numbers[f"coordinate_step_{side}"] = model.step
        columns = unknowns.scan_motion_columns(lidar)
        for name, value, column in zip(SCAN_MOTION, state.units[lidar][model.of_scan_motion], columns, strict=True):
            deviation = np.sqrt(max(solution.covariance[column, column], 0.0))
            numbers[f"{name}_{side}"], numbers[f"{name}_{side}_std"] = float(value), float(deviation)
        for kind in CHANNEL_KINDS:
            if expected := getattr(model.spread, kind):
                # Errors that depend on the channels' order are in the values alone.
                values = np.sqrt(np.mean(state.units[lidar][model.of_kind(kind)] ** 2))
                estimated = solution.relative_deviations[lidar][kind] * expected
                numbers[f"{kind}_spread_{side}"] = max(estimated, float(values))
    return numbers


class Solver:
    """Solves for `unknowns` under `priors`, and keeps the covariances of the lidars' errors from one call to the next.

    These are a covariance (L, L) over the L lidars of one kind for each kind of errors, relative to the sensor file's
    variances.
    """

    def __init__(self, unknowns: Unknowns, priors: Priors):
        self.unknowns, self.priors = unknowns, priors
        # Whether to estimate the variances of the scans' motion and wander: not if the poses are given, since wrong
        # poses look like these.
        self.learns_scans = True
        self.by_surface = float(BY_SURFACE[2])  # m
        self._roots = [model.prior_roots() for model in unknowns.models]
        for roots in self._roots:
            # Errors that two lidars have in common do not turn with them; shares of corrections are 0 or 1.
            scalars = roots.pop("scalars")
            turning, shares = scalars[HARMONICS].any(axis=0), scalars[[CENTRE_SHARE, FIRING_SHARE]].any(axis=0)
            roots |= {"scalars": scalars[:, ~turning & ~shares], "harmonics": scalars[:, turning]}
            roots |= {"shares": scalars[:, shares]}
        self._fixed_shares: set[int] = set()  # columns
        self._groups: list[list[int]] = []
        for lidar, roots in enumerate(self._roots):
            for group in self._groups:
                if all(np.array_equal(roots[kind], root) for kind, root in self._roots[group[0]].items()):
                    group.append(lidar)
                    break
            else:
                self._groups.append([lidar])
        for roots, model in zip(self._roots, unknowns.models, strict=True):
            roots |= model.scan_roots()
        first_shares = {kind: shares[0] for kind, (shares, _, _) in SHARES_OF_SCANS.items()}
        self._covariances = {
            (tuple(group), kind): first_shares.get(kind, 1.0) ** 2 * np.eye(len(group))
            for group in self._groups
            for kind in self._roots[group[0]]
        }

    @classmethod
    def starting(
        cls, unknowns: Unknowns, poses: Sequence[np.ndarray], priors: Sequence[np.ndarray | None] = (FIXED,),
        units: tuple[np.ndarray, ...] | None = None, floor: Plane | None = None,
    ) -> tuple["Solver", State]:  # fmt: skip
        """Return a solver for the unknowns with these `priors` (covariances) of the lidars' poses, and the state at
        `poses` (4, 4), in which the lidars' parameters are `units` if they are known, else 0. Raises `InputError` if
        these are of lidars with other channels."""
        models = unknowns.models
        if units is not None and any(len(values) != model.size for values, model in zip(units, models, strict=True)):
            raise InputError("the known lidar errors belong to lidars with other channels; calibrate them again")
        start = tuple(np.zeros(model.size) for model in models) if units is None else units
        state = State(tuple(poses), start, floor)
        return cls(unknowns, Priors(state, priors, units_known=units is not None)), state

    @property
    def relative_deviations(self) -> tuple[dict[str, float], ...]:
        """By lidar and kind of errors the standard deviation of this unit's errors over that of the sensor file."""
        result = tuple({} for _ in self.unknowns.models)
        for (group, kind), covariance in self._covariances.items():
            for lidar, variance in zip(group, np.diag(covariance), strict=True):
                result[lidar][kind] = float(np.sqrt(variance))
        return result

    def solve(
        self, equations: NormalEquations, state: State, noise_information: np.ndarray | None = None, learn: bool = True,
        beside: np.ndarray | float = 0.0, far: bool = True,
    ) -> Solution:  # fmt: skip
        """Return the most likely change of `state` given the blocks' normal equations and the priors.

        `noise_information` is information about the poses of all lidars but the first by noise alone (see room.py): the
        covariance is corrected for it, but not the information (n, n) that comes from elsewhere, `beside` the blocks
        with noisy normals; directions of which noise has most of the information stay as they were guessed. The
        variances of the lidars' errors stay as they are unless `learn`, and range scales and variances `far` from the
        sensor files are not considered unless `far`.
        """
        information, gradient, fixed = self._with_pose_priors(equations.information, equations.gradient, state)
        size = self.unknowns.num_without_surfaces
        basis, kinds = self._basis(fixed[:size])
        rows = sparse.csr_array(basis)  # it is nearly all zeros
        # The standard deviations of the scalars' priors over those of the sensor file; 1 for most.
        scalars, widths, noisy = _scalars(kinds), np.ones(basis.shape[1]), None
        if noise_information is not None:
            elsewhere, _, _ = self._with_pose_priors(np.zeros((size, size)) + beside, gradient[:size], state)
            columns = rows[self.unknowns.free_poses].indices
            centres = [self._centre(lidar, kinds) for lidar in range(len(self.unknowns.models))]
            like_poses = np.concatenate([_scalars(kinds, LIKE_TURNS), *centres])
            elsewhere = (rows.T @ sparse.csr_array(elsewhere) @ rows).toarray()
            noisy = NoisyPoses(columns, noise_information, elsewhere, like_poses)
        current = self._coordinates(basis, kinds, state)
        half, own, about_own = rows.T @ information[:size], information[size:, size:], gradient[size:]
        information, gradient = half[:, :size] @ rows, basis.T @ gradient[:size]
        if len(about_own):
            # About lidars without errors, which the evidence is of.
            without = NormalEquations(information, gradient + information @ current)
            coupling = half[:, size:]
            errors = SurfaceErrors(without, coupling, own, about_own + current @ coupling)
            if learn:
                prior = self._precision(kinds, widths)
                self.by_surface, left = errors.most_likely(BY_SURFACE.tolist(), self.by_surface, prior)
            else:
                left, _ = errors.eliminated(self.by_surface)
            information, gradient = left.information, left.gradient - left.information @ current
        wide, again = widths, True
        for step in range(VARIANCE_STEPS):
            if step:  # the most likely ones depend on the variances
                current = self._coordinates(basis, kinds, state)
            if learn and again:
                about_none = NormalEquations(information, gradient + information @ current)
                if not step:
                    self._learn_similarity(kinds, widths, about_none)
                # From `widths`, not from the last step's `wide`: one after the other, all scales would become unknown.
                wide = self._learn_scalars(kinds, widths, about_none, far)
            prior = self._precision(kinds, wide)
            root = cholesky_root(information + prior)
            if noisy is not None:
                by_noise = noisy.shares(root, prior)
                root = noisy.held(information + prior, root, *by_noise)
            solution = cho_solve((root, True), gradient - prior @ current)
            # A prior that the data exceeds by far must neither bias the estimate nor reduce its covariance.
            times = self._exceeding(kinds, solution + current, wide, root)[scalars]
            exceeded = times > BEYOND_PRIOR
            widths[scalars[exceeded]] = (wide[scalars] * times)[exceeded]
            again = exceeded.any()
            converged = not again
            if kinds and learn:
                converged &= self._learn_channels(kinds, solution + current, root, far)
            if converged:
                break
        if noisy is not None:
            root = noisy.less_noise(information + prior, *by_noise)
        return Solution(basis @ solution, self.relative_deviations, rows, root)

    def without_surfaces(self, equations: NormalEquations) -> NormalEquations:
        """Return the equations without the errors by which channels differ from surface to surface, which are
        eliminated under their prior."""
        if not self.unknowns.by_surface:
            return equations
        information, gradient, size = equations.information, equations.gradient, self.unknowns.num_without_surfaces
        others = NormalEquations(information[:size, :size], gradient[:size], equations.noise)
        errors = SurfaceErrors(others, information[:size, size:], information[size:, size:], gradient[size:])
        return errors.eliminated(self.by_surface)[0]

    def step(
        self, equations: NormalEquations, state: State, noise_information: np.ndarray | None = None, learn: bool = True,
        beside: np.ndarray | float = 0.0, far: bool = True,
    ) -> tuple[State, Solution]:  # fmt: skip
        """Return the state after a change as of `solve`, with fixed shares, and the solution."""
        solution = self.solve(equations, state, noise_information, learn, beside, far)
        return self.with_fixed_shares(self.unknowns.moved(state, solution.change), solution), solution

    def marginalised(self, equations: NormalEquations, state: State, widened: bool) -> Marginalised:
        """Return the normal equations with the lidars' errors eliminated under their priors; if `widened`, the priors
        of scalars that the state exceeds by far are wider."""
        information, gradient, fixed = self._with_pose_priors(equations.information, equations.gradient, state)
        basis, kinds = self._basis(fixed)
        rows = sparse.csr_array(basis)
        scalars, widths = _scalars(kinds), np.ones(basis.shape[1])
        current = self._coordinates(basis, kinds, state)
        times = np.abs(current[scalars])
        if widened:
            widths[scalars] = np.where(times > BEYOND_PRIOR, times, 1.0)
        prior = self._precision(kinds, widths)
        gradient = basis.T @ gradient - prior @ current
        information = rows.T @ information @ rows + prior
        units = np.diag(prior) > 0
        factor = cholesky_root(information[np.ix_(units, units)]), True
        coupling = information[np.ix_(~units, units)]
        solved = cho_solve(factor, np.column_stack([coupling.T, gradient[units]]))
        return Marginalised(
            information[np.ix_(~units, ~units)] - coupling @ solved[:, :-1],
            gradient[~units] - coupling @ solved[:, -1],
            np.argmax(basis[:, ~units], axis=0), basis[:, units], factor, coupling, gradient[units],
        )  # fmt: skip

    def exceeded(self, state: State) -> bool:
        """Return whether a scalar of a lidar's errors is far beyond its prior."""
        basis, kinds = self._basis(np.zeros(self.unknowns.num_without_surfaces, bool))
        return bool(np.any(np.abs(self._coordinates(basis, kinds, state)[_scalars(kinds)]) > BEYOND_PRIOR))

    def with_fixed_shares(self, state: State, solution: Solution) -> State:
        """Return the state with the shares of an error that a driver corrects fixed at 0 or 1 from now on, if they are
        well determined. Drivers correct all of it or nothing. Of lidars of one kind, which may have the same driver,
        all are fixed, or none."""
        units = [values.copy() for values in state.units]
        for group, index in itertools.product(self._groups, (CENTRE_SHARE, FIRING_SHARE)):
            columns = np.array([self.unknowns.units[lidar].start + index for lidar in group])
            deviations = np.sqrt(np.diag(solution.covariance_of(columns)))
            shares = np.array([units[lidar][index] for lidar in group])
            nearest, varying = np.where(shares > 0.5, 1.0, 0.0), deviations > 0
            sure = (deviations < FIXED_BELOW) & (np.abs(shares - nearest) < 4.0 * deviations)
            # What is more than all of it, or less than nothing, is another error of the optical centre.
            if np.any(np.abs(shares - np.clip(shares, 0.0, 1.0)) > 4.0 * deviations):
                sure = np.abs(shares - (1.0 - nearest)) > 4.0 * deviations
            if np.all(sure | ~varying):
                for number in np.flatnonzero(varying):
                    units[group[number]][index] = nearest[number]
                self._fixed_shares.update(columns[varying].tolist())
        return replace(state, units=tuple(units))

    def _with_pose_priors(self, information, gradient, state) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the normal equations with the priors of poses and floor, and a mask (n,) of the fixed columns."""
        information, gradient = information.copy(), gradient.copy()
        priors, delta = self.priors, self.unknowns.difference(state, self.priors.nominal)[: len(gradient)]
        fixed = np.zeros(len(delta), bool)
        for columns, covariance in itertools.zip_longest(self.unknowns.poses, priors.poses):
            if covariance is not None and not np.any(covariance):
                fixed[columns] = True
                continue
            precision = np.eye(6) / UNKNOWN**2 if covariance is None else np.linalg.inv(covariance)
            information[columns, columns] += precision
            gradient[columns] -= 0.0 if covariance is None else precision @ delta[columns]
        floor, curvature = self.unknowns.floor, self.unknowns.curvature
        if state.floor is None:
            fixed[floor] = fixed[curvature] = True
        else:
            information[floor, floor] += np.eye(3) / UNKNOWN**2
            gradient[floor] -= delta[floor] / UNKNOWN**2
            if priors.curvature:
                information[curvature, curvature] += np.eye(3) / priors.curvature**2
                gradient[curvature] -= delta[curvature] / priors.curvature**2
            else:
                fixed[curvature] = True
        return information, gradient, fixed

    def _basis(self, fixed: np.ndarray) -> tuple[np.ndarray, dict[tuple[int, str], slice]]:
        """Return the basis (n, k) of the unknowns that are not fixed, with the lidars' errors whitened by the sensor
        files' priors, and the slices of these k by lidar and kind of errors."""
        size, free = len(fixed), ~fixed
        for unit in self.unknowns.units:
            free[unit] = False
        blocks, kinds, count = [np.eye(size)[:, free]], {}, np.count_nonzero(free)
        for lidar, (unit, roots) in enumerate(zip(self.unknowns.units, self._roots, strict=True)):
            for kind, root in ({} if self.priors.units_known else roots).items():
                block = np.zeros((size, root.shape[1]))
                block[unit] = root
                block = block[:, ~np.any(block[list(self._fixed_shares)], axis=0)]
                if block.shape[1]:
                    kinds[lidar, kind] = slice(count, count + block.shape[1])
                    blocks.append(block)
                    count += block.shape[1]
        return np.hstack(blocks), kinds

    def _columns_by_group(self, kinds: dict) -> Iterator[tuple[tuple, np.ndarray]]:
        """Yield the keys (lidars of one kind, kind of errors) of the covariances, and their columns (L, m) of the
        basis."""
        for group, kind in self._covariances:
            columns = [columns_of(kinds[lidar, kind]) for lidar in group if (lidar, kind) in kinds]
            if len(columns) == len(group):
                yield (group, kind), np.array(columns)

    def _precision(self, kinds: dict, widths: np.ndarray) -> np.ndarray:
        """Return the precision (k, k) of the priors of the lidars' errors, with standard deviations `widths` (k,) times
        as large."""
        prior = np.zeros((len(widths), len(widths)))
        for key, columns in self._columns_by_group(kinds):
            precisions, times = np.linalg.inv(self._covariances[key]), widths[columns]
            prior[columns[:, None], columns] = precisions[:, :, None] / (times * times[:, None])
        return prior

    def _exceeding(self, kinds: dict, values: np.ndarray, widths: np.ndarray, root: np.ndarray) -> np.ndarray:
        """Return the errors of lidars, `values` (k,) with the factor `root` of their information (k, k), in standard
        deviations of their priors, `widths` (k,), but the largest one for all axes of an optical centre: one that is
        wrong in the sensor file is wrong as a whole. If it is not known whether the driver corrects it, it may be wrong
        by all of it, also if neither all of it is corrected nor nothing."""
        exceeding = np.abs(values) / widths
        for lidar, model in enumerate(self.unknowns.models):
            if len(centre := self._centre(lidar, kinds)):
                exceeding[centre] = exceeding[centre].max()
                other = exceeding[centre[0]] > BEYOND_PRIOR or self._in_part(lidar, kinds, values, root)
                if model.spread.driver_uncertain and other:
                    whole = np.abs(model.optical_centre).max() / self._roots[lidar]["scalars"][CENTRE].max()
                    exceeding[centre] = np.maximum(exceeding[centre], whole / widths[centre])
        return exceeding

    def _centre(self, lidar: int, kinds: dict) -> np.ndarray:
        """Return the columns (c,) of the basis that are of a lidar's optical centre."""
        if (lidar, "scalars") not in kinds:
            return np.zeros(0, int)
        return kinds[lidar, "scalars"].start + np.flatnonzero(self._roots[lidar]["scalars"][CENTRE].any(axis=0))

    def _in_part(self, lidar: int, kinds: dict, values: np.ndarray, root: np.ndarray) -> bool:
        """Return whether a lidar's optical centre would be corrected in part, beyond chance."""
        if (lidar, "shares") not in kinds or self.unknowns.units[lidar].start + CENTRE_SHARE in self._fixed_shares:
            return False
        column = kinds[lidar, "shares"].start
        deviation = information_about(root, np.array([column]))[0, 0] ** -0.5
        return min(abs(values[column]), abs(1.0 - values[column])) > BEYOND_PRIOR * deviation

    def _coordinates(self, basis: np.ndarray, kinds: dict, state: State) -> np.ndarray:
        """Return the most likely coordinates (k,) in the basis that give the units' parameters of a state."""
        coordinates, deviations = np.zeros(basis.shape[1]), self.relative_deviations
        for lidar, (unit, model, values) in enumerate(
            zip(self.unknowns.units, self.unknowns.models, state.units, strict=True)
        ):
            scale = np.ones(basis.shape[1])
            for (number, kind), columns in kinds.items():
                if number == lidar:
                    scale[columns] = deviations[lidar][kind]
            # The scalars and each kind of the channels' errors have nothing in common.
            of_scans = model.of_scan_motion, model.of_wander, model.of_waves
            for part in (slice(0, len(SCALARS)), *map(model.of_kind, CHANNEL_KINDS), *of_scans):
                block = basis[unit][part]
                rows, columns = np.flatnonzero(block.any(axis=1)), np.flatnonzero(block.any(axis=0))
                if not len(rows) or not np.any(values[part]):
                    continue
                root = block[np.ix_(rows, columns)] * scale[columns]
                # Of least norm (parts may overlap), and regular however small one of the standard deviations is.
                gram = root @ root.T
                size = np.sqrt(np.diag(gram))
                gram = gram / size[:, None] / size + 1e-9 * np.eye(len(gram))
                coordinates[columns] = scale[columns] * (
                    root.T @ (cho_solve((cholesky_root(gram), True), values[part][rows] / size) / size)
                )
        return coordinates

    def _learn_channels(self, kinds: dict, z: np.ndarray, root: np.ndarray, far: bool) -> bool:
        """Update the covariances of the channels' errors by a solution `z` (k,) with the factor `root` of its
        information (k, k), a step of expectation maximisation, to variances `far` from the sensor files' or not; return
        whether they have converged."""
        converged, inverse = True, None
        for key, columns in self._columns_by_group(kinds):
            if key[1] in SCALAR_KINDS:
                continue
            inverse = lapack.dtrtri(root, lower=1)[0] if inverse is None else inverse
            roots = inverse[:, columns]
            squares = np.einsum("lm,km->lk", z[columns], z[columns]) + np.einsum("nlm,nkm->lk", roots, roots)
            before, count = self._covariances[key], columns.shape[1]
            # Larger ones are drawn back to the sensor file, or what the data hardly determines would go on to grow.
            most = OF_UNKNOWN if self.unknowns.models[key[0][0]].spread == UNKNOWN_SENSOR else 1.0
            larger = np.maximum(np.sqrt(np.diag(before)) / most, 1.0)
            known = before / np.outer(larger, larger)
            # A variance above that of the sensor file is not limited, unless the lidars are still apart: what fits then
            # by wrong channels would go on to fit.
            values, axes = np.linalg.eigh((squares + PRIOR_CHANNELS * known) / (count + PRIOR_CHANNELS))
            after = (axes * np.clip(values, LEAST_DEVIATION**2, np.inf if far else BEYOND_FILE**2)) @ axes.T
            # The common part, which the data hardly determines, may then be as large as the difference.
            common = after.mean()
            differing = (np.trace(after) / len(after) - common) * len(after) / max(len(after) - 1, 1)
            if differing > BEYOND_FILE**2:
                after += max(0.0, differing / len(after) - common)
            converged &= np.abs(after - before).max() < 2.0 * CONVERGED * before.max()
            self._covariances[key] = after
        return converged

    def _eliminated(
        self, kinds: dict, chosen: dict, widths: np.ndarray, equations: NormalEquations
    ) -> tuple[dict, np.ndarray, NormalEquations]:
        """Return the slices of the `chosen` ones of the kinds of errors among these alone, their columns (s,), and the
        equations (s, s) about them in which all other unknowns are eliminated under their priors of `widths` (k,)."""
        columns = np.concatenate(list(map(columns_of, chosen.values())))
        others = np.setdiff1d(np.arange(len(widths)), columns)
        prior = self._precision(kinds, widths)[np.ix_(others, others)]
        factor = cholesky_root(equations.information[np.ix_(others, others)] + prior), True
        coupling = equations.information[np.ix_(columns, others)]
        solved = cho_solve(factor, np.column_stack([coupling.T, equations.gradient[others]]))
        information = equations.information[np.ix_(columns, columns)] - coupling @ solved[:, :-1]
        ends = np.cumsum([0, *(each.stop - each.start for each in chosen.values())]).tolist()
        slices = {key: slice(*ends[number : number + 2]) for number, key in enumerate(chosen)}
        return slices, columns, NormalEquations(information, equations.gradient[columns] - coupling @ solved[:, -1])

    def _evidence(self, kinds: dict, widths: np.ndarray, equations: NormalEquations) -> tuple[float, np.ndarray]:
        """Return the log evidence for the present covariances with `widths` (k,), and the most likely values (k,), by
        equations (k, k) about lidars without errors that have these kinds of errors alone."""
        prior = self._precision(kinds, widths)
        volume = np.sum(np.log(np.diag(cholesky_root(prior.copy()))))
        root = cholesky_root(equations.information + prior)
        solved = solve_triangular(root, equations.gradient, lower=True, check_finite=False)
        likely = solve_triangular(root, solved, trans=1, lower=True, check_finite=False)
        return float(0.5 * solved @ solved - np.sum(np.log(np.diag(root))) + volume), likely

    def _learn_similarity(self, kinds: dict, widths: np.ndarray, equations: NormalEquations) -> None:
        """Update the correlation of the channels' errors between lidars of one kind by the data, given the variance: to
        the mean over `SHARES`, weighted by evidence, for each kind of errors."""
        for key, _ in self._columns_by_group(kinds):
            group, kind = key
            if len(group) > 1 and kind in CHANNEL_KINDS:
                variance = np.trace(self._covariances[key]) / len(group)
                self._average(key, [variance * trial for trial in _nearly_alike(len(group))], kinds, widths, equations)

    def _average(
        self, key: tuple, trials: list[np.ndarray], kinds: dict, widths: np.ndarray, equations: NormalEquations,
        odds: np.ndarray | float = 1.0,
    ) -> None:  # fmt: skip
        """Set a covariance to the mean of `trials`, weighted by prior `odds` and by evidence, given the equations (k,
        k) about lidars without errors."""
        group, kind = key
        of_key, columns, alone = self._eliminated(
            kinds, {(lidar, kind): kinds[lidar, kind] for lidar in group}, widths, equations
        )
        log_evidence = []
        for trial in trials:
            self._covariances[key] = trial
            log_evidence.append(self._evidence(of_key, widths[columns], alone)[0])
        weights = odds * np.exp(np.array(log_evidence) - max(log_evidence))
        self._covariances[key] = np.tensordot(weights / weights.sum(), trials, axes=1)

    def _learn_scalars(
        self, kinds: dict, widths: np.ndarray, equations: NormalEquations, far: bool
    ) -> np.ndarray:  # fmt: skip
        """Update the covariances of the scalars of lidars of one kind, and of the harmonics of each, by the data: means
        over the shares, weighted by evidence given the equations (k, k) about lidars without errors. Return the
        `widths` (k,), with those of the range scales that may be far off."""
        chosen = {key: part for key, part in kinds.items() if key[1] in SCALAR_KINDS}
        if not chosen:
            return widths
        slices, columns, alone = self._eliminated(kinds, chosen, widths, equations)
        present = widths[columns]
        for key, _ in self._columns_by_group(slices):
            (group, kind), odds = key, 1.0
            if kind == "harmonics":
                trials = [share**2 * np.eye(len(group)) for share in HARMONICS_SHARES]
            elif kind == "scalars" and len(group) > 1:
                # As far from the sensor file as units of its kind, but not from each other.
                trials = _nearly_alike(len(group))
            elif kind == "shares" and len(group) > 1:
                independent = np.eye(len(group))
                trials, odds = [SAME_DRIVER * independent + 1.0 - SAME_DRIVER, independent], ODDS_OF_DRIVERS
            elif kind in SHARES_OF_SCANS and self.learns_scans and (far or kind not in LIKE_TURNS):
                shares, odds, only_differences = SHARES_OF_SCANS[kind]
                if only_differences and len(group) < 2:
                    continue
                each = np.eye(len(group))
                varying = each - 1.0 / len(group) if only_differences else each
                trials = [shares[0] ** 2 * (each - varying) + share**2 * varying for share in shares]
            else:
                continue
            self._average(key, trials, slices, present, alone, odds)
        # A room does not determine a scale common to all lidars, nor that of a single lidar.
        nominal, scales = self._evidence(slices, present, alone)[0], []
        for (lidar, kind), part in slices.items():
            column = part.start + np.flatnonzero(self._roots[lidar][kind][RANGE_SCALE])
            for times in FAR if far and len(column) and len(self.unknowns.models) > 1 else ():
                trial = present.copy()
                trial[column] *= times
                log_evidence, values = self._evidence(slices, trial, alone)
                scales.append((log_evidence + np.log(ODDS_OF_FAR), column, values[column]))
        # The covariance has to include every plausible scale: whose it is, the data often leaves open.
        best, widened = max([nominal, *(log_evidence for log_evidence, *_ in scales)]), present.copy()
        for log_evidence, column, values in scales:
            if log_evidence > best - EVIDENCE_MARGIN:
                widened[column] = np.maximum(widened[column], np.hypot(present[column], values))
        result = widths.copy()
        result[columns] = widened
        return result


def _nearly_alike(count: int) -> list[np.ndarray]:
    """Return the covariances (L, L) of so many lidars that differ from each other by each of `SHARES`."""
    return [share**2 * np.eye(count) + 1.0 - share**2 for share in SHARES]


def _scalars(kinds: dict, chosen: tuple[str, ...] = SCALAR_KINDS) -> np.ndarray:
    """Return the columns (s,) of the basis that are scalars, by default all, of the lidars' errors."""
    columns = [columns_of(part) for (_, kind), part in kinds.items() if kind in chosen]
    return np.concatenate([np.zeros(0, int), *columns])
