"""Fake GPUs that are cut by MIG, told second by second, and the truth about their instances."""

from __future__ import annotations

from collections.abc import Callable

from gpumon.core.sample import BusySample, GpuSample
from tests.builders_driver import DriverStory
from tests.fakenvml.control import FakeNvml

TICK_S = 0.5

Tell = Callable[..., DriverStory]
"""Begins a story: ``tell(options, period_s=...)``."""


def seconds(story: DriverStory, seconds: float) -> list[tuple[GpuSample, ...]]:
    """What every device says in each tick of so many seconds."""
    frames = []
    for _ in range(round(seconds / TICK_S)):
        story.tick()
        assert story.frame is not None
        frames.append(story.frame.gpus)
    return frames


def busy_of(frames: list[tuple[GpuSample, ...]], uuid: str) -> list[BusySample]:
    return [busy for gpus in frames for gpu in gpus if gpu.device.uuid == uuid for busy in gpu.busy]


def labels(story: DriverStory) -> list[str]:
    assert story.frame is not None
    return [gpu.device.label for gpu in story.frame.gpus]


def uuids(story: DriverStory) -> list[str]:
    assert story.frame is not None
    return [gpu.device.uuid for gpu in story.frame.gpus]


def true_busy_ns(fake: FakeNvml, slot: int, part: int, start_ns: int, end_ns: int) -> int:
    """The truth: nanoseconds of that stretch in which the instance worked."""
    wave, origin_ns = fake.part(slot, part).wave, fake.control.origin_ns

    def until(at_ns: int) -> int:
        rounds, within = divmod(at_ns - origin_ns + wave.phase_ns, wave.period_ns)
        return int(rounds * wave.busy_ns + min(within, wave.busy_ns))

    return until(end_ns) - until(start_ns)
