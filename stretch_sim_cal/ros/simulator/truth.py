"""Making known what only the simulator knows, to those who judge a calibration."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile
from std_msgs.msg import String

from stretch_sim_cal.files import write_text


def write_truth(path: str | Path, truth: Mapping[str, Any], true_description: str) -> None:
    """Write the ground truth as JSON to `path`, and the true robot's URDF beside it, named in `description_file`."""
    path = Path(path)
    description = path.with_name(f"{path.stem}.urdf")
    write_text(description, true_description)
    write_text(path, json.dumps(dict(truth) | {"description_file": description.name}, indent=2) + "\n")


class TruthTopic:
    """Latches the ground truth on ~/ground_truth."""

    def __init__(self, node: Node, truth: Mapping[str, Any]):
        profile = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self._publisher = node.create_publisher(String, "~/ground_truth", profile)
        self._publisher.publish(String(data=json.dumps(dict(truth))))
