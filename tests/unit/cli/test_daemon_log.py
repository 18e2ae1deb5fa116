"""Specification of the daemon's log: a trouble is said once, however often it comes and goes.

Its words are in ``tests/golden``.
"""

from __future__ import annotations

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.core.sample import FieldFault
from gpumon.core.state import CollectorState
from tests.builders.state import HEALTHY_UUID, device, healthy_gpu, starved_gpu
from tests.daemon_log import DaemonLog, failing

LOST = "GPU 0: the GPU is lost: reboot"
HANGS = "the driver has not answered yet"
MEMORY = FieldFault("memory", "no answer", 0)
POWER = FieldFault("power", "no answer", 2 * NS_PER_S)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> DaemonLog:
    return DaemonLog(caplog)


class TestATrouble:
    def ticks(self, log: DaemonLog, *troubles: str | None) -> list[str]:
        return log.told(*(CollectorState("nvml", one is None, 0.0, 0, one) for one in troubles))

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
        self, log: DaemonLog, troubles: list[str | None], said: list[str]
    ) -> None:
        assert self.ticks(log, *troubles) == [f"nvml: {trouble}" for trouble in said]

    def test_whose_words_never_end_does_not_fill_the_disk(self, log: DaemonLog) -> None:
        assert len(self.ticks(log, *[f"trouble {number}" for number in range(1000)])) <= 16

    def test_that_has_ended_for_ten_seconds_is_said_to_have_and_the_next_is_news(
        self, log: DaemonLog
    ) -> None:
        self.ticks(log, LOST)

        assert self.ticks(log, *[None] * 10) == []
        assert len(self.ticks(log, *[None] * 60)) == 1
        assert self.ticks(log, LOST) == [f"nvml: {LOST}"]


class TestWhatOtherPeopleWrote:
    """A bad ring is no failure of the collector: one user could page the on-call with it."""

    def rings(self, log: DaemonLog, *messages: str | None) -> list[str]:
        return log.told(*(CollectorState("phase_rings", True, 0.0, 1, said) for said in messages))

    def test_is_said_once_though_nothing_failed(self, log: DaemonLog) -> None:
        assert self.rings(log, *["1-1.ring: no"] * 60) == ["phase_rings: 1-1.ring: no"]

    def test_does_not_fill_the_disk_however_much_there_is(self, log: DaemonLog) -> None:
        assert len(self.rings(log, *[f"{at}-1.ring: no" for at in range(1_000)])) == 16

    def test_is_said_again_after_a_quiet_time(self, log: DaemonLog) -> None:
        self.rings(log, *[f"{at}-1.ring: no" for at in range(1_000)], *[None] * 600)

        assert self.rings(log, "new.ring: no") == ["phase_rings: new.ring: no"]

    def test_that_was_a_failure_before_is_not_said_twice(self, log: DaemonLog) -> None:
        failed = CollectorState("follow", False, 0.0, 1, "line 7: no")

        first, *others = log.told(failed, *[failed._replace(success=True)] * 30)

        assert first.startswith("follow: line 7")
        assert [other for other in others if "line 7" in other] == []


class TestAFieldThatFails:
    def test_is_logged_once_while_it_lasts_and_once_when_it_has_ended(self, log: DaemonLog) -> None:
        during = log.saw(failing(healthy_gpu(), MEMORY), times=20)
        after = log.saw(healthy_gpu(), times=30)

        assert (len(during), len(after)) == (1, 1)
        assert "20 s" in after[0]

    def test_is_one_fault_where_it_comes_and_goes(self, log: DaemonLog) -> None:
        said = []
        for _ in range(10):
            said += log.saw(failing(healthy_gpu(), MEMORY)) + log.saw(healthy_gpu(), times=3)

        assert len(said) == 1

    def test_is_told_apart_from_another_and_on_another_gpu(self, log: DaemonLog) -> None:
        one, other = failing(healthy_gpu(), MEMORY, POWER), failing(starved_gpu(), MEMORY)

        said = [line.split()[1:5:3] for line in log.saw(one, other, times=3)]

        assert said == [["1:", "memory"], ["1:", "power"], ["0:", "memory"]]

    def test_of_a_gpu_that_is_lost_is_not_said_to_work_again(self, log: DaemonLog) -> None:
        log.saw(failing(healthy_gpu(), MEMORY))

        assert log.saw(healthy_gpu(present=False, latest=None), times=30) == []

    def test_of_a_gpu_that_is_not_told_of_any_more_is_forgotten(self, log: DaemonLog) -> None:
        first = log.saw(failing(healthy_gpu(), MEMORY))

        assert log.saw(times=30) == []
        assert log.saw(failing(healthy_gpu(), MEMORY)) == first

    def test_is_named_to_those_who_would_repeat_it_while_it_lasts(self, log: DaemonLog) -> None:
        said = log.saw(failing(healthy_gpu(), MEMORY))

        assert log.fields.sentences == {*said} != set()
        log.saw(healthy_gpu())
        assert log.fields.sentences == frozenset()


class TestAnXid:
    def test_is_logged_once_however_often_it_happens_also_where_a_source_forgets_it(
        self, log: DaemonLog
    ) -> None:
        (said,) = log.saw(healthy_gpu(xid_errors=((13, 1),)))

        assert said.startswith(f"GPU 1 ({HEALTHY_UUID}): XID 13")
        for xids in (((13, 1),), ((13, 9),), (), ((13, 1),)):
            assert log.saw(healthy_gpu(xid_errors=xids)) == []

    def test_is_logged_beside_another_and_on_another_gpu(self, log: DaemonLog) -> None:
        first = log.saw(starved_gpu(), healthy_gpu(xid_errors=((13, 1),)))
        both = healthy_gpu(xid_errors=((13, 1), (48, 1)))

        said = [*first, *log.saw(starved_gpu(xid_errors=((13, 1),)), both)]

        assert [(line.split()[1], line.split()[4]) for line in said] == [
            ("1", "13:"), ("0", "13:"), ("1", "48:"),
        ]  # fmt: skip


class TestAGpuThatVanished:
    def test_is_logged_when_it_has_and_when_it_is_back(self, log: DaemonLog) -> None:
        there, away = healthy_gpu(), healthy_gpu(present=False, listed=False)

        states = [there, away, away, *[there] * 13]
        logged = [log.saw(starved_gpu(), one) for one in states]

        assert [len(lines) for lines in logged] == [0, 1, *[0] * 11, 1, 0, 0]
        assert all(line.startswith(f"GPU 1 ({HEALTHY_UUID}) ") for line in logged[1] + logged[13])

    def test_for_five_of_every_ten_seconds_is_logged_once(self, log: DaemonLog) -> None:
        there, away = healthy_gpu(), healthy_gpu(present=False, listed=False)

        logged = [log.saw(one, times=5) for one in [away, there] * 30]

        assert [len(lines) for lines in logged] == [1, *[0] * 59]

    def test_is_not_an_instance_that_was_destroyed(self, log: DaemonLog) -> None:
        part = device(1, "MIG-a", parent_uuid="GPU-x", mig_index=0)

        for there in (True, False):
            assert log.saw(healthy_gpu(device=part, present=there, listed=there)) == []
