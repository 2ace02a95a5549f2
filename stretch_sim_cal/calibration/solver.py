"""Solves the least-squares problem of `problem.py`, and learns from the data how the errors of its lidars vary.

`Solver.solve` adds the priors to the blocks' normal equations and gives the changes with their marginal covariance;
`Solver.marginalised` eliminates the lidars' errors, for the lidar extrinsics, which estimate the variances of the
robot model's errors themselves.

The parameters of a unit are solved for in units of their prior (x = L z), so that a prior may be singular. Over the
lidars of one kind, the z of each kind of errors have a covariance that is taken from the data (empirical Bayes;
D. MacKay, "Bayesian interpolation", 1992): the sensor file says how far units of its kind differ, a good unit differs
less, and two units, or one lidar at two places, may differ from the file by nearly the same.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse
from scipy.linalg import cho_solve, cholesky, lapack, solve_triangular

from stretch_sim_cal.calibration.normal_equations import NormalEquations, bias_correction
from stretch_sim_cal.calibration.problem import CURVATURE, FIXED, FLOOR, RIGHT, UNKNOWN, Priors, State, Unknowns
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
)

# The variances of the channels' errors are estimated in at most so many steps of expectation maximisation, until their
# standard deviations change by a smaller share than the second.
VARIANCE_STEPS, CONVERGED = 4, 0.02
# The smallest standard deviation of the channels' errors over that of the sensor file.
LEAST_DEVIATION = 0.02
# The sensor file's variance counts as much as so many channels.
FIRM = 4.0
# A share with a smaller standard deviation is decided: 0 and 1 are more than ten of them apart.
SURE_SHARE = 0.1
# Lidars of one kind differ from each other, in their scalars and in each kind of channels' errors, by one of these
# shares of what units of the kind do, and each in its harmonics by one of those, none of them likelier beforehand.
SHARES = np.array([1.0, 0.5, 0.25, 0.1, 0.03])
HARMONICS_SHARES = np.array([2.0, 1.0, 0.5, 0.1])
# One lidar's range scale may be none that the sensor file describes: so many times further off, each with such odds.
FAR = (10.0, 40.0)
ODDS_OF_FAR = 0.01
# Hypotheses whose evidence (log) is less than this behind that of the best may be true as well.
AS_WELL = 4.0
# What is of the scans and not of the unit is so many times what `ErrorModel.scan_roots` has, with such odds.
SHARES_OF_SCANS: dict[str, tuple[np.ndarray, np.ndarray | float]] = {
    "scan_motion": (np.array([0.01, 0.3, 1.0, 3.0]), np.array([1.0, 0.01, 0.01, 0.01])),
    "wander": (np.array([0.01, 1.0, 3.0, 10.0]), 1.0),
    "firing_order": (np.array([0.001, 0.3, 1.0, 3.0]), np.array([1.0, 1e-4, 1e-4, 1e-4])),
}
SCALAR_KINDS = ("scalars", "harmonics", "shares", *SHARES_OF_SCANS)
# Channels of two lidars that differ by more times the sensor file's standard deviation are of no unit it describes.
BEYOND_FILE = 2.0
# An error of more standard deviations of its prior is not one of the units that the sensor file describes.
BEYOND_PRIOR = 4.0


@dataclass(frozen=True)
class Solution:
    """The `change` (n,) of the unknowns, their marginal `covariance` (n, n), and, by lidar and kind of errors, the
    `relative_deviations`: the standard deviation of this unit's errors over that of the sensor file."""

    change: np.ndarray
    covariance: np.ndarray
    relative_deviations: tuple[dict[str, float], ...]


def scalar_numbers(state: State, covariance: np.ndarray, names: Sequence[str] = SIDES) -> dict[str, float]:
    """Return the scalars of the lidars' errors in m, rad and ratios with their standard deviations, by
    their covariance (14 per lidar, squared), each under its own name and the lidar's."""
    numbers = {}
    deviations = np.sqrt(np.maximum(np.diag(covariance), 0.0)).reshape(len(names), len(SCALARS))
    for side, values, own in zip(names, state.units, deviations, strict=True):
        for scalar, value, deviation in zip(SCALARS, values, own, strict=False):
            if deviation > 0 or value:  # a share that is decided has no deviation
                numbers[f"{scalar}_{side}"], numbers[f"{scalar}_{side}_std"] = float(value), float(deviation)
    return numbers


def sensor_numbers(
    unknowns: Unknowns, state: State, solution: Solution, names: Sequence[str] = SIDES
) -> dict[str, float]:
    """Return the scalars of the lidars' errors and their motion in a scan, and the standard deviations of the channels'
    errors."""
    numbers = scalar_numbers(state, solution.covariance[np.ix_(unknowns.scalars, unknowns.scalars)], names)
    for lidar, (side, model) in enumerate(zip(names, unknowns.models, strict=True)):
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


@dataclass(frozen=True)
class Marginalised:
    """Normal equations `information` (k, k) and `gradient` (k,) over the `columns` (k,) of all unknowns but the lidars'
    errors, which are eliminated under their priors (Schur complement)."""

    information: np.ndarray
    gradient: np.ndarray
    columns: np.ndarray
    _basis: np.ndarray
    _factor: tuple
    _coupling: np.ndarray
    _right: np.ndarray

    def change(self, solution: np.ndarray) -> np.ndarray:
        """Return the change (n,) of all unknowns that a solution (k,) of these equations means."""
        change = self._basis @ cho_solve(self._factor, self._right - self._coupling.T @ solution)
        change[self.columns] = solution
        return change

    def covariance_of_units(self, covariance: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the covariance (r, r) of the lidars' errors `rows` (r,) if the solution has the covariance (k, k)."""
        by_units = cho_solve(self._factor, self._basis[rows].T)
        by_others = self._coupling @ by_units
        return self._basis[rows] @ by_units + by_others.T @ covariance @ by_others


class Solver:
    """Solves for `unknowns` under `priors`; it keeps from one call to the next how the errors of lidars vary.

    That is a covariance (L, L) over the L lidars of one kind for each kind of errors, in units of what the sensor file
    says.
    """

    def __init__(self, unknowns: Unknowns, priors: Priors):
        self.unknowns, self.priors = unknowns, priors
        # Whether the data may tell by how much scans move and wander: where the poses are given, wrong ones
        # look like that.
        self.learns_scans = True
        self._roots = [model.prior_roots() for model in unknowns.models]
        for roots in self._roots:
            # What is common to two lidars does not turn with them; what a driver corrects is one or the other.
            scalars = roots.pop("scalars")
            turning, decided = scalars[HARMONICS].any(axis=0), scalars[[CENTRE_SHARE, FIRING_SHARE]].any(axis=0)
            roots |= {"scalars": scalars[:, ~turning & ~decided], "harmonics": scalars[:, turning]}
            roots |= {"shares": scalars[:, decided]}
        self._known: set[int] = set()  # columns of the shares that are decided
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
        first_shares = {kind: shares[0] for kind, (shares, _) in SHARES_OF_SCANS.items()}
        self._varying = {
            (tuple(group), kind): first_shares.get(kind, 1.0) ** 2 * np.eye(len(group))
            for group in self._groups
            for kind in self._roots[group[0]]
        }

    @classmethod
    def starting(
        cls, unknowns: Unknowns, poses: Sequence[np.ndarray], priors: Sequence[np.ndarray | None] = (FIXED,),
        units: tuple[np.ndarray, ...] | None = None, floor: Plane | None = None,
    ) -> tuple["Solver", State]:  # fmt: skip
        """Return what solves for the unknowns from the lidars at `poses` (4, 4), of which these `priors` are known, and
        the state there; the lidars' parameters are `units` if they are known, else 0. Raises `InputError` if they are
        of lidars with other channels."""
        models = unknowns.models
        if units is not None and any(len(own) != model.size for own, model in zip(units, models, strict=True)):
            raise InputError("the known lidar errors belong to lidars with other channels; calibrate them again")
        given = tuple(np.zeros(model.size) for model in models) if units is None else units
        state = State(tuple(poses), given, floor)
        return cls(unknowns, Priors(state, priors, units_known=units is not None)), state

    @property
    def relative_deviations(self) -> tuple[dict[str, float], ...]:
        """By lidar and kind of errors the standard deviation of this unit's errors over that of the sensor file."""
        result = tuple({} for _ in self.unknowns.models)
        for (group, kind), covariance in self._varying.items():
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
        with noisy normals. The variances of the lidars' errors stay as they are unless `learn`, and range scales `far`
        from the sensor files are not considered unless `far`.
        """
        information, gradient, fixed = self._with_pose_priors(equations.information, equations.gradient, state)
        basis, kinds = self._basis(fixed)
        rows = sparse.csr_array(basis)  # it is nearly all zeros
        # How many times wider than the sensor file's the priors of the scalars are; 1 for most.
        scalars, widths, corrected = _scalars(kinds), np.ones(basis.shape[1]), None
        if noise_information is not None:
            poses, noisy = self.unknowns.free_poses, equations.information - beside
            shortened = bias_correction(noisy[np.ix_(poses, poses)], noise_information)
            noisy[poses] = shortened.T @ noisy[poses]
            noisy[:, poses] = noisy[:, poses] @ shortened
            corrected, _, _ = self._with_pose_priors(noisy + beside, equations.gradient, state)
            corrected = rows.T @ corrected @ rows
            # Directions that noise alone seems to constrain stay as they were guessed.
            information[np.ix_(poses, poses)] += noise_information
        information, gradient = rows.T @ information @ rows, basis.T @ gradient
        for step in range(VARIANCE_STEPS):
            present, wide = self._present(basis, kinds, state), widths
            if learn:
                if not step:
                    self._alike(kinds, widths, information, gradient + information @ present)
                # Not by what an earlier step has as far off: one after the other, all scales would become unknown.
                wide = self._graded(kinds, widths, information, gradient + information @ present, far)
            prior = self._precision(kinds, wide)
            root = _root(information + prior)
            solution = cho_solve((root, True), gradient - prior @ present)
            # A prior that the data exceeds by far must neither pull the estimate nor pretend to know it.
            times = self._exceeding(kinds, np.abs(solution + present) / wide)[scalars]
            exceeded = times > BEYOND_PRIOR
            widths[scalars[exceeded]] = (wide[scalars] * times)[exceeded]
            settled = not exceeded.any()
            if kinds and learn:
                settled &= self._learn(kinds, solution + present, root)
            if settled:
                break
        if corrected is not None:
            root = _root(corrected + prior)
        return Solution(basis @ solution, rows @ _inverse(root) @ rows.T, self.relative_deviations)

    def step(
        self, equations: NormalEquations, state: State, noise_information: np.ndarray | None = None, learn: bool = True,
        beside: np.ndarray | float = 0.0, far: bool = True,
    ) -> tuple[State, Solution]:  # fmt: skip
        """Return the state after a change as of `solve`, shares that are no longer in doubt `decided`, and the
        solution."""
        solution = self.solve(equations, state, noise_information, learn, beside, far)
        return self.decided(self.unknowns.moved(state, solution.change), solution), solution

    def marginalised(self, equations: NormalEquations, state: State, widened: bool) -> Marginalised:
        """Return the normal equations with the lidars' errors eliminated under their priors, those of scalars that the
        state exceeds by far `widened` or not."""
        information, gradient, fixed = self._with_pose_priors(equations.information, equations.gradient, state)
        basis, kinds = self._basis(fixed)
        rows = sparse.csr_array(basis)
        scalars, widths = _scalars(kinds), np.ones(basis.shape[1])
        present = self._present(basis, kinds, state)
        times = np.abs(present[scalars])
        if widened:
            widths[scalars] = np.where(times > BEYOND_PRIOR, times, 1.0)
        prior = self._precision(kinds, widths)
        gradient = basis.T @ gradient - prior @ present
        information = rows.T @ information @ rows + prior
        units = np.diag(prior) > 0
        factor = _root(information[np.ix_(units, units)]), True
        coupling = information[np.ix_(~units, units)]
        solved = cho_solve(factor, np.column_stack([coupling.T, gradient[units]]))
        return Marginalised(
            information[np.ix_(~units, ~units)] - coupling @ solved[:, :-1],
            gradient[~units] - coupling @ solved[:, -1],
            np.argmax(basis[:, ~units], axis=0), basis[:, units], factor, coupling, gradient[units],
        )  # fmt: skip

    def exceeded(self, state: State) -> bool:
        """Return whether a scalar of a lidar's errors is far beyond its prior."""
        basis, kinds = self._basis(np.zeros(self.unknowns.size, bool))
        return bool(np.any(np.abs(self._present(basis, kinds, state)[_scalars(kinds)]) > BEYOND_PRIOR))

    def decided(self, state: State, solution: Solution) -> State:
        """Return a state in which the shares that say what a driver corrects are 0 or 1, if the data leaves no doubt;
        they are known from then on. Drivers correct all of it or nothing."""
        units = [values.copy() for values in state.units]
        for side, unit in enumerate(self.unknowns.units):
            for index in (CENTRE_SHARE, FIRING_SHARE):
                deviation = np.sqrt(solution.covariance[unit.start + index, unit.start + index])
                share = float(units[side][index])
                nearest = float(share > 0.5)
                if 0 < deviation < SURE_SHARE and abs(share - nearest) < 4.0 * deviation:
                    units[side][index] = nearest
                    self._known.add(unit.start + index)
        return replace(state, units=tuple(units))

    def _with_pose_priors(self, information, gradient, state) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the normal equations with the priors of poses and floor, and which columns (n,) do not vary."""
        information, gradient = information.copy(), gradient.copy()
        priors, gone = self.priors, self.unknowns.difference(state, self.priors.nominal)
        fixed = np.zeros(self.unknowns.size, bool)
        fixed[RIGHT] = len(self.unknowns.poses) < 2  # its columns are there, whether there is a second lidar or not
        for own, covariance in itertools.zip_longest(self.unknowns.poses, priors.poses):
            if covariance is not None and not np.any(covariance):
                fixed[own] = True
                continue
            precision = np.eye(6) / UNKNOWN**2 if covariance is None else np.linalg.inv(covariance)
            information[own, own] += precision
            gradient[own] -= 0.0 if covariance is None else precision @ gone[own]
        if state.floor is None:
            fixed[FLOOR] = fixed[CURVATURE] = True
        else:
            precision = np.array([priors.floor_height, UNKNOWN, UNKNOWN]) ** -2.0
            information[FLOOR, FLOOR] += np.diag(precision)
            gradient[FLOOR] -= precision * gone[FLOOR]
            if priors.curvature:
                information[CURVATURE, CURVATURE] += np.eye(3) / priors.curvature**2
                gradient[CURVATURE] -= gone[CURVATURE] / priors.curvature**2
            else:
                fixed[CURVATURE] = True
        return information, gradient, fixed

    def _basis(self, fixed: np.ndarray) -> tuple[np.ndarray, dict[tuple[int, str], slice]]:
        """Return the unknowns in units of the sensor files: the basis (n, k), and by lidar and kind of errors which of
        the k these are."""
        size, free = self.unknowns.size, ~fixed
        for unit in self.unknowns.units:
            free[unit] = False
        blocks, kinds, count = [np.eye(size)[:, free]], {}, np.count_nonzero(free)
        for lidar, (unit, roots) in enumerate(zip(self.unknowns.units, self._roots, strict=True)):
            for kind, root in ({} if self.priors.units_known else roots).items():
                block = np.zeros((size, root.shape[1]))
                block[unit] = root
                block = block[:, ~np.any(block[list(self._known)], axis=0)]
                if block.shape[1]:
                    kinds[lidar, kind] = slice(count, count + block.shape[1])
                    blocks.append(block)
                    count += block.shape[1]
        return np.hstack(blocks), kinds

    def _together(self, kinds: dict) -> Iterator[tuple[tuple, np.ndarray]]:
        """Yield what lidars of one kind vary by, (lidars, kind of errors), and its columns (L, m) of the basis."""
        for group, kind in self._varying:
            if (group[0], kind) in kinds and kind != "shares":
                own = [kinds[lidar, kind] for lidar in group]
                yield (group, kind), np.array([np.arange(each.start, each.stop) for each in own])

    def _precision(self, kinds: dict, widths: np.ndarray) -> np.ndarray:
        """Return the precision (k, k) of the priors of the lidars' errors; those of scalars `widths` (k,) as wide."""
        prior = np.zeros((len(widths), len(widths)))
        for (_, kind), columns in kinds.items():
            if kind == "shares":
                prior[columns, columns] = np.eye(columns.stop - columns.start)
        for varying, columns in self._together(kinds):
            prior[columns[:, None], columns] = np.linalg.inv(self._varying[varying])[:, :, None]
        return prior / widths / widths[:, None]

    def _exceeding(self, kinds: dict, times: np.ndarray) -> np.ndarray:
        """Return how many standard deviations of their priors the errors of lidars are, of their own `times` (k,): an
        optical centre that is elsewhere than the sensor file has it is so as a whole."""
        found = times.copy()
        for (lidar, kind), own in kinds.items():
            if kind == "scalars":
                centre = own.start + np.flatnonzero(self._roots[lidar][kind][CENTRE].any(axis=0))
                found[centre] = times[centre].max(initial=0.0)
        return found

    def _present(self, basis: np.ndarray, kinds: dict, state: State) -> np.ndarray:
        """Return where the units' parameters of a state are in the basis (k,): the most likely way to make them up."""
        present, deviations = np.zeros(basis.shape[1]), self.relative_deviations
        for lidar, (unit, model, values) in enumerate(
            zip(self.unknowns.units, self.unknowns.models, state.units, strict=True)
        ):
            scale = np.ones(basis.shape[1])
            for (number, kind), own in kinds.items():
                if number == lidar:
                    scale[own] = deviations[lidar][kind]
            # The scalars and each kind of the channels' errors have nothing in common.
            of_scans = model.of_scan_motion, model.of_wander
            for part in (slice(0, len(SCALARS)), *map(model.of_kind, CHANNEL_KINDS), *of_scans):
                block = basis[unit][part]
                rows, own = np.flatnonzero(block.any(axis=1)), np.flatnonzero(block.any(axis=0))
                if not len(rows) or not np.any(values[part]):
                    continue
                root = block[np.ix_(rows, own)] * scale[own]
                # Of least norm (parts may overlap), and regular however small one of the standard deviations is.
                gram = root @ root.T
                size = np.sqrt(np.diag(gram))
                gram = gram / size[:, None] / size + 1e-9 * np.eye(len(gram))
                present[own] = scale[own] * (
                    root.T @ (cho_solve((_root(gram), True), values[part][rows] / size) / size)
                )
        return present

    def _learn(self, kinds: dict, z: np.ndarray, root: np.ndarray) -> bool:
        """Take how the channels' errors vary from the data (expectation maximisation); True once that settles."""
        settled, inverse = True, None
        for varying, columns in self._together(kinds):
            if varying[1] in SCALAR_KINDS:
                continue
            inverse = lapack.dtrtri(root, lower=1)[0] if inverse is None else inverse
            roots = inverse[:, columns]
            squares = np.einsum("lm,km->lk", z[columns], z[columns]) + np.einsum("nlm,nkm->lk", roots, roots)
            before, count = self._varying[varying], columns.shape[1]
            # Units that differ more than the sensor file says count as they are.
            values, axes = np.linalg.eigh((squares + FIRM * before) / (count + FIRM))
            after = (axes * np.maximum(values, LEAST_DEVIATION**2)) @ axes.T
            # What they have in common, which hardly any data shows, may then be as large as what they differ by.
            common = after.mean()
            differing = (np.trace(after) / len(after) - common) * len(after) / max(len(after) - 1, 1)
            if differing > BEYOND_FILE**2:
                after += max(0.0, differing / len(after) - common)
            settled &= np.abs(after - before).max() < 2.0 * CONVERGED * before.max()
            self._varying[varying] = after
        return settled

    def _evidence(
        self, kinds: dict, graded: dict, widths: np.ndarray, information: np.ndarray, gradient: np.ndarray
    ) -> tuple[dict, Callable[[np.ndarray], tuple[float, np.ndarray]]]:
        """Return the `graded` of the kinds of errors by their columns of (s,), and what gives the evidence (log) of
        their priors, `wide` (s,) times as wide, with the most likely values (s,): given the equations (k, k) and (k,)
        about lidars without errors, in which all other unknowns are eliminated, once."""
        own = np.concatenate([np.arange(each.start, each.stop) for each in graded.values()])
        prior = self._precision(kinds, widths)
        others = np.setdiff1d(np.arange(len(widths)), own)
        factor = _root((information + prior)[np.ix_(others, others)]), True
        coupling = information[np.ix_(own, others)]
        solved = cho_solve(factor, np.column_stack([coupling.T, gradient[others]]))
        information = information[np.ix_(own, own)] - coupling @ solved[:, :-1]
        gradient = gradient[own] - coupling @ solved[:, -1]
        ends = np.cumsum([0, *(each.stop - each.start for each in graded.values())]).tolist()
        within = {key: slice(*ends[number : number + 2]) for number, key in enumerate(graded)}

        def evidence(wide: np.ndarray) -> tuple[float, np.ndarray]:
            prior = self._precision(within, wide)
            volume = np.sum(np.log(np.diag(_root(prior.copy()))))
            root = _root(information + prior)
            solved = solve_triangular(root, gradient, lower=True, check_finite=False)
            likely = solve_triangular(root, solved, trans=1, lower=True, check_finite=False)
            return float(0.5 * solved @ solved - np.sum(np.log(np.diag(root))) + volume), likely

        return within, evidence

    def _alike(self, kinds: dict, widths: np.ndarray, information: np.ndarray, gradient: np.ndarray) -> None:
        """Take from the data by which of the shares the channels of lidars of one kind differ from each other, given
        how far they are from the sensor file: for each kind of errors the mean, weighed by their evidence."""
        for varying, columns in self._together(kinds):
            group, kind = varying
            if len(group) < 2 or kind not in CHANNEL_KINDS:
                continue
            graded = {(lidar, kind): kinds[lidar, kind] for lidar in group}
            _, evidence = self._evidence(kinds, graded, widths, information, gradient)
            variance = np.trace(self._varying[varying]) / len(group)
            trials = [variance * trial for trial in _nearly_alike(len(group))]
            self._weigh(varying, trials, evidence, np.ones(columns.size))

    def _weigh(
        self, varying: tuple, trials: list[np.ndarray], evidence: Callable, wide: np.ndarray,
        odds: np.ndarray | float = 1.0,
    ) -> None:  # fmt: skip
        """Let errors vary by the mean of covariances, weighed by their `odds` and `evidence`, as of `_evidence`."""
        found = []
        for trial in trials:
            self._varying[varying] = trial
            found.append(evidence(wide)[0])
        likely = odds * np.exp(np.array(found) - max(found))
        self._varying[varying] = np.tensordot(likely / likely.sum(), trials, axes=1)

    def _graded(
        self, kinds: dict, widths: np.ndarray, information: np.ndarray, gradient: np.ndarray, far: bool
    ) -> np.ndarray:  # fmt: skip
        """Take from the data by which of the shares the scalars of lidars of one kind, and the harmonics of each, vary:
        the mean over all, weighed by their evidence given the equations (k, k) and (k,) about lidars without errors.
        Return the `widths` (k,), with those of the range scales that may be far off."""
        graded = {key: own for key, own in kinds.items() if key[1] in SCALAR_KINDS and key[1] != "shares"}
        own = _scalars(graded)
        if not len(own):
            return widths
        within, evidence = self._evidence(kinds, graded, widths, information, gradient)

        for varying, _ in self._together(within):
            (group, kind), odds = varying, 1.0
            if kind == "harmonics":
                trials = [share**2 * np.eye(len(group)) for share in HARMONICS_SHARES]
            elif kind == "scalars" and len(group) > 1:
                # As far from the sensor file as units of its kind, but not from each other.
                trials = _nearly_alike(len(group))
            elif kind in SHARES_OF_SCANS and self.learns_scans:
                shares, odds = SHARES_OF_SCANS[kind]
                trials = [share**2 * np.eye(len(group)) for share in shares]
            else:
                continue
            self._weigh(varying, trials, evidence, widths[own], odds)
        # No room tells the scale that all have, nor that of one.
        nearest, scales = evidence(widths[own])[0], []
        for (lidar, kind), each in within.items():
            column = each.start + np.flatnonzero(self._roots[lidar][kind][RANGE_SCALE])
            for times in FAR if far and len(column) and len(self.unknowns.models) > 1 else ():
                trial = widths[own].copy()
                trial[column] *= times
                found, values = evidence(trial)
                scales.append((found + np.log(ODDS_OF_FAR), column, values[column]))
        # What may as well be, must be in the covariance, as far as it would be: whose scale it is, often nothing tells.
        best, widened = max([nearest, *(found for found, *_ in scales)]), widths[own].copy()
        for found, column, values in scales:
            if found > best - AS_WELL:
                widened[column] = np.maximum(widened[column], np.hypot(widths[own][column], values))
        graded = widths.copy()
        graded[own] = widened
        return graded


def _nearly_alike(count: int) -> list[np.ndarray]:
    """Return the covariances (L, L) of so many lidars that differ from each other by each of `SHARES`."""
    return [share**2 * np.eye(count) + 1.0 - share**2 for share in SHARES]


def _scalars(kinds: dict) -> np.ndarray:
    """Return which columns (s,) of the basis are scalars of the lidars' errors."""
    own = [np.arange(each.start, each.stop) for (_, kind), each in kinds.items() if kind in SCALAR_KINDS]
    return np.concatenate([np.zeros(0, int), *own])


def _root(matrix: np.ndarray) -> np.ndarray:
    """Return the lower Cholesky factor (k, k) of a symmetric matrix, which is overwritten."""
    return cholesky(matrix.T, lower=True, overwrite_a=True, check_finite=False)


def _inverse(root: np.ndarray) -> np.ndarray:
    """Return the inverse of a matrix (k, k) from its lower Cholesky factor."""
    if not len(root):  # LAPACK prints a complaint
        return root
    lower, _ = lapack.dpotri(root, lower=1)
    inverse = lower + lower.T
    inverse[np.diag_indices(len(inverse))] /= 2.0
    return inverse
