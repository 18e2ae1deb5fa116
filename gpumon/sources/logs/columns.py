"""Which column of a CSV log says what: by its header, by what the user says, or both."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final

from gpumon.core.units import NS_PER_S
from gpumon.errors import UsageError


class Column(str, Enum):
    """Columns that matter here, as nvidia-smi calls them."""

    UTILIZATION = "utilization.gpu"
    STAMP = "timestamp"
    INDEX = "index"
    UUID = "uuid"
    BUS_ID = "pci.bus_id"
    SERIAL = "serial"
    NAME = "name"


IDENTIFYING: Final = (Column.UUID, Column.BUS_ID, Column.INDEX, Column.SERIAL)
"""Columns that tell two GPUs apart, the surest first."""

_ALIASES: Final = MappingProxyType(
    {
        Column.UTILIZATION: (
            "utilization_gpu", "gpu_utilization", "gpu_util", "gpu_usage", "gpu_use", "util_gpu",
            "utilization", "utilisation", "gpu_utilisation", "util", "gpu_busy", "busy_ratio",
            "utilization_ratio", "gpu_utilization_ratio", "gpu_percent", "gpu_load",
        ),
        Column.STAMP: (
            "timestamp", "time", "datetime", "date_time", "relative_time", "elapsed",
            "elapsed_time", "time_stamp", "seconds", "second", "unix_time", "epoch_time", "t",
        ),
        Column.INDEX: ("index", "gpu_index", "gpu_id", "gpu", "device", "device_id", "gpu_idx"),
        Column.UUID: ("uuid", "gpu_uuid"),
        Column.BUS_ID: ("pci_bus_id", "gpu_bus_id"),
        Column.SERIAL: ("serial", "gpu_serial"),
        Column.NAME: ("name", "gpu_name", "device_name", "product_name"),
    }
)  # fmt: skip
_COLUMN_OF_ALIAS: Final = MappingProxyType(
    {alias: column for column, aliases in _ALIASES.items() for alias in aliases}
)
_UNIT_ENDINGS: Final = MappingProxyType(
    {"_ns": 1, "_us": 1_000, "_ms": 1_000_000, "_s": NS_PER_S, "_sec": NS_PER_S,
     "_seconds": NS_PER_S, "_percent": 0, "_pct": 0}
)  # fmt: skip
_WORD: Final = re.compile(r"[A-Za-z]")
_VALUE: Final = re.compile(
    r"[-+]?[\d.]+(?:[eE][-+]?\d+)?\s*(?:%|[A-Za-z]{1,4})?"  # 12, 12 %, 364 MiB, 31.7 W
    r"|\d{4}[-/]\d\d?[-/]\d.*"  # a date
    r"|\[.*\]|N/A|GPU-.*"
)
_RATIO_NAMES: Final = frozenset({"busy_ratio", "utilization_ratio", "gpu_utilization_ratio"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnLayout:
    """Where to look in a row.

    Attributes:
        width: Cells in a row; a row with more or fewer is damaged.
        positions: Where each known column is, from 0.
        stamp_unit_ns: What a bare number in the stamp column counts.
        is_percent: Whether utilisation is surely percent; ``None``: the
            values have to tell; ``False``: surely a ratio.
    """

    width: int
    positions: Mapping[Column, int]
    stamp_unit_ns: int = NS_PER_S
    is_percent: bool | None = True

    def identifying_position(self) -> int | None:
        """The column that tells GPUs apart; ``None``: no such column."""
        for column in IDENTIFYING:
            if column in self.positions:
                return self.positions[column]
        return None


def looks_like_header(cells: Sequence[str]) -> bool:
    """Whether a row names columns that matter here and holds no value.

    >>> looks_like_header(["timestamp", " utilization.gpu [%]"])
    True
    >>> looks_like_header(["2025/06/13 00:27:52.195", " 12 %"])
    False
    """
    texts = [cell.strip() for cell in cells]
    if any(_VALUE.fullmatch(text) for text in texts):
        return False
    return any(_column_named(text) for text in texts) and all(
        _WORD.search(text) or not text for text in texts
    )


def layout_of_header(cells: Sequence[str], chosen: Mapping[str, int | str]) -> ColumnLayout | None:
    """The layout a header announces; ``None`` if it has no utilisation column.

    Args:
        cells: The header row.
        chosen: What the user said, which goes before the header.
    """
    positions: dict[Column, int] = {}
    for position, cell in enumerate(cells):
        column = _column_named(cell.strip())
        if column is not None:
            positions.setdefault(column, position)
    positions.update(chosen_columns(chosen, len(cells)))
    if Column.UTILIZATION not in positions:
        return None
    utilization = cells[positions[Column.UTILIZATION]].strip()
    stamp = cells[positions[Column.STAMP]].strip() if Column.STAMP in positions else ""
    return ColumnLayout(
        width=len(cells),
        positions=positions,
        stamp_unit_ns=_plain_name(stamp)[1] or NS_PER_S,
        is_percent=_says_percent(utilization),
    )


def contradicted_headings(cells: Sequence[str], chosen: Mapping[str, int | str]) -> list[str]:
    """A sentence for each column that the user names otherwise than the header does.

    >>> contradicted_headings(["time", "index"], {"utilization.gpu": 1})
    ['The header calls column 2 "index"; taken as utilization.gpu as told.']
    """
    headings = {
        column: (position, cells[position].strip())
        for column, position in chosen_columns(chosen, len(cells)).items()
    }
    return [
        f'The header calls column {position + 1} "{heading[:60]}"; taken as {column.value} as told.'
        for column, (position, heading) in headings.items()
        if heading and _column_named(heading) is not column
    ]


def chosen_columns(chosen: Mapping[str, int | str], width: int) -> dict[Column, int]:
    """The columns the user named, as positions from 0.

    Raises:
        UsageError: A name that is no column of interest, or a column the log does not have.
    """
    positions: dict[Column, int] = {}
    for name, position in chosen.items():
        column = _column_named(name)
        if column is None:
            known = ", ".join(column.value for column in Column)
            raise UsageError(f"--column {name}: not a column gpumon uses; it uses {known}")
        if isinstance(position, str) or not 0 <= position < width:
            if isinstance(position, str):
                raise UsageError(f"--column {name}={position}: is no column, counted from 1")
            raise UsageError(
                f"--column {name}={position + 1}: the log has {width} columns, counted from 1"
            )
        positions[column] = position
    return positions


def _column_named(text: str) -> Column | None:
    return _COLUMN_OF_ALIAS.get(_plain_name(text)[0])


def _plain_name(text: str) -> tuple[str, int]:
    """A heading without its unit, and that unit in nanoseconds (0: none, or not of time).

    >>> _plain_name("utilization.gpu [%]"), _plain_name("Relative_Time_ms")
    (('utilization_gpu', 0), ('relative_time', 1000000))
    """
    bare = re.sub(r"[\[(].*?[\])]", "", text.lower())
    name = re.sub(r"[^a-z0-9]+", "_", bare).strip("_")
    if name in _COLUMN_OF_ALIAS:
        return name, _unit_in_brackets(text)
    for ending, unit_ns in _UNIT_ENDINGS.items():
        if name.endswith(ending):
            return name[: -len(ending)], unit_ns
    return name, 0


def _unit_in_brackets(text: str) -> int:
    found = re.search(r"[\[(]\s*([a-z]+)\s*[\])]", text.lower())
    return _UNIT_ENDINGS.get(f"_{found[1]}", 0) if found else 0


def _says_percent(heading: str) -> bool | None:
    if _plain_name(heading)[0] in _RATIO_NAMES:
        return False
    lowered = heading.lower()
    if "%" in lowered or "percent" in lowered or "pct" in lowered or "utilization.gpu" in lowered:
        return True
    return None
