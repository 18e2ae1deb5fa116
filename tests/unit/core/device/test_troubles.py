"""Specification of a GPU's troubles, and of their JSON."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.codecs.report_codec import decode_report, encode_report
from gpumon.core.device.driver_codes import (
    OF_PROGRAMS,
    SLOWDOWNS,
    THROTTLE_REASONS,
    UNREADABLE,
    xid_text,
)
from gpumon.core.device.troubles import (
    ErrorTimes,
    ErrorWatch,
    Trouble,
    TroubleKind,
    errors_of,
    lost,
    worst,
)
from gpumon.core.diagnosis.report_since import report_since
from gpumon.core.report.report import GpuReport
from gpumon.core.sample import GpuDetails, GpuSample
from gpumon.core.verdict import Severity
from gpumon.errors import UsageError
from tests.builders.report import gpm_fill, gpu, report
from tests.builders.state import device
from tests.builders.time import s

LOST = f"{UNREADABLE[15].meaning} (NVML 15): {UNREADABLE[15].advice}"
NOW_NS = s(100_000)
DAY_S = 24 * 3600


def reported(*xid_errors: tuple[int, int], ago_s: float = 5.0) -> tuple[Trouble, ...]:
    """The troubles of a GPU with these errors, each last so long ago."""
    times = ErrorTimes(xid_last_ns=tuple((xid, NOW_NS - s(ago_s)) for xid, _ in xid_errors))
    return errors_of(xid_errors, times, NOW_NS)


def broken(**changes: object) -> GpuReport:
    """A healthy GPU with something else that is wrong."""
    return replace(gpu(60), **changes)  # type: ignore[arg-type]


def kinds(one: GpuReport) -> list[tuple[str, int | None]]:
    return [(trouble.kind.value, trouble.code) for trouble in one.troubles]


class TestAnXid:
    @pytest.mark.parametrize("xid", [48, 62, 74, 79, 95, 119, 140, 154, 777])
    def test_is_severe_if_the_board_failed(self, xid: int) -> None:
        (trouble,) = reported((xid, 2))

        assert (trouble.severity, trouble.code, trouble.times) == (Severity.HIGH, xid, 2)
        assert trouble.text.startswith(f"reported XID {xid} (")

    @pytest.mark.parametrize("xid", [*OF_PROGRAMS, 63, 94])
    def test_is_moderate_if_a_program_failed_or_it_can_wait(self, xid: int) -> None:
        assert worst(reported((xid, 1))) is Severity.MODERATE

    @pytest.mark.parametrize(("ago_s", "severity"), [(DAY_S, "high"), (DAY_S + 1, "none")])
    def test_has_no_severity_after_a_day(self, ago_s: float, severity: str) -> None:
        assert worst(reported((79, 1), ago_s=ago_s)).value == severity


class TestAGpuThatIsLost:
    def test_has_the_reason_and_remedy_of_its_source(self) -> None:
        (trouble,) = broken(error=LOST).troubles

        why, _, advice = LOST.partition(": ")
        assert trouble.text == f"cannot be read: {why}"
        assert trouble.advice == advice

    def test_comes_first_with_the_remedy_of_its_last_severe_error(self) -> None:
        one = broken(error=LOST, reported_troubles=reported((31, 3), (79, 1)))

        assert kinds(one) == [("lost", None), ("xid", 79), ("xid", 31)]
        assert one.is_lost
        assert one.troubles[0].advice == one.troubles[1].advice

    def test_has_general_advice_if_its_source_has_none(self) -> None:
        (trouble,) = broken(error="it is gone", index=3).troubles

        assert "`nvidia-smi -q -i 3`" in trouble.advice


class TestMemoryErrors:
    def observed(self, *counts: int | None) -> tuple[Trouble, ...]:
        """What is wrong after readings of the count, a second apart."""
        log = ErrorWatch()
        for second, count in enumerate(counts):
            details = GpuDetails(read_at_ns=second, ecc_uncorrected_errors=count)
            log.observe(GpuSample(device=device(), details=details), s(second))
        return errors_of((), log.errors, s(len(counts)))

    @pytest.mark.parametrize("counts", [(None,), (0,), (0, 0), (3, 0)])
    def test_are_none_where_none_is_counted(self, counts: tuple[int | None, ...]) -> None:
        assert self.observed(*counts) == ()

    def test_are_severe_if_they_come_while_gpumon_watches(self) -> None:
        (trouble,) = self.observed(0, 0, 2)

        assert (trouble.kind, trouble.severity) == (TroubleKind.ECC, Severity.HIGH)
        assert (trouble.times, trouble.last_ns, trouble.reason) == (2, s(2), "uncorrected")

    def test_are_moderate_until_the_gpu_is_reset_if_older(self) -> None:
        (trouble,) = self.observed(2, 2)

        assert (trouble.severity, trouble.times, trouble.last_ns) == (Severity.MODERATE, 2, None)


class TestAnErrorThatIsReportedAgain:
    """As each block of a recording shows all that is known."""

    def test_came_when_it_was_reported_first(self) -> None:
        log = ErrorWatch()
        for count, at_s in ((1, 10), (1, 15), (2, 20), (2, 25)):
            details = GpuDetails(read_at_ns=0, ecc_uncorrected_errors=count)
            xids = ((31, count),)
            log.observe(GpuSample(device=device(), details=details, xid_errors=xids), s(at_s))

        assert log.errors == ErrorTimes(
            xid_last_ns=((31, s(20)),), memory_errors=2, memory_error_last_ns=s(20)
        )


class TestAThrottledGpu:
    def test_is_in_trouble_by_heat(self) -> None:
        (trouble,) = broken(fill=gpm_fill(0.9, held=0.4)).troubles

        assert (trouble.kind, trouble.severity) == (TroubleKind.THROTTLED, Severity.MODERATE)
        assert (trouble.reason, trouble.duration_ns) == ("hw_thermal_slowdown", s(48))
        assert " 40 % " in trouble.text

    @pytest.mark.parametrize("reason", sorted({*THROTTLE_REASONS.values()} - {*SLOWDOWNS}))
    def test_is_not_in_trouble_by_intended_limits(self, reason: str) -> None:
        fill = gpm_fill(0.9, held=0.9)

        assert (
            broken(fill=fill._replace(throttled_by_ns={reason: fill.throttled_ns})).troubles == ()
        )


class TestTheTimeBetweenTwoReports:
    def test_has_the_errors_that_came_in_it_or_since_their_count_restarted(self) -> None:
        before = report(broken(reported_troubles=reported((31, 2), (43, 5))))
        after = report(broken(reported_troubles=reported((31, 5), (43, 2), (79, 1))))

        (one,) = report_since(before, after).gpus

        assert [(trouble.code, trouble.times) for trouble in one.troubles] == [
            (79, 1), (31, 3), (43, 2),
        ]  # fmt: skip


class TestTheDocument:
    ONE = report(
        broken(
            error=LOST,
            fill=gpm_fill(0.9, held=0.4),
            reported_troubles=(
                *reported((31, 3), (79, 1)),
                *errors_of((), ErrorTimes((), 2, NOW_NS), NOW_NS),
                lost(LOST, last_ns=NOW_NS, index=0),
            ),
        ),
        gpu(60, index=1),
    )

    def test_has_each_in_typed_fields(self) -> None:
        troubles = encode_report(self.ONE)["gpus"][0]["troubles"]

        assert [one["kind"] for one in troubles] == ["lost", "xid", "ecc", "xid", "throttled"]
        assert troubles[1] == {
            "kind": "xid", "severity": "high", "code": 79, "reason": None, "count": 1,
            "seconds": None, "last_seen_at": "2025-06-14T03:46:28+00:00", "line": None,
            "began_at": None, "ended_at": None, "advice": xid_text(79).advice,
            "text": f"reported XID 79 ({xid_text(79).meaning})",
        }  # fmt: skip
        assert (troubles[4]["reason"], troubles[4]["seconds"]) == ("hw_thermal_slowdown", 48.0)

    def test_reads_back_to_the_same(self) -> None:
        document = encode_report(self.ONE)

        assert encode_report(decode_report(document)) == document

    def test_shows_a_lost_gpu_even_if_of_an_older_daemon(self) -> None:
        document = encode_report(self.ONE)
        for one in document["gpus"]:
            del one["troubles"]

        first, second = decode_report(document).gpus

        assert kinds(first) == [("lost", None), ("throttled", None)]
        assert second.troubles == ()

    @pytest.mark.parametrize(
        "damage",
        [{"kind": "bad luck"}, {"count": "many"}, {"last_seen_at": "now"}, {"severity": None}],
    )
    def test_is_refused_if_damaged(self, damage: dict[str, object]) -> None:
        document = encode_report(self.ONE)
        document["gpus"][0]["troubles"][1] |= damage

        with pytest.raises(UsageError, match=r"gpumon\.report/1"):
            decode_report(document)
