"""Calibrate a mobile manipulator's two lidars, and prove it in simulation first.

    import stretch_sim_cal as cal

    rig = cal.Rig.from_urdf("robot.urdf", sensor="jt128")
    result = cal.calibrate(rig, left_clouds, right_clouds)
    result.save("calibration.yaml")

What can be used from here is in `stretch_sim_cal/api.py`. It is imported when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stretch_sim_cal.api import (
        DrivingSettings,
        Finding,
        RecordedClouds,
        Result,
        Rig,
        SensorError,
        calibrate,
        calibrate_by_driving,
        open_drive,
        open_recording,
        sensor_of,
    )
    from stretch_sim_cal.simulated import Simulated, simulate
    from stretch_sim_cal.truth import Errors, Truth

__version__ = "1.0.0"
_ELSEWHERE = {"Errors": "truth", "Simulated": "simulated", "Truth": "truth", "simulate": "simulated"}
__all__ = [
    "DrivingSettings", "Errors", "Finding", "RecordedClouds", "Result", "Rig", "SensorError", "Simulated", "Truth",
    "calibrate", "calibrate_by_driving", "open_drive", "open_recording", "sensor_of", "simulate",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"{__name__}.{_ELSEWHERE.get(name, 'api')}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
