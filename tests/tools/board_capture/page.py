"""The page of one board in ``docs/measured``: tables of all that a capture found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import Field, fields
from typing import Any

from gpumon.sources.nvml.probe.probed import ProbedGpu
from tests.tools.board_capture.results import Results, Spread, WaveAccuracy, ms, percent

NOT_MEASURED = "not measured"
_FITS_WITHIN = 0.1
"""A stretch that leaves samples farther from the truth than that explains nothing."""
_OF_RINGS = """

Median (5 % to 95 %). *apart*: from one stamp to the next; *update*: from one look that brought \
something to the next; *delay*: from a stamp to the first look that brought it."""


def board_page(results: Results) -> str:
    """The page, as Markdown, of whatever has been measured so far."""
    rings = _rows(results.rings)
    sections = [
        ("Samples that the driver keeps", "rings", rings and rings + _OF_RINGS),
        ("What one call costs", "costs", _costs(results.costs)),
        ("Which stretch a sample speaks for", "waves", _fits(results.waves)),
        ("Utilisation against the truth", "waves", _rows(results.waves)),
        ("GPM beside utilisation", "activity", _rows(results.activity)),
        ("Does reading slow a training down", "stalls", _rows(results.stalls)),
        ("What works on this board", "fields", _fields(results.gpu)),
    ]
    blocks = [f"# Measured on {results.board}", "\n".join(_facts(results))]
    for title, part, table in sections:
        reasons = [why for name, why in results.missing.items() if name.startswith(part)]
        why = [*reasons, "not yet, or the capture was ended before"][0]
        blocks += [f"## {title}", table or f"{NOT_MEASURED.capitalize()}: {why}."]
    if results.missing:
        blocks.append(f"## {NOT_MEASURED.capitalize()}")
        blocks.append("\n".join(f"- {part}: {why}" for part, why in results.missing.items()))
    return "\n\n".join(blocks) + "\n"


def _facts(results: Results) -> Iterator[str]:
    driver, gpu = results.driver, results.gpu
    yield f"- `{results.command}` on {results.date}, with {results.python}"
    yield (
        f"- driver {driver.driver_version}, NVML {driver.nvml_version}, CUDA up to "
        f"{driver.cuda_version}; opening NVML took {driver.init_s * 1000:.3g} ms"
    )
    yield f"- stamps of samples count: {driver.stamp_clock or NOT_MEASURED}"
    yield (
        f"- GPM: {_yes(gpu.has_gpm)}; MIG: {_yes(gpu.mig_enabled)}; persistence mode: "
        f"{_yes(gpu.persistence_mode)}"
    )
    yield f"- events: {', '.join(gpu.event_types) if gpu.event_types else 'none told'}"
    yield f"- load: {results.load or NOT_MEASURED}"
    if results.recording:
        yield f"- recording: `{results.recording}`"


def _yes(value: bool | None) -> str:
    return "the board does not say" if value is None else "yes" if value else "no"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Nothing where there is no row."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    if not lines:
        return ""
    return "\n".join([f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}", *lines])


def _rows(rows: Sequence[Any]) -> str:
    """The table of rows that say themselves what stands in it."""
    columns = [one for one in fields(rows[0]) if "head" in one.metadata] if rows else []
    heads = [one.metadata["head"] for one in columns]
    return _table(heads, ([_cell(row, one) for one in columns] for row in rows))


def _cell(row: Any, column: Field[Any]) -> str:
    value = getattr(row, column.name)
    return "-" if value is None else str(column.metadata["text"](value))


def _costs(costs: dict[str, ProbedGpu]) -> str:
    rows = [
        (
            call.function,
            load,
            f"{len(call.durations_us)}",
            *(f"{one:.1f}" for one in (spread.median, spread.p95, spread.worst)),
            call.value or call.answer or "-",
        )
        for load, gpu in costs.items()
        for field in gpu.fields
        for call in field.calls
        if (spread := Spread.of(call.durations_us)) is not None
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


def _fits(waves: Sequence[WaveAccuracy]) -> str:
    rows = []
    for one in waves:
        if one.fit is not None:
            fits = one.fit.error_ratio <= _FITS_WITHIN
            stretch = (ms(one.fit.window_s), ms(one.fit.lag_s)) if fits else ("none fits", "-")
            rows.append(
                (one.wave, one.truth, *stretch, percent(one.fit.error_ratio), str(one.fit.samples))
            )
    return _table(
        ("wave", "truth", "window, ms", "ends before its stamp, ms", "mean error then", "samples"),
        rows,
    )


def _fields(gpu: ProbedGpu) -> str:
    rows = (
        (
            one.field.name,
            "yes" if one.works else "no",
            one.value or (one.trouble.meaning if one.trouble else "-"),
        )
        for one in gpu.fields
    )
    return _table(("field", "works", "what it says"), rows)
