"""The lidars' poses by the patches of the rooms that they see, from all standing places, in one estimate."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.calibration.noise import Noise
from stretch_sim_cal.calibration.normal_equations import NormalEquations
from stretch_sim_cal.calibration.problem import State
from stretch_sim_cal.calibration.room import RoomBlock, room_block
from stretch_sim_cal.calibration.solver import Solution, Solver
from stretch_sim_cal.calibration.surfaces import Lidar

# How far (m) the lidars' surfaces may still be apart, after the coarse stage and in the passes that follow, and into
# how many shifted grids of patches they are cut: the bias by a grid's borders is different in each.
PASSES = ((0.01, 1), (0.002, 1), (0.0, 2), (0.0, 2))
# The last one is repeated, at most so often, until the poses change by a smaller share of their standard deviations:
# with a smaller bound, directions of which only noise tells would drift from the guess (`by_chance` in `Solver.solve`).
CONVERGED, MAX_REPEATS = 0.5, 12


@dataclass(frozen=True)
class JointEstimate:
    """The `state` after the last pass, and its `solution` with the `equations`, of whose information about the poses
    `by_chance` (6 (n - 1), 6 (n - 1)) is noise, and the `blocks` (by place) that gave it."""

    state: State
    solution: Solution
    equations: NormalEquations
    by_chance: np.ndarray
    blocks: list[RoomBlock]


def estimate_jointly(places: Sequence[tuple[Lidar, ...]], state: State, solver: Solver) -> JointEstimate:
    """Return the estimate, from a first state, by the patches of the rooms that the lidars see from all standing
    places."""
    noises = [Noise.first(len(places[0]))] * len(places)
    for number in range(len(PASSES) + MAX_REPEATS):
        slack, grids = PASSES[min(number, len(PASSES) - 1)]
        blocks = [room_block(lidars, state, noise, slack, grids) for lidars, noise in zip(places, noises, strict=True)]
        equations = NormalEquations.empty(solver.unknowns.size)
        for block, lidars in zip(blocks, places, strict=True):
            block.add_to(equations, solver.unknowns, lidars)
        by_chance = sum(block.noise_information() for block in blocks)
        # Far from the solution much looks like a wrong scale.
        state, solution = solver.step(equations, state, by_chance, far=slack == 0.0)
        noises = [block.noise for block in blocks]
        poses = solver.unknowns.free_poses
        change, covariance = solution.change[poses], solution.covariance[np.ix_(poses, poses)]
        if number >= len(PASSES) - 1 and change @ np.linalg.solve(covariance, change) < CONVERGED**2 * len(poses):
            break
    return JointEstimate(state, solution, equations, by_chance, blocks)
