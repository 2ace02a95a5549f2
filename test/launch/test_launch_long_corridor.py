"""launch_testing: a corridor does not tell how far along it the lidars are apart; the alignment says so and refuses."""

import unittest

import pytest

from stretch_sim_cal.harness.launch_tests import LaunchedScenario, missing_for_launch_tests

if reason := missing_for_launch_tests():
    pytest.skip(reason, allow_module_level=True)

import launch_testing
import launch_testing.markers

RUN = LaunchedScenario("long_corridor", simulated_bound=300.0)


@pytest.mark.launch_test
@launch_testing.markers.keep_alive
def generate_test_description():
    return RUN.description()


class TestLongCorridor(unittest.TestCase):
    def test_alignment_refuses_and_names_the_direction(self):
        RUN.wait()
        RUN.assert_refused()


@launch_testing.post_shutdown_test()
class TestLongCorridorAfterShutdown(unittest.TestCase):
    def test_every_process_ended_cleanly(self):
        RUN.assert_clean_exits()
