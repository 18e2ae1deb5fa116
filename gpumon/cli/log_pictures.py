"""``--plot`` and ``--html``: the pictures of a log, written after its report."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from gpumon.core.log.busy_lane import Lane
from gpumon.core.report.report import Report
from gpumon.errors import UsageError
from gpumon.outlets.plot.html import html_text
from gpumon.outlets.plot.layout import picture
from gpumon.outlets.plot.png import png_bytes, require_pillow
from gpumon.outlets.plot.svg import svg_text
from gpumon.outlets.whole_file import write_whole

Writer = Callable[[Report, Sequence[Lane]], bytes]


def _png(report: Report, lanes: Sequence[Lane]) -> bytes:
    return png_bytes(picture(report, lanes))


def _svg(report: Report, lanes: Sequence[Lane]) -> bytes:
    return svg_text(picture(report, lanes)).encode()


def _html(report: Report, lanes: Sequence[Lane]) -> bytes:
    return html_text(report, lanes).encode()


_BY_ENDING: Final[Mapping[str, Writer]] = MappingProxyType({".png": _png, ".svg": _svg})


def add_picture_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare ``--plot`` and ``--html``."""
    parser.add_argument(
        "--plot",
        metavar="PICTURE",
        help="also draw the log, as PICTURE.png (needs Pillow) or PICTURE.svg; of one log only",
    )
    parser.add_argument(
        "--html",
        metavar="PAGE",
        help="also write report and picture as one page that needs no network; of one log only",
    )


@dataclass(frozen=True, slots=True)
class LogPictures:
    """What is to be drawn of one log, known to be possible as far as that can be known before.

    Attributes:
        writers: What to write, by its path as typed.
    """

    writers: Mapping[str, Writer]

    @classmethod
    def asked_for(cls, args: argparse.Namespace) -> LogPictures:
        """What the user asked for, before anything is read.

        Raises:
            UsageError: An ending that is none of a picture, several logs, a
                picture that would replace its log, or a PNG without Pillow:
                said at once, and not after minutes of reading.
        """
        writers: dict[str, Writer] = {}
        if args.plot is not None:
            writers[args.plot] = _writer_of(args.plot)
        if args.html is not None:
            if args.html in writers:
                raise UsageError(f"{args.html}: --plot and --html need a file each")
            writers[args.html] = _html
        for path in writers:
            _check_place(path, args.files)
        if _png in writers.values():
            require_pillow()
        return cls(MappingProxyType(writers))

    def write(self, report: Report, lanes: Sequence[Lane]) -> None:
        """Draw and write everything.

        Raises:
            UnwritableFileError: A file cannot be written; those before it are there.
        """
        for path, draw in self.writers.items():
            write_whole(path, draw(report, lanes))


def _writer_of(path: str) -> Writer:
    writer = _BY_ENDING.get(Path(path).suffix.lower())
    if writer is None:
        raise UsageError(f"{path}: a plot is a .png or a .svg; name it so (or use --html)")
    return writer


def _check_place(path: str, logs: Sequence[str]) -> None:
    if len(logs) > 1:
        raise UsageError("--plot and --html draw one log: name one FILE")
    if path in ("", "-"):
        raise UsageError("--plot and --html write a file, not the standard output: name it")
    with suppress(OSError, ValueError):  # one of them is not there
        if Path(path).samefile(logs[0]):
            raise UsageError(f"{path}: is the log itself; name another file for the picture")
