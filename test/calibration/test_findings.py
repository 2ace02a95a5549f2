"""Every check at its limit: what is within it gives no finding, what is beyond it one with its
code, figures and remedy."""

from types import SimpleNamespace

import numpy as np
import pytest

from stretch_sim_cal.calibration import findings
from stretch_sim_cal.calibration.cloud_frames import covariance_of_frames, wrong_rotor_angles
from stretch_sim_cal.calibration.consistency import Consistency
from stretch_sim_cal.calibration.floor import findings as floor_findings
from stretch_sim_cal.calibration.floor.cells import FloorMotion
from stretch_sim_cal.calibration.floor.findings import Disagreement, Findings
from stretch_sim_cal.calibration.floor.steps import Step
from stretch_sim_cal.calibration.motion import Motion
from stretch_sim_cal.calibration.mounts.result import JointOffset, LinkResidual, MountSettings, MountsResult, Residuals
from stretch_sim_cal.calibration.observability import Direction
from stretch_sim_cal.calibration.observations import Observations
from stretch_sim_cal.calibration.results import Support
from stretch_sim_cal.calibration.settings import AlignmentSettings, FloorSettings
from stretch_sim_cal.geometry.transforms import from_xyz_rpy, inverse
from stretch_sim_cal.sensor.sensor import load_sensor

DEGREE = np.pi / 180
DESCRIBED = from_xyz_rpy((0.1, -0.3, 0.2), (0.5, -1.0, 2.0))


def moved(millimetres=0.0, degrees=0.0):
    return DESCRIBED @ from_xyz_rpy((1e-3 * millimetres, 0.0, 0.0), (0.0, 0.0, degrees * DEGREE))


def said(found):
    return [(finding.code, str(finding)) for finding in found]


def model_warnings(*poses):
    refusals, warnings = findings.model_findings(*poses)
    assert not refusals
    return warnings


@pytest.mark.parametrize(
    "check, code, words",
    [
        (lambda: findings.overlap_refusals(Consistency(1, 0, 0.1), 12), None, ()),
        (
            lambda: findings.overlap_refusals(Consistency(1, 0, 0.1), 11),
            "little_overlap",
            ("11 flat patches", "10 % overlap"),
        ),
        (
            lambda: findings.overlap_refusals(Consistency(1, 0, 0.09), 12),
            "little_overlap",
            ("12 flat", "9 % overlap; stow"),
        ),
        (lambda: findings.narrow_overlap(0.2), None, ()),
        (lambda: findings.narrow_overlap(0.11), "narrow_overlap", ("only 11 %",)),
        (lambda: findings.wrong_minimum(Consistency(0.88, 0.03, 0.5)), None, ()),
        (lambda: findings.wrong_minimum(Consistency(0.5, 0.03, 0.09)), None, ()),
        (
            lambda: findings.wrong_minimum(Consistency(0.5, 0.04, 0.09)),
            "contradicting_views",
            ("50 %", "88 %", "4.0 %", "3 %"),
        ),
        (
            lambda: findings.wrong_minimum(Consistency(0.87, 0.01, 0.5)),
            "contradicting_views",
            ("87 % of the points", "1.0 %"),
        ),
        (lambda: findings.movement(Motion(0.003, 0.1 * DEGREE), 0.3, 12), None, ()),
        (lambda: findings.movement(Motion(0.0041, 0.0), 0.0, 12), "moved", ("by 4 mm and 0.00 deg", "keep it still")),
        (lambda: findings.movement(Motion(0.0, 0.11 * DEGREE), 0.0, 12), "moved", ("by 0 mm and 0.11 deg",)),
        (lambda: findings.movement(Motion(0.01, 0.1), 0.0, 11), None, ()),
        (lambda: findings.movement(Motion(0.0, 0.0), 0.31, 12), "moving_scene", ("31 % of the view changed",)),
        (lambda: findings.large_residuals(3.0, 0.01), None, ()),
        (lambda: findings.large_residuals(9.0, 0.002), None, ()),
        (lambda: findings.large_residuals(3.1, 0.0021), "large_residuals", ("2.1 mm apart", "3.1 times")),
        (lambda: findings.disturbance(0.02), None, ()),
        (lambda: findings.disturbance(0.31), None, ()),
        (lambda: findings.disturbance(0.03), "moving_scene", ("3 % of the view",)),
        (lambda: findings.disturbance(0.3), "moving_scene", ("30 % of the view",)),
        (lambda: model_warnings(None, DESCRIBED), None, ()),
        (lambda: model_warnings(DESCRIBED, moved(99, 4.9)), None, ()),
        (
            lambda: model_warnings(DESCRIBED, moved(101)),
            "far_from_description",
            ("101 mm",),
        ),
        (
            lambda: model_warnings(DESCRIBED, moved(0, 5.2)),
            "far_from_description",
            ("5.2 deg",),
        ),
        (
            lambda: findings.model_findings(DESCRIBED, inverse(moved(3, 1)))[0],
            "swapped",
            ("near its inverse",),
        ),
        (
            lambda: findings.model_findings(DESCRIBED, moved(301))[0],
            "far_from_description",
            ("301 mm",),
        ),
        (lambda: findings.mirrored(()), None, ()),
        (lambda: findings.mirrored(("right",)), "mirrored", ("the right lidar's clouds",)),
        (lambda: findings.movement(Motion(0.0, 0.0, 0.0004, 0.0), 0.0, 20), None, ()),
        (lambda: findings.movement(Motion(0.0, 0.0, 0.0006, 0.0), 0.0, 20), "lidar_moved", ("0.6 mm",)),
    ],
)
def test_a_check_of_the_alignment_speaks_beyond_its_limit(check, code, words):
    found = check()
    assert [finding.code for finding in found] == ([] if code is None else [code])
    assert all(word in found[0] for word in words)


SUPPORT = {"area": 1.0, "gap": 150 * DEGREE, "gap_bearing": 0.5 * np.pi, "level_share": 0.6}


def support(**changes):
    return Support(unevenness=0.0, **{**SUPPORT, **changes})


@pytest.mark.parametrize(
    "changes, worst_place, deviations, warnings, refusals",
    [
        ({}, "", (0.005, 0.1 * DEGREE), [], []),
        ({"area": 0.99}, "", (0, 0), [], [("little_floor",
                                           "only 0.99 m2 of floor support the plane, 1 m2 are needed")]),
        ({"gap": 151 * DEGREE}, "", (0, 0), [], [("floor_on_one_side", "none over 151 deg to the left (at most 150")]),
        ({"level_share": 0.59}, "", (0, 0), [], [("floor_not_plane", "only 59 % of it within 1.5 m lie on one; move")]),
        ({"level_share": 0.5}, "high", (0, 0), [], [("floor_not_plane",
                                                     "only 50 % of it within 1.5 m lie on one; it is")]),
        ({"level_share": 0.75}, "high", (0, 0), [("floor_partly_level", "25 % of the floor around the robot is off")],
         []),
        ({}, "", (0.0051, 0), [], [("uncertain_floor",
                                    "the height is too uncertain: standard deviation 5.10 mm, at most 5")]),
        ({}, "", (0, 0.101 * DEGREE), [], [("uncertain_floor", "standard deviation 0.101 deg, at most 0.100 deg")]),
    ],
)  # fmt: skip
def test_the_support_of_a_floor_is_refused_beyond_its_limits(changes, worst_place, deviations, warnings, refusals):
    found, variances = Findings(), np.square([deviations[0], 0.5 * deviations[1], deviations[1]])
    floor_findings.check_support(
        found, support(**changes), worst_place, np.diag(variances) * (1 - 1e-9), FloorSettings()
    )
    for seen, expected in ((found.warnings, warnings), (found.refusals, refusals)):
        assert [finding.code for finding in seen] == [code for code, _ in expected]
        assert all(f" {words}" in f" {finding}" for finding, (_, words) in zip(seen, expected, strict=True))


def shape(curvature=(0.0, 0.0, 0.0), unevenness=0.0, step=None):
    found = Findings()
    floor_findings.check_shape(found, SimpleNamespace(curvature=curvature, unevenness=unevenness, step=step))
    return said(found.warnings), said(found.refusals)


def test_the_shape_of_a_floor_is_told_from_half_a_millimetre_and_refused_from_three():
    rise = 1.5**2 / 2  # m per unit of curvature
    assert shape((0.0004 / rise, 0, 0), 0.0005) == ([], [])
    (warning,), _ = shape((0, 0.001 / rise, 0))
    assert warning == (
        "floor_curved",
        "the floor bends by 1.0 mm within 1.5 m of the robot; the plane touches it there",
    )
    _, (refusal,) = shape((0, 0, -0.0031 / rise))
    assert refusal[0] == "floor_not_plane" and "it bends by 3.1 mm within 1.5 m" in refusal[1]
    (warning,), _ = shape(unevenness=0.0006)
    assert warning == ("floor_uneven", "the floor is uneven: its parts lie 0.6 mm (standard deviation) off the plane")


def test_a_step_is_refused_only_under_the_robot():
    (warning,), refusals = shape(step=Step(0.8, 0.0, 0.012))
    assert warning == ("floor_step", "a step runs through the floor 0.8 m ahead: beyond it lies 12.0 mm higher; "
                       "the plane is the one that the robot stands on") and not refusals  # fmt: skip
    warnings, (refusal,) = shape(step=Step(0.29, np.pi, -0.004))
    assert "4.0 mm lower, and the robot seems to stand on both sides of it" in refusal[1] and not warnings
    assert shape(step=Step(0.3, 0.0, 0.012))[1] == []


@pytest.mark.parametrize(
    "increment, deviation, warning, refusal",
    [
        ((0.0029, 0.0, 0.0), 0.001, None, None),
        ((-0.0031, 0.0, 0.0), 1.0, None, "3.10 mm and 0.000 deg off the left one's; align the lidars first"),
        ((0.0, 0.08 * DEGREE, 0.07 * DEGREE), 1.0, None, "0.00 mm and 0.106 deg"),
        ((0.0010, 0.0, 0.0), 0.00025, None, None),
        (
            (0.0010, 0.0, 0.0),
            0.00024,
            "more than the alignment's own uncertainty explains; align the lidars again",
            None,
        ),
    ],
)
def test_two_floors_are_one_within_the_alignments_uncertainty(increment, deviation, warning, refusal):
    found = Findings()
    covariance = np.diag([deviation, DEGREE, DEGREE]) ** 2
    floor_findings.check_disagreement(found, Disagreement(np.array(increment), covariance))
    for seen, words in ((found.warnings, warning), (found.refusals, refusal)):
        assert [finding.code for finding in seen] == ([] if words is None else ["lidars_disagree"])
        assert words is None or words in seen[0]


def test_a_floor_that_one_lidar_sees_is_no_disagreement():
    found = Findings()
    floor_findings.check_disagreement(found, None)
    assert said(found.warnings)[0][0] == "floor_of_one_lidar" and not found.refusals


@pytest.mark.parametrize(
    "height, tilt, refused", [(0.001, 0.05 * DEGREE, False), (0.0011, 0.0, True), (0.0, 0.051 * DEGREE, True)]
)
def test_a_robot_that_moved_against_the_floor_is_refused_from_a_millimetre(height, tilt, refused):
    found = Findings()
    floor_findings.check_motion(found, FloorMotion(4, height, tilt), 10)
    assert [bool(found.warnings), bool(found.refusals)] == [not refused, refused]
    (sentence,) = found.warnings + found.refusals
    assert f"after frame 4 of 10 it lies {1e3 * height:.2f} mm and {tilt / DEGREE:.3f} deg off" in sentence
    assert ("record again with the robot at rest" in sentence) is refused


def test_no_motion_is_no_finding():
    found = Findings()
    floor_findings.check_motion(found, None, 10)
    assert not found.warnings + found.refusals


SENSOR = load_sensor("jt128")


@pytest.mark.parametrize(
    "name, value, words",
    [
        ("range_offset", 4.1 * SENSOR.spread.range_offset,
         f"range_offset of {4100 * SENSOR.spread.range_offset:.2f} +- 1"),
        ("range_offset", -4.1 * SENSOR.spread.range_offset,
         "is 4.1 standard deviations of what sensor file jt128 allows"),
        ("range_scale", 5.0 * SENSOR.spread.range_scale,
         f"range_scale of {5 * SENSOR.spread.range_scale:.5f} +- 0.00100 is 5"),
        ("channel_range_spread", 2.1 * SENSOR.spread.channel_range, "channels differ in channel_range by 2.1 standard"),
        ("optical_centre_share", 1.0,
         "the right lidar's driver does not correct the optical centre of the sensor's table"),
        ("range_offset", 3.9 * SENSOR.spread.range_offset, None),
        ("channel_range_spread", 1.9 * SENSOR.spread.channel_range, None),
        ("optical_centre_share", 0.502, None),
    ],
)  # fmt: skip
def test_a_lidar_beyond_its_sensor_file_is_named_with_its_error(name, value, words):
    found = findings.unit_warnings({f"{name}_right": value, f"{name}_right_std": 0.001}, SENSOR)
    assert [words in each for each in found] == ([] if words is None else [True])
    assert not any("left" in each for each in found)
    assert findings.unit_warnings({f"{name}_right": value, f"{name}_right_std": 0.001}, None) == []


def test_drivers_that_leave_out_the_same_are_one_finding():
    numbers = {f"firing_time_share_{side}{part}": value for side in ("left", "right")
               for part, value in (("", 1.0), ("_std", 0.01))}  # fmt: skip
    (found,) = findings.unit_warnings(numbers, SENSOR)
    assert found.code == "driver_uncorrected" and "the drivers of both lidars do not correct the firing times" in found


@pytest.mark.parametrize("share, deviation, told", [(0.9, 0.13, True), (0.9, 0.14, False), (0.2, 0.0, False)])
def test_a_driver_is_said_to_leave_out_a_correction_if_three_standard_deviations_are_for_it(share, deviation, told):
    numbers = {"optical_centre_share_left": share, "optical_centre_share_left_std": deviation}
    assert [finding.code for finding in findings.unit_warnings(numbers, SENSOR)] == ["driver_uncorrected"] * told


@pytest.mark.parametrize("x, y, deviation, told", [(0.012, -0.006, 0.001, True), (0.012, 0.0, 0.0031, False),
                                                   (0.0, 0.0029, 0.0, False), (0.0, -0.0031, 0.0, True)])  # fmt: skip
def test_rays_of_an_unknown_lidar_beside_its_spin_axis_are_told_if_the_data_leaves_no_doubt(x, y, deviation, told):
    numbers = {f"optical_centre_{axis}_right": value for axis, value in (("x", x), ("y", y))}
    numbers |= {f"{name}_std": deviation for name in numbers}
    assert [(found.code, "right" in found) for found in findings.unit_warnings(numbers, None)] == (
        [("driver_uncorrected", True)] * told
    )
    assert "driver_uncorrected" not in [found.code for found in findings.unit_warnings(numbers, SENSOR)]
    # Where the frame of its clouds is, along and about its axis, is as uncertain as what nobody corrects.
    turned = from_xyz_rpy((0.1, 0.0, 0.0), (0.3, 0.0, 0.0))
    covariance = covariance_of_frames((np.eye(4), turned), numbers, (None, None), ("left", "right"))
    assert np.linalg.matrix_rank(covariance) == 2 * told and not np.any(covariance[:6])
    if told:
        assert np.allclose(covariance[6:9, 6:9], 0.03**2 * np.outer(turned[:3, 2], turned[:3, 2]) + np.radians(0.3) ** 2
                           * np.outer(*[np.cross(turned[:3, 3], turned[:3, 2])] * 2))  # fmt: skip


def test_what_the_frames_of_unknown_lidars_have_in_common_moves_none_that_stand_alike():
    numbers = {f"optical_centre_{axis}_{name}{part}": value for axis in "xy" for name in ("left", "right")
               for part, value in (("", 0.012), ("_std", 0.001))}  # fmt: skip
    between = np.hstack([-np.eye(6), np.eye(6)])
    moved = []
    for angle in (0.0, 0.5):
        poses = (np.eye(4), from_xyz_rpy((0.0, 0.0, 0.2), (angle, 0.0, 0.0)))
        covariance = between @ covariance_of_frames(poses, numbers, (None, None), ("left", "right")) @ between.T
        moved.append(float(np.sqrt(np.trace(covariance[:3, :3]))))
    assert moved[0] < 1e-9 and moved[1] > 0.01


@pytest.mark.parametrize("tilt, both, told", [(0.0, True, []), (0.5, True, ["left", "right"]), (0.0, False, ["left"])])
def test_rotor_angles_that_no_encoder_gives_are_told_unless_all_lidars_that_stand_alike_have_them(tilt, both, told):
    numbers = {f"azimuth_{axis}_1_{name}{part}": value * (name == "left" or both) * (axis == "sin" or part == "_std")
               for axis in ("cos", "sin") for name in ("left", "right")
               for part, value in (("", np.radians(1.0)), ("_std", np.radians(0.01)))}  # fmt: skip
    poses = (np.eye(4), from_xyz_rpy((0.1, 0.0, 0.0), (tilt, 0.0, 0.0)))
    found = findings.distorted(wrong_rotor_angles(poses, numbers, ("left", "right")))
    assert [each.code for each in found] == ["distorted_clouds"] * len(told)
    assert [name for name in ("left", "right") if any(name in each for each in found)] == told


@pytest.mark.parametrize(
    "patches, base_from_left, axis",
    [
        (3, None, None),
        (2, None, "lidar x"),
        (2, from_xyz_rpy((0, 0, 1), (0, 0, np.pi / 2)), "base y"),
        (400, None, None),
    ],
)
@pytest.mark.parametrize("grids", [1, 2])
def test_a_direction_that_few_patches_determine_is_told(patches, base_from_left, axis, grids):
    """Few patches face the lidar's x. Outliers among them do not count, nor the same surface in another grid."""
    normals = np.repeat(np.eye(3)[[0, 1, 2, 0]], [patches, 50, 50, 9], axis=0)
    points = np.random.default_rng(7).uniform(-3.0, 3.0, size=normals.shape)
    points[normals[:, 0] > 0, 1:] = 0.0
    jacobian, weights = np.hstack([normals, np.cross(points, normals)]), np.ones(len(normals))
    weights[-9:] = 0.0
    number = grids * len(normals)
    gaps = SimpleNamespace(
        jacobian=np.tile(jacobian, (grids, 1)), variances=np.full(number, 1e-6), shares=np.ones(number)
    )
    block = SimpleNamespace(
        gaps=gaps, weights=np.tile(weights, grids), grids=grids, extents=lambda: np.ones(number),
        elements=None,
    )  # fmt: skip
    settings = AlignmentSettings(base_from_left=base_from_left)
    found = findings.little_support([block], 1e-6 * np.linalg.inv((jacobian.T * weights) @ jacobian), settings)
    sentence = f"only {patches} small surfaces determine sliding along {axis}"
    assert [finding.sentence for finding in found] == [sentence] * (axis is not None)


@pytest.mark.parametrize(
    "name, value, text",
    [
        ("azimuth_cos", 0.001, "0.0573 +- 0.0115 deg"),
        ("range_scale", 0.001, "0.00100 +- 0.00020"),
        ("optical_centre_share", 0.5, "0.50000 +- 0.00020"),
        ("incidence", 0.001, "1.00 +- 0.20 mm"),
    ],
)
def test_an_error_is_said_in_its_unit(name, value, text):
    assert findings.error_in_units(name, value, 0.0002) == text


SLIDING = Direction("sliding along base x", 0.0021, 0.002)
TURNING = Direction("turning about base z", 1.1 * DEGREE, 0.2 * DEGREE)
FINE = Direction("sliding along base y", 0.001, 0.002)
NOWHERE = Residuals(
    np.empty((0, 3)), np.empty((0, 3)), np.empty(0), np.empty(0, bool), np.empty(0, int), np.empty(0, int)
)


def mount_warnings(directions=(), joints=(), links=(), residuals=NOWHERE, poses=None, alignment=None, asked=True):
    found = {"left": list(directions), "right": []}
    names = ("mast", "arm")
    return said(findings.mount_warnings(found, joints, links, residuals, names, poses, alignment, asked))


def test_a_weak_direction_of_the_mounts_is_told_with_its_deviation():
    told = mount_warnings([FINE, SLIDING, TURNING])
    assert told == [
        ("uncertain_mounts",
         "left lidar: these poses do not determine sliding along base x well: standard deviation 2.1 mm"),
        ("uncertain_mounts",
         "left lidar: these poses do not determine turning about base z well: standard deviation 1.10 deg"),
    ]  # fmt: skip


def test_a_joint_that_moves_further_or_less_than_it_says_is_told():
    lift = JointOffset("lift_joint", 0.0005, 0.001, True, scale=0.0051, scale_deviation=0.0002)
    arm = JointOffset("arm_joint", 0.0, 0.001, True, scale=-0.004, scale_deviation=0.0011)
    for asked in (True, False):
        assert mount_warnings(joints=[lift, arm], asked=asked) == [
            (
                "joint_scale_off",
                "lift_joint moves 0.51 % further than it reports; correct the scale in its driver; "
                "the mounts allow for it",
            ),
            (
                "joint_scale_off",
                "arm_joint moves 0.40 % less than it reports; correct the scale in its driver; the mounts allow for it",
            ),
        ]


def test_joint_zeros_are_told_if_not_asked_for_and_otherwise_if_they_are_not_separable():
    lift, yaw = JointOffset("lift_joint", 0.0505, 0.001, True), JointOffset("pan_joint", -0.02, 0.001, False, True)
    assert [text for _, text in mount_warnings(joints=[lift, yaw], asked=False)] == [
        "lift_joint zero offset: +50.5 mm; home the robot, or use --with-joint-offsets",
        "pan_joint zero offset: -1.15 deg; home the robot, or use --with-joint-offsets",
    ]
    ((code, text),) = mount_warnings(joints=[lift, yaw])
    assert code == "joint_zero_unobserved" and "the zero of pan_joint is not separable" in text


def test_a_misplaced_link_is_told_with_how_far_it_is():
    motion = np.array([0.003, 0.0, 0.004, 0.6 * DEGREE, 0.0, 0.8 * DEGREE])
    links = [LinkResidual("arm", motion, 3.4, 100), LinkResidual("mast", motion, 3.6, 100),
             LinkResidual("wrist", motion, 0.1, 100, released=True)]  # fmt: skip
    assert [text for _, text in mount_warnings(links=links)] == [
        f"{link}, with the links on it, is 5.0 mm and 1.00 deg off the model" for link in ("mast", "wrist")
    ]


@pytest.mark.parametrize("fronts, others, told", [(50, 250, True), (50, 284, False), (49, 100, False)])
def test_returns_in_front_of_a_link_are_a_payload_if_they_are_many(fronts, others, told):
    distances = np.repeat([0.041, 0.039], [fronts, others])
    links = np.ones(len(distances), dtype=int)
    residuals = Residuals(np.zeros((len(links), 3)), np.zeros((len(links), 3)), distances, distances < 0, links, links)
    found = mount_warnings(residuals=residuals)
    share = round(100 * fronts / len(links))
    assert found == ([("payload", f"{share} % of the returns on arm lie in front of it: a payload, or something in the "
                       "way; they are left out")] if told else [])  # fmt: skip


def test_links_with_most_in_front_of_them_come_first():
    links, distances = np.repeat([0, 1], [200, 400]), np.r_[[0.05] * 60, [0.0] * 140, [0.05] * 200, [0.0] * 200]
    places = np.zeros((600, 3))
    found = mount_warnings(residuals=Residuals(places, places, distances, distances < 0.04, links, links))
    assert [text.partition(" lie")[0] for _, text in found] == [
        "50 % of the returns on arm",
        "30 % of the returns on mast",
    ]


@pytest.mark.parametrize("sigmas, told", [(4.9, False), (5.1, True)])
def test_mounts_that_contradict_the_alignment_are_told(sigmas, told):
    alignment = Observations.of_known_poses((DESCRIBED,), np.diag([1e-6] * 3 + [1e-8] * 3))
    poses = {"left": np.eye(4), "right": from_xyz_rpy((1e-3 * sigmas, 0, 0), (0, 0, 0)) @ DESCRIBED}
    found = mount_warnings(poses=poses, alignment=alignment)
    assert [text for _, text in found] == ["the robot's own returns and the alignment of the lidars disagree by "
                                           f"{sigmas} sigma"] * told  # fmt: skip


@pytest.mark.parametrize(
    "points, directions, off, words",
    [
        (500, [Direction("sliding along base x", 0.01, 0.002)], (0, 0), None),
        (499, [TURNING], (0, 0), "only 499 returns from the robot, at least 500 are needed"),
        (500, [TURNING], (0, 0), "these poses do not determine turning about base z: standard deviation 1.10 deg"),
        (500, [], (900, 0), "found 900 mm and 0.0 deg from its described pose"),
        (500, [], (0, 90), "found 0 mm and 90.0 deg from its described pose"),
    ],
)
def test_mounts_are_refused_without_returns_or_far_from_the_description(points, directions, off, words):
    poses, nominal = {"left": DESCRIBED, "right": moved(*off)}, dict.fromkeys(("left", "right"), DESCRIBED)
    counts, found = {"left": 500, "right": points}, {"left": [], "right": directions}
    refusals = findings.mount_refusals(counts, found, poses, nominal, 500, MountSettings(), tied=False)
    assert [words in each and each.startswith("right lidar: ") for each in refusals] == [True] * (words is not None)


@pytest.mark.parametrize("counts, refused", [((500, 0), []), ((0, 500), []), ((499, 0), ["left", "right"])])
def test_one_lidar_that_sees_the_robot_is_enough_for_those_that_are_tied_to_it(counts, refused):
    both = dict.fromkeys(("left", "right"), DESCRIBED)
    found = findings.mount_refusals(
        dict(zip(both, counts, strict=True)), dict.fromkeys(both, []), both, both, 500, MountSettings(), tied=True
    )
    assert [str(said).split()[0] for said in found] == refused


@pytest.mark.parametrize(
    "millimetres, degrees, sigma, words",
    [
        (
            6,
            0.0,
            0.001,
            "the left lidar 6 mm and 0.0 deg from where the description has it (standard deviation 2 mm, 0.2",
        ),
        (4, 0.5, 0.001, "4 mm and 0.5 deg"),
        (4, 0.2, 0.0001, None),
        (6, 0.0, 0.0011, None),
    ],
)
def test_a_left_lidar_is_off_if_that_is_significant_and_matters(millimetres, degrees, sigma, words):
    covariance = np.kron(np.eye(2), np.diag([sigma**2] * 3 + [(0.1 * DEGREE) ** 2] * 3))
    described = from_xyz_rpy((0, 0, 0), (0.3, 0.2, 0.1))
    pose = from_xyz_rpy((1e-3 * millimetres, 0, 0), (0, 0, degrees * DEGREE)) @ described
    result = MountsResult({"left": pose, "right": pose}, covariance, 0.0, 1000, 8, {}, [], [], NOWHERE, np.eye(12))
    assert [words in each for each in findings.left_off(result, described)] == [True] * (words is not None)
