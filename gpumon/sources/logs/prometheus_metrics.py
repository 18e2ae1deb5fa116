"""Which of Prometheus' series tell how busy a GPU was, and which GPU they speak of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.sources.logs.log_sample import LoggedGpu
from gpumon.sources.logs.table.cell_values import MIB


class Telling(Enum):
    """What a metric tells."""

    BUSY = 0
    MEMORY_USED = 1
    MEMORY_TOTAL = 2
    COUNTER = 3
    """Busy time that adds up: to be asked for as a rate."""
    OTHER = 4


@dataclass(frozen=True, slots=True)
class Metric:
    """The meaning of a metric.

    Attributes:
        telling: What it tells.
        rank: Of several that tell how busy a GPU was, the lowest is read.
        full: What stands for all of the time: 100 or 1; ``None``: the values
            have to tell.
        unit_bytes: What a 1 stands for, of memory.
    """

    telling: Telling
    rank: int = 0
    full: float | None = None
    unit_bytes: int = 1


_KNOWN: Final = MappingProxyType(
    {
        "DCGM_FI_DEV_GPU_UTIL": Metric(Telling.BUSY, full=100.0),
        "dcgm_gpu_utilization": Metric(Telling.BUSY, full=100.0),
        "nvidia_smi_utilization_gpu_ratio": Metric(Telling.BUSY, full=1.0),
        "gpumon_gpu_utilization_ratio": Metric(Telling.BUSY, full=1.0),
        "gpu_utilization_Percentage": Metric(Telling.BUSY, full=100.0),
        "nvidia_gpu_duty_cycle": Metric(Telling.BUSY, full=100.0),
        "nv_gpu_utilization": Metric(Telling.BUSY, full=1.0),
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": Metric(Telling.BUSY, rank=1, full=1.0),
        "DCGM_FI_DEV_FB_USED": Metric(Telling.MEMORY_USED, unit_bytes=MIB),
        "dcgm_fb_used": Metric(Telling.MEMORY_USED, unit_bytes=MIB),
        "nvidia_smi_memory_used_bytes": Metric(Telling.MEMORY_USED),
        "gpumon_gpu_memory_used_bytes": Metric(Telling.MEMORY_USED),
        "gpu_memory_used_MiB": Metric(Telling.MEMORY_USED, unit_bytes=MIB),
        "nvidia_gpu_memory_used_bytes": Metric(Telling.MEMORY_USED),
        "nv_gpu_memory_used_bytes": Metric(Telling.MEMORY_USED),
        "DCGM_FI_DEV_FB_TOTAL": Metric(Telling.MEMORY_TOTAL, unit_bytes=MIB),
        "nvidia_smi_memory_total_bytes": Metric(Telling.MEMORY_TOTAL),
        "gpumon_gpu_memory_total_bytes": Metric(Telling.MEMORY_TOTAL),
        "gpu_memory_total_MiB": Metric(Telling.MEMORY_TOTAL, unit_bytes=MIB),
        "nvidia_gpu_memory_total_bytes": Metric(Telling.MEMORY_TOTAL),
        "nv_gpu_memory_total_bytes": Metric(Telling.MEMORY_TOTAL),
    }
)
_UNNAMED: Final = Metric(Telling.BUSY, rank=3)
_BY_ITS_NAME: Final = Metric(Telling.BUSY, rank=2)
_OTHER: Final = Metric(Telling.OTHER)
_COUNTER: Final = re.compile(r"(?=.*gpu)(?=.*(?:busy|util|active|duty)).*_(?:seconds|total)", re.I)
_BUSY: Final = re.compile(r"(?=.*gpu)(?=.*(?:busy|util|duty_?cycle|engine_active))", re.I)
_NOT_BUSY: Final = re.compile(
    r"mem|enc|dec|copy|fb_|bar1|power|temp|fan|clock|pcie|nvlink|host|process|requests?_|alloc"
    r"|_info|_created|_max|_min|_limit",
    re.I,
)
_HOSTS: Final = (
    "Hostname", "hostname", "host", "node", "nodename", "kubernetes_node", "exported_instance",
    "instance",
)  # fmt: skip
_UUIDS: Final = ("UUID", "uuid", "gpu_uuid")
_INDICES: Final = ("gpu", "index", "gpu_index", "gpu_id", "device", "minor_number")
_NAMES: Final = ("modelName", "devicename", "name", "model", "gpu_name")
_INDEX: Final = re.compile(r"(?:nvidia|gpu|cuda:)?(\d{1,4})(?::(\d{1,2}))?", re.ASCII | re.I)


class SeriesOwner(NamedTuple):
    """The GPU a series speaks of.

    Attributes:
        key: What tells it from others.
        host: Where it is; ``""``: the labels do not say.
        gpu: What they say of it.
    """

    key: tuple[str | None, ...]
    host: str
    gpu: LoggedGpu


def metric_of(name: str | None, chosen: str | None) -> Metric:
    """What a metric tells.

    Args:
        name: ``None``: calculated by a query, which loses the name.
        chosen: Name of the metric the user says is the utilisation.

    >>> metric_of("DCGM_FI_DEV_GPU_UTIL", None).full
    100.0
    >>> metric_of("gpumon_gpu_busy_seconds_total", None).telling.name
    'COUNTER'
    """
    known = _KNOWN.get(name) if name is not None else _UNNAMED
    if chosen is not None:
        if name == chosen:
            return known if known is not None and known.telling is Telling.BUSY else _BY_ITS_NAME
        if known is None or known.telling is Telling.BUSY:
            return _OTHER
    if known is not None:
        return known
    if _COUNTER.fullmatch(name or ""):
        return Metric(Telling.COUNTER)
    is_busy = _BUSY.match(name or "") and not _NOT_BUSY.search(name or "")
    return _BY_ITS_NAME if is_busy else _OTHER


def owner_of(labels: Mapping[str, str]) -> SeriesOwner:
    """Of which GPU, on which host, a series is."""
    host = _first(labels, _HOSTS) or ""
    uuid = _first(labels, _UUIDS)
    said = _first(labels, _INDICES)
    found = _INDEX.fullmatch(said) if said is not None else None
    index = int(found[1]) if found else None
    part = labels.get("GPU_I_ID") or (found[2] if found else None)
    mig_index = int(part) if part and part.isdigit() else None
    key: tuple[str | None, ...] = (uuid or host, None if uuid else said, part)
    if uuid is None and said is None:
        # No GPU is named: each set of labels is taken for one.
        key = tuple(f"{name}={value}" for name, value in sorted(labels.items())
                    if name != "__name__")  # fmt: skip
    gpu = LoggedGpu(index=index, uuid=uuid, name=_first(labels, _NAMES), mig_index=mig_index)
    return SeriesOwner(key, host, gpu)


def _first(labels: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((labels[name] for name in names if labels.get(name)), None)
