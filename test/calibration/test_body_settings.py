"""The settings file of sweep, fit and zones, and points by zone and height."""

import numpy as np
import pytest
import yaml

from stretch_sim_cal.calibration.body import settings as body
from stretch_sim_cal.calibration.body.settings import find_settings, fit_settings, save_zones, zone_settings
from stretch_sim_cal.calibration.body.shape import BodyShapeSettings
from stretch_sim_cal.calibration.zones import Zones, ZoneSettings
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.shapes import Circle, Ellipse, TaperedCapsule, circumscribed_polygon


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    monkeypatch.setenv("HELLO_FLEET_PATH", str(tmp_path))
    monkeypatch.setenv("HELLO_FLEET_ID", "se4-1")
    return tmp_path / "se4-1" / "calibration_dual_lidar"


def written(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return path


def test_the_shipped_file_has_the_defaults_of_the_code(fleet):
    shipped = find_settings("body_shape")
    fit = fit_settings(shipped)
    assert zone_settings(shipped) == ZoneSettings()
    assert (fit.shape, fit.evidence, fit.returns.range_noise) == (BodyShapeSettings(), "both", 0.01)


def test_the_published_names_are_understood_anywhere(tmp_path):
    path = written(
        tmp_path,
        "FIT_ARM_EXTENSION_DEPENDENT_BODY_SHAPE: false\nSHAPE_FITTING_METHOD: circle\nSTOP_ZONE_M: 0.2\n"
        "fit: {FIT_WRIST_YAW_DEPENDENT_BODY_SHAPE: false, max_grid_points: 40}\n"
        "zones: {BODY_SHAPE_MARGIN_M: 0.07, MAX_POSITIVE_OBSTACLE_HEIGHT_M: 1.4}\n",
    )
    fit = fit_settings(path)
    assert fit.shape == BodyShapeSettings("circle", arm_dependent=False, yaw_dependent=False, max_grid_points=40)
    assert zone_settings(path) == ZoneSettings(margin=0.07, stop_zone=0.2, highest=1.4)
    assert (fit.returns.lowest, fit.returns.highest) == (0.06, 1.4)


@pytest.mark.parametrize(("text", "says"), [
    ("zone: {margin: 0.1}", "mine.yaml: unknown key 'zone'; known are"),
    ("zones: {margin: -0.1}", "mine.yaml: zones: margin: is -0.1; expected a value from 0 to 2"),
    ("zones: {lowest: 2.0}", "mine.yaml: zones: heights must rise"),
    ("fit: {method: square}", "mine.yaml: fit: method: is 'square'; expected one of tapered_capsule, "),
    ("FIT_WRIST_YAW_DEPENDENT_BODY_SHAPE: maybe", "mine.yaml: fit: yaw_dependent: is 'maybe'"),
    ("fit: {vertices: 2}", "mine.yaml: fit: vertices: is 2; expected one of 3 to 200"),
    ("fit: {arm_dependent: true}\nFIT_ARM_EXTENSION_DEPENDENT_BODY_SHAPE: false", "arm_dependent is set twice"),
    ("zones: {lowest: 0.0}", "mine.yaml: zones: lowest, for a fit, .*: is 0; expected a value from 0.02"),
    ("fit: [circle]", "mine.yaml: fit: expected a mapping"),
])  # fmt: skip
def test_a_fault_is_one_line_that_names_file_and_key(tmp_path, text, says):
    with pytest.raises(InputError, match=says) as error:
        fit_settings(written(tmp_path, text))
    assert "\n" not in str(error.value)


def test_saved_margins_leave_the_rest_of_the_file_as_it_was_with_its_comments(fleet):
    shipped, own = find_settings("body_shape"), body.own_settings_path()
    assert own.parent == fleet
    assert save_zones(ZoneSettings(margin=0.08), shipped, own) is None
    assert find_settings("body_shape") == own
    assert zone_settings(own) == ZoneSettings(margin=0.08)
    before, after = shipped.read_text().splitlines(), own.read_text().splitlines()
    assert [(a, b) for a, b in zip(before, after, strict=True) if a != b and "margin:" not in a] == []
    backup = save_zones(ZoneSettings(margin=0.02), own, own)
    assert zone_settings(backup) == ZoneSettings(margin=0.08) and zone_settings(own) == ZoneSettings(margin=0.02)


@pytest.mark.parametrize(
    "text",
    [
        "# mine\nBODY_SHAPE_MARGIN_M: 0.3  # wide\nfit: {method: circle}\nSTOP_ZONE_M: 0.4",
        "zones:\n  margin: 0.3\n\n  # narrow\n  stop_zone: 0.01\n# the fit\nfit:\n  method: circle\n",
        "zones: {margin: 0.3,\n  stop_zone: 0.01}\nfit: {method: circle}\n",
        "fit: {method: circle}",
    ],
)
def test_margins_are_saved_into_files_written_by_hand(tmp_path, text):
    path = written(tmp_path, text)
    save_zones(ZoneSettings(0.04, 0.15), path, path)
    assert zone_settings(path) == ZoneSettings(0.04, 0.15)
    assert fit_settings(path).shape.method == "circle"
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert all(line in path.read_text() for line in comments)
    assert yaml.safe_load(path.read_text()).keys() == {"fit", "zones"}
    path = written(tmp_path, '{"zones": {margin: 0.3}}')
    with pytest.raises(InputError, match="zones cannot be replaced"):
        save_zones(ZoneSettings(), path, path)
    assert path.read_text() == '{"zones": {margin: 0.3}}'


SHAPES = {
    "circle": Circle(0.1, 0.0, 0.3),
    "ellipse": Ellipse(0.2, 0.0, 1.0, 0.5, 20.0),
    "capsule": TaperedCapsule(0.0, 0.0, 0.215, 0.6, 0.1, 0.1),
    "swallowed capsule": TaperedCapsule(0.0, 0.0, 0.3, 0.05, 0.0, 0.1),
    "polygon": circumscribed_polygon(TaperedCapsule(0.0, 0.0, 0.215, 0.6, 0.1, 0.1), 12),
}


def test_each_zone_and_height_has_its_class():
    zones = Zones.around(Circle(0.0, 0.0, 0.3))
    cases = {
        "body": [(0.0, 0.0, 0.5), (0.34, 0.0, 0.5)],  # and in the dead zone: ignored as the robot's own
        "obstacle": [(0.36, 0.0, 0.5), (0.0, -0.44, 1.59)],
        "drop": [(0.40, 0.0, -0.1)],
        # Beyond the zones, floor, overhead, below the robot itself, no number.
        None: [(0.46, 0.0, 0.5), (0.40, 0.0, 0.0), (0.40, 0.0, 0.059), (0.40, 0.0, 1.7), (0.30, 0.0, -0.1),
                  (np.nan, 0.0, 0.5)],
    }  # fmt: skip
    for expected, points in cases.items():
        for name, mask in zones.classes(np.array(points, dtype=np.float32)).items():
            assert (mask == (name == expected)).all()


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_classes_are_those_of_the_distances_to_the_boundaries(shape):
    settings = ZoneSettings(margin=0.07, stop_zone=0.2)
    points = np.random.default_rng(0).uniform([-1.5, -1.5, -0.3], [1.8, 1.5, 2.0], size=(40_000, 3)).astype("f4")
    plane, height = points[:, :2].astype(float), points[:, 2]
    inner = shape.inflated(0.07).signed_distance(plane)
    outer = shape.inflated(0.27).signed_distance(plane)
    clear = np.minimum(np.abs(inner), np.abs(outer)) > 1e-5
    body = (height >= 0.06) & (height <= 1.6)
    ring = (inner > 0) & (outer <= 0)
    found = Zones.around(shape, settings).classes(points)
    np.testing.assert_array_equal(found["body"][clear], (body & (inner <= 0))[clear])
    np.testing.assert_array_equal(found["obstacle"][clear], (body & ring)[clear])
    np.testing.assert_array_equal(found["drop"][clear], (ring & (height <= -0.06))[clear])


def test_the_nearest_hit_is_measured_from_the_body_and_infinite_without_one():
    zones = Zones.around(Circle(0.0, 0.0, 0.3))
    points = np.array([[0.42, 0.0, 0.5], [0.0, 0.38, -0.1], [0.0, 0.32, 0.5], [2.0, 0.0, 0.5]], dtype=np.float32)
    assert zones.nearest_hit(points, zones.classes(points)) == pytest.approx(0.08, abs=1e-6)  # the drop, not the body's
    assert zones.nearest_hit(points[2:], zones.classes(points[2:])) == np.inf
    assert zones.nearest_hit(points[:0], zones.classes(points[:0])) == np.inf  # no points have no classes
    for wrong in ({"margin": -0.1}, {"stop_zone": float("nan")}, {"lowest": 2.0}, {"drop": 0.1}):
        with pytest.raises(InputError, match="zones"):
            ZoneSettings(**wrong)
