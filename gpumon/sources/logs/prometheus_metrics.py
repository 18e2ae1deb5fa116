"""Metric names of exporters, and the labels that identify a GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.sources.logs.log_sample import LoggedGpu
from gpumon.sources.logs.table.cell_values import MIB
from gpumon.sources.logs.table.column_names import Column, Heading

_KNOWN: Final = MappingProxyType(
    {
        name: meaning
        for meaning, names in (
            (
                Heading(Column.UTILIZATION),
                "DCGM_FI_DEV_GPU_UTIL dcgm_gpu_utilization gpu_utilization_Percentage "
                "nvidia_gpu_duty_cycle",
            ),
            (
                Heading(Column.UTILIZATION, is_percent=False),
                "nvidia_smi_utilization_gpu_ratio gpumon_gpu_utilization_ratio nv_gpu_utilization",
            ),
            (
                Heading(Column.UTILIZATION, rank=1, is_percent=False),
                "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
            ),
            (
                Heading(Column.MEMORY_USED, unit=MIB),
                "DCGM_FI_DEV_FB_USED dcgm_fb_used gpu_memory_used_MiB",
            ),
            (
                Heading(Column.MEMORY_USED),
                "nvidia_smi_memory_used_bytes gpumon_gpu_memory_used_bytes "
                "nvidia_gpu_memory_used_bytes nv_gpu_memory_used_bytes",
            ),
            (Heading(Column.MEMORY_TOTAL, unit=MIB), "DCGM_FI_DEV_FB_TOTAL gpu_memory_total_MiB"),
            (
                Heading(Column.MEMORY_TOTAL),
                "nvidia_smi_memory_total_bytes gpumon_gpu_memory_total_bytes "
                "nvidia_gpu_memory_total_bytes nv_gpu_memory_total_bytes",
            ),
        )
        for name in names.split()
    }
)
_BY_ITS_NAME: Final = Heading(Column.UTILIZATION, rank=2, is_percent=None)
_UNNAMED: Final = Heading(Column.UTILIZATION, rank=3, is_percent=None)
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
OWNER_LABELS: Final = frozenset((*_HOSTS, *_UUIDS, *_INDICES))
_NAMES: Final = ("modelName", "devicename", "name", "model", "gpu_name")
_INDEX: Final = re.compile(r"(?:nvidia|gpu|cuda:)?(\d{1,4})(?::(\d{1,2}))?", re.ASCII | re.I)


class SeriesOwner(NamedTuple):
    """The GPU of a series.

    Attributes:
        host: Its host; ``""``: unknown.
    """

    key: tuple[str | None, ...]
    host: str
    gpu: LoggedGpu


def metric_of(name: str | None, chosen: str | None) -> Heading | None:
    """Return the meaning of a metric, as a heading without a GPU; ``None``: not relevant.

    Args:
        name: ``None``: calculated by a query, which loses the name.
        chosen: Name of the metric that the user calls the utilisation.

    >>> metric_of("DCGM_FI_DEV_GPU_UTIL", None).is_percent
    True
    >>> metric_of("gpumon_gpu_busy_seconds_total", None) is None
    True
    """
    known = _KNOWN.get(name) if name is not None else _UNNAMED
    is_busy = known is not None and known.column is Column.UTILIZATION
    if chosen is not None and name == chosen:
        return known if is_busy else _BY_ITS_NAME
    if chosen is not None and (known is None or is_busy):
        return None
    if known is None and name and _BUSY.match(name) and not _NOT_BUSY.search(name):
        return None if is_counter(name) else _BY_ITS_NAME
    return known


def is_counter(name: str) -> bool:
    """Return whether a name is that of a busy-time counter, which needs a rate."""
    return _COUNTER.fullmatch(name) is not None


def is_known(name: str) -> bool:
    """Return whether a name is that of a known exporter's metric."""
    return name in _KNOWN


def owner_of(labels: Mapping[str, str]) -> SeriesOwner:
    """Return the GPU and host of a series."""
    host = _first(labels, _HOSTS) or ""
    uuid = _first(labels, _UUIDS)
    label = _first(labels, _INDICES)
    found = _INDEX.fullmatch(label) if label is not None else None
    index = int(found[1]) if found else None
    part = labels.get("GPU_I_ID") or (found[2] if found else None)
    mig_index = int(part) if part and part.isdigit() else None
    key: tuple[str | None, ...] = (uuid or host, None if uuid else label, part)
    if uuid is None and label is None:
        # No GPU is named: each set of labels counts as one.
        key = tuple(f"{name}={value}" for name, value in sorted(labels.items())
                    if name != "__name__")  # fmt: skip
    gpu = LoggedGpu(index=index, uuid=uuid, name=_first(labels, _NAMES), mig_index=mig_index)
    return SeriesOwner(key, host, gpu)


def _first(labels: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((labels[name] for name in names if labels.get(name)), None)
