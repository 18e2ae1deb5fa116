"""Specification of what is said before two reports are held against each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.judge.unlike import unlike
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import GpuReport, Report, sampling_of
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from tests.builders_report import gpu, report, run
from tests.builders_time import s

WAIT = IdleCause.INPUT_WAIT
TWO = (gpu(30, {WAIT: 30}), gpu(30, {WAIT: 30}, index=1))


def of(*gpus: GpuReport, name: str | None = "A100", **changes: object) -> Report:
    """A report of real GPUs of that name by a running daemon."""
    one = report(*(replace(gpu, name=name) for gpu in gpus), runs=(run(),))
    return replace(one, simulated=False, source="nvml", **changes)  # type: ignore[arg-type]


def said(before: Report, after: Report) -> str:
    return " ".join(one.text for one in unlike(before, after))


def spoils_speed(before: Report, after: Report) -> bool:
    return any(one.of_work for one in unlike(before, after))


class TestAlike:
    def test_reports_of_one_machine_and_one_kind_have_nothing_said_of_them(self) -> None:
        assert unlike(of(*TWO), of(*TWO)) == ()

    def test_so_have_those_of_one_work_that_became_much_faster(self) -> None:
        slow = of(gpu(30, {WAIT: 300}))

        assert unlike(slow, of(gpu(30))) == ()

    @pytest.mark.parametrize(("steps", "are_of_one_work"), [(525, True), (530, False)])
    def test_of_one_work_are_those_whose_steps_differ_by_a_twentieth_at_most(
        self, steps: int, are_of_one_work: bool
    ) -> None:
        slow, fast = (
            replace(of(gpu(busy_s, {WAIT: wait_s})), runs=(run(steps=steps_done),))
            for busy_s, wait_s, steps_done in ((30, 300, 500), (30, 0, steps))
        )

        assert (unlike(slow, fast) == ()) == are_of_one_work


class TestOtherMachines:
    def test_are_named_with_the_number_of_their_gpus(self) -> None:
        eight = of(*(gpu(60, index=at) for at in range(8)), name="H100")

        assert said(of(*TWO), eight).startswith(
            "These are different machines: 2 \N{MULTIPLICATION SIGN} A100 against "
            "8 \N{MULTIPLICATION SIGN} H100. Compare shares of the time"
        )
        assert spoils_speed(of(*TWO), eight)

    def test_are_those_with_as_many_gpus_of_another_model(self) -> None:
        assert "2 \N{MULTIPLICATION SIGN} A100 against 2 \N{MULTIPLICATION SIGN} H100" in said(
            of(*TWO), of(*TWO, name="H100")
        )

    def test_are_not_assumed_where_a_log_does_not_name_its_gpus(self) -> None:
        assert unlike(of(*TWO), of(*TWO, name=None)) == ()

    def test_have_a_name_where_no_model_is_known(self) -> None:
        assert "1 GPU against 2 GPUs" in said(of(TWO[0], name=None), of(*TWO, name=None))

    def test_are_simulated_ones_and_real_ones(self) -> None:
        made_up = replace(of(*TWO), simulated=True, source="follow:spans.jsonl")

        assert "2 \N{MULTIPLICATION SIGN} A100 (simulated) against 2 " in said(made_up, of(*TWO))

    def test_are_two_simulations(self) -> None:
        one, other = (
            replace(of(*TWO, name=f"Simulated GPU ({script})"), simulated=True)
            for script in ("input-bound", "healthy")
        )

        assert said(one, other).startswith(
            "These are different simulations: 2 \N{MULTIPLICATION SIGN} Simulated GPU "
            "(input-bound) against 2 \N{MULTIPLICATION SIGN} Simulated GPU (healthy)."
        )
        assert spoils_speed(one, other)

    def test_are_not_two_sources_of_one_simulated_gpu(self) -> None:
        one, other = (
            replace(of(*TWO), simulated=True, source=source)
            for source in ("simulated:healthy", "replay:night.gpumon")
        )

        assert unlike(one, other) == ()

    @pytest.mark.parametrize(
        ("idle", "sentence"),
        [("one", "2 GPUs worked in the first, 1 GPU in the second"),
         ("both", "No GPU worked to speak of in the second: no gain can be told")],
    )  # fmt: skip
    def test_are_those_of_which_another_number_of_gpus_worked(
        self, idle: str, sentence: str
    ) -> None:
        out = gpu(0, {IdleCause.NOT_IN_USE: 60}, index=1)
        after = of(TWO[0] if idle == "one" else replace(out, index=0), out)

        assert sentence in said(of(*TWO), after)
        assert spoils_speed(of(*TWO), after)


class TestOtherWaysToLook:
    def test_a_recording_and_a_daemon_are_counted_alike(self) -> None:
        assert said(replace(of(*TWO), replayed=True), of(*TWO)) == (
            "The first is of a recording, the second of a running daemon; they are counted alike."
        )

    def test_a_log_knows_no_cause(self) -> None:
        log = replace(of(*TWO), sampling=sampling_of(s(1), DEFAULT_SETTINGS))

        assert "the second of a log: of a log no cause is known" in said(of(*TWO), log)

    def test_a_coarser_period_hides_pauses(self) -> None:
        assert said(of(*TWO), of(*TWO, period_ns=s(30))) == (
            "The first has a sample every 1 s, the second every 30 s: the coarser one hides "
            "short pauses."
        )


class TestOtherWork:
    def test_of_another_length_has_no_seconds_to_compare(self) -> None:
        night = replace(of(gpu(20_000, {WAIT: 20_000})), runs=())

        assert said(of(gpu(30, {WAIT: 30})), night) == (
            "The first was in use for 60.0 s, the second for 40,000.0 s: compare shares of the "
            "time, not seconds."
        )
        assert not spoils_speed(of(gpu(30, {WAIT: 30})), night)

    def test_in_other_steps_has_samples_to_compare(self) -> None:
        one, other = (
            replace(of(*TWO), runs=(replace(run(steps=500), samples=samples),))
            for samples in (128_000, 256_250)
        )

        assert said(one, other) == (
            "A step of train is 256 samples in the first, 512.5 in the second: compare samples "
            "a second, not steps."
        )

    def test_in_other_steps_of_many_ranks_is_one_sentence(self) -> None:
        one, other = (
            replace(
                of(*TWO),
                runs=tuple(
                    replace(run(steps=500), run=f"a-r{rank}", samples=500 * size)
                    for rank in range(8)
                ),
            )
            for size in (256, 512)
        )

        assert len(unlike(one, other)) == 1
        assert "and so for 7 more" in said(one, other)
