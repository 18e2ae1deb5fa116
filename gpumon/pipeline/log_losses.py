"""Which GPUs the driver errors of a log concern, and during which rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.core.device.troubles import Trouble, failed_in_log, lost_in_log
from gpumon.pipeline.log_track import GpuTrack
from gpumon.sources.logs.driver_errors import LoggedError, Outages
from gpumon.sources.logs.log_sample import LogFacts

A_FEW_ROWS: Final = 4
_ROWS_APART: Final = 1.5
"""A row is missing after this many periods."""
_NEVER_BACK: Final = Outages(0, 0, None)


class LogLosses:
    """The driver errors of a finished log, by GPU.

    Args:
        tracks: By position.
        zero_ns: Stamp at 0 of the tracks' clock.
    """

    def __init__(self, facts: LogFacts, tracks: Sequence[GpuTrack], zero_ns: int) -> None:
        self._facts = facts
        self._zero_ns = zero_ns
        self._tracks = {at: one for at, one in enumerate(tracks) if one.first_ns is not None}
        self._ends_ns = max((track.last_row_ns for track in self._tracks.values()), default=0)
        self._gpus_of_errors = [(error, self._positions(error)) for error in facts.errors]

    def of(self, track: GpuTrack) -> tuple[Trouble, ...]:
        """Return why a GPU could not be read during a part of the log, or from a line on."""
        position = next(at for at, one in self._tracks.items() if one is track)
        found = [
            self._trouble(error, position, len(positions))
            for error, positions in self._gpus_of_errors
            if position in positions
        ]
        if position in self._facts.partly:
            line, stamp_ns = self._facts.partly[position]
            found.append(failed_in_log(line, self._on_the_clock(stamp_ns)))
        return tuple(found)

    def elsewhere(self) -> tuple[str, ...]:
        """Return sentences on GPUs without any row that could not be read."""
        sentences = []
        for error in (error for error, positions in self._gpus_of_errors if not positions):
            meaning, _, todo = error.cause.what.partition(": ")
            sentences.append(
                f"{_named(error)}, which this log does not hold, cannot be read ({meaning}; line "
                f"{error.first.line:,}): {todo}"
            )
        return tuple(sentences)

    def _trouble(self, error: LoggedError, position: int, gpus: int) -> Trouble:
        track = self._tracks[position]
        times, longest_ns, back_ns = error.outages.get(position, _NEVER_BACK)
        where, ended_ns = error.first, None
        last_ns = self._on_the_clock(where.before_ns)
        if not self._is_lost(error, position):
            ended_ns = track.last_row_ns if back_ns is None else self._on_the_clock(back_ns)
        elif track.ledger.last_end_ns >= 0:
            last_ns = track.ledger.last_end_ns
        if ended_ns is None and times:
            where, times = error.newest, times + 1
        often = f"{times:,} times, with readings in between"
        if times == 1:
            often = "for a time" if _is_silence(longest_ns, track) else "once"
        trouble = lost_in_log(self._why(error, gpus), often, ended_ns)
        return trouble._replace(
            line=where.line,
            began_ns=self._on_the_clock(where.stamp_ns),
            last_ns=last_ns,
            times=times if times > 1 else None,
        )

    def _positions(self, error: LoggedError) -> Sequence[int]:
        """Return the positions of the GPUs that an error concerns; none if it is another GPU.

        A GPU whose rows go on was not lost by an error that names another GPU or none.
        """
        if not error.cause.is_of_one:
            return [*self._tracks]
        named = self._named_position(error)
        if named is not None:
            return [named] if named in self._tracks else []
        gone = [
            at
            for at, track in self._tracks.items()
            if self._is_lost(error, at)
            and track.last_row_ns + A_FEW_ROWS * track.period_ns
            >= (self._on_the_clock(error.first.before_ns) or 0)
        ]
        return gone or [at for at in self._tracks if self._was_silent(error, at)]

    def _named_position(self, error: LoggedError) -> int | None:
        """Return the GPU whose cell holds the error, or whose bus id or index it names."""
        if error.gpu is not None or not error.cause.which:
            return error.gpu
        for at, gpu in enumerate(self._facts.gpus):
            bus_id = (gpu.bus_id or "").lower()
            if error.cause.which[-10:] == bus_id[-10:] or error.cause.which == str(gpu.index):
                return at
        return None

    def _is_lost(self, error: LoggedError, position: int) -> bool:
        """Return whether no row follows an error; a single last line is treated as those before."""
        track, known = self._tracks[position], error.outages.get(position)
        if known is None:
            return not error.outages or track.last_row_ns + track.period_ns < self._ends_ns
        return known.back_ns is None and (error.lines > 1 or self._was_silent(error, position))

    def _was_silent(self, error: LoggedError, position: int) -> bool:
        """Return whether a row of a GPU is missing at an error."""
        known = error.outages.get(position)
        is_first = error.first.before_ns is None and error.lines == 1
        return (
            known is not None
            and not is_first
            and _is_silence(known.longest_ns, self._tracks[position])
        )

    def _why(self, error: LoggedError, gpus: int) -> str:
        """Return why ``gpus`` GPUs cannot be read, a colon, and what to do."""
        ids = [gpu.bus_id if ":" in error.cause.which else gpu.index for gpu in self._facts.gpus]
        is_another = bool(error.cause.which) and None not in ids
        is_known = self._named_position(error) is not None
        if not error.cause.is_of_one or is_known or (gpus == 1 and not is_another):
            return error.cause.what
        meaning, _, todo = error.cause.what.partition(": ")
        return f"nvidia-smi gives up at {_named(error)} ({meaning}): {todo}"

    def _on_the_clock(self, stamp_ns: int | None) -> int | None:
        return None if stamp_ns is None else stamp_ns - self._zero_ns


def _is_silence(silence_ns: int, track: GpuTrack) -> bool:
    """Return whether a gap is longer than the interval between two rows."""
    return silence_ns > _ROWS_APART * track.period_ns


def _named(error: LoggedError) -> str:
    return f"GPU {error.cause.which}" if error.cause.which else "a GPU"
