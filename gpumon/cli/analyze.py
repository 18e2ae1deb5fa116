"""``gpumon analyze``: the report from a log that people already have."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.cli.arguments import period_argument
from gpumon.cli.command import complain
from gpumon.cli.live_line import LiveLine, ended_by_signals
from gpumon.cli.picture_file import can_draw, check_place
from gpumon.cli.reading_progress import ReadingProgress
from gpumon.cli.replaced_file import readable_lines
from gpumon.core.clock import nanoseconds
from gpumon.core.codecs.report_codec import encode_report
from gpumon.core.report.lanes import Lanes
from gpumon.core.report.report import Report
from gpumon.core.settings.detector import DetectorSettings
from gpumon.core.wording import label_text
from gpumon.errors import GpumonError, UnreadableLogError, UnwritableFileError, UsageError
from gpumon.outlets.text.report_text import render_report
from gpumon.outlets.text.style import style_for
from gpumon.outlets.whole_file import write_whole
from gpumon.pipeline.log_analysis import LogAnalysis
from gpumon.pipeline.log_reader_process import ReaderProcess, RowSource, is_worth_a_process
from gpumon.sources.live_input import LiveReading, is_regular
from gpumon.sources.logs.detect import reader_for
from gpumon.sources.logs.log_sample import LogOptions
from gpumon.sources.logs.log_text import STANDARD_INPUT, LogText
from gpumon.sources.recording import is_recording

_SHORTEST_PERIOD_S, _LONGEST_PERIOD_S = 0.001, 86_400


class AnalyzeCommand:
    """Say where the GPU time went in logs you already have.

    Reads what nvidia-smi writes (CSV with any columns, its plain table in a
    loop, dmon, -q), dcgmi dmon, gpustat, nvitop, dstat, W&B, MLflow,
    Lightning, ClearML, Grafana, HWiNFO, Prometheus' range queries as JSON, and
    any CSV with a time and a utilisation, under headings of many languages, in
    any usual encoding, gzip or not; `-` is the standard input. The format is
    found by content, never by name. One report a file. A file that cannot be
    read is a sentence on standard error, the others go on, and the exit code
    is 1. A pipe is read until it ends, and a file that somebody still writes
    with --follow; Ctrl-C ends both with the report of what came, and a terminal
    shows meanwhile what that is so far.
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
            help="COLUMN, counted from 1 or as the log calls it, is NAME, such as "
            "utilization.gpu=2 (repeatable)",
        )
        parser.add_argument(
            "--period",
            metavar="SECONDS",
            type=period_argument(_SHORTEST_PERIOD_S, _LONGEST_PERIOD_S),
            help="time between two rows (default: as the time stamps say, else 1)",
        )
        parser.add_argument(
            "--follow",
            action="store_true",
            help="read FILE on as it grows, until Ctrl-C, also past a rotation; of one log only",
        )
        parser.add_argument(
            "--plot",
            metavar="PICTURE",
            help="also draw the log, as PICTURE.png, .svg or .pdf; of one log only",
        )
        parser.add_argument(
            "--html",
            metavar="PAGE",
            help="also write report and picture as one page that needs no network; of one log only",
        )

    def run(self, args: argparse.Namespace) -> int:
        """Analyse every file; 1 if one of them could not be read, or a picture not written."""
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
    """What came of one log.

    Attributes:
        report: Where the time went.
        lanes: Gives how busy each GPU was, in the order of ``report.gpus``.
        damage: Where the log broke off, if it did; the report is of what is before.
        rows: How many rows it is of.
        newest_ratios: How busy each GPU was in its newest row, in the order of ``report.gpus``.
    """

    report: Report
    lanes: Callable[[], Lanes]
    damage: UnreadableLogError | None
    rows: int
    newest_ratios: tuple[float, ...]


def open_log(path: str, live: LiveReading | None = None, *, follows: bool = False) -> LogText:
    """The text of a log, whatever packed it.

    Args:
        path: As the user typed it.
        live: Who may end a pipe, or a file that is followed.
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
    """One log, read from front to end.

    Raises:
        UnreadableLogError: It cannot be understood; says why and where.
        UsageError: ``options`` name a column the log does not have.
    """
    analysis = LogAnalysis(DetectorSettings(), options.period_ns)
    try:
        lines = readable_lines(text, options)
        reader: RowSource = reader_for(lines, name=text.name, options=options)
        with ExitStack() as opened:
            if is_worth_a_process(text):
                reader = opened.enter_context(ReaderProcess(text, reader))
            progress = opened.enter_context(ReadingProgress(text, sys.stderr, look_every=1))
            blocks = reader.blocks()
            analysis.ingest_blocks(blocks if text.is_live else progress.watched(blocks))
    except UnreadableLogError:
        if text.damage is not None:
            raise text.damage from None  # nothing else is to blame
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
    """``NAME=COLUMN`` as a name and a position from 0, or what the log calls it.

    ``argparse`` prints the sentence, exit 2.
    """
    name, sign, column = text.partition("=")
    if not sign or not name or not column or (column.isascii() and column.strip("0") == ""):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not NAME=COLUMN with a column counted from 1, or its heading, such as "
            "utilization.gpu=2"
        )
    return name, int(column) - 1 if column.isascii() and column.isdigit() else column


class _Reports:
    """The report of each log that was named.

    Attributes:
        has_failed: Whether something could not be read or written; it was told.
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
        """Each report; once it is used, its pictures are written."""
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
        complain(error)


def _print_text(reports: _Reports, *, many: bool) -> None:
    style = style_for(sys.stdout, os.environ)
    for number, report in enumerate(reports):
        if number:
            print()
        if many:
            print(style.painted(f"== {style.plain(label_text(report.source, 400))}", "bold"))
        print(render_report(report, style), end="")


def _check_follow(paths: list[str]) -> None:
    """Refuse what cannot be followed; say that a file is waited for."""
    if len(paths) > 1:
        raise UsageError("--follow reads one log until Ctrl-C: name one FILE")
    path = paths[0]
    if path == STANDARD_INPUT:
        raise UsageError("--follow is for a file; the standard input is read until it ends anyway")
    if is_regular(path) and not os.path.lexists(path):
        complain(f"{path}: does not exist yet: waiting for it; Ctrl-C ends it")


# -- pictures -------------------------------------------------------------------

Picture = Callable[[Report, Lanes], bytes]
_KINDS: Final = ("png", "svg", "pdf")


def _requested_pictures(args: argparse.Namespace) -> dict[str, Picture] | None:
    """What is to be drawn of the one log, by its path as typed, before anything is read.

    ``None``: something is, and nothing can be drawn here, which was said.

    Raises:
        UsageError: An ending that is none of a picture, several logs, or a picture that would
            replace its log: said at once, and not after minutes of reading.
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
        check_place(path, args.files[0])
    if not can_draw():
        return None
    from gpumon.outlets.plot.figure import picture
    from gpumon.outlets.plot.html import html_page

    asked: dict[str, Picture] = {}
    if args.plot is not None:
        asked[args.plot] = partial(picture, kind=kind)
    if args.html is not None:
        asked[args.html] = html_page
    return asked
