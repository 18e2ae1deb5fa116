"""NVML sources, and a ring reader, that are closed when the test ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.fields.table import SLOW_PERIOD_S, nvml_options
from gpumon.sources.nvml.source import NvmlSource
from gpumon.sources.rings.phase_rings import PhaseRingReader
from gpumon.sources.system_clock import SystemClock
from tests.builders_driver import DriverStory, Tell
from tests.builders_nvml import Open, Refusals
from tests.builders_ring import BOOT_ID
from tests.fakenvml.control import FakeNvml
from tests.patience import PATIENCE_S


@pytest.fixture
def fake(fake_nvml: FakeNvml) -> FakeNvml:
    """Two fake GPUs, idle, that NVML shows to this very process."""
    return fake_nvml


@pytest.fixture
def tell(fake: FakeNvml) -> Iterator[Tell]:
    """Begins a story on them, with the default fields unless told otherwise."""
    told: list[DriverStory] = []

    def begin(
        *, on: Sequence[str] = (), off: Sequence[str] = (), period_s: float = 1.0
    ) -> DriverStory:
        options = nvml_options(on=on, off=off)
        told.append(DriverStory(fake, options=options, period_s=period_s))
        return told[-1]

    yield begin
    for story in told:
        story.close()


@pytest.fixture
def open_source(fake: FakeNvml) -> Iterator[Open]:
    """Opens sources that go by the machine's clock, for what takes the driver time."""
    opened: list[NvmlSource] = []

    def open_one(*, slow_period_s: float = SLOW_PERIOD_S) -> NvmlSource:
        source = NvmlSource(SystemClock(), slow_period_s=slow_period_s, slow_patience_s=PATIENCE_S)
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
def library(fake: FakeNvml) -> NvmlLibrary:
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
