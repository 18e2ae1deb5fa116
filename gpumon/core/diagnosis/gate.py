"""A report held against limits: which GPUs are above them, and of which nothing can be said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from gpumon.core.clock import NS_PER_S, seconds
from gpumon.core.diagnosis.messages import WORD_OF_CAUSE, WORD_OF_FIRST_WAIT
from gpumon.core.phase import UNPROVED, IdleCause
from gpumon.core.report.report import GpuReport, Report
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.wording import gpus_named, in_percent, in_time, label_text, listed, plainly

_LEAST_NS: Final = DEFAULT_SETTINGS.min_in_use_ns
_TOO_SHORT: Final = f"less than {seconds(_LEAST_NS):g} s"
_JUST_SHORTER_NS: Final = _LEAST_NS - NS_PER_S // 10
"""The most that is shown of what is too short: no figure is rounded up to the limit."""
_SUSPECTED: Final = "suspected to wait for input"
_MOST_NAMED: Final = 16
_MAX_ERROR: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most of the time in use that a GPU may lose, 0 to 1; ``None``: no limit.

    Attributes:
        starved: To waits for input, proved or suspected; but for the very first batch.
        lost: To anything: what the report calls lost, the wait for the very first batch too.
    """

    starved: float | None = None
    lost: float | None = None


class Judgement(NamedTuple):
    """What came of holding a report against limits.

    Attributes:
        failures: A sentence on each limit that a GPU is above.
        notes: What a reader must know beside that, a sentence each.
        unjudged: The GPUs of which nothing can be said, and why; empty where there are none.
        is_any_judged: Whether there is a verdict on one GPU at least. Without one,
            neither "above" nor "below" is known.
    """

    failures: tuple[str, ...]
    notes: tuple[str, ...]
    unjudged: str
    is_any_judged: bool


def judgement(report: Report, limits: Limits) -> Judgement:
    """Hold every GPU on which there is a verdict against the limits.

    A GPU that was not in use, or for too short a time, is never judged,
    whatever was proved of it: a share of a few seconds says nothing. Exactly
    at a limit is not above it.
    """
    gpus = [gpu for gpu in report.gpus if _is_judged(gpu)]
    unjudged = _unjudged(report)
    failures: list[str] = []
    notes: list[str] = []
    if gpus and unjudged:
        notes.append(f"not judged: {unjudged}")
    if limits.starved is not None:
        what = "starved, or suspected to be, for more than {} of the time in use"
        failures += _above(what, limits.starved, [(gpu, _starved(gpu), "") for gpu in gpus])
        notes += [_unknown(gpu) for gpu in gpus if _may_be_starved(gpu, limits.starved)]
    if limits.lost is not None:
        lost = [(gpu, gpu.verdict.lost_ratio or 0.0, _main_cause(gpu)) for gpu in gpus]
        failures += _above("more than {} of the time in use is lost", limits.lost, lost)
    if limits != Limits():
        notes += [_of_before(gpu) for gpu in gpus if gpu.error is not None]
    return Judgement(tuple(failures), tuple(notes), unjudged, bool(gpus))


def _is_judged(gpu: GpuReport) -> bool:
    is_known = gpu.verdict.name.is_judged and gpu.verdict.lost_ratio is not None
    return is_known and gpu.is_judgeable


def _above(claim: str, limit: float, gpus: Sequence[tuple[GpuReport, float, str]]) -> list[str]:
    above = [
        f"GPU {gpu.label} ({in_percent(ratio, limit)}{why})"
        for gpu, ratio, why in gpus
        if ratio > limit
    ]
    # As it was typed: `in_percent` would round 12.5.
    percent = f"{plainly(round(100.0 * limit, 6))} %"
    return [f"{claim.format(percent)}: {listed(above, most=_MOST_NAMED)}"] if above else []


def _starved(gpu: GpuReport) -> float:
    return gpu.verdict.starved_ratio or 0.0


def _main_cause(gpu: GpuReport) -> str:
    """What took most; where that is unknown, what is proved stays said beside it. A clause."""
    totals = gpu.totals
    parts = {
        WORD_OF_CAUSE[cause]: ns
        for cause, ns in totals.judged.idle_ns.items()
        if cause not in UNPROVED
    }
    parts[WORD_OF_FIRST_WAIT] = totals.first_input_wait_ns
    words = max(parts, key=parts.__getitem__)
    proved_ns, unknown_ns = parts[words], totals.idle_ns.get(IdleCause.UNKNOWN, 0)
    if proved_ns >= unknown_ns:
        return f", mainly {words}"
    is_suspected = 2 * totals.suspected_ns > unknown_ns
    unknown = _SUSPECTED if is_suspected else WORD_OF_CAUSE[IdleCause.UNKNOWN]
    if not proved_ns:
        return f", {unknown}"
    is_the_same = is_suspected and words == WORD_OF_CAUSE[IdleCause.INPUT_WAIT]
    proved = f"{in_percent(proved_ns / totals.in_use_ns)} proved"
    return f": {unknown}, {proved}" if is_the_same else f": {unknown}, {proved} {words}"


def _may_be_starved(gpu: GpuReport, limit: float) -> bool:
    coverage, starved = gpu.verdict.coverage_ratio, _starved(gpu)
    if coverage is None or coverage >= DEFAULT_SETTINGS.min_coverage:
        return False
    return starved <= limit < starved + _unknown_ratio(gpu)


def _unknown_ratio(gpu: GpuReport) -> float:
    """The share of its time in use that has no known cause and is not suspected either."""
    totals = gpu.totals
    unknown_ns = totals.idle_ns.get(IdleCause.UNKNOWN, 0) - totals.suspected_ns
    return unknown_ns / totals.in_use_ns


def _unknown(gpu: GpuReport) -> str:
    return (
        f"of GPU {gpu.label}, {in_percent(_unknown_ratio(gpu))} of the time in use has no known "
        "cause and may be a wait for input, too: tag its training's phases to know"
    )


def _of_before(gpu: GpuReport) -> str:
    observed = in_time(gpu.totals.observed_ns)
    return f"GPU {gpu.label} cannot be read now: it is judged by the {observed} that were observed"


# -- of which nothing can be said --------------------------------------------------


def _unjudged(report: Report) -> str:
    gpus = [gpu for gpu in report.gpus if not _is_judged(gpu) and not _has_instances(gpu, report)]
    named: dict[tuple[str, str], list[str]] = {}
    for gpu in gpus:
        named.setdefault(_reason(gpu), []).append(gpu.label)
    reasons = [
        f"{gpus_named(names)} {one if len(names) == 1 else many}"
        for (one, many), names in named.items()
    ]
    reasons += _on_no_gpu(report)
    return ", ".join(reasons) if reasons or report.gpus else "no GPU was observed"


def _on_no_gpu(report: Report) -> list[str]:
    """Trainings whose tags speak of no GPU: whatever is judged, it is not by them.

    A name of which another run was on one is not among them: readers would take it for that.
    """
    runs = report.observed_runs
    told = {run.name for run in runs if run.gpu_uuids}
    nowhere = [run.run for run in runs if not run.gpu_uuids and run.name not in told]
    names = [label_text(label) for label in dict.fromkeys(nowhere)]
    if not names:
        return []
    were = f"the run {names[0]} was" if len(names) == 1 else f"the runs {listed(names)} were"
    return [f"{were} on no GPU (GPUMON_GPUS names it)"]


def _has_instances(gpu: GpuReport, report: Report) -> bool:
    return gpu.is_cut and any(other.parent_uuid == gpu.uuid for other in report.gpus)


def _reason(gpu: GpuReport) -> tuple[str, str]:
    """Why there is no verdict: to be said of one GPU, and of several."""
    totals = gpu.totals
    if gpu.is_cut:
        return ("is cut by MIG, and no instance is made", "are cut by MIG, and no instance is made")
    if gpu.is_mute:
        return ("does not tell how busy it is", "do not tell how busy they are")
    if gpu.error is not None and not totals.observed_ns:
        said = f"cannot be read: {label_text(gpu.error, _MAX_ERROR).rstrip('.')}"
        return (said, said)
    if not totals.observed_ns:
        return ("was not observed", "were not observed")
    if totals.hanging_now:
        return ("has a run that hangs", "have runs that hang")
    if totals.hanging_idle_ns:
        return ("did little but hang", "did little but hang")
    if totals.in_use_ns:
        worked = f"in use for {_short(totals.judged.in_use_ns)}"
        if totals.first_input_wait_ns:
            worked += " after its first batch"
        return (f"was {worked}, {_TOO_SHORT}", f"were {worked}, {_TOO_SHORT}")
    if gpu.is_hardly_observed:
        watched = f"watched for {_short(totals.observed_ns)}, {_TOO_SHORT}"
        return (f"was {watched}", f"were {watched}")
    return ("was not in use", "were not in use")


def _short(duration_ns: int) -> str:
    return in_time(min(duration_ns, _JUST_SHORTER_NS))
