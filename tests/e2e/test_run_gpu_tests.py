"""``make gpu``: which interpreter it takes, what it adds, and what it says where it cannot."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.fakenvml import codes
from tests.fakenvml.build import fake_env
from tests.fakenvml.control import FakeNvml
from tests.tools import run_gpu_tests

ROOT = run_gpu_tests.ROOT
SCRIPT = ROOT / "tests" / "tools" / "run_gpu_tests.py"
WITHOUT_PACKAGES = f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n'


def run(environ: dict[str, str], *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *words],
        env={**environ, **more}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def modules(folder: Path, *names: str) -> str:
    """A folder for ``$PYTHONPATH`` in which these can be found."""
    folder.mkdir()
    for name in names:
        (folder / f"{name}.py").touch()
    return str(folder)


@pytest.fixture
def with_gpus(fake_nvml: FakeNvml, fake_library: Path) -> dict[str, str]:
    return fake_env(fake_nvml.path, fake_library.parent)


class TestWithoutAGpu:
    @pytest.fixture(autouse=True)
    def no_driver(self) -> None:
        if run_gpu_tests.gpus_here():
            pytest.skip("there is a GPU on this machine")

    def test_it_says_so_in_one_sentence_and_exits_with_3(self) -> None:
        done = run({**os.environ})

        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.count("\n") == 1
        assert "no NVIDIA GPU answers on this machine" in done.stderr

    @pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
    def test_make_fails_with_that_sentence_and_makes_no_environment(self) -> None:
        # Without what a make above this one hands down, or it tells its folder on stdout.
        own = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
        done = subprocess.run(
            ["make", "gpu"], cwd=ROOT, env=own,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

        assert done.returncode == 2
        assert done.stdout == ""
        assert "no NVIDIA GPU answers on this machine" in done.stderr
        assert "Error 3" in done.stderr

    def test_a_driver_that_does_not_start_is_none(
        self, with_gpus: dict[str, str], fake_nvml: FakeNvml
    ) -> None:
        fake_nvml.fail("nvmlInitWithFlags", codes.DRIVER_NOT_LOADED)
        fake_nvml.fail("nvmlInit_v2", codes.DRIVER_NOT_LOADED)

        assert run(with_gpus).returncode == 3


class TestTheInterpreter:
    def test_that_has_everything_runs_the_tests_itself(
        self, tmp_path: Path, with_gpus: dict[str, str]
    ) -> None:
        stubs = modules(tmp_path / "stubs", "torch", "keras")

        done = run(with_gpus, "--collect-only", "-q", GPU_PYTHON=sys.executable, PYTHONPATH=stubs)

        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.startswith(f"make gpu: with {sys.executable}\n")
        for path in (ROOT / "tests" / "gpu").glob("test_*.py"):
            assert f"tests/gpu/{path.name}::" in done.stdout

    def test_without_torch_is_refused_with_what_to_do(
        self, tmp_path: Path, with_gpus: dict[str, str]
    ) -> None:
        bare = tmp_path / "python"
        bare.write_text(WITHOUT_PACKAGES)
        bare.chmod(0o755)

        done = run(with_gpus, GPU_PYTHON=str(bare))

        assert (done.returncode, done.stdout) == (1, "")
        assert f"there is no torch in {bare}" in done.stderr
        assert "GPU_PYTHON=/path/to/python3" in done.stderr

    @pytest.mark.parametrize("named", ["/no/such/python", "/bin/false"])
    def test_that_is_none_is_refused(self, with_gpus: dict[str, str], named: str) -> None:
        done = run(with_gpus, GPU_PYTHON=named)

        assert (done.returncode, done.stdout) == (1, "")
        assert named in done.stderr

    def test_is_else_that_of_the_torch_environment_else_the_one_at_hand(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("GPU_PYTHON", raising=False)
        monkeypatch.setattr(run_gpu_tests, "ROOT", tmp_path)
        assert run_gpu_tests.chosen_python() == sys.executable

        python = tmp_path / ".venv-torch" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.touch()

        assert run_gpu_tests.chosen_python() == str(python)


class TestTheCapture:
    def test_writes_what_one_board_does_and_why_the_rest_was_not_measured(
        self, tmp_path: Path, with_gpus: dict[str, str]
    ) -> None:
        stubs = modules(tmp_path / "stubs", "torch", "keras")
        words = ["--capture", "--limit", "12", "--into", str(tmp_path)]
        words += ["--recordings", str(tmp_path)]

        done = run(with_gpus, *words, GPU_PYTHON=sys.executable, PYTHONPATH=stubs)

        assert done.returncode == 0, done.stdout + done.stderr
        page = (tmp_path / "nvidia-h100-80gb-hbm3.md").read_text(encoding="utf-8")
        assert "driver 580.95.05" in page
        assert "| gpu_utilization | idle | 120 |" in page
        assert "## Does reading slow a training down\n\nNot measured: there is no load" in page
        assert (tmp_path / "nvidia-h100-80gb-hbm3.gpumon").stat().st_size > 100

    def test_leaves_no_page_of_the_tests_own_gpus_among_the_measured_ones(
        self, tmp_path: Path, with_gpus: dict[str, str]
    ) -> None:
        stubs = modules(tmp_path / "stubs", "torch", "keras")

        done = run(with_gpus, "--quick", GPU_PYTHON=sys.executable, PYTHONPATH=stubs)

        assert done.returncode == 3
        assert "the GPUs are the tests' own" in done.stderr

    def test_is_made_where_the_tests_cannot_be_run(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def refuse(python: str, frameworks: tuple[str, ...]) -> str:
            raise run_gpu_tests.CannotRunError(".venv-gpu could not be made")

        monkeypatch.setenv("PYTHONPATH", modules(tmp_path / "stubs", "torch"))
        monkeypatch.setenv("GPU_PYTHON", sys.executable)
        monkeypatch.setattr(run_gpu_tests, "with_all_needs", refuse)
        asked: list[list[str]] = []

        def capture(python: str, words: list[str], began_s: float) -> int:
            asked.append(words)
            return 0

        monkeypatch.setattr(run_gpu_tests, "_capture", capture)

        assert run_gpu_tests.run_single(["--into", "here"]) == 0
        assert asked == [["--into", "here"]]
        assert "its tests are left out" in capsys.readouterr().err
        with pytest.raises(run_gpu_tests.CannotRunError):
            run_gpu_tests.run_single(["-k", "settling"])


class TestWheels:
    def test_are_taken_from_the_folder_and_from_nowhere_else(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("WHEELS", raising=False)
        usual = run_gpu_tests.install_words()
        monkeypatch.setenv("WHEELS", str(tmp_path))

        assert usual == []
        assert run_gpu_tests.install_words() == ["--no-index", "--find-links", str(tmp_path)]


class TestWhatTheInterpreterLacks:
    def test_is_installed_into_an_environment_that_sees_its_packages(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PYTHONPATH", modules(tmp_path / "stubs", "torch"))
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
        monkeypatch.setattr(run_gpu_tests, "NEEDS", {"pytest": "pytest", "gpulack": "gpulack>=3"})
        monkeypatch.setattr(run_gpu_tests, "ENVIRONMENT", tmp_path / ".venv-gpu")
        _wheel(tmp_path, "gpulack", "3.1")

        python = run_gpu_tests.with_all_needs(sys.executable)

        assert python == str(tmp_path / ".venv-gpu" / "bin" / "python")
        assert run_gpu_tests.look_into(python)[0] == set()
        assert run_gpu_tests.look_into(sys.executable)[0] == {"gpulack"}

    def test_and_cannot_be_had_is_said(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PYTHONPATH", modules(tmp_path / "stubs", "torch"))
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setattr(run_gpu_tests, "NEEDS", {"gpulack": "gpulack"})
        monkeypatch.setattr(run_gpu_tests, "ENVIRONMENT", tmp_path / ".venv-gpu")

        with pytest.raises(run_gpu_tests.CannotRunError, match="could not be made"):
            run_gpu_tests.with_all_needs(sys.executable)


def _wheel(folder: Path, name: str, version: str) -> None:
    """The smallest package that pip installs."""
    about = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", "")
        wheel.writestr(
            f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        wheel.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{about}/RECORD", "")
