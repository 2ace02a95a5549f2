"""The alignment's parts: cells of directions, observability in words, methods by name, passes of the joint estimate."""

from collections import OrderedDict
from dataclasses import replace
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import numpy as np
import pytest

from stretch_sim_cal.calibration import methods
from stretch_sim_cal.calibration.alignment import joint_estimate
from stretch_sim_cal.calibration.clouds import Cloud, DirectionCells, DirectionGrid, cloud_of
from stretch_sim_cal.calibration.floor.support_method import SupportFloor
from stretch_sim_cal.calibration.lidars import DescribedLidar
from stretch_sim_cal.calibration.observability import covariance_of, directions, unobserved
from stretch_sim_cal.calibration.pipeline import alignment_of
from stretch_sim_cal.calibration.problem import NormalEquations, Priors, State, Unknowns
from stretch_sim_cal.calibration.results import AlignmentResult
from stretch_sim_cal.calibration.solver import Solver
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import exp, from_xyz_rpy
from stretch_sim_cal.sensor.sensor import load_sensor
from stretch_sim_cal.sensor.unit import OFFSET
from stretch_sim_cal.sensor.unit import directions as unit_vectors


def test_a_cell_does_not_depend_on_the_range_and_a_channel_stays_in_its_row():
    grid, directions = DirectionGrid.by_elevation(), np.random.default_rng(0).normal(size=(2000, 3))
    near = grid.cell_of(directions, np.linalg.norm(directions, axis=1))
    np.testing.assert_array_equal(near, grid.cell_of(7.5 * directions, 7.5 * np.linalg.norm(directions, axis=1)))
    assert near.min() >= 0 and near.max() < grid.num_cells
    for elevation in np.deg2rad([-90.0, -3.4, 0.1, 45.05, 89.1, 90.0]):
        ring = unit_vectors(np.full(500, elevation), np.linspace(0.0, 2.0 * np.pi, 500))
        assert len(np.unique(grid.row_of(grid.cell_of(ring, np.ones(500))))) == 1


def test_rings_are_whole_numbers_and_odd_intensities_zero_in_columns_and_fields():
    columns = np.array([[1.0, 0.0, 0.0, 2.0, 9.0], [0.0, 1.0, 0.0, np.nan, np.nan]], dtype="f4")
    fields = columns.view([(name, "f4") for name in ("x", "y", "z", "ring", "intensity")])[:, 0]
    for cloud in (cloud_of(columns, "left"), cloud_of(fields, "left")):
        assert cloud.ring.tolist() == [2, -1] and cloud.ring.dtype == int and cloud.intensity.tolist() == [9.0, 0.0]


AHEAD = np.array([[1.0, 0.0, 0.0]])


def cells_of(clouds):
    cells = DirectionCells()
    for points in clouds:
        cells.add(Cloud(points))
    return cells.cells()


def test_cells_hold_the_moments_of_all_their_returns_and_memory_does_not_grow_with_the_number_of_clouds():
    rng = np.random.default_rng(1)
    clouds = [np.array([0.6, 0.0, 0.8]) * rng.normal(2.0, 0.01, (30, 1)) for _ in range(20)]
    found, seen = cells_of(clouds), np.concatenate(clouds)
    np.testing.assert_allclose(found.counts, [600])
    np.testing.assert_allclose(found.points, [seen.mean(axis=0)])
    np.testing.assert_allclose(found.scatter[0], np.cov(seen.T, bias=True), atol=1e-10)
    np.testing.assert_allclose(found.noise_scatter[0], np.cov(seen.T), rtol=0.1, atol=1e-8)
    assert found.block_counts.sum() == 600
    rng, cells, sizes = np.random.default_rng(2), DirectionCells(), []
    for _ in range(64):
        cells.add(Cloud(3.0 * unit_vectors(rng.uniform(-0.1, 0.1, 500), rng.uniform(0.0, 0.5, 500))))
        sizes.append(sum(block.nbytes for block in cells._blocks))
    assert max(sizes[32:]) <= max(sizes[:32])


def test_what_stood_there_for_a_while_and_a_cell_that_always_sees_two_things_are_left_out():
    found = cells_of(AHEAD * (1.0 if tick == 3 else 3.0) for tick in range(8))
    np.testing.assert_allclose(found.points, 3.0 * AHEAD)
    np.testing.assert_allclose(found.disturbed, [1 / 8])
    beside, both = np.array([[0.0, 4.0, 0.0]]), AHEAD * np.array([[2.0], [2.0], [2.0], [3.0], [3.0]])
    np.testing.assert_allclose(cells_of([both, np.repeat(beside, 5, axis=0)] * 16).points, beside)


@pytest.mark.parametrize("width", [1, 2, 3, 5])
def test_what_moves_is_three_cells_wide_and_the_jitter_at_an_edge_is_not(width):
    around = unit_vectors(np.zeros(40), np.radians(np.arange(40) + 0.5))
    ranges = np.full((8, 40, 1), 3.0)
    ranges[3, 10 : 10 + width] = 1.0
    found = cells_of(around * ranges)
    assert np.count_nonzero(found.disturbed) == width
    assert np.count_nonzero(found.moving) == (width if width >= 3 else 0)


def test_single_returns_from_elsewhere_are_not_summed_even_in_the_first_frame():
    rng = np.random.default_rng(0)
    found = cells_of(AHEAD * rng.permutation([3.0] * 9 + [0.5 + 0.05 * tick])[:, None] for tick in range(40))
    # Of the last ones, too near the wall to be distinguished from it, a few remain.
    np.testing.assert_allclose(found.points, 3.0 * AHEAD, atol=1e-3)
    assert 300 <= found.counts[0] <= 370
    found = cells_of(AHEAD * (np.array([[3.0], [3.0], [0.7]]) if tick == 0 else 3.0) for tick in range(20))
    np.testing.assert_allclose(found.points, 3.0 * AHEAD)


@pytest.mark.parametrize(
    "across, behind, deviation, share",
    [
        (0.0, 0.085, 0.005, [0.0, 0.3]),  # laths of 4 cm every 7 cm
        (0.0, 0.0, 0.005, [0.98, 1.0]),
        (1.0, 0.0, 0.005, [0.95, 1.0]),  # by 25 to 65 deg; at its ends the slope is not known
        (0.0, 0.0, 0.03, [0.98, 1.0]),
    ],
)
def test_cells_of_laths_and_the_wall_behind_are_left_out_but_not_of_slanting_walls(across, behind, deviation, share):
    """A wall 4 m ahead, slanting by `across`, seen every 0.2 deg by a channel."""
    random, azimuth = np.random.default_rng(5), np.radians(np.arange(-20.0, 20.0, 0.2))
    ways = np.column_stack([np.cos(azimuth), np.sin(azimuth), np.zeros(len(azimuth))])
    to_wall, to_laths = (depth / (ways @ [1.0, across, 0.0]) for depth in (4.0, 4.0 - behind))
    on_lath = (to_laths * ways[:, 1]) % 0.07 < 0.04
    ranges = np.where(on_lath, to_laths, to_wall)
    found = cells_of(ways * (ranges + random.normal(0.0, deviation, len(ranges)))[:, None] for _ in range(4))
    assert share[0] <= found.counts.sum() / (4 * len(ranges)) <= share[1]


def covariance_with(rotation, deviations):
    """Return a covariance (6, 6) of 10 micrometres and microradians, but for `deviations` (3,) along turned axes."""
    covariance = 1e-10 * np.eye(6)
    covariance[:3, :3] = rotation @ np.diag(np.square(deviations)) @ rotation.T
    return covariance


def about_z(angle):
    return from_xyz_rpy((0.0, 0.0, 0.0), (0.0, 0.0, angle))[:3, :3]


@pytest.mark.parametrize(
    "angle, base_from_lidar, deviations, names",
    [
        # The lidar's x axis is base's y axis.
        (0.0, from_xyz_rpy((0.0, 0.0, 1.0), (0.0, 0.0, np.pi / 2)), [0.01, 1e-4, 1e-4], ["sliding along base y"]),
        (0.0, None, [0.01, 1e-4, 1e-4], ["sliding along lidar x"]),
        (np.arccos(0.6), np.eye(4), [0.01, 1e-5, 1e-5], ["sliding along base (0.6, 0.8, 0.0)"]),
        # Equally weak axes are those of the frame, and naming them brings none below its bound.
        (0.6, np.eye(4), [0.012, 0.011, 1e-4], ["sliding along base x", "sliding along base y"]),
        (np.pi / 4, np.eye(4), [1.1e-3, 0.8e-3, 1e-5], [None]),
    ],
)
def test_directions_are_named_in_base_axes(angle, base_from_lidar, deviations, names):
    found = [one for one in directions(covariance_with(about_z(angle), deviations), base_from_lidar, 1e-3, 1e-3)
             if not one.observed]  # fmt: skip
    assert names == [None] or sorted(direction.name for direction in found) == names
    assert found[0].standard_deviation <= deviations[0] * (1 + 1e-3) and len(found) == len(names)
    assert found[-1].standard_deviation >= deviations[len(names) - 1] * (1 - 1e-3)


def test_directions_come_weakest_first_and_are_unbounded_from_half_a_metre():
    covariance = np.diag([0.004, 0.001, 0.002, 3e-4, 1e-4, 2e-4]) ** 2
    found = directions(covariance, None, 0.003, 0.001)
    assert [(direction.name, round(direction.standard_deviation, 6)) for direction in found] == [
        ("sliding along lidar x", 0.004), ("sliding along lidar z", 0.002), ("sliding along lidar y", 0.001),
        ("turning about lidar x", 3e-4), ("turning about lidar z", 2e-4), ("turning about lidar y", 1e-4),
    ]  # fmt: skip
    assert [direction.observed for direction in found] == [False] + 5 * [True]
    for index, deviation, figures in (
        (0, 0.004, ("lidar x", " 4 mm", " 3 mm")), (0, 0.49, ("4.9e+02 mm", " 3 mm")), (0, 0.51, ("unbounded",)),
        (5, 0.002, ("lidar z", " 0.11 deg", " 0.057 deg")),
    ):  # fmt: skip
        covariance = np.diag([1e-4] * 6) ** 2
        covariance[index, index] = deviation**2
        (finding,) = unobserved(directions(covariance, None, 0.003, 0.001))
        assert finding.code == "unobserved" and all(figure in finding for figure in figures)


def test_a_covariance_is_the_inverse_of_the_information_bounded_by_a_metre():
    turned = np.linalg.qr(np.random.default_rng(5).normal(size=(6, 6)))[0]
    values = np.array([1e8, 1e6, 1e4, 100.0, 2.0, 0.1])
    expected = turned @ np.diag([1e-8, 1e-6, 1e-4, 0.01, 0.5, 1.0]) @ turned.T
    np.testing.assert_allclose(covariance_of(turned @ np.diag(values) @ turned.T), expected, atol=1e-9)


def in_the_open(axes, angle):
    """Return twists (n, 6) that nothing determines: turning about an upright axis 2 m away, and sliding along some."""
    chosen = ["xyz".index(name) for name in axes]
    twists = np.zeros((1 + len(axes), 6))
    twists[0, [1, 5]] = 2.0, 1.0
    twists[1:, chosen] = about_z(angle)[np.ix_(chosen, chosen)]
    return twists


@pytest.mark.parametrize(
    "twists, names",
    [
        ([[0, 1, 0, 3e-3, 0, 0]], ["sliding along base y"]),  # with a trace of turning, as noise brings it
        ([[0, 0.8, 0, 0, 0, 1]], ["turning about base z"]),  # about an upright axis 0.8 m away
        (in_the_open("y", 0.3), ["sliding along base y", "turning about base z"]),
        (in_the_open("xy", 0.0), ["sliding along base x", "sliding along base y", "turning about base z"]),
        (in_the_open("xyz", 0.5), [*(f"sliding along base {axis}" for axis in "xyz"), "turning about base z"]),
    ],
)
def test_what_is_not_seen_at_all_is_unbounded_and_does_not_spoil_the_rest(twists, names):
    weak = np.linalg.qr(np.transpose(twists))[0]
    covariance = covariance_of(1e8 * (np.eye(6) - weak @ weak.T))
    assert np.isfinite(covariance).all()
    found = directions(covariance, np.eye(4), 0.001, 0.001)
    unseen = [direction for direction in found if not direction.observed]
    assert len(found) == 6 and sorted(direction.name for direction in unseen) == names
    assert all("unbounded" in finding for finding in unobserved(unseen))
    rest = [direction.standard_deviation for direction in found if direction.observed]
    assert len(names) == 1 or rest == pytest.approx([1e-4] * len(rest), rel=1e-3)


def test_methods_are_found_by_name_and_another_package_may_add_one_but_replaces_none(monkeypatch):
    assert methods.alignment_method().name == "planes"
    assert methods.alignment_method("gicp").name == "gicp"
    assert methods.floor_method() is methods.floor_method("support") is SupportFloor
    with pytest.raises(InputError, match="gicp, planes"):
        methods.alignment_method("magic")
    values = {"theirs": "collections:OrderedDict", "broken": "nowhere:Nothing", "planes": "nowhere:Nothing"}
    monkeypatch.setattr(methods, "entry_points", lambda group: [EntryPoint(*each, group) for each in values.items()])
    assert methods.alignment_method("theirs") is OrderedDict
    assert "theirs" in methods.floor_method_names()
    assert methods.alignment_method("planes").name == "planes"
    with pytest.raises(InputError, match="broken"):
        methods.alignment_method("broken")


@pytest.mark.parametrize(("changes", "told"), [
    (None, "method 'theirs': solve: its result is of type NoneType, expected AlignmentResult"),
    ({"right_to_left": np.full((4, 4), np.nan)}, "its result: right_to_left: is not a 4x4 matrix of finite"),
    ({"covariance": np.zeros((6, 6))}, "its result: covariance is not a positive definite matrix (6, 6)"),
    ({"refusals": "too far"}, "its result: refusals and warnings have to be lists"),
])  # fmt: skip
def test_what_another_package_s_method_returns_is_looked_at(changes, told, monkeypatch):
    fine = AlignmentResult(np.eye(4), 1e-6 * np.eye(6), 0.001, 1, "theirs", 0.5, [])
    result = None if changes is None else replace(fine, **changes)
    theirs = SimpleNamespace(add=lambda *clouds: None, solve=lambda: result)
    monkeypatch.setattr(methods, "alignment_method", lambda name: lambda initial, settings: theirs)
    lidars = {side: DescribedLidar(np.eye(4)) for side in ("left", "right")}
    with pytest.raises(InputError) as raised:
        alignment_of("theirs", lidars).solve()
    assert told in str(raised.value)


RIGHT = slice(6, 12)  # the columns of the second lidar's pose


@pytest.mark.parametrize("noise", [0.02, 0.05])
def test_noise_in_the_normals_is_no_information_where_ranges_look_like_the_pose(noise):
    """Surfaces that nearly all face the same way, so that a range offset looks nearly like a motion."""
    unknowns = Unknowns((load_sensor("jt128_sparse_real").error_model(),) * 2)
    columns = [RIGHT.start, unknowns.units[1].start + OFFSET]
    state = State((np.eye(4), np.eye(4)), tuple(np.zeros(model.size) for model in unknowns.models))
    solver, random = Solver(unknowns, Priors(state, [np.zeros((6, 6))])), np.random.default_rng(1)
    size, deviation, off = 2000, 0.005, []
    for _ in range(200):
        true = np.column_stack([1.0 + 0.05 * random.normal(size=size), np.ones(size)])
        rows = true + np.column_stack([noise * random.normal(size=size), np.zeros(size)])
        # What is repeated until it changes no more: heights change as the true normals say, not the noisy ones.
        residuals = deviation * random.normal(size=size)
        off.append(np.linalg.solve(rows.T @ true, rows.T @ residuals)[0])
    data = NormalEquations(1e8 * np.diag(np.isin(np.arange(unknowns.size), np.r_[RIGHT])), np.zeros(unknowns.size))
    data.information[RIGHT.start, RIGHT.start] = 0.0
    data.information[np.ix_(columns, columns)] += rows.T @ rows / deviation**2
    of_noise = np.diag([size * noise**2 / deviation**2, 0.0, 0.0, 0.0, 0.0, 0.0])
    plain, weakened = (
        np.sqrt(solver.solve(data, state, each, learn=False).covariance[RIGHT.start, RIGHT.start])
        for each in (None, of_noise)
    )
    assert plain < 0.9 * np.std(off)
    assert weakened == pytest.approx(np.std(off), rel=0.15)


def test_what_does_not_come_from_normals_is_not_weakened_by_their_noise():
    """In a corridor noise seems to say more of sliding along it than odometry does."""
    unknowns = Unknowns((load_sensor("jt128_sparse").error_model(),) * 2)
    data = NormalEquations(np.zeros((unknowns.size, unknowns.size)), np.zeros(unknowns.size))
    data.information[RIGHT, RIGHT] = np.diag([1e8] * 6)
    noise, beside = np.diag([1.1e8, 0.0, 0.0, 0.0, 0.0, 0.0]), np.zeros_like(data.information)
    beside[RIGHT.start, RIGHT.start] = 1e6
    data.information[:] += beside
    state = State((np.eye(4), np.eye(4)), tuple(np.zeros(model.size) for model in unknowns.models))
    priors = Priors(state, [np.zeros((6, 6)), np.eye(6)])
    lost, known = (
        np.sqrt(np.diag(Solver(unknowns, priors).solve(data, state, noise, beside=of_else).covariance))[RIGHT]
        for of_else in (0.0, beside)
    )
    assert known[0] == pytest.approx(1e-3, rel=0.02) and known[1] == pytest.approx(1e-4, rel=0.02)
    assert lost[0] > 10.0 * known[0]


@pytest.mark.parametrize(
    ("share", "end", "rest"), [(0.5, 6e-3, 1e-4), (2.0, 6e-3, 1e-4), (2.0, 4e-3, 1e-4), (2.0, 6e-3, 1e-2)]
)
def test_a_direction_that_one_place_determines_is_as_uncertain_as_without_it(monkeypatch, share, end, rest):
    """Known to 0.1 mm, as it seems, and to `rest` (m) without what was seen within 0.8 m of the place."""
    share *= joint_estimate.HINGES
    block = SimpleNamespace(
        strongest_place=lambda direction: (np.array([2.0, 0.0, 0.0]), share),
        information_along=lambda direction: 1.0, noise=None,
    )  # fmt: skip
    state, seen = SimpleNamespace(base_from_lidar=(np.eye(4), np.eye(4))), []
    found = SimpleNamespace(
        blocks=[block], solution=SimpleNamespace(covariance_of=lambda _: 1e-8 * np.eye(6)), state=state
    )
    solver = SimpleNamespace(unknowns=SimpleNamespace(free_poses=np.arange(6)))
    twist = np.array([end, 0.0, 0.0, 0.0, 0.0, 0.0])
    points = np.array([[2.5, 0.5, 0.0], [3.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    lidar = SimpleNamespace(surface=SimpleNamespace(points=points), only=lambda kept: seen.append(kept.tolist()))
    ended = SimpleNamespace(
        state=SimpleNamespace(base_from_lidar=(np.eye(4), exp(twist))),
        solution=SimpleNamespace(covariance_of=lambda columns: rest**2 * np.eye(len(columns))),
    )  # fmt: skip
    for name in ("_one_pass", "estimate_jointly"):
        monkeypatch.setattr(joint_estimate, name, lambda *_: ended)
    added = joint_estimate.leave_one_place_out([(lidar, lidar)], found, solver)
    told = share > joint_estimate.HINGES and end > 5e-3 and rest < end
    expected = np.outer(twist, twist) if told else np.zeros((6, 6))
    np.testing.assert_allclose(added, expected, atol=1e-15)
    assert seen == [[False, True, True]] * (2 * (share > joint_estimate.HINGES))
