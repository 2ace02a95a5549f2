"""`ros_visualize_body_shape_calibration FILE`: the body shape and its zones at the robot's present pose, for RViz."""

import math
import sys
from collections.abc import Mapping, Sequence

from stretch_sim_cal.calibration.body import SETTINGS_NAME
from stretch_sim_cal.calibration.body.model import load_body_shape_model
from stretch_sim_cal.calibration.body.settings import find_settings, own_settings_path, save_zones, zone_settings
from stretch_sim_cal.calibration.zones import Zones, ZoneSettings
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.shapes import circumscribed_polygon
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.ros.calibration_watch import CalibrationWatch
from stretch_sim_cal.ros.display.calibrated_clouds import placement, warn_without_broadcast, xyz
from stretch_sim_cal.ros.identity import description_hash, robot_identity
from stretch_sim_cal.ros.listening.cloud_pairs import CloudPair, CloudPairs
from stretch_sim_cal.ros.listening.frames import FrameListener
from stretch_sim_cal.ros.listening.joints import JointListener
from stretch_sim_cal.ros.listening.watchdog import Watchdog
from stretch_sim_cal.ros.node_commands import VISUALIZE_BODY_SHAPE, ZONE_OPTIONS
from stretch_sim_cal.ros.node_main import NodeContext, run_node
from stretch_sim_cal.ros.parameters import declare, follow_changes

DRAW_EVERY = 0.1
# Markers are sent again after so many draws even if nothing has changed, for an RViz that was started late.
REPEAT = 10
OUTLINE_CORNERS = 48


class BodyShapeVisualizer:
    """Draws the zones as the joints and parameters change, and sorts every pair of clouds into them."""

    def __init__(self, context: NodeContext):
        self._context = context
        self._options = context.options
        self._model = load_body_shape_model(context.arguments.file)
        for warning in self._model.warnings:
            context.log.warning(warning)
        self._settings_path = find_settings(context.options.settings)
        self._settings = self._read_zones()
        self._warn_of_other_heights()
        follow_changes(context.node, VISUALIZE_BODY_SHAPE.options, context.options)
        self._calibration = CalibrationWatch(context, self._place)
        watchdog = Watchdog(math.inf, context.log.warning)
        self._frames = FrameListener(context)
        self._frames.wait_for((context.options.base_link_frame, context.options.left_lidar_frame), watchdog=watchdog)
        self._place()
        self._compared = False
        self._make_publishers()
        self._joints = JointListener(context, watchdog)
        self._drawn: tuple = ()
        self._draws = 0
        self._outside: list[str] = []
        self._offer_to_save()
        CloudPairs(context, context.options, watchdog, depth=2, on_pair=self._sort)
        context.every(DRAW_EVERY, self._draw)
        context.every(0.5, watchdog.tick)
        warn_without_broadcast(context, self._frames, self._placement.frame)

    def _read_zones(self) -> ZoneSettings:
        """Return the zones: those of the settings file, and the parameters that were given in their place."""
        options, written = self._options, zone_settings(self._settings_path)
        for option in ZONE_OPTIONS:
            if getattr(options, option.name) is None:
                setattr(options, option.name, getattr(written, option.name))
                declare(self._context.node, option, getattr(written, option.name))
        return self._given_zones()

    def _given_zones(self) -> ZoneSettings:
        """Return the zones of the parameters. Raises `InputError` for such as make no sense together."""
        return ZoneSettings(**{option.name: getattr(self._options, option.name) for option in ZONE_OPTIONS})

    def _offer_to_save(self) -> None:
        from std_srvs.srv import Trigger

        target = own_settings_path() if self._options.settings == SETTINGS_NAME else self._settings_path

        def save(_request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
            try:
                backup = save_zones(self._given_zones(), self._settings_path, target)
            except InputError as error:
                response.success, response.message = False, str(error)
                return response
            self._settings_path = target
            kept = f"; what it held before is in {backup.name}" if backup else ""
            response.success, response.message = True, f"margins written to {target}{kept}"
            return response

        self._context.node.create_service(Trigger, "~/save_margins", save)

    def _warn_of_other_heights(self) -> None:
        """Warn if obstacles are looked for at heights at which the body was not fitted."""
        fitted, zones = self._model.about.get("heights"), self._settings
        if not isinstance(fitted, list) or len(fitted) != 2 or not all(isinstance(h, int | float) for h in fitted):
            return
        if zones.lowest < fitted[0] - 1e-9 or zones.highest > fitted[1] + 1e-9:
            self._context.log.warning(
                f"the model was fitted to the body from {fitted[0]:g} to {fitted[1]:g} m, obstacles are looked for from "
                f"{zones.lowest:g} to {zones.highest:g} m: parts of the robot at other heights count as obstacles; fit it again"
            )

    def _warn_of_another_robot(self) -> None:
        """Say once, when its description has come, that the model was fitted for another robot than this one."""
        if self._compared or self._frames.description is None:
            return
        self._compared, here = True, None
        try:
            here = description_hash(parse_urdf(self._frames.description))
        except InputError as error:  # a description without meshes can be shown all the same
            self._context.log.warning(f"the model cannot be held against /robot_description: {error}")
        for mismatch in self._model.mismatches(robot_identity()["tool_id"], here):
            self._context.log.warning(mismatch)

    def _make_publishers(self) -> None:
        from geometry_msgs.msg import PolygonStamped
        from sensor_msgs.msg import PointCloud2
        from std_msgs.msg import Bool, Float32
        from visualization_msgs.msg import MarkerArray

        topics = {"combined": "lidar_combined", "body": "body_points", "obstacle": "obstacles_positive",
                  "drop": "obstacles_negative"}  # fmt: skip
        create = self._context.node.create_publisher
        self._clouds = {name: create(PointCloud2, topic, 2) for name, topic in topics.items()}
        self._markers = create(MarkerArray, "obstacle_markers", 2)
        self._outline = create(PolygonStamped, "body_outline", 2)
        self._occupied = create(Bool, "stop_zone_occupied", 2)
        self._distance = create(Float32, "stop_zone_distance", 2)

    def _place(self) -> None:
        self._placement = placement(self._options, self._calibration, self._frames)

    def zones(self) -> Zones | None:
        """Return the zones at the present pose; None while that is unknown."""
        model, joints = self._model, self._joints.commanded
        if (model.arm_dependent and "arm" not in joints) or (model.yaw_dependent and "wrist_yaw" not in joints):
            return None
        shape = model.shape_at(joints.get("arm", 0.0), joints.get("wrist_yaw", 0.0))
        return Zones.around(shape, self._zone_settings())

    def _zone_settings(self) -> ZoneSettings:
        """Return the settings of the parameters, or the last ones that made sense while they are being changed."""
        try:
            self._settings = self._given_zones()
        except InputError as error:
            self._context.log.warning(str(error), throttle_duration_sec=5.0)
        return self._settings

    def _draw(self) -> None:
        self._warn_of_another_robot()
        zones = self.zones()
        self._draws += 1
        if zones is None or (self._key(zones) == self._drawn and self._draws % REPEAT):
            return
        from stretch_sim_cal.ros.display.markers import marker_array, polygon
        from stretch_sim_cal.ros.display.zone_markers import zone_markers

        self._drawn = self._key(zones)
        stamp = self._context.node.get_clock().now().nanoseconds
        frame = self._placement.frame
        self._markers.publish(marker_array(zone_markers(zones), frame, stamp))
        self._outline.publish(polygon(circumscribed_polygon(zones.minimum, OUTLINE_CORNERS).corners, frame, stamp))
        self._warn_outside(self._joints.commanded)

    def _key(self, zones: Zones) -> tuple:
        return (*zones.minimum.vector, *zones.inner.vector, *zones.outer.vector, self._placement.frame)

    def _warn_outside(self, joints: Mapping[str, float]) -> None:
        outside = self._model.outside_of_coverage(joints)
        for joint in outside:
            if joint not in self._outside:
                low, high = self._model.covers[joint]
                self._context.log.warning(
                    f"{joint} is at {joints[joint]:.2f}, the model was fitted for {low:.2f} .. {high:.2f}: "
                    "the robot may reach outside of its shape"
                )
        self._outside = outside

    def _sort(self, pair: CloudPair) -> None:
        from std_msgs.msg import Bool, Float32

        from stretch_sim_cal.ros.messages import cloud_message

        zones = self.zones()
        publishers = (*self._clouds.values(), self._occupied, self._distance)
        if zones is None or not any(publisher.get_subscription_count() for publisher in publishers):
            return
        records = self._placement.combined(pair)
        points = xyz(records)
        classes = zones.classes(points)
        distance = zones.nearest_hit(points, classes)
        self._occupied.publish(Bool(data=math.isfinite(distance)))
        self._distance.publish(Float32(data=distance))
        parts = {name: records[mask] for name, mask in classes.items()} | {"combined": records}
        for name, publisher in self._clouds.items():
            if publisher.get_subscription_count():
                publisher.publish(cloud_message(parts[name], self._placement.frame, pair.stamp))


def visualize_body_shape(context: NodeContext) -> None:
    """Show the body shape until a signal ends the node."""
    BodyShapeVisualizer(context)
    print("visualizing on /obstacle_markers, /body_points, /obstacles_positive, /stop_zone_occupied", flush=True)
    context.spin()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_node(VISUALIZE_BODY_SHAPE, visualize_body_shape, arguments)


if __name__ == "__main__":
    sys.exit(main())
