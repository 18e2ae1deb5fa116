"""Specification of the daemon's log: a trouble is said once, however often it comes and goes."""

from __future__ import annotations

import logging

import pytest

from gpumon.cli.daemon_log import CollectorLog
from gpumon.core.state import CollectorState
from tests.builders_time import s

LOST = "GPU 0: the GPU is lost: reboot"
HANGS = "the driver has not answered yet"


def nvml(trouble: str | None) -> tuple[CollectorState, ...]:
    return (CollectorState("nvml", trouble is None, 0.0, 0, trouble),)


class Story:
    """Ticks a second apart, and what they made the log say."""

    def __init__(self, log: pytest.LogCaptureFixture) -> None:
        log.set_level(logging.INFO, "gpumon")
        self._log = log
        self._collector_log = CollectorLog(logging.getLogger("gpumon"))
        self._now_s = 100

    def ticks(self, *troubles: str | None) -> list[str]:
        """The lines that the log gained while these were so, one a tick."""
        return self.follow(*[collector for trouble in troubles for collector in nvml(trouble)])

    def follow(self, *told: CollectorState) -> list[str]:
        """The same, of a collector that says of itself whether it is well."""
        self._log.clear()
        for collector in told:
            self._now_s += 1
            self._collector_log.follow([collector], s(self._now_s))
        return self._log.messages


@pytest.fixture
def story(caplog: pytest.LogCaptureFixture) -> Story:
    return Story(caplog)


class TestATrouble:
    def test_is_said_once_however_long_it_lasts(self, story: Story) -> None:
        assert story.ticks(*[LOST] * 60) == [f"nvml: {LOST}"]

    def test_that_comes_and_goes_is_said_once(self, story: Story) -> None:
        assert story.ticks(*[LOST, None] * 60) == [f"nvml: {LOST}"]

    def test_that_takes_turns_with_another_is_said_once_like_the_other(self, story: Story) -> None:
        assert story.ticks(*[LOST, HANGS] * 30) == [f"nvml: {LOST}", f"nvml: {HANGS}"]

    def test_whose_words_never_end_does_not_fill_the_disk(self, story: Story) -> None:
        assert len(story.ticks(*[f"trouble {number}" for number in range(1000)])) <= 16


class TestTheEndOfATrouble:
    def test_is_said_once_when_it_has_lasted_ten_seconds(self, story: Story) -> None:
        story.ticks(LOST)

        assert story.ticks(*[None] * 10) == []
        assert story.ticks(*[None] * 60) == ["nvml: well again"]

    def test_is_not_said_where_nothing_was_wrong(self, story: Story) -> None:
        assert story.ticks(*[None] * 60) == []

    def test_makes_the_next_one_news(self, story: Story) -> None:
        story.ticks(LOST, *[None] * 11)

        assert story.ticks(LOST) == [f"nvml: {LOST}"]


class TestWhatOtherPeopleWrote:
    """A bad ring is no failure of the collector: one user could page the on-call with it."""

    def rings(self, story: Story, *messages: str | None) -> list[str]:
        told = [CollectorState("phase_rings", True, 0.0, 1, message) for message in messages]
        return story.follow(*told)

    def test_is_said_once_though_nothing_failed(self, story: Story) -> None:
        assert self.rings(story, *["1-1.ring: no"] * 60) == ["phase_rings: 1-1.ring: no"]

    def test_does_not_fill_the_disk_however_much_there_is(self, story: Story) -> None:
        said = self.rings(story, *[f"{number}-1.ring: no" for number in range(1_000)])

        assert len(said) == 16

    def test_is_said_again_after_a_quiet_time(self, story: Story) -> None:
        self.rings(story, *[f"{number}-1.ring: no" for number in range(1_000)])
        self.rings(story, *[None] * 600)

        assert self.rings(story, "new.ring: no") == ["phase_rings: new.ring: no"]

    def test_that_was_a_failure_before_is_not_said_twice(self, story: Story) -> None:
        failed = CollectorState("follow", False, 0.0, 1, "line 7: no")

        said = story.follow(failed, *[failed._replace(success=True)] * 30)

        assert said == ["follow: line 7: no", "follow: well again"]
