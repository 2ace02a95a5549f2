"""The floor under the robot, among other surfaces that look like it; floors that are refused, and what is no data."""

import re
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from alignment_scenes import further_long
from floor import known_and_true
from floor_scenes import Scene, box, scene_of, shaped, solve, solved
from floor_shapes import LIMIT, SHAPES

import stretch_sim_cal as cal
from stretch_sim_cal import files
from stretch_sim_cal.calibration import summaries
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.floor.fit import FloorFit, find_step
from stretch_sim_cal.calibration.floor.support_method import SupportFloor
from stretch_sim_cal.calibration.lidars import with_lidars
from stretch_sim_cal.calibration.methods import floor_method
from stretch_sim_cal.calibration.mounts.file import with_floor
from stretch_sim_cal.calibration.observations import Observations
from stretch_sim_cal.calibration.problem import curvature_shapes
from stretch_sim_cal.calibration.results import LidarPoses
from stretch_sim_cal.calibration.settings import FloorSettings
from stretch_sim_cal.calibration.verification import reestimate
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.planes import LEVEL, footprint_from_base, height_slopes
from stretch_sim_cal.geometry.transforms import SIDES, apply, from_xyz_rpy, inverse
from stretch_sim_cal.sensor.points import coordinates
from stretch_sim_cal.sensor.unit import UnitSpread
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import SimulationSetup

SPARSE = {"millimetres": 0.25, "degrees": 0.015}  # what 5 frames of the sparse sensor allow


@pytest.mark.long
@pytest.mark.parametrize("world", ["tables", "furnished_room"])
def test_ten_frames_of_the_real_sensor_meet_the_target(world):
    scene = Scene(world, seed=101, sensor="jt128_ideal")
    result = scene.solve(frames=10)
    scene.assert_found(result, millimetres=0.1, degrees=0.006)
    assert result.num_frames == 10 and result.method == "support"
    np.testing.assert_allclose(result.footprint_from_base, footprint_from_base(result.plane), atol=1e-12)
    assert result.diagnostics["range_noise"] == pytest.approx(0.01, rel=0.03)


LEGS = np.random.default_rng(0).uniform(-2, 2, (40, 2))
THINGS = {
    "cables, and the floor behind hidden": [
        box([6, 10, 0.5], [-3.2, 0, 0.25]),
        *(box([3, 0.012, 0.012], [0.3, y, 0.006], yaw) for y, yaw in ((0.7, 0.1), (-0.8, -0.2), (1.2, 0.4))),
    ],
    "a threshold of 2 cm, and tables above most of the floor, with many legs": [
        box([0.1, 4, 0.04], [0.9, 0, 0]),
        *(box([2.4, 1.4, 0.04], [0.2, y, 0.74]) for y in (1.2, -1.2)),
        *(box([0.1, 0.1, 0.9], [*place, 0.45]) for place in LEGS if np.hypot(*place) > 0.5),
    ],
    "a carpet of 8 mm ahead": [box([3, 4, 0.016], [2.0, 0, 0])],
    "a platform of 4 cm ahead": [box([4, 6, 0.08], [2.6, 0, 0])],
}  # fmt: skip


@pytest.mark.parametrize("what", [pytest.param(w, marks=[pytest.mark.long] * ("ahead" in w)) for w in THINGS])
def test_the_floor_is_found_despite(what):
    scene = Scene(things=THINGS[what])
    scene.assert_found(scene.solve(), **SPARSE)


@pytest.mark.parametrize(("edge", "behind"), [(0.6, True), pytest.param(0.5, False, marks=pytest.mark.long)])
def test_a_step_of_3_mm_through_the_floor_is_seen_by_the_sparse_sensor(edge, behind):
    slab = box([6, 12, 0.006], [3 - edge if behind else 3 + edge, 0, 0])
    scene = Scene(sensor="jt128_sparse", things=[slab], stands_on=0.003 if behind else 0.0)
    result = scene.solve(frames=1)
    scene.assert_found(result, millimetres=0.4, degrees=0.03)  # 1 mm and 0.05 deg if taken for unevenness
    assert scene.chi_square(result) < 16.0
    told = next(warning for warning in result.warnings if "a step runs through the floor" in warning)
    assert ("behind: beyond it the floor is 3" in told or "behind: beyond it the floor is 2" in told) == behind


@pytest.mark.long
@pytest.mark.parametrize("ahead", [False, True])
def test_of_a_floor_that_bends_the_robots_side_counts(ahead):
    ramp = shaped(lambda x, y: np.radians(0.3) * np.maximum((x if ahead else -x) - 0.4, 0.0))
    scene = Scene(sensor="jt128_sparse", things=[ramp], without=("floor", "ground"))
    result = scene.solve(frames=4)
    scene.assert_found(result, millimetres=0.3, degrees=0.02)  # 0.1 deg if taken for curvature
    where = "ahead" if ahead else "behind"
    assert any(re.search(f"the floor bends 0.[345] m {where}: .* rises by 0.2. deg", each) for each in result.warnings)


def test_a_floor_that_curves_a_little_has_no_bend_and_one_that_bends_has():
    """The best of two thousand lines explains more of noise than a curvature does: before, every tenth such floor had a
    bend."""
    axis, noise = np.arange(-2.375, 2.5, 0.25), 0.0007
    places = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    slopes = height_slopes(np.column_stack([places, np.zeros(len(places))]), LEVEL)
    shapes, deviations = curvature_shapes(places), np.full(len(places), noise)

    def bend(heights, seed):
        seen = heights + np.random.default_rng(seed).normal(0.0, noise, len(places))
        seen -= slopes @ np.linalg.lstsq(slopes, seen)[0]
        return find_step(places, seen, deviations, slopes, shapes)[0]

    curved, bent = 0.0004 * shapes[:, 0], 0.004 * np.maximum(places[:, 0] - 0.8, 0.0)
    assert not any(bend(curved, seed) for seed in range(20))
    assert all(abs(bend(bent, seed).slope) == pytest.approx(0.004, rel=0.1) for seed in range(5))


def test_a_robot_on_a_carpet_or_a_stage_stands_on_it():
    scene = Scene(sensor="jt128_sparse", things=[box([2.6, 2.6, 0.016], [0, 0, 0])], stands_on=0.008)
    result = scene.solve(frames=8)
    scene.assert_found(result, millimetres=0.3, degrees=0.02)
    assert any("lower than the plane" in warning for warning in result.warnings)
    stage = Scene(things=[box([2.4, 2.4, 0.3], [0, 0, 0.15])], stands_on=0.3)
    stage.assert_found(stage.solve(), millimetres=0.3, degrees=0.02)


@pytest.mark.long
def test_a_person_who_walks_by_does_not_raise_the_floor():
    scene = Scene()

    def pairs():
        for frame in range(6):
            for side in (-0.1, 0.1):
                scene.simulator.add_surface(f"leg {side}", box([0.3, 0.1, 0.9], [-1.0 + 0.3 * frame, 0.8 + side, 0.45]))
            yield next(scene.simulator.point_pairs(1, frame))

    scene.assert_found(solve(scene.method(), pairs()), **SPARSE)


def test_where_the_floor_bends_the_plane_touches_it_at_the_robot():
    bowl = shaped(lambda x, y: 0.0005 * (x**2 + y**2))  # 2 mm at 2 m
    scene = Scene(things=[bowl], without=("floor", "ground"))
    result = scene.solve()
    scene.assert_found(result, millimetres=0.3, degrees=0.02)
    assert result.diagnostics["curvature"] > 0.0005


@pytest.mark.parametrize("world", further_long("furnished_room", "tables"))
def test_ranges_that_are_all_too_long_do_not_sink_the_floor(world):
    scene = Scene(world, sensor="jt128_sparse", sensor_changes={"range_biases": np.full(64, 0.004)})
    described = replace(scene.simulator.sensor, spread=UnitSpread(range_offset=0.005))
    result = scene.solve(frames=5, settings=FloorSettings(sensor=described))
    error = scene.error(result)
    assert abs(error[0]) < 4 * np.sqrt(result.covariance[0, 0])
    assert abs(error[0]) < 0.0015  # 3 mm if they were believed
    assert result.diagnostics["range_offset_left"] == pytest.approx(0.004, abs=0.002)


def test_a_rough_floor_makes_the_result_less_sure():
    rough = shaped(lambda x, y: 0.0015 * np.sin(2 * x) * np.sin(2 * y + 1))
    even, uneven = solved(), Scene(things=[rough], without=("floor", "ground")).solve()
    assert uneven.support.unevenness > 0.0003 > 0.0002 > even.support.unevenness
    assert uneven.covariance[0, 0] > 1.5 * even.covariance[0, 0]
    assert any("uneven" in warning for warning in uneven.warnings)


@pytest.mark.long
def test_of_a_floor_in_waves_the_tilt_is_less_sure_where_less_of_them_is_seen():
    random = np.random.default_rng(0)
    lengths, ways, phases = np.exp(random.uniform(0.0, np.log(5.0), 12)), *random.uniform(0.0, np.pi, (2, 12))
    waves = shaped(lambda x, y: 4e-4 * sum(
        np.cos(2.0 * np.pi / length * (np.cos(way) * x + np.sin(way) * y) + 2.0 * phase)
        for length, way, phase in zip(lengths, ways, phases, strict=True)
    ))  # fmt: skip
    walls = [box((10.0, 0.1, 2.0), (0.0, y, 1.0)) for y in (-1.6, 1.6)]
    without = ("floor", "ground")
    scenes = [Scene(sensor="jt128_sparse", things=[waves, *things], without=without) for things in ([], walls)]
    with mock.patch.object(FloorFit, "seen_alike", 0.0):  # of wheels that stand on the waves
        hall, aisle = results = [scene.solve() for scene in scenes]
    tilts = [np.sqrt(result.covariance[1, 1]) for result in results]  # about the aisle's length
    assert tilts[1] > 1.75 * tilts[0]
    assert aisle.support.unevenness == pytest.approx(hall.support.unevenness, rel=0.2)  # looks as uneven
    for scene, result in zip(scenes, results, strict=True):
        assert np.all(np.abs(scene.error(result)) < 3.0 * np.sqrt(np.diag(result.covariance)))


@pytest.mark.parametrize("noise", further_long(0.03, 0.0))
def test_any_noise_is_recognised_and_fitted(noise):
    scene = Scene("furnished_room", sensor="jt128_sparse", sensor_changes={"range_noise": noise})
    result = scene.solve(frames=3)
    scene.assert_found(result, millimetres=0.05 + 20 * noise, degrees=0.005 + noise)
    assert result.diagnostics["range_noise"] == pytest.approx(max(noise, 0.0005), rel=0.1)


@pytest.mark.long
def test_mixed_pixels_and_channel_biases_are_survived():
    biases = np.random.default_rng(3).normal(0, 0.005, 64)
    changes = {"beam_divergence": np.radians(0.2), "range_biases": biases}
    scene = Scene("furnished_room", sensor="jt128_sparse", sensor_changes=changes)
    scene.assert_found(scene.solve(frames=3), millimetres=0.6, degrees=0.03)


@pytest.mark.long
def test_a_wrong_alignment_does_not_move_the_floor_of_the_left_lidar():
    scene, right = scene_of("furnished_room"), solved("furnished_room")
    wrong = scene.solve(alignment_error=[0.0003, -0.0002, 0.0003, 1e-4, -1e-4, 1e-4])
    scene.assert_found(wrong, **SPARSE)
    assert abs(right.plane.offset - wrong.plane.offset) < 0.0001


def test_an_unsure_alignment_makes_the_floor_less_sure():
    scene, sure = scene_of("furnished_room"), solved("furnished_room", frames=2)
    known = Observations.of_known_poses((scene.right_to_left,), np.eye(6) * 1e-4)
    unsure = scene.solve(2, FloorSettings(observations=known))
    assert unsure.covariance[0, 0] > 1.5 * sure.covariance[0, 0]


@pytest.mark.parametrize("scenes", further_long(3, 5))
def test_on_an_even_floor_the_covariance_covers_the_error_and_there_is_no_step(scenes):
    squares = []
    for seed in range(1, 1 + scenes):
        scene = scene_of("furnished_room", seed)
        with mock.patch.object(FloorFit, "seen_alike", 0.0):  # no real floor is as even
            result = scene.solve(frames=1)
        squares.append(scene.chi_square(result))
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


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A robot with a skirt of 2.6 by 2 m, 45 mm above the floor: its simulator, and its rig."""
    share, tmp_path = files.share_directory(), tmp_path_factory.mktemp("wide")
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
    settings = FloorSettings(sensor=rig.sensor, **rig.body)
    method = SupportFloor(rig.base_from_left, rig.left_from_right, rig.footprint_from_base, settings)
    result = solve(method, simulator.recorded_pairs(5))
    assert result.accepted and abs(result.plane.offset - simulator.floor_in_base.offset) < 0.0005


@pytest.mark.long
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
    scene = scene_of("furnished_room", sensor="jt128_sparse")
    poses = scene.base_from_left, scene.base_from_left @ scene.right_to_left

    def beyond(cloud, pose):
        points = apply(pose, coordinates(cloud))
        return cloud[(points[:, 2] > 0.2) | (np.linalg.norm(points[:, :2], axis=1) > 1.7)]

    pairs = ((beyond(left, poses[0]), beyond(right, poses[1])) for left, right in scene.simulator.recorded_pairs(5))
    result = solve(scene.method(), pairs)
    scene.assert_found(result, millimetres=0.5, degrees=0.015)
    assert "floor_far" in {said.code for said in result.warnings} and 1.5 < result.support.nearest < 1.8
    assert "floor_far" not in {said.code for said in solved("furnished_room").warnings}


def the_refusal(result) -> str:
    assert not result.accepted
    return " | ".join(f"{refusal.code}: {refusal}" for refusal in result.refusals)


WALLS = [box([6, 10, 0.5], [-2.9, 0, 0.25]), box([6, 6, 0.5], [2, 3.5, 0.25]), box([6, 6, 0.5], [2, -3.5, 0.25])]
BOWL = shaped(lambda x, y: 0.003 * (x**2 + y**2))


@pytest.mark.parametrize("scene, refusal", [
    ({"world": "uneven", "sensor": "jt128_sparse"}, "floor_not_plane: .* mm (higher|lower) than the plane"),
    ({"things": [box([6, 12, 0.008], [3.1, 0, 0])]}, "floor_step: "),
    ({"things": [BOWL], "without": ("floor", "ground")}, "floor_not_plane: .* it curves by"),
    ({"things": [box([0.8, 0.8, 0.3], [0, 0, 0.15])], "stands_on": 0.3}, "little_floor: .*clear the floor"),
    ({"things": WALLS}, "floor_on_one_side: .* behind"),
    ({"things": [box([0.5, 0.5, 0.02], [0, 0, 0])], "stands_on": 0.01}, "floor_at_wheels: "),
], ids=["uneven", "astride a step", "deep bowl", "small pedestal", "floor on one side", "small plate"])  # fmt: skip
def test_a_floor_that_is_no_plane_around_the_robot_is_refused(scene, refusal):
    assert re.search(refusal, the_refusal(Scene(**scene).solve()))


@pytest.mark.long
@pytest.mark.parametrize("height, size, y", [
    (-0.004, (0.8, 0.4), 0.2), (0.008, (0.6, 0.9), -0.174), (0.004, (1.0, 0.1), -0.174),
], ids=["the others on a mat", "mat", "cable cover"])  # fmt: skip
def test_a_wheel_on_a_mat_is_refused(height, size, y):
    scene, wheels = Scene(sensor="jt128_sparse", things=[box([*size, 2 * abs(height)], [0, y, 0])]), 0.26
    tilt = np.arctan2(height, wheels)  # m from the wheel at y = -0.174 to the axis of the other two
    scene.simulator.move_base(from_xyz_rpy([0, 0, max(-height, 0.0) + (wheels - 0.174) * np.sin(tilt)], [-tilt, 0, 0]))
    refusal = the_refusal(scene.solve(frames=8))
    assert "floor_at_wheels: the floor nearest to the robot is not on the plane: 0." in refusal


def test_a_robot_beside_a_drain_is_refused():
    cone = shaped(lambda x, y: 0.01 * np.hypot(x - 1.0, y))
    scene = Scene(sensor="jt128_sparse", things=[cone], without=("floor", "ground"), stands_on=0.01)
    scene.simulator.move_base(from_xyz_rpy([0, 0, 0.01], [0, 0.01, 0]))  # as the floor slopes there
    assert re.search(
        "floor_near_robot: the floor within 0.7 m of the robot is .* deg off", the_refusal(scene.solve(frames=8))
    )


def test_wheels_on_a_rough_floor_may_stand_otherwise_than_most_of_it_by_less_than_lidars_show():
    scene = Scene("furnished_room")
    SHAPES["rough"](scene.simulator, np.random.default_rng(502))
    scene.footprint_from_base, scene.truth = known_and_true(scene.simulator)
    result = scene.solve()
    assert result.accepted and scene.chi_square(result) < LIMIT  # 118 without what both lidars see alike


def test_the_floor_is_found_as_far_from_its_description_as_it_is_searched():
    assert Scene(base_height=0.045, mount=0.0).solve(frames=2).accepted


def test_the_search_can_be_widened():
    scene = Scene(sensor="jt128_sparse", base_height=0.08, mount=0.0)
    result = scene.solve(frames=2)
    refusal = the_refusal(result)
    assert "no floor within 50 mm" in refusal
    assert re.search(r"the nearest plane is 8\d mm lower and tilted by \d\.\d deg", refusal)
    assert np.isinf(np.diag(result.covariance)).all() and result.num_inliers == 0 and result.support is None
    settings = FloorSettings(search_height=0.12)
    scene.assert_found(scene.solve(frames=2, settings=settings), millimetres=0.3, degrees=0.02)


def test_lidars_that_do_not_look_at_the_floor_are_refused():
    scene = scene_of("furnished_room")
    poses = [scene.simulator.base_from_lidar(side) for side in SIDES]
    upwards = ([points[apply(pose, points)[:, 2] > pose[2, 3]] for points, pose in zip(pair, poses, strict=True)]
               for pair in scene.pairs(2))  # fmt: skip
    result = solve(scene.method(), upwards)
    assert "no_floor: no lidar sees the floor" in the_refusal(result)
    (line,) = summaries.floor_stage(result, np.eye(4)).lines
    assert line == "floor in base_link (support, 2 pairs of clouds, 0 returns): unknown"
    assert "no floor" in the_refusal(solve(scene_of().method(), [(np.full((5, 3), np.nan),) * 2]))


def test_lidars_that_see_different_floors_or_are_swapped_are_refused():
    scene = scene_of("furnished_room")
    different = scene.solve(alignment_error=[0, 0, 0, 0.003, 0.002, 0.0])
    assert "lidars_disagree: " in the_refusal(different) and "align the lidars first" in the_refusal(different)
    assert not solve(scene.method(), ((right, left) for left, right in scene.pairs(2))).accepted


def test_a_robot_that_tilts_meanwhile_is_refused_and_one_that_rolls_over_a_flat_floor_is_not():
    scene = Scene()
    for count in (6, 12):  # of so many, two each are summed
        pairs = scene.while_moving(from_xyz_rpy([0, 0, 0], [0, np.radians(0.1), 0]), count)
        assert f"after frame {2 * count // 3} of {count}" in the_refusal(solve(scene.method(), pairs))
    rolled = solve(scene.method(), scene.while_moving(from_xyz_rpy([0.05, 0, 0], [0, 0, 0.1])))
    scene.assert_found(rolled, millimetres=0.25, degrees=0.015)


def test_bounds_on_sureness_are_kept():
    settings = FloorSettings(max_std_height=1e-6, max_std_tilt=1e-6)
    refusal = the_refusal(scene_of("furnished_room").solve(frames=1, settings=settings))
    assert "the height is too uncertain" in refusal and "the tilt is too uncertain" in refusal


def test_nan_and_inf_and_silent_lidars_are_survived():
    scene = scene_of("furnished_room")
    method = scene.method()
    rng = np.random.default_rng(1)
    for index, (left, right) in enumerate(scene.pairs(6)):
        left[rng.random(len(left)) < 0.2] = np.nan
        right[rng.random(len(right)) < 0.2] = np.inf
        method.add(left if index % 2 else np.full((7, 3), np.nan), right)
    result = method.solve()
    scene.assert_found(result, millimetres=0.3, degrees=0.02)
    assert "3 left clouds have no usable return and were skipped" in result.warnings


def test_one_lidar_alone_is_enough_where_it_sees_the_floor():
    scene = scene_of("furnished_room")
    result = solve(scene.method(), ((left, np.full_like(right, np.nan)) for left, right in scene.pairs(5)))
    scene.assert_found(result, millimetres=0.4, degrees=0.02)
    assert "floor_of_one_lidar" in {finding.code for finding in result.warnings}


def test_frames_that_repeat_count_once():
    scene = scene_of("furnished_room")
    thrice = solve(scene.method(), list(scene.pairs(2)) * 3)
    np.testing.assert_array_equal(solved("furnished_room", frames=2).covariance, thrice.covariance)
    assert thrice.num_frames == 2
    repeated = [warning for warning in thrice.warnings if warning.code == "repeated_clouds"]
    assert [warning[:12] for warning in repeated] == ["4 left cloud", "4 right clou"]


def test_poses_and_settings_that_cannot_be_meant_are_input_errors():
    for named, meant in {
        "base_from_left": lambda: SupportFloor(np.ones((4, 4)), np.eye(4), np.eye(4)),
        "right_to_left": lambda: SupportFloor(np.eye(4), np.eye(3), np.eye(4)),
        "search_height": lambda: FloorSettings(search_height=-1),
        "covariance": lambda: Observations.of_known_poses((np.eye(4),), np.eye(3)),
        "no scans": lambda: scene_of().method().solve(),
    }.items():
        with pytest.raises(InputError, match=named):
            meant()


@pytest.mark.parametrize("name, gate", [("published", 0.003), ("published_code", 0.03)])
def test_a_published_method_fits_the_returns_within_the_gate_and_warns_that_it_checks_nothing(name, gate):
    scene = scene_of("furnished_room")

    def found(pairs):
        return solve(floor_method(name)(scene.base_from_left, scene.right_to_left, np.eye(4), None), pairs)

    result, lonely = found(scene.pairs(4)), np.array([[1.0, 2.0, 3.0], [2.0, 1.0, -4.0]])
    assert "3 are needed" in found([(lonely, lonely)]).refusals[0]
    with pytest.raises(InputError, match="no returns given"):
        found([])
    assert result.method == name and result.accepted
    assert result.warnings[0].startswith("the published method checks neither the scene nor its result")
    assert abs(result.plane.offset - scene.truth.offset) < 5e-4
    assert 0.4 * gate < result.rmse < 0.6 * gate if name == "published" else 0.003 < result.rmse < gate
