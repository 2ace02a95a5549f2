"""Which published points are returns of their own."""

import numpy as np
import pytest

from stretch_sim_cal.sensor.points import POINT_DTYPE, are_returns, coordinates, is_dense


@pytest.mark.parametrize("seed", range(3))
def test_of_points_that_are_equal_bit_by_bit_the_first_is_kept(seed):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(5000, 3)).astype(np.float32)[rng.integers(0, 2000, 20000)]
    points[rng.random(20000) < 0.1] = 0.0
    points[rng.random(20000) < 0.01, 1] = np.nan
    kept, expected, seen = are_returns(points), np.zeros(20000, bool), set()
    for row, point in enumerate(points):
        key = point.tobytes()
        expected[row] = np.isfinite(point).all() and point.any() and key not in seen
        seen.add(key)
    np.testing.assert_array_equal(kept, expected)


def test_an_empty_cloud_has_no_returns():
    assert are_returns(np.zeros((0, 3), np.float32)).shape == (0,)


def test_a_cloud_with_misses_is_not_dense():
    points = np.ones(3, POINT_DTYPE)
    assert is_dense(points) and coordinates(points).shape == (3, 3)
    for x, y, z in ((0, 0, 0), (np.nan, 1, 1)):
        points["x"][1], points["y"][1], points["z"][1] = x, y, z
        assert not is_dense(points)
