"""Models of how a loop's device works, compared with its windows.

A driver reports how much of a window was idle, the phases what the host did meanwhile. If the
host waits while the device still works, that alone does not show which cause the idle time had.
But few ways of working are likely, and each predicts how idle every window was:

- ``spread``: the device works only while the host is in its step;
- ``entry``: each step's work is queued as the step begins, and done in that order;
- ``exit``: it is queued as the step ends;
- ``first``, ``last``: with several steps for each counted one (gradient accumulation),
  all the work is queued with the first, or with the last.

Each step has the same work. A model that does not fit the windows is ruled out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from gpumon.core.attribution.span_labels import LABELS, SpanLabel
from gpumon.core.phase import PHASE_NUMBER, IdleCause, TrainingPhase

_SYNC: Final = PHASE_NUMBER[TrainingPhase.DEVICE_SYNC]
_OTHER: Final = PHASE_NUMBER[TrainingPhase.OTHER]
_ROUNDS: Final = 2
"""Rounds in which the work of a step is fitted to the busy time of all windows."""
_UNMODELLED: Final = frozenset(
    {IdleCause.START_UP, IdleCause.COMPILE, IdleCause.VALIDATION, IdleCause.NOT_IN_USE}
)
"""In these the device works for something else than steps, or for something unknown."""
_UNMODELLED_CODES: Final = frozenset(
    code for code, label in enumerate(LABELS) if label.cause in _UNMODELLED
)
_STEP_CODES: Final = frozenset(code for code, label in enumerate(LABELS) if label.is_step)
_INPUT_CODES: Final = frozenset(
    code for code, label in enumerate(LABELS) if label.cause is IdleCause.INPUT_WAIT
)


def _cause(label: SpanLabel) -> IdleCause:
    if label.is_silent:
        return IdleCause.UNKNOWN
    return IdleCause.WITHIN_STEP if label.is_step else label.cause


_CAUSES: Final = [_cause(label) for label in LABELS]
_MIN_OWN_STEP_NS: Final = 50_000
"""Shorter untagged code between two tags is overhead of the tags."""

Span = tuple[float, float]


class LoopWindow(NamedTuple):
    """One driver window, and what the host did in it.

    Attributes:
        bounds_ns: Starts of its phases, and the end of the last.
        codes: A byte a phase (``span_labels.LABELS``).
        begins: Whether its first phase begins with it, and not in an earlier window.
        steps_ns: Times at which steps were counted.
    """

    start_ns: int
    end_ns: int
    idle_ns: int
    bounds_ns: tuple[int, ...]
    codes: bytes
    begins: bool
    steps_ns: tuple[int, ...]

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns


class Fit(NamedTuple):
    """How one model fits some windows.

    Attributes:
        windows: How many could be compared with it.
        squares: Sum of the squared errors of their idle shares, 0 to 1.
        missed_ns: Sum of the absolute errors of their idle times.
        idle_ns: Idle time that the model gives each cause.
    """

    name: str
    windows: int
    squares: float
    missed_ns: int
    idle_ns: dict[IdleCause, int]


class _Dispatch(NamedTuple):
    """Work that is queued.

    Attributes:
        step: Number of the counted step that it belongs to.
        amount: How much, as a multiple of one step's work.
    """

    at_ns: int
    step: int
    amount: int = 1


class LoopTrace:
    """Consecutive windows, prepared for all models.

    Args:
        windows: Windows without gaps.
        has_own_steps: Whether the run counts steps but tags none: then untagged code between two
            waits is its step.
        begins_idle: Whether the device had nothing to do when the first of them began.

    Attributes:
        fitted: By window, whether models are compared with it.
        fitted_ns: Total length of those.
    """

    def __init__(
        self, windows: Sequence[LoopWindow], *, has_own_steps: bool, begins_idle: bool
    ) -> None:
        self._windows = windows
        self._begins_idle = begins_idle
        self._step_codes = _STEP_CODES | {_OTHER} if has_own_steps else _STEP_CODES
        self.fitted = [_UNMODELLED_CODES.isdisjoint(window.codes) for window in windows]
        pairs = [*zip(windows, self.fitted, strict=True)]
        self.fitted_ns = sum(one.length_ns for one, is_fitted in pairs if is_fitted)
        self._busy_ns = sum(one.length_ns - one.idle_ns for one, is_fitted in pairs if is_fitted)
        self._times_ns: list[int] = []  # starts of phases, and the end of the last
        self._causes: list[
            IdleCause | None
        ] = []  # of each phase; None: in a window that is not fitted
        self._ends: list[int] = []  # by window: index of the time at which it ends
        self._lengths_ns: dict[IdleCause, int] = {}
        self._steps_ns: list[int] = []  # by window: step time
        self._step_causes_ns: dict[IdleCause, int] = {}
        self._entries: list[_Dispatch] = []
        self._exits: list[_Dispatch] = []
        self._syncs_ns: list[int] = []
        self._measure()
        self._find_steps()

    def fits(self, names: Collection[str] | None = None) -> list[Fit]:
        """The fit of each model, or of those named; none if no window can be compared."""
        if not self.fitted_ns:
            return []
        return [
            self._spread() if dispatches is None else self._queued(name, dispatches)
            for name, dispatches in self._models()
            if names is None or name in names
        ]

    def idle_parts(self, fit: Fit) -> dict[IdleCause, float]:
        """The idle part of each cause's time by that model, 0 to 1."""
        return {
            cause: min(1.0, fit.idle_ns.get(cause, 0) / length_ns)
            for cause, length_ns in self._lengths_ns.items()
            if length_ns
        }

    def _models(self) -> Iterator[tuple[str, Sequence[_Dispatch] | None]]:
        """Each model that these windows can test, with its queued work."""
        yield "spread", None
        if not self._entries:
            return
        yield "entry", self._entries
        yield "exit", self._exits
        of_steps: dict[int, list[_Dispatch]] = {}
        for entry in self._entries:
            of_steps.setdefault(entry.step, []).append(entry)
        if len(of_steps) < len(self._entries):
            for name, at in (("first", 0), ("last", -1)):
                yield name, [one[at]._replace(amount=len(one)) for one in of_steps.values()]

    def _measure(self) -> None:
        step_codes = self._step_codes
        lengths_ns, step_causes_ns = self._lengths_ns, self._step_causes_ns
        for window, is_fitted in zip(self._windows, self.fitted, strict=True):
            bounds_ns, step_ns = window.bounds_ns, 0
            self._times_ns += bounds_ns[:-1]
            self._ends.append(len(self._times_ns))
            if not is_fitted:
                self._causes += [None] * len(window.codes)
            else:
                for at, code in enumerate(window.codes):
                    cause, length_ns = _CAUSES[code], bounds_ns[at + 1] - bounds_ns[at]
                    self._causes.append(cause)
                    lengths_ns[cause] = lengths_ns.get(cause, 0) + length_ns
                    if code in step_codes:
                        step_ns += length_ns
                        step_causes_ns[cause] = step_causes_ns.get(cause, 0) + length_ns
            self._steps_ns.append(step_ns)
        self._times_ns.append(self._windows[-1].end_ns)

    def _find_steps(self) -> None:
        """Find the starts and ends of steps: each follows a wait for input."""
        first, step_codes = self._windows[0], self._step_codes
        # An open step queued its work before.
        is_open = first.codes[0] in step_codes and not first.begins
        self._begins_idle = self._begins_idle and not is_open
        finder = _StepFinder(is_open=is_open)
        step = 0
        for window in self._windows:
            bounds_ns, last = window.bounds_ns, len(window.codes) - 1
            for at, code in enumerate(window.codes):
                start_ns, end_ns = bounds_ns[at], bounds_ns[at + 1]
                if code in _INPUT_CODES:
                    finder.wait()
                elif code == _SYNC:
                    if at < last:  # else it goes on in the next window
                        self._syncs_ns.append(end_ns)
                elif code in step_codes:
                    counted = step + bisect_left(window.steps_ns, start_ns)
                    begin = _Dispatch(start_ns, counted) if at or window.begins else None
                    end = _Dispatch(end_ns, counted) if at < last else None
                    finder.part(begin, end, end_ns - start_ns, is_tagged=code != _OTHER)
            step += len(window.steps_ns)
        finder.wait()
        self._entries, self._exits = finder.entries, finder.exits

    def _spread(self) -> Fit:
        step_ns = sum(self._steps_ns)
        busy_ratio = min(1.0, self._busy_ns / step_ns) if step_ns else 0.0
        busy_ns = [busy_ratio * step_ns for step_ns in self._steps_ns]
        of_causes_ns = {cause: busy_ratio * ns for cause, ns in self._step_causes_ns.items()}
        return self._compared("spread", busy_ns, of_causes_ns, 0)

    def _queued(self, name: str, dispatches: Sequence[_Dispatch]) -> Fit:
        work_ns = self._busy_ns / max(1, sum([one.amount for one in dispatches]))
        stretches_ns = self._stretches()
        spans = self._spans(dispatches, work_ns)
        for _ in range(_ROUNDS):
            until_ns = _worked_until(stretches_ns, spans)
            inside_ns = sum(until_ns[1::2]) - sum(until_ns[::2])
            if inside_ns:
                work_ns *= min(2.0, max(0.5, self._busy_ns / inside_ns))
                spans = self._spans(dispatches, work_ns)
        until_ns = _worked_until(self._times_ns, spans)
        of_causes_ns: dict[IdleCause, float] = {}
        for at, cause in enumerate(self._causes):
            if cause is not None:
                more_ns = until_ns[at + 1] - until_ns[at]
                of_causes_ns[cause] = of_causes_ns.get(cause, 0.0) + more_ns
        busy_ns = [until_ns[end] - until_ns[at] for at, end in pairwise([0, *self._ends])]
        # Work queued before is unknown: it may fill the time until the first work here.
        return self._compared(
            name, busy_ns, of_causes_ns, 0 if self._begins_idle or not spans else spans[0][0]
        )

    def _stretches(self) -> list[int]:
        """Starts and ends of the fitted windows, adjacent ones merged."""
        found: list[int] = []
        for window, is_fitted in zip(self._windows, self.fitted, strict=True):
            if not is_fitted:
                continue
            if found and found[-1] == window.start_ns:
                found[-1] = window.end_ns
            else:
                found += (window.start_ns, window.end_ns)
        return found

    def _spans(self, dispatches: Sequence[_Dispatch], work_ns: float) -> list[Span]:
        """When the device works, if each dispatch gives it so much to do."""
        spans: list[Span] = []
        free_ns, syncs_ns = 0.0, [*reversed(self._syncs_ns)]
        for at_ns, _, amount in dispatches:
            while syncs_ns and syncs_ns[-1] <= at_ns:
                sync_ns = float(syncs_ns.pop())
                if spans and spans[-1][0] <= sync_ns < free_ns:
                    spans[-1] = spans[-1][0], sync_ns  # the host waited until it was done
                    free_ns = sync_ns
            start_ns = free_ns if free_ns > at_ns else float(at_ns)
            free_ns = start_ns + amount * work_ns
            spans.append((start_ns, free_ns))
        return spans

    def _compared(
        self,
        name: str,
        busy_ns: Sequence[float],
        of_causes_ns: Mapping[IdleCause, float],
        known_from_ns: float,
    ) -> Fit:
        squares = missed_ns = 0.0
        count = 0
        for at, window in enumerate(self._windows):
            if not self.fitted[at]:
                continue
            start_ns, end_ns, idle_ns, *_ = window
            length_ns = end_ns - start_ns
            difference_ns = idle_ns - (length_ns - busy_ns[at])
            missed_ns += abs(difference_ns)
            if start_ns >= known_from_ns:
                squares += (difference_ns / length_ns) ** 2
                count += 1
        idle_by_cause_ns = {
            cause: round(ns - of_causes_ns.get(cause, 0.0))
            for cause, ns in self._lengths_ns.items()
        }
        return Fit(name, count, squares, round(missed_ns), idle_by_cause_ns)


def _worked_until(times_ns: Sequence[int], spans: Sequence[Span]) -> list[float]:
    """Work done by each of these times; both are in order."""
    found: list[float] = []
    worked_ns, at, count = 0.0, 0, len(spans)
    start_ns, end_ns = spans[0] if spans else (0.0, 0.0)
    for time_ns in times_ns:
        while at < count and end_ns <= time_ns:
            worked_ns += end_ns - start_ns
            at += 1
            if at < count:
                start_ns, end_ns = spans[at]
        is_inside = at < count and start_ns < time_ns
        found.append(worked_ns + time_ns - start_ns if is_inside else worked_ns)
    return found


class _StepFinder:
    """Finds the first part of the step after each wait.

    A very short part lies between two tags, or between the step's tag and one within it, unless
    nothing longer follows.
    """

    def __init__(self, *, is_open: bool) -> None:
        self.entries: list[_Dispatch] = []
        self.exits: list[_Dispatch] = []
        self._has_waited, self._is_open = not is_open, is_open
        self._sliver: tuple[_Dispatch, _Dispatch] | None = None
        self._cut: _Dispatch | None = None

    def wait(self) -> None:
        """Begin a wait for input."""
        if self._sliver is not None:
            self.entries.append(self._sliver[0])
            self.exits.append(self._sliver[1])
        self._has_waited, self._sliver = True, None

    def part(
        self, begin: _Dispatch | None, end: _Dispatch | None, length_ns: int, *, is_tagged: bool
    ) -> None:
        """Add a part of a step; ``None``: it began before this window, or ends after it."""
        begin, self._cut = begin or self._cut, None
        if self._has_waited and begin is not None:
            if length_ns >= _MIN_OWN_STEP_NS:
                self.entries.append(begin)
                self._has_waited, self._is_open, self._sliver = False, True, None
            elif is_tagged and end is None:
                self._cut = begin  # at the end of a window
            elif is_tagged and self._sliver is None and end is not None:
                self._sliver = begin, end
        if self._is_open and end is not None:
            self.exits.append(end)
            self._is_open = False
