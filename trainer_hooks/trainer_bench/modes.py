"""The modes of the benchmark: runs, balance, find-batch, scaling and prefetch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpumon.errors import GpumonError, UsageError
from trainer_hooks.trainer_bench.measuring import (
    DEFAULT_GPU,
    Engine,
    Feed,
    GpuOutOfMemoryError,
    Measured,
    runs_of,
    speed_of,
    why_above_alone,
)
from trainer_hooks.trainer_bench.plot import Plot, Series
from trainer_hooks.trainer_bench.searches import LARGEST, RatioSearch, find_batch

RUNS_OF_THE_AUTHOR = 8
"""Runs by hand in the article: 64, 256, 1024; 512 on the other; 512+512, 512+355, 1024+710,
820+568."""

BATCH_OF_EACH = 512
"""Samples per GPU, on average, for ``--balance`` without ``--batches``."""

UNEQUAL = 0.05
"""The relative difference in speed from which on GPUs are reported as unequal."""

MOST_ON_CPU = 4096
"""The largest batch to try on a CPU: its memory is the machine's, and must not be filled."""

LARGE_BATCH: Final = 512

_SPEED = "samples per second"

Json = dict[str, Any]


@dataclass(slots=True)
class Session:
    """The engine and options of a mode, and its output.

    Attributes:
        gpus: Named by the user; empty for the default GPU.
        seconds: Of each run.
        is_quiet: Print nothing, because JSON is wanted.
        notices: Remarks on the figures; also in JSON.
    """

    engine: Engine
    gpus: tuple[str, ...]
    batches: tuple[int, ...]
    seconds: float
    is_quiet: bool = False
    notices: list[str] = field(default_factory=list)

    def print(self, line: str) -> None:
        if not self.is_quiet:
            print(line, flush=True)

    def measure(
        self, gpus: Sequence[str], batches: Sequence[int], feed: Feed | None = None
    ) -> Measured:
        """One run.

        Raises:
            GpuOutOfMemoryError: A GPU does not hold its part.
        """
        (measured,) = runs_of(self.engine, gpus, batches, runs=1, seconds=self.seconds, feed=feed)
        return measured

    def measure_aloud(self, gpus: Sequence[str], batches: Sequence[int]) -> Measured:
        """Like ``measure``, and print the result."""
        try:
            measured = self.measure(gpus, batches)
        except GpuOutOfMemoryError:
            self.print(f"{_split(gpus, batches)}: out of memory")
            raise
        self.print(f"{_split(gpus, batches)}: {measured.samples_per_second:.0f}sps")
        return measured

    def notice(self, sentence: str | None) -> None:
        if sentence is not None:
            self.notices.append(sentence)
            self.print(f"\nNotice: {sentence}")

    def notice_of(self, batch: int) -> None:
        if batch > LARGE_BATCH:
            self.notice(
                f"a global batch above {LARGE_BATCH} ({batch} here) may generalise worse: scale "
                "the learning rate with the batch and warm it up (docs/multi-gpu.md)"
            )


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a mode: fields for JSON, and a plot."""

    fields: Json
    plot: Plot


def fields_of(measured: Measured) -> Json:
    """A run for JSON; rates in samples per second, times in seconds."""
    return {
        "gpus": [
            {"gpu": gpu, "batch": batch, "samples_per_second": round(speed, 2)}
            for gpu, batch, speed in measured.by_gpu()
        ],
        "global_batch": measured.global_batch,
        "samples": measured.samples,
        "seconds": round(measured.seconds, 6),
        "steps": measured.steps,
        "samples_per_second": round(measured.samples_per_second, 2),
        "busy_seconds": measured.busy_seconds
        and [round(seconds, 6) for seconds in measured.busy_seconds],
    }


def training_runs(session: Session, runs: int) -> Outcome:
    """Train in a number of runs and print the speed so far after each."""
    session.print(
        f"\nEach of the {runs} training runs should take about {session.seconds:g} seconds..."
    )
    totals = []
    for measured in runs_of(
        session.engine, session.gpus, session.batches, runs=runs, seconds=session.seconds
    ):
        totals.append(measured)
        _print_run(session, measured)
    session.notice_of(sum(session.batches))
    series = [
        Series(f"{name} [{batch}]", tuple((m.seconds, m.by_gpu()[at][2]) for m in totals))
        for at, (name, batch, _) in enumerate(totals[0].by_gpu())
    ]
    if len(series) > 1:
        series.append(Series("Total", tuple((m.seconds, m.samples_per_second) for m in totals)))
    plot = Plot(
        "Training speed", f"global batch {sum(session.batches)}, mean since the warm-up",
        "seconds trained", _SPEED, tuple(series),
    )  # fmt: skip
    return Outcome({"mode": "runs", "runs": [fields_of(measured) for measured in totals]}, plot)


def _print_run(session: Session, measured: Measured) -> None:
    after = f"After {measured.samples} samples"
    if len(measured.batches) == 1:
        name = measured.gpus[0] if measured.gpus else f"{DEFAULT_GPU}:"
        session.print(f"{after} {name} {measured.samples_per_second:.0f}sps")
        return
    session.print(after)
    for name, batch, speed in measured.by_gpu():
        session.print(f"{name}[{batch}] {speed:.0f}sps")
    session.print(f"Total:[{measured.global_batch}] {measured.samples_per_second:.0f}sps")


def best_ratio(session: Session) -> Outcome:
    """Find the ratio with which the GPUs finish together."""
    gpus = session.gpus or session.engine.gpus()
    if len(gpus) < 2:
        raise UsageError("--balance needs at least two GPUs: name them with --gpus")
    batch = sum(session.batches) or BATCH_OF_EACH * len(gpus)
    if batch < len(gpus):
        raise UsageError(f"--batches {batch} is too small: each of {len(gpus)} GPUs needs a sample")
    most_runs = max(RUNS_OF_THE_AUTHOR - 1, 2 * len(gpus) + 2)

    session.print(f"\nEach GPU alone at two batch sizes, then all of them at {batch}")
    found = RatioSearch(session.measure_aloud, gpus, batch).search(most_runs=most_runs)
    best = found.best
    alone = ", ".join(_split(best.gpus, best.batches) for best in found.best_alone)
    session.print(
        f"\nBest: {_split(best.gpus, best.batches)} {best.samples_per_second:.0f}sps, "
        f"{best.samples_per_second / found.peaks:.1%} of the sum of each alone "
        f"({alone}), after {found.runs} runs"
    )
    session.print(f"ratios={list(found.ratios)}")
    session.notice(why_above_alone(best, found.best_alone))
    session.notice_of(batch)
    return Outcome(_ratio_fields(found), _ratio_plot(found))


def _split(gpus: Sequence[str], batches: Sequence[int]) -> str:
    return " ".join(f"{gpu}[{n}]" for gpu, n in zip(gpus, batches, strict=True))


def _ratio_fields(found: RatioSearch) -> Json:
    return {
        "mode": "balance",
        "ratios": list(found.ratios),
        "batches": list(found.best.batches),
        "samples_per_second": round(found.best.samples_per_second, 2),
        "part_of_solo_speeds": round(found.best.samples_per_second / found.peaks, 4),
        "run_count": found.runs,
        "alone": [fields_of(measured) for measured in found.alone],
        "together": [fields_of(measured) for measured in found.together],
    }


def _points_of(found: RatioSearch, gpu: str, at: int) -> set[tuple[float, float]]:
    """Speeds of one GPU by batch: alone, and with others where its busy time is known."""
    alone = {(float(m.global_batch), m.samples_per_second) for m in found.alone if m.gpus == (gpu,)}
    return alone | {
        (float(m.batches[at]), m.batches[at] * m.steps / m.busy_seconds[at])
        for m in found.together
        if m.busy_seconds is not None
    }


def _ratio_plot(found: RatioSearch) -> Plot:
    gpus = found.best.gpus
    series = [Series(gpu, tuple(sorted(_points_of(found, gpu, at)))) for at, gpu in enumerate(gpus)]
    best = found.best
    together = ((float(best.global_batch), best.samples_per_second),)
    series.append(Series(f"all in ratios {list(found.ratios)}", together, is_line=False))
    return Plot(
        "The best ratio", f"{_split(gpus, best.batches)}: {best.samples_per_second:.0f} {_SPEED}",
        "samples in a batch", _SPEED, tuple(series),
    )  # fmt: skip


def prefetching(session: Session, batch_ms: float) -> Outcome:
    """The gap between batches that are made on demand, and ahead."""
    session.print(f"\nA batch takes {batch_ms:g} ms to make")
    rows: list[Json] = []
    series = []
    for name, is_ahead in (("on demand", False), ("prefetched", True)):
        feed = Feed(batch_ms / 1e3, is_ahead)
        measured = session.measure(session.gpus, session.batches, feed)
        gap_ms = 1e3 * measured.gap_seconds / measured.steps
        step_ms = 1e3 * measured.step_seconds
        session.print(
            f"{name + ':':<11} gap between batches {gap_ms:.1f} ms of {step_ms:.1f} ms per step, "
            f"{measured.samples_per_second:.0f}sps"
        )
        rows.append({**fields_of(measured), "is_ahead": is_ahead, "gap_ms": round(gap_ms, 3)})
        series.append(Series(name, ((step_ms, gap_ms),), is_line=False))
    session.notice_of(sum(session.batches))
    plot = Plot(
        "The gap between batches", f"a batch takes {batch_ms:g} ms to make",
        "milliseconds per step", "milliseconds between batches", tuple(series),
    )  # fmt: skip
    return Outcome({"mode": "prefetch", "batch_ms": batch_ms, "runs": rows}, plot)


def largest_batches(session: Session, margin: float) -> Outcome:
    """The largest batch that fits on each GPU alone."""
    gpus = session.gpus or session.engine.gpus()[:1]
    first = session.batches[0] if session.batches else 64
    rows: list[Json] = []
    series = []
    for gpu in gpus:

        def trained(batch: int, gpu: str = gpu) -> float | None:
            try:
                return session.measure_aloud([gpu], [batch]).samples_per_second
            except GpuOutOfMemoryError:
                return None

        session.print(f"\nThe largest batch that fits on {gpu}")
        most = MOST_ON_CPU if gpu.startswith("CPU") else LARGEST
        found = find_batch(trained, first=first, margin=margin, most=most)
        if found is None:
            raise GpumonError(f"not even one sample fits on {gpu}: is its memory in use?")
        end = ", the most that is tried" if found.fits == most else ""
        session.print(
            f"{gpu}: {found.fits} fit{end}; {found.advised} with a margin of {margin:.0%}"
        )
        tries = [
            {"batch": batch, "samples_per_second": speed and round(speed, 2)}
            for batch, speed in found.tries
        ]
        rows.append({"gpu": gpu, "fits": found.fits, "advised": found.advised, "tries": tries})
        points = {(float(batch), speed) for batch, speed in found.tries if speed}
        series.append(Series(gpu, tuple(sorted(points))))
    session.notice_of(max(row["advised"] for row in rows))
    session.print(f"\n--batches {' '.join(str(row['advised']) for row in rows)}")
    plot = Plot(
        "Speed by batch size, up to the memory limit", f"margin {margin:.0%}",
        "samples in a batch", _SPEED, tuple(series),
    )  # fmt: skip
    return Outcome({"mode": "find_batch", "gpus": rows}, plot)


def scaling(session: Session, counts: tuple[int, ...]) -> Outcome:
    """Each GPU alone, then growing numbers of them together, each with the same batch."""
    gpus = session.gpus or session.engine.gpus()
    if max(counts) > len(gpus):
        more = "; --simulate fast,fast,slow,slow has four" if session.engine.is_simulated else ""
        raise UsageError(f"--scaling needs {max(counts)} GPUs, and there are {len(gpus)}{more}")
    (batch,) = session.batches

    session.print("\nEach GPU alone; efficiency is relative to their sum")
    alone: list[Measured] = []
    for gpu in gpus[: max(counts)]:
        alone.append(session.measure([gpu], [batch]))
        session.print(f"{gpu}[{batch}]: {alone[-1].samples_per_second:.0f}sps")
    session.print(
        f"\n{'GPUs':>4} {'batch':>7} {'samples/s':>10} {'speed-up':>9} {'efficiency':>11}"
    )
    rows: list[Json] = []
    why: str | None = None
    for count in counts:
        measured = alone[0] if count == 1 else session.measure(gpus[:count], [batch] * count)
        speed, possible = measured.samples_per_second, speed_of(alone[:count])
        gain = speed / (rows[0]["samples_per_second"] if rows else speed)
        rows.append(
            {"gpu_count": count, "global_batch": batch * count, "samples_per_second": speed,
             "speed_up": gain, "efficiency": speed / possible}
        )  # fmt: skip
        session.print(
            f"{count:>4} {batch * count:>7} {speed:>10.0f} {gain:>8.2f}x {speed / possible:>11.1%}"
        )
        if above := why_above_alone(measured, alone[:count]):
            why = f"{count} GPUs are {above}"
    session.notice(why)
    session.notice(_unequal(alone))
    session.notice_of(batch * max(counts))
    plot = Plot(
        "Scaling", f"{batch} samples on each GPU", "GPUs", _SPEED,
        (
            Series("measured", tuple((r["gpu_count"], r["samples_per_second"]) for r in rows)),
            Series(
                "sum of each alone", tuple((float(n), speed_of(alone[:n])) for n in counts),
                is_faint=True,
            ),
        ),
    )  # fmt: skip
    fields = {"mode": "scaling", "rows": rows, "alone": [fields_of(each) for each in alone]}
    return Outcome(fields, plot)


def _unequal(alone: Sequence[Measured]) -> str | None:
    by_speed = sorted(alone, key=lambda measured: measured.samples_per_second)
    slowest, fastest = by_speed[0], by_speed[-1]
    if slowest.samples_per_second >= (1 - UNEQUAL) * fastest.samples_per_second:
        return None
    return (
        f"the GPUs are unequal, {fastest.samples_per_second:.0f} samples per second on "
        f"{fastest.gpus[0]} and {slowest.samples_per_second:.0f} on {slowest.gpus[0]}: with equal "
        "parts the faster one waits; --balance finds a better ratio"
    )
