"""How many small changes of the core of calibration/ its tests notice: mutation testing on a random sample.

    python benchmarks/mutation.py [--mutants 300] [--seed 1] [--minutes 600] [--own] [--out out/benchmarks/mutation]

Every mutant (another operator or constant, a condition negated, a statement less) is run against the tests of its own
module, a second or two each. What these do not notice (with --own: that is all) is run against the other tests of
calibration/ that pass its line, fastest files first, until one fails; files that take more than `BUDGET` seconds of CPU
together are left out. Which tests pass which lines is learned from running all of them once, ten minutes. Continues an
earlier run of the same code; prints the survivors.
"""

import argparse
import ast
import importlib
import importlib.abc
import importlib.util
import json
import os
import random
import re
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CORE = (
    "problem", "solver", "room", "robust", "findings", "floor/findings", "observability", "checks", "mounts/residuals",
)  # fmt: skip
SOURCES = {
    f"stretch_sim_cal.calibration.{name.replace('/', '.')}": ROOT / f"stretch_sim_cal/calibration/{name}.py"
    for name in CORE
}
THIRD_PARTY = ("hypothesis", "yaml", "scipy.spatial.transform", "scipy.sparse.csgraph", "scipy.optimize",
    "scipy.stats", "scipy.ndimage", "matplotlib", "trimesh", "shapely", "lxml.etree", "small_gicp")  # fmt: skip
OWN = {name: [f"test/calibration/test_{name.replace('/', '_')}.py"] for name in CORE}
OWN["solver"] = OWN["problem"]
OWN["floor/findings"] = OWN["findings"]
OWN["observability"] = ["test/calibration/test_alignment_parts.py"]
OWN["checks"] = [*OWN["checks"], "test/commands/test_check_command.py"]
OWN_SECONDS = 8.0  # of CPU, that these take at most
BUDGET = 12.0  # s
OTHER = {ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult, ast.MatMult: ast.Add,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}  # fmt: skip


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield every other node that may stand in place of this one, and what it is."""

    def other(**fields):
        return ast.copy_location(type(node)(**{**dict(ast.iter_fields(node)), **fields}), node)

    if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in OTHER:
        yield type(node.op).__name__ + " changed", other(op=OTHER[type(node.op)]())
    if isinstance(node, ast.Compare) and type(node.ops[0]) in OTHER:
        yield type(node.ops[0]).__name__ + " changed", other(ops=[OTHER[type(node.ops[0])](), *node.ops[1:]])
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield f"{node.value} negated", other(value=not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        more = 10 * node.value if node.value and isinstance(node.value, float) else node.value + 1
        yield f"{node.value} -> {more:g}", other(value=more)
    if isinstance(node, ast.UnaryOp):
        yield type(node.op).__name__ + " gone", node.operand
    if isinstance(node, ast.If | ast.IfExp):
        yield "condition negated", other(test=ast.UnaryOp(ast.Not(), node.test))
    if isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield "statement gone", ast.Pass()


class Mutator(ast.NodeTransformer):
    """Finds all (line of the statement, line, change) of a module, and makes the one that was chosen."""

    def __init__(self, chosen: int | None = None):
        self.found, self.chosen, self.statement = [], chosen, 0

    def visit(self, node):
        result = node
        if isinstance(node, ast.stmt):
            self.statement = node.lineno
        for text, changed in changes(node):
            if len(self.found) == self.chosen:
                result = changed
            self.found.append((self.statement, node.lineno, text))
        if isinstance(node, ast.keyword) and node.arg == "strict":  # of zip: a guard for the programmer
            return node
        left_alone = {"annotation": None, "returns": None, "decorator_list": []}
        kept = {name: getattr(node, name) for name in left_alone if hasattr(node, name)}
        for name in kept:
            setattr(node, name, left_alone[name])
        self.generic_visit(node)
        for name, value in kept.items():
            setattr(node, name, value)
        return result


class Mutated(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports a module with the chosen change."""

    def __init__(self, module: str, chosen: int):
        self.module = module
        tree = Mutator(chosen).visit(ast.parse(SOURCES[module].read_text()))
        self.code = compile(ast.fix_missing_locations(tree), str(SOURCES[module]), "exec")

    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if name == self.module else None

    def exec_module(self, module):
        exec(self.code, module.__dict__)


class Tracing:
    """A pytest plugin that notes by test its CPU time and the lines of the core that it, fixtures included, passes."""

    def __init__(self):
        self.modules = {str(path): module for module, path in SOURCES.items()}
        self.tests, self.fixtures, self.lines = {}, {}, set()

    def trace(self, frame, event, argument):
        module = self.modules.get(frame.f_code.co_filename)
        if module:
            self.lines.add((module, frame.f_lineno))
            return self.trace

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        around, self.lines = self.lines, set()
        result = yield
        self.fixtures[fixturedef.argname], self.lines = self.lines, self.lines | around
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        self.lines, began = set(), time.process_time()
        sys.settrace(self.trace)
        result = yield
        sys.settrace(None)
        lines = self.lines.union(*(self.fixtures.get(name, ()) for name in item.fixturenames))
        self.tests[item.nodeid] = {"seconds": round(time.process_time() - began, 2), "lines": sorted(lines)}
        return result


def in_child(work: Callable[[], int], seconds: float) -> int:
    """Return how a forked process with limited CPU time ends: 0 if the tests pass."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds)))
    signal.alarm(int(10 * seconds))
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1), os.dup2(silent, 2)
    os._exit(work())


def run_pytest(*arguments, plugins=()) -> int:
    return int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-m", "not graph", *arguments], plugins=plugins))


def coverage(path: Path, end: float) -> dict[str, dict]:
    """Return by test its seconds and lines; every file of tests is run once, the result kept in a file."""
    tests = json.loads(path.read_text()) if path.exists() else {}
    for file in sorted([*ROOT.glob("test/calibration/test_*.py"), ROOT / "test/commands/test_check_command.py"]):
        name = str(file.relative_to(ROOT))
        if any(test.startswith(name) for test in tests) or time.monotonic() > end:
            continue

        def traced(name=name, tests=tests):
            tracing = Tracing()
            if code := run_pytest(name, plugins=[tracing]):
                return code
            path.write_text(json.dumps({**tests, **tracing.tests}))
            return 0

        if in_child(traced, 3000.0):
            raise SystemExit(f"error: {name} fails without any change")
        tests = json.loads(path.read_text())
    return tests


def passing(tests: dict[str, dict], module: str, statement: int) -> tuple[list[str], float]:
    """Return the tests that pass a statement, those of the fastest file first, and their seconds, within the budget. A
    constant of the module is passed where it is used; what nothing passes (defaults of a class), by who passes the
    module."""
    text, lines = SOURCES[module].read_text(), {statement}
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and node.lineno == statement:
            names = {each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)}
            lines = {n for n, line in enumerate(text.splitlines(), 1) if names.intersection(re.findall(r"\w+", line))}
    files: dict[str, list[str]] = {}
    for wanted in (lines, set(range(len(text)))):
        for test, own in tests.items():
            if any(name == module and line in wanted for name, line in own["lines"]):
                files.setdefault(test.partition("::")[0], []).append(test)
        if files:
            break
    chosen, total = [], 0.0
    for seconds, file in sorted((sum(tests[test]["seconds"] for test in own), file) for file, own in files.items()):
        if not chosen or total + seconds < BUDGET:
            chosen, total = chosen + files[file], total + seconds
    return chosen, total


def noticed(module: str, number: int, tests: list[str], seconds: float) -> bool:
    """Return whether one of the tests, which take so many seconds, fails with a mutant."""

    def mutant():
        sys.meta_path.insert(0, Mutated(module, number))
        return run_pytest(*tests)

    ended = in_child(mutant, 20.0 + 3.0 * seconds)
    if os.WIFEXITED(ended) and os.WEXITSTATUS(ended) in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR):
        raise SystemExit("error: the tests are others than those of coverage.json: remove it and the results")
    return ended != 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, default=300, help="how many (default 300)")
    parser.add_argument("--seed", type=int, default=1, help="which ones are drawn (default 1)")
    parser.add_argument("--minutes", type=float, default=600.0, help="ends after so many, to be continued")
    parser.add_argument("--own", action="store_true", help="only the tests of a mutant's own module: a lower bound")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "benchmarks" / "mutation", help="where results lie")
    options = parser.parse_args()
    end = time.monotonic() + 60.0 * options.minutes
    os.chdir(ROOT)
    options.out.mkdir(parents=True, exist_ok=True)
    for name in THIRD_PARTY:
        importlib.import_module(name)
    every = []
    for module, path in SOURCES.items():
        finder = Mutator()
        finder.visit(ast.parse(path.read_text()))
        every += [(module, number, *each) for number, each in enumerate(finder.found)]
    results = options.out / f"seed_{options.seed}.jsonl"
    lines = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    done = {(each["module"], each["number"]): each for each in lines}
    drawn = random.Random(options.seed).sample(every, options.mutants)
    for rest in (False,) if options.own else (False, True):
        tests = coverage(options.out / "coverage.json", end) if rest else {}
        for module, number, statement, line, text in drawn:
            known = done.get((module, number))
            if time.monotonic() > end or (known and (known["killed"] or known["rest"] >= rest)):
                continue
            own = OWN[module.removeprefix("stretch_sim_cal.calibration.").replace(".", "/")]
            others = {test: each for test, each in tests.items() if test.partition("::")[0] not in own}
            chosen, seconds = passing(others, module, statement) if rest else (own, OWN_SECONDS)
            killed = bool(chosen) and noticed(module, number, chosen, seconds)
            found = {"module": module, "number": number, "line": line, "change": text, "rest": rest, "killed": killed}
            done[module, number] = found | {"tests": len(chosen)}
            with results.open("a") as file:
                file.write(json.dumps(done[module, number]) + "\n")
    done = [done[each[:2]] for each in drawn if each[:2] in done]
    survivors = [each for each in done if not each["killed"]]
    for each in sorted(survivors, key=lambda each: (each["module"], each["line"])):
        by = f"{each['tests']} others" if each["rest"] else "its own tests"
        print(f"{SOURCES[each['module']].relative_to(ROOT)}:{each['line']}: {each['change']} ({by})")
    print(f"{len(done) - len(survivors)} of {len(done)} mutants (of {len(every)} possible ones) are noticed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
