"""Specification of the status of a GPU, and of the order of need."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.accounting.totals import NowVerdict
from gpumon.core.clock import NS_PER_S
from gpumon.core.device.idle_holder import HeldGpu
from gpumon.core.device.troubles import Trouble, TroubleKind, lost
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import GpuReport
from gpumon.core.verdict import Severity, VerdictName
from gpumon.core.view.status import Need, NeedOrder, Standing, Tone, status_of
from tests.builders.report import MIG_PARENT, gpu, mig_part
from tests.builders.time import s

WAIT, SAVE, NOT_IN_USE = IdleCause.INPUT_WAIT, IdleCause.CHECKPOINT, IdleCause.NOT_IN_USE
STARVED, WELL, UNUSED = gpu(60, {WAIT: 40}), gpu(100), gpu(0, {NOT_IN_USE: 100})
HELD = replace(UNUSED, held=HeldGpu(7, "alice", "python", 1 << 30, s(3)))
XID = Trouble(TroubleKind.XID, Severity.HIGH, "had XID 48", "reset it", code=48)
HOT = Trouble(TroubleKind.THROTTLED, Severity.MODERATE, "is throttled", "cool it")


def troubled(one: GpuReport, *troubles: Trouble) -> GpuReport:
    return replace(one, reported_troubles=troubles)


def at_present(one: GpuReport, name: VerdictName) -> GpuReport:
    return replace(one, now=NowVerdict(name, s(1), one.totals, one.verdict))


class TestTheStatus:
    @pytest.mark.parametrize(
        ("one", "word", "tone"),
        [
            (STARVED, "starved", Tone.BAD),
            (gpu(60, {SAVE: 40}), "stalled", Tone.WARN),
            (WELL, "healthy", Tone.GOOD),
            (UNUSED, "not in use", Tone.QUIET),
            (HELD, "held idle", Tone.WARN),
            (troubled(STARVED, lost("GPU is lost: reboot")), "lost", Tone.BAD),
            (troubled(STARVED, XID), "XID 48", Tone.BAD),
            (troubled(WELL, HOT), "throttled", Tone.WARN),
            (troubled(STARVED, HOT), "starved", Tone.BAD),
            (at_present(STARVED, VerdictName.HEALTHY), "healthy", Tone.GOOD),
            (at_present(WELL, VerdictName.HANGING), "hanging", Tone.BAD),
            (replace(WELL, listed=False), "gone", Tone.QUIET),
            (MIG_PARENT, "MIG on", Tone.QUIET),
            (mig_part(1), "no data", Tone.QUIET),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_is_the_worst_that_is_known(self, one: GpuReport, word: str, tone: Tone) -> None:
        found = status_of(one)

        assert (found.word, found.tone) == (word, tone)

    def test_is_distinct_without_colour(self) -> None:
        verdicts = [at_present(WELL, name) for name in VerdictName]
        others = [HELD, troubled(WELL, lost("x: y")), troubled(WELL, HOT), MIG_PARENT]

        found = [status_of(one) for one in (*verdicts, *others)]

        assert all(len(one.shape) == 1 and one.word for one in found)
        by_shape: dict[str, set[Tone]] = {}
        for one in found:
            by_shape.setdefault(one.shape, set()).add(one.tone)
        assert all(len(tones) == 1 for tones in by_shape.values()), by_shape


def standing(key: str, need: Need, lost_s: float = 0.0, family: str = "") -> Standing:
    return Standing(key, family or key, need, s(lost_s))


class TestTheOrder:
    def test_has_the_worst_first_then_the_number(self) -> None:
        gpus = [
            standing("0", Need.WELL),
            standing("1", Need.LOSING, 10),
            standing("2", Need.BROKEN),
            standing("3", Need.LOSING, 40),
            standing("4", Need.NOTED),
            standing("5", Need.WELL),
        ]

        assert NeedOrder().places(gpus, 0) == [2, 3, 1, 4, 0, 5]

    def test_keeps_an_instance_beside_its_board(self) -> None:
        gpus = [
            standing("a", Need.WELL),
            standing("b", Need.QUIET),
            standing("b0", Need.LOSING, 5, family="b"),
        ]

        assert NeedOrder().places(gpus, 0) == [1, 2, 0]

    def test_moves_a_gpu_up_at_once_and_down_only_after_ten_seconds(self) -> None:
        order, well = NeedOrder(), [standing("0", Need.WELL), standing("1", Need.WELL)]
        worse = [well[0], standing("1", Need.LOSING, 1)]

        places = [order.places(gpus, at * NS_PER_S) for at, gpus in (
            (0, well), (1, worse), (2, well), (11, well), (13, well)
        )]  # fmt: skip

        assert places == [[0, 1], [1, 0], [1, 0], [1, 0], [0, 1]]

    def test_does_not_swap_two_that_lose_nearly_the_same(self) -> None:
        order = NeedOrder()

        def places(first_s: float, second_s: float) -> list[int]:
            gpus = [standing("0", Need.LOSING, first_s), standing("1", Need.LOSING, second_s)]
            return order.places(gpus, 0)

        assert [places(10, 9), places(10, 11), places(10, 12.6)] == [[0, 1], [0, 1], [1, 0]]
