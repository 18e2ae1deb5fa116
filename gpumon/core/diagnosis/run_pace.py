"""How fast each run of a report went, and the same run in another report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.core.report.report import Report, RunReport

_SAME_STEP: Final = 1.01
"""Steps are of one size as long as the samples of each differ by no more: the last one of an epoch
may be smaller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPace:
    """How fast the runs of one label in a report went, one after the other.

    Attributes:
        wall_ns: From the start of each to its end, start-up and pauses with it.
        samples: Samples trained on; ``None``: not all of them report it.
        step_ns: Median time of a step within an epoch, of the last one; ``None``: unknown.
    """

    run: str
    steps: int
    samples: int | None = None
    wall_ns: int
    step_ns: int | None = None

    @property
    def step_wall_ns(self) -> float | None:
        """Wall time a step, start-up and pauses with it; ``None`` where no step was counted."""
        return self.wall_ns / self.steps if self.steps > 0 and self.wall_ns > 0 else None

    @property
    def samples_per_step(self) -> float | None:
        """How large a step is; ``None`` where either was not counted."""
        return self.samples / self.steps if self.samples and self.steps > 0 else None

    @property
    def samples_per_second(self) -> float | None:
        """Samples a second of wall time; ``None`` where none were counted."""
        if not self.samples or self.wall_ns <= 0:
            return None
        return NS_PER_S * self.samples / self.wall_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPair:
    """One run in two reports."""

    before: RunPace
    after: RunPace

    @property
    def has_unlike_steps(self) -> bool:
        """Whether a step is more work in one of them: then samples are compared."""
        one, other = self.before.samples_per_step, self.after.samples_per_step
        if one is None or other is None:
            return False
        return max(one, other) > _SAME_STEP * min(one, other)

    @property
    def speedup(self) -> float | None:
        """How many times as fast it became, in wall time a step; in samples where steps differ.

        ``None`` where steps were not counted in both.
        """
        if self.has_unlike_steps:
            slow, fast = self.before.samples_per_second, self.after.samples_per_second
            return fast / slow if slow and fast else None
        long_ns, short_ns = self.before.step_wall_ns, self.after.step_wall_ns
        return long_ns / short_ns if long_ns and short_ns else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPairs:
    """The runs of two reports: those in both, and those in one alone."""

    both: tuple[RunPair, ...]
    only_before: tuple[RunPace, ...]
    only_after: tuple[RunPace, ...]

    @property
    def is_whole(self) -> bool:
        """Whether every run is in both."""
        return not (self.only_before or self.only_after)

    @property
    def speedup(self) -> float | None:
        """How many times as fast those in both became, each by the wall time it took before.

        ``None`` where steps were not counted in both.
        """
        gains = [(pair.before.wall_ns, pair.speedup) for pair in self.both]
        times_ns = [(wall_ns, wall_ns / gain) for wall_ns, gain in gains if gain]
        if not times_ns:
            return None
        return sum(long for long, _ in times_ns) / sum(short for _, short in times_ns)


def pairs_of(before: Report, after: Report) -> RunPairs:
    """Runs of one label are the same work; so is the only run of each, whatever it is called."""
    first = {pace.run: pace for pace in paces(before.observed_runs)}
    second = {pace.run: pace for pace in paces(after.observed_runs)}
    if len(first) == len(second) == 1:
        second = dict(zip(first, second.values(), strict=True))
    shared = [label for label in first if label in second]
    return RunPairs(
        both=tuple(RunPair(before=first[label], after=second[label]) for label in shared),
        only_before=tuple(pace for label, pace in first.items() if label not in second),
        only_after=tuple(pace for label, pace in second.items() if label not in first),
    )


def paces(runs: Iterable[RunReport]) -> tuple[RunPace, ...]:
    """The pace of each label. Two runs of one label never trained at the same time."""
    of_label: dict[str, list[RunReport]] = {}
    for run in runs:
        of_label.setdefault(run.run, []).append(run)
    return tuple(_pace(label, alike) for label, alike in of_label.items())


def _pace(label: str, runs: Sequence[RunReport]) -> RunPace:
    counted = [run.samples for run in runs if run.samples]
    medians = [run.step_ns for run in runs if run.step_ns]
    return RunPace(
        run=label,
        steps=sum(run.steps for run in runs),
        wall_ns=sum(run.wall_ns for run in runs),
        samples=sum(counted) if len(counted) == len(runs) else None,
        step_ns=medians[-1] if medians else None,
    )


def compute_speedup(before: Report, after: Report) -> float | None:
    """How much faster the compute of a step itself became: no advice on waiting did that.

    ``None`` where it is not known what of the busy time was whose.
    """
    pairs = pairs_of(before, after)
    if not pairs.is_whole:
        return None
    if any(pair.has_unlike_steps for pair in pairs.both):
        work = [(pair.before.samples or 0, pair.after.samples or 0) for pair in pairs.both]
    else:
        work = [(pair.before.steps, pair.after.steps) for pair in pairs.both]
    slow, fast = (sum(amounts) for amounts in zip(*work, strict=True)) if work else (0, 0)
    slow_ns, fast_ns = before.in_use_busy_ns, after.in_use_busy_ns
    if not (slow and fast and slow_ns and fast_ns):
        return None
    return (slow_ns / slow) / (fast_ns / fast)
