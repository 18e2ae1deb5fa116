"""NVML sources, and a ring reader, that are closed when the test ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.fields.table import NvmlOptions, nvml_options
from gpumon.sources.nvml.source import NvmlSource
from gpumon.sources.rings.phase_rings import PhaseRingReader
from tests.builders_driver import DriverStory
from tests.builders_mig import Tell
from tests.builders_nvml import Clock, Open
from tests.builders_ring import BOOT_ID
from tests.fakenvml.control import FakeNvml
from tests.patience import PATIENCE_S


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_source(fake_nvml: FakeNvml, clock: Clock) -> Iterator[Open]:
    opened: list[NvmlSource] = []

    def open_one() -> NvmlSource:
        opened.append(NvmlSource(clock, slow_patience_s=PATIENCE_S))
        return opened[-1]

    yield open_one
    for source in opened:
        source.close()


@pytest.fixture
def tell(fake_nvml: FakeNvml) -> Iterator[Tell]:
    """Begins a story on the present driver, with the default fields unless told otherwise."""
    told: list[DriverStory] = []

    def begin(options: NvmlOptions | None = None, *, period_s: float = 1.0) -> DriverStory:
        told.append(DriverStory(fake_nvml, options=options or nvml_options(), period_s=period_s))
        return told[-1]

    yield begin
    for story in told:
        story.close()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[PhaseRingReader]:
    """A reader of the rings below the test's own folder."""
    reader = PhaseRingReader([tmp_path], boot_id=BOOT_ID)
    yield reader
    reader.close()


@pytest.fixture
def library(fake_nvml: FakeNvml) -> NvmlLibrary:
    """NVML, opened on the fake."""
    return NvmlLibrary()


@pytest.fixture
def handle(library: NvmlLibrary) -> int:
    """Its first GPU."""
    handle = library.handle_by_index(0)
    assert handle is not None
    return handle
