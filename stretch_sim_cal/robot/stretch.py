"""The vendor's description of the Stretch 4 from its Python package, with its tools and the user's."""

import functools
import logging

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.robot.model import near

DEFAULT_TOOL = "eoa_wrist_dw4_tool_sg4"
WITHOUT_TOOL = "eoa_wrist_dw4_tool_nil"
MODEL, BATCH = "SE4", "francis"


@functools.cache
def nominal_description(tool: str = DEFAULT_TOOL) -> str:
    """Return the URDF text of the vendor's Stretch 4 with a tool; meshes are absolute `file://` names. Raises
    `InputError` for an unknown tool, or without the vendor's package."""
    if tool not in (tools := available_tools()):
        raise InputError(f"'{tool}' is not a tool of the Stretch{near(tool, tools)}")
    return vendor_package().get_urdf(model_name=MODEL, batch_name=BATCH, tool_name=tool)


def available_tools() -> list[str]:
    """Return the tools of the vendor's description, and the user's beside it."""
    vendor_package()
    from stretch4_urdf.utils.urdf_utils_generate_from_base_xacro import get_available_tools

    return sorted(get_available_tools(MODEL))


def vendor_package():
    """Return the module `stretch4_urdf`. Raises `InputError` if it is not installed."""
    try:
        import stretch4_urdf
    except ImportError as error:
        raise InputError(
            "the Stretch's description is not installed; 'pip install hello-robot-stretch4-urdf' (or 'make env')"
        ) from error
    # It logs one line per call at INFO, and a missing robot as a warning.
    logging.getLogger("urdf_utils").setLevel(logging.ERROR)
    return stretch4_urdf
