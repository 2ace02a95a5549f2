"""Results of alignment and floor with chosen values, for tests of what is done with a result."""

from types import SimpleNamespace

import numpy as np

from stretch_sim_cal.geometry.planes import Plane, footprint_from_base
from stretch_sim_cal.geometry.transforms import exp

TURNED = exp([0.1, 0.2, -0.1, 0.3, 0.2, 0.1])


def alignment_result(right_to_left=TURNED, variance=1e-8, refusals=(), covariance=None):
    return SimpleNamespace(
        right_to_left=right_to_left,
        covariance=np.eye(6) * variance if covariance is None else covariance,
        rmse=0.0101,
        num_frames=20,
        method="planes",
        refusals=list(refusals),
    )


def floor_result(height=0.031, tilt=(0.01, -0.02), refusals=()):
    plane = Plane.from_coefficients([tilt[0], tilt[1], 1.0], height)
    return SimpleNamespace(
        plane=plane,
        footprint_from_base=footprint_from_base(plane),
        covariance=np.eye(3) * 1e-9,
        rmse=0.007,
        num_frames=10,
        method="support",
        refusals=list(refusals),
    )
