"""How much of a window's idle time is certainly of one cause, and how much at most.

In one window, a cause has at least what of the idle time finds no room elsewhere, and at most the
smaller of the idle time and its own length. Where the host waits only while the device has
nothing to do, the shares of ``share_idle`` are exact. Whether that is so, the windows tell
together (``queue_models``). Until they do, and where it is not so, there is a range.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from typing import Final, NamedTuple

from gpumon.core.join.idle_sharing import SharedIdle, WindowParts
from gpumon.core.join.queue_models import Fit, LoopTrace, LoopWindow
from gpumon.core.join.timeline import PhaseTimeline
from gpumon.core.phase import IdleCause
from gpumon.core.sample import BusySample

_BLOCK: Final = 64
"""After so many windows with a range, models are compared with all of the block; ..."""
_FIRST_LOOKS: Final = frozenset({1, 2, 4, 8, 16, 24, 32, 48})
"""... in the first block of a loop, also after so many."""
_ENOUGH: Final = 16
"""Where no model fits so many, none is looked for in the rest of the block."""
_MOST_WINDOWS: Final = 4 * _BLOCK
_GRAIN: Final = 0.05
"""By so much of a window, drivers and clocks may be out."""
_HAS_RANGE: Final = 0.01
_LEAST_ERROR: Final = 0.003
"""Whole percents alone make as much, ..."""
_ERROR_OF_ONE: Final = 0.05
"""... and of n windows, chance an n-th of this more."""
_WORSE_OF_ONE: Final = 8.0
"""A model is ruled out by n windows if its error is 1 + 8 / sqrt(n) times that of the best one."""
_MOST_COMPARED: Final = 1_024
"""Windows by which models are told apart: what was long ago counts for less."""
_MOST_ERROR: Final = 0.06
"""Where even the best model has a greater error, none is believed."""
_ALIKE: Final = 0.02
"""Shares that differ by no more than that part of the windows are the same."""
_TELLING: Final = 0.1
"""Of a window, so much must be waits, and as much must not, for it to tell."""
_TRACKED: Final = 16
"""After so many windows in a row that were idle for as long as the host waited, all will be."""
_REMEMBERED: Final = (1 << 64) - 1
_MOST_OVERLAPS: Final = 6
"""Of the last 64 windows that the host waited in, so many may be busier than it leaves room."""

_MOST_SKIPPED: Final = 4_096
"""Where no model fits, so many windows with a range may pass before they are compared again."""
_MOST_BLOCKS: Final = 16
"""So many are remembered of which more may become known."""
_OF_STEPS: Final = {IdleCause.WITHIN_STEP, IdleCause.IMBALANCE}
"""How these are told apart is no question of when the device works."""

_Amounts = dict[IdleCause, int]


class Bounds(NamedTuple):
    """How certain the shares of some idle time are, by cause, nanoseconds.

    ``IdleCause.UNKNOWN`` is what of it falls into time that no phase explains.

    Attributes:
        best_ns: The shares; they sum to the idle time.
        less_ns: How much of a share may be another cause's; causes that lose nothing are left out.
        more_ns: How much more than its share a cause may have, likewise.
    """

    best_ns: _Amounts
    less_ns: _Amounts
    more_ns: _Amounts


class Narrowed(NamedTuple):
    """What became known of windows that have passed, by cause, nanoseconds.

    Attributes:
        low_ns: So much more is certain.
        high_ns: So much less is possible.
    """

    low_ns: _Amounts
    high_ns: _Amounts


class _Kept(NamedTuple):
    """A window of the present block; ``usual_ns`` is how ``share_idle`` has it."""

    window: LoopWindow
    usual_ns: Mapping[IdleCause, int]
    bounds: Bounds


class _Block:
    """Windows that models were compared with, as far as more may yet become known of them."""

    def __init__(self, kept: Sequence[_Kept], trace: LoopTrace, fits: Sequence[Fit]) -> None:
        self._fits = {fit.name: fit for fit in fits}
        pairs = [*zip(kept, trace.fitted, strict=True)]
        self._fitted = _all_of(one.bounds for one, yes in pairs if yes)
        self._others = _all_of(one.bounds for one, yes in pairs if not yes)
        self._usual_ns = _sums(one.usual_ns for one, yes in pairs if yes)
        self._most_ns = _ALIKE * trace.fitted_ns

    def is_usual(self, models: Iterable[str]) -> bool:
        """Whether these models all give each cause what ``share_idle`` gives it."""
        return all(
            abs(fit.idle_ns.get(cause, 0) - self._usual_ns.get(cause, 0)) <= self._most_ns
            for fit in self._named(models)
            for cause in {*self._usual_ns, *fit.idle_ns} - _OF_STEPS
        )

    def by_models(self, models: Iterable[str]) -> Narrowed:
        """What these models, each with all that it misses, leave possible."""
        fits = self._named(models)
        best_ns = self._fitted.best_ns
        low_ns: _Amounts = {}
        high_ns: _Amounts = {}
        for cause in best_ns.keys() | self._fitted.more_ns.keys() if fits else ():
            if cause is IdleCause.IMBALANCE:
                continue  # models say it of the step as a whole
            is_step = cause is IdleCause.WITHIN_STEP
            apart_ns = best_ns.get(IdleCause.IMBALANCE, 0) if is_step else 0
            said_ns = [(fit.idle_ns.get(cause, 0) - apart_ns, fit.missed_ns) for fit in fits]
            low_ns[cause] = min(ns - missed_ns for ns, missed_ns in said_ns)
            high_ns[cause] = max(ns + missed_ns for ns, missed_ns in said_ns)
        narrowed, self._fitted = _narrowed(self._fitted, low_ns, high_ns)
        return narrowed

    def as_usual(self) -> Narrowed:
        """Each cause has what ``share_idle`` gives it."""
        fitted, self._fitted = _narrowed(self._fitted, self._usual_ns, self._usual_ns)
        others, self._others = _narrowed(self._others, self._others.best_ns, self._others.best_ns)
        return _together([fitted, others])

    def _named(self, models: Iterable[str]) -> list[Fit]:
        return [self._fits[name] for name in models if name in self._fits]


class IdleBounds:
    """Follows the windows of one GPU that one run has for itself.

    Attributes:
        is_exact: Whether shares need no bounds: the host waits only while the device idles.
    """

    def __init__(self) -> None:
        self.is_exact = False
        self._kept: list[_Kept] = []  # of the present block
        self._past: list[_Block] = []
        self._ranges = 0  # windows of it that have a range
        self._overlaps = 0  # a bit for each of the last windows that the host waited in
        self._idle_parts: dict[IdleCause, float] = {}  # of each cause's time, 0 to 1
        self._errors: dict[str, tuple[float, float]] = {}  # of blocks before: squares and count
        self._begins_idle = self._was_idle = True
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
            shared: How ``share_idle`` shares its idle time.
            timeline: Of the run.
            has_peers: Whether the run is a rank of a job: then a device that is done may be busy
                waiting for others.

        Returns:
            Its bounds, ``None`` where its shares are exact; and what became known by it of windows
            before, ``None`` where nothing did.
        """
        start_ns, end_ns, busy_ratio = sample
        length_ns = end_ns - start_ns
        if has_peers and timeline.has_marks:
            return None, None
        is_looking = not self._skipped or timeline.has_marks
        if is_looking and (shared.unfelt_ns or self._overlaps):
            self._note_overlap(parts, shared, length_ns, timeline)
        if self.is_exact or timeline.has_marks:
            return None, None
        idle_ns = length_ns - round(length_ns * busy_ratio)
        was_idle, self._was_idle = self._was_idle, idle_ns == length_ns
        bounds = window_bounds(idle_ns, length_ns, parts, shared)
        has_range = sum(bounds.less_ns.values()) > _HAS_RANGE * length_ns
        if self._skipped:
            self._skipped -= has_range
            return bounds, None
        if has_range and self._idle_parts:
            bounds = _split_by(self._idle_parts, bounds)
        spans = timeline.spans(start_ns, end_ns)
        if spans is None or parts.gross_input_wait_ns or timeline.has_amounts(start_ns, end_ns):
            self._begin_block()  # models say nothing of such a window
            return bounds, None
        if self._kept and self._kept[-1].window.end_ns != start_ns:
            self._begin_block()
        if not self._kept:
            self._begins_idle = was_idle
        window = LoopWindow(
            start_ns, end_ns, idle_ns, *spans, timeline.steps_between(start_ns, end_ns)
        )
        usual_ns = _with_untagged(idle_ns, shared.idle_ns)
        self._kept.append(_Kept(window, usual_ns, bounds))
        self._ranges += has_range
        self._note_tracking(idle_ns, length_ns, parts)
        if self._is_full or (has_range and (self._is_look or self._tracked == _TRACKED)):
            return bounds, self._decide(timeline)
        return bounds, None

    def _note_tracking(self, idle_ns: int, length_ns: int, parts: WindowParts) -> None:
        """Count windows in a row that were idle for as long as the host waited.

        Where the host waits while the device works, hardly any is.
        """
        waited_ns = sum(parts.waits.values())
        if _TELLING * length_ns < waited_ns < (1 - _TELLING) * length_ns:
            is_alike = abs(idle_ns - waited_ns) <= _ALIKE * length_ns
            self._tracked = self._tracked + 1 if is_alike else 0

    @property
    def _is_full(self) -> bool:
        return self._ranges >= _BLOCK or len(self._kept) >= _MOST_WINDOWS

    @property
    def _is_look(self) -> bool:
        if self._past:
            return self._skips > 0 and self._ranges == _ENOUGH
        return self._ranges in _FIRST_LOOKS

    def _note_overlap(
        self, parts: WindowParts, shared: SharedIdle, length_ns: int, timeline: PhaseTimeline
    ) -> None:
        """Note whether the device worked while the host waited; if it often does, begin anew."""
        if IdleCause.NOT_IN_USE in parts.waits or sum(parts.waits.values()) <= _GRAIN * length_ns:
            return  # a process that is stopped leaves its queue to the device
        is_overlap = shared.unfelt_ns > _GRAIN * length_ns
        self._overlaps = (self._overlaps << 1 | is_overlap) & _REMEMBERED
        if self._is_overlapped and (self.is_exact or timeline.has_marks):
            timeline.distrust_marks()
            self.is_exact, timeline.keeps_steps = False, True
            self._begin_anew()

    @property
    def _is_overlapped(self) -> bool:
        return self._overlaps.bit_count() > _MOST_OVERLAPS

    def _begin_block(self) -> None:
        self._kept, self._ranges = [], 0

    def _skip(self) -> None:
        """No model fits: look again later, and then later still."""
        self._skips = min(_MOST_SKIPPED, 4 * self._skips or _BLOCK)
        self._skipped = self._skips

    def _begin_anew(self) -> None:
        """What was known of the loop so far is settled, or no longer true."""
        self._begin_block()
        self._past, self._errors, self._idle_parts = [], {}, {}
        self._skipped = self._skips = self._tracked = 0

    def _decide(self, timeline: PhaseTimeline) -> Narrowed | None:
        """Compare models with the windows of this block, and see what is known by that."""
        trace = LoopTrace(
            [one.window for one in self._kept],
            has_own_steps=timeline.has_own_steps,
            begins_idle=self._begins_idle,
        )
        fits = trace.fits()
        block = _Block(self._kept, trace, fits)
        errors = self._errors_with(fits)
        believed = _believed(errors)
        is_usual = self._tracked >= _TRACKED or (believed and block.is_usual(believed))
        if is_usual and not self._overlaps:
            self.is_exact, timeline.keeps_steps = True, False
            narrowed = _together([one.as_usual() for one in (*self._past, block)])
            self._begin_anew()
            return narrowed
        self._idle_parts = {}
        if believed and not any(block.is_usual([name]) for name in believed):
            best = next(fit for fit in fits if fit.name == believed[0])
            self._idle_parts = trace.idle_parts(best)
        fits_none = not believed and self._ranges >= _ENOUGH
        if not self._is_full and not fits_none:
            return None
        if fits_none:
            self._skip()
        else:
            self._skips = 0
        self._errors = errors
        self._past = [*self._past, block][-_MOST_BLOCKS:]
        self._begin_block()
        return _together([one.by_models(believed) for one in self._past])

    def _errors_with(self, fits: Sequence[Fit]) -> dict[str, tuple[float, float]]:
        """Sums of squares, and of windows, by model: of these and of the blocks before."""
        errors = {}
        for fit in fits:
            squares, count = self._errors.get(fit.name, (0.0, 0.0))
            squares, count = squares + fit.squares, count + fit.windows
            fading = min(1.0, _MOST_COMPARED / count) if count else 1.0
            errors[fit.name] = squares * fading, count * fading
        return errors


def _believed(errors: Mapping[str, tuple[float, float]]) -> list[str]:
    """The models that are not ruled out, the best one first; none where none fits."""
    error_of = {
        name: sqrt(squares / count) if count else 0.0 for name, (squares, count) in errors.items()
    }
    count = max((count for _, count in errors.values()), default=0.0)
    if not count:
        return [*error_of]
    best, by_chance = min(error_of.values()), _LEAST_ERROR + _ERROR_OF_ONE / count
    if best > max(_MOST_ERROR, by_chance):
        return []
    limit = max(by_chance, best * (1 + _WORSE_OF_ONE / sqrt(count)))
    ranked = sorted(error_of, key=error_of.__getitem__)
    return [name for name in ranked if error_of[name] <= limit]


def _narrowed(bounds: Bounds, low_ns: _Amounts, high_ns: _Amounts) -> tuple[Narrowed, Bounds]:
    """What these limits add to the bounds, which always hold the best; and the new bounds."""
    best_ns, less_ns, more_ns = bounds
    new_less_ns = {
        cause: min(ns, max(0, best_ns[cause] - low_ns[cause])) if cause in low_ns else ns
        for cause, ns in less_ns.items()
    }
    new_more_ns = {
        cause: min(ns, max(0, high_ns[cause] - best_ns.get(cause, 0))) if cause in high_ns else ns
        for cause, ns in more_ns.items()
    }
    narrowed = Narrowed(
        {cause: ns - new_less_ns[cause] for cause, ns in less_ns.items()},
        {cause: ns - new_more_ns[cause] for cause, ns in more_ns.items()},
    )
    return narrowed, Bounds(best_ns, new_less_ns, new_more_ns)


def _all_of(each: Iterable[Bounds]) -> Bounds:
    every = list(each)
    return Bounds(
        _sums(one.best_ns for one in every),
        _sums(one.less_ns for one in every),
        _sums(one.more_ns for one in every),
    )


def _together(each: Iterable[Narrowed]) -> Narrowed:
    every = list(each)
    return Narrowed(_sums(one.low_ns for one in every), _sums(one.high_ns for one in every))


def window_bounds(idle_ns: int, length_ns: int, parts: WindowParts, shared: SharedIdle) -> Bounds:
    """What one window alone says of its causes."""
    best_ns = _with_untagged(idle_ns, shared.idle_ns)
    less_ns: _Amounts = {}
    more_ns: _Amounts = {}
    busy_ns = length_ns - idle_ns
    beside_ns = best_ns.get(IdleCause.IMBALANCE, 0)
    for cause, part_ns in _lengths(parts):
        own_ns = share_ns = best_ns.get(cause, 0)
        if beside_ns and cause is IdleCause.WITHIN_STEP:
            share_ns += beside_ns  # a slower peer takes its part of the step, whatever it is
        unsure_ns = share_ns - max(0, part_ns - busy_ns)
        if unsure_ns > 0 and own_ns:
            less_ns[cause] = min(own_ns, unsure_ns)
        room_ns = min(part_ns, idle_ns) - share_ns
        if room_ns > 0:
            more_ns[cause] = room_ns
    if beside_ns:
        unsure_ns = beside_ns - max(0, parts.step_ns - busy_ns)
        if unsure_ns > 0:
            less_ns[IdleCause.IMBALANCE] = unsure_ns
    return Bounds(best_ns, less_ns, more_ns)


def _lengths(parts: WindowParts) -> Iterable[tuple[IdleCause, int]]:
    """How much of a window was each cause's time."""
    waits_ns = parts.waits
    if parts.gross_input_wait_ns:
        input_ns = waits_ns.get(IdleCause.INPUT_WAIT, 0) + parts.gross_input_wait_ns
        waits_ns = {**waits_ns, IdleCause.INPUT_WAIT: input_ns}
    uncovered_ns = parts.silent_ns + parts.own_step_ns + parts.outside_ns
    lengths_ns = [*waits_ns.items()]
    if parts.step_ns:
        lengths_ns.append((IdleCause.WITHIN_STEP, parts.step_ns))
    if parts.validation_ns:
        lengths_ns.append((IdleCause.VALIDATION, parts.validation_ns))
    if uncovered_ns:
        lengths_ns.append((IdleCause.UNKNOWN, uncovered_ns))
    return lengths_ns


def _with_untagged(idle_ns: int, shares_ns: _Amounts) -> _Amounts:
    """These shares, and as ``UNKNOWN`` what of the idle time is in none."""
    untagged_ns = idle_ns - sum(shares_ns.values())
    if not untagged_ns:
        return shares_ns
    unknown_ns = shares_ns.get(IdleCause.UNKNOWN, 0) + untagged_ns
    return {**shares_ns, IdleCause.UNKNOWN: unknown_ns}


def _split_by(idle_parts: Mapping[IdleCause, float], bounds: Bounds) -> Bounds:
    """The same bounds, with shares by how idle the time of each cause is in this loop."""
    best_ns, less_ns, more_ns = bounds
    causes = [*best_ns, *(cause for cause in more_ns if cause not in best_ns)]
    lows = {cause: best_ns.get(cause, 0) - less_ns.get(cause, 0) for cause in causes}
    rooms = {cause: less_ns.get(cause, 0) + more_ns.get(cause, 0) for cause in causes}
    new_ns, left_ns = dict(lows), sum(less_ns.values())
    weights = {cause: room_ns * idle_parts.get(cause, 0.0) for cause, room_ns in rooms.items()}
    whole = sum(weights.values())
    if whole <= 0:
        return bounds
    shares = {cause: min(rooms[cause], int(left_ns * w / whole)) for cause, w in weights.items()}
    left_ns -= sum(shares.values())
    for cause in sorted(causes, key=lambda one: shares[one] - rooms[one]):
        more = min(left_ns, rooms[cause] - shares[cause])
        shares[cause] += more
        left_ns -= more
    new_ns = {cause: lows[cause] + shares[cause] for cause in causes}
    return Bounds(
        new_ns,
        {cause: ns for cause, ns in shares.items() if ns},
        {cause: rooms[cause] - ns for cause, ns in shares.items() if rooms[cause] > ns},
    )


def _sums(amounts: Iterable[Mapping[IdleCause, int]]) -> _Amounts:
    total_ns: _Amounts = {}
    for one in amounts:
        for cause, ns in one.items():
            total_ns[cause] = total_ns.get(cause, 0) + ns
    return total_ns
