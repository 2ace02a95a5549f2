"""The error model of a unit: distortion and correction are inverse to each other; derivatives."""

from dataclasses import replace

import numpy as np
import pytest

from stretch_sim_cal.geometry.transforms import apply, exp, inverse
from stretch_sim_cal.sensor.unit import (
    CENTRE_SHARE,
    CHANNEL_KINDS,
    FIRING_SHARE,
    OF_SCANS,
    SCALARS,
    ErrorModel,
    UnitSpread,
    directions,
    scan_begin,
    weak_echo,
)

SPREAD = UnitSpread(
    range_offset=0.01, range_scale=5e-4, near_range=0.01, near_length=1.0, incidence=0.005, echo=0.003,
    channel_range=0.002, channel_elevation=1e-3, channel_azimuth=1e-3, azimuth_harmonics=(3e-4, 3e-4),
    optical_centre=(1e-3, 1e-3, 1e-3), driver_uncertain=True,
)  # fmt: skip
CHANNELS = 32


@pytest.fixture
def scene():
    """A unit with all errors, its driver correcting nothing, and 500 returns: model, values, true points, returns."""
    rng = np.random.default_rng(5)
    model = ErrorModel(
        SPREAD, np.linspace(-0.08, 1.5, CHANNELS), rng.normal(0.0, 0.1, CHANNELS),
        np.array([-0.0076, 0.0137, 0.0127]), rng.uniform(0.0, 0.004, CHANNELS),
    )  # fmt: skip
    values = model.draw(rng)
    values[[CENTRE_SHARE, FIRING_SHARE]] = 1.0
    rotor, channel = rng.uniform(-3.0, 3.0, 500), rng.integers(0, CHANNELS, 500)
    distances, cosines = rng.uniform(0.3, 8.0, 500), rng.uniform(0.2, 1.0, 500)
    intensity = rng.uniform(0.0, 255.0, 500)
    origins, rays = model.true_rays(rotor, channel, values)
    ranges = model.measured_ranges(distances, cosines, weak_echo(intensity), channel, values)
    published = ranges[:, None] * directions(model.elevations[channel], rotor + model.azimuth_offsets[channel])
    returns = model.returns(published, channel, weak_echo(intensity))
    return model, values, origins + distances[:, None] * rays, returns, cosines


def test_what_the_simulator_distorts_by_centimetres_the_calibration_corrects(scene):
    model, values, true_points, returns, cosines = scene
    assert np.linalg.norm(model.corrected(returns, cosines, np.zeros(model.size)) - true_points, axis=1).mean() > 0.01
    assert np.abs(model.corrected(returns, cosines, values) - true_points).max() < 1e-6


@pytest.mark.parametrize("name", [*SCALARS, *OF_SCANS, *CHANNEL_KINDS])
def test_the_derivative_by_a_parameter_is_that_of_the_corrected_points(scene, name):
    model, values, _, returns, cosines = scene
    normals = np.random.default_rng(0).normal(size=(len(returns), 3))
    step = np.zeros(model.size)
    if name in OF_SCANS:
        step[model.of_scan_motion.start :][OF_SCANS.index(name)] = 1e-6
    else:
        step[SCALARS.index(name) if name in SCALARS else model.of_kind(name)] = 1e-6
    forward, backward = (model.corrected(returns, cosines, values + change) for change in (step, -step))
    expected = np.einsum("ni,ni->n", normals, forward - backward) / 2e-6
    derivatives = np.hstack(model.sensitivity(returns, cosines, normals, values))
    found = derivatives[:, [*SCALARS, *OF_SCANS, *CHANNEL_KINDS].index(name)]
    assert np.allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_a_motion_of_the_frame_in_every_scan_is_taken_out(scene):
    model, values, true_points, returns, cosines = scene
    twist, begin = np.array([0.003, -0.002, 0.001, 5e-4, -3e-4, 8e-4]), 3.09
    shares = (returns.rotor - begin) / (2.0 * np.pi) % 1.0 - 0.5
    at_rest = model.corrected(returns, cosines, values)
    published = np.array([
        apply(inverse(exp(share * twist)), point) for share, point in zip(shares, at_rest, strict=True)
    ])  # fmt: skip
    moving = replace(model, scan_begin=begin)
    motion = np.zeros(model.size)
    motion[moving.of_scan_motion] = twist
    seen = replace(returns, ranges=np.linalg.norm(published, axis=1), azimuths=np.arctan2(*published.T[1::-1]),
                   elevations=np.arcsin(published[:, 2] / np.linalg.norm(published, axis=1)))  # fmt: skip
    assert np.abs(published - at_rest).max() > 1e-3
    # Elsewhere the motion takes a return into the next scan, or to another share of this one.
    inside = (np.abs(shares) < 0.49) & (np.linalg.norm(at_rest[:, :2], axis=1) > 0.5)
    assert np.abs(moving.corrected(seen, 1.0, motion) - at_rest)[inside].max() < 2e-5


@pytest.mark.parametrize("by_channel", [False, True])
def test_where_scans_begin_is_told_by_the_order_of_their_returns(by_channel):
    azimuths, channels = np.meshgrid(2.0 + np.arange(0.0, 2.0 * np.pi, 0.01), np.arange(8))
    order = slice(None) if by_channel else np.argsort(azimuths.ravel(), kind="stable")
    azimuths, channels = ((each.ravel()[order]) for each in (np.angle(np.exp(1j * azimuths)), channels))
    assert scan_begin(azimuths, channels) == pytest.approx(2.0)
    shuffled = np.random.default_rng(0).permutation(len(azimuths))
    assert scan_begin(azimuths[shuffled], channels[shuffled]) == -np.pi


def test_channels_that_see_little_do_not_tell_where_scans_begin():
    """Those of a dome that look upwards: most of them see nothing at the scan's begin."""
    azimuths, channels = np.meshgrid(2.0 + np.arange(0.0, 2.0 * np.pi, 0.01), np.arange(8), indexing="ij")
    seen = (channels < 3) | (np.abs(azimuths - 3.0 - 0.5 * channels) < 0.1)
    assert scan_begin(np.angle(np.exp(1j * azimuths[seen])), channels[seen]) == pytest.approx(2.0)


def test_units_are_drawn_from_the_prior(scene):
    model, rng = scene[0], np.random.default_rng(1)
    drawn = np.array([model.draw(rng) for _ in range(400)])
    assert np.abs(drawn[:, 0].std() / SPREAD.range_offset - 1.0) < 0.15
    elevations, azimuths = (drawn[:, model.of_kind(f"channel_{kind}")] for kind in ("elevation", "azimuth"))
    assert np.abs(elevations.std() / SPREAD.channel_elevation - 1.0) < 0.1
    assert np.abs(azimuths.mean(axis=1)).max() < 1e-9, "the channels' mean azimuth is part of the lidar's pose"
    assert not drawn[:, [CENTRE_SHARE, FIRING_SHARE]].any()


def test_errors_larger_than_a_range_leave_points_finite():
    """As when wrong surfaces are fitted by such errors."""
    model = ErrorModel(SPREAD, np.zeros(1), np.zeros(1))
    values = np.zeros(model.size)
    values[SCALARS.index("range_offset")], values[SCALARS.index("near_range")] = 3.0, 5.0
    returns = model.returns(np.array([[0.2, 0.0, 0.0], [5.0, 0.0, 0.0]]), np.zeros(2, dtype=int))
    assert np.isfinite(model.corrected(returns, 1.0, values)).all()
