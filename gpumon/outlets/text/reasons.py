"""What a verdict on one GPU rests on, with figures."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.clock import NS_PER_S, seconds
from gpumon.core.diagnosis.advice import WORD_OF_CAUSE
from gpumon.core.diagnosis.input_texts import held_up_sentence, loss_reason
from gpumon.core.diagnosis.loss_range import (
    cost_in_time,
    cost_ns,
    is_split_open,
    is_wide,
    possible_causes,
)
from gpumon.core.diagnosis.pause_texts import clockwork, least_visible_ns, likely_text
from gpumon.core.diagnosis.rank_texts import wait_in_time
from gpumon.core.diagnosis.verdict_rules import is_mostly_in_pauses
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import GpuReport, Report
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.verdict import VerdictName
from gpumon.core.wording import counted, in_about, in_percent, in_time, listed
from gpumon.outlets.text.claims import (
    LOSS_LIMITS,
    MOST_CAUSES,
    doing,
    greatest_proved,
    waits_for_rank,
)

_DAY_NS: Final = 24 * 3600 * NS_PER_S
_LONG_NS: Final = 120 * NS_PER_S


def reason_of(gpu: GpuReport, report: Report) -> str:
    """What follows "it was idle for so long": for what, and what shows it."""
    totals, verdict = gpu.totals, gpu.verdict
    if verdict.name is VerdictName.HEALTHY:
        rest, few = totals.judged, f"in fewer than {DEFAULT_SETTINGS.min_pauses} pauses"
        is_much = rest.lost_ns >= DEFAULT_SETTINGS.lost_share * rest.in_use_ns
        if in_no_verdict(totals):
            return f"; the rest {f'lies {few}' if is_much else 'is too little to matter'}."
        share = in_percent(verdict.lost_ratio, *LOSS_LIMITS)
        return f" ({share}), {few if is_much else 'too little to matter'}."
    if verdict.name is VerdictName.STARVED:
        validation = _part(totals.validation_input_wait_ns, "of that in validation", totals)
        waited = cost_in_time(totals, IdleCause.INPUT_WAIT)
        wide = is_wide(totals, IdleCause.INPUT_WAIT)
        proof = f"prove {_cost(gpu, IdleCause.INPUT_WAIT)} of that" if wide else "prove it"
        return (
            f", {waited} of it waiting for input{validation}: the training's own tags {proof}."
            f"{_what_holds_up(gpu, IdleCause.INPUT_WAIT, report)}"
            f"{_what_else(gpu, IdleCause.INPUT_WAIT)}"
        )
    if waits_for_rank(gpu):
        waited = wait_in_time(totals)
        is_proved = verdict.name is VerdictName.STALLED
        sure = "its tags and how its steps vary prove it" if is_proved else "nothing proves it"
        return (
            f"; {waited} more in which it read as busy {'was' if is_proved else 'may have been'} "
            f"a wait for that rank: {sure}."
        )
    if verdict.name is VerdictName.STALLED and is_split_open(totals):
        known = possible_causes(totals)[:MOST_CAUSES]
        each = [f"{cost_in_time(totals, cause)} of it {WORD_OF_CAUSE[cause]}" for cause in known]
        return f", {listed(each)}."
    if verdict.name is VerdictName.STALLED:
        cause = greatest_proved(gpu)
        proved = f", {_cost(gpu, cause)} of it {doing(gpu, cause)}."
        return proved + _what_holds_up(gpu, cause, report) + _what_else(gpu, cause)
    likely = f"{likely_text(verdict, _moments(gpu, report))} {_once_suspected(gpu)}".rstrip()
    if verdict.name is VerdictName.STARVATION_SUSPECTED or is_mostly_in_pauses(totals):
        return f", {_in_pauses(gpu, report)}. {likely}".rstrip()
    if totals.suspected_ns:
        return f", {_in_pauses(gpu, report)}; the rest in no pattern. {likely}".rstrip()
    return ", with no clear pattern of bursts and pauses."


def _once_suspected(gpu: GpuReport) -> str:
    """That what was suspected of it no longer is: a sentence, where it is so."""
    suspected_ns, in_use_ns = gpu.totals.suspected_ns, gpu.totals.in_use_ns
    probability = gpu.verdict.input_probability
    is_less = probability is not None and probability < DEFAULT_SETTINGS.suspected_from
    if not is_less or suspected_ns < DEFAULT_SETTINGS.advice.min_share * in_use_ns:
        return ""
    suspected = in_time(suspected_ns)
    return (
        f"Earlier their shape pointed to late batches: {suspected} of them stays counted as "
        "suspected."
    )


def _moments(gpu: GpuReport, report: Report) -> str:
    """When the last pauses began, by the wall clock or from the report's begin."""
    suspicion = gpu.totals.suspicion
    since_ns = [began_ns - report.origin_ns for began_ns in suspicion.began_ns] if suspicion else []
    if report.started_at is None:
        is_long = max(since_ns, default=0) >= _LONG_NS
        after = listed([_passed(one) if is_long else in_time(one) for one in since_ns])
        return f"{after} after the start" if after else ""
    began = datetime.fromisoformat(report.started_at)
    day = "%Y-%m-%d " if report.observed_ns > _DAY_NS else ""
    # Half a second more, for the clock's digits are cut off and not rounded.
    moments = [began + timedelta(seconds=seconds(after_ns) + 0.5) for after_ns in since_ns]
    at = listed([f"{moment:{day}%H:%M:%S}" for moment in moments])
    return f"at {at}" if at else ""


def _passed(passed_ns: int) -> str:
    """A time from the start to the second, as no three digits of an hour tell it."""
    return f"{timedelta(seconds=round(seconds(passed_ns)))}"


def _cost(gpu: GpuReport, cause: IdleCause) -> str:
    return in_time(cost_ns(gpu.totals, cause))


def in_no_verdict(totals: GpuTotals) -> str:
    """What of the idle time was paid once, or passed in a hang; a clause."""
    first = _part(totals.first_input_wait_ns, "of it for the very first batch", totals)
    hung_ns = sum(totals.hanging_idle_ns.values())
    return first + _part(hung_ns, "of it while the run hung", totals)


def _part(part_ns: int, where: str, totals: GpuTotals) -> str:
    is_worth_it = part_ns > DEFAULT_SETTINGS.advice.min_share * totals.in_use_ns
    return f", {in_time(part_ns)} {where}" if is_worth_it else ""


def _in_pauses(gpu: GpuReport, report: Report) -> str:
    """How much of the time lost lies in pauses."""
    totals = gpu.totals
    paused = in_time(totals.pauses.total_ns)
    pauses = counted(totals.pauses.count, "pause", "pauses")
    return f"{paused} of it in {pauses}{_longest(gpu, report)}{clockwork(gpu, report.sampling)}"


def proved_meanwhile(gpu: GpuReport) -> str:
    """What tags proved of a use that is too short for a verdict; a clause."""
    cause, proved = greatest_proved(gpu), in_no_verdict(gpu.totals)
    if cause is not IdleCause.UNKNOWN:
        proved += f", {_cost(gpu, cause)} of it {WORD_OF_CAUSE[cause]}"
    return f"{proved}: its tags prove that much" if proved else ""


def _what_holds_up(gpu: GpuReport, cause: IdleCause, report: Report) -> str:
    """Why it lost that, where the machine showed it."""
    return f" {held_up_sentence(loss_reason(cause, [gpu], report.runs))}".rstrip()


def _what_else(gpu: GpuReport, named: IdleCause) -> str:
    """What the verdict does not name: another cause that is greater, and what nothing explains."""
    cause, said = greatest_proved(gpu), ""
    if cause is not named:
        where = WORD_OF_CAUSE[cause]
        said = f" The greatest part, {_cost(gpu, cause)}, was {where}."
    unknown_ns, coverage = gpu.totals.idle_ns.get(IdleCause.UNKNOWN, 0), gpu.verdict.coverage_ratio
    is_covered = coverage is None or coverage >= DEFAULT_SETTINGS.min_coverage
    if is_covered and unknown_ns <= cost_ns(gpu.totals, cause):
        return said
    more = in_time(unknown_ns)
    return (
        f"{said} No tag explains {more} more: put `phase(...)` around what the process does then."
    )


def _longest(gpu: GpuReport, report: Report) -> str:
    """The longest pause; of a log that is too coarse, only one that can be seen as such."""
    longest_ns = gpu.totals.pauses.longest_ns
    is_seen = longest_ns >= least_visible_ns(report.sampling)
    return f", the longest {in_about(longest_ns)}" if is_seen else ""
