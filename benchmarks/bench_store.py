"""What does the store of ``gpumon serve`` cost: room, writes, and time to answer?

    python -m benchmarks.bench_store [DAYS] [--gpus N]

A synthetic machine is written as the daemon does, with what a busy tagged GPU has in its rows:
first an hour with a transaction every five seconds, whose written bytes count, then whole
days. Beside it, the same rows as lines of JSON, compressed with gzip: what a log would take.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from gpumon.core.sample import Device
from gpumon.outlets.store.columns import COLUMNS, RARE_NUMBER
from gpumon.outlets.store.database import Database, Kept
from gpumon.outlets.store.growth import CELL_S, MINUTE_S, Growth, LevelMeans
from gpumon.outlets.store.kept_history import Present, earlier_time, encoded_history

START_S: Final = 1_790_000_000 // MINUTE_S * MINUTE_S
MOST_BYTES: Final = 64_000_000
MOST_WRITTEN_BYTES: Final = 20_000_000
USUAL_DAYS: Final = 30
_TAGGED: Final = (
    ("busy", 0.6), ("input_wait", 0.2), ("within_step", 0.15), ("pending", 0.05),
    ("why_disk_bound", 0.1), ("why_cpu_bound", 0.05), ("low", 0.2), ("high", 0.3),
    ("hidden_input_wait", 0.05),
)  # fmt: skip
_UNTAGGED: Final = (
    ("busy", 0.6), ("unknown", 0.3), ("pending", 0.1), ("low", 0.2), ("high", 0.3), ("paused", 0.3),
)  # fmt: skip
"""What the GPUs of a busy machine have in their rows, as shares of the time."""


def growths(gpus: int, start_s: int, length_s: float, dice: random.Random) -> Iterator[Growth]:
    """What some seconds of work add to the rows of each GPU."""
    for number in range(gpus):
        growth = Growth(Device(uuid=f"GPU-{number:04}", index=number, name="NVIDIA H100"))
        parts = dict.fromkeys(COLUMNS, 0)
        is_tagged = number % 2 == 0
        for name, share in _TAGGED if is_tagged else _UNTAGGED:
            parts[name] = round(1000 * length_s * share * dice.uniform(0.8, 1.2))
        parts["pauses"] = 0 if is_tagged else dice.randrange(9)
        growth.cells[start_s // CELL_S * CELL_S] = dict(enumerate(parts.values()))
        cause = "input_wait" if is_tagged else "unknown"
        growth.settled = [(COLUMNS.index(cause), parts["pending"])]
        for name in ("may_be_less_ns.input_wait", "episodes") if is_tagged else ("irregular_ns",):
            growth.rare[start_s // MINUTE_S * MINUTE_S, RARE_NUMBER[name]] = 40
        means = LevelMeans(start_s // CELL_S * CELL_S), LevelMeans(start_s // MINUTE_S * MINUTE_S)
        for mean in means:
            mean.add((dice.uniform(5e3, 2e4), dice.uniform(1e3, 7e3), 1755.0, dice.uniform(40, 80)))
        growth.levels = {means[0].start_s: means[0]}, {means[1].start_s: means[1]}
        growth.longest_pause_ms = 0 if is_tagged else 1500
        yield growth


def written_bytes() -> int:
    """What this process has given to write so far."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["wchar"])


def filled(database: Database, gpus: int, days: float, every_s: int) -> tuple[int, float]:
    """Write so many days; return when they end, and the CPU seconds of a flush."""
    dice, now_s, flushes = random.Random(7), START_S, 0
    present = {growth.device.uuid: () for growth in growths(gpus, START_S, 1.0, dice)}
    cpu_s = -time.process_time()
    for start_s in range(START_S, START_S + round(days * 86_400), every_s):
        for cell_s in range(start_s, start_s + every_s, min(every_s, CELL_S)):
            made = [*growths(gpus, cell_s, min(every_s, CELL_S), dice)]
            now_s = start_s + every_s
            database.write(made, now_s, present)
            flushes += 1
        if now_s % MINUTE_S == 0:
            database.prune(Kept(), now_s)
    return now_s, (cpu_s + time.process_time()) / flushes


def opened(path: Path) -> Database:
    """A store in which a daemon began."""
    database = Database(path)
    database.begin(source="nvml", boot_id="boot", version="0", started_s=START_S, now_s=START_S)
    return database


def timed(what: str, call: Callable[[], object]) -> None:
    """Print how long a call took."""
    began_s = time.perf_counter()
    answer = call()
    size = f", {len(answer):,} bytes" if isinstance(answer, bytes) else ""
    print(f"  {what}: {1000 * (time.perf_counter() - began_s):,.0f} ms{size}")


def as_log(database: Database) -> int:
    """The same rows of a minute as compressed lines."""
    rows = database.connection.execute("SELECT * FROM minutes")
    names = [column[0] for column in rows.description]
    packed = gzip.compress(
        b"".join(json.dumps(dict(zip(names, row, strict=True))).encode() for row in rows), 1
    )
    return len(packed)


def main() -> int:
    """Print the figures; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(prog="bench_store", description=__doc__.splitlines()[0])
    parser.add_argument("days", nargs="?", type=float, default=2.0)
    parser.add_argument("--gpus", type=int, default=16)
    arguments = parser.parse_args()
    gpus, is_missed = arguments.gpus, False
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hour.sqlite3"
        database, before = opened(path), written_bytes()
        _, flush_s = filled(database, gpus, 1 / 24, 5)
        database.close()
        written = written_bytes() - before
        is_missed |= written > MOST_WRITTEN_BYTES
        print(
            f"{gpus} GPUs, an hour: {written:,} bytes written (at most {MOST_WRITTEN_BYTES:,}), "
            f"{1000 * flush_s:.1f} ms of CPU a flush with its making, every 5 s"
        )
        path = Path(folder) / "days.sqlite3"
        database = opened(path)
        now_s, _ = filled(database, gpus, arguments.days, MINUTE_S)
        counts = {
            table: database.connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("tens", "minutes", "rare")
        }
        pages = (
            dict(
                database.connection.execute(
                    "SELECT name, sum(pgsize) FROM dbstat GROUP BY name"
                ).fetchall()
            )
            if has_dbstat(database)
            else {}
        )
        print(f"{arguments.days:g} days: {path.stat().st_size:,} bytes, rows {counts}, {pages}")
        minutes = counts["minutes"] or 1
        if pages:
            per_minute = (pages["minutes"] + pages["rare"]) / minutes
            whole = per_minute * USUAL_DAYS * 1440 * gpus + pages["tens"]
            is_missed |= gpus <= 16 and whole > MOST_BYTES
            print(
                f"  a minute of a GPU {per_minute:.0f} bytes, so {USUAL_DAYS} days "
                f"{whole / 1e6:.1f} MB (at most {MOST_BYTES / 1e6:.0f}); as compressed lines "
                f"{as_log(database) / minutes:.0f} bytes"
            )
        present = Present("nvml", now_s, now_s, gpus)
        for hours in (1.0, 12.0, 24.0 * arguments.days):
            asked = now_s - hours * 3600, now_s
            timed(
                f"the history of {hours:g} h",
                lambda asked=asked: encoded_history(database, asked, present),
            )
        database.begin(source="nvml", boot_id="boot", version="0", started_s=now_s, now_s=now_s)
        for hours in (12.0, 24.0 * arguments.days):
            timed(
                f"the time before a restart, {hours:g} h",
                lambda hours=hours: earlier_time(database, present, now_s - hours * 3600),
            )
        database.close()
    return int(is_missed)


def has_dbstat(database: Database) -> bool:
    """Whether this SQLite can say how many pages a table has."""
    options = database.connection.execute("PRAGMA compile_options").fetchall()
    return ("ENABLE_DBSTAT_VTAB",) in options


if __name__ == "__main__":
    sys.exit(main())
