"""Which column of a CSV holds what: from its header, from the user, or both."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.errors import UnreadableLogError, UsageError
from gpumon.sources.logs.table.cell_values import MIB
from gpumon.sources.logs.table.column_names import IDENTIFYING, Column
from gpumon.sources.logs.table.headings import (
    chosen_unit_is_percent,
    column_named,
    heading_is_percent,
    heading_of,
)

_ELAPSED: Final = re.compile("elapsed|relative|uptime|run_?time|since", re.I)
_OF_ANOTHER_DEVICE: Final = re.compile(
    r"(?i)(?<![a-z])(?:disk|iface|interface|[rw]/s|reads?|writes?|iowait|user|system|steal|idle|rx|tx"
    r"|net|network|cpu|swap)(?![a-z])"
)
_OF_A_GPU: Final = re.compile("(?i)gpu|cuda|vram|nvidia|mem")
_WORD: Final = re.compile(r"[^\W\d_]|%")
_VALUE: Final = re.compile(
    r"[-+]?[\d.]+(?:[eE][-+]?\d+)?\s*(?:%|[A-Za-z]{1,4})?"  # 12, 12 %, 364 MiB, 31.7 W
    r"|\d{4}[-/]\d\d?[-/]\d.*"  # a date
    r"|\[.*\]|N/A|(?:GPU|MIG)-[0-9a-f-]{4,}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnLayout:
    """The columns of a table.

    Attributes:
        width: Cells in a row; a row with more or fewer is damaged.
        positions: Position of each known column, from 0.
        stamp_unit_ns: Unit of a bare number in the stamp column.
        memory_unit_bytes: Units of bare numbers of memory in use and of total memory.
        is_elapsed: Whether a bare time is no time of day.
        is_percent: Whether utilisation is percent; ``False``: a ratio; ``None``: see the values.
    """

    width: int
    positions: Mapping[Column, int]
    stamp_unit_ns: int = NS_PER_S
    memory_unit_bytes: tuple[int, int] = (MIB, MIB)
    is_elapsed: bool = False
    is_percent: bool | None

    @property
    def stamp_positions(self) -> tuple[int, ...]:
        """The columns of the time: a date may have one of its own."""
        parts = (Column.DATE, Column.STAMP) if Column.STAMP in self.positions else ()
        return tuple(self.positions[part] for part in parts if part in self.positions)


def identifying_position(positions: Mapping[Column, int]) -> int | None:
    """Return the position of the best column that identifies GPUs; ``None``: there is none."""
    return next((positions[column] for column in IDENTIFYING if column in positions), None)


def stamp_text(cells: Sequence[str], positions: Sequence[int]) -> str:
    """Return a row's time as text."""
    return " ".join([cells[at].strip() for at in positions])


def is_elapsed_heading(heading: str) -> bool:
    """Return whether a heading of times means time since the log began."""
    return _ELAPSED.search(heading) is not None


def looks_like_header(cells: Sequence[str]) -> bool:
    """Return whether a row names relevant columns and holds no value.

    >>> looks_like_header(["timestamp", " utilization.gpu [%]"])
    True
    >>> looks_like_header(["2025/06/13 00:27:52.195", " 12 %"])
    False
    """
    texts = [cell.strip() for cell in cells]
    # An echoed command names columns, too.
    if any(_VALUE.fullmatch(text) or "--" in text for text in texts):
        return False
    # A line with the host alone stands above a header in dstat's files.
    names_one = any(column_named(text) not in (None, Column.HOST) for text in texts)
    return names_one and all(_WORD.search(text) or not text for text in texts)


def names_columns(cells: Sequence[str]) -> bool:
    """Return whether a row consists of words, as only a header does.

    >>> names_columns(["epoch", "loss", "val acc"]), names_columns(["epoch 1", "0.7"])
    (True, False)
    """
    texts = [cell.strip() for cell in cells]
    words = [text for text in texts if text]
    return bool(words) and all(
        _WORD.search(text) and not _VALUE.fullmatch(text) and "--" not in text and len(text) <= 80
        for text in words
    )


def layout_of_header(
    cells: Sequence[str], chosen: Mapping[str, int | str], line: str
) -> ColumnLayout | None:
    """Return the layout of a header; ``None`` if it has no utilisation column.

    The user's choice overrides the header. ``line`` names the line in messages.

    Raises:
        UnreadableLogError: Several columns could be the utilisation.
        UsageError: The user named a column that does not exist.
    """
    positions: dict[Column, int] = {}
    named = [column_named(cell.strip()) for cell in cells]
    for position, column in enumerate(named):
        if column is not None and column is not Column.UTILIZATION:
            positions.setdefault(column, position)
    by_user = chosen_columns(chosen, len(cells), cells)
    if Column.UTILIZATION not in by_user:
        utilization = _surest_utilization(cells, named, line)
        if utilization is not None:
            positions[Column.UTILIZATION] = utilization
    positions = {
        column: at for column, at in positions.items() if at not in by_user.values()
    } | by_user
    if Column.UTILIZATION not in positions:
        return None
    if Column.STAMP not in positions and Column.DATE in positions:
        positions[Column.STAMP] = positions.pop(Column.DATE)
    stamp = _heading(cells, positions, Column.STAMP)
    percent = chosen_unit_is_percent(chosen)
    if percent is None:
        percent = heading_is_percent(_heading(cells, positions, Column.UTILIZATION))
    return ColumnLayout(
        width=len(cells),
        positions=positions,
        stamp_unit_ns=_unit_of(stamp, Column.STAMP, NS_PER_S),
        memory_unit_bytes=(
            _unit_of(_heading(cells, positions, Column.MEMORY_USED), Column.MEMORY_USED, MIB),
            _unit_of(_heading(cells, positions, Column.MEMORY_TOTAL), Column.MEMORY_TOTAL, MIB),
        ),
        is_elapsed=is_elapsed_heading(stamp),
        is_percent=percent,
    )


def _surest_utilization(
    cells: Sequence[str], named: Sequence[Column | None], line: str
) -> int | None:
    found = [at for at, column in enumerate(named) if column is Column.UTILIZATION]
    ranks = {at: meant.rank for at in found if (meant := heading_of(cells[at])) is not None}
    candidates = [at for at in found if ranks[at] == min(ranks.values())]
    if len(candidates) > 1:
        raise UnreadableLogError(
            f"{line}: the utilisation could be any of the columns "
            + ", ".join(f'{at + 1} "{cells[at].strip()[:40]}"' for at in candidates)
            + f"; choose one: --column utilization.gpu={candidates[0] + 1}"
        )
    if candidates and ranks[candidates[0]]:
        _refuse_of_another_device(cells, candidates[0], line)
    return candidates[0] if candidates else None


def _refuse_of_another_device(cells: Sequence[str], at: int, line: str) -> None:
    """Refuse a bare "utilization" that may be a disk's, a network's or a processor's."""
    texts = [cell.strip() for cell in cells]
    others = [text for text in texts if _OF_ANOTHER_DEVICE.search(text)]
    if others and not any(_OF_A_GPU.search(text) for text in texts):
        raise UnreadableLogError(
            f'{line}: nothing in the header names a GPU, and "{others[0][:40]}" is of a disk, a '
            f'network or a processor: "{texts[at][:40]}" may be of it, too; if it is a GPU\'s, use '
            f"--column utilization.gpu={at + 1}"
        )


def _unit_of(heading: str, column: Column, default: int) -> int:
    meant = heading_of(heading)
    return meant.unit if meant is not None and meant.column is column else default


def _heading(cells: Sequence[str], positions: Mapping[Column, int], column: Column) -> str:
    return cells[positions[column]].strip() if column in positions else ""


def chosen_columns(
    chosen: Mapping[str, int | str], width: int, headings: Sequence[str] = ()
) -> dict[Column, int]:
    """Return the columns that the user named, as positions from 0.

    Args:
        chosen: Column name to position, from 0, or to heading.
        width: Number of columns in the log.
        headings: Empty if the log has no header.

    Raises:
        UsageError: A name is no relevant column, or the log has no such column.
    """
    positions: dict[Column, int] = {}
    for name, place in chosen.items():
        column = column_named(name)
        if column is None:
            raise unknown_column(name)
        if isinstance(place, str):
            positions[column] = _position_of(place, headings, name)
        elif 0 <= place < width:
            positions[column] = place
        else:
            raise UsageError(
                f"--column {name}={place + 1}: the log has {width} columns, counted from 1"
            )
    return positions


def unknown_column(name: str) -> UsageError:
    """Return the error for a column name without a meaning."""
    known = ", ".join(column.value for column in Column)
    return UsageError(f"--column {name}: not a column gpumon uses; it uses {known}")


def _position_of(heading: str, headings: Sequence[str], name: str) -> int:
    if not headings:
        raise UsageError(
            f"--column {name}={heading}: the log has no header; give its number, counted from 1"
        )
    texts = [text.strip() for text in headings]
    if heading.strip() in texts:
        return texts.index(heading.strip())
    headers = ", ".join(text for text in texts if text)[:200]
    raise UsageError(f"--column {name}={heading}: the log has no such column; it has {headers}")
