"""Run the tests that need an NVIDIA GPU (``make gpu``), then capture how the board behaves.

    python3 tests/tools/run_gpu_tests.py [--quick | --capture] [--into FOLDER] [PYTEST ARGUMENTS]
    python3 tests/tools/run_gpu_tests.py --multi [PYTEST ARGUMENTS]

The capture (``board_capture``) writes a page of ``docs/measured`` and a recording of the first
board; tests and capture take at most ten minutes. ``--quick`` only captures, in two minutes,
``--capture`` only captures at full length; with arguments for pytest only tests run.

The interpreter is ``$GPU_PYTHON``, else that of ``.venv-torch``, else this one. It must have a
torch for CUDA, which is not installed here because it must match the driver. Other missing packages
are installed into ``.venv-gpu``, which sees all packages of that interpreter; if ``$WHEELS`` names
a folder of wheels, from there and without network. If that fails, only the capture runs. It needs
NVML's Python binding, and PyTorch for what is measured under load.

``--multi`` (``make gpu-multi``) runs the tests that need several GPUs, with TensorFlow or torch or
both. ``$GPU_PYTHON`` may name several interpreters, one for each; without it those of
``.venv-torch`` and ``.venv-tensorflow`` run. The figures go to a page of ``docs/measured``.

Exit codes: pytest's; 3 without a GPU (or a second one); 1 if the tests cannot run.
Standard library only: nothing is installed yet when this starts.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # this is run by its path

from tests.tools.measured_page import Results, machine_here, page_of, results_of  # noqa: E402

ENVIRONMENT: Final = ROOT / ".venv-gpu"
NO_GPU: Final = 3
CANNOT: Final = 1

MEASURED: Final = ROOT / "docs" / "measured"
MULTI_TESTS: Final = (
    "tests/gpu_multi",
    "tests/gpu/test_prefetch_on_boards.py",
    "tests/gpu/test_ddp_on_boards.py",
)

NEEDS: Final = {
    "pytest": "pytest>=8.2,<10",
    "keras": "keras>=3.7",
    "numpy": "numpy>=1.24",
    "psutil": "psutil>=5.9",
    "pynvml": "nvidia-ml-py>=12.535",
    "rich": "rich>=13",
}
"""Modules that the tests import, and their requirements."""

FRAMEWORKS: Final = ("tensorflow", "torch")
COMPUTE: Final = ("torch", "jax")
"""Keeps the board busy; one is enough."""

ALL_S: Final = 600.0
SPARE_S: Final = 60.0
STOP_TIMEOUT_S: Final = 20.0
OVER_TIME: Final = 1
LONGEST_CAPTURE_S: Final = 400.0
SHORTEST_CAPTURE_S: Final = 100.0
"""Reserved, however long the tests take."""

_INSPECT: Final = """
import json, sys
from importlib.util import find_spec
print(json.dumps([[name for name in sys.argv[1:] if find_spec(name) is None], sys.path[1:]]))
"""


_VERSIONS: Final = """
import platform
from importlib.metadata import PackageNotFoundError, version
found = ["Python " + platform.python_version()]
for name in ("tensorflow", "torch", "jax", "keras"):
    try:
        found.append(name + " " + version(name))
    except PackageNotFoundError:
        pass
print(", ".join(found))
"""


class CannotRunError(Exception):
    """Why the tests cannot run, as a sentence; the exit code is ``CANNOT``."""


def gpus_here() -> int:
    """How many GPUs the driver lists; 0 without a driver."""
    return len(machine_here().boards)


def chosen_pythons(*environments: str) -> list[str]:
    """The named interpreters, else those of our environments, else this one."""
    named = os.environ.get("GPU_PYTHON", "").split()
    if named:
        return [_program(name) for name in named]
    ours = [ROOT / f".venv-{name}" / "bin" / "python" for name in environments]
    return [str(python) for python in ours if python.exists()] or [sys.executable]


def _program(named: str) -> str:
    found = shutil.which(named)
    if found is None:
        raise CannotRunError(f"GPU_PYTHON={named} names no program")
    return str(Path(found).absolute())


def inspected(python: str, frameworks: tuple[str, ...] = ("torch",)) -> tuple[set[str], list[str]]:
    """The needed modules that an interpreter lacks, and its module path."""
    done = subprocess.run(
        [python, "-c", _INSPECT, *frameworks, *NEEDS], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise CannotRunError(f"{python} does not start: {done.stderr.strip()}")
    lacking, folders = json.loads(done.stdout)
    return set(lacking), folders


def with_all_needs(python: str, frameworks: tuple[str, ...] = ("torch",), number: int = 1) -> str:
    """An interpreter with one of the frameworks, and all that the tests import.

    Args:
        python: The interpreter with the framework.
        frameworks: It must have one of them.
        number: Of the environment that is made if it lacks something else.
    """
    lacking, folders = inspected(python, frameworks)
    if lacking.issuperset(frameworks):
        words = " and no ".join(frameworks)
        target = "gpu" if frameworks == ("torch",) else "gpu-multi"
        raise CannotRunError(
            f"there is no {words} in {python}: name a Python that has one for CUDA, "
            f"as in make {target} GPU_PYTHON=/path/to/python3"
        )
    if lacking.isdisjoint(NEEDS):
        return python
    return _environment_around(python, folders, "" if number == 1 else f"-{number}")


def _environment_around(python: str, folders: list[str], suffix: str) -> str:
    """Make ``.venv-gpu``: the packages of ``python``, and those that it lacks."""
    environment = ENVIRONMENT.with_name(ENVIRONMENT.name + suffix)
    inside = environment / "bin" / "python"
    try:
        made = [python, "-m", "venv", "--system-site-packages", str(environment)]
        subprocess.run(made, check=True)
        # If ``python`` is in an environment itself, its packages are not the system's.
        (site,) = environment.glob("lib/python*/site-packages")
        packages = [folder for folder in folders if folder.endswith("-packages")]
        (site / "packages-around.pth").write_text("\n".join([*packages, ""]), encoding="utf-8")
        lacking, _ = inspected(str(inside))
        wanted = [NEEDS[name] for name in NEEDS if name in lacking]
        if wanted:
            print(f"Installing {', '.join(wanted)} into {environment.name} ...", flush=True)
            pip = [str(inside), "-m", "pip", "install", "-q", *_install_arguments()]
            subprocess.run([*pip, *wanted], check=True)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        raise CannotRunError(f"{environment.name} could not be made: {error}") from error
    return str(inside)


def _install_arguments() -> list[str]:
    """Make pip use only the wheels of ``$WHEELS``, if set."""
    wheels = os.environ.get("WHEELS")
    return ["--no-index", "--find-links", str(Path(wheels).absolute())] if wheels else []


def main() -> int:
    """Run pytest, or print why not; the exit code."""
    words = sys.argv[1:]
    is_multi = words[:1] == ["--multi"]
    target = "make gpu-multi" if is_multi else "make gpu"
    boards = gpus_here()
    if boards == 0:
        return _failed(
            f"{target}: no NVIDIA GPU answers on this machine, so no test was run "
            "(gpumon doctor says what is missing).",
            NO_GPU,
        )
    if is_multi and boards == 1:
        return _failed(
            f"{target}: it needs at least two NVIDIA GPUs and one answers on this machine, so no "
            "test was run (make gpu runs those of one).",
            NO_GPU,
        )
    try:
        return run_multi(words[1:]) if is_multi else run_single(words)
    except CannotRunError as error:
        return _failed(f"{target}: {error}.", CANNOT)


def _failed(sentence: str, exit_code: int) -> int:
    print(sentence, file=sys.stderr)
    return exit_code


def run_single(words: list[str]) -> int:
    """The tests of one GPU, then the capture; the worst exit code."""
    began_s = time.monotonic()
    ours, for_pytest = _sorted_words(words)
    python = chosen_pythons("torch")[0]
    lacking, _ = inspected(python, COMPUTE)
    if lacking.issuperset(COMPUTE):
        raise CannotRunError(
            f"there is no torch in {python}, and no jax: name a Python that has one of them for "
            "CUDA, as in make gpu GPU_PYTHON=/path/to/python3"
        )
    framework = "jax" if "torch" in lacking else "torch"
    try:
        python = with_all_needs(python, (framework,))
    except CannotRunError as error:
        if for_pytest or "pynvml" in lacking:
            raise
        print(f"make gpu: {error}: only the capture runs", file=sys.stderr, flush=True)
        return _capture(python, ours, began_s)
    code = 0
    if not {"--quick", "--capture"}.intersection(ours):
        print(f"make gpu: with {python}", flush=True)
        os.environ.setdefault("KERAS_BACKEND", framework)
        command = [python, "-m", "pytest", "-m", "gpu", "tests/gpu", *for_pytest]
        limit_s = ALL_S - SPARE_S - SHORTEST_CAPTURE_S - (time.monotonic() - began_s)
        code = code_within(None if for_pytest else limit_s, command, ROOT)
    return code if for_pytest else max(code, _capture(python, ours, began_s))


def code_within(limit_s: float | None, command: Sequence[str], folder: Path) -> int:
    """The exit code of a program; after ``limit_s`` it is interrupted, and then killed."""
    child = subprocess.Popen(command, cwd=folder, preexec_fn=_accept_interrupts)
    try:
        return child.wait(limit_s)
    except subprocess.TimeoutExpired:
        sentence = f"make gpu: the tests have taken {limit_s:.0f} s and are stopped"
        print(sentence, file=sys.stderr, flush=True)
        child.send_signal(signal.SIGINT)  # pytest then prints its results so far
        try:
            return child.wait(STOP_TIMEOUT_S) or OVER_TIME
        except subprocess.TimeoutExpired:
            return OVER_TIME
    finally:
        child.kill()
        child.wait()


def _accept_interrupts() -> None:
    """A shell makes what it starts with ``&`` ignore them, and its children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _sorted_words(words: list[str]) -> tuple[list[str], list[str]]:
    """Arguments for the capture, and those for pytest."""
    ours, rest = [], list(words)
    while rest and rest[0] in ("--quick", "--capture", "--into", "--recordings", "--limit"):
        count = 1 if rest[0] in ("--quick", "--capture") else 2
        ours += rest[:count]
        rest = rest[count:]
    return ours, rest


def _capture(python: str, words: list[str], began_s: float) -> int:
    """Capture the first board in the remaining time; the exit code."""
    left_s = ALL_S - SPARE_S - (time.monotonic() - began_s)
    reported = [word for word in words if word != "--capture"]
    if "--limit" not in reported and "--quick" not in reported:
        limit_s = max(SHORTEST_CAPTURE_S - STOP_TIMEOUT_S, min(LONGEST_CAPTURE_S, left_s))
        reported = ["--limit", f"{limit_s:.0f}", *reported]
    command = [python, "-m", "tests.tools.board_capture", *reported]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def run_multi(words: list[str]) -> int:
    """The tests of several GPUs with each interpreter, and the page; the worst exit code."""
    pythons = [
        with_all_needs(python, FRAMEWORKS, number)
        for number, python in enumerate(chosen_pythons("torch", "tensorflow"), start=1)
    ]
    worst, runs = 0, []
    for python in pythons:
        print(f"make gpu-multi: with {python}", flush=True)
        code, results = _run_multi_with(python, words)
        worst = max(worst, code)
        runs += [] if results is None else [results]
    if not runs:
        return worst  # pytest did something else, or did not start
    if not any(run.ran for run in runs):
        raise CannotRunError("every test was skipped, for the reasons above; no page was written")
    machine = machine_here()
    command = " ".join(["make gpu-multi", *([f"ARGS='{' '.join(words)}'"] if words else [])])
    today = datetime.now(timezone.utc).date().isoformat()
    MEASURED.mkdir(parents=True, exist_ok=True)
    page = MEASURED / machine.page_name
    page.write_text(page_of(machine, runs, date=today, command=command), encoding="utf-8")
    print(f"make gpu-multi: what was measured is in {page}", flush=True)
    return worst


def _run_multi_with(python: str, words: list[str]) -> tuple[int, Results | None]:
    lacking, _ = inspected(python, FRAMEWORKS)
    os.environ["KERAS_BACKEND"] = "torch" if "tensorflow" in lacking else "tensorflow"
    # Several frameworks and processes share the boards: none takes all memory at once.
    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    reported = subprocess.run([python, "-c", _VERSIONS], capture_output=True, text=True, check=True)
    with tempfile.TemporaryDirectory() as folder:
        junit = Path(folder) / "results.xml"
        command = [
            python, "-m", "pytest", "-m", "gpu or gpu_multi", f"--junitxml={junit}", "-o",
            "junit_family=xunit1", *MULTI_TESTS,
            *words,
        ]  # fmt: skip
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        results = results_of(junit, reported.stdout.strip()) if junit.exists() else None
    return code, results if results is not None and results.outcomes else None


if __name__ == "__main__":
    sys.exit(main())
