"""Run test suites in parallel and print a table of times.

    python tests/tools/run_suites.py [--check] [--without-torch] SUITE... [-- PYTEST ARGUMENTS]

A suite is ``base`` or one of a framework (``jax``, ``tensorflow``, ``multi-gpu``, ``torch``,
``oldest-keras``), each in its own environment, which make installs while other suites run. Two
suites run at a time, because most tests wait. Tests marked ``alone`` run last. ``--check`` runs
``make lint`` first, and no tests if it fails.

Without its environment a suite is skipped; where ``CI`` is set, it fails.

If at most three tests of a suite fail, they run again once nothing else runs. Those that then pass
are listed at the end: they depend on the load of the machine and need a fix.

Exit codes: 0; 1 if a test failed, a suite could not run, or nothing was tested; 130 if interrupted.
Standard library only.
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

FRAMEWORK_TESTS: Final = (
    "tests/e2e",
    "tests/truth",
    "tests/loops",
    "tests/stacks",
    "tests/keras",
    "tests/test_docstring_examples.py",
)
"""Where tests of a framework are, those that wait longest first. Collecting all tests is slow."""
MULTI_GPU_TESTS: Final = ("tests/multi_gpu", "tests/e2e/test_examples.py")
LINT: Final = "lint"
TOOLS: Final = "tools"
BASE_FOLDER: Final = ".venv"
TEST_TIMEOUT_S: Final = 300
MAX_FAILURE_LINES: Final = 30
MAX_RETRIED: Final = 3
"""More failures than this are a defect, not the load of the machine."""
TESTS_FAILED: Final = 1
NO_TESTS: Final = 5
INTERRUPTED: Final = 130


@dataclass(frozen=True, slots=True)
class Part:
    """One run of pytest.

    Attributes:
        environment: ``jax`` is ``.venv-jax``; empty is ``.venv``, which has no framework.
        marked: The mark expression; empty: the tests that need no framework.
        paths: Empty: all tests.
        workers: Tests at a time; 0: one, in pytest's own process.
    """

    name: str
    environment: str = ""
    marked: str = ""
    paths: tuple[str, ...] = ()
    workers: int = 0

    @property
    def is_alone(self) -> bool:
        return self.name.endswith(" alone")

    @property
    def folder(self) -> str:
        return f"{BASE_FOLDER}-{self.environment}" if self.environment else BASE_FOLDER


def _framework(name: str) -> Part:
    return Part(name, name, f"keras_{name}", FRAMEWORK_TESTS, workers=2)


SUITES: Final = {
    "base": (
        Part("base", workers=3),
        Part("base alone", "", "alone and not multi_gpu", ("tests/e2e",)),
    ),
    "multi-gpu": (
        # Apart from TensorFlow's other tests: a process configures its devices only once.
        Part("multi-gpu", "tensorflow", "multi_gpu", MULTI_GPU_TESTS, workers=2),
        Part("multi-gpu alone", "tensorflow", "multi_gpu and alone", ("tests/multi_gpu",)),
        Part("multi-gpu e2e alone", "tensorflow", "multi_gpu and alone", ("tests/e2e",)),
    ),
    "jax": (_framework("jax"),),
    "oldest-keras": (
        Part("oldest-keras", "oldest-keras", "keras_jax and versions", ("tests/keras",)),
    ),
    "tensorflow": (_framework("tensorflow"),),
    "torch": (_framework("torch"),),
}
"""In the order of their start: the longest first, but those with most tests of waits late, when
``base`` is nearly over. With five tests on two cores, sleeps last longer than requested.
"""
BACKENDS: Final = {"oldest-keras": "jax"}
"""Keras' backend, where it differs from the name of the environment."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the suites; return the exit code."""
    parser = argparse.ArgumentParser(description="Run test suites in parallel.")
    parser.add_argument("--check", action="store_true", help="run make lint first")
    parser.add_argument("--without-torch", action="store_true", help="skip the suite torch")
    parser.add_argument("suites", nargs="+", choices=SUITES, metavar="SUITE")
    argv = sys.argv[1:] if argv is None else argv
    end = argv.index("--") if "--" in argv else len(argv)
    args, for_pytest = parser.parse_args(argv[:end]), argv[end + 1 :]

    skipped = {"torch"} & {*args.suites} if args.without_torch else set()
    suites = [name for name in SUITES if name in {*args.suites} - skipped]
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpumon-tests-") as folder:
        jobs = list(jobs_of(suites, for_pytest, Path(folder), with_check=args.check))
        try:
            run_side_by_side(jobs, Path(folder))
        except KeyboardInterrupt:
            print("\nInterrupted.", file=sys.stderr)
            return INTERRUPTED
        print("".join(_failures(jobs)), end="")
        passed_alone = _retry(jobs)
        print(f"\n=== times ({(time.monotonic() - began_s) / 60:.1f} minutes in all)")
        print("\n".join(_table(jobs)))
        for test in passed_alone:
            print(f"FAILED AT FIRST, passed alone: {test}")
        if skipped:
            print("SKIPPED: the tests marked keras_torch; make test TORCH=1 installs torch.")
        return code_of(jobs, in_ci=bool(os.environ.get("CI")))


def jobs_of(
    suites: Sequence[str], for_pytest: Sequence[str], folder: Path, *, with_check: bool
) -> Iterator[Job]:
    """The programs to run, in the order in which they are printed."""
    make = [*shlex.split(os.environ.get("MAKE", "make")), "--no-print-directory"]
    parts = [part for suite in suites for part in SUITES[suite]]
    if "base" in suites:  # only its tests start these tools
        yield Job(name=TOOLS, command=[*make, TOOLS], lane=Lane.FIRST)
    for environment in dict.fromkeys(part.folder for part in parts):
        is_base = environment == BASE_FOLDER  # its uv makes the others
        yield Job(
            name=environment,
            command=[*make, f"{environment}/.dev"],
            lane=Lane.FIRST if is_base else Lane.INSTALLS,
            needs=() if is_base else (BASE_FOLDER,),
            is_shown=False,
        )
    if with_check:
        yield Job(name=LINT, command=[*make, LINT], lane=Lane.FIRST, needs=(BASE_FOLDER,))
        # Compiles the tests once, instead of in each worker.
        collect = f"{BASE_FOLDER}/bin/python -m pytest --collect-only -q".split()
        yield Job(
            name="collect", command=collect, lane=Lane.FIRST, needs=(BASE_FOLDER,), is_shown=False
        )
    for part in sorted(parts, key=lambda part: part.is_alone):
        # Lint leaves a core to this part, which mostly sleeps.
        is_first = with_check and part.name == "base alone"
        lane = Lane.FIRST if is_first else Lane.LAST if part.is_alone else Lane.PARALLEL
        yield Job(
            name=part.name,
            command=_pytest(part, for_pytest, folder),
            lane=lane,
            variables=_variables(part, folder),
            needs=(part.folder,) if is_first else (part.folder, TOOLS, LINT),
        )


def _pytest(part: Part, for_pytest: Sequence[str], folder: Path) -> list[str]:
    command = [f"{part.folder}/bin/python", "-m", "pytest", *time_limit(TEST_TIMEOUT_S)]
    # Each part remembers its own failures, for --last-failed.
    command += ["-o", f"cache_dir={folder / 'failed' / part.name.replace(' ', '-')}"]
    if sys.stdout.isatty():
        command.append("--color=yes")
    if part.workers:
        command += ["--dist", "loadfile", "--no-loadscope-reorder", "-n", str(part.workers)]
    if part.marked:
        command += ["-m", part.marked]
    has_paths = any((ROOT / word.partition("::")[0]).exists() for word in for_pytest)
    return [*command, *(() if has_paths else part.paths), *for_pytest]


def time_limit(seconds: float) -> list[str]:
    """pytest arguments: a longer test fails with the stacks of all threads, and its process ends.

    With workers, another worker runs the remaining tests.
    """
    timeout = f"faulthandler_timeout={seconds:g}"
    return ["-o", timeout, "-o", "faulthandler_exit_on_timeout=true"]


def _variables(part: Part, folder: Path) -> dict[str, str]:
    if not part.environment:
        return {}
    backend = BACKENDS.get(part.environment, part.environment)
    # OpenMP threads wait by spinning, and other tests need the cores.
    variables = {"KERAS_BACKEND": backend, "OMP_NUM_THREADS": "1"}
    if backend == "jax":  # tests train the same few models; compiling took half of their time
        variables |= {
            "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
    if os.environ.get("CI"):
        variables["GPUMON_REQUIRE_KERAS"] = "1"
    return variables


def _retry(jobs: Sequence[Job]) -> list[str]:
    """Run a few failed tests again; return those that pass, whose suite then passes."""
    passed = []
    for job in jobs:
        summary = r"^(?:FAILED|ERROR) (\S+?(?:\[.*?\])?)(?: - .*)?$"
        failed = re.findall(summary, job.output, re.MULTILINE)
        if job.code == TESTS_FAILED and 0 < len(failed) <= MAX_RETRIED:
            command = [*job.command, "--last-failed", "-n", "0"]
            print(f"\n=== {job.name}, failed tests again: {shlex.join(command)}", flush=True)
            done = subprocess.run(command, env={**os.environ, **job.variables}, check=False)
            if done.returncode == 0:
                job.code = 0
                passed += failed
    return passed


def code_of(jobs: Sequence[Job], *, in_ci: bool) -> int:
    """0 if all suites passed. Outside CI, an environment and what needs it may be missing."""
    required = [
        job for job in jobs if in_ci or (job.process is not None and job.lane is not Lane.INSTALLS)
    ]
    has_failed = any(job.code not in (0, NO_TESTS) for job in required)
    has_tested = any(job.code == 0 for job in jobs if job.is_shown and "pytest" in job.command)
    return int(has_failed or not has_tested)


def _table(jobs: Sequence[Job]) -> Iterator[str]:
    """A line for each job: tests, minutes, start, and failure."""
    yield f"{'suite':<20}{'tests':>8}{'minutes':>9}{'from':>7}"
    first_s = min((job.began_s for job in jobs if job.process), default=0.0)
    failed = {job.name for job in jobs if job.is_over and job.code != 0}
    for job in jobs:
        if job.process is None:
            missing = ", ".join(sorted(failed.intersection(job.needs)))
            yield f"{job.name:<44}  SKIPPED{f': {missing} failed' if missing else ''}"
            continue
        tests = _test_count(job.output) if job.is_shown else ""
        outcome = "" if job.code in (0, NO_TESTS) else f"  FAILED ({job.code})"
        minutes, start = (job.ended_s - job.began_s) / 60, (job.began_s - first_s) / 60
        yield f"{job.name:<20}{tests:>8}{minutes:>9.1f}{start:>7.1f}{outcome}"


def _failures(jobs: Sequence[Job]) -> Iterator[str]:
    """The failures again, at the end of the output."""
    for job in jobs:
        failed = re.findall(r"^(?:E  |FAILED|ERROR) .*\n", job.output, re.MULTILINE)
        if job.code not in (0, None) and failed:
            yield f"\n=== {job.name}: failures\n"
            yield from failed[-MAX_FAILURE_LINES:]


def _test_count(output: str) -> str:
    """The number of tests in pytest's last line; empty without one."""
    for line in reversed(output.splitlines()):
        if re.search(r" in [\d.]+s", line):
            found = re.findall(r"(\d+) (?:passed|failed|errors?|skipped|xfailed)\b", line)
            return str(sum(map(int, found)))
    return ""


if __name__ == "__main__":
    sys.exit(main())
