"""Every JSON name of report, state and recording, compared with the committed list.

Set GPUMON_UPDATE_GOLDEN=1 to rewrite the list. Names may be added, never removed or changed:
files and programs of other versions read them.
"""

from __future__ import annotations

import dataclasses
import json
import os
import types
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from gpumon.core.codecs import (
    report_codec,
)
from gpumon.core.codecs.recording_codec import BlockWriter, RecordingHeader
from gpumon.core.codecs.report_codec import encode_pair, encode_report_with_lanes
from gpumon.core.codecs.state_codec import board_document, state_document
from gpumon.core.device.sm_utilisation import Mean
from gpumon.core.diagnosis.imbalance import JobImbalance
from gpumon.core.diagnosis.report_differences import RunPace
from gpumon.core.phase import TrainingPhase
from gpumon.core.reading import Reading
from gpumon.core.report.lanes import Lanes, ReportWithLanes
from gpumon.core.report.report import Report
from gpumon.core.ring_format.events import RingEvent, RingKind, RingRecords
from gpumon.core.state import MonitorState

TEXT = "2026-01-01T00:00:00+00:00"
NAMES = Path(__file__).with_name("json_names.txt")
RECORDS = RingRecords.of([RingEvent(RingKind.ENTER, 1, TrainingPhase.COMPILE, 1)])


def full(hint: Any) -> Any:
    """A value of this type in which no field is empty."""
    if get_origin(hint) in (Union, types.UnionType):
        return full(next(one for one in get_args(hint) if one is not type(None)))
    if get_origin(hint) is tuple:
        inner = get_args(hint)
        if Ellipsis not in inner:
            return tuple(map(full, inner))
        return tuple(
            map(full, get_args(inner[0]) or inner[:1] if is_union(inner[0]) else inner[:1])
        )
    if get_origin(hint) is not None:
        key, value = get_args(hint)
        keys = list(key) if isinstance(key, type) and issubclass(key, Enum) else [full(key)]
        return {one: full(value) for one in keys}
    if hint is RingRecords:
        return RECORDS
    if hint is Mean:
        return Mean(1, 1)
    if issubclass(hint, Enum):
        return next(iter(hint))
    if dataclasses.is_dataclass(hint) or hasattr(hint, "_fields"):
        return hint(**{name: full(each) for name, each in get_type_hints(hint).items()})
    return {int: 1, float: 0.5, bool: True, str: TEXT}[hint]


def is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType) and type(None) not in get_args(hint)


def paths(document: object, at: str) -> Iterator[str]:
    if isinstance(document, dict):
        for key, value in document.items():
            name = "*" if key == TEXT else key
            yield f"{at}.{name}"
            yield from paths(value, f"{at}.{name}")
    elif isinstance(document, list):
        for value in document:
            yield from paths(value, f"{at}[]")


def documents() -> Iterator[tuple[str, object]]:
    lanes = ReportWithLanes(full(Report), full(Lanes))
    yield "report", encode_report_with_lanes(lanes)
    yield "report.imbalance[]", report_codec._encode_imbalance(("job", 1), full(JobImbalance))
    yield "comparison.run", encode_pair(full(RunPace), full(RunPace))
    state = full(MonitorState)
    yield "state", state_document(state, pid=1, address="a:1")
    yield "state.gpus[]", board_document(state.gpus[0])
    writer = BlockWriter(full(RecordingHeader))
    reading = full(Reading)
    lines = [*writer.begin_block(), writer.line(reading), writer.end_line("done")]
    frame = reading.tick.frames[0]
    grown = frame._replace(call_seconds=((TEXT, 2.0),), call_counts=((TEXT, 2),))
    lines.append(writer.line(reading._replace(tick=reading.tick._replace(frames=(grown,)))))
    for line in lines:
        yield "recording", json.loads(line)


def test_json_names_are_the_committed_ones() -> None:
    found = {path for at, document in documents() for path in paths(document, at)}
    text = "".join(f"{path}\n" for path in sorted(found))
    if os.environ.get("GPUMON_UPDATE_GOLDEN"):
        NAMES.write_text(text, encoding="ascii")

    assert text == NAMES.read_text(encoding="ascii")
