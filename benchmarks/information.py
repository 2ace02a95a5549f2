"""What each residual block tells of each unknown: standard deviations by block, and the combinations that stay open.

    python benchmarks/information.py [--sensor jt128_sparse_real] [--world furnished_room] [--out out/benchmarks]

Linearises the problem of docs/estimate.md at the truth of a simulated room (so nothing is solved), adds its blocks one
after another, and prints the standard deviations of the quantities of interest with the picture of them.
Below that: the errors of the lidars that a room tells next to nothing of, as combinations, in standard
deviations of the sensor file.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from mounts import POSES
from scipy.linalg import block_diag

from stretch_sim_cal import command
from stretch_sim_cal.calibration.clouds import DirectionCells, cloud_of
from stretch_sim_cal.calibration.consistency import Views
from stretch_sim_cal.calibration.mounts.residuals import (
    CloudReader,
    PosedSample,
    RobotUnknowns,
    noise_weights,
)
from stretch_sim_cal.calibration.mounts.robot import MountedRobot, mount_settings
from stretch_sim_cal.calibration.patches import Noise
from stretch_sim_cal.calibration.problem import UNKNOWN, NormalEquations, State, Unknowns
from stretch_sim_cal.calibration.room import FloorTrust, RoomBlock, room_block
from stretch_sim_cal.calibration.settings import FloorSettings
from stretch_sim_cal.calibration.surfaces import Lidar, without_body
from stretch_sim_cal.geometry.transforms import SIDES, adjoint, apply, from_xyz_rpy, inverse
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.profile import stretch_profile
from stretch_sim_cal.robot.stretch import nominal_description
from stretch_sim_cal.sensor.points import return_columns, returns_of
from stretch_sim_cal.sensor.unit import (
    CENTRE,
    CENTRE_SHARE,
    CHANNEL_KINDS,
    FIRING_SHARE,
    HARMONICS,
    SCALARS,
    ErrorModel,
)
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import SimulationSetup

POSE_FRAMES = 3
TURN = np.radians(90.0)  # of the robot at the second standing place
UNEVENNESS = 0.0005  # m, of the floor
EDGE_ANGLE, EDGE_MARGIN, GATE, GRAZING = np.radians(0.15), 0.004, 0.06, 0.15  # as in mounts/method.py
ALL = "+ robot\n= all"
SHARES = "share that the driver leaves uncorrected"
MM, DEG, PER_MILLE = 1e3, np.degrees(1.0), 1e3
# A combination of errors of which more than this share of the sensor file's standard deviation is left counts as open.
OPEN = 0.8


@dataclass(frozen=True)
class Quantity:
    """A row of the picture: `rows` (k, n) map the unknowns onto it, its standard deviation is the root mean square of
    the k, shown times `factor` in `unit`."""

    name: str
    rows: np.ndarray
    factor: float
    unit: str

    def deviation(self, covariance: np.ndarray) -> float:
        variances = np.einsum("ki,ij,kj->k", self.rows, covariance, self.rows)
        return self.factor * float(np.sqrt(np.mean(variances)))

    def shown(self, deviation: float) -> str:
        """Return a standard deviation with two digits, "open" if only the bound `UNKNOWN` is
        left, "known" if it is 0."""
        if deviation <= 0 or deviation >= 0.5 * UNKNOWN * self.factor:
            return "known" if deviation <= 0 else "open"
        return f"{deviation:.{max(0, 1 - math.floor(math.log10(deviation)))}f}"


class Problem:
    """The problem at the truth of one simulated room: unknowns, priors, and the information (n, n) of each block."""

    def __init__(self, simulator: EmbeddedSimulator, frames: int):
        self.simulator = simulator
        self.model: ErrorModel = simulator.sensor.error_model()
        self.unknowns = Unknowns((self.model, self.model))
        self.state = State(
            tuple(simulator.base_from_lidar(side) for side in SIDES),
            tuple(simulator.lidar(side).unit.values for side in SIDES), simulator.floor_in_base,
        )  # fmt: skip
        self.lidars = self._lidars(frames)
        noise = Noise(np.full(2, simulator.sensor.range_noise), 3e-4)
        nearby = FloorTrust(
            lambda points: (np.linalg.norm(points[:, :2], axis=1) < 3.5).astype(float), UNEVENNESS, 0.02
        )
        without_floor = replace(self.state, floor=None)
        self.room = self._of(room_block(self.lidars, without_floor, noise, 0.0, 2), self.lidars)
        with_floor = room_block(self.lidars, self.state, noise, 0.0, 2, nearby)
        self.room_and_floor, self.floor = (
            self._of(block, self.lidars) for block in (with_floor, with_floor.only(with_floor.floor.patches))
        )
        self.robot = self._robot()
        simulator.move_base(from_xyz_rpy([0.0, 0.0, 0.0], [0.0, 0.0, TURN]))
        turned = self._lidars(frames)
        self.turned_room = self._of(room_block(turned, without_floor, noise, 0.0, 2), turned)

    def covariance(self, information: np.ndarray, sensor_known: bool = False, decided: bool = True,
                   known: Sequence[int] = ()) -> np.ndarray:  # fmt: skip
        """Return the covariance (n, n) of the unknowns by blocks of that information and by the priors. It is `decided`
        what the drivers correct, as the solver does as soon as the data leaves no doubt; parameters `known` of both
        lidars do not vary either."""
        root = np.hstack(list(self.model.prior_roots().values()))
        fixed = [*known, *((CENTRE_SHARE, FIRING_SHARE) if decided else ())]
        root = root[:, ~np.any(root[fixed], axis=0)]
        basis = block_diag(np.eye(self.unknowns.units[0].start), root, root)
        prior = np.ones(basis.shape[1])
        prior[: self.unknowns.units[0].start] = UNKNOWN**-2
        kept = np.ones(len(prior), bool)
        kept[self.unknowns.curvature] = False
        if sensor_known:
            kept[self.unknowns.units[0].start :] = False
        basis, prior = basis[:, kept], prior[kept]
        return basis @ np.linalg.inv(basis.T @ information @ basis + np.diag(prior)) @ basis.T

    def quantities(self) -> list[Quantity]:
        size, (left, right) = self.unknowns.size, self.unknowns.units
        poses, floor = np.zeros((12, size)), np.zeros((3, size))
        poses[:, :12] = np.eye(12)
        floor[:, self.unknowns.floor] = np.eye(3)
        to_left = adjoint(inverse(self.state.base_from_lidar[0]))
        relative = to_left @ (poses[6:] - poses[:6])
        origin, normal = self.state.base_from_lidar[0][:3, 3], self.state.floor.normal
        # How high the left lidar is over the floor, and the floor's tilt in its frame, by small changes of both.
        lever = np.cross(normal, origin)
        height = normal @ (poses[:3] + np.cross(poses[3:6].T, origin).T) + floor[0] + lever[:2] @ floor[1:]
        tilt = floor[1:] - poses[3:5]
        own = partial(self._scalar, left)
        both = [self._scalar(units, 0) for units in (left, right)], [self._scalar(units, 1) for units in (left, right)]
        centre = range(CENTRE.start, CENTRE.stop)
        angles = [row for index in range(HARMONICS.start, HARMONICS.stop) for row in own(index)]
        shares = [self._scalar(units, index) for units in (left, right) for index in (CENTRE_SHARE, FIRING_SHARE)]
        return [
            Quantity("left from right, position", relative[:3], MM, "mm"),
            Quantity("left from right, rotation", relative[3:], DEG, "deg"),
            Quantity("left lidar over the floor, height", height[None], MM, "mm"),
            Quantity("left lidar over the floor, tilt", tilt, DEG, "deg"),
            Quantity("left lidar in base_link, position", poses[:3] + np.cross(poses[3:6].T, origin).T, MM, "mm"),
            Quantity("left lidar in base_link, rotation", poses[3:6], DEG, "deg"),
            Quantity("floor in base_link, height", floor[:1], MM, "mm"),
            Quantity("floor in base_link, tilt", floor[1:], DEG, "deg"),
            Quantity("range offset, of both", (both[0][0] + both[0][1]) / 2.0, MM, "mm"),
            Quantity("range offset, left minus right", both[0][0] - both[0][1], MM, "mm"),
            Quantity("range scale, of both", (both[1][0] + both[1][1]) / 2.0, PER_MILLE, "mm/m"),
            Quantity("range scale, left minus right", both[1][0] - both[1][1], PER_MILLE, "mm/m"),
            Quantity("near range", own(2), MM, "mm"),
            Quantity("incidence", own(3), MM, "mm"),
            Quantity("weak echo", own(4), MM, "mm"),
            Quantity("azimuth harmonics", np.array(angles), DEG, "deg"),
            Quantity("optical centre, x and y", np.vstack([own(centre[0]), own(centre[1])]), MM, "mm"),
            Quantity("optical centre, z", own(centre[2]), MM, "mm"),
            Quantity(SHARES, np.vstack(shares), 1.0, ""),
            Quantity("channels' ranges", self._channels("channel_range"), MM, "mm"),
            Quantity("channels' elevations", self._channels("channel_elevation"), DEG, "deg"),
            Quantity("channels' azimuths", self._channels("channel_azimuth"), DEG, "deg"),
        ]

    def _scalar(self, unit: slice, index: int) -> np.ndarray:
        row = np.zeros((1, self.unknowns.size))
        row[0, unit.start + index] = 1.0
        return row

    def _channels(self, kind: str) -> np.ndarray:
        own = self.model.of_kind(kind)
        return np.eye(self.unknowns.size)[self.unknowns.units[0].start + np.arange(own.start, own.stop)]

    def _of(self, block: RoomBlock, lidars: tuple[Lidar, Lidar]) -> np.ndarray:
        equations = NormalEquations.empty(self.unknowns.size)
        block.add_to(equations, self.unknowns, lidars)
        # Lidars and floor are seen against each other: nothing holds all of them together in
        # base_link, not even weakly.
        against_left = np.eye(self.unknowns.size)
        left, right = self.unknowns.poses
        against_left[left, left] = 0.0
        against_left[right, left] = -np.eye(6)
        against_left[self.unknowns.floor, left] = -floor_moved_by(self.state.floor.normal)
        return against_left.T @ equations.information @ against_left

    def _lidars(self, frames: int) -> tuple[Lidar, Lidar]:
        """Return both lidars with what they share, and with what each sees near the floor, but for the robot."""
        settings = FloorSettings(sensor=self.simulator.sensor)
        lidars, surfaces = [], []
        for side, name in enumerate(SIDES):
            cells = DirectionCells(self.simulator.sensor)
            for tick in range(frames):
                cells.add(cloud_of(self.simulator.scan(name, tick), name))
            lidars.append(Lidar.of_cells(cells))
            surfaces.append(without_body(lidars[-1].surface, self.state.base_from_lidar[side], settings))
        shared = Views(*surfaces).shared(self.state.left_from_right)
        near = [
            np.abs(self.state.floor.distance(apply(pose, surface.points))) < 0.1
            for pose, surface in zip(self.state.base_from_lidar, surfaces, strict=True)
        ]
        return tuple(
            Lidar(surface, lidar.model).only(confirmed | low)
            for surface, lidar, confirmed, low in zip(surfaces, lidars, shared, near, strict=True)
        )

    def _robot(self) -> np.ndarray:
        """Return the information of the robot's own returns in the poses of the benchmark of the mounts; where its
        links are is eliminated under the model's uncertainty."""
        robot, settings = MountedRobot(load_model(nominal_description())), mount_settings()
        models = []
        for index, pose in enumerate(POSES):
            self.simulator.joints.place(pose)
            ticks = range(POSE_FRAMES * index, POSE_FRAMES * (index + 1))
            scans = {side: np.concatenate([self.simulator.scan(side, tick) for tick in ticks]) for side in SIDES}
            clouds = {side: return_columns(returns_of(seen)) for side, seen in scans.items()}
            positions = stretch_profile().joint_positions(robot.model, pose)
            sample = robot.sample(f"pose {index}", positions, clouds, tuple(stretch_profile().offset_joints))
            models.append(PosedSample(sample, robot.surfaces, sample.base_from_link))
        reader = CloudReader(self.simulator.sensor, [model.sample.clouds[side] for model in models for side in SIDES])
        own = RobotUnknowns(robot.surfaces, settings, robot.nominal)
        unknowns = own.beside((self.model, self.model))
        equations = NormalEquations.empty(unknowns.size)
        for model in models:
            for side, pose, values in zip(SIDES, self.state.base_from_lidar, self.state.units, strict=True):
                returns = reader.returns(model.around(side, pose))
                matches = model.match(reader.rays(returns, values), pose, GATE, GRAZING)
                matches = matches.chosen(model.inside(matches, EDGE_ANGLE, EDGE_MARGIN))
                matches = matches.chosen(model.unambiguous(matches))
                weights, matched = (
                    noise_weights(matches, self.simulator.sensor.range_noise),
                    returns.only(matches.indices),
                )
                own.add_to(equations, unknowns, side, model, matches, weights, matched, self.state)
        links = unknowns.others
        both = equations.information
        both[links, links] += np.diag(1.0 / own.variances()[own.first_link :])
        rest = slice(0, links.start)
        return both[rest, rest] - both[rest, links] @ np.linalg.solve(both[links, links], both[links, rest])


def floor_moved_by(normal: np.ndarray) -> np.ndarray:
    """Return how a floor's (height, tilt about x, tilt about y) changes with a twist of the floor, (3, 6)."""
    change = np.zeros((3, 6))
    change[0, :3] = -normal
    change[1, 3] = change[2, 4] = 1.0
    return change


def combinations(problem: Problem) -> list[str]:
    """Return the open combinations of both lidars' scalar errors in words: after room and floor, without the robot."""
    covariance = problem.covariance(problem.room_and_floor)
    columns = np.concatenate([np.arange(own.start, own.start + len(SCALARS)) for own in problem.unknowns.units])
    names = [f"{scalar} {side}" for side in SIDES for scalar in SCALARS]
    prior = np.sqrt(np.diag(problem.covariance(np.zeros_like(covariance))))[columns]
    varies = prior > 0
    columns, prior, names = columns[varies], prior[varies], [n for n, v in zip(names, varies, strict=True) if v]
    left, axes = np.linalg.eigh(covariance[np.ix_(columns, columns)] / np.outer(prior, prior))
    lines = []
    for share, axis in sorted(zip(np.sqrt(np.maximum(left, 0.0)), axes.T, strict=True), key=lambda one: -one[0]):
        if share > OPEN:
            strongest = sorted(np.flatnonzero(np.abs(axis) > 0.2), key=lambda i: -abs(axis[i]))
            axis = axis * np.sign(axis[strongest[0]])
            lines.append(f"{100 * share:4.0f} % left: " + ", ".join(f"{axis[i]:+.2f} {names[i]}" for i in strongest))
    return lines


def limits(problem: Problem, quantities: list[Quantity], information: np.ndarray) -> list[str]:
    """Return, for the poses, by which of the lidars' errors their standard deviations are limited the most."""
    terms = {
        "range_offset": [0], "range_scale": [1], "near_range": [2], "incidence": [3], "echo": [4],
        "azimuth_harmonics": range(HARMONICS.start, HARMONICS.stop), "optical_centre": range(CENTRE.start, CENTRE.stop),
    } | {kind: range(*problem.model.of_kind(kind).indices(problem.model.size)) for kind in CHANNEL_KINDS}  # fmt: skip
    whole = problem.covariance(information)
    without = {name: problem.covariance(information, known=list(indices)) for name, indices in terms.items()}
    lines = []
    for quantity in quantities:
        now = quantity.deviation(whole)
        then = sorted((quantity.deviation(covariance), name) for name, covariance in without.items())
        told = ", ".join(f"{value:.2g} without {name}" for value, name in then[:3])
        lines.append(f"{quantity.name}: {now:.2g} {quantity.unit}; {told}")
    return lines


def second_place(problem: Problem, quantities: list[Quantity]) -> list[str]:
    """Return what half of the pairs gain, or lose, if they are taken after the robot was turned on the spot."""
    lines = []
    one = problem.covariance(problem.room)
    two = problem.covariance((problem.room + problem.turned_room) / 2.0)
    for quantity in quantities:
        before, after = quantity.deviation(one), quantity.deviation(two)
        lines.append(f"{quantity.name}: {before:.3g} -> {after:.3g} {quantity.unit}")
    return lines


def plot(deviations: np.ndarray, quantities: list[Quantity], columns: list[str], every: int, path: Path) -> None:
    """Draw the standard deviations, rows of quantities by columns of blocks, coloured by how many times that of column
    `every` they are."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import colors, pyplot

    figure, axis = pyplot.subplots(figsize=(11.5, 0.36 * len(quantities) + 1.6), layout="constrained")
    worse = deviations / np.maximum(deviations[:, every], 1e-12)[:, None]
    image = axis.imshow(worse, cmap="YlOrRd", norm=colors.LogNorm(1.0, 100.0), aspect="auto")
    for row, quantity in enumerate(quantities):
        for column in range(len(columns)):
            axis.text(
                column, row, quantity.shown(deviations[row, column]), ha="center", va="center", fontsize=8,
                color="white" if worse[row, column] > 30 else "black",
            )  # fmt: skip
    axis.set_xticks(range(len(columns)), columns)
    axis.set_yticks(
        range(len(quantities)), [f"{one.name} / {one.unit}" if one.unit else one.name for one in quantities]
    )
    axis.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
    axis.set_xticks(np.arange(len(columns) + 1) - 0.5, minor=True)
    axis.set_yticks(np.arange(len(quantities) + 1) - 0.5, minor=True)
    axis.grid(which="minor", color="white", linewidth=1)
    axis.tick_params(which="minor", length=0)
    figure.colorbar(image, ax=axis, label="multiple of the standard deviation with all blocks", shrink=0.6)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sensor", default="jt128_sparse_real", help="default: %(default)s")
    parser.add_argument("--world", default="furnished_room", help="default: %(default)s")
    parser.add_argument("--frames", type=int, default=20, help="of the room; default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"), help="folder; default: %(default)s")
    options = parser.parse_args()
    simulator = EmbeddedSimulator(SimulationSetup(options.world, options.sensor, options.seed))
    problem = Problem(simulator, options.frames)
    none = np.zeros_like(problem.room)
    every = problem.room_and_floor + problem.robot
    covariances = {
        "sensor file": problem.covariance(none),
        "+ room": problem.covariance(problem.room),
        "+ floor": problem.covariance(problem.room_and_floor),
        ALL: problem.covariance(every),
        "all but\nroom": problem.covariance(problem.floor + problem.robot),
        "all but\nfloor": problem.covariance(problem.room + problem.robot),
        "all, lidars\nknown": problem.covariance(every, sensor_known=True),
    }
    quantities = problem.quantities()
    deviations = np.array([[one.deviation(covariance) for covariance in covariances.values()] for one in quantities])
    # Whether the drivers correct the table is the one thing that is not yet decided there.
    undecided = [
        problem.covariance(information, decided=False)
        for information in (none, problem.room, problem.room_and_floor, every, problem.floor + problem.robot,
                            problem.room + problem.robot)
    ]  # fmt: skip
    row = [one.name for one in quantities].index(SHARES)
    deviations[row, : len(undecided)] = [quantities[row].deviation(covariance) for covariance in undecided]
    columns = list(covariances)
    titles = [name.replace("\n", " ") for name in columns]
    print(f"{'standard deviation of':36s}" + "".join(f"{title:>18s}" for title in titles))
    for quantity, row in zip(quantities, deviations, strict=True):
        name = f"{quantity.name} / {quantity.unit}" if quantity.unit else quantity.name
        print(f"{name:42s}" + "".join(f"{value:18.3g}" for value in row)[6:])
    print("\nwhat room and floor leave open, in standard deviations of the sensor file:")
    print("\n".join(combinations(problem)))
    print("\nwhich of the lidars' errors limit what room and floor tell:")
    print("\n".join(limits(problem, quantities[:4], problem.room_and_floor)))
    print("\nand all blocks together:")
    print("\n".join(limits(problem, quantities[:8], every)))
    relative = [one for one in quantities if "in base_link" not in one.name and "floor" not in one.name]
    print("\nthe room alone, half of the pairs after the robot was turned by 90 deg:")
    print("\n".join(second_place(problem, [one for one in relative if one.name != SHARES])))
    path = options.out / "information_by_block.png"
    plot(deviations, quantities, columns, columns.index(ALL), path)
    print(f"\npicture: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(command.run(main))
