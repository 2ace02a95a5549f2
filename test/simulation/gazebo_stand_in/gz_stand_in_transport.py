"""Stands in for Gazebo's Python bindings: what of them is used, over a socket to the `gz` beside it."""

import contextlib
import os
import socket
import threading
import time
from multiprocessing.connection import Client


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
        return answer is not None, answer or b""

    def subscribe_raw(self, topic, callback, _type, _options):
        time.sleep(float(os.environ.get("GZ_STAND_IN_SUBSCRIBES_AFTER", "0")))
        connection = _connect()
        connection.send(("subscribe", topic, b""))
        connection.recv()

        def deliver():
            with contextlib.suppress(EOFError, OSError):
                while True:
                    message = connection.recv()
                    if self._subscriptions.get(topic) is not connection:
                        return
                    callback(message, None)

        self._subscriptions[topic] = connection
        threading.Thread(target=deliver, daemon=True).start()
        return True

    def unsubscribe(self, topic):
        with socket.socket(fileno=os.dup(self._subscriptions.pop(topic).fileno())) as ended:
            ended.shutdown(socket.SHUT_RDWR)
        return True

    def advertise(self, topic, message_class, _options):
        assert message_class.DESCRIPTOR.full_name.startswith("gz.msgs.")
        return _Publisher(self, topic)

    def _exchange(self, what, topic, message=b""):
        try:
            self._open = self._open or _connect()
            self._open.send((what, topic, message))
            return self._open.recv()
        except (EOFError, OSError):  # not there yet, or no more
            self._open = None
            time.sleep(0.05)
            return None


class _Publisher:
    def __init__(self, node, topic):
        self._node, self._topic = node, topic

    def publish_raw(self, message, _type):
        self._node._exchange("publish", self._topic, message)
        return True

    def has_connections(self):
        return bool(self._node._exchange("connected", self._topic))


def _connect():
    return Client("\0" + os.environ["GZ_PARTITION"])  # in Linux's abstract namespace
