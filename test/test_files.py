"""Files: unsafe, torn or hostile content is one clear error, and no file is half written."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from stretch_sim_cal import files
from stretch_sim_cal.errors import InputError, RunFailure
from stretch_sim_cal.files import backups_of, keep_backup, locked, read_yaml, write_atomic, write_text, write_yaml


def bomb() -> str:
    lines = ["a: &a [" + ", ".join(["x"] * 9) + "]"]
    lines += [
        f"{name}: &{name} [" + ", ".join([f"*{before}"] * 9) + "]"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    return "\n".join(lines)


def merge_bomb() -> str:
    """Return 12 mappings, each of ten of the one before."""
    lines = ["a0: &a0 {x0: 1}"]
    merged = ["[" + ", ".join([f"*a{level}"] * 10) + "]" for level in range(12)]
    lines += [f"a{level}: &a{level} {{<<: {before}, x{level}: 1}}" for level, before in enumerate(merged, 1)]
    return "\n".join(lines)


def chain(length: int) -> str:
    """Return lists that hold the one before each: flat in the file, deep when written out."""
    return "\n".join(["a0: &a0 []", *(f"a{number}: &a{number} [*a{number - 1}]" for number in range(1, length))])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("!!python/object/apply:os.system [echo]", "not valid YAML"),
        ("a: [1, 2", "line 1"),
        ("- 1\n- 2", "contains list"),
        ("", "is empty; expected a mapping"),
        (f"a: {'[' * 1500}{']' * 1500}", "nested too deeply"),
        ("[" * 60_000, "nested too deeply"),
        (chain(1200), "aliases"),
        (bomb(), "aliases"),
        (merge_bomb(), "aliases"),
        ("a: &a {b: 1, <<: *a}", "aliases"),
        ("a: [" + "1, " * 1_100_000 + "]", "more than 1,000,000 values"),
        ("#" * 16_000_001, "larger than 16 MB"),
        ("a: 1\nb: 2\na: 3", "line 3 is not valid YAML: key 'a' is given twice"),
        ("a: 1\nb: " + "9" * 5001, "line 2 is not valid YAML: '9999"),
        ("a: 18446744073709551616", "'18446744073709551616' is not a usable value of type int"),
        ("a: 2026-13-45", "'2026-13-45' is not a usable value of type timestamp"),
    ],
)
def test_hostile_yaml_is_one_line_that_names_the_file(tmp_path, text, says):
    (tmp_path / "some.yaml").write_text(text)
    with pytest.raises(InputError, match=says) as error:
        read_yaml(tmp_path / "some.yaml")
    assert "some.yaml" in str(error.value) and "\n" not in str(error.value)


def full(stream):
    stream.write(b"a: 2")
    raise OSError(28, "No space left on device")


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    write_yaml(tmp_path / "some.yaml", {"a": 1})
    with pytest.raises(InputError, match="No space left"):
        write_atomic(tmp_path / "some.yaml", full)
    assert read_yaml(tmp_path / "some.yaml") == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["some.yaml"]


KILLED = """
import os, signal, sys
from stretch_sim_cal.files import write_atomic

def write(stream):
    stream.write(b"a: 2")
    stream.flush()
    os.kill(os.getpid(), signal.SIGKILL)

write_atomic(sys.argv[1], write)
"""


def test_a_process_that_is_killed_while_it_writes_leaves_the_old_file_and_nothing_else(tmp_path):
    write_yaml(tmp_path / "some.yaml", {"a": 1})
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "some.yaml")], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert read_yaml(tmp_path / "some.yaml") == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["some.yaml"]


def test_a_file_system_that_knows_no_unnamed_files_is_written_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY)  # refused for writing, as there
    write_yaml(tmp_path / "some.yaml", {"a": 1})
    write_yaml(tmp_path / "some.yaml", {"a": 2})
    assert read_yaml(tmp_path / "some.yaml") == {"a": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["some.yaml"]


def test_of_a_symbolic_link_the_target_is_written(tmp_path):
    (tmp_path / "fleet").mkdir()
    for name in ("there", "not_yet"):
        link = tmp_path / f"{name}.yaml"
        link.symlink_to(Path("fleet") / f"{name}.yaml")
    write_yaml(tmp_path / "fleet" / "there.yaml", {"a": 1})
    (tmp_path / "fleet" / "there.yaml").chmod(0o640)
    for name in ("there", "not_yet"):
        write_yaml(tmp_path / f"{name}.yaml", {"a": 2})
        assert (tmp_path / f"{name}.yaml").is_symlink()
        assert read_yaml(tmp_path / "fleet" / f"{name}.yaml") == {"a": 2}
    assert (tmp_path / "fleet" / "there.yaml").stat().st_mode & 0o777 == 0o640


def test_every_version_of_a_file_with_brackets_in_its_name_is_kept(tmp_path):
    path = tmp_path / "cal[1].yaml"
    for number in range(3):
        write_text(path, f"{number}\n")
        keep_backup(path)
    assert [backup.read_text() for backup in backups_of(path)] == ["0\n", "1\n", "2\n"]


def test_a_folder_that_another_process_holds_for_ever_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LOCK_WAIT", 0.0)
    with locked(tmp_path / "some.yaml"), pytest.raises(RunFailure, match="another process has locked"):
        with locked(tmp_path / "other.yaml"):
            pass


def test_a_value_that_stands_in_two_places_is_written_out_in_both(tmp_path):
    pose = [[1.0, 0.0], [0.0, 1.0]]
    write_yaml(tmp_path / "some.yaml", {"left": {"data": pose}, "right": {"data": pose}})
    assert not set("&*") & set((tmp_path / "some.yaml").read_text())
    assert read_yaml(tmp_path / "some.yaml") == {"left": {"data": pose}, "right": {"data": pose}}


def test_a_scratch_folder_is_private_and_goes_with_its_process_even_if_that_is_killed(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    own, file = tmp_path / "stretch_sim_cal_copy", tmp_path / f"{files.SCRATCH}notes"
    own.mkdir()
    file.touch()
    hold = "from stretch_sim_cal.files import scratch_folder\nwith scratch_folder() as folder:\n"
    hold += "    (folder / 'file').touch()\n    print(folder, flush=True)\n    input()\n"
    started = [subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
               for _ in range(2)]  # fmt: skip
    killed, alive = (Path(process.stdout.readline().strip()) for process in started)
    assert killed.stat().st_mode & 0o777 == 0o700 and killed.parent == tmp_path
    with started[0] as process:
        process.kill()
    with files.scratch_folder() as folder, files.scratch_folder() as other:
        assert not killed.exists() and {folder, other, alive, own, file} == set(tmp_path.iterdir())
        assert (alive / "file").exists()
    with started[1] as process:
        process.communicate("\n")
    assert set(tmp_path.iterdir()) == {own, file}
