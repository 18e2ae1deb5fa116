"""Lines of the table that nvidia-smi prints for people, of any driver since 390."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from gpumon.sources.logs.memory_cells import MemoryCells

_BUS_ID: Final = re.compile(r"\b[0-9A-F]{4,8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-9A-F]\b", re.I)
_INDEX_AND_NAME: Final = re.compile(r"(\d{1,4})\s+(\S.*\s)\S{2,4}", re.ASCII)
_ANSWER_AND_MODE: Final = re.compile(r"\s*(\S+)\s+\S.*", re.DOTALL)
_INSTANCE: Final = re.compile(r"\s*(\d{1,4})\s+\d{1,4}\s+\d{1,4}\s+(\d{1,4})\s*", re.ASCII)
_GPU_ROW_CELLS: Final = 5
_INSTANCE_ROW_CELLS: Final = 6
"""The frame stands at both ends of a row: a row that was cut has fewer."""


class Section(Enum):
    """The part of a table that a heading opens."""

    OUTSIDE = "outside"
    GPUS = "NVIDIA-SMI"
    INSTANCES = "MIG devices:"
    PROCESSES = "Processes:"


class NameRow(NamedTuple):
    """The first row of a GPU."""

    gpu_index: int
    name: str


class AnswerRow(NamedTuple):
    """The second row of a GPU.

    Attributes:
        utilization: As written, ``"29%"`` or ``"N/A"``.
        used_bytes: ``None``: no answer.
        total_bytes: Likewise.
    """

    utilization: str
    used_bytes: int | None
    total_bytes: int | None


class InstanceRow(NamedTuple):
    """The row of a MIG instance that has its memory.

    Attributes:
        gpu_index: Of the GPU it is a part of.
        mig_index: Of the instance on that GPU.
        used_bytes: ``None``: no answer.
        total_bytes: Likewise.
    """

    gpu_index: int
    mig_index: int
    used_bytes: int | None
    total_bytes: int | None


def section_opened_by(bare: str) -> Section | None:
    """The section a framed line opens; ``None`` where it is another line of the table."""
    title = bare[1:20].lstrip()
    for section in (Section.GPUS, Section.INSTANCES, Section.PROCESSES):
        if title.startswith(section.value):
            return section
    return None


def is_rule(bare: str) -> bool:
    """Whether a line of the frame has no text."""
    return bare.startswith("+") or bare[1:2] in ("-", "=")


def name_row(cells: Sequence[str]) -> NameRow | None:
    """Which GPU the next row speaks of."""
    if len(cells) != _GPU_ROW_CELLS or _BUS_ID.search(cells[2]) is None:
        return None
    found = _INDEX_AND_NAME.fullmatch(cells[1].strip())
    return NameRow(int(found[1]), found[2].rstrip()) if found else None


def answer_row(cells: Sequence[str], memory: MemoryCells) -> AnswerRow | None:
    """What a GPU answered."""
    if len(cells) != _GPU_ROW_CELLS or "/" not in cells[1]:
        return None
    found = _ANSWER_AND_MODE.fullmatch(cells[3])
    if found is None:
        return None
    used, _, total = cells[2].partition("/")
    return AnswerRow(found[1], memory.bytes_of(used), memory.bytes_of(total))


def says_mig_is_on(cells: Sequence[str]) -> bool:
    """Whether the third row of a GPU says that it is cut into MIG instances."""
    return len(cells) == _GPU_ROW_CELLS and cells[3].strip() == "Enabled" and not cells[1].strip()


def instance_row(cells: Sequence[str], memory: MemoryCells) -> InstanceRow | None:
    """The memory of a MIG instance; nvidia-smi's table has no utilisation of it."""
    if len(cells) != _INSTANCE_ROW_CELLS:
        return None
    found = _INSTANCE.fullmatch(cells[1])
    if found is None:
        return None
    used, _, total = cells[2].partition("/")
    return InstanceRow(int(found[1]), int(found[2]), memory.bytes_of(used), memory.bytes_of(total))


def is_heading(cells: Sequence[str]) -> bool:
    """Whether a framed line of the GPUs' section only names what is below it, or says nothing."""
    text = cells[1] if len(cells) > 1 else ""
    if len(cells) == _GPU_ROW_CELLS and not text.strip():
        return not cells[2].strip()
    return text.strip().startswith(("GPU  Name", "Fan  Temp"))
