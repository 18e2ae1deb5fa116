"""Specification of the fields that fail, in the log: once at the beginning, once at the end."""

from __future__ import annotations

import logging

import pytest

from gpumon.cli.daemon_log import FieldLog
from gpumon.core.clock import NS_PER_S
from gpumon.core.sample import FieldFault
from gpumon.core.state import GpuState
from tests.builders_state import healthy_gpu, starved_gpu

MEMORY = FieldFault("memory", "no answer", 0)
POWER = FieldFault("power", "no answer", 2 * NS_PER_S)


def failing(gpu: GpuState, *faults: FieldFault) -> GpuState:
    assert gpu.latest is not None
    return gpu._replace(latest=gpu.latest._replace(faults=faults))


class Story:
    """What was logged, as time goes by."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        self.log = FieldLog(logging.getLogger("gpumon"))
        self._messages = caplog
        self._now_s = 0

    def tick(self, *gpus: GpuState, times: int = 1) -> list[str]:
        for _ in range(times):
            self.log.follow(gpus, self._now_s * NS_PER_S)
            self._now_s += 1
        return list(self._messages.messages)


@pytest.fixture
def story(caplog: pytest.LogCaptureFixture) -> Story:
    return Story(caplog)


class TestAFieldThatFails:
    def test_is_logged_once_while_it_lasts_and_once_when_it_has_ended(self, story: Story) -> None:
        gpu = healthy_gpu()
        during = story.tick(failing(gpu, MEMORY), times=20)
        after = story.tick(gpu, times=30)

        assert during == ["GPU 1: reading its memory fails: no answer"]
        assert after[1:] == ["GPU 1: reading its memory works again, after 20 s"]

    def test_is_one_fault_where_it_comes_and_goes(self, story: Story) -> None:
        for _ in range(10):
            story.tick(failing(healthy_gpu(), MEMORY))
            said = story.tick(healthy_gpu(), times=3)

        assert len(said) == 1

    def test_is_told_apart_from_another_and_on_another_gpu(self, story: Story) -> None:
        one, other = failing(healthy_gpu(), MEMORY, POWER), failing(starved_gpu(), MEMORY)
        said = story.tick(one, other, times=3)

        assert [line.split(" fails")[0] for line in said] == [
            "GPU 1: reading its memory",
            "GPU 1: reading its power",
            "GPU 0: reading its memory",
        ]

    def test_of_a_gpu_that_is_lost_is_not_said_to_work_again(self, story: Story) -> None:
        story.tick(failing(healthy_gpu(), MEMORY))
        said = story.tick(healthy_gpu(present=False, latest=None), times=30)

        assert len(said) == 1

    def test_of_a_gpu_that_is_not_told_of_any_more_is_forgotten(self, story: Story) -> None:
        story.tick(failing(healthy_gpu(), MEMORY))
        story.tick(times=30)
        said = story.tick(failing(healthy_gpu(), MEMORY))

        assert said == ["GPU 1: reading its memory fails: no answer"] * 2

    def test_is_named_to_those_who_would_repeat_it_while_it_lasts(self, story: Story) -> None:
        (sentence,) = story.tick(failing(healthy_gpu(), MEMORY))
        during = story.log.sentences
        story.tick(healthy_gpu())

        assert during == {sentence}
        assert story.log.sentences == frozenset()
