"""The distributions: built from the checkout, installed into a new environment, and started."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import BytesParser
from importlib.metadata import distribution
from pathlib import Path

import pytest

from gpumon import __version__
from tests.programs import ran

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "dstat_plugins" / "dstat_gpu.py"
PLACES = [
    f"share/{place}_{option}.py"
    for place in ("dstat/dstat", "dool/dool", "dool/plugins/dool")
    for option in ("gpu", "gpu_stall")
]
STEM = f"gpumon_starvation-{__version__}"

DEMO_STEPS = 250
"""Enough for a verdict on the run with prefetch."""

pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path) -> str:
    done = ran(*command, cwd=cwd, timeout_s=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the files that git knows, so that no build changes the checkout."""
    copy = tmp_path_factory.mktemp("checkout")
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in listed.splitlines():
        source, target = ROOT / name, copy / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_symlink():
                target.symlink_to(source.readlink())
            else:
                target.write_bytes(source.read_bytes())
    return copy


@pytest.fixture(scope="module")
def built(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both distributions, the wheel made from the source distribution."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ".", cwd=checkout)
    return out


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return built / f"{STEM}-py3-none-any.whl"


@pytest.fixture(scope="module")
def inside(wheel: Path) -> dict[str, bytes]:
    """What the wheel holds, by name."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def metadata(inside: dict[str, bytes]) -> Message:
    return metadata_of(inside[f"{STEM}.dist-info/METADATA"])


def metadata_of(text: bytes) -> Message:
    return BytesParser().parsebytes(text)


class TestTheWheel:
    def test_carries_the_packages_their_types_the_page_and_nothing_else(
        self, inside: dict[str, bytes]
    ) -> None:
        names = set(inside)

        assert {"gpumon/py.typed", "trainer_hooks/py.typed", "gpumon/cli/main.py"} <= names
        page = {path.name for path in (ROOT / "gpumon" / "outlets" / "web").glob("*.*")}
        assert {f"gpumon/outlets/web/{name}" for name in page if not name.endswith(".pyc")} <= names
        data, info = f"{STEM}.data", f"{STEM}.dist-info"
        packages = {"gpumon", "trainer_hooks", "ratio_training_utils", data, info}
        assert {name.split("/")[0] for name in names} == packages

    def test_puts_the_plugin_where_dstat_and_dool_look(self, inside: dict[str, bytes]) -> None:
        lie = [inside[f"{STEM}.data/data/{place}"] for place in PLACES]

        assert lie == [PLUGIN.read_bytes()] * len(PLACES)

    def test_demands_three_small_libraries_and_no_framework(self, metadata: Message) -> None:
        demanded = metadata.get_all("Requires-Dist") or []
        always = {line.split(">")[0] for line in demanded if "extra ==" not in line}
        assert always == {"nvidia-ml-py", "psutil", "rich"}


class TestTheSourceDistribution:
    def test_carries_the_licence_and_what_builds_it(self, built: Path) -> None:
        with tarfile.open(built / f"{STEM}.tar.gz") as archive:
            names = {name.removeprefix(f"{STEM}/") for name in archive.getnames()}

        assert {"LICENSE", "README.md", "pyproject.toml", "setup.py"} <= names
        plugins = {f"dstat_plugins/{path.name}" for path in PLUGIN.parent.glob("*.py")}
        assert len(plugins) == 4
        assert plugins <= names


def libraries_of(*names: str) -> Iterator[Path]:
    """The top-level files of these distributions and of their requirements."""
    for name in names:
        found = distribution(name)
        tops = {file.parts[0] for file in found.files or () if file.parts[0] != ".."}
        yield from (Path(str(found.locate_file(top))) for top in sorted(tops))
        demanded = [line for line in found.requires or () if ";" not in line]
        yield from libraries_of(*(re.split(r"[^\w.-]", line)[0] for line in demanded))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel; its requirements are links to this environment."""
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=ROOT)
    python = folder / "bin" / "python"
    libraries = run(python, "-c", "import site; print(site.getsitepackages()[0])", cwd=ROOT)
    for lent in libraries_of("pip", "rich", "psutil", "nvidia-ml-py"):
        target = Path(libraries.strip()) / lent.name
        if not target.exists():
            target.symlink_to(lent)
    run(python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", wheel, cwd=ROOT)
    return folder


class Newcomer:
    """A user with this environment on PATH, a home folder, and nothing else.

    Attributes:
        home: The folder.
    """

    def __init__(self, environment: Path, home: Path) -> None:
        self.home = home
        self._environ = {
            "PATH": str(environment / "bin"),
            "HOME": str(home),
            "GPUMON_RUNTIME_DIR": str(home / "run"),
        }

    def types(self, *words: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(word) for word in words],
            cwd=self.home,
            env={**self._environ, **environ},
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )


@pytest.fixture
def newcomer(environment: Path, tmp_path: Path) -> Newcomer:
    return Newcomer(environment, tmp_path)


class TestAMachineWithoutAGpu:
    @pytest.fixture(autouse=True)
    def no_driver(self, newcomer: Newcomer) -> None:
        opened = newcomer.types("python", "-c", "import ctypes; ctypes.CDLL('libnvidia-ml.so.1')")
        if opened.returncode == 0:
            pytest.skip("there is an NVIDIA driver here")

    @pytest.mark.parametrize("words", [["serve"], ["record", "night.gpumon"]])
    def test_ends_what_needs_one_with_what_does_not(
        self, newcomer: Newcomer, words: list[str]
    ) -> None:
        done = newcomer.types("gpumon", *words, GPUMON_LISTEN="127.0.0.1:0")

        assert done.returncode == 3
        assert "NVIDIA driver" in done.stderr
        assert "`gpumon demo`" in done.stderr


class TestAFreshEnvironment:
    def test_has_the_plugin_where_the_hosts_look_below_its_prefix(self, environment: Path) -> None:
        installed = [environment / place for place in PLACES]

        assert not any(path.is_symlink() for path in installed)
        assert [path.read_bytes() for path in installed] == [PLUGIN.read_bytes()] * len(PLACES)

    def test_puts_the_plugin_in_place(self, newcomer: Newcomer) -> None:
        done = newcomer.types("gpumon", "dstat", "install")

        assert done.returncode == 0
        for name in ("dstat_gpu.py", "dstat_gpu_stall.py"):
            copied = (newcomer.home / ".dstat" / name).read_text(encoding="ascii")
            assert copied.endswith(PLUGIN.read_text(encoding="ascii").split("\n", 1)[1])

    @pytest.mark.alone
    def test_has_a_demo_of_a_starved_run_and_the_same_run_with_prefetch(
        self, newcomer: Newcomer
    ) -> None:
        done = newcomer.types("gpumon", "demo", "--steps", f"{DEMO_STEPS}")

        assert done.returncode == 0, done.stderr
        verdicts = re.findall(r"^Verdict: (.*)$", done.stdout, re.MULTILINE)
        assert verdicts[0].startswith("Starved (high loss)")
        assert verdicts[1].startswith("Healthy")
        words = " ".join(done.stdout.split())
        reported = re.findall(r"GPU busy ([\d.]+) s by the compute's own clock, ([\d.]+) s", words)
        assert len(reported) == 2
        for truly_s, seen_s in reported:
            assert float(seen_s) == pytest.approx(float(truly_s), rel=0.05)
        before_s, after_s = map(float, re.findall(rf"{DEMO_STEPS} steps in ([\d.]+) s; GPU", words))
        assert before_s - after_s > 5  # of the 12 s that the store takes
        assert newcomer.types("python", "-c", "import numpy").returncode != 0

    def test_leaves_nothing_behind_when_it_goes(self, environment: Path, tmp_path: Path) -> None:
        python = environment / "bin" / "python"
        run(python, "-m", "pip", "uninstall", "-q", "-y", "gpumon-starvation", cwd=tmp_path)

        assert not (environment / "bin" / "gpumon").exists()
        assert not (environment / "share" / "dstat" / "dstat_gpu.py").exists()
