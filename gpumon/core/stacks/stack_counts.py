"""Whole stacks, counted, for flame graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from gpumon.core.stacks.sample_join import SampleKind
from gpumon.core.stacks.stack import StackFrame, StackSample

_MOST_STACKS: Final = 10_000
_MOST_FRAMES: Final = 256
"""Of a deeper stack, the innermost."""


class CountedStack(NamedTuple):
    """One stack.

    Attributes:
        program: Of its process, such as ``"python train.py"``.
        thread: Its name; ``""``: unknown.
        is_training: Whether it is of the first thread of the process that was asked for.
        frames: Its calls, the outermost first.
    """

    kind: SampleKind
    program: str
    thread: str
    is_training: bool
    frames: tuple[StackFrame, ...]


class StackCounts:
    """How often each stack was seen while the GPU was idle, busy, or both; bounded.

    Attributes:
        left_out: Stacks that were not counted, because there are too many different ones.
    """

    def __init__(self) -> None:
        self._counts: Counter[CountedStack] = Counter()
        self.left_out = 0

    def add(self, kind: SampleKind, sample: StackSample) -> None:
        """Count all stacks of one sample."""
        for process in sample.processes:
            for thread in process.threads:
                if not thread.frames:
                    continue
                is_training = process.pid == sample.pid and thread.tid == process.pid
                frames = tuple(reversed(thread.frames[:_MOST_FRAMES]))
                stack = CountedStack(kind, process.program, thread.name, is_training, frames)
                if stack in self._counts or len(self._counts) < _MOST_STACKS:
                    self._counts[stack] += 1
                else:
                    self.left_out += 1

    def items(self) -> Iterator[tuple[CountedStack, int]]:
        """Each stack and how often it was seen, the most frequent first."""
        yield from self._counts.most_common()

    def training_stacks(self, kind: SampleKind) -> dict[tuple[StackFrame, ...], int]:
        """Those of the training thread, and how often each was seen."""
        return {
            stack.frames: count
            for stack, count in self._counts.items()
            if stack.is_training and stack.kind is kind
        }
