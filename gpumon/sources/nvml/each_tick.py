"""What every GPU is asked in each tick: its rings of utilisation and of power samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpumon.core.sample import GpuSample
from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.busy import DrainInstant
from gpumon.sources.nvml.clock import Entry, StampClock
from gpumon.sources.nvml.codes import GPU_IS_LOST, NO_ERROR, NOTHING_NEW, PERMANENT, SUCCESS
from gpumon.sources.nvml.drain import POWER_SAMPLES, SampleRings
from gpumon.sources.nvml.fields.table import POWER_USAGE, SAMPLES, NvmlCall
from gpumon.sources.nvml.gpu import NvmlGpu
from gpumon.sources.nvml.mig import MigInstance


class TickReader:
    """Asks each GPU what it can be asked at every tick; made anew when that changes.

    Attributes:
        asked: How many GPUs it asks something.
        is_old: Whether a GPU turned out not to support something: make a new one.
        failed: Whether a GPU could not be read in this tick.
        failed_late: Whether that was found out only while its sample was made.
    """

    def __init__(self, library: NvmlLibrary, devices: Sequence[NvmlGpu | MigInstance]) -> None:
        """Lay out the calls for these devices, which are in the order of the frame."""
        self._devices = devices
        self._gpus = [one for one in devices if isinstance(one, NvmlGpu)]
        reachable = [gpu for gpu in self._gpus if not gpu.gone]
        self.asked = sum(gpu.is_asked for gpu in reachable)
        self._with_ring = [gpu for gpu in reachable if gpu.has_ring and not gpu.in_parts]
        self._with_power = [gpu for gpu in reachable if gpu.has_power]
        self._with_power_ring = [gpu for gpu in self._with_power if gpu.power.has_ring]
        self._rings = SampleRings(library, [gpu.handle for gpu in self._with_ring])
        drained = [gpu.handle for gpu in self._with_power_ring]
        self._power_rings = SampleRings(library, drained, POWER_SAMPLES)
        self._fresh: dict[NvmlGpu | MigInstance, list[Entry]] = {}
        self._milliwatts: dict[NvmlGpu | MigInstance, float | None] = {}
        self._asked_at_ns = 0
        self._is_told = True
        self.is_old = self.failed = self.failed_late = False
        self._forget_failures()

    def _forget_failures(self) -> None:
        for gpu in self._gpus:
            gpu.failure = gpu.gone
            self.failed |= gpu.gone != SUCCESS

    def ask(self, back_us: int, monotonic_ns: Callable[[], int]) -> int:
        """Fetch what is new in the rings, and the power: it changes as fast as the work does.

        A tick that was held up asks again: what it brings is what is new since ``samples``.
        Rings are asked for what lies up to ``back_us`` before their positions, too.

        Returns:
            CLOCK_MONOTONIC just after the rings were drained.
        """
        if self.failed:
            self.failed = False
            self._forget_failures()
        if self._is_told:
            self._is_told = False
            for gpu in self._with_power_ring:
                gpu.power.begin_tick()
        positions_us = [max(0, gpu.track.position_us - back_us) for gpu in self._with_ring]
        rows = self._rings.drain(positions_us)
        self._fresh = dict(zip(self._with_ring, rows, strict=True))
        self._asked_at_ns = now_ns = monotonic_ns()
        rows = self._power_rings.drain([gpu.power.position_us for gpu in self._with_power_ring])
        drawn = dict(zip(self._with_power_ring, rows, strict=True))
        self._milliwatts = {
            gpu: gpu.power.take(drawn[gpu], now_ns) if gpu in drawn else gpu.power.ask_now()
            for gpu in self._with_power
        }
        asked = [gpu.power.code for gpu in self._with_power if gpu not in drawn]
        # A GPU without a handle counts: where there is no other, nothing else tells of it.
        codes = (*self._rings.codes, *self._power_rings.codes, *asked)
        if self.failed or any(codes):
            self.is_old |= self._sort_failures()
        return now_ns

    def _sort_failures(self) -> bool:
        """Note on each GPU what went wrong with it; say whether one does not support something."""
        changed = False
        for gpu, code in zip(self._with_ring, self._rings.codes, strict=True):
            if code in PERMANENT:
                gpu.has_ring, changed = False, True
            elif code in NOTHING_NEW:
                continue
            elif gpu.tells_without_ring(code):
                changed = True
            else:
                gpu.failure, self.failed = code, True
        ring_codes = dict(zip(self._with_power_ring, self._power_rings.codes, strict=True))
        for gpu in self._with_power:
            if gpu not in ring_codes:
                changed |= self._sort_power_failure(gpu)
            elif ring_codes[gpu] not in NOTHING_NEW:
                self._milliwatts[gpu] = gpu.power.ask_now()
                changed |= self._sort_power_failure(gpu, ring_codes[gpu])
        return changed

    def _sort_power_failure(self, gpu: NvmlGpu, ring_code: int | None = None) -> bool:
        """Say whether its power is asked otherwise from now on."""
        drawn = self._milliwatts[gpu]
        refused = SUCCESS if drawn is not None else gpu.power.code
        is_refused = refused in PERMANENT
        # Where only the ring fails, the GPU is there, and its ring is left out for a while.
        leaves_ring = ring_code is not None and (
            drawn is not None or ring_code in PERMANENT or is_refused
        )
        gpu.power.has_ring &= not leaves_ring
        gpu.has_power = not is_refused
        if refused != SUCCESS and not is_refused:
            self._note_power_failure(gpu, POWER_USAGE, refused)
        elif ring_code is not None and drawn is None and not (is_refused or leaves_ring):
            self._note_power_failure(gpu, SAMPLES, ring_code)
        return leaves_ring or is_refused

    def _note_power_failure(self, gpu: NvmlGpu, call: NvmlCall, code: int) -> None:
        if not gpu.failure and (code == GPU_IS_LOST or gpu.in_parts or gpu.is_dark):
            # Where no utilisation is asked, it is this call that notices a GPU that is gone.
            gpu.failure, self.failed = code, True
        if not gpu.failure and code not in NO_ERROR:
            gpu.faults.note("power", call.function, code, self._asked_at_ns)

    def samples(
        self, stamps: StampClock, steady_since_ns: int, now_ns: int
    ) -> tuple[GpuSample, ...]:
        """What every GPU says, in index order. The arguments are those of a ``DrainInstant``."""
        self._is_told = True
        self._learn_stamps(stamps, now_ns)
        instant = DrainInstant(stamps, steady_since_ns, now_ns)
        samples = []
        self.failed_late = False
        for one in self._devices:
            entries = self._fresh.get(one, [])
            failed_before = one.failure
            # What its ring brought is known, whatever another call says.
            busy = one.busy(instant, entries) if entries or not failed_before else ()
            if entries or not one.failure:
                samples.append(one.sample(busy, self._milliwatts.get(one), now_ns))
                continue
            self.failed = True
            self.failed_late |= not failed_before
            samples.append(one.failed_sample(now_ns))
        return tuple(samples)

    def _learn_stamps(self, stamps: StampClock, now_ns: int) -> None:
        """Let the clock see the newest stamps that this drain brought."""
        fresh_us = []
        for gpu in self._with_ring:
            newest = self._fresh[gpu][-1:]
            if stamps.was_set:
                newest = stamps.straightened(newest, now_ns)
            fresh_us += [stamp_us for stamp_us, _ in newest if stamp_us > gpu.track.position_us]
        stamps.learn(fresh_us, now_ns)
