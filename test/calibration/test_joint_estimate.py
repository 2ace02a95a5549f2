"""The passes of the joint estimate: steps that become shorter slowly, and what hinges on one place."""

from types import SimpleNamespace

import numpy as np
import pytest

from stretch_sim_cal.calibration.alignment import joint_estimate
from stretch_sim_cal.calibration.alignment.joint_estimate import (
    FURTHEST,
    HINGES,
    NOISE_STEP,
    _ahead,
    leave_one_place_out,
)
from stretch_sim_cal.geometry.transforms import exp


@pytest.mark.parametrize(
    ("step", "before", "times"),
    [
        (0.8, 1.0, 4.0), (-0.8, -1.0, 4.0), (0.99, 1.0, FURTHEST), (1.2, 1.0, FURTHEST), (0.4, 1.0, 0.0),
        (-0.8, 1.0, 0.0), (0.9 * NOISE_STEP, NOISE_STEP, 0.0),
    ],
)  # fmt: skip
def test_the_way_on_is_that_of_all_further_steps_where_they_become_shorter_slowly(step, before, times):
    np.testing.assert_allclose(_ahead(np.array([step, 0.0]), np.array([before, 0.0])), [times * step, 0.0])


@pytest.mark.parametrize("share", [0.5 * HINGES, 2.0 * HINGES])
@pytest.mark.parametrize("end", [4e-3, 6e-3])
@pytest.mark.parametrize("rest", [1e-4, 1e-2])
def test_a_direction_that_one_place_determines_is_as_uncertain_as_without_it(monkeypatch, share, end, rest):
    """Known to 0.1 mm, as it seems, and to `rest` (m) without what was seen within 0.8 m of the place."""
    block = SimpleNamespace(
        strongest_place=lambda direction: (np.array([2.0, 0.0, 0.0]), share),
        information_along=lambda direction: 1.0, noise=None,
    )  # fmt: skip
    state, seen = SimpleNamespace(base_from_lidar=(np.eye(4), np.eye(4))), []
    found = SimpleNamespace(blocks=[block], solution=SimpleNamespace(covariance=1e-8 * np.eye(6)), state=state)
    solver = SimpleNamespace(unknowns=SimpleNamespace(of_free_poses=lambda matrix: matrix))
    twist = np.array([end, 0.0, 0.0, 0.0, 0.0, 0.0])
    points = np.array([[2.5, 0.5, 0.0], [3.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    lidar = SimpleNamespace(surface=SimpleNamespace(points=points), only=lambda kept: seen.append(kept.tolist()))
    ended = SimpleNamespace(
        state=SimpleNamespace(base_from_lidar=(np.eye(4), exp(twist))),
        solution=SimpleNamespace(covariance=rest**2 * np.eye(6)),
    )  # fmt: skip
    for name in ("_one_pass", "estimate_jointly"):
        monkeypatch.setattr(joint_estimate, name, lambda *_: ended)
    added = leave_one_place_out([(lidar, lidar)], found, solver)
    told = share > HINGES and end > 5e-3 and rest < end
    expected = np.outer(twist, twist) if told else np.zeros((6, 6))
    np.testing.assert_allclose(added, expected, atol=1e-15)
    assert seen == [[False, True, True]] * (2 * (share > HINGES))
