"""What a finished log tells beside its verdicts, in sentences: facts, and what to do about them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpumon.core.figures import in_gibibytes, in_percent, in_time, listed
from gpumon.core.report import GpuReport, Report, judged
from gpumon.core.rules.log_rules import (
    all_pause_together,
    idles_beside_peer,
    is_memory_held,
    is_too_coarse,
)
from gpumon.core.settings import DEFAULT_SETTINGS, DetectorSettings


class LogFinding(NamedTuple):
    """One thing that a log shows.

    Attributes:
        rule: Id of the rule that holds.
        gpus: Labels of the GPUs it is about; empty where it is about the log.
        text: What is so, with figures.
        remedy: What to do.
    """

    rule: str
    gpus: tuple[str, ...]
    text: str
    remedy: str


def log_findings(
    report: Report, settings: DetectorSettings = DEFAULT_SETTINGS
) -> tuple[LogFinding, ...]:
    """All that a report's log shows beside the verdicts; nothing of a live report."""
    found = (_all_pause(report, settings), _beside_peer(report, settings),
             _held(report, settings), _coarse(report, settings))  # fmt: skip
    return tuple(finding for findings in found for finding in findings)


def coarse_sentence(report: Report, settings: DetectorSettings = DEFAULT_SETTINGS) -> str:
    """What so few samples cannot show; empty where they are enough."""
    return next((finding.text for finding in _coarse(report, settings)), "")


def _all_pause(report: Report, settings: DetectorSettings) -> Iterator[LogFinding]:
    joined = report.together
    if joined is None or not all_pause_together(joined, settings):
        return
    labels = [report.gpus[position].label for position in joined.in_use]
    everyone = len(labels) == len(judged(report.gpus))
    count = f"{len(labels):,} GPUs" if len(labels) > 2 else "GPUs"
    who = f"{'All' if len(labels) > 2 else 'Both'} {count}" if everyone else _named(labels)
    share = in_percent(joined.all_paused_ns / joined.in_use_ns)
    yield LogFinding(
        rule="all_pause_together",
        gpus=tuple(labels),
        text=f"{who} pause together for {in_time(joined.all_paused_ns)} ({share} of the time "
        "they are in use): what they share holds them up.",
        remedy="Look at the loader, the storage, checkpoints and barriers, not at one GPU.",
    )


def _beside_peer(report: Report, settings: DetectorSettings) -> Iterator[LogFinding]:
    known = judged(report.gpus)
    idle = [
        (gpu, gpu.idle_beside_peer_ns)
        for gpu in known
        if gpu.idle_beside_peer_ns is not None
        and idles_beside_peer(gpu.idle_beside_peer_ns, gpu.totals.observed_ns, settings)
    ]
    unused = [item for item in idle if not item[0].totals.in_use_ns]
    used = [item for item in idle if item[0].totals.in_use_ns]
    if unused:
        labels = [gpu.label for gpu, _ in unused]
        was = "was" if len(labels) == 1 else "were"
        yield LogFinding(
            rule="idle_beside_peer",
            gpus=tuple(labels),
            text=f"{_named(labels)} {was} never in use while {_peers(unused, known)} worked "
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
            text=f"{_named(labels)} {'idles' if len(labels) == 1 else 'idle'} {_how_long(used)} "
            f"while {_peers(used, known)} {_work(used, known)}.",
            remedy="If they do one job, its work is shared unevenly; if they do several, there is "
            "room for more.",
        )


def _held(report: Report, settings: DetectorSettings) -> Iterator[LogFinding]:
    held = [
        (gpu, gpu.held_memory)
        for gpu in judged(report.gpus)
        if gpu.held_memory is not None and is_memory_held(gpu.held_memory, settings)
    ]
    if not held:
        return
    labels = [gpu.label for gpu, _ in held]
    total_ns, peak = sum(it.idle_ns for _, it in held), max(it.peak_bytes for _, it in held)
    longest_ns = max(it.longest_ns for _, it in held)
    much = in_gibibytes(peak) if len(held) == 1 else f"up to {in_gibibytes(peak)} each"
    time = in_time(total_ns) + ("" if len(held) == 1 else " in all")
    longest = f", at most {in_time(longest_ns)} at a stretch" if longest_ns < total_ns else ""
    yield LogFinding(
        rule="memory_held",
        gpus=tuple(labels),
        text=f"{_named(labels)} held {much} for {time} in which nothing ran{longest}: that time "
        "could have gone to another job.",
        remedy="End what is done: an idle notebook or server keeps its memory until it ends.",
    )


def _coarse(report: Report, settings: DetectorSettings) -> Iterator[LogFinding]:
    sampling = report.sampling
    if sampling is None or not is_too_coarse(sampling, settings):
        return
    pause = in_time(sampling.shortest_visible_pause_ns)
    yield LogFinding(
        rule="sampling_too_coarse",
        gpus=(),
        text=f"One sample every {in_time(sampling.period_ns)}: pauses below {pause} cannot be "
        "seen, and each sample speaks for at most the second before it.",
        remedy="Log once a second (nvidia-smi: `-l 1`) to see shorter pauses.",
    )


def _named(labels: Sequence[str]) -> str:
    return listed([f"GPU {label}" for label in labels])


def _how_long(idle: Sequence[tuple[GpuReport, int]]) -> str:
    longest = in_time(max(idle_ns for _, idle_ns in idle))
    return f"for {longest}" if len(idle) == 1 else f"for up to {longest}"


def _peers(idle: Sequence[tuple[GpuReport, int]], known: Sequence[GpuReport]) -> str:
    """Who worked meanwhile: named where it can be but one."""
    if len(known) == 2 and len(idle) == 1:
        return next(f"GPU {gpu.label}" for gpu in known if gpu is not idle[0][0])
    return "the other" if len(known) == 2 else "others"


def _work(idle: Sequence[tuple[GpuReport, int]], known: Sequence[GpuReport]) -> str:
    return "works" if len(known) == 2 else "work"
