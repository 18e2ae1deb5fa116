"""What headings of other people's logs mean: which column, and in which unit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from gpumon.sources.logs.stamps.stamp_parsers import UNITS_NS
from gpumon.sources.logs.table.cell_values import BYTES_OF_UNIT, MIB


class Column(str, Enum):
    """Columns that matter here, as nvidia-smi calls them."""

    UTILIZATION = "utilization.gpu"
    STAMP = "timestamp"
    DATE = "date"
    INDEX = "index"
    UUID = "uuid"
    BUS_ID = "pci.bus_id"
    SERIAL = "serial"
    NAME = "name"
    MEMORY_USED = "memory.used"
    MEMORY_TOTAL = "memory.total"


IDENTIFYING: Final = (Column.UUID, Column.BUS_ID, Column.INDEX, Column.SERIAL)
"""Columns that tell two GPUs apart, the surest first."""

SURE_NAMES: Final = (
    "utilization_gpu", "gpu_utilization", "gpu_util", "gpu_usage", "gpu_use", "util_gpu",
    "gpu_utilisation", "utilisation_gpu", "gpu_busy", "gpu_utilization_ratio", "gpu_percent",
    "gpu_load", "load_gpu", "gpu_activity", "gpu_sm_util", "gpu_utilization_rate",
)  # fmt: skip
_LIKELY: Final = (
    "utilization", "utilisation", "util", "usage", "busy", "busy_ratio", "utilization_ratio",
    "utilization_rate", "sm", "sm_util", "load", "activity",
)  # fmt: skip
"""Names of a GPU's utilisation where nothing has a surer one."""
_ALIASES: Final = MappingProxyType(
    {
        Column.UTILIZATION: (*SURE_NAMES, *_LIKELY),
        Column.STAMP: (
            "timestamp", "time", "datetime", "date_time", "relative_time", "elapsed",
            "elapsed_time", "time_stamp", "seconds", "second", "unix_time", "epoch_time", "t",
            "ts", "unix_timestamp", "epoch_timestamp", "local_time", "wall_time", "time_elapsed",
            "runtime", "run_time", "uptime", "clock", "when", "logged_at",
        ),
        Column.DATE: ("date", "day"),
        Column.INDEX: ("index", "gpu_index", "gpu_id", "gpu", "device", "device_id", "gpu_idx",
                       "gpu_number", "gpu_no", "device_index"),
        Column.UUID: ("uuid", "gpu_uuid"),
        Column.BUS_ID: ("pci_bus_id", "gpu_bus_id", "bus_id"),
        Column.SERIAL: ("serial", "gpu_serial"),
        Column.NAME: ("name", "gpu_name", "device_name", "product_name"),
        Column.MEMORY_USED: (
            "memory_used", "used_memory", "mem_used", "used_mem", "gpu_memory_used",
            "gpu_mem_used", "memory_usage", "gpu_memory_usage", "vram_used", "fb_used",
            "fb_memory_usage_used", "gpu_memory", "vram",
        ),
        Column.MEMORY_TOTAL: (
            "memory_total", "total_memory", "mem_total", "total_mem", "gpu_memory_total",
            "gpu_mem_total", "vram_total", "fb_memory_usage_total",
        ),
    }
)  # fmt: skip
_COLUMN_OF_ALIAS: Final = MappingProxyType(
    {alias: column for column, aliases in _ALIASES.items() for alias in aliases}
)
_PREFIXES: Final = ("nvidia_", "nvml_", "nvidia_smi_")
_UNITS_ALONE: Final = frozenset({"milliseconds", "minutes", "hours"})
PERCENT_WORDS: Final = frozenset({"percent", "pct", "%"})
_RATIO_NAMES: Final = frozenset({"busy_ratio", "utilization_ratio", "gpu_utilization_ratio"})


_IN_BRACKETS: Final = re.compile(r"[\[(].*?[\])]")
_BETWEEN_WORDS: Final = re.compile(r"[^a-z0-9]+")
_FIRST_WORD: Final = re.compile(r"[\[(]|[A-Za-z0-9]+")
_FIRST_WORDS: Final = frozenset(
    [alias.partition("_")[0] for alias in _COLUMN_OF_ALIAS]
    + [prefix.partition("_")[0] for prefix in _PREFIXES]
    + [*_UNITS_ALONE, "[", "("]
)
_LONGEST_HEADING: Final = 200


def column_named(text: str) -> Column | None:
    """The column a heading means; ``None``: none that matters."""
    # Nearly every cell of a file that is no log ends here: the rest takes ten times as long.
    first = _FIRST_WORD.search(text)
    if first is None or first[0].lower() not in _FIRST_WORDS or len(text) > _LONGEST_HEADING:
        return None
    name = plain_name(text)[0]
    if name == "gpu" and (says_percent(text) or "util" in text.lower()):
        return Column.UTILIZATION
    return _COLUMN_OF_ALIAS.get(name)


def plain_name(text: str) -> tuple[str, int]:
    """A heading without its unit, and that unit in nanoseconds (0: none, or not of time).

    >>> plain_name("utilization.gpu [%]"), plain_name("Relative_Time_ms")
    (('utilization_gpu', 0), ('relative_time', 1000000))
    """
    name = _BETWEEN_WORDS.sub("_", _IN_BRACKETS.sub("", text.lower())).strip("_")
    if name.startswith("nv"):
        for prefix in _PREFIXES:
            if name.removeprefix(prefix) in _COLUMN_OF_ALIAS:
                name = name.removeprefix(prefix)
    if name in _COLUMN_OF_ALIAS:
        return name, _unit_in_brackets(text)
    if name in _UNITS_ALONE:
        return "time", UNITS_NS[name]
    head, _, unit = name.rpartition("_")
    if head and (unit in UNITS_NS or unit in PERCENT_WORDS):
        return head, UNITS_NS.get(unit, 0)
    if unit in BYTES_OF_UNIT and head in _COLUMN_OF_ALIAS:
        return head, 0
    return name, 0


def _unit_in_brackets(text: str) -> int:
    found = re.search(r"[\[(]\s*([a-z]+)\s*[\])]", text.lower())
    return UNITS_NS.get(found[1], 0) if found else 0


def says_percent(heading: str) -> bool | None:
    """Whether a heading means percent (``True``), a ratio (``False``), or does not say."""
    if plain_name(heading)[0] in _RATIO_NAMES:
        return False
    lowered = heading.lower()
    if "utilization.gpu" in lowered or any(word in lowered for word in PERCENT_WORDS):
        return True
    return None


def told_columns(told: Mapping[str, int | str]) -> dict[Column, int | str]:
    """What a user said of columns, by what each of them is; names of none are left out.

    >>> told_columns({"utilization.gpu [%]": 1, "mood": 2})
    {<Column.UTILIZATION: 'utilization.gpu'>: 1}
    """
    named = {column_named(name): place for name, place in told.items()}
    return {column: place for column, place in named.items() if column is not None}


def told_percent(told: Mapping[str, int | str]) -> bool | None:
    """Whether a user said percent (``True``) or share (``False``) with the utilisation's name.

    >>> told_percent({"utilization.gpu [%]": 1}), told_percent({"utilization.gpu [ratio]": 1})
    (True, False)
    >>> told_percent({"utilization.gpu": 1}) is None
    True
    """
    for name in told:
        if column_named(name) is Column.UTILIZATION:
            lowered = name.lower()
            if any(word in lowered for word in PERCENT_WORDS):
                return True
            if any(word in lowered for word in ("ratio", "share")):
                return False
    return None


def memory_unit_of(heading: str) -> int:
    """Bytes that a bare number under a heading counts.

    >>> memory_unit_of("memory.used [MiB]"), memory_unit_of("memory_used_bytes")
    (1048576, 1)
    """
    words = re.split(r"[^a-z]+", heading.lower())
    return next((BYTES_OF_UNIT[word] for word in words if word in BYTES_OF_UNIT), MIB)
