"""What somebody may put where rings are looked for. Each makes one in a ``phases`` folder."""

from __future__ import annotations

import os
import sys
from array import array
from pathlib import Path

from gpumon.core.clock import NS_PER_S
from gpumon.core.phase import PHASE_NUMBER, TrainingPhase
from gpumon.core.ring.format import RING_BYTES
from tests.builders_ring import WrittenRing, now, run_facts

INPUT_WAIT = PHASE_NUMBER[TrainingPhase.INPUT_WAIT]


def of_version(phases: Path, version: int, *, name: str, length: int = RING_BYTES) -> None:
    """A ring of another version, of which nobody here knows more than how it begins."""
    words = array("Q", (int.from_bytes(b"GPUMRING", sys.byteorder), version))
    (phases / name).write_bytes(words.tobytes().ljust(length, b"\1"))


def garbage(phases: Path) -> None:
    (phases / "1-1.ring").write_bytes(os.urandom(RING_BYTES))


def an_empty_header(phases: Path) -> None:
    (phases / "1-1.ring").write_bytes(bytes(RING_BYTES))


def a_short_file(phases: Path) -> None:
    (phases / "1-1.ring").write_bytes(b"GPUMRING")


def a_huge_sparse_file(phases: Path) -> None:
    with (phases / "1-1.ring").open("wb") as file:
        file.truncate(1 << 40)


def a_link(phases: Path) -> None:
    target = phases.parent / "elsewhere"
    target.write_bytes(bytes(RING_BYTES))
    (phases / "1-1.ring").symlink_to(target)


def a_link_to_nowhere(phases: Path) -> None:
    (phases / "1-1.ring").symlink_to("/nonexistent/x")


def a_pipe(phases: Path) -> None:
    os.mkfifo(phases / "1-1.ring")


def a_folder(phases: Path) -> None:
    (phases / "1-1.ring").mkdir()


def another_version(phases: Path) -> None:
    of_version(phases, 2, name="1-1.ring")


def a_shorter_ring_of_another_version(phases: Path) -> None:
    of_version(phases, 3, name="1-1.ring", length=1 << 16)


def another_boot(phases: Path) -> None:
    WrittenRing(phases.parent, run_facts(boot_id="other"))


def a_start_in_the_future(phases: Path) -> None:
    WrittenRing(phases.parent, run_facts(started_ns=now() + 3600 * NS_PER_S))


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


def a_last_word_from_before_its_run(phases: Path) -> None:
    ring = WrittenRing(phases.parent)
    ring.writer._publish(1)


def torn_totals(phases: Path) -> None:
    words = WrittenRing(phases.parent).memory.words
    words[16] ^= 1 << 40
    words[48] ^= 1 << 40


def facts_that_are_no_json(phases: Path) -> None:
    memory = WrittenRing(phases.parent).memory
    memory.data[1024:1025] = b"!"


HOSTILE_RINGS = (
    garbage,
    an_empty_header,
    a_short_file,
    a_huge_sparse_file,
    a_link,
    a_link_to_nowhere,
    a_pipe,
    a_folder,
    another_version,
    a_shorter_ring_of_another_version,
    another_boot,
    a_start_in_the_future,
    more_time_than_has_passed,
    a_phase_from_before_its_run,
    a_last_word_from_before_its_run,
    torn_totals,
    facts_that_are_no_json,
)
