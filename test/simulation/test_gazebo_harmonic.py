"""Clouds of a real Gazebo Harmonic's gpu_lidar: along the directions that we compute they are exact.

Recorded headless with gz-sim 8.14, gz-rendering 8.2.3 and Ogre-Next 2.3 on Mesa's llvmpipe, without noise, in `furnished_room`
with the robot stowed: every fourth row and column of the grid that is cast for the sensor, as serialised
gz.msgs.PointCloudPacked with their records as they were.
"""

import json
import lzma
from pathlib import Path

import numpy as np
import pytest

from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.gazebo.messages import packed_cloud
from stretch_sim_cal.simulation.gazebo.rays import BORDER, Grid, texel_directions
from stretch_sim_cal.simulation.setup import SimulationSetup

DATA = Path(__file__).parent / "data"
STRIDE = 4
RECORDED = [(sensor, side) for sensor in ("jt128_ideal", "jt128_sparse") for side in ("left", "right")]


@pytest.fixture(scope="module", params=RECORDED, ids="-".join)
def recorded(request):
    """Return a cloud's points (rows, columns, 3), its grid, and what our rays meet along any directions."""
    sensor, side = request.param
    told = json.loads((DATA / f"gazebo_harmonic_{sensor}.json").read_text())
    cloud = packed_cloud(lzma.decompress((DATA / f"gazebo_harmonic_{sensor}_{side}.bin.xz").read_bytes()))
    grid = Grid(**told["grid"])
    embedded = EmbeddedSimulator(SimulationSetup.from_mapping(told["setup"]))

    def expected(directions):
        return embedded.distances(side, directions.reshape(-1, 3)).reshape(directions.shape[:2])

    return cloud.xyz.astype(float), grid, expected


def test_a_cloud_lies_along_the_directions_of_its_grid(recorded):
    points, grid, _ = recorded
    published = grid.published("gpu")[::STRIDE, ::STRIDE]
    assert points.shape == published.shape
    hit = np.isfinite(points).all(axis=-1)
    ways = points[hit] / np.linalg.norm(points[hit], axis=-1, keepdims=True)
    assert hit.mean() > 0.99
    assert np.degrees(np.linalg.norm(ways - published[hit], axis=-1).max()) < 5e-5


def test_ranges_are_exact_along_the_texels_and_not_along_the_rays(recorded):
    points, grid, expected = recorded
    published = grid.published("gpu")[::STRIDE, ::STRIDE]
    sampled, border = texel_directions(grid.directions()[::STRIDE, ::STRIDE], grid.face_texels())
    ranges = np.linalg.norm(points, axis=-1)
    inner = np.isfinite(points).all(axis=-1) & (border >= BORDER)
    with np.errstate(invalid="ignore"):
        exact, given = (np.abs(ranges - expected(directions))[inner] for directions in (sampled, published))
    assert np.median(exact) < 1e-5
    assert np.percentile(exact, 95) < 2e-5
    assert np.percentile(given, 95) > 5e-4
