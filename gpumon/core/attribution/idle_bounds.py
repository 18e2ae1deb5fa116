"""Bounds on how much of a window's idle time belongs to each cause.

In one window, a cause has at least the idle time that does not fit elsewhere, and at most the
smaller of the idle time and its own length. If the host waits only while the device has
nothing to do, the shares of ``share_idle`` are exact. Many windows together show whether that is
so (``queue_models``). Until then, and if it is not so, there is a range.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from typing import Final, NamedTuple

from gpumon.core.attribution.bounds import (
    Amounts,
    Bounds,
    Narrowed,
    all_of,
    by_waits,
    narrowed_to,
    settled_as,
    split_by,
    sums_of,
    together,
    window_bounds,
    with_untagged,
)
from gpumon.core.attribution.idle_sharing import SharedIdle, WindowParts
from gpumon.core.attribution.queue_models import Fit, LoopTrace, LoopWindow
from gpumon.core.attribution.timeline import PhaseTimeline
from gpumon.core.phase import IdleCause
from gpumon.core.sample import BusySample

_BLOCK: Final = 64
"""Windows with a range that make a block, with which models are compared; ..."""
_FIRST_COMPARISONS: Final = frozenset({16, 24, 32, 48})
"""... in the first block of a loop also after these, ..."""
_EARLY_COMPARISONS: Final = frozenset({1, 2, 4, 8})
"""... and after these, if each of them was idle for as long as the host waited."""
_ENOUGH: Final = 16
"""Windows that no model fits after which the rest of the block is not compared."""
_MAX_WINDOWS: Final = 4 * _BLOCK
_GRAIN: Final = 0.05
"""Error of drivers and clocks, as a part of a window."""
_HAS_RANGE: Final = 0.01
_MIN_ERROR: Final = 0.003
"""Error of rounding to percent, ..."""
_ERROR_OF_ONE: Final = 0.05
"""... and by chance, divided by the number of windows."""
_WORSE_OF_ONE: Final = 8.0
"""n windows rule a model out if its error is 1 + 8 / sqrt(n) times that of the best one."""
_MAX_COMPARED: Final = 1_024
"""Windows by which models are compared: older ones count for less."""
_MAX_ERROR: Final = 0.02
"""If even the best model has a greater error, none is used."""
_ALIKE: Final = 0.02
"""Shares that differ by no more than this part of the windows are the same."""
_TELLING: Final = 0.1
"""Least part of a window that must be waits, and that must not be, for it to be evidence."""
_TRACKED: Final = 16
"""Windows in a row that were idle for as long as the host waited, after which all will be."""
_MAX_ODD: Final = 3
"""One in this many windows of such a loop may differ."""
_REMEMBERED: Final = (1 << 64) - 1
_MAX_OVERLAPS: Final = 6
"""How many of the last 64 windows with waits may be busier than the waits leave room for."""
_MAX_SKIPPED: Final = 4_096
"""Longest pause between comparisons, in windows with a range, while no model fits."""
_MAX_BLOCKS: Final = 16
"""How many blocks are remembered that may be narrowed later."""
_OF_STEPS: Final = {IdleCause.WITHIN_STEP, IdleCause.IMBALANCE}
"""The split between these does not depend on when the device works."""


class _Kept(NamedTuple):
    """A window of a block; ``usual_ns`` are the shares of ``share_idle``."""

    window: LoopWindow
    usual_ns: Mapping[IdleCause, int]
    bounds: Bounds


class _OpenBlock:
    """Windows without a gap, with which models will be compared.

    Attributes:
        ranges: How many of them have a range.
        row: How many of the last ones were idle for as long as the host waited.
        begins_idle: Whether the device had nothing to do when the first one began.
    """

    def __init__(self) -> None:
        self.kept: list[_Kept] = []
        self.ranges = self.row = 0
        self.begins_idle = True

    @property
    def is_full(self) -> bool:
        return self.ranges >= _BLOCK or len(self.kept) >= _MAX_WINDOWS

    def trace(self, *, has_own_steps: bool) -> LoopTrace:
        return LoopTrace(
            [one.window for one in self.kept],
            has_own_steps=has_own_steps,
            begins_idle=self.begins_idle,
        )


class _Block:
    """Windows that models were compared with, and that may be narrowed later.

    Attributes:
        may_be_usual: Whether a model that fits them agrees with ``share_idle``.
    """

    def __init__(self, kept: Sequence[_Kept], trace: LoopTrace, fits: Sequence[Fit]) -> None:
        self._fits = {fit.name: fit for fit in fits}
        pairs = [*zip(kept, trace.fitted, strict=True)]
        self._fitted = all_of(one.bounds for one, yes in pairs if yes)
        self._others = all_of(one.bounds for one, yes in pairs if not yes)
        self._usual_ns = sums_of(one.usual_ns for one, yes in pairs if yes)
        self._max_ns = _ALIKE * trace.fitted_ns
        of_these = {fit.name: (fit.squares, float(fit.windows)) for fit in fits}
        self.may_be_usual = any(self.is_usual([name]) for name in _believed(of_these))

    def is_usual(self, models: Iterable[str]) -> bool:
        """Whether all these models agree with ``share_idle``."""
        return all(
            abs(fit.idle_ns.get(cause, 0) - self._usual_ns.get(cause, 0)) <= self._max_ns
            for fit in self._named(models)
            for cause in {*self._usual_ns, *fit.idle_ns} - _OF_STEPS
        )

    def by_models(self, models: Iterable[str]) -> Narrowed:
        """Narrow the bounds to what these models, each with its error, allow."""
        fits = self._named(models)
        best_ns = self._fitted.best_ns
        low_ns: Amounts = {}
        high_ns: Amounts = {}
        for cause in best_ns.keys() | self._fitted.more_ns.keys() if fits else ():
            if cause is IdleCause.IMBALANCE:
                continue  # models include it in the step
            is_step = cause is IdleCause.WITHIN_STEP
            apart_ns = best_ns.get(IdleCause.IMBALANCE, 0) if is_step else 0
            predicted_ns = [(fit.idle_ns.get(cause, 0) - apart_ns, fit.missed_ns) for fit in fits]
            low_ns[cause] = min(ns - missed_ns for ns, missed_ns in predicted_ns)
            high_ns[cause] = max(ns + missed_ns for ns, missed_ns in predicted_ns)
        narrowed, self._fitted = narrowed_to(self._fitted, low_ns, high_ns)
        return narrowed

    def as_usual(self) -> Narrowed:
        return together(
            [
                settled_as(self._fitted, self._usual_ns),
                settled_as(self._others, self._others.best_ns),
            ]
        )

    def _named(self, models: Iterable[str]) -> list[Fit]:
        return [self._fits[name] for name in models if name in self._fits]


class IdleBounds:
    """Follows the windows of one GPU that only one run uses.

    Attributes:
        is_exact: Whether shares need no bounds: the host waits only while the device idles.
    """

    def __init__(self) -> None:
        self.is_exact = False
        self._block = _OpenBlock()
        self._past: list[_Block] = []
        self._overlaps = 0  # a bit for each of the last windows with waits
        self._idle_parts: dict[IdleCause, float] = {}  # idle part of each cause's time, 0 to 1
        self._errors: dict[str, tuple[float, float]] = {}  # of earlier blocks: squares and count
        self._was_idle = True
        self._is_idle_in_waits_alone = False  # though some of its time is untagged
        self._skipped = self._skips = self._tracked = 0

    def observe(
        self,
        sample: BusySample,
        parts: WindowParts,
        shared: SharedIdle,
        timeline: PhaseTimeline,
        *,
        has_peers: bool = False,
    ) -> tuple[Bounds | None, Narrowed | None]:
        """Take the next window.

        Args:
            sample: The window.
            parts: What the run did in it.
            shared: Its idle time by ``share_idle``.
            timeline: Timeline of the run.
            has_peers: Whether the run is a rank of a job: then a device that is done may be busy
                waiting for others.

        Returns:
            Its bounds, ``None`` if its shares are exact; and what became known of earlier
            windows, ``None`` if nothing did.
        """
        length_ns, idle_ns = sample.length_ns, sample.idle_ns
        if length_ns <= 0 or (has_peers and timeline.has_marks):
            return None, None
        waited_ns = sum(parts.waits.values())
        if self._overlaps or shared.wait_without_idle_ns or parts.hidden_input_wait_ns:
            self._note_overlap(sample, parts, shared, timeline)
        if self.is_exact or timeline.has_marks:
            return None, None
        was_idle, self._was_idle = self._was_idle, idle_ns == length_ns
        bounds = window_bounds(idle_ns, length_ns, parts, shared)
        has_range = sum(bounds.less_ns.values()) > _HAS_RANGE * length_ns
        if self._is_idle_in_waits_alone:
            if self._still_waits_alone(idle_ns, waited_ns, length_ns):
                return Bounds(by_waits(idle_ns, parts), {}, {}), None
        else:
            self._note_tracking(idle_ns, waited_ns, length_ns)
        if self._skipped:
            self._skipped = 0 if self._tracked == _TRACKED else self._skipped - has_range
            return bounds, None
        if has_range and self._idle_parts:
            bounds = split_by(self._idle_parts, bounds)
        usual_ns = with_untagged(idle_ns, shared.idle_ns)
        if not self._keep(sample, parts, timeline, usual_ns, bounds, was_idle=was_idle):
            return bounds, None
        self._block.ranges += has_range
        is_tracked = self._tracked >= _TRACKED
        if self._block.is_full or (has_range and (self._must_compare or is_tracked)):
            return bounds, self._decide(timeline)
        return bounds, None

    def _keep(
        self,
        sample: BusySample,
        parts: WindowParts,
        timeline: PhaseTimeline,
        usual_ns: Mapping[IdleCause, int],
        bounds: Bounds,
        *,
        was_idle: bool,
    ) -> bool:
        start_ns, end_ns, _ = sample
        spans = timeline.spans(start_ns, end_ns)
        if spans is None or parts.gross_input_wait_ns or timeline.has_amounts(start_ns, end_ns):
            self._block = _OpenBlock()
            return False
        if self._block.kept and self._block.kept[-1].window.end_ns != start_ns:
            self._block = _OpenBlock()
        if not self._block.kept:
            self._block.begins_idle = was_idle
        steps_ns = timeline.steps_between(start_ns, end_ns)
        window = LoopWindow(start_ns, end_ns, sample.idle_ns, *spans, steps_ns)
        self._block.kept.append(_Kept(window, usual_ns, bounds))
        self._block.row += 1
        return True

    def _note_tracking(self, idle_ns: int, waited_ns: int, length_ns: int) -> None:
        """Count windows in a row that were idle for as long as the host waited.

        If the host waits while the device works, there are hardly any.
        """
        if not _TELLING * length_ns < waited_ns < (1 - _TELLING) * length_ns:
            return
        if abs(idle_ns - waited_ns) <= _ALIKE * length_ns:
            self._tracked += 1
        else:
            self._tracked, self._block.row = 0, -1

    @property
    def _must_compare(self) -> bool:
        block = self._block
        if self._past:
            return self._skips > 0 and block.ranges == _ENOUGH
        if block.ranges in _EARLY_COMPARISONS:
            return self._tracked > 0 and block.row == len(block.kept)
        return block.ranges in _FIRST_COMPARISONS

    def _note_overlap(
        self, sample: BusySample, parts: WindowParts, shared: SharedIdle, timeline: PhaseTimeline
    ) -> None:
        """Note whether the device worked while the host waited; if it often does, start over."""
        length_ns, hidden_ns = sample.length_ns, parts.hidden_input_wait_ns
        is_short = sum(parts.waits.values()) + hidden_ns <= _GRAIN * length_ns
        if is_short or IdleCause.NOT_IN_USE in parts.waits:
            return  # a stopped process leaves its queue to the device
        is_overlap = shared.wait_without_idle_ns > _GRAIN * length_ns
        if hidden_ns:  # by marks, the device worked in waits, so it cannot have been idle
            is_overlap = is_overlap or sample.idle_ns + hidden_ns > (1 + _GRAIN) * length_ns
        self._overlaps = (self._overlaps << 1 | is_overlap) & _REMEMBERED
        is_overlapped = self._overlaps.bit_count() > _MAX_OVERLAPS
        if is_overlapped and (self.is_exact or timeline.has_marks):
            timeline.distrust_marks()
            self.is_exact, timeline.keeps_steps = False, True
            self._start_over()

    def _start_over(self) -> None:
        """Forget what was known of the loop: it is settled, or no longer true."""
        self._block = _OpenBlock()
        self._past, self._errors, self._idle_parts = [], {}, {}
        self._skipped = self._skips = self._tracked = 0

    def _decide(self, timeline: PhaseTimeline) -> Narrowed | None:
        trace = self._block.trace(has_own_steps=timeline.has_own_steps)
        fits = trace.fits()
        block = _Block(self._block.kept, trace, fits)
        errors = self._errors_with(fits)
        believed = _believed(errors)
        if self._tracked >= _TRACKED and self._may_be_usual(block, errors, believed):
            # Different windows before this row stay as they are.
            row = self._block.kept[-self._block.row :]
            bounds = all_of(one.bounds for one in row)
            usual_ns = sums_of(one.usual_ns for one in row)
            if usual_ns.get(IdleCause.UNKNOWN, 0) > _HAS_RANGE * sum(usual_ns.values()):
                self._start_over()
                self._is_idle_in_waits_alone = True
                return settled_as(bounds, _without_untagged(usual_ns))
            narrowed = block.as_usual() if block.may_be_usual else settled_as(bounds, usual_ns)
            return self._end_as_usual(timeline, narrowed)
        if believed and block.is_usual(believed) and not self._overlaps:
            return self._end_as_usual(timeline, block.as_usual())
        self._idle_parts = {}
        if believed and not any(block.is_usual([name]) for name in believed):
            best = next(fit for fit in fits if fit.name == believed[0])
            self._idle_parts = trace.idle_parts(best)
        fits_none = not believed and self._block.ranges >= _ENOUGH
        if not self._block.is_full and not fits_none:
            return None
        # If no model fits, compare again later, at growing intervals.
        self._skips = min(_MAX_SKIPPED, 4 * self._skips or _BLOCK) if fits_none else 0
        self._skipped = self._skips
        self._errors = errors
        self._past = [*self._past, block][-_MAX_BLOCKS:]
        self._block = _OpenBlock()
        return together([one.by_models(believed) for one in self._past])

    def _may_be_usual(
        self, block: _Block, errors: Mapping[str, tuple[float, float]], believed: Sequence[str]
    ) -> bool:
        """Whether no model contradicts that the device idles only in waits."""
        if not believed:
            return True
        usual = [name for name in errors if block.is_usual([name])]
        return any(name in believed or _error_of(errors[name]) <= _ALIKE / 2 for name in usual)

    def _still_waits_alone(self, idle_ns: int, waited_ns: int, length_ns: int) -> bool:
        """Whether a window is like that; if too many are not, start over."""
        is_alike = abs(idle_ns - waited_ns) <= _GRAIN * length_ns
        self._tracked = min(_TRACKED, self._tracked + 1) if is_alike else self._tracked - _MAX_ODD
        if self._tracked < -_TRACKED:
            self._is_idle_in_waits_alone = False
            self._start_over()
        return is_alike and self._is_idle_in_waits_alone

    def _end_as_usual(self, timeline: PhaseTimeline, newest: Narrowed) -> Narrowed:
        """Treat the loop as exact from now on, and earlier windows that look alike."""
        self.is_exact, timeline.keeps_steps = True, False
        before = [one.as_usual() for one in self._past if one.may_be_usual]
        self._overlaps = 0
        self._start_over()
        return together([*before, newest])

    def _errors_with(self, fits: Sequence[Fit]) -> dict[str, tuple[float, float]]:
        """Sums of squares, and of windows, by model: with those of earlier blocks."""
        errors = {}
        for fit in fits:
            squares, count = self._errors.get(fit.name, (0.0, 0.0))
            squares, count = squares + fit.squares, count + fit.windows
            fading = min(1.0, _MAX_COMPARED / count) if count else 1.0
            errors[fit.name] = squares * fading, count * fading
        return errors


def _without_untagged(shares_ns: Amounts) -> Amounts:
    """The shares by waits alone: if idle time equals the waits, untagged time was busy."""
    total_ns = sum(shares_ns.values())
    explained_ns = total_ns - shares_ns.pop(IdleCause.UNKNOWN, 0)
    return {cause: ns * total_ns // explained_ns for cause, ns in shares_ns.items() if explained_ns}


def _error_of(squares_and_count: tuple[float, float]) -> float:
    squares, count = squares_and_count
    return sqrt(squares / count) if count else 0.0


def _believed(errors: Mapping[str, tuple[float, float]]) -> list[str]:
    """The models that are not ruled out, the best one first."""
    error_of = {name: _error_of(error) for name, error in errors.items()}
    count = max((count for _, count in errors.values()), default=0.0)
    if not count:
        return [*error_of]
    best, by_chance = min(error_of.values()), _MIN_ERROR + _ERROR_OF_ONE / count
    if best > max(_MAX_ERROR, by_chance):
        return []
    limit = max(by_chance, best * (1 + _WORSE_OF_ONE / sqrt(count)))
    ranked = sorted(error_of, key=error_of.__getitem__)
    return [name for name in ranked if error_of[name] <= limit]
