"""A copy of the tree in which lines are broken and tests run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Final

from tests.tools.mutated_lines.mutations import Mutation
from tests.tools.mutated_lines.pytest_plugin import MARKS, RUNNING, TEST_S

ROOT: Final = Path(__file__).resolve().parents[3]
PLUGIN: Final = "tests.tools.mutated_lines.pytest_plugin"
SUMMARY: Final = re.compile(r"^(?:FAILED|ERROR) ([^\s\[]+(?:\[.*?\](?= - |$))?)", re.MULTILINE)
"""A failed test; its parameters may contain blanks and brackets."""
MAX_NEAR: Final = 12
"""Test files that run first, because they import the module."""
PASSED: Final = (0, 5)
OUT_OF_TIME: Final = "escaped: out of time"


@dataclass(frozen=True)
class Suite:
    """The tests to run.

    Attributes:
        python: The interpreter.
        words: More arguments for pytest, such as ``-m keras_jax``.
        places: Where the tests are.
        test_s: Time limit of one test; a longer one has noticed an endless loop.
        line_s: Time limit of all tests of one line.
    """

    python: str
    words: tuple[str, ...]
    places: tuple[str, ...]
    test_s: float
    line_s: float


@dataclass
class Scratch:
    """The files of this checkout, in a folder of their own."""

    folder: Path
    suite: Suite
    _ages: count[int] = field(default_factory=lambda: count(1_000_000_000))

    def __post_init__(self) -> None:
        for name in repository_files():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, self.folder / name)
        for environment in ROOT.glob(".venv*"):
            (self.folder / environment.name).symlink_to(environment.resolve())

    def write(self, path: str, text: str) -> None:
        """Write with a new age, so that Python compiles the file again within the same second."""
        age = next(self._ages)
        (self.folder / path).write_text(text, encoding="utf-8")
        os.utime(self.folder / path, (age, age))

    def restore(self, path: str) -> None:
        self.write(path, (ROOT / path).read_text(encoding="utf-8"))

    def run(
        self, words: Sequence[str], limit_s: float, *, more: Mapping[str, str] | None = None
    ) -> tuple[int | None, str]:
        """pytest's exit code (``None`` if it takes longer than the limit) and its output."""
        running = self.folder / "running_test"
        variables = {
            "PYTHONPATH": str(self.folder), RUNNING: str(running), TEST_S: str(self.suite.test_s),
            **(more or {}),
        }  # fmt: skip
        command = [self.suite.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", PLUGIN]
        with subprocess.Popen(
            [*command, "--tb=line", *self.suite.words, *words],
            cwd=self.folder, env=os.environ | variables, start_new_session=True, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as child:  # fmt: skip
            try:
                printed, _ = child.communicate(timeout=limit_s)
                code: int | None = child.returncode
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, 9)
                printed, code = child.communicate()[0], None
        if running.exists():  # pytest ended in the middle of a test
            if code == 1:
                printed += f"\nFAILED {running.read_text(encoding='utf-8')} - does not end\n"
            running.unlink()
        return code, printed


def repository_files() -> list[str]:
    """What git tracks or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in names.splitlines() if (ROOT / name).is_file()]


def tests_that_reach(
    mutations: Sequence[Mutation], scratch: Scratch, limit_s: float
) -> list[list[str]]:
    """Run all tests once, and return those that reach each line.

    A line that runs when its module is imported is reached by "": any test may notice it.
    """
    marks = scratch.folder / "marks"
    marks.mkdir()
    by_file: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for index, mutation in enumerate(mutations):
        by_file[mutation.path].append((mutation.marked_line, index))
    for path, lines in by_file.items():
        scratch.write(path, _marked((ROOT / path).read_text(encoding="utf-8"), lines))
    places = [*scratch.suite.places, "-n", "2"]
    _, printed = scratch.run(places, limit_s, more={MARKS: str(marks), TEST_S: "600"})
    print(printed.splitlines()[-1] if printed else "the tests printed nothing", flush=True)
    for path in by_file:
        scratch.restore(path)
    names = [marks / str(index) for index in range(len(mutations))]
    return [sorted({*name.read_text().splitlines()}) if name.exists() else [] for name in names]


def _marked(source: str, lines: Sequence[tuple[int, int]]) -> str:
    text = source.splitlines(keepends=True)
    for number, index in sorted(lines, reverse=True):
        statement = text[number - 1]
        indent = statement[: len(statement) - len(statement.lstrip())]
        call = f'__import__("{PLUGIN}", fromlist=["reached"]).reached({index})'
        text.insert(number - 1, f"{indent}{call}\n")
    return "".join(text)


def near_tests(path: str) -> list[str]:
    """The test files of a product file, then others that import it."""
    parts = [part for part in PurePosixPath(path).parent.parts if part != "gpumon"]
    folder = ROOT.joinpath("tests", "unit", *parts)
    own = sorted(folder.glob(f"test_{PurePosixPath(path).stem.strip('_')}*.py"))
    others = [*sorted(folder.glob("test_*.py")), *sorted(ROOT.glob("tests/unit/**/test_*.py"))]
    near = list(dict.fromkeys([*own, *_importing(path, others)]))
    near = near or sorted(folder.glob("**/test_*.py"))
    return [_name(file) for file in near[: max(MAX_NEAR, len(own))]]


def _tests_of_importers(path: str) -> list[str]:
    """The tests of the product files that import it, and those of no file in particular."""
    importers = _importing(path, [ROOT / name for name in repository_files() if name[-3:] == ".py"])
    product = [_name(file) for file in importers if ROOT / "tests" not in file.parents]
    tests = [test for one in product for test in near_tests(one)]
    return list(dict.fromkeys([*tests, "tests/contract", "tests/logs", "tests/faults"]))


def _importing(path: str, files: Iterable[Path]) -> list[Path]:
    module = re.compile(rf"\b{re.escape(path[:-3].replace('/', '.'))}\b")
    return [file for file in files if module.search(file.read_text(encoding="utf-8"))]


def _name(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def noticed_by(mutation: Mutation, reached: Sequence[str], scratch: Scratch) -> str | None:
    """A test that fails only with this line broken; ``None``: the line escapes.

    ``OUT_OF_TIME`` if not all tests could run.
    """
    has_all = "tests/unit" in scratch.suite.places
    near = near_tests(mutation.path) if has_all else []
    far = _tests_of_importers(mutation.path) if "" in reached and has_all else list(reached)
    far = [test for test in far if test and test.partition("::")[0] not in near]
    ends_at_s = time.monotonic() + scratch.suite.line_s
    for tests in filter(None, (near, far)):
        test = _first_to_notice(tests, mutation, scratch, ends_at_s)
        if test is not None:
            return test
    return None


def _first_to_notice(
    tests: Sequence[str], mutation: Mutation, scratch: Scratch, ends_at_s: float
) -> str | None:
    listed = scratch.folder / "tests.txt"
    listed.write_text("\n".join(tests), encoding="utf-8")
    deselected: list[str] = []
    while (left_s := ends_at_s - time.monotonic()) > 0:
        source = (ROOT / mutation.path).read_text(encoding="utf-8")
        scratch.write(mutation.path, mutation.made_in(source))
        code, printed = scratch.run(["-x", f"@{listed}", *deselected], left_s)
        scratch.restore(mutation.path)
        failed = SUMMARY.search(printed)
        if code is None or code in PASSED:
            return OUT_OF_TIME if code is None else None
        if failed is None:
            return f"pytest ends with {code}"
        again, _ = scratch.run([failed[1]], scratch.suite.line_s)
        if again in PASSED:
            return failed[1]
        deselected += ["--deselect", failed[1]]  # it fails without the mutation, too
    return OUT_OF_TIME
