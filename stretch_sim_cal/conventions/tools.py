"""A tool by itself, checked and normalized by the Stretch's convention as it hangs on the wrist: Rule 5 (grasp centre,
fingers, their tips) and what the others say of a tool's names and frames.

It is attached to the vendor's Stretch without a tool; that robot's own findings are left out.
"""

from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from stretch_sim_cal.conventions import profile_named
from stretch_sim_cal.conventions.normal_form import Description, Normal, Options, attached, description, normalized
from stretch_sim_cal.conventions.normalized_files import prove_same_mechanism, text_of, tool_elements
from stretch_sim_cal.conventions.profile import Finding, lint
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import write_text
from stretch_sim_cal.robot.stretch import WITHOUT_TOOL, nominal_description

CONNECTION = "tool_connection_joint"


@dataclass(frozen=True)
class NormalTool:
    """A tool in its normal form: the whole robot's `normal`, and the `remaining` findings that are of the tool."""

    normal: Normal
    remaining: list[Finding]


def carrier() -> Description:
    """Return the robot that tools are compared with: the vendor's Stretch without one."""
    return description(nominal_description(WITHOUT_TOOL), source="the Stretch without a tool")


def tool_findings(tool: Description) -> list[Finding]:
    """Return the findings that a tool adds to the robot that carries it. Raises `InputError`
    if it cannot be attached."""
    convention = profile_named("stretch")
    robot = carrier()
    own = {(each.rule, each.name) for each in lint(robot.model(), convention)}
    found = lint(attached(robot, tool).model(), convention)
    return [each for each in found if (each.rule, each.name) not in own and each.name != CONNECTION]


def normal_tool(tool: Description, options: Options) -> NormalTool:
    """Return a tool's normal form. Raises `InputError` if it cannot be attached, or an option names nothing."""
    own = {(each.rule, each.name) for each in lint(carrier().model(), profile_named("stretch"))}
    normal = normalized(attached(carrier(), tool), options)
    return NormalTool(normal, [e for e in normal.remaining if (e.rule, e.name) not in own and e.name != CONNECTION])


def write_tool(tool: NormalTool, file: Path) -> float:
    """Write a tool's URDF, and return the largest departure (Rule 0) found between the robot with the tool as it was
    and with the one that is written. Raises `Refused`, with nothing written, if it is not the same mechanism."""
    root = Element("robot", name=file.stem)
    root.extend(each for each in tool_elements(tool.normal) if each.get("name") != CONNECTION)
    text = text_of(root)
    again = attached(carrier(), Description(ElementTree.fromstring(text), str(file)))
    departure = prove_same_mechanism(tool.normal, again.model())
    if file.exists():
        raise InputError(f"{file}: is there already; name another folder with --out")
    write_text(file, text)
    return departure
