"""The joint estimate of the lidars' poses by the patches of the rooms at all standing places: itself, without one place
or surface, and with a further standing place, whose gain is predicted."""

import itertools
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import small_gicp
from scipy.linalg import eigh

from stretch_sim_cal.calibration.coarse import large_planes
from stretch_sim_cal.calibration.patches import MIN_INCIDENCE_COSINE, Noise
from stretch_sim_cal.calibration.problem import NormalEquations, State, Unknowns
from stretch_sim_cal.calibration.reduction import BY_NOISE
from stretch_sim_cal.calibration.room import SOMEBODY, RoomBlock, remeasured_block, room_block
from stretch_sim_cal.calibration.solver import Solution, Solver
from stretch_sim_cal.calibration.surfaces import Lidar
from stretch_sim_cal.geometry.transforms import apply, from_xyz_rpy, inverse, log

# The distance (m) that the lidars' surfaces may still have after the coarse stage and in the passes that follow, and
# the number of shifted grids of patches: the bias by a grid's borders is different in each.
PASSES = ((0.01, 1), (0.002, 1), (0.0, 2), (0.0, 2))
# The last pass is repeated, at most so often, until the poses change by a smaller share of their standard deviations.
CONVERGED, MAX_REPEATS = 0.5, 12
# If a step is longer than this share of the one before it, the steps to come are taken at once, at most so many times
# as far; steps that are shorter than so many standard deviations are noise.
SLOW, FURTHEST, NOISE_STEP = 0.5, 10.0, 0.15
# Along axes of its covariance that are less certain than this (m, rad), an estimate, which is refused then, stays as it
# is after the first pass: it would wander about.
WANDERS = 0.05
# Steps shorter than this, in standard deviations, are the last ones after that.
STILL = 0.1
# A direction hinges on one place if that has more than this share of the information about it. The estimate without
# that place may differ by so much (m): people move by centimetres.
HINGES, MOVED = 0.25, 0.005
# The estimate is tried without each large plane that has more than this share of the information along some direction,
# and without all cells so near (m) to it.
HEAVY, OF_PLANE = 0.25, 0.1
# Chi square per value of the change without one, above which it is not by chance: in rooms, on real recordings, and
# among leaves it is 2.0 at most. A plane is looked at closely if this is exceeded by the patches alone, with the
# variances of the lidars' errors as they are: of 90 recordings by one (1.0) at most.
LEANS, LOOKED_AT = 2.5, 1.2
# An estimate that moves so far begins with this share of the way in its first pass.
BEGINS = 0.2
# Estimates that are closer to each other, in standard deviations, are the same.
SAME_WITHIN = 2.0
# Of a further standing place: the robot's turn on the spot.
TURN = np.radians(90.0)
# A cell hits a patch that was seen so near (rad) to its direction: channels of sparse lidars are as far apart.
NEAR = np.radians(3.0)
# The largest distance of hits from a patch's centre, in its size; as cells are assigned to patches.
REACH = 0.75


@dataclass(frozen=True)
class JointEstimate:
    """The `state` after the last pass, its `solution`, the `equations` with their noise, and their `blocks` (by place).
    `drift` (6 (n - 1),) is the way that an estimate that does not converge would go on."""

    state: State
    solution: Solution
    equations: NormalEquations
    blocks: list[RoomBlock]
    drift: np.ndarray | None = None


def estimate_jointly(
    places: Sequence[tuple[Lidar, ...]], state: State, solver: Solver, repeats: int = MAX_REPEATS
) -> JointEstimate:
    """Return the estimate, from a first state, by the patches of the rooms at all standing places. One that does not
    converge, as in a round room, is that of the last of `PASSES`, which is closest to the first state."""
    noises, changes, poses = [Noise.first(len(places[0]))] * len(places), [], solver.unknowns.free_poses

    def moved(state: State, twists: np.ndarray) -> State:
        change = np.zeros(solver.unknowns.size)
        change[poses] = twists
        return solver.unknowns.moved(state, change)

    for number in range(len(PASSES) + repeats):
        slack, grids = PASSES[min(number, len(PASSES) - 1)]
        estimate = _one_pass(places, state, noises, slack, grids, solver)
        solution, noises = estimate.solution, [block.noise for block in estimate.blocks]
        change = solution.change[poses]
        variances, axes = np.linalg.eigh(solution.covariance_of(poses))
        wandering = axes * (variances > WANDERS**2)
        if number and wandering.any():
            back = -wandering @ (wandering.T @ change)
            change, estimate = change + back, replace(estimate, state=moved(estimate.state, back))
        state = estimate.state
        if slack:
            continue
        changes.append(change)
        if number < len(PASSES) - 1:
            continue
        if number == len(PASSES) - 1:
            first = estimate
        axes *= np.sqrt(variances)
        steps = np.linalg.solve(axes, np.transpose(changes)).T
        # Along axes of which noise has most of the information (it is not in the covariance, `kept_shares`), it would
        # lead away from the guess.
        determined = np.einsum("ia,ij,ja->a", axes, estimate.equations.noise, axes) < BY_NOISE / (1.0 - BY_NOISE) ** 2
        ahead, last = np.zeros(len(variances)), STILL
        if len(steps) > 1:
            ahead, last = _ahead(steps[-1], steps[-2]) * determined, CONVERGED
        if np.linalg.norm(steps[-1] + ahead) < last * np.sqrt(len(ahead)):
            break
        # Steps that become shorter as slowly once may be noise.
        if len(steps) > 2:
            ahead *= _ahead(steps[-2], steps[-3]) != 0.0
            if ahead.any():
                state, changes = moved(state, axes @ ahead), []
    else:
        return replace(first, drift=pose_change(first.state, state))
    return estimate


def _one_pass(
    places: Sequence[tuple[Lidar, ...]], state: State, noises: Sequence[Noise], slack: float, grids: int, solver: Solver
) -> JointEstimate:
    """Return the estimate after one pass from a state, by surfaces that are up to `slack` (m) apart."""
    noises = [replace(noise, of_channels=solver.by_surface) for noise in noises]
    blocks = [room_block(lidars, state, noise, slack, grids) for lidars, noise in zip(places, noises, strict=True)]
    # Far from the solution many residuals look like a wrong scale; errors by surface do not matter yet.
    equations = equations_of(blocks, places, Unknowns(solver.unknowns.models) if slack else solver.unknowns)
    state, solution = solver.step(equations, state, equations.noise, far=slack == 0.0)
    return JointEstimate(state, solution, equations, blocks)


def equations_of(
    blocks: Sequence[RoomBlock], places: Sequence[tuple[Lidar, ...]], unknowns: Unknowns
) -> NormalEquations:
    """Return the sum of the normal equations, and of the noise in them, of blocks with the lidars of each."""
    equations = NormalEquations.empty(unknowns.size)
    for block, lidars in zip(blocks, places, strict=True):
        block.add_to(equations, unknowns, lidars)
        equations.noise = equations.noise + block.noise_information()
    return equations


def _ahead(step: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return the sum (n,) of the steps to come (geometric series), from a step and the one before, in standard
    deviations along the axes of the covariance, along which steps become shorter slowly, as they do by curved surfaces
    and clutter; else 0."""
    steady = np.minimum(np.abs(step), np.abs(before)) > NOISE_STEP
    ratios = np.divide(step, before, out=np.zeros(len(step)), where=steady)
    ratios = np.clip(ratios, 0.0, 1.0 - 1.0 / (1.0 + FURTHEST))
    return step * np.where(ratios > SLOW, ratios / (1.0 - ratios), 0.0)


def leave_one_place_out(places: Sequence[tuple[Lidar, ...]], estimate: JointEstimate, solver: Solver) -> np.ndarray:
    """Return the covariance (6 (n - 1), 6 (n - 1)), in addition to that of the estimate, of a lidar's pose without the
    cells around one point, if these have more than `HINGES` of the information along the direction that is determined
    least: a person may have stood there, and moved. Zero if the pose is the same without them, as far as they tell."""
    covariance = estimate.solution.covariance_of(solver.unknowns.free_poses)
    result = np.zeros_like(covariance)
    for lidar, (number, block) in itertools.product(
        range(1, len(estimate.state.base_from_lidar)), enumerate(estimate.blocks)
    ):
        part = slice(6 * lidar - 6, 6 * lidar - 3)
        direction = np.zeros(len(covariance))
        direction[part] = np.linalg.eigh(covariance[part, part])[1][:, -1]
        moved = covariance @ direction
        centre, of_place = block.strongest_place(moved)
        share = of_place / max(sum(other.information_along(moved) for other in estimate.blocks), 1e-300)
        if share < HINGES:
            continue
        rest = list(places)
        rest[number] = tuple(
            each.only(np.linalg.norm(apply(pose, each.surface.points) - centre, axis=1) > SOMEBODY)
            for each, pose in zip(places[number], estimate.state.base_from_lidar, strict=True)
        )
        noises = [each.noise for each in estimate.blocks]
        first = pose_change(estimate.state, _one_pass(rest, estimate.state, noises, MOVED, 1, solver).state)
        if np.linalg.norm(first[part]) < BEGINS * MOVED:
            continue
        without = estimate_jointly(rest, estimate.state, solver)
        end = pose_change(estimate.state, without.state)
        if np.linalg.norm(end[part]) < MOVED:
            continue
        of_rest = without.solution.covariance_of(solver.unknowns.free_poses[part])
        if end[part] @ np.linalg.solve(of_rest, end[part]) > 2.0 * SAME_WITHIN**2:  # of three values
            result += np.outer(end, end)
    return result


@dataclass(frozen=True)
class Leaning:
    """A large flat surface, whose plane is nearest to the first lidar at a `foot` (3,) in its frame, without which the
    poses of all lidars but the first differ by the twists `change` (6 (n - 1),), by more than chance."""

    foot: np.ndarray
    change: np.ndarray


def leave_one_surface_out(
    places: Sequence[tuple[Lidar, ...]], estimate: JointEstimate, solver: Solver
) -> list[Leaning]:
    """Return the large flat surfaces without which the estimate is another than the rest allows (a jackknife): errors
    of lidars that are each possible may explain a wall, a curtain or a pane that stands elsewhere for one lidar, and
    move the poses for it."""
    unknowns, result = solver.unknowns, []

    def without(equations: NormalEquations, block: RoomBlock, lidars: tuple[Lidar, ...]) -> NormalEquations:
        return equations.plus(equations_of([block], [lidars], unknowns).weighing(-1.0))

    for number, (lidars, block) in enumerate(zip(places, estimate.blocks, strict=True)):
        elements = replace(block.only(np.zeros(0, int)), elements=block.elements)
        patches = without(estimate.equations, elements, lidars)
        by_patches = solver.solve(patches, block.state, patches.noise, learn=False)
        for normal, offset, of_plane in _heavy_planes(block):
            rest_of_patches = without(patches, block.only(of_plane), lidars)
            by_rest = solver.solve(rest_of_patches, block.state, rest_of_patches.noise, learn=False)
            if _apart(by_patches, by_rest, unknowns) < LOOKED_AT:
                continue
            kept = np.abs(block.surface.points @ normal - offset) > OF_PLANE
            rest = tuple(lidar.only(kept[block.surface.side == side]) for side, lidar in enumerate(lidars))
            if not all(np.any(lidar.surface.usable) for lidar in rest):
                continue
            again = room_block(rest, block.state, block.noise, 0.0, 1)
            equations = without(estimate.equations, block, lidars).plus(equations_of([again], [rest], unknowns))
            solution = deepcopy(solver).solve(equations, block.state, equations.noise)
            if _apart(estimate.solution, solution, unknowns) > LEANS:
                all_others = [*places[:number], rest, *places[number + 1 :]]
                moved = unknowns.moved(block.state, solution.change)
                # How far it is need not be known exactly.
                without_it = estimate_jointly(all_others, moved, deepcopy(solver), repeats=0)
                result.append(Leaning(offset * normal, pose_change(estimate.state, without_it.state)))
    return result


def _apart(estimate: Solution, without: Solution, unknowns: Unknowns) -> float:
    """Return the chi square per value of the poses' change from one solution to another by less."""
    change = (without.change - estimate.change)[unknowns.free_poses]
    return change @ np.linalg.solve(without.covariance_of(unknowns.free_poses), change) / len(change)


def _heavy_planes(block: RoomBlock) -> Iterator[tuple[np.ndarray, float, np.ndarray]]:
    """Yield the large planes with more than `HEAVY` of the patches' information along some direction: normals (3,),
    distances (m) of the planes from the first lidar along them, and their patches (K,)."""
    gaps, planes = block.gaps, large_planes(block.surface)
    rows = gaps.jacobian @ np.eye(gaps.jacobian.shape[1])  # not sparse
    rows *= np.sqrt(block.weights * gaps.shares / gaps.variances)[:, None]
    information = rows.T @ rows
    information += (1e-9 * np.trace(information) + np.finfo(float).tiny) * np.eye(len(information))
    for normal, offset in zip(planes.normals, -planes.distances, strict=True):
        near = np.abs(gaps.points @ normal - offset) < OF_PLANE
        of_plane = rows[near]
        if eigh(of_plane.T @ of_plane, information, eigvals_only=True)[-1] > HEAVY:
            yield normal, float(offset), gaps.patches[near]


def pose_change(before: State, after: State) -> np.ndarray:
    """Return the twists (6 (n - 1),) of all lidars but the first from one state to another."""
    pairs = zip(after.base_from_lidar[1:], before.base_from_lidar[1:], strict=True)
    return np.concatenate([log(now @ inverse(pose)) for now, pose in pairs])


@dataclass(frozen=True)
class AnotherPlace:
    """Standard deviations (2,) of lidar to lidar in m and rad, each the root mean square over the axes: `before`, and
    `after` the robot was turned by `turn` (rad) and as many frames were taken again."""

    before: np.ndarray
    after: np.ndarray
    turn: float = TURN

    @property
    def gain(self) -> np.ndarray:
        """The shares (2,) by which they would be smaller."""
        return 1.0 - self.after / self.before


def after_turning(
    lidars: tuple[Lidar, Lidar], estimate: JointEstimate, solver: Solver, covariance: np.ndarray,
    base_from_left: np.ndarray,
) -> AnotherPlace:  # fmt: skip
    """Return the gain of a turn on the spot, given the estimate from the place at which the lidars have these cells.
    By what the `covariance` (6, 6) that is said of it exceeds its own, that after the turn is expected to do, too.

    The patches that both lidars saw are turned with the room about base_link's z axis, and every cell is predicted to
    hit the patch that is nearest to its direction. Its returns lie on the patch, so they add information and change
    nothing. The lidars' errors under their priors are common to all places: the patches are seen by other channels, at
    other ranges and incidences. A cell whose part of the room was not visible before (a wall, mostly, while the floor
    is seen all around) counts once more as it did in the first view.
    """
    block = estimate.blocks[0]
    rotation = from_xyz_rpy([0.0, 0.0, 0.0], [0.0, 0.0, -TURN])
    again = _looking_again(lidars, block, inverse(base_from_left) @ rotation @ base_from_left)
    turned = room_block(again, block.state, block.noise, 0.0, block.grids, exact=True)
    known = np.concatenate([lidar.surface.usable for lidar in again])
    unseen = replace(block, members=block.members.only(~known[block.members.cell]), elements=None)
    unseen = remeasured_block(lidars, block.state, unseen, None)
    added = equations_of((turned, unseen), (again, lidars), solver.unknowns)
    noise_information = estimate.equations.noise + unseen.noise_information() + turned.noise_information()
    both = deepcopy(solver).solve(estimate.equations.plus(added), block.state, noise_information)
    before, after = (_deviations(each.covariance_of(solver.unknowns.free_poses)) for each in (estimate.solution, both))
    said = _deviations(covariance)
    return AnotherPlace(said, said * after / before)


def _deviations(covariance: np.ndarray) -> np.ndarray:
    return np.sqrt(np.diag(covariance).reshape(2, 3).mean(axis=1))


def _looking_again(lidars: tuple[Lidar, Lidar], block: RoomBlock, turned: np.ndarray) -> tuple[Lidar, Lidar]:
    """Return the lidars with their cells on the patches that they would hit with the room `turned` (4, 4) in the left
    lidar's frame; the other cells are not usable."""
    patches, state = block.flat[0], block.state
    members = block.members.only(block.member_weights(block.members) > 0)
    # Cells of no patch (-1) hide those behind them.
    number = np.full(len(block.surface.points), -1)
    number[members.cell] = members.patch
    points, normals = apply(turned, block.surface.points), patches.normals @ turned[:3, :3].T
    centres = apply(turned, patches.centres)
    result, first = [], 0
    for side, lidar in enumerate(lidars):
        cells = slice(first, first := first + len(lidar.surface.points))
        origins, rays = block.surface.origins[cells], block.surface.rays[cells]
        to_lidar = inverse(state.base_from_lidar[side])
        seen = apply(to_lidar, points)
        index = small_gicp.KdTree(seen / np.linalg.norm(seen, axis=1, keepdims=True))
        nearest, squares = index.batch_knn_search(rays @ to_lidar[:3, :3].T, 1)
        patch = np.where(squares[:, 0] < NEAR**2, number[nearest[:, 0].astype(np.int64)], -1)
        normal, centre = normals[patch], centres[patch]
        cosines = -np.einsum("ki,ki->k", normal, rays)
        ahead = cosines > MIN_INCIDENCE_COSINE
        ranges = np.einsum("ki,ki->k", normal, origins - centre) / np.where(ahead, cosines, 1.0)
        hits = origins + ranges[:, None] * rays
        inside = np.linalg.norm(hits - centre, axis=1) < REACH * patches.sizes[patch]
        usable = lidar.surface.usable & (patch >= 0) & ahead & (ranges > 0) & inside
        result.append(_seeing(lidar, usable, apply(to_lidar, hits), normal @ to_lidar[:3, :3].T, state.units[side]))
    return tuple(result)


def _seeing(lidar: Lidar, usable: np.ndarray, hits: np.ndarray, normals: np.ndarray, values: np.ndarray) -> Lidar:
    """Return a lidar with errors of the parameters `values` whose `usable` cells (M,) see surfaces at `hits` (M, 3)
    with `normals` (M, 3), in its frame."""
    before = lidar.surface
    hits = np.where(usable[:, None], hits, before.points)
    surface = replace(
        before, points=hits, normals=np.where(usable[:, None], normals, before.normals),
        planarity=np.where(usable, 0.0, 1.0), usable=usable,
    )  # fmt: skip
    # Their returns are on the surface after correction of the lidar's errors.
    published = 2.0 * hits - Lidar(surface, lidar.model).corrected(values).points
    return Lidar(replace(surface, points=published), lidar.model)
