"""The page of one board in ``docs/measured``: tables of a capture's measurements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gpumon.cli.doctor.driver_answers import GpuAnswers
from gpumon.sources.nvml.codes import SUCCESS, code_name, meaning_of
from tests.tools.board_capture.measurements import Results, Row, Spread

NOT_MEASURED = "not measured"
_OF_RINGS = """

Median (5 % to 95 %). *apart*: from one stamp to the next; *delay*: from a stamp to the first look \
that brought it."""


def board_page(results: Results) -> str:
    """Return the page, as Markdown, of all measurements so far."""
    rings = _table(results.rings)
    sections = [
        ("Samples that the driver keeps", "rings", rings and rings + _OF_RINGS),
        ("What one call costs", "costs", _table([*_costs(results.costs)])),
        ("Utilisation against the truth", "waves", _table(results.waves)),
        ("GPM beside utilisation", "activity", _table(results.activity)),
        ("Does reading slow training down", "stalls", _table(results.stalls)),
        ("What works on this board", "fields", _table([*_fields(results.gpu)])),
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
    yield f"- events: {', '.join(gpu.event_types) if gpu.event_types else 'none reported'}"
    yield f"- load: {results.load or NOT_MEASURED}"
    if results.recording:
        yield f"- recording: `{results.recording}`"


def _yes(value: bool | None) -> str:
    return "the board does not say" if value is None else "yes" if value else "no"


def _table(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    lines = [list(rows[0]), ["---"] * len(rows[0])]
    lines += [[_cell(value) for value in row.values()] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.0f}" if value >= 10_000 else f"{value:.4g}"
    return str(value)


def _costs(costs: dict[str, GpuAnswers]) -> Iterator[Row]:
    for load, gpu in costs.items():
        for field in gpu.fields:
            for function, call in field.calls.items():
                if (spread := Spread.of(call.durations_us)) is not None:
                    yield {
                        "function": function,
                        "load": load,
                        "calls": len(call.durations_us),
                        "median, us": spread.median,
                        "95 %, us": spread.p95,
                        "worst, us": max(call.durations_us),
                        "answer": field.value if call.code == SUCCESS else code_name(call.code),
                    }


def _fields(gpu: GpuAnswers) -> Iterator[Row]:
    for one in gpu.fields:
        yield {
            "field": one.field.name,
            "works": "yes" if one.works else "no",
            "value": one.value or (meaning_of(one.refusal[1]) if one.refusal else None),
        }
