"""``make gpu-multi``: what it says where it cannot run, what it runs, and the page it leaves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest

from tests.fakenvml.build import fake_env
from tests.fakenvml.control import FakeNvml
from tests.tools import measured_page, run_gpu_tests

ROOT = run_gpu_tests.ROOT
SCRIPT = ROOT / "tests" / "tools" / "run_gpu_tests.py"
BLIND_TORCH = """
class cuda:
    is_available = staticmethod(lambda: False)
    device_count = staticmethod(lambda: 0)
"""
A_CHECK = """
import pytest

pytestmark = pytest.mark.gpu_multi

class TestBoards:
    def test_are_quick(self, record_property):
        record_property("figure", "speed of two boards | 1.93 times one | at least 1.9")

    def test_are_{count}(self):
        pytest.skip("needs three GPUs, and TensorFlow sees 2")
"""


def run(environ: dict[str, str], *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), "--multi", *words],
        env={**environ, **more}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.fixture
def with_gpus(fake_nvml: FakeNvml, fake_library: Path) -> dict[str, str]:
    return fake_env(fake_nvml.path, fake_library.parent)


@pytest.fixture
def blind_torch(tmp_path: Path) -> str:
    """A folder for ``$PYTHONPATH`` with a torch that sees no GPU, and no TensorFlow."""
    folder = tmp_path / "stubs"
    folder.mkdir()
    (folder / "torch.py").write_text(BLIND_TORCH)
    (folder / "keras.py").touch()
    return str(folder)


class TestWithoutTwoGpus:
    def test_it_says_in_one_sentence_that_there_is_none_and_exits_with_3(self) -> None:
        if run_gpu_tests.gpus_here():
            pytest.skip("there is a GPU on this machine")
        done = run({**os.environ})

        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.count("\n") == 1
        assert "make gpu-multi: no NVIDIA GPU answers on this machine" in done.stderr

    def test_it_says_that_one_is_too_few(self, tmp_path: Path, fake_library: Path) -> None:
        with FakeNvml(tmp_path / "one.control", gpus=1) as fake:
            done = run(fake_env(fake.path, fake_library.parent))

        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.count("\n") == 1
        assert "needs two NVIDIA GPUs or more and one answers" in done.stderr

    @pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
    def test_make_fails_with_that_sentence_and_writes_no_page(self) -> None:
        if run_gpu_tests.gpus_here():
            pytest.skip("there is a GPU on this machine")
        own = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
        before = pages()
        done = subprocess.run(
            ["make", "gpu-multi"], cwd=ROOT, env=own,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

        assert (done.returncode, done.stdout) == (2, "")
        assert "no NVIDIA GPU answers on this machine" in done.stderr
        assert "Error 3" in done.stderr
        assert pages() == before


class TestWhatItRuns:
    def test_is_all_that_needs_several_boards(
        self, with_gpus: dict[str, str], blind_torch: str
    ) -> None:
        done = run(
            with_gpus, "--collect-only", "-q", GPU_PYTHON=sys.executable, PYTHONPATH=blind_torch
        )

        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.startswith(f"make gpu-multi: with {sys.executable}\n")
        ours = (ROOT / "tests" / "gpu_multi").glob("test_*.py")
        for path in (*ours, ROOT / "tests/gpu/test_ddp_on_boards.py"):
            assert f"{path.relative_to(ROOT)}::" in done.stdout
        assert "tests/gpu/test_prefetch_on_boards.py::" in done.stdout

    def test_is_nothing_where_every_test_is_skipped_and_that_is_said(
        self, with_gpus: dict[str, str], blind_torch: str
    ) -> None:
        before = pages()

        done = run(with_gpus, GPU_PYTHON=sys.executable, PYTHONPATH=blind_torch)

        assert done.returncode == 1, done.stdout + done.stderr
        assert "every test was skipped, for the reasons above" in done.stderr
        assert "tensorflow not installed here" in done.stdout
        assert "this torch sees no GPU" in done.stdout
        assert pages() == before

    def test_is_done_with_each_interpreter_that_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GPU_PYTHON", f"{sys.executable} /bin/sh")
        assert run_gpu_tests.chosen_pythons() == [sys.executable, "/bin/sh"]

        monkeypatch.delenv("GPU_PYTHON")
        monkeypatch.setattr(run_gpu_tests, "ROOT", tmp_path)
        assert run_gpu_tests.chosen_pythons() == [sys.executable]

        python = tmp_path / ".venv-tensorflow" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.touch()
        assert run_gpu_tests.chosen_pythons() == [str(python)]

    def test_needs_tensorflow_or_torch(self, tmp_path: Path, with_gpus: dict[str, str]) -> None:
        bare = tmp_path / "python"
        bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
        bare.chmod(0o755)

        done = run(with_gpus, GPU_PYTHON=str(bare))

        assert (done.returncode, done.stdout) == (1, "")
        assert f"there is no tensorflow and no torch in {bare}" in done.stderr
        assert "make gpu-multi GPU_PYTHON=/path/to/python3" in done.stderr


class TestThePage:
    @pytest.fixture
    def here(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_nvml: FakeNvml, blind_torch: str
    ) -> Path:
        """A folder for pages; what is run is one small file of checks, on two fake boards."""
        checks = tmp_path / "test_boards.py"
        checks.write_text(A_CHECK.format(count="three"))
        monkeypatch.setenv("PYTHONPATH", blind_torch)
        monkeypatch.setenv("GPU_PYTHON", sys.executable)
        for name in ("KERAS_BACKEND", "TF_FORCE_GPU_ALLOW_GROWTH", "XLA_PYTHON_CLIENT_PREALLOCATE"):
            monkeypatch.setenv(name, "put back after the test")
        monkeypatch.setattr(run_gpu_tests, "MULTI_TESTS", (str(checks),))
        monkeypatch.setattr(run_gpu_tests, "MEASURED", tmp_path / "measured")
        monkeypatch.setattr(run_gpu_tests, "NEEDS", {"pytest": "pytest"})
        return tmp_path / "measured"

    def test_tells_boards_driver_date_figures_and_what_was_skipped(self, here: Path) -> None:
        assert run_gpu_tests.run_multi([]) == 0

        (page,) = here.iterdir()
        told = page.read_text()
        assert page.name == "2-x-nvidia-h100-80gb-hbm3-multi.md"
        assert told.startswith("# Measured on 2 x NVIDIA H100 80GB HBM3\n")
        today = datetime.now(timezone.utc).date().isoformat()
        assert f"`make gpu-multi` on {today}, driver 580.95.05." in told
        assert "| speed of two boards | 1.93 times one | at least 1.9 |" in told
        assert "1 passed, 0 failed, 1 skipped" in told
        assert (
            "skipped: TestBoards.test_are_three (needs three GPUs, and TensorFlow sees 2)" in told
        )
        assert "Python 3" in told

    def test_tells_of_a_target_that_was_missed_and_the_run_fails(
        self, here: Path, tmp_path: Path
    ) -> None:
        checks = tmp_path / "test_boards.py"
        checks.write_text(A_CHECK.format(count="three").replace("pytest.skip(", "pytest.fail("))

        assert run_gpu_tests.run_multi([]) == 1

        (page,) = here.iterdir()
        assert "1 passed, 1 failed, 0 skipped" in page.read_text()
        assert "failed: TestBoards.test_are_three" in page.read_text()

    def test_says_so_where_only_a_part_was_run(self, here: Path) -> None:
        run_gpu_tests.run_multi(["-k", "quick"])

        (page,) = here.iterdir()
        assert "`make gpu-multi ARGS='-k quick'`" in page.read_text()

    def test_is_named_after_boards_that_differ(self) -> None:
        machine = measured_page.Machine(("NVIDIA L4", "NVIDIA T4", "NVIDIA L4"), "580.95.05")

        assert str(machine) == "2 x NVIDIA L4, 1 x NVIDIA T4"
        assert machine.page_name == "2-x-nvidia-l4-1-x-nvidia-t4-multi.md"


def pages() -> list[Path]:
    return sorted(run_gpu_tests.MEASURED.glob("*.md"))
