"""The part of a tick that asks every GPU: its rings of utilisation and of power samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from time import perf_counter_ns

from gpumon.core.sample import BusySample, GpuSample
from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.busy import EntriesOf, Moment
from gpumon.sources.nvml.clock import Entry, StampClock
from gpumon.sources.nvml.codes import GPU_IS_LOST, NO_ERROR, NOTHING_NEW, PERMANENT, SUCCESS
from gpumon.sources.nvml.details.power import MOST_MILLIWATTS
from gpumon.sources.nvml.drain import (
    POWER_SAMPLES,
    POWER_USAGE,
    SAMPLES,
    PowerSweep,
    RingSweep,
)
from gpumon.sources.nvml.gpu import NvmlGpu
from gpumon.sources.nvml.mig import MigInstance


class FastRound:
    """Asks each GPU what it can be asked at every tick; made anew when that changes.

    Attributes:
        asked: How many GPUs it asks something.
        has_codes: Whether a call answered with anything but success in this tick.
        failed: Whether a GPU could not be read in this tick.
        failed_late: Whether that was found out only while its sample was made.
        took_care: Whether a ring did not just continue in this tick.
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
        self._tracks = [gpu.track for gpu in self._with_ring]
        self._powers = [gpu.power for gpu in self._with_power_ring]
        self._fresh: list[Iterable[Entry]] = []
        self._milliwatts: list[float | None] = []
        self._asked_at_ns = 0
        self.has_codes = self.failed = self.failed_late = self.took_care = False
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
        positions_us = []
        for track in self._tracks:  # a comprehension would be a function of its own
            positions_us.append(track.position_us)  # noqa: PERF401
        if back_us:
            positions_us = [max(0, position_us - back_us) for position_us in positions_us]
        rings, power_rings = self._rings, self._power_rings
        self._fresh = [*rings.drain(positions_us), ()]
        self._asked_at_ns = now_ns = monotonic_ns()
        powers = self._powers
        rows = power_rings.drain([power.position_us for power in powers])
        drawn = [power.take(row, now_ns) for power, row in zip(powers, rows, strict=True)]
        self._milliwatts = [*drawn, *(self._asked_power() if self._with_power else ()), None]
        # A GPU without a handle counts: where there is no other, nothing else tells of it.
        codes = power_rings.codes, self._power.codes
        self.has_codes = self.failed or any(rings.codes) or any(codes[0]) or any(codes[1])
        return now_ns

    def _asked_power(self) -> list[float | None]:
        """The draw of those GPUs of which the driver keeps no power samples."""
        power = self._power
        started_ns = perf_counter_ns()
        codes = power.codes = list(map(power.call, *power.columns))
        power.stopwatch[0] += perf_counter_ns() - started_ns
        power.stopwatch[1] += len(codes)
        if any(codes):
            power.accounts.failed_of(POWER_USAGE, codes)
        milliwatts: list[float | None] = [*power.milliwatts]
        for place, drawn in enumerate(power.milliwatts):
            if drawn > MOST_MILLIWATTS:  # what no board can draw counts where it was an answer
                milliwatts[place] = None
                self._with_power[place].power.rejected += codes[place] == SUCCESS
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

    def _note_power_failure(self, gpu: NvmlGpu, function: str, code: int) -> None:
        if not gpu.failure and (code == GPU_IS_LOST or gpu.in_parts or gpu.is_dark):
            # Where no utilisation is asked, it is this call that notices a GPU that is gone.
            gpu.failure, self.failed = code, True
        if not gpu.failure and code not in NO_ERROR:
            gpu.faults.note("power", function, code, self._asked_at_ns)

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
        """What every GPU says, in index order. The arguments are those of a ``Moment``."""
        learned = not stamps.is_certain
        if learned:
            self._learn_stamps(stamps, now_ns)
        offset_ns, fresh = stamps.offset_ns, self._fresh
        if offset_ns is None or stamps.was_set:
            fresh, offset_ns = [()] * len(fresh), 0
        samples = []
        self.took_care = self.failed_late = False
        for gpu, ring, power in self._places:
            busy: Sequence[BusySample] | None = gpu.track.take_regular(
                fresh[ring], offset_ns, now_ns
            )
            if busy is None:
                self.took_care = True
                failed: int = gpu.failure
                if failed:
                    samples.append(gpu.failed_sample(now_ns))
                    continue
                if not learned:
                    self._learn_stamps(stamps, now_ns)
                    learned = True
                moment = Moment(stamps, steady_since_ns, now_ns)
                busy = gpu.busy_with_care(moment, self._entries_of(ring))
                if gpu.failure:
                    self.failed = self.failed_late = True
                    samples.append(gpu.failed_sample(now_ns))
                    continue
            samples.append(gpu.sample(busy, self._milliwatts[power], now_ns))
        return tuple(samples)

    def _entries_of(self, ring: int) -> EntriesOf | None:
        if ring < 0 or not self._rings.counts[ring]:
            return None
        return partial(self._rings.entries, ring)

    def _learn_stamps(self, stamps: StampClock, now_ns: int) -> None:
        """Let the clock see the newest stamps that this drain brought."""
        fresh_us = []
        for place, count in enumerate(self._rings.counts):
            if not count:
                continue
            stamp_us = self._rings.newest_us(place)
            if stamps.was_set:
                ((stamp_us, _),) = stamps.straightened(((stamp_us, 0),), now_ns)
            if stamp_us > self._with_ring[place].track.position_us:
                fresh_us.append(stamp_us)
        if fresh_us:
            stamps.learn(fresh_us, now_ns)
