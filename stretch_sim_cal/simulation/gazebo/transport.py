"""Gazebo's transport through its own Python bindings: the only module that imports them.

The bindings hold Python's interpreter lock while they wait for a service's answer, and need it to deliver messages: a
process that does both dead-locks. So subscriptions are made here, in the simulator's process, and services are called
and commands published by another one, `commander`.
"""

import base64
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from stretch_sim_cal.errors import InputError, RunFailure

COMMANDER = "stretch_sim_cal.simulation.gazebo.commander"


def load_bindings(module: str, python_path: str = "") -> ModuleType:
    """Return the bindings' module, looked for in `python_path` as well.

    Raises `InputError` where it is there but cannot be loaded.
    """
    if python_path and python_path not in sys.path:
        sys.path.append(python_path)
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"Gazebo's Python bindings {module} cannot be loaded: {error}; another Python's, perhaps?"
        ) from error


class Subscriptions:
    """Subscriptions to topics; callbacks get serialised messages, in a thread of the transport's.

    `close` has to be called before Python ends: the transport outlives the interpreter, and crashes in callbacks that
    it still holds.
    """

    def __init__(self, bindings: ModuleType):
        self._bindings = bindings
        self._node = bindings.Node()
        self._topics: list[str] = []

    def subscribe(
        self, topic: str, message_type: str, callback: Callable[[bytes], None], per_second: int | None = None
    ) -> None:
        """Call `callback` with every message on a topic, or with so many `per_second` of wall time at most.

        Raises `RunFailure` where that is refused.
        """
        options = self._bindings.SubscribeOptions()
        if per_second is not None:
            options.msgs_per_sec = per_second
        if not self._node.subscribe_raw(topic, lambda data, _info: callback(data), message_type, options):
            raise RunFailure(f"Gazebo's transport refuses a subscription to {topic} ({message_type})")
        self._topics.append(topic)

    def unsubscribe(self, topic: str) -> None:
        """Let go of the callback of a topic."""
        self._node.unsubscribe(topic)
        self._topics.remove(topic)

    def close(self) -> None:
        """Let go of all callbacks."""
        for topic in list(self._topics):
            self.unsubscribe(topic)


class Commander:
    """The process that calls services and publishes; ended with `close`, or when this process is gone."""

    def __init__(self, bindings: str, environment: Mapping[str, str], python_path: str = ""):
        self._process = subprocess.Popen(
            [sys.executable, "-m", COMMANDER, bindings, python_path],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=dict(os.environ) | dict(environment), start_new_session=True,
        )  # fmt: skip

    def call(
        self, service: str, request: bytes, request_type: str, answer_type: str, timeout: float,
        publish: Mapping[str, bytes] | None = None, publish_type: str = "",
    ) -> bytes | None:  # fmt: skip
        """Return a service's serialised answer, or None where there was none within `timeout` s.

        Before, a message is published on each topic of `publish`. Raises `RunFailure` where one has no subscriber.
        """
        answer = self._exchange({
            "publish": {topic: _text(message) for topic, message in (publish or {}).items()},
            "publish_type": publish_type, "service": service, "message": _text(request), "type": request_type,
            "answer_type": answer_type, "timeout_ms": round(1e3 * timeout),
        })  # fmt: skip
        return base64.b64decode(answer["message"]) if answer["answered"] else None

    def connected(self, topics: list[str], message_type: str) -> bool:
        """Advertise topics and return whether every one has a subscriber: a message published before that is lost."""
        return self._exchange({"connected": topics, "type": message_type})["connected"]

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _exchange(self, order: dict[str, Any]) -> dict[str, Any]:
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise RunFailure("the process that calls Gazebo's services has died; its last words are above")
        answer = json.loads(line)
        if "error" in answer:
            raise RunFailure(f"Gazebo's transport: {answer['error']}")
        return answer


def _text(message: bytes) -> str:
    return base64.b64encode(message).decode()
