"""The problem's solver: with the lidars' errors as unknowns, or eliminated, the answer is one."""

import numpy as np
import pytest

from stretch_sim_cal.calibration.problem import LEFT, RIGHT, NormalEquations, Priors, Solver, State, Unknowns
from stretch_sim_cal.sensor.unit import INCIDENCE, OFFSET, ErrorModel, UnitSpread

MODEL = ErrorModel(UnitSpread(range_offset=0.01, incidence=0.003), np.linspace(-0.2, 0.2, 4), np.zeros(4))
NOTHING = State((np.eye(4), np.eye(4)), (np.zeros(MODEL.size), np.zeros(MODEL.size)))


@pytest.fixture
def solver():
    loose = np.diag([0.03**2] * 3 + [0.05**2] * 3)
    return Solver(Unknowns((MODEL, MODEL)), Priors(NOTHING, left=loose, right=loose))


def equations(unknowns, error=None, rows=400):
    """Return what `rows` random observations of 1 mm noise say of errors of the left lidar, by
    column of its parameters."""
    random = np.random.default_rng(3)
    jacobian = random.normal(size=(rows, unknowns.size))
    true = np.zeros(unknowns.size)
    for index, value in (error or {}).items():
        true[unknowns.units[0].start + index] = value
    residuals = jacobian @ true + random.normal(scale=1e-3, size=rows)
    return NormalEquations(jacobian.T @ jacobian / 1e-6, jacobian.T @ residuals / 1e-6)


def test_eliminating_the_lidars_errors_leaves_the_same_solution(solver):
    seen = equations(solver.unknowns, {OFFSET: 0.004, INCIDENCE: -0.002})
    whole = solver.solve(seen, NOTHING)
    reduced = solver.without_units(seen, NOTHING, widened=False)
    poses = np.linalg.inv(reduced.information)
    change = reduced.change(poses @ reduced.gradient)
    assert list(reduced.columns) == [*range(LEFT.start, LEFT.stop), *range(RIGHT.start, RIGHT.stop)]
    np.testing.assert_allclose(change, whole.change, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(poses, whole.covariance[:12, :12], rtol=1e-6, atol=1e-12)
    own = whole.covariance[np.ix_(solver.unknowns.scalars, solver.unknowns.scalars)]
    np.testing.assert_allclose(reduced.covariance_of_units(poses, solver.unknowns.scalars), own, rtol=1e-6, atol=1e-12)


def test_a_prior_holds_an_error_until_it_is_far_beyond_it_and_does_not_then(solver):
    """Of few observations: 60 mm of offset are six standard deviations of the sensor file."""
    seen = equations(solver.unknowns, {OFFSET: 0.06}, rows=1)

    def offset(state, widened):
        reduced = solver.without_units(seen, state, widened)
        change = reduced.change(np.linalg.solve(reduced.information, reduced.gradient))
        return state.units[0][OFFSET] + change[solver.unknowns.units[0]][OFFSET]

    near, far = (
        State(NOTHING.base_from_lidar, (np.eye(MODEL.size)[OFFSET] * at, NOTHING.units[1])) for at in (0.03, 0.06)
    )
    assert not solver.exceeded(near) and solver.exceeded(far)
    assert offset(near, widened=True) == pytest.approx(offset(near, widened=False), rel=1e-9)
    assert abs(offset(far, widened=True)) > abs(offset(far, widened=False)) + 1e-4
