"""What a finished log covers, what it shows besides the verdicts, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.core.diagnosis import messages
from gpumon.core.diagnosis.messages import Counted
from gpumon.core.log_summary.common_pauses import Together
from gpumon.core.log_summary.held_memory import HeldMemory
from gpumon.core.report.report import (
    TOO_FEW_SAMPLES,
    Advice,
    GpuReport,
    LogFinding,
    Report,
    diagnosed,
    well_sampled,
)
from gpumon.core.settings.detector import DEFAULT_SETTINGS, DetectorSettings
from gpumon.core.settings.rule import RuleKind, rule
from gpumon.core.verdict import VerdictName
from gpumon.core.wording import counted, gpus_named, in_gibibytes, in_percent, in_time

_LIMITS: Final = DEFAULT_SETTINGS.log
_MAX_GROUPS: Final = 3
"""How many groups of GPUs with the same number of samples are reported apart."""


def is_few(gpu: GpuReport) -> bool:
    """Whether its verdict is that there are too few samples of it."""
    return gpu.verdict.name is VerdictName.TOO_FEW_SAMPLES


def samples_of(gpu: GpuReport) -> str:
    """How many samples there are of it, and how far apart."""
    totals = gpu.totals
    if not totals.samples:
        return "no sample with a utilisation"
    samples = counted(totals.samples, "sample", "samples")
    if totals.sample_distance_ns and totals.samples > 1:
        return f"{samples}, one every {in_time(totals.sample_distance_ns)}"
    return samples


def few_samples_sentences(gpus: Sequence[GpuReport]) -> str:
    """That there are too few samples of each of these."""
    groups: dict[str, list[GpuReport]] = {}
    for gpu in gpus:
        groups.setdefault(samples_of(gpu), []).append(gpu)
    sentences = []
    for samples, alike in [*groups.items()][:_MAX_GROUPS]:
        row = messages.FEW_SAMPLES if alike[0].totals.samples else messages.NO_SAMPLES
        names = gpus_named(gpu.label for gpu in alike)
        sentences.append(row.of(len(alike), gpus=names, samples=samples))
    more = sum(map(len, [*groups.values()][_MAX_GROUPS:]))
    sentences += [messages.MORE_WITH_FEW_SAMPLES.of(more)] if more else []
    return " ".join(sentences)


def few_samples_reason(gpu: GpuReport) -> str:
    """How many samples a verdict needs, and what so few of them leave unknown."""
    needed = messages.SAMPLES_NEEDED.format(
        samples=_LIMITS.min_samples, time=in_time(_LIMITS.longest_distance_ns)
    )
    is_dense = (gpu.totals.sample_distance_ns or 0) < 2 * NS_PER_S
    return needed if is_dense else f"{needed} {messages.SAMPLES_APART}"


def few_samples_advice(gpus: Sequence[GpuReport]) -> Advice | None:
    """What to log, where there is a GPU with too few samples."""
    few = [gpu for gpu in diagnosed(gpus) if is_few(gpu)]
    if not few:
        return None
    without = [gpu.label for gpu in few if not gpu.totals.samples]
    texts = [messages.LOG_A_SECOND] if len(without) < len(few) else []
    if without:
        texts.append(messages.NO_UTILISATION.format(gpus=gpus_named(without)))
    return Advice(
        cause=TOO_FEW_SAMPLES,
        lost_seconds=0.0,
        speedup_upper_bound=None,
        evidence=few_samples_sentences(few),
        text=" ".join(texts),
        gpus=tuple(gpu.label for gpu in few),
    )


def has_gaps(gpu: GpuReport) -> bool:
    """Whether so many of its rows have no utilisation that each sentence on it must say so."""
    return gpu.totals.usable_share < _LIMITS.usable_enough and not is_few(gpu)


def is_mostly_unseen(gpu: GpuReport) -> bool:
    """Whether most of its rows have none: then a loss is not one of the whole log."""
    return gpu.totals.usable_share < _LIMITS.usable_least and not is_few(gpu)


def usable_share(gpu: GpuReport) -> str:
    """The share of its rows that have a utilisation."""
    return in_percent(gpu.totals.usable_share, _LIMITS.usable_enough, _LIMITS.usable_least)


def have_one_share(gpus: Sequence[GpuReport]) -> bool:
    """Whether these are several, and the same share of the rows of each can be used."""
    return len(gpus) > 1 and len({usable_share(gpu) for gpu in gpus}) == 1


def rows_used_sentence(gpus: Sequence[GpuReport]) -> str:
    """Which share of the rows the verdicts rest on; empty where that is enough of them."""
    with_gaps = [gpu for gpu in gpus if has_gaps(gpu)]
    if not with_gaps:
        return ""
    least = usable_share(min(with_gaps, key=lambda gpu: gpu.totals.usable_share))
    names = gpus_named(gpu.label for gpu in with_gaps)
    return messages.ROWS_USED.of(len(with_gaps), gpus=names, share=least)


_ALL_PAUSED: Final = (
    "{who} paused together for {time} ({share} of the time they were in use): something they share "
    "holds them up."
)
_UNUSED_BESIDE: Final = Counted(
    "{gpus} was never in use while {peers} worked for {time}.",
    "{gpus} were never in use while {peers} worked for {time}.",
)
_UNUSED_REMEDY: Final = Counted(
    "Give it a share of the work, or leave it to another job.",
    "Give them a share of the work, or leave them to another job.",
)
_IDLE_BESIDE: Final = Counted(
    "{gpus} was idle for {time} while {peers} worked.",
    "{gpus} were idle for {time} while {peers} worked.",
)
_MEMORY_HELD: Final = Counted(
    "{gpus} held {memory} for {time} without any work.",
    "{gpus} held up to {memory} each for {time} in all without any work.",
)
_LONGEST_STRETCH: Final = "The longest stretch was {time}."
_COARSE: Final = (
    "One sample every {period}: pauses shorter than {pause} are not visible, and a sample may "
    "cover only the second before it."
)


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
    """All that the log of a report shows besides the verdicts; nothing of a live report."""
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
    who = gpus_named(labels)
    if len(labels) == len(diagnosed(report.gpus)):
        who = f"All {len(labels):,} GPUs" if len(labels) > 2 else "Both GPUs"
    yield LogFinding(
        rule="all_pause_together",
        gpus=tuple(labels),
        text=_ALL_PAUSED.format(
            who=who,
            time=in_time(joined.all_paused_ns),
            share=in_percent(joined.all_paused_ns / joined.in_use_ns),
        ),
        remedy="Check the loader, the storage, checkpoints and barriers rather than any one GPU.",
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
    for is_used in (False, True):
        some = [item for item in idle if bool(item[0].totals.in_use_ns) is is_used]
        if not some:
            continue
        labels = [gpu.label for gpu, _ in some]
        longest = in_time(max(idle_ns for _, idle_ns in some))
        yield LogFinding(
            rule="idle_beside_peer",
            gpus=tuple(labels),
            text=(_IDLE_BESIDE if is_used else _UNUSED_BESIDE).of(
                len(labels),
                gpus=gpus_named(labels),
                peers=_peers(some, known),
                time=longest if len(some) == 1 else f"up to {longest}",
            ),
            remedy="If they work on one job, its load is uneven; if on several, there is room for "
            "more."
            if is_used
            else _UNUSED_REMEDY.of(len(labels)),
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
    total_ns, longest_ns = sum(it.idle_ns for _, it in held), max(it.longest_ns for _, it in held)
    text = _MEMORY_HELD.of(
        len(labels),
        gpus=gpus_named(labels),
        memory=in_gibibytes(max(it.peak_bytes for _, it in held)),
        time=in_time(total_ns),
    )
    if longest_ns < total_ns:
        text = f"{text} {_LONGEST_STRETCH.format(time=in_time(longest_ns))}"
    yield LogFinding(
        rule="memory_held",
        gpus=tuple(labels),
        text=text,
        remedy="If a job should have run then, check whether it hangs. An idle notebook or server "
        "keeps its memory until it ends.",
    )


def _coarse(report: Report) -> Iterator[LogFinding]:
    sampling = report.sampling
    if sampling is None or not sampling.is_coarse or not well_sampled(report.gpus):
        return
    yield LogFinding(
        rule="sampling_too_coarse",
        gpus=(),
        text=_COARSE.format(
            period=in_time(sampling.period_ns), pause=in_time(sampling.shortest_visible_pause_ns)
        ),
        remedy="Log once a second (nvidia-smi: `-l 1`) to see shorter pauses.",
    )


def _peers(idle: Sequence[tuple[GpuReport, int]], known: Sequence[GpuReport]) -> str:
    """Who worked meanwhile: named where it can be only one."""
    if len(known) == 2 and len(idle) == 1:
        return next(f"GPU {gpu.label}" for gpu in known if gpu is not idle[0][0])
    return "the other" if len(known) == 2 else "others"
