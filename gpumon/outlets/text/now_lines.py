"""What a headline says about the present: since when, and what stands still or is held."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.core.diagnosis import messages
from gpumon.core.diagnosis.cause_advice import holders, memory_of
from gpumon.core.diagnosis.silence_messages import hanging_text, run_named, silence_sentence
from gpumon.core.report.report import GpuReport, Report, RunReport, hanging_on, runs_on
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.verdict import Severity, VerdictName
from gpumon.core.wording import (
    capital,
    counted,
    gpus_named,
    in_time,
    label_text,
    listed,
    time_of_day,
)

_MAX_NAMED: Final = 3


def clock(report: Report, at_ns: int) -> str:
    """An instant as people say it: ``14:03 UTC``; empty where there is no wall clock."""
    at, now = (report.wall_time(ns) for ns in (at_ns, report.origin_ns + report.observed_ns))
    return "" if at is None or now is None else time_of_day(at, now)


def title_of_now(gpu: GpuReport, report: Report, word: str) -> str:
    """The verdict as a title, and, if known, since when.

    Args:
        gpu: As it is at present.
        report: For its clock.
        word: The verdict.
    """
    now, severity = gpu.now, gpu.verdict.severity
    loss = "" if severity is Severity.NONE else f" ({severity.value} loss)"
    if now is None:
        return f"{word}{loss}"
    time = clock(report, now.since_ns)
    since, at = (f" since {time}", f" at {time}") if time else ("", "")
    if now.is_suspended:
        return f"suspended{since}"
    if ended_in_a_hang(gpu):
        return f"hung until the job ended{at}"
    if now.ended_ns is not None and gpu.verdict.name is not VerdictName.NOT_IN_USE:
        return f"{word}{loss} in the job that ended{at}"
    if now.has_recovered:
        return f"recovered{at}"
    if now.name is VerdictName.HANGING:
        return f"hanging{since}"
    if waits_for_first_batch(gpu, report):
        return "waiting for the first batch"
    return f"{word}{since}{loss}" if now.name.is_conclusive else word


def is_over(gpu: GpuReport) -> bool:
    """Whether its last job has ended: then its verdict is on that job."""
    return gpu.now is not None and gpu.now.ended_ns is not None


def ended_in_a_hang(gpu: GpuReport) -> bool:
    """Whether its last job ended while its run hung."""
    return is_over(gpu) and gpu.now is not None and gpu.now.before is VerdictName.HANGING


def hang_statement(gpu: GpuReport) -> str:
    """For how long the run of a job that is over hung."""
    time = in_time(gpu.totals.hanging_ns)
    return messages.HUNG_UNTIL_ITS_END.format(gpu=gpu.label, time=time)


def stands_still(gpu: GpuReport, report: Report) -> bool:
    """Whether the headline is about a run that makes no progress, and not about lost time."""
    is_hanging = gpu.verdict.name is VerdictName.HANGING
    return gpu.is_suspended or is_hanging or bool(waits_for_first_batch(gpu, report))


def standstill_statement(gpu: GpuReport, report: Report) -> str:
    """Which run makes no progress, and what it is doing."""
    if gpu.is_suspended:
        stopped = _suspended_on(gpu, report)
        if not stopped:
            return messages.PROCESS_STOPPED.format(gpu=gpu.label)
        names = capital(listed([run_named(run) for run in stopped], most=_MAX_NAMED))
        return messages.STOPPED.of(len(stopped), runs=names)
    if gpu.verdict.name is VerdictName.HANGING:
        silent = hanging_on([gpu], report.runs)
    else:
        silent = [(run, run.silence) for run in waits_for_first_batch(gpu, report) if run.silence]
    sentences = [silence_sentence(run, silence) for run, silence in silent[:_MAX_NAMED]]
    return " ".join(sentences) or messages.RUN_STANDS_STILL.format(gpu=gpu.label)


def standstill_reason(gpu: GpuReport, report: Report) -> str:
    """What more is known of a run that hangs; empty where nothing is."""
    if gpu.verdict.name is not VerdictName.HANGING:
        return ""
    silent = hanging_on([gpu], report.runs)
    sentences = [
        messages.STEPS_BY_THEN.format(
            run=capital(run_named(run)), steps=counted(run.steps, "step", "steps")
        )
        for run, _ in silent[:1]
        if run.steps
    ]
    asleep = [label_text(silence.sleeps_in) for _, silence in silent if silence.sleeps_in]
    sentences += [messages.SLEEPS_IN_KERNEL.format(function=function) for function in asleep[:1]]
    return " ".join(sentences)


def what_to_do_now(gpu: GpuReport, report: Report) -> str:
    """What to do about a run that is suspended, waits for its first batch, or hung; or empty."""
    if ended_in_a_hang(gpu):
        return messages.LOOK_AT_ITS_LOG
    if gpu.is_suspended:
        pids = listed([f"{run.pid}" for run in _suspended_on(gpu, report)])
        return messages.RESUME.format(what=f"pid {pids}" if pids else "it")
    if gpu.verdict.name is not VerdictName.HANGING and waits_for_first_batch(gpu, report):
        return messages.AWAIT_FIRST_BATCH
    return ""


def what_to_do_without_a_gpu(runs: Sequence[RunReport]) -> str:
    """What to do about the first of these runs that counts no step, on no GPU so far; or empty."""
    for run in runs:
        if run.silence is not None and run.silence.is_hanging:
            return hanging_text([run])
        if run.silence is not None:
            return messages.AWAIT_FIRST_BATCH if run.silence.is_first_batch else ""
    return ""


def waits_for_first_batch(gpu: GpuReport, report: Report) -> list[RunReport]:
    """The runs whose first batch this GPU waits for, as far as is known; it was not used yet."""
    if gpu.verdict.name.is_conclusive or gpu.now is None or gpu.now.ended_ns is not None:
        return []
    return [
        run
        for run in report.runs
        if run.silence is not None
        and run.silence.is_first_batch
        and (not run.gpu_uuids or gpu.uuid in run.gpu_uuids)
    ]


def held_statements(gpus: Sequence[GpuReport], report: Report) -> str:
    """Which of these GPUs are held, by which process and since when; empty where none is."""
    by_holder = holders(gpus)
    sentences = [_held_statement(holder, held, report) for holder, held in by_holder[:_MAX_NAMED]]
    if others := [gpu.label for _, held in by_holder[_MAX_NAMED:] for gpu in held]:
        sentences.append(messages.HELD_AS_WELL.of(len(others), gpus=gpus_named(others)))
    return " ".join(sentences)


def _held_statement(holder: str, gpus: Sequence[GpuReport], report: Report) -> str:
    memory = memory_of(gpus)
    time = clock(report, max(gpu.held.since_ns for gpu in gpus if gpu.held is not None))
    row = messages.HOLDS_MEMORY if memory else messages.HOLDS
    text = row.format(
        holder=holder,
        memory=memory,
        gpus=gpus_named(gpu.label for gpu in gpus),
        since=f"since {time}" if time else f"for {in_time(DEFAULT_SETTINGS.held_after_ns)}",
    )
    is_alone = all(gpu.held is None or gpu.held.process_count == 1 for gpu in gpus)
    return text if is_alone else f"{text} {messages.HELD_BY_OTHERS}"


def _suspended_on(gpu: GpuReport, report: Report) -> list[RunReport]:
    stopped = [run for run in report.runs if run.suspended_since_ns is not None]
    gpus = [gpu for gpu in report.gpus if gpu.is_suspended]
    return runs_on(gpus or [gpu], stopped) or [run for run in stopped if not run.gpu_uuids]
