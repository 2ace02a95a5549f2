"""The picture that the benchmarks of alignment and floor draw: every single error of every method."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

SMALLEST = 1e-5  # what is drawn for an error of zero


@dataclass(frozen=True)
class Quantity:
    """An error that all methods' runs hold under `key`, in words, with the two values aimed at."""

    key: str
    label: str
    targets: tuple[float, float]


COLOURS = ("tab:blue", "tab:orange", "tab:green")


def plot_errors(
    results: Mapping[str, Sequence[dict]],
    quantities: Sequence[Quantity],
    path: Path,
    methods: Sequence[str] = ("ours", "published"),
) -> None:
    """Draw the runs' errors on logarithmic axes, row by row; what was refused is not drawn."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    size = (12, 1.5 + 0.4 * len(results))
    figure, axes = pyplot.subplots(1, len(quantities), figsize=size, sharey=True, layout="constrained")
    for axis, quantity in zip(axes, quantities, strict=True):
        for line, runs in enumerate(results.values()):
            for shift, method, colour in zip(np.linspace(-0.2, 0.2, len(methods)), methods, COLOURS, strict=False):
                values = [max(run[method][quantity.key], SMALLEST) for run in runs if not run[method].get("refusals")]
                height = line + shift
                label = None if line else method
                axis.plot(values, np.full(len(values), height), ".", color=colour, alpha=0.6, label=label)
                axis.plot(np.median(values or [np.nan]), height, "|", color=colour, markersize=14, markeredgewidth=2)
        for target, style in zip(quantity.targets, ("--", ":"), strict=True):
            axis.axvline(target, color="grey", linestyle=style, linewidth=1)
        axis.set(xscale="log", xlabel=quantity.label)
        axis.grid(True, axis="x", alpha=0.3)
    axes[0].set_yticks(range(len(results)), list(results))
    axes[0].set_ylim(len(results) - 0.5, -0.5)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(methods))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    pyplot.close(figure)
