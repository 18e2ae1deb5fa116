"""What to change where a batch is late: by why it is, whose loader it is, and how many cores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil, floor
from typing import Final, NamedTuple

from gpumon.core.diagnosis.loader_texts import (
    epoch_wordings,
    in_processes,
    loader_named,
    loader_sentences,
    setting_wordings,
    validation_loader_named,
)
from gpumon.core.host.reasons import WaitFigures, WaitReason
from gpumon.core.host.wait_rules import LoaderPlace, ShortOf
from gpumon.core.phase import IdleCause, InputWaitReason
from gpumon.core.report.report import GpuReport, RunReport, runs_concerned, runs_on
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.wording import counted, in_percent, in_time, listed, plainly

_LIMITS: Final = DEFAULT_SETTINGS.advice
_ABOUT: Final = 0.05
"""By so much a number of workers may fall short of what is wanted before one more is asked for."""
_HELD_BACK_FROM: Final = 0.05
_TAKEN_FROM: Final = 0.5
_LOCKED_FROM: Final = 0.4
"""One of two workers holds a lock half of the time; each look sees a moment of that."""
_VALIDATION: Final = (
    "prefetch in the validation pipeline too, give its loader workers, keep its prepared data in "
    "memory, or validate less often (validation_freq)."
)
_PLAIN: Final = (
    "Prepare the next batches while the GPU computes: prefetch, use more workers, "
    "or cache prepared data."
)


class LossReason(NamedTuple):
    """The reason that explains most of what some GPUs lost to one cause.

    Attributes:
        run: The run that lost most by it; ``None``: it is not told of any more. So is ``why``.
        gain: How many times as fast its GPU would work if it never waited.
    """

    reason: InputWaitReason
    run: RunReport | None
    why: WaitReason | None
    gain: float

    @property
    def figures(self) -> WaitFigures | None:
        """What was seen; ``None``: nobody knows it any more."""
        return None if self.why is None else self.why.figures


def loss_reason(
    cause: IdleCause, gpus: Sequence[GpuReport], runs: Sequence[RunReport], gain: float = 1.0
) -> LossReason | None:
    """Why these GPUs lost time to a cause; ``None`` where no one reason explains most of it."""
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
    told = [
        (run, why)
        for run in runs_on(gpus, runs)
        for why in run.reasons
        if (why.cause, why.reason) == (cause, reason)
    ]
    run, why = max(told, key=lambda pair: pair[1].waited_ns, default=(None, None))
    loss = LossReason(reason, run, why, gain)
    return loss if reason in _TEXTS or _is_locked(loss) else None


def input_wait_text(
    gpus: Sequence[GpuReport], runs: Sequence[RunReport], loss: LossReason | None
) -> str:
    """What to change in an input pipeline, as specific as what is known of it allows."""
    waited_ns = sum(gpu.totals.starved_ns for gpu in gpus)
    in_validation_ns = sum(gpu.totals.validation_input_wait_ns for gpu in gpus)
    concerned = runs_concerned(gpus, runs)
    named = listed([name for run in concerned if (name := validation_loader_named(run))], most=2)
    late = f"The validation data come late ({in_time(in_validation_ns)})"
    validation = f"{late}{f', of {named}' if named else ''}: {_VALIDATION}"
    if in_validation_ns >= _LIMITS.min_reason_share * waited_ns > 0:
        return validation
    at_epochs_ns = sum(gpu.totals.epoch_input_wait_ns for gpu in gpus)
    if at_epochs_ns >= _LIMITS.min_reason_share * waited_ns > 0:
        return _epoch_text(concerned, at_epochs_ns)
    sentences = [] if loss is None else [_text_of(loss)]
    if loss is None or loss.why is None:
        sentences += loader_sentences(concerned, setting_wordings)
    sentences = sentences or [_PLAIN]
    if in_validation_ns >= _LIMITS.min_share * waited_ns > 0:
        sentences.append(validation)
    return " ".join(sentences)


def _epoch_text(runs: Sequence[RunReport], waited_ns: int) -> str:
    """What to change where batches are late only at the start of an epoch."""
    late = f"The first batch of each epoch comes late ({in_time(waited_ns)} in all)"
    own = loader_sentences(runs, epoch_wordings)
    keep = own or [
        "Keep the loader and its workers alive from one epoch to the next (persistent_workers=True "
        "in a DataLoader; one iterator that repeats, elsewhere), so that they fetch the next "
        "epoch's first batches while the last ones are trained on."
    ]
    return f"{late}. {' '.join(keep)}"


def step_reason_text(loss: LossReason) -> str:
    """What to change where threads of a training hold its steps up by Python's lock."""
    if _has_one_core(loss):
        return _cores_text(loss)
    needed = workers_needed(loss)
    count = 1 if needed is None else _at_once(*needed)
    return (
        "The device waits inside the step because threads of the training hold Python's lock. If "
        f"they make the batches of {loader_named(loss.run)}, {in_processes(loss.run, count)}; "
        "else do their work in a process of its own, or in code that lets go of the lock."
    )


def bound_of(loss: LossReason) -> float:
    """How many times as fast the work can become at most, by the advice on that reason.

    Where it is to compute in more places at once, by the cores that there are.
    """
    figures = loss.figures
    if figures is None or not _spreads_out(loss):
        return loss.gain
    usable, given = figures.usable_cores, figures.given_cores
    if usable is None or not given:
        return loss.gain
    return max(1.0, min(loss.gain, usable / given))


def reason_sentence(why: WaitReason) -> str:
    """What was seen of a reason, with figures; empty where nothing was.

    >>> reason_sentence(WaitReason(IdleCause.INPUT_WAIT, InputWaitReason.UNKNOWN, 5))
    ''
    """
    figures = why.figures
    if figures is None or why.reason is InputWaitReason.UNKNOWN:
        return ""
    said = _SEEN[why.reason](why, figures)
    also = [WORD_OF_REASON[one] for one in why.also if one is not InputWaitReason.UNKNOWN]
    both = f"; {', '.join(also)} as well" if also else ""
    return f"{WORD_OF_REASON[why.reason]}: {said}{both}"


def held_up_sentence(loss: LossReason | None) -> str:
    """What was seen to hold these GPUs up, as a sentence; empty where nothing was.

    >>> held_up_sentence(None)
    ''
    """
    seen = "" if loss is None or loss.why is None else reason_sentence(loss.why)
    return f"What holds it up is {seen}." if seen else ""


def workers_needed(loss: LossReason) -> tuple[int, int | None] | None:
    """How many workers would keep the GPU busy, and how many can compute at once.

    Each computes as long for a batch as the present ones do; of both, ``None``: nobody knows.
    """
    figures, why = loss.figures, loss.why
    if figures is None or why is None:
        return None
    if why.place is LoaderPlace.TRAINING_THREAD:
        wanted = loss.gain - 1  # one of them beside the step takes over all that was a wait
    elif why.reason is InputWaitReason.GIL_BOUND:
        wanted = figures.given_cores * loss.gain  # however many threads share these
    else:
        wanted = max(1.0, figures.tasks) * loss.gain
    usable = None if figures.usable_cores is None else max(1, floor(figures.usable_cores))
    return max(1, ceil(wanted - _ABOUT)), usable


def _at_once(count: int, usable: int | None) -> int:
    """As many workers as are needed, but no more than can compute at once.

    >>> _at_once(3, 2), _at_once(3, None)
    (2, 3)
    """
    return count if usable is None else min(count, usable)


def _spreads_out(loss: LossReason) -> bool:
    """Whether the advice is to compute in more places at once, and nothing cheaper."""
    if loss.reason is InputWaitReason.GIL_BOUND:
        return True
    is_alone = loss.why is not None and loss.why.place is LoaderPlace.TRAINING_THREAD
    is_cpu = loss.reason is InputWaitReason.CPU_BOUND
    return is_cpu and not is_alone and not _is_short_of_cores(loss)


def _is_short_of_cores(loss: LossReason) -> bool:
    """Whether more workers would not help: there are as many as may compute at once."""
    why, figures = loss.why, loss.figures
    if why is None or figures is None:
        return False
    if why.short_of is ShortOf.CORES:
        return True
    usable = figures.usable_cores
    is_alone = why.place is LoaderPlace.TRAINING_THREAD  # a worker would compute beside it
    return not is_alone and usable is not None and max(1, floor(usable)) <= round(figures.tasks)


def _has_one_core(loss: LossReason) -> bool:
    """Whether no second process could compute beside the training's."""
    usable = None if loss.figures is None else loss.figures.usable_cores
    return usable is not None and usable < 2


def _is_locked(loss: LossReason) -> bool:
    """Whether workers sleep in a lock, where as many more might sleep, too."""
    figures = loss.figures
    return figures is not None and (figures.locked_ratio or 0) >= _LOCKED_FROM


def _lock_text(loss: LossReason) -> str:
    assert loss.figures is not None  # workers were seen in a lock
    share = in_percent(loss.figures.locked_ratio or 0)
    return (
        f"The workers of {loader_named(loss.run)} spend {share} of their time asleep in a lock, "
        "or until another thread wakes them. If they share a lock or a file, more of them will "
        "not help: hold it for less of each batch, or give each worker its own. "
        "py-spy dump --pid PID shows where a worker waits."
    )


def _text_of(loss: LossReason) -> str:
    if _is_locked(loss) and loss.reason in _BESIDE_A_LOCK:
        return _lock_text(loss)
    text = _TEXTS[loss.reason]
    return text if isinstance(text, str) else text(loss)


def _cpu_text(loss: LossReason) -> str:
    why, needed = loss.why, workers_needed(loss)
    if why is None or needed is None:
        return (
            "Preprocessing is the limit: use more workers up to the number of "
            "cores, make decoding and augmentation cheaper, or keep their results in a cache."
        )
    count, usable = needed
    if _is_short_of_cores(loss):
        return _cores_text(loss)
    batches = f"the batches of {loader_named(loss.run)}"
    is_alone = why.place is LoaderPlace.TRAINING_THREAD
    who = (
        f"The thread that trains makes {batches} itself"
        if is_alone
        else f"Too few workers make {batches}"
    )
    if usable is None or count <= usable:
        return f"{who}: {in_processes(loss.run, count)}."
    return (
        f"{who}: {in_processes(loss.run, usable)}, as many as it may use cores; "
        f"{count} would keep the GPU busy, so make a batch cheaper, too."
    )


def _cores_text(loss: LossReason) -> str:
    figures = loss.figures
    assert figures is not None  # who is short of cores was seen
    taken = 0.0 if figures.usable_cores is None else figures.usable_cores - figures.given_cores
    who = f" Others use {_cores(taken)} of those it may use." if taken >= _TAKEN_FROM else ""
    if figures.throttled_ratio is not None and figures.throttled_ratio >= _HELD_BACK_FROM:
        held = in_percent(figures.throttled_ratio)
        who = f" Its cgroup's quota held it back {held} of the time: raise that first."
    return (
        f"More workers will not help {loader_named(loss.run)}, which is short of cores: make a "
        "batch cheaper (decode smaller images, keep prepared data in a cache, augment on the "
        f"GPU), or give it more cores.{who}"
    )


def _gil_text(loss: LossReason) -> str:
    needed = workers_needed(loss)
    if needed is None:
        return "Python's lock is the limit: load in worker processes instead of threads."
    if _has_one_core(loss):
        return _cores_text(loss)
    return (
        f"Threads make the batches of {loader_named(loss.run)}, and only one of them runs Python "
        f"at a time: {in_processes(loss.run, _at_once(*needed))}, or do the work in code that "
        "lets go of the lock (NumPy, Pillow, TensorFlow's own operations)."
    )


def _latency_text(loss: LossReason) -> str:
    plain = "Each read waits for its answer, and none is large: keep"
    needed = workers_needed(loss)
    if loss.why is None or needed is None:
        return f"{plain} more of them under way, with more workers and a deeper prefetch."
    named, no_limit = loader_named(loss.run), "sleep most of the time: cores do not limit them."
    if loss.why.place is LoaderPlace.TRAINING_THREAD:
        return (
            f"The thread that trains waits itself for each read of {named}: "
            f"{in_processes(loss.run, needed[0])}, or prefetch in a thread. Reads {no_limit}"
        )
    count = max(2, ceil(loss.gain - _ABOUT))
    return (
        f"{plain} {count} times as many under way, with as many more workers for {named} and a "
        f"deeper prefetch. They {no_limit}"
    )


def _network_text(loss: LossReason) -> str:
    count = max(2, ceil(loss.gain - _ABOUT))
    return (
        "The loader waits for data from the network. One connection may be what limits it: keep "
        f"{count} times as many requests under way, each on a connection of its own, with more "
        f"threads or workers for {loader_named(loss.run)}. If no more bytes a second arrive then, "
        "the link or the server is the limit: copy the data set to a local disk first, or store "
        "it compressed."
    )


_TEXTS: Final[Mapping[InputWaitReason, str | Callable[[LossReason], str]]] = {
    InputWaitReason.CPU_BOUND: _cpu_text,
    InputWaitReason.GIL_BOUND: _gil_text,
    InputWaitReason.DISK_BOUND: (
        "The disk is the limit: keep the data set in memory, copy it to a local SSD, or pack many "
        "small files into few large ones and read those in large pieces."
    ),
    InputWaitReason.NETWORK_BOUND: _network_text,
    InputWaitReason.MEMORY_PRESSURE: (
        "Memory is short: use fewer workers or a smaller shuffle buffer, "
        "so that the data set stays in the page cache."
    ),
    InputWaitReason.LATENCY_BOUND: _latency_text,
}
_BESIDE_A_LOCK: Final = (
    InputWaitReason.CPU_BOUND,
    InputWaitReason.LATENCY_BOUND,
    InputWaitReason.NETWORK_BOUND,
    InputWaitReason.UNKNOWN,
)
"""What the worker that holds a lock does with it may look like any of these."""
WORD_OF_REASON: Final[Mapping[str, str]] = {
    InputWaitReason.CPU_BOUND: "preprocessing",
    InputWaitReason.GIL_BOUND: "Python's lock",
    InputWaitReason.DISK_BOUND: "the disk",
    InputWaitReason.NETWORK_BOUND: "the network",
    InputWaitReason.MEMORY_PRESSURE: "too little memory",
    InputWaitReason.LATENCY_BOUND: "latency",
    InputWaitReason.UNKNOWN: "reasons unknown",
}
"""How each reason reads after "held up by", and after "of it for"."""


def _cores(count: float) -> str:
    """A number of cores, to a tenth.

    >>> _cores(4.03), _cores(1.0)
    ('4 cores', '1 core')
    """
    said = plainly(round(count, 1), 3)
    return f"{said} {'core' if said == '1' else 'cores'}"


def _cpu_seen(why: WaitReason, figures: WaitFigures) -> str:
    usable = figures.usable_cores
    may_use = "" if usable is None else f" of the {_cores(usable)} it may use"
    given = plainly(round(figures.given_cores, 1), 3)
    if why.place is LoaderPlace.TRAINING_THREAD:
        return f"the thread that trains makes its batches itself, on {given}{may_use}"
    tasks = max(1, round(figures.tasks))
    who = ("worker", "workers") if why.place is LoaderPlace.WORKERS else ("thread", "threads")
    want, are, it = ("wants", "is", "it") if tasks == 1 else ("want", "are", "they")
    wanted = f"{counted(tasks, *who)} {want} {_cores(figures.wanted_cores)}"
    of_usable = "" if usable is None else f" of the {plainly(round(usable, 1), 3)} {it} may use"
    return f"{wanted} and {are} given {given}{of_usable}"


def _gil_seen(_: WaitReason, figures: WaitFigures) -> str:
    threads = counted(max(2, round(figures.tasks)), "thread", "threads")
    given = _cores(figures.given_cores)
    return f"{threads} of the training's process take turns at it (the GIL), on {given} together"


def _disk_seen(_: WaitReason, figures: WaitFigures) -> str:
    said = []
    if figures.read_bytes_per_second:
        said.append(f"{plainly(figures.read_bytes_per_second / 1e6, 2)} MB are read a second")
    if figures.major_faults_per_second and figures.major_faults_per_second >= 1:
        said.append(f"{plainly(figures.major_faults_per_second, 2)} pages are fetched a second")
    if figures.disk_busy_ratio is not None:
        said.append(f"the disk is busy {in_percent(figures.disk_busy_ratio)} of the time")
    return ", ".join(said) or "its loader sleeps until a device answers"


def _network_seen(_: WaitReason, figures: WaitFigures) -> str:
    received = figures.received_bytes_per_second
    rate = "" if received is None else f"; {plainly(received / 1e6, 2)} MB come in a second"
    return f"its loader sleeps until data come{rate}"


def _memory_seen(_: WaitReason, figures: WaitFigures) -> str:
    said = []
    if figures.memory_stalled_ratio:
        said.append(f"memory is waited for {in_percent(figures.memory_stalled_ratio)} of the time")
    if figures.major_faults_per_second and figures.major_faults_per_second >= 1:
        pages = plainly(figures.major_faults_per_second, 2)
        said.append(f"{pages} pages are fetched again a second")
    return ", and ".join(said) or "pages that were dropped for want of it are read again"


def _latency_seen(_: WaitReason, __: WaitFigures) -> str:
    return "its loader sleeps between its reads, and hardly computes"


_SEEN: Final[Mapping[InputWaitReason, Callable[[WaitReason, WaitFigures], str]]] = {
    InputWaitReason.CPU_BOUND: _cpu_seen,
    InputWaitReason.GIL_BOUND: _gil_seen,
    InputWaitReason.DISK_BOUND: _disk_seen,
    InputWaitReason.NETWORK_BOUND: _network_seen,
    InputWaitReason.MEMORY_PRESSURE: _memory_seen,
    InputWaitReason.LATENCY_BOUND: _latency_seen,
}
