"""Reads every GPU in each tick: its rings of utilisation and power samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpumon.core.sample import GpuSample
from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.busy import DrainInstant
from gpumon.sources.nvml.codes import GPU_IS_LOST, NO_ERROR, NOTHING_NEW, PERMANENT, SUCCESS
from gpumon.sources.nvml.fields.table import POWER_USAGE
from gpumon.sources.nvml.gpu import NvmlGpu
from gpumon.sources.nvml.mig import MigInstance
from gpumon.sources.nvml.sample_rings import POWER_SAMPLES, SampleRings
from gpumon.sources.nvml.stamp_clock import Entry, StampClock


class TickReader:
    """Makes the calls of a tick; replaced when what the GPUs support changes.

    Attributes:
        gpu_count: How many GPUs it reads.
        is_old: Whether a GPU turned out not to support a call: make a new reader.
        failed: Whether a GPU could not be read in this tick.
        failed_late: Whether that was noticed only while its sample was made.
    """

    def __init__(self, library: NvmlLibrary, devices: Sequence[NvmlGpu | MigInstance]) -> None:
        """Prepare the calls for these devices, in the order of the frame."""
        self._devices = devices
        self._gpus = [device for device in devices if isinstance(device, NvmlGpu)]
        reachable = [gpu for gpu in self._gpus if not gpu.lost_code]
        self.gpu_count = sum(gpu.is_readable for gpu in reachable)
        self._with_ring = [gpu for gpu in reachable if gpu.has_ring and not gpu.is_partitioned]
        self._with_power = [gpu for gpu in reachable if gpu.has_power]
        self._with_power_ring = [gpu for gpu in self._with_power if gpu.power.has_ring]
        self._rings = SampleRings(library, [gpu.handle for gpu in self._with_ring])
        drained = [gpu.handle for gpu in self._with_power_ring]
        self._power_rings = SampleRings(library, drained, POWER_SAMPLES)
        self._fresh: dict[NvmlGpu | MigInstance, list[Entry]] = {}
        self._milliwatts: dict[NvmlGpu | MigInstance, float | None] = {}
        self._read_at_ns = 0
        self._is_reported = True
        self.is_old = self.failed = self.failed_late = False
        self._forget_failures()

    def _forget_failures(self) -> None:
        for gpu in self._gpus:
            gpu.failure = gpu.lost_code
            self.failed |= gpu.lost_code != SUCCESS

    def read_all(self, back_us: int, monotonic_ns: Callable[[], int]) -> int:
        """Drain the rings and read the power, which changes as fast as the work does.

        A tick that was held up reads again: it returns all that is new since ``samples``. Rings
        are drained from ``back_us`` before their positions.

        Returns:
            CLOCK_MONOTONIC just after the rings were drained.
        """
        if self.failed:
            self.failed = False
            self._forget_failures()
        if self._is_reported:
            self._is_reported = False
            for gpu in self._with_power_ring:
                gpu.power.begin_tick()
        positions_us = [max(0, gpu.track.position_us - back_us) for gpu in self._with_ring]
        rows = self._rings.drain(positions_us)
        self._fresh = dict(zip(self._with_ring, rows, strict=True))
        self._read_at_ns = now_ns = monotonic_ns()
        rows = self._power_rings.drain([gpu.power.position_us for gpu in self._with_power_ring])
        drawn = dict(zip(self._with_power_ring, rows, strict=True))
        self._milliwatts = {
            gpu: gpu.power.ingest(drawn[gpu], now_ns) if gpu in drawn else gpu.power.read_now()
            for gpu in self._with_power
        }
        power_codes = [gpu.power.code for gpu in self._with_power if gpu not in drawn]
        # A GPU without a handle counts: it may be the only one.
        codes = (*self._rings.codes, *self._power_rings.codes, *power_codes)
        if self.failed or any(codes):
            self.is_old |= self._sort_failures()
        return now_ns

    def _sort_failures(self) -> bool:
        changed = False
        for gpu, code in zip(self._with_ring, self._rings.codes, strict=True):
            if code in PERMANENT:
                gpu.has_ring, changed = False, True
            elif code in NOTHING_NEW:
                continue
            elif gpu.can_do_without_ring(code):
                changed = True
            else:
                gpu.failure, self.failed = code, True
        ring_codes = dict(zip(self._with_power_ring, self._power_rings.codes, strict=True))
        for gpu in self._with_power:
            if gpu not in ring_codes:
                changed |= self._sort_power_failure(gpu)
            elif ring_codes[gpu] not in NOTHING_NEW:
                self._milliwatts[gpu] = gpu.power.read_now()
                changed |= self._sort_power_failure(gpu, ring_codes[gpu])
        return changed

    def _sort_power_failure(self, gpu: NvmlGpu, ring_code: int | None = None) -> bool:
        """Return whether its power is read by another call from now on."""
        drawn = self._milliwatts[gpu]
        refused = SUCCESS if drawn is not None else gpu.power.code
        is_refused = refused in PERMANENT
        # If only the ring fails, the GPU is there, and its ring is left out for a while.
        leaves_ring = ring_code is not None and (
            drawn is not None or ring_code in PERMANENT or is_refused
        )
        gpu.power.has_ring &= not leaves_ring
        gpu.has_power = not is_refused
        if refused != SUCCESS and not is_refused and not gpu.failure:
            if refused == GPU_IS_LOST or gpu.is_partitioned or gpu.has_no_utilisation:
                # Without utilisation data, this call notices a lost GPU.
                gpu.failure, self.failed = refused, True
            elif refused not in NO_ERROR:
                gpu.faults.note("power", POWER_USAGE.function, refused, self._read_at_ns)
        return leaves_ring or is_refused

    def samples(
        self, stamps: StampClock, steady_since_ns: int, now_ns: int
    ) -> tuple[GpuSample, ...]:
        """Return a sample of each device, in index order; arguments as in ``DrainInstant``."""
        self._is_reported = True
        self._learn_stamps(stamps, now_ns)
        instant = DrainInstant(stamps, steady_since_ns, now_ns)
        samples = []
        self.failed_late = False
        for device in self._devices:
            entries = self._fresh.get(device, [])
            failed_before = device.failure
            # Its new entries are known, even if another call failed.
            busy = device.busy(instant, entries) if entries or not failed_before else ()
            if entries or not device.failure:
                samples.append(device.sample(busy, self._milliwatts.get(device), now_ns))
                continue
            self.failed = True
            self.failed_late |= not failed_before
            samples.append(device.failed_sample(now_ns))
        return tuple(samples)

    def _learn_stamps(self, stamps: StampClock, now_ns: int) -> None:
        fresh_us = []
        for gpu in self._with_ring:
            newest = self._fresh[gpu][-1:]
            if stamps.was_set:
                newest = stamps.straightened(newest, now_ns)
            fresh_us += [stamp_us for stamp_us, _ in newest if stamp_us > gpu.track.position_us]
        stamps.learn(fresh_us, now_ns)
