"""Runs the tests that need an NVIDIA GPU (``make gpu``), with whichever torch is at hand.

    python3 tests/tools/run_gpu_tests.py [WORDS FOR PYTEST]

The interpreter is ``$GPU_PYTHON`` where that is set, else that of ``.venv-torch`` where
it was made, else this one; it must have a torch for CUDA, which is not installed here:
it has to suit the driver. What else the tests need and it lacks goes into ``.venv-gpu``,
an environment that sees all packages of that interpreter.

Exit codes: pytest's; 3 where there is no GPU; 1 where the tests cannot be run.
Standard library only: nothing is installed yet when this starts.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
ENVIRONMENT: Final = ROOT / ".venv-gpu"
NO_GPU: Final = 3
CANNOT: Final = 1

NEEDS: Final = {
    "pytest": "pytest>=8.2,<10",
    "keras": "keras>=3.7",
    "numpy": "numpy>=1.24",
    "psutil": "psutil>=5.9",
    "pynvml": "nvidia-ml-py>=12.535",
    "prometheus_client": "prometheus-client>=0.20",
    "rich": "rich>=13",
}
"""Modules that the tests import, and what pip calls them."""

_LOOK: Final = """
import json, sys
from importlib.util import find_spec
print(json.dumps([[name for name in sys.argv[1:] if find_spec(name) is None], sys.path[1:]]))
"""


class CannotRunError(Exception):
    """Why the tests cannot be run, as a sentence; the exit code is ``CANNOT``."""


def gpus_here() -> int:
    """How many GPUs the driver lists; 0 without a driver."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return 0
    if nvml.nvmlInit_v2() != 0:
        return 0
    count = ctypes.c_uint()
    failed = nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    nvml.nvmlShutdown()
    return 0 if failed else count.value


def chosen_python() -> str:
    """The interpreter whose torch is to be used."""
    named = os.environ.get("GPU_PYTHON")
    if named:
        found = shutil.which(named)
        if found is None:
            raise CannotRunError(f"GPU_PYTHON={named} names no program")
        return str(Path(found).absolute())
    ours = ROOT / ".venv-torch" / "bin" / "python"
    return str(ours) if ours.exists() else sys.executable


def look_into(python: str) -> tuple[set[str], list[str]]:
    """Which needed modules that interpreter lacks, and where it looks for modules."""
    done = subprocess.run(
        [python, "-c", _LOOK, "torch", *NEEDS], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise CannotRunError(f"{python} is no Python that starts: {done.stderr.strip()}")
    lacking, folders = json.loads(done.stdout)
    return set(lacking), folders


def with_all_needs(python: str) -> str:
    """An interpreter that has torch and whatever else the tests import."""
    lacking, folders = look_into(python)
    if "torch" in lacking:
        raise CannotRunError(
            f"there is no torch in {python}: name a Python that has one for CUDA, "
            "as in make gpu GPU_PYTHON=/path/to/python3"
        )
    if not lacking:
        return python
    return _environment_around(python, folders)


def _environment_around(python: str, folders: list[str]) -> str:
    """``.venv-gpu``, made anew if need be: the packages of ``python``, and what it lacks."""
    inside = ENVIRONMENT / "bin" / "python"
    try:
        _run(python, "-m", "venv", "--system-site-packages", str(ENVIRONMENT))
        # Where ``python`` is of an environment itself, its packages are not the system's.
        (site,) = ENVIRONMENT.glob("lib/python*/site-packages")
        packages = [folder for folder in folders if folder.endswith("-packages")]
        (site / "packages-around.pth").write_text("\n".join([*packages, ""]), encoding="utf-8")
        lacking, _ = look_into(str(inside))
        wanted = [NEEDS[name] for name in NEEDS if name in lacking]
        if wanted:
            print(f"Installing {', '.join(wanted)} into {ENVIRONMENT.name} ...", flush=True)
            _run(str(inside), "-m", "pip", "install", "-q", *wanted)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        raise CannotRunError(f"{ENVIRONMENT.name} could not be made: {error}") from error
    return str(inside)


def _run(*words: str) -> None:
    subprocess.run(words, check=True)


def main() -> int:
    """Run pytest, or say in a sentence why not; the exit code."""
    if gpus_here() == 0:
        print(
            "make gpu: no NVIDIA GPU answers on this machine, so none of its tests was run "
            "(gpumon doctor says what is missing).",
            file=sys.stderr,
        )
        return NO_GPU
    try:
        python = with_all_needs(chosen_python())
    except CannotRunError as error:
        print(f"make gpu: {error}.", file=sys.stderr)
        return CANNOT
    print(f"make gpu: with {python}", flush=True)
    os.environ.setdefault("KERAS_BACKEND", "torch")
    words = [python, "-m", "pytest", "-m", "gpu", "tests/gpu", *sys.argv[1:]]
    return subprocess.run(words, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
