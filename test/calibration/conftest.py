"""What is not about a part of the calibration calibrates whole scenes: it is slow, and FAST=1 leaves it out."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

PARTS = {
    "alignment_parts", "body_model_file", "body_settings", "calibration_file", "checks", "elements", "findings",
    "mounts_residuals", "problem", "robust",
}  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent and item.path.stem.removeprefix("test_") not in PARTS:
            item.add_marker(pytest.mark.slow)
