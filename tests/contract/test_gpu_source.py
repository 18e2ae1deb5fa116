"""Tests of the contract of every GPU source.

For a new source, add to ``SOURCES`` a function that opens it on GPUs that are busy part of the
time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from gpumon.core.clock import Clock
from gpumon.core.sample import BusySample, Frame
from gpumon.sources.follow import FollowSource
from gpumon.sources.gpu_source import GpuSource
from gpumon.sources.nvml.source import NvmlSource
from gpumon.sources.simulated import SimulatedSource
from gpumon.sources.system_clock import SystemClock
from trainer_hooks.examples.busy_spans import BusySpans

Opener = Callable[[pytest.FixtureRequest, Path], GpuSource]


def on_the_fake_driver(request: pytest.FixtureRequest, _folder: Path) -> GpuSource:
    fake = request.getfixturevalue("fake_nvml")
    for slot in (0, 1):
        fake.wave(slot, period_s=0.1, busy_ratio=0.7, window_s=0.1 / 6)
    return NvmlSource(SystemClock())


def on_a_fake_driver_whose_rings_run_dry(
    request: pytest.FixtureRequest, _folder: Path
) -> GpuSource:
    fake = request.getfixturevalue("fake_nvml")
    for slot in (0, 1):
        fake.wave(slot, period_s=0.8, busy_ratio=0.4, window_s=0.03, dry_when_idle=True)
    return NvmlSource(SystemClock())


def by_a_script(_request: pytest.FixtureRequest, _folder: Path) -> GpuSource:
    return SimulatedSource("input-bound", SystemClock())


def by_a_file(request: pytest.FixtureRequest, folder: Path) -> GpuSource:
    path, over = folder / "spans.jsonl", threading.Event()
    path.touch()

    def compute() -> None:
        with BusySpans(path) as spans:
            while not over.wait(0.04):
                spans.measure(lambda: over.wait(0.06))

    def stop() -> None:
        over.set()
        computing.join()

    computing = threading.Thread(target=compute)
    computing.start()
    request.addfinalizer(stop)
    return FollowSource(path, SystemClock())


SOURCES: dict[str, Opener] = {
    "nvml": on_the_fake_driver,
    "nvml-dry": on_a_fake_driver_whose_rings_run_dry,
    "simulated": by_a_script,
    "follow": by_a_file,
}


@pytest.fixture(params=sorted(SOURCES))
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GpuSource]:
    opened = SOURCES[request.param](request, tmp_path)
    yield opened
    opened.close()


class Readings:
    """Nine reads of a source, 0.15 s apart."""

    def __init__(self, source: GpuSource) -> None:
        self.from_ns = time.monotonic_ns()
        self.frames: list[Frame] = []
        self.read_ns: list[int] = []
        for pause_s in (0.0, *[0.15] * 8):
            time.sleep(pause_s)
            self.frames.append(source.read())
            self.read_ns.append(time.monotonic_ns())
        by_gpu: dict[str, list[BusySample]] = {}
        for frame in self.frames:
            for gpu in frame.gpus:
                by_gpu.setdefault(gpu.device.uuid, []).extend(gpu.busy)
        self.busy = list(by_gpu.values())


_READINGS: dict[str, Readings] = {}


@pytest.fixture
def readings(request: pytest.FixtureRequest, source: GpuSource) -> Readings:
    """Each source is read once, for all tests."""
    kind = request.node.callspec.params["source"]
    if kind not in _READINGS:
        _READINGS[kind] = Readings(source)
    return _READINGS[kind]


class TestASource:
    def test_has_no_sample_from_before_its_first_read(self, readings: Readings) -> None:
        # It may start when it is opened, but not earlier.
        assert all(
            sample.start_ns > readings.from_ns - 500_000_000
            for row in readings.busy
            for sample in row
        )
        assert any(readings.busy)

    def test_covers_only_the_past(self, readings: Readings) -> None:
        for frame, read_ns in zip(readings.frames, readings.read_ns, strict=True):
            assert frame.taken_at_ns <= read_ns
            ends_ns = [sample.end_ns for gpu in frame.gpus for sample in gpu.busy]
            assert all(end_ns <= frame.taken_at_ns for end_ns in ends_ns)

    def test_never_covers_the_same_time_twice(self, readings: Readings) -> None:
        assert any(len(row) > 1 for row in readings.busy)
        for row in readings.busy:
            assert all(early.end_ns <= late.start_ns for early, late in pairwise(row))
            assert all(sample.start_ns < sample.end_ns for sample in row)

    def test_has_valid_ratios(self, readings: Readings) -> None:
        ratios = [sample.busy_ratio for row in readings.busy for sample in row]
        latest = [gpu.utilization_ratio for gpu in readings.frames[-1].gpus]
        assert any(ratios)
        assert [frame.rejected for frame in readings.frames] == [0] * len(readings.frames)
        assert all(0.0 <= ratio <= 1.0 for ratio in ratios)
        assert all(ratio is None or 0.0 <= ratio <= 1.0 for ratio in latest)

    def test_has_the_same_gpus_in_index_order(self, readings: Readings) -> None:
        (uuids,) = {tuple(gpu.device.uuid for gpu in frame.gpus) for frame in readings.frames[1:]}
        assert len(set(uuids)) == len(uuids) >= 1
        indices = [gpu.device.index for gpu in readings.frames[-1].gpus]
        assert indices == sorted(indices)

    def test_has_counters_that_never_fall(self, readings: Readings) -> None:
        for early, late in pairwise(readings.frames):
            spent = dict(late.call_seconds)
            assert all(spent[name] >= before for name, before in early.call_seconds)
            for was, now in zip(early.gpus, late.gpus, strict=False):
                assert (now.energy_joules or 0.0) >= (was.energy_joules or 0.0)

    def test_can_be_closed_twice(self, source: GpuSource) -> None:
        readings = source.read()

        source.close()
        source.close()

        assert readings.taken_at_ns > 0


def test_the_system_clock_is_monotonic_time() -> None:
    clock: Clock = SystemClock()

    before_ns = time.monotonic_ns()
    assert before_ns <= clock.monotonic_ns() <= time.monotonic_ns()
