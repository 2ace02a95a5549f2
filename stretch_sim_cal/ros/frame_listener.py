"""The frames that a running node receives: /tf, /tf_static, and /robot_description beside them."""

import contextlib
from collections.abc import Callable

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.recording.frame_tree import FrameTree, transform_of_message, tree_of_description
from stretch_sim_cal.recording.topics import DESCRIPTION_TOPIC
from stretch_sim_cal.ros.subscription import MatchedSubscription


class FrameListener:
    """Keeps a `FrameTree` up to date from /tf and /tf_static, and one from /robot_description beside it.
    `ignore(parent, child, parent_from_child)` says which transforms are not listened to: those of the node itself."""

    TF_TOPICS = ("/tf_static", "/tf")
    # Frames come from several publishers: one that is missing gets this many seconds after the first has been heard. On
    # a busy machine (ten runnable threads a core) more than 3 s were seen until the next one was found.
    GRACE = 10.0

    def __init__(self, context, ignore: Callable[[str, str, np.ndarray], bool] | None = None):
        from std_msgs.msg import String
        from tf2_msgs.msg import TFMessage

        self._context, self._ignore = context, ignore or (lambda parent, child, transform: False)
        self._complained: set[str] = set()
        self.tree = FrameTree()
        self.described: FrameTree | None = None
        self.description: str | None = None
        self._static, self._moving = (
            MatchedSubscription(context, TFMessage, topic, self._take, depth=100, latched=True)
            for topic in self.TF_TOPICS
        )
        self._description = MatchedSubscription(
            context, String, DESCRIPTION_TOPIC, self._take_description, depth=1, latched=True
        )
        # Published once, before this node began to listen: it may take its time on a busy machine.
        self._latched = (self._static, self._description)

    def close(self) -> None:
        """Stop listening; what was heard stays known."""
        for subscription in (self._static, self._moving, self._description):
            subscription.close()

    def lookup(self, target: str, source: str) -> np.ndarray:
        """Return `target_from_source` from TF, else from /robot_description. Raises `InputError` (see `FrameTree`)."""
        try:
            return self.tree.lookup(target, source)
        except InputError as error:
            if self.described is None:
                raise
            try:
                return self.described.lookup(target, source)
            except InputError as also:
                raise InputError(f"{error}; {also}") from also

    def footprint_from(self, base: str, footprint: str) -> np.ndarray:
        """Return `footprint_from_base` as described; that of the base itself, with a warning, if it begins there."""
        try:
            return self.lookup(footprint, base)
        except InputError as error:
            self._complain(f"{error}; the floor is searched at the origin of {base}")
            return np.eye(4)

    def wait_for(self, *pairs: tuple[str, str], watchdog) -> list[np.ndarray]:
        """Return `target_from_source` of each (target, source), waiting until all are known. Raises `InputError` if a
        frame is still missing `GRACE` s after all that publish frames have been heard, and `RunFailure` (from the
        watchdog) if one of them stays silent."""
        silence = f"no frames from {self.TF_TOPICS[0]} or {DESCRIPTION_TOPIC}"
        watchdog.watch(silence, self._why_silent)
        result: list[np.ndarray] = []

        def found() -> bool:
            watchdog.tick()
            with contextlib.suppress(InputError):
                result[:] = [self.lookup(target, source) for target, source in pairs]
            return bool(result)

        def heard() -> bool:
            published = [source for source in self._latched if source.published]
            everyone = bool(published or self.tree.frames) and all(source.heard for source in published)
            return found() or everyone

        self._context.spin_until(heard)
        watchdog.forget(silence)
        if not self._context.spin_until(found, timeout=self.GRACE):
            result = [self.lookup(target, source) for target, source in pairs]
        return result

    def wait_for_description(self, watchdog) -> str:
        """Return the URDF text on /robot_description. Raises `RunFailure` (watchdog) if there is none."""
        silence = f"no message on {DESCRIPTION_TOPIC}"
        watchdog.watch(silence, lambda: "the poses are planned on it; is the robot's driver running?")
        self._context.spin_until(lambda: self.description is not None, watchdog=watchdog)
        watchdog.forget(silence)
        return self.description

    def _why_silent(self) -> str:
        return "; ".join(f"{source.topic}: {source.diagnose()}" for source in self._latched)

    def _take(self, message) -> None:
        for transform in message.transforms:
            parent, child = transform.header.frame_id, transform.child_frame_id
            try:
                parent_from_child = transform_of_message(transform.transform)
            except InputError as error:
                self._complain(f"TF of '{child}' below '{parent}' {error} and is ignored")
                continue
            ignored = self._ignore(parent, child, parent_from_child)
            if not ignored and (former := self.tree.connect(parent, child, parent_from_child)):
                self._complain(f"TF: '{child}' has two parents, '{former}' and '{parent}': two nodes publish it")

    def _take_description(self, message) -> None:
        self.description = message.data
        try:
            self.described = tree_of_description(message.data)
        except InputError as error:
            self._complain(f"{DESCRIPTION_TOPIC} cannot be used: {error}")

    def _complain(self, sentence: str) -> None:
        if sentence not in self._complained:
            self._complained.add(sentence)
            self._context.log.warning(sentence)
