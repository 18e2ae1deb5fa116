"""``gpumon replay``: the report of a recording."""

from __future__ import annotations

import argparse
import json
import os
import sys

from gpumon.cli.reading_progress import ReadingProgress
from gpumon.core.documents.report_codec import encode_report
from gpumon.core.report.report import Report
from gpumon.outlets.text.report_text import render_report
from gpumon.outlets.text.style import style_for
from gpumon.pipeline.replay import replayed_report
from gpumon.sources.recording import RecordingFile

_LOOK_EVERY = 256
"""Ticks between two looks at the clock: a tenth of a second at most."""


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
        """Declare its options."""
        parser.add_argument("file", metavar="FILE", help="a recording")
        parser.add_argument("--json", action="store_true", help="print gpumon.report/1 JSON")

    def run(self, args: argparse.Namespace) -> int:
        """Print the report."""
        report = report_of_recording(args.file)
        if args.json:
            print(json.dumps(encode_report(report), indent=2))
        else:
            print(render_report(report, style_for(sys.stdout, os.environ)), end="")
        return 0


def report_of_recording(
    path: str, *, since_s: float | None = None, run: str | None = None
) -> Report:
    """The report of a recording, with a progress bar where it takes long.

    Raises:
        UnreadableLogError: It is no recording, or cannot be read.
        UsageError: There is no such run in it.
    """
    with (
        RecordingFile(path) as recording,
        ReadingProgress(recording, sys.stderr, look_every=_LOOK_EVERY) as progress,
    ):
        return replayed_report(recording, progress.watched, since_s=since_s, run=run)
