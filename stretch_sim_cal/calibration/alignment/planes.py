"""Alignment of the two lidars: the transform that maps the right lidar's points into the left lidar's frame.

`PlaneAlignment` is the method "planes", the default. It assumes that robot and scene stand still while the frames are
taken, and that the scene has flat surfaces, facing three ways, that both lidars see. Each assumption is checked on the
data: a result that they do not support comes with refusals that say why. docs/accuracy.md tells how
accurate it is.
"""

from dataclasses import replace

import numpy as np

from stretch_sim_cal.calibration.alignment.judgement import Evidence, judged
from stretch_sim_cal.calibration.alignment.settings import AlignmentSettings
from stretch_sim_cal.calibration.clouds import DirectionCells, FrameIntake
from stretch_sim_cal.calibration.coarse import coarse_alignment, coarse_covariance
from stretch_sim_cal.calibration.consistency import Views
from stretch_sim_cal.calibration.motion import motion_of
from stretch_sim_cal.calibration.noise import Noise
from stretch_sim_cal.calibration.observations import Observations
from stretch_sim_cal.calibration.problem import NormalEquations, Priors, Solver, State, Unknowns
from stretch_sim_cal.calibration.results import AlignmentResult
from stretch_sim_cal.calibration.room import remeasured_block, room_block
from stretch_sim_cal.calibration.surfaces import Lidar, without_body
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import check_rigid

__all__ = ["AlignmentSettings", "PlaneAlignment"]

# How far (m) the two lidars' surfaces may still be apart, after the coarse stage and in the passes that follow, and into
# how many shifted grids of patches they are cut: what a grid's borders do to the result is different in each.
PASSES = ((0.01, 1), (0.002, 1), (0.0, 2), (0.0, 2))
FIRST_NOISE = Noise(np.array([0.01, 0.01]), 0.001)
FIXED = np.zeros((6, 6))
# By so much (of -1 to 1) the views may agree worse than under the coarse transform; in rooms they do by 0.003 at most.
MUCH_WORSE = 0.02


class PlaneAlignment:
    """Closes the gaps between the planes that both lidars see."""

    name = "planes"
    takes_fields = True

    def __init__(self, initial_right_to_left: np.ndarray | None, settings: AlignmentSettings | None = None):
        """Start from the description's transform (4, 4), or from None where nothing is known."""
        self._settings = settings or AlignmentSettings()
        self._initial = (
            None if initial_right_to_left is None else check_rigid(initial_right_to_left, "initial right_to_left")
        )
        self._intake = FrameIntake(self._settings)
        self._seen = (DirectionCells(self._settings.sensor), DirectionCells(self._settings.sensor))

    def add(self, left: np.ndarray, right: np.ndarray) -> None:
        """Take one pair of clouds, each in its own lidar frame: points (N, 3), or structured arrays (N,) with x, y, z and
        perhaps ring and intensity. Raises `InputError` for anything else."""
        for cells, cloud in zip(self._seen, self._intake.admit(left, right), strict=True):
            if len(cloud):
                cells.add(cloud)

    def solve(self) -> AlignmentResult:
        """Return the alignment. Raises `InputError` where a lidar gave nothing at all."""
        for cells, side in zip(self._seen, ("left", "right"), strict=True):
            if not cells.num_frames:
                raise InputError(
                    f"no usable return of the {side} lidar in any frame; is it running, and in view of anything?"
                )
        lidars = tuple(Lidar.of_cells(cells, side) for side, cells in enumerate(self._seen))
        left, right = (lidar.surface for lidar in lidars)
        estimate = coarse_alignment(left, right, self._initial, self._settings)
        if self._settings.base_from_left is not None:
            left = without_body(left, self._settings.base_from_left, self._settings)
            right = without_body(right, self._settings.base_from_left @ estimate, self._settings)
        # Only what both lidars see says how they stand to each other.
        views = Views(left, right)
        lidars = tuple(
            Lidar(surface, lidar.model).only(confirmed)
            for surface, lidar, confirmed in zip((left, right), lidars, views.shared(estimate), strict=True)
        )
        # All poses are in the left lidar's frame, which stays where it is.
        state = coarse = State((np.eye(4), estimate), tuple(np.zeros(lidar.model.size) for lidar in lidars))
        unknowns = Unknowns(tuple(lidar.model for lidar in lidars))
        solver, noise = Solver(unknowns, Priors(state, left=FIXED)), FIRST_NOISE
        for slack, grids in PASSES:
            block = room_block(lidars, state, noise, slack, grids)
            equations = NormalEquations.empty(unknowns.size)
            block.add_to(equations, unknowns, lidars)
            solution = solver.solve(equations, state, block.information_by_chance())
            before = state
            state, noise = solver.decided(unknowns.moved(state, solution.change), solution), block.noise
        fallback = None
        if views.under(state.left_from_right).score < views.under(estimate).score - MUCH_WORSE:
            # Too few small surfaces fit: they must not lead away from what the whole views say.
            state, fallback = coarse, coarse_covariance(left, right, estimate, self._settings)
        last = remeasured_block(lidars, state, block, None)
        patches, members, fits = last.flat
        motion = motion_of(last.surface, patches, members.each_cell_once(), fits, noise)
        evidence = Evidence(left, right, self._initial, last, solution, unknowns, motion, fallback)
        result = judged(self.name, evidence, self._intake, self._settings)
        if self._settings.base_from_left is None or fallback is not None:
            return result
        observations = Observations.of(
            equations.weighing(last.scale**-2), unknowns, before, result.right_to_left, self._settings.base_from_left
        )
        return replace(result, observations=observations)
