"""Read one phase ring without trusting its contents."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from pathlib import Path
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.core.phase import PHASES
from gpumon.core.ring_format.events import (
    NO_RECORDS,
    RingCounts,
    RingEvent,
    RingKind,
    RingReading,
    RingRecords,
    RunFacts,
)
from gpumon.core.ring_format.facts import facts_of_page
from gpumon.core.ring_format.format import (
    CHANGING_BYTES,
    COUNT_LIMIT,
    HEADER_BYTES,
    LOCK_QUESTION,
    PAGE_BYTES,
    RECORD_BYTES,
    RECORD_COUNT,
    RING_BYTES,
    RingHeader,
    RingTotals,
    decode_records,
    is_blank,
    newest_totals,
    parse_header,
    read_lock_answer,
    version_trouble,
)
from gpumon.errors import RingError

MAX_RECORDS_PER_READ: Final = 16_384
"""More than a ring can gain in a second at the speed of training; older ones count as lost."""
BEING_MADE_NS: Final = 5 * NS_PER_S
"""A ring that is not ready after this time is refused."""

_SLACK_NS: Final = NS_PER_S
_MOVED_WITHIN_NS: Final = 60 * NS_PER_S
"""How long a ring without a lock is alive after a change, if its process is not visible."""
_LAST_RECORDS: Final = 64
_SLACK_RECORDS: Final = 16
"""The newest records may be incomplete: two threads of the writer may race."""


class RingNotReadyError(RingError):
    """The ring is still being made: retry for up to ``BEING_MADE_NS``."""


class OpenRing:
    """An open ring, and how far it was read."""

    __slots__ = (  # there may be hundreds
        "_descriptor", "_ended", "_facts", "_facts_generation", "_free_header", "_held",
        "_host_pid", "_idle", "_last_alive_ns", "_moved_ns", "_position", "_process_start",
        "_samples", "_steps", "_stuck_at", "_totals", "key", "owner_uid",
    )  # fmt: skip

    def __init__(self, descriptor: int, key: str, *, boot_id: str, now_ns: int) -> None:
        """Check the file behind ``descriptor``, which the ring closes later.

        Raises:
            RingNotReadyError: It is still being made.
            RingError: It must not be trusted. ``descriptor`` stays open.
        """
        self._descriptor = descriptor
        self.key = key
        self.owner_uid = _regular_ring_owner(descriptor)
        self._position = 0
        self._stuck_at: int | None = None
        self._host_pid = 0
        self._process_start: bytes | None = None  # start time of the process that held the lock
        self._last_alive_ns: int | None = None
        self._free_header: bytes | None = None  # at the last read, if the lock was free
        self._moved_ns: int | None = None  # when the header last changed without a lock
        self._ended: RingReading | None = None
        # The kernel's answer at the last read, if the lock was held.
        self._held: bytes | None = None
        # The first words of the header, and the reading while these do not change.
        self._idle: tuple[bytes, RingReading] | None = None
        page = os.pread(descriptor, PAGE_BYTES, 0)
        if is_blank(page):
            raise RingNotReadyError("still being made")
        header = parse_header(page)
        self._facts_generation = header.facts_generation
        self._facts = _facts(page, header)
        self._totals: RingTotals | None = None
        self._steps = self._samples = 0
        if self._facts.boot_id != boot_id:
            raise RingError("from another boot")
        if self._facts.started_ns > _latest_ns(now_ns):
            raise RingError("starts in the future")

    @property
    def is_removed(self) -> bool:
        """Whether its file was deleted; its process may still write."""
        return os.fstat(self._descriptor).st_nlink == 0

    def read(self, now_ns: int, *, max_records: int = MAX_RECORDS_PER_READ) -> RingReading:
        """Read the new records; of an ended run, return the same reading each time.

        A process loses its lock when it closes any descriptor of the file, as a copy of the folder
        does. So without a lock the run lives as long as the process that had it, unless that
        closed the ring; if the process is not visible, for a minute after each change of the
        header. Records older than the newest ``max_records`` count as lost.

        Raises:
            RingError: It must not be trusted any more.
        """
        if self._ended is not None and self._ended.is_gone:
            return self._ended
        # Before the records: once the lock is free, they are complete.
        answer = fcntl.fcntl(self._descriptor, fcntl.F_GETLK, LOCK_QUESTION)  # locks nothing
        if self._idle is not None and answer == self._held:
            words, reading = self._idle
            if os.pread(self._descriptor, CHANGING_BYTES, 0) == words:
                self._last_alive_ns = now_ns
                return reading._replace(read_at_ns=now_ns)
        raw = os.pread(self._descriptor, HEADER_BYTES, 0)
        is_alive = answer == self._held or self._lives(answer, raw, now_ns)
        if is_alive:
            self._last_alive_ns, self._ended = now_ns, None
        elif self._ended is not None:
            return self._ended
        if self._idle is not None and is_alive and raw.startswith(self._idle[0]):
            return self._idle[1]._replace(read_at_ns=now_ns)
        header = parse_header(raw)
        self._update_facts(header)
        latest_ns = _latest_ns(now_ns)
        totals = self._update_totals(raw, header, latest_ns)
        start, count = self._new_part(header, max_records)
        events, lost = self._read_part(start, count, latest_ns, is_alive=is_alive)
        if lost and RingKind.ENTER not in events.kinds:
            # The phase under way began in the lost part: only the totals know it.
            present = RingEvent(RingKind.ENTER, totals.since_ns, totals.present, totals.mode)
            events = RingRecords.of((present, *events))
        # If the process was killed, its last records are newer than its totals.
        self._steps = max(self._steps, totals.steps, _newest_count(events, RingKind.STEP))
        self._samples = max(self._samples, totals.samples, _newest_count(events, RingKind.SAMPLES))
        last_sign_ns = max([totals.last_ns, self._last_alive_ns or 0, *events.stamps_ns[-1:]])
        reading = RingReading(
            key=self.key,
            facts=self._facts,
            alive=is_alive,
            host_pid=self._host_pid or self._facts.pid,
            owner_uid=self.owner_uid,
            read_at_ns=now_ns,
            ended_ns=None if is_alive else last_sign_ns,
            events=events,
            lost_events=lost,
            phase_ns={p: ns for p, ns in zip(PHASES, totals.phase_ns, strict=True) if ns},
            steps=self._steps,
            samples=self._samples,
            epoch=totals.epoch,
            is_pid_seen=self._host_pid > 0,
            is_gone=not is_alive and self._process_start is not None,
        )
        has_new_facts = header.facts_generation != self._facts_generation
        is_all_read = header.head == self._position and not has_new_facts
        is_idle = is_all_read and is_alive
        self._idle = (raw[:CHANGING_BYTES], _again(reading)) if is_idle else None
        if not is_alive:
            self._ended = _again(reading)
            if reading.is_gone:  # there may be hundreds
                self._totals = self._free_header = None
        return reading

    def counts(self, now_ns: int) -> tuple[int, RingCounts] | None:
        """The run's pid and present counts; ``None`` if the last reading is as new.

        Raises:
            RingError: It must not be trusted any more.
        """
        if self._ended is not None or self._totals is None:
            return None
        raw = os.pread(self._descriptor, HEADER_BYTES, 0)
        header = parse_header(raw)
        totals = newest_totals(raw, header.totals_generation)
        if totals is None or _falls(self._totals, totals) or totals.last_ns > _latest_ns(now_ns):
            return None
        # The totals are some milliseconds older than the last records.
        count = min(_LAST_RECORDS, header.head)
        start = header.head - count
        records, valid = decode_records(self._raw_records(start, count), start)
        records = records.where(valid)
        steps = max(self._steps, totals.steps, _newest_count(records, RingKind.STEP))
        last_ns = max([totals.last_ns, *records.stamps_ns])
        wall_ns = max(0, min(last_ns, now_ns) - self._facts.started_ns)
        samples = max(self._samples, totals.samples, _newest_count(records, RingKind.SAMPLES))
        counts = RingCounts(steps, wall_ns, samples)
        return self._host_pid or self._facts.pid, counts

    def _lives(self, answer: bytes, header: bytes, now_ns: int) -> bool:
        """Whether the run lives, by the kernel's new answer about its lock."""
        lock = read_lock_answer(answer)
        if lock.held and lock.pid and lock.pid != self._host_pid:
            self._host_pid, self._process_start = lock.pid, process_start(lock.pid)
        is_alive = lock.held or self._lives_without_lock(header, now_ns)
        self._held, self._free_header = (answer, None) if lock.held else (None, header)
        return is_alive

    def _lives_without_lock(self, header: bytes, now_ns: int) -> bool:
        if self._free_header not in (None, header):
            self._moved_ns = now_ns
        if self._process_start is not None:
            is_over = is_gone(self._host_pid, self._process_start)
            return not (is_over or parse_header(header).is_closed)
        return self._moved_ns is not None and now_ns - self._moved_ns < _MOVED_WITHIN_NS

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _update_facts(self, header: RingHeader) -> None:
        """Read the facts again if the process rewrote them."""
        if header.facts_generation == self._facts_generation:
            return
        page = os.pread(self._descriptor, PAGE_BYTES, 0)
        try:
            facts = _facts(page, parse_header(page))
        except RingError:
            return  # read while they were written: the next tick has them
        if facts.boot_id == self._facts.boot_id and facts.started_ns == self._facts.started_ns:
            self._facts, self._facts_generation = facts, header.facts_generation

    def _update_totals(self, raw: bytes, header: RingHeader, latest_ns: int) -> RingTotals:
        totals = newest_totals(raw, header.totals_generation)
        if totals is None or (self._totals and totals.generation < self._totals.generation):
            totals = self._totals  # both copies torn, or an older one
        if totals is None:
            raise RingError("has no valid totals")
        if self._totals is not None and _falls(self._totals, totals):
            raise RingError("has totals that decreased")
        # The phase under way is not in the sums, and began after all of them.
        if sum(totals.phase_ns) > totals.since_ns - self._facts.started_ns + _SLACK_NS:
            raise RingError("has more time in its sums than has passed")
        if totals.since_ns > totals.last_ns + _SLACK_NS:
            raise RingError("has a phase that began after its newest change")
        if max(totals.last_ns, totals.since_ns) > latest_ns:
            raise RingError("has stamps in the future")
        self._totals = totals
        return totals

    def _new_part(self, header: RingHeader, max_records: int) -> tuple[int, int]:
        head, position = header.head, self._position
        if head + _SLACK_RECORDS < position:
            raise RingError("runs backwards")
        if head <= position:
            return position, 0
        start = max(position, head - min(RECORD_COUNT, max_records))
        return start, head - start

    def _read_part(
        self, start: int, count: int, latest_ns: int, *, is_alive: bool
    ) -> tuple[RingRecords, int]:
        """The records that are valid and of a possible time, and how many are lost."""
        if not count:
            return NO_RECORDS, 0
        records, valid = decode_records(self._raw_records(start, count), start)
        end = self._settled(valid, start) if is_alive else count
        # Stamps before the run or in the future are forged.
        earliest_ns = self._facts.started_ns - _SLACK_NS
        stamps_ns = records.stamps_ns
        if not (all(valid) and earliest_ns <= min(stamps_ns) <= max(stamps_ns) <= latest_ns):
            records = records.where(
                is_valid and at < end and earliest_ns <= at_ns <= latest_ns
                for at, (is_valid, at_ns) in enumerate(zip(valid, stamps_ns, strict=True))
            )
        lost = start + end - self._position - len(records)
        self._position = start + end
        return records, lost

    def _settled(self, valid: bytes, start: int) -> int:
        """How many records are final: an invalid one near the head gets one more tick."""
        hole = valid.find(0, max(0, len(valid) - _SLACK_RECORDS))
        if hole >= 0 and self._stuck_at != start + hole:
            self._stuck_at = start + hole
            return hole
        return len(valid)

    def _raw_records(self, start: int, count: int) -> bytes:
        first = start % RECORD_COUNT
        until_end = min(count, RECORD_COUNT - first)
        raw = os.pread(
            self._descriptor, until_end * RECORD_BYTES, PAGE_BYTES + first * RECORD_BYTES
        )
        if count > until_end:
            raw += os.pread(self._descriptor, (count - until_end) * RECORD_BYTES, PAGE_BYTES)
        if len(raw) != count * RECORD_BYTES:
            raise RingError("was cut short")
        return raw


def _latest_ns(now_ns: int) -> int:
    """The newest possible stamp now: this process may have been stopped since its tick began."""
    return max(now_ns, time.monotonic_ns()) + _SLACK_NS


def process_start(pid: int) -> bytes | None:
    """Start of a process in clock ticks since boot; ``None``: it is gone, ending or hidden."""
    try:
        return _start_in_stat(pid)
    except OSError:
        return None


def is_gone(pid: int, start: bytes) -> bool:
    """Whether the process with that ``process_start`` is certainly gone."""
    try:
        return _start_in_stat(pid) != start
    except (FileNotFoundError, ProcessLookupError):
        return True
    except OSError:
        return False


def _start_in_stat(pid: int) -> bytes | None:
    stat = Path(f"/proc/{pid}/stat").read_bytes()
    fields = stat.rpartition(b") ")[2].split()
    has_ended = not fields or fields[0] in (b"Z", b"X")
    return None if has_ended or len(fields) < 20 else fields[19]


def _regular_ring_owner(descriptor: int) -> int:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise RingError("not a regular file")
    if status.st_size == 0:
        raise RingNotReadyError("still being made")
    if status.st_size != RING_BYTES:
        raise RingError(
            version_trouble(os.pread(descriptor, HEADER_BYTES, 0))
            or f"{status.st_size} bytes long, not {RING_BYTES}"
        )
    return status.st_uid


def _facts(page: bytes, header: RingHeader) -> RunFacts:
    facts = facts_of_page(page, header)
    if facts is None:
        raise RingNotReadyError("its facts do not fit their check sum")
    return facts


def _again(reading: RingReading) -> RingReading:
    """The reading while there is nothing new."""
    return reading._replace(events=NO_RECORDS, lost_events=0)


def _falls(before: RingTotals, after: RingTotals) -> bool:
    return (
        after.steps < before.steps
        or after.samples < before.samples
        or any(new < old for old, new in zip(before.phase_ns, after.phase_ns, strict=True))
    )


def _newest_count(records: RingRecords, kind: RingKind) -> int:
    """The value of the newest record of that kind, at most ``COUNT_LIMIT``; 0 if there is none."""
    newest = records.newest(kind)
    return 0 if newest is None else min(newest.value, COUNT_LIMIT)
