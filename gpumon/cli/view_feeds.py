"""Where ``gpumon top`` has its views from: a daemon, or a watch in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Protocol

from gpumon.core.clock import nanoseconds
from gpumon.core.view.view import GpuView, MonitorView, ProcessView
from gpumon.errors import GpumonError, NoDaemonError, SourceUnavailableError
from gpumon.outlets.http.clients import host_name, is_loopback
from gpumon.outlets.screen.one_screen import Screenful
from gpumon.sources.daemon import (
    END_OR_WAIT,
    find_silent_daemon,
    find_state_file,
    read_state,
)
from gpumon.sources.daemon_view import DaemonAddress, ViewStream, fetch_view
from gpumon.sources.process_owners import ProcessNames, ProcessOwners
from gpumon.sources.system_clock import SystemClock, read_boot_id

_RETRY_S: Final = 1.0
_FIRST_TICK_S, _ASK_AGAIN_S = 5.0, 0.2
TICKS_OF_ONE_SCREEN: Final = 2
"""Ticks of an own watch before one screen is printed: a period of use lies between them."""

Show = Callable[[Screenful], None]


class ViewFeed(Protocol):
    """Gives what there is to show, until it is closed."""

    def first(self, ticks: int = 0) -> Screenful:
        """What can be shown at once; or, for one screen, the view after so many ticks.

        Raises:
            NoDaemonError: There is no daemon to read.
            SourceUnavailableError: The source cannot be read.
        """
        ...

    def follow(self, show: Show) -> None:
        """Call ``show`` with each view from now on, on a thread of its own."""
        ...

    def close(self) -> None:
        """End it. Safe to call twice."""
        ...


def running_daemon() -> DaemonAddress | None:
    """Where the daemon of this machine answers; ``None``: there is none.

    Raises:
        NoDaemonError: One lives and does not work, or serves no page.
    """
    path = find_state_file()
    if path is None:
        silent = find_silent_daemon()
        if silent is not None:
            raise NoDaemonError(f"{silent.description}; {END_OR_WAIT}")
        return None
    address = read_state(path, SystemClock(), read_boot_id()).get("address")
    if not isinstance(address, str) or not address:
        raise NoDaemonError("the gpumon daemon serves no page: start it with --listen")
    return DaemonAddress(address)


class DaemonFeed:
    """Reads a daemon, and looks for it again once it has gone.

    Args:
        find: Finds it; returns ``None`` or raises ``NoDaemonError`` if there is none.
    """

    def __init__(self, find: Callable[[], DaemonAddress | None]) -> None:
        self._find = find
        self._last = Screenful(None, "")
        self._stream: ViewStream | None = None
        self._closed = threading.Event()
        self._clock = SystemClock()
        self._boot_id, self._names = read_boot_id(), LocalNames()

    def first(self, ticks: int = 0) -> Screenful:
        address = self._address()
        view = fetch_view(address)
        patient_until_ns = self._clock.monotonic_ns() + nanoseconds(_FIRST_TICK_S)
        while view is None and ticks and self._clock.monotonic_ns() < patient_until_ns:
            self._closed.wait(_ASK_AGAIN_S)
            view = fetch_view(address)
        self._last = Screenful(view, f"daemon at {address.place}")
        if view is None:
            self._last = self._last._replace(trouble="nothing yet: no GPU has been read")
        return self._with_place(self._last, address)

    def follow(self, show: Show) -> None:
        threading.Thread(
            target=self._follow, args=(show,), name="gpumon-views", daemon=True
        ).start()

    def close(self) -> None:
        self._closed.set()
        if self._stream is not None:
            self._stream.close()

    def _address(self) -> DaemonAddress:
        address = self._find()
        if address is None:
            raise NoDaemonError("the gpumon daemon has ended: waiting for the next one")
        return address

    def _follow(self, show: Show) -> None:
        trouble_since_s: float | None = None
        while not self._closed.is_set():
            try:
                address = self._address()
                self._stream = ViewStream(address)
                for view in self._stream.views():
                    trouble_since_s = None
                    shown = Screenful(view, f"daemon at {address.place}")
                    self._last = self._with_place(shown, address)
                    show(self._last)
            except GpumonError as error:
                if self._closed.is_set():
                    return
                if trouble_since_s is None:
                    trouble_since_s = self._clock.wall_time_s()
                show(self._last._replace(trouble=str(error), trouble_since_s=trouble_since_s))
            self._closed.wait(_RETRY_S)

    def _with_place(self, shown: Screenful, address: DaemonAddress) -> Screenful:
        view = shown.view
        if (
            view is None
            or view.boot_id != self._boot_id
            or not is_loopback(host_name(address.place))
        ):
            return shown
        is_local = not view.simulated and not view.replayed
        return shown._replace(
            view=self._names.filled(view) if is_local else view, is_local=is_local
        )


class WatchFeed:
    """Watches a source in this process, as a daemon would.

    Args:
        source: A checked ``--source``.
        period_s: Seconds between two ticks.
        is_fallback: Whether it stands in for a daemon that does not run.
    """

    def __init__(self, source: str, period_s: float, *, is_fallback: bool = False) -> None:
        self._source, self._period_s, self._is_fallback = source, period_s, is_fallback
        why = "no daemon runs here: " if is_fallback else ""
        self._last = Screenful(None, f"{why}watching {source} in this process")
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._watch: OwnWatch | None = None

    def first(self, ticks: int = 0) -> Screenful:
        if ticks:
            watch = self._opened()
            for _ in range(ticks):
                self._tick(watch)
        return self._last

    def follow(self, show: Show) -> None:
        self._thread = threading.Thread(
            target=self._follow, args=(show,), name="gpumon-views", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        if self._watch is not None:
            self._watch.wake()
        if self._thread is not None:
            self._thread.join(1.0)
            self._thread = None
        if self._watch is not None:
            self._watch.close()

    def _follow(self, show: Show) -> None:
        try:
            watch = self._opened()
            while not self._closed.is_set():
                show(self._tick(watch))
        except GpumonError as error:
            show(self._last._replace(error=error))

    def _opened(self) -> OwnWatch:
        """The watch, once its source can be read.

        Raises:
            SourceUnavailableError: It cannot.
        """
        if self._watch is None:
            self._watch = OwnWatch(self._source, self._period_s)
        try:
            self._watch.require_source()
        except SourceUnavailableError as error:
            if not self._is_fallback:
                raise
            raise SourceUnavailableError(
                f"no gpumon daemon runs here, and {error}; to see this screen without a GPU, try "
                "`gpumon top --source simulated:eight`"
            ) from error
        return self._watch

    def _tick(self, watch: OwnWatch) -> Screenful:
        self._last = self._last._replace(view=watch.next_view(), is_local=watch.is_local)
        return self._last


class OwnWatch:
    """The view of each tick of a source, as a daemon would send it.

    Attributes:
        is_local: Whether its processes are of this machine.
    """

    def __init__(self, source: str, period_s: float) -> None:
        # Only without a daemon, because these take a quarter of a second to import.
        from gpumon.cli.source_option import folders_without_a_daemon, watch_machine
        from gpumon.outlets.http.page_history import PageHistory
        from gpumon.outlets.text.monitor_view import ViewBuilder
        from gpumon.pipeline.monitor import Monitor
        from gpumon.pipeline.report_builder import Reports
        from gpumon.sources.nvml.fields.table import DEFAULT_OPTIONS, ReadTimes
        from gpumon.sources.ring_reader.phase_rings import leave_alone

        clock = SystemClock()
        self._watch = watch_machine(
            source,
            clock,
            DEFAULT_OPTIONS,
            times=ReadTimes(period_s),
            folders=folders_without_a_daemon(),
            unlink=leave_alone,
        )
        self.require_source, self.close = self._watch.require_source, self._watch.close
        self.wake = clock.wake
        self._monitor, self._reports = Monitor(self._watch.facts), Reports()
        self._history, self._builder = PageHistory(), ViewBuilder()
        self._names = LocalNames()
        self.is_local = not self._watch.facts.simulated

    def next_view(self) -> MonitorView:
        """Wait for the next tick.

        Raises:
            RestartNeededError: Only a new process can read the source again.
        """
        reading = self._watch.next_reading()
        state = self._monitor.ingest(reading, self._watch.collectors())
        self._reports.follow(state)
        self._history.append(state)
        report = self._reports.report_on(state)
        view = self._builder.view(state, report, self._history.cells())
        return self._names.filled(view) if self.is_local else view


class LocalNames:
    """Names users and programs that a daemon without `--nvml-on process_names` leaves out.

    Only of processes of this machine, as its kernel shows them to this user.
    """

    def __init__(self) -> None:
        self._owners, self._programs = ProcessOwners(), ProcessNames(lambda pid: None)
        self._known: dict[int, tuple[str | None, str | None]] = {}

    def filled(self, view: MonitorView) -> MonitorView:
        """The view with the names that it lacks."""
        seen: set[int] = set()
        gpus = tuple(self._filled(gpu, seen) for gpu in view.gpus)
        self._programs.keep_only(seen)
        self._known = {pid: names for pid, names in self._known.items() if pid in seen}
        return view._replace(gpus=gpus)

    def _filled(self, gpu: GpuView, seen: set[int]) -> GpuView:
        held, processes = gpu.held_by, gpu.processes
        if held is not None:
            user, command = self._names(held.pid, seen)
            held = held._replace(user=held.user or user, command=held.command or command)
        if processes is not None:
            processes = tuple(self._with_names(process, seen) for process in processes)
        user = gpu.user or (processes[0].user if processes else None)
        return gpu._replace(held_by=held, processes=processes, user=user)

    def _with_names(self, process: ProcessView, seen: set[int]) -> ProcessView:
        if process.user and process.command:
            return process
        user, command = self._names(process.pid, seen)
        return process._replace(user=process.user or user, command=process.command or command)

    def _names(self, pid: int, seen: set[int]) -> tuple[str | None, str | None]:
        seen.add(pid)
        if pid not in self._known:
            user = self._programs.user(self._owners.owner(pid).uid)
            self._known[pid] = user, self._programs.name(pid)
        return self._known[pid]
