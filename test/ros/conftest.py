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
    """A node under test (`ros.context`) and the drivers' node (`ros.drivers`) in this process, talking over DDS.
    `ros.until` spins until a condition is true, and fails if it does not become so."""
    from types import SimpleNamespace

    import rclpy
    from node_process import PATIENCE
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
        context = RobotContext(node, executor, SimpleNamespace(), None)

        def until(condition):
            assert context.spin_until(condition, timeout=PATIENCE)

        try:
            yield SimpleNamespace(context=context, drivers=drivers, until=until)
        finally:
            leave(executor, node, drivers)
            rclpy.try_shutdown()


@pytest.fixture
def ask(ros):
    """A function that calls a node's service and returns the answer."""

    def ask(kind, service, **request):
        client = ros.context.node.create_client(kind, service)
        ros.until(client.service_is_ready)
        answer = client.call_async(kind.Request(**request))
        ros.until(answer.done)
        return answer.result()

    return ask


@pytest.fixture
def set_parameter(ask):
    """A function that sets a node's parameter and returns whether the node takes the value."""

    def set_parameter(node, name, value):
        from rcl_interfaces.srv import SetParameters
        from rclpy.parameter import Parameter

        parameters = [Parameter(name, value=value).to_parameter_msg()]
        return ask(SetParameters, f"/{node}/set_parameters", parameters=parameters).results[0].successful

    return set_parameter


@pytest.fixture
def shared(ros, tmp_path):
    """A graph for processes that shares its domain with the nodes of this process."""
    from node_process import Graph

    return Graph(int(os.environ["ROS_DOMAIN_ID"]), tmp_path)
