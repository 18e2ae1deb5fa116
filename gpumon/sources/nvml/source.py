"""The GPUs of this machine, read through NVML."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final

from gpumon.core.clock import NS_PER_S, Clock, nanoseconds
from gpumon.core.sample import Frame, GpuSample
from gpumon.errors import SourceUnavailableError
from gpumon.sources.gpu_source import ReadNow
from gpumon.sources.nvml.binding import CallAccounts, CallTotals, NvmlLibrary
from gpumon.sources.nvml.busy import Pace
from gpumon.sources.nvml.codes import no_gpu, unavailable
from gpumon.sources.nvml.events import NvmlEvents
from gpumon.sources.nvml.fields.gpm import Gpm
from gpumon.sources.nvml.fields.reader import SourceContext
from gpumon.sources.nvml.fields.table import (
    DEFAULT_OPTIONS,
    ONCE_A_SECOND,
    NvmlOptions,
    ReadTimes,
)
from gpumon.sources.nvml.gpu import NvmlGpu
from gpumon.sources.nvml.inventory import NvmlInventory
from gpumon.sources.nvml.reopening import Reopening
from gpumon.sources.nvml.slow_reader import EARLY_RATIO, SLOW_PATIENCE_S, SlowReader, SlowThread
from gpumon.sources.nvml.stamp_clock import US, StampClock
from gpumon.sources.nvml.tick_reader import TickReader

_HELD_UP_NS: Final = NS_PER_S // 10

_HANGS: Final = (
    "the NVIDIA driver failed, and one of its calls has not returned; gpumon reopens it after that"
)

_LAST_PATIENCE_S: Final = 0.3

_CHECK_NS: Final = NS_PER_S
"""The longest time between two checks for changes, and between two sums of the calls' costs."""


class NvmlSource:
    """All GPUs that NVML lists, one frame a call.

    Utilisation comes from the driver's sample ring, drained as seldom as nothing is lost
    (``DrainSchedule``), and from ``GetUtilizationRates`` when that ring has no new entry. Memory,
    temperature, clock, energy and processes are read every few seconds, in ticks that drain; in
    between the last value is repeated, until it is three periods old.
    Another thread reads them, so a slow call does not delay the sampling.

    Attributes:
        stamps: The clock of the samples' stamps.

    Raises:
        SourceUnavailableError: The library, the driver, or any GPU is missing.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        options: NvmlOptions = DEFAULT_OPTIONS,
        times: ReadTimes = ONCE_A_SECOND,
        slow_patience_s: float | None = None,
        read_clock_ns: Callable[[int], int] = time.clock_gettime_ns,
    ) -> None:
        """Open NVML and list the GPUs.

        Args:
            clock: The monotonic clock.
            options: The fields to read.
            times: How often it reads.
            slow_patience_s: How long a frame waits for them; by default a fraction of the period.
                Later values come with a later frame.
            read_clock_ns: Reads a clock by its id.
        """
        self._monotonic_ns = clock.monotonic_ns
        self._options = options
        self.stamps = StampClock(clock, read_clock_ns)
        self._pace = Pace()
        self._slow_ns = nanoseconds(times.slow_s)
        self._refused: deque[None] = deque()  # two threads may add to it
        self._slow_thread = SlowThread()
        self._context = SourceContext(
            options=options,
            monotonic_ns=clock.monotonic_ns,
            period_ns=nanoseconds(times.tick_s),
            slow_period_ns=self._slow_ns,
            drain_every_ns=None if times.drain_s is None else nanoseconds(times.drain_s),
            after_reading=self._slow_thread.afterwards,
            refuse=partial(self._refused.append, None),
        )
        if slow_patience_s is None:
            slow_patience_s = min(SLOW_PATIENCE_S, times.tick_s / 4)
        self._slow_reader = SlowReader(self._slow_thread, self._context, slow_patience_s)
        self._inventory = NvmlInventory(self._context)
        self._library: NvmlLibrary | None = None
        self._gpm: Gpm | None = None
        self._events = NvmlEvents(wanted="events" in options)
        self._accounts = CallAccounts()
        self._call_totals = CallTotals()
        self._inventory_at_ns = 0
        self._refresh_at_ns = 0
        self._quiet_until_ns = 0
        self._quiet: tuple[GpuSample, ...] = ()
        self._present_ratios: tuple[tuple[str, float], ...] = ()
        self._needs_new_reader = self._is_choice_checked = False
        self._trouble: str | None = None
        self._reopening = Reopening(clock.monotonic_ns)
        self._open()

    def close(self) -> None:
        """Close NVML. Safe to call twice.

        If a slow reading is running, NVML is closed when that is over, without waiting long for it.
        """
        self._slow_thread.wait(_LAST_PATIENCE_S)
        self._release_library()
        self._slow_thread.close()

    def _release_library(self) -> None:
        library, gpm = self._library, self._gpm
        if library is None:
            return
        self._library = self._gpm = None

        def release() -> None:
            if gpm is not None:
                gpm.close()
            self._events.release(library)

        self._slow_thread.afterwards(release)

    def read(self, now: ReadNow = ReadNow.SAMPLES) -> Frame:
        """Return what is new since the last call, as far as it is due or in ``now``.

        After a failure of NVML as a whole a later call opens it again, at most every 4 s.

        Raises:
            RestartNeededError: The driver was replaced by one that only a new process can use.
            SourceUnavailableError: NVML as a whole cannot be read.
            UsageError: In the first call: ``ReadTimes.drain_s`` is too long for a GPU's ring.
        """
        library = self._library or self._open_again()
        stamps, tick = self.stamps, self._tick
        jump_ns = stamps.tick()
        if jump_ns:
            self._shift(jump_ns)
            now |= ReadNow.SAMPLES  # while it is known which stamps are from before the jump
        self._pace.step(stamps.silence_ns, stamps.ticked_at_ns)
        self._present_ratios = tuple(self._read_present(now))
        now &= ~ReadNow.PRESENT
        if not (now or self._events.news) and stamps.ticked_at_ns < self._quiet_until_ns:
            return self._frame(self._quiet, is_quiet=True)
        self._quiet_until_ns = 0
        back_us = max(0, jump_ns // US)
        now_ns = tick.read_all(back_us, self._monotonic_ns, now)
        if tick.failed:
            self._give_up_if_all_failed(tick, now_ns)
        inventory = self._inventory
        is_due = now_ns >= self._refresh_at_ns or self._events.news or inventory.is_uncertain
        if is_due or ReadNow.PROCESSES in now:
            self._refresh(library, now_ns, now)
            if self._monotonic_ns() - now_ns >= _HELD_UP_NS:  # the drained entries are old
                now_ns = tick.read_again(back_us, self._monotonic_ns)
            self._call_totals = self._accounts.totals()
        samples = tick.samples(stamps, self._pace.steady_since_ns, now_ns)
        if not self._is_choice_checked:
            self._is_choice_checked = True  # later a ring may be short only for a while
            for gpu in inventory.gpus:
                gpu.drains.check_choice()
        if tick.failed_late:
            self._give_up_if_all_failed(tick, now_ns)
        if self._needs_new_reader or tick.is_old:
            self._rebuild_reader(library)
            # A device that was just found to be lost is left out of this tick already.
            listed = {device.device.uuid for device in self._devices}
            samples = tuple(sample for sample in samples if sample.device.uuid in listed)
        self._note_quiet(samples)
        return self._frame(samples)

    def _read_present(self, now: ReadNow) -> Iterator[tuple[str, float]]:
        """Present utilisation of GPUs with a process, by UUID, if it is asked for."""
        for gpu in self._inventory.gpus if ReadNow.PRESENT in now else ():
            percent = gpu.present_percent() if gpu.has_processes else None
            if percent is not None:
                yield gpu.device.uuid, percent / 100

    def _note_quiet(self, samples: tuple[GpuSample, ...]) -> None:
        """Note until when a read would return these samples again, without ``busy``."""
        if self._tick.failed or self._inventory.instances or not self._inventory.gpus:
            return
        until_ns = [gpu.quiet_until_ns for gpu in self._inventory.gpus]
        until_ns.append(self._slow_reader.quiet_until_ns(self._devices))
        self._quiet_until_ns = min(until_ns)
        self._quiet = tuple([one._replace(busy=()) if one.busy else one for one in samples])

    def _frame(self, samples: tuple[GpuSample, ...], *, is_quiet: bool = False) -> Frame:
        totals = self._call_totals
        return Frame(
            taken_at_ns=self._monotonic_ns(),
            gpus=samples,
            rejected=0 if is_quiet else self._newly_refused(),
            trouble=self._trouble,
            call_seconds=totals.seconds,
            call_counts=totals.counts,
            call_errors=totals.errors,
            is_quiet=is_quiet,
            present_ratios=self._present_ratios,
        )

    def _shift(self, jump_ns: int) -> None:
        # Every position stays at its time; after a jump forward, entries that are not drained yet
        # have older stamps.
        for gpu in self._inventory.gpus:
            gpu.track.shift(jump_ns)
            gpu.power.forget_position()

    def _rebuild_reader(self, library: NvmlLibrary) -> None:
        self._devices = self._inventory.devices
        self._tick = TickReader(library, self._devices)
        self._needs_new_reader = False
        self._note_xids()

    def _note_xids(self) -> None:
        for gpu in self._inventory.gpus:
            gpu.note_xids(self._events.xids_of(gpu.device.uuid))

    def _listen(self, library: NvmlLibrary, now_ns: int) -> None:
        """Distribute new events, re-read failed memory, and register the present GPUs."""
        events, gpus = self._events, self._inventory.gpus
        if events.news:
            changed = events.pop_changed()
            self._note_xids()
            for gpu in gpus:
                if gpu.device.uuid in changed:
                    gpu.check_soon()
        readable = [gpu for gpu in gpus if not (gpu.failure or gpu.lost_code)]
        events.follow(library, [(gpu.device.uuid, gpu.handle) for gpu in readable], now_ns)

    def _newly_refused(self) -> int:
        count = len(self._refused)
        for _ in range(count):
            self._refused.popleft()
        return count

    # -- opening, and opening again -------------------------------------------

    def open_library(self, accounts: CallAccounts) -> NvmlLibrary:
        return NvmlLibrary(accounts)

    def _open(self) -> None:
        """Open NVML, for the first time or again.

        Raises:
            RestartNeededError: This process cannot.
            SourceUnavailableError: It cannot be opened now.
        """
        try:
            library = self._library = self.open_library(self._accounts)
            if "activity" in self._options:
                self._gpm = Gpm(library, self._monotonic_ns, self._context.refuse)
            self._list_gpus(library)
            lost_codes = [gpu.lost_code for gpu in self._inventory.gpus]
            if all(lost_codes):
                raise no_gpu(lost_codes or library.refusals)
        except SourceUnavailableError as error:
            self._release_library()
            trouble = self._reopening.failed(error)
            raise trouble from error.__cause__
        self._rebuild_reader(library)
        self._reopening.opened()

    def _open_again(self) -> NvmlLibrary:
        """Open NVML again, but not at every tick: init takes long on real drivers."""
        self._reopening.check()
        if not self._slow_thread.is_free:  # it cannot be closed, and so not be reopened, before
            raise SourceUnavailableError(_HANGS)
        self._open()
        assert self._library is not None
        return self._library

    def _give_up_if_all_failed(self, tick: TickReader, now_ns: int) -> None:
        """Close NVML if the driver is gone, which shows as a failure of every GPU."""
        failures = [gpu.failure for gpu in self._inventory.gpus if gpu.failure]
        code = self._reopening.fatal_code(failures, tick.gpu_count, now_ns)
        if code is not None:
            self._release_library()
            raise self._reopening.failed(unavailable(code))

    # -- the inventory, and what changes slowly -------------------------------

    def _list_gpus(self, library: NvmlLibrary) -> None:
        self._inventory.update(library, self._gpm)
        self._refresh_at_ns = 0
        self._needs_new_reader = True

    def _update_inventory(self, library: NvmlLibrary) -> None:
        with suppress(SourceUnavailableError):  # the next tick shows whether GPUs can be read
            self._list_gpus(library)
        if not self._inventory.gpus:
            self._release_library()
            raise self._reopening.failed(no_gpu(library.refusals))

    def _refresh(self, library: NvmlLibrary, now_ns: int, read_now: ReadNow) -> None:
        """Read the slow values of the GPUs that are due, and look for changes."""
        inventory, changed = self._inventory, False
        self._listen(library, now_ns)
        early_ns = 0 if read_now else int(EARLY_RATIO * self._slow_ns)
        due = self._slow_reader.read_due(
            self._devices,
            now_ns,
            early_ns=early_ns,
            lists_processes=ReadNow.PROCESSES in read_now,
        )
        for device in due:
            if isinstance(device, NvmlGpu):
                self._needs_new_reader |= device.retry_calls(now_ns)
                changed |= self._has_changed(library, device, now_ns)
        if now_ns >= self._inventory_at_ns - early_ns:
            self._inventory_at_ns = now_ns + self._slow_ns
            changed |= inventory.is_outdated(library)
        if changed or inventory.is_uncertain:
            self._update_inventory(library)
        if not self._tick.failed:
            self._reopening.was_read()
        self._trouble = next(inventory.troubles(library), None)
        due_ns = [gpu.refresh_at_ns for gpu in inventory.gpus]
        due_ns += [instance.refresh_at_ns for instance in inventory.instances]
        self._refresh_at_ns = min(*due_ns, self._inventory_at_ns, now_ns + _CHECK_NS)
        if self._slow_reader.unread:
            self._refresh_at_ns = now_ns

    def _has_changed(self, library: NvmlLibrary, gpu: NvmlGpu, now_ns: int) -> bool:
        if gpu.failure:
            return gpu.renew_handle(library)
        return gpu.is_mig_mode_due(now_ns) and self._inventory.has_other_instances(library, gpu)
