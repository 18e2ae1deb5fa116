"""Workers load batches, a queue holds some of them, and steps on a device consume them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

_NO_SLOWDOWN: Final = (1.0,)
_MINUTE_MS: Final = 60_000


class Steps(NamedTuple):
    """Consecutive steps; columns in ms, shape (n,).

    The run requests a batch at ``requested``; it is in the queue from ``ready`` on; the run has it
    at ``taken``; the device works on it from ``begun`` to ``ended``, and was free from ``free`` on.
    """

    requested: NDArray[np.int64]
    ready: NDArray[np.int64]
    taken: NDArray[np.int64]
    free: NDArray[np.int64]
    begun: NDArray[np.int64]
    ended: NDArray[np.int64]


@dataclass
class Loader:
    """Workers in turn, and a bounded queue that keeps the order of batches.

    Worker ``i % workers`` loads batch i. It begins once it has delivered its batch before and fewer
    than ``depth`` batches are loading or queued. Depth 0: the run loads each batch itself.

    Attributes:
        workers: At least 1.
        depth: Batches that may be loading or queued.
        since_ms: When its workers are ready.
        slowdown_per_minute: A factor on loading times for each minute; the last one stays.
    """

    workers: int
    depth: int
    since_ms: int = 0
    slowdown_per_minute: Sequence[float] = _NO_SLOWDOWN
    next_turn: int = 0
    free_ms: list[int] = field(default_factory=list)
    taken_ms: deque[int] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.free_ms = [self.since_ms] * self.workers
        self.taken_ms = deque([self.since_ms] * self.depth, maxlen=max(1, self.depth))

    def load(self, cost_ms: int, requested_ms: int) -> int:
        """When the next batch is in the queue, for a run that requests it now."""
        worker = self.next_turn
        self.next_turn = (worker + 1) % self.workers
        begin_ms = self.free_ms[worker]
        # The batch that made room for this one was taken `depth` batches ago.
        room_ms = self.taken_ms[0] if self.depth else requested_ms
        if room_ms > begin_ms:
            begin_ms = room_ms
        slowdowns = self.slowdown_per_minute
        if len(slowdowns) > 1:
            minute = min(begin_ms // _MINUTE_MS, len(slowdowns) - 1)
            cost_ms = int(cost_ms * slowdowns[minute])
        self.free_ms[worker] = ready_ms = begin_ms + cost_ms
        return ready_ms


@dataclass
class Training:
    """The loop that requests a batch, launches its step, and requests the next.

    Attributes:
        at_ms: The time of the host.
        device_free_ms: When the device has finished.
        runs_ahead: Whether the host requests the next batch while the device still works (one step
            ahead), or waits for each step's result.
        requested_in_vain_ms: When it requested a batch that came after the workload's end, if any.
    """

    at_ms: int
    device_free_ms: int
    runs_ahead: bool = False
    requested_in_vain_ms: int | None = None

    def steps(
        self,
        loader: Loader,
        costs_ms: NDArray[np.int64],
        steps_ms: NDArray[np.int64],
        host_ms: NDArray[np.int64],
        *,
        until_ms: int,
    ) -> Steps:
        """Make these steps, or those that begin before the workload's end.

        Args:
            loader: Loads the batches.
            costs_ms: Time of a worker for each batch.
            steps_ms: Time of the device for each.
            host_ms: Time of the host to launch each.
            until_ms: The end of the workload.
        """
        rows: list[tuple[int, int, int, int, int, int]] = []
        requested, free, runs_ahead = self.at_ms, self.device_free_ms, self.runs_ahead
        note_taken = loader.taken_ms.append
        columns = (column.tolist() for column in (costs_ms, steps_ms, host_ms))
        for cost, step, host in zip(*columns, strict=True):
            ready = loader.load(cost, requested)
            taken = ready if ready > requested else requested
            handed = taken + host
            begun = handed if handed > free else free
            if begun >= until_ms:
                self.requested_in_vain_ms = requested
                self.at_ms = until_ms
                break
            note_taken(taken)
            ended = begun + step
            rows.append((requested, ready, taken, free, begun, ended))
            requested = begun if runs_ahead else ended
            free = ended
            self.at_ms = requested
        self.device_free_ms = free
        return Steps(*np.array(rows, dtype=np.int64).reshape(-1, 6).T)

    def fed_steps(
        self, steps_ms: NDArray[np.int64], host_ms: NDArray[np.int64], *, until_ms: int
    ) -> Steps:
        """As ``steps``, with batches that are always ready."""
        between = np.maximum(host_ms[1:], steps_ms[:-1])
        if not self.runs_ahead:
            between = host_ms[1:] + steps_ms[:-1]
        first = max(self.at_ms + int(host_ms[0]), self.device_free_ms)
        begun = first + np.concatenate(([0], np.cumsum(between)))
        ended = begun + steps_ms
        requested = np.concatenate(([self.at_ms], (begun if self.runs_ahead else ended)[:-1]))
        free = np.concatenate(([self.device_free_ms], ended[:-1]))
        made = Steps(
            *(
                column[begun < until_ms]
                for column in (requested, requested, requested, free, begun, ended)
            )
        )
        if made.begun.size:
            self.device_free_ms = int(made.ended[-1])
            self.at_ms = int((made.begun if self.runs_ahead else made.ended)[-1])
        if made.begun.size < begun.size:
            self.requested_in_vain_ms, self.at_ms = self.at_ms, until_ms
        return made

    def finish(self) -> int:
        """Wait for the device; return the time."""
        self.at_ms = max(self.at_ms, self.device_free_ms)
        return self.at_ms

    def hold(self, duration_ms: int) -> None:
        """The host does something else."""
        self.at_ms += duration_ms


def no_steps() -> Steps:
    none = np.empty(0, dtype=np.int64)
    return Steps(none, none, none, none, none, none)
