"""The page of one board in ``docs/measured``: tables of all that a capture found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gpumon.sources.nvml.probe.probed import ProbedGpu
from tests.tools.board_capture.results import (
    ActivityRow,
    Results,
    RingWatch,
    Spread,
    StallRow,
    WaveAccuracy,
    WindowFit,
)

NOT_MEASURED = "not measured"
_FITS_WITHIN = 0.1
"""A stretch that leaves samples farther from the truth than that explains nothing."""


def board_page(results: Results) -> str:
    """The page, as Markdown, of whatever has been measured so far."""
    blocks = [
        f"# Measured on {results.board}",
        _facts(results),
        *_section("Samples that the driver keeps", "rings", results, _rings(results.rings)),
        *_section("What one call costs", "costs", results, _costs(results.costs)),
        *_section("Which stretch a sample speaks for", "waves", results, _fits(results.waves)),
        *_section("Utilisation against the truth", "waves", results, _waves(results.waves)),
        *_section("GPM beside utilisation", "activity", results, _activity(results.activity)),
        *_section("Does reading slow a training down", "stalls", results, _stalls(results.stalls)),
        *_section("What works on this board", "fields", results, _fields(results.gpu)),
    ]
    if results.missing:
        blocks.append(f"## {NOT_MEASURED.capitalize()}")
        blocks.append("\n".join(f"- {part}: {why}" for part, why in results.missing.items()))
    return "\n\n".join(blocks) + "\n"


def _section(title: str, part: str, results: Results, table: str) -> Iterator[str]:
    yield f"## {title}"
    yield table or f"{NOT_MEASURED.capitalize()}: {_why(part, results)}."


def _why(part: str, results: Results) -> str:
    reasons = [why for name, why in results.missing.items() if name.startswith(part)]
    return reasons[0] if reasons else "not yet, or the capture was ended before"


def _facts(results: Results) -> str:
    driver, gpu = results.driver, results.gpu
    said = [
        f"- `{results.command}` on {results.date}, with {results.python}",
        f"- driver {driver.driver_version}, NVML {driver.nvml_version}, CUDA up to "
        f"{driver.cuda_version}; opening NVML took {driver.init_s * 1000:.3g} ms",
        f"- stamps of samples count: {driver.stamp_clock or NOT_MEASURED}",
        f"- GPM: {_yes(gpu.has_gpm)}; MIG: {_yes(gpu.mig_enabled)}; persistence mode: "
        f"{_yes(gpu.persistence_mode)}",
        f"- events: {', '.join(gpu.event_types) if gpu.event_types else 'none told'}",
        f"- load: {results.load or NOT_MEASURED}",
    ]
    if results.recording:
        said.append(f"- recording: `{results.recording}`")
    return "\n".join(said)


def _yes(value: bool | None) -> str:
    return "the board does not say" if value is None else "yes" if value else "no"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    if not lines:
        return ""
    return "\n".join([f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}", *lines])


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.4g}"


def _spread_ms(spread: Spread | None) -> str:
    if spread is None:
        return "-"
    return f"{_ms(spread.median)} ({_ms(spread.p05)} to {_ms(spread.p95)})"


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * ratio:.2f} %"


def _rings(rings: Sequence[RingWatch]) -> str:
    table = _table(
        ("samples", "load", "depth", "came", "apart, ms", "update, ms", "at once", "delay, ms",
         "values", "type", "clock"),
        (
            (
                ring.name, ring.load, str(ring.depth), str(ring.arrived),
                _spread_ms(ring.cadence_s), _spread_ms(ring.update_s),
                "-" if ring.batch is None else f"{ring.batch:g}", _spread_ms(ring.delay_s),
                "-" if ring.values is None else f"{ring.values.p05:g} to {ring.values.worst:g}",
                ring.value_type or "-", ring.clock or "-",
            )
            for ring in rings
        ),
    )  # fmt: skip
    if not table:
        return ""
    return (
        f"{table}\n\nMedian (5 % to 95 %). *apart*: from one stamp to the next; *update*: from one "
        "look that brought something to the next; *delay*: from a stamp to the first look that "
        "brought it."
    )


def _costs(costs: dict[str, ProbedGpu]) -> str:
    rows = [
        (
            call.function,
            load,
            f"{len(call.durations_us)}",
            *_microseconds(call.durations_us),
            call.value or call.answer or "-",
        )
        for load, gpu in costs.items()
        for field in gpu.fields
        for call in field.calls
        if call.durations_us
    ]
    rows += [
        (f"nvmlDeviceGetSamples({ring.name}), the whole ring", load, "1",
         f"{ring.call_us:.1f}", "-", "-", ring.answer or f"{ring.count} entries")
        for load, gpu in costs.items()
        for ring in gpu.rings
        if ring.call_us is not None
    ]  # fmt: skip
    heads = ("function", "load", "calls", "median, us", "95 %, us", "worst, us", "answer")
    return _table(heads, rows)


def _microseconds(durations_us: Sequence[float]) -> tuple[str, str, str]:
    spread = Spread.of(durations_us)
    if spread is None:
        return "-", "-", "-"
    return f"{spread.median:.1f}", f"{spread.p95:.1f}", f"{spread.worst:.1f}"


def _fits(waves: Sequence[WaveAccuracy]) -> str:
    return _table(
        ("wave", "truth", "window, ms", "ends before its stamp, ms", "mean error then", "samples"),
        (
            (_wave(one), one.truth, *_stretch(one.fit), _percent(one.fit.error_ratio),
             str(one.fit.samples))
            for one in waves
            if one.fit is not None
        ),
    )  # fmt: skip


def _stretch(fit: WindowFit) -> tuple[str, str]:
    if fit.error_ratio > _FITS_WITHIN:
        return "none fits", "-"
    return _ms(fit.window_s), _ms(fit.lag_s)


def _waves(waves: Sequence[WaveAccuracy]) -> str:
    return _table(
        ("wave", "truth", "a span, ms", "by device events, ms", "busy, truth", "busy, gpumon",
         "error of a sample", "pauses, truth", "pauses seen", "pause, truth, ms",
         "pause seen, ms"),
        (
            (_wave(one), one.truth, _ms(one.span_s), _ms(one.device_span_s),
             _percent(one.true_busy_ratio), _percent(one.seen_busy_ratio),
             _percent(one.error_ratio), str(one.true_pauses), str(one.seen_pauses),
             _ms(one.true_pause_s), _ms(one.seen_pause_s))
            for one in waves
        ),
    )  # fmt: skip


def _wave(one: WaveAccuracy) -> str:
    return f"{one.busy_s:g} s busy, {one.idle_s:g} s idle"


def _activity(rows: Sequence[ActivityRow]) -> str:
    return _table(
        ("load", "utilisation", "SM active", "occupancy", "tensor", "DRAM", "power, W",
         "limit, W"),
        (
            (row.load, _percent(row.utilisation_ratio), _percent(row.sm_active_ratio),
             _percent(row.sm_occupancy_ratio), _percent(row.tensor_active_ratio),
             _percent(row.memory_bandwidth_ratio), _number(row.power_watts),
             _number(row.power_limit_watts))
            for row in rows
        ),
    )  # fmt: skip


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _stalls(rows: Sequence[StallRow]) -> str:
    return _table(
        ("sampler", "turns", "steps/s", "of those without", "middle half", "step, ms", "99 %, ms",
         "worst, ms", "in NVML"),
        (
            (row.sampler, str(row.rounds), f"{row.steps_per_second:.1f}",
             _percent(row.of_bare_ratio), " to ".join(map(_percent, row.middle_half)),
             f"{row.median_ms:.3f}", f"{row.p99_ms:.3f}", f"{row.worst_ms:.3f}",
             _percent(row.nvml_seconds_per_second))
            for row in rows
        ),
    )  # fmt: skip


def _fields(gpu: ProbedGpu) -> str:
    return _table(
        ("field", "works", "what it says"),
        (
            (
                one.field.name,
                "yes" if one.works else "no",
                one.value or (one.trouble.meaning if one.trouble else "-"),
            )
            for one in gpu.fields
        ),
    )
