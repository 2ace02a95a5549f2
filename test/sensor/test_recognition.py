"""Recognition of a lidar's kind by its points, without guesses."""

import numpy as np
import pytest

import stretch_sim_cal as cal
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.sensor.recognition import fitting, recognised, sensor_of, taken_for
from stretch_sim_cal.sensor.sensor import load_sensor
from stretch_sim_cal.sensor.signature import Observer, known_sensors
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import SimulationSetup


def scans(sensor, count=2):
    simulator = EmbeddedSimulator(SimulationSetup("furnished_room", sensor, 5))
    return [simulator.scan("left", tick) for tick in range(count)]


def observed(clouds):
    observer = Observer()
    for number, cloud in enumerate(clouds):
        observer.add(cloud, 0.1 * number)
    return observer.signature(known_sensors())


def blurred(cloud):
    """Return a cloud whose points no longer lie on the elevations of channels, as after a filter."""
    cloud = cloud.copy()
    for axis in "xyz":
        cloud[axis] += np.random.default_rng(1).normal(0.0, 0.002, len(cloud)).astype(np.float32)
    return cloud


@pytest.mark.parametrize("name", ["vlp16", "vlp32c", "qt64", "os0_128", "helios32", "bpearl", "xt32_sparse", "os0_32",
                                  "jt128", "jt128_ideal", "jt128_sparse"])  # fmt: skip
def test_each_kind_is_recognised_by_its_points_and_told_from_the_others(name):
    clouds, kind = scans(name), load_sensor(name)
    assert sensor_of(clouds[:1]).name == name
    found = observed(clouds)
    assert found.sensor.name == name.replace("xt32_sparse", "xt32")  # whose channels are the same
    assert max(found.table_difference) < 1e-6
    assert (found.dual_return, found.zero_misses) == (kind.dual_return, kind.zero_misses)


def test_another_turning_of_the_rings_or_another_table_is_no_known_kind():
    (cloud,) = scans("vlp16", 1)
    changed = cloud.copy()
    changed["ring"] = 15 - cloud["ring"]
    assert cal.sensor_of([changed]) is None
    assert not any("distance correction" in line for line in observed([changed]).lines)  # nothing is known of one
    assert taken_for(observed([changed]), load_sensor("jt128"), known_sensors()) == (
        None, "treated as a lidar of unknown make, not for jt128, whose elevations are others: no file in config/ fits"
    )  # fmt: skip


def test_kinds_that_the_points_do_not_distinguish_are_asked_for():
    seen = observed([blurred(cloud) for cloud in scans("xt32_sparse")])
    assert [one.name for one in fitting(seen, known_sensors())] == ["xt32", "xt32_sparse"]
    with pytest.raises(InputError, match=r"right lidar: the points fit xt32, xt32_sparse equally well.*\(--sensor\)"):
        recognised({"right": seen}, [None], known_sensors())
    sensor, lines = recognised({"right": seen}, [load_sensor("xt32")], known_sensors())
    assert sensor.name == "xt32" and lines == ["right lidar: recognised as xt32"]


def test_lidars_of_two_kinds_are_recognised_one_by_one_and_an_unreadable_one_is_taken_for_the_expected():
    found = {"left": observed(scans("xt32")), "right": observed(scans("vlp16")), "mast": InputError("no field ring")}
    sensors, lines = recognised(found, [load_sensor("jt128")] * 3, known_sensors())
    assert [one.name for one in sensors] == ["xt32", "vlp16", "jt128"]
    assert "right lidar: recognised as vlp16, the only matching file in config/, not for jt128" in lines[1]


def test_clouds_without_rings_are_named():
    for cloud, message in (
        (scans("vlp16", 1)[0][["x", "y", "z", "intensity"]], "no field ring, only x, y, z, intensity"),
        (np.zeros((5, 3)), "a structured array"),
    ):
        with pytest.raises(InputError, match=message):
            sensor_of([cloud])
