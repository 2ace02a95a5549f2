"""Points are distinguished by zone and height: body, obstacle, drop, or nothing."""

import numpy as np
import pytest

from stretch_sim_cal.calibration.zones import Zones, ZoneSettings
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.shapes import Circle, Ellipse, TaperedCapsule, circumscribed_polygon

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
@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_classes_are_those_of_the_distances_to_the_boundaries(shape, precision):
    settings = ZoneSettings(margin=0.07, stop_zone=0.2)
    points = np.random.default_rng(0).uniform([-1.5, -1.5, -0.3], [1.8, 1.5, 2.0], size=(40_000, 3)).astype(precision)
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


@pytest.mark.parametrize("wrong", [{"margin": -0.1}, {"stop_zone": float("nan")}, {"lowest": 2.0}, {"drop": 0.1}])
def test_zones_that_make_no_sense_are_refused(wrong):
    with pytest.raises(InputError, match="zones"):
        ZoneSettings(**wrong)


def test_the_nearest_hit_is_measured_from_the_body_and_infinite_without_one():
    zones = Zones.around(Circle(0.0, 0.0, 0.3))
    points = np.array([[0.42, 0.0, 0.5], [0.0, 0.38, -0.1], [0.0, 0.32, 0.5], [2.0, 0.0, 0.5]], dtype=np.float32)
    assert zones.nearest_hit(points, zones.classes(points)) == pytest.approx(0.08, abs=1e-6)  # the drop, not the body's
    assert zones.nearest_hit(points[2:], zones.classes(points[2:])) == np.inf
    assert zones.nearest_hit(points[:0], zones.classes(points[:0])) == np.inf  # no points have no classes
