"""``gpumon serve``: the daemon."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpumon import __version__
from gpumon.cli.command import (
    SHORTEST_PERIOD_S,
    add_period_argument,
    end_on_signals,
    period_argument,
)
from gpumon.cli.daemon_log import CollectorLog, FieldLog, PriceLog, XidLog
from gpumon.cli.environment import misspelt_variables
from gpumon.cli.source_option import (
    SOURCE_HELP,
    add_nvml_arguments,
    check_source,
    nvml_options_of,
    replay_of,
    watch_machine,
    watch_replay,
)
from gpumon.cli.stacks_option import StackUsers, stack_sampler, stack_users_of, user_argument
from gpumon.core.clock import seconds
from gpumon.core.codecs.report_codec import encode_report, encode_report_with_lanes
from gpumon.core.diagnosis.report_before import EarlierTime
from gpumon.core.reading import Reading
from gpumon.core.ring_format.runtime_paths import STATE_FILE
from gpumon.core.state import MonitorState
from gpumon.errors import UsageError
from gpumon.outlets.http.clients import WebToken, read_token
from gpumon.outlets.http.faults import WEB_SERVER
from gpumon.outlets.http.routes import ReportScope
from gpumon.outlets.http.server import DEFAULT_LISTEN, HttpServer, parse_listen
from gpumon.outlets.metrics.prometheus import MetricsExporter
from gpumon.outlets.state_file import StateFile
from gpumon.outlets.store.place import store_path
from gpumon.outlets.text.monitor_view import ViewBuilder
from gpumon.pipeline.monitor import Monitor
from gpumon.pipeline.report_builder import Reports
from gpumon.pipeline.watch import MachineWatch, Watch
from gpumon.sources.gpu_source import ReadNow
from gpumon.sources.nvml.drain_schedule import LONGEST_NS
from gpumon.sources.nvml.fields.table import NvmlOptions, ReadTimes
from gpumon.sources.process_owners import hides_users, user_name
from gpumon.sources.ring_reader.daemon_folder import LockedFolder, ring_folders
from gpumon.sources.system_clock import SystemClock

if TYPE_CHECKING:
    from gpumon.outlets.store.store import Store

_LOG = logging.getLogger("gpumon")
_LONGEST_DRAIN_S: Final = 60.0
_PROC: Final = Path("/proc")


class ServeCommand:
    """Watch the GPUs of this machine: live page, /metrics for Prometheus, `dstat --gpu`.

    Samples once a period, attributes each idle second to a cause, and publishes
    on one port: the page at /, Prometheus metrics at /metrics, health at
    /-/healthy and /-/ready, JSON at /api/v1/state and /api/v1/report. Ends on
    Ctrl-C, SIGTERM or SIGHUP. Each option is also an environment variable, in
    brackets below; the command line wins.
    """

    example = "gpumon serve --source simulated:input-bound    # then open the page it names"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--source",
            metavar="SOURCE",
            type=check_source,
            default="nvml",
            help=SOURCE_HELP,
        )
        parser.add_argument(
            "--listen",
            metavar="HOST:PORT",
            nargs="+",
            action="extend",
            type=lambda text: str(parse_listen(text)),
            help="where to serve; may be repeated; clients beyond loopback get only /metrics and "
            f"health (default: {DEFAULT_LISTEN})",
        )
        parser.add_argument(
            "--web-token-file",
            metavar="FILE",
            dest="token",
            type=read_token,
            help="remote clients that send the token in this file, as HTTP Basic password or as "
            "Bearer, get every endpoint",
        )
        add_period_argument(parser)
        parser.add_argument(
            "--wait-for-source",
            action="store_true",
            help="if the source cannot be read, serve health and retry, instead of exiting with "
            "code 3",
        )
        add_nvml_arguments(parser)
        parser.add_argument(
            "--drain-every",
            metavar="SECONDS",
            type=period_argument(SHORTEST_PERIOD_S, _LONGEST_DRAIN_S),
            help="how often to read the samples that the driver keeps, at most half of the time "
            "that it keeps them (default: a third of it, at most "
            f"{seconds(LONGEST_NS):g}; each period while a page or dstat is open)",
        )
        parser.add_argument(
            "--stacks",
            action="store_true",
            help="when a GPU falls idle, read the Python stack of its process with py-spy, to see "
            "what it waits for: of your own processes, and as root of every user's that do not set "
            "GPUMON_NO_STACKS=1; at most 0.5 %% of a core",
        )
        parser.add_argument(
            "--stacks-of",
            metavar="USER",
            nargs="+",
            action="extend",
            type=user_argument,
            help="with --stacks: the users, by name or number, whose processes may be read besides "
            "your own",
        )
        parser.add_argument(
            "--users",
            action="store_true",
            help="name the users of GPUs in /metrics: their GPU time, and who is on which GPU",
        )
        parser.add_argument(
            "--no-store",
            action="store_true",
            help="keep nothing on disk: reports and the page reach back to the start of the "
            "daemon, or ten minutes (default: 30 days are kept in $STATE_DIRECTORY, "
            "$XDG_STATE_HOME/gpumon or ~/.local/state/gpumon)",
        )

    def run(self, args: argparse.Namespace) -> int:
        logging.basicConfig(format="gpumon: %(message)s", level=logging.INFO, stream=sys.stderr)
        for sentence in misspelt_variables(args.parser, os.environ):
            _LOG.warning("%s", sentence)
        stack_users, users = stack_users_of(args), user_names_of(args)
        daemon = Daemon(
            args.source,
            listen=args.listen or [DEFAULT_LISTEN],
            token=args.token,
            times=ReadTimes(args.period, drain_s=args.drain_every),
            wait=args.wait_for_source,
            nvml=nvml_options_of(args),
        )
        if not args.no_store:
            daemon.keep_on_disk()
        if stack_users is not None:
            daemon.sample_stacks_of(stack_users)
        if users is not None:
            daemon.name_users(users)
        end_on_signals(daemon.stop)
        daemon.run()
        return 0


def user_names_of(args: argparse.Namespace) -> Callable[[int], str] | None:
    """What names a user; ``None``: users are not named.

    Raises:
        UsageError: The source is a recording, maybe of another machine with other users.
    """
    if not args.users:
        return None
    if replay_of(args.source) is not None:
        raise UsageError("--users needs a live source, and a recording is none")
    if hides_users():
        _LOG.warning(
            "--users has no effect, for processes of other users are hidden (hidepid): run gpumon "
            "serve as root, or as a user of the group that /proc is mounted with (gid=)"
        )
        return None
    return user_name


def _store(path: Path | None) -> Store:
    from gpumon.outlets.store.store import Store  # loads SQLite

    return Store(path)


class Daemon:
    """Everything that ``serve`` starts, and its loop."""

    def __init__(
        self,
        source: str,
        *,
        listen: Sequence[str],
        token: WebToken | None,
        times: ReadTimes,
        wait: bool,
        nvml: NvmlOptions,
    ) -> None:
        self._wait, self._has_token = wait, token is not None
        self._clock = SystemClock()
        self._stopped = False
        self._reports, views = Reports(self._earlier), ViewBuilder()
        self._log, self._xid_log = CollectorLog(_LOG), XidLog(_LOG)
        self._field_log, self._price_log = FieldLog(_LOG), PriceLog(_LOG)
        replay = replay_of(source)
        player = None if replay is None else watch_replay(replay, self._clock)
        clock = self._clock if player is None else player.clock
        exporter = MetricsExporter(clock=clock, version=__version__, proc=_PROC)
        self._http = HttpServer(
            *listen,
            exporter=exporter,
            clock=clock,
            token=token,
            report=self._report_document,
            view=lambda state, cells: views.view(state, self._reports.report_on(state), cells),
        )
        try:
            self._folder = LockedFolder()
        except BaseException:
            self._http.close()
            raise
        runtime_dir = self._folder.path
        self._state_file = StateFile(runtime_dir / STATE_FILE, address=self._http.address)
        self._watch: Watch = player or watch_machine(
            source,
            self._clock,
            nvml,
            times=times,
            folders=ring_folders(runtime_dir),
        )
        self._monitor = Monitor(self._watch.facts)
        self._store = _store(None)
        self._http.read_history_with(lambda span: self._store.history(span))

    def keep_on_disk(self) -> None:
        """Keep where the time went over restarts, unless it is that of a recording."""
        if not self._watch.facts.replayed:
            self._store.close()
            self._store = _store(store_path())

    def sample_stacks_of(self, users: StackUsers) -> None:
        """Take stack samples of the processes of these users."""
        sampler = stack_sampler(users, self._clock)
        if sampler is not None and isinstance(self._watch, MachineWatch):
            self._watch.sample_stacks(sampler)

    def name_users(self, user_name: Callable[[int], str]) -> None:
        """Name the users of GPUs, by uid, from the first tick on."""
        self._monitor = Monitor(self._watch.facts, user_name=user_name)

    def stop(self) -> None:
        """End the loop soon. Safe in a signal handler."""
        self._stopped = True
        self._clock.wake()

    def run(self) -> None:
        """Sample and publish until ``stop``.

        Raises:
            FolderInUseError: Another daemon has taken the runtime folder.
            RestartNeededError: Only a new process can read the source again.
            SourceUnavailableError: The source cannot be read, without ``--wait-for-source``.
        """
        try:
            self._store.start()
            self._http.start()  # first, because a driver may take half a minute to start
            if not self._wait:
                self._watch.require_source()
            self._greet()
            gc.freeze()  # these objects live as long as the process
            has_ended = False
            while not self._stopped:
                reading = self._watch.next_reading(self._needed_now())
                if reading is not None:
                    self._ingest(reading)
                else:
                    self._keep_last_state(is_published=has_ended)
                    has_ended = True
        finally:
            self._state_file.close()
            self._http.close()
            self._watch.close()
            self._store.close()
            self._folder.close()

    def _needed_now(self) -> ReadNow:
        needed = ReadNow.SAMPLES if self._http.has_streams else ReadNow.NOTHING
        return needed | ReadNow.PROCESSES if self._monitor.has_open_bindings else needed

    def _keep_folder(self) -> None:
        trouble = self._folder.keep()
        self._state_file.stay_in(None if self._folder.is_lost else self._folder.path, trouble)

    def _ingest(self, reading: Reading) -> None:
        self._keep_folder()
        outlets = (self._state_file.collector_state(), self._http.collector_state())
        kept = () if self._store.path is None else (self._store.collector_state(),)
        collectors = (*outlets, *kept, *self._watch.collectors())
        state = self._monitor.ingest(reading, collectors)
        self._reports.follow(state)
        self._publish(state)

    def _keep_last_state(self, *, is_published: bool) -> None:
        """After the end of a recording: publish its last state once, and keep its file current."""
        self._keep_folder()
        last = self._reports.state
        if last is None:
            return
        own = self._watch.collectors()
        names = {collector.name for collector in own}
        others = [collector for collector in last.collectors if collector.name not in names]
        state = last._replace(collectors=(*others, *own), settled=())
        if is_published:
            self._state_file.write(self._watch.for_state_file(state))
        else:
            self._reports.follow(state)
            self._publish(state)

    def _publish(self, state: MonitorState) -> None:
        self._state_file.write(self._watch.for_state_file(state))
        self._store.follow(state)
        self._http.publish(self._watch.for_display(state))
        self._field_log.follow(state.gpus, state.taken_at_ns)
        # The web server logs itself.
        collectors = [known for known in state.collectors if known.name != WEB_SERVER]
        self._log.follow(collectors, state.taken_at_ns, logged=self._field_log.sentences)
        self._xid_log.follow(state.gpus, state.taken_at_ns)
        self._price_log.follow(state)

    def _greet(self) -> None:
        facts = self._watch.facts
        kind = " (simulated GPUs)" if facts.simulated else ""
        kind += " (a recording, not live)" if facts.replayed else ""
        pages = [f"  page     http://{endpoint}/\n" for endpoint in self._http.loopback_endpoints]
        if self._has_token and self._http.beyond_loopback:
            pages.append("  page     with the token, also at each address below\n")
        metrics = [f"  metrics  http://{endpoint}/metrics\n" for endpoint in self._http.endpoints]
        print(
            f"gpumon: watching {facts.source}{kind}\n{''.join((*pages, *metrics))}"
            f"  state    {self._state_file.path}   (dstat --gpu reads it)\n"
            f"  store    {self._store.description}",
            flush=True,
        )

    def _earlier(self, from_s: float) -> EarlierTime | None:
        return self._store.earlier(from_s)

    def _report_document(self, scope: ReportScope) -> dict[str, object] | None:
        newest = self._watch.newest_counts()
        if scope.has_lanes:
            pair = self._reports.report_with_lanes(newest, since_s=scope.since_s, run=scope.run)
            return None if pair is None else encode_report_with_lanes(pair, scope.viewer)
        report = self._reports.report(newest, since_s=scope.since_s, run=scope.run)
        return None if report is None else encode_report(report, scope.viewer)
