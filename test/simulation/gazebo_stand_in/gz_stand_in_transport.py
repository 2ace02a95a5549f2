"""Stands in for Gazebo's Python bindings: what of them is used, over a socket to the `gz` beside it."""

import base64
import json
import os
import socket
import threading
import time


class SubscribeOptions:
    pass


class AdvertiseMessageOptions:
    pass


class Node:
    def __init__(self):
        self._open = None
        self._subscriptions = {}

    def request_raw(self, service, message, _request_type, _answer_type, _timeout):
        answer = self._exchange("request", service, message)
        return answer.get("answered", False), base64.b64decode(answer.get("message", ""))

    def subscribe_raw(self, topic, callback, _type, _options):
        time.sleep(float(os.environ.get("GZ_STAND_IN_SUBSCRIBES_AFTER", "0")))
        connection, stream = _connect()
        connection.sendall(json.dumps({"do": "subscribe", "topic": topic}).encode() + b"\n")
        stream.readline()

        def deliver():
            for line in stream:
                if self._subscriptions.get(topic) is not connection:
                    return
                callback(base64.b64decode(json.loads(line)["message"]), None)

        self._subscriptions[topic] = connection
        threading.Thread(target=deliver, daemon=True).start()
        return True

    def unsubscribe(self, topic):
        self._subscriptions.pop(topic).shutdown(socket.SHUT_RDWR)
        return True

    def advertise(self, topic, message_class, _options):
        assert message_class.DESCRIPTOR.full_name.startswith("gz.msgs.")
        return _Publisher(self, topic)

    def _exchange(self, what, topic, message):
        try:
            self._open = self._open or _connect()
            connection, stream = self._open
            order = {"do": what, "topic": topic, "message": base64.b64encode(message).decode()}
            connection.sendall(json.dumps(order).encode() + b"\n")
            return json.loads(stream.readline() or b"{}")
        except OSError:  # not there yet
            self._open = None
            time.sleep(0.05)
            return {}


class _Publisher:
    def __init__(self, node, topic):
        self._node, self._topic = node, topic

    def publish_raw(self, message, _type):
        return self._node._exchange("publish", self._topic, message) is not None

    def has_connections(self):
        return self._node._exchange("connected", self._topic, b"").get("connected", False)


def _connect():
    connection = socket.socket(socket.AF_UNIX)
    connection.connect("\0" + os.environ["GZ_PARTITION"])  # in Linux's abstract namespace
    return connection, connection.makefile("rb")
