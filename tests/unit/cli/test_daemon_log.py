"""Tests of the daemon's log: each trouble is logged once. Its messages are in ``tests/golden``."""

from __future__ import annotations

import logging

import pytest

from gpumon.cli.daemon_log import PriceLog
from gpumon.core.clock import NS_PER_S
from gpumon.core.sample import FieldFault
from gpumon.core.state import CollectorState
from tests.builders.state import (
    HEALTHY_UUID,
    device,
    healthy_gpu,
    monitor_state,
    starved_gpu,
)
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
        return log.lines(*(CollectorState("nvml", one is None, 0.0, 0, one) for one in troubles))

    @pytest.mark.parametrize(
        ("troubles", "logged"),
        [
            ([LOST, None] * 60, [LOST]),
            ([LOST, HANGS] * 30, [LOST, HANGS]),
        ],
        ids=["intermittent", "alternating"],
    )
    def test_is_logged_once(
        self, log: DaemonLog, troubles: list[str | None], logged: list[str]
    ) -> None:
        assert self.ticks(log, *troubles) == [f"nvml: {trouble}" for trouble in logged]

    def test_with_ever_new_messages_does_not_fill_the_disk(self, log: DaemonLog) -> None:
        assert len(self.ticks(log, *[f"trouble {number}" for number in range(1000)])) <= 16

    def test_is_over_after_ten_seconds(self, log: DaemonLog) -> None:
        self.ticks(log, LOST)

        assert self.ticks(log, *[None] * 10) == []
        assert len(self.ticks(log, *[None] * 60)) == 1
        assert self.ticks(log, LOST) == [f"nvml: {LOST}"]


class TestABadFileOfAUser:
    # It is no failure of the collector: one user could page the on-call with it.

    def rings(self, log: DaemonLog, *messages: str | None) -> list[str]:
        return log.lines(*(CollectorState("phase_rings", True, 0.0, 1, one) for one in messages))

    def test_is_logged_once(self, log: DaemonLog) -> None:
        assert self.rings(log, *["1-1.ring: no"] * 60) == ["phase_rings: 1-1.ring: no"]

    def test_does_not_fill_the_disk_and_is_logged_again_after_a_quiet_time(
        self, log: DaemonLog
    ) -> None:
        assert len(self.rings(log, *[f"{at}-1.ring: no" for at in range(1_000)])) == 16
        self.rings(log, *[None] * 600)

        assert self.rings(log, "new.ring: no") == ["phase_rings: new.ring: no"]

    def test_that_was_a_failure_before_is_not_logged_twice(self, log: DaemonLog) -> None:
        failed = CollectorState("follow", False, 0.0, 1, "line 7: no")

        first, *others = log.lines(failed, *[failed._replace(success=True)] * 30)

        assert first.startswith("follow: line 7")
        assert [other for other in others if "line 7" in other] == []


class TestAFailingField:
    def test_is_logged_when_it_starts_and_when_it_ends(self, log: DaemonLog) -> None:
        during = log.saw(failing(healthy_gpu(), MEMORY), times=20)
        after = log.saw(healthy_gpu(), times=30)

        assert (len(during), len(after)) == (1, 1)
        assert "20 s" in after[0]

    def test_is_one_fault_if_it_comes_and_goes(self, log: DaemonLog) -> None:
        logged = []
        for _ in range(10):
            logged += log.saw(failing(healthy_gpu(), MEMORY)) + log.saw(healthy_gpu(), times=3)

        assert len(logged) == 1

    def test_does_not_end_while_the_gpu_is_lost(self, log: DaemonLog) -> None:
        log.saw(failing(healthy_gpu(), MEMORY))

        assert log.saw(healthy_gpu(present=False, latest=None), times=30) == []

    def test_is_forgotten_with_its_gpu(self, log: DaemonLog) -> None:
        first = log.saw(failing(healthy_gpu(), MEMORY))

        assert log.saw(times=30) == []
        assert log.saw(failing(healthy_gpu(), MEMORY)) == first

    def test_is_listed_for_other_logs(self, log: DaemonLog) -> None:
        logged = log.saw(failing(healthy_gpu(), MEMORY))

        assert log.fields.sentences == {*logged} != set()
        log.saw(healthy_gpu())
        assert log.fields.sentences == frozenset()


class TestAnXid:
    def test_is_logged_once_even_if_a_source_forgets_it(self, log: DaemonLog) -> None:
        (line,) = log.saw(healthy_gpu(xid_errors=((13, 1),)))

        assert line.startswith(f"GPU 1 ({HEALTHY_UUID}): XID 13")
        for xids in (((13, 1),), ((13, 9),), (), ((13, 1),)):
            assert log.saw(healthy_gpu(xid_errors=xids)) == []

    def test_is_distinct_from_another_xid_and_gpu(self, log: DaemonLog) -> None:
        log.saw(starved_gpu(), healthy_gpu(xid_errors=((13, 1),)))
        both = healthy_gpu(xid_errors=((13, 1), (48, 1)))

        logged = log.saw(starved_gpu(xid_errors=((13, 1),)), both)

        assert [(line.split()[1], line.split()[4]) for line in logged] == [
            ("0", "13:"),
            ("1", "48:"),
        ]


class TestThePrice:
    @pytest.mark.parametrize(
        ("spent_s", "level", "text"),
        [
            (0.12, logging.INFO, "takes 2 ms of each second (nvmlDeviceGetSamples 2)"),
            (0.6, logging.WARNING, "takes 10 ms of each second (nvmlDeviceGetSamples 10): more "),
        ],
    )
    def test_is_logged_once_after_a_minute(
        self, caplog: pytest.LogCaptureFixture, spent_s: float, level: int, text: str
    ) -> None:
        caplog.set_level(logging.INFO, "gpumon")
        price = PriceLog(logging.getLogger("gpumon"))
        for second in range(180):
            calls = (("nvmlDeviceGetSamples", 7.0 + second * spent_s / 60),)
            price.follow(monitor_state(taken_at_ns=second * NS_PER_S, call_seconds=calls))

        (record,) = caplog.records
        assert record.levelno == level
        assert text in record.getMessage()

    def test_is_not_logged_without_a_driver(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "gpumon")
        price = PriceLog(logging.getLogger("gpumon"))
        for second in (0, 100, 200):
            price.follow(monitor_state(taken_at_ns=second * NS_PER_S, call_seconds=()))

        assert caplog.records == []


class TestAVanishedGpu:
    def test_is_logged_when_it_vanishes_and_returns(self, log: DaemonLog) -> None:
        there, away = healthy_gpu(), healthy_gpu(present=False, listed=False)

        states = [there, away, away, *[there] * 13]
        logged = [log.saw(starved_gpu(), one) for one in states]

        assert [len(lines) for lines in logged] == [0, 1, *[0] * 11, 1, 0, 0]
        assert all(line.startswith(f"GPU 1 ({HEALTHY_UUID}) ") for line in logged[1] + logged[13])

    def test_is_logged_once_if_it_comes_and_goes(self, log: DaemonLog) -> None:
        there, away = healthy_gpu(), healthy_gpu(present=False, listed=False)

        logged = [log.saw(one, times=5) for one in [away, there] * 30]

        assert [len(lines) for lines in logged] == [1, *[0] * 59]

    def test_is_not_logged_if_it_is_an_instance(self, log: DaemonLog) -> None:
        instance = device(1, "MIG-a", parent_uuid="GPU-x", mig_index=0)

        for is_listed in (True, False):
            gpu = healthy_gpu(device=instance, present=is_listed, listed=is_listed)
            assert log.saw(gpu) == []
