"""Compares the GPUs of one log: common pauses, and idle time while a peer worked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import groupby
from operator import itemgetter

from gpumon.core.log_summary.activity import GpuActivity

_UNOBSERVED, _OUT_OF_USE, _PAUSED, _WORKING = GpuActivity


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """What several GPUs did at the same time, nanoseconds.

    Attributes:
        in_use_ns: Time in which two or more GPUs were in use.
        all_paused_ns: The part of it in which all GPUs in use paused.
        all_pauses: Number of these common pauses.
        in_use_gpu_ns: ``in_use_ns`` summed over the GPUs in use.
        paused_gpu_ns: The part of ``in_use_gpu_ns`` in which the GPU paused.
        by_chance_ns: Expected common pause if the GPUs were independent.
        in_use: Positions of the GPUs that were in use while another one was.
        idle_beside_peer_ns: For each GPU, idle time while another one worked.
    """

    in_use_ns: int
    all_paused_ns: int
    all_pauses: int
    in_use_gpu_ns: int
    paused_gpu_ns: int
    by_chance_ns: int
    in_use: tuple[int, ...]
    idle_beside_peer_ns: tuple[int, ...]

    @property
    def common_share(self) -> float:
        """How common the pauses are: 0 as by chance, 1 fully, below 0 if they take turns."""
        if not self.in_use_gpu_ns:
            return 0.0
        max_ns = self.in_use_ns * self.paused_gpu_ns / self.in_use_gpu_ns
        if max_ns <= self.by_chance_ns:
            return 0.0
        return (self.all_paused_ns - self.by_chance_ns) / (max_ns - self.by_chance_ns)


def together(gpus: Sequence[Iterable[tuple[int, GpuActivity]]], tolerance_ns: int) -> Together:
    """Compare what the GPUs did at the same time, in O(n log g) for n changes of g GPUs.

    GPUs are read one after another, so a common pause begins and ends a little apart: a stretch
    shorter than the tolerance counts as neither a common pause nor idle time while a peer worked.

    Args:
        gpus: The changes of state of each GPU, oldest first.
        tolerance_ns: Half the time between two samples, or half a driver's window.
    """
    sweep = _Sweep(len(gpus), tolerance_ns)
    turns = merge(*(_numbered(number, changes) for number, changes in enumerate(gpus)))
    for at_ns, changes in groupby(turns, key=itemgetter(0)):
        sweep.move(at_ns, [(number, state) for _, number, state in changes])
    return sweep.result()


def _numbered(
    number: int, changes: Iterable[tuple[int, GpuActivity]]
) -> Iterator[tuple[int, int, GpuActivity]]:
    for at_ns, state in changes:
        yield at_ns, number, state


class _Sweep:
    def __init__(self, gpus: int, tolerance_ns: int) -> None:
        self._tolerance_ns = tolerance_ns
        self._states = [_UNOBSERVED] * gpus
        self._idle: set[int] = set()
        self._idle_while_peer_works_since: dict[int, int] = {}
        self._idle_while_peer_works_ns = [0] * gpus
        self._in_use: set[int] = set()
        self._used_with_a_peer: set[int] = set()
        self._working = 0
        self._now_ns = 0
        self._all_paused_since: int | None = None
        self._all_pauses = 0
        self._all_paused_ns = self._in_use_gpu_ns = self._paused_gpu_ns = 0
        self._ns_by_count: dict[int, int] = {}

    def move(self, at_ns: int, changed: Sequence[tuple[int, GpuActivity]]) -> None:
        """Advance to a later time at which these GPUs, by number, change their states."""
        in_use, idle, states = self._in_use, self._idle, self._states
        count = len(in_use)
        if count > 1:
            length_ns = at_ns - self._now_ns
            self._ns_by_count[count] = self._ns_by_count.get(count, 0) + length_ns
            self._in_use_gpu_ns += count * length_ns
            self._paused_gpu_ns += (count - self._working) * length_ns
        self._now_ns = at_ns
        for number, state in changed:
            self._working += (state is _WORKING) - (states[number] is _WORKING)
            states[number] = state
            is_paused = state is _PAUSED
            (in_use.add if is_paused or state is _WORKING else in_use.discard)(number)
            (idle.add if is_paused or state is _OUT_OF_USE else idle.discard)(number)
        if len(in_use) > 1:
            if count < 2:
                self._used_with_a_peer |= in_use
            elif len(self._used_with_a_peer) < len(states):
                self._used_with_a_peer.update(number for number, _ in changed if number in in_use)
        self._follow_idle(changed)
        self._follow_all()

    def result(self) -> Together:
        """Return the sums, once every GPU has ended."""
        in_use_ns = sum(self._ns_by_count.values())
        share = self._paused_gpu_ns / self._in_use_gpu_ns if self._in_use_gpu_ns else 0.0
        # The product of unequal shares is below that of their mean: prefers chance.
        by_chance_ns = sum(ns * share**count for count, ns in sorted(self._ns_by_count.items()))
        return Together(
            in_use_ns=in_use_ns,
            all_paused_ns=self._all_paused_ns,
            all_pauses=self._all_pauses,
            in_use_gpu_ns=self._in_use_gpu_ns,
            paused_gpu_ns=self._paused_gpu_ns,
            by_chance_ns=round(by_chance_ns),
            in_use=tuple(sorted(self._used_with_a_peer)),
            idle_beside_peer_ns=tuple(self._idle_while_peer_works_ns),
        )

    def _follow_idle(self, changed: Sequence[tuple[int, GpuActivity]]) -> None:
        """Track the stretches in which a GPU idles while another works."""
        now_ns, since = self._now_ns, self._idle_while_peer_works_since
        if not self._working:
            for number in list(since):
                self._end_idle_stretch(number)
            return
        if not since:  # perhaps no GPU worked before
            for number in self._idle:
                since[number] = now_ns
            return
        for number, _ in changed:
            if number not in self._idle:
                self._end_idle_stretch(number)
            elif number not in since:
                since[number] = now_ns

    def _end_idle_stretch(self, number: int) -> None:
        since_ns = self._idle_while_peer_works_since.pop(number, None)
        if since_ns is not None and self._now_ns - since_ns >= self._tolerance_ns:
            self._idle_while_peer_works_ns[number] += self._now_ns - since_ns

    def _follow_all(self) -> None:
        if len(self._in_use) > 1 and not self._working:
            if self._all_paused_since is None:
                self._all_paused_since = self._now_ns
        elif self._all_paused_since is not None:
            length_ns = self._now_ns - self._all_paused_since
            if length_ns >= self._tolerance_ns:
                self._all_paused_ns += length_ns
                self._all_pauses += 1
            self._all_paused_since = None
