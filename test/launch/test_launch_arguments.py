"""`calibrate.launch.py` and `robot.launch.py`: which nodes their arguments start, in which order."""

import pytest

from stretch_sim_cal.harness.launch_tests import missing_for_launch_tests

if reason := missing_for_launch_tests():
    pytest.skip(reason, allow_module_level=True)

from launch.actions import DeclareLaunchArgument, OpaqueFunction

from launch import LaunchContext
from stretch_sim_cal.harness import launched

ALWAYS = ["ros_align_dual_lidar", "ros_find_floor_calibration", "ros_broadcast_calibration"]
BODY_SHAPE = ["ros_collect_body_shape_data", "fit_body_shape_model"]


def started(monkeypatch, **arguments):
    """Return the processes that a launch with these arguments starts."""
    sequences = []

    class Sequence(launched.LaunchedSequence):
        def __init__(self, processes, **options):
            super().__init__(processes, **options)
            sequences.append(processes)

    monkeypatch.setattr(launched, "LaunchedSequence", Sequence)
    context = LaunchContext()
    context.launch_configurations.update(arguments)
    for entity in launched.calibration_description(use_sim_time=False).entities:
        if isinstance(entity, DeclareLaunchArgument | OpaqueFunction):
            entity.visit(context)
    return sequences[0]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, ALWAYS),
        ({"mounts": "true"}, [*ALWAYS, "ros_calibrate_lidar_mounts"]),
        ({"body_shape": "true"}, [*ALWAYS, *BODY_SHAPE]),
        ({"mounts": "true", "body_shape": "true"}, [*ALWAYS, "ros_calibrate_lidar_mounts", *BODY_SHAPE]),
        ({"watch": "true", "footprint": "true"}, [*ALWAYS, "ros_watch_calibration", "ros_publish_footprint"]),
    ],
)
def test_the_nodes_that_are_asked_for_start_in_their_order(monkeypatch, arguments, expected):
    assert [process.executable for process in started(monkeypatch, **arguments)] == expected


def test_the_mounts_get_their_plan(monkeypatch):
    mounts = started(monkeypatch, mounts="true", mounts_plan="quick")[-1]
    assert "--yes" in mounts.arguments and "plan:=quick" in mounts.arguments


@pytest.mark.parametrize(("given", "told"), [({}, False), ({"sensor": "jt128_sparse"}, True)])
def test_the_kind_of_the_lidars_is_told_where_it_is_given(monkeypatch, given, told):
    for process in started(monkeypatch, mounts="true", **given)[:2]:
        assert ("sensor:=jt128_sparse" in process.arguments) == told, process.name


@pytest.mark.parametrize(("given", "told"), [({}, 0), ({"robot": "diff_drive"}, 1)])
def test_every_node_is_told_the_robots_profile_where_it_is_given(monkeypatch, given, told):
    asked = dict.fromkeys(("mounts", "body_shape", "watch", "footprint"), "true")
    for process in started(monkeypatch, **asked, **given):
        said = ["robot:=diff_drive" in process.arguments, "--robot" in process.arguments]
        assert sum(said) == told, process.name


def test_the_footprint_is_that_of_the_body_shape_fitted_here_or_the_robots_own(monkeypatch):
    fitted = started(monkeypatch, body_shape="true", footprint="true", data="some")[-1]
    assert fitted.arguments[0].endswith("some/body_shape_model.yaml")
    assert started(monkeypatch, footprint="true")[-1].arguments[0] == "--ros-args"
