"""The sentence on one GPU that follows its verdict, and those on the GPUs it does not name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from gpumon.core.device.sm_utilisation import is_under_filled
from gpumon.core.diagnosis import messages
from gpumon.core.diagnosis.fill_advice import low_fill_sentence
from gpumon.core.diagnosis.log_findings import few_samples_sentences, is_few
from gpumon.core.diagnosis.loss_range import cost_in_percent, is_split_open, possible_causes
from gpumon.core.diagnosis.messages import WORD_OF_CAUSE, Counted
from gpumon.core.diagnosis.pause_messages import loss_in_pauses
from gpumon.core.diagnosis.rank_advice import rank_named, wait_in_percent, waits_much
from gpumon.core.diagnosis.verdict_rules import is_mostly_in_pauses
from gpumon.core.phase import UNPROVED, IdleCause
from gpumon.core.report.report import GpuReport, Report
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.verdict import VerdictName
from gpumon.core.view.status import word_of
from gpumon.core.wording import counted, gpus_named, in_percent, in_time
from gpumon.outlets.text.now_lines import is_over
from gpumon.outlets.text.trouble_lines import has_trouble, trouble_words

LEAST_IN_USE: Final = in_time(DEFAULT_SETTINGS.min_in_use_ns)
MOST_CAUSES: Final = 3
_MAX_LOW: Final = 3
_NOTICED_RATIO: Final = 0.01
"""A GPU that was busy for a smaller share of the time had nothing to do."""
_LITTLE_UNUSED_RATIO: Final = 0.02
_MUCH_UNUSED_RATIO: Final = 0.1
LOSS_LIMITS: Final = (DEFAULT_SETTINGS.lost_share, DEFAULT_SETTINGS.high_share)
"""Shares of the time in use that decide on a verdict: no loss is rounded to one of them."""


def is_well(gpu: GpuReport) -> bool:
    """Whether it lost nothing worth mentioning, or had nothing to do."""
    return not gpu.verdict.name.is_of_a_loss


def is_past(gpu: GpuReport) -> bool:
    """Whether its job is over, as any of a log or of a lost GPU is."""
    return is_over(gpu) or is_of_a_log(gpu) or gpu.is_lost


def is_of_a_log(gpu: GpuReport) -> bool:
    """Whether what is known of it comes from a log."""
    return gpu.totals.samples is not None


def verdict_word(gpu: GpuReport) -> str:
    """Its verdict in words."""
    return word_of(gpu, gpu.verdict.name)


def word_in_table(gpu: GpuReport, most: int = 80) -> str:
    """Its verdict and its troubles, as far as there is room: the troubles before the verdict."""
    word, broken = verdict_word(gpu), trouble_words(gpu)
    if gpu.is_lost or not broken:
        return broken or word
    both = f"{word}, {broken}"
    return both if len(both) <= most else broken[:most]


def about(row: Counted | str, gpus: Sequence[GpuReport], **fields: object) -> str:
    """A sentence on these GPUs; empty where there are none."""
    if not gpus:
        return ""
    names = gpus_named(gpu.label for gpu in gpus)
    if isinstance(row, str):
        return row.format(gpus=names, **fields)
    return row.of(len(gpus), gpus=names, **fields)


def joined(sentences: Iterable[str]) -> str:
    """Those that are not empty, one after the other."""
    return " ".join(filter(None, sentences))


def statement_on(gpu: GpuReport, alike: Sequence[GpuReport], report: Report) -> str:
    """Where its time went, or that of all GPUs with the same verdict."""
    match gpu.verdict.name:
        case VerdictName.STARVED:
            # Without suspected time, as the verdict takes it.
            share = cost_in_percent(gpu.totals.diagnosed, IdleCause.INPUT_WAIT, *LOSS_LIMITS)
            return messages.STARVED.of(is_past(gpu), gpu=gpu.label, share=share)
        case VerdictName.STALLED:
            return _stalled(gpu)
        case VerdictName.STARVATION_SUSPECTED:
            return loss_in_pauses(gpu, report.sampling, *LOSS_LIMITS, is_past=is_past(gpu))
        case VerdictName.PARTIAL:
            return _partial(gpu, report)
        case VerdictName.HEALTHY:
            return _healthy(alike) if report.sampling is None else _busy_in_log(alike)
        case VerdictName.TOO_FEW_SAMPLES:
            return few_samples_sentences(alike)
        case _:
            return _hardly_used(gpu, alike)


def _hardly_used(gpu: GpuReport, alike: Sequence[GpuReport]) -> str:
    used = [other for other in alike if other.totals.in_use_ns]
    if any(other.totals.hanging_idle_ns for other in used):
        return messages.ONLY_HUNG.format(gpu=gpu.label)
    if used:
        is_after = any(other.totals.first_input_wait_ns for other in used)
        row = messages.SHORT_USE_AFTER_FIRST_BATCH if is_after else messages.SHORT_USE
        return about(row, used, time=LEAST_IN_USE)
    if all(other.is_hardly_observed for other in alike):
        return about(messages.SHORT_WATCH, alike, time=LEAST_IN_USE)
    # Held ones have a sentence of their own.
    unused = [other for other in alike if other.held is None]
    at_work = [
        other
        for other in unused
        if other.totals.busy_ns
        and other.totals.busy_ns >= _NOTICED_RATIO * other.totals.observed_ns
    ]
    most = max((gpu.totals.busy_ns / gpu.totals.observed_ns for gpu in at_work), default=0.0)
    others = [other for other in unused if other not in at_work]
    return joined(
        [
            about(messages.LITTLE_WORK, at_work, share=in_percent(most)),
            about(messages.NO_WORK, others),
        ]
    )


def _stalled(gpu: GpuReport) -> str:
    if waits_for_rank(gpu):
        return _waiting_for_rank(gpu)
    fields = {"gpu": gpu.label, "share": _idle_share(gpu)}
    if is_split_open(gpu.totals.diagnosed):
        causes = [WORD_OF_CAUSE[cause] for cause in possible_causes(gpu.totals.diagnosed)]
        either = " or ".join(causes[:MOST_CAUSES])
        return messages.STALLED_OPEN.of(is_past(gpu), causes=either, **fields)
    cause = greatest_proved(gpu)
    is_main = cause is gpu.verdict.main_cause
    row = messages.STALLED_MAINLY if is_main else messages.STALLED_IN_PART
    return row.of(is_past(gpu), cause=doing(gpu, cause), **fields)


def _partial(gpu: GpuReport, report: Report) -> str:
    if waits_for_rank(gpu):
        return _waiting_for_rank(gpu)
    if is_mostly_in_pauses(gpu.totals):
        lost = loss_in_pauses(gpu, report.sampling, *LOSS_LIMITS, is_past=is_past(gpu))
    else:
        lost = messages.IDLE_SHARE.of(is_past(gpu), gpu=gpu.label, share=_idle_share(gpu))
    return f"{lost} {_unexplained(gpu)}"


def _unexplained(gpu: GpuReport) -> str:
    if is_of_a_log(gpu):
        return messages.NOT_IN_LOG
    if gpu.verdict.likely_causes and is_mostly_in_pauses(gpu.totals):
        return messages.NOT_PROVED
    is_tagged = greatest_proved(gpu) is not IdleCause.UNKNOWN
    return messages.TAGS_TOO_LITTLE if is_tagged else messages.CAUSE_UNKNOWN


def doing(gpu: GpuReport, cause: IdleCause) -> str:
    """What it did in such idle time; where it waited for a known rank, for which."""
    if cause is IdleCause.IMBALANCE and gpu.waits_for is not None:
        return f"waiting for {rank_named(gpu.waits_for)}"
    return WORD_OF_CAUSE[cause]


def waits_for_rank(gpu: GpuReport) -> bool:
    """Whether the verdict rests on a wait for a late rank more than on idle time."""
    totals = gpu.totals.diagnosed
    if gpu.verdict.name not in (VerdictName.STALLED, VerdictName.PARTIAL):
        return False
    is_proved = gpu.verdict.name is VerdictName.STALLED
    waited_ns = totals.rank_wait_low_ns if is_proved else totals.rank_wait_high_ns
    return waits_much(gpu) and waited_ns > totals.lost_ns


def _waiting_for_rank(gpu: GpuReport) -> str:
    assert gpu.waits_for is not None
    is_proved = gpu.verdict.name is VerdictName.STALLED
    row = messages.WAITING_FOR_RANK if is_proved else messages.PERHAPS_WAITING_FOR_RANK
    share = wait_in_percent(gpu.totals.diagnosed, *LOSS_LIMITS)
    return row.of(is_past(gpu), gpu=gpu.label, rank=rank_named(gpu.waits_for), share=share)


def _idle_share(gpu: GpuReport) -> str:
    """How much it lost, as the verdict takes it: without the wait for the first batch."""
    totals = gpu.totals.diagnosed
    return in_percent(totals.lost_ns / totals.in_use_ns, *LOSS_LIMITS)


def _healthy(gpus: Sequence[GpuReport]) -> str:
    low = [gpu for gpu in gpus if is_under_filled(gpu.fill)]
    few = [gpu for gpu in gpus if gpu not in low and has_few_pauses(gpu)]
    full = [gpu for gpu in gpus if gpu not in (*low, *few) and not has_trouble(gpu)]
    full = full if low or few or full else [*gpus]
    row = (
        messages.LITTLE_LOST_AFTER_FIRST_BATCH if _lost_before_work(full) else messages.LITTLE_LOST
    )
    in_few_pauses = _few_pauses(few, is_all=False) if few else ""
    return joined([*map(low_fill_sentence, low[:_MAX_LOW]), in_few_pauses, about(row, full)])


def _lost_before_work(gpus: Sequence[GpuReport]) -> bool:
    """Whether one lost much time, with the wait for its first batch."""
    share = DEFAULT_SETTINGS.lost_share
    return any(
        gpu.totals.first_input_wait_ns and gpu.totals.lost_ns >= share * gpu.totals.in_use_ns
        for gpu in gpus
    )


def _busy_in_log(gpus: Sequence[GpuReport]) -> str:
    gpus = [gpu for gpu in gpus if not has_trouble(gpu)] or gpus
    alike: dict[tuple[bool, bool], list[GpuReport]] = {}
    for gpu in gpus:
        is_unused = _unused_ratio(gpu) >= _MUCH_UNUSED_RATIO
        alike.setdefault((has_few_pauses(gpu), is_unused), []).append(gpu)
    sentences = []
    for (has_paused, is_unused), same in alike.items():
        is_all = all(_unused_ratio(gpu) < _LITTLE_UNUSED_RATIO for gpu in same)
        busy = messages.BUSY_ALL_THE_TIME if is_all else messages.BUSY_ALL_ITS_USE
        sentences.append(_few_pauses(same, is_all) if has_paused else about(busy, same))
        sentences += [_unused(same)] if is_unused else []
    return " ".join(sentences)


def has_few_pauses(gpu: GpuReport) -> bool:
    """Whether a GPU that is called healthy lost more than a little, in too few pauses."""
    is_healthy = gpu.verdict.name is VerdictName.HEALTHY
    return is_healthy and _lost_ratio(gpu) >= DEFAULT_SETTINGS.lost_share


def _few_pauses(gpus: Sequence[GpuReport], is_all: bool) -> str:
    when = "the time" if is_all else "its time in use" if len(gpus) == 1 else "their time in use"
    share = in_percent(max(map(_lost_ratio, gpus)), *LOSS_LIMITS)
    count = gpus[0].totals.pauses.count
    is_one_without = len(gpus) == 1 and not count
    row = messages.IDLE_IN_NO_PATTERN if is_one_without else messages.IDLE_IN_FEW_PAUSES
    return about(row, gpus, share=share, when=when, pauses=counted(count, "pause", "pauses"))


def _unused(gpus: Sequence[GpuReport]) -> str:
    share, gpu = in_percent(max(map(_unused_ratio, gpus))), gpus[0]
    after_ns = gpu.idle_after_use_ns or 0
    is_at_end = 2 * after_ns > gpu.totals.observed_ns - gpu.totals.in_use_ns
    if len(gpus) == 1 and is_at_end:
        return messages.UNUSED_AT_END.format(share=share, time=in_time(after_ns))
    return messages.UNUSED_SHARE.of(len(gpus), share=share)


def _lost_ratio(gpu: GpuReport) -> float:
    totals = gpu.totals.diagnosed
    return totals.lost_ns / totals.in_use_ns if totals.in_use_ns else 0.0


def _unused_ratio(gpu: GpuReport) -> float:
    totals = gpu.totals
    return 1.0 - totals.in_use_ns / totals.observed_ns if totals.observed_ns else 0.0


def greatest_proved(gpu: GpuReport) -> IdleCause:
    """The known cause with the most idle time in use, without the wait for the first batch."""
    idle_ns = gpu.totals.diagnosed.idle_ns
    known = (cause for cause in idle_ns if cause not in UNPROVED)
    return max(filter(idle_ns.get, known), key=idle_ns.__getitem__, default=IdleCause.UNKNOWN)


def statements_on_others(main: GpuReport, gpus: Sequence[GpuReport]) -> str:
    """What is to be known of the GPUs that the sentence on the main one does not name."""
    if is_well(main):
        rest = [gpu for gpu in gpus if gpu.verdict.name is not main.verdict.name]
        few = [gpu for gpu in rest if is_few(gpu)]
        rest = [gpu for gpu in rest if gpu not in few]
        unused = [gpu for gpu in rest if not gpu.totals.in_use_ns and gpu.held is None]
        briefly = [gpu for gpu in rest if gpu.totals.in_use_ns]
        return joined(
            [
                about(messages.OTHERS_UNUSED, unused),
                about(messages.SHORT_USE, briefly, time=LEAST_IN_USE),
                about(messages.OTHERS_FEW_SAMPLES, few),
            ]
        )
    also = [gpu for gpu in gpus if gpu is not main and not is_well(gpu)]
    well = [gpu for gpu in gpus if gpu.verdict.name is VerdictName.HEALTHY and not has_trouble(gpu)]
    suspected = [gpu for gpu in also if _is_suspected(gpu)]
    surely = [gpu for gpu in also if gpu not in suspected]
    rows: tuple[Counted | str, ...] = (
        (messages.OTHERS_LOST, messages.OTHERS_MAY_HAVE_LOST, messages.OTHERS_WERE_HEALTHY)
        if is_past(main)
        else (messages.OTHERS_LOSE, messages.OTHERS_MAY_LOSE, messages.OTHERS_HEALTHY)
    )
    found = (surely, suspected, well)
    return joined(about(row, those) for row, those in zip(rows, found, strict=True))


def _is_suspected(gpu: GpuReport) -> bool:
    """Whether what it loses is a suspicion, or a level that may be many small kernels."""
    if gpu.verdict.name is VerdictName.PARTIAL:
        return not is_mostly_in_pauses(gpu.totals)
    return gpu.verdict.name is VerdictName.STARVATION_SUSPECTED
