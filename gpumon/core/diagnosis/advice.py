"""What to change first, what it rests on, and the most it can gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.clock import seconds
from gpumon.core.diagnosis import messages
from gpumon.core.diagnosis.cause_advice import (
    ADVISED_CAUSES,
    held_advice,
    text_on_cause,
    unused_text,
)
from gpumon.core.diagnosis.fill_advice import low_fill_advice
from gpumon.core.diagnosis.imbalance_advice import imbalance_bound
from gpumon.core.diagnosis.input_advice import LossReason, bound_of, held_up_sentence, loss_reason
from gpumon.core.diagnosis.log_findings import few_samples_advice, is_few
from gpumon.core.diagnosis.loss_range import (
    cost_ns,
    cost_of_use,
    is_wide,
    possible_causes,
    speedup_upper_bound,
)
from gpumon.core.diagnosis.messages import WORD_OF_CAUSE
from gpumon.core.diagnosis.rank_advice import late_rank_advice
from gpumon.core.diagnosis.seen_messages import seen_place, seen_share
from gpumon.core.diagnosis.silence_messages import hanging_text, silence_sentence
from gpumon.core.diagnosis.verdict_rules import hardly_seen_ns, main_cause
from gpumon.core.phase import STEP_PHASES, UNPROVED, IdleCause, InputWaitReason
from gpumon.core.report.report import (
    FIRST_INPUT_WAIT,
    HANGING,
    OPEN_SPLIT,
    Advice,
    GpuReport,
    RunReport,
    diagnosed,
    hanging_on,
)
from gpumon.core.settings.detector import DEFAULT_SETTINGS, AdviceSettings, DetectorSettings
from gpumon.core.settings.rule import RuleKind, rule
from gpumon.core.verdict import VerdictName
from gpumon.core.waits.reasons import WITH_REASONS
from gpumon.core.wording import counted, gpus_named, in_about, in_percent, in_time, listed, part_of

_LIMITS: Final = DEFAULT_SETTINGS.advice

_MAX_NAMED: Final = 3


def advise(gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> tuple[Advice, ...]:
    """What to change, the greatest loss first.

    After that comes what no verdict rests on: a first batch that came late, which is paid once;
    a GPU with low SM utilisation, which costs no idle time; and last one that was not in use.
    There is no advice on a GPU that is lost: its trouble has the remedy.
    """
    gpus = [gpu for gpu in gpus if not gpu.is_lost]
    runs = [run for run in runs if not (run.ended_before or run.is_refused)]
    by_cause = {
        cause: [gpu for gpu in gpus if is_worth_a_change(gpu, cause)] for cause in ADVISED_CAUSES
    }
    by_loss = sorted(
        ((cause, alike) for cause, hit in by_cause.items() for alike in _alike(cause, hit)),
        key=lambda item: -_lost_ns(*item),
    )
    found = _without_repeats([_advice_on(cause, hit, gpus, runs) for cause, hit in by_loss])
    late = late_rank_advice(gpus, runs)
    # A GPU that waits does little, but not for want of a larger batch.
    at_work = [gpu for gpu in gpus if late is None or gpu.label not in late.gpus]
    others = (
        _hanging_runs(gpus, runs), late, _open_split(gpus), _late_first_batch(gpus),
        low_fill_advice(at_work, runs), held_advice(gpus), _unused_gpus(gpus, runs),
        few_samples_advice(gpus),
    )  # fmt: skip
    return (*found, *(advice for advice in others if advice is not None))


def _alike(cause: IdleCause, hit: Sequence[GpuReport]) -> list[list[GpuReport]]:
    """Group these GPUs so that none loses less than half of what another of its group loses.

    So the speed-up of a group is near that of each of its GPUs. GPUs without one, and GPUs that
    wait for each other, stay together.
    """
    if cause in (IdleCause.UNKNOWN, IdleCause.IMBALANCE):
        return [[*hit]] if hit else []
    shares = {gpu.label: cost_ns(gpu.totals, cause) / _working_ns(gpu, cause) for gpu in hit}
    groups: list[list[GpuReport]] = []
    for gpu in sorted(hit, key=lambda gpu: -shares[gpu.label]):
        if groups and 2 * shares[gpu.label] >= shares[groups[-1][0].label]:
            groups[-1].append(gpu)
        else:
            groups.append([gpu])
    return [[gpu for gpu in hit if gpu in group] for group in groups]


def _advice_on(
    cause: IdleCause,
    hit: Sequence[GpuReport],
    gpus: Sequence[GpuReport],
    runs: Sequence[RunReport],
) -> Advice:
    bound = _speedup_at_most(cause, hit)
    loss = None if bound is None else loss_reason(cause, hit, runs, bound)
    if loss is not None and loss.reason is InputWaitReason.GIL_BOUND:
        loss = loss._replace(gain=max(loss.gain, _gain_by_the_lock(hit)))
    if cause is IdleCause.IMBALANCE and not any(gpu.waits_for for gpu in hit):
        balanced = imbalance_bound(hit, gpus, runs)
        bound = bound if balanced is None else balanced
    elif loss is not None:
        bound = bound_of(loss)
    return Advice(
        cause=cause.value,
        lost_seconds=seconds(_lost_ns(cause, hit)),
        speedup_upper_bound=bound,
        evidence=_evidence(cause, hit, loss),
        text=text_on_cause(cause, hit, gpus, runs, loss),
        gpus=tuple(gpu.label for gpu in hit),
        reason=None if loss is None else loss.reason.value,
        may_be_more=any(is_wide(gpu.totals, cause) for gpu in hit),
    )


def _gain_by_the_lock(gpus: Sequence[GpuReport]) -> float:
    return max(
        speedup_upper_bound(
            gpu.totals.in_use_ns, sum(_cost_of_the_lock_ns(gpu, cause) for cause in WITH_REASONS)
        )
        for gpu in gpus
    )


def _cost_of_the_lock_ns(gpu: GpuReport, cause: IdleCause) -> int:
    """The cost of a cause, where the GIL explains most of it; else what it explains."""
    totals, cost = gpu.totals, cost_ns(gpu.totals, cause)
    is_input = cause is IdleCause.INPUT_WAIT
    by_reason = totals.input_wait_by_reason_ns if is_input else totals.within_step_by_reason_ns
    explained_ns = by_reason.get(InputWaitReason.GIL_BOUND.value, 0)
    return cost if explained_ns >= _LIMITS.min_reason_share * cost else explained_ns


def _without_repeats(found: Sequence[Advice]) -> list[Advice]:
    """The same advice, but no change is described twice."""
    kept: list[Advice] = []
    for advice in found:
        is_again = advice.reason == InputWaitReason.GIL_BOUND and any(
            (one.reason, one.gpus) == (advice.reason, advice.gpus) for one in kept
        )
        alike = next((one for one in kept if one.text == advice.text), None)
        text = advice.text
        if is_again:
            text = messages.SAME_LOCK
        elif alike is not None:
            text = messages.SAME_CHANGE.format(gpus=gpus_named(alike.gpus))
        kept.append(replace(advice, text=text))
    return kept


def _speedup_at_most(cause: IdleCause, gpus: Sequence[GpuReport]) -> float | None:
    """GPUs may belong to different jobs: a bound for each of them is the greatest of all.

    ``None`` where nothing proves the cause, and too few stack samples show it.
    """
    if cause is IdleCause.UNKNOWN:
        return None
    sure_ns = {
        gpu.label: cost_ns(gpu.totals, cause) - hardly_seen_ns(gpu.totals).get(cause, 0)
        for gpu in gpus
    }
    if not any(sure_ns.values()):
        return None
    return max(speedup_upper_bound(_working_ns(gpu, cause), sure_ns[gpu.label]) for gpu in gpus)


def _lost_ns(cause: IdleCause, gpus: Sequence[GpuReport]) -> int:
    return sum(cost_ns(gpu.totals, cause) for gpu in gpus)


@rule(
    "worth_a_change",
    RuleKind.ADVICE,
    says="a cause of idle time gets its own advice",
    evidence="The time it cost a GPU that is neither healthy nor unused, of its time in use.",
    thresholds=("advice.min_share", "advice.min_start_up_share"),
)
def is_worth_a_change(gpu: GpuReport, cause: IdleCause, settings: AdviceSettings = _LIMITS) -> bool:
    """Whether a cause cost a GPU enough for its own advice."""
    if not gpu.verdict.name.is_of_a_loss:
        return False
    lost_ns = cost_ns(gpu.totals, cause)
    starts_up = cause is IdleCause.START_UP
    least = settings.min_start_up_share if starts_up else settings.min_share
    return lost_ns > 0 and lost_ns >= least * _working_ns(gpu, cause)


def _working_ns(gpu: GpuReport, cause: IdleCause) -> int:
    """The time a cause is a part of, without hangs: start-up comes before the time in use."""
    before_ns = gpu.totals.idle_ns.get(cause, 0) if cause is IdleCause.START_UP else 0
    return gpu.totals.in_use_ns - sum(gpu.totals.hanging_idle_ns.values()) + before_ns


def _evidence(cause: IdleCause, gpus: Sequence[GpuReport], loss: LossReason | None) -> str:
    worst_first = sorted(gpus, key=lambda gpu: -cost_ns(gpu.totals, cause))
    row = messages.SHARE_OF_START if cause is IdleCause.START_UP else messages.SHARE
    shares = [
        _share(row, gpu, cost_ns(gpu.totals, cause), _working_ns(gpu, cause)) for gpu in worst_first
    ]
    named = listed(shares, most=_MAX_NAMED)
    sentences = [messages.EVIDENCE.format(cause=WORD_OF_CAUSE[cause], shares=named)]
    worst = worst_first[0].totals
    in_pauses = cause in (IdleCause.INPUT_WAIT, IdleCause.UNKNOWN) and worst.pauses.count
    # A GPU's pauses are of all causes: they are evidence of the greatest alone.
    if in_pauses and cause is main_cause(worst.diagnosed):
        sentences.append(_paused(worst_first[0]))
    if worst.seen_ns.get(cause):
        is_input = cause is IdleCause.INPUT_WAIT
        sentences += [seen_share(worst) if is_input else "", seen_place(worst_first[0].stacks)]
    if cause is IdleCause.INPUT_WAIT and hides_much(worst):
        sentences.append(messages.HIDDEN_WAIT.format(hidden=in_time(worst.hidden_input_wait_ns)))
    return " ".join(filter(None, [*sentences, held_up_sentence(loss)]))


def _paused(gpu: GpuReport) -> str:
    pauses = gpu.totals.pauses
    return messages.PAUSED.format(
        gpu=gpu.label,
        times=counted(pauses.count, "time", "times"),
        median=f"median {in_about(pauses.p50_ns)}, " if pauses.p50_ns else "",
        longest=in_about(pauses.longest_ns),
    )


@rule(
    "hidden_input_wait",
    RuleKind.ADVICE,
    says="a wait for input that costs nothing is reported, to save tuning it",
    evidence="Time for which the run waited for input while its GPU was busy.",
    thresholds=("advice.min_share",),
)
def hides_much(totals: GpuTotals, settings: AdviceSettings = _LIMITS) -> bool:
    """Whether the wait for input behind a busy GPU is long enough to be reported."""
    return totals.hidden_input_wait_ns > settings.min_share * totals.in_use_ns


def _share(row: str, gpu: GpuReport, lost_ns: int, whole_ns: int) -> str:
    share = in_percent(lost_ns / whole_ns if whole_ns else None)
    return row.format(gpu=gpu.label, part=part_of(lost_ns, whole_ns), share=share)


@rule(
    "late_first_batch",
    RuleKind.ADVICE,
    says="the wait for the first batch of a run gets its own advice",
    evidence="Time for which its GPU was idle until then, by its tags, of its time in use.",
    thresholds=("advice.min_start_up_share",),
)
def is_first_batch_late(gpu: GpuReport, settings: AdviceSettings = _LIMITS) -> bool:
    """Whether a run waited for its first batch for long, compared with its work."""
    totals = gpu.totals
    return totals.first_input_wait_ns > settings.min_start_up_share * totals.in_use_ns


@rule(
    "open_split",
    RuleKind.ADVICE,
    says="tags leave open which cause the loss has; the advice is how they could show it",
    evidence="The idle time of a GPU that neither is healthy nor unused which more than one "
    "cause can have, where the GPU works while the host waits.",
    thresholds=("lost_share",),
)
def has_open_split(gpu: GpuReport, settings: DetectorSettings = DEFAULT_SETTINGS) -> bool:
    """Whether so much of a GPU's loss may be of another cause that a verdict could rest on it."""
    if not gpu.verdict.name.is_of_a_loss:
        return False
    return _open_ns(gpu.totals) >= settings.lost_share * gpu.totals.in_use_ns


def _open_ns(totals: GpuTotals) -> int:
    """Idle time that may be of another cause than that it is given to."""
    return sum(ns for cause, ns in totals.may_be_less_ns.items() if cause not in UNPROVED)


def _open_split(gpus: Sequence[GpuReport]) -> Advice | None:
    hit = [gpu for gpu in gpus if has_open_split(gpu)]
    if not hit:
        return None
    hit.sort(key=lambda gpu: -_open_ns(gpu.totals))
    worst = hit[0].totals
    causes = [
        f"{cost_of_use(worst, cause)} {WORD_OF_CAUSE[cause]}"
        for cause in possible_causes(worst)
        if is_wide(worst, cause)
    ]
    return Advice(
        cause=OPEN_SPLIT,
        lost_seconds=seconds(sum(_open_ns(gpu.totals) for gpu in hit)),
        speedup_upper_bound=None,
        evidence=messages.OPEN_SPLIT_EVIDENCE.format(gpu=hit[0].label, causes=listed(causes)),
        text=messages.OPEN_SPLIT,
        gpus=tuple(gpu.label for gpu in hit),
    )


def _hanging_runs(gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> Advice | None:
    hit = [gpu for gpu in gpus if gpu.verdict.name is VerdictName.HANGING]
    hanging = hanging_on(hit, runs)
    if not hanging:
        return None
    # A run in a step may be waiting there for the others.
    hanging.sort(key=lambda pair: pair[1].phase in STEP_PHASES)
    return Advice(
        cause=HANGING,
        lost_seconds=seconds(sum(sum(gpu.totals.hanging_idle_ns.values()) for gpu in hit)),
        speedup_upper_bound=None,
        evidence=" ".join(silence_sentence(*pair) for pair in hanging[:_MAX_NAMED]),
        text=hanging_text([run for run, _ in hanging]),
        gpus=tuple(gpu.label for gpu in hit),
    )


def _late_first_batch(gpus: Sequence[GpuReport]) -> Advice | None:
    late = [gpu for gpu in diagnosed(gpus) if is_first_batch_late(gpu)]
    if not late:
        return None
    late.sort(key=lambda gpu: -gpu.totals.first_input_wait_ns)
    times_ns = [(gpu.totals.first_input_wait_ns, gpu.totals.in_use_ns) for gpu in late]
    shares = [
        _share(messages.SHARE, gpu, *times) for gpu, times in zip(late, times_ns, strict=True)
    ]
    return Advice(
        cause=FIRST_INPUT_WAIT,
        lost_seconds=seconds(sum(wait_ns for wait_ns, _ in times_ns)),
        speedup_upper_bound=max(
            speedup_upper_bound(in_use_ns, wait_ns) for wait_ns, in_use_ns in times_ns
        ),
        evidence=messages.EVIDENCE.format(
            cause=messages.WORD_OF_FIRST_WAIT, shares=listed(shares, most=_MAX_NAMED)
        ),
        text=messages.FIRST_BATCH,
    )


def _unused_gpus(gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> Advice | None:
    unused = [gpu for gpu in diagnosed(gpus) if _is_unused(gpu) and gpu.listed and gpu.held is None]
    if not unused:
        return None
    in_use_ns = max(gpu.totals.in_use_ns for gpu in unused)
    observed_ns = max(gpu.totals.observed_ns for gpu in unused)
    row = messages.HARDLY_USED if in_use_ns else messages.UNUSED
    return Advice(
        cause=IdleCause.NOT_IN_USE.value,
        lost_seconds=0.0,
        speedup_upper_bound=1.0,
        evidence=row.of(
            len(unused),
            gpus=gpus_named(gpu.label for gpu in unused),
            part=part_of(in_use_ns, observed_ns),
            observed=in_time(observed_ns),
        ),
        text=unused_text(unused, runs),
        gpus=tuple(gpu.label for gpu in unused),
    )


def _is_unused(gpu: GpuReport) -> bool:
    is_hanging = gpu.verdict.name is VerdictName.HANGING
    return not (gpu.verdict.name.is_conclusive or is_hanging or gpu.is_suspended or is_few(gpu))
