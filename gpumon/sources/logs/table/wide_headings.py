"""What the heading of a column means in a table that has one row for all GPUs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.core.clock import NS_PER_S
from gpumon.sources.logs.stamps.stamp_parsers import UNITS_NS
from gpumon.sources.logs.table.cell_values import MIB
from gpumon.sources.logs.table.headings import PERCENT_WORDS


class Quantity(Enum):
    """What a column tells."""

    UTILIZATION = 0
    MEMORY_USED = 1
    MEMORY_TOTAL = 2
    STAMP = 3


class Dialect(Enum):
    """Who wrote the table."""

    WANDB = "Weights & Biases"
    NVITOP = "nvitop"
    PLAIN = "nobody in particular"


class WideGpu(NamedTuple):
    """A GPU as a heading names it.

    Attributes:
        owner: The run or node it belongs to; ``""``: the heading does not say.
        number: Its index there.
        mig_index: Number of the MIG instance on it.
    """

    owner: str
    number: int
    mig_index: int | None = None


@dataclass(frozen=True, slots=True)
class WideHeading:
    """The meaning of one heading.

    Attributes:
        quantity: What the column tells.
        dialect: Who writes headings like that.
        gpu: Of which GPU; ``None`` for the time.
        rank: Of several columns that tell the same, the one with the lowest is read.
        unit: Bytes or nanoseconds that a 1 stands for.
        is_percent: Of a utilisation; ``None``: the values have to tell.
    """

    quantity: Quantity
    dialect: Dialect
    gpu: WideGpu | None = None
    rank: int = 0
    unit: int = 1
    is_percent: bool | None = True


_WANDB: Final = re.compile(
    r"(?:(?P<run>.+) - )?(?:system[./])?gpu\.(?P<gpu>\d{1,4})\."
    r"(?P<what>gpu|memoryAllocatedBytes)(?:/l:(?P<node>.+))?",
    re.ASCII,
)
_NVITOP: Final = re.compile(
    r"(?P<tag>.+?)/(?:cuda:\d+ \()?gpu:(?:(?P<gpu>\d{1,4})(?::(?P<part>\d+))?"
    r"|\((?P<mig_gpu>\d{1,4}), (?P<mig_part>\d+)\))\)?/"
    r"(?P<what>gpu_utilization \(%\)|memory_used \(MiB\)|memory_total \(MiB\))"
    r"(?:/(?P<how>mean|last))?",
    re.ASCII,
)
_NVITOP_STAMP: Final = re.compile(r".+/(?P<what>timestamp|duration \(s\))(?:/(?:mean|last))?")
_NVITOP_WHAT: Final = MappingProxyType(
    {
        "gpu_utilization (%)": (Quantity.UTILIZATION, 1),
        "memory_used (MiB)": (Quantity.MEMORY_USED, MIB),
        "memory_total (MiB)": (Quantity.MEMORY_TOTAL, MIB),
    }
)
_STAMPS: Final = (
    "_timestamp", "timestamp", "wall time", "unix_time", "epoch", "datetime", "date_time", "date",
    "time", "_runtime", "relative time (process)", "relative time (wall)", "relative time",
    "runtime", "elapsed", "elapsed_time", "relative_time", "seconds", "t",
)  # fmt: skip
_STAMP_UNIT: Final = re.compile(r"(?:[\[(](?P<unit>[a-z]{1,12})[\])]|_(?P<end>[a-z]{1,12}))\Z")
_WORDS: Final = re.compile(r"[a-z]+|\d+|%|[^a-z0-9%\s_.:/()\[\]-]", re.ASCII)
_LONGEST: Final = 1_000
"""Characters of a heading that means something: names of a run and of a node are in it."""
_DEVICE_WORDS: Final = frozenset({"gpu", "cuda", "device"})
_SURE_WORDS: Final = frozenset({"util", "utilization", "utilisation"})
_BUSY_WORDS: Final = _SURE_WORDS | PERCENT_WORDS | {"usage", "load", "busy", "ratio"}
_MEMORY_WORDS: Final = frozenset({"mem", "memory", "vram", "used", "usage", "fb"})
_MEMORY_UNITS: Final = MappingProxyType(
    {"bytes": 1, "mib": MIB, "mb": MIB, "gib": 1 << 30, "gb": 1 << 30}
)


def meaning_of(heading: str) -> WideHeading | None:
    """What a heading means; ``None``: nothing that matters here.

    >>> meaning_of("night-run - system/gpu.1.gpu").gpu
    WideGpu(owner='night-run', number=1, mig_index=None)
    >>> meaning_of("night-run - system/gpu.1.gpu__MAX"), meaning_of("system.gpu.process.0.gpu")
    (None, None)
    """
    text = heading.strip()
    if len(text) > _LONGEST:
        return None
    return _wandb(text) or _nvitop(text) or _stamp(text) or _plain(text)


def _wandb(text: str) -> WideHeading | None:
    found = _WANDB.fullmatch(text)
    if found is None:
        return None
    is_busy = found["what"] == "gpu"
    owner = " on ".join(filter(None, (found["run"], found["node"])))
    return WideHeading(
        Quantity.UTILIZATION if is_busy else Quantity.MEMORY_USED,
        Dialect.WANDB,
        WideGpu(owner, int(found["gpu"])),
    )


def _nvitop(text: str) -> WideHeading | None:
    found = _NVITOP.fullmatch(text)
    if found is None:
        stamp = _NVITOP_STAMP.fullmatch(text)
        if stamp is None:
            return None
        # One collection may run inside another: the outer one has the shorter name.
        rank = text.count("/") + (100 if stamp["what"] != "timestamp" else 0)
        return WideHeading(Quantity.STAMP, Dialect.NVITOP, rank=rank, unit=NS_PER_S)
    quantity, unit = _NVITOP_WHAT[found["what"]]
    index = found["gpu"] or found["mig_gpu"]
    part = found["part"] or found["mig_part"]
    return WideHeading(
        quantity,
        Dialect.NVITOP,
        WideGpu("", int(index), int(part) if part else None),
        rank=2 * found["tag"].count("/") + (found["how"] == "last"),
        unit=unit,
    )


def _stamp(text: str) -> WideHeading | None:
    bare, unit = text.lower(), NS_PER_S
    if bare not in _STAMPS:
        found = _STAMP_UNIT.search(bare)
        if found is None or (found["unit"] or found["end"]) not in UNITS_NS:
            return None
        bare, unit = bare[: found.start()].rstrip(), UNITS_NS[found["unit"] or found["end"]]
    if bare not in _STAMPS:
        return None
    return WideHeading(Quantity.STAMP, Dialect.PLAIN, rank=200 + _STAMPS.index(bare), unit=unit)


def _plain(text: str) -> WideHeading | None:
    """``gpu0``, ``GPU 1 utilization (%)``, ``gpu_2_mem_used_mib``: one number, known words only."""
    if len(text) > 60:
        return None
    words = _WORDS.findall(text.lower())
    numbers = [word for word in words if word.isdecimal()]
    if len(numbers) != 1 or len(numbers[0]) > 4:
        return None
    others = {word for word in words if not word.isdecimal()}
    gpu = WideGpu("", int(numbers[0]))
    said = others - _DEVICE_WORDS
    if said <= _BUSY_WORDS:
        if not (others & _DEVICE_WORDS or said & _SURE_WORDS):
            return None
        is_percent = True if said & PERCENT_WORDS else False if "ratio" in said else None
        rank = 0 if said & _SURE_WORDS else 1 if said else 2
        return WideHeading(
            Quantity.UTILIZATION, Dialect.PLAIN, gpu, rank=rank, is_percent=is_percent
        )
    units = [word for word in said if word in _MEMORY_UNITS]
    if len(units) == 1 and others & _DEVICE_WORDS and said - set(units) <= _MEMORY_WORDS:
        return WideHeading(Quantity.MEMORY_USED, Dialect.PLAIN, gpu, unit=_MEMORY_UNITS[units[0]])
    return None
