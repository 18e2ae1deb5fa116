"""The first two lines of a report: Verdict and Why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from gpumon.core.device.sm_utilisation import is_under_filled
from gpumon.core.diagnosis import messages
from gpumon.core.diagnosis.fill_advice import fill_reason
from gpumon.core.diagnosis.imbalance_advice import may_wait_unseen
from gpumon.core.diagnosis.log_findings import (
    coarse_sentence,
    few_samples_reason,
    has_gaps,
    have_one_share,
    is_mostly_unseen,
    rows_used_sentence,
    usable_share,
)
from gpumon.core.diagnosis.silence_messages import silence_sentence
from gpumon.core.diagnosis.verdict_rules import certain_lost_ns
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import GpuReport, Report, diagnosed
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.verdict import Severity, VerdictName
from gpumon.core.wording import capital, in_percent, in_time, label_text, listed, part_of
from gpumon.outlets.text.now_lines import (
    clock,
    ended_in_a_hang,
    hang_statement,
    held_statements,
    is_over,
    stands_still,
    standstill_reason,
    standstill_statement,
    title_of_now,
)
from gpumon.outlets.text.reason_text import reason_of, short_use_reason
from gpumon.outlets.text.statements import (
    LOSS_LIMITS,
    about,
    is_well,
    joined,
    statement_on,
    statements_on_others,
    verdict_word,
    waits_for_rank,
)
from gpumon.outlets.text.trouble_lines import (
    has_trouble,
    source_sentence,
    trouble_evidence,
    trouble_sentences,
    trouble_title,
)

_ORDER = (
    VerdictName.HANGING,
    VerdictName.STARVED,
    VerdictName.STALLED,
    VerdictName.STARVATION_SUSPECTED,
    VerdictName.PARTIAL,
    VerdictName.HEALTHY,
    VerdictName.TOO_FEW_SAMPLES,
    VerdictName.TOO_SHORT_TO_JUDGE,
    VerdictName.NOT_IN_USE,
)


def main_gpu(gpus: Sequence[GpuReport]) -> GpuReport | None:
    """The GPU that the headline is about.

    One whose run hangs or is suspended, or the one that loses most for certain: by tags, or in
    pauses, because a level below full use may be many small kernels. Then one whose last job did.
    Where none lost enough, one with low SM utilisation. MIG-partitioned GPUs and instances without
    utilisation data are left out; ``None`` where there is no other.
    """
    known = diagnosed(gpus)
    readable = [gpu for gpu in known if not gpu.is_lost] or known
    return min(readable, key=_precedence, default=None)


class _Precedence(NamedTuple):
    """Sort key of GPUs for the headline: the least comes first.

    Attributes:
        state: 0: hangs or is suspended; 1: loses time; 2: lost time in its last job; 3: is well.
        is_full: Whether it is well without low SM utilisation, or not well.
        comes_later: Whether it waits for a late rank; of a GPU that is well, whether its job is
            over.
        verdict: Position of its verdict in ``_ORDER``; 0 if it loses time.
        is_unheld: Whether it is well and no process holds it idle, or not well.
        last_verdict: Position in ``_ORDER`` if it loses time; else 0.
    """

    state: int
    is_full: bool = True
    comes_later: bool = False
    verdict: int = 0
    minus_certain_loss_ns: int = 0
    minus_loss_ns: int = 0
    is_unheld: bool = True
    last_verdict: int = 0


def _precedence(gpu: GpuReport) -> _Precedence:
    minus_loss_ns, verdict = -gpu.totals.lost_ns, _ORDER.index(gpu.verdict.name)
    if gpu.verdict.name is VerdictName.HANGING or gpu.is_suspended:
        return _Precedence(0, verdict=verdict, minus_loss_ns=minus_loss_ns)
    if is_well(gpu) and not ended_in_a_hang(gpu):
        return _Precedence(
            3,
            is_full=not is_under_filled(gpu.fill),
            comes_later=is_over(gpu),
            verdict=verdict,
            minus_loss_ns=minus_loss_ns,
            is_unheld=gpu.held is None,
        )
    # A late rank comes before the GPUs that wait for it.
    waits = waits_for_rank(gpu) or gpu.verdict.main_cause is IdleCause.IMBALANCE
    return _Precedence(
        2 if is_over(gpu) else 1,
        comes_later=waits,
        minus_certain_loss_ns=-certain_lost_ns(gpu.totals.diagnosed),
        minus_loss_ns=minus_loss_ns,
        last_verdict=verdict,
    )


def verdict_line(report: Report) -> str:
    """What the report amounts to: first what is broken, then where the time goes at present."""
    report = report.at_present
    grave, lesser = (
        trouble_sentences(report, severity) for severity in (Severity.HIGH, Severity.MODERATE)
    )
    gpu, time = main_gpu(report.gpus), _time_line(report)
    if not (grave or lesser):
        return time
    if gpu is not None and gpu.is_lost:
        time = f"before that: {time}"
    elif gpu is None or (is_well(gpu) and (grave or not is_under_filled(gpu.fill))):
        # A machine with a broken GPU is not "healthy": the verdict on time is left out.
        grave, lesser = joined([grave, lesser]), ""
        time = time if gpu is None else _time_statement(gpu, report)
    first = f"{trouble_title(report)}: {grave} {capital(time)}" if grave else time
    return joined([first, lesser])


def _time_line(report: Report) -> str:
    gpu = main_gpu(report.gpus)
    if gpu is None:
        return _without_a_gpu(report)
    shown = gpu
    if is_mostly_unseen(gpu):
        shown = replace(gpu, verdict=gpu.verdict._replace(severity=Severity.NONE))
    word = verdict_word(gpu)
    if gpu.verdict.name is VerdictName.HEALTHY and is_under_filled(gpu.fill):
        word = f"{word}, but low SM utilisation"
    title = title_of_now(shown, report, word)
    return f"{title}{_as_far_as_seen(gpu, report)}: {_time_statement(gpu, report)}"


def _without_a_gpu(report: Report) -> str:
    if unread := source_sentence(report):
        return unread
    if report.gpus:
        without = [gpu for gpu in report.gpus if gpu.has_no_utilisation]
        if without:
            return about(messages.NO_DATA, without)
        is_log = report.sampling is not None
        return about(messages.MIG_IN_LOG if is_log else messages.MIG_EMPTY, report.gpus)
    for run in report.runs:
        if run.silence is not None:
            word = "hanging" if run.silence.is_hanging else "no GPU yet"
            return f"{word}: {silence_sentence(run, run.silence)}"
    if not report.runs:
        return messages.NO_GPU
    is_on_cpu = all(run.uses_no_gpu for run in report.runs)
    row = messages.NO_GPU_ON_CPU if is_on_cpu else messages.NO_GPU_USED
    return row.of(len(report.runs), runs=listed([label_text(run.run) for run in report.runs]))


def _time_statement(gpu: GpuReport, report: Report) -> str:
    known = diagnosed(report.gpus)
    readable = [other for other in known if gpu.is_lost or not other.is_lost]
    held = held_statements(readable, report)
    if stands_still(gpu, report):
        return joined([standstill_statement(gpu, report), held])
    if ended_in_a_hang(gpu):
        return joined([hang_statement(gpu), held])
    present = [other for other in readable if is_over(other) is is_over(gpu)]
    past = [other for other in readable if is_over(other) and not is_over(gpu)]
    alike = [other for other in present if other.verdict.name is gpu.verdict.name]
    statement = statement_on(gpu, alike, report)
    if is_mostly_unseen(gpu) and not is_well(gpu):
        statement = messages.IN_USABLE_ROWS.format(statement=statement)
    others = [other for other in readable if other is not gpu and not has_trouble(other)]
    partitioned = [
        other
        for other in report.gpus
        if other.is_partitioned and not has_instance(other, report.gpus)
    ]
    in_use = [
        other for other in readable if not is_over(other) and other.verdict.name.is_conclusive
    ]
    sentences = [
        statement,
        statements_on_others(gpu, present),
        "" if have_one_share(readable) else rows_used_sentence(others),
        "" if report.sampling is None else about(messages.OTHERS_MIG, partitioned),
        about(messages.OTHERS_UNUSED_NOW, [other for other in past if other.held is None]),
        about(messages.OTHERS_IN_USE_NOW, in_use) if is_over(gpu) else "",
    ]
    return joined([held, *sentences] if gpu.held is not None else [*sentences, held])


def why_line(report: Report) -> str:
    """What the verdict rests on, with figures."""
    whole, report = report, report.at_present
    gpu = main_gpu(report.gpus)
    if gpu is None:
        return _why_without_a_gpu(report)
    why = joined([_why(gpu, report), _since_the_start(gpu, whole)])
    broken = trouble_evidence(report)
    return joined([broken, capital(why) if broken else why, coarse_sentence(report)])


def _why_without_a_gpu(report: Report) -> str:
    if any(gpu.has_no_utilisation for gpu in report.gpus):
        return messages.WHY_NO_DATA
    if report.gpus:
        is_log = report.sampling is not None
        return messages.WHY_MIG_IN_LOG if is_log else messages.WHY_MIG_EMPTY
    if report.source_error is not None:
        return messages.WHY_NO_GPU_READ
    return messages.WHY_NO_GPU_USED if report.runs else messages.WHY_NO_GPU


def _why(gpu: GpuReport, report: Report) -> str:
    totals, verdict = gpu.totals, gpu.verdict
    if stands_still(gpu, report):
        if reason := standstill_reason(gpu, report):
            return reason
        if totals.in_use_ns and verdict.name is not VerdictName.HANGING:
            part = part_of(totals.lost_ns, totals.in_use_ns)
            return messages.IDLE_BEFORE.format(gpu=gpu.label, part=part)
        return messages.UNUSED_BEFORE.format(gpu=gpu.label)
    if verdict.name is VerdictName.TOO_FEW_SAMPLES:
        return few_samples_reason(gpu)
    who = f"GPU {gpu.label}" if len(diagnosed(report.gpus)) > 1 else "it"
    if verdict.name in (VerdictName.NOT_IN_USE, VerdictName.TOO_SHORT_TO_JUDGE):
        return short_use_reason(gpu, who)
    reason = reason_of(gpu, report, who)
    return joined([reason, fill_reason(gpu)]) if is_well(gpu) else reason


def _since_the_start(gpu: GpuReport, report: Report) -> str:
    """What the GPU lost in all, where the verdict is on a part of that."""
    whole = next(other for other in report.gpus if other.label == gpu.label).totals
    if report.is_part or gpu.now is None:
        return ""
    more_ns = whole.in_use_ns - gpu.totals.in_use_ns
    if more_ns < DEFAULT_SETTINGS.min_in_use_ns or 20 * more_ns < whole.in_use_ns:
        return ""
    before = gpu.now.before if gpu.now.has_recovered else None
    starved_ratio = whole.starved_ns / whole.in_use_ns
    is_starved = starved_ratio >= DEFAULT_SETTINGS.advice.min_share
    row = messages.SINCE_START_STARVED if is_starved else messages.SINCE_START
    verdict = "" if before is None else messages.WORD_OF_VERDICT[before]
    since = row.format(
        time=clock(report, report.origin_ns) or "the start",
        lost=in_percent(whole.lost_ns / whole.in_use_ns, *LOSS_LIMITS),
        in_use=in_time(whole.in_use_ns),
        starved=in_percent(starved_ratio, *LOSS_LIMITS),
    )
    return joined([verdict and messages.BEFORE_THAT.format(verdict=verdict), since])


def _as_far_as_seen(gpu: GpuReport, report: Report) -> str:
    """The limits of a verdict where rows, pauses or waits for another GPU are not visible."""
    if has_gaps(gpu):
        determiner = "the" if have_one_share(diagnosed(report.gpus)) else "its"
        return f", as far as {usable_share(gpu)} of {determiner} rows can tell"
    if gpu.verdict.name is not VerdictName.HEALTHY or stands_still(gpu, report):
        return ""
    if coarse_sentence(report):
        return f", as far as one sample every {in_time(report.period_ns)} can tell"
    unseen = may_wait_unseen(gpu, report.gpus, report.runs)
    return ", as far as utilisation can tell" if unseen else ""


def has_instance(gpu: GpuReport, gpus: Sequence[GpuReport]) -> bool:
    """Whether an instance of a MIG-partitioned GPU is among these."""
    return any(
        other.mig_index is not None
        and (other.parent_uuid == gpu.uuid if gpu.uuid else other.index == gpu.index)
        for other in gpus
    )
