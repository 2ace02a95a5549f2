import os

import pytest

from stretch_sim_cal.harness.processes import own_domain


@pytest.fixture
def graph(tmp_path):
    """A ROS graph of the test's own."""
    from node_process import Graph

    with own_domain() as domain:
        yield Graph(domain, tmp_path)


@pytest.fixture
def ros(monkeypatch):
    """A node under test (`ros.context`) and the drivers' node (`ros.drivers`) in this process, talking over DDS."""
    from types import SimpleNamespace

    import rclpy
    from rclpy.executors import SingleThreadedExecutor

    from stretch_sim_cal.harness.processes import isolated_environment
    from stretch_sim_cal.ros.node_main import leave
    from stretch_sim_cal.ros.robot_context import RobotContext

    with own_domain() as domain:
        for name, value in isolated_environment(domain).items():
            monkeypatch.setenv(name, value)
        rclpy.init()
        node, drivers = rclpy.create_node("under_test"), rclpy.create_node("drivers")
        executor = SingleThreadedExecutor()
        executor.add_node(node)
        try:
            yield SimpleNamespace(context=RobotContext(node, executor, SimpleNamespace(), None), drivers=drivers)
        finally:
            leave(executor, node, drivers)
            rclpy.try_shutdown()


@pytest.fixture
def shared(ros, tmp_path):
    """A graph for processes that shares its domain with the nodes of this process."""
    from node_process import Graph

    return Graph(int(os.environ["ROS_DOMAIN_ID"]), tmp_path)
