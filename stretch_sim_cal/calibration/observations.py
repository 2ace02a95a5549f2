"""What a stage of the calibration has observed, reduced: so that later stages can solve with all of it.

The normal equations of a stage's residual blocks, without priors, over both lidars' poses in base_link and the parameters
of their error models. Kept in a file beside the calibration file, bound to the result that was made of it.
"""

import zipfile
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from stretch_sim_cal.calibration.problem import FLOOR, LEFT, RIGHT, NormalEquations, Solution, State, Unknowns
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import write_atomic
from stretch_sim_cal.geometry.transforms import SIDES, adjoint, inverse
from stretch_sim_cal.sensor.unit import SCALARS, ErrorModel, UnitSpread, weak_echo

SUFFIX = ".observations.npz"
TABLE = ("elevations", "azimuth_offsets", "optical_centre", "firing_azimuths", "near_length")


@dataclass(frozen=True)
class FloorByUnits:
    """How a floor that was found depends on the scalars of both lidars' errors, (28,), which were `scalars` then: the floor
    (height at base_link's origin in m, tilts about x and y in rad) changes by `gain` (3, 28) with them, and has the
    covariance `conditional` (3, 3) if they are known."""

    gain: np.ndarray
    scalars: np.ndarray
    conditional: np.ndarray

    @classmethod
    def of(cls, solution: Solution, unknowns: Unknowns, state: State, floor_in_base: np.ndarray) -> "FloorByUnits":
        """Return it for a solution whose floor's changes `floor_in_base` (3, 3) brings into base_link."""
        columns = np.concatenate([unit.start + np.arange(len(SCALARS)) for unit in unknowns.units])
        between = floor_in_base @ solution.covariance[FLOOR][:, columns]
        own = solution.covariance[np.ix_(columns, columns)]
        gain = between @ np.linalg.pinv(own, rcond=1e-10, hermitian=True)
        floor = floor_in_base @ solution.covariance[FLOOR, FLOOR] @ floor_in_base.T
        return cls(gain, scalars_of(state.units), floor - gain @ between.T)


def scalars_of(units: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return the scalars (28,) of both lidars' parameters, the left one's first."""
    return np.concatenate([values[: len(SCALARS)] for values in units])


@dataclass(frozen=True)
class Observations:
    """Normal equations `information` (n, n) and `gradient` (n,) at a `state`, the poses in base_link; the columns are those
    of `problem.Unknowns` for lidars with these `models`. What was made of them: `result`, the transform left_from_right
    (4, 4), and `units`, the parameters (n,) of both lidars; and how the `floor` that was found since depends on these."""

    state: State
    information: np.ndarray
    gradient: np.ndarray
    models: tuple[ErrorModel, ErrorModel]
    result: np.ndarray
    units: tuple[np.ndarray, np.ndarray]
    floor: FloorByUnits | None = None

    @classmethod
    def of(
        cls, equations: NormalEquations, unknowns: Unknowns, state: State, result: State, base_from_frame: np.ndarray
    ) -> "Observations":  # fmt: skip
        """Return what equations at a state say, and the `result` made of them; their poses are in a frame that is at
        `base_from_frame` (4, 4)."""
        change = np.eye(unknowns.size)
        change[LEFT, LEFT] = change[RIGHT, RIGHT] = adjoint(inverse(base_from_frame))
        poses = tuple(base_from_frame @ pose for pose in state.base_from_lidar)
        return cls(
            State(poses, state.units), change.T @ equations.information @ change, change.T @ equations.gradient,
            unknowns.models, result.left_from_right, result.units,
        )  # fmt: skip

    def same_parameters(self, units: tuple[np.ndarray, np.ndarray]) -> bool:
        """Return whether these are parameters of lidars with as many channels."""
        return all(len(own) == len(other) for own, other in zip(self.units, units, strict=True))

    def knowing(self, units: tuple[np.ndarray, np.ndarray]) -> "Observations":
        """Return the same where the lidars' parameters have been found better since, and the floor with them."""
        floor = None if self.floor is None else replace(self.floor, scalars=scalars_of(units))
        return replace(self, units=units, floor=floor)

    def in_frame(self, target_from_base: np.ndarray) -> "Observations":
        """Return the same with poses in another frame, by its transform (4, 4)."""
        moved = Observations.of(
            NormalEquations(self.information, self.gradient),
            Unknowns(self.models),
            self.state,
            self.state,
            target_from_base,
        )
        return replace(moved, result=self.result, units=self.units, floor=self.floor)

    def corrected(self, side: int, cloud: np.ndarray) -> np.ndarray:
        """Return the points (N, 3) of a lidar's returns (N, 5) with its errors taken out, but for that by incidence; those of
        returns without ring and intensity (N, 3) as they are."""
        model = self.models[side]
        if cloud.shape[1] < 5 or cloud[:, 3].max(initial=0) >= model.num_channels or not self.by_ring:
            return cloud[:, :3]
        returns = model.returns(cloud[:, :3], cloud[:, 3].astype(np.int64), weak_echo(cloud[:, 4]))
        return model.corrected(returns, 1.0, self.units[side]).astype(cloud.dtype)

    @property
    def by_ring(self) -> bool:
        """Whether channels are the clouds' rings, not rows of about equal elevation."""
        return any(np.any(model.azimuth_offsets) for model in self.models)

    def fits(self, models: tuple[ErrorModel, ErrorModel]) -> bool:
        """Return whether these are observations of lidars with the same channels."""
        return all(
            np.array_equal(own.elevations, other.elevations) for own, other in zip(self.models, models, strict=True)
        )

    def at(self, state: State, unknowns: Unknowns) -> NormalEquations:
        """Return the normal equations at another state, poses in base_link, over the same columns."""
        size = len(self.gradient)
        gone = unknowns.difference(replace(state, floor=None), self.state)[:size]
        return NormalEquations(self.information, self.gradient - self.information @ gone)

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        rows, columns = np.tril_indices(len(self.gradient))

        def write(stream) -> None:
            np.savez_compressed(
                stream, left=self.state.base_from_lidar[0], right=self.state.base_from_lidar[1],
                left_unit=self.state.units[0], right_unit=self.state.units[1],
                information=self.information[rows, columns], gradient=self.gradient, result=self.result,
                left_result=self.units[0], right_result=self.units[1],
                **{f"{side}_{name}": value for side, model in zip(SIDES, self.models, strict=True)
                   for name, value in _table(model).items()},
                **({} if self.floor is None else {f"floor_{name}": value for name, value in vars(self.floor).items()}),
            )  # fmt: skip

        write_atomic(path, write)

    @classmethod
    def load(cls, path: Path) -> "Observations":
        """Return the observations in a file. Raises `InputError` if it is torn."""
        try:
            with np.load(path, allow_pickle=False) as data:
                gradient = data["gradient"]
                information = np.zeros((len(gradient), len(gradient)))
                information[np.tril_indices(len(gradient))] = data["information"]
                information += np.tril(information, -1).T
                state = State((data["left"], data["right"]), (data["left_unit"], data["right_unit"]))
                models = tuple(_model({name: data[f"{side}_{name}"] for name in TABLE}) for side in SIDES)
                units = (data["left_result"], data["right_result"])
                names = [name for name in FloorByUnits.__dataclass_fields__ if f"floor_{name}" in data]
                floor = FloorByUnits(**{name: data[f"floor_{name}"] for name in names}) if names else None
                return cls(state, information, gradient, models, data["result"], units, floor)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as problem:
            raise InputError(
                f"{path}: is torn or no file of observations ({problem}); align the lidars again"
            ) from problem


def _table(model: ErrorModel) -> dict[str, np.ndarray]:
    firing = np.zeros(0) if model.firing_azimuths is None else model.firing_azimuths
    values = (model.elevations, model.azimuth_offsets, model.optical_centre, firing, model.spread.near_length)
    return dict(zip(TABLE, map(np.asarray, values), strict=True))


def _model(table: dict[str, np.ndarray]) -> ErrorModel:
    elevations, offsets, centre, firing, near_length = (table[name] for name in TABLE)
    spread = UnitSpread(near_length=float(near_length))
    return ErrorModel(spread, elevations, offsets, centre, firing if len(firing) else None)


def path_beside(calibration_file: Path) -> Path:
    """Return where the observations of a calibration file are."""
    return calibration_file.with_name(calibration_file.stem + SUFFIX)


def load_beside(calibration_file: str | Path | None, right_to_left: np.ndarray | None) -> Observations | None:
    """Return the observations that the alignment (4, 4) in a calibration file was made of; None if there are none, or they
    are of another alignment. Raises `InputError` if they are torn."""
    if calibration_file is None or right_to_left is None or not path_beside(Path(calibration_file)).is_file():
        return None
    found = Observations.load(path_beside(Path(calibration_file)))
    return found if np.allclose(found.result, right_to_left, atol=1e-9) else None
