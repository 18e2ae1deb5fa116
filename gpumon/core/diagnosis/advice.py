"""What to change first, and the most it can gain. One text for each cause; all pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.clock import seconds
from gpumon.core.diagnosis.advice_texts import (
    FIRST_BATCH_TEXT,
    between_epochs_text,
    callbacks_text,
    host_to_device_text,
    open_split_text,
    start_up_text,
    text_for_unused,
    unknown_text,
    within_step_text,
)
from gpumon.core.diagnosis.few_samples import few_advice, is_few
from gpumon.core.diagnosis.fill_texts import under_filled_advice
from gpumon.core.diagnosis.held_texts import held_advice
from gpumon.core.diagnosis.imbalance_texts import (
    imbalance_bound,
    imbalance_text,
    unseen_imbalance_advice,
)
from gpumon.core.diagnosis.input_texts import (
    LossReason,
    bound_of,
    held_up_sentence,
    input_wait_text,
    loss_reason,
)
from gpumon.core.diagnosis.loss_range import cost_ns, cost_of_use, is_wide, possible_causes
from gpumon.core.diagnosis.rank_texts import late_rank_advice, late_rank_text
from gpumon.core.diagnosis.silence_texts import hanging_text, run_named, silence_clause
from gpumon.core.diagnosis.speedup import speedup_upper_bound
from gpumon.core.diagnosis.verdict_rules import main_cause
from gpumon.core.host.reasons import WITH_REASONS
from gpumon.core.phase import STEP_PHASES, UNPROVED, IdleCause, InputWaitReason
from gpumon.core.report.report import (
    FIRST_INPUT_WAIT,
    HANGING,
    OPEN_SPLIT,
    Advice,
    GpuReport,
    RunReport,
    hanging_on,
    judged,
)
from gpumon.core.settings.detector import DEFAULT_SETTINGS, AdviceSettings, DetectorSettings
from gpumon.core.settings.rule import RuleKind, rule
from gpumon.core.verdict import VerdictName
from gpumon.core.wording import (
    capital,
    counted,
    gpus_named,
    in_about,
    in_percent,
    in_time,
    listed,
    part_of,
)

_LIMITS: Final = DEFAULT_SETTINGS.advice

_MOST_HANGING: Final = 3
_SAME_LOCK: Final = "The change above that ends the wait for Python's lock ends this one, too."

_TextOf = Callable[[Sequence[GpuReport], Sequence[RunReport]], str]
_TextByReason = Callable[[Sequence[GpuReport], Sequence[RunReport], LossReason | None], str]


def advise(gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> tuple[Advice, ...]:
    """What to change, the greatest loss first.

    What no verdict rests on comes after it: a first batch that came late, which
    is paid once; a GPU that is busy and probably waits for a peer, or is
    under-filled, which costs no idle time; and last one that was not in use,
    which loses nothing by definition. There is none on a GPU that is lost: its
    trouble has the remedy.
    """
    gpus = [gpu for gpu in gpus if not gpu.is_lost]
    runs = [run for run in runs if not (run.ended_before or run.is_refused)]
    by_cause = {
        cause: [gpu for gpu in gpus if is_worth_a_change(gpu, cause)]
        for cause in (*_TEXTS_BY_REASON, *_TEXTS)
    }
    by_loss = sorted(
        ((cause, alike) for cause, hit in by_cause.items() for alike in _alike(cause, hit)),
        key=lambda item: -_lost_ns(*item),
    )
    found = _told_once([_advice_on(cause, hit, gpus, runs) for cause, hit in by_loss])
    late = late_rank_advice(gpus, runs)
    unseen = None if late is not None else unseen_imbalance_advice(gpus, runs)
    # Who waits is not emptier for want of a larger batch.
    waiting = {label for one in (unseen, late) if one is not None for label in one.gpus}
    at_work = [gpu for gpu in gpus if gpu.label not in waiting]
    beside = (
        _hanging_runs(gpus, runs), late, _open_split(gpus, runs), _late_first_batch(gpus), unseen,
        under_filled_advice(at_work, runs), held_advice(gpus), _unused_gpus(gpus, runs),
        few_advice(gpus),
    )  # fmt: skip
    return (*found, *(advice for advice in beside if advice is not None))


def _alike(cause: IdleCause, hit: Sequence[GpuReport]) -> list[list[GpuReport]]:
    """These GPUs in groups, so that none loses less than half of what another of its group does.

    So no group's bound is of a GPU that loses far more than the others. What has no bound, and
    GPUs that wait for each other, stay together.
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
    text, bound = _TEXTS.get(cause, ""), _speedup_at_most(cause, hit)
    loss = None if bound is None else loss_reason(cause, hit, runs, bound)
    if loss is not None and loss.reason is InputWaitReason.GIL_BOUND:
        loss = loss._replace(gain=max(loss.gain, _gain_by_the_lock(hit)))
    if cause is IdleCause.IMBALANCE:
        # Whom they wait for has not lost anything, and must be named.
        late = late_rank_text(hit, gpus, runs)
        text = late or imbalance_text(hit, gpus, runs) or text
        levelled = None if late else imbalance_bound(hit, gpus, runs)
        bound = bound if levelled is None else levelled
    elif cause in _TEXTS_BY_REASON:
        text = _TEXTS_BY_REASON[cause](hit, runs, loss)
        bound = bound if loss is None else bound_of(loss)
    return Advice(
        cause=cause.value,
        lost_seconds=seconds(_lost_ns(cause, hit)),
        speedup_upper_bound=bound,
        evidence=_evidence(cause, hit, loss),
        text=text if isinstance(text, str) else text(hit, runs),
        gpus=tuple(gpu.label for gpu in hit),
        reason=None if loss is None else loss.reason.value,
        may_be_more=any(is_wide(gpu.totals, cause) for gpu in hit),
    )


def _gain_by_the_lock(gpus: Sequence[GpuReport]) -> float:
    """What ends the fight for Python's lock ends it in waits and in steps at once."""
    return max(
        speedup_upper_bound(
            gpu.totals.in_use_ns, sum(_cost_of_the_lock_ns(gpu, cause) for cause in WITH_REASONS)
        )
        for gpu in gpus
    )


def _cost_of_the_lock_ns(gpu: GpuReport, cause: IdleCause) -> int:
    """All that a cause cost, where the lock explains most of it; else what it explains."""
    totals, cost = gpu.totals, cost_ns(gpu.totals, cause)
    is_input = cause is IdleCause.INPUT_WAIT
    by_reason = totals.input_wait_by_reason_ns if is_input else totals.within_step_by_reason_ns
    explained_ns = by_reason.get(InputWaitReason.GIL_BOUND.value, 0)
    return cost if explained_ns >= _LIMITS.min_reason_share * cost else explained_ns


def _told_once(found: Sequence[Advice]) -> list[Advice]:
    """The same, but that no change is described twice."""
    told: list[Advice] = []
    for advice in found:
        is_again = advice.reason == InputWaitReason.GIL_BOUND and any(
            (one.reason, one.gpus) == (advice.reason, advice.gpus) for one in told
        )
        alike = next((one for one in told if one.text == advice.text), None)
        text = advice.text
        if is_again:
            text = _SAME_LOCK
        elif alike is not None:
            text = f"Change the same as for {gpus_named(alike.gpus)}."
        told.append(replace(advice, text=text))
    return told


def _speedup_at_most(cause: IdleCause, gpus: Sequence[GpuReport]) -> float | None:
    """GPUs may belong to different jobs: a bound for each of them is the greatest of all.

    ``None`` where nothing proves the cause.
    """
    if cause is IdleCause.UNKNOWN:
        return None
    return max(
        speedup_upper_bound(_working_ns(gpu, cause), cost_ns(gpu.totals, cause)) for gpu in gpus
    )


def _lost_ns(cause: IdleCause, gpus: Sequence[GpuReport]) -> int:
    return sum(cost_ns(gpu.totals, cause) for gpu in gpus)


@rule(
    "worth_a_change",
    RuleKind.ADVICE,
    says="a cause of idle time gets an advice of its own",
    evidence="The time it cost a GPU that is neither healthy nor unused, of its time in use.",
    thresholds=("advice.min_share", "advice.min_start_up_share"),
)
def is_worth_a_change(gpu: GpuReport, cause: IdleCause, settings: AdviceSettings = _LIMITS) -> bool:
    """Whether a cause cost a GPU enough for an advice of its own."""
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
    shares = [_share(cause, gpu) for gpu in worst_first]
    sentences = [f"Idle, {WORD_OF_CAUSE[cause]}: {listed(shares, most=3)}."]
    label, worst = worst_first[0].label, worst_first[0].totals
    pauses = worst.pauses
    in_pauses = cause in (IdleCause.INPUT_WAIT, IdleCause.UNKNOWN) and pauses.count
    # A GPU's pauses are of all causes: they are evidence of the greatest alone.
    if in_pauses and cause is main_cause(worst.judged):
        median = f", median {in_about(pauses.p50_ns)}" if pauses.p50_ns else ""
        sentences.append(
            f"GPU {label} paused {counted(pauses.count, 'time', 'times')}"
            f"{median}, longest {in_about(pauses.longest_ns)}."
        )
    if cause is IdleCause.INPUT_WAIT and hides_much(worst):
        sentences.append(
            f"Exposed {in_time(worst.starved_ns)}; another "
            f"{in_time(worst.hidden_input_wait_ns)} of waiting was hidden behind a busy GPU."
        )
    return " ".join([*sentences, held_up_sentence(loss)]).rstrip()


@rule(
    "hidden_input_wait",
    RuleKind.ADVICE,
    says="a wait for input that costs nothing is told, so that nobody tunes it",
    evidence="Time for which the training waited for input while its GPU was busy.",
    thresholds=("advice.min_share",),
)
def hides_much(totals: GpuTotals, settings: AdviceSettings = _LIMITS) -> bool:
    """Whether a training's wait for input behind a busy GPU is long enough to be spoken of."""
    return totals.hidden_input_wait_ns > settings.min_share * totals.in_use_ns


def _share(cause: IdleCause, gpu: GpuReport) -> str:
    lost_ns, whole_ns = cost_ns(gpu.totals, cause), _working_ns(gpu, cause)
    whole = "of start-up and use" if cause is IdleCause.START_UP else "in use"
    return (
        f"GPU {gpu.label} for {part_of(lost_ns, whole_ns)} {whole} "
        f"({in_percent(lost_ns / whole_ns if whole_ns else None)})"
    )


@rule(
    "late_first_batch",
    RuleKind.ADVICE,
    says="the wait for a training's very first batch gets an advice of its own",
    evidence="Time for which its GPU idled until then, as its tags tell, of its time in use.",
    thresholds=("advice.min_start_up_share",),
)
def is_first_batch_late(gpu: GpuReport, settings: AdviceSettings = _LIMITS) -> bool:
    """Whether a training waited for its very first batch for long beside its work."""
    totals = gpu.totals
    return totals.first_input_wait_ns > settings.min_start_up_share * totals.in_use_ns


@rule(
    "open_split",
    RuleKind.ADVICE,
    says="tags leave open which cause the loss is of, and how they could tell is an advice",
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


def _open_split(gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> Advice | None:
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
        evidence=f"GPU {hit[0].label} works while its training does other things, so that the "
        f"cause of some idle time is open: {listed(causes)}.",
        text=open_split_text(hit, runs),
        gpus=tuple(gpu.label for gpu in hit),
    )


def _hanging_runs(gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> Advice | None:
    hit = [gpu for gpu in gpus if gpu.verdict.name is VerdictName.HANGING]
    hanging = hanging_on(hit, runs)
    if not hanging:
        return None
    # Who is in a step may wait there for the others.
    hanging.sort(key=lambda pair: pair[1].phase in STEP_PHASES)
    said = [f"{run_named(run)} {silence_clause(run, silence)}" for run, silence in hanging]
    return Advice(
        cause=HANGING,
        lost_seconds=seconds(sum(sum(gpu.totals.hanging_idle_ns.values()) for gpu in hit)),
        speedup_upper_bound=None,
        evidence=f"{capital(listed(said, most=_MOST_HANGING))}.",
        text=hanging_text([run for run, _ in hanging]),
        gpus=tuple(gpu.label for gpu in hit),
    )


def _late_first_batch(gpus: Sequence[GpuReport]) -> Advice | None:
    late = [gpu for gpu in judged(gpus) if is_first_batch_late(gpu)]
    if not late:
        return None
    late.sort(key=lambda gpu: -gpu.totals.first_input_wait_ns)
    times_ns = [(gpu.totals.first_input_wait_ns, gpu.totals.in_use_ns) for gpu in late]
    waits = [
        f"GPU {gpu.label} for {part_of(wait_ns, in_use_ns)} in use"
        for gpu, (wait_ns, in_use_ns) in zip(late, times_ns, strict=True)
    ]
    return Advice(
        cause=FIRST_INPUT_WAIT,
        lost_seconds=seconds(sum(wait_ns for wait_ns, _ in times_ns)),
        speedup_upper_bound=max(
            speedup_upper_bound(in_use_ns, wait_ns) for wait_ns, in_use_ns in times_ns
        ),
        evidence=f"Idle, waiting for the very first batch: {listed(waits, most=3)}.",
        text=FIRST_BATCH_TEXT,
    )


def _unused_gpus(gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> Advice | None:
    unused = [gpu for gpu in judged(gpus) if _is_unused(gpu) and gpu.listed and gpu.held is None]
    if not unused:
        return None
    names = gpus_named(gpu.label for gpu in unused)
    in_use_ns = max(gpu.totals.in_use_ns for gpu in unused)
    at_most = "at most " if len(unused) > 1 else ""
    observed_ns = max(gpu.totals.observed_ns for gpu in unused)
    in_use = f"never in use in {in_time(observed_ns)}"
    if in_use_ns:
        in_use = f"in use for {at_most}{part_of(in_use_ns, observed_ns)}"
    return Advice(
        cause=IdleCause.NOT_IN_USE.value,
        lost_seconds=0.0,
        speedup_upper_bound=1.0,
        evidence=f"{names}: {in_use} observed.",
        text=text_for_unused(unused, runs),
        gpus=tuple(gpu.label for gpu in unused),
    )


def _is_unused(gpu: GpuReport) -> bool:
    is_hanging = gpu.verdict.name is VerdictName.HANGING
    is_suspended = gpu.now is not None and gpu.now.is_suspended
    return not (gpu.verdict.name.is_judged or is_hanging or is_suspended or is_few(gpu))


WORD_OF_CAUSE: Final[Mapping[IdleCause, str]] = {
    IdleCause.INPUT_WAIT: "waiting for input",
    IdleCause.CHECKPOINT: "during checkpoints",
    IdleCause.VALIDATION: "during validation",
    IdleCause.CALLBACKS: "in callbacks",
    IdleCause.HOST_TO_DEVICE: "copying to the GPU",
    IdleCause.WITHIN_STEP: "within the step",
    IdleCause.IMBALANCE: "waiting for a slower GPU",
    IdleCause.COMPILE: "while compiling",
    IdleCause.BETWEEN_EPOCHS: "between epochs",
    IdleCause.START_UP: "during start-up",
    IdleCause.UNKNOWN: "cause unknown",
    IdleCause.NOT_IN_USE: "not in use",
}
"""How each cause reads after "idle"."""

WORD_OF_FIRST_WAIT: Final = "waiting for the very first batch"
"""How ``FIRST_INPUT_WAIT``, which is a part of a cause, reads there."""

_TEXTS_BY_REASON: Final[Mapping[IdleCause, _TextByReason]] = {
    IdleCause.INPUT_WAIT: input_wait_text,
    IdleCause.WITHIN_STEP: within_step_text,
}
"""Those that depend on what the machine showed, too."""

_TEXTS: Final[Mapping[IdleCause, str | _TextOf]] = {
    IdleCause.UNKNOWN: unknown_text,
    IdleCause.CHECKPOINT: (
        "Save less often, save weights only, or save in the background: "
        "to memory or a local disk first, and copy from there."
    ),
    IdleCause.VALIDATION: (
        "Validate less often or on fewer batches (validation_freq, validation_steps), "
        "with a larger batch, or in a process of its own on saved weights."
    ),
    IdleCause.CALLBACKS: callbacks_text,
    IdleCause.HOST_TO_DEVICE: host_to_device_text,
    IdleCause.IMBALANCE: (
        "Give the slower GPU a smaller share of each batch, in the ratio of their speeds, "
        "or put GPUs of one kind in a job."
    ),
    IdleCause.COMPILE: (
        "Compile once: keep the shapes fixed (drop or pad the last batch), "
        "and turn on the framework's compilation cache so that the next run need not."
    ),
    IdleCause.BETWEEN_EPOCHS: between_epochs_text,
    IdleCause.START_UP: start_up_text,
}
