"""What every source of GPUs promises, whatever it reads.

A new source is one entry of ``SOURCES``: something that opens it on GPUs
that are busy part of the time.
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


class Heard:
    """What a source said in nine reads, a while apart, and when it was asked."""

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


_HEARD: dict[str, Heard] = {}


@pytest.fixture
def heard(request: pytest.FixtureRequest, source: GpuSource) -> Heard:
    """Each source is listened to once, for all tests."""
    kind = request.node.callspec.params["source"]
    if kind not in _HEARD:
        _HEARD[kind] = Heard(source)
    return _HEARD[kind]


class TestASource:
    def test_observes_nothing_of_the_time_before_its_first_read(self, heard: Heard) -> None:
        # A source may count from when it was opened, never from before.
        assert all(
            sample.start_ns > heard.from_ns - 500_000_000 for row in heard.busy for sample in row
        )
        assert any(heard.busy)

    def test_speaks_of_the_past_only(self, heard: Heard) -> None:
        for frame, read_ns in zip(heard.frames, heard.read_ns, strict=True):
            assert frame.taken_at_ns <= read_ns
            ends_ns = [sample.end_ns for gpu in frame.gpus for sample in gpu.busy]
            assert all(end_ns <= frame.taken_at_ns for end_ns in ends_ns)

    def test_never_speaks_of_the_same_time_twice(self, heard: Heard) -> None:
        assert any(len(row) > 1 for row in heard.busy)
        for row in heard.busy:
            assert all(early.end_ns <= late.start_ns for early, late in pairwise(row))
            assert all(sample.start_ns < sample.end_ns for sample in row)

    def test_gives_ratios(self, heard: Heard) -> None:
        ratios = [sample.busy_ratio for row in heard.busy for sample in row]
        latest = [gpu.utilization_ratio for gpu in heard.frames[-1].gpus]
        assert any(ratios)
        assert [frame.rejected for frame in heard.frames] == [0] * len(heard.frames)
        assert all(0.0 <= ratio <= 1.0 for ratio in ratios)
        assert all(ratio is None or 0.0 <= ratio <= 1.0 for ratio in latest)

    def test_keeps_to_the_same_gpus_in_index_order(self, heard: Heard) -> None:
        (uuids,) = {tuple(gpu.device.uuid for gpu in frame.gpus) for frame in heard.frames[1:]}
        assert len(set(uuids)) == len(uuids) >= 1
        indices = [gpu.device.index for gpu in heard.frames[-1].gpus]
        assert indices == sorted(indices)

    def test_never_lets_a_counter_fall(self, heard: Heard) -> None:
        for early, late in pairwise(heard.frames):
            spent = dict(late.call_seconds)
            assert all(spent[name] >= before for name, before in early.call_seconds)
            for was, now in zip(early.gpus, late.gpus, strict=False):
                assert (now.energy_joules or 0.0) >= (was.energy_joules or 0.0)

    def test_can_be_closed_twice(self, source: GpuSource) -> None:
        heard = source.read()

        source.close()
        source.close()

        assert heard.taken_at_ns > 0


def test_the_clock_of_a_source_is_one_that_tells_the_time() -> None:
    clock: Clock = SystemClock()

    before_ns = time.monotonic_ns()
    assert before_ns <= clock.monotonic_ns() <= time.monotonic_ns()
