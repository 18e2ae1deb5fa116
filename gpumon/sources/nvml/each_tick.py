"""The part of a tick that asks every GPU: its rings of utilisation and of power samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpumon.core.sample import GpuSample
from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.busy import DrainInstant
from gpumon.sources.nvml.clock import Entry, StampClock
from gpumon.sources.nvml.codes import GPU_IS_LOST, NO_ERROR, NOTHING_NEW, PERMANENT, SUCCESS
from gpumon.sources.nvml.drain import POWER_SAMPLES, PowerSweep, RingSweep
from gpumon.sources.nvml.fields.table import MOST_MILLIWATTS, POWER_USAGE, SAMPLES, NvmlCall
from gpumon.sources.nvml.gpu import NvmlGpu
from gpumon.sources.nvml.mig import MigInstance


class TickReader:
    """Asks each GPU what it can be asked at every tick; made anew when that changes.

    Attributes:
        asked: How many GPUs it asks something.
        has_codes: Whether a call answered with anything but success in this tick.
        failed: Whether a GPU could not be read in this tick.
        failed_late: Whether that was found out only while its sample was made.
    """

    def __init__(self, library: NvmlLibrary, devices: Sequence[NvmlGpu | MigInstance]) -> None:
        """Lay out the calls.

        Args:
            library: NVML, opened.
            devices: In the order of the frame; an instance asks for itself.
        """
        self._gpus = [one for one in devices if isinstance(one, NvmlGpu)]
        reachable = [gpu for gpu in self._gpus if not gpu.gone]
        self._with_ring = [gpu for gpu in reachable if gpu.has_ring and not gpu.in_parts]
        with_power = [gpu for gpu in reachable if gpu.has_power]
        self._with_power_ring = [gpu for gpu in with_power if gpu.power.has_ring]
        self._with_power = [gpu for gpu in with_power if not gpu.power.has_ring]
        self.asked = sum(gpu.is_asked for gpu in reachable)
        self._rings = RingSweep(library, [gpu.handle for gpu in self._with_ring])
        drained = [gpu.handle for gpu in self._with_power_ring]
        self._power_rings = RingSweep(library, drained, POWER_SAMPLES)
        self._power = PowerSweep(library, [gpu.handle for gpu in self._with_power])
        ring_of = {id(gpu): place for place, gpu in enumerate(self._with_ring)}
        by_power = [*self._with_power_ring, *self._with_power]
        power_of = {id(gpu): place for place, gpu in enumerate(by_power)}
        # -1, for none, is the last of each tick's rows: nothing new, no answer.
        self._places = [
            (one, ring_of.get(id(one), -1), power_of.get(id(one), -1)) for one in devices
        ]
        self._fresh: list[list[Entry]] = []
        self._milliwatts: list[float | None] = []
        self._asked_at_ns = 0
        self.has_codes = self.failed = self.failed_late = False
        self._forget_failures()

    def _forget_failures(self) -> None:
        for gpu in self._gpus:
            gpu.failure = gpu.gone
            self.failed |= gpu.gone != SUCCESS

    def ask(self, back_us: int, monotonic_ns: Callable[[], int]) -> int:
        """Fetch what is new in the rings, and the power: it changes as fast as the work does.

        Args:
            back_us: Ask for entries from that long before each position on.
            monotonic_ns: Tells the time.

        Returns:
            CLOCK_MONOTONIC just after the rings were drained.
        """
        if self.failed:
            self.failed = False
            self._forget_failures()
        positions_us = [max(0, gpu.track.position_us - back_us) for gpu in self._with_ring]
        self._fresh = [*self._rings.drain(positions_us), []]
        self._asked_at_ns = now_ns = monotonic_ns()
        powers = [gpu.power for gpu in self._with_power_ring]
        rows = self._power_rings.drain([power.position_us for power in powers])
        drawn = [power.take(row, now_ns) for power, row in zip(powers, rows, strict=True)]
        self._milliwatts = [*drawn, *(self._asked_power() if self._with_power else ()), None]
        # A GPU without a handle counts: where there is no other, nothing else tells of it.
        codes = (*self._rings.codes, *self._power_rings.codes, *self._power.codes)
        self.has_codes = self.failed or any(codes)
        return now_ns

    def _asked_power(self) -> list[float | None]:
        """The draw of those GPUs of which the driver keeps no power samples."""
        milliwatts: list[float | None] = []
        asked = zip(self._with_power, self._power.ask(), self._power.codes, strict=True)
        for gpu, drawn, code in asked:
            is_possible = drawn <= MOST_MILLIWATTS
            # What no board can draw counts where it was an answer.
            gpu.power.rejected += code == SUCCESS and not is_possible
            milliwatts.append(drawn if is_possible else None)
        return milliwatts

    def sort_failures(self) -> bool:
        """Note on each GPU what went wrong with it, where there are codes.

        Returns:
            Whether a GPU turned out not to support something: make a new round.
        """
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
        changed |= self._sort_failures_of_power_rings()
        return self._sort_power_failures() or changed

    def _sort_failures_of_power_rings(self) -> bool:
        changed = False
        codes = self._power_rings.codes
        for place, (gpu, code) in enumerate(zip(self._with_power_ring, codes, strict=True)):
            if code in NOTHING_NEW:
                continue
            # Where only the ring fails, the GPU is there, and its ring is left out for a while.
            drawn = self._milliwatts[place] = gpu.power.ask_now()
            refused = SUCCESS if drawn is not None else gpu.power.code
            if drawn is not None or code in PERMANENT or refused in PERMANENT:
                gpu.power.has_ring, changed = False, True
                gpu.has_power = refused not in PERMANENT
            if refused != SUCCESS and refused not in PERMANENT:
                self._note_power_failure(gpu, POWER_USAGE, refused)
            elif drawn is None and refused == SUCCESS and code not in PERMANENT:
                self._note_power_failure(gpu, SAMPLES, code)
        return changed

    def _note_power_failure(self, gpu: NvmlGpu, call: NvmlCall, code: int) -> None:
        if not gpu.failure and (code == GPU_IS_LOST or gpu.in_parts or gpu.is_dark):
            # Where no utilisation is asked, it is this call that notices a GPU that is gone.
            gpu.failure, self.failed = code, True
        if not gpu.failure and code not in NO_ERROR:
            gpu.faults.note("power", call.function, code, self._asked_at_ns)

    def _sort_power_failures(self) -> bool:
        changed, first = False, len(self._with_power_ring)
        for place, (gpu, code) in enumerate(zip(self._with_power, self._power.codes, strict=True)):
            if code == SUCCESS:
                continue
            self._milliwatts[first + place] = None
            if code in PERMANENT:
                gpu.has_power, changed = False, True
            else:
                self._note_power_failure(gpu, POWER_USAGE, code)
        return changed

    def samples(
        self, stamps: StampClock, steady_since_ns: int, now_ns: int
    ) -> tuple[GpuSample, ...]:
        """What every GPU says, in index order. The arguments are those of a ``DrainInstant``."""
        self._learn_stamps(stamps, now_ns)
        instant = DrainInstant(stamps, steady_since_ns, now_ns)
        samples = []
        self.failed_late = False
        for gpu, ring, power in self._places:
            entries = self._fresh[ring]
            failed_before = gpu.failure
            # What its ring brought is known, whatever another call says.
            busy = gpu.busy(instant, entries) if entries or not failed_before else ()
            if entries or not gpu.failure:
                samples.append(gpu.sample(busy, self._milliwatts[power], now_ns))
                continue
            self.failed = True
            self.failed_late |= not failed_before
            samples.append(gpu.failed_sample(now_ns))
        return tuple(samples)

    def _learn_stamps(self, stamps: StampClock, now_ns: int) -> None:
        """Let the clock see the newest stamps that this drain brought."""
        fresh_us = []
        for gpu, entries in zip(self._with_ring, self._fresh, strict=False):
            if not entries:
                continue
            newest = entries[-1]
            if stamps.was_set:
                (newest,) = stamps.straightened((newest,), now_ns)
            if newest[0] > gpu.track.position_us:
                fresh_us.append(newest[0])
        stamps.learn(fresh_us, now_ns)
