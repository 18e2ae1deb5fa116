"""One GPU as NVML shows it, from tick to tick."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from gpumon.core.clock import NS_PER_S
from gpumon.core.sample import BusySample, Device, GpuDetails, GpuSample
from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.busy import BusyTrack, DrainInstant
from gpumon.sources.nvml.clock import Entry
from gpumon.sources.nvml.codes import (
    GPU_IS_GONE,
    NO_ERROR,
    NO_PERMISSION,
    NOTHING_NEW,
    PERMANENT,
    SUCCESS,
    gpu_trouble,
)
from gpumon.sources.nvml.drain import SampleRings
from gpumon.sources.nvml.fields.calls import NumberCall
from gpumon.sources.nvml.fields.energy import EnergyCounter
from gpumon.sources.nvml.fields.gpm import GpmTrack
from gpumon.sources.nvml.fields.latest_values import holds_for_ns
from gpumon.sources.nvml.fields.reader import FieldFaults, FieldReader, FieldSchedule, Surroundings
from gpumon.sources.nvml.fields.table import (
    MOST_MILLIWATTS,
    POWER_USAGE,
    RATES,
    AnswerLayout,
    NvmlCall,
)

_SILENT_NS: Final = 3 * NS_PER_S
"""Boards were seen to leave up to a second between two samples while idle."""

_LOOK_AGAIN_NS: Final = 10 * NS_PER_S
_ASK_AGAIN_NS: Final = 60 * NS_PER_S
_REPEATED: Final = frozenset(GpuSample._fields)
_DETAILS: Final = frozenset(GpuDetails._fields)
_INDEX: Final = NvmlCall("nvmlDeviceGetIndex")
MIG_MODE: Final = NvmlCall("nvmlDeviceGetMigMode", answer=AnswerLayout.TWO_NUMBERS)


class PowerTrack:
    """One GPU's power draw from tick to tick: the mean of what its driver measured since the last.

    The driver keeps power samples in a ring as it keeps those of utilisation,
    some 20 ms apart at work and up to a second while idle. Each speaks for the
    time since the one before it, so bursts between two ticks count as long as
    they lasted. Where the ring brings nothing for a while, or there is none,
    ``nvmlDeviceGetPowerUsage`` is asked instead.

    Attributes:
        has_ring: Whether the driver keeps power samples of it.
        position_us: The newest stamp seen: the ring is asked for what is
            newer; 0: all of it, to find out where it is.
    """

    def __init__(self, library: NvmlLibrary, handle: int, refuse: Callable[[], None]) -> None:
        """Ask that GPU from now on; ``refuse`` counts a value that no board can draw."""
        self.has_ring = True
        self.position_us = 0
        self._count_refused = refuse
        self._since_us = self._seen_us = 0
        self._drawn = 0.0
        self._milliwatts: float | None = None
        self._heard_at_ns = self._look_again_at_ns = -_LOOK_AGAIN_NS
        self._present = NumberCall(library, handle, POWER_USAGE)

    @property
    def code(self) -> int:
        """What ``ask_now`` was answered last."""
        return self._present.code

    @property
    def fails(self) -> bool:
        """Whether ``ask_now`` was answered with an error."""
        return self.code not in NO_ERROR and self.code not in PERMANENT

    def try_again(self) -> None:
        """Ask for everything again: what was not permitted may be by now."""
        self.has_ring = self._present.supported = True

    def forget_position(self) -> None:
        """The clock of the stamps was set: find out anew where the ring is."""
        self.position_us = 0

    def begin_tick(self) -> None:
        """Begin the mean anew: what was taken until now was the tick before."""
        self._since_us, self._drawn = self.position_us, 0.0

    def take(self, entries: Iterable[Entry], now_ns: int) -> float | None:
        """The mean draw since ``begin_tick``, in milliwatts; a tick may drain the ring twice.

        Args:
            entries: What is new in the ring: stamp in microseconds, and
                milliwatts, oldest first.
            now_ns: CLOCK_MONOTONIC just after they were drained.

        Returns:
            The draw; ``None`` where no call tells it.
        """
        from_us = last_us = self.position_us
        drawn, is_ordered, is_possible = 0.0, True, True
        for stamp_us, milliwatts in entries:
            if stamp_us <= last_us:
                is_ordered = False
            if not 0 <= milliwatts <= MOST_MILLIWATTS:  # said so that no number is refused, too
                is_possible = False
            drawn += milliwatts * (stamp_us - last_us)
            last_us = stamp_us
        if last_us == from_us:
            return self._without_news(now_ns)
        self.position_us = last_us
        # Where it was silent for long, what it holds may be of any time; and stamps
        # that run back are of before and after the clock was set.
        since_us, is_silent = self._since_us, now_ns - self._heard_at_ns > _SILENT_NS
        if not (since_us and from_us and is_ordered) or is_silent:
            self._since_us = 0  # the rest of this tick does not give its mean either
            if last_us != self._seen_us:
                self._seen_us, self._heard_at_ns = last_us, now_ns
            return self.ask_now()
        self._heard_at_ns, self._seen_us = now_ns, last_us
        if is_possible:
            self._drawn += drawn
            self._milliwatts = self._drawn / (last_us - since_us)
        else:
            self._refuse()
            self._since_us = 0
        return self._milliwatts

    def _without_news(self, now_ns: int) -> float | None:
        if now_ns - self._heard_at_ns <= _SILENT_NS:
            return self._milliwatts
        if now_ns >= self._look_again_at_ns:
            # After a reset the stamps may have begun anew: then none is ever newer.
            self._look_again_at_ns = now_ns + _LOOK_AGAIN_NS
            self.position_us = 0
        return self.ask_now()

    def ask_now(self) -> float | None:
        """What the driver says by itself, in milliwatts; ``None``: nothing."""
        milliwatts = self._milliwatts = self._present.read()
        if milliwatts is not None and milliwatts > MOST_MILLIWATTS:
            self._refuse()
        return self._milliwatts

    def _refuse(self) -> None:
        self._count_refused()
        self._milliwatts = None


class NvmlGpu:
    """What is known of one GPU; it outlives a lost handle.

    Attributes:
        faults: Which of its fields fail that each tick asks for.
        failure: The code that made this tick's reading impossible; 0 if none.
        gone: The code with which it was refused when NVML was opened again: it
            has no handle now, and nothing of it may be asked; 0 if none.
        has_ring: Whether the driver keeps utilisation samples of it.
        in_parts: Whether it is cut into MIG parts: then its utilisation is
            unknown, which is not idle.
        refresh_at_ns: When the slow values are due again; 0 before the first.
        gpm: Tells its activity; ``None`` where nobody wants to know.
        xid_errors: How many errors of each XID it had since the source was opened.
        fields: What it says every few seconds: read by whoever reads what is slow.
    """

    gpm: GpmTrack | None = None
    _repeated: dict[str, Any]
    _details: GpuDetails | None = None
    xid_errors: tuple[tuple[int, int], ...] = ()

    def __init__(
        self,
        library: NvmlLibrary,
        handle: int,
        device: Device,
        around: Surroundings,
    ) -> None:
        self._around, self._wants_power = around, "power" in around.options
        self.track = BusyTrack(around.refuse)
        self._holds_ns = holds_for_ns(around.period_ns)
        self._energy = EnergyCounter(around.refuse)
        self._failed_at_ns = 0
        self.attach(library, handle, device)

    def attach(self, library: NvmlLibrary, handle: int, device: Device) -> None:
        """Use this handle from now on; the position in the ring is set anew."""
        self.device = device
        self.library, self.handle = library, handle
        self.in_parts = False
        self.faults = FieldFaults()
        self.use_gpm(None)
        self._rates = NumberCall(library, handle, RATES)
        self._mig = NumberCall(library, handle, MIG_MODE)
        self._index = NumberCall(library, handle, _INDEX)
        self.power = PowerTrack(library, handle, self._around.refuse)
        self.failure = self.gone = SUCCESS
        self.has_ring, self.has_power = True, self._wants_power
        self._ring_failed = False
        self.refresh_at_ns = 0
        self._look_again_at_ns = self._ask_again_at_ns = 0
        self.track.forget_position()

    def renew_handle(self, library: NvmlLibrary) -> bool:
        """Look the GPU up again by its UUID: a reset can have made the handle void."""
        handle = library.handle_by_uuid(self.device.uuid)
        if handle is None or (handle == self.handle and library is self.library):
            return False
        self.attach(library, handle, self.device)
        return True

    def use_gpm(self, gpm: GpmTrack | None) -> None:
        """Read the activity there from now on, if anywhere."""
        if self.gpm is not None:
            self._around.after_reading(self.gpm.close)
        self.gpm = gpm
        self._begin_anew()

    def release(self) -> None:
        """Free what it holds in the driver, and forget what it said: it will be old."""
        self.faults = FieldFaults()
        self.use_gpm(self.gpm)

    def _begin_anew(self) -> None:
        """Ask for what is slow as if for the first time."""
        self.fields = FieldReader(self.library, self.handle, self._around, self._energy)
        self.fields.gpm = None if self.in_parts else self.gpm
        self._details = None

    # -- each tick -----------------------------------------------------------

    def sample(
        self, busy: Sequence[BusySample], milliwatts: float | None, now_ns: int
    ) -> GpuSample:
        """What this GPU says in this tick."""
        if self.trouble is not None:
            return self._unread_sample(self.trouble, now_ns)
        track, latest = self.track, self.schedule.latest
        percent = track.percent
        if percent is not None and now_ns - track.percent_at_ns >= self._holds_ns:
            percent = None
        if milliwatts is None and self.power.fails:
            self.faults.note("power", POWER_USAGE.function, self.power.code, now_ns)
        if self.faults.failing:
            self._mend(bool(busy), milliwatts is not None)
        if latest.has_news or now_ns >= latest.holds_until_ns:
            self._put_together(now_ns)
        return GpuSample(
            device=self.device,
            busy=tuple(busy),
            utilization_ratio=None if percent is None else percent / 100,
            power_watts=None if milliwatts is None else milliwatts / 1000,
            **self._repeated,
        )

    def _mend(self, is_observed: bool, draws_power: bool) -> None:
        if is_observed:
            self.faults.end("utilization")
        if draws_power:
            self.faults.end("power")
        self.schedule.latest.has_news = True

    def _put_together(self, now_ns: int) -> None:
        """Keep as a whole what each sample repeats until something of it changes."""
        schedule = self.schedule
        values = schedule.latest.at(now_ns)
        details = None
        if "read_at_ns" in values:
            told = {name: value for name, value in values.items() if name in _DETAILS}
            details = GpuDetails(**told)
        if details != self._details:  # the same object comes until something of it is new
            self._details = details
        self._repeated = {name: value for name, value in values.items() if name in _REPEATED}
        self._repeated["details"] = self._details
        self._repeated["xid_errors"] = self.xid_errors
        self._repeated["faults"] = (*self.faults.failing, *schedule.faults.failing)

    def failed_sample(self, now_ns: int) -> GpuSample:
        """What is said of it in a tick in which it could not be read."""
        self.fields.whole_since_ns = now_ns  # its counters may have begun anew
        return self._unread_sample(gpu_trouble(self.failure), now_ns)

    def _unread_sample(self, error: str, now_ns: int) -> GpuSample:
        self._failed_at_ns = now_ns
        return GpuSample(device=self.device, error=error, xid_errors=self.xid_errors)

    def busy(self, instant: DrainInstant, entries: Sequence[Entry]) -> Sequence[BusySample]:
        """Its utilisation since the tick before; ``entries`` are what is new in its ring."""
        if self.in_parts:
            return ()
        if entries and self.track.started:
            return instant.take(self.track, entries)
        return self._look_around(instant, entries)

    def _look_around(self, instant: DrainInstant, entries: Sequence[Entry]) -> Sequence[BusySample]:
        """The ring brought nothing, or there is none, or this is the first look at it."""
        track = self.track
        if not track.started:
            track.start(entries, instant.stamps.offset_ns, instant.now_ns)
        if not track.is_dry(instant.now_ns):
            return ()
        self._find_restarted_stamps(instant.now_ns)
        percent = self._rates.read()
        if percent is None:
            track.percent = None
            code = self._rates.code
            if not (self.has_ring or code in PERMANENT or code in NOTHING_NEW):
                self.failure = code  # it is this call then that notices a GPU that is gone
            elif code not in NO_ERROR and code not in PERMANENT:
                self.faults.note("utilization", RATES.function, code, instant.now_ns)
            return ()
        since_ns = max(instant.steady_since_ns, self._failed_at_ns)
        return track.cover(percent, since_ns, instant.now_ns)

    def _find_restarted_stamps(self, now_ns: int) -> None:
        """A reset can set the stamps back: then nothing would ever be newer than the position."""
        track = self.track
        if not self.has_ring or not track.position_us or now_ns < self._look_again_at_ns:
            return
        self._look_again_at_ns = now_ns + _LOOK_AGAIN_NS
        ring = SampleRings(self.library, [self.handle])
        (entries,) = ring.drain([0])
        if entries and entries[-1][0] < track.position_us:
            track.start(entries, None, now_ns)

    # -- now and then ----------------------------------------------------------

    @property
    def schedule(self) -> FieldSchedule:
        """What changes slowly: some of these calls take milliseconds on real boards."""
        return self.fields.schedule

    def note_xids(self, counts: tuple[tuple[int, int], ...]) -> None:
        """Take how many errors of each XID it had since the source was opened."""
        self.xid_errors = counts
        self.schedule.latest.has_news = True

    def note_hanging(self, now_ns: int) -> None:
        """Tell of the field whose call has not come back for seconds, if there is one."""
        self.faults.hang(self.schedule.hanging(now_ns), now_ns)
        self.schedule.latest.has_news = True

    @property
    def is_dark(self) -> bool:
        """Whether no call tells its utilisation."""
        return not (self.has_ring or self._rates.supported)

    @property
    def is_asked(self) -> bool:
        """Whether a tick asks it anything."""
        return self.has_power or not (self.in_parts or self.is_dark)

    @property
    def trouble(self) -> str | None:
        """What its user should do to see its utilisation; ``None``: nothing would help."""
        is_unknown = self.track.percent is None and not self.in_parts
        forbidden = is_unknown and self._rates.code == NO_PERMISSION
        return gpu_trouble(NO_PERMISSION) if forbidden else None

    def tells_without_ring(self, code: int) -> bool:
        """Whether its utilisation can be had although its ring answers ``code``.

        Where only the ring fails, the GPU is there: it is left out for a while.
        """
        if code in GPU_IS_GONE or self._rates.read() is None:
            return False
        self.has_ring, self._ring_failed = False, True
        return True

    def ask_again(self, now_ns: int) -> bool:
        """Give what every figure hangs on another chance; say whether a tick asks for more now.

        A call that is not supported or not permitted may be so only for a
        while: during a reset, or until somebody grants a right.
        """
        power = self._wants_power
        has_power = self.has_power == power and (self.power.has_ring or not power)
        has_all = self.has_ring and has_power and self._rates.supported
        if has_all or not self._ask_again_at_ns:
            self._ask_again_at_ns = now_ns + _ASK_AGAIN_NS
            return False
        is_urgent = self._ring_failed or (self.is_dark and not self.in_parts)
        if now_ns < self._ask_again_at_ns and not is_urgent:
            return False
        self._ask_again_at_ns = now_ns + _ASK_AGAIN_NS
        self._ring_failed = False
        had_all = self.has_ring and has_power
        self.has_ring = self._rates.supported = self._mig.supported = True
        self.power.try_again()
        self.has_power = power
        return not had_all

    def notice_parts(self) -> bool:
        """Ask for the MIG mode; say whether it changed."""
        mode = self._mig.read()
        if mode is None and self._mig.supported:
            return False  # no answer now: what is known holds
        in_parts = mode == 1
        if self.in_parts == in_parts:
            return False
        self.in_parts = in_parts
        self.has_ring = self._rates.supported = True
        # What a GPU in parts does not tell, one in one piece may, and the other way round.
        self._begin_anew()
        self.refresh_at_ns = 0
        self.track.forget_position()
        return True

    def current_index(self) -> int:
        """The index NVML gives it now."""
        index = self._index.read()
        return self.device.index if index is None else index
