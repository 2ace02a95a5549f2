"""The observations of a stage of the calibration, reduced, so that later stages can solve with all of them.

The normal equations of a stage's residual blocks, without priors, over the lidars' relative poses and the parameters of
their error models. Stored in a file beside the calibration file, bound to the result that was computed from them.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.clouds import are_rows
from stretch_sim_cal.calibration.problem import NormalEquations, State, Unknowns, columns_of
from stretch_sim_cal.calibration.reduction import kept_shares, noise_shares
from stretch_sim_cal.calibration.room import SeenPatches
from stretch_sim_cal.calibration.solver import Solution
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import BROKEN_ARRAYS
from stretch_sim_cal.geometry.transforms import SIDES, adjoint, apply, inverse, log
from stretch_sim_cal.sensor.unit import SCALARS, WAVES, ErrorModel, UnitSpread, weak_echo

SUFFIX = ".observations.npz"
PLACES = ".places.npz"
# The smallest standard deviation (m, rad) of a known transform.
EXACT = 1e-7
TABLE = ("elevations", "azimuth_offsets", "optical_centre", "firing_azimuths", "near_length", "scan_begin")


@dataclass(frozen=True)
class FloorByUnits:
    """The dependence of an estimated floor on the scalars of two lidars' errors, (28,), or of one (14,), which were
    `scalars` then: `gain` (3, 28) are the derivatives of the floor (height at base_link's origin in m, tilts about x
    and y in rad) by them, `conditional` (3, 3) its covariance given the scalars."""

    gain: np.ndarray
    scalars: np.ndarray
    conditional: np.ndarray

    @classmethod
    def of(
        cls, solution: Solution, unknowns: Unknowns, state: State, floor_in_base: np.ndarray, lidars: Sequence[int]
    ) -> "FloorByUnits":
        """Return it for a solution, the matrix `floor_in_base` (3, 3) that maps changes of its floor into base_link,
        and these lidars, with the errors of others marginalised."""
        columns = unknowns.scalars.reshape(-1, len(SCALARS))[list(lidars)].ravel()
        between = floor_in_base @ solution.covariance[unknowns.floor][:, columns]
        of_scalars = solution.covariance[np.ix_(columns, columns)]
        gain = between @ np.linalg.pinv(of_scalars, rcond=1e-10, hermitian=True)
        floor = floor_in_base @ solution.covariance[unknowns.floor, unknowns.floor] @ floor_in_base.T
        return cls(gain, scalars_of([state.units[lidar] for lidar in lidars]), floor - gain @ between.T)


def scalars_of(units: Sequence[np.ndarray]) -> np.ndarray:
    """Return the scalars (14 n,) of the lidars' parameters, the first one's first."""
    return np.concatenate([values[: len(SCALARS)] for values in units])


@dataclass(frozen=True)
class Observations:
    """Normal equations `information` (m, m) and `gradient` (m,) over the twists of all lidars but the first in the
    first one's frame, then over the lidars' parameters; linearised at the poses `poses_at` (4, 4) of these lidars in
    the first one's frame and the parameters `at_units`, of lidars with these `models`. A motion of all lidars as one
    body is not observed, and changes nothing.

    The result computed from them: `poses` (4, 4), their `covariance` (6 (n - 1), 6 (n - 1)), and `units`, the
    parameters; the dependence of a `floor` estimated later on these; and, for pictures, the `patches` of the first
    standing place, in the first lidar's frame. Observations of a transform by its covariance alone have no models.
    `names` are the lidars' names in the calibration file. `noise_information` is the part of the information about the
    poses that is by noise alone, `added` a covariance of the poses that the equations do not have yet, as by motion;
    neither is stored in files.
    """

    poses_at: tuple[np.ndarray, ...]
    at_units: tuple[np.ndarray, ...]
    information: np.ndarray
    gradient: np.ndarray
    models: tuple[ErrorModel, ...]
    poses: tuple[np.ndarray, ...]
    covariance: np.ndarray
    units: tuple[np.ndarray, ...]
    floor: FloorByUnits | None = None
    patches: SeenPatches | None = None
    names: tuple[str, ...] = SIDES
    noise_information: np.ndarray | None = None
    added: np.ndarray | None = None

    @classmethod
    def of(
        cls, equations: NormalEquations, unknowns: Unknowns, state: State, result: State, covariance: np.ndarray,
        added: np.ndarray,
    ) -> "Observations":  # fmt: skip
        """Return the observations of equations, with their noise, at a state, its frame being the first lidar's, and
        their `result`, with the `covariance` of its poses, of which the part `added` is not by the equations."""
        columns = np.concatenate([unknowns.free_poses, *map(columns_of, unknowns.units)])
        return cls(
            state.base_from_lidar[1:], state.units, equations.information[np.ix_(columns, columns)],
            equations.gradient[columns], unknowns.models, result.base_from_lidar[1:], covariance, result.units,
            noise_information=equations.noise, added=added,
        )  # fmt: skip

    @classmethod
    def of_known_poses(
        cls, poses: tuple[np.ndarray, ...], covariance: np.ndarray, names: tuple[str, ...] = SIDES
    ) -> "Observations":
        """Return the observations of the lidars' poses (4, 4) in the first one's frame by their covariance (6 m, 6 m);
        `names` are those of all. Raises `InputError` for another shape, or values that are not finite."""
        covariance, size = np.asarray(covariance, dtype=float), 6 * len(poses)
        if covariance.shape != (size, size) or not np.isfinite(covariance).all():
            raise InputError(f"the alignment's covariance: must be a {size}x{size} matrix of finite numbers")
        information = np.linalg.inv(covariance + EXACT**2 * np.eye(size))
        return cls(poses, (), information, np.zeros(size), (), poses, covariance, (), names=names)

    def in_order(
        self, order: Sequence[int], names: Sequence[str], poses: Mapping[str, np.ndarray], covariance: np.ndarray,
        units: Sequence[np.ndarray],
    ) -> "Observations":  # fmt: skip
        """Return the same with the lidars in another order, called `names`, all in the frame of the first one in it,
        and the result of a later estimate: the `poses` (4, 4) of the others in that frame, their `covariance`, and the
        parameters `units` of the lidars in the old order."""
        at, unknowns = (np.eye(4), *self.poses_at), Unknowns(self.models)
        to_first = inverse(at[order[0]])
        state = State(tuple(to_first @ pose for pose in at), self.at_units)
        equations = self._less_certain().equations_at(state, unknowns)
        slices = [unknowns.poses[lidar] for lidar in order[1:]] + [unknowns.units[lidar] for lidar in order]
        columns = np.concatenate(list(map(columns_of, slices)))
        patches = self.patches
        if patches is not None:
            patches = replace(patches, centres=apply(to_first, patches.centres))
        return Observations(
            tuple(state.base_from_lidar[lidar] for lidar in order[1:]), tuple(self.at_units[lidar] for lidar in order),
            equations.information[np.ix_(columns, columns)], equations.gradient[columns],
            tuple(self.models[lidar] for lidar in order), tuple(poses.values()), covariance,
            tuple(units[lidar] for lidar in order), None, patches, tuple(names),
        )  # fmt: skip

    def of_first(self, lidars: int) -> "Observations":
        """Return the observations of the first so many lidars, with poses and errors of the others marginalised."""
        others = lidars - 1
        if len(self.poses) <= others:
            return self
        first, count = 6 * len(self.poses), sum(map(len, self.at_units[:lidars]))
        kept = np.concatenate([np.arange(6 * others), first + np.arange(count)])
        eliminated = np.setdiff1d(np.arange(len(self.gradient)), kept)
        share = self.information[np.ix_(kept, eliminated)] @ np.linalg.pinv(
            self.information[np.ix_(eliminated, eliminated)], rcond=1e-12, hermitian=True
        )
        return replace(
            self, poses_at=self.poses_at[:others], at_units=self.at_units[:lidars], models=self.models[:lidars],
            poses=self.poses[:others], covariance=self.covariance[: 6 * others, : 6 * others],
            units=self.units[:lidars], names=self.names[:lidars],
            information=self.information[np.ix_(kept, kept)] - share @ self.information[np.ix_(eliminated, kept)],
            gradient=self.gradient[kept] - share @ self.gradient[eliminated],
        )  # fmt: skip

    def better(self, units: tuple[np.ndarray, ...]) -> "Observations | None":
        """Return the same with parameters of the first lidars by a later stage, and the floor that follows; None if
        these are of lidars with other channels."""
        if any(len(old) != len(new) for old, new in zip(self.units, units, strict=False)):
            return None
        floor = self.floor
        if floor is not None:  # it may depend on fewer lidars
            floor = replace(floor, scalars=scalars_of(units)[: len(floor.scalars)])
        return replace(self, units=(*units, *self.units[len(units) :]), floor=floor)

    def corrected(self, name: str, cloud: np.ndarray) -> np.ndarray:
        """Return the points (N, 3) of a lidar's returns (N, 5) without its errors except that by incidence; uncorrected
        for returns without ring and intensity (N, 3), or for a lidar whose errors are unknown."""
        if not self.models or name not in self.names:
            return cloud[:, :3]
        side = self.names.index(name)
        model = self.models[side]
        if cloud.shape[1] < 5 or cloud[:, 3].max(initial=0) >= model.num_channels or are_rows(model.elevations):
            return cloud[:, :3]
        returns = model.returns(cloud[:, :3], cloud[:, 3].astype(np.int64), weak_echo(cloud[:, 4]))
        return model.corrected(returns, 1.0, self.units[side]).astype(cloud.dtype)

    @property
    def by_ring(self) -> bool:
        """Whether channels are the clouds' rings, not rows of about equal elevation."""
        return not all(are_rows(model.elevations) for model in self.models)

    def of_the_transform(self, position: float = 0.0, angle: float = 0.0) -> "Observations":
        """Return those of the poses only, by their covariance, inflated by standard deviations in m and rad."""
        inflation = np.tile([position**2] * 3 + [angle**2] * 3, len(self.poses))
        return Observations.of_known_poses(self.poses, self.covariance + np.diag(inflation), self.names)

    def off(self, poses: Sequence[np.ndarray]) -> np.ndarray:
        """Return the differences (n - 1,), in standard deviations, of poses (4, 4) of the lidars, in any frame, from
        the result's, of all but the first."""
        twists = _twists(poses, self.poses).reshape(-1, 6)
        known = self.of_the_transform().covariance + EXACT**2 * np.eye(twists.size)
        blocks = (known[first : first + 6, first : first + 6] for first in range(0, twists.size, 6))
        return np.array([
            np.sqrt(twist @ np.linalg.solve(block, twist)) for twist, block in zip(twists, blocks, strict=True)
        ])  # fmt: skip

    @property
    def knows_units(self) -> bool:
        """Whether the lidars' own errors are among the observed unknowns."""
        return bool(self.models)

    def fits(self, models: Sequence[ErrorModel]) -> bool:
        """Return whether these are observations of lidars with the same channels, or of poses only."""
        pairs = zip(self.models, models, strict=False)
        return all(np.array_equal(model.elevations, other.elevations) for model, other in pairs)

    def equations_at(self, state: State, unknowns: Unknowns) -> NormalEquations:
        """Return the normal equations over all unknowns at another state, the poses in any frame."""
        poses, size = state.base_from_lidar[: len(self.poses_at) + 1], 6 * len(self.poses_at)
        gradient = self._gradient_at(poses, state.units)
        equations, by_pose = NormalEquations.empty(unknowns.size), by_poses(poses[0], len(self.poses_at))
        columns = unknowns.pose_columns[: 6 * len(poses)]
        units = np.concatenate(list(map(columns_of, unknowns.units)))[: len(gradient) - size]
        equations.information[np.ix_(columns, columns)] = by_pose.T @ self.information[:size, :size] @ by_pose
        equations.information[np.ix_(columns, units)] = by_pose.T @ self.information[:size, size:]
        equations.information[np.ix_(units, columns)] = (by_pose.T @ self.information[:size, size:]).T
        equations.information[np.ix_(units, units)] = self.information[size:, size:]
        equations.gradient[columns], equations.gradient[units] = by_pose.T @ gradient[:size], gradient[size:]
        return equations

    def bias_corrected(self) -> "Observations":
        """Return the same, linearised at the result, corrected for the noise information about the poses.

        The result does not change along the directions in which little information remains.
        """
        information, gradient = self.information.copy(), self._gradient_at((np.eye(4), *self.poses), self.units)
        size = len(self.noise_information)
        poses, units = slice(size), slice(size, None)
        by_units = information[poses, units] @ np.linalg.pinv(information[units, units], hermitian=True)
        of_poses = information[poses, poses] - by_units @ information[units, poses]
        axes, shares = noise_shares((of_poses + of_poses.T) / 2.0, self.noise_information)
        lost = 1.0 - kept_shares(shares)
        information[poses, poses] -= (axes * lost) @ axes.T
        gradient[poses] -= (axes * lost) @ np.linalg.solve(axes, gradient[poses] - by_units @ gradient[units])
        corrected = replace(self, poses_at=self.poses, at_units=self.units, information=information, gradient=gradient)
        return corrected._less_certain()

    def _less_certain(self) -> "Observations":
        """Return the same with the covariance `added`: twists of which it is the prior are eliminated."""
        if self.added is None:
            return self
        values, axes = np.linalg.eigh(self.added)
        root, poses = axes * np.sqrt(np.maximum(values, 0.0)), slice(len(axes))
        about = root.T @ np.column_stack([self.information[poses], self.gradient[poses]])
        share = np.linalg.solve(np.eye(len(axes)) + about[:, poses] @ root, about)
        changes = about[:, :-1].T @ share
        return replace(
            self, information=self.information - changes[:, :-1], gradient=self.gradient - changes[:, -1], added=None
        )

    def _gradient_at(self, poses: Sequence[np.ndarray], units: Sequence[np.ndarray]) -> np.ndarray:
        """Return the gradient (m,) at other poses (4, 4) of all lidars, in any frame, and parameters."""
        deltas = [now - then for now, then in zip(units, self.at_units, strict=False)]
        return self.gradient - self.information @ np.concatenate([_twists(poses, self.poses_at), *deltas])

    def of_poses(self, poses: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return information (6 n, 6 n) and gradient (6 n,) about twists of the lidars' poses (4, 4), if nothing but
        the transforms is observed."""
        by_pose = by_poses(poses[0], len(self.poses_at))
        return by_pose.T @ self.information @ by_pose, by_pose.T @ self._gradient_at(poses, ())

    def beside(self, calibration_file: Path) -> tuple[Path, Callable[[BinaryIO], object]]:
        """Return the path beside a calibration file, and the function that writes it (see `CalibrationFile.update`)."""
        return path_beside(calibration_file), self.write

    def write(self, stream: BinaryIO) -> None:
        """Write the content of the file."""
        rows, columns = np.tril_indices(len(self.gradient))
        np.savez_compressed(
            stream, at=np.squeeze(self.poses_at, 0) if len(self.poses_at) == 1 else self.poses_at,
            information=self.information[rows, columns], gradient=self.gradient,
            result=np.squeeze(self.poses, 0) if len(self.poses) == 1 else self.poses, covariance=self.covariance,
            names=self.names,
            **{f"{lidar}_{name}": value
               for lidar, model, at, unit in zip(_names(len(self.models)), self.models, self.at_units, self.units,
                                                 strict=True)
               for name, value in (_table(model) | {"unit": at, "result": unit}).items()},
            **({f"floor_{name}": value for name, value in vars(self.floor).items()} if self.floor else {}),
            **({f"patch_{name}": value for name, value in vars(self.patches).items()} if self.patches else {}),
        )  # fmt: skip

    @classmethod
    def load(cls, path: Path) -> "Observations":
        """Return the observations in a file. Raises `InputError` if it is truncated, or of another version."""
        try:
            with np.load(path, allow_pickle=False) as data:
                gradient = data["gradient"]
                information = np.zeros((len(gradient), len(gradient)))
                information[np.tril_indices(len(gradient))] = data["information"]
                information += np.tril(information, -1).T
                poses_at, poses = (tuple(np.reshape(data[name], (-1, 4, 4))) for name in ("at", "result"))
                lidars = _names(len(poses) + 1)
                models = tuple(_model([data[f"{lidar}_{name}"] for name in TABLE]) for lidar in lidars)
                at_units, units = (tuple(data[f"{lidar}_{which}"] for lidar in lidars) for which in ("unit", "result"))
                missing, *others = {model.size - len(values) for model, values in zip(models, units, strict=True)}
                if 0 < missing <= len(WAVES) and not others:
                    information, gradient, at_units, units = _padded(missing, information, gradient, at_units, units)
                if [len(values) for values in units] != [model.size for model in models]:
                    raise ValueError("of a version with other errors of the lidars")
                floor, patches = _part(FloorByUnits, data, "floor_"), _part(SeenPatches, data, "patch_")
                covariance, names = data["covariance"], tuple(map(str, data["names"]))
                return cls(
                    poses_at, at_units, information, gradient, models, poses, covariance, units, floor, patches, names
                )
        except BROKEN_ARRAYS as problem:
            raise InputError(
                f"{path}: is truncated or not an observations file ({problem}); align the lidars again"
            ) from problem


def _padded(
    missing: int, information: np.ndarray, gradient: np.ndarray, *units: Sequence[np.ndarray]
) -> tuple[Any, ...]:
    """Return equations and units' parameters of a file from before these had the last of `WAVES`, of which they say
    nothing."""
    known = [np.ones(len(gradient) - sum(map(len, units[0])), bool)]  # the poses
    for values in units[0]:
        known += [np.ones(len(values), bool), np.zeros(missing, bool)]
    columns = np.flatnonzero(np.concatenate(known))
    equations = NormalEquations.empty(sum(map(len, known)))
    equations.information[np.ix_(columns, columns)], equations.gradient[columns] = information, gradient
    padded = (tuple(np.pad(values, (0, missing)) for values in own) for own in units)
    return equations.information, equations.gradient, *padded


def by_poses(first: np.ndarray, others: int = 1) -> np.ndarray:
    """Return the derivatives (6 m, 6 (m + 1)) of the twists of m other lidars' poses in the first one's frame by twists
    of the first lidar, at a pose (4, 4), and of the others."""
    to_first = adjoint(inverse(first))
    return np.hstack([np.kron(np.ones((others, 1)), -to_first), np.kron(np.eye(others), to_first)])


def _twists(poses: Sequence[np.ndarray], to_first: Sequence[np.ndarray]) -> np.ndarray:
    """Return the twists (6 m,) from `to_first`, the poses (4, 4) of all lidars but the first in its frame, to those of
    `poses`, in any frame."""
    first = inverse(poses[0])
    return np.concatenate([log(first @ pose @ inverse(at)) for pose, at in zip(poses[1:], to_first, strict=True)])


def _names(count: int) -> tuple[str, ...]:
    """Return the lidars' names in the file."""
    return (*SIDES, *(f"lidar_{number}" for number in range(len(SIDES), count)))[:count]


def _table(model: ErrorModel) -> dict[str, np.ndarray]:
    firing = np.zeros(0) if model.firing_azimuths is None else model.firing_azimuths
    values = (
        model.elevations, model.azimuth_offsets, model.optical_centre, firing, model.spread.near_length,
        model.scan_begin,
    )  # fmt: skip
    return dict(zip(TABLE, map(np.asarray, values), strict=True))


def _model(table: Sequence[np.ndarray]) -> ErrorModel:
    elevations, offsets, centre, firing, near_length, begin = table
    spread = UnitSpread(near_length=float(near_length))
    return ErrorModel(spread, elevations, offsets, centre, firing if len(firing) else None, float(begin))


def _part(kind: type, data: Mapping[str, np.ndarray], prefix: str) -> Any:
    """Return the record whose fields a file has with this prefix; None if it has none of them."""
    fields = {name.removeprefix(prefix): data[name] for name in data if name.startswith(prefix)}
    return kind(**fields) if fields else None


def path_beside(calibration_file: Path) -> Path:
    """Return the path of the observations of a calibration file, of a symbolic link that of its target."""
    return _with_suffix(calibration_file, SUFFIX)


def places_beside(calibration_file: Path) -> Path:
    """Return the path of the standing places that were seen for a calibration file's alignment."""
    return _with_suffix(calibration_file, PLACES)


def _with_suffix(calibration_file: Path, suffix: str) -> Path:
    path = Path(os.path.realpath(calibration_file))
    return path.with_name(path.stem + suffix)


def num_places(calibration_file: Path) -> int:
    """Return the number of standing places of a calibration file's alignment; 0 if they are not stored."""
    try:
        with np.load(places_beside(calibration_file), allow_pickle=False) as data:
            return int(data["places"])
    except BROKEN_ARRAYS:
        return 0


def load_beside(file: CalibrationFile) -> Observations | None:
    """Return the observations, of all lidars, of the alignment in a calibration file; None if there are none, or they
    are of another alignment. Raises `InputError` if they are truncated."""
    if file.path is None or not file.aligned or not path_beside(file.path).is_file():
        return None
    stored = Observations.load(path_beside(file.path))
    return stored if are_of(file.to_left, dict(zip(stored.names[1:], stored.poses, strict=True))) else None


def are_of(to_left: Mapping[str, np.ndarray], poses: Mapping[str, np.ndarray]) -> bool:
    """Return whether `poses` (4, 4) of lidars by name are those of an alignment, `to_left`."""
    return all(name in to_left and np.allclose(pose, to_left[name], atol=1e-9) for name, pose in poses.items())


def known_alignment(file: CalibrationFile, lidars: Sequence[str] = SIDES) -> Observations | None:
    """Return the observations of the alignment of these lidars, the left one first, in a calibration file, if they are
    beside it, else those of the transforms by their covariances; None of one lidar, or if the file does not have them
    all, or lacks a covariance.

    Raises `InputError` if the observations are truncated.
    """
    names = tuple(lidars)
    if len(names) == 1 or not set(names[1:]) <= file.to_left.keys():
        return None
    covariance, stored = file.covariance_to_left(names[1:]), load_beside(file)
    stored = stored.of_first(len(names)) if stored is not None and stored.names[: len(names)] == names else None
    if covariance is None:
        return stored
    if stored is not None:
        return replace(stored, covariance=covariance if len(names) == len(SIDES) else stored.covariance)
    return Observations.of_known_poses(tuple(file.to_left[name] for name in names[1:]), covariance, names)
