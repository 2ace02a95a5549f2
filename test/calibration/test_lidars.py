"""Any number of lidars in one estimate: their poses, covariances, and what is refused."""

import dataclasses
import itertools

import numpy as np
import pytest
from lidars import APART, NAMES, ROBOT, seen

import stretch_sim_cal as cal
from stretch_sim_cal import files
from stretch_sim_cal.calibration import pipeline
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.lidars import DescribedLidar, of_file, with_lidars
from stretch_sim_cal.calibration.observations import Observations, load_beside
from stretch_sim_cal.calibration.problem import State, Unknowns
from stretch_sim_cal.calibration.results import AlignmentResult, LidarPoses
from stretch_sim_cal.calibration.verification import verify
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.geometry.planes import floor_between
from stretch_sim_cal.geometry.transforms import exp, from_xyz_rpy, log
from stretch_sim_cal.truth import nees

WIDE, REAL = "os0_32_sparse", "jt128_sparse_real"
PAIRS = list(itertools.combinations(NAMES, 2))
# Bearings (rad, in each lidar's own frame) and half widths of views that have too little in common with anything.
NARROW = {"left": (np.pi / 4, 0.5), "mast": (-np.pi / 2, 0.5)}


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """A robot with wide lidars that have the intrinsics of real ones."""
    wide, real = (files.read_yaml(files.share_directory() / "config" / f"{name}.yaml") for name in (WIDE, "jt128"))
    path = tmp_path_factory.mktemp("sensor") / "wide.yaml"
    files.write_yaml(path, wide | {"unit": real["unit"]})
    return cal.simulate(ROBOT, sensor=path, frames=4)


@pytest.fixture(scope="module")
def result(scene):
    return cal.calibrate(scene.rig, scene.clouds)


@pytest.fixture(scope="module")
def kept(result, tmp_path_factory):
    path = tmp_path_factory.mktemp("kept") / "calibration.yaml"
    result.save(path, robot_id="amr-1")
    return path


def fed(array, clouds):
    for each in pipeline.together(clouds):
        array.add(each)
    return array


def assert_within(errors, floor=True):
    """Assert errors that one in a thousand consistent results exceeds."""
    assert max(pair.nees for pair in errors.pairs.values()) < 3.7
    assert not floor or errors.floor.nees < 5.4


def test_three_lidars_are_found_as_exactly_as_their_covariances_say_and_shown_by_pair(scene, result):
    assert result.accepted, result.findings
    assert scene.rig.names == NAMES and all(pair.used for pair in result.array.pairs)
    assert_within(result.errors(scene.truth))
    for pair in PAIRS:
        deviations = np.sqrt(np.diag(result.covariance_of(*pair)))
        assert np.linalg.norm(deviations[:3]) < 0.0025 and np.linalg.norm(deviations[3:]) < np.radians(0.05)
    for name in NAMES:
        offset = result.sensor_errors[name]["range_offset"]
        true = scene.simulator.lidar(name).unit.values[0]
        assert abs(offset.value - true) < 4.0 * offset.standard_deviation
    said = str(result)
    for text in ("3 lidars in one estimate", "mast: xyz", "overlap", "base_link lies", "accepted"):
        assert text in said
    page = result._repr_html_()
    assert "left from mast, x" in page and "left from right, about z" in page
    with pytest.raises(InputError, match="lidar 'top': available: left, right, mast"):
        result.transform("left", "top")


@pytest.mark.long
def test_lidars_that_see_nothing_in_common_are_tied_by_the_one_between_with_consistent_covariances():
    """The normalised error over three robots, 1 on average, is between 0.3 and 3 for every pair."""
    squares = []
    for seed in range(11, 14):
        scene = cal.simulate(ROBOT, sensor=REAL, seed=seed, frames=3)
        whole, apart = (cal.calibrate(scene.rig, seen(scene, views), floor=False) for views in ({}, APART))
        squares.append([[pair.nees for pair in each.errors(scene.truth).pairs.values()] for each in (whole, apart)])
        assert apart.accepted, apart.findings
        used = {frozenset(pair.names) for pair in apart.array.pairs if pair.used}
        assert used == {frozenset(("left", "right")), frozenset(("right", "mast"))}
        assert apart.errors(scene.truth).mm < 20.0 and apart.errors(scene.truth).deg < 0.2
        # It is less certain than what all see together.
        before, after = (np.trace(each.covariance_of("left", "mast")[3:, 3:]) for each in (whole, apart))
        assert after > 1.2 * before
    means = np.mean(squares, axis=0)
    assert np.all((means > 0.3) & (means < 3.0)), np.round(means, 2)


@pytest.mark.long
def test_what_the_lidars_are_called_and_their_order_change_nothing(scene, result):
    order = ("mast", "left", "right")
    links = {f"{name}_one": f"lidar_{name}_link" for name in order}
    rig = cal.Rig.from_urdf(scene.simulator.nominal_description, sensor=scene.rig.sensor, robot=ROBOT, lidars=links)
    other = cal.calibrate(rig, {f"{name}_one": scene.clouds[name] for name in NAMES}, floor=False)
    for pair in PAIRS:
        renamed = [f"{name}_one" for name in pair]
        deviations = np.sqrt(np.diag(result.covariance_of(*pair)))
        gone = log(other.transform(*renamed) @ np.linalg.inv(result.transform(*pair)))
        assert np.all(np.abs(gone) < 0.01 * deviations)
        assert np.sqrt(np.diag(other.covariance_of(*renamed))) == pytest.approx(deviations, rel=0.01)


def test_a_lidar_that_nothing_ties_is_named_and_nothing_is_written(scene, tmp_path):
    refused = cal.calibrate(scene.rig, seen(scene, NARROW))
    assert not refused.accepted and refused.floor is None
    said = [finding for finding in refused.findings if finding.code == "untied_lidar"]
    assert said and all(finding.severity == "error" for finding in said)
    assert any("the mast lidar" in finding.sentence or "the left lidar" in finding.sentence for finding in said)
    assert "give its mount" in said[0].remedy and "not determined" in str(refused)
    with pytest.raises(Refused, match="shares no common view"):
        refused.save(tmp_path / "calibration.yaml")


def test_mounts_tie_lidars_that_nothing_else_does(scene):
    rng, sigma = np.random.default_rng(3), np.repeat([0.001, 0.0003], 3)
    true = scene.truth.base_from_lidar
    mounts = {name: (exp(-sigma * rng.normal(size=6)) @ pose, np.diag(sigma**2)) for name, pose in true.items()}
    found = cal.calibrate(scene.rig, seen(scene, NARROW), mounts=mounts, floor=False)
    assert found.accepted, found.findings
    assert_within(found.errors(scene.truth), floor=False)
    off = log(true["mast"] @ np.linalg.inv(found.array.base_from_lidar["mast"]))
    assert nees(off, found.array.pose_covariance[12:, 12:]) < 3.7


def test_a_file_of_one_lidar_has_the_identity_and_no_transform_and_nothing_of_it_can_drift():
    pose = from_xyz_rpy((0.1, 0.2, 1.3), (0.1, 0.5, -2.1))
    file = with_lidars(CalibrationFile(), LidarPoses.of_one_lidar("front", pose), "one")
    assert file.data["right_to_left_transform"]["data"] == np.eye(4).tolist()
    assert file.aligned and file.to_left == {} and file.entries["right_to_left_transform"].rmse == 0.0
    found = verify(file, [{"left": np.ones((100, 3))}], pose, np.eye(4))
    assert not found.drifts and found.verdict == "cannot tell" and "no floor" in found.open_questions[0]
    again = of_file(file, pose)
    assert again.names == ("left",) and np.array_equal(again.base_from_lidar["left"], pose)
    assert not again.pose_covariance.any() and again.covariance_to_first.shape == (0, 0)


def test_two_of_three_lidars_are_known_by_their_own_transform():
    poses = {name: from_xyz_rpy((number, 0.0, 1.0), (0.0, 0.3, number)) for number, name in enumerate(NAMES)}
    observed = Observations.of_known_poses(tuple(poses[name] for name in NAMES[1:]), np.eye(12), NAMES)
    three = LidarPoses(poses, 1e-6 * np.diag(np.arange(1.0, 19.0)), [], 1, 0.0, observations=observed)
    for pair in PAIRS:
        known = three.aligned(*pair).known
        assert np.allclose(known.poses, [three.transform(*pair)])
        assert np.array_equal(known.covariance, three.covariance(*pair))


def test_a_floor_method_gets_the_identity_for_one_lidar(monkeypatch):
    given = []
    monkeypatch.setattr(pipeline.methods, "floor_method", lambda name: lambda *poses: given.append(poses))
    lidar = DescribedLidar(from_xyz_rpy((0.1, 0.2, 1.3), (0.3, 0.2, 0.1)))
    pipeline.LidarFloor("mine", {"left": lidar}, np.eye(4))
    assert np.array_equal(given[0][1], np.eye(4))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda scene: cal.calibrate(scene.rig, {"left": []}), "clouds: are of left; the rig's lidars are left, r"),
        (lambda scene: cal.calibrate(scene.rig, scene.clouds | {"mast": scene.clouds["mast"][:2]}), "2 of mast"),
        (lambda scene: cal.calibrate(scene.rig, scene.clouds["left"], scene.clouds["right"]), "in a mapping by these"),
        (lambda scene: cal.calibrate(scene.rig, scene.clouds, mounts={"top": None}), "mounts: 'top': the rig's"),
        (lambda scene: cal.calibrate(scene.rig, scene.clouds, mounts={"mast": (np.eye(4), np.eye(3))}), "mounts: mast"),
        (lambda scene: dataclasses.replace(scene.rig, names=("a", "b")), "rig: names: a, b: give every"),
        (lambda scene: cal.Rig.from_urdf(scene.simulator.nominal_description, robot=ROBOT, lidars=["no_link"]),
         "has no link 'no_link'"),
        (lambda scene: cal.Rig.from_urdf(scene.simulator.nominal_description, lidars=[]), "lidars: give the links"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_named_in_one_line(scene, call, message):
    with pytest.raises(InputError, match=message) as caught:
        call(scene)
    assert "\n" not in str(caught.value)


def test_a_file_names_the_further_lidars_beside_and_gives_all_and_what_was_observed_back(result, kept):
    file = CalibrationFile.load(kept)
    assert file.entries["mast_to_left_transform"].robot_id == "amr-1" and file.floor_plane is not None
    assert list(file.with_alignment(result.alignment, "x").to_left) == ["right", "mast"]
    again = of_file(file, result.rig.base_from_left)
    assert again.names == NAMES and again.num_frames == result.array.num_frames
    for pair in itertools.permutations(NAMES, 2):
        np.testing.assert_allclose(again.transform(*pair), result.transform(*pair), atol=1e-9)
        np.testing.assert_allclose(again.covariance(*pair), result.covariance_of(*pair), rtol=1e-6, atol=1e-12)
    del file.data["mast_to_left_transform"]["covariance_with_right"]
    with pytest.raises(InputError, match="has no covariance of right, mast; align the lidars again"):
        of_file(file, result.rig.base_from_left)
    file = CalibrationFile.load(kept)
    assert load_beside(file).names == NAMES
    del file.data["mast_to_left_transform"]
    assert load_beside(CalibrationFile.from_mapping(file.data, file.path)) is None


class Doubting:
    """A method for two that believes the description, and refuses the mast's lidar."""

    def __init__(self, guess, settings):
        self.guess, self.frames = guess, 0

    def add(self, left, right):
        assert left.shape[1] == right.shape[1] == 3
        self.frames += 1

    def solve(self):
        refusals = ["too few walls"] if self.guess[2, 3] > 0.3 else []
        return AlignmentResult(self.guess, 1e-6 * np.eye(6), 0.0, self.frames, "mine", 1.0, [], refusals=refusals)


def test_a_method_for_two_that_refuses_one_lidar_refuses_all_and_names_it(scene, monkeypatch):
    monkeypatch.setattr(pipeline.methods, "alignment_method", lambda name: Doubting if name == "mine" else None)
    lidars = {name: DescribedLidar(pose, scene.rig.sensor) for name, pose in scene.rig.base_from_lidar.items()}
    found = fed(pipeline.alignment_of("mine", lidars), scene.clouds).solve()
    assert found.refusals == ["too few walls (lidar mast)"] and found.num_frames == len(scene.clouds["left"])
    assert [(pair.names, pair.used) for pair in found.pairs] == [(("left", "right"), True), (("left", "mast"), False)]
    for name in ("right", "mast"):
        np.testing.assert_allclose(found.base_from_lidar[name], lidars[name].base_from_lidar, atol=1e-12)
        np.testing.assert_allclose(found.covariance("left", name), 1e-6 * np.eye(6), atol=1e-12)


def test_a_floor_method_for_two_sees_the_points_of_all_lidars(scene, result):
    floors = []
    for names in (NAMES[:2], NAMES):
        lidars = {name: DescribedLidar(result.array.base_from_lidar[name], scene.rig.sensor) for name in names}
        floor = pipeline.LidarFloor("published", lidars, scene.rig.footprint_from_base)
        floors.append(fed(floor, {name: scene.clouds[name] for name in names}).solve())
    assert floors[1].num_inliers > 1.2 * floors[0].num_inliers
    assert abs(floor_between(floors[1].plane, scene.truth.floor)[0]) < 0.01  # it knows of no range offsets


def test_observations_are_the_same_in_any_order_of_the_lidars(result):
    kept = result.array.observations
    order = (2, 0, 1)
    poses = [np.linalg.inv(kept.poses[1]) @ pose for pose in (np.eye(4), kept.poses[0])]
    names = [kept.names[lidar] for lidar in order]
    turned = kept.in_order(order, names, dict(zip(names[1:], poses, strict=True)), np.eye(12), kept.units)
    random = np.random.default_rng(3)
    moved = [exp(1e-5 * random.normal(size=6)) @ pose for pose in result.array.base_from_lidar.values()]
    units = [values + 1e-5 * random.normal(size=len(values)) for values in kept.units]
    unknowns = Unknowns(kept.models), Unknowns(turned.models)
    states = State(tuple(moved), tuple(units)), State(*(tuple(each[n] for n in order) for each in (moved, units)))
    found = [each.equations_at(*args) for each, *args in zip((kept, turned), states, unknowns, strict=True)]
    for lidar, where in enumerate(order):
        for group in ("poses", "units"):
            one, other = (getattr(own, group)[at] for own, at in zip(unknowns, (where, lidar), strict=True))
            size = np.abs(found[0].gradient[one]).max()
            np.testing.assert_allclose(found[1].gradient[other], found[0].gradient[one], atol=1e-3 * size)


def test_of_two_of_three_lidars_as_much_is_known_as_of_all_together(result):
    """Weak priors on the lidars' errors stand for those that estimates have."""
    kept, covariances = result.array.observations, []
    for each in (kept, kept.of_first(2)):
        prior = np.zeros(len(each.gradient))
        prior[6 * len(each.poses) :] = 1e4
        covariances.append(np.linalg.inv(each.information + np.diag(prior))[:6, :6])
    by_all, by_two = (np.sqrt(np.diag(covariance)) for covariance in covariances)
    assert np.all(by_two > 0.999 * by_all) and np.all(by_two < 1.5 * by_all)


def test_what_was_observed_of_all_lidars_makes_a_later_look_surer(scene, kept):
    """Without it, its drifts would be more uncertain than the calibration, which was as sure as the look is alone."""
    clouds = {name: [scene.simulator.scan(name, tick) for tick in range(4, 10)] for name in NAMES}
    later, file = pipeline.together(clouds), CalibrationFile.load(kept)
    found = verify(file, list(later), scene.rig.base_from_left, scene.rig.footprint_from_base, sensor=scene.rig.sensor)
    assert len(found.drifts) == 6 and not found.open_questions  # the last two are those of the floor
    before = of_file(file, scene.rig.base_from_left)
    parts = itertools.product(NAMES[1:], (slice(3), slice(3, 6)))
    for drift, (name, part) in zip(found.drifts[:4], parts, strict=True):
        covariance = before.covariance("left", name)[part, part]
        assert drift.standard_deviation < 0.7 * np.sqrt(np.linalg.eigvalsh(covariance)[-1])
        assert drift.value < 4.0 * drift.standard_deviation
