"""What a stage of the calibration has observed, reduced: so that later stages can solve with all of it.

The normal equations of a stage's residual blocks, without priors, over both lidars' poses in base_link and the parameters
of their error models. Kept in a file beside the calibration file, bound to the result that was made of it.
"""

import zipfile
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from stretch_sim_cal.calibration.problem import LEFT, RIGHT, NormalEquations, State, Unknowns
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import write_atomic
from stretch_sim_cal.geometry.transforms import adjoint, inverse
from stretch_sim_cal.sensor.unit import ErrorModel

SUFFIX = ".observations.npz"


@dataclass(frozen=True)
class Observations:
    """Normal equations `information` (n, n) and `gradient` (n,) at a `state`, the poses in base_link; the columns are those
    of `problem.Unknowns` for lidars whose channels have `elevations`, (C,) each. `result` is the transform
    left_from_right (4, 4) that was made of them."""

    state: State
    information: np.ndarray
    gradient: np.ndarray
    elevations: tuple[np.ndarray, np.ndarray]
    result: np.ndarray

    @classmethod
    def of(
        cls, equations: NormalEquations, unknowns: Unknowns, state: State, result: np.ndarray, base_from_frame: np.ndarray
    ) -> "Observations":  # fmt: skip
        """Return what equations say whose poses are in a frame that is at `base_from_frame` (4, 4)."""
        change = np.eye(unknowns.size)
        change[LEFT, LEFT] = change[RIGHT, RIGHT] = adjoint(inverse(base_from_frame))
        poses = tuple(base_from_frame @ pose for pose in state.base_from_lidar)
        return cls(
            State(poses, state.units), change.T @ equations.information @ change, change.T @ equations.gradient,
            tuple(model.elevations for model in unknowns.models), result,
        )  # fmt: skip

    def fits(self, models: tuple[ErrorModel, ErrorModel]) -> bool:
        """Return whether these are observations of lidars with the same channels."""
        return all(np.array_equal(own, model.elevations) for own, model in zip(self.elevations, models, strict=True))

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
                information=self.information[rows, columns].astype(np.float64), gradient=self.gradient,
                left_elevations=self.elevations[0], right_elevations=self.elevations[1], result=self.result,
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
                elevations = (data["left_elevations"], data["right_elevations"])
                return cls(state, information, gradient, elevations, data["result"])
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as problem:
            raise InputError(f"{path}: is torn or no file of observations ({problem}); align the lidars again") from problem


def path_beside(calibration_file: Path) -> Path:
    """Return where the observations of a calibration file are."""
    return calibration_file.with_name(calibration_file.stem + SUFFIX)


def load_beside(calibration_file: Path | None, right_to_left: np.ndarray | None) -> Observations | None:
    """Return the observations that the alignment (4, 4) in a calibration file was made of; None if there are none, or they
    are of another alignment. Raises `InputError` if they are torn."""
    if calibration_file is None or right_to_left is None or not path_beside(Path(calibration_file)).is_file():
        return None
    found = Observations.load(path_beside(Path(calibration_file)))
    return found if np.allclose(found.result, right_to_left, atol=1e-9) else None
