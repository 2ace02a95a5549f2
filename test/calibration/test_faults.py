"""Faulty recordings: a result that is accepted is right within its covariance."""

from dataclasses import replace

import edited_clouds as returns
import faults
import numpy as np
import pytest
from alignment_scenes import (
    FEW_RAYS,
    FOUR_SIGMA,
    FRAMES,
    REAL,
    SimulatedScene,
    align,
    drawn_scene,
    further_long,
    normalised_error,
    room_of,
)
from comparing import chi_square
from floor_scenes import box
from stage import Stage, judged

import stretch_sim_cal as cal
from stretch_sim_cal.calibration.alignment.second_opinion import SecondOpinion, second_opinion
from stretch_sim_cal.calibration.clouds import DirectionCells, FrameIntake, coordinate_step
from stretch_sim_cal.calibration.consistency import seen_by_another
from stretch_sim_cal.calibration.findings import another_opinion
from stretch_sim_cal.calibration.problem import State
from stretch_sim_cal.calibration.settings import AlignmentSettings
from stretch_sim_cal.calibration.surfaces import Lidar, in_base
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import SIDES, apply, error, exp, from_xyz_rpy, inverse, log
from stretch_sim_cal.sensor.points import coordinates
from stretch_sim_cal.sensor.sensor import load_sensor
from stretch_sim_cal.sensor.unit import CENTRE_SHARE, FIRING_SHARE, UnitSpread

AXIS = np.array([0.5, 0.6, 0.62])
UNEVEN = "channels that err by 1 to 5 mm, near otherwise than far"
MIRRORS = {"y": np.diag([1.0, -1.0, 1.0]), "x and y": np.eye(3)[[1, 0, 2]]}


@pytest.fixture(scope="module")
def scene():
    return drawn_scene()


def codes(findings):
    return {finding.code for finding in findings}


@pytest.mark.parametrize(("side", "jumps"), [("left", True), pytest.param("right", False, marks=pytest.mark.long)])
def test_a_lidar_that_moves_against_the_other_is_refused(scene, side, jumps):
    ways = np.arange(FRAMES) >= FRAMES // 2 if jumps else np.linspace(0.0, 1.0, FRAMES)
    clouds = [
        returns.transformed(cloud.copy(), from_xyz_rpy(rpy=np.radians(0.15 * way) * AXIS))
        for way, cloud in zip(ways, getattr(scene, side), strict=True)
    ]
    assert "lidar_moved" in codes(scene.align(**{side: clouds}).refusals)


@pytest.mark.parametrize(
    ("sides", "mirror", "sensor"),
    [(("right",), "x and y", FEW_RAYS), pytest.param(SIDES, "y", "jt128_sparse", marks=pytest.mark.long)],
)
def test_mirrored_clouds_are_refused_and_named(sides, mirror, sensor):
    room, frames = room_of(sensor)
    frames = [
        [cloud @ MIRRORS[mirror] if side in sides else cloud for side, cloud in zip(SIDES, pair, strict=True)]
        for pair in frames[:4]
    ]
    (refusal,) = align(frames, room.initial, room.settings).refusals
    assert refusal.code == "mirrored"
    assert ("both lidars" if len(sides) == 2 else f"the {sides[0]} lidar's") in refusal


@pytest.mark.parametrize(("only_copied", "others", "late"), [(True, 0, 2), (False, 0, 0), (False, 5, -2)])
def test_a_topic_with_another_lidars_returns_is_refused(scene, only_copied, others, late):
    """Brought together by the description, they agree with it whatever the lidars' poses are; perhaps in the scan
    before or after the one that they are paired with. Here, clouds have no channels."""
    scans = {side: [coordinates(cloud) for cloud in getattr(scene, side)] for side in SIDES}
    found = []
    for left, right in zip(scans["left"], np.roll(np.arange(FRAMES), late), strict=True):
        added = apply(scene.initial, scans["right"][right])[others:]
        found.append(added if only_copied else np.concatenate([left, added]))
    with pytest.raises(InputError, match="of the right lidar's returns are in the left lidar's clouds"):
        scene.align(left=found, right=scans["right"])
    with pytest.raises(InputError, match="100 % of the right lidar's returns"):
        scene.align(left=scans["right"], right=scans["right"])


@pytest.mark.parametrize("name", ["vlp16", "xt32"])
def test_a_topic_with_another_lidars_returns_of_other_scans_is_refused(name):
    """The returns of one channel are at one elevation, if they are of one lidar."""
    stage = Stage(load_sensor(name), seed=13)
    random = np.random.default_rng(1)
    later = [
        returns.scaled(cloud.copy(), 1.0 + 0.001 * random.normal(size=len(cloud))) for cloud in stage.scans["right"]
    ]
    stage.scans["left"] = [
        np.concatenate([own, returns.transformed(added, stage.guess())])
        for own, added in zip(stage.scans["left"], later, strict=True)
    ]
    with pytest.raises(
        InputError, match="the left lidar are .* deg apart in elevation: its topic has the returns of several"
    ):
        stage.align("planes", True, stage.guess())


@pytest.mark.long
def test_an_impossible_error_that_both_clouds_have_alike_is_no_reason_to_refuse():
    """Returns from a lidar's mount are fitted so; views from one place are not moved against each other by it."""
    stage = Stage(load_sensor("xt32"), 11, apart=0.0)
    for side, scans in stage.scans.items():
        stage.scans[side] = [returns.scaled(scan.copy(), 1.0 + 0.25 / returns.ranges_of(scan)) for scan in scans]
    found = stage.align("planes", True, stage.guess())
    assert found.diagnostics["range_offset_left"] > 0.15 and not found.refusals
    assert "beyond_sensor_file" in codes(found.warnings)
    assert 6.0 * judged(found, stage.truth)[3] < FOUR_SIGMA


@pytest.mark.parametrize(("known", "seed"), [(False, 22), pytest.param(True, 21, marks=pytest.mark.long)])
def test_few_channels_with_somebody_in_one_scan_are_aligned_from_a_rough_guess(known, seed):
    stage = Stage(load_sensor("vlp16"), seed, disturbed=True)
    refused, millimetres, degrees, squared = judged(stage.align("planes", known, stage.guess(0.2, 5.0)), stage.truth)
    assert not refused and 6.0 * squared < FOUR_SIGMA
    assert millimetres < 4.0 and degrees < 0.06


@pytest.mark.long
@pytest.mark.parametrize("seed", [7003, 7008])
def test_leaves_do_not_show_that_two_units_measure_alike(seed):
    """With a wall or two on one side, the errors of the units and the pose are only together what the views show."""
    stage = Stage(load_sensor("vlp16"), seed, two_units=True, place="garden")
    refused, _, _, squared = judged(stage.align("planes", True, stage.guess()), stage.truth)
    assert refused or 6.0 * squared < FOUR_SIGMA


@pytest.mark.long
@pytest.mark.parametrize("seed", [17, 23])
def test_laths_before_the_walls_do_not_mislead(seed):
    """From opposite sides cells see different shares of laths and wall: 8.8 mm and 1.9 mm off, 7.9 and 4.9 standard
    deviations, when both counted as one rough surface."""
    stage = Stage(load_sensor("xt32"), seed, apart=1.2, two_units=True, place="laths")
    refused, distance, _, squared = judged(stage.align("planes", True, stage.guess()), stage.truth)
    assert not refused and distance < 3.0 and 6.0 * squared < FOUR_SIGMA


@pytest.mark.long
def test_ours_is_at_least_as_exact_as_the_plain_methods_with_few_channels():
    """Medians over stages against the better one, of translation and rotation; a lidar without errors of its own."""
    found = {method: [] for method in ("planes", "gicp", "published")}
    for seed in range(31, 39):
        stage = Stage(replace(load_sensor("vlp16"), spread=UnitSpread()), seed)
        for method, rows in found.items():
            rows.append(judged(stage.align(method, True, stage.guess()), stage.truth))
    medians = {method: np.median(rows, axis=0) for method, rows in found.items()}
    for column in (1, 2):
        assert medians["planes"][column] <= min(medians["gicp"][column], medians["published"][column])
    assert not any(row[0] for row in found["planes"])


@pytest.mark.parametrize(
    ("kind", "seed", "edit"),
    [
        ("stage", 202, "rings shuffled"), ("stage", 197, "millimetres"),
        # Patches that match although the ranges differ by 1 % match by chance: accepted, 16 and 66 mm off, before the
        # estimate began where the ranges agree.
        ("dome", 543, "ranges 1 to 3 % wrong"),
        *(pytest.param(*further, marks=pytest.mark.long) for further in (
            # A tenth of the view in common, chi2 49 before such a sector might be off the whole.
            ("dome", 33016, "rotor angles wrong"),
            ("stage", 196, "another room in one lidar for a while"),
            # One channel sees the floor at a grazing angle, with twice the noise of the walls: it is not refused as a
            # motion of 2 to 4 mm.
            ("stage", 161156, "nothing"), ("stage", 161237, "nothing"),
            # Which passed as ranges that wander, or as a motion in every scan.
            *(("stage", seed, "a wall elsewhere for one lidar") for seed in (60015, 60053, 60044, 60057)),
            ("stage", 91031, "half of the channels 0.05 to 0.5 deg late"),
            # Accepted and wrong (chi2 114 and 58) before a motion of the clouds' frame in every scan was estimated.
            ("stage", 31007, "deskewed by up to millimetres for nothing"),
            # Elevations 8 times as far off as the sensor file says explained this: 36 mm too high, chi2 55.
            ("stage", 801016, UNEVEN),
            # 0.29 deg, where 0.01 are said of a unit: what both lidars' elevations have in common is not seen.
            # Accepted, 0.1 deg off with 0.01 said, as long as that kept the file's prior.
            ("stretch", 71013, "elevations wrong"),
            # Of both lidars, by 0.29 deg: 0.09 deg off with 0.02 said, chi2 40, as long as the pose was as certain as
            # of lidars that their sensor file describes.
            ("stretch", 1101026, "elevations wrong"),
            # 0.15 deg and 12 mm off with a twentieth of it said, as long as channels' azimuths erred independently, and
            # the components of an optical centre, too.
            ("stretch", 73007, "beam origin 5 to 40 mm wrong"), ("stretch", 79110, "a mirror"),
            # 3.1 mm and 0.04 deg off with a fifth of it said, as long as channels' ranges erred independently.
            ("stretch", 991101, "half of the channels 5 to 40 mm longer"),
            ("stage", 193, "three channels up to 8 cm wrong"), ("stage", 201, "a lidar turned about its axis for good"),
        )),
    ],
)  # fmt: skip
def test_what_is_accepted_of_an_edited_recording_is_right(kind, seed, edit):
    """A few of `benchmarks/faults.py`: of two 16-channel lidars in generated rooms, of the Stretch, of domes."""
    found = faults.verdict(kind, seed, (edit,))
    assert found.what in ("right", "refused"), found.detail


def test_a_changed_part_of_the_view_is_named_and_no_reason_to_refuse():
    """One lidar sees a cupboard that was put there later; 6 % of the points seem to be in free space."""
    (room, frames), later = room_of(), SimulatedScene("furnished_room")
    later.simulator.add_surface("cupboard", box([0.8, 0.8, 1.2], [1.2, 0.9, 0.6]))
    seen = [(left, later.frame(tick)[1]) for tick, (left, _) in enumerate(frames[:5])]
    found = align(seen, room.initial, room.settings)
    assert found.accepted and "changed_scene" in codes(found.warnings)
    assert normalised_error(room.truth, found) < FOUR_SIGMA


def surface_of(scene, guess, change=lambda cloud: cloud):
    """What both lidars of a scene see, in the left one's frame with the right one at `guess` (4, 4); the left one's
    clouds are changed."""
    settings = AlignmentSettings(sensor=REAL)
    intake, cells = FrameIntake(), [DirectionCells(REAL) for _ in SIDES]
    for left, right in zip(scene.left, scene.right, strict=True):
        for own, cloud in zip(cells, intake.admit(change(left.copy()), right), strict=True):
            own.add(cloud)
    places = [Lidar.of_cells(own) for own in cells]
    units = tuple(np.zeros(lidar.model.size) for lidar in places)
    for values in units:
        values[[CENTRE_SHARE, FIRING_SHARE]] = REAL.uncorrected_shares
    _, places = seen_by_another(places, (np.eye(4), guess), ((0, 1),), settings)
    return in_base(places, State((np.eye(4), guess), units))


def test_a_second_opinion_finds_the_transform_and_by_what_share_ranges_differ(scene):
    guess = scene.truth @ exp(np.array([0.02, -0.01, 0.015, 0.003, -0.002, 0.004]))
    opinion = second_opinion(surface_of(scene, guess, lambda cloud: returns.scaled(cloud, 1.01)))
    found = exp(opinion.twist) @ guess
    assert np.linalg.norm(log(scene.truth @ inverse(found))[:3]) < 0.006
    assert np.linalg.norm(log(scene.truth @ inverse(guess))[:3]) > 0.006
    assert chi_square(scene.truth, found, opinion.covariance) < FOUR_SIGMA
    assert abs(opinion.scale - 0.01) < 0.004 and opinion.much_longer


def test_a_second_opinion_is_unsure_of_what_the_surfaces_leave_open(scene):
    """A floor and one wall: noise of the normals is not taken for knowledge of the direction along both."""
    surface = surface_of(scene, scene.truth)
    _, across, up = (surface.normals @ scene.base_from_left[:3, :3].T).T
    opinion = second_opinion(replace(surface, usable=surface.usable & ((up > 0.97) | (across > 0.97))))
    assert np.sqrt(np.linalg.eigvalsh(opinion.covariance)[-1]) > 0.03 and not opinion.much_longer
    assert opinion.chi_square(np.zeros((6, 6))) < FOUR_SIGMA


def test_another_opinion_than_both_allow_is_a_refusal():
    twist, covariance = np.array([0.01, 0.0, 0.0, 0.0, 0.0, 0.0]), np.diag([1e-6] * 6)
    for deviation, told in ((0.001, True), (0.003, False)):
        opinion = SecondOpinion(twist, np.eye(6) * deviation**2, 0.0, 0.0, 0.0)
        found = another_opinion(opinion, covariance)
        assert [each.code for each in found] == ["second_opinion"] * told


@pytest.mark.long
@pytest.mark.parametrize(
    ("size", "code", "accepted"), [(2.0, "scan_motion", True), (8.0, "impossible_scan_motion", False)]
)
def test_clouds_deskewed_by_a_motion_that_was_none_are_right_and_named(scene, size, code, accepted):
    """Of so many times 4 mm and 0.1 deg in each scan."""
    twist = size * np.array([0.003, -0.002, 0.001, 0.001, -0.0005, 0.0015])

    def edited(cloud):
        shares = returns.shares_of_scan(cloud)[:, None]
        points = coordinates(cloud).astype(float)
        return returns.placed(cloud.copy(), points + shares * (twist[:3] + np.cross(twist[3:], points)))

    found = scene.align(left=[edited(cloud) for cloud in scene.left])
    assert code in codes([*found.warnings, *found.refusals]) and found.accepted == accepted
    assert chi_square(scene.truth, found.right_to_left, found.covariance) < FOUR_SIGMA


def edited(seed, edit, kind="stage"):
    """Return the case of two VLP-16 in a room, or of another kind, under an edit."""
    case = faults.recorded(kind, seed)
    faults.EDITS[edit](case, np.random.default_rng(seed))
    return case


def calibrated(case, accept=faults.ACCEPT):
    """Return what is found in a case, and the chi-square of its error."""
    found = cal.calibrate(case.rig, case.clouds["left"], case.clouds["right"], floor=False, accept=accept)
    return found, chi_square(case.truths[0], found.left_from_right, found.covariance)


@pytest.mark.parametrize(
    ("kind", "seed", "edit", "named"),
    [
        # By 0.03 to 0.1 deg; of two VLP-16 at nearly one place it is not known which one's does.
        ("stage", 601013, "a spin axis that wobbles", None),
        *(pytest.param(*further, marks=pytest.mark.long) for further in (
            ("stage", 601006, "a spin axis that wobbles", None),
            # By 9 and 20 mm: in a room nearly a turn of the lidar, by 0.1 deg and more.
            ("stage", 195102, "beams 3 to 30 mm aside of the axis", "lateral_offset"),
            ("stage", 195106, "beams 3 to 30 mm aside of the axis", "lateral_offset"),
            # Before 40 to 120 deg of a turn: it turns the lidar by 0.06 deg.
            ("stage", 514029, "a window that bends rays by 0.03 to 0.3 deg", "direction_waves"),
            ("stage", 514055, "a window that bends rays by 0.03 to 0.3 deg", "direction_waves"),
            ("stage", 30004, "coordinates cut to steps of 1 to 10 mm", "rounded_coordinates"),
            ("stage", 61012, "a cover, 1 to 6 mm longer ranges in its middle", None),
            ("stage", 61013, "a cover, 1 to 6 mm longer ranges in its middle", None),
            # Not a driver that corrects the file's origin 2.1 times, 27 mm off with 4 said: drivers correct all of it
            # or nothing.
            ("stretch", 301280, "beam origin 5 to 40 mm wrong", "beyond_sensor_file"),
        )),
    ],
)  # fmt: skip
def test_an_error_of_lidars_is_allowed_for_and_named(kind, seed, edit, named):
    case = edited(seed, edit, kind)
    found, squared = calibrated(case)
    assert squared < FOUR_SIGMA and (found.accepted or kind == "stretch")
    assert named is None or named in codes(found.findings)
    if named == "lateral_offset":
        assert np.degrees(error(case.truths[0], found.left_from_right)[1]) < 0.04


@pytest.mark.parametrize("seed", further_long(141018, 60006, 141004, 141037))
def test_a_wall_without_which_the_result_is_another_is_named_and_in_the_uncertainty(seed):
    """Errors of lidars, each of which is possible, explain that it stands elsewhere for one of them: 4 to 19 mm off,
    with a chi-square of 32 to 301, before the estimate was tried without it."""
    found, squared = calibrated(edited(seed, "a wall elsewhere for one lidar"), accept=(0.002, 0.05))
    assert squared < FOUR_SIGMA
    assert "one_surface" in codes(each for each in found.findings if each.severity == "error")


def test_mounts_that_say_nothing_make_views_that_hardly_overlap_no_surer():
    """By them, standard deviations were up to 36 % smaller."""
    case, found = faults.recorded("dome", 9001), []
    for mounts in (None, {name: (pose, np.eye(6)) for name, pose in case.rig.base_from_lidar.items()}):
        each = cal.calibrate(case.rig, case.clouds, floor=False, accept=faults.ACCEPT, mounts=mounts)
        found.append(np.sqrt(np.diag(each.covariance)))
    np.testing.assert_allclose(found[1], found[0], rtol=0.1)


def test_the_step_of_coordinates_is_that_of_all_of_them(scene):
    points = coordinates(scene.left[0])
    assert coordinate_step(points) == 0.0
    for step in (0.0006, 0.004, 0.0125):
        rounded = (np.round(points / step) * step).astype(np.float32)
        assert coordinate_step(rounded) == pytest.approx(step, rel=1e-4)
        assert coordinate_step(np.column_stack([rounded[:, :2], points[:, 2]])) == 0.0


@pytest.mark.long
def test_a_sector_that_one_lidar_sees_too_far_away_is_refused_as_such():
    """What is in the sector says one thing of the lidars' poses, the rest another."""
    room, ((left, right), *_) = room_of()
    sector = np.abs(np.angle(np.exp(1j * (np.arctan2(left[:, 1], left[:, 0]) - 1.0)))) < np.radians(40.0)
    left = left * (1.0 + 0.06 * sector / np.linalg.norm(left, axis=1))[:, None]
    named = {
        "dissenting_surfaces", "contradicting_views", "large_residuals", "differing_ranges", "impossible_unit",
        "beyond_sensor_file",
    }  # fmt: skip
    assert named & codes(align([(left, right)], room.initial, room.settings).refusals)
