"""What the processes that work for a training process were doing, over several stack samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from gpumon.core.stacks.place import worker_doing
from gpumon.core.stacks.stack import ProcessStack, StackFrame

_HELPERS: Final = ("resource_tracker.py", "forkserver.py", "semaphore_tracker.py")
_MOST_KEYS: Final = 256


class WorkerSummary(NamedTuple):
    """The workers of a typical sample.

    Attributes:
        number: How many there are.
        at_work: How many of them mostly do not wait for work.
        call: The innermost call of most of these; ``None``: unknown.
        user_call: The user's innermost call of most of these; ``None``: unknown.
    """

    number: int
    at_work: int
    call: StackFrame | None = None
    user_call: StackFrame | None = None


class WorkerTally:
    """Counts what workers do; its memory does not grow with the number of samples."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._known = self._at_work = 0
        self._calls: Counter[tuple[StackFrame | None, StackFrame | None]] = Counter()

    def add(self, processes: Iterable[ProcessStack]) -> None:
        """Add the descendants of one sample; some of them may have no frames."""
        count = 0
        for process in processes:
            doing = worker_doing(process)
            if doing.call is not None and doing.call.path.endswith(_HELPERS):
                continue
            count += 1
            if doing.is_working is None:
                continue
            self._known += 1
            if doing.is_working:
                self._at_work += 1
                call = None if doing.call is None else doing.call._replace(line=None)
                key = call, doing.user_call
                if key in self._calls or len(self._calls) < _MOST_KEYS:
                    self._calls[key] += 1
        self._counts[min(count, _MOST_KEYS)] += 1

    def summary(self) -> WorkerSummary | None:
        """What they mostly do; ``None``: there are none, or none could be read."""
        count = self._counts.most_common(1)[0][0] if self._counts else 0
        if not count or not self._known:
            return None
        at_work = round(count * self._at_work / self._known)
        call, user_call = self._calls.most_common(1)[0][0] if self._calls else (None, None)
        return WorkerSummary(count, at_work, call, user_call)
