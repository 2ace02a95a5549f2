"""A start for the fit that no carpet, step or second level can pull: least trimmed squares over patches of floor.

Of all planes, the one that the better part of the floor lies on most exactly; floor near the robot counts more than far
floor (P. Rousseeuw and K. Van Driessen, "Computing LTS regression for large data sets", 2006, with weights).
"""

import numpy as np

SHARE = 0.45  # of the floor's weight that has to agree; what a second level may not hide behind
HYPOTHESES = 300
REFINED = 12
CONCENTRATIONS = 12
QUANTILE_OF_NORMAL = 0.5978  # of |z|, at that share
# Patches count by how near they are: those within NEARNESS (m) as much as twice all the others together, if all are
# seen.
NEARNESS = 0.6
FAR_WEIGHT = 0.03
LEAST_SCALE = 0.0003  # m; agreement closer than this is not looked for


def consensus_step(
    heights: np.ndarray, noise: np.ndarray, slopes: np.ndarray, distances: np.ndarray
) -> tuple[np.ndarray, float] | None:
    """Return the step (3,) to the plane most patches agree on, and their scatter about it beyond noise (m).

    `heights` (P,), `noise` (P,) and `slopes` (P, 3) are those of the patches over the assumed floor, `distances` (P,)
    how far each lies from the robot. None where no three patches span a plane.
    """
    weights = np.maximum(np.exp(-(distances**2) / (2 * NEARNESS**2)), FAR_WEIGHT)
    scale = np.hypot(noise, LEAST_SCALE)
    candidates = _steps_through_triples(heights, slopes, weights)
    if not len(candidates):
        return None
    scores, _ = _scores(np.abs(heights + candidates @ slopes.T) / scale, weights)
    steps = candidates[np.argsort(scores, kind="stable")[:REFINED]]
    for _ in range(CONCENTRATIONS):
        ratios = np.abs(heights + steps @ slopes.T) / scale
        agreeing = ratios <= _scores(ratios, weights)[1][:, None]
        steps = _least_squares(heights, slopes, agreeing * weights / scale**2, steps)
    best = steps[np.argmin(_scores(np.abs(heights + steps @ slopes.T) / scale, weights)[0])]
    residuals = np.abs(heights + slopes @ best)
    spread = _quantiles(residuals[None], weights, SHARE)[0] / QUANTILE_OF_NORMAL
    usual_noise = _quantiles(noise[None], weights, 0.5)[0]
    return best, float(np.sqrt(max(spread**2 - usual_noise**2, 0.0)))


def _steps_through_triples(heights: np.ndarray, slopes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return steps (H, 3) to planes through three patches each, the same random ones in every run."""
    rng = np.random.default_rng(0)
    chances = np.sqrt(weights)  # between what counts most and what spans the floor
    triples = rng.choice(len(heights), size=(HYPOTHESES, 3), p=chances / chances.sum())
    systems = slopes[triples]
    spanning = np.abs(np.linalg.det(systems)) > 0.2  # m2, twice the triangle's area
    return np.linalg.solve(systems[spanning], -heights[triples][spanning][:, :, None])[:, :, 0]


def _scores(ratios: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the trimmed sums of squares (H,) of residuals in units of their noise (H, P), and where each is
    trimmed."""
    limits = _quantiles(ratios, weights, SHARE)
    return np.where(ratios <= limits[:, None], ratios**2, 0.0) @ weights, limits


def _quantiles(values: np.ndarray, weights: np.ndarray, share: float) -> np.ndarray:
    """Return the weighted quantile (H,) of each row of values (H, P)."""
    order = np.argsort(values, axis=1, kind="stable")
    cumulated = np.cumsum(weights[order], axis=1)
    place = np.argmax(cumulated >= share * cumulated[:, -1:], axis=1)
    return np.take_along_axis(values, np.take_along_axis(order, place[:, None], axis=1), axis=1)[:, 0]


def _least_squares(heights: np.ndarray, slopes: np.ndarray, weights: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """Return the step (H, 3) for each row of weights (H, P); where one leaves it undetermined, the row of
    `otherwise`."""
    normal = np.einsum("hp,pi,pj->hij", weights, slopes, slopes, optimize=True)
    determined = np.linalg.cond(normal) < 1e8
    steps = otherwise.copy()
    right = -(weights[determined] * heights) @ slopes
    steps[determined] = np.linalg.solve(normal[determined], right[:, :, None])[:, :, 0]
    return steps
