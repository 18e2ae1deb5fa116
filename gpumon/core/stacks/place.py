"""Where a training process is, by one stack sample: the call it waits in, and who calls it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.core.phase import IdleCause
from gpumon.core.stacks.frames import (
    FrameRow,
    RowKind,
    is_playing,
    is_standard_library,
    is_user_code,
    library_path,
    row_of,
)
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


STOPPED: Final = "a stop, by a signal or a debugger"
"""``Place.what`` of a process that does not run, whatever it would do."""
_STATES_OF_STOPPED: Final = ("T", "t")
_HELPERS: Final = (
    "torch/utils/data/_utils/pin_memory.py",
    "tqdm/",
    "tensorboard/",
    "wandb/",
    "mlflow/",
    "ipykernel/",
    "multiprocessing/queues.py",
    "multiprocessing/resource_sharer.py",
)
"""A thread that these start never trains."""
_NO_WORKERS: Final = ("multiprocessing/resource_tracker.py", "multiprocessing/forkserver.py")
_WAITS: Final = (
    "threading.py",
    "queue.py",
    "selectors.py",
    "socketserver.py",
    "asyncio/",
    "concurrent/futures/",
    "multiprocessing/",
)
"""A thread whose innermost call is in these waits for another one, or for a request."""
_START_OF_PROCESS: Final = "multiprocessing/process.py"
_WORKER_LOOP: Final = "torch/utils/data/_utils/worker.py"
_WORKER_FETCH: Final = "torch/utils/data/_utils/fetch.py"
_GENERATOR: Final = "tensorflow/python/data/ops/from_generator_op.py"
_COMPREHENSIONS: Final = ("<listcomp>", "<dictcomp>", "<setcomp>")

_AWAITS_OTHERS: Final = (RowKind.QUEUE, RowKind.THREAD_QUEUE, RowKind.RESULT)

Calls = Sequence[StackFrame]


def place_of(sample: StackSample) -> Place:
    """Where the thread that trains was; without a readable one, an empty place.

    That is the main thread. Where this only waits, and one other thread runs the user's code, it is
    that one.
    """
    if sample.error is not None or not sample.processes:
        return Place()
    process, *children = sample.processes
    if is_stopped(process):
        return Place(what=STOPPED)
    main: Calls = _main_calls(process)
    if not main or _library(main[-1]) == _WORKER_LOOP:
        return Place()
    threads = [(thread, _own_calls(thread)) for thread in process.threads]
    others = [
        (thread, calls)
        for thread, calls in threads
        if thread.tid != process.pid and calls and not _helps_a_library(calls)
    ]
    place = _place(main, [calls for _, calls in others], children)
    if place.cause is not None or not _is_waiting(main):
        return place
    awake = [calls for thread, calls in others if _user_calls(calls) and not _sleeps(thread)]
    return _place_of_another(awake) or place


def is_stopped(process: ProcessStack) -> bool:
    """Whether its first thread is stopped, such as by SIGSTOP."""
    return bool(process.threads) and process.threads[0].state in _STATES_OF_STOPPED


def worker_doing(process: ProcessStack) -> WorkerDoing:
    """What a descendant of the training process was doing."""
    calls = _main_calls(process)
    libraries = {_library(call) for call in calls}
    if not calls or not libraries.isdisjoint(_NO_WORKERS):
        return WorkerDoing()
    users = _user_calls(calls)
    if _WORKER_LOOP in libraries:
        is_working = _WORKER_FETCH in libraries
    else:
        is_working = bool(users) and not _is_waiting(calls)
    return WorkerDoing(is_working, calls[0], users[-1] if users else None)


def _library(call: StackFrame) -> str:
    return library_path(call.path) or ""


def _user_calls(calls: Calls) -> tuple[StackFrame, ...]:
    """The user's own, the outermost first."""
    return tuple(call for call in reversed(calls) if is_user_code(call))


def _main_calls(process: ProcessStack) -> Calls:
    return next((_own_calls(thread) for thread in process.threads if thread.tid == process.pid), ())


def _own_calls(thread: ThreadStack) -> Calls:
    """Its calls, the innermost first, without those of the process that forked it.

    Before Python 3.12, a comprehension is a call of its own.
    """
    calls = [call for call in thread.frames if not call.function.endswith(_COMPREHENSIONS)]
    for number, call in enumerate(calls):
        if _library(call) == _START_OF_PROCESS:
            return tuple(calls[:number])
    return tuple(calls)


def _helps_a_library(calls: Calls) -> bool:
    start = next((call for call in reversed(calls) if not _is_start_of_thread(call)), None)
    return start is None or _library(start).startswith(_HELPERS)


def _is_start_of_thread(call: StackFrame) -> bool:
    return _library(call) == "threading.py" or call.path.startswith("<frozen ")


def _is_waiting(calls: Calls) -> bool:
    return _library(calls[0]).startswith(_WAITS)


def _sleeps(thread: ThreadStack) -> bool:
    """Whether it waits for nothing but the time, as one that reports now and then."""
    return "nanosleep" in (thread.sleeps_in or "")


def _place_of_another(others: Sequence[Calls]) -> Place | None:
    """Of the one thread that runs the user's code while the main thread waits."""
    at_work = [calls for calls in others if not _is_waiting(calls) or _strong(calls)]
    known = [calls for calls in at_work if _strong(calls)]
    places = [_place(calls, (), ()) for calls in known or at_work]
    if not places or len({place.cause for place in places}) > 1 or (not known and len(places) > 1):
        return None
    return places[0]


def _place(calls: Calls, others: Sequence[Calls], children: Sequence[ProcessStack]) -> Place:
    users = _user_calls(calls)
    cause: IdleCause | None = None
    found, feeder = _strong(calls), None
    for number, row in _rows(calls):
        if row.kind is RowKind.FETCHING_STEP and _is_fed_by_generator(others):
            found, feeder = (number, row), _user_call_at_work(others)
    if found is None:
        found, feeder = _weak(calls, others, children)
    if found is None:
        waits = _user_waits(calls)
        what = waits[-1][1].what if waits else ""
        return Place(None, None, users[-1] if users else None, users, what)
    number, row = found
    cause = row.cause
    caller = next((call for call in calls[number + 1 :] if is_user_code(call)), None)
    within = next((call for call in calls[:number] if is_user_code(call)), None)
    return Place(
        cause,
        calls[number],
        caller,
        users,
        row.what,
        within or feeder,
        any(row.kind is RowKind.COLLECTIVE for _, row in _rows(calls[: number + 1])),
    )


def _rows(calls: Calls) -> list[tuple[int, FrameRow]]:
    """The calls that the table knows, the outermost first."""
    known = ((number, row_of(calls[number])) for number in range(len(calls) - 1, -1, -1))
    return [(number, row) for number, row in known if row is not None]


def _strong(calls: Calls) -> tuple[int, FrameRow] | None:
    """The outermost wait for input, else the innermost other call of a strong row."""
    found: tuple[int, FrameRow] | None = None
    for number, row in _rows(calls):
        if row.kind is not RowKind.STRONG:
            continue
        if row.cause is IdleCause.INPUT_WAIT:
            return number, row
        if found is None or row is not found[1]:
            found = number, row
    return found


def _user_waits(calls: Calls) -> list[tuple[int, FrameRow]]:
    """Waits for another thread or process that the user's code calls, and no library."""
    waits = []
    for number, row in _rows(calls):
        if row.kind in _AWAITS_OTHERS:
            callers = (call for call in calls[number:] if not is_standard_library(call))
            caller = next(callers, None)
            if caller is not None and is_user_code(caller):
                waits.append((number, row))
    return waits


def _weak(
    calls: Calls, others: Sequence[Calls], children: Sequence[ProcessStack]
) -> tuple[tuple[int, FrameRow] | None, StackFrame | None]:
    """The outermost call of a weak row, and the call of another thread that it waits for."""
    for number, row in _rows(calls):
        if row.kind in (RowKind.WEAK, RowKind.COLLECTIVE):
            return (number, row), None
    for number, row in _user_waits(calls):
        at_work: list[StackFrame | None] = []
        if row.kind is not RowKind.THREAD_QUEUE:
            loaders = [one for one in children if not any(map(is_playing, _main_calls(one)))]
            at_work += [
                worker.user_call for worker in map(worker_doing, loaders) if worker.is_working
            ]
        if row.kind is not RowKind.RESULT:
            at_work.append(_user_call_of_reader(others))
        if any(at_work):
            return (number, row), next(filter(None, at_work))
    return None, None


def _user_call_at_work(others: Sequence[Calls]) -> StackFrame | None:
    """The user's innermost call in a thread that does not wait."""
    at_work = (_user_calls(calls) for calls in others if not _is_waiting(calls))
    return next((users[-1] for users in at_work if users), None)


def _user_call_of_reader(others: Sequence[Calls]) -> StackFrame | None:
    """The user's innermost call in threads that surely work on input.

    A thread that waits for input itself, or two that run the same function. A single one with the
    user's code only may be the one that trains, and the main thread may wait for its results.
    """
    at_work = [calls for calls in others if _user_calls(calls) and not _is_waiting(calls)]
    started: set[tuple[str, str]] = set()
    for calls in others:
        found = _strong(calls)
        if found is not None and found[1].cause is IdleCause.INPUT_WAIT:
            return (_user_calls(calls) or calls)[-1]
    for calls in at_work:
        users = _user_calls(calls)
        start = users[0].function, users[0].path
        if start in started:
            return users[-1]
        started.add(start)
    return None


def _is_fed_by_generator(others: Sequence[Calls]) -> bool:
    """Whether a generator of tf.data runs; it does not while enough batches are ready."""
    return any(_library(call) == _GENERATOR for calls in others for call in calls)
