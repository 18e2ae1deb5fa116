"""``gpumon report`` and ``gpumon replay``: where the time went, by whoever can tell."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from gpumon.cli.arguments import number_argument, time_argument
from gpumon.cli.command import complain
from gpumon.core.codecs.report_codec import (
    decode_report_with_lanes,
    encode_pair,
    encode_report,
)
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
_LOOK_EVERY = 256
"""Ticks of a recording between two looks at the clock: a tenth of a second at most."""
_PERCENT = number_argument(lambda text: float(text.removesuffix("%")), "a percentage", 0, 100)


_Page = Callable[[ReportWithLanes], int]
"""Writes a page; the exit code."""


class ReportCommand:
    """Say where the GPU time went since the running daemon began.

    Asks `gpumon serve` on this machine, or reads what `gpumon record` kept, or a
    report that was saved with --json, or compares two of such files.

    As a gate for CI, --fail-if-starved-above and --fail-if-lost-above end with
    exit code 1 when a GPU waits for input, or idles for whatever reason, for more
    of its time in use. A GPU that worked for less than 10 s is not judged; where
    none could be judged, the exit code is 5. The report is printed all the same.

    Exit codes: 0 done, 1 above a limit, or a file cannot be read or written, 2 usage, 4 no
    daemon, 5 no GPU could be judged.
    """

    example = "gpumon report --fail-if-starved-above 5 --fail-if-lost-above 20"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "recording",
            metavar="RECORDING",
            nargs="?",
            help="of gpumon record, not the daemon; or a report saved with --json",
        )
        parser.add_argument("--json", action="store_true", help="print gpumon.report/1 JSON")
        _add_html_argument(parser)
        parser.add_argument(
            "--since",
            metavar="TIME",
            type=time_argument,
            help="only the last 90s, 15m, 1h or 2d of the running daemon, or of the recording",
        )
        parser.add_argument(
            "--run",
            metavar="NAME",
            dest="run_name",
            help="only one training run of them, by the name or the pid that the report lists",
        )
        parser.add_argument(
            "--fail-if-starved-above",
            metavar="PERCENT",
            type=_PERCENT,
            help="exit 1 if a GPU starves, or is suspected to, for more of its time in use",
        )
        parser.add_argument(
            "--fail-if-lost-above",
            metavar="PERCENT",
            type=_PERCENT,
            help="exit 1 if a GPU idles, whatever for, for more of its time in use",
        )
        parser.add_argument(
            "--compare",
            metavar=("BEFORE", "AFTER"),
            nargs=2,
            help="two recordings, or reports saved with --json, beside each other; limits are "
            "held against the second",
        )

    def run(self, args: argparse.Namespace) -> int:
        """Print the report, and hold it against the limits."""
        _check(args)
        write_page, code = _page_asked_for(args.html, args.recording), 0
        if args.compare:
            before, report = (read_saved(path).report for path in args.compare)
            _print_both(before, report, as_json=args.json)
        else:
            told = _told(args)
            report = told.report
            _print(report, as_json=args.json)
            code = write_page(told)
        sys.stdout.flush()  # what was printed stands before what is said of it
        return _judge(report, args.fail_if_starved_above, args.fail_if_lost_above) or code


class ReplayCommand:
    """Print the report of a recording that `gpumon record` made.

    It is the report that a running daemon would have given at the end of the
    recording, figure for figure: of this machine or of another, however long
    ago. What was cut off or damaged is left out, and said. To see it live,
    on the page, in /metrics and in dstat, let a daemon play it.
    """

    example = (
        "gpumon replay night.gpumon\n"
        "  gpumon report night.gpumon --since 1h              # only its last hour\n"
        "  gpumon serve --source replay:night.gpumon,speed=10 # ten seconds of it a second"
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", help="a recording")
        parser.add_argument("--json", action="store_true", help="print gpumon.report/1 JSON")
        _add_html_argument(parser)

    def run(self, args: argparse.Namespace) -> int:
        write_page = _page_asked_for(args.html, args.file)
        told = _of_recording(args.file, None, None)
        _print(told.report, as_json=args.json)
        return write_page(told)


def _add_html_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--html",
        metavar="PAGE",
        help="also write it as one page that needs no network: phases of each run above, how busy "
        "each GPU was below, and the seconds",
    )


def _page_asked_for(path: str | None, source: str | None) -> _Page:
    """What writes the page, once there is a report; checked before anything is read.

    It returns the exit code: 1 where nothing can be drawn here; standard error says why.

    Raises:
        UsageError: No file to write to.
    """
    if path is None:
        return lambda report: 0
    from gpumon.cli.picture_file import can_draw, check_place

    check_place(path, source)
    if not can_draw():
        return lambda report: 1

    def write(report: ReportWithLanes) -> int:
        from gpumon.outlets.plot.html import html_page
        from gpumon.outlets.whole_file import write_whole

        write_whole(path, html_page(*report))
        return 0

    return write


# What writes, compares and judges is brought along once there is a report: who asks where no
# daemon runs is told so at once.


def _print(report: Report, *, as_json: bool) -> None:
    from gpumon.outlets.text.report_text import render_report
    from gpumon.outlets.text.style import style_for

    if as_json:
        print(json.dumps(encode_report(report), indent=2))
    else:
        print(render_report(report, style_for(sys.stdout, os.environ)), end="")


def _print_both(before: Report, after: Report, *, as_json: bool) -> None:
    from gpumon.outlets.text.comparison import side_by_side
    from gpumon.outlets.text.style import style_for

    if before == after:
        complain("note: both are the same report: nothing can have changed")
    if as_json:
        print(json.dumps(comparison(before, after), indent=2))
    else:
        print(side_by_side(before, after, style_for(sys.stdout, os.environ)), end="")


def _check(args: argparse.Namespace) -> None:
    """Refuse options that do not go together."""
    options = (("--since", args.since), ("--run", args.run_name), ("--html", args.html))
    for option, given in options:
        if args.compare and given is not None:
            raise UsageError(f"{option} is of one report: it does not go with --compare")
    if args.compare and args.recording is not None:
        raise UsageError("--compare names both of its files: leave the third one out")
    if args.run_name is not None and args.since is not None:
        raise UsageError("--run is of a whole run: it does not go with --since")


def _told(args: argparse.Namespace) -> ReportWithLanes:
    if args.recording is not None:
        return read_saved(args.recording, since_s=args.since, run=args.run_name)
    looked_in = reader_folder_text(os.environ, os.geteuid())
    state_file = find_state_file()
    silent = find_silent_daemon() if state_file is None else None
    if silent is not None:
        raise NoDaemonError(f"{silent.claim}; {END_OR_WAIT}")
    state = read_state(state_file, SystemClock(), read_boot_id(), looked_in)
    if args.html is None:
        return ReportWithLanes(fetch_report(state, args.since, args.run_name), None)
    return fetch_report_with_lanes(state, args.since, args.run_name)


def read_saved(
    path: str, *, since_s: float | None = None, run: str | None = None
) -> ReportWithLanes:
    """The report of a recording, or one that was saved with ``--json``, which has no lanes.

    Args:
        path: Of either file.
        since_s: Of the last so many seconds of a recording only.
        run: Of that run of a recording only.

    Raises:
        UnreadableLogError: No such file, or neither of the two; says what would do.
        UsageError: A part of a saved report was asked for, or a run that is none.
    """
    from gpumon.sources.recording import is_recording

    if is_recording(path):
        return _of_recording(path, since_s, run)
    told = _decoded(path)
    for option, given in (("--since", since_s), ("--run", run)):
        if given is not None:
            raise UsageError(
                f"{path} is a saved report: {option} is of the running daemon, or of a recording"
            )
    return told


def _of_recording(path: str, since_s: float | None, run: str | None) -> ReportWithLanes:
    # What replays a recording need not be there for the report of the daemon.
    from gpumon.cli.reading_progress import ReadingProgress
    from gpumon.pipeline.replay import replayed_report
    from gpumon.sources.recording import RecordingFile

    with (
        RecordingFile(path) as recording,
        ReadingProgress(recording, sys.stderr, look_every=_LOOK_EVERY) as progress,
    ):
        return replayed_report(recording, progress.watched, since_s=since_s, run=run)


def _decoded(path: str) -> ReportWithLanes:
    """A report that was saved with ``--json``."""
    try:
        document = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise UnreadableLogError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise _unfit(
            path,
            "it holds no JSON",
            f" (the report of a log that nvidia-smi wrote: `gpumon analyze {path}`)",
        ) from error
    if isinstance(document, list):
        raise _unfit(
            path,
            "it holds a list of reports, as `gpumon analyze --json` prints of several files: "
            "save one of them",
        )
    try:
        return decode_report_with_lanes(document)
    except UsageError as error:
        raise _unfit(path, str(error)) from error


def _unfit(path: str, why: str, instead: str = "") -> UnreadableLogError:
    return UnreadableLogError(f"{path}: cannot be read: {why}; name {_READABLE}{instead}")


def comparison(before: Report, after: Report) -> dict[str, object]:
    """Two reports, in what they are not alike, and what was gained, for machines."""
    from gpumon.core.diagnosis.run_pace import pairs_of
    from gpumon.core.diagnosis.speedup import speedup
    from gpumon.core.diagnosis.unlike import unlike

    pairs = pairs_of(before, after)
    runs = [
        *(encode_pair(pair.before, pair.after) for pair in pairs.both),
        *(encode_pair(pace, None) for pace in pairs.only_before),
        *(encode_pair(None, pace) for pace in pairs.only_after),
    ]
    return {
        "schema": _COMPARISON_SCHEMA,
        "unlike": [one.text for one in unlike(before, after)],
        "speedup": speedup(before, after),
        "runs": runs,
        "before": encode_report(before),
        "after": encode_report(after),
    }


def _judge(report: Report, *percents: float | None) -> int:
    """1, with a sentence on each limit, starved and lost, that a GPU is above; else 0.

    Raises:
        NothingToJudgeError: There are limits, and no GPU with a verdict.
    """
    from gpumon.core.diagnosis.gate import Limits, judgement

    starved, lost = (None if percent is None else percent / 100.0 for percent in percents)
    limits = Limits(starved=starved, lost=lost)
    if limits == Limits():
        return 0
    found = judgement(report, limits)
    if not found.is_any_judged:
        raise NothingToJudgeError(f"nothing to judge: {found.unjudged}")
    for sentence in found.failures:
        complain(sentence)
    for note in found.notes:
        complain(f"note: {note}")
    return 1 if found.failures else 0
