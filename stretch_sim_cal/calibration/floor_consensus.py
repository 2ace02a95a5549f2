"""A start for the fit that no carpet, step or second level can pull: least trimmed squares over patches of floor.

Of all planes, the one that the better part of the floor lies on most exactly; floor near the robot counts more than far
floor (P. Rousseeuw and K. Van Driessen, "Computing LTS regression for large data sets", 2006, with weights).
"""

import numpy as np

SHARE = 0.45  # of the floor's weight that has to agree; what a second level may not hide behind
HYPOTHESES = 500
REFINED = 10
CONCENTRATIONS = 8
QUANTILE_OF_NORMAL = 0.5978  # of |z|, at that share
NEARNESS = 0.6  # m; a patch counts by exp(-r^2 / 2 NEARNESS^2), at least by FAR_WEIGHT
FAR_WEIGHT = 0.005
LEAST_SCALE = 0.0003  # m; agreement closer than this is not looked for


def consensus_step(
    heights: np.ndarray, noise: np.ndarray, slopes: np.ndarray, distances: np.ndarray
) -> tuple[np.ndarray, float] | None:
    """Return the step (3,) to the plane most patches agree on, and their scatter about it beyond noise (m).

    `heights` (P,), `noise` (P,) and `slopes` (P, 3) are those of the patches over the assumed floor, `distances` (P,) how
    far each lies from the robot. None where no three patches span a plane.
    """
    weights = np.maximum(np.exp(-(distances**2) / (2 * NEARNESS**2)), FAR_WEIGHT)
    scale = np.hypot(noise, LEAST_SCALE)
    candidates = _steps_through_triples(heights, slopes, weights)
    if not len(candidates):
        return None
    scores = [_score(np.abs(heights + slopes @ step) / scale, weights)[0] for step in candidates]
    best, best_score = None, np.inf
    for index in np.argsort(scores, kind="stable")[:REFINED]:
        step = candidates[index]
        for _ in range(CONCENTRATIONS):
            ratio = np.abs(heights + slopes @ step) / scale
            agreeing = ratio <= _score(ratio, weights)[1]
            step = _least_squares(heights[agreeing], slopes[agreeing], weights[agreeing] / scale[agreeing] ** 2, step)
        score = _score(np.abs(heights + slopes @ step) / scale, weights)[0]
        if score < best_score:
            best, best_score = step, score
    residuals = np.abs(heights + slopes @ best)
    spread = _weighted_quantile(residuals, weights, SHARE) / QUANTILE_OF_NORMAL
    usual_noise = _weighted_quantile(noise, weights, 0.5)
    return best, float(np.sqrt(max(spread**2 - usual_noise**2, 0.0)))


def _steps_through_triples(heights: np.ndarray, slopes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return steps (H, 3) to planes through three patches each, the same random ones in every run."""
    rng = np.random.default_rng(0)
    triples = rng.choice(len(heights), size=(HYPOTHESES, 3), p=weights / weights.sum())
    systems = slopes[triples]
    spanning = np.abs(np.linalg.det(systems)) > 0.05  # m2, twice the triangle's area
    return np.linalg.solve(systems[spanning], -heights[triples][spanning][:, :, None])[:, :, 0]


def _score(ratio: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Return the trimmed sum of squares of residuals in units of their noise, and where it is trimmed."""
    limit = _weighted_quantile(ratio, weights, SHARE)
    inside = ratio <= limit
    return float(weights[inside] @ ratio[inside] ** 2), limit


def _weighted_quantile(values: np.ndarray, weights: np.ndarray, share: float) -> float:
    order = np.argsort(values, kind="stable")
    cumulated = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(cumulated, share * cumulated[-1])])


def _least_squares(heights: np.ndarray, slopes: np.ndarray, weights: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    normal = (slopes * weights[:, None]).T @ slopes
    if np.linalg.cond(normal) > 1e8:
        return otherwise
    return -np.linalg.solve(normal, slopes.T @ (weights * heights))
