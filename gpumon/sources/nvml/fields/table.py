"""The table of all NVML fields: their functions, period, unit and valid values. Pure data.

The source, ``--nvml-off`` and ``--nvml-on``, and ``gpumon doctor`` read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from gpumon.core.device.driver_codes import throttle_reasons
from gpumon.errors import UsageError

SLOW_PERIOD_S: Final = 5.0
PROCESS_PERIOD_S: Final = 10.0
GPM_PERIOD_S: Final = 15.0
ENERGY_PERIOD_S: Final = 30.0
"""Their calls take milliseconds on an H100."""


class ReadTimes(NamedTuple):
    """How often the source reads, in seconds.

    Attributes:
        tick_s: How often ``read`` is called; a value expires after three periods.
        slow_s: How often slow fields are read.
        drain_s: How often sample rings are drained at least; ``None``: as seldom as nothing is
            lost.
    """

    tick_s: float = 1.0
    slow_s: float = SLOW_PERIOD_S
    drain_s: float | None = None


ONCE_A_SECOND: Final = ReadTimes()

BUDGET: Final = 0.005
"""Seconds inside the driver for each second, above which gpumon says so."""

LARGEST_COUNT: Final = (1 << 63) - 1
"""A larger counter value is invalid."""
_LARGEST_BITS: Final = (1 << 62) - 1
"""The driver has about ten reasons; the highest two of 64 bits are invalid."""


class AnswerLayout(Enum):
    """The layout of an answer that is a number or two."""

    NUMBER = "unsigned int"
    LONG = "unsigned long long"
    TWO_NUMBERS = "two unsigned int, each with a place of its own; the first counts"
    PAIR = "a structure of two unsigned int; the first counts"
    TEMPERATURE = "nvmlTemperature_v1_t"
    MEMORY = "nvmlMemory_t: used and total"
    MEMORY_V2 = "nvmlMemory_v2_t: used and total"


@dataclass(frozen=True, slots=True)
class NvmlCall:
    """One of the driver's functions, and how to call it.

    Attributes:
        function: Its name.
        arguments: The enumerators between the handle and the place of the answer.
        answer: The layout of its answer, for ``NumberCall``.
        calls_a_reading: How often it is called for one reading; a fraction: not in each.
    """

    function: str
    arguments: tuple[int, ...] = ()
    answer: AnswerLayout = AnswerLayout.NUMBER
    calls_a_reading: float = 1.0


Value: TypeAlias = float | tuple[str, ...] | None
"""A quantity, a count, a yes or no, or names; ``None``: no answer."""


class DriverUnit(NamedTuple):
    """A unit of the driver's.

    Attributes:
        name: As NVML's manual writes it.
        convert: Makes a value in base units of a number.
    """

    name: str
    convert: Callable[[int], Value]


MILLIWATTS: Final = DriverUnit("mW", lambda mw: mw / 1000)
MEGAHERTZ: Final = DriverUnit("MHz", lambda mhz: float(mhz * 1_000_000))
PERCENT: Final = DriverUnit("%", lambda percent: percent / 100)
CELSIUS: Final = DriverUnit("C", float)
BYTES: Final = DriverUnit("bytes", int)
MILLIJOULES: Final = DriverUnit("mJ", int)
"""Kept as they are: ``EnergyCounter`` makes joules of their increase."""
KIBIBYTES_A_SECOND: Final = DriverUnit("KiB/s", lambda kib: float(kib * 1024))
"""NVML calls it KB/s; that it means 1024 is assumed."""
ERRORS: Final = DriverUnit("errors", int)
P_STATE: Final = DriverUnit("P-state", int)
SWITCH: Final = DriverUnit("0 or 1", lambda mode: mode == 1)
REASONS: Final = DriverUnit("bits", throttle_reasons)


@dataclass(frozen=True, slots=True)
class NvmlNumber:
    """One number that a board reports.

    Attributes:
        attribute: Its name in ``GpuSample`` or ``GpuDetails``.
        unit: The driver's unit.
        calls: The functions that return it, newest first: the first that the driver has is called.
        most: The largest valid value.
        is_part_of_next: Whether it is a part of the second number in the answer, and so not larger.
        least: The smallest valid value.
        unknown: The driver's value for "unknown".
        is_constant: Whether it is constant, and so not read again.
    """

    attribute: str
    unit: DriverUnit
    calls: tuple[NvmlCall, ...]
    most: int
    is_part_of_next: bool = False
    least: int = 0
    unknown: int | None = None
    is_constant: bool = False


@dataclass(frozen=True, slots=True)
class NvmlCounter:
    """One byte counter of ``nvmlDeviceGetFieldValues``, which is reported as a rate.

    Attributes:
        attribute: Its name in ``GpuDetails``.
        field_id: NVML's number of it.
        scope_id: The links it counts.
        unit_bytes: Its unit.
        max_bytes_per_second: No link is faster.
        may_wrap: Whether NVML documents that it may wrap, without the number.
    """

    attribute: str
    field_id: int
    scope_id: int
    unit_bytes: int
    max_bytes_per_second: int
    may_wrap: bool


@dataclass(frozen=True, slots=True)
class NvmlField:
    """One field that can be read from a board.

    Attributes:
        name: Its name for users.
        text: Its description, in a few words.
        numbers: Its values that are single numbers.
        counters: Its values that are rates of the driver's counters.
        own_parts: Where reading takes more than ``numbers``: the functions of each part of the
            answer, newest first.
        period_s: How often it is read, in seconds; 0: at each drain; ``None``: a thread waits for
            it.
        opt_in: Whether it is read only where ``--nvml-on`` names it, because of its cost.
        shown_as: Its name in ``gpumon doctor``, if different.
        quoted_us: The published time of one reading, in microseconds; ``None``: none is.
        quoted_where: For which drivers.
    """

    name: str
    text: str
    numbers: tuple[NvmlNumber, ...] = ()
    counters: tuple[NvmlCounter, ...] = ()
    own_parts: tuple[tuple[NvmlCall, ...], ...] = ()
    period_s: float | None = SLOW_PERIOD_S
    opt_in: bool = False
    shown_as: str | None = None
    quoted_us: float | None = None
    quoted_where: str = ""

    @property
    def title(self) -> str:
        """Its name in ``gpumon doctor``, which scripts look for."""
        return self.shown_as or self.name.replace("_", " ")

    @property
    def parts(self) -> tuple[tuple[NvmlCall, ...], ...]:
        """The parts of its answer, each with the functions that return it, newest first."""
        return self.own_parts or tuple(number.calls for number in self.numbers)

    @property
    def functions(self) -> tuple[str, ...]:
        """The driver's functions for it, newest first within each part."""
        return tuple(dict.fromkeys(call.function for part in self.parts for call in part))


def _call(
    name: str,
    *arguments: int,
    answer: AnswerLayout = AnswerLayout.NUMBER,
    calls_a_reading: float = 1.0,
) -> NvmlCall:
    return NvmlCall(f"nvmlDeviceGet{name}", arguments, answer, calls_a_reading)


_CORE = 0
_SM, _MEMORY = 1, 2
_CORRECTED, _UNCORRECTED, _SINCE_LOADED = 0, 1, 0
_OUT, _IN = 0, 1
_ALL_LINKS: Final = 0xFFFF_FFFF

_FASTEST_MEGAHERTZ: Final = 100_000
_FASTEST_FAN_PERCENT: Final = 200
"""Relative to the maximum noise level; NVML documents that it can be exceeded."""
_MAX_BYTES_PER_SECOND: Final = 10**12
"""PCIe in one direction: version 7 with 16 lanes has a quarter of it."""

MOST_MILLIWATTS: Final = 100_000_000
"""More than any board can draw."""
MOST_BYTES: Final = 1 << 46
"""64 TiB: some hundred times the memory of the largest board."""
_MAX_MILLIJOULES: Final = 10**16
"""20 kW, more than any board draws, for sixteen years."""
_MAX_ERRORS: Final = 10**12
"""A million a second for eleven days."""

RATES: Final = NvmlCall("nvmlDeviceGetUtilizationRates", answer=AnswerLayout.PAIR)
POWER_USAGE: Final = NvmlCall("nvmlDeviceGetPowerUsage")
FIELD_VALUES: Final = NvmlCall("nvmlDeviceGetFieldValues")
SAMPLES: Final = NvmlCall("nvmlDeviceGetSamples")
GPM_SAMPLE: Final = NvmlCall("nvmlGpmSampleGet")
GPM_METRICS: Final = NvmlCall("nvmlGpmMetricsGet")
EVENT_WAIT: Final = NvmlCall("nvmlEventSetWait_v2")
EVENT_REGISTER: Final = NvmlCall("nvmlDeviceRegisterEvents")
PROCESS_NAME: Final = NvmlCall("nvmlSystemGetProcessName")
PROCESS_LISTS: Final = tuple(
    _call(f"ComputeRunningProcesses{version}") for version in ("_v3", "_v2", "")
)
PROCESS_SHARES: Final = tuple(
    _call(name, calls_a_reading=SLOW_PERIOD_S / PROCESS_PERIOD_S)
    for name in ("ProcessesUtilizationInfo", "ProcessUtilization")
)
_PCIE_WINDOW: Final = NvmlCall("nvmlDeviceGetPcieThroughput", calls_a_reading=2.0)

# Functions with the same answer, newest first.
_MEMORIES: Final = (
    _call("MemoryInfo_v2", answer=AnswerLayout.MEMORY_V2),
    _call("MemoryInfo", answer=AnswerLayout.MEMORY),  # it counts the driver's reserve as used
)
_TEMPERATURES: Final = (
    _call("TemperatureV", answer=AnswerLayout.TEMPERATURE),
    _call("Temperature", _CORE),
)
_THROTTLE_REASONS: Final = (
    _call("CurrentClocksEventReasons", answer=AnswerLayout.LONG),
    _call("CurrentClocksThrottleReasons", answer=AnswerLayout.LONG),
)
_POWER_LIMITS: Final = _call("EnforcedPowerLimit"), _call("PowerManagementLimit")
POWER_NOW_FIELD: Final = 186
"""NVML_FI_DEV_POWER_INSTANT, in milliwatts."""
_ENERGY: Final = (_call("TotalEnergyConsumption", answer=AnswerLayout.LONG),)

MEMORY: Final = NvmlNumber(
    "memory_used_bytes", BYTES, _MEMORIES, most=MOST_BYTES, is_part_of_next=True
)
ENERGY: Final = NvmlNumber("energy_joules", MILLIJOULES, _ENERGY, most=_MAX_MILLIJOULES)


def _clock(attribute: str, kind: int) -> NvmlNumber:
    calls = (_call("ClockInfo", kind),)
    return NvmlNumber(attribute, MEGAHERTZ, calls, most=_FASTEST_MEGAHERTZ)


def _ecc(attribute: str, kind: int) -> NvmlNumber:
    calls = (_call("TotalEccErrors", kind, _SINCE_LOADED, answer=AnswerLayout.LONG),)
    return NvmlNumber(attribute, ERRORS, calls, most=_MAX_ERRORS)


def _video(attribute: str, what: str) -> NvmlNumber:
    calls = (_call(f"{what}Utilization", answer=AnswerLayout.TWO_NUMBERS),)
    return NvmlNumber(attribute, PERCENT, calls, most=100)


def _pcie_window(attribute: str, direction: int) -> NvmlNumber:
    calls, most = (_call("PcieThroughput", direction),), _MAX_BYTES_PER_SECOND // 1024
    return NvmlNumber(attribute, KIBIBYTES_A_SECOND, calls, most=most)


def _pcie_counter(attribute: str, field_id: int) -> NvmlCounter:
    return NvmlCounter(attribute, field_id, 0, 1, _MAX_BYTES_PER_SECOND, may_wrap=True)


def _nvlink_counter(attribute: str, field_id: int) -> NvmlCounter:
    return NvmlCounter(attribute, field_id, _ALL_LINKS, 1024, 10**13, may_wrap=False)


NVML_FIELDS: Final = (
    NvmlField(
        "utilization", "share of time a kernel ran",
        (NvmlNumber("utilization_ratio", PERCENT, (RATES,), most=100),),
        own_parts=((SAMPLES, RATES),), period_s=0.0, shown_as="utilisation",
    ),
    NvmlField(
        "power", "board power draw",
        (NvmlNumber("power_watts", MILLIWATTS, (POWER_USAGE,), MOST_MILLIWATTS),),
        own_parts=((SAMPLES, POWER_USAGE),), period_s=0.0,
    ),
    NvmlField("memory", "device memory in use", (MEMORY,)),
    NvmlField(
        "temperature", "core temperature",
        (NvmlNumber("temperature_celsius", CELSIUS, _TEMPERATURES, most=254),),
    ),
    NvmlField(
        "clocks", "SM and memory clock, and the highest",
        (
            _clock("sm_clock_hertz", _SM),
            _clock("memory_clock_hertz", _MEMORY),
            NvmlNumber(
                "sm_clock_max_hertz", MEGAHERTZ, (_call("MaxClockInfo", _SM, calls_a_reading=0.0),),
                _FASTEST_MEGAHERTZ, least=1, is_constant=True,
            ),
        ),
        shown_as="sm clock",
    ),
    NvmlField(
        "throttle_reasons", "why clocks are reduced",
        (NvmlNumber("throttle_reasons", REASONS, _THROTTLE_REASONS, most=_LARGEST_BITS),),
    ),
    NvmlField("energy", "joules used", (ENERGY,), period_s=ENERGY_PERIOD_S),
    NvmlField(
        "power_limit", "power limit in force",
        (NvmlNumber("power_limit_watts", MILLIWATTS, _POWER_LIMITS, MOST_MILLIWATTS, least=1),),
    ),
    NvmlField(
        "performance_state", "P-state",
        (NvmlNumber("performance_state", P_STATE, (_call("PerformanceState"),), 15, unknown=32),),
    ),
    NvmlField(
        "ecc", "memory errors",
        (
            _ecc("ecc_corrected_errors", _CORRECTED),
            _ecc("ecc_uncorrected_errors", _UNCORRECTED),
        ),
    ),
    NvmlField(
        "persistence_mode", "whether the driver stays loaded",
        (NvmlNumber("persistence_mode", SWITCH, (_call("PersistenceMode"),), most=1),),
    ),
    NvmlField(
        "activity", "SM, tensor and DRAM activity (GPM, Hopper on)",
        own_parts=((GPM_SAMPLE,), (GPM_METRICS,)), period_s=GPM_PERIOD_S,
    ),
    NvmlField(
        "processes", "who computes, with memory; their SM shares every 10 s",
        own_parts=(PROCESS_LISTS, PROCESS_SHARES),
    ),
    NvmlField(
        "events", "XID and ECC errors as they happen",
        own_parts=((EVENT_WAIT,), (EVENT_REGISTER,)), period_s=None,
    ),
    NvmlField(
        "process_names", "names and users of processes", own_parts=((PROCESS_NAME,),), opt_in=True
    ),
    NvmlField(
        "pcie", "PCIe rates; drivers that do not count them block 40 ms a GPU",
        (
            _pcie_window("pcie_transmitted_bytes_per_second", _OUT),
            _pcie_window("pcie_received_bytes_per_second", _IN),
        ),
        (
            _pcie_counter("pcie_transmitted_bytes_per_second", 197),
            _pcie_counter("pcie_received_bytes_per_second", 198),
        ),
        own_parts=((FIELD_VALUES, _PCIE_WINDOW),), opt_in=True,
        quoted_us=40_000.0, quoted_where=" where the driver does not count bytes",
    ),
    NvmlField(
        "nvlink", "NVLink rates",
        counters=(
            _nvlink_counter("nvlink_transmitted_bytes_per_second", 138),
            _nvlink_counter("nvlink_received_bytes_per_second", 139),
        ),
        own_parts=((FIELD_VALUES,),), opt_in=True,
    ),
    NvmlField(
        "fan", "fan speed",
        (NvmlNumber("fan_speed_ratio", PERCENT, (_call("FanSpeed"),), _FASTEST_FAN_PERCENT),),
        opt_in=True, quoted_us=137.0,
    ),
    NvmlField(
        "encoder", "video encoder and decoder",
        (_video("encoder_ratio", "Encoder"), _video("decoder_ratio", "Decoder")), opt_in=True,
    ),
)  # fmt: skip
"""All fields, in the order of ``gpumon doctor``. Quoted times are from one RTX 4090; for PCIe, two
windows of 20 ms inside older drivers."""


def field_called(name: str) -> NvmlField:
    """Return the field of that name."""
    return next(field for field in NVML_FIELDS if field.name == name)


ALWAYS_ON: Final = "utilization"
"""The field that cannot be switched off."""


NvmlOptions: TypeAlias = frozenset[str]
"""The names of the fields that are read."""

DEFAULT_OPTIONS: Final[NvmlOptions] = frozenset(
    field.name for field in NVML_FIELDS if not field.opt_in
)


def nvml_options(*, off: Iterable[str] = (), on: Iterable[str] = ()) -> NvmlOptions:
    """Return the default fields without ``off`` and with ``on``.

    Raises:
        UsageError: A name is unknown, or in both lists, or is ``utilization``, which everything
            else needs.

    >>> sorted(nvml_options(off=["processes"], on=["fan"]) ^ DEFAULT_OPTIONS)
    ['fan', 'processes']
    """
    without, more = frozenset(off), frozenset(on)
    names = [field.name for field in NVML_FIELDS]
    for word in sorted(without | more):
        if word not in names:
            raise UsageError(f"no NVML field called {word!r}: choose from {', '.join(names)}")
    if ALWAYS_ON in without:
        raise UsageError(f"{ALWAYS_ON} cannot be switched off: every figure is made of it")
    both = sorted(without & more)
    if both:
        raise UsageError(f"{both[0]} is switched both on and off: say one of the two")
    return (DEFAULT_OPTIONS | more) - without
