"""The lidars' own errors in the mounts' system: unknowns beside it, eliminated before links and joints are weighed.

The robot's own surfaces are the only ones whose place is known, so they tell of range errors what no room can; and a
range error that nobody estimates moves the mounts by as much.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve

from stretch_sim_cal.calibration.clouds import Grid
from stretch_sim_cal.calibration.mounts.rays import Matches
from stretch_sim_cal.calibration.observations import Observations
from stretch_sim_cal.calibration.problem import BEYOND_PRIOR, LEFT, RIGHT, State, Unknowns
from stretch_sim_cal.geometry.points import group_sums
from stretch_sim_cal.geometry.transforms import SIDES
from stretch_sim_cal.sensor.sensor import Sensor
from stretch_sim_cal.sensor.unit import (
    CHANNEL_KINDS,
    INCIDENCE,
    SCALARS,
    UNKNOWN_SENSOR,
    ErrorModel,
    Returns,
    weak_echo,
)

RING, INTENSITY = 3, 4  # columns of clouds (N, 5)
NUM_SCALARS = len(SCALARS)


class Units:
    """Both lidars' error models with the parameters found so far, `values` (2 n,), the left one's first.

    A sensor's table is used if clouds have their rings, (N, 5): x, y, z, ring, intensity. Otherwise (N, 3) a channel is a
    row of about equal elevation.
    """

    def __init__(self, sensor: Sensor | None, clouds: Sequence[np.ndarray]):
        """`clouds` are all that returns will be asked of."""
        self._grid = None
        if sensor is not None and all(cloud.shape[1] > RING for cloud in clouds):
            self.model = sensor.error_model()
        else:
            self._grid = Grid.by_elevation()
            rows = np.unique(np.concatenate([self._row(cloud[:, :3]) for cloud in clouds]))
            self._channel = np.zeros(len(self._grid.elevations), dtype=np.int64)
            self._channel[rows] = np.arange(len(rows))
            spread = UNKNOWN_SENSOR if sensor is None else sensor.spread
            centre = np.zeros(3) if sensor is None else sensor.optical_centre
            self.model = ErrorModel(spread, self._grid.elevations[rows], np.zeros(len(rows)), centre)
        roots = self.model.prior_roots()
        one = np.hstack(list(roots.values()))
        zero = np.zeros_like(one)
        self._root, self.values = np.block([[one, zero], [zero, one]]), np.zeros(2 * self.model.size)
        self._scalars = np.r_[0 : roots["scalars"].shape[1]]
        self._scalars = np.concatenate([self._scalars, one.shape[1] + self._scalars])
        self._z = np.zeros(2 * one.shape[1])

    def start_at(self, values: Sequence[np.ndarray]) -> None:
        """Begin with parameters (n,) of the left and of the right lidar that are known from elsewhere."""
        self._moved_to(np.linalg.lstsq(self._root, np.concatenate(values), rcond=1e-9)[0])

    def _moved_to(self, z: np.ndarray) -> None:
        """Take over the parameters in units of their prior; a prior that they exceed by far is widened (as in `Solver`)."""
        times = np.ones(len(z))
        times[self._scalars] = np.where(np.abs(z[self._scalars]) > BEYOND_PRIOR, np.abs(z[self._scalars]), 1.0)
        self._root, self._z = self._root * times, z / times
        self.values = self._root @ self._z

    def _row(self, points: np.ndarray) -> np.ndarray:
        ranges = np.maximum(np.linalg.norm(points, axis=1), 1e-6)
        return self._grid.row_of(self._grid.cell_of(points, ranges))

    def of_side(self, side: str) -> slice:
        start = self.model.size * SIDES.index(side)
        return slice(start, start + self.model.size)

    def returns(self, cloud: np.ndarray) -> Returns:
        """Return a cloud (N, 3 or 5) in its lidar's frame taken apart."""
        points = cloud[:, :3]
        if self._grid is not None:
            channel = self._channel[self._row(points)]
        else:
            channel = cloud[:, RING].astype(np.int64)
        echo = weak_echo(cloud[:, INTENSITY]) if cloud.shape[1] > INTENSITY else None
        return self.model.returns(points, channel, echo)

    def corrected(self, side: str, cloud: np.ndarray) -> np.ndarray:
        """Return the points (N, 3) of a cloud with its lidar's errors taken out, but for that by incidence."""
        values = self.values[self.of_side(side)]
        return self.model.corrected(self.returns(cloud), 1.0, values) if np.any(values) else cloud[:, :3]

    def without_incidence(self, side: str, matches: Matches) -> Matches:
        """Return matches with the error by incidence taken out of their distances."""
        late = self.values[self.of_side(side)][INCIDENCE]
        if not late:
            return matches
        return replace(matches, distances=matches.distances + late * (1.0 - matches.incidence))


@dataclass
class Coupled:
    """Normal equations of the mounts' own unknowns together with the units': `own` (n, n) and (n,) are kept apart by the
    caller; here is what couples them, (n, 2 m), and the units' own part (2 m, 2 m) and (2 m,)."""

    units: Units
    coupling: np.ndarray
    information: np.ndarray
    gradient: np.ndarray

    @classmethod
    def empty(cls, units: Units, size: int) -> "Coupled":
        count = 2 * units.model.size
        return cls(units, np.zeros((size, count)), np.zeros((count, count)), np.zeros(count))

    def add(
        self, side: str, cloud: np.ndarray, matches: Matches, weights: np.ndarray, rotation: np.ndarray,
        chosen: np.ndarray, columns: np.ndarray, jacobian: np.ndarray,
    ) -> None:  # fmt: skip
        """Add the chosen (mask) of matches, of a cloud's rows `matches.indices`, with weights (M,); `rotation` (3, 3) is
        base_from_lidar's, `jacobian` (C, K) that of their distances by the mounts' own `columns` (K,)."""
        matches, weights = matches.chosen(chosen), weights[chosen]
        model, own = self.units.model, self.units.of_side(side)
        returns = self.units.returns(cloud[matches.indices])
        scalars, channels = model.sensitivity(
            returns, matches.incidence, matches.normals @ rotation, self.units.values[own], beyond=matches.along
        )
        weighted = scalars * weights[:, None]
        self.coupling[np.ix_(columns, np.arange(own.start, own.start + NUM_SCALARS))] += jacobian.T @ weighted
        block = self.information[own, own]
        block[:NUM_SCALARS, :NUM_SCALARS] += scalars.T @ weighted
        self.gradient[own][:NUM_SCALARS] -= weighted.T @ matches.distances
        count = model.num_channels
        parts = [model.of_kind(kind) for kind in CHANNEL_KINDS]
        by_channel = sparse.csr_array(
            (np.ones(len(weights)), (returns.channel, np.arange(len(weights)))), shape=(count, len(weights))
        )
        for first, part in enumerate(parts):
            column = weights * channels[:, first]
            self.coupling[np.ix_(columns, np.arange(own.start + part.start, own.start + part.stop))] += (
                by_channel @ (column[:, None] * jacobian)
            ).T
            crossed = by_channel @ (column[:, None] * scalars)
            block[part, :NUM_SCALARS] += crossed
            block[:NUM_SCALARS, part] += crossed.T
            self.gradient[own][part] -= by_channel @ (column * matches.distances)
            products = group_sums(returns.channel, count, column[:, None] * channels)
            for second, other in enumerate(parts):
                block[part, other] += np.diag(products[:, second])

    def add_observations(
        self, observations: Observations, poses: Mapping[str, np.ndarray], information: np.ndarray, gradient: np.ndarray
    ) -> None:
        """Add what the alignment observed of poses (4, 4) and units, to these and to the mounts' own equations (in place)."""
        unknowns = Unknowns((self.units.model, self.units.model))
        state = State(
            tuple(poses[side] for side in SIDES), tuple(self.units.values[self.units.of_side(side)] for side in SIDES)
        )
        seen = observations.equations_at(state, unknowns)
        own = np.r_[LEFT, RIGHT]
        units = np.arange(unknowns.units[0].start, unknowns.units[1].stop)
        information[np.ix_(own, own)] += seen.information[np.ix_(own, own)]
        gradient[own] += seen.gradient[own]
        self.coupling[own] += seen.information[np.ix_(own, units)]
        self.information += seen.information[np.ix_(units, units)]
        self.gradient += seen.gradient[units]

    def reduced(self, information: np.ndarray, gradient: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the mounts' own normal equations with the units eliminated under their prior."""
        self._root = root = self.units._root
        self._factor = cho_factor(root.T @ self.information @ root + np.eye(root.shape[1]), lower=True)
        self._right = root.T @ self.gradient - self.units._z
        self._coupling = self.coupling @ root
        solved = cho_solve(self._factor, np.column_stack([self._coupling.T, self._right]))
        return information - self._coupling @ solved[:, :-1], gradient - self._coupling @ solved[:, -1]

    def take(self, solution: np.ndarray) -> None:
        """Take over what the solution (n,) of the reduced equations means for the units."""
        self.units._moved_to(self.units._z + cho_solve(self._factor, self._right - self._coupling.T @ solution))

    def scalar_covariance(self, covariance: np.ndarray) -> np.ndarray:
        """Return the covariance (28, 28) of both lidars' scalars, that of the mounts' own unknowns being (n, n)."""
        size = self.units.model.size
        columns = np.r_[0:NUM_SCALARS, size : size + NUM_SCALARS]
        rows = cho_solve(self._factor, self._root[columns].T)
        by_mounts = self._coupling @ rows
        return self._root[columns] @ rows + by_mounts.T @ covariance @ by_mounts

    def numbers(self) -> dict[str, float]:
        """Return the scalars found, in m, rad and ratios, with their standard deviations, the mounts being known."""
        found, deviations, numbers = self.units.values, self.deviations(), {}
        for side in SIDES:
            first = self.units.of_side(side).start
            for index, name in enumerate(SCALARS):
                if deviations[first + index] > 0:
                    numbers[f"{name}_{side}"] = float(found[first + index])
                    numbers[f"{name}_{side}_std"] = float(deviations[first + index])
        return numbers

    def deviations(self) -> np.ndarray:
        """Return the standard deviations (2 m,) of the units' parameters, the mounts being known."""
        return np.sqrt(np.einsum("ij,ji->i", self._root, cho_solve(self._factor, self._root.T)))
