"""`ros_publish_footprint [FILE]`: the fitted body shape as Nav2's footprint, and its stop zone for Nav2's collision
monitor; both follow the arm. config/nav2/body_shape.yaml has the parameters of Nav2's side."""

import time
from pathlib import Path

import numpy as np

from stretch_sim_cal.calibration.body.model import BodyShapeModel, load_body_shape_model
from stretch_sim_cal.calibration.body.settings import find_settings, zone_settings
from stretch_sim_cal.calibration.calibration_file import default_path
from stretch_sim_cal.calibration.zones import Zones, ZoneSettings
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.points import convex_hull
from stretch_sim_cal.geometry.shapes import ConvexPolygon, Shape, circumscribed_polygon
from stretch_sim_cal.robot.profile import profile_called
from stretch_sim_cal.ros.listening import JointListener
from stretch_sim_cal.ros.node_main import NodeContext
from stretch_sim_cal.ros.options import checked_topic

EVERY = 0.1  # s between looks at the joints; the arm moves at most 3 cm meanwhile
REPEAT = 10  # looks after which an unchanged footprint is sent again: for a Nav2 that was started late
CORNERS = 24  # of the polygons: at most 1 % beyond a circle
STALE = 1.0  # s without /joint_states after which nobody knows where the arm is


def default_model() -> Path:
    """Return the file of the robot's body shape that ros_calibrate_robot writes."""
    return default_path().with_name("body_shape_model.yaml")


class Footprint:
    def __init__(self, context: NodeContext, model: BodyShapeModel, settings: ZoneSettings):
        from geometry_msgs.msg import Polygon, PolygonStamped

        self._context, self._model, self._settings = context, model, settings
        self._joints = JointListener(context, profile=profile_called(context.options.robot))
        # A shape that covers the robot wherever its arm is, as far as the model was fitted.
        corners = [circumscribed_polygon(shape, CORNERS).corners for row in model.shapes for shape in row]
        self._anywhere = ConvexPolygon(convex_hull(np.concatenate(corners)))
        create, topics = context.node.create_publisher, map(str.strip, context.options.topics.split(","))
        self._footprints = [create(Polygon, checked_topic(context.node, topic), 1) for topic in topics if topic]
        self._stop_zone = create(PolygonStamped, "stop_zone", 1)
        self._heard, self._messages, self._looks = 0.0, 0, 0
        self._sent: tuple = ()
        self._said = ""
        context.every(EVERY, self.publish)

    def publish(self) -> None:
        """Publish both polygons if the shape is another than before, and every so often."""
        from stretch_sim_cal.ros.messages import polygon

        shape, self._looks = self._shape(), self._looks + 1
        if tuple(shape.vector) == self._sent and self._looks % REPEAT:
            return
        self._sent = tuple(shape.vector)
        stamp, frame = self._context.node.get_clock().now().nanoseconds, self._context.options.footprint_frame
        footprint = circumscribed_polygon(shape.inflated(self._context.options.padding), CORNERS).corners
        for publisher in self._footprints:
            publisher.publish(polygon(footprint, frame, stamp).polygon)
        outer = circumscribed_polygon(Zones.around(shape, self._settings).outer, CORNERS).corners
        self._stop_zone.publish(polygon(outer, frame, stamp))

    def _shape(self) -> Shape:
        """Return the shape at the arm's pose; that of any pose while the pose is unknown, or the model not fitted
        there."""
        if self._joints.messages != self._messages:
            self._heard, self._messages = time.monotonic(), self._joints.messages
        joints = self._joints.commanded
        if not self._model.axes:  # a robot without an arm
            return self._anywhere
        missing = [joint for joint in self._model.followed if joint not in joints]
        if missing or time.monotonic() - self._heard > STALE:
            state, sentence = "silent", "the arm's pose is unknown: the footprint covers all arm poses"
        elif outside := self._model.outside_of_coverage(joints):
            low, high = self._model.covers[outside[0]]
            state = "outside"
            sentence = (
                f"{outside[0]} is at {joints[outside[0]]:.2f}, the model was fitted for {low:.2f} .. {high:.2f}: "
                "the footprint covers all fitted arm poses, and the robot may protrude from it"
            )
        else:
            self._said = ""
            return self._model.shape_for(joints)
        if state != self._said:
            self._said = state
            self._context.log.warning(sentence)
        return self._anywhere


def publish_footprint(context: NodeContext) -> None:
    """Publish the footprint until a signal ends the node. Raises `InputError` for a model that cannot be used."""
    options = context.options
    path = context.arguments.file or default_model()
    if not Path(path).is_file():
        raise InputError(
            f"{path}: there is no body shape yet; run ros_calibrate_robot, or name the file of fit_body_shape_model"
        )
    model = load_body_shape_model(path)
    for warning in model.warnings:
        context.log.warning(warning)
    Footprint(context, model, zone_settings(find_settings(options.settings)))
    print(f"publishing the footprint of {path} on {options.topics} and the stop zone on /stop_zone", flush=True)
    context.spin()
