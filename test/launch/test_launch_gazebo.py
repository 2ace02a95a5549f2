"""launch_testing: the furnished room calibrates in Gazebo as it does in the embedded simulator."""

import unittest

import pytest

from stretch_sim_cal.harness.launch_tests import LaunchedScenario, missing_for_launch_tests

if reason := missing_for_launch_tests("gazebo"):
    pytest.skip(reason, allow_module_level=True)

import launch_testing
import launch_testing.markers

RUN = LaunchedScenario("furnished_room_sparse", simulator="gazebo", simulated_bound=900.0)


@pytest.mark.launch_test
@launch_testing.markers.keep_alive
def generate_test_description():
    return RUN.description()


class TestFurnishedRoomInGazebo(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        RUN.wait()

    def test_lidars_are_where_the_truth_has_them(self):
        RUN.assert_within_tolerance("alignment")

    def test_floor_is_where_the_truth_has_it(self):
        RUN.assert_within_tolerance("floor")

    def test_body_shape_encloses_the_true_robot_at_every_pose(self):
        RUN.assert_within_tolerance("body_shape")


@launch_testing.post_shutdown_test()
class TestFurnishedRoomInGazeboAfterShutdown(unittest.TestCase):
    def test_every_process_ended_cleanly(self):
        RUN.assert_clean_exits()
