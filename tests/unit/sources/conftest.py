"""NVML sources that are closed when the test ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpumon.sources.nvml import NvmlSource
from tests.builders_nvml import Clock, Open
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
