"""Stacks as text: those of a process and its descendants now, on one screen."""

from __future__ import annotations

from typing import Final

from gpumon.core.stacks.frame_text import call_text
from gpumon.core.stacks.stack import ProcessStack, StackSample, ThreadStack
from gpumon.core.wording import label_text
from gpumon.outlets.text.style import WIDTH

_MOST_LINES: Final = 46
_MOST_FRAMES: Final = 10
_MOST_THREADS: Final = 6


def stacks_text(sample: StackSample) -> str:
    """The stacks of the whole tree, the innermost call first, in 50 lines of 80 columns."""
    lines: list[str] = []
    for number, process in enumerate(sample.processes):
        block = _process_lines(process, most_frames=_MOST_FRAMES if number == 0 else 3)
        if len(lines) + len(block) > _MOST_LINES:
            left = len(sample.processes) - number
            lines.append(f"... and {left} more {'process' if left == 1 else 'processes'}")
            break
        lines += block
    return "".join(f"{line[:WIDTH]}\n" for line in lines)


def state_sentence(sample: StackSample) -> str:
    """What the first thread of the process does, by the kernel."""
    if not sample.processes or not sample.processes[0].threads:
        return f"There is no process {sample.pid} any more."
    process = sample.processes[0]
    name = label_text(process.program) or "the process"
    return f"{name} ({process.pid}): its main thread {_state(process.threads[0])}."


def _state(thread: ThreadStack) -> str:
    if thread.state in ("T", "t"):
        return "is stopped, by a signal or a debugger"
    if thread.sleeps_in is not None:
        return f"sleeps in {label_text(thread.sleeps_in)} (a function of the kernel)"
    if thread.state == "R":
        return "computes"
    return "sleeps; in what, the kernel does not say"


def _process_lines(process: ProcessStack, most_frames: int) -> list[str]:
    lines = [f"{label_text(process.program) or 'process'} ({process.pid})"]
    with_frames = [thread for thread in process.threads if thread.frames]
    if not with_frames and process.threads:
        return [*lines, f"  {_state(process.threads[0])}"]
    for number, thread in enumerate(with_frames[:_MOST_THREADS]):
        is_main = thread.tid == process.pid
        name = label_text(thread.name) or ("main thread" if is_main else "thread")
        what = {True: ": runs", False: ": waits", None: ""}[thread.is_active]
        what = ": is stopped" if thread.state in ("T", "t") else what
        lines.append(f"  {name}{what}")
        most = most_frames if number == 0 else 2
        lines += [f"    {call_text(frame)}" for frame in thread.frames[:most]]
        if len(thread.frames) > most:
            lines.append(f"    ... {len(thread.frames) - most} more calls")
    if len(with_frames) > _MOST_THREADS:
        lines.append(f"  ... {len(with_frames) - _MOST_THREADS} more threads")
    return lines
