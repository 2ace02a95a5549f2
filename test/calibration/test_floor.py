"""The floor under the robot, among other surfaces that look like it."""

import re
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from alignment_scenes import further_long
from floor_scenes import Scene, box, height_field, scene_of, solve, solved

import stretch_sim_cal as cal
from stretch_sim_cal import files
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.floor.fit import FloorFit
from stretch_sim_cal.calibration.floor.support_method import SupportFloor
from stretch_sim_cal.calibration.lidars import with_lidars
from stretch_sim_cal.calibration.mounts.file import with_floor
from stretch_sim_cal.calibration.observations import Observations
from stretch_sim_cal.calibration.results import LidarPoses
from stretch_sim_cal.calibration.settings import FloorSettings
from stretch_sim_cal.calibration.verification import reestimate
from stretch_sim_cal.geometry.planes import footprint_from_base
from stretch_sim_cal.geometry.transforms import apply, from_xyz_rpy, inverse
from stretch_sim_cal.sensor.points import coordinates
from stretch_sim_cal.sensor.unit import UnitSpread
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import SimulationSetup

SPARSE = {"millimetres": 0.25, "degrees": 0.015}  # what 5 frames of the sparse sensor allow


@pytest.mark.parametrize("world", further_long("tables", "furnished_room"))
def test_ten_frames_of_the_real_sensor_meet_the_target(world):
    scene = Scene(world, seed=101, sensor="jt128_ideal")
    result = scene.solve(frames=10)
    scene.assert_found(result, millimetres=0.1, degrees=0.006)
    assert result.num_frames == 10 and result.method == "support"
    np.testing.assert_allclose(result.footprint_from_base, footprint_from_base(result.plane), atol=1e-12)
    assert result.diagnostics["range_noise"] == pytest.approx(0.01, rel=0.03)


LEGS = np.random.default_rng(0).uniform(-2, 2, (40, 2))
THINGS = {
    "a carpet of 8 mm ahead": [box([3, 4, 0.016], [2.0, 0, 0])],
    "a platform of 4 cm ahead": [box([4, 6, 0.08], [2.6, 0, 0])],
    "a threshold of 2 cm": [box([0.1, 4, 0.04], [0.9, 0, 0])],
    "cables": [box([3, 0.012, 0.012], [0.3, y, 0.006], yaw) for y, yaw in ((0.7, 0.1), (-0.8, -0.2), (1.2, 0.4))],
    "tables above most of the floor, with many legs": [
        *(box([2.4, 1.4, 0.04], [0.2, y, 0.74]) for y in (1.2, -1.2)),
        *(box([0.1, 0.1, 0.9], [*place, 0.45]) for place in LEGS if np.hypot(*place) > 0.5),
    ],
    "the floor behind hidden": [box([6, 10, 0.5], [-3.2, 0, 0.25])],
}  # fmt: skip


@pytest.mark.parametrize("what", THINGS)
def test_the_floor_is_found_despite(what):
    scene = Scene(things=THINGS[what])
    scene.assert_found(scene.solve(), **SPARSE)


def test_a_carpet_of_3_mm_is_distinguished_from_the_floor_by_the_real_sensor():
    scene = Scene(sensor="jt128_ideal", things=[box([3, 4, 0.006], [2.0, 0, 0])])
    scene.assert_found(scene.solve(frames=4), **SPARSE)


@pytest.mark.parametrize(
    ("edge", "behind", "frames"), [(0.5, False, 1), pytest.param(1.0, False, 3, marks=pytest.mark.long), (0.6, True, 1)]
)
def test_a_step_of_3_mm_through_the_floor_is_seen_by_the_sparse_sensor(edge, behind, frames):
    slab = box([6, 12, 0.006], [3 - edge if behind else 3 + edge, 0, 0])
    scene = Scene(things=[slab], stands_on=0.003 if behind else 0.0)
    result = scene.solve(frames=frames)
    scene.assert_found(result, millimetres=0.4, degrees=0.03)  # 1 mm and 0.05 deg if taken for unevenness
    error = scene.error(result)
    assert error @ np.linalg.solve(result.covariance, error) < 16.0
    told = next(warning for warning in result.warnings if "a step runs through the floor" in warning)
    assert ("behind: beyond it the floor is 3" in told or "behind: beyond it the floor is 2" in told) == behind


@pytest.mark.parametrize("seed", further_long(1, 2))
def test_a_step_of_half_of_that_is_seen_in_one_frame_or_makes_the_result_less_sure(seed):
    scene = Scene(seed=seed, things=[box([6, 12, 0.003], [3.5, 0, 0])])
    result = scene.solve(frames=1)
    assert abs(scene.error(result)[0]) < 3.5 * np.sqrt(result.covariance[0, 0])


@pytest.mark.parametrize("ahead", further_long(False, True))
def test_of_a_floor_that_bends_the_robots_side_counts(ahead):
    ramp = height_field(lambda x, y: np.radians(0.3) * np.maximum((x if ahead else -x) - 0.4, 0.0))
    scene = Scene(sensor="jt128_ideal", things=[ramp], without=("floor", "ground"))
    result = scene.solve(frames=4)
    scene.assert_found(result, millimetres=0.3, degrees=0.02)  # 0.1 deg if taken for curvature
    where = "ahead" if ahead else "behind"
    assert any(re.search(f"the floor bends 0.[345] m {where}: .* rises by 0.2. deg", each) for each in result.warnings)


def test_a_robot_on_a_carpet_or_a_stage_stands_on_it():
    scene = Scene(things=[box([2.6, 2.6, 0.016], [0, 0, 0])], stands_on=0.008)
    result = scene.solve(frames=8)
    scene.assert_found(result, millimetres=0.3, degrees=0.02)
    assert any("lower than the plane" in warning for warning in result.warnings)
    stage = Scene(things=[box([2.4, 2.4, 0.3], [0, 0, 0.15])], stands_on=0.3)
    stage.assert_found(stage.solve(), millimetres=0.3, degrees=0.02)


def test_a_person_who_walks_by_does_not_raise_the_floor():
    scene = Scene()

    def pairs():
        for frame in range(6):
            for side in (-0.1, 0.1):
                scene.simulator.add_surface(f"leg {side}", box([0.3, 0.1, 0.9], [-1.0 + 0.3 * frame, 0.8 + side, 0.45]))
            yield next(scene.simulator.point_pairs(1, frame))

    scene.assert_found(solve(scene.method(), pairs()), **SPARSE)


def test_where_the_floor_bends_the_plane_touches_it_at_the_robot():
    bowl = height_field(lambda x, y: 0.0005 * (x**2 + y**2))  # 2 mm at 2 m
    scene = Scene(things=[bowl], without=("floor", "ground"))
    result = scene.solve()
    scene.assert_found(result, millimetres=0.3, degrees=0.02)
    assert result.diagnostics["curvature"] > 0.0005


@pytest.mark.parametrize("world", further_long("furnished_room", "tables"))
def test_ranges_that_are_all_too_long_do_not_sink_the_floor(world):
    scene = Scene(world, sensor="jt128_ideal", sensor_changes={"range_biases": np.full(128, 0.004)})
    described = replace(scene.simulator.sensor, spread=UnitSpread(range_offset=0.005))
    result = scene.solve(frames=5, settings=FloorSettings(sensor=described))
    error = scene.error(result)
    assert abs(error[0]) < 4 * np.sqrt(result.covariance[0, 0])
    assert abs(error[0]) < 0.0015  # 3 mm if they were believed
    assert result.diagnostics["range_offset_left"] == pytest.approx(0.004, abs=0.002)


def test_a_rough_floor_makes_the_result_less_sure():
    rough = height_field(lambda x, y: 0.0015 * np.sin(2 * x) * np.sin(2 * y + 1))
    even, uneven = solved(), Scene(things=[rough], without=("floor", "ground")).solve()
    assert uneven.support.unevenness > 0.0003 > 0.0002 > even.support.unevenness
    assert uneven.covariance[0, 0] > 1.5 * even.covariance[0, 0]
    assert any("uneven" in warning for warning in uneven.warnings)


def test_of_a_floor_in_waves_the_tilt_is_less_sure_where_less_of_them_is_seen():
    random = np.random.default_rng(0)
    lengths, ways, phases = np.exp(random.uniform(0.0, np.log(5.0), 12)), *random.uniform(0.0, np.pi, (2, 12))
    waves = height_field(lambda x, y: 4e-4 * sum(
        np.cos(2.0 * np.pi / length * (np.cos(way) * x + np.sin(way) * y) + 2.0 * phase)
        for length, way, phase in zip(lengths, ways, phases, strict=True)
    ))  # fmt: skip
    walls = [box((10.0, 0.1, 2.0), (0.0, y, 1.0)) for y in (-1.6, 1.6)]
    scenes = [Scene(things=[waves, *things], without=("floor", "ground")) for things in ([], walls)]
    with mock.patch.object(FloorFit, "seen_alike", 0.0):  # of wheels that stand on the waves
        hall, aisle = results = [scene.solve() for scene in scenes]
    tilts = [np.sqrt(result.covariance[1, 1]) for result in results]  # about the aisle's length
    assert tilts[1] > 1.75 * tilts[0]
    assert aisle.support.unevenness == pytest.approx(hall.support.unevenness, rel=0.2)  # looks as uneven
    for scene, result in zip(scenes, results, strict=True):
        assert np.all(np.abs(scene.error(result)) < 3.0 * np.sqrt(np.diag(result.covariance)))


@pytest.mark.parametrize("noise", [0.0, pytest.param(0.002, marks=pytest.mark.long), 0.03])
def test_any_noise_is_recognised_and_fitted(noise):
    scene = Scene("furnished_room", sensor_changes={"range_noise": noise})
    result = scene.solve(frames=3)
    scene.assert_found(result, millimetres=0.05 + 20 * noise, degrees=0.005 + noise)
    assert result.diagnostics["range_noise"] == pytest.approx(max(noise, 0.0005), rel=0.1)


def test_mixed_pixels_and_channel_biases_are_survived():
    biases = np.random.default_rng(3).normal(0, 0.005, 64)
    scene = Scene("furnished_room", sensor_changes={"beam_divergence": np.radians(0.2), "range_biases": biases})
    scene.assert_found(scene.solve(frames=3), millimetres=0.6, degrees=0.03)


def test_a_wrong_alignment_does_not_move_the_floor_of_the_left_lidar():
    scene, right = scene_of("furnished_room"), solved("furnished_room")
    wrong = scene.solve(alignment_error=[0.0003, -0.0002, 0.0003, 1e-4, -1e-4, 1e-4])
    scene.assert_found(wrong, **SPARSE)
    assert abs(right.plane.offset - wrong.plane.offset) < 0.0001


def test_an_unsure_alignment_makes_the_floor_less_sure():
    scene = scene_of("furnished_room")
    known = [Observations.of_known_poses((scene.right_to_left,), np.eye(6) * variance) for variance in (1e-14, 1e-4)]
    sure, unsure = (scene.solve(2, FloorSettings(observations=each)) for each in known)
    assert unsure.covariance[0, 0] > 1.5 * sure.covariance[0, 0]


@pytest.mark.parametrize("scenes", further_long(3, 5))
def test_on_an_even_floor_the_covariance_covers_the_error_and_there_is_no_step(scenes):
    squares = []
    for seed in range(1, 1 + scenes):
        result = solved("furnished_room", seed, frames=1)
        error = scene_of("furnished_room", seed).error(result)
        squares.append(error @ np.linalg.solve(result.covariance, error))
        assert "floor_step" not in {warning.code for warning in (*result.warnings, *solved().warnings)}
    assert 1.0 < np.mean(squares) < 6.0  # 3 for a perfect one


def test_the_answer_moves_with_the_frame_it_is_asked_in():
    scene, here = scene_of("furnished_room"), solved("furnished_room", frames=2)
    other_from_base = from_xyz_rpy([0.4, -0.3, 0.2], [0.02, -0.03, 2.0])
    poses = other_from_base @ scene.base_from_left, scene.right_to_left
    nominal = scene.footprint_from_base @ inverse(other_from_base)
    method = SupportFloor(*poses, nominal, FloorSettings(sensor=scene.simulator.sensor))
    there, expected = solve(method, scene.pairs(2)).plane, here.plane.moved(other_from_base)
    np.testing.assert_allclose(there.normal, expected.normal, atol=1e-9)
    assert there.offset == pytest.approx(expected.offset, abs=1e-9)


@pytest.fixture
def wide(tmp_path):
    """A robot with a skirt of 2.6 by 2 m, 45 mm above the floor: its simulator, and its rig."""
    share = files.share_directory()
    skirt = """<link name="skirt"><collision><geometry><box size="2.6 2 0.03"/></geometry></collision></link>
      <joint name="skirt_joint" type="fixed"><origin xyz="0 0 -0.07"/><parent link="base_link"/><child link="skirt"/>
      </joint></robot>"""
    text = (share / "models/two_lidar_amr.urdf.xacro").read_text().replace("</robot>", skirt)
    (tmp_path / "wide.urdf.xacro").write_text(text)
    profile = (share / "config/robots/two_lidar_amr.yaml").read_text()
    (tmp_path / "wide.yaml").write_text(profile.replace("../../models/two_lidar_amr.urdf.xacro", "wide.urdf.xacro"))
    setup = {"robot": str(tmp_path / "wide.yaml"), "world": "furnished_room", "sensor": "os0_32_sparse", "seed": 1}
    simulator = EmbeddedSimulator(SimulationSetup.from_mapping(setup | {"base_error": {"height": 0.003}}))
    return simulator, cal.Rig.from_urdf(simulator.nominal_description, sensor="os0_32_sparse", robot=setup["robot"])


def test_a_wide_low_base_is_no_floor_and_hides_what_is_below_it(wide):
    simulator, rig = wide
    heights = {}
    for body, given in (("as described", rig.body), ("as the Stretch", {})):
        settings = FloorSettings(sensor=rig.sensor, **given)
        method = SupportFloor(rig.base_from_left, rig.left_from_right, rig.footprint_from_base, settings)
        result = solve(method, simulator.recorded_pairs(5))
        heights[body] = result.plane.offset - simulator.floor_in_base.offset
        assert result.accepted
    assert abs(heights["as described"]) < 0.0005
    assert abs(heights["as the Stretch"]) > 0.04  # it takes the skirt for the floor


def test_a_floor_under_a_wide_low_base_is_found_anew_where_it_was(wide):
    simulator, rig = wide
    frames = [(left, left[:0]) for left, _ in simulator.recorded_pairs(10)]  # by one lidar
    later = [{"left": left} for left, _ in frames[5:]]
    settings = FloorSettings(sensor=rig.sensor, **rig.body)
    method = SupportFloor(rig.base_from_left, np.eye(4), rig.footprint_from_base, settings)
    file = with_lidars(CalibrationFile(), LidarPoses.of_one_lidar("left", rig.base_from_left), "wide")
    file = with_floor(file, solve(method, frames[:5]), "wide", rig.base_from_left)
    poses = rig.base_from_left, rig.footprint_from_base
    anew, otherwise = (reestimate(file, later, *poses, rig.sensor, body).floor for body in (rig.body, {}))
    assert abs(anew.plane.offset - file.floor_plane.offset) < 0.005
    assert otherwise is None or abs(otherwise.plane.offset - file.floor_plane.offset) > 0.04


def test_a_floor_that_begins_farther_away_is_found_with_a_note_of_it():
    scene = scene_of("furnished_room")
    poses = scene.base_from_left, scene.base_from_left @ scene.right_to_left

    def beyond(cloud, pose):
        points = apply(pose, coordinates(cloud))
        return cloud[(points[:, 2] > 0.2) | (np.linalg.norm(points[:, :2], axis=1) > 1.7)]

    pairs = ((beyond(left, poses[0]), beyond(right, poses[1])) for left, right in scene.simulator.recorded_pairs(5))
    result = solve(scene.method(), pairs)
    scene.assert_found(result, millimetres=0.5, degrees=0.015)
    assert "floor_far" in {said.code for said in result.warnings} and 1.5 < result.support.nearest < 1.8
    assert "floor_far" not in {said.code for said in solved("furnished_room").warnings}
