"""The alignment's least-squares problem solved by GTSAM, factor by factor, beside its own solver.

    pip install gtsam
    python benchmarks/oracle.py [--seeds 3] [--first-seed 1]

Two lidars of the Stretch and three of a mobile robot in the furnished room. The residuals of all patches are linearised
at the true poses. GTSAM gets their rows with the height of every patch, and the slopes of each lidar's part of it, as
variables, the equations of small surfaces, and all priors; it eliminates in an order of its own. Printed are, over all
unknowns, the largest difference of the changes in standard deviations, and that of the covariances in products of
standard deviations. Exit code 1 if one is above 1e-6.
"""

import argparse
import sys
from dataclasses import dataclass, field, replace

import numpy as np

import stretch_sim_cal as cal
from stretch_sim_cal import command
from stretch_sim_cal.calibration.clouds import DirectionCells, FrameIntake
from stretch_sim_cal.calibration.consistency import seen_by_another
from stretch_sim_cal.calibration.patches import Noise
from stretch_sim_cal.calibration.problem import NormalEquations, State, Unknowns
from stretch_sim_cal.calibration.reduction import SurfaceErrors
from stretch_sim_cal.calibration.room import RoomBlock, room_block
from stretch_sim_cal.calibration.settings import AlignmentSettings
from stretch_sim_cal.calibration.solver import Solver
from stretch_sim_cal.calibration.surfaces import Lidar
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import inverse

ROBOTS = {"Stretch, 2 lidars": None, "three_lidar_amr, 3 lidars": "three_lidar_amr"}
SENSOR, FRAMES, ALIKE = "jt128_sparse_real", 5, 1e-6


@dataclass
class Rows(NormalEquations):
    """Normal equations that keep the rows from which they are made, as `add_eliminating` gets them."""

    given: tuple = field(default=())

    def add_eliminating(self, *rows) -> None:
        self.given = rows
        super().add_eliminating(*rows)


def linearised(robot: str | None, seed: int) -> tuple[tuple[Lidar, ...], State, Solver, RoomBlock]:
    """Return the lidars of a simulated robot, their true poses without errors of lidars, a solver, and the patches."""
    sim = cal.simulate(robot, sensor=SENSOR, seed=seed, frames=FRAMES)
    names, sensors = sim.rig.names, tuple(sim.rig.sensors.values())
    cells, intake = DirectionCells.of_views(sensors), FrameIntake(names)
    for clouds in zip(*(sim.clouds[name] for name in names), strict=True):
        intake.add_to(cells, clouds)
    true = [sim.truth.base_from_lidar[name] for name in names]
    poses, pairs = [inverse(true[0]) @ pose for pose in true], [(0, n) for n in range(1, len(names))]
    (lidars,) = Lidar.of_places([cells], names)
    _, lidars = seen_by_another(lidars, poses, pairs, AlignmentSettings(base_from_left=true[0], **sim.rig.body))
    solver, state = Solver.starting(Unknowns(tuple(lidar.model for lidar in lidars), by_surface=True), poses)
    noise = replace(Noise.first(len(names)), of_channels=solver.by_surface)
    noise = room_block(lidars, state, noise, 0.0, 1).noise
    return lidars, state, solver, room_block(lidars, state, noise, 0.0, 1)


def compared(robot: str | None, seed: int) -> tuple[int, float, float]:
    """Return the number of GTSAM's variables, and the largest differences of changes and covariances."""
    import gtsam

    lidars, state, solver, block = linearised(robot, seed)
    unknowns, rows = solver.unknowns, Rows.empty(solver.unknowns.size)
    size, small = unknowns.num_without_surfaces, NormalEquations.empty(unknowns.size)
    replace(block, elements=None).add_to(rows, unknowns, lidars)
    if block.elements is not None:
        block.elements.add_to(small, unknowns, lidars)
    equations = rows.plus(small)
    own = solver.solve(equations, state, learn=False)

    # Priors, in the coordinates in which they are regular: their solution without data, at a state that they expect.
    alone, _ = Solver.starting(Unknowns(unknowns.models), state.base_from_lidar)
    prior = alone.solve(NormalEquations.empty(size), state, learn=False)
    assert np.array_equal(prior.basis.toarray(), own.basis.toarray()) and not prior.change.any()
    surfaces = SurfaceErrors(
        small, equations.information[:size, size:], equations.information[size:, size:], equations.gradient[size:]
    )
    seen = size + np.flatnonzero(np.diag(equations.information[size:, size:]) > 0)
    jacobian, _, residuals, weights, group, design, weak, part, part_design = rows.given
    jacobian = np.hstack([jacobian[:, :size] @ prior.basis.toarray(), jacobian[:, seen].toarray()])
    count, root = prior.basis.shape[1], np.linalg.cholesky(surfaces.prior).T / solver.by_surface
    graph, unit = gtsam.GaussianFactorGraph(), gtsam.noiseModel.Unit.Create
    shared, of_group, of_part = 0, 1, 1 + group.max() + 1

    def add(*terms, right: np.ndarray) -> None:
        graph.add(gtsam.JacobianFactor(*terms, right, unit(len(right))))

    for number in range(part.max() + 1):
        own_rows = np.flatnonzero(part == number)
        scale = np.sqrt(weights[own_rows])[:, None]
        add(
            shared, scale * jacobian[own_rows], int(of_group + group[own_rows[0]]), -scale * design[own_rows],
            int(of_part + number), -scale * part_design[own_rows], right=-scale[:, 0] * residuals[own_rows],
        )  # fmt: skip
        add(int(of_part + number), np.sqrt(weak) * np.eye(2), right=np.zeros(2))
    for number in range(group.max() + 1):
        add(int(of_group + number), np.sqrt(weak) * np.eye(1), right=np.zeros(1))
    of_errors = np.zeros((len(prior.root) + len(seen),) * 2)
    of_errors[:count, :count], of_errors[count:, count:] = prior.root.T, root
    add(shared, of_errors, right=np.zeros(len(of_errors)))
    information, gradient = np.zeros(of_errors.shape), np.zeros(len(of_errors))
    information[:count, :count] = prior.basis.T @ small.information[:size, :size] @ prior.basis
    gradient[:count] = prior.basis.T @ small.gradient[:size]
    graph.add(gtsam.HessianFactor(shared, information, gradient, 0.0))
    tree = graph.eliminateMultifrontal()
    change = prior.basis @ tree.optimize().at(shared)[:count]
    its = prior.basis @ tree.marginalCovariance(shared)[:count, :count] @ prior.basis.T
    deviations = np.sqrt(np.diag(own.covariance))
    known = deviations > 0
    apart = np.abs(own.change - change)[known] / deviations[known]
    scaled = np.abs(own.covariance - its)[np.ix_(known, known)] / np.outer(deviations[known], deviations[known])
    return int(of_part + part.max() + 1), float(apart.max()), float(scaled.max())


def main() -> int:
    """Print a row per robot and seed; return 1 if a difference is too large."""
    parser = command.Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1)
    args = parser.parse_args()
    try:
        import gtsam  # noqa: F401 - whether it is there
    except ImportError as error:
        raise InputError(f"GTSAM is not there ({error}): pip install gtsam") from error
    print("| robot, seed | variables | change | covariance |\n|---|---|---|---|")
    worst = 0.0
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        for name, robot in ROBOTS.items():
            variables, change, covariance = compared(robot, seed)
            worst = max(worst, change, covariance)
            print(f"| {name}, {seed} | {variables} | {change:.1e} | {covariance:.1e} |", flush=True)
    return int(worst > ALIKE)


if __name__ == "__main__":
    sys.exit(command.run(main))
