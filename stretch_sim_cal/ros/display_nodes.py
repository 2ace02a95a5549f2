"""The calibration and the body shape for RViz, with all clouds as one, and the body shape as a footprint for Nav2
(config/nav2/body_shape.yaml has the parameters of Nav2's side)."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from geometry_msgs.msg import Polygon, PolygonStamped
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Bool, Float32
from std_srvs.srv import Trigger
from visualization_msgs.msg import MarkerArray

from stretch_sim_cal.calibration.body import SETTINGS_NAME
from stretch_sim_cal.calibration.body import model as models
from stretch_sim_cal.calibration.body import settings as body_settings
from stretch_sim_cal.calibration.zones import Zones, ZoneSettings
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.points import convex_hull
from stretch_sim_cal.geometry.shapes import ConvexPolygon, Shape, circumscribed_polygon
from stretch_sim_cal.recording.pairing import CloudSet
from stretch_sim_cal.robot.profile import profile_called
from stretch_sim_cal.ros.calibration_in_use import CalibrationWatch, placement, xyz
from stretch_sim_cal.ros.listening import FrameListener, JointListener
from stretch_sim_cal.ros.messages import cloud_message, marker_array, polygon, zone_markers
from stretch_sim_cal.ros.node_commands import VISUALIZE, VISUALIZE_BODY_SHAPE, ZONE_OPTIONS
from stretch_sim_cal.ros.options import Option, checked_topic, declare, follow_changes
from stretch_sim_cal.ros.robot_context import RobotContext
from stretch_sim_cal.view import opened

BROADCAST_GRACE = 3.0  # s of wall time in which the broadcaster's frame should have been heard
DRAW_EVERY = 0.1  # s; the arm moves at most 3 cm meanwhile
REPEAT = 10  # draws after which what is unchanged is sent again, for an RViz, or a Nav2, that was started late
OUTLINE_CORNERS, FOOTPRINT_CORNERS = 48, 24  # of the polygons: the latter are at most 1 % beyond a circle
COMBINED = {"combined": "lidar_combined"}
FLOOR_TOPICS = COMBINED | {"floor": "lidar_floor_inliers", "off floor": "lidar_off_floor"}
BODY_TOPICS = COMBINED | {"body": "body_points", "obstacle": "obstacles_positive", "drop": "obstacles_negative"}


class Visualizer:
    """Parameters that may change, a calibration that places the clouds, and publishers of parts of them by `topics`."""

    def __init__(self, context: RobotContext, options: Sequence[Option], topics: Mapping[str, str]):
        self._context, self._options = context, context.options
        self._clouds = {name: context.node.create_publisher(PointCloud2, topic, 2) for name, topic in topics.items()}
        self._view = opened(self._options)
        follow_changes(context.node, options, context.options)
        self._calibration = CalibrationWatch(context, self._place)
        self._watchdog = context.watchdog(math.inf)
        self._frames = FrameListener(context)
        base_and_left = (context.options.base_link_frame, context.options.left_lidar_frame)
        self._frames.wait_for(base_and_left, watchdog=self._watchdog)
        self._place()

    def _place(self) -> None:
        self._placement = placement(self._options, self._calibration, self._frames)

    def _sort_sets(self, sort: Callable[[CloudSet], None]) -> None:
        self._context.clouds(self._options, self._watchdog, depth=2, on_set=sort)
        self._context.every(0.5, self._watchdog.tick)
        frame = self._placement.frame
        if not self._context.spin_until(lambda: self._frames.tree.known(frame), timeout=BROADCAST_GRACE):
            lacking = f"frame '{frame}' is not in TF, so RViz shows nothing; run ros_broadcast_calibration"
            self._context.log.warning(lacking)

    def _show(self, seen: CloudSet, records: np.ndarray, marked: np.ndarray | None = None) -> None:
        if self._view is not None:
            places, lidar = xyz(records), records["lidar"]
            own = {name: places[lidar == number] for number, name in enumerate(self._placement.footprint_from_lidar)}
            noted = None if marked is None else places[marked]
            self._view.live(seen.stamp, {name: points for name, points in own.items() if len(points)}, noted)

    def _wanted(self, *further: Any) -> bool:
        """Whether anybody listens to the clouds or `further` publishers, or looks at the view."""
        publishers = (*self._clouds.values(), *further)
        return self._view is not None or any(each.get_subscription_count() for each in publishers)

    def _publish(self, records: np.ndarray, parts: Mapping[str, np.ndarray], stamp: int) -> None:
        """Publish all records and the `parts`, masks by name, of them."""
        for name, publisher in self._clouds.items():
            if publisher.get_subscription_count():
                own = records[parts[name]] if name in parts else records
                publisher.publish(cloud_message(own, self._placement.frame, stamp))


class FloorVisualizer(Visualizer):
    def __init__(self, context: RobotContext):
        super().__init__(context, VISUALIZE.options, FLOOR_TOPICS)
        self._sort_sets(self._sort)

    def _sort(self, seen: CloudSet) -> None:
        if not self._wanted():
            return
        records = self._placement.combined(seen)
        self._show(seen, records)
        is_floor = np.abs(records["z"]) <= self._options.floor_vertical_distance_threshold
        self._publish(records, {"floor": is_floor, "off floor": ~is_floor}, seen.stamp)


class BodyShapeVisualizer(Visualizer):
    """Draws the zones as the joints and parameters change, and sorts all clouds into them."""

    def __init__(self, context: RobotContext):
        self._context, self._options = context, context.options
        self._model = models.load_body_shape_model(context.arguments.file)
        for warning in self._model.warnings:
            context.log.warning(warning)
        self._settings_path = body_settings.find_settings(context.options.settings)
        self._settings = self._read_zones()
        self._warn_of_other_heights()
        super().__init__(context, VISUALIZE_BODY_SHAPE.options, BODY_TOPICS)
        self._profile = profile_called(context.options.robot)
        topics = {
            MarkerArray: "obstacle_markers", PolygonStamped: "body_outline", Bool: "stop_zone_occupied",
            Float32: "stop_zone_distance",
        }  # fmt: skip
        publishers = (context.node.create_publisher(kind, topic, 2) for kind, topic in topics.items())
        self._markers, self._outline, self._occupied, self._distance = publishers
        self._joints = JointListener(context, self._watchdog, self._profile)
        self._compared, self._draws, self._drawn, self._outside = False, 0, (), []
        self._offer_to_save()
        context.every(DRAW_EVERY, self._draw)
        self._sort_sets(self._sort)

    def _read_zones(self) -> ZoneSettings:
        """Return the zones of the settings file, with the parameters that were given in their place."""
        options, written = self._options, body_settings.zone_settings(self._settings_path)
        for option in ZONE_OPTIONS:
            if getattr(options, option.name) is None:
                value = getattr(written, option.name)
                setattr(options, option.name, value)
                declare(self._context.node, option, value)
        return self._given_zones()

    def _given_zones(self) -> ZoneSettings:
        """Return the zones of the parameters. Raises `InputError` if they contradict each other."""
        return ZoneSettings(**{option.name: getattr(self._options, option.name) for option in ZONE_OPTIONS})

    def _offer_to_save(self) -> None:
        target = body_settings.own_settings_path() if self._options.settings == SETTINGS_NAME else self._settings_path

        def save(_request: Trigger.Request, _response: Trigger.Response) -> Trigger.Response:
            try:
                backup = body_settings.save_zones(self._given_zones(), self._settings_path, target)
            except InputError as error:
                return Trigger.Response(success=False, message=str(error))
            self._settings_path = target
            kept = f"; the previous version is {backup.name}" if backup else ""
            return Trigger.Response(success=True, message=f"margins written to {target}{kept}")

        self._context.node.create_service(Trigger, "~/save_margins", save)

    def _warn_of_other_heights(self) -> None:
        fitted, zones = self._model.about.get("heights"), self._settings
        if not isinstance(fitted, list) or len(fitted) != 2 or not all(isinstance(h, int | float) for h in fitted):
            return
        if zones.lowest < fitted[0] - 1e-9 or zones.highest > fitted[1] + 1e-9:
            self._context.log.warning(
                f"the model was fitted to the body from {fitted[0]:g} to {fitted[1]:g} m, obstacles are detected "
                f"from {zones.lowest:g} to {zones.highest:g} m: parts of the robot at other heights count as "
                "obstacles; fit it again"
            )

    def _warn_of_another_robot(self) -> None:
        """Warn once, when the description has come, if the model was fitted for another robot."""
        if self._compared or self._frames.description is None:
            return
        self._compared, here = True, None
        try:
            here = models.description_hash(self._profile.model_of(self._frames.description), profile=self._profile)
        except InputError as error:  # a description without meshes can be shown all the same
            self._context.log.warning(f"the model cannot be compared with /robot_description: {error}")
        for mismatch in self._model.mismatches(models.robot_identity()["tool_id"], here):
            self._context.log.warning(mismatch)

    def zones(self) -> Zones | None:
        """Return the zones at the arm's pose, None while that is unknown, by the last valid parameters."""
        model, joints = self._model, self._joints.commanded
        if any(joint not in joints for joint in model.followed) or (model.followed and self._joints.stale):
            return None
        try:
            self._settings = self._given_zones()
        except InputError as error:  # they are being changed
            self._context.log.warning(str(error), throttle_duration_sec=5.0)
        return Zones.around(model.shape_for(joints), self._settings)

    def _draw(self) -> None:
        self._warn_of_another_robot()
        zones, frame, self._draws = self.zones(), self._placement.frame, self._draws + 1
        if zones is None:
            return
        drawn = (*zones.minimum.vector, *zones.inner.vector, *zones.outer.vector, frame)
        if drawn == self._drawn and self._draws % REPEAT:
            return
        self._drawn, stamp = drawn, self._context.node.get_clock().now().nanoseconds
        self._markers.publish(marker_array(zone_markers(zones), frame, stamp))
        self._outline.publish(polygon(circumscribed_polygon(zones.minimum, OUTLINE_CORNERS).corners, frame, stamp))
        self._warn_outside(self._joints.commanded)

    def _warn_outside(self, joints: Mapping[str, float]) -> None:
        outside = self._model.outside_of_coverage(joints)
        for joint in outside:
            if joint not in self._outside:
                where = _beyond(self._model, joint, joints)
                self._context.log.warning(f"{where}: the robot may protrude from its shape")
        self._outside = outside

    def _sort(self, seen: CloudSet) -> None:
        zones = self.zones()
        if zones is None or not self._wanted(self._occupied, self._distance):
            return
        records = self._placement.combined(seen)
        points = xyz(records)
        classes = zones.classes(points)
        self._show(seen, records, classes["obstacle"] | classes["drop"])
        distance = zones.nearest_hit(points, classes)
        self._occupied.publish(Bool(data=math.isfinite(distance)))
        self._distance.publish(Float32(data=distance))
        self._publish(records, classes, seen.stamp)


def _beyond(model: models.BodyShapeModel, joint: str, joints: Mapping[str, float]) -> str:
    low, high = model.covers[joint]
    return f"{joint} is at {joints[joint]:.2f}, the model was fitted for {low:.2f} .. {high:.2f}"


class Footprint:
    def __init__(self, context: RobotContext, model: models.BodyShapeModel, settings: ZoneSettings):
        self._context, self._model, self._settings = context, model, settings
        self._joints = JointListener(context, profile=profile_called(context.options.robot))
        # A shape that covers the robot wherever its arm is, as far as the model was fitted.
        corners = [circumscribed_polygon(shape, FOOTPRINT_CORNERS).corners for row in model.shapes for shape in row]
        self._anywhere = ConvexPolygon(convex_hull(np.concatenate(corners)))
        create, topics = context.node.create_publisher, map(str.strip, context.options.topics.split(","))
        self._footprints = [create(Polygon, checked_topic(context.node, topic), 1) for topic in topics if topic]
        self._stop_zone = create(PolygonStamped, "stop_zone", 1)
        self._looks = 0
        self._sent: tuple = ()
        self._said = ""
        context.every(DRAW_EVERY, self.publish)

    def publish(self) -> None:
        """Publish both polygons if the shape is another than before, and every so often."""
        shape, self._looks = self._shape(), self._looks + 1
        if tuple(shape.vector) == self._sent and self._looks % REPEAT:
            return
        self._sent = tuple(shape.vector)
        stamp, frame = self._context.node.get_clock().now().nanoseconds, self._context.options.footprint_frame
        footprint = circumscribed_polygon(shape.inflated(self._context.options.padding), FOOTPRINT_CORNERS).corners
        for publisher in self._footprints:
            publisher.publish(polygon(footprint, frame, stamp).polygon)
        outer = circumscribed_polygon(Zones.around(shape, self._settings).outer, FOOTPRINT_CORNERS).corners
        self._stop_zone.publish(polygon(outer, frame, stamp))

    def _shape(self) -> Shape:
        """Return the shape at the arm's pose; that of any pose while the pose is unknown, or the model not fitted
        there."""
        joints = self._joints.commanded
        if not self._model.axes:  # a robot without an arm
            return self._anywhere
        missing = [joint for joint in self._model.followed if joint not in joints]
        if missing or self._joints.stale:
            state, sentence = "silent", "the arm's pose is unknown: the footprint covers all arm poses"
        elif outside := self._model.outside_of_coverage(joints):
            state, where = "outside", _beyond(self._model, outside[0], joints)
            sentence = f"{where}: the footprint covers all fitted arm poses, and the robot may protrude from it"
        else:
            self._said = ""
            return self._model.shape_for(joints)
        if state != self._said:
            self._said = state
            self._context.log.warning(sentence)
        return self._anywhere


def publish_footprint(context: RobotContext) -> None:
    """Publish the footprint until a signal ends the node. Raises `InputError` for a model that cannot be used."""
    options = context.options
    path = context.arguments.file or body_settings.own_model_path()
    if not Path(path).is_file():
        none = "there is no body shape yet; run ros_calibrate_robot, or"
        lacking = "no such file;" if context.arguments.file else none
        raise InputError(f"{path}: {lacking} name the file of fit_body_shape_model")
    model = models.load_body_shape_model(path)
    for warning in model.warnings:
        context.log.warning(warning)
    Footprint(context, model, body_settings.zone_settings(body_settings.find_settings(options.settings)))
    print(f"publishing the footprint of {path} on {options.topics} and the stop zone on /stop_zone", flush=True)
    context.spin()


def visualize(context: RobotContext) -> None:
    FloorVisualizer(context)
    print("visualizing on /lidar_combined, /lidar_floor_inliers, /lidar_off_floor", flush=True)
    context.spin()


def visualize_body_shape(context: RobotContext) -> None:
    BodyShapeVisualizer(context)
    print("visualizing on /obstacle_markers, /body_points, /obstacles_positive, /stop_zone_occupied", flush=True)
    context.spin()
