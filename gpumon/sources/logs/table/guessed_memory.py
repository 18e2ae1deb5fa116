"""Which column is the memory in use, in a log without a header: by what its values do, or none."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Final

from gpumon.sources.logs.table.headings import IDENTIFYING, Column

_MIB: Final = re.compile(r"(\d{1,9})\s*MiB", re.ASCII)
_MIN_SHARE: Final = 0.8
"""Share of the rows in which a column must count MiB."""
_NEARLY_ALL: Final = 0.98
_NOISE: Final = 0.01
"""What is in use changes by so little, of its most, without any work."""
_NUMBER: Final = re.compile(r"(\d+(?:[.,]\d+)?)\s*%?", re.ASCII)


def memory_among(
    body: Sequence[Sequence[str]], positions: Mapping[Column, int]
) -> tuple[dict[Column, int], str]:
    """The columns of memory in use and of all memory, and a sentence about those not read.

    The memory of a GPU is the largest of its columns in MiB and never changes. Beside it, what
    is in use is the only other one, or the one that grows with the work; it is never less while the
    GPU works, as free memory is. A column alone is what is in use if it changes: nothing else
    could be told from the memory of the GPU. Without that memory, two are not told apart.

    Args:
        body: The first rows, their cells without surrounding blanks.
        positions: What is known, the utilisation included.
    """
    columns = [
        at
        for at in range(len(body[0]) if body else 0)
        if at not in positions.values()
        and sum(_MIB.fullmatch(row[at]) is not None for row in body) >= _MIN_SHARE * len(body)
    ]
    if not columns:
        return {}, ""
    gpus = _by_gpu(body, columns, positions)
    total = _total_among(columns, gpus)
    used = _used_among([at for at in columns if at != total], total, gpus)
    if used is None:
        return {}, _unread(columns)
    found = {Column.MEMORY_USED: used}
    return found if total is None else {**found, Column.MEMORY_TOTAL: total}, ""


_Rows = Sequence[tuple[float, Mapping[int, int]]]
"""Of one GPU: its utilisation, and MiB by column."""


def _by_gpu(
    body: Sequence[Sequence[str]], columns: Sequence[int], positions: Mapping[Column, int]
) -> list[_Rows]:
    key_at = next((positions[one] for one in IDENTIFYING if one in positions), None)
    gpus: dict[str, list[tuple[float, Mapping[int, int]]]] = {}
    for row in body:
        matches = {at: _MIB.fullmatch(row[at]) for at in columns}
        cells = {at: int(found[1]) for at, found in matches.items() if found is not None}
        busy = _NUMBER.fullmatch(row[positions[Column.UTILIZATION]])
        if len(cells) == len(columns) and busy is not None:
            key = "" if key_at is None else row[key_at]
            gpus.setdefault(key, []).append((float(busy[1].replace(",", ".")), cells))
    return list(gpus.values())


def _total_among(columns: Sequence[int], gpus: Sequence[_Rows]) -> int | None:
    """The column that no other one ever exceeds and that never changes; ``None``: there is none."""
    largest = [
        at
        for at in columns
        if all(cells[at] == max(cells.values()) for rows in gpus for _, cells in rows)
    ]
    is_one = len(columns) > 1 and len(largest) == 1 and not _changes(largest[0], gpus)
    return largest[0] if is_one else None


def _used_among(others: Sequence[int], total: int | None, gpus: Sequence[_Rows]) -> int | None:
    if total is None and len(others) > 1:
        return None
    growth = {at: _growth(at, gpus) for at in others}
    growing = [at for at in others if growth[at] > 0]
    if growing or len(others) != 1 or growth[others[0]] < 0:
        return growing[0] if len(growing) == 1 else None
    (alone,) = others
    if _changes(alone, gpus):
        return alone
    # What is free of a GPU that nobody uses is nearly all of it, and never changes either.
    is_less = total is not None and any(
        cells[alone] < _NEARLY_ALL * cells[total] for rows in gpus for _, cells in rows
    )
    return alone if is_less else None


def _changes(column: int, gpus: Sequence[_Rows]) -> bool:
    return any(len({cells[column] for _, cells in rows}) > 1 for rows in gpus)


def _growth(column: int, gpus: Sequence[_Rows]) -> float:
    """By how much more is in use, MiB, in rows in which the GPUs work; 0 where nothing shows it."""
    grown = 0.0
    for rows in gpus:
        at_work = [cells[column] for busy, cells in rows if busy]
        idle = [cells[column] for busy, cells in rows if not busy]
        if at_work and idle:
            grown += mean(at_work) - mean(idle)
    most = max((cells[column] for rows in gpus for _, cells in rows), default=0)
    return grown if abs(grown) > _NOISE * most else 0.0


def _unread(columns: Sequence[int]) -> str:
    if len(columns) == 1:
        return (
            f" Column {columns[0] + 1} counts MiB, and nothing says that it is memory.used: "
            "it was not read."
        )
    listed = ", ".join(str(at + 1) for at in columns)
    return f" Columns {listed} count MiB, and nothing says which is memory.used: none was read."
