"""Gazebo as its stand-in installs it."""

import tempfile

import pytest
from stand_in import installed


@pytest.fixture
def gazebo(monkeypatch, request, tmp_path):
    """An installed Gazebo, with the fault that a test asks for. However it ends, no temporary file is left."""
    temporary = tmp_path / "t"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    yield installed(monkeypatch, getattr(request, "param", ""))
    assert not list(temporary.iterdir())
