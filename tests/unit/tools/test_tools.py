"""One smoke test of each tool that the Makefile runs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakenvml.build import fake_env
from tests.fakenvml.control import FakeNvml
from tests.programs import ROOT, ran_python
from tests.tools import measured_page, run_gpu_tests
from tests.tools.mutated_lines.mutations import drawn, mutations_of
from tests.tools.run_suites import SUITES, code_of, jobs_of
from tests.tools.run_versions import LANES, PAGE, RESULTS, with_table
from tests.tools.side_by_side import Job, Lane, run_side_by_side

TOOLS = ROOT / "tests" / "tools"
A_CHECK = """
import pytest
@pytest.mark.gpu_multi
def test_are_quick(record_property):
    record_property("figure", "speed of two boards | 1.93 times one | at least 1.9")
"""
TORCH_WITHOUT_A_GPU = """
class cuda:
    is_available = staticmethod(lambda: False)
    device_count = staticmethod(lambda: 0)
"""
APT_GET = """#!/bin/sh
[ "$1" = install ] || exit 0
for package in "$@"; do :; done
touch "$BIN/$package" && chmod +x "$BIN/$package"
"""


def test_mutated_lines_change_one_thing_and_are_drawn_by_seed() -> None:
    source = "def function(x, y):\n    return x < y\n"
    found = [*mutations_of("a.py", source, subtle=False)]

    assert [one.made_in(source).splitlines()[1].strip() for one in found] == [
        "return None",
        "return x <= y",
    ]
    assert drawn(found, 1, seed=3) == drawn(found, 1, seed=3)


def test_apt_install_installs_what_is_missing(tmp_path: Path) -> None:
    for name in ("sh", "cat", "env", "mktemp", "rm", "touch", "chmod", "true"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    for name, script in (("apt-get", APT_GET), ("id", "#!/bin/sh\necho 0\n")):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)

    command = ["sh", str(TOOLS / "apt_install.sh"), "dstat", "sh"]
    environ = {"PATH": str(tmp_path), "BIN": str(tmp_path)}
    subprocess.run(command, env=environ, check=True, timeout=30)

    assert (tmp_path / "dstat").exists()


def test_suites_run_side_by_side_and_a_failure_fails_them_all(tmp_path: Path) -> None:
    jobs = [
        Job(name=name, command=[sys.executable, "-S", "-c", program], lane=Lane.PARALLEL)
        for name, program in (("passes", ""), ("fails", "raise SystemExit(1)"))
    ]

    run_side_by_side(jobs, tmp_path)

    assert [job.code for job in jobs] == [0, 1]
    assert code_of(jobs, in_ci=True) == 1
    assert {"base", "torch", "lint"} <= {
        job.name for job in jobs_of(list(SUITES), [], tmp_path, with_check=True)
    }


def test_the_page_has_the_table_of_versions_of_the_last_runs() -> None:
    page, results = PAGE.read_text(encoding="utf-8"), json.loads(RESULTS.read_text("utf-8"))

    assert with_table(page, results) == page
    assert set(results) == set(LANES)
    assert [name for name, result in results.items() if not result["passed"]] == []


def test_make_gpu_without_a_gpu_says_so(tmp_path: Path) -> None:
    if run_gpu_tests.gpus_here():
        pytest.skip("there is a GPU on this machine")

    done = ran_python(TOOLS / "run_gpu_tests.py")

    assert (done.returncode, done.stdout) == (run_gpu_tests.NO_GPU, "")
    assert done.stderr.startswith("make gpu: no NVIDIA GPU ")


def test_make_gpu_captures_a_board_with_a_page_and_a_recording(
    fake_nvml: FakeNvml, fake_library: Path, tmp_path: Path
) -> None:
    stubs = tmp_path / "stubs"
    stubs.mkdir()
    (stubs / "torch.py").write_text(TORCH_WITHOUT_A_GPU)
    (stubs / "keras.py").touch()
    boards = fake_env(fake_nvml.path, fake_library.parent)
    environ = {**boards, "GPU_PYTHON": sys.executable, "PYTHONPATH": str(stubs)}
    words = ("--capture", "--limit", "12", "--into", tmp_path, "--recordings", tmp_path)

    done = ran_python(TOOLS / "run_gpu_tests.py", *map(str, words), environ=environ, timeout_s=120)

    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "nvidia-h100-80gb-hbm3.md").read_text(encoding="utf-8")
    assert "driver 580.95.05" in page
    assert "| gpu_utilization | idle | 120 |" in page
    assert (tmp_path / "nvidia-h100-80gb-hbm3.gpumon").stat().st_size > 100


def test_make_gpu_multi_writes_a_page_of_figures(
    fake_nvml: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "test_boards.py").write_text(A_CHECK)
    (tmp_path / "torch.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # for the stub of torch
    monkeypatch.setenv("GPU_PYTHON", sys.executable)
    for name in ("KERAS_BACKEND", "TF_FORCE_GPU_ALLOW_GROWTH", "XLA_PYTHON_CLIENT_PREALLOCATE"):
        monkeypatch.setenv(name, "restored after the test")
    monkeypatch.setattr(run_gpu_tests, "MULTI_TESTS", (str(tmp_path / "test_boards.py"),))
    monkeypatch.setattr(run_gpu_tests, "MEASURED", tmp_path / "measured")
    monkeypatch.setattr(run_gpu_tests, "NEEDS", {"pytest": "pytest"})

    assert run_gpu_tests.run_multi([]) == 0

    (page,) = (tmp_path / "measured").iterdir()
    assert page.name == "2-x-nvidia-h100-80gb-hbm3-multi.md"
    assert "| speed of two boards | 1.93 times one | at least 1.9 |" in page.read_text()
    machine = measured_page.Machine(("NVIDIA L4", "NVIDIA T4"), "580.95.05")
    assert machine.page_name == "1-x-nvidia-l4-1-x-nvidia-t4-multi.md"
