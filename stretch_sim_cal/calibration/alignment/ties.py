"""The pairs of lidars that tie a robot's lidars together: those whose views agree under one transform.

All pairs whose views overlap by the description are aligned coarsely by their views alone (`coarse.py`). Those that
agree with the largest overlaps are a tree, from the first lidar outwards, along which the first poses are computed; the
estimate then uses all pairs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from stretch_sim_cal.calibration.alignment.second_opinion import SecondOpinion
from stretch_sim_cal.calibration.coarse import coarse_alignment, credible
from stretch_sim_cal.calibration.consistency import Consistency, Views, between
from stretch_sim_cal.calibration.finding import Finding
from stretch_sim_cal.calibration.findings import MIN_OVERLAP, model_findings, wrong_minimum
from stretch_sim_cal.calibration.problem import UNKNOWN, State
from stretch_sim_cal.calibration.settings import AlignmentSettings
from stretch_sim_cal.calibration.surfaces import Surface
from stretch_sim_cal.errors import Refused
from stretch_sim_cal.geometry.transforms import exp, inverse
from stretch_sim_cal.sensor.unit import RANGE_OFFSET, RANGE_SCALE, ErrorModel

# Views of three lidars or more with a smaller overlap under the description are not aligned: they may fit in a wrong
# place as well. If they fit with the description's poses exchanged, their topics may be exchanged.
WORTH_TRYING = 0.5 * MIN_OVERLAP

Pair = tuple[int, int]


@dataclass(frozen=True)
class Ties:
    """First `poses` (4, 4) of the lidars in the first one's frame, along the tree from `given` ones; the `transforms`
    (4, 4) and overlaps of the pairs that tie lidars, the lower number first; the `tree` of (parent, child), from the
    first lidar outwards; and the agreement of pairs that overlap but are `left_out`, with the reasons."""

    poses: tuple[np.ndarray, ...]
    given: list[np.ndarray]
    transforms: dict[Pair, tuple[np.ndarray, float]]
    tree: list[Pair]
    left_out: dict[Pair, tuple[Consistency, list[Finding]]] = field(default_factory=dict)

    @property
    def pairs(self) -> list[Pair]:
        """The pairs of lidars that tie each other, in order."""
        return sorted(self.transforms)

    @property
    def tied(self) -> set[int]:
        """The lidars that are tied to the first one, itself included."""
        tied = {0}
        for parent, child in self.tree:
            if parent in tied:
                tied.add(child)
        return tied

    def without(self, unfit: Mapping[Pair, tuple[Consistency, list[Finding]]]) -> "Ties":
        """Return the ties without some pairs, which are left out for these reasons."""
        transforms = {pair: transform for pair, transform in self.transforms.items() if pair not in unfit}
        return _grown(transforms, self.given, self.left_out | dict(unfit))

    def moved(self, twists: Mapping[Pair, np.ndarray]) -> tuple[np.ndarray, ...]:
        """Return the poses after twists (6,), by pair, of its second lidar against the first in the common frame."""
        changes = [np.eye(4)] * len(self.poses)
        for parent, child in self.tree:
            change = exp(twists[parent, child]) if parent < child else inverse(exp(twists[child, parent]))
            changes[child] = changes[parent] @ change
        return tuple(change @ pose for change, pose in zip(changes, self.poses, strict=True))

    def covariance(self, of_pairs: Mapping[Pair, np.ndarray]) -> np.ndarray:
        """Return the covariance (6 (n - 1), 6 (n - 1)) of the poses along the tree by those (6, 6) of pairs."""
        count = len(self.poses)
        result = np.zeros((6 * count, 6 * count))
        for lidar in set(range(1, count)) - self.tied:
            result[6 * lidar : 6 * lidar + 6, 6 * lidar : 6 * lidar + 6] = UNKNOWN**2 * np.eye(6)
        below = {lidar: {lidar} for lidar in range(count)}
        for parent, child in reversed(self.tree):
            below[parent] |= below[child]
        for parent, child in self.tree:
            moves = np.zeros(count)
            moves[list(below[child])] = 1.0
            result += np.kron(np.outer(moves, moves), of_pairs[min(parent, child), max(parent, child)])
        return result[6:, 6:]


def coarse_ties(
    surfaces: Sequence[Surface], initial: Sequence[np.ndarray | None], settings: AlignmentSettings,
    names: Sequence[str],
) -> Ties:  # fmt: skip
    """Return the ties between lidars, by `names`, from their surfaces, each in its own frame, and the description's
    poses (4, 4) in the first one's frame, or None. Two lidars are always tied, however small the overlap is: it is
    checked later."""
    if len(surfaces) == 2:
        second_to_first = coarse_alignment(*surfaces, initial[1], settings)
        return _grown({(0, 1): (second_to_first, 1.0)}, [np.eye(4), second_to_first], {})
    transforms, left_out = {}, {}
    for first in range(len(surfaces)):
        for second in range(first + 1, len(surfaces)):
            pair, views = (first, second), Views(surfaces[first], surfaces[second])
            given = None
            if initial[first] is not None and initial[second] is not None:
                given = between(initial, pair)
                swapped = views.under(inverse(given))
                if views.under(given).overlap < WORTH_TRYING and not (
                    swapped.overlap >= MIN_OVERLAP and credible(swapped)
                ):
                    continue
            try:
                transform = coarse_alignment(surfaces[first], surfaces[second], given, settings)
            except Refused:
                continue
            agreement = views.under(transform)
            if agreement.overlap < MIN_OVERLAP:
                continue
            # Views with a small overlap may fit in a wrong place as well: a transform far from the description is not
            # used.
            against = model_findings(given, transform, [names[lidar] for lidar in pair])
            why = wrong_minimum(agreement, near=given is not None) or sum(against, [])
            if why:
                left_out[pair] = agreement, why
            else:
                transforms[pair] = transform, agreement.overlap
    return _grown(transforms, [np.eye(4) if pose is None else pose for pose in initial], left_out)


def _grown(transforms: dict[Pair, tuple[np.ndarray, float]], given: list[np.ndarray], left_out: dict) -> Ties:
    """Return the ties with the tree of the largest overlaps (maximum spanning tree), and the poses along it."""
    poses, tree, reached = list(given), [], set()
    for root in range(len(poses)):
        if root in reached:
            continue
        reached.add(root)
        while True:
            edges = [pair for pair in transforms if len(reached & set(pair)) == 1]
            if not edges:
                break
            pair = max(edges, key=lambda edge: transforms[edge][1])
            parent, child = pair if pair[0] in reached else pair[::-1]
            step = transforms[pair][0] if parent < child else inverse(transforms[pair][0])
            poses[child] = poses[parent] @ step
            tree.append((parent, child))
            reached.add(child)
    return Ties(tuple(poses), given, transforms, tree, left_out)


def started(coarse: State, opinions: Mapping[Pair, SecondOpinion], ties: Ties, models: Sequence[ErrorModel]) -> State:
    """Return the initial state of the estimate: the `coarse` one, unless the ranges of two lidars differ by a larger
    share than those of two sound ones; then patches would match by chance only. It is also the `coarse` one if sensor
    files exclude range errors: initial ones would stay."""
    excluded = any(model.spread.range_offset == 0.0 or model.spread.range_scale == 0.0 for model in models)
    if excluded or not any(opinion.much_longer for opinion in opinions.values()):
        return coarse
    longer = np.zeros((len(opinions), len(coarse.units)))
    for row, pair in zip(longer, opinions, strict=True):
        row[list(pair)] = 1.0, -1.0
    # The mean over all lidars is unobservable and stays 0.
    changes = np.linalg.pinv(longer) @ [(opinion.offset, opinion.scale) for opinion in opinions.values()]
    units = [values.copy() for values in coarse.units]
    for values, change in zip(units, changes, strict=True):
        values[[RANGE_OFFSET, RANGE_SCALE]] = change
    poses = ties.moved({pair: opinion.twist for pair, opinion in opinions.items()})
    return replace(coarse, base_from_lidar=poses, units=tuple(units))
