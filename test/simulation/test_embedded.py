"""The embedded simulator: what the lidars see of robot and world, and the truth about it."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import write_yaml
from stretch_sim_cal.geometry.planes import footprint_from_base
from stretch_sim_cal.geometry.transforms import SIDES, apply, from_xyz_rpy, inverse
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.robot.kinematics import link_transform
from stretch_sim_cal.robot.profile import stretch_profile
from stretch_sim_cal.robot.surfaces import Surface
from stretch_sim_cal.sensor.unit import UnitSpread
from stretch_sim_cal.simulation import solids
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator, xyz
from stretch_sim_cal.simulation.setup import BaseError, PoseError, SimulationSetup

LEFT_ERROR = PoseError((0.002, -0.001, 0.003), tuple(np.radians([0.4, -0.3, 0.5])))
RIGHT_ERROR = PoseError((-0.003, 0.002, 0.001), tuple(np.radians([-0.5, 0.6, -0.2])))
BASE_ERROR = BaseError(0.003, *np.radians([0.4, -0.3]))
SETUP = SimulationSetup(
    sensor="jt128_sparse", lidar_left_error=LEFT_ERROR, lidar_right_error=RIGHT_ERROR, base_error=BASE_ERROR
)


@pytest.fixture(scope="module")
def shared():
    """Return a simulator that tests do not change."""
    return EmbeddedSimulator(SETUP)


def test_the_truth_is_what_the_setup_asked_for_and_the_description_has_none_of_it(shared):
    truth = json.loads(json.dumps(shared.ground_truth()))
    described = parse_urdf(shared.nominal_description)
    true = {}
    for lidar, asked in (("left", LEFT_ERROR), ("right", RIGHT_ERROR)):
        nominal = np.array(truth[f"nominal_base_link_from_lidar_{lidar}"])
        true[lidar] = np.array(truth[f"base_link_from_lidar_{lidar}"])
        np.testing.assert_allclose(inverse(nominal) @ true[lidar], asked.matrix, atol=1e-12)
        for model in (described, parse_urdf(shared.true_description)):  # the latter has true lidars beside these
            believed = link_transform(model, {}, f"lidar_{lidar}_link", "base_link")
            np.testing.assert_allclose(nominal, believed, atol=1e-9)
    np.testing.assert_allclose(truth["lidar_left_from_lidar_right"], inverse(true["left"]) @ true["right"], atol=1e-12)
    # base_link stands 0.028 m above the floor and 3 mm more, turned by the base's error.
    base_from_world = inverse(from_xyz_rpy((0, 0, 0.028 + BASE_ERROR.height), (BASE_ERROR.roll, BASE_ERROR.pitch, 0)))
    np.testing.assert_allclose(truth["floor_in_base_link"]["normal"], base_from_world[:3, 2], atol=1e-9)
    assert truth["floor_in_base_link"]["offset"] == pytest.approx(0.031, abs=1e-7)
    assert truth["world"] == "furnished_room" and truth["seed"] == 1
    assert "true" not in shared.nominal_description
    assert shared.nominal_description == SimulationSetup(sensor="jt128_sparse").nominal_description
    corners = np.concatenate([surface.vertices for surface in shared.true_surfaces().values()])
    assert -0.01 < shared.floor_in_base.distance(corners).min() < 0.01


def test_scans_repeat_whatever_was_scanned_and_moved_before():
    first, second, other = EmbeddedSimulator(SETUP), EmbeddedSimulator(SETUP), EmbeddedSimulator(replace(SETUP, seed=2))
    second.joints.place({"arm_joint": 0.4})
    for tick in (5, 0, 3):
        second.scan("right", tick)
    second.joints.place(stretch_profile().stowed)
    for lidar in SIDES:
        assert np.array_equal(first.scan(lidar, 2), second.scan(lidar, 2))
    for scan in (first.scan("left", 3), other.scan("left", 2)):
        assert not np.array_equal(first.scan("left", 2)[:100], scan[:100])


def test_a_lidar_sees_out_of_its_mount_wherever_that_is_and_never_its_own_housing(shared):
    shifted = PoseError.drawn(np.random.default_rng(0), 0.02, np.radians(2.0))
    setup = SimulationSetup(sensor="jt128_sparse", lidar_left_error=shifted, lidar_right_error=shifted)
    for simulator, lidar in itertools.product((shared, EmbeddedSimulator(setup)), SIDES):
        scan, labels, names = simulator.labelled_scan(lidar, 0)
        assert len(scan) > 0.85 * simulator.sensor.num_rays
        assert not [names[label] for label in np.unique(labels) if "lidar" in names[label]]
        assert np.linalg.norm(xyz(scan), axis=1).min() > 0.1


def test_a_person_can_be_put_into_the_world_and_taken_out_again():
    simulator = EmbeddedSimulator(SETUP)
    before = simulator.scan("left", 0)
    simulator.add_surface("person", Surface(*solids.cylinder(0.2, 1.7)).moved(from_xyz_rpy((1.3, 0.4, 0.85))))
    scan, labels, names = simulator.labelled_scan("left", 0)
    footprint_from_lidar = footprint_from_base(simulator.floor_in_base) @ simulator.base_from_lidar("left")
    on_person = apply(footprint_from_lidar, xyz(scan)[np.array(names)[labels] == "person"])
    assert len(on_person) > 100
    assert np.abs(np.hypot(on_person[:, 0] - 1.3, on_person[:, 1] - 0.4) - 0.2).max() < 0.1
    simulator.add_surface("person", None)
    assert np.array_equal(simulator.scan("left", 0), before)


def test_the_truth_holds_the_units_with_which_the_lidars_err_again(shared, tmp_path):
    spread = UnitSpread(range_offset=0.01, channel_elevation=3e-4, optical_centre=(5e-4, 5e-4, 5e-4))
    first = EmbeddedSimulator(SETUP, replace(shared.sensor, spread=spread))
    units = json.loads(json.dumps(first.ground_truth()["units"]))
    assert units["left"]["values"]["range_offset"] != units["right"]["values"]["range_offset"] != 0.0
    for lidar in SIDES:
        write_yaml(tmp_path / f"{lidar}.yaml", units[lidar])
    setup = replace(SETUP, units={lidar: tmp_path / f"{lidar}.yaml" for lidar in SIDES}, unit_seed=9)
    twin = EmbeddedSimulator(setup)
    for lidar in SIDES:
        assert np.abs(xyz(first.scan(lidar, 0)) - xyz(twin.scan(lidar, 0))).max() < 1e-6
        erring, ideal = xyz(first.scan(lidar, 0)), xyz(shared.scan(lidar, 0))
        assert len(erring) != len(ideal) or np.abs(erring - ideal).max() > 1e-3


def test_a_setup_s_driver_takes_the_place_of_the_sensor_s(shared):
    sensor = replace(shared.sensor, optical_centre=np.array([0.02, 0.0, 0.0]))
    one, other = (
        xyz(EmbeddedSimulator(replace(SETUP, driver=driver), sensor).scan("left", 0))
        for driver in ({}, {"distance_correction": False})
    )
    assert np.median(np.linalg.norm(one - other, axis=1)) == pytest.approx(0.02, rel=0.02)


def test_a_lidar_that_does_not_exist_is_refused(shared):
    with pytest.raises(InputError, match="left, right"):
        shared.scan("middle", 0)
