"""Specification of what is said before two reports are held against each other.

Its words are in ``tests/golden``.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.diagnosis.unlike import unlike
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import GpuReport, Report, RunReport, sampling_of
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from tests.builders.report import gpu, report, run
from tests.builders.time import s

WAIT = IdleCause.INPUT_WAIT
TWO = (gpu(30, {WAIT: 30}), gpu(30, {WAIT: 30}, index=1))
IDLE = gpu(0, {IdleCause.NOT_IN_USE: 60}, index=1)


def of(*gpus: GpuReport, name: str | None = "A100", runs: tuple[RunReport, ...] = ()) -> Report:
    """A report of real GPUs of that name by a running daemon."""
    one = report(*(replace(gpu, name=name) for gpu in gpus), runs=runs or (run(),))
    return replace(one, simulated=False, source="nvml")


def simulated(script: str = "healthy", source: str = "simulated:healthy") -> Report:
    one = of(*TWO, name=f"Simulated GPU ({script})")
    return replace(one, simulated=True, source=source)


def spoils(before: Report, after: Report) -> list[str]:
    """For each thing in which they are unlike, what it spoils."""
    return [
        "speed" if one.of_work else "seconds" if one.of_length else "nothing"
        for one in unlike(before, after)
    ]


class TestAlike:
    @pytest.mark.parametrize(
        ("before", "after"),
        [
            (of(*TWO), of(*TWO)),
            (of(gpu(30, {WAIT: 300})), of(gpu(30))),
            (of(*TWO), of(*TWO, name=None)),
            (simulated(), simulated(source="replay:night.gpumon")),
        ],
        ids=[
            "machines and kinds", "one work that became much faster",
            "a log that does not name its GPUs", "two sources of one simulated GPU",
        ],
    )  # fmt: skip
    def test_is_nothing_to_speak_of(self, before: Report, after: Report) -> None:
        assert unlike(before, after) == ()

    @pytest.mark.parametrize(("steps", "are_of_one_work"), [(525, True), (530, False)])
    def test_of_one_work_are_those_whose_steps_differ_by_a_twentieth_at_most(
        self, steps: int, are_of_one_work: bool
    ) -> None:
        slow = of(gpu(30, {WAIT: 300}), runs=(run(steps=500),))
        fast = of(gpu(30, {WAIT: 0}), runs=(run(steps=steps),))

        assert (unlike(slow, fast) == ()) == are_of_one_work


class TestOtherMachines:
    @pytest.mark.parametrize(
        ("before", "after"),
        [
            (of(*TWO), of(*(gpu(60, index=at) for at in range(8)), name="H100")),
            (of(*TWO), of(*TWO, name="H100")),
            (of(TWO[0], name=None), of(*TWO, name=None)),
            (replace(of(*TWO), simulated=True, source="follow:spans.jsonl"), of(*TWO)),
            (simulated("input-bound"), simulated("healthy")),
            (of(*TWO), of(TWO[0], IDLE)),
            (of(*TWO), of(replace(IDLE, index=0), IDLE)),
        ],
        ids=["eight", "another model", "more of none", "real ones", "simulations", "one works",
             "none works"],
    )  # fmt: skip
    def test_spoil_every_speed(self, before: Report, after: Report) -> None:
        assert spoils(before, after)[0] == "speed"


class TestOtherWaysToLook:
    @pytest.mark.parametrize(
        "before",
        [
            replace(of(*TWO), replayed=True),
            replace(of(*TWO), sampling=sampling_of(s(1), DEFAULT_SETTINGS)),
            replace(of(*TWO), period_ns=s(30)),
        ],
        ids=["a recording", "a log", "a coarser period"],
    )
    def test_spoil_nothing_and_are_told(self, before: Report) -> None:
        assert spoils(before, of(*TWO)) == ["nothing"]


class TestOtherWork:
    def test_of_another_length_has_no_seconds_to_compare(self) -> None:
        night = replace(of(gpu(20_000, {WAIT: 20_000})), runs=())

        assert spoils(of(gpu(30, {WAIT: 30})), night) == ["seconds"]

    @pytest.mark.parametrize("ranks", [1, 8])
    def test_in_other_steps_is_told_once_for_all_ranks(self, ranks: int) -> None:
        one, other = (
            of(*TWO, runs=tuple(
                replace(run(), run=f"a-r{rank}", samples=500 * size) for rank in range(ranks)
            ))
            for size in (256, 512)
        )  # fmt: skip

        assert spoils(one, other) == ["nothing"]
