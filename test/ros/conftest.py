import pytest

from stretch_sim_cal.harness.domain import own_domain


@pytest.fixture
def graph(tmp_path):
    """A ROS graph of the test's own."""
    from node_process import Graph

    with own_domain() as domain:
        yield Graph(domain, tmp_path)
