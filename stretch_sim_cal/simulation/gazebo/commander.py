"""`python -m stretch_sim_cal.simulation.gazebo.commander BINDINGS [PATH]`: calls services and publishes, by orders.

An order is a line of JSON on standard input, its answer one on standard output; messages are serialised, in base64. It
never subscribes to anything (see `transport`), and ends when its standard input closes.
"""

import base64
import json
import os
import signal
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

from stretch_sim_cal.simulation.gazebo.transport import load_bindings


class Orders:
    """Carries orders out on one node of the transport."""

    def __init__(self, bindings: ModuleType):
        self._bindings = bindings
        self._node = bindings.Node()
        self._publishers: dict[str, Any] = {}

    def carry_out(self, order: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to one order: to look who listens, or to publish messages and then call a service."""
        if "connected" in order:
            publishers = [self._publisher(topic, order["type"]) for topic in order["connected"]]
            return {"connected": all([publisher.has_connections() for publisher in publishers])}
        for topic, message in order["publish"].items():
            publisher = self._publisher(topic, order["publish_type"])
            if not publisher.has_connections():
                return {"error": f"nobody listens to {topic}"}
            if not publisher.publish_raw(base64.b64decode(message), order["publish_type"]):
                return {"error": f"a message on {topic} was refused"}
        answered, message = self._node.request_raw(
            order["service"], base64.b64decode(order["message"]), order["type"], order["answer_type"],
            order["timeout_ms"],
        )  # fmt: skip
        return {"answered": bool(answered), "message": base64.b64encode(message).decode()}

    def _publisher(self, topic: str, message_type: str) -> Any:
        if topic not in self._publishers:
            # The bindings want a message class, and of that only its name.
            named = SimpleNamespace(DESCRIPTOR=SimpleNamespace(full_name=message_type))
            self._publishers[topic] = self._node.advertise(topic, named, self._bindings.AdvertiseMessageOptions())
        return self._publishers[topic]


def main(bindings: str, python_path: str = "") -> int:
    """Carry out the orders on standard input until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print must not come between the answers
    orders = Orders(load_bindings(bindings, python_path))
    for line in sys.stdin:
        print(json.dumps(orders.carry_out(json.loads(line))), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
