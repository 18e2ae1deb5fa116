"""How long a run has counted no step, and whether it probably hangs."""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple

from gpumon.core.clock import NS_PER_S
from gpumon.core.phase import PHASE_NUMBER, PHASES, STEP_PHASES, TrainingMode, TrainingPhase
from gpumon.core.ring_format.events import (
    LOOP_BEGAN,
    LOOP_ENDED,
    RingKind,
    RingReading,
    RingRecords,
)
from gpumon.core.settings.detector import DEFAULT_SETTINGS, HangSettings

_SCANNED_FROM_NS: Final = 5 * NS_PER_S
"""Gaps are searched only among steps of one reading that cover at least this time."""
_UNTIMED: Final = frozenset({TrainingPhase.START_UP, TrainingPhase.COMPILE})
_LONG: Final = frozenset(
    {TrainingPhase.VALIDATION, TrainingPhase.PREDICT, TrainingPhase.CHECKPOINT}
)
_LONG_BY_MODE: Final = {
    TrainingMode.VALIDATION: TrainingPhase.VALIDATION,
    TrainingMode.PREDICT: TrainingPhase.PREDICT,
}
_STEP_NUMBERS: Final = frozenset(PHASE_NUMBER[phase] for phase in STEP_PHASES)
_MODES: Final = tuple(TrainingMode)
_ENTER: Final = int(RingKind.ENTER)
_STEP: Final = int(RingKind.STEP)


class RunSilence(NamedTuple):
    """A stretch in which a run counts no step.

    Attributes:
        since_ns: Start, CLOCK_MONOTONIC: the last step, or the start of the first wait for
            input, or of the validation, prediction or checkpoint under way.
        silent_ns: Length, without time in which the process was stopped.
        is_first_batch: Whether the run waits for its first batch, and has counted no step yet.
        hanging_from_ns: Time from which it is too long; ``None``: it is not.
        sleeps_in: Kernel function in which the process sleeps; ``None``: unknown.
    """

    since_ns: int
    phase: TrainingPhase
    silent_ns: int
    is_first_batch: bool = False
    hanging_from_ns: int | None = None
    sleeps_in: str | None = None

    @property
    def is_hanging(self) -> bool:
        return self.hanging_from_ns is not None


class _Since(NamedTuple):
    """A time, and for how long in total the process had been stopped by then."""

    at_ns: int
    stopped_ns: int


class StepClock:
    """Follows the steps of one run.

    Attributes:
        silence: How long it has counted no step, as of the newest reading; ``None``: it has
            counted none yet, or training is over, or its phase has no limit.
    """

    def __init__(self, settings: HangSettings = DEFAULT_SETTINGS.hang) -> None:
        self.silence: RunSilence | None = None
        self._settings = settings
        self._phase = TrainingPhase.START_UP
        self._mode = TrainingMode.TRAIN
        self._stopped_ns = 0
        self._last_step: _Since | None = None  # or where its first step began
        self._longest_gap_ns = 0
        self._first_wait: _Since | None = None
        self._long_phase: TrainingPhase | None = None
        self._long_since = _Since(0, 0)
        self._longest_of: dict[TrainingPhase, int] = {}
        self._has_stepped = self._long_after_step = False
        self._is_in_loop: bool | None = None  # None: unknown
        self._read_at_ns: int | None = None

    @property
    def may_be_over(self) -> bool:
        """Whether silence can mean the end of training: the run does not mark its loop's end."""
        return self._is_in_loop is not True

    @property
    def is_untimed(self) -> bool:
        """Whether its phase needs no steps."""
        return self._long_phase is not None or self._phase in _UNTIMED

    def update(
        self,
        reading: RingReading,
        *,
        median_ns: int | None,
        first_wait_since_ns: int | None,
        stopped_ns: int,
        is_over: bool,
    ) -> None:
        """Update with a new reading.

        Args:
            reading: Reading of the run's ring.
            median_ns: Median step; ``None``: unknown.
            first_wait_since_ns: Start of the wait for the first batch; ``None``: there is none.
            stopped_ns: For how long the process could not run since the last reading.
            is_over: Whether training is over.
        """
        now_ns = reading.known_until_ns
        before_ns = now_ns if self._read_at_ns is None else self._read_at_ns
        self._read_at_ns = now_ns
        self._stopped_ns += stopped_ns
        had_stepped = self._has_stepped
        counted = self._follow(reading.events)
        self._has_stepped = had_stepped or counted
        if first_wait_since_ns is None:
            self._first_wait = None
        elif self._first_wait is None or self._first_wait.at_ns != first_wait_since_ns:
            self._first_wait = _Since(first_wait_since_ns, self._stopped_ns)
        self._follow_long_phase(before_ns, now_ns, counted=counted, had_stepped=had_stepped)
        is_over = (
            is_over
            or not reading.alive
            or (self._is_in_loop is False and self._phase is TrainingPhase.OTHER)
        )
        self.silence = None if is_over else self._silence_at(now_ns, reading.steps, median_ns)

    def _follow(self, events: RingRecords) -> bool:
        """Take new records; return whether a step was counted."""
        if not events:
            return False
        entered = events.kinds.rfind(_ENTER)
        if entered >= 0:
            mode = events.values[entered]
            self._phase = PHASES[events.phases[entered]]
            self._mode = _MODES[mode if mode < len(_MODES) else 0]
        marks = [
            events.values[at] for at in events.positions(RingKind.EVENT)
            if events.values[at] in (LOOP_BEGAN, LOOP_ENDED)
        ]  # fmt: skip
        if marks:
            self._is_in_loop = marks[-1] == LOOP_BEGAN
        if self._last_step is None:
            self._begin(events)
        first, last = events.kinds.find(_STEP), events.kinds.rfind(_STEP)
        if first < 0:
            return False
        stamps_ns = events.stamps_ns
        first_ns, last_ns = stamps_ns[first], stamps_ns[last]
        gaps_ns = [self._longest_gap_ns]
        if self._last_step is not None:
            gaps_ns.append(self._since(self._last_step, first_ns))
        if last_ns - first_ns >= _SCANNED_FROM_NS:
            steps = pairwise(events.positions(RingKind.STEP))
            gaps_ns += [stamps_ns[after] - stamps_ns[before] for before, after in steps]
        self._longest_gap_ns = max(gaps_ns)
        self._last_step = _Since(last_ns, self._stopped_ns)
        return True

    def _begin(self, events: RingRecords) -> None:
        """Count from the start of the first step, which shows how long a step can take."""
        for at in events.positions(RingKind.ENTER):
            if events.phases[at] in _STEP_NUMBERS:
                self._last_step = _Since(events.stamps_ns[at], self._stopped_ns)
                return

    def _follow_long_phase(
        self, before_ns: int, now_ns: int, *, counted: bool, had_stepped: bool
    ) -> None:
        """Follow validation, prediction and checkpoints, after which the step clock restarts."""
        present = _LONG_BY_MODE.get(self._mode, self._phase if self._phase in _LONG else None)
        former = self._long_phase
        if former is not None and (former is not present or counted):
            if self._long_after_step:  # sanity checks before the first step are short
                longest_ns = self._longest_of.get(former, 0)
                longest_ns = max(longest_ns, self._since(self._long_since, before_ns))
                self._longest_of[former] = longest_ns
            self._long_phase = None
        if present is not None and self._long_phase is None:
            self._long_phase, self._long_since = present, _Since(before_ns, self._stopped_ns)
            self._long_after_step = had_stepped
        is_untimed = present is not None or self._phase in _UNTIMED
        if is_untimed and self._last_step is not None:
            self._last_step = _Since(now_ns, self._stopped_ns)

    def _silence_at(self, now_ns: int, steps: int, median_ns: int | None) -> RunSilence | None:
        settings = self._settings
        if not steps:
            if self._first_wait is None:
                return None
            limit_ns = settings.first_batch_ns
            return self._limited(self._first_wait, now_ns, limit_ns)._replace(is_first_batch=True)
        if self._long_phase is not None:
            longest_ns = self._longest_of.get(self._long_phase)
            limit_ns = settings.long_phase_ns
            if longest_ns is not None:
                limit_ns = max(settings.min_ns, round(settings.longest_times * longest_ns))
            return self._limited(self._long_since, now_ns, limit_ns)
        if self._last_step is None or self._phase in _UNTIMED:
            return None
        limit_ns = max(
            settings.min_ns,
            settings.medians * (median_ns or 0),
            round(settings.longest_times * self._longest_gap_ns),
        )
        return self._limited(self._last_step, now_ns, limit_ns)

    def _limited(self, since: _Since, now_ns: int, limit_ns: int) -> RunSilence:
        silent_ns = self._since(since, now_ns)
        too_long_ns = silent_ns - limit_ns
        hanging_from_ns = now_ns - too_long_ns if too_long_ns > 0 else None
        since_ns = now_ns - silent_ns  # later if the process was stopped meanwhile
        return RunSilence(since_ns, self._phase, silent_ns, hanging_from_ns=hanging_from_ns)

    def _since(self, since: _Since, until_ns: int) -> int:
        return max(0, until_ns - since.at_ns - (self._stopped_ns - since.stopped_ns))
