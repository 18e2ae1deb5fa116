"""NVML sources, and a ring reader, that are closed when the test ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.sources.nvml import NvmlSource
from gpumon.sources.phase_rings import PhaseRingReader
from tests.builders_nvml import Clock, Open
from tests.builders_ring import BOOT_ID
from tests.fakenvml.control import FakeNvml


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_source(fake_nvml: FakeNvml, clock: Clock) -> Iterator[Open]:
    opened: list[NvmlSource] = []

    def open_one() -> NvmlSource:
        opened.append(NvmlSource(clock))
        return opened[-1]

    yield open_one
    for source in opened:
        source.close()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[PhaseRingReader]:
    """A reader of the rings below the test's own folder."""
    reader = PhaseRingReader([tmp_path], boot_id=BOOT_ID)
    yield reader
    reader.close()
