"""One GPU, read through NVML from tick to tick."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gpumon.core.clock import NS_PER_S
from gpumon.core.sample import BusySample, Device, GpuDetails, GpuSample, ProcessSample
from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.busy import BusyTrack, DrainInstant
from gpumon.sources.nvml.codes import (
    GPU_IS_GONE,
    NO_ERROR,
    NO_PERMISSION,
    NOTHING_NEW,
    PERMANENT,
    SUCCESS,
    gpu_trouble,
)
from gpumon.sources.nvml.drain_schedule import DrainSchedule
from gpumon.sources.nvml.fields.calls import NumberCall
from gpumon.sources.nvml.fields.gpm import GpmTrack
from gpumon.sources.nvml.fields.reader import (
    EnergyCounter,
    FieldFaults,
    FieldReader,
    FieldSchedule,
    SourceContext,
    valid_for_ns,
)
from gpumon.sources.nvml.fields.table import (
    POWER_USAGE,
    RATES,
    AnswerLayout,
    NvmlCall,
)
from gpumon.sources.nvml.power import PowerTrack
from gpumon.sources.nvml.sample_rings import SampleRings
from gpumon.sources.nvml.stamp_clock import Entry

_RETRY_NS: Final = 10 * NS_PER_S
_RETRY_CALLS_NS: Final = 60 * NS_PER_S
_REPEATED: Final = frozenset(GpuSample._fields)
_DETAILS: Final = frozenset(GpuDetails._fields)
_INDEX: Final = NvmlCall("nvmlDeviceGetIndex")
_MIG_CHECK_NS: Final = 60 * NS_PER_S
"""Between two readings of the MIG mode, unless an event or a refused call calls for one."""
MIG_MODE: Final = NvmlCall("nvmlDeviceGetMigMode", answer=AnswerLayout.TWO_NUMBERS)


class NvmlGpu:
    """One GPU; it outlives a lost handle.

    Attributes:
        faults: Which of the fields fail that each tick reads.
        failure: The code that made this tick's reading impossible; 0 if none.
        lost_code: The code with which it was refused when NVML was opened again: it has no handle,
            and no call may be made for it; 0: it is not lost.
        has_ring: Whether the driver keeps utilisation samples of it.
        is_partitioned: Whether it is MIG-partitioned: then its utilisation is unknown, which is
            not idle.
        drains: When its rings are drained next.
        users: Who has processes on it: their uids; ``None`` stands for no user, or an unknown one.
        refresh_at_ns: When the slow values are due again; 0 before the first.
        gpm: Reads its activity; ``None`` where that is switched off.
        xid_errors: How many errors of each XID it had since the source was opened.
    """

    gpm: GpmTrack | None = None
    _repeated: dict[str, Any]
    _details: GpuDetails | None = None
    users: frozenset[int | None] = frozenset([None])
    _pids: frozenset[int] = frozenset()
    xid_errors: tuple[tuple[int, int], ...] = ()

    def __init__(
        self,
        library: NvmlLibrary,
        handle: int,
        device: Device,
        context: SourceContext,
    ) -> None:
        self._context, self._wants_power = context, "power" in context.options
        self.track = BusyTrack(context.refuse)
        self._valid_ns = valid_for_ns(context.period_ns)
        self._energy = EnergyCounter(context.refuse)
        self._failed_at_ns = 0
        self.attach(library, handle, device)

    def attach(self, library: NvmlLibrary, handle: int, device: Device) -> None:
        """Use this handle from now on; the position in the ring is set again."""
        self.device = device
        self.library, self.handle = library, handle
        self.is_partitioned = False
        self.faults = FieldFaults()
        self.use_gpm(None)
        self._rates = NumberCall(library, handle, RATES)
        self._mig = NumberCall(library, handle, MIG_MODE)
        self._index = NumberCall(library, handle, _INDEX)
        self.power = PowerTrack(library, handle, self._context.refuse)
        self.failure = self.lost_code = SUCCESS
        self.has_ring, self.has_power = True, self._wants_power
        self._ring_failed = self._is_dry = False
        self.drains = DrainSchedule(self._context.period_ns, self._context.drain_every_ns)
        self._takes_turns = False
        self._mig_at_ns = 0
        self.refresh_at_ns = 0
        self._retry_at_ns = self._retry_calls_at_ns = 0
        self.track.forget_position()

    def renew_handle(self, library: NvmlLibrary) -> bool:
        """Look up the GPU by its UUID: a reset can make its handle invalid."""
        handle = library.handle_by_uuid(self.device.uuid)
        if handle is None or (handle == self.handle and library is self.library):
            return False
        self.attach(library, handle, self.device)
        return True

    def use_gpm(self, gpm: GpmTrack | None) -> None:
        """Read the activity there from now on."""
        if self.gpm is not None:
            self._context.after_reading(self.gpm.close)
        self.gpm = gpm
        self._reset_fields()

    def release(self) -> None:
        """Free its resources in the driver, and drop its values, which will be old."""
        self.faults = FieldFaults()
        self.use_gpm(self.gpm)

    def _reset_fields(self) -> None:
        """Read all slow fields as if for the first time."""
        self.fields = FieldReader(self.library, self.handle, self._context, self._energy)
        self.fields.gpm = None if self.is_partitioned else self.gpm
        self._details = None

    # -- each tick -----------------------------------------------------------

    def sample(
        self, busy: Sequence[BusySample], milliwatts: float | None, now_ns: int
    ) -> GpuSample:
        if self.trouble is not None:
            return self._unread_sample(self.trouble, now_ns)
        track, latest = self.track, self.schedule.latest
        percent = track.percent
        age_ns = self.drains.drained_at_ns - track.percent_at_ns
        if percent is not None and age_ns >= self._valid_ns:
            percent = None
        if milliwatts is None and self.power.fails:
            self.faults.note("power", POWER_USAGE.function, self.power.code, now_ns)
        if self.faults.failing:
            self._end_faults(bool(busy), milliwatts is not None)
        if latest.has_news or now_ns >= latest.holds_until_ns:
            self._merge_values(now_ns)
        return GpuSample(
            device=self.device,
            busy=tuple(busy),
            utilization_ratio=None if percent is None else percent / 100,
            power_watts=None if milliwatts is None else milliwatts / 1000,
            power_over_ns=None if milliwatts is None else self.power.mean_ns,
            **self._repeated,
        )

    def _end_faults(self, is_observed: bool, draws_power: bool) -> None:
        if is_observed:
            self.faults.end("utilization")
        if draws_power:
            self.faults.end("power")
        self.schedule.latest.has_news = True

    def _merge_values(self, now_ns: int) -> None:
        """Keep what each sample repeats until one of the values changes."""
        schedule = self.schedule
        values = schedule.latest.at(now_ns)
        details = None
        if "read_at_ns" in values:
            known = {name: value for name, value in values.items() if name in _DETAILS}
            details = GpuDetails(**known)
        if details != self._details:  # the same object until a value changes
            self._details = details
        self._note_users(values.get("processes") or ())
        self._repeated = {name: value for name, value in values.items() if name in _REPEATED}
        self._repeated["details"] = self._details
        self._repeated["xid_errors"] = self.xid_errors
        self._repeated["faults"] = (*self.faults.failing, *schedule.faults.failing)

    def failed_sample(self, now_ns: int) -> GpuSample:
        self.fields.whole_since_ns = now_ns  # its counters may have restarted
        return self._unread_sample(gpu_trouble(self.failure), now_ns)

    def _unread_sample(self, error: str, now_ns: int) -> GpuSample:
        self._failed_at_ns = now_ns
        return GpuSample(device=self.device, error=error, xid_errors=self.xid_errors)

    def must_be_read(self, now_ns: int) -> bool:
        """Whether this tick has to read it, and not only repeat its values.

        While its ring is dry the current utilisation is read, which takes a microsecond: a GPU
        that is at work again has new entries.
        """
        if self.failure or not self.has_ring or self.is_partitioned:
            return True
        is_dry = self._is_dry
        return self.drains.is_due(now_ns, is_dry=is_dry) or (is_dry and self._rates.read() != 0)

    @property
    def quiet_until_ns(self) -> int:
        """Until when it need not be read, and its sample stays the same; 0: each tick reads it."""
        latest = self.schedule.latest
        is_read_always = self.failure or not self.has_ring or self.is_partitioned or self._is_dry
        if is_read_always or latest.has_news:
            return 0
        return min(self.drains.quiet_until_ns, latest.holds_until_ns)

    def plan_drain(self, entries: Sequence[Entry], now_ns: int, share: float) -> Sequence[Entry]:
        """Plan the next drain; return the entries that are new.

        The first drain is followed by one after ``share`` of the interval, so that GPUs take turns.
        """
        drains, track = self.drains, self.track
        has_hole = not self._is_dry and track.leaves_hole(entries)
        if drains.wants_whole_ring:
            has_hole = False
            drains.learn(len(entries), track.step_of(entries), now_ns)
            if track.started:
                entries = [entry for entry in entries if entry[0] > track.position_us]
        drains.drained(now_ns, has_hole=has_hole, share=1.0 if self._takes_turns else share)
        self._takes_turns = True
        return entries

    def busy(self, instant: DrainInstant, entries: Sequence[Entry]) -> Sequence[BusySample]:
        """Return its utilisation since the drain before; ``entries`` are new in its ring."""
        if self.is_partitioned:
            return ()
        track, samples = self.track, list[BusySample]()
        if entries and track.started:
            samples = instant.ingest(track, entries)
            if not track.is_silent(instant.now_ns):
                self._is_dry = False
                return samples
        return [*samples, *self._without_ring_samples(instant, entries)]

    def busy_between_drains(self, instant: DrainInstant) -> Sequence[BusySample]:
        """Return the idle time since the last tick if its ring is dry; otherwise nothing."""
        if not self._is_dry:
            return ()
        return self.track.cover(0, self._observed_since_ns(instant), instant.now_ns)

    def _observed_since_ns(self, instant: DrainInstant) -> int:
        return max(instant.steady_since_ns, self._failed_at_ns)

    def _without_ring_samples(
        self, instant: DrainInstant, entries: Sequence[Entry]
    ) -> Sequence[BusySample]:
        """Samples of a tick without new entries, without a ring, or before the first drain."""
        track, now_ns = self.track, instant.now_ns
        if not track.started:
            track.start(entries, instant.stamps.offset_ns, now_ns)
        if not track.is_dry(now_ns):
            return ()
        self._find_restarted_stamps(now_ns)
        percent = self._rates.read()
        self._is_dry = self.has_ring and percent is not None
        if percent is None:
            track.percent = None
            code = self._rates.code
            if not (self.has_ring or code in PERMANENT or code in NOTHING_NEW):
                self.failure = code  # only this call notices that the GPU is lost
            elif code not in NO_ERROR and code not in PERMANENT:
                self.faults.note("utilization", RATES.function, code, now_ns)
            return ()
        since_ns = self._observed_since_ns(instant)
        if self._is_dry and percent:  # only of an idle GPU the reading may speak for more time
            since_ns = max(since_ns, now_ns - 2 * max(self._context.period_ns, NS_PER_S))
        return track.cover(percent, since_ns, now_ns)

    def _find_restarted_stamps(self, now_ns: int) -> None:
        """Restart after a reset that set the stamps back: none would be newer than the position."""
        track = self.track
        if not self.has_ring or not track.position_us or now_ns < self._retry_at_ns:
            return
        self._retry_at_ns = now_ns + _RETRY_NS
        ring = SampleRings(self.library, [self.handle])
        entries = ring.drain({0: 0})[0]
        if entries and entries[-1][0] < track.position_us:
            track.start(entries, None, now_ns)

    # -- now and then ----------------------------------------------------------

    @property
    def schedule(self) -> FieldSchedule:
        """Its slow fields: some of these calls take milliseconds on real boards."""
        return self.fields.schedule

    def _note_users(self, processes: Sequence[ProcessSample]) -> None:
        pids = frozenset(process.pid for process in processes)
        if pids != self._pids:
            self._pids = pids
            self.drains.hurry()  # work began or ended
            self._takes_turns = False
        self.users = frozenset([process.uid for process in processes]) or frozenset([None])

    def note_xids(self, counts: tuple[tuple[int, int], ...]) -> None:
        if counts != self.xid_errors:
            self.drains.hurry()  # it may be lost
        self.xid_errors = counts
        self.schedule.latest.has_news = True

    def note_hanging(self, now_ns: int) -> None:
        """Record the field whose call has not returned for seconds, if there is one."""
        self.faults.hang(self.schedule.hanging(now_ns), now_ns)
        self.schedule.latest.has_news = True

    @property
    def has_processes(self) -> bool:
        return bool(self._pids)

    def present_percent(self) -> float | None:
        """Read its present utilisation, 0 to 100; ``None``: no answer."""
        percent = None if self.failure or self.is_partitioned else self._rates.read()
        return percent if percent is not None and 0 <= percent <= 100 else None

    @property
    def has_no_utilisation(self) -> bool:
        return not (self.has_ring or self._rates.supported)

    @property
    def is_readable(self) -> bool:
        return self.has_power or not (self.is_partitioned or self.has_no_utilisation)

    @property
    def trouble(self) -> str | None:
        """What the user should do to see its utilisation; ``None``: nothing would help."""
        is_unknown = self.track.percent is None and not self.is_partitioned
        forbidden = is_unknown and self._rates.code == NO_PERMISSION
        return gpu_trouble(NO_PERMISSION) if forbidden else None

    def can_do_without_ring(self, code: int) -> bool:
        """Return whether its utilisation can be read although its ring answers ``code``.

        If only the ring fails, it is left out for a while.
        """
        if code in GPU_IS_GONE or self._rates.read() is None:
            return False
        self.has_ring, self._ring_failed = False, True
        return True

    def retry_calls(self, now_ns: int) -> bool:
        """Try the essential calls again; return whether a tick reads more now.

        A call may be unsupported or forbidden only for a while: during a reset, or until a
        permission is granted.
        """
        power = self._wants_power
        has_power = self.has_power == power and (self.power.reads_all or not power)
        has_all = self.has_ring and has_power and self._rates.supported
        if has_all or not self._retry_calls_at_ns:
            self._retry_calls_at_ns = now_ns + _RETRY_CALLS_NS
            return False
        is_urgent = self._ring_failed or (self.has_no_utilisation and not self.is_partitioned)
        if now_ns < self._retry_calls_at_ns and not is_urgent:
            return False
        self._retry_calls_at_ns = now_ns + _RETRY_CALLS_NS
        self._ring_failed = False
        had_all = self.has_ring and has_power
        self.has_ring = self._rates.supported = self._mig.supported = True
        self.power.try_again()
        self.has_power = power
        return not had_all

    def is_mig_mode_due(self, now_ns: int) -> bool:
        """Whether its MIG mode may have changed since it was read."""
        is_refused = not self.has_ring and not self.is_partitioned
        return is_refused or self.is_partitioned or now_ns >= self._mig_at_ns

    def check_soon(self) -> None:
        """Read its errors and MIG mode soon: an event reported that one of them changed."""
        self._mig_at_ns = self.refresh_at_ns = 0

    def update_mig_mode(self) -> bool:
        """Read the MIG mode; return whether it changed."""
        mode = self._mig.read()
        if mode is not None:
            self._mig_at_ns = self._context.monotonic_ns() + _MIG_CHECK_NS
        if mode is None and self._mig.supported:
            return False  # no answer now: the known mode stays valid
        is_partitioned = mode == 1
        if self.is_partitioned == is_partitioned:
            return False
        self.is_partitioned = is_partitioned
        self.has_ring = self._rates.supported = True
        # The mode changes which calls are supported.
        self._reset_fields()
        self.refresh_at_ns = 0
        self.track.forget_position()
        return True

    def current_index(self) -> int:
        index = self._index.read()
        return self.device.index if index is None else index
