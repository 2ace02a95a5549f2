"""What a calibration method answers: the estimate, how sure it is, and whether it may be used."""

from dataclasses import dataclass, field

import numpy as np

from stretch_sim_cal.calibration.observations import Observations


@dataclass(frozen=True)
class Direction:
    """How well the scene determines one direction of a transform.

    `name` says it in words ("sliding along base x", "turning about base z"); `standard_deviation` and `bound` are in m
    for sliding, in rad for turning; a direction that the scene does not show at all has an infinite deviation.
    """

    name: str
    standard_deviation: float
    bound: float

    @property
    def observed(self) -> bool:
        """Whether the standard deviation stays within the bound."""
        return self.standard_deviation <= self.bound


@dataclass(frozen=True)
class AlignmentResult:
    """The transform between the two lidars and how sure it is.

    `right_to_left` (4, 4) maps points of the right lidar's frame into the left's. `covariance` (6, 6) is over the twist
    (tx, ty, tz, rx, ry, rz) in m and rad with `true = exp(twist) @ right_to_left`, in the left frame. `rmse` (m) is the
    root mean square distance between the two lidars' surfaces; `overlap` (0 to 1) the part of the right lidar's view
    that the left one sees too. `observations`, if a method has them, are for later stages. A result with `refusals` must not
    be written.
    """

    right_to_left: np.ndarray
    covariance: np.ndarray
    rmse: float
    num_frames: int
    method: str
    overlap: float
    directions: list[Direction]
    warnings: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    diagnostics: dict[str, float] = field(default_factory=dict)
    observations: Observations | None = field(default=None, repr=False)

    @property
    def accepted(self) -> bool:
        """Whether the data supports the result."""
        return not self.refusals

    @property
    def known(self) -> Observations:
        """What later stages may take for known: the observations, or the transform by its covariance."""
        return self.observations or Observations.of_transform(self.right_to_left, self.covariance)
