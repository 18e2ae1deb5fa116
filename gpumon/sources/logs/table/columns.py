"""The columns that matter in a table, and what the heading of one may say."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple


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
    HOST = "host"
    MEMORY_USED = "memory.used"
    MEMORY_TOTAL = "memory.total"
    MIG = "mig.mode.current"


IDENTIFYING: Final = (Column.UUID, Column.BUS_ID, Column.INDEX, Column.SERIAL)
"""Columns that tell two GPUs apart, the surest first."""


class HeadingGpu(NamedTuple):
    """A GPU as a heading names it.

    Attributes:
        owner: The run or node it belongs to; ``""``: the heading does not say.
        number: Its index there; ``None``: the heading does not say.
        mig_index: Number of the MIG instance on it.
        uuid: Of the GPU.
    """

    owner: str
    number: int | None
    mig_index: int | None = None
    uuid: str | None = None


@dataclass(frozen=True, slots=True)
class Heading:
    """The meaning of one heading.

    Attributes:
        column: What the column holds.
        gpu: Of which GPU, where the heading says it: such a table has a column for each GPU.
        rank: Of several columns that hold the same, the one with the lowest is read.
        unit: Bytes or nanoseconds that a 1 stands for.
        is_percent: Of a utilisation; ``None``: the values have to show it.
        is_optional: Whether rows of others leave the cell blank.
        is_worded: Whether anybody may have written it, so that the values may contradict it.
    """

    column: Column
    gpu: HeadingGpu | None = None
    rank: int = 0
    unit: int = 1
    is_percent: bool | None = True
    is_optional: bool = False
    is_worded: bool = False
