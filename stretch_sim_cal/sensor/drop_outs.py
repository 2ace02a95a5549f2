"""How a lidar loses returns: at random, and more often the weaker their echo is, from images of still scans. The
intensity of a lost return is that of its neighbours in the ring, if both agree in range and intensity."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Neighbours of a lost return agree in range (share, and m) and intensity (share, and of 255).
ALIKE_RANGE, ALIKE_INTENSITY = (0.02, 0.05), (0.1, 3.0)
MIN_TRIALS = 1000
# Weak echoes count as lost if that is likelier than losses at random by so much (logarithm of the likelihood).
TELLING = 8.0


@dataclass(frozen=True)
class DropOuts:
    """A return of intensity i is lost with probability `rate` + exp(-i / 255 / `echo`); with standard deviations.
    `echo` is 0, and its deviation infinite, if it is not observable. `trials` returns were tested."""

    rate: float
    rate_deviation: float
    echo: float
    echo_deviation: float
    trials: int


def drop_outs(images: Sequence[np.ndarray]) -> DropOuts | None:
    """Return how returns are lost, None for too few of them; `images` (2, C, A) hold ranges (m) and intensities (0 to
    255) by channel and column, NaN for no return."""
    intensities, lost = [], []
    for image in images:
        before, after = np.roll(image, 1, axis=2), np.roll(image, -1, axis=2)
        apart = np.abs(after - before)
        alike = (apart[0] < ALIKE_RANGE[0] * before[0] + ALIKE_RANGE[1]) & (
            apart[1] < ALIKE_INTENSITY[0] * before[1] + ALIKE_INTENSITY[1]
        )
        intensities.append(0.5 * (before[1] + after[1])[alike])
        lost.append(np.isnan(image[0])[alike])
    return _lost_by_intensity(np.concatenate(intensities), np.concatenate(lost))


def _lost_by_intensity(intensity: np.ndarray, lost: np.ndarray) -> DropOuts | None:
    from scipy.optimize import minimize  # takes a tenth of a second to import, which every node would pay

    if len(intensity) < MIN_TRIALS:
        return None
    levels = np.clip(np.nan_to_num(np.round(intensity)), 0, 255).astype(int)
    trials, misses = np.bincount(levels, minlength=256), np.bincount(levels, lost, minlength=256)
    at = np.flatnonzero(trials)
    trials, misses = trials[at], misses[at]
    number, missed = int(trials.sum()), float(misses.sum())
    share = missed / number

    def improbability(chance: np.ndarray) -> float:
        return -float(misses @ np.log(chance) + (trials - misses) @ np.log1p(-chance))

    def cost(parameters):
        rate, echo = np.exp(parameters)
        return improbability(np.clip(rate + (1.0 - rate) * np.exp(-at / 255.0 / echo), 1e-9, 1.0 - 1e-9))

    starts = [np.log([max(share, 1e-5), echo]) for echo in (0.003, 0.01, 0.03)]
    best = min((minimize(cost, start, method="Nelder-Mead") for start in starts), key=lambda found: found.fun)
    # What weak echoes do shows only if some are lost beyond what the rate explains.
    if improbability(np.full(len(at), np.clip(share, 1e-12, 1.0 - 1e-9))) - best.fun < TELLING:
        return DropOuts(share, float(np.sqrt(max(missed, 1.0)) / number), 0.0, np.inf, number)
    rate, echo = map(float, np.exp(best.x))
    spread = np.sqrt(np.maximum(np.diag(np.linalg.pinv(_second_derivatives(cost, best.x))), 0.0))
    return DropOuts(rate, float(rate * spread[0]), echo, float(echo * spread[1]), number)


def _second_derivatives(function, at: np.ndarray) -> np.ndarray:
    step = 1e-3
    steps = step * np.eye(len(at))
    return np.array([
        [(function(at + a + b) - function(at + a - b) - function(at - a + b) + function(at - a - b)) / (4 * step**2)
         for b in steps] for a in steps
    ])  # fmt: skip
