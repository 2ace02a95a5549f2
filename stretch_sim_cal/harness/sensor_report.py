"""The result of the identification of both lidars: as lines, as numbers, and as a self-contained page with pictures."""

from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from stretch_sim_cal.calibration.identification import Identification
from stretch_sim_cal.geometry.transforms import SIDES
from stretch_sim_cal.harness.pages import write_page
from stretch_sim_cal.harness.report import as_png
from stretch_sim_cal.sensor.unit import CHANNEL_KINDS
from stretch_sim_cal.sensor.unit_file import CHANNEL_KEYS, KEY_OF_SCALAR, shown_unit

BEFORE, AFTER, BAND, OPEN = "#c2182b", "#1f6fb4", "#dddddd", "#999999"
ENOUGH = 50  # returns in a bin that is drawn


def parameters(result: Identification, side: int) -> list[tuple[str, float, float, float, str, bool]]:
    """Return, for each scalar that may vary: key, value, standard deviation, prior's, unit, whether determined."""
    prior, rows = np.sqrt(np.diag(result.models[side].prior_covariance())), []
    for key, index in KEY_OF_SCALAR.items():
        if prior[index] > 0:
            name, size = shown_unit(key)
            own = (each[index] for each in (result.units[side].values, result.units[side].standard_deviations, prior))
            rows.append((key, *(size * value for value in own), name, bool(result.determined(side)[index])))
    return rows


def measured(result: Identification, side: int) -> list[tuple[str, str, str]]:
    """Return the measured properties of a lidar: name, value, and the sensor file's value."""
    seen, noise = result.signatures[side], result.noise[side]
    sensor, growth, found = seen.sensor, seen.sensor.noise_growth, noise.growth
    elevation, azimuth = np.degrees(seen.table_difference)
    spin = "unknown"
    if seen.spin is not None:
        spin = "moves {:+.4f} deg a scan, jitter {:.4f} deg".format(*np.degrees(seen.spin))
    deviations = [f"+-{1e3 * d:.2f}" if np.isfinite(d) else "not determined" for d in noise.deviations]
    rows = [
        ("table", f"elevations {elevation:.4f} deg, azimuths {azimuth:.4f} deg from it (median)", sensor.name),
        ("distance correction of the driver", _said(seen.distance_correction),
         _said(sensor.driver.distance_correction)),
        ("firing-time correction", _said(seen.firing_time_correction), _said(sensor.driver.firing_time_correction)),
        ("scans a second", "unknown" if seen.period is None else f"{1 / seen.period:.4f}", f"{sensor.rate:g}"),
        ("columns a turn", _said(seen.azimuth_steps), f"{sensor.azimuth_steps}"),
        ("rotor", {None: "unknown", True: "clockwise", False: "counter-clockwise"}[seen.clockwise],
         "clockwise" if sensor.clockwise else "counter-clockwise"),
        ("rotor's azimuth when scans begin", spin, f"moves up to {np.degrees(sensor.spin_drift):g} deg a scan, jitter "
         f"{np.degrees(sensor.spin_jitter):g} deg"),
        ("order of channels within a column", _order(seen.firing_order), "ascending"),
        ("times", {None: "none", 0: "each column or point"}.get(seen.packets, f"{seen.packets} a scan"),
         f"{sensor.packets} a scan" if sensor.packets else "each column or point"),
        ("returns", "dual" if seen.dual_return else "single", "dual" if sensor.dual_return else "single"),
        ("misses", "zeros" if seen.zero_misses else "left out", "zeros" if sensor.zero_misses else "left out"),
        ("quantisation / mm", f"{1e3 * seen.quantisation:.3f}" if seen.quantisation else "none",
         f"{1e3 * sensor.quantisation:g}"),
        ("range noise, constant / mm", f"{1e3 * noise.constant:.2f} {deviations[0]}", f"{1e3 * sensor.range_noise:g}"),
        ("range noise by range / mm per m", f"{1e3 * found.range:.2f} {deviations[1]}", f"{1e3 * growth.range:g}"),
        ("range noise by incidence / mm", f"{1e3 * found.incidence:.2f} {deviations[2]}",
         f"{1e3 * growth.incidence:g}"),
        ("range noise of weak echoes / mm", f"{1e3 * found.echo:.2f} {deviations[3]}", f"{1e3 * growth.echo:g}"),
    ]  # fmt: skip
    lost = seen.drop_outs
    if lost is None:
        return [*rows, ("returns lost", "unknown", f"{100 * sensor.drop_out_rate:g} %")]
    echo = f"{lost.echo:.4f} +-{lost.echo_deviation:.4f}" if lost.echo else "not determined: no echo weak enough"
    return [
        *rows,
        ("returns lost at random / %", f"{100 * lost.rate:.3f} +-{100 * lost.rate_deviation:.3f}",
         f"{100 * sensor.drop_out_rate:g}"),
        ("echo strength at which returns are lost", echo, f"{sensor.drop_out_echo:g}"),
    ]  # fmt: skip


def _said(value: bool | int | None) -> str:
    return {None: "unknown", True: "on", False: "off"}.get(value, str(value))


def _order(order: np.ndarray) -> str:
    return "ascending" if (np.diff(order) > 0).sum() >= len(order) - 2 else ", ".join(map(str, order[:12])) + ", ..."


def found_lines(result: Identification) -> list[str]:
    """Return the results as lines for a terminal."""
    lines = []
    for side, device in enumerate(result.names):
        lines.append(f"{device} lidar, {result.signatures[side].sensor.name}:")
        for key, value, deviation, prior, unit, determined in parameters(result, side):
            shown = f"{value:+9.3f} +- {deviation:.3f}" if determined else f"not determined, within {prior:.3g}"
            lines.append(f"  {key:<26} {shown} {unit}")
        for kind, key in CHANNEL_KEYS.items():
            own = result.models[side].of_kind(kind)
            unit, size = shown_unit(key)
            determined = result.determined(side)[own]
            spread = size * result.units[side].values[own][determined].std() if determined.any() else 0.0
            lines.append(f"  {key:<26} {determined.sum()} of {len(determined)} channels, spread {spread:.4f} {unit}")
        noise = result.noise[side]
        weak = f"{1e3 * noise.growth.echo:.1f} mm" if np.isfinite(noise.deviations[3]) else "not determined"
        lines.append(
            f"  {'range noise':<26} {1e3 * noise.constant:.1f} mm, {1e3 * noise.growth.range:.2f} mm per m, "
            f"{1e3 * noise.growth.incidence:.1f} mm by incidence, for weak echoes {weak}"
        )
    return lines + [f"trade-off: {sentence}" for sentence in result.trade_offs]


def found_numbers(result: Identification) -> dict:
    """Return the results as plain numbers for JSON, by the lidars' names."""
    found = {}
    for side, device in enumerate(result.names):
        seen, noise, lost = result.signatures[side], result.noise[side], result.signatures[side].drop_outs
        found[device] = seen.keys() | {
            "sensor": seen.sensor.name,
            "range_noise": noise.constant,
            "range_noise_growth": vars(noise.growth),
            "parameters": {
                key: {"value": value, "standard_deviation": deviation, "unit": unit, "determined": determined}
                for key, value, deviation, _, unit, determined in parameters(result, side)
            },
            "not_determined": list(result.units[side].not_determined),
            "drop_outs_judged_by": 0 if lost is None else lost.trials,
        }
    return found | {"trade_offs": result.trade_offs}


def write_sensor_report(path: Path, result: Identification, sync: str, recordings: list[str]) -> Path:
    title = "Both lidars" if result.names == SIDES else f"The {result.names[1]} lidar beside the left one"
    return write_page(
        path, title, template="sensor", recordings=", ".join(recordings), sync=sync, trade_offs=result.trade_offs,
        units={name: parameters(result, side) for side, name in enumerate(result.names)},
        measured={name: measured(result, side) for side, name in enumerate(result.names)},
        channels=channels_picture(result), residuals=residuals_picture(result), noise=noise_picture(result),
    )  # fmt: skip


def channels_picture(result: Identification) -> bytes:
    """Draw each channel's errors by elevation, with error bars, over the band that the sensor file allows."""
    figure, axes = plt.subplots(len(CHANNEL_KINDS), 2, figsize=(12, 9), sharex=True, sharey="row")
    for side, device in enumerate(result.names):
        model, unit, determined = result.models[side], result.units[side], result.determined(side)
        for row, (kind, key) in enumerate(CHANNEL_KEYS.items()):
            axis, own = axes[row, side], model.of_kind(kind)
            name, size = shown_unit(key)
            spread = size * getattr(model.spread, kind)
            axis.axhspan(-spread, spread, color=BAND)
            shown = np.degrees(model.elevations), size * unit.values[own], size * unit.standard_deviations[own]
            for chosen, colour in ((determined[own], AFTER), (~determined[own], OPEN)):
                some = [each[chosen] for each in shown]
                axis.errorbar(*some, fmt=".", markersize=4, linewidth=0.8, color=colour)
            if side == 0:
                axis.set_ylabel(f"{kind.replace('_', ' ')} / {name}")
        axes[0, side].set_title(f"{device} lidar")
        axes[-1, side].set_xlabel("elevation of the channel / deg")
    return as_png(figure)


def residuals_picture(result: Identification) -> bytes:
    """Draw means and standard deviations of residuals by range, incidence, channel, azimuth and intensity."""

    def draw(axis: Axes, side: int, name: str, values: np.ndarray) -> None:
        found = result.residuals[side]
        axis.axhline(0.0, color=OPEN, linewidth=0.6)
        for residuals, colour, label in ((found.before, BEFORE, "before"), (found.after, AFTER, "after")):
            at, mean, spread = _binned(values, residuals, 64 if name == "channel" else 40)
            axis.plot(at, 1e3 * mean, color=colour, label=label, linewidth=1.2)
            axis.fill_between(at, 1e3 * (mean - spread), 1e3 * (mean + spread), color=colour, alpha=0.15, linewidth=0)

    names = ("range / m", "incidence / deg", "channel", "azimuth / deg", "intensity")
    return _by_dependence(result, names, "range residual / mm", (-30, 30), draw)


def noise_picture(result: Identification) -> bytes:
    """Draw the standard deviation of residuals by range, incidence and intensity, and the noise law beside it."""
    laws = [
        noise.variances(found, seen.quantisation, seen.sensor.beam_divergence)
        for noise, found, seen in zip(result.noise, result.residuals, result.signatures, strict=True)
    ]

    def draw(axis: Axes, side: int, name: str, values: np.ndarray) -> None:
        at, _, spread = _binned(values, result.residuals[side].after, 40)
        axis.plot(at, 1e3 * spread, ".", color=AFTER, label="measured")
        at, mean, _ = _binned(values, laws[side], 40)
        label = "noise, quantisation and beam of the unit file"
        axis.plot(at, 1e3 * np.sqrt(mean), color="#2b2b2b", linewidth=1.0, label=label)

    names = ("range / m", "incidence / deg", "intensity")
    return _by_dependence(result, names, "standard deviation / mm", (0, None), draw)


def _by_dependence(
    result: Identification, names: Sequence[str], label: str, limits: tuple[float | None, float | None],
    draw: Callable[[Axes, int, str, np.ndarray], None],
) -> bytes:  # fmt: skip
    """Let `draw` (axis, side, name, values) fill a row of axes for each of `_dependences`, a column for each lidar."""
    figure, axes = plt.subplots(len(names), 2, figsize=(12, 3.2 * len(names)), sharey=True)
    for side, device in enumerate(result.names):
        dependences = _dependences(result.residuals[side])
        for axis, name in zip(axes[:, side], names, strict=True):
            draw(axis, side, name, dependences[name])
            axis.set_xlabel(name)
        axes[0, side].set_title(f"{device} lidar")
    plt.setp(axes[:, 0], ylabel=label)
    axes[0, 0].legend()
    axes[0, 0].set_ylim(*limits)
    return as_png(figure)


def _dependences(found) -> dict[str, np.ndarray]:
    return {
        "range / m": found.ranges,
        "incidence / deg": np.degrees(np.arccos(np.clip(found.cosines, 0.0, 1.0))),
        "channel": found.channel.astype(float),
        "azimuth / deg": np.degrees(found.azimuth),
        "intensity": found.intensity,
    }


def _binned(values: np.ndarray, residuals: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return centres, trimmed means and standard deviations of residuals in `count` equal bins of values."""
    known = np.isfinite(values)
    values, residuals = values[known], residuals[known]
    if not len(values):
        return (np.zeros(0),) * 3
    low, high = values.min(), values.max()
    number = np.clip(((values - low) / max(high - low, 1e-9) * count).astype(int), 0, count - 1)
    rows = []
    for one in np.flatnonzero(np.bincount(number, minlength=count) >= ENOUGH):
        own = residuals[number == one]
        off = np.abs(own - np.median(own))
        near = own[off < 4.0 * max(1.4826 * np.median(off), 1e-6)]
        rows.append((low + (one + 0.5) * (high - low) / count, near.mean(), near.std()))
    return tuple(np.array(rows).reshape(-1, 3).T)
