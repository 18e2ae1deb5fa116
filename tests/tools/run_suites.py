"""Runs the suites of tests beside each other, and says at the end where the time went.

    python tests/tools/run_suites.py [--check] [--without-torch] SUITE... [-- WORDS FOR PYTEST]

Suites are ``base`` and those of frameworks (``jax``, ``tensorflow``, ``multi-gpu``, ``torch``,
``oldest-keras``), in environments of their own, which make fetches while other suites run. Two run
at a time, for most tests wait; what is marked ``alone`` comes after all others, two at a time, too,
for it hardly computes. ``--check``: ``make lint`` comes first, and only where it is content are
there any tests; what else ``make check`` asks is among them.

A suite whose environment cannot be had is skipped with a word, but fails where ``CI`` is set.

Where no more than three tests of a suite fail, they run once more when nothing else runs. The last
table names those that pass then: such a test depends on how busy the machine is, and wants fixing.

Exit codes: 0, or 1 where a test failed, a suite could not run or nothing was tested; 130 after an
interrupt. Standard library only.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # this is run by its path

from tests.tools.side_by_side import Job, Lane, run_side_by_side  # noqa: E402

TRAINING_ROOMS: Final = (
    "tests/e2e",
    "tests/truth",
    "tests/loops",
    "tests/keras",
    "tests/test_docstring_examples.py",
)
"""Where the tests are that need a framework: to collect the others takes longer than some of them.

Those that wait longest come first.
"""
MULTI_GPU_ROOMS: Final = ("tests/multi_gpu", "tests/e2e/test_examples.py")
LINT: Final = "lint"
TOOLS: Final = "tools"
BASE_FOLDER: Final = ".venv"
LONGEST_TEST_S: Final = 300
MOST_LINES_OF_A_FAILURE: Final = 30
MOST_TRIED_AGAIN: Final = 3
"""So many failures of a suite can be the work of a busy machine; more are a defect."""
TESTS_FAILED: Final = 1
"""What pytest ends with where tests ran and some failed."""
NOTHING_ASKED_FOR: Final = 5
"""What pytest ends with where no test is left."""
INTERRUPTED: Final = 130


@dataclass(frozen=True, slots=True)
class Part:
    """One run of pytest.

    Attributes:
        name: What people call it.
        environment: Of ``.venv-jax`` it is ``jax``; empty: ``.venv``, which has no framework.
        marked: Which tests, by their marks; empty: those that need no framework.
        rooms: Where they are; empty: everywhere.
        workers: How many tests run at a time; 0: one, and this process runs it.
    """

    name: str
    environment: str = ""
    marked: str = ""
    rooms: tuple[str, ...] = ()
    workers: int = 0

    @property
    def is_alone(self) -> bool:
        """Whether its tests want a machine on which nothing computes for long."""
        return self.name.endswith(" alone")

    @property
    def folder(self) -> str:
        """Of its environment."""
        return f"{BASE_FOLDER}-{self.environment}" if self.environment else BASE_FOLDER


def _on(framework: str) -> Part:
    """The tests of a framework."""
    return Part(framework, framework, f"keras_{framework}", TRAINING_ROOMS, workers=2)


SUITES: Final = {
    "base": (
        Part("base", workers=3),
        Part("base alone", "", "alone and not multi_gpu", ("tests/e2e",)),
    ),
    "multi-gpu": (
        # Beside the other tests of TensorFlow: its devices are settled once for each process.
        Part("multi-gpu", "tensorflow", "multi_gpu", MULTI_GPU_ROOMS, workers=2),
        Part("multi-gpu alone", "tensorflow", "multi_gpu and alone", ("tests/multi_gpu",)),
        Part("multi-gpu e2e alone", "tensorflow", "multi_gpu and alone", ("tests/e2e",)),
    ),
    "jax": (_on("jax"),),
    "oldest-keras": (
        Part("oldest-keras", "oldest-keras", "keras_jax and versions", ("tests/keras",)),
    ),
    "tensorflow": (
        _on("tensorflow"),
        Part("tensorflow alone", "tensorflow", "keras_tensorflow and alone", ("tests/keras",)),
    ),
    "torch": (_on("torch"),),
}
"""In the order in which they are started: what takes longest, but late what measures most waits.

Those are not what a source slept where five tests want two cores: then ``base`` is all but over.
"""
BACKENDS: Final = {"oldest-keras": "jax"}
"""Of Keras, where it is not called as the environment."""


def main(words: Sequence[str] | None = None) -> int:
    """Run them; the exit code."""
    parser = argparse.ArgumentParser(description="Runs the suites of tests beside each other.")
    parser.add_argument("--check", action="store_true", help="make lint comes first")
    parser.add_argument("--without-torch", action="store_true", help="it is too large for a laptop")
    parser.add_argument("suites", nargs="+", choices=SUITES, metavar="SUITE")
    options, for_pytest = split_words(sys.argv[1:] if words is None else words)
    args = parser.parse_args(options)

    is_torch_left = args.without_torch and "torch" in args.suites
    left_out = {"torch"} if is_torch_left else set()
    wanted = [name for name in SUITES if name in {*args.suites} - left_out]
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpumon-tests-") as folder:
        jobs = list(jobs_of(wanted, for_pytest, Path(folder), with_check=args.check))
        try:
            run_side_by_side(jobs, Path(folder))
        except KeyboardInterrupt:
            print("\nInterrupted.", file=sys.stderr)
            return INTERRUPTED
        print("".join(failures_of(jobs)), end="")
        passed_alone = try_again(jobs)
        print(f"\n=== where the time went ({(time.monotonic() - began_s) / 60:.1f} minutes in all)")
        print("\n".join(table_of(jobs)))
        for test in passed_alone:
            print(f"FAILED AT FIRST, passed alone: {test}")
        if left_out:
            print(
                "SKIPPED: the tests marked keras_torch; make test TORCH=1 downloads torch for them."
            )
        return code_of(jobs, in_ci=bool(os.environ.get("CI")))


def split_words(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """What is reported to this program, and what to pytest."""
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]


def jobs_of(
    suites: Sequence[str], for_pytest: Sequence[str], folder: Path, *, with_check: bool
) -> Iterator[Job]:
    """The programs to run, in the order in which they are printed; ``folder`` is theirs."""
    make = shlex.split(os.environ.get("MAKE", "make"))
    parts = [part for suite in suites for part in SUITES[suite]]
    if "base" in suites:  # tests that train with a framework start none of them
        yield Job(name=TOOLS, command=[*make, "--no-print-directory", TOOLS], lane=Lane.FIRST)
    for environment in dict.fromkeys(part.folder for part in parts):
        # What most tests need comes first; with it comes what makes the others.
        is_base = environment == BASE_FOLDER
        yield Job(
            name=environment,
            command=[*make, "--no-print-directory", f"{environment}/.dev"],
            lane=Lane.FIRST if is_base else Lane.FETCHES,
            needs=() if is_base else (BASE_FOLDER,),
            is_shown=False,
        )
    if with_check:
        yield Job(name=LINT, command=[*make, LINT], lane=Lane.FIRST, needs=(BASE_FOLDER,))
        # Compiled here, once, what each worker of the suites would compile for itself.
        collect = f"{BASE_FOLDER}/bin/python -m pytest --collect-only -q".split()
        yield Job(
            name="collect", command=collect, lane=Lane.FIRST, needs=(BASE_FOLDER,), is_shown=False
        )
    for part in sorted(parts, key=lambda part: part.is_alone):
        # Lint and types leave a core to the demo, which mostly sleeps.
        comes_first = with_check and part.name == "base alone"
        lane = Lane.LAST if part.is_alone else Lane.BESIDE
        yield Job(
            name=part.name,
            command=_pytest(part, for_pytest, folder),
            lane=Lane.FIRST if comes_first else lane,
            variables=_variables(part, folder),
            needs=(part.folder,) if comes_first else (part.folder, TOOLS, LINT),
        )


def _pytest(part: Part, for_pytest: Sequence[str], folder: Path) -> list[str]:
    words = [f"{part.folder}/bin/python", "-m", "pytest"]
    # What failed is remembered for each suite apart.
    words += ["-o", f"cache_dir={folder / 'failed' / part.name.replace(' ', '-')}"]
    words += time_limit(LONGEST_TEST_S)
    if sys.stdout.isatty():
        words.append("--color=yes")
    if part.workers:
        words += ["--dist", "loadfile", "--no-loadscope-reorder", "-n", str(part.workers)]
    if part.marked:
        words += ["-m", part.marked]
    names_some = any((ROOT / word.partition("::")[0]).exists() for word in for_pytest)
    return [*words, *(() if names_some else part.rooms), *for_pytest]


def time_limit(seconds: float) -> list[str]:
    """For pytest: a test that takes longer fails with the stacks of all threads.

    Its process ends; with workers, another one goes on with the tests that are left.
    """
    options = {"faulthandler_timeout": f"{seconds:g}", "faulthandler_exit_on_timeout": "true"}
    return [word for name, value in options.items() for word in ("-o", f"{name}={value}")]


def _variables(part: Part, folder: Path) -> dict[str, str]:
    if not part.environment:
        return {}
    must_be_there = {"GPUMON_REQUIRE_KERAS": "1"} if os.environ.get("CI") else {}
    backend = BACKENDS.get(part.environment, part.environment)
    # Half of the time of tests on JAX was compiling: they train the same few models over and over.
    compiled_once = {
        "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    # Threads of OpenMP wait by spinning, and here the cores are taken by other tests.
    return {
        "KERAS_BACKEND": backend,
        "OMP_NUM_THREADS": "1",
        **(compiled_once if backend == "jax" else {}),
        **must_be_there,
    }


def try_again(jobs: Sequence[Job]) -> list[str]:
    """Run the few tests that failed once more; return those that pass, whose suite then passes."""
    passed = []
    for job in jobs:
        failed = failed_tests(job.output)
        if job.code == TESTS_FAILED and 0 < len(failed) <= MOST_TRIED_AGAIN:
            command = [*job.command, "--last-failed", "-n", "0"]
            print(f"\n=== {job.name}, what failed once more: {shlex.join(command)}", flush=True)
            done = subprocess.run(command, env={**os.environ, **job.variables}, check=False)
            if done.returncode == 0:
                job.code = 0
                passed += failed
    return passed


def failed_tests(output: str) -> list[str]:
    """The tests that pytest's summary lists as failed, or whose fixtures did."""
    return re.findall(r"^(?:FAILED|ERROR) (\S+?(?:\[.*?\])?)(?: - .*)?$", output, re.MULTILINE)


def code_of(jobs: Sequence[Job], *, in_ci: bool) -> int:
    """Whether all is well."""
    has_failed = any(job.code not in (0, NOTHING_ASKED_FOR) for job in jobs if _counts(job, in_ci))
    has_tested = any(job.code == 0 for job in jobs if job.is_shown and "pytest" in job.command)
    return int(has_failed or not has_tested)


def _counts(job: Job, in_ci: bool) -> bool:
    """Elsewhere than in CI an environment may be missing, and what needs it."""
    return in_ci or (job.process is not None and job.lane is not Lane.FETCHES)


def table_of(jobs: Sequence[Job]) -> Iterator[str]:
    """A line for each: how many tests, how many minutes, when it began, and what went wrong."""
    yield f"{'suite':<20}{'tests':>8}{'minutes':>9}{'from':>7}"
    first_s = min((job.began_s for job in jobs if job.process), default=0.0)
    lost = {job.name for job in jobs if job.is_over and job.code != 0}
    for job in jobs:
        if job.process is None:
            why = ", ".join(sorted(lost.intersection(job.needs)))
            yield f"{job.name:<44}  SKIPPED: {why} failed" if why else f"{job.name:<44}  SKIPPED"
            continue
        tests = count_of_tests(job.output) if job.is_shown else None
        failed = "" if job.code in (0, NOTHING_ASKED_FOR) else f"  FAILED ({job.code})"
        yield (
            f"{job.name:<20}{'' if tests is None else tests:>8}{job.took_s / 60:>9.1f}"
            f"{(job.began_s - first_s) / 60:>7.1f}{failed}"
        )


def failures_of(jobs: Sequence[Job]) -> Iterator[str]:
    """What pytest says of the tests that failed, once more: no one scrolls up that far."""
    for job in jobs:
        failed = re.findall(r"^(?:E  |FAILED|ERROR) .*\n", job.output, re.MULTILINE)
        if job.code not in (0, None) and failed:
            yield f"\n=== {job.name}: what failed\n"
            yield from failed[-MOST_LINES_OF_A_FAILURE:]


def count_of_tests(output: str) -> int | None:
    """How many tests pytest ran, by its last line; ``None`` where it says nothing of it."""
    for line in reversed(output.splitlines()):
        if re.search(r" in [\d.]+s", line):
            found = re.findall(r"(\d+) (?:passed|failed|errors?|skipped|xfailed)\b", line)
            return sum(map(int, found))
    return None


if __name__ == "__main__":
    sys.exit(main())
