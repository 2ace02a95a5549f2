"""Calibration methods by name: those that come with this package, and those other packages add as entry points.

Another package adds a method without touching this one, in its own `setup.py`:

    entry_points={"stretch_sim_cal.alignment_methods": ["my_method = my_package.my_module:MyAlignment"]}

An alignment method is a class that is called with `(initial_right_to_left, settings)`, a floor method one that is
called with `(base_from_left, right_to_left, nominal_footprint_from_base, settings)`; both have `add(left, right)` and
`solve()`. An alignment method with `new_place()`, called before the frames of the next one, takes several standing
places; one with `another_place()` predicts the gain of a further one.
"""

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points

from stretch_sim_cal.errors import InputError

ALIGNMENT_GROUP = "stretch_sim_cal.alignment_methods"
FLOOR_GROUP = "stretch_sim_cal.floor_methods"

DEFAULT_ALIGNMENT_METHOD = "planes"
DEFAULT_FLOOR_METHOD = "support"

BUILT_IN = {
    ALIGNMENT_GROUP: {
        "planes": "stretch_sim_cal.calibration.alignment.planes:PlaneAlignment",
        "gicp": "stretch_sim_cal.calibration.published:GicpAlignment",
        "published": "stretch_sim_cal.calibration.published:PublishedAlignment",
    },
    FLOOR_GROUP: {
        "support": "stretch_sim_cal.calibration.floor.support_method:SupportFloor",
        "published": "stretch_sim_cal.calibration.published:PublishedFloor",
        "published_code": "stretch_sim_cal.calibration.published:PublishedCodeFloor",
    },
}

ALIGNMENT_METHODS_HELP, FLOOR_METHODS_HELP = (
    f"one of {', '.join(BUILT_IN[group])}, or one of another package (default: {default})"
    for group, default in ((ALIGNMENT_GROUP, DEFAULT_ALIGNMENT_METHOD), (FLOOR_GROUP, DEFAULT_FLOOR_METHOD))
)


def alignment_method(name: str = DEFAULT_ALIGNMENT_METHOD) -> Callable:
    """Return the alignment method of this name. Raises `InputError` that lists the known names."""
    return _load(ALIGNMENT_GROUP, name)


def floor_method(name: str = DEFAULT_FLOOR_METHOD) -> Callable:
    """Return the floor method of this name. Raises `InputError` that lists the known names."""
    return _load(FLOOR_GROUP, name)


def floor_method_names() -> list[str]:
    """Return the names of all floor methods, sorted."""
    return sorted(_known(FLOOR_GROUP))


def _known(group: str) -> dict[str, EntryPoint]:
    """Return name -> entry point; methods of this package cannot be replaced."""
    known = {entry.name: entry for entry in entry_points(group=group)}
    known.update({name: EntryPoint(name, target, group) for name, target in BUILT_IN[group].items()})
    return known


def _load(group: str, name: str) -> Callable:
    # A search through all installed packages takes a while; methods of this one do not need it.
    known = {name: EntryPoint(name, BUILT_IN[group][name], group)} if name in BUILT_IN[group] else _known(group)
    if name not in known:
        kind = group.rpartition(".")[2].replace("_", " ").removesuffix("s")
        raise InputError(f"'{name}' is not a known {kind}; available: {', '.join(sorted(known))}")
    try:
        return known[name].load()
    except (ImportError, AttributeError) as error:
        raise InputError(f"method '{name}' cannot be loaded from {known[name].value}: {error}") from error
