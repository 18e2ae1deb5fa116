"""One line that says how a recording is getting on."""

from __future__ import annotations

import shutil
from types import TracebackType
from typing import TextIO

from gpumon.core.label_text import label_text
from gpumon.core.tick import Moment
from gpumon.core.units import NS_PER_S
from gpumon.outlets.recording import RecordingWriter

_EVERY_NS = NS_PER_S // 2
_MOST_GPUS = 4


class RecordProgress:
    """Shows elapsed time, size and how busy the GPUs are now; on a terminal only.

    Args:
        stream: Where to show it: standard error.
        writer: Who keeps the recording.
    """

    def __init__(self, stream: TextIO, writer: RecordingWriter) -> None:
        self._stream = stream
        self._writer = writer
        self._is_shown = stream.isatty()
        self._told_ns: int | None = None
        self._busy = ""

    def __enter__(self) -> RecordProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._told_ns is not None:
            print("\r\x1b[K", end="", file=self._stream, flush=True)

    def tell(self, moment: Moment) -> None:
        """One more tick was kept."""
        at_ns = moment.tick.at_ns
        if not self._is_shown or (self._told_ns is not None and at_ns - self._told_ns < _EVERY_NS):
            return
        self._told_ns = at_ns
        width = shutil.get_terminal_size().columns - 1
        line = f"recording: {amount(self._writer)}; {_now(moment)}; Ctrl-C ends it"
        print(f"\r\x1b[K{line[:width]}", end="", file=self._stream, flush=True)


def amount(writer: RecordingWriter) -> str:
    """How much a recording holds, in words."""
    readings = "1 reading" if writer.kept_count == 1 else f"{writer.kept_count:,} readings"
    minutes, rest_s = divmod(round(writer.elapsed_ns / NS_PER_S), 60)
    hours, minutes = divmod(minutes, 60)
    length = f"{hours}:{minutes:02}:{rest_s:02} h" if hours else f"{minutes}:{rest_s:02} min"
    return f"{readings} of {length}, {writer.written_bytes / 1000:,.1f} kB"


def _now(moment: Moment) -> str:
    """How busy the GPUs are, or why that is not known."""
    if moment.tick.error is not None:
        return label_text(moment.tick.error)
    if not moment.tick.frames:
        return "no answer"
    gpus = moment.tick.frames[-1].gpus
    told = [
        f"GPU {gpu.device.label} {gpu.utilization_ratio:.0%}".replace("%", " %")
        if gpu.utilization_ratio is not None
        else f"GPU {gpu.device.label} -"
        for gpu in gpus[:_MOST_GPUS]
    ]
    more = f", {len(gpus) - _MOST_GPUS} more" if len(gpus) > _MOST_GPUS else ""
    return f"busy now: {', '.join(told)}{more}" if told else "no GPU"
