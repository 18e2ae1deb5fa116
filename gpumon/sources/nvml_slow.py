"""What one board says every few seconds, each answer looked at before it is believed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from time import perf_counter_ns
from typing import Final

from gpumon.core.sample import GpuDetails
from gpumon.core.throttle_reasons import throttle_reasons
from gpumon.core.units import NS_PER_S
from gpumon.sources.nvml_binding import NvmlLibrary
from gpumon.sources.nvml_catalog import NvmlOptions
from gpumon.sources.nvml_energy import EnergyCounter
from gpumon.sources.nvml_fields import (
    MemoryField,
    NewestField,
    NumberField,
    PairField,
    TemperatureField,
)
from gpumon.sources.nvml_links import LinkRates
from gpumon.sources.nvml_power import MOST_MILLIWATTS

_HERTZ_PER_MEGAHERTZ: Final = 1_000_000
_TEMPERATURE_OF_THE_CORE, _CLOCK_SM, _CLOCK_MEMORY = 0, 1, 2
_ECC_CORRECTED, _ECC_UNCORRECTED, _ECC_VOLATILE = 0, 1, 0

_HOTTEST_CELSIUS: Final = 254
_FASTEST_MEGAHERTZ: Final = 100_000
"""No board draws as much, and none may."""
_SLOWEST_P_STATE, _UNKNOWN_P_STATE = 15, 32
_FASTEST_FAN_PERCENT: Final = 200
"""Of the speed at which the board is as loud as it may be: NVML says that it can be exceeded."""
_EVERY_BIT: Final = (1 << 64) - 1
_LARGEST_COUNT: Final = (1 << 63) - 1

_RESTED_TIMES: Final = 50
"""A field that took that long rests for so many times as long: it gets 2 % of the time at most."""

_LONGEST_REST_NS: Final = 60 * NS_PER_S


class _Turn:
    """One field's reading. One that is slow is asked less often, and its last answer stays."""

    def __init__(self, read: Callable[[int], None]) -> None:
        self.read = read
        self.rests_until_ns = 0


class SlowFields:
    """Everything of one GPU that is read every few seconds, as far as it is wanted.

    A field that is not wanted is never asked for. One that hangs or fails
    costs itself: what the others say stays true.

    Attributes:
        memory_used_bytes: Device memory in use.
        temperature_celsius: Core temperature.
        sm_clock_hertz: Clock of the streaming multiprocessors.
        energy_joules: What the board used, by a counter that never goes back.
        details: The rest; ``None`` before the first reading, and where none of it is wanted.
        measure_at_ns: When ``measure_links`` is due again; 0 before the first.
    """

    def __init__(self, options: NvmlOptions, monotonic_ns: Callable[[], int]) -> None:
        """Choose the fields; ``bind`` comes next.

        Args:
            options: Which fields are read.
            monotonic_ns: Tells the time.
        """
        self._counter = EnergyCounter()
        self._links = LinkRates(options, monotonic_ns)
        self._rejected = 0
        readings = {
            "memory": self._read_memory,
            "temperature": self._read_temperature,
            "clocks": self._read_clocks,
            "throttle_reasons": self._read_throttle_reasons,
            "energy": self._read_energy,
            "power_limit": self._read_power_limit,
            "performance_state": self._read_performance_state,
            "ecc": self._read_ecc,
            "persistence_mode": self._read_persistence_mode,
            "fan": self._read_fan,
            "encoder": self._read_encoder,
        }
        self._readings = [read for name, read in readings.items() if name in options.fields]
        if not options.fields.isdisjoint(("pcie", "nvlink")):
            self._readings.append(self._read_links)
        self._has_details = not options.fields.isdisjoint(_FIELDS_OF_DETAILS)

    def bind(self, library: NvmlLibrary, handle: int) -> None:
        """Ask this handle from now on; only the energy goes on from what it was.

        Args:
            library: NVML, opened.
            handle: Which GPU.
        """
        self.memory_used_bytes: int | None = None
        self.temperature_celsius: float | None = None
        self.sm_clock_hertz: float | None = None
        self.energy_joules: float | None = None
        self.details: GpuDetails | None = None
        self.measure_at_ns = 0
        self._power_limit_watts: float | None = None
        self._sm_clock_max_hertz: float | None = None
        self._memory_clock_hertz: float | None = None
        self._performance_state: int | None = None
        self._throttle_reasons: tuple[str, ...] | None = None
        self._ecc_corrected_errors: int | None = None
        self._ecc_uncorrected_errors: int | None = None
        self._persistence_mode: bool | None = None
        self._fan_speed_ratio: float | None = None
        self._encoder_ratio: float | None = None
        self._decoder_ratio: float | None = None
        self._turns = [_Turn(read) for read in self._readings]
        self._links.bind(library, handle)
        self._bind_calls(library, handle)

    def _bind_calls(self, library: NvmlLibrary, handle: int) -> None:
        def number(name: str, *kinds: int) -> NumberField:
            return NumberField(library, f"nvmlDeviceGet{name}", handle, kind=kinds)

        def long_number(name: str, *kinds: int) -> NumberField:
            room = ctypes.c_ulonglong()
            return NumberField(library, f"nvmlDeviceGet{name}", handle, kind=kinds, number=room)

        self._memory = MemoryField(library, handle)
        self._temperature = NewestField(
            TemperatureField(library, handle), number("Temperature", _TEMPERATURE_OF_THE_CORE)
        )
        self._sm_clock = number("ClockInfo", _CLOCK_SM)
        self._memory_clock = number("ClockInfo", _CLOCK_MEMORY)
        self._sm_clock_max = number("MaxClockInfo", _CLOCK_SM)
        self._reasons = NewestField(
            long_number("CurrentClocksEventReasons"), long_number("CurrentClocksThrottleReasons")
        )
        self._energy = long_number("TotalEnergyConsumption")
        self._power_limit = NewestField(
            number("EnforcedPowerLimit"), number("PowerManagementLimit")
        )
        self._p_state = number("PerformanceState")
        self._corrected = long_number("TotalEccErrors", _ECC_CORRECTED, _ECC_VOLATILE)
        self._uncorrected = long_number("TotalEccErrors", _ECC_UNCORRECTED, _ECC_VOLATILE)
        self._persistence = number("PersistenceMode")
        self._fan = number("FanSpeed")
        self._encoder = PairField(library, "nvmlDeviceGetEncoderUtilization", handle, apart=True)
        self._decoder = PairField(library, "nvmlDeviceGetDecoderUtilization", handle, apart=True)

    @property
    def rejected(self) -> int:
        """Values refused so far, because no board can have meant them."""
        return self._rejected + self._links.rejected

    @property
    def wants_measuring(self) -> bool:
        """Whether ``measure_links`` is the only way to PCIe's rates."""
        return self._links.wants_window

    def read(self, now_ns: int) -> None:
        """Ask for everything that is due.

        Args:
            now_ns: CLOCK_MONOTONIC.
        """
        started_ns = perf_counter_ns()
        for turn in self._turns:
            if now_ns >= turn.rests_until_ns:
                turn.read(now_ns)
                done_ns = perf_counter_ns()
                rest_ns = _RESTED_TIMES * (done_ns - started_ns)
                turn.rests_until_ns = now_ns + min(rest_ns, _LONGEST_REST_NS)
                started_ns = done_ns
        self._tell(now_ns)

    def _tell(self, now_ns: int) -> None:
        if self._has_details:
            self.details = GpuDetails(
                now_ns,
                self._power_limit_watts,
                self._sm_clock_max_hertz,
                self._memory_clock_hertz,
                self._performance_state,
                self._throttle_reasons,
                self._ecc_corrected_errors,
                self._ecc_uncorrected_errors,
                self._persistence_mode,
                self._fan_speed_ratio,
                self._encoder_ratio,
                self._decoder_ratio,
                *self._links.rates,
            )

    def measure_links(self, now_ns: int) -> None:
        """Let the driver measure PCIe, about 40 ms: not on two GPUs in one tick.

        Args:
            now_ns: CLOCK_MONOTONIC.
        """
        self._links.measure()
        self._tell(now_ns)

    # -- field by field ----------------------------------------------------------

    def _believed(self, value: int | None, lowest: int, highest: int) -> int | None:
        """That value, unless no board can mean it: then it is none, and counted."""
        if value is None or lowest <= value <= highest:
            return value
        self._rejected += 1
        return None

    def _hertz(self, field: NumberField, lowest_megahertz: int = 0) -> float | None:
        megahertz = self._believed(field.read(), lowest_megahertz, _FASTEST_MEGAHERTZ)
        return None if megahertz is None else float(megahertz * _HERTZ_PER_MEGAHERTZ)

    def _ratio(self, field: NumberField | PairField, most_percent: int = 100) -> float | None:
        percent = self._believed(field.read(), 0, most_percent)
        return None if percent is None else percent / 100

    def _read_memory(self, _now_ns: int) -> None:
        memory = self._memory.read()
        self.memory_used_bytes = self._believed(memory[0], 0, memory[1]) if memory else None

    def _read_temperature(self, _now_ns: int) -> None:
        degrees = self._believed(self._temperature.read(), 0, _HOTTEST_CELSIUS)
        self.temperature_celsius = None if degrees is None else float(degrees)

    def _read_clocks(self, _now_ns: int) -> None:
        self.sm_clock_hertz = self._hertz(self._sm_clock)
        self._memory_clock_hertz = self._hertz(self._memory_clock)
        if self._sm_clock_max_hertz is None:  # it stays: once it is known, it is not asked for
            self._sm_clock_max_hertz = self._hertz(self._sm_clock_max, lowest_megahertz=1)

    def _read_throttle_reasons(self, _now_ns: int) -> None:
        bits = self._believed(self._reasons.read(), 0, _EVERY_BIT - 1)
        self._throttle_reasons = None if bits is None else throttle_reasons(bits)

    def _read_energy(self, now_ns: int) -> None:
        rejected = self._counter.rejected
        self.energy_joules = self._counter.take(self._energy.read(), now_ns)
        self._rejected += self._counter.rejected - rejected

    def _read_power_limit(self, _now_ns: int) -> None:
        milliwatts = self._believed(self._power_limit.read(), 1, MOST_MILLIWATTS)
        self._power_limit_watts = None if milliwatts is None else milliwatts / 1000

    def _read_performance_state(self, _now_ns: int) -> None:
        state = self._p_state.read()
        if state == _UNKNOWN_P_STATE:
            state = None
        self._performance_state = self._believed(state, 0, _SLOWEST_P_STATE)

    def _read_ecc(self, _now_ns: int) -> None:
        corrected, uncorrected = self._corrected.read(), self._uncorrected.read()
        self._ecc_corrected_errors = self._believed(corrected, 0, _LARGEST_COUNT)
        self._ecc_uncorrected_errors = self._believed(uncorrected, 0, _LARGEST_COUNT)

    def _read_persistence_mode(self, _now_ns: int) -> None:
        mode = self._believed(self._persistence.read(), 0, 1)
        self._persistence_mode = None if mode is None else mode == 1

    def _read_fan(self, _now_ns: int) -> None:
        self._fan_speed_ratio = self._ratio(self._fan, _FASTEST_FAN_PERCENT)

    def _read_encoder(self, _now_ns: int) -> None:
        self._encoder_ratio = self._ratio(self._encoder)
        self._decoder_ratio = self._ratio(self._decoder)

    def _read_links(self, _now_ns: int) -> None:
        self._links.read_counters()


_FIELDS_OF_DETAILS: Final = frozenset({
    "clocks", "throttle_reasons", "power_limit", "performance_state", "ecc", "persistence_mode",
    "fan", "encoder", "pcie", "nvlink",
})  # fmt: skip
