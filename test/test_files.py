"""Files from anywhere: what is unsafe, torn or meant to hurt is one clear error, and nothing is half written."""

import pytest

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import read_yaml, write_atomic, write_yaml


def bomb() -> str:
    lines = ["a: &a [" + ", ".join(["x"] * 9) + "]"]
    lines += [
        f"{name}: &{name} [" + ", ".join([f"*{before}"] * 9) + "]"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("!!python/object/apply:os.system [echo]", "not valid YAML"),
        ("a: [1, 2", "line 1"),
        ("- 1\n- 2", "holds list"),
        ("", "holds NoneType"),
        (f"a: {'[' * 1500}{']' * 1500}", "nested too deeply"),
        (bomb(), "aliases"),
        ("a: &a [1, *a]", "aliases"),
    ],
    ids=["python object", "torn", "list", "empty", "deep", "bomb", "loop"],
)
def test_hostile_yaml_is_one_line_that_names_the_file(tmp_path, text, says):
    (tmp_path / "some.yaml").write_text(text)
    with pytest.raises(InputError, match=says) as error:
        read_yaml(tmp_path / "some.yaml")
    assert "some.yaml" in str(error.value) and "\n" not in str(error.value)


def test_an_alias_that_is_meant_is_written_out(tmp_path):
    (tmp_path / "some.yaml").write_text("a: &a {x: 1}\nb: *a\n")
    assert read_yaml(tmp_path / "some.yaml") == {"a": {"x": 1}, "b": {"x": 1}}


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    write_yaml(tmp_path / "some.yaml", {"a": 1})

    def torn(stream):
        stream.write(b"a: 2")
        raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match="No space left"):
        write_atomic(tmp_path / "some.yaml", torn)
    assert read_yaml(tmp_path / "some.yaml") == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["some.yaml"]


def test_a_value_that_stands_in_two_places_is_written_out_in_both(tmp_path):
    pose = [[1.0, 0.0], [0.0, 1.0]]
    write_yaml(tmp_path / "some.yaml", {"left": {"data": pose}, "right": {"data": pose}})
    assert not set("&*") & set((tmp_path / "some.yaml").read_text())
    assert read_yaml(tmp_path / "some.yaml") == {"left": {"data": pose}, "right": {"data": pose}}
