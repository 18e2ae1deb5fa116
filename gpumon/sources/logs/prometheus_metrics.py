"""Which of Prometheus' series tell how busy a GPU was, and which GPU they speak of.

What series of Prometheus have told so far: one answer may be in a file twice, or overlap.

Memory in use, which Prometheus tells in other series than utilisation, and before it.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.sources.logs.log_sample import LoggedGpu

_MIB: Final = 1 << 20


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
        "DCGM_FI_DEV_FB_USED": Metric(Telling.MEMORY_USED, unit_bytes=_MIB),
        "dcgm_fb_used": Metric(Telling.MEMORY_USED, unit_bytes=_MIB),
        "nvidia_smi_memory_used_bytes": Metric(Telling.MEMORY_USED),
        "gpumon_gpu_memory_used_bytes": Metric(Telling.MEMORY_USED),
        "gpu_memory_used_MiB": Metric(Telling.MEMORY_USED, unit_bytes=_MIB),
        "nvidia_gpu_memory_used_bytes": Metric(Telling.MEMORY_USED),
        "nv_gpu_memory_used_bytes": Metric(Telling.MEMORY_USED),
        "DCGM_FI_DEV_FB_TOTAL": Metric(Telling.MEMORY_TOTAL, unit_bytes=_MIB),
        "nvidia_smi_memory_total_bytes": Metric(Telling.MEMORY_TOTAL),
        "gpumon_gpu_memory_total_bytes": Metric(Telling.MEMORY_TOTAL),
        "gpu_memory_total_MiB": Metric(Telling.MEMORY_TOTAL, unit_bytes=_MIB),
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


_MOST_SERIES: Final = 65_536


class Told(NamedTuple):
    """What one series has told.

    Attributes:
        gpu: Position of its GPU.
        first_ns: Its first moment, since 1970.
        last_ns: Its last.
    """

    gpu: int
    first_ns: int
    last_ns: int

    def has(self, stamp_ns: int) -> bool:
        """Whether a moment lies in the time that was told."""
        return self.first_ns <= stamp_ns <= self.last_ns


class ToldSeries:
    """Remembers series by their labels."""

    def __init__(self) -> None:
        self._told: dict[int, Told] = {}

    def of(self, labels: Mapping[str, str]) -> Told | None:
        """What the series with just these labels has told; ``None``: nothing."""
        return self._told.get(_identity(labels))

    def add(self, labels: Mapping[str, str], told: Told) -> None:
        """Take note of what a series told more."""
        identity = _identity(labels)
        before = self._told.get(identity)
        if before is not None:
            first_ns = min(before.first_ns, told.first_ns)
            self._told[identity] = Told(told.gpu, first_ns, max(before.last_ns, told.last_ns))
        elif len(self._told) < _MOST_SERIES:
            self._told[identity] = told


def _identity(labels: Mapping[str, str]) -> int:
    return hash(frozenset(labels.items()))


MAX_VALUES: Final = 2_000_000
"""Values kept for the utilisation that follows; more of them stay unread."""
_MAX_BYTES: Final = 1 << 62
_FINITE: Final = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d{1,3})?", re.ASCII | re.I)


@dataclass(slots=True)
class MemoryTrack:
    """Memory in use of one GPU."""

    stamps_ns: array[int] = field(default_factory=lambda: array("q"))
    used_bytes: array[int] = field(default_factory=lambda: array("q"))
    next: int = 0

    def at(self, stamp_ns: int) -> int | None:
        """What was in use at a moment; moments are asked for in order."""
        stamps_ns, position = self.stamps_ns, self.next
        while position < len(stamps_ns) and stamps_ns[position] < stamp_ns:
            position += 1
        self.next = position
        if position < len(stamps_ns) and stamps_ns[position] == stamp_ns:
            return self.used_bytes[position]
        return None


class MemorySeries:
    """Keeps what series of memory say until the utilisation of their GPU comes."""

    def __init__(self) -> None:
        self._tracks: dict[Hashable, MemoryTrack] = {}
        self._total_bytes: dict[Hashable, int] = {}
        self._kept = 0

    def keep(self, key: Hashable, pairs: Iterable[tuple[float, str]], unit_bytes: int) -> bool:
        """Keep values of a GPU; whether there was room for them."""
        values = [(stamp_of(at_s), value) for at_s, value in pairs if is_finite(value)]
        if self._kept + len(values) > MAX_VALUES:
            return False
        self._kept += len(values)
        track = self._tracks.setdefault(key, MemoryTrack())
        track.stamps_ns.extend(stamp_ns for stamp_ns, _ in values)
        track.used_bytes.extend(_bytes(value, unit_bytes) for _, value in values)
        return True

    def keep_total(
        self, key: Hashable, pairs: Iterable[tuple[float, str]], unit_bytes: int
    ) -> None:
        """Keep how much memory a GPU has."""
        value = next((value for _, value in pairs if is_finite(value)), None)
        if value is not None:
            self._total_bytes.setdefault(key, _bytes(value, unit_bytes))

    def take(self, key: Hashable) -> MemoryTrack | None:
        """What was kept of a GPU, which is forgotten here."""
        track = self._tracks.pop(key, None)
        if track is not None:
            self._kept -= len(track.stamps_ns)
        return track

    def total_bytes(self, key: Hashable) -> int | None:
        """How much memory a GPU has, if it was said."""
        return self._total_bytes.get(key)


def stamp_of(moment_s: float) -> int:
    """Nanoseconds since 1970. Prometheus knows milliseconds; a float does not hold more either.

    >>> stamp_of(1700000000.125)
    1700000000125000000
    """
    if type(moment_s) is int:
        return moment_s * 1_000_000_000
    return round(moment_s * 1_000) * 1_000_000


def is_finite(value: str) -> bool:
    """Whether a value is a number, as NaN and Inf are not."""
    return _FINITE.fullmatch(value) is not None


def _bytes(value: str, unit_bytes: int) -> int:
    amount = float(value) * unit_bytes
    return round(amount) if 0 <= amount < _MAX_BYTES else 0
