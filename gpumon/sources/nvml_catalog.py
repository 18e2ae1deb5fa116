"""Every field that NVML is asked for: its functions, how often, and whether by default.

One table, from which the source takes what to ask, ``--nvml-off`` and
``--nvml-on`` what can be said, and ``gpumon doctor`` what to look at.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gpumon.errors import UsageError

SLOW_PERIOD_S: Final = 5.0
PROCESS_PERIOD_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlField:
    """One thing that a board can be asked.

    Attributes:
        name: What users call it.
        functions: The driver's functions it takes, the newest first.
        period_s: How often it is read, in seconds; 0: in each tick; ``None``:
            a thread waits for it.
        opt_in: Whether it is read only where ``--nvml-on`` names it, because
            it costs too much for everybody.
        text: What it is, in a few words.
    """

    name: str
    functions: tuple[str, ...]
    period_s: float | None
    opt_in: bool = False
    text: str


def _field(
    name: str, text: str, period_s: float | None, *functions: str, opt_in: bool = False
) -> NvmlField:
    return NvmlField(name=name, functions=functions, period_s=period_s, opt_in=opt_in, text=text)


NVML_FIELDS: Final = (
    _field("utilization", "share of time a kernel ran", 0.0,
           "nvmlDeviceGetSamples", "nvmlDeviceGetUtilizationRates"),
    _field("power", "board power draw", 0.0, "nvmlDeviceGetPowerUsage"),
    _field("memory", "device memory in use", SLOW_PERIOD_S,
           "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo"),
    _field("temperature", "core temperature", SLOW_PERIOD_S,
           "nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"),
    _field("clocks", "SM and memory clock, and the highest", SLOW_PERIOD_S,
           "nvmlDeviceGetClockInfo", "nvmlDeviceGetMaxClockInfo"),
    _field("throttle_reasons", "why clocks are held down", SLOW_PERIOD_S,
           "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"),
    _field("energy", "joules used", SLOW_PERIOD_S, "nvmlDeviceGetTotalEnergyConsumption"),
    _field("power_limit", "power limit in force", SLOW_PERIOD_S,
           "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit"),
    _field("performance_state", "P-state", SLOW_PERIOD_S, "nvmlDeviceGetPerformanceState"),
    _field("ecc", "memory errors", SLOW_PERIOD_S, "nvmlDeviceGetTotalEccErrors"),
    _field("persistence_mode", "whether the driver stays loaded", SLOW_PERIOD_S,
           "nvmlDeviceGetPersistenceMode"),
    _field("activity", "SM, tensor and DRAM activity (GPM, Hopper on)", SLOW_PERIOD_S,
           "nvmlGpmSampleGet", "nvmlGpmMetricsGet"),
    _field("processes", "who computes, with memory; their SM shares every 10 s", SLOW_PERIOD_S,
           "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2",
           "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetProcessesUtilizationInfo",
           "nvmlDeviceGetProcessUtilization"),
    _field("events", "XID and ECC errors as they happen", None,
           "nvmlEventSetWait_v2", "nvmlDeviceRegisterEvents"),
    _field("process_names", "names and users of processes", SLOW_PERIOD_S,
           "nvmlSystemGetProcessName", opt_in=True),
    _field("pcie", "PCIe rates; drivers that do not count them block 40 ms a GPU", SLOW_PERIOD_S,
           "nvmlDeviceGetFieldValues", "nvmlDeviceGetPcieThroughput", opt_in=True),
    _field("nvlink", "NVLink rates", SLOW_PERIOD_S, "nvmlDeviceGetFieldValues", opt_in=True),
    _field("fan", "fan speed", SLOW_PERIOD_S, "nvmlDeviceGetFanSpeed", opt_in=True),
    _field("encoder", "video encoder and decoder", SLOW_PERIOD_S,
           "nvmlDeviceGetEncoderUtilization", "nvmlDeviceGetDecoderUtilization", opt_in=True),
)  # fmt: skip
"""All fields, in the order in which ``gpumon doctor`` shows them."""

ALWAYS_ON: Final = "utilization"
"""The field that cannot be switched off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlOptions:
    """What the user wants asked of the driver.

    Attributes:
        fields: Names of the fields that are read.
    """

    fields: frozenset[str] = frozenset(field.name for field in NVML_FIELDS if not field.opt_in)


DEFAULT_OPTIONS: Final = NvmlOptions()


def nvml_options(*, off: Iterable[str] = (), on: Iterable[str] = ()) -> NvmlOptions:
    """The default fields without some, and with some more.

    Raises:
        UsageError: A name is none, or is said both ways, or is
            ``utilization``, without which there is nothing to tell.

    >>> sorted(nvml_options(off=["processes"], on=["fan"]).fields ^ DEFAULT_OPTIONS.fields)
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
    return NvmlOptions(fields=(DEFAULT_OPTIONS.fields | more) - without)
