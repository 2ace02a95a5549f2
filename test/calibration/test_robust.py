"""Robust statistics against their definitions: quantiles counted by hand, twists among outliers."""

import numpy as np
import pytest

from stretch_sim_cal.calibration.robust import TUKEY, robust_deviation, tukey_fit, tukey_weights, weighted_quantile

TWIST = np.array([0.01, -0.02, 0.03, 0.001, 0.002, -0.003])


def test_tukeys_weights_fall_from_one_to_zero_at_the_width():
    np.testing.assert_allclose(
        tukey_weights(np.array([0.0, 0.5, -0.5, 1.0, 1.5, np.nan])), [1, 0.5625, 0.5625, 0, 0, 0]
    )


def test_the_robust_deviation_is_that_of_normal_noise_and_ignores_outliers():
    noise = np.random.default_rng(1).normal(scale=0.3, size=20001)
    assert robust_deviation(noise) == pytest.approx(0.3, rel=0.02)
    assert robust_deviation(np.concatenate([noise, np.full(1000, 1e6)])) == pytest.approx(0.3, rel=0.12)


@pytest.mark.parametrize(
    "share, expected", [(0.2, [1.0, -1.0]), (0.5, [2.0, 0.0]), (0.7, [2.0, 3.0]), (1.0, [3.0, 3.0])]
)
def test_weighted_quantiles_are_those_of_values_repeated_by_their_weights(share, expected):
    values, weights = np.array([[3.0, 1.0, 2.0], [-1.0, 0.0, 3.0]]), np.array([[2.0, 3.0, 5.0], [2.0, 3.0, 5.0]])
    for row, by, quantile in zip(values, weights, expected, strict=True):
        repeated = np.repeat(row, by.astype(int))
        assert quantile == np.sort(repeated)[int(np.ceil(share * len(repeated))) - 1]
    np.testing.assert_array_equal(weighted_quantile(values, weights, share), expected)
    np.testing.assert_array_equal(weighted_quantile(values, weights[0], share), expected)


def scene(noise=1e-3, outliers=0, columns=6):
    random = np.random.default_rng(3)
    jacobian = random.normal(size=(200, 6))
    jacobian[:, columns:] = 0.0
    deviations = noise * random.uniform(0.5, 2.0, size=200)
    values = -jacobian @ TWIST + random.normal(size=200) * deviations
    values[:outliers] += 1.0
    return jacobian, values, deviations**2


def test_a_twist_is_found_among_outliers_which_lose_their_weight():
    jacobian, values, variances = scene(outliers=60)
    fit = tukey_fit(jacobian, values, variances)
    weighted = jacobian * (fit.weights / variances)[:, None]
    np.testing.assert_allclose(weighted.T @ (values + jacobian @ fit.twist), 0.0, atol=1e-2)  # at a minimum: of 1e5
    np.testing.assert_allclose(fit.twist, TWIST, atol=5e-4)
    assert not fit.weights[:60].any() and fit.weights[60:].mean() > 0.85


def test_the_scale_is_the_ratio_of_residuals_to_their_expected_size_and_counts_what_the_twist_explains():
    jacobian, values, variances = scene()
    assert tukey_fit(jacobian, values, variances).scale == pytest.approx(1.0, abs=0.1)
    assert tukey_fit(jacobian, values, 100 * variances).scale == 1.0
    fit = tukey_fit(jacobian, values, variances / 25)
    kept = fit.weights > 0
    normalised = (values + jacobian @ fit.twist)[kept] / np.sqrt(variances[kept] / 25)
    assert fit.scale > 4.0
    assert fit.scale == pytest.approx(np.sqrt(normalised @ normalised / (kept.sum() - 6)), rel=1e-9)
    ratios = (values + jacobian @ fit.twist) / np.sqrt(variances / 25)
    np.testing.assert_allclose(fit.weights, tukey_weights(ratios / (TUKEY * robust_deviation(ratios))), atol=1e-4)
    jacobian, values, variances = (array[:10] for array in scene())
    fit = tukey_fit(jacobian, values, variances / 400)
    assert np.all(fit.weights > 0)
    normalised = (values + jacobian @ fit.twist) / np.sqrt(variances / 400)
    assert fit.scale == pytest.approx(np.sqrt(normalised @ normalised / 4), rel=1e-9) and fit.scale > 2.0


def test_directions_that_the_jacobian_lacks_stay_zero():
    fit = tukey_fit(*scene(columns=4))
    np.testing.assert_allclose(fit.twist[:4], TWIST[:4], atol=5e-4)
    np.testing.assert_array_equal(fit.twist[4:], 0.0)
    nothing = tukey_fit(np.empty((0, 6)), np.empty(0), np.empty(0))
    assert not nothing.twist.any() and nothing.scale == 1.0
