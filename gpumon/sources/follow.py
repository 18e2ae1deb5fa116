"""A simulated GPU whose busy spans another process writes, one JSON object a line."""

from __future__ import annotations

import json
import os
from collections import deque
from contextlib import suppress
from pathlib import Path

from gpumon.core.clock import NS_PER_S, Clock
from gpumon.core.sample import BusySample, Device, Frame, GpuSample, ProcessSample
from gpumon.errors import InvalidSampleError, SourceUnavailableError
from gpumon.sources.gpu_source import ReadNow
from gpumon.sources.simulated import WINDOW_NS, sample_of, windows_between

_LEAST_PATIENCE_NS = NS_PER_S
_MAX_PATIENCE_NS = 60 * NS_PER_S
_MAX_GPUS = 64
_LONGEST_LINE_BYTES = 4096
_MAX_BYTES_A_READ = 4 * 2**20
_SHOWN_BYTES = 60
_MAX_PROCESSES = 64
_LARGEST_PID = 1 << 22


class _FollowedGpu:
    """Spans of one GPU that are not yet covered by windows."""

    def __init__(self, index: int, from_ns: int) -> None:
        self.device = Device(
            uuid=f"GPU-followed-{index}", index=index, name="Simulated GPU (follow)"
        )
        self._spans: deque[tuple[int, int]] = deque()
        self._sampled_until_ns = from_ns
        self._known_until_ns = 0
        self._patience_ns = _LEAST_PATIENCE_NS
        self._pids: set[int] = set()

    def add_process(self, pid: int) -> None:
        """Note a process that works on it."""
        if len(self._pids) < _MAX_PROCESSES:
            self._pids.add(pid)

    @property
    def processes(self) -> tuple[ProcessSample, ...] | None:
        """Those that live; ``None``: no line ever named one."""
        if not self._pids:
            return None
        living = {
            pid: owner for pid in sorted(self._pids) if (owner := _owner_uid(pid)) is not None
        }
        return tuple([ProcessSample(pid, None, uid=uid) for pid, uid in living.items()])

    def present_ratio(self, now_ns: int) -> float:
        """1 if a span has just ended, else 0, also while one goes on that is not written yet."""
        return float(now_ns - self._known_until_ns < WINDOW_NS)

    def add(self, start_ns: int, end_ns: int) -> None:
        """Add a span.

        Raises:
            InvalidSampleError: It is impossible; says why.
        """
        if not 0 <= start_ns <= end_ns:
            raise InvalidSampleError("ends before it starts")
        if end_ns < self._known_until_ns:
            raise InvalidSampleError("ends before the previous span")
        start_ns = max(start_ns, self._spans[-1][1] if self._spans else 0)
        self._spans.append((start_ns, end_ns))
        self._known_until_ns = end_ns
        longest_ns = (end_ns - start_ns) * 5 // 4
        self._patience_ns = min(max(self._patience_ns, longest_ns), _MAX_PATIENCE_NS)

    def windows(self, now_ns: int) -> tuple[BusySample, ...]:
        """Windows in which all spans are known or would have been written by now."""
        # A span is written when it ends, so no span means idle only after a time
        # longer than the longest span.
        until_ns = max(min(self._known_until_ns, now_ns), now_ns - self._patience_ns)
        samples = tuple(
            sample_of(start_ns, end_ns, self._busy_ns(start_ns, end_ns))
            for start_ns, end_ns in windows_between(self._sampled_until_ns, until_ns)
        )
        if samples:
            self._sampled_until_ns = samples[-1].end_ns
        return samples

    def _busy_ns(self, start_ns: int, end_ns: int) -> int:
        busy_ns = 0
        while self._spans and self._spans[0][0] < end_ns:
            span_start_ns, span_end_ns = self._spans[0]
            busy_ns += max(0, min(span_end_ns, end_ns) - max(span_start_ns, start_ns))
            if span_end_ns > end_ns:
                break
            self._spans.popleft()
        return busy_ns


class FollowSource:
    """Follows a file of lines such as ``{"gpu": 0, "start_ns": 1, "end_ns": 2}``.

    Times are CLOCK_MONOTONIC. Spans of one GPU do not overlap and come in
    order, each written as it ends. GPU 0 is there from the start; others
    appear with their first span. A line may have ``"pid"``: the process that works there.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        """Follow a file that may not exist yet.

        Raises:
            SourceUnavailableError: Its folder does not exist, or it is no file.
        """
        if not path.parent.is_dir() or (path.exists() and not path.is_file()):
            raise SourceUnavailableError(
                f"cannot follow {path}: it must be a file in a folder that exists"
            )
        self._path = path
        self._clock = clock
        self._offset = 0
        self._rest = b""
        self._lines = 0
        self._opened_ns = self._written_ns = clock.monotonic_ns()
        self._gpus = {0: _FollowedGpu(0, self._opened_ns)}

    def read(self, now: ReadNow = ReadNow.SAMPLES) -> Frame:
        """Read the windows that are complete since the last call.

        The frame's ``trouble`` says that the file is missing, that nothing is written to it, or
        which line was refused.
        """
        now_ns = self._clock.monotonic_ns()
        rejected, trouble = 0, None
        lines = self._new_lines()
        if lines is None:
            trouble = f"{self._path} is not there: its GPU counts as idle until spans come"
        elif lines:
            self._written_ns = now_ns
        elif now_ns - self._written_ns > _MAX_PATIENCE_NS:
            trouble = f"no span was written to {self._path} for a minute: its GPU counts as idle"
        elif not self._lines:
            trouble = f"no span was written to {self._path} yet: its GPU counts as idle"
        for line in lines or ():
            self._lines += 1
            try:
                self._ingest_line(line, now_ns)
            except InvalidSampleError as refusal:
                rejected += 1
                trouble = f"{self._path}, line {self._lines}: {refusal}"
        gpus, present = [], []
        for _, gpu in sorted(self._gpus.items()):
            busy = gpu.windows(now_ns)
            utilization_ratio = busy[-1].busy_ratio if busy else None
            sample = GpuSample(
                device=gpu.device,
                busy=busy,
                utilization_ratio=utilization_ratio,
                processes=gpu.processes,
            )
            gpus.append(sample)
            if ReadNow.PRESENT in now and sample.processes:
                present.append((gpu.device.uuid, gpu.present_ratio(now_ns)))
        return Frame(
            taken_at_ns=now_ns,
            gpus=tuple(gpus),
            rejected=rejected,
            trouble=trouble,
            present_ratios=tuple(present),
        )

    def close(self) -> None:
        """Nothing is open."""

    def _new_lines(self) -> list[bytes] | None:
        """Complete lines since the last call; ``None`` while there is no file."""
        try:
            with self._path.open("rb") as handle:
                if handle.seek(0, 2) < self._offset:  # it was rewritten
                    self._offset, self._lines, self._rest = 0, 0, b""
                handle.seek(self._offset)
                data = handle.read(_MAX_BYTES_A_READ)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SourceUnavailableError(f"cannot follow {self._path}: {error.strerror}") from error
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_LINE_BYTES:
            lines, self._rest = [*lines, self._rest], b""
        return lines

    def _ingest_line(self, line: bytes, now_ns: int) -> None:
        if not line.strip():
            return
        index, start_ns, end_ns, pid = _span(line)
        if not 0 <= index < _MAX_GPUS:
            raise InvalidSampleError(f"there is no GPU {index}: an index is 0 to {_MAX_GPUS - 1}")
        if end_ns > now_ns + WINDOW_NS:
            raise InvalidSampleError(f"ends in the future of CLOCK_MONOTONIC ({now_ns} now)")
        if index not in self._gpus:
            self._gpus[index] = _FollowedGpu(index, max(self._opened_ns, min(now_ns, start_ns)))
        self._gpus[index].add(start_ns, end_ns)
        if pid is not None:
            self._gpus[index].add_process(pid)


def _owner_uid(pid: int) -> int | None:
    """Its user; ``None``: there is no such process."""
    try:
        return os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116 - in each tick
    except OSError:
        return None


def _span(line: bytes) -> tuple[int, int, int, int | None]:
    """GPU, start and end of a line, and the process that it names.

    Raises:
        InvalidSampleError: It is not written like that.
    """
    values: tuple[object, ...] = ()
    if len(line) <= _LONGEST_LINE_BYTES:
        with suppress(ValueError, TypeError, KeyError, RecursionError):
            record = json.loads(line)
            values = record["gpu"], record["start_ns"], record["end_ns"], record.get("pid", 0)
    numbers = [value for value in values if isinstance(value, int) and type(value) is not bool]
    if len(numbers) != 4:
        shown = line[:_SHOWN_BYTES].decode("utf-8", "replace")
        raise InvalidSampleError(
            f'not {{"gpu": 0, "start_ns": 1, "end_ns": 2}} in integers, but {shown!r}'
        )
    index, start_ns, end_ns, pid = numbers
    return index, start_ns, end_ns, pid if 0 < pid < _LARGEST_PID else None
