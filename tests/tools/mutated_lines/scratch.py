"""A copy of the tree in which lines may be made wrong, and the tests run there."""

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

from tests.tools.mutated_lines.beside_tests import ENDLESS, LONGEST, MARKS
from tests.tools.mutated_lines.mutations import Mutation

ROOT: Final = Path(__file__).resolve().parents[3]
PLUGIN: Final = "tests.tools.mutated_lines.beside_tests"
SUMMARY: Final = re.compile(r"^(?:FAILED|ERROR) ([^\s\[]+(?:\[.*?\](?= - |$))?)", re.MULTILINE)
"""Names a test; what it is parametrized with may hold blanks and brackets."""
MOST_NEAR: Final = 12
"""Test files that are run first, because they import the module."""
ALL_PASSED: Final = (0, 5)
OUT_OF_TIME: Final = "escaped: time was up"


@dataclass(frozen=True)
class Suite:
    """Which tests are asked, and how.

    Attributes:
        python: The interpreter, one with the framework that the tests want.
        words: Further words for pytest, such as ``-m keras_jax``.
        places: Where the tests are that may notice anything.
        test_s: What one test may take; one that takes longer has noticed an endless loop.
        line_s: What all tests of one line may take.
    """

    python: str
    words: tuple[str, ...]
    places: tuple[str, ...]
    test_s: float
    line_s: float


@dataclass
class Scratch:
    """The tracked files of this checkout, and new ones, in a folder of their own."""

    folder: Path
    suite: Suite
    _ages: count[int] = field(default_factory=lambda: count(1_000_000_000))

    def __post_init__(self) -> None:
        for name in files_of_the_tree():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, self.folder / name)
        for environment in ROOT.glob(".venv*"):
            (self.folder / environment.name).symlink_to(environment.resolve())

    def write(self, path: str, text: str) -> None:
        """With an age that no compiled file has: two writes may fall into one second."""
        age = next(self._ages)
        (self.folder / path).write_text(text, encoding="utf-8")
        os.utime(self.folder / path, (age, age))

    def restore(self, path: str) -> None:
        self.write(path, (ROOT / path).read_text(encoding="utf-8"))

    def run(
        self, words: Sequence[str], limit_s: float, *, more: Mapping[str, str] | None = None
    ) -> tuple[int | None, str]:
        """pytest's exit code and what it reported; no code where it takes longer than it may."""
        endless = self.folder / "running_test"
        own = {
            "PYTHONPATH": str(self.folder), ENDLESS: str(endless), LONGEST: str(self.suite.test_s),
        } | dict(more or {})  # fmt: skip
        command = [self.suite.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", PLUGIN]
        with subprocess.Popen(
            [*command, "--tb=line", *self.suite.words, *words],
            cwd=self.folder, env=os.environ | own, start_new_session=True, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as child:  # fmt: skip
            try:
                printed, _ = child.communicate(timeout=limit_s)
                code: int | None = child.returncode
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, 9)
                printed, code = child.communicate()[0], None
        if endless.exists():  # this process ended in the middle of a test
            printed += f"\nFAILED {endless.read_text(encoding='utf-8')} - has no end\n" * (
                code == 1
            )
            endless.unlink()
        return code, printed


def files_of_the_tree() -> list[str]:
    """Whatever git tracks or would track, as long as it is there."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in names.splitlines() if (ROOT / name).is_file()]


def tests_that_reach(
    mutations: Sequence[Mutation], scratch: Scratch, limit_s: float
) -> list[list[str]]:
    """Run all tests once, each drawn line telling which of them pass by.

    A line that runs when its module is imported is reached by "": anybody may notice.
    """
    marks = scratch.folder / "marks"
    marks.mkdir()
    by_file: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for index, mutation in enumerate(mutations):
        by_file[mutation.path].append((mutation.marked_line, index))
    for path, lines in by_file.items():
        scratch.write(path, _marked((ROOT / path).read_text(encoding="utf-8"), lines))
    places = [*scratch.suite.places, "-n", "2"]
    _, printed = scratch.run(places, limit_s, more={MARKS: str(marks), LONGEST: "600"})
    print(printed.splitlines()[-1] if printed else "the tests said nothing", flush=True)
    for path in by_file:
        scratch.restore(path)
    names = [marks / str(index) for index in range(len(mutations))]
    reached = [set(name.read_text().splitlines()) if name.exists() else set() for name in names]
    return [sorted(tests) for tests in reached]


def _marked(source: str, lines: Sequence[tuple[int, int]]) -> str:
    text = source.splitlines(keepends=True)
    for number, index in sorted(lines, reverse=True):
        statement = text[number - 1]
        indent = statement[: len(statement) - len(statement.lstrip())]
        call = f'__import__("{PLUGIN}", fromlist=["reached"]).reached({index})'
        text.insert(number - 1, f"{indent}{call}\n")
    return "".join(text)


def near_tests(path: str) -> list[str]:
    """The test files that mirror a file of the product, then others that import it."""
    parts = [part for part in PurePosixPath(path).parent.parts if part != "gpumon"]
    room = ROOT.joinpath("tests", "unit", *parts)
    mirrored = sorted(room.glob(f"test_{PurePosixPath(path).stem.strip('_')}*.py"))
    others = [*sorted(room.glob("test_*.py")), *sorted(ROOT.glob("tests/unit/**/test_*.py"))]
    near = list(dict.fromkeys([*mirrored, *_importing(path, others)]))
    near = near or sorted(room.glob("**/test_*.py"))
    return [_name(file) for file in near[: max(MOST_NEAR, len(mirrored))]]


def _tests_of_neighbours(path: str) -> list[str]:
    """The test files of whatever else imports it, and those of no file in particular."""
    product = [ROOT / name for name in files_of_the_tree() if name.endswith(".py")]
    importers = [_name(file) for file in _importing(path, product)]
    tests = [test for one in importers if not one.startswith("tests/") for test in near_tests(one)]
    return list(dict.fromkeys([*tests, "tests/contract", "tests/logs", "tests/faults"]))


def _importing(path: str, files: Iterable[Path]) -> list[Path]:
    module = re.compile(rf"\b{re.escape(path[:-3].replace('/', '.'))}\b")
    return [file for file in files if module.search(file.read_text(encoding="utf-8"))]


def _name(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def noticed_by(mutation: Mutation, reached: Sequence[str], scratch: Scratch) -> str | None:
    """The test that fails with this line wrong and passes without; ``None``: it escapes.

    ``OUT_OF_TIME`` where not all of the tests could be asked.

    Args:
        mutation: What is made wrong.
        reached: The tests that pass by.
        scratch: Where; it is as before afterwards.
    """
    is_whole = "tests/unit" in scratch.suite.places
    near = near_tests(mutation.path) if is_whole else []
    far = _tests_of_neighbours(mutation.path) if "" in reached and is_whole else list(reached)
    far = [test for test in far if test and test.partition("::")[0] not in near]
    ends_at = time.monotonic() + scratch.suite.line_s
    for tests in filter(None, (near, far)):
        by = _noticed_among(tests, mutation, scratch, ends_at)
        if by is not None:
            return by
    return None


def _noticed_among(
    tests: Sequence[str], mutation: Mutation, scratch: Scratch, ends_at: float
) -> str | None:
    listed = scratch.folder / "tests.txt"
    listed.write_text("\n".join(tests), encoding="utf-8")
    passed_over: list[str] = []
    while (left_s := ends_at - time.monotonic()) > 0:
        source = (ROOT / mutation.path).read_text(encoding="utf-8")
        scratch.write(mutation.path, mutation.made_in(source))
        code, printed = scratch.run(["-x", f"@{listed}", *passed_over], left_s)
        scratch.restore(mutation.path)
        failed = SUMMARY.search(printed)
        if code is None or code in ALL_PASSED:
            return OUT_OF_TIME if code is None else None
        if failed is None:
            return f"pytest ends with {code}"
        again, _ = scratch.run([failed[1]], scratch.suite.line_s)
        if again in ALL_PASSED:
            return failed[1]
        passed_over += ["--deselect", failed[1]]  # it fails without the mutation, too
    return OUT_OF_TIME
