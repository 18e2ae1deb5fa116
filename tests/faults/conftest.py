"""The machine whose driver misbehaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.builders_driver import DriverStory
from tests.fakenvml.control import FakeNvml
from tests.fakenvml.generations import DriverGeneration
from tests.faults.faulty_machine import Machine
from tests.faults.two_busy_gpus import FIRST, SECOND


@pytest.fixture
def machine_of_both_generations(
    tmp_path: Path,
    library_of: Callable[[DriverGeneration], Path],
    driver_generation: DriverGeneration,
) -> Iterator[Machine]:
    """As ``machine``, with the present driver and then with an old one."""
    made = Machine(tmp_path, library_of(driver_generation).parent, driver_generation)
    yield made
    made.fake.close()


@pytest.fixture
def machine(tmp_path: Path, fake_library: Path) -> Iterator[Machine]:
    made = Machine(tmp_path, fake_library.parent)
    yield made
    made.fake.close()


@pytest.fixture
def two_busy(fake_nvml_of_both_generations: FakeNvml) -> FakeNvml:
    """Two GPUs that are busy all the time, on either driver."""
    for slot in (FIRST, SECOND):
        fake_nvml_of_both_generations.wave(slot, period_s=1.0, busy_ratio=1.0)
    return fake_nvml_of_both_generations


@pytest.fixture
def story(two_busy: FakeNvml) -> Iterator[DriverStory]:
    """Ten seconds of them; at the end of the test neither may ever have been idle."""
    told = DriverStory(two_busy)
    told.tick(10)
    yield told
    for slot in (FIRST, SECOND):
        assert told.idle_ns(two_busy.uuid(slot)) == 0, "busy all the time, and said to be idle"
    told.close()
