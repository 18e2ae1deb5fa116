"""The SQLite file: its tables, what is written to them, and how it stays small.

A row of ``tens`` and ``minutes`` is of one GPU in one process of the daemon. Its key is the number
of the cell since the epoch, and then the device, so that rows lie in the order of time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.wording import label_text
from gpumon.outlets.store.columns import COLUMNS, LEVELS, PARTS, PENDING, SUSPECTED, UNKNOWN
from gpumon.outlets.store.growth import CELL_S, MINUTE_S, Growth
from gpumon.outlets.store.place import MAX_FILE_BYTES

SCHEMA: Final = 1
_APPLICATION: Final = 0x67706D6E  # gpmn
_PAGE_BYTES: Final = 1024
_CACHE_KIB: Final = 128
_CHECKPOINT_PAGES: Final = 1000
_DEVICE_BITS: Final = 20
_MAX_DEVICE: Final = (1 << _DEVICE_BITS) - 1
_PRUNED_AT_ONCE: Final = 2000
"""Rows, so that a clock that is wrong for a minute removes little."""
_MAX_RUN_SPANS: Final = 20_000


class Tier(NamedTuple):
    """Rows of one length."""

    table: str
    cell_s: int
    columns: tuple[str, ...]

    def key(self, at_s: float, device: int = 0) -> int:
        """The key of the row of a device that begins then."""
        return int(at_s // self.cell_s) << _DEVICE_BITS | device


TENS: Final = Tier("tens", CELL_S, PARTS)
MINUTES: Final = Tier("minutes", MINUTE_S, COLUMNS)
TIERS: Final = (TENS, MINUTES)
RARE: Final = Tier("rare", 600, ())
"""Counters that few GPUs have: they need no finer time."""
DEVICE_OF_KEY: Final = f"(key & {_MAX_DEVICE})"
CELL_OF_KEY: Final = f"(key >> {_DEVICE_BITS})"


class UnknownSchemaError(Exception):
    """The file is of another version of gpumon, or no store."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(what)
        self.kind = kind


def _levels(tier: Tier) -> tuple[str, ...]:
    return (*LEVELS, "longest_pause") if tier is MINUTES else LEVELS


def _ddl() -> Iterator[str]:
    yield (
        "CREATE TABLE daemons (id INTEGER PRIMARY KEY, source TEXT NOT NULL, boot_id TEXT NOT NULL,"
        " version TEXT NOT NULL, started_s REAL NOT NULL, seen_s REAL NOT NULL)"
    )
    yield (
        "CREATE TABLE devices (id INTEGER PRIMARY KEY, daemon INTEGER NOT NULL,"
        " uuid TEXT NOT NULL, label TEXT NOT NULL, name TEXT, gone_s REAL)"
    )
    for tier in TIERS:
        sums = ", ".join(f"{name} INTEGER NOT NULL DEFAULT 0" for name in tier.columns)
        levels = ", ".join(f"{name} INTEGER" for name in _levels(tier))
        yield f"CREATE TABLE {tier.table} (key INTEGER PRIMARY KEY, {sums}, {levels})"
    yield (
        "CREATE TABLE rare (key INTEGER NOT NULL, part INTEGER NOT NULL, amount INTEGER NOT NULL,"
        " PRIMARY KEY (key, part)) WITHOUT ROWID"
    )
    yield (
        "CREATE TABLE runs (id INTEGER PRIMARY KEY, device INTEGER NOT NULL, run TEXT NOT NULL,"
        " from_s REAL NOT NULL, until_s REAL NOT NULL)"
    )
    yield "CREATE TABLE pruned (tier TEXT PRIMARY KEY, until_s REAL NOT NULL)"


def _upsert(tier: Tier) -> str:
    names = ", ".join(tier.columns)
    marks = ", ".join("?" * (len(tier.columns) + 1))
    sums = ", ".join(f"{name} = {name} + excluded.{name}" for name in tier.columns)
    return (
        f"INSERT INTO {tier.table} (key, {names}) VALUES ({marks})"
        f" ON CONFLICT (key) DO UPDATE SET {sums}"
    )


def _upsert_levels(tier: Tier) -> str:
    names, marks = ", ".join(LEVELS), ", ".join("?" * len(LEVELS))
    sets = ", ".join(f"{name} = coalesce(excluded.{name}, {name})" for name in LEVELS)
    return (
        f"INSERT INTO {tier.table} (key, {names}) VALUES (?, {marks})"
        f" ON CONFLICT (key) DO UPDATE SET {sets}"
    )


_UPSERT: Final = {tier: _upsert(tier) for tier in TIERS}
_UPSERT_LEVELS: Final = {tier: _upsert_levels(tier) for tier in TIERS}


@dataclass(frozen=True, slots=True)
class Kept:
    """How long rows are kept, in seconds."""

    tens_s: float = 86_400.0
    minutes_s: float = 30 * 86_400.0

    def of(self, tier: Tier) -> float:
        return self.tens_s if tier is TENS else self.minutes_s


class Database:
    """One open file, or one in memory. Not safe for threads: its user takes turns.

    Args:
        path: The file; ``None``: in memory.

    Raises:
        UnknownSchemaError: It is of another version.
        sqlite3.Error: It cannot be opened, is damaged, or is locked by another daemon.
    """

    def __init__(self, path: Path | None) -> None:
        name = ":memory:" if path is None else str(path)
        self.connection = sqlite3.connect(
            name, timeout=0.2, isolation_level=None, check_same_thread=False, cached_statements=16
        )
        try:
            self._open()
        except BaseException:
            self.connection.close()
            raise
        self._daemon: int | None = None
        self._devices: dict[str, tuple[int, str]] = {}
        self._pending_from: dict[int, int] = {}
        self._runs: dict[tuple[int, str], int] = {}

    def close(self) -> None:
        self.connection.close()

    def _open(self) -> None:
        execute = self.connection.execute
        execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        # One process at a time, and no memory shared with others, as network folders need it.
        execute("PRAGMA locking_mode = EXCLUSIVE")
        execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        execute("PRAGMA temp_store = MEMORY")
        (version,) = execute("PRAGMA user_version").fetchone()
        (application,) = execute("PRAGMA application_id").fetchone()
        (tables,) = execute("SELECT count(*) FROM sqlite_master").fetchone()
        if (version, application) == (0, 0) and not tables:
            self._create()
        elif application != _APPLICATION:
            raise UnknownSchemaError("other", "is no store of gpumon")
        elif version != SCHEMA:
            kind = "newer" if version > SCHEMA else "older"
            raise UnknownSchemaError(
                kind, f"is of {'a' if kind == 'newer' else 'an'} {kind} gpumon"
            )
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = NORMAL")
        execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        execute(f"PRAGMA journal_size_limit = {2 * _CHECKPOINT_PAGES * _PAGE_BYTES}")
        execute(f"PRAGMA max_page_count = {MAX_FILE_BYTES // _PAGE_BYTES}")
        with self._transaction():  # takes the lock
            execute(f"PRAGMA user_version = {SCHEMA}")

    def _create(self) -> None:
        self.connection.execute("PRAGMA journal_mode = WAL")
        with self._transaction():
            for statement in _ddl():
                self.connection.execute(statement)
            self.connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            self.connection.execute(f"PRAGMA user_version = {SCHEMA}")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise
        self._commit()

    def _commit(self) -> None:
        try:
            self.connection.execute("COMMIT")
        except sqlite3.Error:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise

    def rows(self, table: str, columns: Sequence[str]) -> list[tuple[int, ...]]:
        """All rows of a table, in order."""
        names = ", ".join(columns)
        return self.connection.execute(f"SELECT {names} FROM {table} ORDER BY key").fetchall()

    # -- writing ---------------------------------------------------------------

    def begin(
        self, *, source: str, boot_id: str, version: str, started_s: float, now_s: float
    ) -> None:
        """Note that a daemon began to watch."""
        self._daemon = self.connection.execute(
            "INSERT INTO daemons (source, boot_id, version, started_s, seen_s)"
            " VALUES (?, ?, ?, ?, ?)",
            (source, boot_id, version, started_s, max(started_s, now_s)),
        ).lastrowid
        self._devices.clear()
        self._pending_from.clear()
        self._runs.clear()

    @property
    def daemon(self) -> int | None:
        """The number of this process; ``None`` before ``begin``."""
        return self._daemon

    def write(
        self, growths: Sequence[Growth], now_s: float, runs: Mapping[str, Sequence[str]]
    ) -> None:
        """Write all of it, or nothing.

        Args:
            growths: Of each GPU that has something new.
            now_s: Seconds since the epoch of the newest tick.
            runs: The runs on each GPU that is there now, by UUID.

        Raises:
            sqlite3.Error: It could not be written.
        """
        known = dict(self._devices), dict(self._pending_from), dict(self._runs)
        try:
            with self._transaction():
                self.connection.execute(
                    "UPDATE daemons SET seen_s = max(seen_s, ?) WHERE id = ?",
                    (now_s, self._daemon),
                )
                for growth in growths:
                    self._write_growth(growth)
                self._note_gone(runs, now_s)
                self._write_runs(runs, now_s)
        except BaseException:
            self._devices, self._pending_from, self._runs = known
            raise

    def _write_growth(self, growth: Growth) -> None:
        device, execute = self._device(growth), self.connection.execute
        minutes: dict[int, list[int]] = {}
        for start_s, amounts in sorted(growth.cells.items()):
            cell = [amounts.get(column, 0) for column in range(len(COLUMNS))]
            execute(_UPSERT[TENS], (TENS.key(start_s, device), *cell[: len(PARTS)]))
            key = MINUTES.key(start_s, device)
            was = minutes.get(key)
            minutes[key] = cell if was is None else [a + b for a, b in zip(was, cell, strict=True)]
            if cell[PENDING]:
                self._pending_from[device] = min(start_s, self._pending_from.get(device, start_s))
        for key, minute in minutes.items():
            execute(_UPSERT[MINUTES], (key, *minute))
        if growth.settled:
            for tier in TIERS:
                self._settle(tier, device, growth)
        for (start_s, part), amount in growth.rare.items():
            execute(
                "INSERT INTO rare (key, part, amount) VALUES (?, ?, ?)"
                " ON CONFLICT (key, part) DO UPDATE SET amount = amount + excluded.amount",
                (RARE.key(start_s, device), part, amount),
            )
        for tier, means in zip(TIERS, growth.levels, strict=True):
            for mean in means.values():
                key = tier.key(mean.start_s, device)
                execute(_UPSERT_LEVELS[tier], (key, *mean.values))
        if growth.longest_pause_ms and minutes:
            execute(
                "UPDATE minutes SET longest_pause = max(coalesce(longest_pause, 0), ?)"
                " WHERE key = ?",
                (growth.longest_pause_ms, max(minutes)),
            )

    def _settle(self, tier: Tier, device: int, growth: Growth) -> None:
        """Settle pending time in the rows that have it, the oldest first."""
        first = tier.key(self._pending_from.get(device, 0))
        rows = self.connection.execute(
            f"SELECT key, pending, unknown - suspected FROM {tier.table}"
            f" WHERE key >= ? AND pending > 0 AND {DEVICE_OF_KEY} = ? ORDER BY key",
            (first, device),
        ).fetchall()
        parts, left_suspected = [*growth.settled], growth.suspected_ms
        for key, pending, open_ms in rows:
            moved = [0] * len(PARTS)
            left = pending
            while parts and left:
                column, amount = parts[0]
                taken = min(amount, left)
                moved[column] += taken
                left -= taken
                if taken == amount:
                    del parts[0]
                else:
                    parts[0] = column, amount - taken
            moved[PENDING] = left - pending
            if moved[UNKNOWN]:
                moved[SUSPECTED] = min(left_suspected, max(0, open_ms) + moved[UNKNOWN])
                left_suspected -= moved[SUSPECTED]
            self._add_parts(tier, key, moved)
            if tier is TENS:
                self._pending_from[device] = (key >> _DEVICE_BITS) * CELL_S
            if not parts:
                break

    def _add_parts(self, tier: Tier, key: int, moved: Sequence[int]) -> None:
        changed = [(name, ms) for name, ms in zip(PARTS, moved, strict=True) if ms]
        sets = ", ".join(f"{name} = {name} + ?" for name, _ in changed)
        self.connection.execute(
            f"UPDATE {tier.table} SET {sets} WHERE key = ?", (*(ms for _, ms in changed), key)
        )

    def _device(self, growth: Growth) -> int:
        shown = growth.device
        known = self._devices.get(shown.uuid)
        if known is not None and known[1] == shown.label:
            return known[0]
        if known is not None:
            self.connection.execute(
                "UPDATE devices SET label = ? WHERE id = ?", (shown.label, known[0])
            )
            number = known[0]
        else:
            uuid, name = label_text(shown.uuid), shown.name and label_text(shown.name)
            number = self._inserted(
                "INSERT INTO devices (daemon, uuid, label, name) VALUES (?, ?, ?, ?)",
                (self._daemon, uuid, shown.label, name),
            )
            if number > _MAX_DEVICE:
                raise sqlite3.OperationalError("it has had too many devices: move it away")
        self._devices[shown.uuid] = number, shown.label
        return number

    def _note_gone(self, present: Collection[str], now_s: float) -> None:
        """Note GPUs that left: MIG instances are recreated all day long, each as a new one."""
        for uuid in self._devices.keys() - present:
            number, _ = self._devices.pop(uuid)
            self.connection.execute("UPDATE devices SET gone_s = ? WHERE id = ?", (now_s, number))

    def _inserted(self, statement: str, values: Sequence[object]) -> int:
        """Insert a row; return its number."""
        return self.connection.execute(statement, values).lastrowid or 0

    def _write_runs(self, runs: Mapping[str, Sequence[str]], now_s: float) -> None:
        present: dict[tuple[int, str], int] = {}
        for uuid, labels in runs.items():
            if uuid not in self._devices:
                continue
            device = self._devices[uuid][0]
            for label in labels:
                number = self._runs.get((device, label))
                if number is None:
                    number = self._inserted(
                        "INSERT INTO runs (device, run, from_s, until_s) VALUES (?, ?, ?, ?)",
                        (device, label_text(label), now_s, now_s),
                    )
                else:
                    self.connection.execute(
                        "UPDATE runs SET until_s = max(until_s, ?) WHERE id = ?", (now_s, number)
                    )
                present[device, label] = number
        self._runs = present

    # -- staying small ---------------------------------------------------------

    @property
    def size_bytes(self) -> int:
        (pages,) = self.connection.execute("PRAGMA page_count").fetchone()
        return int(pages) * _PAGE_BYTES

    @property
    def is_at_limit(self) -> bool:
        """Whether it has as many pages as it may have, and hardly a free one."""
        (free,) = self.connection.execute("PRAGMA freelist_count").fetchone()
        return self.size_bytes - int(free) * _PAGE_BYTES > MAX_FILE_BYTES * 0.98

    def prune(self, kept: Kept, now_s: float) -> None:
        """Remove some rows that are older than is kept, and the oldest of a file at its limit."""
        with self._transaction():
            for tier in TIERS:
                self._prune_tier(tier, tier.key(now_s - kept.of(tier)))
            for tier in reversed(TIERS):
                if self.is_at_limit:
                    self._prune_tier(tier, tier.key(now_s))
            self._prune_rest(now_s - kept.minutes_s)

    def _prune_tier(self, tier: Tier, before: int) -> None:
        execute = self.connection.execute
        (last,) = execute(
            f"SELECT max(key) FROM (SELECT key FROM {tier.table} WHERE key < ?"
            " ORDER BY key LIMIT ?)",
            (before, _PRUNED_AT_ONCE),
        ).fetchone()
        if last is None:
            return
        execute(f"DELETE FROM {tier.table} WHERE key <= ?", (last,))
        if tier is MINUTES:
            until = RARE.key((last >> _DEVICE_BITS) * MINUTE_S)
            execute("DELETE FROM rare WHERE key < ?", (until,))
        until_s = ((last >> _DEVICE_BITS) + 1) * tier.cell_s
        execute(
            "INSERT INTO pruned (tier, until_s) VALUES (?, ?)"
            " ON CONFLICT (tier) DO UPDATE SET until_s = max(until_s, excluded.until_s)",
            (tier.table, until_s),
        )

    def _prune_rest(self, before_s: float) -> None:
        """Remove what rows no longer need: nothing for which there may yet be one."""
        execute = self.connection.execute
        rowless_s = min(before_s, *(self.pruned_until_s(tier) for tier in TIERS))
        execute(
            "DELETE FROM runs WHERE until_s < ? OR id <= (SELECT max(id) FROM runs) - ?",
            (rowless_s, _MAX_RUN_SPANS),
        )
        execute(
            "DELETE FROM daemons WHERE id != ? AND (seen_s < ? OR seen_s < ?"
            " AND id NOT IN (SELECT daemon FROM devices))",
            (self._daemon or -1, rowless_s, before_s),
        )
        execute(
            "DELETE FROM devices WHERE gone_s < ? OR daemon NOT IN (SELECT id FROM daemons)",
            (rowless_s,),
        )

    def pruned_until_s(self, tier: Tier) -> float:
        """No row of the tier is older than that; 0: nothing was removed."""
        row = self.connection.execute(
            "SELECT until_s FROM pruned WHERE tier = ?", (tier.table,)
        ).fetchone()
        return 0.0 if row is None else float(row[0])
