"""Alignment of the two lidars: the transform that maps the right lidar's points into the left lidar's frame.

`PlaneAlignment` is the method "planes", the default. It assumes that robot and scene stand still while the frames are
taken, and that the scene has flat surfaces, facing three ways, that both lidars see. Each assumption is checked on the
data: a result that they do not support comes with refusals that say why. docs/accuracy.md tells how
accurate it is.
"""

import numpy as np

from stretch_sim_cal.calibration.alignment.adjustment import measure_gaps, tukey_fit
from stretch_sim_cal.calibration.alignment.biases import Biases, Joint, channels_of, solve_jointly
from stretch_sim_cal.calibration.alignment.cells import DirectionCells
from stretch_sim_cal.calibration.alignment.coarse import coarse_alignment
from stretch_sim_cal.calibration.alignment.consistency import Views
from stretch_sim_cal.calibration.alignment.frames import FrameIntake
from stretch_sim_cal.calibration.alignment.judgement import Adjusted, Evidence, judged
from stretch_sim_cal.calibration.alignment.motion import motion_of
from stretch_sim_cal.calibration.alignment.noise import Noise, clean_cells, estimate_noise, still_cells
from stretch_sim_cal.calibration.alignment.patches import (
    Members,
    Patches,
    covered,
    fit_planes,
    refined,
    remeasured,
)  # fmt: skip
from stretch_sim_cal.calibration.alignment.settings import AlignmentSettings
from stretch_sim_cal.calibration.alignment.surfaces import (
    Surface,
    in_one_frame,
    only_cells,
    surface_of,
    without_biases,
    without_body,
)
from stretch_sim_cal.calibration.results import AlignmentResult
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import check_rigid, exp

__all__ = ["AlignmentSettings", "PlaneAlignment"]

GRIDS = 2
# How far (m) the two lidars' surfaces may still be apart, after the coarse stage and in the passes that follow, and into
# how many shifted grids of patches they are cut: what a grid's borders do to the result is different in each.
PASSES = ((0.01, 1), (0.002, 1), (0.0, GRIDS))
# Cells further than this (m) from a patch's first plane are not of it.
WIDEST_HEIGHT = 0.03
FIRST_NOISE = Noise(np.array([0.01, 0.01]), 0.001)


class PlaneAlignment:
    """Closes the gaps between the planes that both lidars see."""

    name = "planes"

    def __init__(self, initial_right_to_left: np.ndarray | None, settings: AlignmentSettings | None = None):
        """Start from the description's transform (4, 4), or from None where nothing is known."""
        self._settings = settings or AlignmentSettings()
        self._initial = (
            None if initial_right_to_left is None else check_rigid(initial_right_to_left, "initial right_to_left")
        )
        self._intake = FrameIntake(self._settings)
        self._seen = (DirectionCells(), DirectionCells())

    def add(self, left: np.ndarray, right: np.ndarray) -> None:
        """Take one pair of clouds (N, 3), each in its own lidar frame. Raises `InputError` for anything else."""
        for cells, points in zip(self._seen, self._intake.admit(left, right), strict=True):
            if len(points):
                cells.add(points)

    def solve(self) -> AlignmentResult:
        """Return the alignment. Raises `InputError` where a lidar gave nothing at all."""
        left, right = self._surfaces()
        estimate = coarse_alignment(left, right, self._initial, self._settings)
        if self._settings.base_from_left is not None:
            left = without_body(left, self._settings.base_from_left, self._settings)
            right = without_body(right, self._settings.base_from_left @ estimate, self._settings)
        # Only what both lidars see says how they stand to each other.
        seen_by_both = [
            only_cells(surface, confirmed)
            for surface, confirmed in zip((left, right), Views(left, right).shared(estimate), strict=True)
        ]
        noise, biases = FIRST_NOISE, Biases.unknown(self._settings.range_offset)
        for slack, grids in PASSES:
            found = adjust(*seen_by_both, estimate, noise, biases, slack, grids)
            estimate, noise, biases = exp(found.joint.twist) @ estimate, found.noise, found.joint.biases
        patches, members, fits = found.flat
        motion = motion_of(found.surface, patches, members.each_cell_once(), fits, noise)
        evidence = Evidence(left, right, self._initial, estimate, found, motion)
        return judged(self.name, evidence, self._intake, self._settings)

    def _surfaces(self) -> tuple[Surface, Surface]:
        for cells, side in zip(self._seen, ("left", "right"), strict=True):
            if not cells.num_frames:
                raise InputError(
                    f"no usable return of the {side} lidar in any frame; is it running, and in view of anything?"
                )
        return surface_of(self._seen[0].cells(), 0), surface_of(self._seen[1].cells(), 1)


def adjust(left: Surface, right: Surface, right_to_left: np.ndarray, noise: Noise, biases: Biases,
           slack: float, grids: int) -> Adjusted:  # fmt: skip
    """Return how the right lidar has to move to close the gaps that are left under `right_to_left` (4, 4).

    `slack` (m) is how far the two lidars' surfaces may still be apart, `grids` how many shifted grids of patches cover
    them.
    """
    surface = without_biases(in_one_frame(left, right, right_to_left), biases.values)
    patches, members = flat_patches(surface, noise, slack, grids)
    number = len(patches.centres)
    fits = fit_planes(members, noise.variances(surface, members), number)
    noise = estimate_noise(surface, patches.normals, members, fits, noise)
    flat = (patches, members, fits)
    clean = clean_cells(surface, patches.centres, patches.normals, members, fits, noise, slack)
    still = still_cells(surface, patches.centres, patches.normals, members, noise)
    members = members.only(clean & still)
    variances, side = noise.variances(surface, members), surface.side[members.cell]
    by_lidar = tuple(fit_planes(members.only(side == lidar), variances[side == lidar], number) for lidar in (0, 1))
    gaps = measure_gaps(patches, *by_lidar)
    # The few patches that alone hold a direction must not be taken for outliers while the lidars are not yet aligned.
    fit = tukey_fit(gaps.jacobian, gaps.values, gaps.variances + slack**2)
    # Every cell is in one patch of each grid, but has been measured once.
    weights = fit.weights / grids
    if not len(gaps.values):
        return Adjusted(Joint.of_nothing(biases), gaps, weights, grids, noise, surface, flat)
    channels = channels_of(surface, members, variances, by_lidar, gaps).weighing(1.0 / grids)
    return Adjusted(solve_jointly(gaps, weights, channels, biases), gaps, weights, grids, noise, surface, flat)


def flat_patches(surface: Surface, noise: Noise, slack: float, grids: int) -> tuple[Patches, Members]:
    """Return patches with their planes settled, and the cells that belong to them, one patch of each grid."""
    patches, members = covered(surface, WIDEST_HEIGHT + slack, grids)
    for _ in range(3):
        variances = noise.variances(surface, members) + slack**2
        fits = fit_planes(members, variances, len(patches.centres))
        patches = refined(patches, fits)
        near = np.abs(fits.residuals) < np.maximum(5.0 * np.sqrt(variances), 0.5 * WIDEST_HEIGHT)
        members = remeasured(surface, patches, members.only(near))
    return patches, members
