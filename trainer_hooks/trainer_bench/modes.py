"""What the bench can do: runs as the article has them, a ratio, a batch, a scaling table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpumon.errors import GpumonError, UsageError
from trainer_hooks.trainer_bench.batch_search import LARGEST, find_batch
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
from trainer_hooks.trainer_bench.ratio_search import RatioFound, RatioSearch

RUNS_OF_THE_AUTHOR = 8
"""By hand, in the article: 64, 256, 1024; 512 on the other; 512+512, 512+355, 1024+710, 820+568."""

BATCH_OF_EACH = 512
"""Samples of each GPU, on average, where ``--balance`` is given no batch."""

UNEQUAL = 0.05
"""Part of the faster's speed by which one GPU is slower than another, to be spoken of."""

MOST_ON_CPU = 4096
"""The memory of a CPU is the machine's, and others live there: no search is to fill it up."""

LARGE_BATCH: Final = 512

_SPEED = "samples a second"

Json = dict[str, Any]


@dataclass(slots=True)
class Session:
    """Everything a mode needs.

    Attributes:
        engine: Trains.
        gpus: Named by the user, or by the mode; none for the default GPU.
        batches: As the user wrote them.
        seconds: Of each run.
        is_quiet: Whether nothing is said to people, for JSON is asked for.
        notices: What a reader of the figures should know; also in JSON.
    """

    engine: Engine
    gpus: tuple[str, ...]
    batches: tuple[int, ...]
    seconds: float
    is_quiet: bool = False
    notices: list[str] = field(default_factory=list)

    def say(self, line: str) -> None:
        """Print a line for people."""
        if not self.is_quiet:
            print(line, flush=True)

    def measure(self, gpus: Sequence[str], batches: Sequence[int]) -> Measured:
        """One run.

        Raises:
            GpuOutOfMemoryError: A GPU does not hold its part.
        """
        (measured,) = runs_of(self.engine, gpus, batches, runs=1, seconds=self.seconds)
        return measured

    def notice(self, sentence: str | None) -> None:
        """Say it, if there is something."""
        if sentence is None:
            return
        self.notices.append(sentence)
        self.say(f"\nNotice: {sentence}")

    def notice_of(self, batch: int) -> None:
        """Say what a large global batch does to what is learnt."""
        if batch > LARGE_BATCH:
            self.notice(
                f"a global batch of {batch} is past {LARGE_BATCH}: faster, but it generalises "
                "worse unless the learning rate is scaled with the batch and warmed up "
                "(docs/multi-gpu.md)"
            )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a mode came to: fields for JSON, and a plot of it."""

    fields: Json
    plot: Plot


def fields_of(measured: Measured) -> Json:
    """A run for JSON; rates in samples a second, times in seconds."""
    each = zip(measured.gpus or (DEFAULT_GPU,), measured.batches, measured.of_each_gpu, strict=True)
    return {
        "gpus": [
            {"gpu": gpu, "batch": batch, "samples_per_second": round(speed, 2)}
            for gpu, batch, speed in each
        ],
        "global_batch": measured.global_batch,
        "samples": measured.samples,
        "seconds": round(measured.seconds, 6),
        "steps": measured.steps,
        "samples_per_second": round(measured.samples_a_second, 2),
        "busy_seconds": (
            None
            if measured.busy_seconds is None
            else [round(seconds, 6) for seconds in measured.busy_seconds]
        ),
    }


def training_runs(session: Session, runs: int) -> Outcome:
    """Train in some runs and print the speed so far after each."""
    session.say(
        f"\nEach of the {runs} training runs should take about {session.seconds:g} seconds..."
    )
    told = []
    for measured in runs_of(
        session.engine, session.gpus, session.batches, runs=runs, seconds=session.seconds
    ):
        told.append(measured)
        _say_run(session, measured)
    session.notice_of(sum(session.batches))
    names = session.gpus or (DEFAULT_GPU,)
    series = [
        Series(f"{name} [{batch}]", tuple((m.seconds, m.of_each_gpu[at]) for m in told))
        for at, (name, batch) in enumerate(zip(names, session.batches, strict=True))
    ]
    if len(names) > 1:
        series.append(Series("Total", tuple((m.seconds, m.samples_a_second) for m in told)))
    plot = Plot(
        "Training speed", f"global batch {sum(session.batches)}, mean since the warm-up",
        "seconds trained", _SPEED, tuple(series),
    )  # fmt: skip
    return Outcome({"mode": "runs", "runs": [fields_of(measured) for measured in told]}, plot)


def _say_run(session: Session, measured: Measured) -> None:
    after = f"After {measured.samples} samples"
    if len(measured.batches) == 1:
        name = measured.gpus[0] if measured.gpus else f"{DEFAULT_GPU}:"
        session.say(f"{after} {name} {measured.samples_a_second:.0f}sps")
        return
    session.say(after)
    for name, batch, speed in zip(
        measured.gpus, measured.batches, measured.of_each_gpu, strict=True
    ):
        session.say(f"{name}[{batch}] {speed:.0f}sps")
    session.say(f"Total:[{measured.global_batch}] {measured.samples_a_second:.0f}sps")


def best_ratio(session: Session) -> Outcome:
    """Find the ratio under which the GPUs are done together, and say what it gives."""
    gpus = session.gpus or session.engine.gpus()
    if len(gpus) < 2:
        raise UsageError("--balance needs two GPUs or more: name them with --gpus")
    batch = sum(session.batches) or BATCH_OF_EACH * len(gpus)
    if batch < len(gpus):
        raise UsageError(f"--batches {batch} leaves a GPU without a sample: there are {len(gpus)}")
    most_runs = max(RUNS_OF_THE_AUTHOR - 1, 2 * len(gpus) + 2)

    def trained(names: Sequence[str], batches: Sequence[int]) -> Measured:
        try:
            measured = session.measure(names, batches)
        except GpuOutOfMemoryError:
            session.say(f"{_split(names, batches)}: out of memory")
            raise
        session.say(f"{_split(names, batches)}: {measured.samples_a_second:.0f}sps")
        return measured

    search = RatioSearch(trained, gpus, batch)
    session.say(f"\nEach GPU alone at two batches, then all of them at {batch}")
    found = search.search(most_runs=most_runs)
    best = found.best
    alone = ", ".join(_split(one.gpus, one.batches) for one in found.best_alone)
    session.say(
        f"\nBest: {_split(best.gpus, best.batches)} {best.samples_a_second:.0f}sps, "
        f"{best.samples_a_second / found.peaks:.1%} of what they did alone "
        f"({alone}), after {found.runs} runs"
    )
    session.say(f"ratios={list(found.ratios)}")
    session.notice(why_above_alone(best, found.best_alone))
    session.notice_of(batch)
    return Outcome(_ratio_fields(found), _ratio_plot(found))


def _split(gpus: Sequence[str], batches: Sequence[int]) -> str:
    return " ".join(f"{gpu}[{n}]" for gpu, n in zip(gpus, batches, strict=True))


def _ratio_fields(found: RatioFound) -> Json:
    return {
        "mode": "balance",
        "ratios": list(found.ratios),
        "batches": list(found.best.batches),
        "samples_per_second": round(found.best.samples_a_second, 2),
        "part_of_solo_speeds": round(found.best.samples_a_second / found.peaks, 4),
        "run_count": found.runs,
        "alone": [fields_of(measured) for measured in found.alone],
        "together": [fields_of(measured) for measured in found.together],
    }


def _points_of(found: RatioFound, gpu: str, at: int) -> set[tuple[float, float]]:
    """Speeds of one GPU against its batch: alone, and among others where its work is told."""
    alone = {(float(m.global_batch), m.samples_a_second) for m in found.alone if m.gpus == (gpu,)}
    return alone | {
        (float(m.batches[at]), m.batches[at] * m.steps / m.busy_seconds[at])
        for m in found.together
        if m.busy_seconds is not None
    }


def _ratio_plot(found: RatioFound) -> Plot:
    gpus = found.best.gpus
    series = [Series(gpu, tuple(sorted(_points_of(found, gpu, at)))) for at, gpu in enumerate(gpus)]
    best = found.best
    together = ((float(best.global_batch), best.samples_a_second),)
    series.append(Series(f"all in ratios {list(found.ratios)}", together, is_line=False))
    return Plot(
        "The best ratio", f"{_split(gpus, best.batches)}: {best.samples_a_second:.0f} {_SPEED}",
        "samples in a batch", _SPEED, tuple(series),
    )  # fmt: skip


def prefetching(session: Session, batch_ms: float) -> Outcome:
    """The gap between two batches that are made on demand, and made ahead.

    Args:
        session: With a batch for each GPU.
        batch_ms: How long it takes to make one batch of all, in milliseconds.
    """
    session.say(f"\nA batch takes {batch_ms:g} ms to make")
    rows: list[Json] = []
    series = []
    for name, is_ahead in (("on demand", False), ("prefetched", True)):
        feed = Feed(batch_ms / 1e3, is_ahead)
        (measured,) = runs_of(
            session.engine,
            session.gpus,
            session.batches,
            runs=1,
            seconds=session.seconds,
            feed=feed,
        )
        gap_ms = 1e3 * measured.gap_seconds / measured.steps
        step_ms = 1e3 * measured.step_seconds
        session.say(
            f"{name + ':':<11} gap between batches {gap_ms:.1f} ms of {step_ms:.1f} ms a step, "
            f"{measured.samples_a_second:.0f}sps"
        )
        rows.append({**fields_of(measured), "is_ahead": is_ahead, "gap_ms": round(gap_ms, 3)})
        series.append(Series(name, ((step_ms, gap_ms),), is_line=False))
    session.notice_of(sum(session.batches))
    plot = Plot(
        "The gap between batches", f"a batch takes {batch_ms:g} ms to make",
        "milliseconds a step", "milliseconds between batches", tuple(series),
    )  # fmt: skip
    return Outcome({"mode": "prefetch", "batch_ms": batch_ms, "runs": rows}, plot)


def largest_batches(session: Session, margin: float) -> Outcome:
    """The largest batch that each GPU holds, alone."""
    gpus = session.gpus or session.engine.gpus()[:1]
    first = session.batches[0] if session.batches else 64
    rows: list[Json] = []
    series = []
    for gpu in gpus:

        def trained(batch: int, gpu: str = gpu) -> float | None:
            try:
                speed = session.measure([gpu], [batch]).samples_a_second
            except GpuOutOfMemoryError:
                session.say(f"{gpu}[{batch}]: out of memory")
                return None
            session.say(f"{gpu}[{batch}]: {speed:.0f}sps")
            return speed

        session.say(f"\nThe largest batch that {gpu} holds")
        most = MOST_ON_CPU if gpu.startswith("CPU") else LARGEST
        found = find_batch(trained, first=first, margin=margin, most=most)
        if found is None:
            raise GpumonError(f"{gpu} does not hold a single sample: is its memory in use?")
        end = ", where the search ends" if found.fits == most else ""
        session.say(f"{gpu}: {found.fits} fit{end}; {found.advised} with a margin of {margin:.0%}")
        rows.append(
            {"gpu": gpu, "fits": found.fits, "advised": found.advised,
             "tries": [{"batch": one.batch, "samples_per_second": _rounded(one.samples_a_second)}
                       for one in found.tries]}
        )  # fmt: skip
        points = {(float(t.batch), t.samples_a_second) for t in found.tries if t.samples_a_second}
        series.append(Series(gpu, tuple(sorted(points))))
    session.notice_of(max(row["advised"] for row in rows))
    session.say(f"\n--batches {' '.join(str(row['advised']) for row in rows)}")
    plot = Plot(
        "Speed against batch, as far as memory goes", f"margin {margin:.0%}",
        "samples in a batch", _SPEED, tuple(series),
    )  # fmt: skip
    return Outcome({"mode": "find_batch", "gpus": rows}, plot)


def _rounded(speed: float | None) -> float | None:
    return None if speed is None else round(speed, 2)


def scaling(session: Session, counts: tuple[int, ...]) -> Outcome:
    """Each GPU alone, then more and more together, each with the same batch."""
    gpus = session.gpus or session.engine.gpus()
    if max(counts) > len(gpus):
        more = "; --simulate fast,fast,slow,slow has four" if session.engine.is_simulated else ""
        asked = f"--scaling asks for {max(counts)} GPUs"
        raise UsageError(f"{asked}, and there are {len(gpus)}{more}")
    (batch,) = session.batches

    def trained(names: Sequence[str]) -> Measured:
        return session.measure(names, (batch,) * len(names))

    session.say("\nEach GPU alone; efficiency is of the sum of these")
    alone: list[Measured] = []
    for gpu in gpus[: max(counts)]:
        alone.append(trained([gpu]))
        session.say(f"{gpu}[{batch}]: {alone[-1].samples_a_second:.0f}sps")
    session.say(f"\n{'GPUs':>4} {'batch':>7} {'samples/s':>10} {'speed-up':>9} {'efficiency':>11}")
    rows: list[Json] = []
    why: str | None = None
    for count in counts:
        measured = alone[0] if count == 1 else trained(gpus[:count])
        speed, possible = measured.samples_a_second, speed_of(alone[:count])
        gain = speed / (rows[0]["samples_per_second"] if rows else speed)
        rows.append(
            {"gpu_count": count, "global_batch": batch * count, "samples_per_second": speed,
             "speed_up": gain, "efficiency": speed / possible}
        )  # fmt: skip
        session.say(
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
    told = {"mode": "scaling", "rows": rows, "alone": [fields_of(each) for each in alone]}
    return Outcome(told, plot)


def _unequal(alone: Sequence[Measured]) -> str | None:
    by_speed = sorted(alone, key=lambda measured: measured.samples_a_second)
    slowest, fastest = by_speed[0], by_speed[-1]
    if slowest.samples_a_second >= (1 - UNEQUAL) * fastest.samples_a_second:
        return None
    return (
        f"the GPUs are unequal, {fastest.samples_a_second:.0f} samples a second on "
        f"{fastest.gpus[0]} and {slowest.samples_a_second:.0f} on {slowest.gpus[0]}: with as many "
        "samples each the faster one waits; --balance finds the ratio that levels them"
    )
