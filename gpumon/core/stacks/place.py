"""Where a training process is, by one stack sample: the call it waits in, and who calls it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.core.phase import IdleCause
from gpumon.core.stacks.frames import FrameRow, RowKind, is_user_code, library_path, row_of
from gpumon.core.stacks.stack import ProcessStack, StackFrame, StackSample, ThreadStack


class Place(NamedTuple):
    """Where the thread that trains was.

    Attributes:
        cause: Why the GPU waits, if it is idle; ``None``: no row of the table knows it.
        frame: The library's call that has this cause.
        caller: The user's own call from which it is reached.
        user_frames: The user's own calls, the outermost first.
        what: A short noun phrase for ``frame``: ``"DataLoader.__next__"``.
        inside: The user's innermost call within ``frame``, such as a dataset's ``__getitem__``,
            or that of a thread that works on what is awaited.
        is_collective: It waits for other processes of the job.
    """

    cause: IdleCause | None = None
    frame: StackFrame | None = None
    caller: StackFrame | None = None
    user_frames: tuple[StackFrame, ...] = ()
    what: str = ""
    inside: StackFrame | None = None
    is_collective: bool = False


class WorkerDoing(NamedTuple):
    """What a worker process was doing.

    Attributes:
        is_working: ``False``: it waits for work; ``None``: unknown, or it is no worker.
        call: Its innermost call.
        user_call: The user's innermost call.
    """

    is_working: bool | None = None
    call: StackFrame | None = None
    user_call: StackFrame | None = None


_HELPERS: Final = (
    "torch/utils/data/_utils/pin_memory.py",
    "tqdm/_monitor.py",
    "tensorboard/",
    "wandb/",
    "mlflow/",
    "ipykernel/",
    "multiprocessing/resource_sharer.py",
)
"""Threads with a call in these never train."""
_WAITS: Final = ("threading.py", "selectors.py", "asyncio/", "concurrent/futures/", "queue.py",
                 "multiprocessing/", "socket.py", "socketserver.py", "ssl.py")  # fmt: skip
"""A thread whose innermost call is in these waits for another one."""
_FORKED: Final = ("BaseProcess._bootstrap", "_bootstrap")


def place_of(sample: StackSample) -> Place:
    """Where the thread that trains was; without a readable one, an empty place."""
    if not sample.processes or sample.error is not None:
        return Place()
    process = sample.processes[0]
    threads = [calls for thread in process.threads if (calls := _calls(thread))]
    main = next((_calls(thread) for thread in process.threads if thread.tid == process.pid), ())
    if not main:
        return Place()
    others = [calls for calls in threads if calls is not main]
    return _place(main, others, sample.processes[1:])


def worker_doing(process: ProcessStack) -> WorkerDoing:
    """What a descendant of the training process was doing."""
    calls = next((_calls(thread) for thread in process.threads if thread.tid == process.pid), ())
    if not calls:
        return WorkerDoing()
    user_call = next((call for call in calls if is_user_code(call)), None)
    return WorkerDoing(not _is_waiting(calls), calls[0], user_call)


def _calls(thread: ThreadStack) -> tuple[StackFrame, ...]:
    """Its calls, the innermost first, without those of the process that forked it."""
    for number, call in enumerate(thread.frames):
        if call.function in _FORKED and library_path(call.path) == "multiprocessing/process.py":
            return thread.frames[:number]
        if (library_path(call.path) or "").startswith(_HELPERS):
            return ()
    return thread.frames


def _is_waiting(calls: Sequence[StackFrame]) -> bool:
    return (library_path(calls[0].path) or "").startswith(_WAITS)


def _place(
    calls: Sequence[StackFrame],
    others: Sequence[Sequence[StackFrame]],
    children: Sequence[ProcessStack],
) -> Place:
    user_frames = tuple(call for call in reversed(calls) if is_user_code(call))
    found = _deciding(calls)
    if found is None:
        return Place(caller=user_frames[-1] if user_frames else None, user_frames=user_frames)
    number, row = found
    inside = next((call for call in calls[:number] if is_user_code(call)), None)
    cause: IdleCause | None = row.cause
    if row.kind in (RowKind.QUEUE, RowKind.RESULT):
        at_work = [
            doing.user_call
            for doing in map(worker_doing, children)
            if doing.is_working and doing.user_call
        ]
        if row.kind is RowKind.QUEUE:
            at_work += [
                next(filter(is_user_code, other))
                for other in others
                if not _is_waiting(other) and any(map(is_user_code, other))
            ]
        inside = at_work[0] if at_work else None
        cause = cause if at_work else None
    return Place(
        cause,
        calls[number],
        next((call for call in calls[number + 1 :] if is_user_code(call)), None),
        user_frames,
        row.what,
        inside,
        row.kind is RowKind.COLLECTIVE,
    )


def _deciding(calls: Sequence[StackFrame]) -> tuple[int, FrameRow] | None:
    """The call whose row decides, by its number in ``calls``."""
    strong: tuple[int, FrameRow] | None = None
    weak: tuple[int, FrameRow] | None = None
    for number in range(len(calls) - 1, -1, -1):
        row = row_of(calls[number])
        if row is None:
            continue
        if row.kind is not RowKind.STRONG:
            weak = (number, row)
        elif row.cause is IdleCause.INPUT_WAIT:
            return number, row
        elif strong is None or row is not strong[1]:
            strong = (number, row)
    return strong or weak
