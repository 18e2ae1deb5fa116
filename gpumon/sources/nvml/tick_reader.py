"""Reads the GPUs that are due in a tick: their rings of utilisation and power samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpumon.core.sample import GpuSample
from gpumon.sources.gpu_source import ReadNow
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
        self._fresh: dict[NvmlGpu, list[Entry]] = {}
        self._milliwatts: dict[NvmlGpu | MigInstance, float | None] = {}
        self._read_at_ns = 0
        self._due: set[NvmlGpu] = set()
        self.is_old = self.failed = self.failed_late = False
        self._forget_failures()

    def _forget_failures(self) -> None:
        for gpu in self._gpus:
            gpu.failure = gpu.lost_code
            self.failed |= gpu.lost_code != SUCCESS

    def read_all(self, back_us: int, monotonic_ns: Callable[[], int], read_now: ReadNow) -> int:
        """Drain the rings that are due, and read the power of the same GPUs.

        Rings are drained from ``back_us`` before their positions.

        Returns:
            CLOCK_MONOTONIC just after the rings were drained.
        """
        at_ns = monotonic_ns()
        self._due = self._due_gpus(at_ns, read_now)
        if self.failed:
            self.failed = False
            self._forget_failures()
        for gpu in self._with_power_ring:
            if gpu in self._due:
                gpu.power.begin_tick()
        return self.read_again(back_us, monotonic_ns)

    def read_again(self, back_us: int, monotonic_ns: Callable[[], int]) -> int:
        """Drain the same rings once more, because the tick was held up."""
        positions_us = {
            number: 0 if gpu.drains.wants_whole_ring else max(0, gpu.track.position_us - back_us)
            for number, gpu in enumerate(self._with_ring)
            if gpu in self._due
        }
        rows = self._rings.drain(positions_us)
        self._fresh = {self._with_ring[number]: row for number, row in rows.items()}
        self._read_at_ns = now_ns = monotonic_ns()
        positions_us = {
            number: gpu.power.position_us
            for number, gpu in enumerate(self._with_power_ring)
            if gpu in self._due
        }
        rows = self._power_rings.drain(positions_us)
        drawn = {self._with_power_ring[number]: row for number, row in rows.items()}
        with_power = [gpu for gpu in self._with_power if gpu in self._due]
        for gpu in with_power:
            self._milliwatts[gpu] = (
                gpu.power.ingest(drawn[gpu], now_ns) if gpu in drawn else gpu.power.read_now()
            )
        power_codes = [gpu.power.code for gpu in with_power if gpu not in drawn]
        # A GPU without a handle counts: it may be the only one.
        codes = (*self._rings.codes, *self._power_rings.codes, *power_codes)
        if self.failed or any(codes):
            self.is_old |= self._sort_failures()
        return now_ns

    def _due_gpus(self, now_ns: int, read_now: ReadNow) -> set[NvmlGpu]:
        """The GPUs to read in this tick.

        GPUs with a user in common are read together, because the work of one job is compared. So
        are those without a user, which leaves more ticks that read nothing.
        """
        if ReadNow.SAMPLES in read_now:
            return set(self._gpus)
        due = {gpu for gpu in self._gpus if gpu.must_be_read(now_ns)}
        users = frozenset().union(*(gpu.users for gpu in due))
        return due | {gpu for gpu in self._gpus if not users.isdisjoint(gpu.users)}

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
            if gpu not in self._due:
                continue
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
        self._learn_stamps(stamps, now_ns)
        instant = DrainInstant(stamps, steady_since_ns, now_ns)
        samples = []
        self.failed_late = False
        for number, device in enumerate(self._devices):
            entries: Sequence[Entry] = ()
            failed_before = device.failure
            if isinstance(device, NvmlGpu):
                if device not in self._due:
                    busy = device.busy_between_drains(instant)
                    samples.append(device.sample(busy, self._milliwatts.get(device), now_ns))
                    continue
                share = (number + 1) / len(self._devices)
                entries = device.plan_drain(self._fresh.get(device, ()), now_ns, share)
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
        for gpu, entries in self._fresh.items():
            newest = entries[-1:]
            if stamps.was_set:
                newest = stamps.straightened(newest, now_ns)
            fresh_us += [stamp_us for stamp_us, _ in newest if stamp_us > gpu.track.position_us]
        stamps.learn(fresh_us, now_ns)
