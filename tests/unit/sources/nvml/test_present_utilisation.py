"""The present utilisation, read on request of GPUs that a process is on."""

from __future__ import annotations

from gpumon.sources.gpu_source import ReadNow
from tests.builders.driver import Fake

RATES = "nvmlDeviceGetUtilizationRates"


def test_is_read_of_gpus_with_a_process_and_keeps_a_tick_quiet(fake: Fake) -> None:
    for slot in (0, 1):
        fake.wave(slot, period_s=1.0, busy_ratio=1.0)
    fake.run(0, 4000)
    story = fake.story(off=["events"])
    story.pass_s(6)
    before = fake.calls(RATES)
    story.reads = ReadNow.PRESENT
    story.tick()

    ((uuid, ratio),) = story.frame.present_ratios

    assert (uuid, round(ratio, 2)) == (story.frame.gpus[0].device.uuid, 1.0)
    assert fake.calls(RATES) - before == 1
    assert story.frame.is_quiet


def test_is_not_read_unless_asked_for(fake: Fake) -> None:
    fake.wave(0, period_s=1.0, busy_ratio=0.4)
    fake.run(0, 4000)
    story = fake.story(off=["events"])
    story.pass_s(6)

    assert story.frame.present_ratios == ()


def test_of_a_lost_gpu_is_left_out(fake: Fake) -> None:
    for slot in (0, 1):
        fake.wave(slot, period_s=1.0, busy_ratio=0.4)
        fake.run(slot, 4000 + slot)
    story = fake.story(off=["events"])
    story.pass_s(6)
    fake.lose(1)
    story.reads = ReadNow.SAMPLES | ReadNow.PRESENT
    story.tick()
    story.tick()

    assert [uuid for uuid, _ in story.frame.present_ratios] == [story.frame.gpus[0].device.uuid]
