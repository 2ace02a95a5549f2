"""The residual block of the room against its definition, by finite differences."""

from dataclasses import replace

import numpy as np
import pytest

from stretch_sim_cal.calibration.clouds import DirectionCells, cloud_of
from stretch_sim_cal.calibration.patches import Fits, Noise, Patches, remeasured
from stretch_sim_cal.calibration.problem import NormalEquations, State, Unknowns
from stretch_sim_cal.calibration.room import FloorTrust, measure_gaps, remeasured_block, room_block, scale_of
from stretch_sim_cal.calibration.surfaces import Lidar, in_base
from stretch_sim_cal.geometry.transforms import SIDES
from stretch_sim_cal.sensor.unit import INCIDENCE, OFFSET
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import SimulationSetup

LEFT, RIGHT, FLOOR, CURVATURE = slice(0, 6), slice(6, 12), slice(12, 15), slice(15, 18)  # the columns of two lidars
NEARBY = FloorTrust(lambda points: (np.linalg.norm(points[:, :2], axis=1) < 3.0).astype(float), 0.001, 0.02)
GRIDS = 2


class Room:
    """A furnished room at the truth, with the floor, as two units with known errors see it; of one, if it is given
    twice, other scans."""

    def __init__(self, sides=SIDES):
        simulator = EmbeddedSimulator(SimulationSetup("furnished_room", "jt128_sparse_real", seed=5))
        self.model = simulator.sensor.error_model()
        self.unknowns = Unknowns((self.model, self.model))
        self.state = State(
            tuple(simulator.base_from_lidar(side) for side in sides),
            tuple(simulator.lidar(side).unit.values for side in sides), simulator.floor_in_base,
        )  # fmt: skip
        self.noise = Noise(np.full(2, simulator.sensor.range_noise), 3e-4)
        self.lidars = []
        for number, side in enumerate(sides):
            cells = DirectionCells(simulator.sensor)
            for tick in range(3 * sides[:number].count(side), 3 * sides[:number].count(side) + 3):
                cells.add(cloud_of(simulator.scan(side, tick), side))
            self.lidars.append(Lidar.of_cells(cells))
        self.block = self.at(self.state)

    def at(self, state, trust=NEARBY):
        return room_block(self.lidars, state, self.noise, 0.0, GRIDS, trust)

    def moved(self, columns, by, trust=NEARBY):
        change = np.zeros(self.unknowns.size)
        change[columns] = by
        return self.at(self.unknowns.moved(self.state, change), trust)

    def equations(self, block):
        equations = NormalEquations.empty(self.unknowns.size)
        block.add_to(equations, self.unknowns, self.lidars)
        return equations

    def cost(self, block, change):
        """Return the weighted squares of all heights after a change (n,), with the best plane for every patch."""
        patches, state = block.flat[0], self.unknowns.moved(block.state, change)
        heights = remeasured(in_base(self.lidars, state), patches, block.members).heights
        side, total = block.surface.side[block.members.cell], 0.0
        over_floor = dict(zip(block.floor.patches, block.floor.weights, strict=True))
        for patch in np.flatnonzero((block.patch_weights > 0).any(axis=1)):
            own = np.flatnonzero(block.members.patch == patch)
            beside = block.members.coordinates[own] - block.spots[patch]
            left = (side[own] == 0)[:, None]
            design = np.hstack([np.ones((len(own), 1)), beside * left, beside * ~left])
            weights, seen = block.patch_weights[patch, side[own]] / block.variances[own], heights[own]
            if patch in over_floor:
                spot = patches.centres[patch] + block.spots[patch] @ patches.axes[patch]
                design = np.vstack([design, [1.0, 0.0, 0.0, 0.0, 0.0]])
                weights = np.append(weights, over_floor[patch] / block.floor.unevenness**2)
                seen = np.append(seen, -state.height_over_floor(spot[None])[0])
            roots = np.sqrt(weights)
            plane = np.linalg.lstsq(roots[:, None] * design, roots * seen, rcond=None)[0]
            total += np.sum(weights * (seen - design @ plane) ** 2)
        return total / GRIDS


@pytest.fixture(scope="module")
def room():
    return Room()


ONE_BY_ONE = {"left": LEFT, "right": RIGHT, "floor": FLOOR, "curvature": CURVATURE, "left offset": 18 + OFFSET,
              "left incidence": 18 + INCIDENCE}  # fmt: skip


def test_its_normal_equations_are_the_derivatives_of_the_squared_heights(room):
    """But for a tenth of a standard deviation: arms are those of the rays' hits, which noise does not move."""
    away = [*range(RIGHT.start, RIGHT.stop), FLOOR.start]
    block = room.moved(away, (8e-4, -6e-4, 7e-4, 1e-4, 2e-4, -2e-4, 1e-3))
    equations, off = room.equations(block), []
    here = room.cost(block, np.zeros(room.unknowns.size))

    def slope_and_bend(step):
        before, after = (room.cost(block, sign * step) for sign in (-1.0, 1.0))
        bend = step @ equations.information @ step
        assert (before + after - 2.0 * here) / 2.0 == pytest.approx(bend, rel=0.03)
        return (before - after) / 4.0, equations.gradient @ step, np.sqrt(bend)

    for name, columns in ONE_BY_ONE.items():
        step = np.zeros(room.unknowns.size)
        step[columns] = 1e-5 * np.random.default_rng(2).normal(size=np.shape(step[columns]))
        by_difference, slope, deviation = slope_and_bend(step)
        assert by_difference == pytest.approx(slope, rel=0.01, abs=0.1 * deviation), name
    for seed in range(6):  # along any direction, on average: of the noise in hundreds of channels' errors
        step = 1e-5 * np.random.default_rng(seed).normal(size=room.unknowns.size)
        by_difference, slope, deviation = slope_and_bend(step)
        off.append((by_difference - slope) / deviation)
    assert np.sqrt(np.mean(np.square(off))) < 0.15


def test_at_the_truth_gaps_are_as_large_as_their_variances_say_and_floor_that_one_lidar_alone_sees_counts(room):
    gaps, kept = room.block.gaps, room.block.weights > 0
    assert np.mean(gaps.values[kept] ** 2 / gaps.variances[kept]) == pytest.approx(1.0, abs=0.35)
    assert room.block.rmse == pytest.approx(np.sqrt(np.mean(gaps.values[kept] ** 2)))
    assert room.block.num_used == kept.sum() / GRIDS > 30
    members = room.block.members
    seen = [np.unique(members.patch[room.block.surface.side[members.cell] == side]) for side in (0, 1)]
    alone = np.setxor1d(*seen)
    assert np.count_nonzero(np.isin(room.block.floor.patches, alone)) > 20
    assert not np.isin(room.block.gaps.patches, alone).any()


def test_the_gaps_of_a_moved_lidar_follow_their_jacobian(room):
    step = np.array([0.001, -0.001, 0.001, 2e-4, 1e-4, -2e-4])
    moved = room.moved(RIGHT, step)
    jacobian = moved.gaps.jacobian
    information = (jacobian.T / moved.gaps.variances) @ jacobian
    found = np.linalg.solve(information, (jacobian.T / moved.gaps.variances) @ moved.gaps.values)
    assert np.all(np.abs(found - step) < np.repeat([5e-4, 2e-4], 3))
    assert moved.scale > room.block.scale and moved.rmse > room.block.rmse
    squares = np.sum((moved.weights > 0) * moved.gaps.values**2 / moved.gaps.variances) / GRIDS
    assert moved.scale == pytest.approx(np.sqrt(squares / (moved.num_used - 6))) and moved.scale > 1.02
    assert scale_of([moved] * 2) == pytest.approx(np.sqrt(2 * squares / (2 * moved.num_used - 6)))


def test_both_lidars_see_one_floor_and_a_lifted_one_another(room):
    gap, covariance = room.block.floor_gap()
    assert gap @ np.linalg.solve(covariance, gap) < 16.3
    lifted, _ = room.moved(RIGHT.start + 2, 0.002).floor_gap()
    assert gap[0] - lifted[0] == pytest.approx(0.002, rel=0.2) and np.sqrt(covariance[0, 0]) < 5e-4
    few = replace(room.block, floor=replace(room.block.floor, patches=room.block.floor.patches[:3]))
    assert few.floor_gap() is None


def test_only_the_floor_has_no_information_of_walls(room):
    floor = room.block.only(room.block.floor.patches)
    assert 0 < np.count_nonzero(floor.patch_weights.any(axis=1)) == len(room.block.floor.patches)
    yaw = np.zeros(room.unknowns.size)
    yaw[RIGHT.start + 5] = 1.0
    assert yaw @ room.equations(floor).information @ yaw < 0.01 * (yaw @ room.equations(room.block).information @ yaw)
    assert not room.equations(replace(floor, patch_weights=np.zeros_like(floor.patch_weights))).information.any()


def test_noise_information_is_that_of_normals_drawn_by_their_covariance(room):
    gaps, random = room.block.gaps, np.random.default_rng(4)
    total, draws = np.zeros((6, 6)), 300
    for _ in range(draws):
        slopes = np.einsum(
            "gab,gb->ga", np.linalg.cholesky(gaps.slope_covariances), random.normal(size=(len(gaps.values), 2))
        )
        tilts = np.einsum("ga,gai->gi", slopes, gaps.slope_axes)
        rows = np.hstack([tilts, np.cross(gaps.points, tilts)])
        total += (rows.T * (room.block.weights / gaps.variances / GRIDS)) @ rows
    noise_information = room.block.noise_information()
    np.testing.assert_allclose(np.diag(noise_information), 1.25 * np.diag(total) / draws, rtol=0.1)


def test_only_patches_show_an_error_that_moves_every_surface_alike(room):
    """An offset of ranges with as large an error of incidence is the same length along every surface's normal."""
    block = room.block.with_elements()
    of_elements = room.equations(replace(block, patch_weights=np.zeros_like(block.patch_weights))).information
    alike, offset = np.zeros((2, room.unknowns.size))
    for unit in room.unknowns.units:
        alike[[unit.start + OFFSET, unit.start + INCIDENCE]] = offset[unit.start + OFFSET] = 1.0
    assert offset @ of_elements @ offset > 100.0 * (alike @ of_elements @ alike)
    assert alike @ of_elements @ alike < 0.02**-2


def test_elements_of_lidars_at_one_spot_do_not_show_an_offset_of_ranges_that_both_have():
    """What shape surfaces have between the cells would look like one: of real lidars, offsets of half a metre."""
    room = Room(sides=("left", "left"))
    block, both = room.block.with_elements(), np.zeros(room.unknowns.size)
    both[[unit.start + OFFSET for unit in room.unknowns.units]] = 1.0
    of_elements = room.equations(replace(block, patch_weights=np.zeros_like(block.patch_weights))).information
    assert both @ of_elements @ both < 0.3**-2


def test_what_is_nearer_than_lidars_measure_well_is_not_used(room):
    ranges, usable = (np.concatenate([getattr(lidar.surface, name) for lidar in room.lidars])
                      for name in ("ranges", "usable"))  # fmt: skip
    assert np.any(ranges < 0.3) and not np.any(usable & (ranges < 0.3)) and np.all(usable | (ranges < 0.3))


def fits(height, slope=0.0, count=20, misfit=17.0, deviations=(0.001, 0.01, 0.01), correlation=0.0):
    covariance = np.diag(np.square(deviations))
    covariance[0, 1] = covariance[1, 0] = correlation * deviations[0] * deviations[1]
    return Fits(np.array([[height, slope, 0.0]]), covariance[None], np.zeros(0), np.array([count]), np.array([misfit]))


PATCH = Patches(np.array([[3.0, 0.0, 1.0]]), np.array([[0.0, 0.0, 1.0]]), np.eye(3)[None, :2], np.array([0.4]))


def test_a_gap_is_the_right_height_over_the_left_one_where_both_are_known_best():
    gaps = measure_gaps(PATCH, [fits(0.001, 0.02), fits(0.004, 0.04)])
    assert gaps.values[0] == pytest.approx(0.003) and gaps.variances[0] == pytest.approx(2e-6)
    np.testing.assert_allclose(gaps.points, [[3.0, 0.0, 1.0025]])
    np.testing.assert_allclose(gaps.normals, np.array([[-0.03, 0.0, 1.0]]) / np.hypot(0.03, 1.0))
    np.testing.assert_allclose(gaps.slope_covariances[0], np.diag([5e-5, 5e-5]))
    beside = measure_gaps(PATCH, [fits(0.001, 0.02, correlation=0.6), fits(0.004, 0.04, correlation=0.6)])
    np.testing.assert_allclose(beside.spots, [[-0.06, 0.0]])
    assert beside.values[0] == pytest.approx(0.003 - 0.06 * 0.02) and beside.variances[0] == pytest.approx(1.28e-6)
    np.testing.assert_allclose(beside.points, [[2.94, 0.0, 1.0 + 0.0025 - 0.06 * 0.03]])


def test_the_gaps_of_three_lidars_count_as_the_two_that_are_independent():
    deviations = (0.001, 0.002, 0.004)
    gaps = measure_gaps(PATCH, [fits(0.0, deviations=(each, 0.01, 0.01)) for each in deviations])
    assert gaps.pairs.tolist() == [[0, 1], [0, 2], [1, 2]] and not gaps.values.any()
    # By all heights together, the common one eliminated.
    weights = np.array(deviations) ** -2.0
    exact = np.diag(weights) - np.outer(weights, weights) / weights.sum()
    rows = gaps.jacobian.toarray()[:, [2, 8]]  # along z: those of the second and of the third lidar
    np.testing.assert_allclose((rows.T * gaps.shares / gaps.variances) @ rows, exact[1:, 1:], rtol=1e-9)


@pytest.mark.parametrize(
    "changes, usable",
    [
        ({"count": 6, "misfit": 3.0}, True),
        ({"count": 5, "misfit": 2.0}, False),
        ({"count": 6, "misfit": 3 * (1 + 3.9 * np.sqrt(2 / 3))}, True),
        ({"count": 6, "misfit": 3 * (1 + 4.1 * np.sqrt(2 / 3))}, False),
        ({"misfit": 17 * (1 + 3.9 * np.sqrt(2 / 17))}, True),
        ({"misfit": 17 * (1 + 4.1 * np.sqrt(2 / 17))}, False),
        ({"deviations": (0.001, 0.027, 0.027)}, True),
        ({"deviations": (0.001, 0.029, 0.029)}, False),
        ({"deviations": (0.0035, 0.01, 0.01), "correlation": 0.9}, False),  # known best 0.315 m beside it
    ],
)
def test_a_patch_needs_cells_enough_flatness_and_a_known_normal(changes, usable):
    assert len(measure_gaps(PATCH, [fits(0.0, **changes), fits(0.0, **changes)]).values) == usable
    assert len(measure_gaps(PATCH, [fits(0.0), fits(0.0, **changes)]).values) == usable or "deviations" in changes


def test_patches_of_the_floor_lie_flat_count_and_are_trusted_as_their_place_is(room):
    floor = room.block.floor
    assert np.all(room.block.flat[0].normals[floor.patches] @ room.state.floor.normal > np.cos(0.05))
    assert np.all(room.block.patch_weights[floor.patches] > 0)
    half = FloorTrust(lambda points: NEARBY.trust(points) / 2, NEARBY.unevenness, NEARBY.gate)
    # The first takes over the angles at which this state's rays meet the patches.
    _, whole, halved = (
        remeasured_block(room.lidars, room.state, room.block, trust).floor for trust in (NEARBY, NEARBY, half)
    )
    np.testing.assert_array_equal(halved.patches, whole.patches)
    np.testing.assert_allclose(halved.weights, whole.weights / 2)


def test_patches_off_the_floor_lose_their_weight_and_count_not_at_all_beyond_the_gate(room):
    floor = room.block.floor
    assert len(floor.patches) > 20 and 0.7 < floor.weights.mean() <= 1.0 and floor.unevenness == NEARBY.unevenness
    rough, narrow = (FloorTrust(NEARBY.trust, 0.02, gate) for gate in (0.02, 0.004))
    raised = [room.moved(FLOOR.start, 0.008, trust).floor.weights.sum() for trust in (NEARBY, rough, narrow)]
    assert raised[0] < 0.01 * len(floor.weights) and raised[1] > 20 and raised[2] < 0.01 * len(floor.weights)
