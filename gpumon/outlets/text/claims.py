"""What a report claims of one GPU, as the sentence that follows its verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gpumon.core.clock import seconds
from gpumon.core.device.fill import is_under_filled
from gpumon.core.diagnosis.advice import WORD_OF_CAUSE
from gpumon.core.diagnosis.few_samples import few_claim
from gpumon.core.diagnosis.fill_texts import fill_claim
from gpumon.core.diagnosis.loss_range import cost_in_percent, is_split_open, possible_causes
from gpumon.core.diagnosis.pause_texts import certain_loss
from gpumon.core.diagnosis.rank_texts import rank_named, wait_in_percent, waits_much
from gpumon.core.diagnosis.verdict_rules import is_mostly_in_pauses
from gpumon.core.phase import UNPROVED, IdleCause
from gpumon.core.report.report import GpuReport, Report
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.verdict import VerdictName
from gpumon.core.wording import counted, gpus_named, in_percent, in_time, listed
from gpumon.outlets.text.now_lines import is_over
from gpumon.outlets.text.trouble_lines import has_trouble, trouble_words

WORD_OF_VERDICT: Final[Mapping[VerdictName, str]] = {
    **{name: name.value.replace("_", " ") for name in VerdictName},
    VerdictName.PARTIAL: "partly busy",
}
"""Each verdict in words, here and on the page."""
LEAST_IN_USE: Final = f"{seconds(DEFAULT_SETTINGS.min_in_use_ns):g} s"
MOST_CAUSES: Final = 3
_NOTICED_RATIO: Final = 0.01
"""A GPU that was busy for a smaller share of the time had nothing to do."""
_LITTLE_UNUSED_RATIO: Final = 0.02
_MUCH_UNUSED_RATIO: Final = 0.1
LOSS_LIMITS: Final = (DEFAULT_SETTINGS.lost_share, DEFAULT_SETTINGS.high_share)
"""Shares of the time in use that decide on a verdict: no loss is rounded to one of them."""


def is_well(gpu: GpuReport) -> bool:
    """Whether it lost nothing that is worth a word, or had nothing to do."""
    return not gpu.verdict.name.is_of_a_loss


def verdict_word(gpu: GpuReport) -> str:
    """Its verdict as people say it."""
    is_unused = gpu.verdict.name in (VerdictName.NOT_IN_USE, VerdictName.TOO_SHORT_TO_JUDGE)
    if gpu.held is not None and is_unused:
        return "held"
    if gpu.verdict.name is VerdictName.NOT_IN_USE and gpu.is_hardly_observed:
        return WORD_OF_VERDICT[VerdictName.TOO_SHORT_TO_JUDGE]
    return WORD_OF_VERDICT[gpu.verdict.name]


def word_in_table(gpu: GpuReport, most: int = 80) -> str:
    """Its verdict and its troubles, as far as there is room: the troubles before the verdict."""
    word, broken = verdict_word(gpu), trouble_words(gpu)
    if gpu.is_lost or not broken:
        return broken or word
    both = f"{word}, {broken}"
    return both if len(both) <= most else broken[:most]


def claim_of(gpu: GpuReport, alike: Sequence[GpuReport], report: Report) -> str:
    """Where its time goes, or that of all GPUs with the same verdict."""
    name = f"GPU {gpu.label}"
    match gpu.verdict.name:
        case VerdictName.STARVED:
            # Without what is only suspected to be starved, as the verdict takes it.
            share = cost_in_percent(gpu.totals.judged, IdleCause.INPUT_WAIT, *LOSS_LIMITS)
            waits = verb(gpu, "waits", "waited")
            return f"{name} {waits} for input {share} of its time in use."
        case VerdictName.STALLED:
            return f"{name} {_stalled_claim(gpu)}."
        case VerdictName.STARVATION_SUSPECTED:
            return f"{name} {_loss_in_pauses(gpu, report)}."
        case VerdictName.PARTIAL:
            return f"{name} {_partial_claim(gpu, report)}."
        case VerdictName.HEALTHY:
            return _work_well(alike) if report.sampling is None else _were_busy(alike)
        case VerdictName.TOO_FEW_SAMPLES:
            return few_claim(alike)
        case _:
            used = [other for other in alike if other.totals.in_use_ns]
            if any(other.totals.hanging_idle_ns for other in used):
                return f"{name} did little but hang in its time in use."
            if used:
                after = any(other.totals.first_input_wait_ns for other in used)
                since = f" {LEAST_IN_USE}{' after the first batch' if after else ''}."
                return all_of(used, "was", "were") + f" in use for less than{since}"
            if all(other.is_hardly_observed for other in alike):
                return all_of(alike, "was", "were") + f" watched for less than {LEAST_IN_USE}."
            return _were_unused(alike)


def _were_unused(gpus: Sequence[GpuReport]) -> str:
    """Of GPUs that were never in use: what little each of them worked."""
    gpus = [gpu for gpu in gpus if gpu.held is None]  # held ones have a sentence of their own
    at_work = [
        gpu
        for gpu in gpus
        if gpu.totals.busy_ns and gpu.totals.busy_ns >= _NOTICED_RATIO * gpu.totals.observed_ns
    ]
    if not gpus:
        return ""
    if not at_work:
        return all_of(gpus, "had nothing to do", "had nothing to do") + "."
    most = max(gpu.totals.busy_ns / gpu.totals.observed_ns for gpu in at_work)
    at_most = " at most" if len(at_work) > 1 else ""
    little = f"busy {in_percent(most)} of the time{at_most}, too little to count as in use"
    others = [gpu for gpu in gpus if gpu not in at_work]
    nothing = also_of(others, "had nothing to do", "had nothing to do")
    return f"{all_of(at_work, 'was', 'were')} {little}.{nothing}"


def _stalled_claim(gpu: GpuReport) -> str:
    if waits_for_rank(gpu):
        return _rank_claim(gpu, verb(gpu, "waits", "waited"))
    if is_split_open(gpu.totals.judged):
        causes = [WORD_OF_CAUSE[cause] for cause in possible_causes(gpu.totals.judged)]
        either = " or ".join(causes[:MOST_CAUSES])
        return f"{_idle_share(gpu)}, {either}: its tags leave open how much of each"
    cause = greatest_proved(gpu)
    most = "mainly" if cause is gpu.verdict.main_cause else "in part"
    return f"{_idle_share(gpu)}, {most} {doing(gpu, cause)}"


def _partial_claim(gpu: GpuReport, report: Report) -> str:
    if waits_for_rank(gpu):
        return _rank_claim(gpu, verb(gpu, "may wait", "may have waited"))
    return f"{_unproved_loss(gpu, report)}, and {_unexplained(gpu)}"


def doing(gpu: GpuReport, cause: IdleCause) -> str:
    """What it did in such idle time; where it waited for a rank that is known, for which."""
    if cause is IdleCause.IMBALANCE and gpu.waits_for is not None:
        return f"waiting for {rank_named(gpu.waits_for)}"
    return WORD_OF_CAUSE[cause]


def waits_for_rank(gpu: GpuReport) -> bool:
    """Whether the verdict rests on a wait for a late rank more than on idle time."""
    totals = gpu.totals.judged
    if gpu.verdict.name not in (VerdictName.STALLED, VerdictName.PARTIAL):
        return False
    is_proved = gpu.verdict.name is VerdictName.STALLED
    waited_ns = totals.rank_wait_low_ns if is_proved else totals.rank_wait_high_ns
    return waits_much(gpu) and waited_ns > totals.lost_ns


def _rank_claim(gpu: GpuReport, waits: str) -> str:
    assert gpu.waits_for is not None
    share = wait_in_percent(gpu.totals.judged, *LOSS_LIMITS)
    return f"{waits} for {rank_named(gpu.waits_for)}, {share} of its time in use"


def _unproved_loss(gpu: GpuReport, report: Report) -> str:
    if is_mostly_in_pauses(gpu.totals):
        return _loss_in_pauses(gpu, report)
    return _idle_share(gpu)


def _idle_share(gpu: GpuReport) -> str:
    """How much it lost, as the verdict takes it: without the wait for the very first batch."""
    totals = gpu.totals.judged
    share = in_percent(totals.lost_ns / totals.in_use_ns, *LOSS_LIMITS)
    return f"{verb(gpu, 'is', 'was')} idle {share} of its time in use"


def verb(gpu: GpuReport, present: str, past: str) -> str:
    """A verb about the job that goes on, or that has ended, as any of a log has."""
    return past if is_over(gpu) or is_of_a_log(gpu) else present


def is_of_a_log(gpu: GpuReport) -> bool:
    """Whether what is known of it comes from a log."""
    return gpu.totals.samples is not None


def _loss_in_pauses(gpu: GpuReport, report: Report) -> str:
    loses = verb(gpu, "loses", "lost")
    return f"{loses} {certain_loss(gpu, report.sampling, *LOSS_LIMITS)}"


def _unexplained(gpu: GpuReport) -> str:
    if is_of_a_log(gpu):
        return "the log does not show why"
    if gpu.verdict.likely_causes and is_mostly_in_pauses(gpu.totals):
        return "nothing proves why"
    is_tagged = greatest_proved(gpu) is not IdleCause.UNKNOWN
    return "tags explain too little of it" if is_tagged else "nothing tells why"


def _work_well(gpus: Sequence[GpuReport]) -> str:
    """Of GPUs that lose nothing: which of them are under-filled, and which work well."""
    empty = [gpu for gpu in gpus if is_under_filled(gpu.fill)]
    full = [gpu for gpu in gpus if gpu not in empty and not has_trouble(gpu)]
    if not empty and not full:
        whose = "its" if len(gpus) == 1 else "their"
        little = f"lost little of {whose} time in use"
        return f"{all_of(gpus, little, little)}."
    claims = [f"GPU {gpu.label} {verb(gpu, 'is', 'was')} {fill_claim(gpu)}" for gpu in empty]
    works, work = (verb(gpus[0], word, "worked") for word in ("works", "work"))
    working = all_of(full, f"{works} well", f"{work} well") if full else ""
    sentences = [listed(claims, most=3), working]
    return " ".join(f"{sentence}." for sentence in sentences if sentence)


def _were_busy(gpus: Sequence[GpuReport]) -> str:
    """Of GPUs of a log that lose little, or in too few pauses: how busy they were, and when."""
    gpus = [gpu for gpu in gpus if not has_trouble(gpu)] or gpus
    alike: dict[tuple[bool, bool], list[GpuReport]] = {}
    for gpu in gpus:
        is_unused = _unused_ratio(gpu) >= _MUCH_UNUSED_RATIO
        alike.setdefault((has_few_pauses(gpu), is_unused), []).append(gpu)
    return " ".join(
        f"{all_of(same, 'was', 'were')} "
        f"{_few_pauses(same) if has_paused else f'busy almost all {_when(same)}'}"
        f"{_unused(same) if is_unused else ''}."
        for (has_paused, is_unused), same in alike.items()
    )


def has_few_pauses(gpu: GpuReport) -> bool:
    """Whether a GPU of a log that is called healthy lost more than a little, in too few pauses."""
    is_healthy = gpu.verdict.name is VerdictName.HEALTHY
    return is_healthy and is_of_a_log(gpu) and _lost_ratio(gpu) >= DEFAULT_SETTINGS.lost_share


def _few_pauses(gpus: Sequence[GpuReport]) -> str:
    """How much they were idle, in pauses too few for a verdict."""
    most = in_percent(max(map(_lost_ratio, gpus)), *LOSS_LIMITS)
    if len(gpus) > 1:
        return f"idle for up to {most} of {_when(gpus)}, in too few pauses to judge"
    count = gpus[0].totals.pauses.count
    pauses = f" in {counted(count, 'pause', 'pauses')}, too few to judge" if count else ""
    return f"idle for {most} of {_when(gpus)}{pauses or ', in no pattern'}"


def _unused(gpus: Sequence[GpuReport]) -> str:
    """For how much of the log they were not used; a clause."""
    most = in_percent(max(map(_unused_ratio, gpus)))
    if len(gpus) > 1:
        return f"; they were not used for up to {most} of the log"
    (gpu,) = gpus
    after_ns = gpu.idle_after_use_ns or 0
    is_at_end = 2 * after_ns > gpu.totals.observed_ns - gpu.totals.in_use_ns
    last = f", the last {in_time(after_ns)} included" if is_at_end else ""
    return f"; it was not used for {most} of the log{last}"


def _when(gpus: Sequence[GpuReport]) -> str:
    if all(_unused_ratio(gpu) < _LITTLE_UNUSED_RATIO for gpu in gpus):
        return "the time"
    return "its time in use" if len(gpus) == 1 else "their time in use"


def _lost_ratio(gpu: GpuReport) -> float:
    totals = gpu.totals.judged
    return totals.lost_ns / totals.in_use_ns if totals.in_use_ns else 0.0


def _unused_ratio(gpu: GpuReport) -> float:
    totals = gpu.totals
    return 1.0 - totals.in_use_ns / totals.observed_ns if totals.observed_ns else 0.0


def greatest_proved(gpu: GpuReport) -> IdleCause:
    """The known cause with the most idle time while in use, but for the very first batch."""
    idle_ns = gpu.totals.judged.idle_ns
    known = (cause for cause in idle_ns if cause not in UNPROVED)
    return max(filter(idle_ns.get, known), key=idle_ns.__getitem__, default=IdleCause.UNKNOWN)


def all_of(gpus: Sequence[GpuReport], one: str, many: str) -> str:
    """These GPUs, and what they do."""
    return f"{gpus_named(gpu.label for gpu in gpus)} {one if len(gpus) == 1 else many}"


def also_of(gpus: Sequence[GpuReport], one: str, many: str) -> str:
    """The same as a further sentence; empty where there are none."""
    return f" {all_of(gpus, one, many)}." if gpus else ""
