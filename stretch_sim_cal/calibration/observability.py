"""Says in words how well each direction of a transform is determined."""

import numpy as np

from stretch_sim_cal.calibration.results import Direction

# An axis that is this close to a base axis is named after it.
_AXIS_COSINE = np.cos(np.deg2rad(25.0))


def covariance_of(information: np.ndarray, weakest: float = 1e-12) -> np.ndarray:
    """Return the covariance (6, 6) of an information matrix (6, 6); directions without information become infinite-like.

    Directions whose eigenvalue is below `weakest` times the largest get a variance of 1e6 (m or rad squared), so that
    the result stays finite and symmetric.
    """
    values, vectors = np.linalg.eigh((information + information.T) / 2)
    largest = max(values[-1], 0.0)
    variances = np.where(values > weakest * largest, 1.0 / np.maximum(values, 1e-300), 1e6)
    return (vectors * np.minimum(variances, 1e6)) @ vectors.T


def directions(covariance: np.ndarray, base_from_target: np.ndarray | None, max_std_translation: float,
               max_std_rotation: float) -> list[Direction]:  # fmt: skip
    """Return the three sliding and three turning directions of a covariance (6, 6), weakest first within each kind.

    They are the principal axes of the translation's and of the rotation's covariance. `base_from_target` (4, 4) turns
    them into base_link's axes; without it they are named in the left lidar's axes.
    """
    frame = "lidar" if base_from_target is None else "base"
    rotation = np.eye(3) if base_from_target is None else base_from_target[:3, :3]
    found = []
    for block, verb, bound in (
        (slice(0, 3), "sliding along", max_std_translation),
        (slice(3, 6), "turning about", max_std_rotation),
    ):
        variances, axes = np.linalg.eigh(rotation @ covariance[block, block] @ rotation.T)
        for variance, axis in sorted(zip(variances, axes.T, strict=True), key=lambda pair: -pair[0]):
            std = float(np.sqrt(max(variance, 0.0)))
            found.append(Direction(f"{verb} {axis_name(axis, frame)}", std if std < 100.0 else float("inf"), bound))
    return found


def axis_name(axis: np.ndarray, frame: str) -> str:
    """Return words for a unit vector (3,): "base x" where it is near an axis, else its components."""
    strongest = int(np.argmax(np.abs(axis)))
    if abs(axis[strongest]) >= _AXIS_COSINE:
        return f"{frame} {'xyz'[strongest]}"
    axis = axis * np.sign(axis[strongest])
    return f"{frame} ({', '.join(f'{component:.1f}' for component in axis + 0.0)})"


def unobserved(found: list[Direction]) -> list[str]:
    """Return one sentence for every direction that exceeds its bound."""
    sentences = []
    for direction in found:
        if not direction.observed:
            sentences.append(
                f"the scene does not determine {direction.name}: standard deviation {_said(direction.standard_deviation, direction)}, "
                f"at most {_said(direction.bound, direction)} is allowed; turn the robot or move it to where more surfaces face that way"
            )
    return sentences


def _said(value: float, direction: Direction) -> str:
    if not np.isfinite(value):
        return "unbounded"
    if direction.name.startswith("sliding"):
        return f"{1000.0 * value:.2g} mm"
    return f"{np.rad2deg(value):.2g} deg"
