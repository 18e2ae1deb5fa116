"""NVML sources, and a ring reader, that are closed when the test ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.fields.table import SLOW_PERIOD_S, ReadTimes
from gpumon.sources.nvml.source import NvmlSource
from gpumon.sources.ring_reader.phase_rings import PhaseRingReader
from gpumon.sources.system_clock import SystemClock
from tests.builders.driver import Fake
from tests.builders.nvml import Open, Refusals
from tests.builders.ring import BOOT_ID
from tests.fakenvml.generations import PRESENT_DRIVER
from tests.fakenvml.in_process import shown_to_this_process
from tests.waiting import PATIENCE_S


@pytest.fixture
def fake(fake_library: Path, tmp_path: Path) -> Iterator[Fake]:
    """Two fake GPUs, idle, that NVML shows to this very process."""
    where = fake_library, tmp_path / "gpus.control", PRESENT_DRIVER
    with shown_to_this_process(*where, kind=Fake) as fake:
        assert isinstance(fake, Fake)
        yield fake
        fake.end_stories()


@pytest.fixture
def open_source(fake: Fake) -> Iterator[Open]:
    """Opens sources that go by the machine's clock, for what takes the driver time."""
    opened: list[NvmlSource] = []

    def open_one(*, slow_period_s: float = SLOW_PERIOD_S) -> NvmlSource:
        source = NvmlSource(
            SystemClock(), times=ReadTimes(slow_s=slow_period_s), slow_patience_s=PATIENCE_S
        )
        opened.append(source)
        return source

    yield open_one
    for source in opened:
        source.close()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[PhaseRingReader]:
    """A reader of the rings below the test's own folder."""
    reader = PhaseRingReader([tmp_path], boot_id=BOOT_ID)
    yield reader
    reader.close()


@pytest.fixture
def library(fake: Fake) -> NvmlLibrary:
    """NVML, opened on the fake."""
    return NvmlLibrary()


@pytest.fixture
def handle(library: NvmlLibrary) -> int:
    """Its first GPU."""
    handle = library.handle_by_index(0)
    assert handle is not None
    return handle


@pytest.fixture
def refused() -> Refusals:
    """Counts what is refused."""
    return Refusals()
