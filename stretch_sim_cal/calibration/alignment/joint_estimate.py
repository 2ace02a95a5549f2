"""The lidars' poses by the patches of the rooms that they see, from all standing places, in one estimate."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stretch_sim_cal.calibration.noise import Noise
from stretch_sim_cal.calibration.normal_equations import NormalEquations
from stretch_sim_cal.calibration.problem import State
from stretch_sim_cal.calibration.room import SOMEBODY, RoomBlock, room_block
from stretch_sim_cal.calibration.solver import Solution, Solver
from stretch_sim_cal.calibration.surfaces import Lidar
from stretch_sim_cal.geometry.transforms import apply, exp, inverse, log

# How far (m) the lidars' surfaces may still be apart, after the coarse stage and in the passes that follow, and into
# how many shifted grids of patches they are cut: the bias by a grid's borders is different in each.
PASSES = ((0.01, 1), (0.002, 1), (0.0, 2), (0.0, 2))
# The last one is repeated, at most so often, until the poses change by a smaller share of their standard deviations:
# with a smaller bound, directions that only noise determines would drift from the guess (`noise_information` in
# `Solver.solve`).
CONVERGED, MAX_REPEATS = 0.5, 24
# If a step is longer than this share of the one before it, the steps to come are taken at once, at most so many times
# as far; steps that are shorter than so many standard deviations are noise.
SLOW, FURTHEST, NOISE_STEP = 0.5, 10.0, 0.15
# Only along axes with a smaller standard deviation (m, rad): along others noise would lead away from the guess.
DETERMINED = 0.002
# After that a step as short as this, in standard deviations, is the last one.
STILL = 0.1
# How far (m, rad) away, to both sides, an estimate is tried from elsewhere: there other cells are next to each other,
# which may fit as well.
ELSEWHERE, ELSEWHERE_TURNED = 0.03, float(np.deg2rad(0.1))
# What the surfaces determine with a smaller standard deviation (m), if the lidars' errors are known, is not tried: in
# rooms it is 0.1 to 0.4 mm. Nor is a rotation of which less than such a share of the information is of curved surfaces
# and clutter.
SURE, CLUTTER = 5e-4, 0.35
# A direction hinges on one place that has more than this share of the information about it. Without it a lidar may be
# so far (m) elsewhere by chance: people move by centimetres.
HINGES, MOVED = 0.25, 0.005
# Ends that are closer to each other, in standard deviations, are the same.
SAME_END = 2.0


@dataclass(frozen=True)
class JointEstimate:
    """The `state` after the last pass, and its `solution` with the `equations`, of whose information about the poses
    `noise_information` (6 (n - 1), 6 (n - 1)) is by noise alone, and the `blocks` (by place) that gave it."""

    state: State
    solution: Solution
    equations: NormalEquations
    noise_information: np.ndarray
    blocks: list[RoomBlock]


def estimate_jointly(places: Sequence[tuple[Lidar, ...]], state: State, solver: Solver) -> JointEstimate:
    """Return the estimate, from a first state, by the patches of the rooms that the lidars see from all standing
    places."""
    noises, before = [Noise.first(len(places[0]))] * len(places), None
    for number in range(len(PASSES) + MAX_REPEATS):
        slack, grids = PASSES[min(number, len(PASSES) - 1)]
        blocks = [room_block(lidars, state, noise, slack, grids) for lidars, noise in zip(places, noises, strict=True)]
        equations = NormalEquations.empty(solver.unknowns.size)
        for block, lidars in zip(blocks, places, strict=True):
            block.add_to(equations, solver.unknowns, lidars)
        noise_information = sum(block.noise_information() for block in blocks)
        # Far from the solution much looks like a wrong scale.
        state, solution = solver.step(equations, state, noise_information, far=slack == 0.0)
        noises = [block.noise for block in blocks]
        poses = solver.unknowns.free_poses
        change, covariance = solution.change[poses], solution.covariance[np.ix_(poses, poses)]
        variances, axes = np.linalg.eigh(covariance)
        axes *= np.sqrt(variances)
        step = np.linalg.solve(axes, change)
        ahead = np.zeros(len(step)) if before is None else _ahead(step, before) * (variances < DETERMINED**2)
        last = STILL if before is None else CONVERGED
        if number < len(PASSES) - 1:
            before = None if slack else step
            continue
        if np.linalg.norm(step + ahead) < last * np.sqrt(len(step)):
            break
        further = np.zeros(solver.unknowns.size)
        further[poses] = axes @ ahead
        state = solver.unknowns.moved(state, further)
        # Of the next step only one that followed this one at once tells how steps become shorter.
        before = None if ahead.any() else step
    return JointEstimate(state, solution, equations, noise_information, blocks)


def _ahead(step: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return how far (n,) it is on from a step and the one before, in standard deviations along the axes of the
    covariance, where steps become shorter slowly, as they do where much is of curved surfaces and clutter."""
    steady = np.minimum(np.abs(step), np.abs(before)) > NOISE_STEP
    ratios = np.divide(step, before, out=np.zeros(len(step)), where=steady)
    ratios = np.clip(ratios, 0.0, 1.0 - 1.0 / (1.0 + FURTHEST))
    return step * np.where(ratios > SLOW, ratios / (1.0 - ratios), 0.0)


def other_ends(places: Sequence[tuple[Lidar, ...]], found: JointEstimate, solver: Solver) -> np.ndarray:
    """Return the covariance (6 (n - 1), 6 (n - 1)) of where the estimate ends if a lidar begins elsewhere, along the
    direction that its surfaces determine least, over that of the estimate: zero if it ends where it did, or if that
    direction is sure.

    The estimate's own covariance holds for the cells that are next to each other. If these depend on the start, as a
    few small things and the edges of large ones do, there are several ends, each of which seems to be sure.
    """
    free = solver.unknowns.free_poses
    covariance = found.solution.covariance[np.ix_(free, free)]
    result = np.zeros_like(covariance)
    information = result + sum(block.pose_information() for block in found.blocks)
    of_clutter = result + sum(block.elements.information for block in found.blocks if block.elements is not None)
    for lidar, turning in itertools.product(range(1, len(found.state.base_from_lidar)), (False, True)):
        first = 6 * lidar - 6 + 3 * turning
        own = slice(first, first + 3)
        (least, *_), directions = np.linalg.eigh((information - found.noise_information)[own, own])
        direction = directions[:, 0]
        clutter, whole = (direction @ matrix[own, own] @ direction for matrix in (of_clutter, information))
        if (clutter < CLUTTER * whole) if turning else (least > SURE**-2):
            continue
        start = np.zeros(6)
        start[3 * turning : 3 * turning + 3] = (ELSEWHERE_TURNED if turning else ELSEWHERE) * direction
        end = _ends(places, found.state, solver, lidar, start)
        same = SAME_END**2 * direction @ covariance[own, own] @ direction
        if not turning or (end[own] @ direction) ** 2 > same:
            end = max(end, _ends(places, found.state, solver, lidar, -start), key=lambda end: abs(end[own] @ direction))
        if (end[own] @ direction) ** 2 > same:
            result += np.outer(end, end)
    return result


def leave_one_place_out(places: Sequence[tuple[Lidar, ...]], found: JointEstimate, solver: Solver) -> np.ndarray:
    """Return the covariance (6 (n - 1), 6 (n - 1)), over that of the estimate, of where a lidar is without what was
    seen around one point, if that has more than `HINGES` of the information along the direction that is determined
    least: a person may have stood there, and moved. Zero if it is where all say."""
    free = solver.unknowns.free_poses
    covariance = found.solution.covariance[np.ix_(free, free)]
    result = np.zeros_like(covariance)
    for lidar, (number, block) in itertools.product(
        range(1, len(found.state.base_from_lidar)), enumerate(found.blocks)
    ):
        own = slice(6 * lidar - 6, 6 * lidar - 3)
        direction = np.zeros(len(covariance))
        direction[own] = np.linalg.eigh(covariance[own, own])[1][:, -1]
        moved = covariance @ direction
        centre, of_place = block.strongest_place(moved)
        share = of_place / max(sum(other.information_along(moved) for other in found.blocks), 1e-300)
        if share < HINGES:
            continue
        rest = list(places)
        rest[number] = tuple(
            each.only(np.linalg.norm(apply(pose, each.surface.points) - centre, axis=1) > SOMEBODY)
            for each, pose in zip(places[number], found.state.base_from_lidar, strict=True)
        )
        end = _change(found.state, estimate_jointly(rest, found.state, solver).state)
        if np.linalg.norm(end[own]) < MOVED:
            continue
        squares = end[own] @ np.linalg.solve(covariance[own, own], end[own])
        if squares * max(1.0 - share, 0.1) > 2.0 * SAME_END**2:  # of three values
            result += np.outer(end, end)
    return result


def _ends(
    places: Sequence[tuple[Lidar, ...]], state: State, solver: Solver, lidar: int, start: np.ndarray
) -> np.ndarray:  # fmt: skip
    """Return by which twists (6 (n - 1),) of all lidars but the first an estimate ends elsewhere that begins with one
    lidar moved by `start` (6,)."""
    poses = [exp(start) @ pose if number == lidar else pose for number, pose in enumerate(state.base_from_lidar)]
    return _change(state, estimate_jointly(places, replace(state, base_from_lidar=tuple(poses)), solver).state)


def _change(before: State, after: State) -> np.ndarray:
    """Return the twists (6 (n - 1),) of all lidars but the first from one state to another."""
    pairs = zip(after.base_from_lidar[1:], before.base_from_lidar[1:], strict=True)
    return np.concatenate([log(now @ inverse(pose)) for now, pose in pairs])
