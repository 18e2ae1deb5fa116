"""What a finished log tells beside its verdicts: facts, in sentences, and what to do about them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpumon.core.diagnosis.log_coverage import has_gaps, is_few
from gpumon.core.log_summary.common_pauses import Together
from gpumon.core.log_summary.held_memory import HeldMemory
from gpumon.core.report.report import (
    GpuReport,
    LogFinding,
    Report,
    judged,
    well_sampled,
)
from gpumon.core.settings.detector import DEFAULT_SETTINGS, DetectorSettings
from gpumon.core.settings.rule import RuleKind, rule
from gpumon.core.wording import gpus_named, in_gibibytes, in_percent, in_time


@rule(
    "all_pause_together",
    RuleKind.FINDING,
    says="all GPUs of a log that are in use pause at the same time",
    evidence="The time in which all of them paused, of the time in which two or more were in "
    "use, beside what GPUs that know nothing of each other would pause at once.",
    thresholds=("min_pauses", "lost_share", "log.common_share"),
    measured_with=("active_above", "idle_job_ends_after_ns", "idle_job_ends_after_samples"),
)
def all_pause_together(joined: Together, settings: DetectorSettings) -> bool:
    """Whether all GPUs in use pause at once, again and again, and more than by chance."""
    return (
        joined.all_pauses >= settings.min_pauses
        and joined.all_paused_ns >= settings.lost_share * joined.in_use_ns
        and joined.common_share >= settings.log.common_share
    )


@rule(
    "idle_beside_peer",
    RuleKind.FINDING,
    says="a GPU of a log idles while another one works",
    evidence="The time in which it was idle, in use or not, and another one was not, of the "
    "time it was observed.",
    thresholds=("min_in_use_ns", "log.beside_peer_share"),
    measured_with=("active_above",),
)
def idles_beside_peer(idle_ns: int, observed_ns: int, settings: DetectorSettings) -> bool:
    """Whether a GPU idled for long while another one worked, of the time it was observed."""
    return (
        idle_ns >= settings.min_in_use_ns
        and idle_ns >= settings.log.beside_peer_share * observed_ns
    )


@rule(
    "memory_held",
    RuleKind.FINDING,
    says="a GPU of a log held memory and nothing ran for long",
    evidence="The time in stretches without an active sample, each long enough to end a job, "
    "in which that much memory was in use all the time.",
    thresholds=("log.held_told_from_ns",),
    measured_with=(
        "log.held_from_bytes",
        "active_above",
        "idle_job_ends_after_ns",
        "idle_job_ends_after_samples",
    ),
)
def is_memory_held(held: HeldMemory, settings: DetectorSettings) -> bool:
    """Whether memory was held without work for so long that another job could have run."""
    return held.idle_ns >= settings.log.held_told_from_ns


def log_findings(report: Report) -> tuple[LogFinding, ...]:
    """All that a report's log shows beside the verdicts; nothing of a live report."""
    return (*_all_pause(report), *_beside_peer(report), *_held(report), *_coarse(report))


def coarse_sentence(report: Report) -> str:
    """What so few samples cannot show; empty where they are enough."""
    return next((finding.text for finding in _coarse(report)), "")


def _all_pause(report: Report) -> Iterator[LogFinding]:
    joined = report.together
    if joined is None or not all_pause_together(joined, DEFAULT_SETTINGS):
        return
    in_use = [report.gpus[position] for position in joined.in_use]
    if any(is_few(gpu) for gpu in in_use):
        return
    labels = [gpu.label for gpu in in_use]
    everyone = len(labels) == len(judged(report.gpus))
    count = f"{len(labels):,} GPUs" if len(labels) > 2 else "GPUs"
    who = f"{'All' if len(labels) > 2 else 'Both'} {count}" if everyone else gpus_named(labels)
    share = in_percent(joined.all_paused_ns / joined.in_use_ns)
    yield LogFinding(
        rule="all_pause_together",
        gpus=tuple(labels),
        text=f"{who} paused together for {in_time(joined.all_paused_ns)} ({share} of the time "
        "they were in use): something they share holds them up.",
        remedy="Look at the loader, the storage, checkpoints and barriers, not at one GPU.",
    )


def _beside_peer(report: Report) -> Iterator[LogFinding]:
    known = well_sampled(report.gpus)
    idle = [
        (gpu, gpu.idle_beside_peer_ns)
        for gpu in known
        if gpu.idle_beside_peer_ns is not None
        and not has_gaps(gpu)
        and idles_beside_peer(gpu.idle_beside_peer_ns, gpu.totals.observed_ns, DEFAULT_SETTINGS)
    ]
    unused = [item for item in idle if not item[0].totals.in_use_ns]
    used = [item for item in idle if item[0].totals.in_use_ns]
    if unused:
        labels = [gpu.label for gpu, _ in unused]
        was = "was" if len(labels) == 1 else "were"
        yield LogFinding(
            rule="idle_beside_peer",
            gpus=tuple(labels),
            text=f"{gpus_named(labels)} {was} never in use while {_peers(unused, known)} worked "
            f"{_how_long(unused)}.",
            remedy="Give it a share of the work, or leave it to another job."
            if len(labels) == 1
            else "Give them a share of the work, or leave them to another job.",
        )
    if used:
        labels = [gpu.label for gpu, _ in used]
        yield LogFinding(
            rule="idle_beside_peer",
            gpus=tuple(labels),
            text=f"{gpus_named(labels)} {'was' if len(labels) == 1 else 'were'} idle "
            f"{_how_long(used)} while {_peers(used, known)} worked.",
            remedy="If they work on one job, its load is uneven; if on several, there is room for "
            "more.",
        )


def _held(report: Report) -> Iterator[LogFinding]:
    held = [
        (gpu, gpu.held_memory)
        for gpu in well_sampled(report.gpus)
        if gpu.held_memory is not None and is_memory_held(gpu.held_memory, DEFAULT_SETTINGS)
    ]
    if not held:
        return
    labels = [gpu.label for gpu, _ in held]
    total_ns, peak = sum(it.idle_ns for _, it in held), max(it.peak_bytes for _, it in held)
    longest_ns = max(it.longest_ns for _, it in held)
    much = in_gibibytes(peak) if len(held) == 1 else f"up to {in_gibibytes(peak)} each"
    time = in_time(total_ns) + ("" if len(held) == 1 else " in all")
    longest = f", at most {in_time(longest_ns)} at a stretch" if longest_ns < total_ns else ""
    held_it = f"{gpus_named(labels)} held {much} for {time}"
    yield LogFinding(
        rule="memory_held",
        gpus=tuple(labels),
        text=f"{held_it} in which no sample showed work{longest}.",
        remedy="If a job should have run then, see whether it hangs. An idle notebook or server "
        "keeps its memory until it ends.",
    )


def _coarse(report: Report) -> Iterator[LogFinding]:
    sampling = report.sampling
    if sampling is None or not sampling.is_coarse or not well_sampled(report.gpus):
        return
    pause = in_time(sampling.shortest_visible_pause_ns)
    yield LogFinding(
        rule="sampling_too_coarse",
        gpus=(),
        text=f"One sample every {in_time(sampling.period_ns)}: pauses shorter than {pause} go "
        "unseen, and a sample may show only the second before it.",
        remedy="Log once a second (nvidia-smi: `-l 1`) to see shorter pauses.",
    )


def _how_long(idle: Sequence[tuple[GpuReport, int]]) -> str:
    longest = in_time(max(idle_ns for _, idle_ns in idle))
    return f"for {longest}" if len(idle) == 1 else f"for up to {longest}"


def _peers(idle: Sequence[tuple[GpuReport, int]], known: Sequence[GpuReport]) -> str:
    """Who worked meanwhile: named where it can be but one."""
    if len(known) == 2 and len(idle) == 1:
        return next(f"GPU {gpu.label}" for gpu in known if gpu is not idle[0][0])
    return "the other" if len(known) == 2 else "others"
