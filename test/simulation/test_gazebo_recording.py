"""Clouds that a real Gazebo has recorded, calibrated: an independent simulator's opinion of the whole calculation.

Two lidars of 900 x 128 rays in a furnished room, 1 cm of noise, four pairs. Ranges are kept to 0.1 mm; the rays lie on
Gazebo's regular grid.
"""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from stretch_sim_cal.calibration.methods import alignment_method, floor_method
from stretch_sim_cal.calibration.settings import AlignmentSettings, FloorSettings
from stretch_sim_cal.geometry.planes import Plane
from stretch_sim_cal.geometry.transforms import error, inverse
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.robot.kinematics import link_transforms
from stretch_sim_cal.robot.profile import stretch_profile
from stretch_sim_cal.robot.stretch import nominal_description
from stretch_sim_cal.sensor.sensor import load_sensor

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture(scope="module")
def truth() -> dict:
    return json.loads((DATA / "gazebo_furnished_room.json").read_text())


@pytest.fixture(scope="module")
def pairs() -> list[tuple[np.ndarray, np.ndarray]]:
    azimuths = -np.pi + 2 * np.pi * np.arange(900) / 900
    elevations = np.linspace(np.radians(-3.5), np.radians(90.0), 128)[:, None]
    directions = np.stack(
        np.broadcast_arrays(
            np.cos(elevations) * np.cos(azimuths), np.cos(elevations) * np.sin(azimuths), np.sin(elevations)
        ),
        axis=-1,
    )
    with np.load(DATA / "gazebo_furnished_room.npz") as recorded:
        clouds = [
            [(1e-4 * ranges[..., None] * directions).reshape(-1, 3) for ranges in recorded[f"{side}_ranges"]]
            for side in ("left", "right")
        ]
    return list(zip(*clouds, strict=False))


@pytest.fixture(scope="module")
def base_from() -> dict[str, np.ndarray]:
    """Nominal base_link_from_link, as the description has it."""
    transforms = link_transforms(
        parse_urdf(nominal_description()), {}, [*stretch_profile().lidar_frames, "base_footprint", "base_link"]
    )
    return {link: inverse(transforms["base_link"]) @ transform for link, transform in transforms.items()}


@pytest.fixture(scope="module")
def alignment(pairs, base_from):
    left, right = (base_from[link] for link in stretch_profile().lidar_frames)
    method = alignment_method()(
        inverse(left) @ right, AlignmentSettings(base_from_left=left, sensor=load_sensor("jt128_ideal"))
    )
    for pair in pairs:
        method.add(*pair)
    return method.solve()


def test_the_lidars_are_found_where_gazebo_had_them(alignment, truth):
    assert alignment.accepted, alignment.refusals
    translation, rotation = error(np.array(truth["lidar_left_from_lidar_right"]), alignment.right_to_left)
    assert translation < 0.3e-3
    assert math.degrees(rotation) < 0.006


def test_the_floor_is_found_where_gazebo_had_it(alignment, pairs, truth, base_from):
    # With the left lidar's true pose: what is judged is the floor in the physical base_link.
    base_from_left = np.array(truth["base_link_from_lidar_left"])
    method = floor_method()(
        base_from_left,
        alignment.right_to_left,
        inverse(base_from["base_footprint"]),
        FloorSettings(sensor=load_sensor("jt128_ideal")),
    )
    for pair in pairs:
        method.add(*pair)
    result = method.solve()
    assert result.accepted, result.refusals
    floor = truth["floor_in_base_link"]
    true = Plane.from_coefficients(floor["normal"], floor["offset"])
    found = result.plane.facing(true.normal)
    assert abs(found.offset - true.offset) < 0.5e-3
    assert math.degrees(math.acos(min(1.0, found.normal @ true.normal))) < 0.02
