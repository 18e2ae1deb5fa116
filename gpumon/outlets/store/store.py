"""Keeps where the time went, on its own thread: a tick never waits for the disk."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from gpumon import __version__
from gpumon.core.clock import seconds
from gpumon.core.diagnosis.report_before import EarlierTime
from gpumon.core.state import CollectorState, MonitorState
from gpumon.outlets.store.database import Database, Kept, UnknownSchemaError
from gpumon.outlets.store.growth import MINUTE_S, GpuGrowth, Growth
from gpumon.outlets.store.kept_history import Gap, Present, earlier_time, encoded_history
from gpumon.outlets.store.place import SIDE_SUFFIXES, StoreError, prepare

_LOG = logging.getLogger(__name__)

FLUSH_EVERY_S: Final = 5.0
RETRY_EVERY_S: Final = 60.0
"""How often a store that could not be opened is tried again."""
IN_MEMORY: Final = Kept(600.0, 600.0)
"""Without a file, ten minutes are kept."""
_SET_BACK_S: Final = 10.0
_PATIENCE_S: Final = 5.0
"""How long an answer, or the end, waits for the disk."""
_USUAL_GPUS: Final = 16
_MAX_UNWRITTEN_CELLS: Final = 60
"""Of one GPU: ten minutes on a full disk."""
_MAX_RUNS: Final = 8
"""Runs of one GPU that are kept at one time."""
_DAMAGED: Final = ("malformed", "not a database", "disk image")
_Answer = TypeVar("_Answer")


class Store:
    """Where the time of every GPU went, in a file or in memory.

    Args:
        path: The file; ``None``: in memory only, on purpose.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._turn = threading.Lock()  # for the database
        self._noting = threading.Lock()  # for what is not yet written
        self._gpus: dict[str, GpuGrowth] = {}
        self._unwritten: dict[str, Growth] = {}
        self._state: MonitorState | None = None
        self._trouble: str | None = None
        self._errors_total = 0
        self._took_seconds = 0.0
        self._has_begun = False
        self._began_s = self._pruned_s = 0.0
        self._retry_at = 0.0
        self._is_on_disk = False
        self._database: Database | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="gpumon-store", daemon=True)
        self._open()

    def start(self) -> None:
        """Begin to write, on a thread."""
        self._thread.start()

    def close(self) -> None:
        """Write what is left, and release the file. Safe to call twice.

        A disk that does not answer keeps no daemon from ending.
        """
        self._closed.set()
        if not self._turn.acquire(timeout=_PATIENCE_S):
            return
        try:
            if self._database is not None:
                self._flush()
                with contextlib.suppress(sqlite3.Error):
                    self._database.close()
                self._database = None
        finally:
            self._turn.release()

    # -- what ticks bring ------------------------------------------------------

    def follow(self, state: MonitorState) -> None:
        """Note what a tick brings. Never waits for the disk."""
        before, self._state = self._state, state
        if before is not None:
            self._note_clock(before, state)
        if state.repeats(before):
            return
        with self._noting:
            known, self._gpus = self._gpus, {}
            for gpu in state.gpus:
                uuid = gpu.device.uuid
                tracker = known.get(uuid)
                if tracker is None or not tracker.may_precede(gpu.totals):
                    tracker = GpuGrowth()
                self._gpus[uuid] = tracker
                growth = self._unwritten.get(uuid)
                if growth is None:
                    growth = self._unwritten[uuid] = Growth(gpu.device)
                tracker.follow(state, gpu, growth)

    def _note_clock(self, before: MonitorState, state: MonitorState) -> None:
        passed_s = seconds(state.taken_at_ns - before.taken_at_ns)
        back_s = passed_s - (state.wall_time_s - before.wall_time_s)
        if back_s > _SET_BACK_S:
            self._errors_total += 1
            _LOG.warning(
                "store: the clock was set back by %.0f s, so this time is counted twice in the "
                "same cells", back_s,
            )  # fmt: skip

    def collector_state(self) -> CollectorState:
        """The last write, for ``gpumon_collector_success{collector="store"}``."""
        return CollectorState(
            name="store",
            success=self._trouble is None,
            duration_seconds=self._took_seconds,
            errors_total=self._errors_total,
            message=self._trouble,
        )

    @property
    def trouble(self) -> str | None:
        """Why nothing can be written now, as a sentence; ``None``: it can."""
        return self._trouble

    @property
    def description(self) -> str:
        """Where it is kept, and for how long, for a person."""
        if self.path is None:
            return "none: the last ten minutes are kept in memory"
        if not self._is_on_disk:
            return f"none: {self._trouble}"
        return (
            f"{self.path}   (30 days, for the page and `gpumon report --since 12h` while this runs)"
        )

    # -- answers ---------------------------------------------------------------

    def history(self, asked: Gap) -> bytes | None:
        """The body of ``/api/v1/history`` for a span; ``None`` before the first tick."""
        state = self._state
        if state is None:
            return None
        return self._answer(lambda database: encoded_history(database, asked, _present(state)))

    def earlier(self, from_s: float) -> EarlierTime | None:
        """What earlier processes of the daemon watched since then; ``None``: nothing is kept."""
        state = self._state
        if state is None:
            return None
        return self._answer(lambda database: earlier_time(database, _present(state), from_s))

    def rows(self, table: str, columns: Sequence[str]) -> list[tuple[int, ...]]:
        """All rows of a table, in order, after what came has been written."""
        return self._answer(lambda database: database.rows(table, columns)) or []

    def _answer(self, question: Callable[[Database], _Answer]) -> _Answer | None:
        if not self._turn.acquire(timeout=_PATIENCE_S):
            return None
        try:
            self._flush()
            return None if self._database is None else question(self._database)
        except sqlite3.Error as error:
            self._fail(error)
            return None
        finally:
            self._turn.release()

    # -- the thread ------------------------------------------------------------

    def _work(self) -> None:
        while not self._closed.wait(FLUSH_EVERY_S):
            with self._turn:
                if self._closed.is_set():
                    return
                if self._is_lost() and time.monotonic() >= self._retry_at:
                    self._open()
                self._flush()

    def _is_lost(self) -> bool:
        """Whether a file is wanted and there is none, or it was removed."""
        return self.path is not None and not (self._is_on_disk and self.path.exists())

    def _flush(self) -> None:
        """Write what came; if that fails, keep it for the next time."""
        state, database = self._state, self._database
        if state is None or database is None:
            return
        began = time.monotonic()
        with self._noting:
            unwritten, self._unwritten = self._unwritten, {}
        growths = [growth for growth in unwritten.values() if not growth.is_empty]
        try:
            if not self._has_begun:
                database.begin(
                    source=state.source, boot_id=state.boot_id, version=__version__,
                    started_s=self._began_s or state.started_wall_time_s,
                    now_s=state.wall_time_s,
                )  # fmt: skip
                self._has_begun = True
                self._began_s = state.wall_time_s  # what another file would have from now on
            if abs(state.wall_time_s - self._pruned_s) >= MINUTE_S:
                self._pruned_s = state.wall_time_s
                database.prune(self._kept(len(state.gpus)), state.wall_time_s)
            database.write(growths, state.wall_time_s, _runs_by_gpu(state))
        except sqlite3.Error as error:
            self._put_back(unwritten)
            self._fail(error)
        else:
            self._note_success()
        self._took_seconds = time.monotonic() - began

    def _note_success(self) -> None:
        if self._is_on_disk:
            self._trouble = None

    def _kept(self, gpus: int) -> Kept:
        return kept_for(gpus) if self._is_on_disk else IN_MEMORY

    def _put_back(self, unwritten: dict[str, Growth]) -> None:
        with self._noting:
            for uuid, growth in unwritten.items():
                newer = self._unwritten.get(uuid)
                if newer is None:
                    self._unwritten[uuid] = growth
                else:
                    newer.add_before(growth)
            for growth in self._unwritten.values():
                growth.keep_newest(_MAX_UNWRITTEN_CELLS)

    # -- opening ---------------------------------------------------------------

    def _open(self) -> None:
        """Open the file; if that is impossible, or none is wanted, a database in memory."""
        database = None
        if self.path is not None:
            self._retry_at = time.monotonic() + RETRY_EVERY_S
            try:
                database = self._opened(self.path)
            except (StoreError, OSError) as error:
                self._report(f"{error}; nothing is kept over restarts")
        if database is None:
            if self._database is not None:
                return
            database = Database(None)
            self._is_on_disk = False
        else:
            if self._database is not None:
                self._database.close()
            self._is_on_disk = True
            self._trouble = None
        self._database, self._has_begun, self._pruned_s = database, False, 0.0

    def _opened(self, path: Path) -> Database:
        prepare(path)
        try:
            return Database(path)
        except UnknownSchemaError as error:
            self._set_aside(path, error.kind, str(error))
        except sqlite3.Error as error:
            text = str(error)
            if "locked" in text:
                raise StoreError(f"{path} is used by another gpumon daemon") from error
            if not _is_damage(error):
                raise StoreError(f"{path}: {text}") from error
            self._set_aside(path, "corrupt", "is damaged")
        prepare(path)
        try:
            return Database(path)
        except (sqlite3.Error, UnknownSchemaError) as error:
            raise StoreError(f"{path}: {error}") from error

    def _set_aside(self, path: Path, kind: str, what: str) -> None:
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        aside = path.with_name(f"{path.name}-{kind}-{stamp}")
        path.rename(aside)
        for suffix in SIDE_SUFFIXES:
            with contextlib.suppress(FileNotFoundError):
                Path(f"{path}{suffix}").rename(f"{aside}{suffix}")
        self._errors_total += 1
        _LOG.warning("%s %s: it was renamed to %s, and a new one begun", path, what, aside.name)

    def _fail(self, error: sqlite3.Error) -> None:
        """Report a failure; a damaged file is set aside, and a new one begun."""
        if self._is_on_disk and self.path is not None and _is_damage(error):
            with contextlib.suppress(sqlite3.Error):
                if self._database is not None:
                    self._database.close()
            self._database = None
            try:
                self._set_aside(self.path, "corrupt", "is damaged")
            except OSError as failure:
                self._report(f"{self.path} is damaged, and cannot be renamed: {failure.strerror}")
            self._open()
            return
        self._report(
            f"cannot write {self.path or 'the store'}: {error}; sampling continues, and what is "
            "not written within ten minutes is not kept"
        )

    def _report(self, sentence: str) -> None:
        """Note a failure, which the daemon logs as that of a collector."""
        self._errors_total += 1
        self._trouble = sentence


def kept_for(gpus: int) -> Kept:
    """How long so many GPUs and instances are kept, in a file of the same size."""
    share = min(1.0, _USUAL_GPUS / max(1, gpus))
    return Kept(Kept().tens_s * share, Kept().minutes_s * share)


def _present(state: MonitorState) -> Present:
    ends_ns = [end_ns for gpu in state.gpus if (end_ns := gpu.last_sample_at_ns) is not None]
    late_ns = state.taken_at_ns - max(ends_ns, default=state.taken_at_ns)
    until_s = state.wall_time_s - seconds(late_ns) if ends_ns else None
    return Present(state.source, state.wall_time_s, until_s, len(state.gpus))


def _runs_by_gpu(state: MonitorState) -> dict[str, list[str]]:
    """The runs on each GPU that is there now, by UUID."""
    runs: dict[str, list[str]] = {gpu.device.uuid: [] for gpu in state.gpus}
    for run in state.runs:
        for uuid in run.gpu_uuids if run.alive else ():
            if uuid in runs and len(runs[uuid]) < _MAX_RUNS:
                runs[uuid].append(run.run)
    return runs


def _is_damage(error: sqlite3.Error) -> bool:
    return isinstance(error, sqlite3.DatabaseError) and any(word in str(error) for word in _DAMAGED)
