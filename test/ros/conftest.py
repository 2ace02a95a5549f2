from types import SimpleNamespace

import pytest

from stretch_sim_cal.harness.processes import isolated_environment, own_domain


@pytest.fixture
def graph(tmp_path):
    from node_process import Graph

    with own_domain() as domain:
        yield Graph(domain, tmp_path)


@pytest.fixture
def ros(graph, monkeypatch):
    """A node under test (`ros.context`) and the drivers' node (`ros.drivers`) in this process, talking over DDS in the
    graph's domain. `ros.until` spins until a condition is true, and fails if it does not become so."""
    import rclpy
    from node_process import PATIENCE
    from rclpy.executors import SingleThreadedExecutor

    from stretch_sim_cal.ros.node_main import leave
    from stretch_sim_cal.ros.robot_context import RobotContext

    for name, value in isolated_environment(graph.domain).items():
        monkeypatch.setenv(name, value)
    rclpy.init()
    node, drivers = rclpy.create_node("under_test"), rclpy.create_node("drivers")
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    context = RobotContext(node, executor, SimpleNamespace(), None)

    def until(condition):
        assert context.spin_until(condition, timeout=PATIENCE)

    try:
        yield SimpleNamespace(context=context, drivers=drivers, until=until)
    finally:
        leave(executor, node, drivers)
        rclpy.try_shutdown()


@pytest.fixture
def client(graph):
    from node_process import robot_client

    with robot_client(graph.domain) as client:
        yield client
