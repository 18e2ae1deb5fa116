"""The fake NVML and the command line, as fixtures."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

from tests import leftover_processes, retry_measured
from tests.command_line import Shell
from tests.fakenvml.build import NoCompilerError, build_fake
from tests.fakenvml.control import FakeNvml
from tests.fakenvml.generations import DRIVER_GENERATIONS, PRESENT_DRIVER, DriverGeneration
from tests.fakenvml.in_process import shown_to_this_process
from tests.needs import missing
from tests.shell_environment import forget_the_shell
from tests.training_processes import close_readers

# The slowest first, because the last files of a run should be short.
LONGEST_FILES = (
    "test_alerts_on_prometheus",
    "test_grafana_on_prometheus",
    "test_alerts_at_any_interval",
    "test_ring_faults",
    "test_doctor_on_a_shared_machine",
    "test_dstat",
    "test_score",
    "test_serve",
    "test_page",
    "test_runs_without_progress",
    "test_rings_of_other_users",
    "test_runtime_folder",
    "test_every_answer_of_the_driver",
    "test_packaging",
    "test_tools",
    "test_gpu_source",
    "test_daemon_and_driver",
    "test_hours_on_a_fake_clock",
    "test_hostile_files",
    "test_listening",
    "test_saving",
    "test_one_truth",
    "test_equals_one_device",
    "test_examples",
    "test_phase_tagger_harmless",
    "test_keras_under_serve",
    "test_phases_of_keras",
    "test_loops_under_serve",
)

# No test may fail because the machine is busy.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

# nohup makes all children ignore SIGHUP.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_configure(config: pytest.Config) -> None:
    """Ignore the shell's variables, and report what tests leave behind."""
    forget_the_shell()
    config.pluginmanager.register(leftover_processes)
    config.pluginmanager.register(retry_measured)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of collected tests live to the end, so collecting garbage is useless."""
    gc.disable()
    collected = yield
    gc.collect()
    gc.freeze()
    gc.enable()
    return collected


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In parallel, the slowest files come first; tests marked ``alone`` need a run of their own."""
    if hasattr(config, "workerinput"):
        rank = {name: number for number, name in enumerate(LONGEST_FILES)}
        items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))
        alone = [item for item in items if item.get_closest_marker("alone")]
        config.hook.pytest_deselected(items=alone)
        items[:] = [item for item in items if item not in alone]


@pytest.fixture(autouse=True)
def readers_of_rings_are_closed() -> Iterator[None]:
    yield
    close_readers()


@pytest.fixture
def gpumon(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Run a command, such as ``gpumon("report", "--json")``."""
    return Shell(capsys, monkeypatch)


@pytest.fixture(scope="session")
def library_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[DriverGeneration], Path]:
    """The fake libnvidia-ml.so.1 of a driver, compiled once."""
    built: dict[str, Path] = {}

    def library(driver: DriverGeneration) -> Path:
        if driver.name not in built:
            folder = tmp_path_factory.mktemp(driver.name)
            try:
                built[driver.name] = build_fake(folder, without=driver.lacks, soname=driver.soname)
            except NoCompilerError as error:
                missing(str(error))
                raise
        return built[driver.name]

    return library


@pytest.fixture(scope="session")
def fake_library(library_of: Callable[[DriverGeneration], Path]) -> Path:
    """The fake libnvidia-ml.so.1 of the present driver."""
    return library_of(PRESENT_DRIVER)


@pytest.fixture
def fake_nvml(fake_library: Path, tmp_path: Path) -> Iterator[FakeNvml]:
    """Two idle fake GPUs that NVML shows to this process."""
    with shown_to_this_process(fake_library, tmp_path / "gpus.control", PRESENT_DRIVER) as fake:
        yield fake


@pytest.fixture(params=DRIVER_GENERATIONS, ids=str)
def driver_generation(request: pytest.FixtureRequest) -> DriverGeneration:
    """The present driver, then an old one. ``library_of(driver)`` is its library."""
    driver: DriverGeneration = request.param
    return driver


@pytest.fixture
def fake_nvml_of_both_generations(
    library_of: Callable[[DriverGeneration], Path],
    driver_generation: DriverGeneration,
    tmp_path: Path,
) -> Iterator[FakeNvml]:
    """As ``fake_nvml``, with the present driver and then with an old one."""
    library = library_of(driver_generation)
    with shown_to_this_process(library, tmp_path / "gpus.control", driver_generation) as fake:
        yield fake
