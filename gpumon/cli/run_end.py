"""What `gpumon run` prints at its end: the report of the run, or what the tags show alone."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from gpumon.cli.command import print_error
from gpumon.core.diagnosis.messages import DOING
from gpumon.core.report.report import Report
from gpumon.core.ring_format.events import RingReading
from gpumon.core.ring_format.runtime_paths import (
    FILE_FLAGS,
    PHASES,
    RING_SUFFIX,
    reader_patterns,
)
from gpumon.core.wording import counted, in_percent, in_time, listed
from gpumon.errors import GpumonError, RingError, UsageError
from gpumon.outlets.text.style import style_for, wrapped
from gpumon.sources.daemon import fetch_report, find_state_file, read_state
from gpumon.sources.ring_reader.daemon_folder import matching_paths
from gpumon.sources.ring_reader.open_ring import OpenRing
from gpumon.sources.system_clock import SystemClock, read_boot_id

_MOST_NOTES_BYTES: Final = 1 << 17
_MOST_PIDS: Final = 4_096
_MOST_RUNS: Final = 8
"""Runs that are described; a job of more ranks is left to the daemon's report."""
_LEAST_SHARE: Final = 0.01
_PATIENCE_S: Final = 6.0
"""A daemon settles the end of a run when the samples of its GPUs have passed it."""
_ASK_EVERY_S: Final = 0.5


def print_end(notes: Path | None, began_ns: int) -> None:
    """Print it on standard error. A daemon that is asked may take some seconds.

    Args:
        notes: Where the command's Pythons wrote; ``None``: nowhere.
        began_ns: CLOCK_MONOTONIC at the start of the command.
    """
    wall_ns = time.monotonic_ns() - began_ns
    lines = _read_notes(notes)
    rings = sorted(_rings_of(lines, began_ns), key=lambda ring: ring.facts.rank)
    if not rings:
        print_error(why_nothing_is_tagged(lines))
        return
    state = _daemons_state()
    report = None if state is None else _report_of(rings[0], state)
    if report is None:
        print("\n".join(own_figures(rings, wall_ns, has_daemon=bool(state))), file=sys.stderr)
        return
    from gpumon.outlets.text.report_text import render_report

    print(render_report(report, style_for(sys.stderr, os.environ)), end="", file=sys.stderr)
    if len(rings) > 1:
        others = listed([f"`gpumon report --run {ring.facts.run}`" for ring in rings[1:]])
        print_error(f"this is the first of {len(rings)} runs; the others: {others}")


def _read_notes(notes: Path | None) -> list[str]:
    if notes is None:
        return []
    try:
        with notes.open("rb") as file:
            return file.read(_MOST_NOTES_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def _rings_of(lines: Sequence[str], began_ns: int) -> Iterator[RingReading]:
    """The rings that processes with these pids have made since then."""
    pids = {line for line in islice(lines, _MOST_PIDS) if line.isascii() and line.isdecimal()}
    boot_id, now_ns = read_boot_id(), time.monotonic_ns()
    for folder in matching_paths(reader_patterns(os.environ, os.geteuid())):
        try:
            names = os.listdir(folder / PHASES)  # noqa: PTH208
        except OSError:
            continue
        for name in names:
            if name.endswith(RING_SUFFIX) and name.partition("-")[0] in pids:
                ring = _reading(folder / PHASES / name, boot_id, now_ns)
                if ring is not None and ring.facts.started_ns >= began_ns:
                    yield ring


def _reading(path: Path, boot_id: str, now_ns: int) -> RingReading | None:
    try:
        descriptor = os.open(path, FILE_FLAGS)
    except OSError:
        return None
    try:
        return OpenRing(descriptor, path.name, boot_id=boot_id, now_ns=now_ns).read(now_ns)
    except (OSError, RingError):
        return None
    finally:
        os.close(descriptor)


def _daemons_state() -> dict[str, Any] | None:
    try:
        return read_state(find_state_file(), SystemClock(), read_boot_id())
    except GpumonError:
        return None


def _report_of(ring: RingReading, state: dict[str, Any]) -> Report | None:
    """The daemon's report on this run once its end is settled; ``None`` if it has no GPU there."""
    give_up_s = time.monotonic() + _PATIENCE_S
    report: Report | None = None
    while True:
        try:
            report = fetch_report(state, run=str(ring.facts.pid))
            is_over = not any(run.alive for run in report.runs)
            if is_over and not any(gpu.totals.pending_ns for gpu in report.gpus):
                break
        except UsageError:  # it does not know the run yet
            pass
        except GpumonError:
            return None
        if time.monotonic() > give_up_s:
            break
        time.sleep(_ASK_EVERY_S)
    return report if report is not None and report.gpus else None


def why_nothing_is_tagged(lines: Sequence[str]) -> str:
    """One sentence, from the notes of the command's Pythons.

    >>> why_nothing_is_tagged(["old 3.8"])
    'nothing was tagged: the command runs Python 3.8, and tags need Python 3.10 or newer'
    """
    failed = [line.removeprefix("failed ") for line in lines if line.startswith("failed ")]
    if failed:
        return f"nothing was tagged, because the hooks did not load: {failed[0]}"
    if any(line.isdecimal() for line in lines):
        return (
            "nothing was tagged: the command called no fit of Keras, Lightning or the Hugging Face "
            "Trainer, and used no DataLoader of PyTorch on its main thread"
        )
    old = [line.removeprefix("old ") for line in lines if re.fullmatch(r"old \d+\.\d+", line)]
    if old:
        return (
            f"nothing was tagged: the command runs Python {old[0]}, and tags need Python 3.10 or "
            "newer"
        )
    return (
        "nothing was tagged: the command started no Python that read PYTHONPATH; options -I, -E "
        "and -S, containers and other machines do not"
    )


def own_figures(
    rings: Sequence[RingReading], wall_ns: int, *, has_daemon: bool = False
) -> list[str]:
    """Lines on what the tags of these runs show without a GPU.

    Args:
        rings: At least one, in the order of their ranks.
        wall_ns: How long the command ran.
        has_daemon: Whether one runs, but has no report on them.
    """
    lines = [f"gpumon: the command ran for {in_time(wall_ns)}. By the clock of the host:"]
    for ring in rings[:_MOST_RUNS]:
        whole_ns = max(1, ring.known_until_ns - ring.facts.started_ns)
        steps = f", {counted(ring.steps, 'step', 'steps')}" if ring.steps else ""
        lines.append(f"  {ring.facts.run}: {in_time(whole_ns)} in the tagged process{steps}")
        shares = sorted(ring.phase_ns.items(), key=lambda item: -item[1])
        for phase, phase_ns in shares:
            if phase_ns >= _LEAST_SHARE * whole_ns:
                share = in_percent(phase_ns / whole_ns)
                lines.append(f"    {share:>6}  {DOING[phase]}")
    if len(rings) > _MOST_RUNS:
        lines.append(f"  and {len(rings) - _MOST_RUNS} more")
    next_step = "start `gpumon serve` and run this again"
    if has_daemon:
        next_step = "the running daemon saw no GPU of this run, so name its GPUs in $GPUMON_GPUS"
    lines += wrapped(
        f"The GPU may have worked during any of it: {next_step} to see how much of it the GPU was "
        "idle for, and what to change first.",
        first="  ",
    )
    return lines
