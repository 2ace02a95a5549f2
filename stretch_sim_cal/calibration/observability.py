"""The directions of a transform with their standard deviations, in numbers and in words."""

from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.calibration.finding import MORE_SURFACES, Finding, when

# An axis that is this close to a base axis is named after it.
_AXIS_COSINE = np.cos(np.deg2rad(25.0))
# A direction without information gets this standard deviation (m, rad): more than two lidars of a robot are apart.
UNOBSERVED = 1.0
# A direction this much weaker than its bound is separated from the others.
_UNCONSTRAINED = 20.0
_TURNING_SHARE = 0.1
# Principal axes whose deviations differ by less than this factor are chosen by chance within their span.
_ALIKE = 1.5


@dataclass(frozen=True)
class Direction:
    """One direction of a transform: `name` in words ("sliding along base x", "turning about base z"),
    `standard_deviation`, infinite if the scene does not determine it, and `bound`, in m for sliding, in rad for
    turning."""

    name: str
    standard_deviation: float
    bound: float

    @property
    def unit(self) -> str:
        """The unit for messages."""
        return "deg" if self.name.startswith("turning") else "mm"

    @property
    def factor(self) -> float:
        """Units per rad or m."""
        return float(np.degrees(1.0)) if self.unit == "deg" else 1e3

    def formatted(self, size: float, form: str = ".2g") -> str:
        """Return a size along this direction (m or rad) by a format, with its unit; in words if it is infinite."""
        return f"{self.factor * size:{form}} {self.unit}" if np.isfinite(size) else "unbounded"

    @property
    def observed(self) -> bool:
        """Whether the standard deviation stays within the bound."""
        return self.standard_deviation <= self.bound


def covariance_of(information: np.ndarray) -> np.ndarray:
    """Return the covariance (6, 6) of an information matrix (6, 6) that may lack directions, or be slightly indefinite;
    standard deviations are at most `UNOBSERVED`."""
    values, axes = np.linalg.eigh((information + information.T) / 2)
    return (axes / np.maximum(values, UNOBSERVED**-2)) @ axes.T


def directions(covariance: np.ndarray, base_from_target: np.ndarray | None, max_std_translation: float,
               max_std_rotation: float) -> list[Direction]:  # fmt: skip
    """Return the three sliding and three turning directions of a covariance (6, 6), weakest first within each kind.

    They are the principal axes of the translation's and of the rotation's covariance; for equally weak ones, the axes
    of their span nearest to the frame's. `base_from_target` (4, 4) turns them into base_link's axes; without it they
    are in the left lidar's axes.
    """
    frame = "lidar" if base_from_target is None else "base"
    rotation = np.eye(3) if base_from_target is None else base_from_target[:3, :3]
    sliding, turning = _by_kind(covariance, _UNCONSTRAINED * max(max_std_translation, max_std_rotation))
    kinds = (
        ("sliding along", sliding[:3, :3], max_std_translation), ("turning about", turning[3:, 3:], max_std_rotation)
    )  # fmt: skip
    return [
        Direction(f"{verb} {axis_name(axis, frame)}", deviation, bound)
        for verb, of_kind, bound in kinds
        for deviation, axis in _principal_directions(rotation @ of_kind @ rotation.T, bound)
    ]


def _principal_directions(covariance: np.ndarray, bound: float) -> list[tuple[float, np.ndarray]]:
    """Return standard deviations, infinite if unobserved, and orthogonal axes (3,) of a covariance (3, 3), weakest
    first. Equally weak axes, on the same side of `bound`, are replaced by those nearest to the frame's."""
    variances, axes = np.linalg.eigh(covariance)
    deviations = [_deviation(variance) for variance in variances]
    groups: list[list[int]] = []
    for number in reversed(range(len(axes))):
        if groups and _alike(deviations[groups[-1][0]], deviations[number], bound):
            groups[-1].append(number)
        else:
            groups.append([number])
    principal = []
    for group in groups:
        chosen = _along_the_frame(axes[:, group]) if len(group) > 1 else axes[:, group].T
        pairs = [(_deviation(axis @ covariance @ axis), axis) for axis in chosen]
        principal += sorted(pairs, key=lambda pair: -pair[0])
    return principal


def _deviation(variance: float) -> float:
    std = float(np.sqrt(max(variance, 0.0)))
    return std if std < 0.5 * UNOBSERVED else np.inf


def _alike(weaker: float, stronger: float, bound: float) -> bool:
    if np.isinf(weaker) or np.isinf(stronger):
        return weaker == stronger
    return weaker <= _ALIKE * stronger and (weaker > bound) == (stronger > bound)


def _along_the_frame(spanned: np.ndarray) -> np.ndarray:
    """Return an orthonormal basis (k, 3) of the span of columns (3, k), each as near as possible to a frame's axis."""
    basis = []
    projection = spanned @ spanned.T
    for _ in range(spanned.shape[1]):
        # The frame's axis with the largest projection onto the remaining span.
        nearest = int(np.argmax(np.diag(projection)))
        axis = projection[nearest] / np.sqrt(projection[nearest, nearest])
        basis.append(axis)
        projection = projection - np.outer(axis, axis)
    return np.array(basis)


def _by_kind(covariance: np.ndarray, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """Return two covariances (6, 6), one for translations, one for rotations. Axes weaker than `threshold` are of one
    kind only: in a corridor, the turning in the axis that slides is an artefact; if nothing determines a turning, the
    sliding with it depends on the origin."""
    values, vectors = np.linalg.eigh(covariance)
    weak = np.sqrt(np.maximum(values, 0.0)) >= threshold
    rest = (vectors[:, ~weak] * values[~weak]) @ vectors[:, ~weak].T
    if not weak.any():
        return rest, rest
    subspace = vectors[:, weak] * np.sqrt(values[weak])
    # Weak axes with hardly any turning are sliding ones.
    _, turned, combinations = np.linalg.svd(vectors[3:, weak])
    turned = np.concatenate([turned, np.zeros(len(combinations) - len(turned))])
    of_kind = [subspace @ combinations[chosen].T for chosen in (turned < _TURNING_SHARE, turned >= _TURNING_SHARE)]
    return rest + of_kind[0] @ of_kind[0].T, rest + of_kind[1] @ of_kind[1].T


def axis_name(axis: np.ndarray, frame: str) -> str:
    """Return a unit vector (3,) in words: "base x" if it is near an axis, else its components."""
    strongest = int(np.argmax(np.abs(axis)))
    if abs(axis[strongest]) >= _AXIS_COSINE:
        return f"{frame} {'xyz'[strongest]}"
    axis = axis * np.sign(axis[strongest])
    return f"{frame} ({', '.join(f'{component:.1f}' for component in axis + 0.0)})"


def unobserved(directions: list[Direction]) -> list[Finding]:
    """Return a finding for every direction that exceeds its bound."""
    findings = []
    for direction in directions:
        deviation, bound = map(direction.formatted, (direction.standard_deviation, direction.bound))
        sentence = f"standard deviation {deviation}, at most {bound} is allowed"
        sentence = f"the scene does not determine {direction.name}: {sentence}"
        findings += when(not direction.observed, "unobserved", sentence, MORE_SURFACES)
    return findings
