"""What somebody may put where rings are looked for. Each makes one in a ``phases`` folder."""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Callable
from pathlib import Path

from gpumon.core.clock import NS_PER_S
from gpumon.core.phase import PHASE_NUMBER, TrainingPhase
from gpumon.core.ring_format.format import RING_BYTES
from tests.builders_ring import WrittenRing, now, run_facts

NAME = "1-1.ring"
INPUT_WAIT = PHASE_NUMBER[TrainingPhase.INPUT_WAIT]


def of_version(phases: Path, version: int, *, name: str, length: int = RING_BYTES) -> None:
    """A ring of another version, of which nobody here knows more than how it begins."""
    words = array("Q", (int.from_bytes(b"GPUMRING", sys.byteorder), version))
    (phases / name).write_bytes(words.tobytes().ljust(length, b"\1"))


def a_huge_sparse_file(phases: Path) -> None:
    with (phases / NAME).open("wb") as file:
        file.truncate(1 << 40)


def a_link(phases: Path) -> None:
    target = phases.parent / "elsewhere"
    target.write_bytes(bytes(RING_BYTES))
    (phases / NAME).symlink_to(target)


def more_time_than_has_passed(phases: Path) -> None:
    writer = WrittenRing(phases.parent).writer
    writer._spent_ns[INPUT_WAIT] = 1 << 50
    writer.epoch(0)


def a_phase_from_before_its_run(phases: Path) -> None:
    writer = WrittenRing(phases.parent).writer
    writer.since_ns = 0
    for _ in range(100):
        writer.step()
    writer.settle()


def torn_totals(phases: Path) -> None:
    words = WrittenRing(phases.parent).memory.words
    words[16] ^= 1 << 40
    words[48] ^= 1 << 40


def facts_that_are_no_json(phases: Path) -> None:
    memory = WrittenRing(phases.parent).memory
    memory.data[1024:1025] = b"!"


HOSTILE_RINGS: dict[str, Callable[[Path], object]] = {
    "garbage": lambda phases: (phases / NAME).write_bytes(os.urandom(RING_BYTES)),
    "an empty header": lambda phases: (phases / NAME).write_bytes(bytes(RING_BYTES)),
    "a short file": lambda phases: (phases / NAME).write_bytes(b"GPUMRING"),
    "a huge sparse file": a_huge_sparse_file,
    "a link": a_link,
    "a link to nowhere": lambda phases: (phases / NAME).symlink_to("/nonexistent/x"),
    "a pipe": lambda phases: os.mkfifo(phases / NAME),
    "a folder": lambda phases: (phases / NAME).mkdir(),
    "another version": lambda phases: of_version(phases, 2, name=NAME),
    "a shorter ring of another version": lambda phases: of_version(
        phases, 3, name=NAME, length=1 << 16
    ),
    "another boot": lambda phases: WrittenRing(phases.parent, run_facts(boot_id="other")),
    "a start in the future": lambda phases: WrittenRing(
        phases.parent, run_facts(started_ns=now() + 3600 * NS_PER_S)
    ),
    "more time than has passed": more_time_than_has_passed,
    "a phase from before its run": a_phase_from_before_its_run,
    "a last word from before its run": lambda phases: WrittenRing(phases.parent).writer._publish(1),
    "torn totals": torn_totals,
    "facts that are no JSON": facts_that_are_no_json,
}
