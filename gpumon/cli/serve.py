"""``gpumon serve``: the daemon."""

from __future__ import annotations

import argparse
import gc
import logging
import math
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from gpumon.cli.collector_log import CollectorLog
from gpumon.cli.main import installed_version
from gpumon.cli.nvml_arguments import add_nvml_arguments, nvml_options_of
from gpumon.cli.open_source import SOURCE_HELP, check_source_word, is_simulated, open_source
from gpumon.core.report_codec import encode_report
from gpumon.core.state import MonitorState
from gpumon.core.tick import Tick
from gpumon.core.units import NS_PER_S
from gpumon.errors import SourceUnavailableError
from gpumon.outlets.http_routes import ReportScope
from gpumon.outlets.http_server import DEFAULT_LISTEN, HttpServer
from gpumon.outlets.prometheus import MetricsExporter
from gpumon.outlets.state_file import StateFile
from gpumon.pipeline.live_report import report_of
from gpumon.pipeline.monitor import Monitor, MonitorFacts
from gpumon.pipeline.report_history import ReportHistory
from gpumon.pipeline.run_reports import RunReports
from gpumon.pipeline.sampler import Sampler
from gpumon.pipeline.source_thread import SourceThread
from gpumon.sources.nvml_catalog import NvmlOptions
from gpumon.sources.phase_rings import PhaseRingReader
from gpumon.sources.protocols import GpuSource
from gpumon.sources.runtime_dir import claim_runtime_dir, hold_runtime_dir, ring_folders
from gpumon.sources.system_clock import SystemClock, read_boot_id

_LOG = logging.getLogger("gpumon")
_FIRST_ANSWER_S = 10.0
_STOP_PATIENCE_S = 1.0
_SHORTEST_PERIOD_S, _LONGEST_PERIOD_S = 0.05, 3600.0


class ServeCommand:
    """Watch the GPUs of this machine: live page, /metrics for Prometheus, `dstat --gpu`.

    Samples once a period, decides what each idle second was lost to, and
    publishes it on one port: the page at /, Prometheus metrics at /metrics,
    health at /-/healthy and /-/ready, JSON at /api/v1/state and /api/v1/report.
    Ends on Ctrl-C or SIGTERM.
    """

    name = "serve"
    summary = "watch this machine: page, /metrics, dstat --gpu"
    example = "gpumon serve --source simulated:input-bound    # then open the page it names"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare its options."""
        parser.add_argument("--source", metavar="SOURCE", default="nvml", help=SOURCE_HELP)
        parser.add_argument(
            "--listen",
            metavar="HOST:PORT",
            default=DEFAULT_LISTEN,
            help="where to serve; beyond loopback only /metrics and health (default: %(default)s)",
        )
        parser.add_argument(
            "--period",
            metavar="SECONDS",
            type=seconds_argument,
            default=1.0,
            help="time between two readings (default: %(default)s)",
        )
        parser.add_argument(
            "--wait-for-source",
            action="store_true",
            help="serve health and try again where the source cannot be read, instead of exit 3",
        )
        add_nvml_arguments(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Serve until told to stop."""
        logging.basicConfig(format="gpumon: %(message)s", level=logging.INFO, stream=sys.stderr)
        check_source_word(args.source)
        daemon = Daemon(
            args.source,
            listen=args.listen,
            period_s=args.period,
            wait=args.wait_for_source,
            nvml=nvml_options_of(args),
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: daemon.stop())
        daemon.run()
        return 0


def seconds_argument(text: str) -> float:
    """A period as typed. ``argparse`` prints the sentence and exits with 2."""
    try:
        period_s = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not math.isfinite(period_s) or not _SHORTEST_PERIOD_S <= period_s <= _LONGEST_PERIOD_S:
        raise argparse.ArgumentTypeError(
            f"must be between {_SHORTEST_PERIOD_S:g} and {_LONGEST_PERIOD_S:g} seconds, got {text}"
        )
    return period_s


class Daemon:
    """Everything ``serve`` starts, and its loop."""

    def __init__(
        self, source: str, *, listen: str, period_s: float, wait: bool, nvml: NvmlOptions
    ) -> None:
        self._source_word, self._nvml = source, nvml
        self._wait = wait
        self._clock = SystemClock()
        self._stopped = False
        self._period_ns = round(period_s * NS_PER_S)
        self._state: MonitorState | None = None
        self._history = ReportHistory()
        self._run_reports = RunReports()
        self._log = CollectorLog(_LOG)
        boot_id = read_boot_id()
        self._monitor = Monitor(
            MonitorFacts(
                source=source,
                source_kind=source.partition(":")[0],
                simulated=is_simulated(source),
                period_ns=self._period_ns,
                boot_id=boot_id,
                started_wall_time_s=self._clock.wall_time_s(),
            )
        )
        exporter = MetricsExporter(clock=self._clock, version=installed_version())
        self._http = HttpServer(
            listen, exporter=exporter, clock=self._clock, report=self._report_document
        )
        try:
            self._runtime_dir: Path = claim_runtime_dir()
            self._held = hold_runtime_dir(self._runtime_dir)
        except BaseException:
            self._http.close()
            raise
        self._rings = PhaseRingReader(ring_folders(self._runtime_dir), boot_id=boot_id)
        self._state_file = StateFile(self._runtime_dir / "state.json", address=self._http.address)

    def _open_source(self) -> GpuSource:
        return open_source(self._source_word, self._clock, self._nvml)

    def stop(self) -> None:
        """End the loop soon. Safe in a signal handler."""
        self._stopped = True
        self._clock.wake()

    def run(self) -> None:
        """Sample and publish until ``stop``.

        Raises:
            RestartNeededError: Only a new process can read the source again.
            SourceUnavailableError: The source cannot be read, and nobody
                asked to wait for it.
        """
        source = SourceThread(self._open_source, self._clock)
        try:
            self._http.start()  # first: a driver may take half a minute to start
            if not self._wait:
                _insist_on(source)
            self._greet()
            gc.freeze()  # what is loaded by now lives as long as the process: not worth looking at
            sampler = Sampler(source, self._clock, period_ns=self._period_ns)
            while not self._stopped:
                tick = sampler.tick()
                if source.restart_needed is not None:
                    raise source.restart_needed
                self._take(tick)
        finally:
            self._state_file.close()
            self._http.close()
            self._rings.close()
            source.stop(_STOP_PATIENCE_S)
            os.close(self._held)

    def _take(self, tick: Tick) -> None:
        began_ns = time.perf_counter_ns()
        rings = self._rings.read(self._clock.monotonic_ns())
        state = self._monitor.advance(
            tick,
            rings,
            wall_time_s=self._clock.wall_time_s(),
            rings_seconds=(time.perf_counter_ns() - began_ns) / NS_PER_S,
            more_collectors=(self._state_file.collector_state(),),
        )
        self._run_reports.follow(state)
        self._state = state
        if self._history.is_due(state.taken_at_ns):
            self._history.keep(report_of(state), state.taken_at_ns)
        self._state_file.write(state)
        self._http.publish(state)
        self._log.follow(state.collectors, state.taken_at_ns)

    def _greet(self) -> None:
        made_up = " (simulated GPUs)" if is_simulated(self._source_word) else ""
        page = "" if self._http.beyond_loopback else f"  page     http://{self._http.address}/\n"
        print(
            f"gpumon: watching {self._source_word}{made_up}\n{page}"
            f"  metrics  http://{self._http.address}/metrics\n"
            f"  state    {self._state_file.path}   (dstat --gpu reads it)",
            flush=True,
        )

    def _report_document(self, scope: ReportScope) -> dict[str, object] | None:
        state = self._state
        if state is None:
            return None
        report = report_of(state, self._rings.newest_counts(self._clock.monotonic_ns()))
        if scope.run is not None:
            report = self._run_reports.of(scope.run, report)
        elif scope.since_s is not None:
            report = self._history.since(report, state.taken_at_ns, scope.since_s)
        else:
            note = self._run_reports.note(report)
            report = replace(report, notes=(*report.notes, note)) if note else report
        return encode_report(report)


def _insist_on(source: SourceThread) -> None:
    """Fail now if the source cannot be read at all; a driver that only hangs is waited for."""
    source.ask()
    frames, error, _ = source.take(_FIRST_ANSWER_S)
    if not frames and error is not None:
        raise SourceUnavailableError(error)
