"""Fuzz test: a manipulated recording is refused or shown, and never raises another error."""

from __future__ import annotations

import json
from random import Random

import pytest

from gpumon.core.codecs.field_codec import MalformedError, encode_document
from gpumon.core.codecs.recording_codec import BlockReader, BlockWriter, RecordedBlock
from gpumon.core.codecs.report_codec import encode_report
from gpumon.core.codecs.state_codec import state_document
from gpumon.outlets.http.page_history import PageHistory
from gpumon.outlets.metrics.prometheus import MetricsExporter
from gpumon.outlets.text.report_text import render_report
from gpumon.outlets.text.style import TextStyle
from gpumon.pipeline.monitor import Monitor
from gpumon.pipeline.report_builder import Reports
from tests.builders.recording import facts, header, training_readings
from tests.builders.time import HandClock
from tests.fuzz.mutations import with_other_value

SEEDS = range(3)
EACH = 25


def manipulated_block(random: Random, written: list[bytes]) -> bytes:
    lines = [json.loads(line) for line in written]
    for _ in range(random.choice([1, 1, 1, 2, 5])):
        at = random.randrange(1, len(lines))
        lines[at] = with_other_value(random, lines[at])
    return b"\n".join(json.dumps(line).encode() for line in lines)


def read_or_refused(raw: bytes) -> RecordedBlock | None:
    try:
        return BlockReader().read(raw)
    except MalformedError:
        return None


def shown_everywhere(block: RecordedBlock) -> None:
    """Do everything that a replay does."""
    monitor, reports, history = Monitor(facts()), Reports(), PageHistory()
    exporter = MetricsExporter(clock=HandClock(), version="0.1.0")
    for reading in block.readings:
        state = monitor.ingest(reading)
        reports.follow(state)
        history.append(state)
        exporter.publish(state)
        for gpu in state.gpus:
            totals = gpu.totals
            idle_ns = sum(totals.idle_ns.values())
            assert totals.busy_ns + idle_ns + totals.pending_ns == totals.observed_ns
        encode_document(state_document(state, pid=1, address=None))
    body = exporter.render().body
    assert b'gpumon_collector_success{collector="metrics_gpu_time"} 1.0' in body
    history.encode()
    report = reports.report()
    if report is not None:
        json.dumps(encode_report(report), allow_nan=False)
        render_report(report, TextStyle(colour=False, unicode=False))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_manipulated_block_is_refused_or_shown(seed: int) -> None:
    random = Random(seed)
    writer = BlockWriter(header())
    readings = list(training_readings(seed, seconds=12))
    written = [*writer.begin_block(), *map(writer.line, readings)]
    blocks = [manipulated_block(random, written) for _ in range(EACH)]

    read = [block for block in map(read_or_refused, blocks) if block is not None]
    for block in read:
        shown_everywhere(block)

    assert 0 < len(read) < EACH
