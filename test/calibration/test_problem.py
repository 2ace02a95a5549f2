"""The problem and its solver against the same problem written out."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from stretch_sim_cal.calibration import reduction as reducing
from stretch_sim_cal.calibration import solver as solving
from stretch_sim_cal.calibration.problem import RANGES, UNKNOWN, NormalEquations, Priors, State, Unknowns, floor_rows
from stretch_sim_cal.calibration.solver import Solution, Solver, sensor_numbers
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.planes import Plane
from stretch_sim_cal.geometry.transforms import exp, from_xyz_rpy
from stretch_sim_cal.sensor.unit import (
    CENTRE,
    CENTRE_SHARE,
    FIRING_SHARE,
    INCIDENCE,
    OFFSET,
    RANGE_SCALE,
    UNKNOWN_SENSOR,
    ErrorModel,
    UnitSpread,
)

MODEL = ErrorModel(UnitSpread(range_offset=0.01, incidence=0.003), np.linspace(-0.2, 0.2, 4), np.zeros(4))
OF_SCANS = slice(MODEL.of_scan_motion.start, MODEL.size)
# The precision of a motion in a scan, of the ranges' wander, and of waves of directions.
ROOTS = MODEL.scan_roots()
STILL = np.concatenate([
    (solving.SHARES_OF_SCANS[kind][0][0] * ROOTS[kind][own].max(axis=1)) ** -2.0
    for kind, own in (
        ("scan_motion", MODEL.of_scan_motion), ("wander", MODEL.of_wander),
        ("upward_waves", slice(MODEL.of_waves.start, MODEL.of_waves.start + 6)),
        ("aside_waves", slice(MODEL.size - 4, MODEL.size)),
    )
])  # fmt: skip
LEFT, RIGHT, FLOOR, CURVATURE = slice(0, 6), slice(6, 12), slice(12, 15), slice(15, 18)  # the columns of two lidars
NOTHING = State((np.eye(4), np.eye(4)), (np.zeros(MODEL.size), np.zeros(MODEL.size)))


@pytest.fixture
def solver():
    loose = np.diag([0.03**2] * 3 + [0.05**2] * 3)
    return Solver(Unknowns((MODEL, MODEL)), Priors(NOTHING, [loose, loose]))


def lidars_with(spread, span=0.0, channels=4, lidars=2, **model):
    """Return the model of lidars with errors of this `spread`, whose channels' elevations are up to `span` (rad), their
    unknowns, a state without errors, and equations of nothing that is seen."""
    model = ErrorModel(spread, np.linspace(-span, span, channels), np.zeros(channels), **model)
    unknowns = Unknowns((model,) * lidars)
    state = State((np.eye(4),) * lidars, (np.zeros(model.size),) * lidars)
    return model, unknowns, state, NormalEquations.empty(unknowns.size)


def see(seen, columns, values, deviations):
    seen.information[columns, columns] = deviations**-2.0
    seen.gradient[columns] = values * deviations**-2.0


def columns_of(unit, model, kind):
    return unit.start + np.arange(model.size)[model.of_kind(kind)]


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


def eliminated(solver, seen, state, widened=False):
    """Return the change (n,) with the lidars' errors eliminated first."""
    reduced = solver.marginalised(seen, state, widened)
    return reduced.change(np.linalg.solve(reduced.information, reduced.gradient))


def written_out(seen, precision, gone):
    """Return the unknowns that have a prior, their change and covariance; `precision` (n, n) is that of all priors,
    `gone` (n,) how far the state is from them."""
    varied = np.flatnonzero(np.diag(precision))
    information = (seen.information + precision)[np.ix_(varied, varied)]
    return varied, np.linalg.solve(information, (seen.gradient - precision @ gone)[varied]), np.linalg.inv(information)


def test_eliminating_the_lidars_errors_leaves_the_same_solution(solver):
    seen = equations(solver.unknowns, {OFFSET: 0.004, INCIDENCE: -0.002})
    whole = solver.solve(seen, NOTHING)
    reduced = solver.marginalised(seen, NOTHING, widened=False)
    poses = np.linalg.inv(reduced.information)
    assert list(reduced.columns) == [*range(LEFT.start, LEFT.stop), *range(RIGHT.start, RIGHT.stop)]
    np.testing.assert_allclose(eliminated(solver, seen, NOTHING), whole.change, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(poses, whole.covariance[:12, :12], rtol=1e-6, atol=1e-12)
    own = whole.covariance[np.ix_(solver.unknowns.scalars, solver.unknowns.scalars)]
    np.testing.assert_allclose(reduced.covariance_of_units(poses, solver.unknowns.scalars), own, rtol=1e-6, atol=1e-12)


POSED = State(
    (from_xyz_rpy((0.1, -0.2, 1.3), (0.4, -0.8, 2.0)), from_xyz_rpy((0.3, 0.1, 1.2), (-1.4, 0.3, 0.7))),
    (1e-3 * np.sin(np.arange(MODEL.size)), 1e-3 * np.cos(np.arange(MODEL.size))),
    Plane.from_coefficients([0.02, -0.03, 1.0], 0.1), np.array([0.01, 0.02, -0.03]),
)  # fmt: skip


@pytest.fixture
def random():
    return np.random.default_rng(8)


def test_heights_over_the_floor_change_as_the_floors_columns_say(random):
    unknowns, points = Unknowns((MODEL, MODEL)), random.normal(size=(20, 3))
    x, y, _ = points.T
    bulge = 0.01 * x**2 / 2 + 0.02 * x * y - 0.03 * y**2 / 2
    np.testing.assert_allclose(POSED.height_over_floor(points), POSED.floor.distance(points) - bulge, atol=1e-15)
    step = np.zeros(unknowns.size)
    step[FLOOR], step[CURVATURE] = 1e-6 * random.normal(size=3), 1e-3 * random.normal(size=3)
    change = unknowns.moved(POSED, step).height_over_floor(points) - POSED.height_over_floor(points)
    np.testing.assert_allclose(floor_rows(POSED.floor, points) @ step[12:18], change, atol=1e-10)


def test_a_change_moves_every_part_of_a_state_and_is_found_again(random):
    unknowns = Unknowns((MODEL, MODEL), others=3)
    change = 1e-5 * random.normal(size=unknowns.size)
    change[unknowns.others] = 0.0
    moved = unknowns.moved(POSED, change)
    np.testing.assert_allclose(moved.base_from_lidar[1], exp(change[RIGHT]) @ POSED.base_from_lidar[1])
    np.testing.assert_allclose(moved.units[1], POSED.units[1] + change[unknowns.units[1]])
    np.testing.assert_allclose(unknowns.difference(moved, POSED), change, atol=3e-8)  # of tilts: nearly
    left_from_right = np.linalg.inv(moved.base_from_lidar[0]) @ moved.base_from_lidar[1]
    np.testing.assert_allclose(moved.left_from_right, left_from_right, atol=1e-12)
    without = replace(POSED, floor=None)
    assert unknowns.moved(without, change).floor is None
    assert not unknowns.difference(unknowns.moved(without, change), POSED)[FLOOR].any()


def test_known_errors_of_other_lidars_are_refused():
    unknowns, poses = Unknowns((MODEL, MODEL)), POSED.base_from_lidar
    solver, state = Solver.starting(unknowns, poses)
    assert [values.tolist() for values in state.units] == [[0.0] * MODEL.size] * 2 and not solver.priors.units_known
    solver, state = Solver.starting(unknowns, poses, units=POSED.units)
    assert state.units is POSED.units and solver.priors.units_known
    with pytest.raises(InputError, match="other channels"):
        Solver.starting(unknowns, poses, units=(np.zeros(MODEL.size), np.zeros(MODEL.size + 3)))


def test_parameters_of_a_group_are_eliminated_as_if_they_were_solved_for(random):
    rows, size, groups, weak = 60, 8, 4, 1e-2
    pattern, group = np.repeat([0, 1, 2], 20), random.integers(0, groups, rows)
    columns = np.array([[0, 2, 5], [1, 2, 7], [3, 4, 6]])[pattern]
    values, design = random.normal(size=(rows, 3)), random.normal(size=(rows, 2))
    residuals, weights = random.normal(size=rows), random.uniform(1, 9, rows)
    jacobian = sparse.csr_array((values.ravel(), columns.ravel(), 3 * np.arange(rows + 1)), shape=(rows, size))
    seen = NormalEquations.empty(size)
    seen.add_eliminating(jacobian, pattern, residuals, weights, group, design, weak)
    own = np.zeros((rows, 2 * groups))
    for row in range(rows):
        own[row, 2 * group[row] : 2 * group[row] + 2] = -design[row]
    whole = np.hstack([jacobian.toarray(), own])
    information, gradient = (whole.T * weights) @ whole, -(whole.T * weights) @ residuals
    information[size:, size:] += weak * np.eye(2 * groups)
    across = information[:size, size:] @ np.linalg.inv(information[size:, size:])
    np.testing.assert_allclose(
        seen.information, information[:size, :size] - across @ information[size:, :size], atol=1e-9
    )
    np.testing.assert_allclose(seen.gradient, gradient[:size] - across @ gradient[size:], atol=1e-9)


@pytest.mark.parametrize("curvature", [0.0, 0.01])
def test_the_solution_is_that_of_all_data_and_priors_written_out(curvature, random, monkeypatch):
    """From a state away from the nominal one, with the left lidar fixed, no channel errors in the model, and lidars
    that differ as the sensor file says."""
    monkeypatch.setattr(solving, "SHARES", np.ones(1))
    first = {kind: (shares[:1], 1.0, False) for kind, (shares, _, _) in solving.SHARES_OF_SCANS.items()}
    monkeypatch.setattr(solving, "SHARES_OF_SCANS", first)
    unknowns = Unknowns((MODEL, MODEL))
    nominal = replace(POSED, units=NOTHING.units, curvature=np.zeros(3))
    away = 1e-3 * random.normal(size=unknowns.size)
    away[LEFT], away[18:], away[CURVATURE] = 0.0, 0.0, away[CURVATURE] * (curvature > 0)
    state = unknowns.moved(nominal, away)
    right = np.diag([0.01**2] * 3 + [0.02**2] * 3)
    priors = Priors(nominal, [np.zeros((6, 6)), right], curvature=curvature)
    seen = equations(unknowns, {OFFSET: 0.004}, rows=60)
    found = Solver(unknowns, priors).solve(seen, state)
    precision, deviations = np.zeros(unknowns.size), {OFFSET: 0.01, INCIDENCE: 0.003}
    precision[RIGHT] = 1 / np.diag(right)
    precision[FLOOR], precision[CURVATURE] = 1.0, curvature and curvature**-2.0
    for unit in unknowns.units:
        for index, deviation in deviations.items():
            precision[unit.start + index] = deviation**-2.0
        precision[unit][OF_SCANS] = STILL
    varied, change, covariance = written_out(seen, np.diag(precision), unknowns.difference(state, nominal))
    assert len(varied) == 65 + 3 * (curvature > 0)
    np.testing.assert_allclose(found.change[varied], change, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(found.covariance[np.ix_(varied, varied)], covariance, rtol=1e-5, atol=1e-12)
    others = np.setdiff1d(np.arange(unknowns.size), varied)
    assert not found.change[others].any() and not found.covariance[others].any()


def test_a_problem_without_unknowns_is_solved_silently(capfd):
    """One lidar, which is where it is, with known errors: LAPACK would print a complaint about the empty matrix."""
    solver, state = Solver.starting(Unknowns((MODEL,)), [np.eye(4)], units=(np.zeros(MODEL.size),))
    solution = solver.solve(NormalEquations.empty(solver.unknowns.size), state)
    assert not solution.change.any() and not solution.covariance.any()
    assert capfd.readouterr() == ("", "")


def test_known_errors_of_the_lidars_stay_as_they_are():
    unknowns = Unknowns((MODEL, MODEL))
    priors = Priors(NOTHING, [np.zeros((6, 6))], units_known=True)
    found = Solver(unknowns, priors).solve(equations(unknowns, {OFFSET: 0.004}), NOTHING)
    assert not found.change[18:].any() and not found.covariance[18:, 18:].any() and found.change[RIGHT].all()


def test_a_prior_that_the_data_exceeds_neither_pulls_nor_makes_sure():
    unknowns = Unknowns((MODEL, MODEL))
    offset = unknowns.units[0].start + OFFSET

    def found(true):
        solver = Solver(unknowns, Priors(NOTHING, [np.zeros((6, 6))]))
        seen = NormalEquations.empty(unknowns.size)
        see(seen, offset, true, 0.01)  # as sure as the prior
        solution = solver.solve(seen, NOTHING)
        return solution.change[offset], np.sqrt(solution.covariance[offset, offset])

    np.testing.assert_allclose(found(0.07), (0.035, 0.01 / np.sqrt(2.0)), rtol=1e-3)  # 3.5 standard deviations
    value, deviation = found(0.2)
    assert value > 0.18 and 0.0095 < deviation <= 0.01


def test_noise_information_holds_the_guess_and_does_not_reduce_the_covariance():
    unknowns = Unknowns((MODEL, MODEL))
    solver = Solver(unknowns, Priors(NOTHING, [np.zeros((6, 6))]))
    seen = NormalEquations.empty(unknowns.size)
    seen.information[RIGHT, RIGHT], seen.gradient[RIGHT] = 1e8 * np.eye(6), 1e5
    plain = solver.solve(seen, NOTHING)
    held = solver.solve(seen, NOTHING, 1e8 * np.diag([1.0, 0.0, 0.0, 0.0, 0.0, 0.0]))
    np.testing.assert_allclose(plain.change[RIGHT], 1e-3, rtol=1e-6)
    shares = [1.0 / 3.5, 1.0, 1.0, 1.0, 1.0, 1.0]
    np.testing.assert_allclose(held.change[RIGHT], plain.change[RIGHT] * shares, rtol=1e-6)
    deviations = np.sqrt(np.diag(held.covariance)[RIGHT])
    np.testing.assert_allclose(deviations[1:], 1e-4, rtol=1e-6)
    assert deviations[0] == pytest.approx(UNKNOWN, rel=0.01)


@pytest.mark.parametrize(("share", "bounded"), [(0.3, True), (1.0, False)])
def test_noise_has_the_same_share_in_a_turn_and_in_azimuths_that_are_turned_alike(share, bounded, random):
    """An azimuth that waves may be wrong on average: the yaw is then as uncertain, but not unknown."""
    model, unknowns, nothing, seen = lidars_with(UnitSpread(channel_azimuth=0.001), 0.4, 16)
    solver = Solver(unknowns, Priors(nothing, [np.zeros((6, 6)), None]))
    unit, azimuths = unknowns.units[1], random.uniform(-np.pi, np.pi, 4000)
    wave = unit.start + model.of_waves.stop - 4  # the cosine of the first wave aside
    rows = np.zeros((len(azimuths), unknowns.size))
    rows[:, RIGHT.stop - 1], rows[:, wave] = 1.0, np.cos(3.0 * azimuths)
    rows[np.arange(len(rows)), random.choice(columns_of(unit, model, "channel_azimuth"), len(rows))] = 1.0
    seen.information[:] = 1e8 * rows.T @ rows
    seen.gradient[:] = 1e8 * rows.T @ (0.005 * rows[:, wave] + 1e-4 * random.normal(size=len(rows)))
    others = np.arange(RIGHT.start, RIGHT.stop - 1)
    seen.information[others, others] = 1e8
    noise = np.diag([0.0, 0.0, 0.0, 0.0, 0.0, share * 1e8 * len(rows)])
    for _ in range(2):
        yaw = np.sqrt(solver.solve(seen, nothing, noise).covariance[RIGHT, RIGHT][-1, -1])
    assert 0.0005 < yaw < 0.02 if bounded else yaw > 0.5 * UNKNOWN


@pytest.mark.parametrize("far", [False, True])
def test_channels_beyond_the_sensor_file_are_learnt_once_the_lidars_are_aligned(random, far):
    """Before that, channels that were wrong by ten times as much as others are would fit to wrong surfaces."""
    model, unknowns, nothing, seen = lidars_with(UnitSpread(channel_elevation=0.001), 0.4, 40, lidars=1)
    solver = Solver(unknowns, Priors(nothing, []))
    see(seen, columns_of(unknowns.units[0], model, "channel_elevation"), 0.01 * random.normal(size=40), 1e-4)
    for _ in range(4):
        (deviations,) = solver.solve(seen, nothing, far=far).relative_deviations
    assert deviations["channel_elevation"] > 5.0 if far else deviations["channel_elevation"] <= 2.0


@pytest.mark.parametrize(
    "spread, times, file", [(UnitSpread(channel_range=0.002), 3.0, 1.0), (UNKNOWN_SENSOR, 6.0, 3.0)]
)
def test_few_channels_beyond_the_sensor_file_are_drawn_back_to_it(spread, times, file):
    """Three channels several times as wrong as expected, against four that are as expected, or three times as far off
    of an unknown lidar, however often it is solved. Smooth errors of elevations grew from solution to solution, to
    eleven times those of the file, in place of waves of directions that there were: 4 mm and 0.16 deg, accepted."""
    model, unknowns, nothing, seen = lidars_with(spread, 0.4, 3, lidars=1)
    solver = Solver(unknowns, Priors(nothing, []))
    see(seen, columns_of(unknowns.units[0], model, "channel_range"), 0.002 * times * np.array([1.0, -1.0, 1.0]), 1e-5)
    for _ in range(20):
        (deviations,) = solver.solve(seen, nothing).relative_deviations
    assert deviations["channel_range"] == pytest.approx(np.sqrt((3 * times**2 + 4 * file**2) / 7), rel=0.01)


def test_channels_spread_is_learnt_from_how_far_they_differ(random):
    model, unknowns, nothing, seen = lidars_with(UnitSpread(channel_range=0.01), 0.4, 40)
    solver = Solver(unknowns, Priors(nothing, [np.zeros((6, 6))]))
    for unit, scale in zip(unknowns.units, (0.001, 0.02), strict=True):
        errors = scale * random.normal(size=40)
        see(seen, columns_of(unit, model, "channel_range"), errors - errors.mean(), 1e-4)
    solution = solver.solve(seen, nothing)
    assert solution.relative_deviations[0]["channel_range"] < 0.25  # one step of the search comes to 0.32
    for _ in range(3):
        solution = solver.solve(seen, nothing)
    left, right = (of_kind["channel_range"] for of_kind in solution.relative_deviations)
    assert 0.1 < left < 0.45 and 1.4 < right < 2.6  # PRIOR_CHANNELS draws both towards 1
    numbers = sensor_numbers(unknowns, nothing, solution)
    assert numbers["channel_range_spread_left"] == pytest.approx(0.01 * left)
    assert numbers["channel_range_spread_right"] == pytest.approx(0.01 * right)


@pytest.mark.parametrize(("right", "apart"), [(1.0, (0.0, 0.3)), (-1.0, (0.8, 1.0))])
def test_scalars_that_two_lidars_have_in_common_are_distinguished_from_those_that_set_them_apart(right, apart, random):
    """Two lidars of one kind whose scalars the data knows: the same for both, or opposite."""
    spread = UnitSpread(range_offset=0.01, range_scale=5e-4, near_range=0.005, incidence=0.003, echo=0.003)
    _, unknowns, nothing, seen = lidars_with(spread, 0.2)
    deviations = np.array([0.01, 5e-4, 0.005, 0.003, 0.003])
    values = deviations * (1.0, -0.8, 1.2, 0.7, -1.1)
    for unit, sign in zip(unknowns.units, (1.0, right), strict=True):
        see(seen, unit.start + np.arange(5), sign * values, 0.1 * deviations)
    # The right lidar's offset is not seen: what is known of it comes from the left one's.
    column = unknowns.units[1].start
    seen.information[column, column] = seen.gradient[column] = 0.0
    solution = Solver(unknowns, Priors(nothing, [np.zeros((6, 6))])).solve(seen, nothing)
    deviation = np.sqrt(solution.covariance[column, column]) / 0.01
    assert apart[0] < deviation < apart[1]
    assert abs(solution.change[column] - 0.01) < 0.003 or right < 0


def test_lidars_whose_scales_differ_do_not_take_over_the_scale_of_the_wheels():
    """The scales differ by 3.5 standard deviations of units, as views show; what both have in common is -2 +- 0.4 % by
    the wheels. That one of them is far off is likely, that both are is not."""
    model, unknowns, nothing, seen = lidars_with(UnitSpread(range_scale=5e-4, channel_range=0.001), 0.4, 40)
    scales = [unit.start + RANGE_SCALE for unit in unknowns.units]
    for row, value, deviation in (([1.0, -1.0], 2.5e-3, 6e-5), ([0.5, 0.5], -0.02, 0.004)):
        seen.information[np.ix_(scales, scales)] += np.outer(row, row) / deviation**2
        seen.gradient[scales] += np.array(row) * value / deviation**2
    for unit in unknowns.units:  # channels, whose spread takes steps to be learnt
        see(seen, columns_of(unit, model, "channel_range"), np.resize([2e-4, -2e-4], 40), 1e-4)
    found = Solver(unknowns, Priors(nothing, [np.zeros((6, 6))])).solve(seen, nothing)
    left, right = found.change[scales]
    assert left - right == pytest.approx(2.5e-3, abs=1e-4)
    assert abs(left + right) / 2 < 4.5e-3 and np.sqrt(found.covariance[scales[0], scales[0]]) > 1e-3


def test_channels_errors_that_are_estimated_already_are_pulled_back_by_their_prior(random):
    """Those of elevations vary smoothly and independently; the prior's covariance is that of both."""
    model, unknowns, nothing, _ = lidars_with(UnitSpread(channel_elevation=2e-3), 0.4, 6)
    own, moved = np.arange(model.size)[model.of_kind("channel_elevation")], np.zeros(model.size)
    moved[own] = 2e-3 * random.normal(size=6)
    loose, seen = np.diag([0.03**2] * 6), equations(unknowns, rows=60)
    state = replace(nothing, units=(moved, nothing.units[1]))
    change = eliminated(Solver(unknowns, Priors(nothing, [loose, loose])), seen, state)
    precision = np.zeros((unknowns.size, unknowns.size))
    precision[:12, :12] = np.linalg.inv(np.kron(np.eye(2), loose))
    for unit in unknowns.units:
        columns = np.ix_(unit.start + own, unit.start + own)
        precision[columns] = np.linalg.inv(model.prior_covariance()[np.ix_(own, own)])
        own_scans = slice(model.of_scan_motion.start, model.size)
        precision[unit, unit][own_scans, own_scans] = np.diag(STILL)
    varied, expected, _ = written_out(seen, precision, unknowns.difference(state, nothing))
    np.testing.assert_allclose(change[varied], expected, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("slope", [np.radians(0.03), 0.0])
def test_channels_that_see_nothing_fire_in_the_order_of_the_others(slope):
    """Of 16 channels, whose azimuths differ by 0.01 deg, in proportion to their number or not; ten see something."""
    model, unknowns, nothing, seen = lidars_with(UnitSpread(channel_azimuth=np.radians(0.01)), 0.2, 16)
    azimuths, random = columns_of(unknowns.units[0], model, "channel_azimuth"), np.random.default_rng(5)
    true = slope * (np.arange(16) - 7.5) + random.normal(0.0, np.radians(0.01), 16)
    see(seen, azimuths[:10], true[:10], np.radians(0.002))
    solution = Solver(unknowns, Priors(nothing)).solve(seen, nothing)
    off, deviations = solution.change[azimuths] - true, np.sqrt(np.diag(solution.covariance)[azimuths])
    assert np.mean((off / deviations) ** 2) < 3.0
    assert deviations[:10].max() < np.radians(0.0025) and deviations[10:].max() < np.radians(0.012)


def test_an_optical_centre_that_is_elsewhere_is_not_known_along_the_axis_either():
    """20 mm beside where the sensor file has it, to 0.5 mm."""
    model, unknowns, nothing, seen = lidars_with(UnitSpread(optical_centre=(5e-4,) * 3))
    centre = unknowns.units[0].start + np.arange(model.size)[CENTRE]
    for size, deviation in ((2e-4, 5e-4), (0.02, 0.01)):
        seen.information[centre[0], centre[0]], seen.gradient[centre[0]] = 1e7, 1e7 * size
        solution = Solver(unknowns, Priors(nothing)).solve(seen, nothing)
        along = np.sqrt(solution.covariance[centre[2], centre[2]])
        assert 0.5 * deviation < along < 3.0 * deviation


@pytest.mark.parametrize("corrected, deviation", [(0.0, 0.0006), (0.6, 0.01), (1.0, 0.0006)])
def test_an_optical_centre_that_a_driver_seems_to_correct_in_part_is_unknown_along_the_axis(corrected, deviation):
    """Drivers correct all of it or nothing: 10 mm ahead and 8 mm up, of which 10 mm or nothing is seen, or 6 mm."""
    spread, centre = UnitSpread(optical_centre=(5e-4,) * 3, driver_uncertain=True), np.array([0.01, 0.0, 0.008])
    _, unknowns, nothing, seen = lidars_with(spread, optical_centre=centre)
    row, up = np.zeros((2, unknowns.size))
    for index, ahead, along in ((CENTRE_SHARE, *centre[[0, 2]]), (CENTRE.start, 1.0, 0.0), (CENTRE.stop - 1, 0.0, 1.0)):
        row[unknowns.units[0].start + index], up[unknowns.units[0].start + index] = ahead, along
    seen.information += 1e7 * np.outer(row, row)
    seen.gradient += 1e7 * row * corrected * centre[0]
    covariance = Solver(unknowns, Priors(nothing)).solve(seen, nothing).covariance
    assert 0.5 * deviation < np.sqrt(up @ covariance @ up) < 2.0 * deviation


@pytest.mark.parametrize(
    "share, deviation, fixed",
    [(0.98, 0.03, 1.0), (0.02, 0.03, 0.0), (0.9, 0.03, 1.0), (0.87, 0.03, 0.87), (0.5, 0.09, 0.5), (0.98, 0.11, 0.98)],
)
def test_the_share_that_a_driver_corrects_is_fixed_if_it_is_well_determined(share, deviation, fixed):
    unknowns = Unknowns((MODEL, MODEL))
    solver = Solver(unknowns, Priors(NOTHING))
    column = unknowns.units[1].start + CENTRE_SHARE
    root = np.diag(np.where(np.arange(unknowns.size) == column, 1.0 / deviation, 1e9))
    units = (NOTHING.units[0], share * np.eye(MODEL.size)[CENTRE_SHARE])
    solution = Solution(np.zeros(unknowns.size), ({}, {}), sparse.eye_array(unknowns.size, format="csr"), root)
    found = solver.with_fixed_shares(replace(NOTHING, units=units), solution)
    assert found.units[1][CENTRE_SHARE] == fixed and found.units[1][FIRING_SHARE] == 0.0
    assert not found.units[0].any()


@pytest.mark.parametrize("shares", [(0.98, 0.98), (0.98, 0.02), (0.98, None)])
def test_fixed_shares_of_drivers_do_not_vary_any_more(shares):
    """One of which nothing is seen seems to be the other one's, and neither is fixed."""
    spread, centre = UnitSpread(driver_uncertain=True), np.array([0.01, 0.0, 0.0])
    _, unknowns, nothing, seen = lidars_with(spread, optical_centre=centre)
    solver, columns = Solver(unknowns, Priors(nothing)), [unit.start + CENTRE_SHARE for unit in unknowns.units]
    for column, share in zip(columns, shares, strict=True):
        if share is not None:
            see(seen, column, share, 0.01)
    solution = solver.solve(seen, nothing)
    state = solver.with_fixed_shares(unknowns.moved(nothing, solution.change), solution)
    found = [values[CENTRE_SHARE] for values in state.units]
    if None in shares:
        assert found == pytest.approx([0.98, 0.96], abs=0.03)
        assert 0.05 < np.sqrt(solution.covariance[columns[1], columns[1]]) < 0.3
    else:
        assert found == np.round(shares).tolist() and not solver.solve(seen, state).change[columns].any()


def test_errors_eliminated_under_widened_priors_are_those_of_wider_priors_written_out(solver):
    """60 mm of offset are six standard deviations of the sensor file: its prior is taken six times as wide."""
    seen = equations(solver.unknowns, {OFFSET: 0.02}, rows=60)
    state = replace(NOTHING, units=(0.06 * np.eye(MODEL.size)[OFFSET], NOTHING.units[1]))
    change = eliminated(solver, seen, state, widened=True)
    precision = np.zeros(solver.unknowns.size)
    precision[:12] = 1 / np.tile([0.03**2] * 3 + [0.05**2] * 3, 2)
    for unit, times in zip(solver.unknowns.units, (6.0, 1.0), strict=True):
        precision[unit.start + OFFSET], precision[unit.start + INCIDENCE] = (times * 0.01) ** -2.0, 0.003**-2.0
        precision[unit][OF_SCANS] = STILL
    varied, expected, _ = written_out(seen, np.diag(precision), solver.unknowns.difference(state, NOTHING))
    np.testing.assert_allclose(change[varied], expected, rtol=1e-5, atol=1e-9)


def of_surfaces(solver, deviation):
    """What 0.1 mm noise shows of errors of the channels at each of `RANGES`, drawn with mean 0 and this deviation (m);
    random rows of all unknowns."""
    random, unknowns = np.random.default_rng(7), solver.unknowns
    errors = random.normal(scale=deviation, size=(2 * MODEL.num_channels, len(RANGES)))
    true = np.zeros(unknowns.size)
    true[unknowns.others] = (errors - errors.mean(axis=1, keepdims=True)).ravel()
    jacobian = random.normal(size=(400, unknowns.size))
    residuals = jacobian @ true + random.normal(scale=1e-4, size=len(jacobian))
    return NormalEquations(jacobian.T @ jacobian / 1e-8, jacobian.T @ residuals / 1e-8)


@pytest.fixture
def by_surface():
    loose = np.diag([0.03**2] * 3 + [0.05**2] * 3)
    return Solver(Unknowns((MODEL, MODEL), by_surface=True), Priors(NOTHING, [loose, loose]))


def test_a_return_has_the_errors_of_the_two_ranges_beside_its_own():
    unknowns = Unknowns((MODEL, MODEL), by_surface=True)
    ranges = np.array([0.1, RANGES[1], np.sqrt(RANGES[2] * RANGES[3]), 100.0])
    shares, columns = unknowns.surface_columns(np.array([0, 1, 1, 0]), np.array([0, 2, 3, 1]), ranges)
    np.testing.assert_allclose(shares, [[1.0, 0.0], [1.0, 0.0], [0.5, 0.5], [0.0, 1.0]], atol=1e-12)
    count, channel = len(RANGES), np.array([0, MODEL.num_channels + 2, MODEL.num_channels + 3, 1])
    first = unknowns.others.start + channel * count + [0, 1, 2, count - 2]
    np.testing.assert_array_equal(columns, np.column_stack([first, first + 1]))


@pytest.mark.parametrize("deviation", [0.0005, 0.004])
def test_how_channels_differ_from_surface_to_surface_is_learned(by_surface, deviation):
    seen = of_surfaces(by_surface, deviation)
    for _ in solving.BY_SURFACE:
        solution = by_surface.solve(seen, NOTHING)
    assert by_surface.by_surface == deviation
    poses = by_surface.unknowns.pose_columns
    chi_square = solution.change[poses] @ np.linalg.solve(
        solution.covariance[np.ix_(poses, poses)], solution.change[poses]
    )
    assert 2.0 < chi_square < 30.0  # of twelve
    assert len(solution.change) == by_surface.unknowns.others.start


def test_errors_by_surface_are_eliminated_as_unknowns_with_a_prior(by_surface):
    seen, by_surface.by_surface = of_surfaces(by_surface, 0.002), 0.001
    left = by_surface.without_surfaces(seen)
    errors = np.arange(by_surface.unknowns.size)[by_surface.unknowns.others]
    others, count = np.arange(errors[0]), len(RANGES)
    prior = np.kron(np.eye(len(errors) // count), np.eye(count) + reducing.BY_SURFACE_ALONE) / 0.001**2
    own, coupling = seen.information[np.ix_(errors, errors)] + prior, seen.information[np.ix_(others, errors)]
    expected = seen.information[np.ix_(others, others)] - coupling @ np.linalg.solve(own, coupling.T)
    np.testing.assert_allclose(left.information, expected, rtol=1e-9, atol=1e-3)
    gradient = seen.gradient[others] - coupling @ np.linalg.solve(own, seen.gradient[errors])
    np.testing.assert_allclose(left.gradient, gradient, rtol=1e-9, atol=1e-3)
