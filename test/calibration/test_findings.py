"""Every check at its limit: no finding within it, and beyond it one with its code and figures."""

import functools
from types import SimpleNamespace

import numpy as np
import pytest

from stretch_sim_cal.calibration import findings
from stretch_sim_cal.calibration.alignment.joint_estimate import Leaning
from stretch_sim_cal.calibration.cloud_frames import covariance_of_frames, wrong_rotor_angles
from stretch_sim_cal.calibration.consistency import Consistency
from stretch_sim_cal.calibration.floor import findings as floor_findings
from stretch_sim_cal.calibration.floor.findings import Findings
from stretch_sim_cal.calibration.floor.fit import Step
from stretch_sim_cal.calibration.motion import Motion
from stretch_sim_cal.calibration.mounts import findings as mount_findings
from stretch_sim_cal.calibration.mounts.result import JointOffset, LinkResidual, MountsResult, Residuals
from stretch_sim_cal.calibration.observability import Direction
from stretch_sim_cal.calibration.observations import Observations
from stretch_sim_cal.calibration.results import Support
from stretch_sim_cal.calibration.room import RoomBlock
from stretch_sim_cal.calibration.settings import AlignmentSettings, FloorSettings
from stretch_sim_cal.geometry.transforms import SIDES, from_xyz_rpy, inverse
from stretch_sim_cal.sensor.sensor import load_sensor
from stretch_sim_cal.sensor.unit import SCALARS

DEGREE = np.pi / 180
DESCRIBED = from_xyz_rpy((0.1, -0.3, 0.2), (0.5, -1.0, 2.0))
OPPOSITE = from_xyz_rpy((1.0, 0.6, 0.015), (0.0, 0.0, np.pi))


def codes(found):
    return [finding.code for finding in found]


def moved(millimetres=0.0, degrees=0.0):
    return DESCRIBED @ from_xyz_rpy((1e-3 * millimetres, 0.0, 0.0), (0.0, 0.0, degrees * DEGREE))


def of_model(*poses):
    return [finding for found in findings.model_findings(*poses, ("front", "rear")) for finding in found]


def wrong(views, closely):
    """Return the findings on two views that agree so far, and so far with a narrower tolerance."""
    return findings.wrong_minimum(Consistency(*views), False, Consistency(*closely))


# A call, then the code and figures of its only finding, or nothing if there is none.
ALIGNMENT = [
    (lambda: findings.overlap_refusals(Consistency(1, 0, 0.1), 6),),
    (lambda: findings.overlap_refusals(Consistency(1, 0, 0.1), 5), "little_overlap", "5 flat", "10 %"),
    (lambda: findings.overlap_refusals(Consistency(1, 0, 0.09), 6), "little_overlap", "6 flat", "9 %", "10 %"),
    (lambda: findings.overlap_refusals(Consistency(1, 0, 0.05), 6, described=True),),
    (lambda: findings.overlap_refusals(Consistency(1, 0, 0.04), 6, described=True), "little_overlap", "4 %", "5 %"),
    (lambda: findings.narrow_overlap(0.2, DESCRIBED, moved(99))[0],),
    (lambda: findings.narrow_overlap(0.11, None, DESCRIBED)[1], "narrow_overlap", "11 %"),
    (lambda: findings.narrow_overlap(0.11, DESCRIBED, moved(24, 3.4))[1], "narrow_overlap", "11 %"),
    (lambda: findings.narrow_overlap(0.11, DESCRIBED, moved(26))[0], "narrow_overlap", "11 %", "26 mm"),
    (lambda: findings.narrow_overlap(0.11, DESCRIBED, moved(0, 3.6))[0], "narrow_overlap", "3.6 deg"),
    (lambda: findings.narrow_overlap(0.11, DESCRIBED, DESCRIBED, True)[0], "narrow_overlap", "has such an error"),
    (lambda: findings.narrow_overlap(0.2, DESCRIBED, DESCRIBED, True)[0],),
    (lambda: findings.wrong_minimum(Consistency(0.88, 0.03, 0.5)),),
    (lambda: findings.wrong_minimum(Consistency(0.5, 0.03, 0.09)),),
    (lambda: findings.wrong_minimum(Consistency(0.5, 0.04, 0.09)), "contradicting_views", "50 %", "88 %", "4.0 %"),
    (lambda: findings.wrong_minimum(Consistency(0.87, 0.01, 0.5)), "contradicting_views", "87 %", "1.0 %"),
    (lambda: wrong((0.83, 0.1, 0.5), (0.81, 0.12, 0.45)),),
    (lambda: wrong((0.81, 0.1, 0.5), (0.79, 0.12, 0.45)), "contradicting_views", "81 %"),
    (lambda: wrong((0.87, 0.1, 0.5), (0.81, 0.12, 0.45)), "contradicting_views", "87 %"),
    (lambda: wrong((0.87, 0.1, 0.3), (0.86, 0.12, 0.27)), "contradicting_views", "87 %"),
    (lambda: findings.changed_scene(Consistency(0.96, 0.03, 0.5)),),
    (lambda: findings.changed_scene(Consistency(0.80, 0.1, 0.5)), "changed_scene", "10 %"),
    (lambda: findings.single_scan(3, 2),),
    (lambda: findings.single_scan(2, 2), "single_scan", "one scan of each lidar"),
    (lambda: findings.movement(Motion(0.003, 0.1 * DEGREE), 0.25, 12),),
    (lambda: findings.movement(Motion(0.0041, 0.0), 0.0, 12), "moved", "4 mm and 0.00 deg"),
    (lambda: findings.movement(Motion(0.0, 0.11 * DEGREE), 0.0, 12), "moved", "0 mm and 0.11 deg"),
    (lambda: findings.movement(Motion(0.01, 0.1), 0.0, 11),),
    (lambda: findings.movement(Motion(0.0, 0.0), 0.26, 12), "moving_scene", "the robot moved, or", "26 %"),
    (lambda: findings.movement(Motion(0.1, 0.0), 0.26, 12), "moved", "100 mm"),
    (lambda: findings.movement(Motion(0.0, 0.0, 0.0014, 0.04 * DEGREE), 0.0, 20),),
    (lambda: findings.movement(Motion(0.0, 0.0, 0.0016, 0.0), 0.0, 20), "lidar_moved", "1.6 mm"),
    (lambda: findings.movement(Motion(0.0, 0.0, 0.0, 0.06 * DEGREE), 0.0, 20), "lidar_moved", "0.060 deg"),
    (lambda: findings.large_residuals(3.0, 0.01),),
    (lambda: findings.large_residuals(9.0, 0.002),),
    (lambda: findings.large_residuals(3.1, 0.0021), "large_residuals", "2.1 mm", "3.1 times"),
    (lambda: findings.disturbance(0.02),),
    (lambda: findings.disturbance(0.26),),
    (lambda: findings.disturbance(0.03), "moving_scene", "3 %"),
    (lambda: findings.disturbance(0.25), "moving_scene", "25 %"),
    (lambda: of_model(None, DESCRIBED),),
    (lambda: of_model(DESCRIBED, moved(99, 4.9)),),
    (lambda: of_model(DESCRIBED, moved(101)), "far_from_description", "101 mm"),
    (lambda: of_model(DESCRIBED, moved(0, 5.2)), "far_from_description", "5.2 deg"),
    (lambda: of_model(DESCRIBED, moved(301)), "far_from_description", "301 mm"),
    (lambda: of_model(DESCRIBED, inverse(moved(3, 1))), "swapped", "as if front and rear were swapped"),
    # Lidars at opposite corners, described 30 mm from where they would be if they were exchanged.
    (lambda: of_model(OPPOSITE, inverse(OPPOSITE)), "swapped", "30 mm", "as if front and rear were swapped"),
    (lambda: of_model(OPPOSITE, OPPOSITE @ from_xyz_rpy([0.03, 0.0, 0.0])),),
    (lambda: findings.mirrored(()),),
    (lambda: findings.mirrored(("right",)), "mirrored", "right lidar"),
]


@pytest.mark.parametrize("check, expected, figures", [(check, each[:1], each[1:]) for check, *each in ALIGNMENT])
def test_a_check_of_the_alignment_reports_beyond_its_limit(check, expected, figures):
    found = check()
    assert codes(found) == expected
    assert all(figure in found[0] for figure in figures)


@pytest.mark.parametrize("pose, remedy", [
    (DESCRIBED @ moved(301), "check the model, the mounts and whether front and rear are swapped"),
    (inverse(DESCRIBED), "exchange front and rear"),
])  # fmt: skip
def test_lidars_that_may_be_swapped_are_named_and_one_lidar_has_no_other(pose, remedy):
    for lidars, said in ((("front", "rear"), remedy), (("front",), "check the model and the mounts")):
        assert findings.model_findings(DESCRIBED, pose, lidars)[0][0].remedy == said


RISE = 1.5**2 / 2  # m within 1.5 m per unit of curvature
SUPPORT = {"area": 1.0, "gap": 150 * DEGREE, "gap_bearing": 0.5 * np.pi, "level_share": 0.6, "unevenness": 0.0}


def of_floor(check, *given):
    found = Findings()
    getattr(floor_findings, check)(found, *given)
    return found


def support(millimetres=0.0, degrees=0.0, worst_place="", of_unevenness=0.0, **changes):
    """Return the findings on a floor with these standard deviations, such a share of which is by its unevenness."""
    covariance = np.diag(np.square([1e-3 * millimetres, 0.5 * degrees * DEGREE, degrees * DEGREE])) * (1 - 1e-9)
    seen, systematic = Support(**SUPPORT | changes), of_unevenness * covariance
    return of_floor("check_support", seen, worst_place, covariance, systematic, FloorSettings())


def shape(**shape):
    flat = {"curvature": (0.0, 0.0, 0.0), "unevenness": 0.0, "seen_alike": 0.0, "step": None}
    return of_floor("check_shape", SimpleNamespace(**flat | shape))


def disagreement(height, degrees=(0.0, 0.0), deviation=1.0):
    increment = np.array([height, *degrees]) * [1.0, DEGREE, DEGREE]
    return of_floor("check_disagreement", (increment, np.diag([deviation, DEGREE, DEGREE]) ** 2))


def motion(height, degrees):
    return of_floor("check_motion", (4, height, degrees * DEGREE), 10)


# A call, then the codes of its warnings and refusals, and figures of its only finding.
FLOOR = [
    (lambda: support(5.0, 0.1), [], []),
    (lambda: support(area=0.99), [], ["little_floor"], " 0.99 m2 of floor support the plane, 1 m2"),
    (lambda: support(gap=151 * DEGREE), [], ["floor_on_one_side"], " 151 deg to the left (at most 150"),
    (lambda: support(level_share=0.59), [], ["floor_not_plane"], " 59 % of it within 1.5 m"),
    (lambda: support(worst_place="high", level_share=0.5), [], ["floor_not_plane"], " 50 % of it within 1.5 m"),
    (lambda: support(worst_place="high", level_share=0.75), ["floor_partly_level"], [], "25 % of the floor"),
    (lambda: support(5.1), [], ["uncertain_floor"], " 5.10 mm, at most 5"),
    (lambda: support(0.0, 0.101), [], ["uncertain_floor"], " 0.101 deg, at most 0.100 deg"),
    (lambda: support(1.0, 0.12, of_unevenness=0.9), [], ["uncertain_floor"], "; move the robot to even floor"),
    (lambda: support(1.0, 0.12, of_unevenness=0.1), [], ["uncertain_floor"], "; record more pairs"),
    (lambda: shape(curvature=(0.0004 / RISE, 0, 0), unevenness=0.0005), [], []),
    (lambda: shape(curvature=(0, 0.001 / RISE, 0)), ["floor_curved"], [], "1.0 mm within 1.5 m"),
    (lambda: shape(curvature=(0, 0, -0.0031 / RISE)), [], ["floor_not_plane"], "3.1 mm within 1.5 m"),
    (lambda: shape(unevenness=0.0006), ["floor_uneven"], [], "0.6 mm"),
    (lambda: shape(step=Step(0.8, 0.0, 0.012)), ["floor_step"], [], "0.8 m ahead", "12.0 mm higher"),
    (lambda: shape(step=Step(0.3, 0.0, 0.012)), ["floor_step"], []),
    (lambda: shape(step=Step(0.29, np.pi, -0.004)), [], ["floor_step"], "4.0 mm lower"),
    (lambda: shape(step=Step(0.5, 0.0, 0.0, -0.01)), ["floor_step"], [], "bends 0.5 m ahead", "falls by 0.57 deg"),
    (lambda: disagreement(0.0029, deviation=0.001), [], []),
    (lambda: disagreement(-0.0031), [], ["lidars_disagree"], "3.10 mm and 0.000 deg"),
    (lambda: disagreement(0.0, (0.08, 0.07)), [], ["lidars_disagree"], "0.00 mm and 0.106 deg"),
    (lambda: disagreement(0.001, deviation=0.00025), [], []),
    (lambda: disagreement(0.001, deviation=0.00024), ["lidars_disagree"], [], "1.00 mm"),
    (lambda: of_floor("check_disagreement", None), ["floor_of_one_lidar"], []),
    (lambda: of_floor("check_motion", None, 10), [], []),
    (lambda: motion(0.001, 0.05), ["moved"], [], "after frame 4 of 10 it is 1.00 mm and 0.050 deg off"),
    (lambda: motion(0.0011, 0.0), [], ["moved"], "after frame 4 of 10 it is 1.10 mm and 0.000 deg off"),
    (lambda: motion(0.0, 0.051), [], ["moved"], "after frame 4 of 10 it is 0.00 mm and 0.051 deg off"),
]


@pytest.mark.parametrize("check, warnings, refusals, figures", [(*each[:3], each[3:]) for each in FLOOR])
def test_a_check_of_the_floor_reports_beyond_its_limit(check, warnings, refusals, figures):
    found = check()
    assert (codes(found.warnings), codes(found.refusals)) == (warnings, refusals)
    for finding in found.warnings + found.refusals:
        assert all(figure in f" {finding}; {finding.remedy}" for figure in figures)


SENSOR = load_sensor("jt128")


@pytest.mark.parametrize("name, deviations, code, figure", [
    ("range_offset", 4.1, "beyond_sensor_file", f"range_offset of {4100 * SENSOR.spread.range_offset:.2f} +- 1"),
    ("range_offset", -4.1, "beyond_sensor_file", " 4.1 "), ("range_offset", 3.9, None, ""),
    ("range_scale", 5.0, "beyond_sensor_file", f"{5 * SENSOR.spread.range_scale:.5f} +- 0.00100"),
    ("channel_range_spread", 2.1, "beyond_sensor_file", "channel_range by 2.1"),
    ("channel_range_spread", 1.9, None, ""), ("optical_centre_share", 1.0, "driver_uncorrected", "the optical centre"),
    ("optical_centre_share", 0.502, None, ""),
])  # fmt: skip
def test_a_lidar_beyond_its_sensor_file_is_named_with_its_error(name, deviations, code, figure):
    value = deviations * getattr(SENSOR.spread, name.removesuffix("_spread"), 1.0)
    found = findings.unit_warnings({f"{name}_right": value, f"{name}_right_std": 0.001}, SENSOR)
    assert codes(found) == ([] if code is None else [code])
    assert all(figure in each and "right" in each and "left" not in each for each in found)
    assert findings.unit_warnings({f"{name}_right": value, f"{name}_right_std": 0.001}, None) == []


@pytest.mark.parametrize(("name", "deviations", "times"), [
    ("channel_elevation_spread", 9.9, 1.0), ("channel_elevation_spread", 36.0, 3.6), ("azimuth_cos_1", 6.0, 1.5),
])  # fmt: skip
def test_what_is_beyond_any_unit_of_the_sensor_file_makes_the_pose_as_uncertain(name, deviations, times):
    known = dict(zip(SCALARS, SENSOR.error_model().scalar_deviations, strict=True)) | vars(SENSOR.expected)
    numbers = {f"{name}_right": deviations * known[name.removesuffix("_spread")], f"{name}_right_std": 1e-6}
    assert findings.beyond_sensor_files(numbers, SENSOR, SIDES) == pytest.approx(times)
    assert findings.beyond_sensor_files(numbers, None, SIDES) == 1.0


def test_ranges_that_scatter_far_more_than_the_sensor_file_says_are_reported():
    noise = SENSOR.range_noise * np.array([2.4, 2.6])
    found = findings.noisy_ranges(noise, SENSOR, SIDES)
    assert codes(found) == ["noisy_ranges"] and "the right lidar's" in found[0] and "3 times" in found[0]
    assert findings.noisy_ranges(noise, None, SIDES) == []


@pytest.mark.parametrize("share, deviation, reported", [(0.9, 0.13, True), (0.9, 0.14, False), (0.2, 0.0, False)])
def test_what_both_drivers_leave_out_is_one_finding_if_three_standard_deviations_are_for_it(share, deviation, reported):
    numbers = {f"firing_time_share_{side}": share for side in SIDES}
    numbers |= {f"{name}_std": deviation for name in numbers}
    found = findings.unit_warnings(numbers, SENSOR)
    assert codes(found) == ["driver_uncorrected"] * reported
    assert all("both lidars" in each and "firing times" in each for each in found)


@pytest.mark.parametrize(
    "x, y, deviation, reported",
    [(0.012, -0.006, 0.001, True), (0.012, 0.0, 0.0031, False), (0.0, 0.0029, 0.0, False), (0.0, -0.0031, 0.0, True)],
)
def test_rays_of_an_unknown_lidar_beside_its_spin_axis_are_reported_if_sure(x, y, deviation, reported):
    numbers = {f"optical_centre_{axis}_right": value for axis, value in (("x", x), ("y", y))}
    numbers |= {f"{name}_std": deviation for name in numbers}
    found = findings.unit_warnings(numbers, None)
    assert codes(found) == ["driver_uncorrected"] * reported and all("right" in each for each in found)
    assert "driver_uncorrected" not in codes(findings.unit_warnings(numbers, SENSOR))
    # Where the frame of its clouds is, along and about its axis, is as uncertain as what nobody corrects.
    turned = from_xyz_rpy((0.1, 0.0, 0.0), (0.3, 0.0, 0.0))
    covariance = covariance_of_frames((np.eye(4), turned), numbers, (None, None), SIDES)
    assert np.linalg.matrix_rank(covariance) == 2 * reported and not np.any(covariance[:6])
    if reported:
        axis, lever = turned[:3, 2], np.cross(turned[:3, 3], turned[:3, 2])
        expected = 0.03**2 * np.outer(axis, axis) + np.radians(0.3) ** 2 * np.outer(lever, lever)
        assert np.allclose(covariance[6:9, 6:9], expected)


@pytest.mark.parametrize(
    "right, deviation, shared", [(0.012, 0.001, True), (0.011, 0.0045, True), (0.005, 0.003, False)]
)
def test_what_the_frames_of_unknown_lidars_have_in_common_moves_none_that_stand_alike(right, deviation, shared):
    """What is significant for one lidar is of another one, too, whose rays are nearer to that than to the axis."""
    values = zip(SIDES, (0.012, right), strict=True)
    numbers = {f"optical_centre_{axis}_{name}": value for name, value in values for axis in "xy"}
    numbers |= {f"{name}_std": own for name in numbers for own in [deviation if "right" in name else 0.001]}
    assert codes(findings.unit_warnings(numbers, None)) == ["driver_uncorrected"] * (1 + shared)
    between = np.hstack([-np.eye(6), np.eye(6)])
    deviations = []
    for angle in (0.0, 0.5):
        poses = (np.eye(4), from_xyz_rpy((0.0, 0.0, 0.2), (angle, 0.0, 0.0)))
        covariance = between @ covariance_of_frames(poses, numbers, (None, None), SIDES) @ between.T
        deviations.append(float(np.sqrt(np.trace(covariance[:3, :3]))))
    assert (deviations[0] < 1e-9) == shared and deviations[1] > 0.01


@pytest.mark.parametrize("left, right, sensor, turn", [
    (0.05, 0.02, "vlp16", 0.0), (0.14, 0.03, "vlp16", 0.13), (0.14, 0.14, "vlp16", 0.0), (0.14, 0.03, None, 0.13),
    (0.01, 0.05, "jt128", 0.05),
])  # fmt: skip
def test_channels_that_differ_more_than_they_should_leave_open_how_a_lidar_is_turned(left, right, sensor, turn):
    """Nobody knows which of them are right; what two lidars of a kind have in common turns both alike."""
    numbers = {
        f"channel_azimuth_spread_{name}": np.radians(value) for name, value in zip(SIDES, (left, right), strict=True)
    }
    sensors = (sensor and load_sensor(sensor),) * 2
    between = np.hstack([-np.eye(6), np.eye(6)])
    covariance = between @ covariance_of_frames((np.eye(4), np.eye(4)), numbers, sensors, SIDES) @ between.T
    assert np.degrees(np.sqrt(covariance[5, 5])) == pytest.approx(turn, abs=0.005)
    assert not np.any(covariance[:5])


@pytest.mark.parametrize("tilt, both, named", [(0.0, True, []), (0.5, True, ["left", "right"]), (0.0, False, ["left"])])
def test_rotor_angles_that_no_encoder_gives_are_refused_unless_lidars_that_stand_alike_share_them(tilt, both, named):
    numbers = {f"azimuth_{axis}_1_{name}{part}": value * (name == "left" or both) * (axis == "sin" or part == "_std")
               for axis in ("cos", "sin") for name in SIDES
               for part, value in (("", np.radians(1.0)), ("_std", np.radians(0.01)))}  # fmt: skip
    poses = (np.eye(4), from_xyz_rpy((0.1, 0.0, 0.0), (tilt, 0.0, 0.0)))
    found = findings.distorted(wrong_rotor_angles(poses, numbers, SIDES))
    assert codes(found) == ["distorted_clouds"] * len(named)
    assert [name for name in SIDES if any(name in each for each in found)] == named


@pytest.mark.parametrize("correlation, told", [(0.0, False), (0.9, True)])
def test_motions_in_every_scan_are_compared_by_their_joint_covariance(correlation, told):
    """Of two lidars whose clouds move 15 mm differently, each of which is known to 4 mm only."""
    motions = np.zeros((2, 6))
    motions[1, 0] = 0.015
    covariance = np.kron([[1.0, correlation], [correlation, 1.0]], np.diag([0.004**2] * 3 + [0.001**2] * 3))
    found = findings.impossible_scan_motions(motions, covariance, SIDES)
    assert codes(found) == ["impossible_scan_motion"] * told
    assert all("the right lidar's clouds seem to move by 15.0 mm" in finding for finding in found)


def test_ranges_that_wander_as_no_lidars_do_are_named():
    roots = [np.full(10, 0.0004)] * 2
    values = [np.zeros(10), np.full(10, 0.0004)]
    found = findings.impossible_wander(values, roots, SIDES)
    assert codes(found) == ["impossible_wander"] and "the right lidar's ranges vary" in found[0]
    assert findings.impossible_wander([each / 2.0 for each in values], roots, SIDES) == []


def test_the_surface_without_which_the_poses_differ_most_is_named():
    twists = np.diag([0.003, 0.0, 0.012, 0.0, np.radians(0.2), 0.0])
    surfaces = [
        Leaning(np.array([0.0, -2.5, 0.0]), twists[0]),
        Leaning(np.array([4.0, 0.0, 0.0]), twists[2] + twists[4]),
    ]
    (found,) = findings.leaning(surfaces, SIDES)
    assert found.code == "one_surface" and found.remedy
    assert all(figure in found for figure in ("4.0 m", "left lidar", "(1.0, 0.0, 0.0)", "12.0 mm and 0.200 deg"))
    assert findings.leaning([], SIDES) == []


@pytest.mark.parametrize("grids", [1, 2])
@pytest.mark.parametrize("patches, deviation, base_from_left, axis", [
    (3, 0.0006, None, None), (400, 0.0001, None, None), (2, 0.0007, None, "lidar x"),
    (2, 0.0007, from_xyz_rpy((0, 0, 1), (0, 0, np.pi / 2)), "base y"),
    (12, 0.0049, None, None),  # the others outvote two
])  # fmt: skip
def test_a_direction_that_few_patches_determine_is_reported(patches, deviation, base_from_left, axis, grids):
    """Few patches face the lidar's x. Outliers among them do not count, nor the same surface in another grid."""
    normals = np.repeat(np.eye(3)[[0, 1, 2, 0]], [patches, 50, 50, 9], axis=0)
    points = np.random.default_rng(7).uniform(-3.0, 3.0, size=normals.shape)
    points[normals[:, 0] > 0, 1:] = 0.0
    jacobian, weights = np.hstack([normals, np.cross(points, normals)]), np.ones(len(normals))
    weights[-9:] = 0.0
    number = grids * len(normals)
    jacobian_of_all, points = np.tile(jacobian, (grids, 1)), np.tile(points, (grids, 1))
    gaps = SimpleNamespace(
        jacobian=jacobian_of_all, variances=np.full(number, 1e-6), shares=np.ones(number), points=points
    )
    tiled = {"weights": np.tile(weights, grids), "grids": grids, "extents": lambda: np.ones(number)}
    block = SimpleNamespace(gaps=gaps, elements=None, **tiled)
    for name in ("support", "strongest_place", "information_along", "_along"):
        setattr(block, name, functools.partial(getattr(RoomBlock, name), block))
    settings = AlignmentSettings(base_from_left=base_from_left)
    covariance = np.linalg.inv((jacobian.T * weights) @ jacobian)
    found = findings.little_support([block], deviation**2 / covariance[0, 0] * covariance, settings)
    assert codes(found) == ["little_support"] * (axis is not None)
    assert all(f"only {patches} " in finding and f"sliding along {axis}" in finding for finding in found)


@pytest.mark.parametrize("name, value, text", [
    ("azimuth_cos", 0.001, "0.0573 +- 0.0115 deg"), ("range_scale", 0.001, "0.00100 +- 0.00020"),
    ("optical_centre_share", 0.5, "0.50000 +- 0.00020"), ("incidence", 0.001, "1.00 +- 0.20 mm"),
])  # fmt: skip
def test_an_error_is_given_in_its_unit(name, value, text):
    assert findings.error_in_units(name, value, 0.0002) == text


SLIDING = Direction("sliding along base x", 0.0021, 0.002)
TURNING = Direction("turning about base z", 1.1 * DEGREE, 0.2 * DEGREE)
FINE = Direction("sliding along base y", 0.001, 0.002)
MOTION = np.array([0.003, 0.0, 0.004, 0.6 * DEGREE, 0.0, 0.8 * DEGREE])
LIFT = JointOffset("lift_joint", 0.0505, 0.001, True)
PAN = JointOffset("pan_joint", -0.02, 0.001, False, True)
FAST = JointOffset("lift_joint", 0.0005, 0.001, True, scale=0.0051, scale_deviation=0.0002)
SLOW = JointOffset("arm_joint", 0.0, 0.001, True, scale=-0.004, scale_deviation=0.0011)


def residuals(links, distances):
    places, links = np.zeros((len(links), 3)), np.asarray(links, dtype=int)
    return Residuals(places, places, np.asarray(distances), np.asarray(distances) < 0.04, links, links)


def mount_warnings(directions=(), joints=(), links=(), seen=residuals([], []), poses=None, alignment=None, asked=True):
    by_lidar = {"left": list(directions), "right": []}
    return mount_findings.mount_warnings(by_lidar, joints, links, seen, ("mast", "arm"), poses, alignment, asked)


@pytest.mark.parametrize(
    "given, code, figures",
    [
        ({"directions": [FINE, SLIDING, TURNING]}, "uncertain_mounts", ["base x", "2.1 mm", "base z", "1.10 deg"]),
        ({"joints": [FAST, SLOW]}, "joint_scale_off", ["lift_joint", "0.51 %", "arm_joint", "0.40 %"]),
        ({"joints": [FAST, SLOW], "asked": False}, "joint_scale_off", ["lift_joint", "0.51 %", "arm_joint", "0.40 %"]),
        ({"joints": [LIFT, PAN], "asked": False}, "joint_zero_off", ["lift_joint", "+50.5 mm", "pan", "-1.15 deg"]),
        ({"joints": [LIFT, PAN]}, "joint_zero_unobserved", ["pan_joint"]),
        # Those with most in front of them come first.
        ({"seen": residuals(np.repeat([0, 1], [200, 400]), np.repeat([0.05, 0, 0.05, 0], [60, 140, 200, 200]))},
         "payload", ["50 %", "arm", "30 %", "mast"]),
    ],
)  # fmt: skip
def test_a_check_of_the_mounts_names_what_is_beyond_its_limit(given, code, figures):
    found = mount_warnings(**given)
    assert set(codes(found)) == {code}
    together = " | ".join(found)
    places = [together.find(figure) for figure in figures]
    assert min(places) >= 0 and places == sorted(places), together


def test_a_misplaced_link_is_named_with_how_far_it_is():
    links = [LinkResidual("arm", MOTION, 3.4, 100), LinkResidual("mast", MOTION, 3.6, 100),
             LinkResidual("wrist", MOTION, 0.1, 100, released=True)]  # fmt: skip
    found = mount_warnings(links=links)
    assert [finding.split(",")[0] for finding in found] == ["mast", "wrist"]
    assert all("5.0 mm and 1.00 deg" in finding for finding in found)


@pytest.mark.parametrize("fronts, others, reported", [(50, 250, True), (50, 284, False), (49, 100, False)])
def test_returns_in_front_of_a_link_are_a_payload_if_they_are_many(fronts, others, reported):
    found = mount_warnings(seen=residuals([1] * (fronts + others), np.repeat([0.041, 0.039], [fronts, others])))
    assert codes(found) == ["payload"] * reported
    assert all(f"{round(100 * fronts / (fronts + others))} %" in finding for finding in found)


@pytest.mark.parametrize("sigmas, reported", [(4.9, False), (5.1, True)])
def test_mounts_that_contradict_the_alignment_are_reported(sigmas, reported):
    alignment = Observations.of_known_poses((DESCRIBED,), np.diag([1e-6] * 3 + [1e-8] * 3))
    poses = {"left": np.eye(4), "right": from_xyz_rpy((1e-3 * sigmas, 0, 0), (0, 0, 0)) @ DESCRIBED}
    found = mount_warnings(poses=poses, alignment=alignment)
    assert len(found) == reported and all(f"{sigmas} sigma" in finding for finding in found)


@pytest.mark.parametrize("points, directions, off, figure", [
    (500, [Direction("sliding along base x", 0.01, 0.002)], (0, 0), None), (499, [TURNING], (0, 0), "only 499 returns"),
    (500, [TURNING], (0, 0), "turning about base z: standard deviation 1.10 deg"),
    (500, [], (900, 0), "900 mm and 0.0 deg"), (500, [], (0, 90), "0 mm and 90.0 deg"),
])  # fmt: skip
def test_mounts_are_refused_without_returns_or_far_from_the_description(points, directions, off, figure):
    poses, nominal = {"left": DESCRIBED, "right": moved(*off)}, dict.fromkeys(SIDES, DESCRIBED)
    counts, weak = {"left": 500, "right": points}, {"left": [], "right": directions}
    refusals = mount_findings.mount_refusals(counts, weak, poses, nominal, tied=False)
    assert [figure in each and each.startswith("right lidar: ") for each in refusals] == [True] * (figure is not None)


@pytest.mark.parametrize("counts, refused", [((500, 0), []), ((0, 500), []), ((499, 0), ["left", "right"])])
def test_one_lidar_that_sees_the_robot_is_enough_for_those_that_are_tied_to_it(counts, refused):
    both = dict.fromkeys(SIDES, DESCRIBED)
    counts, weak = dict(zip(SIDES, counts, strict=True)), dict.fromkeys(both, [])
    found = mount_findings.mount_refusals(counts, weak, both, both, tied=True)
    assert [finding.split()[0] for finding in found] == refused


@pytest.mark.parametrize("millimetres, degrees, sigma, figure", [
    (6, 0.0, 0.001, "6 mm and 0.0 deg from its described pose (standard deviation 2 mm, 0.2"),
    (4, 0.5, 0.001, "4 mm and 0.5 deg"), (4, 0.2, 0.0001, None), (6, 0.0, 0.0011, None),
])  # fmt: skip
def test_a_left_lidar_is_off_if_that_is_significant_and_matters(millimetres, degrees, sigma, figure):
    covariance = np.kron(np.eye(2), np.diag([sigma**2] * 3 + [(0.1 * DEGREE) ** 2] * 3))
    described = from_xyz_rpy((0, 0, 0), (0.3, 0.2, 0.1))
    pose = from_xyz_rpy((1e-3 * millimetres, 0, 0), (0, 0, degrees * DEGREE)) @ described
    nowhere = residuals([], [])
    result = MountsResult({"left": pose, "right": pose}, covariance, 0.0, 1000, 8, {}, [], [], nowhere, np.eye(12))
    assert [figure in each for each in mount_findings.left_off(result, described)] == [True] * (figure is not None)
