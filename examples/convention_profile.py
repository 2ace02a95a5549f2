"""The frames of mobile bases (REP 105, and base_footprint of REP 120) as a profile."""

from stretch_sim_cal.conventions.measures import UP, angle_deg, frames_in, shown
from stretch_sim_cal.conventions.profile import ERROR, WARNING, Exemption, Finding, Profile

BASE, FOOTPRINT = "base_link", "base_footprint"


def base(model):
    """base_link is rigidly attached to the base."""
    if BASE not in model.links:
        yield Finding("base_link", ERROR, model.root, f"there is no {BASE}", f"call the base {BASE}")
    elif not model.rigidly_joined(BASE, model.root):
        yield Finding("base_link", ERROR, BASE, f"it moves against {model.root}", "attach it by fixed joints")


def footprint(model):
    """base_footprint is on the floor below base_link, level with it, and has no shape."""
    if FOOTPRINT not in model.links or BASE not in model.links:
        return
    frame = frames_in(model, BASE)[FOOTPRINT]
    tilt = angle_deg(frame[:3, 2], UP)
    if tilt > 0.01:
        yield Finding(
            "level",
            ERROR,
            FOOTPRINT,
            f"its z axis {shown(frame[:3, 2])} is {tilt:.3g} deg from {BASE}'s",
            "level it",
            tilt,
        )
    if frame[2, 3] > 0:
        yield Finding("below", ERROR, FOOTPRINT, f"it is {frame[2, 3]:.3g} m above {BASE}", "put it on the floor")
    if model.links[FOOTPRINT].has_shape:
        yield Finding("virtual", WARNING, FOOTPRINT, "it has a shape", "move the shape to the base")


MOBILE = Profile(
    "mobile",
    "frames of mobile bases",
    rules=(base, footprint),
    exemptions=(
        Exemption("level", FOOTPRINT, "a floor calibration tilts base_ref", up_to=3.0),
        Exemption("virtual", FOOTPRINT, "the vendor's footprint is drawn as a cube of 1 mm"),
    ),
)
