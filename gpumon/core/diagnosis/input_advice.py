"""What to change where batches are late: by the reason, the loader, and the number of cores."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor
from typing import Final, NamedTuple

from gpumon.core.diagnosis import messages
from gpumon.core.diagnosis.loader_advice import (
    epoch_settings,
    in_processes,
    loader_named,
    loader_sentences,
    slow_settings,
    validation_loader_named,
)
from gpumon.core.phase import IdleCause, InputWaitReason
from gpumon.core.report.report import GpuReport, RunReport, runs_concerned, runs_on
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.waits.reasons import WITH_REASONS, WaitFigures, WaitReason
from gpumon.core.waits.wait_rules import LoaderPlace, ShortOf
from gpumon.core.wording import counted, in_percent, in_time, listed, plainly

_LIMITS: Final = DEFAULT_SETTINGS.advice
_ABOUT: Final = 0.05
"""The shortfall that is tolerated before another worker is suggested."""
_THROTTLED_FROM: Final = 0.05
_TAKEN_FROM: Final = 0.5
_LOCKED_FROM: Final = 0.4
"""One of two workers holds a lock for half of the time, and a sample may miss it."""
_BESIDE_A_LOCK: Final = (
    InputWaitReason.CPU_BOUND,
    InputWaitReason.LATENCY_BOUND,
    InputWaitReason.NETWORK_BOUND,
    InputWaitReason.UNKNOWN,
)
"""What the worker that holds a lock does with it may look like any of these."""


class LossReason(NamedTuple):
    """The reason that explains most of what some GPUs lost to one cause.

    Attributes:
        run: The run that lost most by it; ``None``, like ``why``: no longer known.
        gain: How many times as fast its GPU would work if it never waited.
    """

    reason: InputWaitReason
    run: RunReport | None
    why: WaitReason | None
    gain: float

    @property
    def figures(self) -> WaitFigures | None:
        """The measurements; ``None``: no longer known."""
        return None if self.why is None else self.why.figures

    @property
    def is_alone(self) -> bool:
        """Whether the training thread does its own loading."""
        return self.why is not None and self.why.place is LoaderPlace.TRAINING_THREAD

    @property
    def usable_cores(self) -> int | None:
        """Whole cores that the run may use, at least 1; ``None``: unknown."""
        usable = None if self.figures is None else self.figures.usable_cores
        return None if usable is None else max(1, floor(usable))

    @property
    def times(self) -> int:
        """How many times as many reads in flight keep the GPU busy."""
        return max(2, ceil(self.gain - _ABOUT))

    @property
    def is_locked(self) -> bool:
        """Whether workers sleep in a lock, where as many more might sleep, too."""
        return self.figures is not None and (self.figures.locked_ratio or 0) >= _LOCKED_FROM

    @property
    def is_short_of_cores(self) -> bool:
        """Whether more workers would not help: there are as many as may compute at once."""
        if self.why is None or self.figures is None:
            return False
        if self.why.short_of is ShortOf.CORES:
            return True
        usable = self.usable_cores  # a worker could compute next to a training thread
        return not self.is_alone and usable is not None and usable <= round(self.figures.tasks)


def loss_reason(
    cause: IdleCause, gpus: Sequence[GpuReport], runs: Sequence[RunReport], gain: float = 1.0
) -> LossReason | None:
    """Why these GPUs lost time to a cause; ``None`` where no single reason explains most of it."""
    if cause not in WITH_REASONS:
        return None
    totals = [gpu.totals for gpu in gpus]
    is_input = cause is IdleCause.INPUT_WAIT
    by_reason = [
        one.input_wait_by_reason_ns if is_input else one.within_step_by_reason_ns for one in totals
    ]
    lost_ns = sum(one.starved_ns if is_input else one.idle_ns.get(cause, 0) for one in totals)
    for reason in InputWaitReason:
        explained_ns = sum(one.get(reason.value, 0) for one in by_reason)
        if 0 < _LIMITS.min_reason_share * lost_ns <= explained_ns:
            break
    else:
        return None
    known = [
        (run, why)
        for run in runs_on(gpus, runs)
        for why in run.reasons
        if (why.cause, why.reason) == (cause, reason)
    ]
    run, why = max(known, key=lambda pair: pair[1].waited_ns, default=(None, None))
    loss = LossReason(reason, run, why, gain)
    return loss if reason is not InputWaitReason.UNKNOWN or loss.is_locked else None


def input_wait_text(
    gpus: Sequence[GpuReport], runs: Sequence[RunReport], loss: LossReason | None
) -> str:
    """What to change in an input pipeline, as specific as what is known of it allows."""
    waited_ns = sum(gpu.totals.starved_ns for gpu in gpus)
    in_validation_ns = sum(gpu.totals.validation_input_wait_ns for gpu in gpus)
    concerned = runs_concerned(gpus, runs)
    if in_validation_ns >= _LIMITS.min_reason_share * waited_ns > 0:
        return _validation_text(concerned, in_validation_ns)
    at_epochs_ns = sum(gpu.totals.epoch_input_wait_ns for gpu in gpus)
    if at_epochs_ns >= _LIMITS.min_reason_share * waited_ns > 0:
        late = messages.EPOCH_INPUT.format(time=in_time(at_epochs_ns))
        keep = loader_sentences(concerned, epoch_settings) or [messages.KEEP_LOADER]
        return " ".join([late, *keep])
    sentences = [] if loss is None else [_text_of(loss)]
    if loss is None or loss.why is None:
        sentences += loader_sentences(concerned, slow_settings)
    sentences = sentences or [messages.PREFETCH]
    if in_validation_ns >= _LIMITS.min_share * waited_ns > 0:
        sentences.append(_validation_text(concerned, in_validation_ns))
    return " ".join(sentences)


def _validation_text(runs: Sequence[RunReport], waited_ns: int) -> str:
    loaders = listed([name for run in runs if (name := validation_loader_named(run))], most=2)
    loaders = loaders or "the validation loader"
    return messages.VALIDATION_INPUT.format(time=in_time(waited_ns), loaders=loaders)


def step_reason_text(loss: LossReason) -> str:
    """What to change where threads of a run hold its steps up by the GIL."""
    if _has_one_core(loss):
        return _cores_text(loss)
    how = in_processes(loss.run, _workers_at_once(loss) or 1)
    return messages.GIL_BOUND_STEP.format(loader=loader_named(loss.run), how=how)


def bound_of(loss: LossReason) -> float:
    """How many times as fast the work can become at most, by the advice on that reason.

    Where the advice is more workers that compute, the cores that there are limit it.
    """
    is_cpu = loss.reason is InputWaitReason.CPU_BOUND
    is_spread = is_cpu and not loss.is_alone and not loss.is_short_of_cores
    if loss.figures is None or not (is_spread or loss.reason is InputWaitReason.GIL_BOUND):
        return loss.gain
    usable, given = loss.figures.usable_cores, loss.figures.given_cores
    if usable is None or not given:
        return loss.gain
    return max(1.0, min(loss.gain, usable / given))


def workers_needed(loss: LossReason) -> int | None:
    """How many workers would keep the GPU busy; ``None``: unknown.

    Each computes as long for a batch as the present ones do.
    """
    figures, why = loss.figures, loss.why
    if figures is None or why is None:
        return None
    if loss.is_alone:
        wanted = loss.gain - 1  # a worker next to the step takes over the entire wait
    elif why.reason is InputWaitReason.GIL_BOUND:
        wanted = figures.given_cores * loss.gain  # however many threads share these
    else:
        wanted = max(1.0, figures.tasks) * loss.gain
    return max(1, ceil(wanted - _ABOUT))


def _workers_at_once(loss: LossReason) -> int | None:
    needed, usable = workers_needed(loss), loss.usable_cores
    return needed if needed is None or usable is None else min(needed, usable)


def _has_one_core(loss: LossReason) -> bool:
    """Whether no second process could compute at the same time."""
    return loss.usable_cores == 1


def _text_of(loss: LossReason) -> str:
    loader = loader_named(loss.run)
    if loss.figures is not None and loss.is_locked and loss.reason in _BESIDE_A_LOCK:
        share = in_percent(loss.figures.locked_ratio or 0)
        return messages.WORKERS_IN_A_LOCK.format(loader=loader, share=share)
    match loss.reason:
        case InputWaitReason.CPU_BOUND:
            return _cpu_text(loss)
        case InputWaitReason.GIL_BOUND:
            return _gil_text(loss)
        case InputWaitReason.LATENCY_BOUND:
            return _latency_text(loss)
        case InputWaitReason.NETWORK_BOUND:
            return messages.NETWORK_BOUND.format(count=loss.times, loader=loader)
        case InputWaitReason.DISK_BOUND:
            return messages.DISK_BOUND
        case InputWaitReason.MEMORY_PRESSURE:
            return messages.MEMORY_PRESSURE
        case InputWaitReason.UNKNOWN:
            raise AssertionError("an unknown reason is advised on only in a lock")


def _cpu_text(loss: LossReason) -> str:
    needed, at_once = workers_needed(loss), _workers_at_once(loss)
    if needed is None or at_once is None:
        return messages.CPU_BOUND
    if loss.is_short_of_cores:
        return _cores_text(loss)
    row = messages.CPU_BOUND_THREAD if loss.is_alone else messages.CPU_BOUND_WORKERS
    text = row.format(loader=loader_named(loss.run), how=in_processes(loss.run, at_once))
    return text if needed == at_once else f"{text} {messages.NO_MORE_CORES.format(count=needed)}"


def _cores_text(loss: LossReason) -> str:
    figures = loss.figures
    assert figures is not None  # that it is short of cores was measured
    text = messages.SHORT_OF_CORES.format(loader=loader_named(loss.run))
    if figures.throttled_ratio is not None and figures.throttled_ratio >= _THROTTLED_FROM:
        share = in_percent(figures.throttled_ratio)
        return f"{text} {messages.CORES_THROTTLED.format(share=share)}"
    taken = 0.0 if figures.usable_cores is None else figures.usable_cores - figures.given_cores
    if taken < _TAKEN_FROM:
        return text
    return f"{text} {messages.CORES_TAKEN.format(cores=_cores(taken))}"


def _gil_text(loss: LossReason) -> str:
    at_once = _workers_at_once(loss)
    if at_once is None:
        return messages.GIL_BOUND
    if _has_one_core(loss):
        return _cores_text(loss)
    how = in_processes(loss.run, at_once)
    return messages.GIL_BOUND_THREADS.format(loader=loader_named(loss.run), how=how)


def _latency_text(loss: LossReason) -> str:
    needed, loader = workers_needed(loss), loader_named(loss.run)
    if needed is None:
        return messages.LATENCY_BOUND
    if loss.is_alone:
        how = in_processes(loss.run, needed)
        return messages.LATENCY_BOUND_THREAD.format(loader=loader, how=how)
    return messages.LATENCY_BOUND_WORKERS.format(loader=loader, count=loss.times)


# -- what was measured ---------------------------------------------------------------


def held_up_sentence(loss: LossReason | None) -> str:
    """What was measured to hold these GPUs up; empty where nothing was."""
    seen = "" if loss is None or loss.why is None else reason_seen(loss.why)
    return messages.HELD_UP.format(seen=seen) if seen else ""


def reason_seen(why: WaitReason) -> str:
    """A reason with what was measured, after "The bottleneck is"; empty where nothing was.

    >>> reason_seen(WaitReason(IdleCause.INPUT_WAIT, InputWaitReason.UNKNOWN, 5))
    ''
    """
    seen = "" if why.figures is None else _seen(why, why.figures)
    if not seen:
        return ""
    also = [messages.WORD_OF_REASON[one] for one in why.also if one is not InputWaitReason.UNKNOWN]
    return messages.SEEN_AS_WELL.format(seen=seen, reasons=", ".join(also)) if also else seen


def _seen(why: WaitReason, figures: WaitFigures) -> str:
    match why.reason:
        case InputWaitReason.CPU_BOUND:
            return _cpu_seen(why, figures)
        case InputWaitReason.GIL_BOUND:
            count, cores = max(2, round(figures.tasks)), _cores(figures.given_cores)
            return messages.SEEN_GIL.format(count=count, cores=cores)
        case InputWaitReason.DISK_BOUND:
            return _disk_seen(figures)
        case InputWaitReason.NETWORK_BOUND:
            received = figures.received_bytes_per_second
            if received is None:
                return messages.SEEN_NETWORK
            return messages.SEEN_NETWORK_RATE.format(rate=plainly(received / 1e6, 2))
        case InputWaitReason.MEMORY_PRESSURE:
            return _memory_seen(figures)
        case InputWaitReason.LATENCY_BOUND:
            return messages.SEEN_LATENCY
        case InputWaitReason.UNKNOWN:
            return ""


def _cpu_seen(why: WaitReason, figures: WaitFigures) -> str:
    given, usable = _number(figures.given_cores), figures.usable_cores
    if usable is None:
        return messages.WORD_OF_REASON[why.reason]
    if why.place is LoaderPlace.TRAINING_THREAD:
        return messages.SEEN_CPU_THREAD.format(given=given, usable=_cores(usable))
    count, is_workers = max(1, round(figures.tasks)), why.place is LoaderPlace.WORKERS
    tasks = counted(count, *(("worker", "workers") if is_workers else ("thread", "threads")))
    wanted = _cores(figures.wanted_cores)
    return messages.SEEN_CPU.of(
        count, tasks=tasks, wanted=wanted, given=given, usable=_number(usable)
    )


def _disk_seen(figures: WaitFigures) -> str:
    seen = []
    if figures.read_bytes_per_second:
        seen.append(f"{plainly(figures.read_bytes_per_second / 1e6, 2)} MB read per second")
    if figures.major_faults_per_second and figures.major_faults_per_second >= 1:
        seen.append(f"{plainly(figures.major_faults_per_second, 2)} pages fetched per second")
    if figures.disk_busy_ratio is not None:
        seen.append(f"busy {in_percent(figures.disk_busy_ratio)} of the time")
    return messages.SEEN_DISK.format(figures=", ".join(seen)) if seen else messages.SEEN_DISK_ASLEEP


def _memory_seen(figures: WaitFigures) -> str:
    seen = []
    if figures.memory_stalled_ratio:
        seen.append(f"stalled {in_percent(figures.memory_stalled_ratio)} of the time")
    if figures.major_faults_per_second and figures.major_faults_per_second >= 1:
        seen.append(f"{plainly(figures.major_faults_per_second, 2)} pages refetched per second")
    if not seen:
        return messages.SEEN_MEMORY_DROPPED
    return messages.SEEN_MEMORY.format(figures=", ".join(seen))


def _cores(count: float) -> str:
    """A number of cores, to a tenth.

    >>> _cores(4.03), _cores(1.0)
    ('4 cores', '1 core')
    """
    number = _number(count)
    return f"{number} {'core' if number == '1' else 'cores'}"


def _number(count: float) -> str:
    return plainly(round(count, 1), 3)
