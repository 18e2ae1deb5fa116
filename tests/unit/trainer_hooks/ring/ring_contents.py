"""The content of a ring that a test wrote, and the numbers of the phases in it."""

from __future__ import annotations

from pathlib import Path

from gpumon.core.phase import PHASE_NUMBER, TrainingPhase
from gpumon.core.ring_format.events import RingEvent, RunFacts
from gpumon.core.ring_format.facts import parse_facts
from gpumon.core.ring_format.format import FACTS_OFFSET, RingTotals, parse_header
from tests.builders.ring import WrittenRing
from tests.ring_contents import records_in, totals_in
from trainer_hooks.ring.ring_writer import RingWriter

INPUT_WAIT = PHASE_NUMBER[TrainingPhase.INPUT_WAIT]
TRAIN_STEP = PHASE_NUMBER[TrainingPhase.TRAIN_STEP]
COMPILE = PHASE_NUMBER[TrainingPhase.COMPILE]
OTHER = PHASE_NUMBER[TrainingPhase.OTHER]
CHECKPOINT = PHASE_NUMBER[TrainingPhase.CHECKPOINT]
SYNC = PHASE_NUMBER[TrainingPhase.DEVICE_SYNC]
CALLBACKS = PHASE_NUMBER[TrainingPhase.CALLBACKS]


def events(ring: WrittenRing | RingWriter) -> list[RingEvent]:
    return records_in(_path(ring).read_bytes())


def totals(ring: WrittenRing) -> RingTotals:
    return totals_in(ring.path.read_bytes())


def facts(writer: RingWriter) -> RunFacts:
    """As a reader of the ring finds them."""
    raw = _path(writer).read_bytes()
    return parse_facts(raw[FACTS_OFFSET : FACTS_OFFSET + parse_header(raw).facts_bytes])


def _path(ring: WrittenRing | RingWriter) -> Path:
    return ring.path if isinstance(ring, WrittenRing) else ring._memory.path
