"""Opens what ``--source``, ``--nvml-off`` and ``--nvml-on`` name."""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpumon.core.clock import Clock, nanoseconds
from gpumon.core.ring_format.runtime_paths import reader_patterns
from gpumon.errors import GpumonError, UsageError
from gpumon.sources.nvml.fields.table import (
    ALWAYS_ON,
    DEFAULT_OPTIONS,
    NVML_FIELDS,
    ONCE_A_SECOND,
    NvmlOptions,
    ReadTimes,
    nvml_options,
)
from gpumon.sources.ring_reader.daemon_folder import claim_runtime_dir, ring_folders
from gpumon.sources.ring_reader.ring_folder import Unlink, unlink_if_ours
from gpumon.sources.system_clock import read_boot_id

if TYPE_CHECKING:
    from gpumon.pipeline.replay import ReplayWatch
    from gpumon.pipeline.watch import MachineWatch
    from gpumon.sources.gpu_source import GpuSource

LIVE_SOURCE_HELP = (
    "nvml (default), simulated:SCRIPT (input-bound, healthy, checkpointing, imbalanced, flat, "
    "idle, falls-off, under-filled, mig, eight) or follow:FILE (busy spans written by another "
    "process)"
)
SOURCE_HELP = (
    f"{LIVE_SOURCE_HELP.replace(' or ', ', ')} or replay:FILE[,speed=N] (a recording of `gpumon "
    "record`, at its own period)"
)
_SIMULATED = frozenset({"simulated", "follow"})
_SLOWEST, _FASTEST = 0.01, 10_000.0


class Replay(NamedTuple):
    """The recording and speed of ``replay:FILE,speed=N``."""

    path: str
    speed: float


def replay_of(source: str) -> Replay | None:
    """The recording of a ``--source``; ``None``: another source.

    Raises:
        UsageError: The file, the speed or an option is wrong.

    >>> replay_of("replay:night.gpumon,speed=10"), replay_of("nvml")
    (Replay(path='night.gpumon', speed=10.0), None)
    """
    kind, _, rest = source.partition(":")
    if kind != "replay":
        return None
    path, sign, text = rest.rpartition(",speed=")
    if not sign:
        path, text = rest, "1"
        unknown = re.search(r",(\w+)=[^,/]*$", rest)
        if unknown and not Path(rest).exists():
            raise UsageError(
                f"replay: has no option {unknown[1]!r}: use ,speed=N as in "
                "--source replay:night.gpumon,speed=10"
            )
    if not path:
        raise UsageError("replay: needs a recording, as in --source replay:night.gpumon,speed=10")
    try:
        speed = float(text)
    except ValueError:
        speed = math.nan
    if not _SLOWEST <= speed <= _FASTEST:
        raise UsageError(f"speed={text} must be between {_SLOWEST:g} and {_FASTEST:g}")
    return Replay(path, speed)


def check_source(source: str) -> str:
    """The same text, or ``UsageError`` if it names no source."""
    kind, _, rest = source.partition(":")
    if kind == "simulated":
        from gpumon.sources.simulated import script_called

        script_called(rest)
    elif kind == "follow":
        if not rest:
            raise UsageError("follow: needs a file, as in --source follow:/tmp/busy.jsonl")
    elif replay_of(source) is None and source != "nvml":
        raise UsageError(
            f"unknown source {source!r}: use nvml, simulated:SCRIPT, follow:FILE or replay:FILE"
        )
    return source


def open_source(
    source: str,
    clock: Clock,
    nvml: NvmlOptions = DEFAULT_OPTIONS,
    times: ReadTimes = ONCE_A_SECOND,
) -> GpuSource:
    """Open a checked ``--source``, and import only what it needs.

    Raises:
        UsageError: It names a recording.
        SourceUnavailableError: It cannot be read on this machine.
    """
    replay = replay_of(source)
    if replay is not None:
        raise UsageError(
            f"{source} is a recording, not a live source: show it with `gpumon replay "
            f"{replay.path}`"
        )
    kind, _, rest = source.partition(":")
    if kind == "simulated":
        from gpumon.sources.simulated import SimulatedSource

        return SimulatedSource(rest, clock)
    if kind == "follow":
        from gpumon.sources.follow import FollowSource

        return FollowSource(Path(rest), clock)
    from gpumon.sources.nvml.source import NvmlSource

    return NvmlSource(clock, options=nvml, times=times)


def watch_machine(
    source: str,
    clock: Clock,
    nvml: NvmlOptions,
    *,
    times: ReadTimes,
    folders: Iterable[str],
    unlink: Unlink = unlink_if_ours,
) -> MachineWatch:
    """Watch this machine through a ``--source``. Opens nothing yet.

    ``folders`` are shell patterns of folders with rings; ``unlink`` removes the ring of a run that
    ended long ago.
    """
    # Imported here, as in other functions: a command that only names a source needs none of them.
    from gpumon.pipeline.monitor import MonitorFacts
    from gpumon.pipeline.watch import MachineWatch
    from gpumon.sources.ring_reader.phase_rings import PhaseRingReader

    boot_id, kind = read_boot_id(), source.partition(":")[0]
    facts = MonitorFacts(
        source=source,
        source_kind=kind,
        simulated=kind in _SIMULATED,
        period_ns=nanoseconds(times.tick_s),
        boot_id=boot_id,
        started_wall_time_s=clock.wall_time_s(),
    )
    rings = PhaseRingReader(folders, boot_id=boot_id, unlink=unlink)
    return MachineWatch(lambda: open_source(source, clock, nvml, times), rings, facts, clock)


def folders_without_a_daemon() -> Iterable[str]:
    """Patterns of ring folders. Creates the runtime folder, as a daemon would, if permitted."""
    try:
        return ring_folders(claim_runtime_dir())
    except GpumonError:
        return reader_patterns(os.environ, os.geteuid())


def watch_replay(replay: Replay, clock: Clock) -> ReplayWatch:
    """Play a recording; ``UnreadableLogError`` if it cannot be read."""
    from gpumon.pipeline.replay import ReplayWatch
    from gpumon.sources.recording import RecordingFile

    return ReplayWatch(RecordingFile(replay.path), clock, read_boot_id(), speed=replay.speed)


def add_nvml_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare ``--nvml-off`` and ``--nvml-on``; both may be repeated, with spaces or commas."""
    fields = [field for field in NVML_FIELDS if field.name != ALWAYS_ON]
    for way, action in (("off", "do not read"), ("on", "also read")):
        names = ", ".join(field.name for field in fields if field.opt_in is (way == "on"))
        parser.add_argument(
            f"--nvml-{way}",
            metavar="FIELD",
            type=partial(_checked, way),
            nargs="+",
            action="extend",
            default=[],
            help=f"{action} from the driver: {names}",
        )


def nvml_options_of(args: argparse.Namespace) -> NvmlOptions:
    """Combine both options.

    Raises:
        UsageError: A field does not exist or cannot be switched, or ``args.source`` is not NVML.
    """
    off, on = _names(args.nvml_off), _names(args.nvml_on)
    if not off and not on:
        return DEFAULT_OPTIONS
    if args.source != "nvml":
        option = "--nvml-off" if off else "--nvml-on"
        raise UsageError(f"{option} requires --source nvml, not {args.source}")
    return nvml_options(off=off, on=on)


def _checked(way: str, text: str) -> str:
    """The same text, if all name fields that can be switched so."""
    nvml_options(**{way: _names([text])})
    return text


def _names(texts: list[str]) -> list[str]:
    return [name for text in texts for name in text.replace(",", " ").split()]
