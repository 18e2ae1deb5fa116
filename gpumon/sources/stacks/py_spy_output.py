"""The JSON of ``py-spy dump --json``: untrusted, of any version, and bounded.

A list of threads of one process, the newest first; each with its frames, the innermost first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from gpumon.core.stacks.stack import StackFrame, ThreadStack
from gpumon.core.wording import label_text
from gpumon.sources.host.process_tasks import MAX_THREADS

_MAX_HALF: Final = 500
"""Frames kept at each end of a stack: the middle of a recursion says nothing more."""
_MAX_NAME: Final = 200
_MAX_PATH: Final = 1_000
_LONGEST_NUMBER: Final = 1 << 40
_MAIN: Final = frozenset({"<module>", "_run_module_as_main"})
"""The outermost function of a program's first thread, and of no thread that it starts."""
_ROOTS: Final = _MAIN | {"_bootstrap", "Thread._bootstrap", "_shutdown"}
"""That of a first thread which was forked by another thread, or waits for the others to end."""


class UnreadableOutputError(ValueError):
    """It is not what a py-spy that we know writes; the text says why, as a clause."""


def parse_threads(
    raw: bytes, pid: int, tids: Mapping[int, int] | None = None
) -> tuple[ThreadStack, ...]:
    """The threads of process ``pid``, the first one of the process first where it is known.

    ``tids`` has the ids of threads here by their ids in the process's own namespace; ``None``:
    they are the same.

    Raises:
        UnreadableOutputError: It is none.
    """
    try:
        document = json.loads(raw, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise UnreadableOutputError("its output is no complete JSON") from None
    if not isinstance(document, list):
        raise UnreadableOutputError("its output has another form than py-spy 0.4 writes")
    entries = [entry for entry in document if _pid_of(entry) == pid]
    if not entries:
        raise UnreadableOutputError("its output has no thread of that process")
    kept = entries[: MAX_THREADS - 1] + entries[MAX_THREADS - 1 :][-1:]
    return _first_thread_first([_thread(entry, tids) for entry in kept], pid)


def is_torn(threads: tuple[ThreadStack, ...], pid: int) -> bool:
    """Whether the stack of a program's first thread ends early.

    While C code runs a generator, the generator's frame is not linked with that of its caller, so
    a read without stopping the process finds only the innermost part: in up to 20 % of the samples
    of a process that computes.
    """
    first = threads[0]
    is_first = first.tid == pid and bool(first.frames)
    return not is_first or first.frames[-1].function not in _ROOTS


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _pid_of(entry: object) -> int | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("frames"), list):
        raise UnreadableOutputError("its output has another form than py-spy 0.4 writes")
    return _number(entry.get("pid"))


def _thread(entry: dict[str, Any], tids: Mapping[int, int] | None) -> ThreadStack:
    frames = entry["frames"]
    if len(frames) > 2 * _MAX_HALF:
        frames = frames[:_MAX_HALF] + frames[-_MAX_HALF:]
    tid = _number(entry.get("os_thread_id"))
    # py-spy calls a thread active if it cannot find it by its id here.
    is_active = entry.get("active") if tids is None and tid is not None else None
    if tids is not None and tid is not None:
        tid = tids.get(tid)
    return ThreadStack(
        tid,
        tuple(map(_frame, frames)),
        is_active=is_active if isinstance(is_active, bool) else None,
        name=_text(entry.get("thread_name"), _MAX_NAME),
    )


def _frame(entry: object) -> StackFrame:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise UnreadableOutputError("its output has frames of another form than py-spy 0.4 writes")
    return StackFrame(
        _text(entry["name"], _MAX_NAME),
        _text(entry.get("filename"), _MAX_PATH),
        _number(entry.get("line")) or None,
    )


def _text(found: object, max_length: int) -> str:
    return label_text(found, max_length) if isinstance(found, str) else ""


def _number(found: object) -> int | None:
    """A positive integer, or 0; what Python calls a bool is none."""
    return found if type(found) is int and 0 <= found < _LONGEST_NUMBER else None


def _first_thread_first(threads: list[ThreadStack], pid: int) -> tuple[ThreadStack, ...]:
    """Put the first thread first; before Python 3.11, find it by its outermost function."""
    at = [place for place, thread in enumerate(threads) if thread.tid == pid]
    if not at and all(thread.tid is None for thread in threads):
        at = [
            place
            for place, thread in enumerate(threads)
            if len(threads) == 1 or (thread.frames and thread.frames[-1].function in _MAIN)
        ]
        if len(at) == 1:
            threads[at[0]] = threads[at[0]]._replace(tid=pid)
    if len(at) != 1:
        return tuple(threads)
    first = threads.pop(at[0])
    return (first, *threads)
