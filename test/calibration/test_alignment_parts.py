"""The alignment's parts: cells of directions, observability in words, methods by name."""

from importlib.metadata import EntryPoint

import numpy as np
import pytest

from stretch_sim_cal.calibration import methods
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.checks import Described, problems
from stretch_sim_cal.calibration.clouds import Cloud, DirectionCells, DirectionGrid
from stretch_sim_cal.calibration.findings import model_findings
from stretch_sim_cal.calibration.normal_equations import NormalEquations
from stretch_sim_cal.calibration.observability import axis_name, covariance_of, directions, unobserved
from stretch_sim_cal.calibration.problem import RIGHT, Priors, Solver, State, Unknowns
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import from_xyz_rpy
from stretch_sim_cal.sensor.sensor import load_sensor
from stretch_sim_cal.sensor.unit import OFFSET


def test_a_cell_does_not_depend_on_the_range():
    directions = np.random.default_rng(0).normal(size=(2000, 3))
    near = DirectionGrid.by_elevation().cell_of(directions, np.linalg.norm(directions, axis=1))
    far = DirectionGrid.by_elevation().cell_of(7.5 * directions, 7.5 * np.linalg.norm(directions, axis=1))
    np.testing.assert_array_equal(near, far)
    assert near.min() >= 0 and near.max() < DirectionGrid.by_elevation().num_cells


def test_a_channel_stays_in_its_row():
    azimuths = np.linspace(0.0, 2.0 * np.pi, 500)
    for elevation in np.deg2rad([-90.0, -3.4, 0.1, 45.05, 89.1, 90.0]):
        ring = np.stack(
            np.broadcast_arrays(
                np.cos(elevation) * np.cos(azimuths), np.cos(elevation) * np.sin(azimuths), np.sin(elevation)
            ), axis=1,
        )  # fmt: skip
        assert (
            len(
                np.unique(DirectionGrid.by_elevation().row_of(DirectionGrid.by_elevation().cell_of(ring, np.ones(500))))
            )
            == 1
        )


def test_cells_hold_the_moments_of_all_their_returns():
    rng = np.random.default_rng(1)
    direction = np.array([0.6, 0.0, 0.8])
    cells, seen = DirectionCells(), []
    for _ in range(20):
        points = direction * rng.normal(2.0, 0.01, (30, 1))
        cells.add(Cloud(points))
        seen.append(points)
    found, seen = cells.cells(), np.concatenate(seen)
    np.testing.assert_allclose(found.counts, [600])
    np.testing.assert_allclose(found.points, [seen.mean(axis=0)])
    np.testing.assert_allclose(found.scatter[0], np.cov(seen.T, bias=True), atol=1e-10)
    np.testing.assert_allclose(found.noise_scatter[0], np.cov(seen.T), rtol=0.1, atol=1e-8)
    assert found.block_counts.sum() == 600


def test_what_stood_there_for_a_while_is_left_out():
    direction = np.array([[1.0, 0.0, 0.0]])
    cells = DirectionCells()
    for tick in range(8):
        cells.add(Cloud(direction * (1.0 if tick == 3 else 3.0)))
    found = cells.cells()
    np.testing.assert_allclose(found.points, [[3.0, 0.0, 0.0]])
    np.testing.assert_allclose(found.disturbed, [1 / 8])


@pytest.mark.parametrize("width", [1, 2, 3, 5])
def test_what_moves_is_three_cells_wide_and_the_jitter_at_an_edge_is_not(width):
    azimuths = np.radians(np.arange(40) + 0.5)
    around = np.column_stack([np.cos(azimuths), np.sin(azimuths), np.zeros(40)])
    cells = DirectionCells()
    for tick in range(8):
        ranges = np.full((40, 1), 3.0)
        ranges[10 : 10 + width] = 1.0 if tick == 3 else 3.0
        cells.add(Cloud(around * ranges))
    found = cells.cells()
    assert np.count_nonzero(found.disturbed) == width
    assert np.count_nonzero(found.moving) == (width if width >= 3 else 0)


def test_directions_are_named_in_base_axes():
    # The lidar's x axis is base's y axis.
    base_from_lidar = from_xyz_rpy((0.0, 0.0, 1.0), (0.0, 0.0, np.pi / 2))
    covariance = np.diag([0.01, 1e-4, 1e-4, 1e-5, 1e-5, 1e-5]) ** 2
    found = directions(covariance, base_from_lidar, 0.001, 0.001)
    assert found[0].name == "sliding along base y" and found[0].standard_deviation == pytest.approx(0.01)
    said = unobserved(found)
    assert len(said) == 1 and "sliding along base y" in said[0] and "10 mm" in said[0]
    assert directions(covariance, None, 0.001, 0.001)[0].name == "sliding along lidar x"


def test_an_axis_between_is_given_by_its_components():
    slanting = np.array([0.6, 0.8, 0.0])
    covariance = 1e-10 * np.eye(6)
    covariance[:3, :3] += 1e-4 * np.outer(slanting, slanting)
    assert directions(covariance, np.eye(4), 0.001, 0.001)[0].name == "sliding along base (0.6, 0.8, 0.0)"
    assert axis_name(np.array([-0.6, -0.8, 0.0]), "lidar") == "lidar (0.6, 0.8, 0.0)"  # no minus zero


def test_single_returns_from_elsewhere_are_not_summed():
    direction, rng = np.array([[1.0, 0.0, 0.0]]), np.random.default_rng(0)
    cells = DirectionCells()
    for tick in range(40):
        cells.add(Cloud(direction * rng.permutation([3.0] * 9 + [0.5 + 0.05 * tick])[:, None]))
    found = cells.cells()
    # Of the last ones, too near the wall to be told from it, a few remain.
    np.testing.assert_allclose(found.points, [[3.0, 0.0, 0.0]], atol=1e-3)
    assert 300 <= found.counts[0] <= 370


def test_a_stray_return_in_the_first_frame_does_not_hide_the_wall():
    direction = np.array([[1.0, 0.0, 0.0]])
    cells = DirectionCells()
    for tick in range(20):
        cells.add(Cloud(direction * (np.array([[3.0], [3.0], [0.7]]) if tick == 0 else 3.0)))
    np.testing.assert_allclose(cells.cells().points, [[3.0, 0.0, 0.0]])


def test_a_cell_that_always_sees_two_things_is_left_out():
    direction = np.array([[1.0, 0.0, 0.0]])
    cells = DirectionCells()
    for _ in range(16):
        cells.add(Cloud(direction * np.array([[2.0], [2.0], [2.0], [3.0], [3.0]])))
        cells.add(Cloud(np.array([[0.0, 4.0, 0.0]] * 5)))
    np.testing.assert_allclose(cells.cells().points, [[0.0, 4.0, 0.0]])


def test_equally_weak_axes_are_those_of_the_frame():
    turned = from_xyz_rpy((0.0, 0.0, 0.0), (0.0, 0.0, 0.6))[:3, :3]
    covariance = 1e-10 * np.eye(6)
    covariance[:3, :3] = turned @ np.diag([0.012**2, 0.011**2, 1e-8]) @ turned.T
    found = directions(covariance, np.eye(4), 0.001, 0.001)[:2]
    assert sorted(direction.name for direction in found) == ["sliding along base x", "sliding along base y"]
    assert all(0.011 <= direction.standard_deviation <= 0.012 for direction in found)


def test_no_direction_is_brought_below_its_bound_by_how_it_is_named():
    turned = from_xyz_rpy((0.0, 0.0, 0.0), (0.0, 0.0, np.pi / 4))[:3, :3]
    covariance = 1e-10 * np.eye(6)
    covariance[:3, :3] = turned @ np.diag([1.1e-3, 0.8e-3, 1e-5]) ** 2 @ turned.T
    weakest = directions(covariance, np.eye(4), 0.001, 0.001)[0]
    assert weakest.standard_deviation == pytest.approx(1.1e-3) and not weakest.observed


def test_what_is_not_seen_at_all_is_unbounded_and_does_not_spoil_the_rest():
    # A trace of turning in the axis that slides, as noise brings it.
    axis = np.array([0.0, 1.0, 0.0, 3e-3, 0.0, 0.0])
    axis /= np.linalg.norm(axis)
    covariance = covariance_of(1e8 * (np.eye(6) - np.outer(axis, axis)))
    assert np.isfinite(covariance).all()
    beyond = [direction for direction in directions(covariance, np.eye(4), 0.001, 0.001) if not direction.observed]
    assert [direction.name for direction in beyond] == ["sliding along base y"]
    assert "unbounded" in unobserved(beyond)[0]


def test_directions_come_weakest_first_and_are_unbounded_from_half_a_metre():
    covariance = np.diag([0.004, 0.001, 0.002, 3e-4, 1e-4, 2e-4]) ** 2
    found = directions(covariance, None, 0.003, 0.001)
    assert [(direction.name, round(direction.standard_deviation, 6)) for direction in found] == [
        ("sliding along lidar x", 0.004), ("sliding along lidar z", 0.002), ("sliding along lidar y", 0.001),
        ("turning about lidar x", 3e-4), ("turning about lidar z", 2e-4), ("turning about lidar y", 1e-4),
    ]  # fmt: skip
    assert [direction.observed for direction in found] == [False] + 5 * [True]
    (finding,) = unobserved(found)
    assert finding.startswith(
        "the scene does not determine sliding along lidar x: standard deviation 4 mm, at most 3 mm"
    )
    for deviation, said in ((0.49, "4.9e+02 mm"), (0.51, "unbounded")):
        covariance[0, 0] = deviation**2
        assert f"standard deviation {said}, at most 3 mm" in unobserved(directions(covariance, None, 0.003, 0.001))[0]
    turning = unobserved(directions(np.diag([1e-4, 1e-4, 1e-4, 1e-4, 1e-4, 0.002]) ** 2, None, 0.003, 0.001))
    assert "turning about lidar z: standard deviation 0.11 deg, at most 0.057 deg is allowed" in turning[0]


def test_a_covariance_is_the_inverse_of_the_information_bounded_by_a_metre():
    turned = np.linalg.qr(np.random.default_rng(5).normal(size=(6, 6)))[0]
    values = np.array([1e8, 1e6, 1e4, 100.0, 2.0, 0.1])
    expected = turned @ np.diag([1e-8, 1e-6, 1e-4, 0.01, 0.5, 1.0]) @ turned.T
    np.testing.assert_allclose(covariance_of(turned @ np.diag(values) @ turned.T), expected, atol=1e-9)


def test_turning_that_drags_sliding_along_is_called_turning():
    # Nothing holds the turning about an upright axis 0.8 m away.
    axis = np.array([0.0, 0.8, 0.0, 0.0, 0.0, 1.0])
    axis /= np.linalg.norm(axis)
    information = 1e8 * (np.eye(6) - np.outer(axis, axis))
    found = directions(covariance_of(information), np.eye(4), 0.001, 0.001)
    assert [direction.name for direction in found if not direction.observed] == ["turning about base z"]


@pytest.mark.parametrize("sliding, turned", [("y", 0.3), ("xy", 0.0), ("xyz", 0.5)])
def test_sliding_and_turning_that_nothing_holds_are_distinguished_and_the_rest_is_as_it_is(sliding, turned):
    """As in the open: nothing holds sliding along some axes and turning about an upright axis 2 m away."""
    axes = np.zeros((1 + len(sliding), 6))
    axes[0, [1, 5]] = 2.0, 1.0
    axes[1:, ["xyz".index(name) for name in sliding]] = from_xyz_rpy((0, 0, 0), (0, 0, turned))[
        np.ix_(["xyz".index(name) for name in sliding], ["xyz".index(name) for name in sliding])
    ]
    weak = np.linalg.qr(axes.T)[0]
    found = directions(covariance_of(1e8 * (np.eye(6) - weak @ weak.T)), np.eye(4), 0.001, 0.001)
    unseen = [f"sliding along base {name}" for name in sliding] + ["turning about base z"]
    assert len(found) == 6
    assert sorted(direction.name for direction in found if np.isinf(direction.standard_deviation)) == unseen
    held = [direction.standard_deviation for direction in found if direction.name not in unseen]
    np.testing.assert_allclose(held, 1e-4, rtol=1e-3)


@pytest.mark.parametrize(
    ("millimetres", "degrees", "refused", "warned"),
    [(43, 0.6, False, False), (120, 0.6, False, True), (43, 6.0, False, True), (320, 0.6, True, False),
     (43, 16.0, True, False)],
)  # fmt: skip
def test_the_alignment_and_the_check_of_its_file_have_one_bound_for_another_robot(
    millimetres, degrees, refused, warned
):
    described = from_xyz_rpy((0.0, -0.25, 0.0), (0.0, 0.0, 2.0))
    found = described @ from_xyz_rpy((1e-3 * millimetres, 0.0, 0.0), (0.0, 0.0, np.deg2rad(degrees)))
    refusals, warnings = model_findings(described, found)
    assert (bool(refusals), bool(warnings)) == (refused, warned)
    file = CalibrationFile(right_to_left=found)
    assert any("from the description" in problem for problem in problems(file, Described(described))) is refused


def test_methods_are_found_by_name():
    assert methods.alignment_method().name == "planes"
    assert methods.alignment_method("gicp").name == "gicp"
    with pytest.raises(InputError, match="gicp, planes"):
        methods.alignment_method("magic")


def test_another_package_may_add_a_method(monkeypatch):
    def installed(group):
        return [EntryPoint("theirs", "collections:OrderedDict", group), EntryPoint("broken", "nowhere:Nothing", group)]

    monkeypatch.setattr(methods, "entry_points", installed)
    from collections import OrderedDict

    assert methods.alignment_method("theirs") is OrderedDict
    assert "theirs" in methods.floor_method_names()
    with pytest.raises(InputError, match="broken"):
        methods.alignment_method("broken")


def test_what_comes_with_the_package_keeps_its_name(monkeypatch):
    monkeypatch.setattr(methods, "entry_points", lambda group: [EntryPoint("planes", "nowhere:Nothing", group)])
    assert methods.alignment_method("planes").name == "planes"


@pytest.mark.parametrize("share, longer", [(0.1, 1.0 / np.sqrt(0.9)), (0.5, np.sqrt(2.0))])
def test_noise_in_the_normals_weakens_a_direction_by_its_share_of_the_information(share, longer):
    """A corner, in which a range offset of the right lidar looks nearly like its sliding,
    and a little else does not."""
    unknowns = Unknowns((load_sensor("jt128_sparse_real").error_model(),) * 2)
    offset = unknowns.units[1].start + OFFSET
    rows = np.zeros((9, unknowns.size))
    rows[0, [RIGHT.start, offset]] = 1e4, 1e4
    rows[1, RIGHT.start] = 300.0
    rows[2:7, RIGHT.start + 1 : RIGHT.stop] = 1e4 * np.eye(5)
    data = NormalEquations(rows.T @ rows, np.zeros(unknowns.size))
    state = State((np.eye(4), np.eye(4)), tuple(np.zeros(model.size) for model in unknowns.models))
    priors = Priors(state, [np.zeros((6, 6))])
    by_chance = share * data.information[RIGHT, RIGHT]
    plain, weakened = (
        np.sqrt(np.diag(Solver(unknowns, priors).solve(data, state, chance).covariance))[RIGHT]
        for chance in (None, by_chance)
    )
    assert plain[0] > 1e-3  # the offset's prior decides: far weaker than 1 / 1e4
    np.testing.assert_allclose(weakened[1:] / plain[1:], longer, rtol=1e-3)
    assert plain[0] < weakened[0] < 1.01 * longer * plain[0]


def test_what_does_not_come_from_normals_is_not_weakened_by_their_noise():
    """In a corridor noise seems to say more of sliding along it than odometry does."""
    unknowns = Unknowns((load_sensor("jt128_sparse").error_model(),) * 2)
    data = NormalEquations(np.zeros((unknowns.size, unknowns.size)), np.zeros(unknowns.size))
    data.information[RIGHT, RIGHT] = np.diag([1e8] * 6)
    by_chance, beside = np.diag([1.1e8, 0.0, 0.0, 0.0, 0.0, 0.0]), np.zeros_like(data.information)
    beside[RIGHT.start, RIGHT.start] = 1e6
    data.information[:] += beside
    state = State((np.eye(4), np.eye(4)), tuple(np.zeros(model.size) for model in unknowns.models))
    priors = Priors(state, [np.zeros((6, 6)), np.eye(6)])
    lost, known = (
        np.sqrt(np.diag(Solver(unknowns, priors).solve(data, state, by_chance, beside=of_else).covariance))[RIGHT]
        for of_else in (0.0, beside)
    )
    assert known[0] == pytest.approx(1e-3, rel=0.02) and known[1] == pytest.approx(1e-4, rel=0.02)
    assert lost[0] > 10.0 * known[0]
