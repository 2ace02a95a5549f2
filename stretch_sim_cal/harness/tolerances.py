"""The tolerances of a scenario: one table of what each bounds, how it is shown, and what a run says that exceeds it.

To add one, add a row here, and its quantity's key to what the stage compares (`COMPARISONS` in `verdict.py`). How they
are judged: `Quantity.passed` there; the words for it are `WRONG` below, `Quantity.line` and `run_case` in `ci.py`. The
limits of a campaign are counted in `campaign/statement.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stretch_sim_cal.geometry.transforms import SIDES

# What a tolerance is of: the left and the right lidar together, the stage as a whole, or one lidar each, of these.
PAIR, BOTH_SIDES, WHOLE, FURTHER, EACH = "pair", "sides", "whole", "further", "each"
WRONG = "{key} is {error}, above its tolerance of {tolerance:g}: the result of {producer} is wrong"
TOO_FEW = (
    "{estimate} of its plan were skipped, above the share of {tolerance:g} that the scenario allows (tolerances: "
    "skipped_share); too few poses are left"
)


@dataclass(frozen=True)
class Tolerance:
    """A tolerance by its `name` in a scenario. Without a `default` (None) it holds only if the scenario has it.

    `key` and `unit` are those of the quantity in `result.json`; that of a lidar begins with its name, "left.". `labels`
    by what it is of, with {} for the lidar's name. `exceeded` is the reason for a failure.
    """

    name: str
    default: float | None
    key: str
    unit: str
    labels: Mapping[str, str]
    exceeded: str = WRONG


TOLERANCES = {
    "alignment": (
        Tolerance("translation_mm", 1.0, "translation_error_mm", "mm",
                  {WHOLE: "lidars: translation", FURTHER: "{} lidar: translation"}),
        Tolerance("rotation_deg", 0.02, "rotation_error_deg", "deg",
                  {WHOLE: "lidars: rotation", FURTHER: "{} lidar: rotation"}),
        Tolerance("nees", None, "nees", "",
                  {WHOLE: "lidars: NEES per freedom", FURTHER: "{} lidar: NEES per freedom"}),
    ),
    "floor": (
        Tolerance("height_mm", 0.5, "height_error_mm", "mm", {WHOLE: "floor: height"}),
        Tolerance("tilt_deg", 0.02, "tilt_error_deg", "deg", {WHOLE: "floor: tilt"}),
        Tolerance("nees", None, "nees", "", {WHOLE: "floor: NEES per freedom"}),
    ),
    "mounts": (
        Tolerance("translation_mm", 1.0, "translation_error_mm", "mm",
                  {BOTH_SIDES: "{} mount: translation", FURTHER: "{} mount: translation"}),
        Tolerance("rotation_deg", 0.1, "rotation_error_deg", "deg",
                  {BOTH_SIDES: "{} mount: rotation", FURTHER: "{} mount: rotation"}),
        Tolerance("nees", None, "nees", "", {WHOLE: "mounts: NEES per freedom", FURTHER: "{}: NEES per freedom"}),
        Tolerance("skipped_share", 0.2, "skipped_share", "", {WHOLE: "mounts: poses skipped"}, TOO_FEW),
    ),
    "body_shape": (
        Tolerance("protrusion_mm", 10.0, "max_protrusion_mm", "mm", {WHOLE: "body: protrusion"}),
        Tolerance("excess_area_ratio", 1.10, "excess_area_ratio", "", {WHOLE: "body: area ratio"}),
        Tolerance("skipped_share", 0.2, "skipped_share", "", {WHOLE: "body: poses skipped"}, TOO_FEW),
    ),
    "drive": (
        Tolerance("translation_mm", 1.0, "translation_error_mm", "mm",
                  {PAIR: "lidars: translation", FURTHER: "{} lidar: translation"}),
        Tolerance("rotation_deg", 0.02, "rotation_error_deg", "deg",
                  {PAIR: "lidars: rotation", FURTHER: "{} lidar: rotation"}),
        Tolerance("nees", None, "nees", "",
                  {PAIR: "lidars: NEES per freedom", FURTHER: "{} lidar: NEES per freedom"}),
        Tolerance("height_mm", 1.0, "height_error_mm", "mm", {WHOLE: "floor: height"}),
        Tolerance("tilt_deg", 0.05, "tilt_error_deg", "deg", {WHOLE: "floor: tilt"}),
        Tolerance("floor_nees", None, "floor_nees", "", {WHOLE: "floor: NEES per freedom"}),
        Tolerance("lever_mm", 3.0, "lever_error_mm", "mm", {EACH: "{} to wheels: x, y"}),
        Tolerance("yaw_deg", 0.5, "yaw_error_deg", "deg", {EACH: "{} to wheels: yaw"}),
        Tolerance("wheels_nees", None, "wheels_nees", "", {EACH: "{} to wheels: NEES per freedom"}),
    ),
}  # fmt: skip
"""Of every stage, in the order in which the quantities are shown."""


def known_of(stage: str) -> set[str]:
    """Return the names of a stage's tolerances."""
    return {each.name for each in TOLERANCES[stage]}


def defaults_of(stage: str) -> dict[str, float]:
    """Return the tolerances that hold if a scenario has no others, by name."""
    return {each.name: each.default for each in TOLERANCES[stage] if each.default is not None}


def quantities_of(stage: str, lidars: Sequence[str]) -> list[tuple[str, str, Tolerance]]:
    """Return key, label and tolerance of every quantity of a stage on a robot with those lidars."""
    parts = {
        PAIR: [""] if "right" in lidars else [],
        BOTH_SIDES: [name for name in lidars if name in SIDES],
        WHOLE: [""],
        FURTHER: [name for name in lidars if name not in SIDES],
        EACH: lidars,
    }
    return [
        (f"{part}.{each.key}" if part else each.key, each.labels[of].format(part), each)
        for of, names in parts.items() for part in names for each in TOLERANCES[stage] if of in each.labels
    ]  # fmt: skip
