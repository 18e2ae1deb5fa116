"""Whether the GPU is starved now: a share of recent in-use time, with hysteresis."""

from __future__ import annotations

from collections import deque

from gpumon.core.settings.detector import DetectorSettings
from gpumon.core.settings.rule import RuleKind, rule

_MARKS = 60


class StarvedFlag:
    """The share of starved time in the last 60 s of in-use time.

    Time out of use neither raises nor clears it: after a night without work, a run's flag is what
    it was in the evening.
    """

    def __init__(self, settings: DetectorSettings) -> None:
        self._settings = settings
        self._marks: deque[tuple[int, int]] = deque([(0, 0)])
        self._spacing_ns = settings.flag_window_ns // _MARKS
        self._due_ns = self._spacing_ns
        self._starved_ns = 0
        self.raised = False
        self.episodes = 0

    def update(self, in_use_ns: int, starved_ns: int) -> None:
        """Update with the cumulative in-use time and starved + suspected time."""
        if in_use_ns < self._due_ns and starved_ns == self._starved_ns:
            return
        self._starved_ns = starved_ns
        marks = self._marks
        if in_use_ns >= self._due_ns:
            self._due_ns = in_use_ns + self._spacing_ns
            marks.append((in_use_ns, starved_ns))
        while len(marks) > 1 and in_use_ns - marks[1][0] >= self._settings.flag_window_ns:
            marks.popleft()
        span_ns = in_use_ns - marks[0][0]
        if span_ns < self._settings.min_in_use_ns:
            return
        share = (starved_ns - marks[0][1]) / span_ns
        was_raised, self.raised = self.raised, is_starved_now(share, self.raised, self._settings)
        if self.raised and not was_raised:
            self.episodes += 1


@rule(
    "starved_now",
    RuleKind.FINDING,
    says="the GPU is starved at present (gpumon_gpu_starved is 1)",
    evidence="Starved and suspected time of the last minute in use.",
    thresholds=("flag_on_share", "flag_off_share"),
    measured_with=("flag_window_ns", "min_in_use_ns"),
)
def is_starved_now(share: float, was: bool, settings: DetectorSettings) -> bool:
    """Whether a GPU is starved, by the share, 0 to 1, of its latest in-use time lost to input.

    The share at which it ends is lower than the one at which it begins.
    """
    return share >= (settings.flag_off_share if was else settings.flag_on_share)
