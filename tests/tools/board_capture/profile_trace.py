"""When kernels ran, from the trace of torch's profiler, on the monotonic clock."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

MARK: Final = "gpumon-mark-"
"""A region of that name and of CLOCK_MONOTONIC, in nanoseconds, when it was begun."""

_ON_THE_DEVICE: Final = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_TOUCH_NS: Final = 50_000
"""Kernels with less than that between them are one span: the board counts no such pause."""


def kernel_spans(trace: str) -> list[tuple[int, int]]:
    """Spans in which the device worked, merged, in CLOCK_MONOTONIC nanoseconds.

    Args:
        trace: The Chrome trace that ``export_chrome_trace`` wrote; its stamps
            are microseconds of a clock of the profiler's own.

    Raises:
        ValueError: It has no mark, so its clock cannot be tied to ours.
    """
    events = json.loads(trace)["traceEvents"]
    offset_ns = clock_offset_ns(events)
    spans = sorted(
        (
            round(event["ts"] * 1000) - offset_ns,
            round((event["ts"] + event["dur"]) * 1000) - offset_ns,
        )
        for event in events
        if event.get("cat") in _ON_THE_DEVICE
    )
    return merged(spans)


def clock_offset_ns(events: Iterable[dict[str, Any]]) -> int:
    """The profiler's clock minus the monotonic one.

    A mark is stamped by the profiler a moment after it read our clock, so the
    least of the distances is nearest to the truth.

    Raises:
        ValueError: There is no mark.
    """
    distances: list[int] = [
        round(event["ts"] * 1000) - int(event["name"].removeprefix(MARK))
        for event in events
        if str(event.get("name", "")).startswith(MARK) and event.get("cat") == "user_annotation"
    ]
    if not distances:
        raise ValueError("the profiler's trace has none of the marks that were set")
    return min(distances)


def merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same time with spans that overlap or nearly touch made one; they come sorted."""
    whole: list[tuple[int, int]] = []
    for start_ns, end_ns in spans:
        if whole and start_ns <= whole[-1][1] + _TOUCH_NS:
            whole[-1] = (whole[-1][0], max(whole[-1][1], end_ns))
        else:
            whole.append((start_ns, end_ns))
    return whole
