"""Specification of a report on GPUs that are under-filled, and on GPUs cut by MIG."""

from __future__ import annotations

from dataclasses import replace

from gpumon.core.documents.report_codec import decode_report, encode_report
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import GpuReport, Report
from gpumon.core.verdict import VerdictName
from gpumon.outlets.text.comparison import side_by_side
from gpumon.outlets.text.report_text import render_report
from tests.builders_fill import gpm_fill, power_fill
from tests.builders_report import gpu, report
from tests.unit.core.judge.test_fill_texts import filled
from tests.unit.outlets.report_lines import PLAIN

PARENT = replace(gpu(0.0), uuid="GPU-a", mig_enabled=True)


def part(number: int, busy_s: float = 0.0, idle_s: float = 0.0) -> GpuReport:
    """An instance of the parent."""
    idle = {IdleCause.UNKNOWN: idle_s} if idle_s else {}
    one = gpu(busy_s, idle, pauses=9 if idle_s else 0, suspected_s=idle_s)
    return replace(one, uuid=f"MIG-{number}", parent_uuid="GPU-a", mig_index=number)


def text(one: Report) -> str:
    """The report, unwrapped."""
    return " ".join(render_report(one, PLAIN).split())


class TestAnUnderFilledGpu:
    def test_stays_healthy_and_the_three_lines_say_so_all_the_same(self) -> None:
        one = report(filled(gpm_fill(0.24)))
        said = text(one)

        assert one.gpus[0].verdict.name is VerdictName.HEALTHY
        assert (
            "Verdict: Healthy, but under-filled: GPU 0 is busy 97 %, "
            "but on average 24 % of its multiprocessors have work." in said
        )
        assert "Why: It was idle for 3.0 s of 100.0 s in use (3.0 %)" in said
        assert "24 % of the multiprocessors had work" in said
        assert "Next: Give the GPU more to do at a time: first a larger batch" in said
        assert "times as fast" not in said

    def test_is_named_before_gpus_that_are_full(self) -> None:
        said = text(report(filled(gpm_fill(0.9)), filled(gpm_fill(0.24), index=1)))

        assert (
            "GPU 1 is busy 97 %, but on average 24 % of its multiprocessors have work. "
            "GPU 0 works well." in said
        )

    def test_is_told_after_a_real_loss(self) -> None:
        starved = gpu(50, {IdleCause.INPUT_WAIT: 50}, index=1)
        said = text(report(filled(power_fill(180.0)), starved))

        assert "Verdict: Starved (high loss): GPU 1 waits for input" in said
        assert "After that: - GPU 0 is busy 97 %, but power 180 of 700 W suggests" in said

    def test_leaves_a_full_one_in_peace(self) -> None:
        said = text(report(filled(gpm_fill(0.9))))

        assert "Verdict: Healthy: GPU 0 works well." in said
        assert "Next: Nothing needs to change." in said
        assert "While it was busy: 90 % of the multiprocessors had work" in said

    def test_that_was_watched_too_shortly_is_shown_and_said_not_to_be_judged(self) -> None:
        short, long = (text(report(filled(gpm_fill(0.24, seconds=s)))) for s in (12.0, 60.0))

        assert "Verdict: Healthy: GPU 0 works well." in short
        assert "24 % of the multiprocessors had work" in short
        assert "Less than 60 s of that is too short to judge it by." in short
        assert "too short to judge" not in long

    def test_is_not_what_a_throttled_one_is(self) -> None:
        said = text(report(filled(power_fill(180.0, held=0.8))))

        assert "Verdict: GPU in trouble: GPU 0 had the clocks held down 80 % of the busy" in said
        assert "Its clocks were held down 80 % of its busy time by heat" in said
        assert "under-filled" not in said

    def test_that_is_hot_is_told_where_to_look_and_not_that_nothing_needs_to_change(self) -> None:
        said = text(report(filled(gpm_fill(0.9, held=0.8))))

        assert "Next: GPU 0: look at its fans and filters, and at the air it gets." in said
        assert "Healthy" not in said
        assert "After that:" not in said

    def test_at_its_power_limit_is_as_it_should_be(self) -> None:
        busy = gpm_fill(0.9, held=0.8)
        limited = busy._replace(held_by_ns={"sw_power_cap": busy.held_ns})

        assert "Next: Nothing needs to change." in text(report(filled(limited)))

    def test_that_is_hot_is_told_after_a_real_loss(self) -> None:
        starved = gpu(50, {IdleCause.INPUT_WAIT: 50}, index=1)
        many = [replace(gpu(50), index=number) for number in range(2, 7)]
        said = text(report(filled(gpm_fill(0.9, held=0.8)), starved, *many))

        assert said.startswith("Verdict: Starved (high loss): GPU 1 waits for input")
        assert "GPU 0 had the clocks held down 80 % of the busy time by heat" in said
        assert "What to do: look at its fans and filters, and at the air it gets." in said

    def test_can_be_compared_with_what_it_became(self) -> None:
        before, after = report(filled(gpm_fill(0.24))), report(filled(gpm_fill(0.9)))

        compared = " ".join(side_by_side(before, after, PLAIN).split())

        assert "before: Healthy, but under-filled: GPU 0 is busy 97 %" in compared
        assert "The advice on" not in compared


class TestTheDocument:
    def test_tells_ratios_and_what_they_rest_on(self) -> None:
        (told,) = encode_report(report(filled(gpm_fill(0.24))))["gpus"]

        assert told["fill"]["evidence"] == "gpm"
        assert told["fill"]["observed_seconds"] == 120.0
        assert told["fill"]["sm_active_ratio"] == 0.24
        assert told["fill"]["under_filled"] is True
        assert told["fill"]["held_down"] is False
        assert told["verdict"] == "healthy"

    def test_has_nothing_but_nulls_where_nothing_is_known(self) -> None:
        (told,) = encode_report(report(filled(None)))["gpus"]

        assert told["fill"]["evidence"] is None
        assert told["fill"]["sm_active_ratio"] is None
        assert told["fill"]["power_ratio"] is None
        assert told["fill"]["under_filled"] is False

    def test_reads_back_to_the_same_words(self) -> None:
        for fill in (None, gpm_fill(0.24), power_fill(180.0), gpm_fill(0.24, held=0.7)):
            one = report(filled(fill), PARENT, part(0, 80.0, 20.0))

            assert text(decode_report(encode_report(one))) == text(one)

    def test_of_an_older_daemon_is_read_too(self) -> None:
        document = encode_report(report(filled(None)))
        for name in ("fill", "label", "mig_enabled", "parent_uuid", "mig_index"):
            del document["gpus"][0][name]

        assert decode_report(document).gpus[0].fill is None

    def test_tells_who_is_part_of_whom(self) -> None:
        parent, first = encode_report(report(PARENT, part(1, 80.0)))["gpus"]

        assert (parent["label"], parent["mig_enabled"]) == ("0", True)
        assert (first["label"], first["parent_uuid"]) == ("0:1", "GPU-a")
        assert first["index"] == 0

    def test_claims_no_coverage_of_what_does_not_tell(self) -> None:
        parent, mute, told = encode_report(report(PARENT, part(0), part(1, 80.0)))["gpus"]

        assert (parent["coverage_ratio"], mute["coverage_ratio"]) == (0.0, 0.0)
        assert told["coverage_ratio"] == 1.0


class TestAGpuCutByMig:
    def test_is_no_idle_gpu_and_has_no_part_in_the_verdict(self) -> None:
        one = report(PARENT, part(0, 97.0), part(1, 60.0, 40.0))
        said = text(one)

        assert "Verdict: Starvation suspected (high loss): GPU 0:1 loses 40 % of its time" in said
        assert "GPU 0:0 is healthy" in said
        assert "GPU 0, NVIDIA A40: MIG is on: its instances are below." in said
        assert "not in use" not in said
        assert [advice.cause for advice in one.advice] == ["unknown"]

    def test_without_an_instance_says_so(self) -> None:
        said = text(report(PARENT))

        assert "Verdict: Unknown: MIG is on, on GPU 0, without an instance." in said
        assert "MIG is on, and no instance is made: nothing can run on it." in said
        assert "nothing to do" not in said

    def test_that_is_lost_is_a_lost_gpu(self) -> None:
        said = text(report(replace(PARENT, error="GPU is lost"), part(0, 97.0)))

        assert "GPU lost: GPU 0 cannot be read." in said

    def test_keeps_what_it_did_before_it_was_cut(self) -> None:
        earlier = replace(gpu(50.0), uuid="GPU-a", mig_enabled=True)
        said = text(report(earlier, part(0, 97.0)))

        assert "MIG is on: its instances are below. GPU 0, NVIDIA A40: in use for 50.0 s" in said


class TestAnInstanceThatIsNoLongerThere:
    def test_keeps_its_time_and_is_not_offered_work(self) -> None:
        gone = replace(part(0, 97.0), listed=False)
        unused = replace(part(1, 5.0), listed=False)
        one = report(PARENT, gone, unused)

        assert one.advice == ()
        assert "GPU 0:0, NVIDIA A40: in use for 97.0 s" in text(one)
        assert [gpu.listed for gpu in decode_report(encode_report(one)).gpus] == [
            True, False, False,
        ]  # fmt: skip


class TestAnInstanceThatDoesNotTell:
    def test_is_unknown_and_not_idle(self) -> None:
        one = report(PARENT, part(0), part(1))
        said = text(one)

        assert "Verdict: Unknown: GPU 0:0 and GPU 0:1 do not tell how busy they are." in said
        assert "how busy it is is not known. A board tells that of a MIG instance by GPM" in said
        assert "nothing to do" not in said
        assert one.advice == ()

    def test_leaves_the_verdict_to_those_that_do(self) -> None:
        said = text(report(PARENT, part(0), part(1, 97.0)))

        assert "Verdict: Healthy: GPU 0:1 works well." in said

    def test_is_one_line_of_a_long_table(self) -> None:
        many = [replace(gpu(97.0, index=at), uuid=f"GPU-{at}") for at in range(1, 7)]
        said = text(report(PARENT, part(0), *many))

        assert "0 MIG is on: its instances are below. 0:0 how busy it is is not known." in said
