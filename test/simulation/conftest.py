"""Gazebo as its stand-in installs it."""

import pytest
from stand_in import installed


@pytest.fixture
def gazebo(monkeypatch, request):
    """An installed Gazebo, with the fault that a test asks for."""
    return installed(monkeypatch, getattr(request, "param", ""))
