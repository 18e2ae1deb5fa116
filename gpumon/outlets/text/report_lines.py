"""The lines of a report: what it is of, what to do, and what else is worth knowing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
from datetime import datetime
from typing import Final

from gpumon.core.accounting.totals import GapTotals
from gpumon.core.attribution.batch_shares import simple_ratios
from gpumon.core.attribution.visible_devices import WHAT_TO_CHECK
from gpumon.core.clock import seconds
from gpumon.core.device.troubles import error_of
from gpumon.core.diagnosis import messages
from gpumon.core.diagnosis.cause_advice import slowest_callbacks
from gpumon.core.diagnosis.imbalance_advice import shares_text
from gpumon.core.diagnosis.input_advice import reason_seen
from gpumon.core.diagnosis.log_findings import log_findings
from gpumon.core.diagnosis.loss_range import is_split_open
from gpumon.core.diagnosis.messages import WORD_OF_CAUSE
from gpumon.core.diagnosis.silence_messages import silence_sentence
from gpumon.core.report.job_balance import JobBalance, balances
from gpumon.core.report.report import (
    BESIDE_CAUSES,
    FIRST_INPUT_WAIT,
    HANGING,
    LATE_RANK,
    OPEN_SPLIT,
    Advice,
    GpuReport,
    LogFinding,
    Report,
    RunReport,
    Sampling,
    machine_time,
    well_sampled,
)
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.verdict import Severity, VerdictName
from gpumon.core.wording import (
    capital,
    counted,
    gpus_named,
    in_about,
    in_gpu_time,
    in_percent,
    in_time,
    label_text,
    listed,
    plainly,
)
from gpumon.outlets.text.headline import main_gpu
from gpumon.outlets.text.now_lines import clock, what_to_do_now, what_to_do_without_a_gpu
from gpumon.outlets.text.statements import greatest_proved, has_few_pauses, joined, waits_for_rank
from gpumon.outlets.text.style import wrapped
from gpumon.outlets.text.trouble_lines import first_remedy, remedy_of_the_source

_LIMITS: Final = DEFAULT_SETTINGS.advice
_IN_WHY: Final = "sampling_too_coarse"
"""The rule whose finding is a part of the line Why."""


def observed_sentence(report: Report) -> str:
    """Source, time observed, period and start, in one sentence."""
    began = "" if report.started_at is None else f", from {_moment(report.started_at)}"
    return f"{observed(label_text(report.source, 400), report)}{began}."


def observed_sentences(report: Report) -> str:
    """The same, and whether the GPU is simulated, or the report of a recording."""
    one_gpu = len(report.gpus) == 1
    what = "The GPU is" if one_gpu else "The GPUs are"
    simulated = f" {what} simulated." if report.simulated else ""
    replayed = " This report is of a recording." if report.replayed else ""
    return f"{observed_sentence(report)}{simulated}{replayed}"


def in_all(duration_ns: int, gpus: Sized) -> str:
    """The time of all these GPUs together."""
    return in_time(duration_ns) if len(gpus) == 1 else in_gpu_time(duration_ns)


def observed(name: str, report: Report) -> str:
    """For how long a source was observed, and how often; a clause."""
    every = f"{plainly(seconds(report.period_ns), 3)} s"
    return f"{name}: {in_time(report.observed_ns)} observed, one sample every {every}"


def _moment(started_at: str) -> str:
    """An ISO 8601 time as people write it; any other text unchanged."""
    try:
        moment = datetime.fromisoformat(started_at)
    except ValueError:
        return label_text(started_at)
    zone = f" {moment.strftime('%z')}" if moment.utcoffset() else " UTC"
    return f"{moment:%Y-%m-%d %H:%M:%S}{zone if moment.tzinfo is not None else ''}"


def machine_line(report: Report) -> str:
    """Where the GPU-time of several GPUs went; empty for fewer than two."""
    machine = machine_time(well_sampled(report.gpus))
    if machine.gpus < 2 or not machine.observed_ns:
        return ""
    parts = [
        (machine.busy_ns, "busy"),
        (machine.lost_ns, "lost in use"),
        (machine.out_of_use_ns, "not in use"),
        (machine.pending_ns, "pending"),
    ]
    shares = ", ".join(
        f"{in_percent(machine.share(part_ns))} {word}" for part_ns, word in parts if part_ns
    )
    return f"{machine.gpus:,} GPUs, {in_gpu_time(machine.observed_ns)} observed: {shares}."


# -- what to do -----------------------------------------------------------------


def next_line(report: Report) -> str:
    """What to do first: about a GPU in trouble, then about the time that is lost."""
    grave = first_remedy(report, Severity.HIGH)
    return grave or remedy_of_the_source(report) or _about_time(report)


def _about_time(report: Report) -> str:
    report = report.at_present
    advice = main_advice(report)
    gpu = main_gpu(report.gpus)
    now = "" if gpu is None else what_to_do_now(gpu, report)
    if now:
        return now
    if gpu is None and report.runs:
        if at_once := what_to_do_without_a_gpu(report.runs):
            return at_once
        is_on_cpu = all(run.uses_no_gpu for run in report.runs)
        return f"{WHAT_TO_CHECK}." if is_on_cpu else messages.NAME_THE_GPU
    if advice is not None:
        is_of_a_loss = advice.lost_seconds > 0.0
        return joined([advice.text, gain_sentence(advice)]) if is_of_a_loss else advice.text
    if report.gpus and all(other.is_partitioned for other in report.gpus):
        is_log = report.sampling is not None
        return messages.WATCH_INSTANCES if is_log else messages.CREATE_INSTANCE
    if gpu is None:
        return messages.RUN_DOCTOR
    return first_remedy(report, Severity.MODERATE) or _on_the_log(report)


def gain_sentence(advice: Advice) -> str:
    """How much faster the work can become; empty where nothing is promised."""
    bound = advice.speedup_upper_bound
    if bound is None or bound < 1.005:
        return ""
    row = messages.GAIN_OR_MORE if advice.may_be_more else messages.GAIN
    if advice.cause == FIRST_INPUT_WAIT:
        row = messages.GAIN_OF_FIRST_BATCH
    return row.format(times=f"{bound:.{2 if bound < 10 else 0}f}")


def _on_the_log(report: Report) -> str:
    """What to do about a log whose verdicts call for nothing."""
    finding, gpu = next(iter(log_findings(report)), None), main_gpu(report.gpus)
    if finding is not None:
        return joined(["" if finding.rule == _IN_WHY else finding.text, finding.remedy])
    if gpu is not None and has_few_pauses(gpu):
        return messages.NO_CHANGE_YET if report.sampling is None else messages.LOG_FOR_LONGER
    return messages.NO_CHANGE if report.sampling is None else messages.LOG_NEEDS_NO_CHANGE


def main_advice(report: Report) -> Advice | None:
    """The advice on the main cause; else the first there is."""
    gpu = main_gpu(report.at_present.gpus)
    if gpu is None:
        return None
    if gpu.verdict.name is VerdictName.HEALTHY:
        return next((advice for advice in report.advice if advice.cause in BESIDE_CAUSES), None)
    by_verdict = {VerdictName.HANGING: HANGING}
    if is_split_open(gpu.totals) and gpu.verdict.name is VerdictName.STALLED:
        by_verdict[VerdictName.STALLED] = OPEN_SPLIT
    named = LATE_RANK if waits_for_rank(gpu) else by_verdict.get(gpu.verdict.name)
    if named is not None:
        return next((advice for advice in report.advice if advice.cause == named), None)
    cause = gpu.verdict.main_cause
    if gpu.verdict.name in (VerdictName.STARVED, VerdictName.STALLED):
        cause = greatest_proved(gpu)  # even where more is unknown: that can be changed today
    fitting = [advice for advice in report.advice if cause and advice.cause == cause.value]
    return next(iter(fitting or report.advice), None)


def next_advice(report: Report) -> Advice | None:
    """The advice in the line Next; ``None``: that line is about a trouble, or about now."""
    gpu = main_gpu(report.at_present.gpus)
    if first_remedy(report, Severity.HIGH) or remedy_of_the_source(report):
        return None
    return None if gpu is not None and what_to_do_now(gpu, report) else main_advice(report)


def other_advice(report: Report) -> list[str]:
    """The other advice, a paragraph each."""
    first, shown = main_advice(report), next_advice(report)
    if first is None:
        return []
    # The main one comes first, as in the headline.
    more = [advice for advice in (first, *report.advice) if advice is not shown]
    return [f"{advice.evidence} {advice.text}" for advice in dict.fromkeys(more)]


# -- findings and notes ---------------------------------------------------------


def other_findings(report: Report, shown: str) -> list[str]:
    """The findings of a log that are not in the line Next, a paragraph each, with what to do."""
    return [
        _sentences(finding, report)
        for finding in log_findings(report)
        if finding.remedy not in shown
    ]


def _sentences(finding: LogFinding, report: Report) -> str:
    if finding.rule == _IN_WHY:
        return finding.remedy
    used = [gpu.label for gpu in report.gpus if gpu.totals.in_use_ns]
    if report.advice and not any(label in used for label in finding.gpus):
        return finding.text  # there is an advice on unused GPUs
    return f"{finding.text} {finding.remedy}"


def shown_notes(report: Report) -> list[str]:
    """The notes of the report, without those that its troubles repeat."""
    shown = {f"GPU {gpu.label}: {error_of(gpu.troubles)}" for gpu in report.gpus}
    shown |= {f"GPU {gpu.label}: {gpu.error}" for gpu in report.gpus}
    notes = [label_text(note, 2_000) for note in report.notes if note not in shown]
    if report.skipped_lines and not any(note.startswith("Skipped ") for note in notes):
        notes.insert(0, f"{counted(report.skipped_lines, 'line was', 'lines were')} not used.")
    return notes


def in_milliseconds(step_ns: float) -> str:
    """The length of a training step, to as many digits as say something."""
    step_ms = step_ns / 1e6
    return f"{step_ms:,.{1 if step_ms >= 10 else 2 if step_ms >= 0.01 else 4}f} ms"


def levels_lines(gpu: GpuReport, sampling: Sampling | None) -> list[str]:
    """The utilisation levels and pauses of a GPU in a log; empty in a live report."""
    totals = gpu.totals
    if sampling is None or not totals.in_use_ns:
        return []
    low, high = totals.low_ns / totals.in_use_ns, totals.high_ns / totals.in_use_ns
    limits = DEFAULT_SETTINGS.low_below, DEFAULT_SETTINGS.high_above
    text = (
        f"utilisation: {in_percent(low)} of the time in use below {in_percent(limits[0])}, "
        f"{in_percent(max(0.0, 1.0 - low - high))} between, "
        f"{in_percent(high)} above {in_percent(limits[1])}"
    )
    pauses = _pauses(totals.pauses, sampling)
    return wrapped(f"{text}; {pauses}." if pauses else f"{text}.", first="  ")


def _pauses(gaps: GapTotals, sampling: Sampling) -> str:
    """How many pauses there were, and how long; no length that so few samples cannot show."""
    if not gaps.count:
        return ""
    least_ns = sampling.shortest_visible_pause_ns if sampling.is_coarse else 0
    count = counted(gaps.count, "pause", "pauses")
    if gaps.longest_ns < least_ns:
        return f"{count} too short to measure"
    if gaps.count == 1:
        return f"{count} of {in_about(gaps.longest_ns)}"
    longest = f"longest {in_about(gaps.longest_ns)}"
    if gaps.p50_ns is None:
        return f"{count}, {longest}"
    if gaps.p50_ns < least_ns:
        return f"{count}, half of them too short to measure, {longest}"
    return f"{count}, median {in_about(gaps.p50_ns)}, {longest}"


# -- runs -----------------------------------------------------------------------


def run_sentences(report: Report) -> list[list[str]]:
    """Of each run, what it did and why it waited; of each job, how balanced its GPUs are."""
    labels = {gpu.uuid: gpu.label for gpu in report.gpus if gpu.uuid is not None}
    sentences = [[*_run_sentences(run, labels, report)] for run in report.runs]
    for job, balance in balances(report.runs).items():
        names = listed([label_text(run.run) for run in report.runs if run.job_key == job])
        sentences.append([_balance(balance, labels, names)])
    return sentences


def _run_sentences(run: RunReport, labels: Mapping[str, str], report: Report) -> Iterator[str]:
    row = messages.RUN_WITH_PACE if run.step_ns else messages.RUN
    is_over = run.alive is False
    sentences = [
        row.format(
            run=label_text(run.run),
            framework=label_text(run.framework),
            pid=run.pid,
            steps=counted(run.steps, "step", "steps"),
            time=in_time(run.wall_ns),
            step=in_milliseconds(run.step_ns or 0),
        )
    ]
    if run.uses_no_gpu:
        sentences.append(messages.RUN_ON_CPU.of(is_over))
    elif not run.gpu_uuids:
        sentences.append(messages.RUN_WITHOUT_GPU.of(is_over))
    if run.refused_uuids:
        names = gpus_named(labels.get(uuid, uuid) for uuid in run.refused_uuids)
        sentences.append(messages.RUN_REFUSED.format(gpus=names))
    if run.shares:
        shares, changes = shares_text(run.shares, labels), run.ratio_changes
        changed = messages.RUN_SHARES_CHANGED.of(changes, shares=shares)
        sentences.append(changed if changes else messages.RUN_SHARES.format(shares=shares))
    sentences.append(_standstill(run, report))
    if slowest := slowest_callbacks(run):
        sentences.append(messages.RUN_CALLBACKS.format(callbacks=label_text(slowest, 400)))
    yield joined(sentences)
    for why in run.reasons:
        seen = reason_seen(why)
        if seen and why.waited_ns >= _LIMITS.min_share * run.wall_ns:
            yield messages.RUN_HELD_UP.format(
                cause=capital(WORD_OF_CAUSE[why.cause]),
                time=in_time(why.waited_ns),
                seen=seen,
                share=in_percent(why.confidence),
            )


def _standstill(run: RunReport, report: Report) -> str:
    if run.suspended_since_ns is not None:
        time = clock(report, run.suspended_since_ns)
        row = messages.RUN_SUSPENDED_SINCE if time else messages.RUN_SUSPENDED
        return row.format(time=time)
    silence = run.silence
    if silence is None or not (silence.is_hanging or silence.is_first_batch):
        return ""
    hangs = messages.RUN_HANGS if silence.is_hanging else ""
    return joined([hangs, silence_sentence(run, silence, "It")])


def _balance(balance: JobBalance, labels: Mapping[str, str], names: str) -> str:
    levelled = None if balance.is_level else balance.balanced_ratios
    return (messages.JOB_BALANCE if levelled is None else messages.JOB_BALANCE_AT).format(
        shares=shares_text(balance.busy_ratios, labels),
        skew=in_percent(balance.skew_ratio),
        ratios=":".join(map(str, simple_ratios([*(levelled or {}).values()]))) if levelled else "",
        runs=names,
    )
