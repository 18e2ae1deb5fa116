"""The first two lines of a report: Verdict and Why. Written to be read aloud."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from gpumon.core.board.fill import is_under_filled
from gpumon.core.clock import NS_PER_S, seconds
from gpumon.core.judge.advice import WORD_OF_CAUSE
from gpumon.core.judge.fill_texts import fill_claim, fill_reason
from gpumon.core.judge.input_texts import held_up_sentence, loss_reason
from gpumon.core.judge.log_findings import coarse_sentence
from gpumon.core.judge.loss_range import (
    cost_in_percent,
    cost_in_time,
    cost_ns,
    is_split_open,
    is_wide,
    possible_causes,
)
from gpumon.core.judge.pause_texts import certain_loss, clockwork, likely_text
from gpumon.core.judge.rank_texts import rank_named, wait_in_percent, wait_in_time, waits_much
from gpumon.core.judge.verdict_rules import is_mostly_in_pauses
from gpumon.core.phase import UNPROVED, IdleCause
from gpumon.core.report.report import GpuReport, Report, judged
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.time.totals import GpuTotals
from gpumon.core.verdict import Severity, VerdictName
from gpumon.core.wording import (
    capital,
    counted,
    gpus_named,
    in_about,
    in_percent,
    in_time,
    label_text,
    listed,
    part_of,
)
from gpumon.outlets.text.now_lines import (
    clock,
    is_over,
    stands_still,
    standstill_claim,
    standstill_reason,
    title_of_now,
)
from gpumon.outlets.text.trouble_lines import (
    has_trouble,
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
    VerdictName.TOO_SHORT_TO_JUDGE,
    VerdictName.NOT_IN_USE,
)

WORD_OF_VERDICT: Final[Mapping[VerdictName, str]] = {
    **{name: name.value.replace("_", " ") for name in VerdictName},
    VerdictName.PARTIAL: "partly busy",
}
"""How each verdict is said, here and on the page."""

WHY_MUTE: Final = (
    "a board tells that of a MIG instance by GPM, which comes with Hopper, and of one that shares "
    "its GPU instance with no other."
)
_LEAST: Final = f"{seconds(DEFAULT_SETTINGS.min_in_use_ns):g} s"
_MOST_CAUSES: Final = 3
_DAY_NS: Final = 24 * 3600 * NS_PER_S
LOSS_LIMITS: Final = (DEFAULT_SETTINGS.lost_share, DEFAULT_SETTINGS.high_share)
"""Shares of the time in use that decide on a verdict: no loss is rounded to one of them."""


def main_gpu(gpus: Sequence[GpuReport]) -> GpuReport | None:
    """The GPU that the headline speaks of.

    One whose run hangs or is suspended, or the one that loses most in the gravest way; then one
    whose last job did. Where none lost enough for a word, one that is under-filled. A GPU that is
    cut by MIG, and an instance that does not tell how busy it is, are no part of it; ``None``
    where there is no other.
    """
    known = judged(gpus)
    readable = [gpu for gpu in known if not gpu.is_lost] or known
    return min(readable, key=_how_well, default=None)


def _how_well(gpu: GpuReport) -> tuple[int, bool, bool, int, int]:
    lost_ns, place, now = gpu.totals.lost_ns, _ORDER.index(gpu.verdict.name), gpu.now
    if gpu.verdict.name is VerdictName.HANGING or (now is not None and now.is_suspended):
        return 0, True, False, place, -lost_ns
    if is_well(gpu):
        return 3, not is_under_filled(gpu.fill), False, place, -lost_ns
    # Before those that wait for a rank of their job stands that rank.
    return 2 if is_over(gpu) else 1, True, gpu.waits_for is not None, -lost_ns, place


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
        time = f"until then {time}"
    elif gpu is None or (is_well(gpu) and (grave or not is_under_filled(gpu.fill))):
        # A machine with a broken GPU is not "healthy": no word on time stands first.
        grave, lesser = f"{grave} {lesser}".strip(), ""
        time = time if gpu is None else _time_claim(gpu, report)
    first = f"{trouble_title(report)}: {grave} {capital(time)}" if grave else time
    return f"{first} {lesser}".rstrip()


def _time_line(report: Report) -> str:
    """Where the time of the GPUs that can be read went."""
    gpu = main_gpu(report.gpus)
    if gpu is None:
        if report.gpus:
            return f"unknown: {_mute(report.gpus)}."
        return f"no GPU: {_runs_of(report)} on none." if report.runs else "no GPU was observed."
    title = title_of_now(gpu, report, _word(gpu))
    return f"{title}{_as_far_as_seen(gpu, report)}: {_time_claim(gpu, report)}"


def _time_claim(gpu: GpuReport, report: Report) -> str:
    if stands_still(gpu, report):
        return capital(standstill_claim(gpu, report))
    known = judged(report.gpus)
    heard = [other for other in known if gpu.is_lost or not other.is_lost]
    present = [other for other in heard if is_over(other) is is_over(gpu)]
    past = [other for other in heard if is_over(other) and not is_over(gpu)]
    alike = [other for other in present if other.verdict.name is gpu.verdict.name]
    said = f"{_claim(gpu, alike, report)}{_others(gpu, present)}"
    return f"{said}{_also(past, 'is not in use now', 'are not in use now')}"


def why_line(report: Report) -> str:
    """What the verdict rests on, with figures."""
    whole, report = report, report.at_present
    gpu = main_gpu(report.gpus)
    if gpu is None:
        if any(gpu.is_mute for gpu in report.gpus):
            return WHY_MUTE
        if report.gpus:
            return "no instance is made, so nothing can run."
        if report.runs:
            return "none that is watched was seen at work for it."
        return "the source named none."
    broken = trouble_evidence(report)
    why = f"{_why(gpu, report)} {_since_the_start(gpu, whole)}".rstrip()
    said = f"{broken} {capital(why)}" if broken else why
    return f"{said} {coarse_sentence(report)}".rstrip()


def _why(gpu: GpuReport, report: Report) -> str:
    totals, verdict = gpu.totals, gpu.verdict
    who = f"GPU {gpu.label} was " if len(judged(report.gpus)) > 1 else "it was "
    if stands_still(gpu, report):
        before = f"{who}not in use before that."
        if totals.in_use_ns and gpu.verdict.name is not VerdictName.HANGING:
            idle = f"idle for {part_of(totals.lost_ns, totals.in_use_ns)} in use"
            before = f"before that, {who}{idle}."
        return f"{standstill_reason(gpu, report) or capital(before)}"
    if verdict.name in (VerdictName.NOT_IN_USE, VerdictName.TOO_SHORT_TO_JUDGE):
        return (
            f"{who}in use for {part_of(totals.in_use_ns, totals.observed_ns)} "
            f"observed{_proved_meanwhile(gpu)}."
        )
    lost = f"{who}idle for {_of_its_use(gpu, totals.lost_ns)} in use"
    said = f"{lost}{_for_the_first_batch(totals)}{_reason(gpu, report)}"
    return f"{said} {fill_reason(gpu)}".rstrip() if is_well(gpu) else said


def _since_the_start(gpu: GpuReport, report: Report) -> str:
    """What the GPU lost in all, where what is said of it is of a part of that; a sentence."""
    whole = next(one for one in report.gpus if one.label == gpu.label).totals
    if report.is_part or gpu.now is None:
        return ""
    more_ns = whole.in_use_ns - gpu.totals.in_use_ns
    if more_ns < DEFAULT_SETTINGS.min_in_use_ns or 20 * more_ns < whole.in_use_ns:
        return ""
    began = clock(report, report.origin_ns) or "the start"
    before = gpu.now.before if gpu.now.has_recovered else None
    was = "" if before is None else f"Before that, it was {WORD_OF_VERDICT[before]}. "
    starved_ratio = whole.starved_ns / whole.in_use_ns
    starved = ""
    if starved_ratio >= DEFAULT_SETTINGS.advice.min_share:
        starved = f", and waited for input {in_percent(starved_ratio, *LOSS_LIMITS)}"
    lost = in_percent(whole.lost_ns / whole.in_use_ns, *LOSS_LIMITS)
    return (
        f"{was}Since {began}, it was idle {lost} of its {in_time(whole.in_use_ns)} in use{starved}."
    )


def _of_its_use(gpu: GpuReport, lost_ns: int) -> str:
    """A part of its time in use: of the last minutes, where only these are judged."""
    in_use_ns = gpu.totals.in_use_ns
    if gpu.now is None or is_over(gpu) or in_use_ns < 0.9 * DEFAULT_SETTINGS.now_window_ns:
        return part_of(lost_ns, in_use_ns)
    part, _ = in_time(lost_ns, in_use_ns).split(" ")
    return f"{part} of its last {in_time(in_use_ns)}"


def _runs_of(report: Report) -> str:
    names = listed([label_text(run.run) for run in report.runs])
    return f"the run {names} was" if len(report.runs) == 1 else f"the runs {names} were"


def is_well(gpu: GpuReport) -> bool:
    """Whether it lost nothing that is worth a word, or had nothing to do."""
    return not gpu.verdict.name.is_of_a_loss


def verdict_word(gpu: GpuReport) -> str:
    """Its verdict as people say it."""
    if gpu.verdict.name is VerdictName.NOT_IN_USE and gpu.is_hardly_observed:
        return WORD_OF_VERDICT[VerdictName.TOO_SHORT_TO_JUDGE]
    return WORD_OF_VERDICT[gpu.verdict.name]


def _word(gpu: GpuReport) -> str:
    word = verdict_word(gpu)
    is_empty = gpu.verdict.name is VerdictName.HEALTHY and is_under_filled(gpu.fill)
    return f"{word}, but under-filled" if is_empty else word


def _as_far_as_seen(gpu: GpuReport, report: Report) -> str:
    """What the word healthy is worth where pauses can have gone unseen."""
    if gpu.verdict.name is not VerdictName.HEALTHY or not coarse_sentence(report):
        return ""
    return f", as far as one sample every {in_time(report.period_ns)} can tell"


def _claim(gpu: GpuReport, alike: Sequence[GpuReport], report: Report) -> str:
    name = f"GPU {gpu.label}"
    match gpu.verdict.name:
        case VerdictName.STARVED:
            # Without what is only suspected to be starved, as the verdict takes it.
            share = cost_in_percent(gpu.totals.judged, IdleCause.INPUT_WAIT, *LOSS_LIMITS)
            waits = _verb(gpu, "waits", "waited")
            return f"{name} {waits} for input {share} of its time in use."
        case VerdictName.STALLED:
            return f"{name} {_stalled_claim(gpu)}."
        case VerdictName.STARVATION_SUSPECTED:
            return f"{name} {_loss_in_pauses(gpu, report)}."
        case VerdictName.PARTIAL:
            return f"{name} {_partial_claim(gpu, report)}."
        case VerdictName.HEALTHY:
            return _work_well(alike)
        case _:
            used = [other for other in alike if other.totals.in_use_ns]
            if used:
                return _all_of(used, "was", "were") + f" in use for less than {_LEAST}."
            if all(other.is_hardly_observed for other in alike):
                return _all_of(alike, "was", "were") + f" watched for less than {_LEAST}."
            return _all_of(alike, "had nothing to do", "had nothing to do") + "."


def _stalled_claim(gpu: GpuReport) -> str:
    if waits_for_rank(gpu):
        return _rank_claim(gpu, _verb(gpu, "waits", "waited"))
    if is_split_open(gpu.totals.judged):
        causes = [WORD_OF_CAUSE[cause] for cause in possible_causes(gpu.totals.judged)]
        either = " or ".join(causes[:_MOST_CAUSES])
        return f"{_idle_share(gpu)}, {either}: its tags leave open how much of each"
    cause = greatest_proved(gpu)
    most = "mainly" if cause is gpu.verdict.main_cause else "in part"
    return f"{_idle_share(gpu)}, {most} {_doing(gpu, cause)}"


def _partial_claim(gpu: GpuReport, report: Report) -> str:
    if waits_for_rank(gpu):
        return _rank_claim(gpu, _verb(gpu, "may wait", "may have waited"))
    return f"{_unproved_loss(gpu, report)}, and {_unexplained(gpu)}"


def _doing(gpu: GpuReport, cause: IdleCause) -> str:
    """What it did in such idle time; where it waited for a rank that is known, for which."""
    if cause is IdleCause.IMBALANCE and gpu.waits_for is not None:
        return f"waiting for {rank_named(gpu.waits_for)}"
    return WORD_OF_CAUSE[cause]


def waits_for_rank(gpu: GpuReport) -> bool:
    """Whether the verdict rests on a wait for a late rank more than on idle time."""
    totals = gpu.totals.judged
    if gpu.verdict.name not in (VerdictName.STALLED, VerdictName.PARTIAL):
        return False
    return waits_much(gpu) and totals.rank_wait_high_ns > totals.lost_ns


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
    return f"{_verb(gpu, 'is', 'was')} idle {share} of its time in use"


def _verb(gpu: GpuReport, present: str, past: str) -> str:
    """A verb about the job that goes on, or that has ended."""
    return past if is_over(gpu) else present


def _loss_in_pauses(gpu: GpuReport, report: Report) -> str:
    loses = _verb(gpu, "loses", "lost")
    return f"{loses} {certain_loss(gpu, _least_visible_ns(report), *LOSS_LIMITS)}"


def _unexplained(gpu: GpuReport) -> str:
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
        return f"{_all_of(gpus, little, little)}."
    claims = [f"GPU {gpu.label} {_verb(gpu, 'is', 'was')} {fill_claim(gpu)}" for gpu in empty]
    works, work = (_verb(gpus[0], word, "worked") for word in ("works", "work"))
    working = _all_of(full, f"{works} well", f"{work} well") if full else ""
    sentences = [listed(claims, most=3), working]
    return " ".join(f"{sentence}." for sentence in sentences if sentence)


def _mute(gpus: Sequence[GpuReport]) -> str:
    mute = [gpu for gpu in gpus if gpu.is_mute]
    if not mute:
        return f"MIG is on, on {gpus_named(gpu.label for gpu in gpus)}, without an instance"
    return _all_of(mute, "does not tell how busy it is", "do not tell how busy they are")


def greatest_proved(gpu: GpuReport) -> IdleCause:
    """The known cause with the most idle time while in use, but for the very first batch."""
    idle_ns = gpu.totals.judged.idle_ns
    known = (cause for cause in idle_ns if cause not in UNPROVED)
    return max(filter(idle_ns.get, known), key=idle_ns.__getitem__, default=IdleCause.UNKNOWN)


def _all_of(gpus: Sequence[GpuReport], one: str, many: str) -> str:
    return f"{gpus_named(gpu.label for gpu in gpus)} {one if len(gpus) == 1 else many}"


def _others(main: GpuReport, gpus: Sequence[GpuReport]) -> str:
    """One clause about the GPUs the sentence does not name."""
    if is_well(main):
        rest = [gpu for gpu in gpus if gpu.verdict.name is not main.verdict.name]
        unused = [gpu for gpu in rest if not gpu.totals.in_use_ns]
        briefly = [gpu for gpu in rest if gpu.totals.in_use_ns]
        hardly = f"in use for less than {_LEAST}"
        return _also(unused, "was not in use", "were not in use") + _also(
            briefly, f"was {hardly}", f"were {hardly}"
        )
    also = [gpu for gpu in gpus if gpu is not main and not is_well(gpu)]
    well = [gpu for gpu in gpus if gpu.verdict.name is VerdictName.HEALTHY and not has_trouble(gpu)]
    return _also(also, "loses time too", "lose time too") + _also(well, "is healthy", "are healthy")


def _also(gpus: Sequence[GpuReport], one: str, many: str) -> str:
    return f" {_all_of(gpus, one, many)}." if gpus else ""


def _reason(gpu: GpuReport, report: Report) -> str:
    totals, verdict = gpu.totals, gpu.verdict
    if verdict.name is VerdictName.HEALTHY:
        share = f" ({in_percent(verdict.lost_ratio, *LOSS_LIMITS)}),"
        what = "; the rest" if _for_the_first_batch(totals) else share
        return f"{what} in no pattern worth a change."
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
        known = possible_causes(totals)[:_MOST_CAUSES]
        each = [f"{cost_in_time(totals, cause)} of it {WORD_OF_CAUSE[cause]}" for cause in known]
        return f", {listed(each)}."
    if verdict.name is VerdictName.STALLED:
        cause = greatest_proved(gpu)
        proved = f", {_cost(gpu, cause)} of it {_doing(gpu, cause)}."
        return proved + _what_holds_up(gpu, cause, report) + _what_else(gpu, cause)
    if verdict.name is VerdictName.STARVATION_SUSPECTED or is_mostly_in_pauses(totals):
        likely = likely_text(verdict, _moments(gpu, report))
        return f", {_in_pauses(gpu, report)}. {likely} {_once_suspected(gpu)}".rstrip()
    if totals.suspected_ns:
        return f", {_in_pauses(gpu, report)}; the rest in no pattern."
    return ", in no pattern of bursts and pauses."


def _once_suspected(gpu: GpuReport) -> str:
    """That what was suspected of it no longer is: a sentence, where it is so."""
    suspected_ns, in_use_ns = gpu.totals.suspected_ns, gpu.totals.in_use_ns
    probability = gpu.verdict.input_probability
    is_less = probability is not None and probability < DEFAULT_SETTINGS.suspected_from
    if not is_less or suspected_ns < DEFAULT_SETTINGS.advice.min_share * in_use_ns:
        return ""
    suspected = in_time(suspected_ns, in_use_ns)
    return f"Earlier they looked more like it: {suspected} of them stays suspected."


def _moments(gpu: GpuReport, report: Report) -> str:
    """When the last pauses began, by the wall clock or from the report's begin."""
    suspicion = gpu.totals.suspicion
    since_ns = [began_ns - report.origin_ns for began_ns in suspicion.began_ns] if suspicion else []
    if report.started_at is None:
        after = listed([in_time(after_ns) for after_ns in since_ns])
        return f"{after} after the begin" if after else ""
    began = datetime.fromisoformat(report.started_at)
    day = "%Y-%m-%d " if report.observed_ns > _DAY_NS else ""
    moments = [began + timedelta(seconds=seconds(after_ns)) for after_ns in since_ns]
    return listed([f"{moment:{day}%H:%M:%S}" for moment in moments])


def _cost(gpu: GpuReport, cause: IdleCause) -> str:
    return in_time(cost_ns(gpu.totals, cause), gpu.totals.in_use_ns)


def _for_the_first_batch(totals: GpuTotals) -> str:
    """What of the idle time was paid once, and is in no verdict; a clause."""
    return _part(totals.first_input_wait_ns, "of it for the very first batch", totals)


def _part(part_ns: int, where: str, totals: GpuTotals) -> str:
    is_worth_it = part_ns > DEFAULT_SETTINGS.advice.min_share * totals.in_use_ns
    return f", {in_time(part_ns, totals.in_use_ns)} {where}" if is_worth_it else ""


def _in_pauses(gpu: GpuReport, report: Report) -> str:
    """How much of the time lost lies in pauses."""
    totals = gpu.totals
    paused = in_time(totals.pauses.total_ns, totals.in_use_ns)
    pauses = counted(totals.pauses.count, "pause", "pauses")
    return f"{paused} of it in {pauses}{_longest(gpu, report)}{clockwork(gpu)}"


def _proved_meanwhile(gpu: GpuReport) -> str:
    """What tags proved of a use that is too short for a verdict; a clause."""
    cause, proved = greatest_proved(gpu), _for_the_first_batch(gpu.totals)
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
    more = in_time(unknown_ns, gpu.totals.in_use_ns)
    return (
        f"{said} No tag explains {more} more: put `phase(...)` around what the process does then."
    )


def _longest(gpu: GpuReport, report: Report) -> str:
    """The longest pause; of a log that is too coarse, only one that can be seen as such."""
    longest_ns = gpu.totals.pauses.longest_ns
    is_seen = longest_ns >= _least_visible_ns(report)
    return f", the longest {in_about(longest_ns)}" if is_seen else ""


def _least_visible_ns(report: Report) -> int:
    """The shortest pause that can be told to be as long as it seems."""
    sampling = report.sampling
    return sampling.shortest_visible_pause_ns if sampling and sampling.is_coarse else 1
