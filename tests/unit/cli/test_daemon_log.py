"""Specification of the daemon's log: a trouble is said once, however often it comes and goes."""

from __future__ import annotations

import logging

import pytest

from gpumon.cli.daemon_log import CollectorLog, FieldLog, XidLog
from gpumon.core.board.troubles import vanished
from gpumon.core.clock import NS_PER_S
from gpumon.core.sample import FieldFault
from gpumon.core.state import CollectorState, GpuState
from tests.builders_state import HEALTHY_UUID, device, healthy_gpu, starved_gpu
from tests.builders_time import s

LOST = "GPU 0: the GPU is lost: reboot"
HANGS = "the driver has not answered yet"
MEMORY = FieldFault("memory", "no answer", 0)
POWER = FieldFault("power", "no answer", 2 * NS_PER_S)
LOGGER = logging.getLogger("gpumon")


@pytest.fixture(autouse=True)
def everything_is_heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gpumon")


class Collectors:
    """Ticks a second apart, and what they made the log say."""

    def __init__(self, log: pytest.LogCaptureFixture) -> None:
        self._log = log
        self._collector_log = CollectorLog(LOGGER)
        self._now_s = 100

    def ticks(self, *troubles: str | None) -> list[str]:
        """The lines that the log gained while these were so, one a tick."""
        return self.follow(
            *(CollectorState("nvml", trouble is None, 0.0, 0, trouble) for trouble in troubles)
        )

    def follow(self, *told: CollectorState) -> list[str]:
        """The same, of a collector that says of itself whether it is well."""
        self._log.clear()
        for collector in told:
            self._now_s += 1
            self._collector_log.follow([collector], s(self._now_s))
        return self._log.messages


@pytest.fixture
def collectors(caplog: pytest.LogCaptureFixture) -> Collectors:
    return Collectors(caplog)


class TestATrouble:
    @pytest.mark.parametrize(
        ("troubles", "said"),
        [
            ([LOST] * 60, [LOST]),
            ([LOST, None] * 60, [LOST]),
            ([LOST, HANGS] * 30, [LOST, HANGS]),
            ([None] * 60, []),
        ],
        ids=["that lasts", "that comes and goes", "that takes turns with another", "that is none"],
    )
    def test_is_said_once(
        self, collectors: Collectors, troubles: list[str | None], said: list[str]
    ) -> None:
        assert collectors.ticks(*troubles) == [f"nvml: {trouble}" for trouble in said]

    def test_whose_words_never_end_does_not_fill_the_disk(self, collectors: Collectors) -> None:
        assert len(collectors.ticks(*[f"trouble {number}" for number in range(1000)])) <= 16

    def test_that_has_ended_for_ten_seconds_is_said_to_have_and_the_next_is_news(
        self, collectors: Collectors
    ) -> None:
        collectors.ticks(LOST)

        assert collectors.ticks(*[None] * 10) == []
        assert collectors.ticks(*[None] * 60) == ["nvml: well again"]
        assert collectors.ticks(LOST) == [f"nvml: {LOST}"]


class TestWhatOtherPeopleWrote:
    """A bad ring is no failure of the collector: one user could page the on-call with it."""

    def rings(self, collectors: Collectors, *messages: str | None) -> list[str]:
        told = [CollectorState("phase_rings", True, 0.0, 1, message) for message in messages]
        return collectors.follow(*told)

    def test_is_said_once_though_nothing_failed(self, collectors: Collectors) -> None:
        assert self.rings(collectors, *["1-1.ring: no"] * 60) == ["phase_rings: 1-1.ring: no"]

    def test_does_not_fill_the_disk_however_much_there_is(self, collectors: Collectors) -> None:
        assert len(self.rings(collectors, *[f"{at}-1.ring: no" for at in range(1_000)])) == 16

    def test_is_said_again_after_a_quiet_time(self, collectors: Collectors) -> None:
        self.rings(collectors, *[f"{number}-1.ring: no" for number in range(1_000)])
        self.rings(collectors, *[None] * 600)

        assert self.rings(collectors, "new.ring: no") == ["phase_rings: new.ring: no"]

    def test_that_was_a_failure_before_is_not_said_twice(self, collectors: Collectors) -> None:
        failed = CollectorState("follow", False, 0.0, 1, "line 7: no")

        said = collectors.follow(failed, *[failed._replace(success=True)] * 30)

        assert said == ["follow: line 7: no", "follow: well again"]


def failing(gpu: GpuState, *faults: FieldFault) -> GpuState:
    assert gpu.latest is not None
    return gpu._replace(latest=gpu.latest._replace(faults=faults))


class Fields:
    """What was logged of fields that fail, as time goes by."""

    def __init__(self, log: pytest.LogCaptureFixture) -> None:
        self.log = FieldLog(LOGGER)
        self._messages = log
        self._now_s = 0

    def tick(self, *gpus: GpuState, times: int = 1) -> list[str]:
        for _ in range(times):
            self.log.follow(gpus, self._now_s * NS_PER_S)
            self._now_s += 1
        return list(self._messages.messages)


@pytest.fixture
def fields(caplog: pytest.LogCaptureFixture) -> Fields:
    return Fields(caplog)


class TestAFieldThatFails:
    FAILS = "GPU 1: reading its memory fails: no answer"

    def test_is_logged_once_while_it_lasts_and_once_when_it_has_ended(self, fields: Fields) -> None:
        during = fields.tick(failing(healthy_gpu(), MEMORY), times=20)
        after = fields.tick(healthy_gpu(), times=30)

        assert during == [self.FAILS]
        assert after[1:] == ["GPU 1: reading its memory works again, after 20 s"]

    def test_is_one_fault_where_it_comes_and_goes(self, fields: Fields) -> None:
        for _ in range(10):
            fields.tick(failing(healthy_gpu(), MEMORY))
            said = fields.tick(healthy_gpu(), times=3)

        assert len(said) == 1

    def test_is_told_apart_from_another_and_on_another_gpu(self, fields: Fields) -> None:
        one, other = failing(healthy_gpu(), MEMORY, POWER), failing(starved_gpu(), MEMORY)

        said = [line.split()[1:5:3] for line in fields.tick(one, other, times=3)]

        assert said == [["1:", "memory"], ["1:", "power"], ["0:", "memory"]]

    def test_of_a_gpu_that_is_lost_is_not_said_to_work_again(self, fields: Fields) -> None:
        fields.tick(failing(healthy_gpu(), MEMORY))

        assert len(fields.tick(healthy_gpu(present=False, latest=None), times=30)) == 1

    def test_of_a_gpu_that_is_not_told_of_any_more_is_forgotten(self, fields: Fields) -> None:
        fields.tick(failing(healthy_gpu(), MEMORY))
        fields.tick(times=30)

        assert fields.tick(failing(healthy_gpu(), MEMORY)) == [self.FAILS] * 2

    def test_is_named_to_those_who_would_repeat_it_while_it_lasts(self, fields: Fields) -> None:
        (sentence,) = fields.tick(failing(healthy_gpu(), MEMORY))
        during = fields.log.sentences
        fields.tick(healthy_gpu())

        assert during == {sentence}
        assert fields.log.sentences == frozenset()


class TestAnXid:
    def said(self, caplog: pytest.LogCaptureFixture, *ticks: list[GpuState]) -> list[str]:
        """Of which GPU what was logged, in these ticks."""
        log = XidLog(LOGGER)
        for gpus in ticks:
            log.follow(gpus)
        return [": ".join(message.split(": ")[:2]) for message in caplog.messages]

    def test_is_logged_once_however_often_it_happens(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        often = ([healthy_gpu(xid_errors=((13, times),))] for times in (1, 1, 2, 9))

        assert self.said(caplog, *often) == [f"GPU 1 ({HEALTHY_UUID}): XID 13"]

    def test_is_logged_beside_another_and_on_another_gpu(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        first = [starved_gpu(), healthy_gpu(xid_errors=((13, 1),))]
        both = healthy_gpu(xid_errors=((13, 1), (48, 1)))

        said = self.said(caplog, first, [starved_gpu(xid_errors=((13, 1),)), both])

        assert [line.split()[1::3] for line in said] == [["1", "13"], ["0", "13"], ["1", "48"]]

    def test_is_not_logged_again_after_a_source_that_forgot_it(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        told = (((13, 1),), (), ((13, 1),))

        assert len(self.said(caplog, *([healthy_gpu(xid_errors=xids)] for xids in told))) == 1

    def test_is_logged_beside_that_a_gpu_vanished_and_is_back(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        there, away = healthy_gpu(), healthy_gpu(present=False, listed=False)

        self.said(caplog, *([starved_gpu(), one] for one in (there, away, away, there, there)))

        gone, back = caplog.messages
        assert gone.startswith(f"GPU 1 ({HEALTHY_UUID}) vanished: ")
        assert vanished(index=1).advice in gone
        assert back == f"GPU 1 ({HEALTHY_UUID}) is listed again"

    def test_is_not_taken_for_an_instance_that_was_destroyed(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        part = device(1, "MIG-a", parent_uuid="GPU-x", mig_index=0)
        states = (healthy_gpu(device=part, present=on, listed=on) for on in (True, False))

        assert self.said(caplog, *([state] for state in states)) == []
