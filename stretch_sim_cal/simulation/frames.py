"""Where things are in an SDF file: poses relative to named frames, resolved within the scope that names them.

Follows SDFormat's pose semantics: `relative_to` and `attached_to` name links, frames, joints or models of the same
scope, `a::b` reaches into model a, and `placement_frame` says which frame of a model its pose places.
"""

from collections.abc import Callable

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import inverse
from stretch_sim_cal.simulation.sdf import Element, pose_of

MAX_CHAIN = 100
ROOTS = {"world": "world", "model": "__model__"}


class Scope:
    """A world or a model, in whose frame links, frames, joints and nested models have poses.

    `element` is its `<world>` or `<model>`; `included` turns an `<include>` into the `<model>` that it stands for,
    or None.
    """

    def __init__(self, element: Element, included: Callable[[Element], Element | None]):
        self.element = element
        self.root = ROOTS[element.tag]
        self.models: dict[str, Scope] = {}
        self._named: dict[str, Element] = {}
        self._resolved: dict[str, np.ndarray] = {self.root: np.eye(4)}
        self._being_resolved: list[str] = []
        for child in element.children:
            if child.tag == "include":
                child = included(child)
            if child is None or child.tag not in ("link", "frame", "joint", "model"):
                continue
            if child.name in self._named:
                raise InputError(f"{child.where}: another element of the same scope is named '{child.name}'")
            self._named[child.name] = child
            if child.tag == "model":
                self.models[child.name] = Scope(child, included)

    def pose(self, name: str, asked_by: Element) -> np.ndarray:
        """Return scope_from_frame (4, 4) of a frame of this scope. Raises `InputError` for unknown or circular ones."""
        if name in self._resolved:
            return self._resolved[name]
        outer, _, inner = name.partition("::")
        if inner and outer in self.models:
            return self.pose(outer, asked_by) @ self.models[outer].pose(inner, asked_by)
        if name not in self._named:
            raise InputError(f"{asked_by.where}: frame '{name}' is not known here")
        if name in self._being_resolved:
            raise InputError(f"{asked_by.where}: frames go in a circle: {' -> '.join([*self._being_resolved, name])}")
        if len(self._being_resolved) >= MAX_CHAIN:
            raise InputError(f"{asked_by.where}: frames depend on each other more than {MAX_CHAIN} deep")
        self._being_resolved.append(name)
        self._resolved[name] = self._pose_of_element(self._named[name])
        self._being_resolved.pop()
        return self._resolved[name]

    def _pose_of_element(self, element: Element) -> np.ndarray:
        """Return scope_from_element (4, 4) of a link, frame, joint or nested model."""
        transform = self.pose_relative(element, self._default_parent(element))
        placed = element.attributes.get("placement_frame", "")
        if element.tag == "model" and placed:
            transform = transform @ inverse(self.models[element.name].pose(placed, element))
        return transform

    def pose_relative(self, element: Element, parent: str) -> np.ndarray:
        """Return scope_from_element (4, 4) by the element's `<pose>`, which is relative to `parent` unless it says."""
        pose = element.first("pose")
        given = pose.attributes.get("relative_to", "") if pose is not None else ""
        return self.pose(given or parent, element) @ pose_of(pose)

    def _default_parent(self, element: Element) -> str:
        if element.tag == "frame":
            return element.attributes.get("attached_to", "") or self.root
        if element.tag == "joint":
            return element.required("child").text
        return self.root
