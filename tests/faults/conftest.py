"""Machines with a faulty driver, and a daemon that needs none."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.builders.driver import DriverStory
from tests.builders.driver_faults import BOTH
from tests.daemon import RunningDaemon
from tests.fakenvml.control import FakeNvml
from tests.faults.faulty_machine import Machine
from tests.waiting import wait_until

PERIOD_S = 0.2
SERVE = ("--source", "simulated:healthy", "--period", str(PERIOD_S))


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[RunningDaemon]:
    with RunningDaemon(tmp_path, *SERVE) as running:
        yield running


def remove_folder_of(daemon: RunningDaemon) -> None:
    """Remove the runtime folder, and wait until the daemon has created it again."""
    shutil.rmtree(daemon.runtime_dir)
    wait_until(daemon.state_file.exists, 5.0)


@pytest.fixture
def machine(tmp_path: Path, fake_library: Path) -> Iterator[Machine]:
    made = Machine(tmp_path, fake_library.parent)
    yield made
    made.fake.close()


@pytest.fixture
def two_busy(fake_nvml_of_both_generations: FakeNvml) -> FakeNvml:
    """Two GPUs that are busy all the time, on either driver."""
    fake_nvml_of_both_generations.keep_busy(*BOTH)
    return fake_nvml_of_both_generations


@pytest.fixture
def begin() -> Iterator[Callable[[FakeNvml], DriverStory]]:
    """Starts stories of busy GPUs; at the end of the test none may have idle time."""
    reported: list[DriverStory] = []

    def begun(fake: FakeNvml) -> DriverStory:
        reported.append(DriverStory(fake))
        return reported[-1]

    yield begun
    for story in reported:
        story.close()
        for gpu in story.state.gpus:
            idle_ns = story.idle_ns(gpu.device.uuid)
            assert idle_ns == 0, "busy all the time, but counted as idle"


@pytest.fixture
def story(two_busy: FakeNvml, begin: Callable[[FakeNvml], DriverStory]) -> DriverStory:
    """Ten seconds of two GPUs that are busy all the time."""
    reported = begin(two_busy)
    reported.tick(10)
    return reported
