"""The conventions that a robot description can be checked against, by name."""

from stretch_sim_cal.conventions.icub import ICUB
from stretch_sim_cal.conventions.profile import Profile, has_errors, lint
from stretch_sim_cal.conventions.rep199 import REP199
from stretch_sim_cal.conventions.stretch import STRETCH
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.robot.model import RobotModel

PROFILES: dict[str, Profile] = {profile.name: profile for profile in (STRETCH, REP199, ICUB)}


def profile_named(name: str) -> Profile:
    """Return the profile called `name`. Raises `InputError` that lists those there are."""
    if name not in PROFILES:
        raise InputError(f"'{name}' is not a profile; available: {', '.join(PROFILES)}")
    return PROFILES[name]


def kept(model: RobotModel) -> Profile | None:
    """Return the first convention that applies to a model and finds no error in it, None if there is none."""
    suited = (each for each in PROFILES.values() if not each.silent(model))
    return next((each for each in suited if not has_errors(lint(model, each))), None)
