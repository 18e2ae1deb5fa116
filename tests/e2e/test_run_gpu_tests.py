"""``make gpu`` and ``make gpu-multi``: what is run with which interpreter, and what they leave."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest

from tests.fakenvml import codes
from tests.fakenvml.build import fake_env
from tests.fakenvml.control import FakeNvml
from tests.programs import ROOT, ran, ran_python
from tests.tools import measured_page, run_gpu_tests

SCRIPT = ROOT / "tests" / "tools" / "run_gpu_tests.py"
BLIND_TORCH = """
class cuda:
    is_available = staticmethod(lambda: False)
    device_count = staticmethod(lambda: 0)
"""
NEEDS_THREE = "needs three GPUs, and TensorFlow sees 2"
A_CHECK = f"""
import pytest

pytestmark = pytest.mark.gpu_multi

class TestBoards:
    def test_are_quick(self, record_property):
        record_property("figure", "speed of two boards | 1.93 times one | at least 1.9")

    def test_are_three(self):
        pytest.skip("{NEEDS_THREE}")
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]
MULTI = ("--multi",)
both_targets = pytest.mark.parametrize(
    ("words", "target"), [((), "gpu"), (MULTI, "gpu-multi")], ids=["gpu", "gpu-multi"]
)


@pytest.fixture
def run(fake_nvml: FakeNvml, fake_library: Path) -> Run:
    """Runs it where the driver has two boards; this is the interpreter unless another is named."""

    def on_two_boards(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        boards = fake_env(fake_nvml.path, fake_library.parent)
        environ = {"GPU_PYTHON": sys.executable, **boards, **environ}
        return ran_python(SCRIPT, *words, environ=environ, timeout_s=120)

    return on_two_boards


@pytest.fixture
def blind_torch(tmp_path: Path) -> str:
    """A folder for ``$PYTHONPATH`` with a torch that sees no GPU, a Keras, and no TensorFlow."""
    folder = tmp_path / "stubs"
    folder.mkdir()
    (folder / "torch.py").write_text(BLIND_TORCH)
    (folder / "keras.py").touch()
    return str(folder)


@pytest.fixture
def with_blind_torch(blind_torch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process as ``make gpu`` finds it."""
    monkeypatch.setenv("PYTHONPATH", blind_torch)
    monkeypatch.setenv("GPU_PYTHON", sys.executable)
    for name in ("KERAS_BACKEND", "TF_FORCE_GPU_ALLOW_GROWTH", "XLA_PYTHON_CLIENT_PREALLOCATE"):
        monkeypatch.setenv(name, "put back after the test")


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """An interpreter without any package."""
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    return str(bare)


def pages() -> list[Path]:
    return sorted(run_gpu_tests.MEASURED.glob("*.md"))


class TestWithoutAGpu:
    @pytest.fixture(autouse=True)
    def no_driver(self) -> None:
        if run_gpu_tests.gpus_here():
            pytest.skip("there is a GPU on this machine")

    @pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
    @both_targets
    def test_make_fails_with_a_sentence_and_makes_neither_environment_nor_page(
        self, words: tuple[str, ...], target: str
    ) -> None:
        # Without what a make above this one hands down, or it tells its folder on stdout.
        own = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
        before = pages()
        done = ran("env", "-i", *(f"{name}={value}" for name, value in own.items()), "make", target)

        assert (done.returncode, done.stdout) == (2, "")
        said, made = done.stderr.splitlines()
        assert said == ran_python(SCRIPT, *words).stderr.rstrip("\n")
        assert said.startswith(f"make {target}: no NVIDIA GPU ")
        assert "Error 3" in made  # the code of the script
        assert pages() == before

    def test_a_driver_that_does_not_start_is_none(self, run: Run, fake_nvml: FakeNvml) -> None:
        fake_nvml.fail("nvmlInitWithFlags", codes.DRIVER_NOT_LOADED)
        fake_nvml.fail("nvmlInit_v2", codes.DRIVER_NOT_LOADED)

        assert run().returncode == 3

    def test_one_is_too_few_for_several(self, tmp_path: Path, fake_library: Path) -> None:
        with FakeNvml(tmp_path / "one.control", gpus=1) as fake:
            environ = fake_env(fake.path, fake_library.parent)
            done = ran_python(SCRIPT, *MULTI, environ=environ)

        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
        assert "needs two" in done.stderr


class TestTheInterpreter:
    @both_targets
    def test_that_has_everything_runs_all_its_tests_itself(
        self, run: Run, blind_torch: str, words: tuple[str, ...], target: str
    ) -> None:
        done = run(*words, "--collect-only", "-q", PYTHONPATH=blind_torch)

        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.startswith(f"make {target}: with {sys.executable}\n")
        wanted = list((ROOT / "tests" / target.replace("-", "_")).glob("test_*.py"))
        wanted += [ROOT / f"tests/gpu/test_{name}_on_boards.py" for name in ("ddp", "prefetch")]
        for path in wanted:
            assert f"{path.relative_to(ROOT)}::" in done.stdout

    @both_targets
    def test_without_a_framework_is_refused_with_what_to_do(
        self, run: Run, bare_python: str, words: tuple[str, ...], target: str
    ) -> None:
        done = run(*words, GPU_PYTHON=bare_python)

        assert (done.returncode, done.stdout) == (1, "")
        assert f"torch in {bare_python}" in done.stderr
        assert ("tensorflow" in done.stderr) is (words == MULTI)
        assert f"make {target} GPU_PYTHON=/path/to/python3" in done.stderr

    @pytest.mark.parametrize("named", ["/no/such/python", "/bin/false"])
    def test_that_is_none_is_refused(self, run: Run, named: str) -> None:
        done = run(GPU_PYTHON=named)

        assert (done.returncode, done.stdout) == (1, "")
        assert named in done.stderr

    def test_is_the_one_that_is_named_else_that_of_our_environments_else_the_one_at_hand(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GPU_PYTHON", f"{sys.executable} /bin/sh")
        assert run_gpu_tests.chosen_pythons("torch") == [sys.executable, "/bin/sh"]

        monkeypatch.delenv("GPU_PYTHON")
        monkeypatch.setattr(run_gpu_tests, "ROOT", tmp_path)
        assert run_gpu_tests.chosen_pythons("torch") == [sys.executable]

        made = [tmp_path / f".venv-{name}/bin/python" for name in ("torch", "tensorflow")]
        for python in made:
            python.parent.mkdir(parents=True)
            python.touch()
        chosen = run_gpu_tests.chosen_pythons("torch", "tensorflow")
        assert chosen == [str(python) for python in made]
        assert run_gpu_tests.chosen_pythons("torch") == chosen[:1]


class TestTheCapture:
    def test_writes_what_one_board_does_and_why_the_rest_was_not_measured(
        self, run: Run, tmp_path: Path, blind_torch: str
    ) -> None:
        words = ("--capture", "--limit", "12", "--into", str(tmp_path))
        done = run(*words, "--recordings", str(tmp_path), PYTHONPATH=blind_torch)

        assert done.returncode == 0, done.stdout + done.stderr
        page = (tmp_path / "nvidia-h100-80gb-hbm3.md").read_text(encoding="utf-8")
        assert "driver 580.95.05" in page
        assert "| gpu_utilization | idle | 120 |" in page
        assert page.partition("a training down\n\n")[2].startswith("Not measured: ")
        assert (tmp_path / "nvidia-h100-80gb-hbm3.gpumon").stat().st_size > 100

    def test_leaves_no_page_of_the_tests_own_gpus_among_the_measured_ones(
        self, run: Run, blind_torch: str
    ) -> None:
        done = run("--quick", PYTHONPATH=blind_torch)

        assert done.returncode == 3
        assert "tests' own" in done.stderr

    @pytest.mark.usefixtures("with_blind_torch")
    def test_is_made_where_the_tests_cannot_be_run(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def refuse(python: str, frameworks: tuple[str, ...]) -> str:
            raise run_gpu_tests.CannotRunError(".venv-gpu could not be made")

        def capture(python: str, words: list[str], began_s: float) -> int:
            asked.append(words)
            return 0

        asked: list[list[str]] = []
        monkeypatch.setattr(run_gpu_tests, "with_all_needs", refuse)
        monkeypatch.setattr(run_gpu_tests, "_capture", capture)

        assert run_gpu_tests.run_single(["--into", "here"]) == 0
        assert asked == [["--into", "here"]]
        assert "left out" in capsys.readouterr().err
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


@pytest.mark.usefixtures("with_blind_torch")
class TestWhatTheInterpreterLacks:
    @pytest.fixture(autouse=True)
    def lacks(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """One package, which pip finds in the test's folder if anywhere."""
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
        monkeypatch.setattr(run_gpu_tests, "NEEDS", {"pytest": "pytest", "gpulack": "gpulack>=3"})
        monkeypatch.setattr(run_gpu_tests, "ENVIRONMENT", tmp_path / ".venv-gpu")

    def test_is_installed_into_an_environment_that_sees_its_packages_once_it_can_be_had(
        self, tmp_path: Path
    ) -> None:
        with pytest.raises(run_gpu_tests.CannotRunError, match=r"\.venv-gpu"):
            run_gpu_tests.with_all_needs(sys.executable)

        about = "gpulack-3.1.dist-info"
        with zipfile.ZipFile(tmp_path / "gpulack-3.1-py3-none-any.whl", "w") as wheel:
            wheel.writestr("gpulack.py", "")
            metadata = "Metadata-Version: 2.1\nName: gpulack\nVersion: 3.1\n"
            wheel.writestr(f"{about}/METADATA", metadata)
            kind = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            wheel.writestr(f"{about}/WHEEL", kind)
            wheel.writestr(f"{about}/RECORD", "")

        python = run_gpu_tests.with_all_needs(sys.executable)

        assert python == str(tmp_path / ".venv-gpu" / "bin" / "python")
        assert run_gpu_tests.look_into(python)[0] == set()
        assert run_gpu_tests.look_into(sys.executable)[0] == {"gpulack"}


class TestThePageOfSeveralBoards:
    @pytest.fixture
    def checks(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        fake_nvml: FakeNvml,
        with_blind_torch: None,
    ) -> Path:
        """One small file of checks, which is what is run, on two fake boards."""
        checks = tmp_path / "test_boards.py"
        checks.write_text(A_CHECK)
        monkeypatch.setattr(run_gpu_tests, "MULTI_TESTS", (str(checks),))
        monkeypatch.setattr(run_gpu_tests, "MEASURED", tmp_path / "measured")
        monkeypatch.setattr(run_gpu_tests, "NEEDS", {"pytest": "pytest"})
        return checks

    def page(self, checks: Path) -> str:
        (page,) = (checks.parent / "measured").iterdir()
        assert page.name == "2-x-nvidia-h100-80gb-hbm3-multi.md"
        return page.read_text()

    def test_tells_boards_driver_date_figures_and_what_was_skipped(self, checks: Path) -> None:
        assert run_gpu_tests.run_multi([]) == 0

        title, _, run, _, *table, _, python, _, counted, _, skipped = self.page(checks).splitlines()
        assert title == "# Measured on 2 x NVIDIA H100 80GB HBM3"
        today = datetime.now(timezone.utc).date().isoformat()
        assert run == f"`make gpu-multi` on {today}, driver 580.95.05."
        assert table[2:] == ["| speed of two boards | 1.93 times one | at least 1.9 |"]
        assert python.startswith("## Python 3")
        assert counted == "1 passed, 0 failed, 1 skipped"
        assert skipped == f"- skipped: TestBoards.test_are_three ({NEEDS_THREE})"

    def test_tells_of_a_target_that_was_missed_and_the_run_fails(self, checks: Path) -> None:
        checks.write_text(A_CHECK.replace("pytest.skip(", "pytest.fail("))

        assert run_gpu_tests.run_multi([]) == 1

        assert "1 passed, 1 failed, 0 skipped" in self.page(checks)
        assert "failed: TestBoards.test_are_three" in self.page(checks)

    def test_says_so_where_only_a_part_was_run(self, checks: Path) -> None:
        run_gpu_tests.run_multi(["-k", "quick"])

        assert "`make gpu-multi ARGS='-k quick'`" in self.page(checks)

    def test_is_not_written_where_every_test_is_skipped_and_that_is_said(
        self, run: Run, blind_torch: str
    ) -> None:
        before = pages()

        done = run(*MULTI, PYTHONPATH=blind_torch)

        assert done.returncode == 1, done.stdout + done.stderr
        assert done.stderr.startswith("make gpu-multi: every test was skipped")
        for reason in ("tensorflow not installed", "torch sees no GPU"):
            assert reason in done.stdout
        assert pages() == before

    def test_is_named_after_boards_that_differ(self) -> None:
        machine = measured_page.Machine(("NVIDIA L4", "NVIDIA T4", "NVIDIA L4"), "580.95.05")

        assert str(machine) == "2 x NVIDIA L4, 1 x NVIDIA T4"
        assert machine.page_name == "2-x-nvidia-l4-1-x-nvidia-t4-multi.md"
