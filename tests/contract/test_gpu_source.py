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


def frames_of(source: GpuSource, count: int = 8, every_s: float = 0.15) -> list[Frame]:
    frames = [source.read()]
    for _ in range(count):
        time.sleep(every_s)
        frames.append(source.read())
    return frames


def busy_by_gpu(frames: list[Frame]) -> dict[str, list[BusySample]]:
    samples: dict[str, list[BusySample]] = {}
    for frame in frames:
        for gpu in frame.gpus:
            samples.setdefault(gpu.device.uuid, []).extend(gpu.busy)
    return samples


class TestASource:
    def test_observes_nothing_of_the_time_before_its_first_read(self, source: GpuSource) -> None:
        before_ns = time.monotonic_ns()

        samples = busy_by_gpu(frames_of(source))

        # A source may count from when it was opened, never from before.
        assert all(
            sample.start_ns > before_ns - 500_000_000 for row in samples.values() for sample in row
        )
        assert any(samples.values())

    def test_speaks_of_the_past_only(self, source: GpuSource) -> None:
        heard: list[BusySample] = []
        for _ in range(6):
            time.sleep(0.15)
            frame = source.read()
            new = [sample for gpu in frame.gpus for sample in gpu.busy]
            heard += new

            assert frame.taken_at_ns <= time.monotonic_ns()
            assert all(sample.end_ns <= frame.taken_at_ns for sample in new)
        assert heard

    def test_never_speaks_of_the_same_time_twice(self, source: GpuSource) -> None:
        rows = busy_by_gpu(frames_of(source)).values()

        assert any(len(row) > 1 for row in rows)
        for row in rows:
            assert all(early.end_ns <= late.start_ns for early, late in pairwise(row))
            assert all(sample.start_ns < sample.end_ns for sample in row)

    def test_gives_ratios(self, source: GpuSource) -> None:
        frames = frames_of(source)

        ratios = [sample.busy_ratio for row in busy_by_gpu(frames).values() for sample in row]
        latest = [gpu.utilization_ratio for gpu in frames[-1].gpus]
        assert any(ratios)
        assert [frame.rejected for frame in frames] == [0] * len(frames)
        assert all(0.0 <= ratio <= 1.0 for ratio in ratios)
        assert all(ratio is None or 0.0 <= ratio <= 1.0 for ratio in latest)

    def test_keeps_to_the_same_gpus_in_index_order(self, source: GpuSource) -> None:
        frames = frames_of(source, count=3)

        (uuids,) = {tuple(gpu.device.uuid for gpu in frame.gpus) for frame in frames[1:]}
        assert len(set(uuids)) == len(uuids) >= 1
        indices = [gpu.device.index for gpu in frames[-1].gpus]
        assert indices == sorted(indices)

    def test_never_lets_a_counter_fall(self, source: GpuSource) -> None:
        frames = frames_of(source, count=4)

        for early, late in pairwise(frames):
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
