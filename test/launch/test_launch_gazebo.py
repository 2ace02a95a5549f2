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
    def test_every_stage_is_within_its_tolerance_of_the_truth(self):
        RUN.wait()
        for stage in ("alignment", "floor", "body_shape"):
            with self.subTest(stage):
                RUN.assert_within_tolerance(stage)


@launch_testing.post_shutdown_test()
class TestFurnishedRoomInGazeboAfterShutdown(unittest.TestCase):
    def test_every_process_ended_cleanly(self):
        RUN.assert_clean_exits()
