"""Whether an alignment may be believed: against the model it started from."""

import numpy as np

from stretch_sim_cal.calibration.alignment_settings import AlignmentSettings
from stretch_sim_cal.geometry.transforms import error, inverse


def model_warnings(initial: np.ndarray | None, estimate: np.ndarray, settings: AlignmentSettings) -> list[str]:
    """Return what is odd about `estimate` when held against the description's `initial` transform (4, 4)."""
    if initial is None:
        return []
    distance, angle = error(initial, estimate)
    if distance <= settings.max_model_translation and angle <= settings.max_model_rotation:
        return []
    said = f"far from the description's transform: {1000.0 * distance:.0f} mm and {np.rad2deg(angle):.1f} deg"
    swapped_distance, swapped_angle = error(inverse(initial), estimate)
    if swapped_angle < angle and swapped_distance < settings.max_model_translation:
        return [f"{said}; near its inverse, so the left and the right cloud seem to be swapped"]
    return [f"{said}; check the model, the mounts and whether left and right are swapped"]
