"""What the store answers: cells of any span, and the time before the daemon began.

A source has only its own rows: those of simulated GPUs never count with those of a driver.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

from gpumon.core.codecs.field_codec import encode_document
from gpumon.core.diagnosis.report_before import EarlierTime
from gpumon.core.wording import label_text
from gpumon.outlets.store.columns import COLUMNS, LEVELS, MEMORY_UNIT_BYTES, PARTS, totals_from
from gpumon.outlets.store.database import (
    CELL_OF_KEY,
    DEVICE_OF_KEY,
    MINUTES,
    RARE,
    TENS,
    Database,
    Tier,
)

HISTORY_SCHEMA: Final = "gpumon.history/1"
MAX_CELLS: Final = 600
"""Of one GPU."""
_MAX_ALL_CELLS: Final = 16 * MAX_CELLS
_CELL_LENGTHS_S: Final = (
    10, 20, 30, 60, 120, 180, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400,
)  # fmt: skip
_UNITS: Final = {
    "memory_used_bytes": MEMORY_UNIT_BYTES,
    "power_watts": 0.1,
    "sm_clock_hertz": 1e6,
    "temperature_celsius": 1,
}
"""Names of the levels in JSON, and the units in which they are kept."""

Gap = tuple[float, float]
"""Seconds since the epoch, from and to."""


class Present(NamedTuple):
    """The newest tick.

    Attributes:
        source: Only rows of this source count.
        now_s: Seconds since the epoch.
        observed_until_s: The end of the newest sample; ``None``: there was none.
        gpus: How many there are.
    """

    source: str
    now_s: float
    observed_until_s: float | None
    gpus: int


def times_of_daemons(database: Database, source: str) -> list[Gap]:
    """When a daemon watched this source, in order, without overlaps."""
    rows = database.connection.execute(
        "SELECT started_s, seen_s FROM daemons WHERE source = ? ORDER BY started_s", (source,)
    )
    spans: list[Gap] = []
    for from_s, until_s in rows:
        if spans and from_s <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(until_s, spans[-1][1])
        else:
            spans.append((from_s, until_s))
    return spans


def _gaps(spans: Sequence[Gap], from_s: float, until_s: float) -> list[Gap]:
    """The time between the spans, within these limits."""
    found = []
    for (_, end_s), (start_s, _) in pairwise(spans):
        gap = max(end_s, from_s), min(start_s, until_s)
        if gap[0] < gap[1]:
            found.append(gap)
    return found


def earlier_time(database: Database, present: Present, from_s: float) -> EarlierTime | None:
    """What earlier processes watched from then until now; ``None``: nothing of it is kept."""
    connection, own, source = database.connection, database.daemon, present.source
    if own is None:
        return None
    last = MINUTES.key(
        present.now_s + MINUTES.cell_s
    )  # later ones are of a clock that was set back
    first = MINUTES.key(math.ceil(from_s / MINUTES.cell_s) * MINUTES.cell_s)
    of_source = (
        "JOIN devices ON devices.id = "
        f"{DEVICE_OF_KEY} JOIN daemons ON daemons.id = devices.daemon"
        " WHERE key >= ? AND key < ? AND daemons.source = ? AND daemons.id != ?"
    )
    sums = ", ".join(f"sum({name})" for name in COLUMNS)
    rows = connection.execute(
        f"SELECT uuid, max(coalesce(longest_pause, 0)), {sums}"
        f" FROM minutes {of_source} GROUP BY uuid",
        (first, last, source, own),
    ).fetchall()
    if not rows:
        return None
    rare: dict[str, dict[int, int]] = {}
    for uuid, part, amount in connection.execute(
        f"SELECT uuid, part, sum(amount) FROM rare {of_source} GROUP BY uuid, part",
        (RARE.key(from_s), RARE.key(present.now_s + RARE.cell_s), source, own),
    ):
        rare.setdefault(uuid, {})[part] = amount
    totals = {}
    for uuid, longest_ms, *amounts in rows:
        by_name = dict(zip(COLUMNS, amounts, strict=True))
        totals[uuid] = totals_from(by_name, rare.get(uuid, {}), longest_ms)
    spans = times_of_daemons(database, source)
    kept_from_s = max(database.pruned_until_s(MINUTES), spans[0][0])
    begin_s = max(from_s, kept_from_s)
    return EarlierTime(
        totals=totals,
        from_s=begin_s,
        is_cut=kept_from_s > from_s + MINUTES.cell_s,
        gaps=tuple(_gaps(spans, begin_s, math.inf)),
    )


class CellSpan(NamedTuple):
    """A span in cells.

    Attributes:
        tier: The rows that it is made of.
    """

    from_s: float
    to_s: float
    cell_s: int
    tier: Tier

    @property
    def cells(self) -> int:
        return math.ceil((self.to_s - self.from_s) / self.cell_s)


def span_of(from_s: float, to_s: float, tens_from_s: float, gpus: int) -> CellSpan:
    """Divide a span into cells that begin on whole multiples of their length."""
    most = max(1, min(MAX_CELLS, _MAX_ALL_CELLS // max(1, gpus)))
    tier = TENS if from_s >= tens_from_s else MINUTES
    lengths = (*_CELL_LENGTHS_S, math.ceil((to_s - from_s) / most / 86_400 + 1) * 86_400)
    for cell_s in lengths:
        if cell_s % tier.cell_s:
            continue
        span = CellSpan(from_s // cell_s * cell_s, to_s, cell_s, tier)
        if span.cells <= most:
            # Fewer rows, where the cells are as long.
            return span._replace(tier=MINUTES) if cell_s % MINUTES.cell_s == 0 else span
    raise AssertionError("the last length is long enough")


def encoded_history(database: Database, asked: Gap, present: Present) -> bytes:
    """The body of ``/api/v1/history?from=&to=`` for a span in seconds since the epoch."""
    source = present.source
    spans = times_of_daemons(database, source)
    tens_from_s = database.pruned_until_s(TENS)
    kept_from_s = max(database.pruned_until_s(MINUTES), spans[0][0]) if spans else None
    span = span_of(*asked, tens_from_s, present.gpus)
    runs = _runs_by_gpu(database, source, span)
    head: dict[str, Any] = {
        "schema": HISTORY_SCHEMA,
        "from_s": span.from_s,
        "to_s": span.to_s,
        "cell_seconds": span.cell_s,
        "kept_from_s": kept_from_s,
        "now_s": present.now_s,
        "observed_until_s": present.observed_until_s,
        "not_running": [
            *_before_the_first(database, spans, span),
            *_gaps(spans, span.from_s, span.to_s),
        ],
    }
    # One GPU after the other: all at once would be the daemon's largest object.
    encoded = [
        encode_document(label_text(uuid)).rstrip() + b":" + encode_document(gpu).rstrip()
        for uuid, gpu in _cells_by_gpu(database, source, span, runs)
    ]
    return b'%s,"gpus":{%s}}\n' % (encode_document(head).rstrip()[:-1], b",".join(encoded))


_Runs: TypeAlias = dict[str, list[list[Any]]]


def _before_the_first(database: Database, spans: Sequence[Gap], span: CellSpan) -> list[Gap]:
    """The time before the first daemon, as long as nothing was removed."""
    if not spans or database.pruned_until_s(MINUTES) or spans[0][0] <= span.from_s:
        return []
    return [(span.from_s, min(spans[0][0], span.to_s))]


def _cells_by_gpu(
    database: Database, source: str, span: CellSpan, runs: _Runs
) -> Iterator[tuple[str, dict[str, Any]]]:
    """UUID and document of each GPU, one after the other."""
    tier, count = span.tier, span.cells
    sums = ", ".join(f"sum({name})" for name in PARTS)
    means = ", ".join(f"avg({name})" for name in LEVELS)
    first_cell = int(span.from_s) // tier.cell_s
    rows = database.connection.execute(
        f"SELECT uuid, label, name, ({CELL_OF_KEY} - ?) / ? AS cell, {sums}, {means}"
        f" FROM {tier.table} JOIN devices ON devices.id = {DEVICE_OF_KEY}"
        " JOIN daemons ON daemons.id = devices.daemon"
        " WHERE key >= ? AND key < ? AND source = ?"
        " GROUP BY uuid, cell ORDER BY uuid, cell",
        (
            first_cell, span.cell_s // tier.cell_s,
            tier.key(span.from_s), tier.key(math.ceil(span.to_s / tier.cell_s) * tier.cell_s),
            source,
        ),
    )  # fmt: skip
    for uuid, of_gpu in groupby(rows, key=itemgetter(0)):
        gpu: dict[str, Any] = {
            "parts": {},
            "observed": [0.0] * count,
            "levels": {level: [None] * count for level in _UNITS},
            "runs": runs.get(uuid, []),
        }
        for _, label, name, cell, *amounts in of_gpu:
            gpu["label"] = label_text(label)  # the newest
            gpu["name"] = None if name is None else label_text(name)
            if 0 <= cell < count:
                _fill_cell(gpu, cell, amounts, span)
        yield uuid, gpu


def _fill_cell(
    gpu: dict[str, Any], cell: int, amounts: Sequence[float | None], span: CellSpan
) -> None:
    parts_ms = dict(zip(PARTS, [amount or 0 for amount in amounts], strict=False))
    suspected = max(0, min(parts_ms["suspected"], parts_ms["unknown"]))
    parts_ms |= {"suspected": suspected, "unknown": parts_ms["unknown"] - suspected}
    observed_ms = sum(parts_ms.values())
    # Where the clock was set back, a cell holds more than its length.
    scale = min(1.0, span.cell_s * 1000 / observed_ms) / 1000 if observed_ms else 0.0
    gpu["observed"][cell] = round(observed_ms * scale, 3)
    for name, ms in parts_ms.items():
        if ms > 0:
            filled = gpu["parts"].setdefault(name, [0.0] * len(gpu["observed"]))
            filled[cell] = round(ms * scale, 3)
    levels = amounts[len(PARTS) :]
    for (name, unit), level in zip(_UNITS.items(), levels, strict=True):
        if level is not None:
            gpu["levels"][name][cell] = round(level * unit, 1)


def _runs_by_gpu(database: Database, source: str, span: CellSpan) -> _Runs:
    rows = database.connection.execute(
        "SELECT uuid, from_s, until_s, run FROM runs JOIN devices ON devices.id = runs.device"
        " JOIN daemons ON daemons.id = devices.daemon"
        " WHERE until_s >= ? AND from_s <= ? AND source = ? ORDER BY from_s",
        (span.from_s, span.to_s, source),
    )
    found: dict[str, list[list[Any]]] = {}
    for uuid, from_s, until_s, run in rows:
        found.setdefault(uuid, []).append([from_s, until_s, label_text(run)])
    return found
