"""Reports on small machines, pinned word for word, from one line to the entire text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpumon.core.accounting.totals import GapTotals
from gpumon.core.device.troubles import lost, vanished
from gpumon.core.diagnosis.log_findings import log_findings
from gpumon.core.log_summary.common_pauses import Together
from gpumon.core.log_summary.held_memory import HeldMemory
from gpumon.core.phase import IdleCause, InputWaitReason, TrainingPhase
from gpumon.core.report.report import GpuReport, Report, RunReport, sampling_of
from gpumon.core.ring_format.silence import RunSilence
from gpumon.core.waits.reasons import WaitReason
from gpumon.core.waits.wait_rules import ShortOf
from gpumon.outlets.text.report_lines import levels_lines
from gpumon.outlets.text.report_text import render_report
from gpumon.outlets.text.style import wrapped
from tests.builders.cycles import waits_of_a_person
from tests.builders.logs import LATE, TEMPTING, analysed, smi_log
from tests.builders.report import (
    MIG_PARENT,
    filled,
    gpm_fill,
    gpu,
    mig_part,
    power_fill,
    report,
    run,
    shared_run,
    wait,
    with_totals,
)
from tests.builders.time import s
from tests.golden_files import Chapters, golden_story
from tests.unit.core.device.test_troubles import LOST, reported
from tests.unit.outlets.report_lines import PLAIN, STARVED

WAIT, UNKNOWN, SAVE = IdleCause.INPUT_WAIT, IdleCause.UNKNOWN, IdleCause.CHECKPOINT
NOT_IN_USE = IdleCause.NOT_IN_USE
CPU, GIL, DISK, NO_REASON = (
    InputWaitReason.CPU_BOUND, InputWaitReason.GIL_BOUND, InputWaitReason.DISK_BOUND,
    InputWaitReason.UNKNOWN,
)  # fmt: skip
HELD_STEP = wait(GIL, tasks=2, wanted=1.3, given=1.0, cause=IdleCause.WITHIN_STEP)
TWO_GPUS_OF_A_LOG = replace(
    report(gpu(30, {UNKNOWN: 30}, suspected_s=30, pauses=20), gpu(58.2, {UNKNOWN: 1.8}, index=1)),
    skipped_lines=3,
    notes=("The log has no time stamps: 1 s a row (assumed).",),
)


def full_text(one: Report) -> str:
    return render_report(one, PLAIN)


def blocks(one: Report) -> list[str]:
    """What stands between two empty lines."""
    return full_text(one).rstrip("\n").split("\n\n")


def three_lines(*gpus: GpuReport, runs: tuple[RunReport, ...] = ()) -> str:
    """How bad it is, why, and what to do next."""
    return blocks(report(*gpus, runs=runs))[0]


def only(beginning: str, one: Report) -> str:
    """The blocks that begin so."""
    return "\n\n".join(block for block in blocks(one) if block.startswith(beginning))


@golden_story
def test_headlines() -> Chapters:
    nowhere = replace(run(), gpu_uuids=())
    coming = RunSilence(s(5), TrainingPhase.INPUT_WAIT, s(360), is_first_batch=True)

    def why_late(why: WaitReason) -> str:
        late = with_totals(gpu(40, {WAIT: 20}), input_wait_by_reason_ns={why.reason: s(20)})
        return three_lines(late, runs=(replace(run(workers=4), reasons=(why,)),))

    def first_batch(one: GpuReport) -> GpuReport:
        return with_totals(one, first_input_wait_ns=s(30))

    restless = with_totals(gpu(60, {UNKNOWN: 40}, suspected_s=30, pauses=20), irregular_ns=s(10))
    briefly, idle = gpu(3, {NOT_IN_USE: 7}), gpu(0, {NOT_IN_USE: 10}, index=1)
    over, going_on = (replace(run(), alive=alive) for alive in (False, True))
    works, unused = gpu(1800, index=1), gpu(0, {NOT_IN_USE: 1800}, index=2)
    return {
        "a wait for input that tags prove": blocks(STARVED)[0],
        "a wait for input, because of too few cores": why_late(
            wait(CPU, tasks=4, wanted=4.0, given=2.0, usable=2, short_of=ShortOf.CORES)
        ),
        "a wait for input, because of a disk": why_late(
            wait(DISK, tasks=1, wanted=0.2, given=0.2, read=486e6, disk_busy=0.92)
        ),
        "a step that threads with the GIL delay": three_lines(
            with_totals(
                gpu(40, {IdleCause.WITHIN_STEP: 20}), within_step_by_reason_ns={GIL: s(15)}
            ),
            runs=(replace(run(workers=2), reasons=(HELD_STEP,)),),
        ),
        "another cause that they prove": three_lines(gpu(40, {SAVE: 20})),
        "a suspicion": three_lines(gpu(40, {UNKNOWN: 20}, suspected_s=18, pauses=9)),
        "a proved wait and a suspicion": three_lines(
            gpu(80, {WAIT: 12, UNKNOWN: 8}, suspected_s=8, pauses=9)
        ),
        "a proved wait and a greater loss": three_lines(gpu(40, {WAIT: 15, SAVE: 20})),
        "a proved wait and more unexplained time": three_lines(gpu(20, {UNKNOWN: 25, WAIT: 18})),
        "a proved cause and more unexplained time": three_lines(gpu(83, {UNKNOWN: 9, SAVE: 8})),
        "tags that explain too little": three_lines(gpu(40, {UNKNOWN: 57, WAIT: 3})),
        "a level": three_lines(gpu(20, {UNKNOWN: 40})),
        "a level and some pauses": three_lines(
            with_totals(
                gpu(20, {UNKNOWN: 40}, suspected_s=2),
                pauses=GapTotals(count=4, total_ns=s(2), longest_ns=s(0.9), p50_ns=s(0.5)),
            )
        ),
        "two pauses": three_lines(
            with_totals(
                gpu(20, {UNKNOWN: 40}),
                pauses=GapTotals(count=2, total_ns=s(40), longest_ns=s(22), p50_ns=s(20)),
            )
        ),
        "pauses, some of them without a rhythm": three_lines(restless),
        "a first batch and checkpoints": three_lines(first_batch(gpu(50, {WAIT: 30, SAVE: 10}))),
        "a first batch and nothing else": three_lines(first_batch(gpu(60, {WAIT: 30}))),
        "a healthy GPU": three_lines(gpu(98, {UNKNOWN: 2})),
        "a GPU without work": three_lines(gpu(0, {NOT_IN_USE: 60})),
        "GPUs that were watched for 3 s": three_lines(gpu(0, {NOT_IN_USE: 3}), gpu(0, {}, index=1)),
        "a GPU that worked for 1 s": three_lines(gpu(1, {NOT_IN_USE: 5})),
        "8 s of use, partly explained by tags": three_lines(gpu(5, {WAIT: 3})),
        "the same in a longer time": three_lines(gpu(5, {WAIT: 3, NOT_IN_USE: 92})),
        "3 s of a run that is over": three_lines(briefly, runs=(over,)),
        "3 s of a run that goes on": three_lines(briefly, runs=(going_on,)),
        "3 s on one GPU, and an idle GPU": three_lines(briefly, idle, runs=(over,)),
        "a GPU that works, one that worked for 8 s, and an idle one": three_lines(
            gpu(6, {UNKNOWN: 2}), works, unused
        ),
        "three GPUs, the second loses most": three_lines(
            gpu(58, {UNKNOWN: 2}), gpu(40, {WAIT: 20}, index=1), gpu(50, {SAVE: 10}, index=2)
        ),
        "no GPU, but a run": three_lines(runs=(nowhere,)),
        "no GPU, but a run that computes on the CPU": three_lines(
            runs=(replace(nowhere, on_cpu=True),)
        ),
        "no GPU, but a run that waits for its first batch": three_lines(
            runs=(replace(nowhere, steps=0, silence=coming),)
        ),
        "no GPU, but a run that hangs there": three_lines(
            runs=(replace(nowhere, steps=0, silence=coming._replace(hanging_from_ns=s(300))),)
        ),
        "no GPU": three_lines(),
    }


@golden_story
def test_headlines_of_pauses() -> Chapters:
    """Of logs: bursts and pauses of so many seconds in turn, and nothing that says why."""

    def after(*cycles_s: tuple[int, int], period_s: float = 1.0) -> str:
        rows = [level for burst, pause in cycles_s for level in [96] * burst + [0] * pause]
        return blocks(analysed(smi_log([*rows, 96], period_s)))[0]

    cells = [(2, round(wait_s)) for wait_s in waits_of_a_person(150)]
    return {
        "as a person makes": after(*cells),
        "hardly ever at work": blocks(analysed(smi_log([0, 9, 0, 19, 0, 0, 16, 0, 2, 0, 11] * 20)))[
            0
        ],
        "of half a minute": after(*[(69, 28)] * 45),
        "of ten seconds, and few": after(*[(50, 10)] * 5, (50, 0)),
        "of a quarter of a minute, and few": after(*[(60, 15)] * 6, (30, 15)),
        "of a minute, and two": after((30, 55), (40, 58)),
        "one of them split by a blip": after((30, 30), (20, 25), (1, 25)),
        "of one sample a minute": after(*[(3, 1)] * 30, period_s=60.0),
        "of twenty minutes": after(*((2 + 3 * (at % 4), 11) for at in range(10)), period_s=120.0),
        "like a clock": after(*[(120, 12)] * 20),
        "like a clock that is early at times": after(*[(120, 12), (60, 12)] * 10),
        "every few seconds": after(*[(5, 3)] * 40),
        **{what: blocks(analysed(smi_log(rows)))[0] for what, rows in TEMPTING.items()},
        "a loader that is late": blocks(analysed(smi_log(LATE)))[0],
    }


@golden_story
def test_headlines_of_gpus_in_trouble() -> Chapters:
    def printed(*gpus: GpuReport) -> str:
        one = replace(report(*gpus), origin_ns=0)
        return "\n\n".join(
            filter(None, [blocks(one)[0], only("In trouble", one), only("Earlier trouble", one)])
        )

    def with_xid(*xids: tuple[int, int], index: int = 0, ago_s: float = 5.0) -> GpuReport:
        troubles = reported(*xids, ago_s=ago_s)
        return replace(gpu(98, {UNKNOWN: 2}, index=index), reported_troubles=troubles)

    well, starved = gpu(98, {UNKNOWN: 2}, index=1), gpu(40, {WAIT: 20})
    gone = replace(gpu(60, index=1), listed=False, reported_troubles=(vanished(index=1),))
    hot = filled(gpm_fill(0.9, held=0.8))
    return {
        "XID 79 of one that still answers": printed(with_xid((79, 2))),
        "the same, and another GPU is healthy": printed(with_xid((79, 2)), well),
        "the same, and another GPU loses time": printed(starved, with_xid((79, 1), index=1)),
        "the same, two days ago": printed(with_xid((79, 1), ago_s=2 * 24 * 3600)),
        "an error of a program": printed(with_xid((31, 14))),
        "an error of a program, and another GPU loses time": printed(
            starved, with_xid((31, 14), index=1)
        ),
        "six are lost for the same reason": printed(
            *(replace(gpu(98, index=at), error=LOST) for at in range(6)), gpu(60, index=6)
        ),
        "the only one is lost": printed(replace(starved, error=LOST)),
        "one is lost, and the driver gave no error code": printed(
            gpu(600), replace(gpu(3, index=1), error="GPU is lost")
        ),
        "one vanished": printed(gpu(98, {UNKNOWN: 2}), gone),
        "one is hot": printed(hot),
        "one is hot, and another loses time": printed(hot, gpu(50, {WAIT: 50}, index=1)),
    }


@golden_story
def test_report_in_trouble() -> Chapters:
    """Rows of a long table, and the table of a lost GPU, name the trouble."""
    eight = [gpu(98, {UNKNOWN: 2.0}, index=index) for index in range(8)]
    troubles = (*reported((79, 1)), lost(LOST, last_ns=s(99_990), index=5))
    eight[0] = replace(eight[0], reported_troubles=reported((79, 1)))
    suspected = gpu(40, {UNKNOWN: 20}, index=1, suspected_s=20, pauses=9)
    eight[1] = replace(suspected, reported_troubles=reported((154, 1)))
    eight[5] = replace(eight[5], error=LOST, reported_troubles=troubles)
    eight[7] = replace(gpu(0, index=7), mig_enabled=True, reported_troubles=reported((48, 1)))
    alone = replace(report(replace(gpu(60), error=LOST)), notes=(f"GPU 0: {LOST}", "Else."))
    return {
        "one of eight fell off the bus": full_text(replace(report(*eight), origin_ns=0)),
        "the only one is lost, and a note says so, too": full_text(alone),
    }


@golden_story
def test_report_on_full_gpus() -> Chapters:
    def printed(*gpus: GpuReport) -> str:
        return full_text(report(*gpus))

    at_limit = gpm_fill(0.9, held=0.8)
    return {
        "a quarter of it works": printed(filled(gpm_fill(0.24))),
        "the same in twelve seconds": printed(filled(gpm_fill(0.24, seconds=12.0))),
        "another one is full": printed(filled(gpm_fill(0.9)), filled(gpm_fill(0.24), index=1)),
        "another one loses time": printed(filled(power_fill(180.0)), gpu(50, {WAIT: 50}, index=1)),
        "heat holds it down": printed(filled(power_fill(180.0, held=0.8))),
        "its power limit does": printed(
            filled(at_limit._replace(throttled_by_ns={"sw_power_cap": at_limit.throttled_ns}))
        ),
    }


@golden_story
def test_report_on_mig() -> Chapters:
    def printed(*gpus: GpuReport) -> str:
        return full_text(report(*gpus))

    earlier = replace(gpu(50.0), uuid="GPU-a", mig_enabled=True)
    five = (replace(gpu(97.0, index=at), uuid=f"GPU-{at}") for at in range(1, 7))
    return {
        "two instances": printed(MIG_PARENT, mig_part(0, 97.0), mig_part(1, 60.0, 40.0)),
        "no instance": printed(MIG_PARENT),
        "two without utilisation data": printed(MIG_PARENT, mig_part(0), mig_part(1)),
        "one without, one with utilisation data": printed(
            MIG_PARENT, mig_part(0), mig_part(1, 97.0)
        ),
        "an instance that is gone": printed(MIG_PARENT, replace(mig_part(0, 97.0), listed=False)),
        "the GPU is lost": printed(replace(MIG_PARENT, error="GPU is lost"), mig_part(0, 97.0)),
        "time before MIG was turned on": printed(earlier, mig_part(0, 97.0)),
        "with many other GPUs": printed(MIG_PARENT, mig_part(0), *five),
    }


@golden_story
def test_report_of_gpus() -> Chapters:
    near_a_limit, short = gpu(9_500.1, {UNKNOWN: 499.9}), gpu(4, index=1)
    idle, late = gpu(0.0, {NOT_IN_USE: 40}, index=2), gpu(40, {WAIT: 20}, index=5)
    well = (gpu(60, index=at) for at in (3, 4))
    return {
        "one": full_text(STARVED),
        "one, in a recording": full_text(replace(STARVED, simulated=False, replayed=True)),
        "two, in a log": full_text(TWO_GPUS_OF_A_LOG),
        "six": full_text(report(near_a_limit, short, idle, *well, late)),
    }


@golden_story
def test_report_tables() -> Chapters:
    """Where every second of a GPU went, from the greatest loss to time out of use."""

    def of(one: GpuReport, **totals: Any) -> str:
        return only("GPU 0", report(with_totals(one, **totals)))

    late = gpu(40, {WAIT: 20})
    crumbs = {WAIT: 20, IdleCause.CALLBACKS: 7.4e-05, SAVE: 0.02}
    return {
        "a loss, another, and no use": only("GPU 0", STARVED),
        "a healthy GPU": of(gpu(98, {UNKNOWN: 2})),
        "a GPU without work": of(gpu(0, {NOT_IN_USE: 60})),
        "little time, in which 0.02 s is a share": of(gpu(2, {SAVE: 0.02})),
        "much time, in which 0.02 s is none": of(
            gpu(400, crumbs),
            pending_ns=70_000,
            first_input_wait_ns=70_000,
            validation_input_wait_ns=s(2),
        ),
        "time that is pending": of(late, pending_ns=s(3), observed_ns=s(63)),
        "a wait with its reasons": of(
            late, input_wait_by_reason_ns={CPU: s(6), DISK: s(13), NO_REASON: s(1)}
        ),
        "a wait whose reasons are unknown": of(late, input_wait_by_reason_ns={NO_REASON: s(20)}),
        "a wait whose reason a newer version knows": of(
            late, input_wait_by_reason_ns={"moon_bound": s(20)}
        ),
        "steps, and how much of them the GIL takes": of(
            gpu(40, {IdleCause.WITHIN_STEP: 20}),
            within_step_by_reason_ns={GIL: s(15), NO_REASON: s(5)},
        ),
        "a wait that is hidden": of(gpu(40, {WAIT: 20}, hidden_s=12)),
        "a wait that is hardly hidden": of(gpu(40, {WAIT: 20}, hidden_s=0.01)),
    }


@golden_story
def test_report_runs() -> Chapters:
    def printed(one: RunReport) -> str:
        return only("Run ", report(gpu(40), gpu(60, index=1), runs=(one,)))

    def in_callbacks(seconds: float) -> str:
        spent = {"TensorBoard": s(seconds)}
        phases = {**run().phase_ns, TrainingPhase.CALLBACKS: s(seconds)}
        return printed(replace(run(), phase_ns=phases, callback_ns=spent))

    ten = run(steps=10, wall_s=300)
    halves = shared_run([2 / 3, 1.0], shares=[0.5, 0.5])
    adrift = replace(run(), gpu_uuids=())
    return {
        **{
            f"steps of {step_ns / 1e6:g} ms": printed(replace(ten, step_ns=step_ns))
            for step_ns in (20_000_000, 50_000, 2_500)
        },
        "no step that was seen": printed(replace(ten, step_ns=None)),
        "shares that have changed, and are not balanced": printed(replace(halves, ratio_changes=3)),
        "shares that are balanced": printed(shared_run([0.99, 1.0], shares=[0.6, 0.4])),
        "shares that are not reported": printed(shared_run([2 / 3, 1.0], framework="loop")),
        "callbacks that took a fiftieth": in_callbacks(1.2),
        "callbacks that took less": in_callbacks(0.3),
        "what delayed it": printed(replace(run(), reasons=(HELD_STEP,))),
        "no GPU so far": printed(adrift),
        "no GPU, and it is over": printed(replace(adrift, alive=False)),
        "no GPU, because it computes on the CPU": printed(replace(adrift, on_cpu=True)),
        "the same, and it is over": printed(replace(adrift, on_cpu=True, alive=False)),
    }


def of_log(one: Report, *, period_s: float = 1.0) -> Report:
    return replace(one, period_ns=s(period_s), sampling=sampling_of(s(period_s)))


def together(gpus: int, of: int) -> Report:
    """``gpus`` of them work and pause for 20 min of an hour, for 12 min all at the same time."""
    joined = Together(
        in_use_ns=s(3_600), all_paused_ns=s(720), all_pauses=30, in_use_gpu_ns=gpus * s(3_600),
        paused_gpu_ns=gpus * s(1_200), by_chance_ns=0, in_use=tuple(range(gpus)),
        idle_beside_peer_ns=(0,) * gpus,
    )  # fmt: skip
    at_work = [gpu(2_400, {UNKNOWN: 1_200}, pauses=60, index=at) for at in range(gpus)]
    unused = [gpu(0, {NOT_IN_USE: 3_600}, index=at) for at in range(gpus, of)]
    return replace(report(*at_work, *unused), together=joined)


@golden_story
def test_findings_of_logs() -> Chapters:
    def printed(one: Report) -> str:
        return "\n".join(
            f"{found.rule}, GPU {', '.join(found.gpus) or '-'}\n"
            + "\n".join([*wrapped(found.text, first="  "), *wrapped(found.remedy, first="  do ")])
            for found in log_findings(one)
        )

    def unused(index: int) -> GpuReport:
        one = gpu(0, {NOT_IN_USE: 7_200}, index=index)
        return replace(one, idle_beside_peer_ns=s(7_200))

    def holding(index: int, in_all_s: float, longest_s: float) -> GpuReport:
        held = HeldMemory(s(in_all_s), s(longest_s), 73 << 30)
        return replace(gpu(600, {NOT_IN_USE: in_all_s}, index=index), held_memory=held)

    works = gpu(7_200)
    slow = replace(gpu(4_800, {UNKNOWN: 2_400}, index=1), idle_beside_peer_ns=s(2_400))
    return {
        "four of four pause together": printed(together(4, 4)),
        "two of four do": printed(together(2, 4)),
        "two of two do": printed(together(2, 2)),
        "one idles while the other works": printed(report(works, slow)),
        "one is never used": printed(report(works, unused(1))),
        "eight are": printed(report(works, *map(unused, range(1, 9)))),
        "one holds memory": printed(report(holding(0, 7_560, 5_400))),
        "two do": printed(report(holding(0, 7_560, 5_400), holding(1, 600, 600))),
        "it has a sample a minute": printed(of_log(report(works), period_s=60)),
    }


@golden_story
def test_report_of_a_log() -> Chapters:
    def paused(count: int, p50_s: float, longest_s: float, *, period_s: float) -> str:
        total_s = (count - 1) * p50_s + longest_s
        gaps = GapTotals(count=count, total_ns=s(total_s), p50_ns=s(p50_s), longest_ns=s(longest_s))
        one = with_totals(gpu(300, {UNKNOWN: total_s}), gaps=gaps, pauses=gaps)
        return "\n".join(levels_lines(one, sampling_of(s(period_s))))

    starved = gpu(3_600, {UNKNOWN: 3_600}, suspected_s=3_600, pauses=90)
    unused = replace(gpu(0, {NOT_IN_USE: 7_200}, index=1), idle_beside_peer_ns=s(3_600))
    return {
        "a healthy one, as far as it can be seen": full_text(
            of_log(report(gpu(7_200)), period_s=60)
        ),
        "four GPUs that pause together": full_text(together(4, 4)),
        "one that is never used, and one that starves": full_text(
            of_log(report(starved, unused), period_s=5)
        ),
        "one pause": paused(1, 4, 4, period_s=1),
        "pauses long enough to be seen": paused(20, 12, 40, period_s=5),
        "pauses, the longest long enough to be seen": paused(20, 5, 10, period_s=5),
        "pauses too short to be seen": paused(20, 5, 9, period_s=5),
    }  # fmt: skip
