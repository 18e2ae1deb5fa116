"""``gpumon report`` and ``gpumon replay``: where the GPU time went."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from gpumon.cli.command import (
    can_draw,
    check_path,
    number_argument,
    print_error,
    time_argument,
)
from gpumon.cli.fleet_report import (
    add_fleet_arguments,
    check_fleet_arguments,
    run_fleet_report,
)
from gpumon.core.codecs.report_codec import (
    decode_report_with_lanes,
    encode_pair,
    encode_report,
)
from gpumon.core.codecs.stack_codec import TRUSTED
from gpumon.core.report.lanes import ReportWithLanes
from gpumon.core.report.report import Report
from gpumon.core.ring_format.runtime_paths import reader_folder_text
from gpumon.errors import NoDaemonError, NothingToJudgeError, UnreadableLogError, UsageError
from gpumon.sources.daemon import (
    END_OR_WAIT,
    fetch_report,
    fetch_report_with_lanes,
    find_silent_daemon,
    find_state_file,
    read_state,
)
from gpumon.sources.system_clock import SystemClock, read_boot_id

_READABLE = "a recording of `gpumon record`, or a report saved with `gpumon report --json`"
_COMPARISON_SCHEMA = "gpumon.comparison/1"
_CHECK_EVERY = 256
"""Ticks of a recording between two checks of the clock: at most a tenth of a second."""
_PERCENT = number_argument(lambda text: float(text.removesuffix("%")), "a percentage", 0, 100)


_Page = Callable[[ReportWithLanes], int]
"""Writes a page and returns the exit code."""


class ReportCommand:
    """Show where the GPU time went since the running daemon started.

    Asks `gpumon serve` on this machine, or reads a recording of `gpumon record` or
    a report saved with --json, or compares two of these files. With --prometheus, it
    asks a Prometheus server what all of its machines have lost, and what that cost.

    As a gate for CI, --fail-if-starved-above and --fail-if-lost-above exit with 1
    when a GPU waits for input (or is suspected to), or idles for any reason, for
    more than PERCENT of its time in use. A GPU in use for less than 10 s cannot be
    compared with a limit; if none can, the exit code is 5. The report is printed in
    any case.

    Exit codes: 0 success, 1 a limit is exceeded, a file cannot be read or written,
    or a server gives no report, 2 wrong arguments, 4 no daemon, 5 no GPU had a verdict.
    """

    example = (
        "gpumon report --fail-if-starved-above 5 --fail-if-lost-above 20\n"
        "  gpumon report --prometheus http://prometheus:9090 --since 7d --price 2.50"
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "recording",
            metavar="RECORDING",
            nargs="?",
            help="a recording or a report saved with --json, instead of the daemon",
        )
        parser.add_argument(
            "--json",
            action="store_true",
            help="print gpumon.report/1 JSON, or gpumon.fleet/1 with --prometheus",
        )
        _add_html_argument(
            parser, and_of_fleet="; with --prometheus: where the time went, and who lost most"
        )
        parser.add_argument(
            "--since",
            metavar="TIME",
            type=time_argument,
            help="only the last 90s, 15m, 1h or 2d of the daemon, the recording or the Prometheus",
        )
        parser.add_argument(
            "--run",
            metavar="NAME",
            dest="run_name",
            help="only one training run, by its name or pid in the report",
        )
        parser.add_argument(
            "--fail-if-starved-above",
            metavar="PERCENT",
            type=_PERCENT,
            help="exit 1 if a GPU waits for input, or is suspected to, for more than PERCENT of "
            "its time in use",
        )
        parser.add_argument(
            "--fail-if-lost-above",
            metavar="PERCENT",
            type=_PERCENT,
            help="exit 1 if a GPU idles for more than PERCENT of its time in use; with "
            "--prometheus, if all GPUs together do",
        )
        parser.add_argument(
            "--compare",
            metavar=("BEFORE", "AFTER"),
            nargs=2,
            help="two recordings, or reports saved with --json, side by side; limits apply to the "
            "second",
        )
        add_fleet_arguments(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Print the report, and compare it with the limits."""
        check_fleet_arguments(args)
        if args.prometheus is not None:
            return run_fleet_report(args)
        _check(args)
        write_page, code = _page_writer(args.html, args.recording), 0
        if args.compare:
            before, report = (read_saved(path).report for path in args.compare)
            _print_both(before, report, as_json=args.json)
        else:
            found = _found(args)
            report = found.report
            _print(report, as_json=args.json)
            code = write_page(found)
        sys.stdout.flush()  # the report comes before messages on limits
        return (
            _compare_with_limits(report, args.fail_if_starved_above, args.fail_if_lost_above)
            or code
        )


class ReplayCommand:
    """Print the report on a recording of `gpumon record`.

    It has the figures that a daemon would have reported at the end of the
    recording, which may come from another machine. Damaged parts are left out,
    with a note. To see it live, on the page, in /metrics and in dstat, play it
    with a daemon.
    """

    example = (
        "gpumon replay night.gpumon\n"
        "  gpumon report night.gpumon --since 1h              # only its last hour\n"
        "  gpumon serve --source replay:night.gpumon,speed=10 # ten times as fast"
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", help="a recording")
        parser.add_argument("--json", action="store_true", help="print gpumon.report/1 JSON")
        _add_html_argument(parser)

    def run(self, args: argparse.Namespace) -> int:
        write_page = _page_writer(args.html, args.file)
        found = _of_recording(args.file, None, None)
        _print(found.report, as_json=args.json)
        return write_page(found)


def _add_html_argument(parser: argparse.ArgumentParser, and_of_fleet: str = "") -> None:
    parser.add_argument(
        "--html",
        metavar="PAGE",
        help="also write one HTML page that needs no network: the phases of each run, how busy "
        f"each GPU was, and the report{and_of_fleet}",
    )


def _page_writer(path: str | None, source: str | None) -> _Page:
    """The function that writes the page; the path is checked before anything is read.

    Raises:
        UsageError: The path is not usable.
    """
    if path is None:
        return lambda report: 0
    check_path(path, source)
    if not can_draw():
        return lambda report: 1

    def write(report: ReportWithLanes) -> int:
        from gpumon.outlets.atomic_write import write_whole
        from gpumon.outlets.plot.html import html_page

        write_whole(path, html_page(*report))
        return 0

    return write


# Outlets are imported only when there is a report, so that a missing daemon is reported at once.


def _print(report: Report, *, as_json: bool) -> None:
    from gpumon.outlets.text.report_text import render_report
    from gpumon.outlets.text.style import style_for

    if as_json:
        print(json.dumps(encode_report(report, TRUSTED), indent=2))
    else:
        print(render_report(report, style_for(sys.stdout, os.environ)), end="")


def _print_both(before: Report, after: Report, *, as_json: bool) -> None:
    from gpumon.outlets.text.comparison import side_by_side
    from gpumon.outlets.text.style import style_for

    if before == after:
        print_error("note: both are the same report")
    if as_json:
        print(json.dumps(comparison(before, after), indent=2))
    else:
        print(side_by_side(before, after, style_for(sys.stdout, os.environ)), end="")


def _check(args: argparse.Namespace) -> None:
    """Refuse options that exclude each other."""
    options = (("--since", args.since), ("--run", args.run_name), ("--html", args.html))
    for option, given in options:
        if args.compare and given is not None:
            raise UsageError(f"{option} cannot be combined with --compare")
    if args.compare and args.recording is not None:
        raise UsageError("--compare takes two files: leave out the third one")
    if args.run_name is not None and args.since is not None:
        raise UsageError("--run cannot be combined with --since")


def _found(args: argparse.Namespace) -> ReportWithLanes:
    if args.recording is not None:
        return read_saved(args.recording, since_s=args.since, run=args.run_name)
    return daemons_report(args.since, args.run_name, with_lanes=args.html is not None)


def daemons_report(since_s: float | None, run: str | None, *, with_lanes: bool) -> ReportWithLanes:
    """The report of the running daemon, of its last ``since_s`` or of one run if given.

    Raises:
        NoDaemonError: There is none, or it does not answer.
        UsageError: There is no such run, or the time is invalid; says what is possible.
    """
    searched = reader_folder_text(os.environ, os.geteuid())
    state_file = find_state_file()
    silent = find_silent_daemon() if state_file is None else None
    if silent is not None:
        raise NoDaemonError(f"{silent.description}; {END_OR_WAIT}")
    state = read_state(state_file, SystemClock(), read_boot_id(), searched)
    if not with_lanes:
        return ReportWithLanes(fetch_report(state, since_s, run), None)
    return fetch_report_with_lanes(state, since_s, run)


def read_saved(
    path: str, *, since_s: float | None = None, run: str | None = None
) -> ReportWithLanes:
    """The report of a recording, or one that was saved with ``--json``, which has no lanes.

    Raises:
        UnreadableLogError: The file cannot be read, or is neither of the two.
        UsageError: Part of a saved report was requested, or an unknown run.
    """
    from gpumon.sources.recording import is_recording

    if is_recording(path):
        return _of_recording(path, since_s, run)
    saved = _decoded(path)
    for option, given in (("--since", since_s), ("--run", run)):
        if given is not None:
            raise UsageError(
                f"{path} is a saved report: {option} is for the running daemon or a recording"
            )
    return saved


def _of_recording(path: str, since_s: float | None, run: str | None) -> ReportWithLanes:
    # Imported here, because the report of the daemon does not need them.
    from gpumon.cli.live_line import ReadingProgress
    from gpumon.pipeline.replay import replayed_report
    from gpumon.sources.recording import RecordingFile

    with (
        RecordingFile(path) as recording,
        ReadingProgress(recording, sys.stderr, check_every=_CHECK_EVERY) as progress,
    ):
        return replayed_report(recording, progress.watched, since_s=since_s, run=run)


def _decoded(path: str) -> ReportWithLanes:
    """Read a report saved with ``--json``."""
    try:
        document = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise UnreadableLogError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise _unfit(
            path,
            "it is not JSON",
            f" (for a log of nvidia-smi, run `gpumon analyze {path}`)",
        ) from error
    if isinstance(document, list):
        raise _unfit(
            path,
            "it is a list of reports, as `gpumon analyze --json` prints for several files: save "
            "one of them",
        )
    try:
        return decode_report_with_lanes(document)
    except UsageError as error:
        raise _unfit(path, str(error)) from error


def _unfit(path: str, why: str, instead: str = "") -> UnreadableLogError:
    return UnreadableLogError(f"{path}: cannot be read: {why}; name {_READABLE}{instead}")


def comparison(before: Report, after: Report) -> dict[str, object]:
    """The ``--json`` document of a comparison."""
    from gpumon.core.diagnosis.report_differences import pairs_of, speedup, unlike

    pairs = pairs_of(before, after)
    runs = [
        *(encode_pair(pair.before, pair.after) for pair in pairs.both),
        *(encode_pair(pace, None) for pace in pairs.only_before),
        *(encode_pair(None, pace) for pace in pairs.only_after),
    ]
    return {
        "schema": _COMPARISON_SCHEMA,
        "unlike": [difference.text for difference in unlike(before, after)],
        "speedup": speedup(before, after),
        "runs": runs,
        "before": encode_report(before, TRUSTED),
        "after": encode_report(after, TRUSTED),
    }


def _compare_with_limits(report: Report, *percents: float | None) -> int:
    """Exit code 1, with a message, if a GPU exceeds a limit: starved or lost percent; else 0.

    Raises:
        NothingToJudgeError: There are limits, but no GPU has a verdict.
    """
    from gpumon.core.diagnosis.gate import Limits, compared

    starved, lost = (None if percent is None else percent / 100.0 for percent in percents)
    limits = Limits(starved=starved, lost=lost)
    if limits == Limits():
        return 0
    found = compared(report, limits)
    if not found.is_any_diagnosed:
        raise NothingToJudgeError(f"no verdict: {found.undiagnosed}")
    for sentence in found.failures:
        print_error(sentence)
    for note in found.notes:
        print_error(f"note: {note}")
    return 1 if found.failures else 0
