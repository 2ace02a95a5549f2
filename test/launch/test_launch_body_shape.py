"""launch_testing: the arm is swept, and the fitted body shape encloses the true robot at every pose of the sweep."""

import unittest
from pathlib import Path

import pytest

from stretch_sim_cal.harness.launched_scenario import LaunchedScenario, missing_for_launch_tests

if reason := missing_for_launch_tests():
    pytest.skip(reason, allow_module_level=True)

import launch_testing
import launch_testing.markers

RUN = LaunchedScenario(Path(__file__).parent / "body_shape_sparse.yaml", simulated_bound=1800.0)


@pytest.mark.launch_test
@launch_testing.markers.keep_alive
def generate_test_description():
    return RUN.description()


class TestBodyShape(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        RUN.wait()

    def test_floor_is_where_the_truth_has_it(self):
        RUN.assert_within_tolerance("floor")

    def test_shape_encloses_the_true_robot(self):
        RUN.assert_within_tolerance("body_shape")


@launch_testing.post_shutdown_test()
class TestBodyShapeAfterShutdown(unittest.TestCase):
    def test_every_process_ended_cleanly(self):
        RUN.assert_clean_exits()
