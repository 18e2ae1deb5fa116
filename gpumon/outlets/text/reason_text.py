"""What a verdict on one GPU rests on, with figures."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from gpumon.core.clock import NS_PER_S, seconds
from gpumon.core.diagnosis import messages
from gpumon.core.diagnosis.input_advice import held_up_sentence, loss_reason
from gpumon.core.diagnosis.loss_range import (
    cost_in_time,
    cost_ns,
    is_split_open,
    is_wide,
    possible_causes,
)
from gpumon.core.diagnosis.messages import WORD_OF_CAUSE
from gpumon.core.diagnosis.pause_messages import clockwork, likely_text, min_visible_ns
from gpumon.core.diagnosis.rank_advice import wait_in_time
from gpumon.core.diagnosis.seen_messages import seen_place, seen_share, shown_by
from gpumon.core.diagnosis.verdict_rules import is_mostly_in_pauses
from gpumon.core.phase import UNPROVED, IdleCause
from gpumon.core.report.report import GpuReport, Report
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.verdict import VerdictName
from gpumon.core.wording import counted, in_about, in_percent, in_time, listed, part_of
from gpumon.outlets.text.now_lines import is_over
from gpumon.outlets.text.statements import (
    LOSS_LIMITS,
    MOST_CAUSES,
    doing,
    greatest_proved,
    joined,
    waits_for_rank,
)

_DAY_NS: Final = 24 * 3600 * NS_PER_S
_LONG_NS: Final = 120 * NS_PER_S


def reason_of(gpu: GpuReport, report: Report, who: str) -> str:
    """How long it was idle, for what, and what shows it.

    Args:
        gpu: A GPU with a verdict.
        report: That it is of.
        who: Its name in the sentence.
    """
    totals, verdict = gpu.totals, gpu.verdict
    fields = {"who": who, "part": f"{_of_its_use(gpu)} in use"}
    if verdict.name is VerdictName.HEALTHY:
        return _healthy(gpu, fields)
    once = _once(gpu)
    if verdict.name is VerdictName.STARVED:
        wait = IdleCause.INPUT_WAIT
        row = messages.WHY_STARVED_RANGE if is_wide(totals, wait) else messages.WHY_STARVED
        return joined(
            [
                row.format(
                    waited=cost_in_time(totals, wait),
                    proved=_cost(gpu, wait),
                    shown=shown_by(totals, wait),
                    **fields,
                ),
                seen_place(gpu.stacks),
                _part(gpu, messages.OF_VALIDATION, totals.validation_input_wait_ns),
                once,
                _what_holds_up(gpu, wait, report),
                _what_else(gpu, wait),
            ]
        )
    if waits_for_rank(gpu):
        is_proved = verdict.name is VerdictName.STALLED
        row = messages.WHY_RANK if is_proved else messages.WHY_PERHAPS_RANK
        return joined([row.format(waited=wait_in_time(totals), **fields), once])
    if verdict.name is VerdictName.STALLED and is_split_open(totals):
        known = possible_causes(totals)[:MOST_CAUSES]
        each = [f"{cost_in_time(totals, cause)} of it {WORD_OF_CAUSE[cause]}" for cause in known]
        return joined([messages.WHY_OPEN.format(causes=listed(each), **fields), once])
    if verdict.name is VerdictName.STALLED:
        cause = greatest_proved(gpu)
        stalled = messages.WHY_STALLED.format(
            time=_cost(gpu, cause), cause=doing(gpu, cause), **fields
        )
        held_up = _what_holds_up(gpu, cause, report)
        seen = seen_place(gpu.stacks)
        return joined([stalled, seen, once, held_up, _what_else(gpu, cause)])
    is_in_pauses = verdict.name is VerdictName.STARVATION_SUSPECTED or is_mostly_in_pauses(totals)
    if not is_in_pauses and not totals.suspected_ns:
        return joined([messages.WHY_NO_PATTERN.format(**fields), seen_place(gpu.stacks), once])
    paused = in_time(totals.pauses.total_ns)
    every = clockwork(gpu, report.sampling)
    return joined(
        [
            messages.WHY_PAUSES.format(paused=paused, pauses=_pauses(gpu, report), **fields),
            messages.CLOCKWORK.format(every=every) if every else "",
            seen_share(totals),
            seen_place(gpu.stacks),
            "" if is_in_pauses else messages.REST_NO_PATTERN,
            once,
            likely_text(verdict, _times(gpu, report), was_seen=bool(totals.sampled_pauses)),
            _once_suspected(gpu),
        ]
    )


def short_use_reason(gpu: GpuReport, who: str) -> str:
    """How long it was in use, and what tags proved in so short a time."""
    totals, cause = gpu.totals, greatest_proved(gpu)
    part = part_of(totals.in_use_ns, totals.observed_ns)
    proved = ""
    if cause is not IdleCause.UNKNOWN:
        proved = messages.PROVED_SO_FAR.format(time=_cost(gpu, cause), cause=WORD_OF_CAUSE[cause])
    return joined([messages.WHY_SHORT.format(who=who, part=part), _once(gpu), proved])


def _healthy(gpu: GpuReport, fields: dict[str, str]) -> str:
    rest, count, once = gpu.totals.diagnosed, DEFAULT_SETTINGS.min_pauses, _once(gpu)
    is_much = rest.lost_ns >= DEFAULT_SETTINGS.lost_share * rest.in_use_ns
    if once:
        row = messages.REST_FEW_PAUSES if is_much else messages.REST_LITTLE
        return joined([messages.WHY_IDLE.format(**fields), once, row.format(count=count)])
    row = messages.WHY_FEW_PAUSES if is_much else messages.WHY_LITTLE
    share = in_percent(gpu.verdict.lost_ratio, *LOSS_LIMITS)
    return row.format(share=share, count=count, **fields)


def _of_its_use(gpu: GpuReport) -> str:
    """What it lost of its time in use: of the last minutes, where the verdict is on these."""
    lost_ns, in_use_ns = gpu.totals.lost_ns, gpu.totals.in_use_ns
    if gpu.now is None or is_over(gpu) or in_use_ns < 0.9 * DEFAULT_SETTINGS.now_window_ns:
        return part_of(lost_ns, in_use_ns)
    return f"{in_time(lost_ns)} of its last {in_time(in_use_ns)}"


def _once(gpu: GpuReport) -> str:
    """What of the idle time was paid once, or passed in a hang."""
    hung_ns = sum(gpu.totals.hanging_idle_ns.values())
    return joined(
        [
            _part(gpu, messages.OF_FIRST_BATCH, gpu.totals.first_input_wait_ns),
            _part(gpu, messages.OF_A_HANG, hung_ns),
        ]
    )


def _part(gpu: GpuReport, row: str, part_ns: int) -> str:
    is_worth_it = part_ns > DEFAULT_SETTINGS.advice.min_share * gpu.totals.in_use_ns
    return row.format(time=in_time(part_ns)) if is_worth_it else ""


def _cost(gpu: GpuReport, cause: IdleCause) -> str:
    return in_time(cost_ns(gpu.totals, cause))


def _once_suspected(gpu: GpuReport) -> str:
    suspected_ns, in_use_ns = gpu.totals.suspected_ns, gpu.totals.in_use_ns
    probability = gpu.verdict.input_probability
    is_less = probability is not None and probability < DEFAULT_SETTINGS.suspected_from
    if not is_less or suspected_ns < DEFAULT_SETTINGS.advice.min_share * in_use_ns:
        return ""
    return messages.NO_LONGER_SUSPECTED.format(time=in_time(suspected_ns))


def _times(gpu: GpuReport, report: Report) -> str:
    """When the last pauses began, by the wall clock or from the start of the report."""
    suspicion = gpu.totals.suspicion
    began_ns = suspicion.began_ns if suspicion else ()
    if report.started_at is None:
        since_ns = [at_ns - report.origin_ns for at_ns in began_ns]
        is_long = max(since_ns, default=0) >= _LONG_NS
        passed = [
            timedelta(seconds=round(seconds(ns))) if is_long else in_time(ns) for ns in since_ns
        ]
        after = listed([f"{time}" for time in passed])
        return f"{after} after the start" if after else ""
    day = "%Y-%m-%d " if report.observed_ns > _DAY_NS else ""
    # Half a second more, because the clock's digits are cut off and not rounded.
    times = [report.wall_time(at_ns + NS_PER_S // 2) for at_ns in began_ns]
    at = listed([f"{time:{day}%H:%M:%S}" for time in times if time is not None])
    return f"at {at}" if at else ""


def _pauses(gpu: GpuReport, report: Report) -> str:
    """Its pauses, with the longest; of a log that is too coarse, only one that is visible."""
    pauses = gpu.totals.pauses
    text = counted(pauses.count, "pause", "pauses")
    if pauses.longest_ns < min_visible_ns(report.sampling):
        return text
    return f"{text}, the longest {in_about(pauses.longest_ns)}"


def _what_holds_up(gpu: GpuReport, cause: IdleCause, report: Report) -> str:
    return held_up_sentence(loss_reason(cause, [gpu], report.runs))


def _what_else(gpu: GpuReport, named: IdleCause) -> str:
    """What the verdict does not name: another cause that is greater, and what is unexplained."""
    cause, greatest = greatest_proved(gpu), ""
    if cause is not named:
        where = WORD_OF_CAUSE[cause]
        greatest = messages.GREATEST_CAUSE.format(time=_cost(gpu, cause), cause=where)
    unknown_ns, coverage = gpu.totals.idle_ns.get(IdleCause.UNKNOWN, 0), gpu.verdict.coverage_ratio
    is_covered = coverage is None or coverage >= DEFAULT_SETTINGS.min_coverage
    if is_covered and unknown_ns <= cost_ns(gpu.totals, cause):
        return greatest
    known_ns = sum(ns for cause, ns in gpu.totals.idle_ns.items() if cause not in UNPROVED)
    is_tagged = known_ns > sum(gpu.totals.seen_ns.values())
    row = messages.UNEXPLAINED if is_tagged else messages.NO_KNOWN_CAUSE
    return joined([greatest, row.format(time=in_time(unknown_ns))])
