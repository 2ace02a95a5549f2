"""The page about new profiles: its code runs, finds what it says, and excuses what it says."""

import re
from pathlib import Path

from described_robots import edited, joint_set, stretch_text

from stretch_sim_cal.conventions.profile import Profile, lint
from stretch_sim_cal.robot.description import load_model

PAGE = Path(__file__).resolve().parents[2] / "docs" / "conventions_new_profile.md"


def page_profile() -> Profile:
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL).group(1)
    namespace: dict = {}
    exec(compile(code, str(PAGE), "exec"), namespace)
    return namespace["MOBILE"]


def test_the_pages_profile_excuses_the_vendors_robot_and_finds_a_tilted_footprint():
    profile = page_profile()
    found = lint(load_model(stretch_text()), profile)
    assert [(each.level, each.rule) for each in found] == [("info", "virtual")]
    calibrated = edited(stretch_text(), joint_set("base_ref", "origin", rpy="0.012 0 0"))
    assert {each.level for each in lint(load_model(calibrated), profile)} == {"info"}
    tilted = edited(stretch_text(), joint_set("base_ref", "origin", rpy="0.2 0 0"))
    assert [each.rule for each in lint(load_model(tilted), profile) if each.level == "error"] == ["level"]
