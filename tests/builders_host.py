"""Looks at a training, as short as a test can say them; and those that were really measured."""

from __future__ import annotations

from typing import Any, Final

from gpumon.core.clock import NS_PER_S
from gpumon.core.host.evidence import HostEvidence, TaskLook
from gpumon.core.host.reasons import WaitFigures, WaitReason
from gpumon.core.host.wait_rules import LoaderPlace, ShortOf
from gpumon.core.phase import IdleCause, InputWaitReason

QUEUE: Final = "futex_do_wait"
NAP: Final = "hrtimer_nanosleep"
NETWORK: Final = "wait_woken"
PIPE: Final = "anon_pipe_read"
MB: Final = 1e6


def task(
    wanted: float, queued: float = 0.0, switches: float | None = None, sleeps_in: str | None = None,
    state: str | None = None,
) -> TaskLook:  # fmt: skip
    """One that wants so much of a core, and waits for it for so long of that."""
    told = state or ("R" if sleeps_in is None else "S")
    return TaskLook(wanted - queued, queued, switches, told, sleeps_in)


WAITS: Final = task(0.01, sleeps_in=QUEUE)
"""The thread that trains, while others make its batches."""


def look(
    main: TaskLook = WAITS,
    *,
    threads: tuple[TaskLook, ...] = (),
    workers: tuple[TaskLook, ...] = (),
    at_s: float = 1.0,
    waiting: float = 0.8,
    **others: Any,
) -> HostEvidence:
    """A look of one second that ends at ``at_s``."""
    end_ns = round(at_s * NS_PER_S)
    usual: dict[str, Any] = {
        "read_bytes_per_second": 0.0, "major_faults_per_second": 0.0, "disk_busy_ratio": 0.05,
        "received_bytes_per_second": 30_000.0, "memory_stalled_ratio": 0.0, "usable_cores": 2.0,
    }  # fmt: skip
    return HostEvidence(
        start_ns=end_ns - NS_PER_S,
        end_ns=end_ns,
        waiting_ratio=waiting,
        main=main,
        threads=threads,
        workers=workers,
        **{**usual, **others},
    )


def gil_threads(count: int, *, queued: float = 0.1) -> tuple[TaskLook, ...]:
    """So many threads that wait for Python's lock in turn."""
    return tuple(task(1.2 / count, queued / count, 204.0, QUEUE) for _ in range(count))


def seen(
    reason: InputWaitReason,
    *,
    tasks: float,
    wanted: float,
    given: float,
    waited_s: float = 20.0,
    cause: IdleCause = IdleCause.INPUT_WAIT,
    place: LoaderPlace = LoaderPlace.WORKERS,
    short_of: ShortOf = ShortOf.WORKERS,
    also: tuple[InputWaitReason, ...] = (),
    **others: float,
) -> WaitReason:
    """A reason for which so much was lost; ``others``: figures, by the first words of their names.

    >>> seen(InputWaitReason.CPU_BOUND, tasks=1, wanted=1.0, given=1.0, usable=8).figures[3]
    8
    """
    named = {
        name: next((value for word, value in others.items() if name.startswith(word)), None)
        for name in WaitFigures._fields[3:]
    }
    is_cpu = reason is InputWaitReason.CPU_BOUND
    return WaitReason(
        cause=cause,
        reason=reason,
        waited_ns=round(waited_s * NS_PER_S),
        confidence=0.9,
        place=place,
        short_of=short_of if is_cpu else None,
        also=also,
        figures=WaitFigures(tasks, wanted, given, **named),
    )
