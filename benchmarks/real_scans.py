"""Scans of real lidars beside simulated ones of the same sensor file: noise, holes, edges.

    python benchmarks/real_scans.py --data DIR [--worlds tables] [--picture FILE]

DIR holds clones of the public repositories (list: docs/real_data.md). The rooms are others, so what is compared
depends little on them, along each channel's firings:
    noise     the fourth difference of five ranges that follow each other, on surfaces between 1 and 10 m, as a standard
              deviation (1.48 times the median of its size), and how often it exceeds four of these: everywhere, and
              where the next scan of the lidar at rest says that the surface is smooth (small things leave tails, too)
    holes     how often one return is missing between two that lie within 10 cm
    edges     where ranges jump by 0.2 to 1 m: how often the return between lies on neither side (a mixed pixel); where
              they jump by more: how often there is none
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from recordings import SETS

import stretch_sim_cal as cal
from stretch_sim_cal import command
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.sensor.points import coordinates

matplotlib.use("Agg")
import matplotlib.pyplot as plt

FOURTH = np.array([1.0, -4.0, 6.0, -4.0, 1.0])
NEAR, FAR = 1.0, 10.0  # m
SAME_SURFACE, EDGE, BESIDE, MARGIN = 0.1, 0.5, 0.1, 0.05  # m
TAIL = 4.0
SCANS, RECORDINGS = 3, 4  # at most, of each kind
BESIDE_FIRINGS = 8
SMOOTH = 1.5  # times the median scatter of the next scan


@dataclass(frozen=True)
class Line:
    """The `ranges` (m) of a channel by firing, NaN where nothing came back; the first is at the azimuth `first`, each
    `step` (rad) after the one before."""

    ranges: np.ndarray
    first: float
    step: float

    def around(self, azimuths: np.ndarray) -> np.ndarray:
        """Return the `BESIDE_FIRINGS` ranges around azimuths (N,), NaN beyond the ends."""
        centre = np.rint((azimuths - self.first) / self.step).astype(int)
        index = centre[:, None] + np.arange(BESIDE_FIRINGS) - BESIDE_FIRINGS // 2
        inside = (index >= 0) & (index < len(self.ranges))
        return np.where(inside, self.ranges[np.clip(index, 0, len(self.ranges) - 1)], np.nan)


def along_channels(cloud: np.ndarray) -> dict[int, Line]:
    xyz = coordinates(cloud).astype(float)
    ranges, azimuths = np.linalg.norm(xyz, axis=1), np.arctan2(xyz[:, 1], xyz[:, 0])
    channels = {}
    for ring in np.unique(cloud["ring"]):
        own = np.flatnonzero((cloud["ring"] == ring) & (ranges > 0))
        own = own[np.argsort(azimuths[own], kind="stable")]
        if len(own) < 20:
            continue
        gaps = np.diff(azimuths[own])
        step = np.median(gaps[gaps > 1e-5])
        numbers = np.r_[0, np.cumsum(np.rint(gaps / step).astype(int))]
        line = np.full(numbers[-1] + 1, np.nan)
        line[numbers[::-1]] = ranges[own][::-1]  # of two returns of one firing the first
        channels[int(ring)] = Line(line, float(azimuths[own[0]]), float(step))
    return channels


def windows(line: np.ndarray, size: int) -> np.ndarray:
    """Return all stretches of `size` firings, (N, size)."""
    return np.lib.stride_tricks.sliding_window_view(line, size) if len(line) >= size else np.zeros((0, size))


def scatter_beside(line: Line, other: Line | None) -> np.ndarray:
    """Return how much (m) another scan's ranges around the middle of each stretch of five firings differ from a
    parabola, (N,); NaN where it has none."""
    count = max(len(line.ranges) - 4, 0)
    if other is None:
        return np.full(count, np.nan)
    shapes = np.vander(np.linspace(-1.0, 1.0, BESIDE_FIRINGS), 3)
    left_over = np.eye(BESIDE_FIRINGS) - shapes @ np.linalg.pinv(shapes)
    ranges = other.around(line.first + (np.arange(count) + 2.0) * line.step)
    return np.linalg.norm(ranges @ left_over, axis=1) / np.sqrt(BESIDE_FIRINGS - 3.0)


def measured(recordings: list[list[np.ndarray]]) -> tuple[dict[str, float], np.ndarray]:
    """Return the statistics of recordings of lidars at rest, each of scans, and the noise (m) of each stretch of a
    surface."""
    scans = [[along_channels(cloud) for cloud in clouds] for clouds in recordings]
    lines = [line.ranges for own in scans for scan in own for line in scan.values()]
    five = np.vstack([windows(line, 5) for line in lines])
    beside = np.concatenate([
        scatter_beside(line, (own[n + 1] if n + 1 < len(own) else {}).get(ring))
        for own in scans for n, scan in enumerate(own) for ring, line in scan.items() if len(line.ranges) >= 5
    ])  # fmt: skip
    near = (five > NEAR).all(axis=1) & (five < FAR).all(axis=1) & (np.ptp(five, axis=1) < EDGE)
    noise = five[near] @ FOURTH / np.linalg.norm(FOURTH)
    deviation = deviation_of(noise)
    beside = beside[near]
    known = np.isfinite(beside)
    smooth = noise[known][beside[known] < SMOOTH * np.median(beside[known])] if known.any() else noise[:0]
    before, at, after = np.vstack([windows(line, 3) for line in lines]).T
    first, one, two, three, last = five.T
    with np.errstate(invalid="ignore"):
        same = np.abs(before - after) < SAME_SURFACE
        jump = np.where((np.abs(one - first) < BESIDE) & (np.abs(last - three) < BESIDE), np.abs(three - one), 0.0)
        jump[~((np.minimum(one, three) > NEAR) & (np.minimum(one, three) < FAR))] = 0.0
        between = (two > np.minimum(one, three) + MARGIN) & (two < np.maximum(one, three) - MARGIN)
    small, wide = (jump > 0.2) & (jump < EDGE), jump > EDGE
    return {
        "noise, mm": 1e3 * deviation,
        "noise beyond 4 deviations, %": 100.0 * np.mean(np.abs(noise) > TAIL * deviation),
        "the same of smooth surfaces, %": 100.0 * np.mean(np.abs(smooth) / deviation_of(smooth) > TAIL)
        if known.any() else np.nan,
        "holes, %": 100.0 * np.mean(np.isnan(at[same])),
        "mixed at edges of 0.2 to 0.5 m, %": 100.0 * np.mean(between[small]),
        "of 0.5 to 1 m, %": 100.0 * np.mean(between[wide & (jump < 1.0)]),
        "edges beyond 0.5 m without a return, %": 100.0 * np.mean(np.isnan(two[wide])),
    }, noise  # fmt: skip


def deviation_of(noise: np.ndarray) -> float:
    """Return the standard deviation by the median, which tails do not change."""
    return float(1.4826 * np.median(np.abs(noise)))


def real_scans(folder: Path) -> dict[str, list[list[np.ndarray]]]:
    """Return recordings of some scans by the sensor file that fits."""
    found: dict[str, list[list[np.ndarray]]] = {}
    for reader in SETS.values():
        try:
            for recorded in reader(folder):
                for sensor, clouds in zip(recorded.sensors, recorded.clouds.values(), strict=True):
                    if (
                        sensor is not None
                        and "ring" in clouds[0].dtype.names
                        and len(found.get(sensor, [])) < RECORDINGS
                    ):
                        found.setdefault(sensor, []).append(clouds[:SCANS])
        except InputError as problem:
            command.warn(f"{problem}: left out")
    return found


def simulated_scans(sensor: str, worlds: list[str]) -> list[list[np.ndarray]]:
    """Return simulated scans of a sensor file, in each world."""
    rooms = [cal.simulate(None, world, sensor, seed, frames=SCANS) for seed, world in enumerate(worlds, 1)]
    return [sim.clouds["left"] for sim in rooms]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--worlds", nargs="+", default=["furnished_room", "tables", "uneven", "surfaces"])
    parser.add_argument("--picture", type=Path, default=Path("real_scans.png"))
    args = parser.parse_args()
    real = real_scans(args.data)
    if not real:
        raise InputError(f"{args.data}: contains none of the recordings; docs/real_data.md lists them")
    figure, axes = plt.subplots(2, -(-len(real) // 2), figsize=(16, 7), squeeze=False, constrained_layout=True)
    header: list[str] = []
    for (sensor, clouds), axis in zip(sorted(real.items()), axes.flat, strict=False):
        rows = {"real": measured(clouds), "simulated": measured(simulated_scans(sensor, args.worlds))}
        if not header:
            header = list(rows["real"][0])
            print(f"| real, simulated | {' | '.join(header)} |\n|{'---|' * (len(header) + 1)}")
        cells = (", ".join(f"{rows[which][0][name]:.2g}".replace("nan", "-") for which in rows) for name in header)
        print(f"| {sensor} | {' | '.join(cells)} |", flush=True)
        edges = np.linspace(-6.0, 6.0, 61) * rows["real"][0]["noise, mm"]
        for which, (_, noise) in rows.items():
            axis.hist(1e3 * noise, edges, density=True, histtype="step", log=True, label=which)
        axis.set(title=sensor, xlabel="noise, mm", yticks=[])
    axes.flat[0].legend()
    for axis in list(axes.flat)[len(real) :]:
        axis.set_axis_off()
    figure.savefig(args.picture, dpi=70)
    print(f"noise of every stretch, drawn: {args.picture}")


if __name__ == "__main__":
    sys.exit(command.run(main))
