"""What one board says every few seconds, each answer looked at before it is believed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from gpumon.core.board.throttling import throttle_reasons
from gpumon.sources.nvml.binding import FieldCalls, NvmlLibrary
from gpumon.sources.nvml.details.fields import (
    MemoryField,
    NewestField,
    NumberField,
    PairField,
    TemperatureField,
    long_number,
    number,
)
from gpumon.sources.nvml.details.links import LinkRates
from gpumon.sources.nvml.details.power import MOST_MILLIWATTS, EnergyCounter
from gpumon.sources.nvml.details.processes import process_field
from gpumon.sources.nvml.details.turns import Surroundings, Turn, Turns
from gpumon.sources.nvml.gpm import GpmTrack

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

_Values: TypeAlias = Mapping[str, Any]
_Read: TypeAlias = Callable[[int], _Values]


class SlowFields:
    """Everything of one GPU that is read every few seconds, as far as it is wanted.

    A field that is not wanted is never asked for. One that hangs or fails
    costs itself: what the others say stays true. Values go by their names in
    ``GpuSample`` and ``GpuDetails``.

    Another object is made where the handle becomes another one, so that a call
    that hangs tells nobody any more what it was made for.

    Attributes:
        turns: The fields, what they said and which of them fail.
        measure_at_ns: When ``measure_links`` is due again; 0 before the first.
        gpm: Tells the activity; ``None`` where nothing of it is to be known.
        whole_since_ns: Of the time before this instant no activity is told.
    """

    def __init__(
        self,
        library: NvmlLibrary,
        handle: int,
        around: Surroundings,
        before: SlowFields | None = None,
    ) -> None:
        """Choose the fields.

        Args:
            library: NVML, opened.
            handle: Which GPU.
            around: What the GPUs have in common.
            before: What was asked of that GPU until now: its energy goes on from there.
        """
        self._counter: EnergyCounter = EnergyCounter() if before is None else before._counter
        self._rejected = 0 if before is None else before.rejected
        self._around = around
        self._period_ns = max(around.slow_period_ns, around.period_ns)
        self.turns = Turns(around.monotonic_ns)
        self.measure_at_ns = self.whole_since_ns = 0
        self.gpm: GpmTrack | None = None
        self._links = LinkRates(around.options, around.monotonic_ns)
        fields: dict[str, Callable[[FieldCalls, int], _Read]] = {
            "memory": self._memory,
            "temperature": self._temperature,
            "clocks": self._clocks,
            "throttle_reasons": self._throttle_reasons,
            "energy": self._energy,
            "power_limit": self._power_limit,
            "performance_state": self._performance_state,
            "ecc": self._ecc,
            "persistence_mode": self._persistence_mode,
            "fan": self._fan,
            "encoder": self._encoder,
        }
        for field, bind in fields.items():
            if field in around.options.fields:
                self._add(field, bind, library, handle)
        self._add_links(library, handle)
        if "processes" in around.options.fields:
            self._add("processes", partial(self._processes, library), library, handle)
        if "activity" in around.options.fields:
            self._add("activity", self._activity, library, handle)

    def _add(
        self,
        field: str,
        bind: Callable[[FieldCalls, int], _Read],
        library: NvmlLibrary,
        handle: int,
    ) -> None:
        calls = FieldCalls(library)
        self.turns.add(Turn(field, bind(calls, handle), calls, self._period_ns))

    def _add_links(self, library: NvmlLibrary, handle: int) -> None:
        calls, links = FieldCalls(library), self._links
        links.bind(calls, handle)
        self._window = Turn("pcie", _noted(links.measure), calls, self._period_ns)
        wanted = sorted(self._around.options.fields & {"pcie", "nvlink"})
        if wanted:
            field = " and ".join(wanted)
            read = _noted(links.read_counters)
            self.turns.add(Turn(f"{field} counters", read, calls, self._period_ns))

    @property
    def rejected(self) -> int:
        """Values refused so far, because no board can have meant them."""
        return self._rejected + self._links.rejected

    @property
    def wants_measuring(self) -> bool:
        """Whether ``measure_links`` is the only way to PCIe's rates."""
        return self._links.wants_window

    def read(self) -> None:
        """Ask for everything that is due."""
        self.turns.take()

    def measure_links(self, round_ns: int) -> None:
        """Let the driver measure PCIe, about 40 ms: not on two GPUs in one tick.

        Args:
            round_ns: How long it takes until all GPUs had their turn.
        """
        self._window.period_ns = max(round_ns, self._period_ns)
        self.turns.take_one(self._window)

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

    def _memory(self, calls: FieldCalls, handle: int) -> _Read:
        memory = MemoryField(calls, handle)

        def read(_at_ns: int) -> _Values:
            told = memory.read()
            return {"memory_used_bytes": self._believed(told[0], 0, told[1]) if told else None}

        return read

    def _temperature(self, calls: FieldCalls, handle: int) -> _Read:
        older = number(calls, handle, "Temperature", _TEMPERATURE_OF_THE_CORE)
        temperature = NewestField(TemperatureField(calls, handle), older)

        def read(_at_ns: int) -> _Values:
            degrees = self._believed(temperature.read(), 0, _HOTTEST_CELSIUS)
            return {"temperature_celsius": None if degrees is None else float(degrees)}

        return read

    def _clocks(self, calls: FieldCalls, handle: int) -> _Read:
        sm_clock = number(calls, handle, "ClockInfo", _CLOCK_SM)
        memory_clock = number(calls, handle, "ClockInfo", _CLOCK_MEMORY)
        sm_clock_max = number(calls, handle, "MaxClockInfo", _CLOCK_SM)
        known: float | None = None

        def read(at_ns: int) -> _Values:
            nonlocal known
            told = {
                "read_at_ns": at_ns,
                "sm_clock_hertz": self._hertz(sm_clock),
                "memory_clock_hertz": self._hertz(memory_clock),
            }
            if known is None:  # it stays: once it is known, it is not asked for
                known = self._hertz(sm_clock_max, lowest_megahertz=1)
            return {**told, "sm_clock_max_hertz": known}

        return read

    def _throttle_reasons(self, calls: FieldCalls, handle: int) -> _Read:
        reasons = NewestField(
            long_number(calls, handle, "CurrentClocksEventReasons"),
            long_number(calls, handle, "CurrentClocksThrottleReasons"),
        )

        def read(at_ns: int) -> _Values:
            bits = self._believed(reasons.read(), 0, _EVERY_BIT - 1)
            told = None if bits is None else throttle_reasons(bits)
            return {"read_at_ns": at_ns, "throttle_reasons": told}

        return read

    def _energy(self, calls: FieldCalls, handle: int) -> _Read:
        energy, counter = long_number(calls, handle, "TotalEnergyConsumption"), self._counter

        def read(at_ns: int) -> _Values:
            rejected = counter.rejected
            joules = counter.take(energy.read(), at_ns)
            self._rejected += counter.rejected - rejected
            return {"energy_joules": joules}

        return read

    def _power_limit(self, calls: FieldCalls, handle: int) -> _Read:
        limit = NewestField(
            number(calls, handle, "EnforcedPowerLimit"),
            number(calls, handle, "PowerManagementLimit"),
        )

        def read(at_ns: int) -> _Values:
            milliwatts = self._believed(limit.read(), 1, MOST_MILLIWATTS)
            watts = None if milliwatts is None else milliwatts / 1000
            return {"read_at_ns": at_ns, "power_limit_watts": watts}

        return read

    def _performance_state(self, calls: FieldCalls, handle: int) -> _Read:
        p_state = number(calls, handle, "PerformanceState")

        def read(at_ns: int) -> _Values:
            state = p_state.read()
            known = None if state == _UNKNOWN_P_STATE else state
            told = self._believed(known, 0, _SLOWEST_P_STATE)
            return {"read_at_ns": at_ns, "performance_state": told}

        return read

    def _ecc(self, calls: FieldCalls, handle: int) -> _Read:
        kinds = {
            "ecc_corrected_errors": (_ECC_CORRECTED, _ECC_VOLATILE),
            "ecc_uncorrected_errors": (_ECC_UNCORRECTED, _ECC_VOLATILE),
        }
        counts = {
            name: long_number(calls, handle, "TotalEccErrors", *kind)
            for name, kind in kinds.items()
        }

        def read(at_ns: int) -> _Values:
            told = {
                name: self._believed(count.read(), 0, _LARGEST_COUNT)
                for name, count in counts.items()
            }
            return {"read_at_ns": at_ns, **told}

        return read

    def _persistence_mode(self, calls: FieldCalls, handle: int) -> _Read:
        persistence = number(calls, handle, "PersistenceMode")

        def read(at_ns: int) -> _Values:
            mode = self._believed(persistence.read(), 0, 1)
            return {"read_at_ns": at_ns, "persistence_mode": None if mode is None else mode == 1}

        return read

    def _fan(self, calls: FieldCalls, handle: int) -> _Read:
        fan = number(calls, handle, "FanSpeed")

        def read(at_ns: int) -> _Values:
            return {"read_at_ns": at_ns, "fan_speed_ratio": self._ratio(fan, _FASTEST_FAN_PERCENT)}

        return read

    def _encoder(self, calls: FieldCalls, handle: int) -> _Read:
        encoder, decoder = [
            PairField(calls, f"nvmlDeviceGet{which}Utilization", handle, apart=True)
            for which in ("Encoder", "Decoder")
        ]

        def read(at_ns: int) -> _Values:
            told = {"encoder_ratio": self._ratio(encoder), "decoder_ratio": self._ratio(decoder)}
            return {"read_at_ns": at_ns, **told}

        return read

    def _processes(self, library: NvmlLibrary, calls: FieldCalls, handle: int) -> _Read:
        processes = process_field(library, handle, self._around.options, calls=calls)
        return lambda at_ns: {
            "processes": processes.read(at_ns) if processes else None,
            "processes_at_ns": at_ns,
        }

    def _activity(self, calls: FieldCalls, _handle: int) -> _Read:
        def read(_at_ns: int) -> _Values:
            gpm = self.gpm
            if gpm is None:
                return {}
            activity = gpm.read(self.whole_since_ns)
            calls.note("GPM", gpm.code)
            self._rejected += gpm.newly_rejected()
            return {"activity": activity}

        return read


def _noted(read: Callable[[], _Values]) -> _Read:
    """The same, with the instant of the reading among its values."""
    return lambda at_ns: {"read_at_ns": at_ns, **read()}
