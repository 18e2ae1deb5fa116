"""How two reports differ, and how much faster their runs became."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from gpumon.core.clock import NS_PER_S
from gpumon.core.report.report import Report, RunReport, diagnosed
from gpumon.core.verdict import VerdictName
from gpumon.core.wording import counted, in_time, label_text, listed

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


_FINER: Final = 2
"""Periods that differ by more show pauses of different lengths."""
_LONGER: Final = 3
"""Times in use that differ by more are not of the same work, unless steps show that they are."""
_SAME_WORK: Final = 1.05
_TIMES: Final = "\N{MULTIPLICATION SIGN}"


class Unlikeness(NamedTuple):
    """One difference between two reports.

    Attributes:
        of_work: Whether other hardware did the work: then speeds compare hardware, not a change.
        of_length: Whether seconds cannot be compared, because one report is of much more work.
    """

    text: str
    of_work: bool = False
    of_length: bool = False


def unlike(before: Report, after: Report) -> tuple[Unlikeness, ...]:
    """What a reader must know before the figures, the gravest first; empty: no difference."""
    of_work = [*_machines(before, after)] or [*_gpus_in_use(before, after)]
    pairs = pairs_of(before, after)
    return (
        *of_work,
        *_kinds(before, after),
        *_periods(before, after),
        *_lengths(before, after, pairs),
        *_steps(pairs),
    )


def speedup(before: Report, after: Report) -> float | None:
    """How many times as fast the work became.

    ``None`` where steps were not counted in both, or other hardware did the work.
    """
    if any(one.of_work for one in unlike(before, after)):
        return None
    return pairs_of(before, after).speedup


def _machines(before: Report, after: Report) -> Iterator[Unlikeness]:
    are_both_simulated = before.simulated and after.simulated
    if before.simulated == after.simulated and _are_of_one_kind(before, after):
        return
    what = "simulations" if are_both_simulated else "machines"
    one, other = (_machine(report, is_marked=not are_both_simulated) for report in (before, after))
    yield Unlikeness(
        f"These are different {what}: {one} and {other}. Compare shares of the time: seconds and "
        f"speed differ with the {what}.",
        of_work=True,
    )


def _are_of_one_kind(before: Report, after: Report) -> bool:
    boards = [diagnosed(report.gpus) for report in (before, after)]
    if len(boards[0]) != len(boards[1]):
        return False
    names = [[gpu.name for gpu in gpus] for gpus in boards]
    # A log without the names of its GPUs may be of any.
    return any(None in known for known in names) or Counter(names[0]) == Counter(names[1])


def _machine(report: Report, *, is_marked: bool) -> str:
    """Its GPUs by model; ``is_marked``: with the mark of a simulation."""
    models = Counter(gpu.name for gpu in diagnosed(report.gpus))
    parts = [
        f"{count} {_TIMES} {label_text(name, 40)}" if name else counted(count, "GPU", "GPUs")
        for name, count in models.items()
    ]
    machine = listed(parts) or "no GPU"
    return f"{machine} (simulated)" if report.simulated and is_marked else machine


def _gpus_in_use(before: Report, after: Report) -> Iterator[Unlikeness]:
    counts = [
        sum(gpu.verdict.name is not VerdictName.NOT_IN_USE for gpu in diagnosed(report.gpus))
        for report in (before, after)
    ]
    if counts[0] == counts[1]:
        return
    first, second = (counted(count, "GPU", "GPUs") for count in counts)
    text = (
        f"{first} worked in the first, {second} in the second. Compare shares of the time, "
        "not seconds."
    )
    if not all(counts):
        which = "first" if not counts[0] else "second"
        text = f"No GPU was in use in the {which}: the gain is unknown."
    yield Unlikeness(text, of_work=True)


def _kinds(before: Report, after: Report) -> Iterator[Unlikeness]:
    kinds = [_kind(report) for report in (before, after)]
    if kinds[0] == kinds[1]:
        return
    difference = f"The first is of {kinds[0]}, the second of {kinds[1]}"
    if "a log" in kinds:
        yield Unlikeness(f"{difference}: in a log, the shape of pauses is all that shows a cause.")
    else:
        yield Unlikeness(f"{difference}; both are counted alike.")


def _kind(report: Report) -> str:
    if report.sampling is not None:
        return "a log"
    return "a recording" if report.replayed else "a running daemon"


def _periods(before: Report, after: Report) -> Iterator[Unlikeness]:
    periods_ns = before.period_ns, after.period_ns
    if min(periods_ns) <= 0 or max(periods_ns) < _FINER * min(periods_ns):
        return
    first, second = (in_time(period_ns) for period_ns in periods_ns)
    yield Unlikeness(
        f"The first has a sample every {first}, the second every {second}: the coarser one "
        "misses short pauses."
    )


def _lengths(before: Report, after: Report, pairs: RunPairs) -> Iterator[Unlikeness]:
    lengths_ns = [report.in_use_ns for report in (before, after)]
    if not min(lengths_ns) or max(lengths_ns) < _LONGER * min(lengths_ns) or _is_same_work(pairs):
        return
    first, second = map(in_time, lengths_ns)
    yield Unlikeness(
        f"The first was in use for {first}, the second for {second}: compare shares of the "
        "time, not seconds.",
        of_length=True,
    )


def _is_same_work(pairs: RunPairs) -> bool:
    """Whether the same runs did as much in both: then the length is what they gained."""
    steps = [
        sum(pair.before.steps for pair in pairs.both),
        sum(pair.after.steps for pair in pairs.both),
    ]
    return pairs.is_whole and min(steps) > 0 and max(steps) <= _SAME_WORK * min(steps)


def _steps(pairs: RunPairs) -> Iterator[Unlikeness]:
    found = [pair for pair in pairs.both if pair.has_unlike_steps]
    if not found:
        return
    first, second = (
        f"{pace.samples_per_step or 0.0:,.1f}".removesuffix(".0")
        for pace in (found[0].before, found[0].after)
    )
    more = f", and so for {len(found) - 1} more" if len(found) > 1 else ""
    yield Unlikeness(
        f"A step of {label_text(found[0].after.run)} is {first} samples in the first, {second} in "
        f"the second{more}: compare samples a second, not steps."
    )
