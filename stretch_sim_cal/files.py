"""Reading and writing files so that nothing is half written, nothing unsafe is loaded, and errors name the file; and
backups of replaced files."""

import contextlib
import copy
import fcntl
import functools
import glob
import itertools
import math
import os
import secrets
import shutil
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from stretch_sim_cal.errors import InputError, RunFailure

PACKAGE = "stretch_sim_cal"
# Far above anything that is meant: bytes of a text, values in a YAML file (aliases written out), levels of its nesting.
LARGEST_TEXT = 16_000_000
LARGEST_YAML = 1_000_000
DEEPEST_YAML = 100
EXPLAINED = 100_000  # characters up to which an error in YAML is worth the slow parser, with its better messages
KEPT = 20  # backups of a file
ROLLED_BACK = ".rolled_back"
SCRATCH = f"{PACKAGE}_scratch_"  # begins the names of scratch folders, and of nothing else: they are removed
# What numpy raises for an .npz file that is truncated, damaged, or something else (TypeError: a single array).
BROKEN_ARRAYS = (
    OSError, ValueError, EOFError, KeyError, TypeError, NotImplementedError, zipfile.BadZipFile, zlib.error
)  # fmt: skip
LOCK_WAIT = 30.0  # s for another process to finish its update; one takes milliseconds


def share_directory() -> Path:
    """Return the folder that holds `worlds/`, `models/`, `config/`, `scenarios/`, `launch/` and `rviz/`: the repository
    in a source checkout (also when installed editable), otherwise the installed share folder."""
    source = Path(__file__).resolve().parent.parent
    if (source / "package.xml").is_file() and (source / "worlds").is_dir():
        return source
    # <prefix>/lib/python3.x/site-packages/stretch_sim_cal/files.py: so pip and colcon install it, sourced or not.
    installed = Path(__file__).resolve().parents[4] / "share" / PACKAGE
    if (installed / "worlds").is_dir():
        return installed
    again = "install the package again with 'make env', 'pip install' or 'colcon build'"
    raise InputError(f"{installed}: no such folder; {again}")


def folders_in(variable: str) -> list[Path]:
    """Return the folders that an environment variable lists, as PATH does."""
    return [Path(folder) for folder in os.environ.get(variable, "").split(os.pathsep) if folder]


def find_shared(folder: str, name: str | Path, suffix: str, but: Sequence[str] = ()) -> Path:
    """Return the file `name`: a path, or the name of a file in the share folder `folder`, `but` of those. Raises
    `InputError` that lists the known names if there is no such file."""
    path = Path(name).expanduser()
    if path.suffix == suffix or len(path.parts) > 1:
        if path.is_file():
            return path.resolve()
        raise InputError(f"{path}: {'is a folder' if path.is_dir() else 'no such file'}")
    if path.is_file():
        raise InputError(f"{path}: is no {suffix} file")
    known = {p.name.removesuffix(suffix): p for p in (share_directory() / folder).glob(f"*{suffix}")}
    for other in but:
        known.pop(other, None)
    if str(name) not in known:
        if path.is_dir():
            raise InputError(f"{path}: is a folder, not a {suffix} file")
        available = ", ".join(sorted(known)) or "nothing"
        raise InputError(f"'{name}' is not known in {folder}/; available: {available}, or give a path")
    return known[str(name)]


def is_path(name: str | Path) -> bool:
    """Return whether a name is a path, and not that of a shipped file: it has a folder or a suffix."""
    return len(Path(name).parts) > 1 or bool(Path(name).suffix)


def named_in(source: str | Path, name: str | Path) -> str:
    """Return the file that the file `source` names: as an absolute path if it lies beside it (relative paths start at
    its folder) or, a path, in the working directory. Every other name is returned as it is, as of a shipped file."""
    path = Path(os.path.expanduser(name))
    for file in (Path(source).parent / path, *([path] if is_path(path) else [])):
        if os.path.isfile(file):
            return str(file.resolve())
    return str(name)


def version_of(path: Path) -> tuple[int, int, int] | None:
    """Return what differs after every change or replacement of a file, None while there is none."""
    with contextlib.suppress(OSError):
        status = path.stat()
        return status.st_mtime_ns, status.st_size, status.st_ino
    return None


def read_text(path: str | Path) -> str:
    """Return the text of a UTF-8 file. Raises `InputError` naming the file and the cause."""
    try:
        with open(path, "rb") as stream:
            content = stream.read(LARGEST_TEXT + 1)
        if len(content) > LARGEST_TEXT:
            raise InputError(f"{path}: is larger than {LARGEST_TEXT / 1e6:.0f} MB")
        return content.decode("utf-8")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text (byte {error.start})") from error


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Return the mapping in a YAML file, read with the safe loader. Raises `InputError` for anything else, for a key
    given twice, nesting deeper than `DEEPEST_YAML`, more than `LARGEST_YAML` values or an integer beyond 64 bits."""
    text = read_text(path)
    try:
        data = copy.deepcopy(_parsed(text))  # the reader may change it
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark else ""
        raise InputError(f"{path}:{where} is not valid YAML: {getattr(error, 'problem', None) or error}") from error
    except _TooMuch as error:
        raise InputError(f"{path}: {error}") from error
    if not isinstance(data, dict):
        found = "is empty" if data is None else f"contains {type(data).__name__}"
        raise InputError(f"{path}: {found}; expected a mapping")
    return data


class _TooMuch(Exception):
    """YAML that is too deep or too large to be made into objects."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # in C: a tenth of the time
    """The safe loader, with an error that names the line for a value that does not fit its type."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
            if isinstance(value, int) and value.bit_length() > 64:
                raise ValueError
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            problem = f"'{str(node.value)[:40]}' is not a usable value of type {node.tag.rpartition(':')[2]}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error
        return value


@functools.lru_cache(maxsize=16)  # a sensor's tables are read once per unit, and take a tenth of a second
def _parsed(text: str) -> Any:
    try:
        _check_nesting(text)  # before the composer, which recurses in C
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            size, depth = _expanded(node, {})
            if size > LARGEST_YAML or depth > DEEPEST_YAML:
                raise _TooMuch(f"its aliases (*name) expand to more than {LARGEST_YAML:,} values, or to themselves")
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.YAMLError:
        if len(text) < EXPLAINED:
            for _ in yaml.parse(text, yaml.SafeLoader):  # a better message, with the place
                pass
        raise


def _check_nesting(text: str) -> None:
    depth = 0
    for number, event in enumerate(yaml.parse(text, _Loader)):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST_YAML:
            raise _TooMuch(f"is nested too deeply (more than {DEEPEST_YAML} levels)")
        if number > LARGEST_YAML:
            raise _TooMuch(f"has more than {LARGEST_YAML:,} values")


def _expanded(node: yaml.Node, known: dict[int, tuple[float, int]]) -> tuple[float, int]:
    """Return the number of values with every alias and merge (<<) written out (infinite if one holds itself), and of
    levels. Raises `yaml.YAMLError` for a key that is given twice."""
    if isinstance(node, yaml.ScalarNode):
        return 1, 1
    if id(node) not in known:
        known[id(node)] = math.inf, 0
        children = node.value
        if isinstance(node, yaml.MappingNode):
            seen: set[tuple[str, str]] = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in seen:
                    problem = f"key '{key.value}' is given twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                seen.add((key.tag, str(key.value)))
            children = list(itertools.chain(*node.value))
        sizes = [_expanded(child, known) for child in children]
        known[id(node)] = 1 + sum(size for size, _ in sizes), 1 + max((depth for _, depth in sizes), default=0)
    return known[id(node)]


@contextlib.contextmanager
def locked(path: str | Path) -> Iterator[None]:
    """Hold the file at `path`, which need not exist, between reading and replacing it; other processes wait. Not
    reentrant. Its folder is locked (by `flock`), so that no lock file stays behind. Raises `InputError` if that fails,
    `RunFailure` if another process holds it for longer than `LOCK_WAIT`."""
    folder, deadline = Path(os.path.realpath(path)).parent, time.monotonic() + LOCK_WAIT
    with writing(path):
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    held = f"another process has locked {folder} for {LOCK_WAIT:.0f} s"
                    raise RunFailure(f"{path}: {held}; end it, and try again") from error
                time.sleep(0.005)
            except OSError as error:
                raise InputError(f"{path}: its folder cannot be locked: {error.strerror or error}") from error
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a new temporary folder that only this user can enter. It is removed at the end; that of a process that was
    killed is removed when the next one is made. A lock on the folder (`flock`) tells them apart."""
    remove_abandoned()
    handle = None
    while handle is None:
        folder = Path(tempfile.mkdtemp(prefix=SCRATCH))
        try:
            handle = _locked_folder(folder)
        except (BlockingIOError, FileNotFoundError):  # one that removes abandoned ones was faster
            continue
        except OSError:  # nothing can be locked there: a kill leaves the folder
            handle = os.open(folder, os.O_RDONLY)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def remove_abandoned() -> None:
    """Remove the scratch folders of this user's processes that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*"):
        with contextlib.suppress(OSError):  # in use, another user's, a file, or gone meanwhile
            handle = _locked_folder(folder)
            if os.fstat(handle).st_uid == os.geteuid():
                shutil.rmtree(folder, ignore_errors=True)
            os.close(handle)


def _locked_folder(folder: Path) -> int:
    """Return a descriptor that holds the lock of a folder. Raises `OSError` if it is in use or gone."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.stat(folder)
    except OSError:
        os.close(handle)
        raise
    return handle


@contextlib.contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """A context in which an `OSError` becomes an `InputError` that says that `path` cannot be written."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error


def make_folder(path: Path) -> None:
    """Make a folder and its parents, if they are missing. Raises `InputError` if they cannot be made."""
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)


def write_atomic(path: str | Path, write: Callable[[BinaryIO], object]) -> None:
    """Replace `path` by what `write` puts into a binary stream; on any failure the old file stays. The new content is
    on disk before it replaces the old one; of a symbolic link the target is replaced. Parent folders are made. Raises
    `InputError` if the folder cannot be written."""
    with staged(path, write):
        pass


@contextlib.contextmanager
def staged(path: str | Path, write: Callable[[BinaryIO], object]) -> Iterator[None]:
    """Write as `write_atomic` does, but replace `path` when the context ends without an exception: for files that
    belong together. A process that is killed leaves nothing behind."""
    target = Path(os.path.realpath(path))
    with writing(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
        handle, name = _temporary(target)
    try:
        with writing(path), os.fdopen(handle, "wb") as stream:  # closing writes, too
            write(stream)
            stream.flush()
            os.fsync(handle)
            os.fchmod(handle, mode)
            yield
            if not name.exists():
                os.link(f"/proc/self/fd/{handle}", name, src_dir_fd=handle)  # with src_dir_fd it follows the link
            os.replace(name, target)
    finally:
        name.unlink(missing_ok=True)


def _temporary(target: Path) -> tuple[int, Path]:
    """Return a descriptor of a new file beside `target`, and its future name: still unnamed if that is supported."""
    name = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        return os.open(target.parent, os.O_TMPFILE | os.O_WRONLY, 0o600), name
    except OSError:
        return os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), name


def write_text(path: str | Path, text: str) -> None:
    write_atomic(path, lambda stream: stream.write(text.encode("utf-8")))


class _WithoutAnchors(yaml.SafeDumper):
    """Writes repeated values out instead of `&id001` and `*id001`."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def yaml_text(data: dict[str, Any], flow_style: bool | None = None) -> str:
    """Return a mapping as YAML without anchors, keys in order. `flow_style` None writes the innermost lists and
    mappings in one line each, False none."""
    return yaml.dump(data, Dumper=_WithoutAnchors, sort_keys=False, default_flow_style=flow_style, width=120)


def write_yaml(path: str | Path, data: dict[str, Any]) -> None:
    write_text(path, yaml_text(data))


def check_not_read(option: str, out: str | Path, *inputs: str | Path | None) -> None:
    """Raise `InputError` if the file that an option names to be written is one of those that are read."""
    if any(given is not None and os.path.realpath(out) == os.path.realpath(given) for given in inputs):
        raise InputError(f"{option} {out}: is read by this command, and would be lost; give another file")


def backups_of(path: str | Path) -> list[Path]:
    """Return the backups of `path`, oldest first: a stack, which `keep_backup` adds to and `rollback` takes from. Those
    of a symbolic link are beside its target."""
    path = Path(os.path.realpath(path))
    found = path.parent.glob(f"{glob.escape(path.name)}.backup-*")
    numbered = [p for p in found if p.name.rpartition("-")[2].isdigit()]
    return sorted(numbered, key=lambda p: int(p.name.rpartition("-")[2]))


def keep_backup(path: str | Path) -> Path | None:
    """Return the newest backup of `path`, which is a copy of it as it is now, or None if it does not exist; `KEPT`
    backups are kept. Raises `InputError` if the file cannot be read or the folder not written."""
    path = Path(os.path.realpath(path))
    if not path.exists():
        return None
    content = read_bytes(path)
    existing = backups_of(path)
    if existing and read_bytes(existing[-1]) == content:
        return existing[-1]
    number = int(existing[-1].name.rpartition("-")[2]) + 1 if existing else 1
    backup = path.with_name(f"{path.name}.backup-{number:04d}")
    write_atomic(backup, lambda stream: stream.write(content))
    for old in existing[: max(0, len(existing) + 1 - KEPT)]:
        old.unlink(missing_ok=True)
    return backup


def rollback(path: str | Path) -> Path:
    """Restore the newest backup of `path`, and return its path, which no longer exists. The replaced file is kept as
    `<name>.rolled_back`. Raises `InputError` if there is no backup."""
    path = Path(os.path.realpath(path))
    with locked(path):
        existing = backups_of(path)
        if not existing:
            raise InputError(f"{path}: there is no backup to roll back to ({path.name}.backup-* in {path.parent})")
        content = read_bytes(existing[-1])
        if path.exists():
            replaced = read_bytes(path)
            write_atomic(path.with_name(path.name + ROLLED_BACK), lambda stream: stream.write(replaced))
        write_atomic(path, lambda stream: stream.write(content))
        existing[-1].unlink()
    return existing[-1]


def read_bytes(path: Path) -> bytes:
    """Return the content of a file. Raises `InputError` naming the file and the cause."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
