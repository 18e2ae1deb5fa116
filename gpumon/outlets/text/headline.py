"""The first two lines of a report: Verdict and Why. Written to be read aloud."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from gpumon.core.device.fill import is_under_filled
from gpumon.core.diagnosis.few_samples import few_reason, is_few
from gpumon.core.diagnosis.fill_texts import fill_reason
from gpumon.core.diagnosis.imbalance_texts import may_wait_unseen
from gpumon.core.diagnosis.log_findings import coarse_sentence
from gpumon.core.diagnosis.silence_texts import run_named, silence_clause
from gpumon.core.diagnosis.usable_rows import (
    are_alike,
    has_gaps,
    is_mostly_unseen,
    rests_on,
    usable_share,
)
from gpumon.core.diagnosis.verdict_rules import certain_lost_ns, is_mostly_in_pauses
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import GpuReport, Report, judged
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.verdict import Severity, VerdictName
from gpumon.core.wording import (
    capital,
    gpus_named,
    in_percent,
    in_time,
    label_text,
    listed,
    part_of,
)
from gpumon.outlets.text.claims import (
    LEAST_IN_USE,
    LOSS_LIMITS,
    WORD_OF_VERDICT,
    all_of,
    also_of,
    claim_of,
    is_of_a_log,
    is_well,
    verdict_word,
    waits_for_rank,
)
from gpumon.outlets.text.now_lines import (
    clock,
    ended_in_a_hang,
    hang_claim,
    held_claims,
    is_over,
    stands_still,
    standstill_claim,
    standstill_reason,
    title_of_now,
)
from gpumon.outlets.text.reasons import in_no_verdict, proved_meanwhile, reason_of
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
WHY_MUTE: Final = (
    "a board tells that of a MIG instance by GPM, which comes with Hopper, and of one that shares "
    "its GPU instance with no other."
)

MIG_IN_LOG: Final = (
    "With MIG on, the driver reports no utilisation of the whole GPU, and the log has none of its "
    "instances."
)


def main_gpu(gpus: Sequence[GpuReport]) -> GpuReport | None:
    """The GPU that the headline speaks of.

    One whose run hangs or is suspended, or the one that loses most for certain: by tags, or in
    pauses, for a level below full use may be many small kernels. Then one whose last job did.
    Where none lost enough for a word, one that is under-filled. A GPU that is cut by MIG, and an
    instance that does not tell how busy it is, are no part of it; ``None`` where there is no other.
    """
    known = judged(gpus)
    readable = [gpu for gpu in known if not gpu.is_lost] or known
    return min(readable, key=_how_well, default=None)


def _how_well(gpu: GpuReport) -> tuple[int, bool, bool, int, int, int]:
    lost_ns, place, now = gpu.totals.lost_ns, _ORDER.index(gpu.verdict.name), gpu.now
    if gpu.verdict.name is VerdictName.HANGING or (now is not None and now.is_suspended):
        return 0, True, False, place, -lost_ns, True
    if is_well(gpu) and not ended_in_a_hang(gpu):
        is_full = not is_under_filled(gpu.fill)
        return 3, is_full, is_over(gpu), place, -lost_ns, gpu.held is None
    # Before those that wait for a rank of their job stands that rank.
    waits = waits_for_rank(gpu) or gpu.verdict.main_cause is IdleCause.IMBALANCE
    certain_ns = certain_lost_ns(gpu.totals.judged)
    return 2 if is_over(gpu) else 1, True, waits, -certain_ns, -lost_ns, place


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
        unread = source_sentence(report)
        if unread:
            return unread
        if report.gpus:
            return f"unknown: {_mute(report)}."
        if not report.runs:
            return "no GPU was observed."
        silent = [(run, run.silence) for run in report.runs if run.silence is not None]
        for run, silence in silent[:1]:
            word = "hanging" if silence.is_hanging else "no GPU yet"
            return f"{word}: {capital(run_named(run))} {silence_clause(run, silence)}."
        return f"no GPU: {_runs_of(report)}."
    told = gpu
    if is_mostly_unseen(gpu):
        told = replace(gpu, verdict=gpu.verdict._replace(severity=Severity.NONE))
    title = title_of_now(told, report, _word(gpu))
    return f"{title}{_as_far_as_seen(gpu, report)}: {_time_claim(gpu, report)}"


def _time_claim(gpu: GpuReport, report: Report) -> str:
    known = judged(report.gpus)
    readable = [other for other in known if gpu.is_lost or not other.is_lost]
    held = held_claims(readable, report)
    if stands_still(gpu, report):
        return f"{capital(standstill_claim(gpu, report))} {held}".rstrip()
    if ended_in_a_hang(gpu):
        return f"{hang_claim(gpu)} {held}".rstrip()
    present = [other for other in readable if is_over(other) is is_over(gpu)]
    past = [other for other in readable if is_over(other) and not is_over(gpu)]
    alike = [other for other in present if other.verdict.name is gpu.verdict.name]
    free = [other for other in past if other.held is None]
    claim = claim_of(gpu, alike, report)
    if is_mostly_unseen(gpu) and not is_well(gpu):
        claim = f"In the rows that can be used, {claim}"
    others = [one for one in readable if one is not gpu and not has_trouble(one)]
    rest = "" if are_alike(readable) else rests_on(others)
    cut = [one for one in report.gpus if one.is_cut and not has_instance(one, report.gpus)]
    if report.sampling is not None:
        rest += also_of(cut, "cannot be judged: MIG is on", "cannot be judged: MIG is on")
    claim = f"{claim}{_others(gpu, present)} {rest.strip()}".rstrip()
    claim = f"{claim}{also_of(free, 'is not in use now', 'are not in use now')}".strip()
    if is_over(gpu):
        at_work = [one for one in readable if not is_over(one) and one.verdict.name.is_judged]
        claim += also_of(at_work, "is in use now", "are in use now")
    return f"{held} {claim}".strip() if gpu.held is not None else f"{claim} {held}".strip()


def why_line(report: Report) -> str:
    """What the verdict rests on, with figures."""
    whole, report = report, report.at_present
    gpu = main_gpu(report.gpus)
    if gpu is None:
        if any(gpu.is_mute for gpu in report.gpus):
            return WHY_MUTE
        if report.gpus and report.sampling is not None:
            return MIG_IN_LOG
        if report.gpus:
            return "no instance is made, so nothing can run."
        if report.source_error is not None:
            return "since gpumon began, no GPU has been read."
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
        who = f"GPU {gpu.label} was "  # the claim speaks of a run
        before = f"{who}not in use before that."
        if totals.in_use_ns and gpu.verdict.name is not VerdictName.HANGING:
            idle = f"idle for {part_of(totals.lost_ns, totals.in_use_ns)} in use"
            before = f"before that, {who}{idle}."
        return f"{standstill_reason(gpu, report) or capital(before)}"
    if verdict.name is VerdictName.TOO_FEW_SAMPLES:
        return few_reason(gpu)
    if verdict.name in (VerdictName.NOT_IN_USE, VerdictName.TOO_SHORT_TO_JUDGE):
        return (
            f"{who}in use for {part_of(totals.in_use_ns, totals.observed_ns)} "
            f"observed{proved_meanwhile(gpu)}."
        )
    lost = f"{who}idle for {_of_its_use(gpu, totals.lost_ns)} in use"
    said = f"{lost}{in_no_verdict(totals)}{reason_of(gpu, report)}"
    return f"{said} {fill_reason(gpu)}".rstrip() if is_well(gpu) else said


def _since_the_start(gpu: GpuReport, report: Report) -> str:
    """What the GPU lost in all, where the verdict is on a part of that; a sentence."""
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
    return f"{in_time(lost_ns)} of its last {in_time(in_use_ns)}"


def _runs_of(report: Report) -> str:
    names, is_one = listed([label_text(run.run) for run in report.runs]), len(report.runs) == 1
    who = f"the run {names}" if is_one else f"the runs {names}"
    if all(run.uses_no_gpu for run in report.runs):
        return f"{who} {'computes' if is_one else 'compute'} on the CPU"
    return f"{who} {'was' if is_one else 'were'} on none"


def _word(gpu: GpuReport) -> str:
    word = verdict_word(gpu)
    is_empty = gpu.verdict.name is VerdictName.HEALTHY and is_under_filled(gpu.fill)
    return f"{word}, but under-filled" if is_empty else word


def _as_far_as_seen(gpu: GpuReport, report: Report) -> str:
    """What a verdict is worth where many rows, pauses, or waits for another GPU, go unseen."""
    if has_gaps(gpu):
        whose = "the" if are_alike(judged(report.gpus)) else "its"
        return f", as far as {usable_share(gpu)} of {whose} rows can tell"
    if gpu.verdict.name is not VerdictName.HEALTHY or stands_still(gpu, report):
        return ""
    if coarse_sentence(report):
        return f", as far as one sample every {in_time(report.period_ns)} can tell"
    unseen = may_wait_unseen(gpu, report.gpus, report.runs)
    return ", as far as utilisation can tell" if unseen else ""


def has_instance(gpu: GpuReport, gpus: Sequence[GpuReport]) -> bool:
    """Whether an instance of a GPU that is cut by MIG is among these."""
    return any(
        other.mig_index is not None
        and (other.parent_uuid == gpu.uuid if gpu.uuid else other.index == gpu.index)
        for other in gpus
    )


def _mute(report: Report) -> str:
    gpus = report.gpus
    mute = [gpu for gpu in gpus if gpu.is_mute]
    if not mute and report.sampling is not None:
        return (
            f"MIG is on, and the log has no utilisation of {gpus_named(gpu.label for gpu in gpus)}"
        )
    if not mute:
        return f"MIG is on, on {gpus_named(gpu.label for gpu in gpus)}, without an instance"
    return all_of(mute, "does not tell how busy it is", "do not tell how busy they are")


def _others(main: GpuReport, gpus: Sequence[GpuReport]) -> str:
    """One clause about the GPUs the sentence does not name."""
    if is_well(main):
        rest = [gpu for gpu in gpus if gpu.verdict.name is not main.verdict.name]
        few = [gpu for gpu in rest if is_few(gpu)]
        rest = [gpu for gpu in rest if gpu not in few]
        unused = [gpu for gpu in rest if not gpu.totals.in_use_ns and gpu.held is None]
        briefly = [gpu for gpu in rest if gpu.totals.in_use_ns]
        hardly = f"in use for less than {LEAST_IN_USE}"
        return (
            also_of(unused, "was not in use", "were not in use")
            + also_of(briefly, f"was {hardly}", f"were {hardly}")
            + also_of(few, "has too few samples", "have too few samples")
        )
    also = [gpu for gpu in gpus if gpu is not main and not is_well(gpu)]
    well = [gpu for gpu in gpus if gpu.verdict.name is VerdictName.HEALTHY and not has_trouble(gpu)]
    is_past = is_over(main) or is_of_a_log(main)
    suspected = [gpu for gpu in also if _is_suspected(gpu)]
    surely = [gpu for gpu in also if gpu not in suspected]
    if is_past:
        return (
            also_of(surely, "lost time too", "lost time too")
            + also_of(suspected, "may have lost time too", "may have lost time too")
            + also_of(well, "was healthy", "were healthy")
        )
    return (
        also_of(surely, "loses time too", "lose time too")
        + also_of(suspected, "may lose time too", "may lose time too")
        + also_of(well, "is healthy", "are healthy")
    )


def _is_suspected(gpu: GpuReport) -> bool:
    """Whether what it loses is a suspicion, or a level that may be many small kernels."""
    if gpu.verdict.name is VerdictName.PARTIAL:
        return not is_mostly_in_pauses(gpu.totals)
    return gpu.verdict.name is VerdictName.STARVATION_SUSPECTED
