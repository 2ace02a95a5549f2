"""The robot's own returns as Gazebo's CPU lidar saw them (ODE, 1 cm noise), against our rays: a second opinion."""

from pathlib import Path

import numpy as np
import pytest

from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.robot.kinematics import link_transforms
from stretch_sim_cal.robot.stretch import nominal_description
from stretch_sim_cal.robot.surfaces import robot_surfaces
from stretch_sim_cal.simulation.optics import Hits, Scene

# Returns within 0.5 m of the base's axis and above the floor, all joints at zero, in the lidars' frames.
RECORDED = Path(__file__).parent / "data" / "gazebo_robot_returns.npz"
LARGE = ("base_link", "mast_link", "lift_link", "arm_l0_link")


@pytest.fixture(scope="module")
def scene():
    model = parse_urdf(nominal_description())
    transforms = link_transforms(model)
    base_from_root = np.linalg.inv(transforms["base_link"])
    # Gazebo's robot had no collision shape for its head.
    surfaces = {name: surface for name, surface in robot_surfaces(model).items() if name != "head_link"}
    return Scene({name: surface.moved(base_from_root @ transforms[name]) for name, surface in surfaces.items()})


@pytest.mark.parametrize("lidar", ["left", "right"])
def test_our_rays_end_where_gazebo_s_ended(scene, lidar):
    with np.load(RECORDED) as recorded:
        points = recorded[f"{lidar}_points"].astype(float)
        base_from_lidar = recorded[f"base_link_from_lidar_{lidar}"]
    ranges = np.linalg.norm(points, axis=1)
    directions = points / ranges[:, None] @ base_from_lidar[:3, :3].T
    hits = Hits(base_from_lidar[:3, 3], directions, [scene])
    differences = ranges - hits.distances
    assert (np.abs(differences) < 0.05).mean() > 0.98
    names = np.array(hits.names)[hits.surfaces()]
    for link in LARGE:
        on_link = differences[(names == link) & (np.abs(differences) < 0.05)]
        assert len(on_link) > 50
        assert abs(on_link.mean()) < 4 * 0.01 / np.sqrt(len(on_link))
        assert on_link.std() == pytest.approx(0.01, rel=0.25)
