"""Two reports side by side, and reports compared with limits, pinned word for word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpumon.core.diagnosis.gate import Limits, compared
from gpumon.core.diagnosis.report_differences import unlike
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import GpuReport, Report, RunReport, sampling_of
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.outlets.text.comparison import side_by_side
from gpumon.outlets.text.style import wrapped
from tests.builders.report import filled, gpm_fill, gpu, mig_part, report, run, with_totals
from tests.builders.time import s
from tests.golden_files import Chapters, golden_story
from tests.unit.outlets.report_lines import PLAIN

WAIT, UNKNOWN, SAVE = IdleCause.INPUT_WAIT, IdleCause.UNKNOWN, IdleCause.CHECKPOINT
NOT_IN_USE = IdleCause.NOT_IN_USE


@golden_story
def test_comparisons() -> Chapters:
    slow, fast = (
        report(gpu(30, {WAIT: wait_s}), runs=(run(wall_s=wall_s),))
        for wait_s, wall_s in ((30, 60), (1, 31.25))
    )

    def shown(before: Report = slow, after: Report = fast) -> str:
        return side_by_side(before, after, PLAIN)

    def with_runs(one: Report, *runs: RunReport) -> Report:
        return replace(one, runs=runs)

    def named(one: Report, *names: str) -> Report:
        return with_runs(one, *(replace(one.runs[0], run=name) for name in names))

    def of_steps(*names: str, steps: int) -> Report:
        runs = (replace(run(steps, 60), run=name, samples=16_000) for name in names)
        return with_runs(slow, *runs)

    late_first = report(
        with_totals(gpu(60, {WAIT: 30}), first_input_wait_ns=s(30)),
        runs=(replace(run(wall_s=90), first_input_wait_ns=s(30)),),
    )
    eight = report(*(gpu(600, index=at) for at in range(8)), runs=(run(9_000, wall_s=600),))
    saving = report(gpu(30, {SAVE: 4}))
    computes_faster = report(gpu(20, {WAIT: 1}), runs=(run(wall_s=21.0),))
    quicker = report(gpu(30, {WAIT: 1}), runs=(run(wall_s=20),))
    a_little_quicker = report(gpu(30, {WAIT: 1}), runs=(run(wall_s=29.6),))
    short, shorter = (
        report(gpu(3, {WAIT: wait_s}), runs=(run(50, wall_s=wall_s),))
        for wait_s, wall_s in ((3, 6), (1, 4))
    )
    hot, cool = report(filled(gpm_fill(0.9, held=0.4))), report(filled(gpm_fill(0.9)))
    return {
        "slow input, then prefetch": side_by_side(
            slow, fast, PLAIN, titles=("slow input", "with prefetch")
        ),
        "nothing was changed": shown(after=slow),
        "it became worse": shown(fast, slow),
        "it became a little faster than predicted": shown(after=a_little_quicker),
        "it became faster than predicted": shown(after=quicker),
        "the compute itself became faster": shown(after=computes_faster),
        "a promise on the very first batch": shown(
            late_first, report(gpu(60), runs=(run(wall_s=60),))
        ),
        "no promise, for it was too short": shown(short, shorter),
        "no promise, for it was under-filled": shown(report(filled(gpm_fill(0.24))), cool),
        "another cause afterwards, and no steps": shown(after=saving),
        "a short run that lost a greater share": shown(after=report(gpu(5, {WAIT: 20}))),
        "another run at the same time": shown(after=named(fast, "train", "eval")),
        "runs of other names": shown(named(slow, "a", "b"), named(fast, "c", "d")),
        "two ranks, then four": shown(named(slow, "r0", "r1"), named(fast, "r0", "r1", "r2", "r3")),
        "nine runs": shown(*(named(one, *"abcdefghi") for one in (slow, fast))),
        "steps of another size": shown(of_steps("train", steps=500), of_steps("train", steps=250)),
        "such steps of two": shown(of_steps("a", "b", steps=500), of_steps("a", "b", steps=250)),
        "other machines": shown(after=eight),
        "much less work": shown(
            with_runs(report(gpu(16_000, {WAIT: 4_000}))), with_runs(slow)
        ),
        "a hot GPU": shown(hot, cool),
    }  # fmt: skip


@golden_story
def test_what_reports_are_unlike_in() -> Chapters:
    two = (gpu(30, {WAIT: 30}), gpu(30, {WAIT: 30}, index=1))
    idle = gpu(0, {NOT_IN_USE: 60}, index=1)

    def of(*gpus: GpuReport, name: str | None = "A100") -> Report:
        """Of real GPUs of that name, by a running daemon."""
        one = report(*(replace(gpu, name=name) for gpu in gpus), runs=(run(),))
        return replace(one, simulated=False, source="nvml")

    def shown(before: Report, after: Report) -> str:
        return "\n".join(line for one in unlike(before, after) for line in wrapped(one.text))

    def simulated(script: str) -> Report:
        return replace(of(*two, name=f"Simulated GPU ({script})"), simulated=True)

    def steps_of(*sizes: float) -> Report:
        return replace(of(*two), runs=tuple(
            replace(run(), run=f"r{rank}", samples=round(500 * size))
            for rank, size in enumerate(sizes)
        ))  # fmt: skip

    real = of(*two)
    log = replace(real, sampling=sampling_of(s(1), DEFAULT_SETTINGS))
    night = replace(of(gpu(20_000, {WAIT: 20_000})), runs=())
    return {
        "machines": shown(real, of(*(gpu(60, index=at) for at in range(8)), name="H100")),
        "models": shown(real, of(*two, name="H100")),
        "numbers of GPUs of no known model": shown(of(two[0], name=None), of(*two, name=None)),
        "simulated and real": shown(replace(real, simulated=True), real),
        "simulations": shown(simulated("input-bound"), simulated("healthy")),
        "GPUs that worked": shown(real, of(two[0], idle)),
        "work at all": shown(real, of(replace(idle, index=0), idle)),
        "a recording and a daemon": shown(replace(real, replayed=True), real),
        "a daemon and a log": shown(real, log),
        "periods": shown(real, replace(real, period_ns=s(30))),
        "lengths": shown(of(two[0]), night),
        "steps": shown(steps_of(256), steps_of(512.5)),
        "steps of many ranks": shown(steps_of(*[256] * 8), steps_of(*[512] * 8)),
    }  # fmt: skip


@golden_story
def test_reports_against_limits() -> Chapters:
    def shown(*gpus: GpuReport, runs: Sequence[RunReport] = (), limits: Limits) -> str:
        found = compared(report(*gpus, runs=tuple(runs)), limits)
        lines = [*found.failures, *(f"note: {note}" for note in found.notes)]
        return "\n".join(lines if found.is_any_diagnosed else [f"no verdict: {found.undiagnosed}"])

    def lost(*gpus: GpuReport, runs: Sequence[RunReport] = ()) -> str:
        return shown(*gpus, runs=runs, limits=Limits(lost=0.20))

    def starved(*gpus: GpuReport) -> str:
        return shown(*gpus, limits=Limits(starved=0.05))

    def first_batch(one: GpuReport, wait_s: float) -> GpuReport:
        return with_totals(one, first_input_wait_ns=s(wait_s))

    idle, well = gpu(0, {NOT_IN_USE: 600}), gpu(60, {WAIT: 1}, index=1)
    half = gpu(50, {WAIT: 50})
    unseen = replace(gpu(0), error="the GPU is lost (NVML 15)")
    adrift = [replace(run(), run=name, gpu_uuids=()) for name in ("train", "eval")]
    eight_and_one = [*(gpu(50, {WAIT: 50}, index=at) for at in range(8)), gpu(90, index=8)]
    causes = (IdleCause.IMBALANCE, SAVE, WAIT, IdleCause.WITHIN_STEP)
    return {
        **{
            f"lost to {cause.value}": lost(gpu(55, {cause: 44, IdleCause.CALLBACKS: 1}))
            for cause in causes
        },
        "lost to the first batch": lost(first_batch(gpu(50, {WAIT: 20}), 20)),
        "lost by eight of nine": lost(*eight_and_one),
        "lost to nothing known": lost(gpu(50, {UNKNOWN: 50})),
        "lost to what is suspected": lost(gpu(50, {UNKNOWN: 50}, suspected_s=30, pauses=9)),
        "mostly unknown": lost(gpu(50, {UNKNOWN: 30, SAVE: 20})),
        "mostly suspected, a part is proved": lost(
            gpu(51, {UNKNOWN: 45.4, WAIT: 3.6}, suspected_s=45.4, pauses=9)
        ),
        "above a very small limit": shown(half, limits=Limits(lost=0.00000005)),
        "starved and lost": shown(half, limits=Limits(starved=0.05, lost=0.20)),
        "not used, and hardly": starved(idle, gpu(2, {WAIT: 1}, index=1)),
        "watched for 3 s": starved(gpu(0, {NOT_IN_USE: 3})),
        "used for just less than a verdict needs": starved(gpu(9.98)),
        "hardly used after the first batch": starved(first_batch(gpu(3, {WAIT: 60}), 60)),
        "not to be read": starved(unseen),
        "not observed": starved(gpu(0)),
        "an instance without utilisation data": starved(mig_part(1)),
        "MIG-partitioned, without an instance": starved(replace(gpu(0), mig_enabled=True)),
        "eight of one reason": starved(*(replace(idle, index=at) for at in range(8))),
        "no GPU": lost(),
        "a run on no GPU": lost(runs=adrift[:1]),
        "a run on no GPU, and an idle GPU": lost(idle, runs=adrift[:1]),
        "two runs on no GPU, and a GPU with a verdict": lost(well, runs=adrift),
        "one has a verdict, two have none": starved(idle, well, gpu(1, {WAIT: 8}, index=2)),
        "what has no known cause": starved(gpu(60, {UNKNOWN: 40})),
        "lost by now": starved(replace(gpu(60, {WAIT: 60}), error="GPU is lost")),
    }
