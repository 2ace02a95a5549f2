"""Another package's alignment method, as it is installed."""

from pathlib import Path


def plugged_in(folder: Path, name: str, code: str, method: str) -> Path:
    """Write a distribution whose module `name` is `code`, and whose entry point of that name is its class `method`."""
    about = folder / f"{name}-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[stretch_sim_cal.alignment_methods]\n{name} = {name}:{method}\n")
    (folder / f"{name}.py").write_text(code)
    return folder
