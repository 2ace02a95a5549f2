"""Body shapes enclose a robot with a turning hand at grid points and between, at hardly more area than the best."""

import functools

import numpy as np
import pytest
from scipy.interpolate import RegularGridInterpolator

from stretch_sim_cal.calibration.body import FIT_METHODS
from stretch_sim_cal.calibration.body.model import BodyShapeModel
from stretch_sim_cal.calibration.body.shape import BodyShapeSettings, PoseEvidence, enclosing_shape, fit_body_shape
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.points import convex_hull
from stretch_sim_cal.geometry.shapes import Circle, ConvexPolygon, TaperedCapsule
from stretch_sim_cal.recording.dataset import JOINTS

BASE = TaperedCapsule(0.0, 0.0, 0.21, -0.02, 0.0, 0.2).outline(60)
COARSE = BodyShapeSettings(max_grid_points=20)  # enough for a hand that turns by a radian
HAND = np.array([[-0.06, -0.05], [0.28, -0.03], [0.28, 0.03], [-0.06, 0.05]])


def outline(pose):
    """A round base, an arm along x that moves out, and a hand that turns; pitch shortens it as seen from above."""
    _, arm, yaw, pitch, _ = pose
    turn = np.array([[np.cos(yaw), np.sin(yaw)], [-np.sin(yaw), np.cos(yaw)]])
    hand = (HAND * [np.cos(pitch), 1.0]) @ turn + [0.2 + arm, -0.08]
    beam = np.array([[-0.15, -0.12], [0.2 + arm, -0.12], [0.2 + arm, -0.04], [-0.15, -0.04]])
    return convex_hull(np.vstack([BASE, beam, hand]))


def outlines_at(sets):
    return [convex_hull(np.vstack([outline(pose) for pose in poses])) for poses in sets]


def samples(arms, yaws, lifts=(0.5,), pitches=(0.0,)):
    poses = [(lift, arm, yaw, pitch, 0.0) for arm in arms for yaw in yaws for lift in lifts for pitch in pitches]
    return [
        PoseEvidence(f"sample {i}", dict(zip(JOINTS, map(float, pose), strict=True)), outline(pose))
        for i, pose in enumerate(poses)
    ]


def protrusion_between(model, arms, yaws, pitches=(0.0, 0.0), count=400):
    rng, worst = np.random.default_rng(5), 0.0
    for _ in range(count):
        pose = (0.5, rng.uniform(arms[0], arms[-1]), rng.uniform(yaws[0], yaws[-1]), rng.uniform(*pitches), 0.0)
        worst = max(worst, model.shape_at(pose[1], pose[2]).protrusion(outline(pose)))
    return worst


ARMS, YAWS = (0.0, 0.2, 0.5), (-0.8, 0.4, 1.7)


@functools.cache
def fitted(settings=BodyShapeSettings(max_grid_points=40), arms=ARMS, yaws=YAWS):
    return fit_body_shape(samples(arms, yaws), settings, outlines_at)


SLOWER = set(FIT_METHODS) - {"tapered_capsule", "ellipse_opencv", "circle"}


@pytest.mark.parametrize("method", [pytest.param(m, marks=[pytest.mark.long] * (m in SLOWER)) for m in FIT_METHODS])
def test_nothing_sticks_out_at_grid_points_and_between(method):
    fit = fitted(BodyShapeSettings(method, max_grid_points=40))
    assert fit.protrusions.max() <= 1e-6
    assert protrusion_between(fit.model, ARMS, YAWS) <= 0.002
    assert fit.protrusion_between[0] >= fit.protrusion_between[1] and fit.protrusion_between[1] < 1e-3


def test_without_the_outline_between_only_the_samples_are_enclosed():
    evidence = samples([0.0, 0.5], [0.0, 1.5])
    fit = fit_body_shape(evidence)
    assert fit.protrusions.max() <= 1e-6 and fit.protrusion_between is None
    assert fit.model.arm_extensions == (0.0, 0.5) and fit.model.wrist_yaws == (0.0, 1.5)


@pytest.mark.long
def test_lift_and_pitch_are_covered_by_their_union():
    evidence = samples([0.0, 0.3], [0.0, 1.0], lifts=(0.2, 0.9), pitches=(-0.9, 0.9))
    fit = fit_body_shape(evidence, COARSE, outlines_at)
    assert fit.protrusions.max() <= 1e-6
    # The hand is longest at pitch 0, which no sample was taken at.
    assert protrusion_between(fit.model, [0.0, 0.3], [0.0, 1.0], (-0.9, 0.9)) <= 0.002
    assert fit.model.covers["wrist_pitch"] == (-0.9, 0.9) and fit.model.covers["lift"] == (0.2, 0.9)


@pytest.mark.parametrize("arm, yaw", [(False, True), (True, False)])
def test_a_shape_that_does_not_depend_on_a_joint_covers_all_of_its_values(arm, yaw):
    arms, yaws = [0.0, 0.25, 0.5], [-0.5, 0.5, 1.5]
    settings = BodyShapeSettings(arm_dependent=arm, yaw_dependent=yaw, max_grid_points=30)
    fit = fit_body_shape(samples(arms, yaws), settings, outlines_at)
    assert fit.model.arm_dependent is arm and fit.model.yaw_dependent is yaw
    assert fit.protrusions.max() <= 1e-6 and protrusion_between(fit.model, arms, yaws) <= 0.002


def test_values_outside_the_grid_get_the_shape_at_its_border_and_one_shape_is_everywhere():
    model = fitted(COARSE, (0.0, 0.5), (0.0, 1.0)).model
    assert model.shape_at(-1.0, -9.0) == model.shape_at(0.0, 0.0)
    assert model.shape_at(7.0, 9.0) == model.shape_at(0.5, 1.0)
    assert model.outside_of_coverage({"arm": 0.6, "lift": 0.5, "wrist_yaw": 0.5}) == ["arm"]
    model = BodyShapeModel("circle", (0.0,), (0.0,), [[Circle(0.0, 0.0, 0.3)]])
    assert model.shape_at(0.4, 2.0) == Circle(0.0, 0.0, 0.3) and not model.arm_dependent


def test_shapes_between_are_what_a_published_reader_interpolates():
    model = fit_body_shape(samples([0.0, 0.3, 0.5], [-0.5, 0.5, 1.5])).model
    vectors = np.array([[shape.vector for shape in row] for row in model.shapes])
    read = RegularGridInterpolator((model.arm_extensions, model.wrist_yaws), vectors)
    for place in np.random.default_rng(1).uniform([0.0, -0.5], [0.5, 1.5], size=(20, 2)):
        np.testing.assert_allclose(model.shape_at(*place).vector, read(place)[0])


def test_numbers_do_not_change_faster_than_the_outline_moves():
    """A capsule grown by as much as the outline moves encloses the next one, so that no number has to change by more.

    A quarter more is allowed, and 4 mm where the outline hardly moves. Here the smallest capsule is another one from
    arm 0.02 m on (its second radius jumps from 2 to 16 cm), which the capsules of a continuous model have to bridge.
    """
    evidence = samples([0.0, 0.5], [0.0, 1.0])
    fit = fitted(COARSE, (0.0, 0.5), (0.0, 1.0))
    model = fit.model
    vectors = np.array([[shape.vector for shape in row] for row in model.shapes])
    hulls = [[outline((0.5, arm, yaw, 0.0, 0.0)) for yaw in model.wrist_yaws] for arm in model.arm_extensions]
    for i, j in np.ndindex(vectors.shape[:2]):
        for k, m in ((i + 1, j), (i, j + 1)):
            if k < vectors.shape[0] and m < vectors.shape[1]:
                assert np.abs(vectors[i, j] - vectors[k, m]).max() <= 1.25 * moved(hulls[i][j], hulls[k][m]) + 0.0041
    assert larger(fit, evidence) <= 1.03


def larger(fit, evidence):
    """How many times as large as the smallest ones the shapes are at most."""
    return max(area / enclosing_shape(each.points).area for area, each in zip(fit.areas, evidence, strict=True))


def moved(one, other):
    """The Hausdorff distance of two convex polygons: how far the corners of each are from the other at most."""
    return max(ConvexPolygon(one).protrusion(other), ConvexPolygon(other).protrusion(one))


def test_a_missing_pose_is_named_and_the_outline_stands_in_for_it():
    evidence = samples([0.0, 0.3], [0.0, 1.0])[:-1]
    with pytest.raises(InputError, match=r"no sample at arm 0.300 m, wrist_yaw 1.000 rad"):
        fit_body_shape(evidence)
    fit = fit_body_shape(evidence, COARSE, outlines_at)
    assert "arm 0.300 m, wrist_yaw 1.000 rad" in fit.warnings[0]
    assert fit.model.shape_at(0.3, 1.0).protrusion(outline((0.5, 0.3, 1.0, 0.0, 0.0))) <= 1e-6


def test_too_little_evidence_is_named_by_its_grid_point_and_unknown_methods_are_refused():
    evidence = samples([0.0, 0.3], [0.0])
    evidence[1] = PoseEvidence("sample 1", evidence[1].commanded, np.array([[0.0, 0.0], [1.0, 1.0]]))
    with pytest.raises(InputError, match=r"arm 0.300 m, wrist_yaw 0.000 rad: 2 points span no area"):
        fit_body_shape(evidence)
    with pytest.raises(InputError, match="no samples"):
        fit_body_shape([])
    with pytest.raises(InputError, match="'square' is not a fit method"):
        enclosing_shape(BASE, "square")
