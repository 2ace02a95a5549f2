"""SDF robots as URDF. Links keep their frames; frames, joints that are not at their child's frame, and lidars that are
not at their link's become links without shapes. What URDF cannot express raises `InputError`."""

import math
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import SubElement

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import from_xyz_rpy, inverse
from stretch_sim_cal.robot.model import Joint
from stretch_sim_cal.robot.sdf import UNLIMITED, WORLD, Element, SdfModel, attached_link, read_sdf_model
from stretch_sim_cal.robot.urdf_elements import add_joint, numbers, set_origin

LIDAR_SENSORS = ("ray", "gpu_ray", "lidar", "gpu_lidar")
FRAME_IDS = ("gz_frame_id", "ignition_frame_id", "frame_id")
Xml = ElementTree.Element
SAME = 1e-9  # m and rad; frames that differ by less are one


def urdf_of_sdf(path: Path) -> str:
    """Return the URDF text of the one model of an SDF file; meshes are relative to the file's folder. Raises
    `InputError` naming file, line and element."""
    sdf = read_sdf_model(path)
    model = sdf.robot_model()
    robot = Xml("robot", name=sdf.name)
    links = {name: SubElement(robot, "link", name=name) for name in model.links}
    for name in sdf.links:
        body = sdf.scope.elements.get(name)
        if body is not None and body.tag == "link":  # not one between the axes of a universal joint
            _add_body(links[name], body, sdf, path)
    for joint in model.joints.values():
        _add_joint(robot, joint, sdf.scope.elements.get(joint.name, sdf.scope.element))
    for frame in sdf.scope.element.all("frame"):
        link = attached_link(frame.name, sdf.scope, sdf.links)
        if link is None:
            raise InputError(f"{frame.where}: '{frame.name}' is not attached to a link")
        _add_frame(robot, frame.name, link, inverse(sdf.links[link]) @ sdf.scope.pose(frame.name, frame), links, frame)
    for part in sdf.scope.element.all("link"):
        for sensor in part.all("sensor"):
            if sensor.attributes.get("type") in LIDAR_SENSORS:
                _add_lidar(robot, part, sensor, sdf, links)
    return ElementTree.tostring(robot, encoding="unicode")


def _add_body(urdf: Xml, link: Element, sdf: SdfModel, path: Path) -> None:
    link_from_model = inverse(sdf.links[link.name])
    for kind in ("visual", "collision"):
        for part in link.all(kind):
            placed = link_from_model @ sdf.scope.pose_relative(part, link.name)
            for shift, shape in _shapes(part.required("geometry"), path):
                holder = SubElement(urdf, kind, name=part.attributes.get("name", ""))
                set_origin(holder, placed @ shift)
                SubElement(holder, "geometry").append(shape)
    inertial = link.first("inertial")
    if inertial is not None:
        inertia = inertial.first("inertia")
        holder = SubElement(urdf, "inertial")
        set_origin(holder, link_from_model @ sdf.scope.pose_relative(inertial, link.name))
        SubElement(holder, "mass", value=repr(inertial.number("mass", 1.0)))
        moments = {}
        for key in ("ixx", "ixy", "ixz", "iyy", "iyz", "izz"):
            usual = float(key[1] == key[2])
            moments[key] = repr(usual if inertia is None else inertia.number(key, usual))
        SubElement(holder, "inertia", moments)


def _shapes(geometry: Element, path: Path) -> list[tuple[np.ndarray, Xml]]:
    """Return a geometry as URDF's shapes, each with geometry_from_shape (4, 4); none for an empty one."""
    if len(geometry.children) != 1:
        raise InputError(f"{geometry.where}: needs one shape, has {len(geometry.children)}")
    shape, centred = geometry.children[0], np.eye(4)

    def as_urdf(tag: str, *keys: str) -> Xml:
        return Xml(tag, {key: repr(shape.positive_number(key)) for key in keys})

    match shape.tag:
        case "empty":
            return []
        case "box":
            return [(centred, Xml("box", size=numbers(shape.required("size").positive(3))))]
        case "sphere":
            return [(centred, as_urdf("sphere", "radius"))]
        case "cylinder":
            return [(centred, as_urdf("cylinder", "radius", "length"))]
        case "capsule":
            half = np.array([0.0, 0.0, 0.5 * shape.positive_number("length")])
            ends = [(from_xyz_rpy(end), as_urdf("sphere", "radius")) for end in (-half, half)]
            return [(centred, as_urdf("cylinder", "radius", "length")), *ends]
        case "mesh":
            if (part := shape.first("submesh")) is not None:
                raise InputError(f"{part.where}: a submesh is not supported; save it as a separate file")
            scale = shape.first("scale")
            given = {} if scale is None else {"scale": numbers(scale.numbers(3))}
            return [(centred, Xml("mesh", filename=_mesh(shape.required("uri").text, path), **given))]
    raise InputError(f"{shape.where}: is not a shape that URDF has; use box, cylinder, sphere, capsule or mesh")


def _mesh(uri: str, path: Path) -> str:
    """Return a mesh's name, as a path if it is `model://` of the model whose folder holds the file."""
    if uri.startswith("model://"):
        name, _, rest = uri.removeprefix("model://").partition("/")
        for folder in path.resolve().parents:
            if folder.name == name:
                return str(folder / rest)
    return uri


def _add_joint(robot: Xml, joint: Joint, element: Element) -> None:
    if joint.type in ("helical", "spherical"):
        kind = element.attributes.get("type")
        raise InputError(f"{element.where}: '{joint.name}': a {kind} joint does not exist in URDF")
    added = add_joint(robot, joint.name, joint.parent, joint.child, joint.parent_from_joint, joint.type)
    if joint.type == "fixed":
        return
    SubElement(added, "axis", xyz=numbers(joint.axis))
    if joint.limit is not None:
        limits = {key: getattr(joint.limit, key) for key in ("lower", "upper", "velocity", "effort")}
        # Below 0 is, to SDF, no limit.
        for key in ("velocity", "effort"):
            limits[key] = limits[key] if 0.0 <= limits[key] < math.inf else UNLIMITED
        SubElement(added, "limit", {key: repr(float(value)) for key, value in limits.items()})
    if joint.mimic is not None:
        multiplier, offset = repr(joint.mimic.multiplier), repr(joint.mimic.offset)
        SubElement(added, "mimic", joint=joint.mimic.joint, multiplier=multiplier, offset=offset)


def _add_frame(
    robot: Xml, name: str, link: str, link_from_frame: np.ndarray, links: dict[str, Xml], element: Element
) -> None:
    if name in links or name == WORLD:
        raise InputError(f"{element.where}: a link is also called '{name}'")
    links[name] = SubElement(robot, "link", name=name)
    add_joint(robot, f"{name}_fixed", link, name, link_from_frame)


def _add_lidar(robot: Xml, link: Element, sensor: Element, sdf: SdfModel, links: dict[str, Xml]) -> None:
    link_from_lidar = inverse(sdf.links[link.name]) @ sdf.scope.pose_relative(sensor, link.name)
    frame = link.name
    if np.abs(link_from_lidar - np.eye(4)).max() > SAME:
        named = next((each.text for tag in FRAME_IDS if (each := sensor.first(tag)) is not None), "")
        frame = named if named and named not in links else sensor.name
        _add_frame(robot, frame, link.name, link_from_lidar, links, sensor)
    SubElement(SubElement(robot, "gazebo", reference=frame), "sensor", name=sensor.name, type=sensor.attributes["type"])
