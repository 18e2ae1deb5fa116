"""One GPU as NVML shows it, from tick to tick."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Final

from gpumon.core.device import Device
from gpumon.core.sample import BusySample, GpuSample, ProcessSample
from gpumon.core.units import NS_PER_S
from gpumon.sources.nvml_binding import (
    GPU_IS_LOST,
    NOT_FOUND,
    PERMANENT,
    SUCCESS,
    NvmlLibrary,
    code_name,
)
from gpumon.sources.nvml_busy import BusyTrack
from gpumon.sources.nvml_clock import Entry, StampClock
from gpumon.sources.nvml_fields import (
    MemoryField,
    NumberField,
    PairField,
    ProcessField,
    SampleRing,
)

_TEMPERATURE_GPU: Final = 0
_CLOCK_SM: Final = 1
_HERTZ_PER_MEGAHERTZ: Final = 1_000_000
_LOOK_AGAIN_NS: Final = 10 * NS_PER_S
_NOTHING_NEW: Final = frozenset({NOT_FOUND, 21})

_LOST: Final = "the GPU is lost (NVML 15): look for Xid 79 in `dmesg`, then reset the GPU or reboot"


def describe(library: NvmlLibrary, handle: int, index: int) -> Device | None:
    """Who that GPU is; ``None`` if it does not even say its UUID."""
    uuid = library.text("nvmlDeviceGetUUID", handle)
    if uuid is None:
        return None
    memory = MemoryField(library, handle).read()
    return Device(
        uuid=uuid,
        index=index,
        name=library.text("nvmlDeviceGetName", handle),
        pci_bus_id=library.pci_bus_id(handle),
        driver_version=library.driver_version,
        memory_capacity_bytes=memory[1] if memory else None,
    )


class NvmlGpu:
    """Reads one GPU; what it knows outlives a lost handle.

    A tick asks in three rounds, so that the drains of all GPUs lie close
    together: ``drain``, ``read_power``, ``sample``; and ``refresh`` now and
    then for what changes slowly.

    Attributes:
        device: Who it is.
        failure: The code that made this tick's reading impossible; 0 if none.
        refresh_at_ns: When the slow values are due again.
    """

    def __init__(self, library: NvmlLibrary, handle: int, device: Device) -> None:
        self.track = BusyTrack()
        self.refresh_at_ns = 0
        self._answering_since_ns: int | None = None
        self.attach(library, handle, device)

    def attach(self, library: NvmlLibrary, handle: int, device: Device) -> None:
        """Use this handle from now on; the position in the ring is set anew."""
        self.device = device
        self._library, self._handle = library, handle
        self._ring = SampleRing(library, handle)
        self._rates = PairField(library, "nvmlDeviceGetUtilizationRates", handle, apart=False)
        self._mig = PairField(library, "nvmlDeviceGetMigMode", handle, apart=True)
        self._power = NumberField(library, "nvmlDeviceGetPowerUsage", handle)
        self._temperature = NumberField(
            library, "nvmlDeviceGetTemperature", handle, kind=_TEMPERATURE_GPU
        )
        self._clock = NumberField(library, "nvmlDeviceGetClockInfo", handle, kind=_CLOCK_SM)
        self._energy = NumberField(
            library,
            "nvmlDeviceGetTotalEnergyConsumption",
            handle,
            number=ctypes.c_ulonglong(),
        )
        self._index = NumberField(library, "nvmlDeviceGetIndex", handle)
        self._memory = MemoryField(library, handle)
        self._processes = ProcessField(library, handle)
        self._has_ring, self._in_parts = True, False
        self.failure = SUCCESS
        self._look_again_at_ns = 0
        self._forget_slow_values()
        self.track.started = False

    def is_attached_to(self, library: NvmlLibrary, handle: int) -> bool:
        """Whether it reads through this handle of this library."""
        return self._library is library and self._handle == handle

    def renew_handle(self, library: NvmlLibrary) -> None:
        """Look the GPU up again by its UUID: a reset can have made the handle void."""
        handle = library.handle_by_uuid(self.device.uuid)
        if handle is not None and handle != self._handle:
            self.attach(library, handle, self.device)

    def _forget_slow_values(self) -> None:
        self._power_watts: float | None = None
        self._memory_used_bytes: int | None = None
        self._temperature_celsius: float | None = None
        self._sm_clock_hertz: float | None = None
        self._energy_joules: float | None = None
        self._process_samples: tuple[ProcessSample, ...] | None = None
        self.refresh_at_ns = 0

    # -- the fast rounds -----------------------------------------------------

    def drain(self, back_us: int = 0) -> None:
        """Fetch what is new in the ring, and from ``back_us`` before the position on."""
        self.failure = SUCCESS
        if not self._has_ring or self._in_parts:
            self._ring.count = 0
            return
        code = self._ring.drain(max(0, self.track.position_us - back_us))
        if code == SUCCESS or code in _NOTHING_NEW:
            return
        if code in PERMANENT:
            self._has_ring = False
        else:
            self.failure = code

    def read_power(self) -> None:
        """Read the board's power draw: it changes as fast as the work does."""
        milliwatts = self._power.read()
        self._power_watts = None if milliwatts is None else milliwatts / 1000
        if milliwatts is not None or not self._power.supported or self.failure:
            return
        # Where the ring is not asked, this call is the one that notices a GPU that is gone.
        asks_ring = self._has_ring and not self._in_parts
        if self._power.code == GPU_IS_LOST or not asks_ring:
            self.failure = self._power.code

    def newest_us(self, stamps: StampClock, now_ns: int) -> int:
        """The newest stamp that this tick brought; 0 where nothing is new."""
        if not self._ring.count:
            return 0
        stamp_us = self._ring.newest_us()
        if stamps.was_set:
            ((stamp_us, _),) = stamps.straightened(((stamp_us, 0),), now_ns)
        return stamp_us if stamp_us > self.track.position_us else 0

    def sample(self, stamps: StampClock, steady_since_ns: int, now_ns: int) -> GpuSample:
        """What this GPU says in this tick.

        Args:
            stamps: Where the driver's stamps lie on the monotonic clock.
            steady_since_ns: Since when the source was read without a stop.
            now_ns: CLOCK_MONOTONIC just after the rings were drained.
        """
        if self.failure:
            self._answering_since_ns = None
            return GpuSample(device=self.device, error=self._failure_text())
        if self._answering_since_ns is None:
            self._answering_since_ns = now_ns
        busy: Iterable[BusySample] = ()
        if not self._in_parts:
            busy = self._take_ring(stamps, now_ns)
            if not busy and self.track.is_dry(now_ns):
                busy = self._read_rates(max(steady_since_ns, self._answering_since_ns), now_ns)
        percent = None if self._in_parts else self.track.percent
        return GpuSample(
            device=self.device,
            busy=tuple(busy),
            utilization_ratio=None if percent is None else percent / 100,
            memory_used_bytes=self._memory_used_bytes,
            power_watts=self._power_watts,
            temperature_celsius=self._temperature_celsius,
            sm_clock_hertz=self._sm_clock_hertz,
            energy_joules=self._energy_joules,
            processes=self._process_samples,
        )

    def _take_ring(self, stamps: StampClock, now_ns: int) -> Iterable[BusySample]:
        track, ring = self.track, self._ring
        if track.started and not ring.count:
            return ()
        entries: Iterable[Entry] = ring.entries()
        offset_ns = stamps.offset_ns
        if not track.started or offset_ns is None:
            track.start(entries, offset_ns, now_ns)
            return ()
        if stamps.was_set:
            entries = stamps.straightened(entries, now_ns)
        return track.take(entries, offset_ns, now_ns)

    def _read_rates(self, since_ns: int, now_ns: int) -> Iterable[BusySample]:
        self._find_restarted_stamps(now_ns)
        percent = self._rates.read()
        if percent is None:
            self.track.percent = None
            return ()
        return self.track.cover(percent, since_ns, now_ns)

    def _find_restarted_stamps(self, now_ns: int) -> None:
        """A reset can set the stamps back: then nothing would ever be newer than the position."""
        track = self.track
        if not self._has_ring or not track.position_us or now_ns < self._look_again_at_ns:
            return
        self._look_again_at_ns = now_ns + _LOOK_AGAIN_NS
        if self._ring.drain(0) == SUCCESS and self._ring.newest_us() < track.position_us:
            track.start(self._ring.entries(), None, now_ns)

    def _failure_text(self) -> str:
        if self.failure == GPU_IS_LOST:
            return _LOST
        return f"NVML could not read the GPU: it answers {code_name(self.failure)}"

    # -- the slow round ------------------------------------------------------

    def refresh(self) -> None:
        """Read what changes slowly: some of these calls take milliseconds on real boards."""
        memory = self._memory.read()
        self._memory_used_bytes = memory[0] if memory else None
        self._temperature_celsius = self._temperature.read()
        megahertz = self._clock.read()
        self._sm_clock_hertz = None if megahertz is None else megahertz * _HERTZ_PER_MEGAHERTZ
        millijoules = self._energy.read()
        self._energy_joules = None if millijoules is None else millijoules / 1000
        self._process_samples = self._processes.read()
        self._notice_parts()

    def _notice_parts(self) -> None:
        """A GPU in MIG parts has no utilisation of its own: unknown, not idle."""
        in_parts = self._mig.read() == 1
        if self._in_parts and not in_parts:
            self._has_ring = self._rates.supported = True
            self.track.started = False
        self._in_parts = in_parts

    def current_index(self) -> int:
        """The index NVML gives it now."""
        index = self._index.read()
        return self.device.index if index is None else index
