"""ros_publish_footprint: the footprint follows the arm, and is the largest while nobody says where the arm is."""

import numpy as np
import pytest
import yaml
from geometry_msgs.msg import Polygon, PolygonStamped
from robot_client import robot_client
from sensor_msgs.msg import JointState

from stretch_sim_cal.calibration.body.model import BodyShapeModel, save_body_shape_model
from stretch_sim_cal.files import share_directory
from stretch_sim_cal.geometry.shapes import Circle

# Parameter names of Nav2 1.3.13 (Jazzy), the same in 1.4.2 and 1.5.1: nav2_costmap_2d/src/costmap_2d_ros.cpp and
# nav2_collision_monitor/src/{collision_monitor_node,polygon,source,pointcloud}.cpp.
COSTMAP = {"robot_base_frame", "footprint", "footprint_padding"}
MONITOR = {"base_frame_id", "odom_frame_id", "polygons", "observation_sources"}
POLYGON = {"type", "action_type", "polygon_sub_topic", "min_points", "visualize", "polygon_pub_topic",
           "footprint_topic",
           "time_before_collision", "simulation_time_step"}  # fmt: skip
SOURCE = {"type", "topic", "min_height", "max_height"}
RADII = (0.3, 0.5)


@pytest.fixture
def model(graph):
    """The file of a body that is a disc, the larger the further the arm is out."""
    shapes = [[Circle(0.0, 0.0, radius)] for radius in RADII]
    path = graph.folder / "model.yaml"
    save_body_shape_model(BodyShapeModel("circle", (0.0, 0.5), (0.0,), shapes, {"arm": (0.0, 0.5)}), path)
    return path


def radius(polygon) -> float:
    return float(np.mean([np.hypot(point.x, point.y) for point in polygon.points]))


def test_the_footprint_follows_the_arm(graph, model):
    ready = "publishing the footprint"
    with graph.running("ros_publish_footprint", str(model), ready=ready):
        with robot_client(graph.domain) as client:
            assert radius(client.take(Polygon, "/local_costmap/footprint")[0]) == pytest.approx(0.5, rel=0.03)
            joints = client.node.create_publisher(JointState, "/joint_states", 10)
            for extension, expected in ((0.0, 0.3), (0.25, 0.4), (0.9, 0.5)):
                message = JointState(
                    name=[f"arm_l{number}_joint" for number in (1, 2, 3, 4)], position=[extension / 4] * 4
                )
                heard = []
                subscription = client.node.create_subscription(Polygon, "/local_costmap/footprint", heard.append, 10)
                timer = client.node.create_timer(0.05, lambda message=message: joints.publish(message))
                client.spin_until(
                    lambda heard=heard, expected=expected: heard and abs(radius(heard[-1]) - expected) < 0.02
                )
                zone = client.take(PolygonStamped, "/stop_zone")[0]
                client.node.destroy_timer(timer)
                client.node.destroy_subscription(subscription)
                assert zone.header.frame_id == "base_footprint"
                assert radius(zone.polygon) > expected + 0.14


def test_the_parameters_for_nav2_are_those_that_it_knows():
    data = yaml.safe_load((share_directory() / "config" / "nav2" / "body_shape.yaml").read_text())
    for costmap in ("local_costmap", "global_costmap"):
        assert set(data[costmap][costmap]["ros__parameters"]) <= COSTMAP
    monitor = data["collision_monitor"]["ros__parameters"]
    zones, sources = monitor["polygons"], monitor["observation_sources"]
    assert set(monitor) == MONITOR | {*zones, *sources}
    for name, known in [*((name, POLYGON) for name in zones), *((name, SOURCE) for name in sources)]:
        assert set(monitor[name]) <= known, name
