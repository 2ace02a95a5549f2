"""The display nodes show calibration and body shape, as RViz's files ask for it; the footprint follows the arm."""

import contextlib

import numpy as np
import pytest
import yaml
from fake_drivers import write_calibration
from geometry_msgs.msg import Polygon, PolygonStamped
from made_results import save, true_calibration
from node_process import FEW_RAYS_AMR, SIMULATED_TIME, stop, unseen_in_rviz, wait_for_line
from rclpy.qos import DurabilityPolicy, QoSProfile
from scipy.spatial import cKDTree
from sensor_msgs.msg import JointState, PointCloud2
from std_msgs.msg import Bool, Float32, String
from std_srvs.srv import Trigger
from visualization_msgs.msg import MarkerArray

from stretch_sim_cal.calibration.body.model import BodyShapeModel, save_body_shape_model
from stretch_sim_cal.calibration.body.settings import zone_settings
from stretch_sim_cal.calibration.zones import Zones, ZoneSettings
from stretch_sim_cal.files import share_directory
from stretch_sim_cal.geometry.shapes import Circle, ConvexPolygon, Ellipse, TaperedCapsule
from stretch_sim_cal.harness.verdict import load_truth
from stretch_sim_cal.recording.clouds import records_from_message, returns_from_message
from stretch_sim_cal.robot.stretch import nominal_description
from stretch_sim_cal.ros.messages import joint_state_message, zone_markers

pytestmark = pytest.mark.graph


def test_shows_all_lidars_as_one_on_the_calibrated_floor(graph, client):
    robot = ("--robot", "three_lidar_amr", "--world", "furnished_room", "--sensor", FEW_RAYS_AMR, "--seed", "4")
    heard = client.latest(**dict.fromkeys(("lidar_combined", "lidar_floor_inliers", "lidar_off_floor"), PointCloud2))
    with contextlib.ExitStack() as stack:
        true = load_truth(stack.enter_context(graph.simulator(*robot, "--real-time-factor", "1")))
        save(true_calibration(true, true.to_left["mast"]), graph.calibration_file)
        options = (*robot[:2], *SIMULATED_TIME)
        process = stack.enter_context(graph.running("ros_visualize_calibration", *options, ready="visualizing"))

        def lidars():
            return set(records_from_message(heard["lidar_combined"])["lidar"])

        client.spin_until(lambda: len(heard) == 3 and lidars() == {0.0, 1.0, 2.0})
        parts = {topic: returns_from_message(message)[:, :3] for topic, message in heard.items()}
        combined, floor, off_floor = (parts[f"lidar_{name}"] for name in ("combined", "floor_inliers", "off_floor"))
        assert all(message.header.frame_id == "floor_plane" for message in heard.values())
        client.spin_until(lambda: not unseen_in_rviz("dual_lidar_calibration", client.node))
        # The walls that the mast's lidar sees are those of the left one: they are not doubled.
        lidar, high = records_from_message(heard["lidar_combined"])["lidar"], combined[:, 2] > 0.5
        distances = cKDTree(combined[(lidar == 0) & high]).query(combined[(lidar == 2) & high])[0]
        assert np.median(distances) < 0.1
        assert np.abs(floor[:, 2]).max() <= 0.05 < np.abs(off_floor[:, 2]).min() + 1e-6
        assert len(floor) > 1000 and np.median(np.abs(floor[:, 2])) < 0.002

        name, node = "floor_vertical_distance_threshold", "visualize_calibration"
        assert not client.set(name, -1.0, node).successful and client.set(name, 1, node).successful
        client.spin_until(lambda: returns_from_message(heard["lidar_floor_inliers"])[:, 2].max() > 0.9)
        assert stop(process) == 0
        assert "run ros_broadcast_calibration" in process.stderr.read()


SEGMENTS = [f"arm_l{number}_joint" for number in range(1, 5)]


def capsule(extension: float) -> TaperedCapsule:
    return TaperedCapsule(0.0, 0.0, 0.25, 0.2 + extension, 0.0, 0.1)


def write_model(path) -> None:
    model = BodyShapeModel(
        "tapered_capsule", (0.0, 0.5), (0.0,), [[capsule(0.0)], [capsule(0.5)]], {"arm": (0.0, 0.4)},
        {"tool": "a tool", "description_hash": "of another one", "heights": [0.06, 1.0]},
    )  # fmt: skip
    save_body_shape_model(model, path)


@pytest.fixture
def calibrated(graph):
    write_calibration(graph.calibration_file, 0.028, normal=np.array([0.0, 0.0, 1.0]))
    return graph


def test_follows_the_arm_and_the_margins_and_sorts_the_returns(calibrated, client):
    graph, node = calibrated, client.node
    write_model(graph.folder / "model.yaml")
    heard = client.latest(
        body_outline=PolygonStamped, obstacle_markers=MarkerArray, obstacles_positive=PointCloud2,
        body_points=PointCloud2, stop_zone_occupied=Bool, stop_zone_distance=Float32,
    )  # fmt: skip
    joints, arm = node.create_publisher(JointState, "/joint_states", 10), {"out": 0.0}

    def publish():
        joints.publish(joint_state_message(dict.fromkeys(SEGMENTS, arm["out"] / 4), {}, 0))

    timer = node.create_timer(0.05, publish)

    def reach_of(boundary: str) -> float:
        (drawn,) = (marker for marker in heard["obstacle_markers"].markers if marker.ns == boundary)
        return max(point.x for point in drawn.points)

    def move_to(extension: float) -> None:
        """Wait until the outline and the markers are those of the extension."""
        arm["out"] = extension

        def arrived() -> bool:
            if not {"body_outline", "obstacle_markers"} <= set(heard):
                return False
            outline = [point.x for point in heard["body_outline"].polygon.points]
            reach = [max(outline) - 0.3, reach_of("inner_boundary") - 0.38]
            return np.abs(np.array(reach) - extension).max() < 1e-3

        client.spin_until(arrived)

    def nearest() -> float:
        """Return how far the obstacles are from the body at the last pose."""
        obstacles = returns_from_message(heard["obstacles_positive"])[:, :3]
        shape = TaperedCapsule(0.0, 0.0, 0.25, 0.65, 0.0, 0.1)
        return shape.signed_distance(obstacles[:, :2].astype(float)).min(initial=np.inf)

    (graph.folder / "mine.yaml").write_text("zones: {margin: 0.08}\nSTOP_ZONE_M: 0.7\n")
    arguments = [str(graph.folder / "model.yaml"), "--settings", str(graph.folder / "mine.yaml"), "--stop-zone", "3"]
    # All pairs of clouds are the same, so what is published of one fits what is published of another.
    drivers = graph.drivers(scans=1, invalid_share=0.0)
    with drivers, graph.running("ros_visualize_body_shape_calibration", *arguments, ready="visualizing") as process:
        move_to(0.1)
        move_to(0.45)
        assert heard["body_outline"].header.frame_id == "floor_plane"
        client.spin_until(lambda: not unseen_in_rviz("body_shape_calibration", node))
        assert {marker.ns for marker in heard["obstacle_markers"].markers} == {
            "minimum_model", "minimum_model_shade", "inner_boundary", "outer_boundary", "stop_zone",
        }  # fmt: skip
        assert reach_of("inner_boundary") == pytest.approx(0.83, abs=1e-3)
        assert reach_of("outer_boundary") == pytest.approx(3.83, abs=1e-3)  # the argument goes before the file

        client.spin_until(lambda: len(heard) == 6)
        client.spin_until(lambda: abs(heard["stop_zone_distance"].data - nearest()) < 1e-4)
        obstacles = returns_from_message(heard["obstacles_positive"])[:, :3]
        assert len(obstacles) > 500
        assert obstacles[:, 2].min() >= 0.06 and obstacles[:, 2].max() <= 1.6
        assert not len(returns_from_message(heard["body_points"]))
        assert heard["stop_zone_occupied"].data
        wait_for_line(process, "body from 0.06 to 1 m, obstacles are detected from 0.06 to 1.6 m", "stderr")
        wait_for_line(process, "arm is at 0.45, the model was fitted for 0.00 .. 0.40", "stderr")
        # Another robot's, so it may come only after the lidars' poses are known from TF.
        latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        node.create_publisher(String, "/robot_description", latched).publish(String(data=nominal_description()))
        wait_for_line(process, "fitted for another robot description (of another one", "stderr")

        name = "visualize_body_shape_calibration"
        assert client.set("margin", 0.2, name).successful
        client.spin_until(lambda: reach_of("inner_boundary") > 0.94)
        assert client.set("stop_zone", 0.0, name).successful
        client.spin_until(lambda: not heard["stop_zone_occupied"].data)
        client.spin_until(lambda: heard["stop_zone_distance"].data == np.inf)
        answer = client.call(Trigger, f"/{name}/save_margins")
        saved = graph.folder / "mine.yaml"
        assert answer.success and str(saved) in answer.message
        assert zone_settings(saved) == ZoneSettings(margin=0.2, stop_zone=0.0)
        assert client.set("lowest", 2.0, name).successful
        answer = client.call(Trigger, f"/{name}/save_margins")
        assert not answer.success and "heights must rise" in answer.message
        timer.cancel()  # where the arm is, and so what is an obstacle, is unknown from here on
        client.spin_until(lambda: (heard.clear(), client.spin_for(0.5), not heard)[-1])
        assert stop(process) == 0


@pytest.mark.parametrize(
    "shape",
    [
        capsule(0.3),
        Ellipse(0.1, 0.0, 0.9, 0.5, 20.0),
        ConvexPolygon(np.array([[0.3, 0.2], [-0.2, 0.3], [-0.3, -0.2], [0.2, -0.25]])),
    ],
)
def test_the_drawn_stop_zone_lies_between_its_boundaries(shape):
    zones = Zones.around(shape, ZoneSettings(0.05, 0.1, 0.06, 1.6, -0.06))
    band = next(marker for marker in zone_markers(zones) if marker.ns == "stop_zone")
    corners = np.array([[point.x, point.y] for point in band.points])
    assert len(corners) % 3 == 0
    assert zones.inner.signed_distance(corners).min() > -0.01
    assert zones.outer.signed_distance(corners).max() < 0.01


# Parameter names of Nav2 1.3.13 (Jazzy), the same in 1.4.2 and 1.5.1: nav2_costmap_2d/src/costmap_2d_ros.cpp and
# nav2_collision_monitor/src/{collision_monitor_node,polygon,source,pointcloud}.cpp.
COSTMAP = {"robot_base_frame", "footprint", "footprint_padding"}
MONITOR = {"base_frame_id", "odom_frame_id", "polygons", "observation_sources"}
POLYGON = {"type", "action_type", "polygon_sub_topic", "min_points", "visualize", "polygon_pub_topic",
           "footprint_topic", "time_before_collision", "simulation_time_step"}  # fmt: skip
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


def test_the_footprint_follows_the_arm(graph, client, model):
    topics = ("--topics", "/local_costmap/footprint, /global_costmap/footprint")
    with graph.running("ros_publish_footprint", str(model), *topics, ready="publishing the footprint"):
        assert radius(client.take(Polygon, "/local_costmap/footprint")[0]) == pytest.approx(0.5, rel=0.03)
        joints = client.node.create_publisher(JointState, "/joint_states", 10)
        poses = [(dict.fromkeys(SEGMENTS, each / 4), size) for each, size in ((0.9, 0.5), (0.25, 0.4), (0.0, 0.3))]
        # Last of all the arm's driver is silent, and that of the base still publishes its joints.
        for positions, expected in (*poses, ({"wheel_joint": 1.0}, 0.5)):
            message = joint_state_message(positions, {}, 0)
            timer = client.node.create_timer(0.05, lambda message=message: joints.publish(message))
            client.spin_until(
                lambda expected=expected: (
                    abs(radius(client.take(Polygon, "/local_costmap/footprint")[0]) - expected) < 0.02
                )
            )
            zone = client.take(PolygonStamped, "/stop_zone")[0]
            client.node.destroy_timer(timer)
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
