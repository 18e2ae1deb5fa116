"""``gpumon analyze``: reports from existing logs."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.cli.command import can_draw, check_path, period_argument, print_error
from gpumon.cli.live_line import LiveLine, ReadingProgress, ended_by_signals
from gpumon.core.clock import nanoseconds
from gpumon.core.codecs.report_codec import encode_report
from gpumon.core.report.lanes import Lanes
from gpumon.core.report.report import Report
from gpumon.core.settings.detector import DetectorSettings
from gpumon.core.wording import label_text
from gpumon.errors import GpumonError, UnreadableLogError, UnwritableFileError, UsageError
from gpumon.outlets.atomic_write import write_whole
from gpumon.outlets.text.report_text import render_report
from gpumon.outlets.text.style import style_for
from gpumon.pipeline.log_analysis import LogAnalysis
from gpumon.pipeline.log_reader_process import ReaderProcess, RowSource, is_worth_a_process
from gpumon.sources.live_input import LiveReading, is_regular
from gpumon.sources.logs.detect import reader_for
from gpumon.sources.logs.log_sample import LogOptions
from gpumon.sources.logs.log_text import STANDARD_INPUT, LogText
from gpumon.sources.recording import is_recording

_SHORTEST_PERIOD_S, _LONGEST_PERIOD_S = 0.001, 86_400


class AnalyzeCommand:
    """Show where the GPU time went in logs you already have.

    Reads the output of nvidia-smi (CSV with any columns, its table in a loop,
    dmon, -q), dcgmi dmon, gpustat, nvitop, dstat, W&B, MLflow, Lightning,
    ClearML, Grafana, HWiNFO and Prometheus range queries (JSON), and any CSV
    with a time and a utilisation: headings in many languages, any common
    encoding, gzip or not; `-` is the standard input. The format is found from
    the content, not from the name. Prints one report for each file. If a file
    cannot be read, the reason goes to standard error, the other files are
    still read, and the exit code is 1. A pipe is read until it ends, a growing
    file with --follow until Ctrl-C. Ctrl-C prints the report so far; a terminal
    shows a summary meanwhile.
    """

    example = (
        "nvidia-smi --query-gpu=timestamp,index,utilization.gpu --format=csv -l 1 > gpu.csv\n"
        "  gpumon analyze gpu.csv\n"
        "  kubectl logs gpu-logger | gpumon analyze -\n"
        "  nvidia-smi --query-gpu=timestamp,index,utilization.gpu --format=csv -l 1 | "
        "gpumon analyze -\n"
        "  gpumon analyze --follow gpu.csv\n"
        "  gpumon analyze --column utilization.gpu=3 mine.csv"
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("files", metavar="FILE", nargs="+", help="a log, or - for stdin")
        parser.add_argument(
            "--json",
            action="store_true",
            help="print gpumon.report/1 JSON; an array where several files are named",
        )
        parser.add_argument(
            "--column",
            metavar="NAME=COLUMN",
            action="append",
            type=column_argument,
            default=[],
            help="COLUMN (a number from 1, or its heading) holds NAME, such as utilization.gpu=2 "
            "(repeatable)",
        )
        parser.add_argument(
            "--period",
            metavar="SECONDS",
            type=period_argument(_SHORTEST_PERIOD_S, _LONGEST_PERIOD_S),
            help="time between two rows (default: from the time stamps, else 1)",
        )
        parser.add_argument(
            "--follow",
            action="store_true",
            help="keep reading FILE as it grows, until Ctrl-C, even after a log rotation; one log "
            "only",
        )
        parser.add_argument(
            "--plot",
            metavar="PICTURE",
            help="also draw the log as PICTURE.png, .svg or .pdf; one log only",
        )
        parser.add_argument(
            "--html",
            metavar="PAGE",
            help="also write report and picture as one page that needs no network; one log only",
        )

    def run(self, args: argparse.Namespace) -> int:
        """Analyze every file; return 1 if one could not be read, or a picture not written."""
        if args.files.count(STANDARD_INPUT) > 1:
            raise UsageError("the standard input can be read only once")
        if args.follow:
            _check_follow(args.files)
        pictures = _requested_pictures(args)
        options = LogOptions(
            columns=dict(args.column),
            period_ns=None if args.period is None else nanoseconds(args.period),
        )
        live, is_many = LiveReading(), len(args.files) > 1
        reports = _Reports(args.files, options, pictures or {}, live, follows=args.follow)
        reports.has_failed = pictures is None
        with ended_by_signals(live):
            if args.json:
                documents = [encode_report(report) for report in reports]
                if documents or is_many:
                    print(json.dumps(documents if is_many else documents[0], indent=2))
            else:
                _print_text(reports, many=is_many)
        return 1 if reports.has_failed else 0


class ReadLog(NamedTuple):
    """The result of one log.

    Attributes:
        lanes: Returns how busy each GPU was, in the order of ``report.gpus``.
        damage: Where the log broke off, if it did; the report covers what is before.
        newest_ratios: Busy ratio of each GPU in its newest row, in the order of ``report.gpus``.
    """

    report: Report
    lanes: Callable[[], Lanes]
    damage: UnreadableLogError | None
    rows: int
    newest_ratios: tuple[float, ...]


def open_log(path: str, live: LiveReading | None = None, *, follows: bool = False) -> LogText:
    """Return the text of a log, packed or not.

    Args:
        path: As the user typed it.
        live: Can end a pipe, or a followed file.
        follows: Whether it is read on as it grows.

    Raises:
        UnreadableLogError: It cannot be opened, or is a recording.
    """
    if path != STANDARD_INPUT and is_recording(path):
        raise UnreadableLogError(
            f"{path}: is a recording of `gpumon record`, not a log: `gpumon replay {path}`"
        )
    return LogText(path, live=live, follows=follows)


def read_log(text: LogText, options: LogOptions) -> ReadLog:
    """Read one log from start to end.

    Raises:
        UnreadableLogError: It cannot be understood.
        UsageError: ``options`` name a column the log does not have.
    """
    analysis = LogAnalysis(DetectorSettings(), options.period_ns)
    try:
        lines = readable_lines(text, options)
        reader: RowSource = reader_for(lines, name=text.name, options=options)
        with ExitStack() as opened:
            if is_worth_a_process(text):
                reader = opened.enter_context(ReaderProcess(text, reader))
            progress = opened.enter_context(ReadingProgress(text, sys.stderr, check_every=1))
            blocks = reader.blocks()
            analysis.ingest(blocks if text.is_live else progress.watched(blocks))
    except UnreadableLogError:
        if text.damage is not None:
            raise text.damage from None  # the real cause
        raise
    facts = reader.facts()
    damage = text.damage
    if damage is None and facts.broken_off is not None and not text.has_grown():
        damage = UnreadableLogError(f"{text.name}: {facts.broken_off}")
    report = analysis.report(text.name, facts)
    notes = report.notes + text.notes
    if damage is not None:
        notes = (*notes, f"Only a part of the log was read: {damage}.")
    report = replace(report, notes=notes)
    return ReadLog(report, analysis.lanes, damage, analysis.rows, analysis.newest_ratios)


def column_argument(text: str) -> tuple[str, int | str]:
    """Return ``NAME=COLUMN`` as a name and a position from 0, or a heading.

    ``argparse`` prints the error, exit 2.
    """
    name, sign, column = text.partition("=")
    if not sign or not name or not column or (column.isascii() and column.strip("0") == ""):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not NAME=COLUMN with a column counted from 1, or its heading, such as "
            "utilization.gpu=2"
        )
    return name, int(column) - 1 if column.isascii() and column.isdigit() else column


class _Reports:
    """The report of each named log.

    Attributes:
        has_failed: Whether an error in reading or writing was printed.
    """

    def __init__(
        self,
        paths: list[str],
        options: LogOptions,
        pictures: Mapping[str, Picture],
        live: LiveReading,
        *,
        follows: bool,
    ) -> None:
        self._paths = paths
        self._options = options
        self._pictures = pictures
        self._live = live
        self._follows = follows
        self.has_failed = False

    def __iter__(self) -> Iterator[Report]:
        """Yield each report; once it is used, its pictures are written."""
        for path in self._paths:
            try:
                read = self._read(path)
                yield read.report
                if read.damage is not None:
                    self._fail(read.damage)
                if self._pictures:
                    self._draw(read.report, read.lanes())
            except UnreadableLogError as error:  # noqa: PERF203  (others go on)
                self._fail(error)

    def _read(self, path: str) -> ReadLog:
        with LiveLine(self._live, sys.stderr) as line:
            with open_log(path, self._live, follows=self._follows) as text:
                read = read_log(text, self._options)
            line.send(read.report, read.rows, read.newest_ratios)
        return read

    def _draw(self, report: Report, lanes: Lanes) -> None:
        for path, draw in self._pictures.items():
            try:
                write_whole(path, draw(report, lanes))
            except UnwritableFileError as error:  # noqa: PERF203  (the other is written)
                self._fail(error)

    def _fail(self, error: GpumonError) -> None:
        self.has_failed = True
        print_error(error)


def _print_text(reports: _Reports, *, many: bool) -> None:
    style = style_for(sys.stdout, os.environ)
    for number, report in enumerate(reports):
        if number:
            print()
        if many:
            print(style.painted(f"== {style.plain(label_text(report.source, 400))}", "bold"))
        print(render_report(report, style), end="")


def _check_follow(paths: list[str]) -> None:
    """Refuse what cannot be followed; print that a missing file is waited for."""
    if len(paths) > 1:
        raise UsageError("--follow reads one log until Ctrl-C: name one FILE")
    path = paths[0]
    if path == STANDARD_INPUT:
        raise UsageError("--follow is for a file; the standard input is read until it ends anyway")
    if is_regular(path) and not os.path.lexists(path):
        print_error(f"{path}: does not exist yet: waiting for it; Ctrl-C ends it")


# -- a followed file that is replaced ----------------------------------------------

_CHECKED_LINES: Final = 20
"""If none of this many first lines of a new file can be used, the rest cannot either."""
_HEAD_LINES: Final = 64
"""Lines of the first file that determine how it is read."""


def readable_lines(text: LogText, options: LogOptions) -> Iterator[str]:
    """Yield the lines of a log, but not of a file that replaced it if they cannot be used.

    ``text.damage`` is set then.
    """
    head: list[str] = []
    first: list[str] = []
    files = 0
    for line in text.available_lines():
        if text.new_files != files:
            files, first = text.new_files, []
        if not files and len(head) < _HEAD_LINES:
            head.append(line)
        if files and len(first) < _CHECKED_LINES:
            first.append(line)
            if len(first) == _CHECKED_LINES and _are_unusable(first, head, options):
                break
        yield line
    if first and text.damage is None and _are_unusable(first, head, options):
        text.damage = UnreadableLogError(
            f"{text.name}: was replaced by a file that the reader of the first one cannot use (it "
            f"begins with {label_text(first[0].strip(), 60)!r}): analyze the new file by itself"
        )


def _are_unusable(first: Sequence[str], head: Sequence[str], options: LogOptions) -> bool:
    """Return whether a reader that has read the head of the old file uses none of these lines."""
    try:
        before, after = (_skipped([*head, *lines], options) for lines in ((), first))
    except UnreadableLogError:
        return False  # the reader raises it itself
    return after - before >= len(first)


def _skipped(lines: Sequence[str], options: LogOptions) -> int:
    reader = reader_for(iter(lines), name="", options=options)
    for _ in reader.blocks():
        pass
    return reader.facts().skipped_lines


# -- pictures -------------------------------------------------------------------

Picture = Callable[[Report, Lanes], bytes]
_KINDS: Final = ("png", "svg", "pdf")


def _requested_pictures(args: argparse.Namespace) -> dict[str, Picture] | None:
    """Return what to draw of the one log, by its path as typed.

    ``None``: matplotlib is missing, which was printed.

    Raises:
        UsageError: Not a picture's ending, several logs, or the log itself as the target. Raised
            before anything is read.
    """
    paths = [path for path in (args.plot, args.html) if path is not None]
    if not paths:
        return {}
    kind = Path(args.plot or "").suffix.lower().removeprefix(".")
    if args.plot is not None and kind not in _KINDS:
        raise UsageError(
            f"{args.plot}: a plot is a .png, a .svg or a .pdf; name it so (or use --html)"
        )
    if args.plot == args.html:
        raise UsageError(f"{args.html}: --plot and --html need a file each")
    if len(args.files) > 1:
        raise UsageError("--plot and --html draw one log: name one FILE")
    for path in paths:
        check_path(path, args.files[0])
    if not can_draw():
        return None
    from gpumon.outlets.plot.figure import picture
    from gpumon.outlets.plot.html import html_page

    pictures: dict[str, Picture] = {}
    if args.plot is not None:
        pictures[args.plot] = partial(picture, kind=kind)
    if args.html is not None:
        pictures[args.html] = html_page
    return pictures
