"""What a headline has on the present: since when, what was before, what stands still or is held."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from gpumon.core.clock import seconds
from gpumon.core.codecs.field_codec import WallClock
from gpumon.core.diagnosis.advice_texts import FIRST_BATCH_REMEDY
from gpumon.core.diagnosis.held_texts import holders, memory_of
from gpumon.core.diagnosis.silence_texts import (
    hanging_text,
    run_named,
    silence_clause,
    sleeping_sentence,
    suspended_text,
)
from gpumon.core.report.report import GpuReport, Report, RunReport, hanging_on, runs_on
from gpumon.core.verdict import Severity, VerdictName
from gpumon.core.wording import capital, counted, gpus_named, in_time, listed, time_of_day

_MOST_NAMED: Final = 3
_WAIT_FOR_IT: Final = f"wait for it. If it is always late: {FIRST_BATCH_REMEDY}"


def clock(report: Report, at_ns: int) -> str:
    """An instant as people say it: ``14:03 UTC``; empty where there is no wall clock."""
    began = WallClock.starting_at(report.started_at).origin
    if began is None:
        return ""
    passed = timedelta(seconds=seconds(at_ns - report.origin_ns))
    return time_of_day(began + passed, began + timedelta(seconds=seconds(report.observed_ns)))


def title_of_now(gpu: GpuReport, report: Report, word: str) -> str:
    """The verdict as a title, with since when it has been so where that is known.

    Args:
        gpu: As it is at present.
        report: For its clock.
        word: The verdict as people say it.
    """
    now, severity = gpu.now, gpu.verdict.severity
    loss = "" if severity is Severity.NONE else f" ({severity.value} loss)"
    if now is None:
        return f"{word}{loss}"
    moment = clock(report, now.since_ns)
    since = f" since {moment}" if moment else ""
    if now.is_suspended:
        return f"suspended{since}"
    if ended_in_a_hang(gpu):
        return f"hung until the job ended{f' at {moment}' if moment else ''}"
    if now.ended_ns is not None and gpu.verdict.name is not VerdictName.NOT_IN_USE:
        return f"{word}{loss} in the job that ended{f' at {moment}' if moment else ''}"
    if now.has_recovered:
        return f"recovered{f' at {moment}' if moment else ''}"
    if now.name is VerdictName.HANGING:
        return f"hanging{since}"
    if waits_for_first_batch(gpu, report):
        return "waiting for the first batch"
    return f"{word}{since}{loss}" if now.name.is_judged else word


def is_over(gpu: GpuReport) -> bool:
    """Whether its last job has ended: then its verdict is on that job."""
    return gpu.now is not None and gpu.now.ended_ns is not None


def ended_in_a_hang(gpu: GpuReport) -> bool:
    """Whether its last job was over while its run hung."""
    return is_over(gpu) and gpu.now is not None and gpu.now.before is VerdictName.HANGING


def hang_claim(gpu: GpuReport) -> str:
    """For how long the run of a job that is over hung."""
    hung = in_time(gpu.totals.hanging_ns)
    return f"The run on GPU {gpu.label} hung for {hung} before it ended."


def stands_still(gpu: GpuReport, report: Report) -> bool:
    """Whether the headline is not on where time went, but on a run that does not go on."""
    is_suspended = gpu.now is not None and gpu.now.is_suspended
    is_hanging = gpu.verdict.name is VerdictName.HANGING
    return is_suspended or is_hanging or bool(waits_for_first_batch(gpu, report))


def standstill_claim(gpu: GpuReport, report: Report) -> str:
    """Which run does not go on, and what it is doing."""
    if gpu.now is not None and gpu.now.is_suspended:
        stopped = _suspended_on(gpu, report)
        names = listed([run_named(run) for run in stopped], most=_MOST_NAMED)
        are = "is" if len(stopped) == 1 else "are"
        return f"{names or f'the process on GPU {gpu.label}'} {are if names else 'is'} stopped."
    if gpu.verdict.name is VerdictName.HANGING:
        silent = hanging_on([gpu], report.runs)
    else:
        silent = [(run, run.silence) for run in waits_for_first_batch(gpu, report) if run.silence]
    said = [f"{run_named(run)} {silence_clause(run, silence)}" for run, silence in silent]
    return f"{listed(said, most=_MOST_NAMED) or f'the run on GPU {gpu.label} does not go on'}."


def standstill_reason(gpu: GpuReport, report: Report) -> str:
    """What more is known of a run that hangs; empty where nothing is."""
    if gpu.verdict.name is not VerdictName.HANGING:
        return ""
    silent = hanging_on([gpu], report.runs)
    said = [
        f"{capital(run_named(run))} had counted {counted(run.steps, 'step', 'steps')} by then."
        for run, _ in silent[:1]
        if run.steps
    ]
    asleep = (sleeping_sentence(silence) for _, silence in silent)
    return " ".join([*said, next(filter(None, asleep), "")]).rstrip()


def what_to_do_now(gpu: GpuReport, report: Report) -> str:
    """What to do about a run that is suspended, or waits for its first batch, or hung; or empty."""
    if ended_in_a_hang(gpu):
        return (
            "look at the end of its log. If it hangs again, `py-spy dump --pid PID` prints what "
            "each of its threads is doing."
        )
    if gpu.now is not None and gpu.now.is_suspended:
        return suspended_text(_suspended_on(gpu, report))
    if gpu.verdict.name is not VerdictName.HANGING and waits_for_first_batch(gpu, report):
        return _WAIT_FOR_IT
    return ""


def what_to_do_without_a_gpu(runs: Sequence[RunReport]) -> str:
    """What to do about the first of these runs that counts no step, on no GPU so far; or empty."""
    silent = [(run, run.silence) for run in runs if run.silence is not None]
    for run, silence in silent[:1]:
        if silence.is_hanging:
            return hanging_text([run])
        if silence.is_first_batch:
            return _WAIT_FOR_IT
    return ""


def waits_for_first_batch(gpu: GpuReport, report: Report) -> list[RunReport]:
    """The runs whose first batch this GPU waits for, as far as is known; it was not used yet."""
    if gpu.verdict.name.is_judged or gpu.now is None or gpu.now.ended_ns is not None:
        return []
    return [
        run
        for run in report.runs
        if run.silence is not None
        and run.silence.is_first_batch
        and (not run.gpu_uuids or gpu.uuid in run.gpu_uuids)
    ]


def held_claims(gpus: Sequence[GpuReport], report: Report) -> str:
    """Which of these GPUs are held, by whom and since when; empty where none is."""
    by_holder = holders(gpus)
    claims = [_held_claim(holder, held, report) for holder, held in by_holder[:_MOST_NAMED]]
    others = [gpu.label for _, held in by_holder[_MOST_NAMED:] for gpu in held]
    if others:
        claims.append(f"{gpus_named(others)} {'is' if len(others) == 1 else 'are'} held as well.")
    return " ".join(claims)


def _held_claim(holder: str, gpus: Sequence[GpuReport], report: Report) -> str:
    memory = memory_of(gpus)
    names = gpus_named(gpu.label for gpu in gpus)
    since_ns = max(gpu.held.since_ns for gpu in gpus if gpu.held is not None)
    moment = clock(report, since_ns)
    since = f" since {moment}" if moment else " for more than 10 minutes"
    more = " with others" if any(gpu.held and gpu.held.process_count > 1 for gpu in gpus) else ""
    holds = f"holds {f'{memory} of ' if memory else ''}{names}{more}"
    return f"{holder} {holds}, and nothing has run there{since}."


def _suspended_on(gpu: GpuReport, report: Report) -> list[RunReport]:
    stopped = [run for run in report.runs if run.suspended_since_ns is not None]
    gpus = [one for one in report.gpus if one.now is not None and one.now.is_suspended]
    return runs_on(gpus or [gpu], stopped) or [run for run in stopped if not run.gpu_uuids]
