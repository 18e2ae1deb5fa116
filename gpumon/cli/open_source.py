"""From the words of a command to what it watches: ``--source``, ``--nvml-off``, ``--nvml-on``."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from gpumon.core.clock import Clock, seconds
from gpumon.errors import UsageError
from gpumon.pipeline.monitor import MonitorFacts
from gpumon.pipeline.replay import ReplayWatch
from gpumon.pipeline.watch import MachineWatch
from gpumon.sources.gpu_source import GpuSource
from gpumon.sources.nvml.fields.table import (
    ALWAYS_ON,
    DEFAULT_OPTIONS,
    NVML_FIELDS,
    NvmlOptions,
    nvml_options,
)
from gpumon.sources.recording import RecordingFile
from gpumon.sources.ring_reader.phase_rings import PhaseRingReader, Unlink
from gpumon.sources.ring_reader.ring_folder import unlink_if_ours
from gpumon.sources.system_clock import read_boot_id

LIVE_SOURCE_HELP = (
    "nvml (default), simulated:SCRIPT (input-bound, healthy, checkpointing, imbalanced, flat, "
    "idle, falls-off, under-filled, mig, eight) or follow:FILE (busy spans that another process "
    "writes)"
)
SOURCE_HELP = (
    f"{LIVE_SOURCE_HELP.replace(' or ', ', ')} or replay:FILE[,speed=N] (what `gpumon record` "
    "wrote, at its own period)"
)
_MADE_UP = frozenset({"simulated", "follow"})
_SLOWEST, _FASTEST = 0.01, 10_000.0


class Replay(NamedTuple):
    """What ``replay:FILE,speed=N`` names: a recording, and how many of its seconds pass in one."""

    path: str
    speed: float


def replay_of(word: str) -> Replay | None:
    """The recording that a source word names; ``None`` where it names another source.

    Raises:
        UsageError: It names no file, or no speed, or an option that there is not.

    >>> replay_of("replay:night.gpumon,speed=10"), replay_of("nvml")
    (Replay(path='night.gpumon', speed=10.0), None)
    """
    kind, _, rest = word.partition(":")
    if kind != "replay":
        return None
    path, sign, text = rest.rpartition(",speed=")
    if not sign:
        path, text = rest, "1"
        unknown = re.search(r",(\w+)=[^,/]*$", rest)
        if unknown and not Path(rest).exists():
            raise UsageError(
                f"replay: has no option {unknown[1]!r}: say ,speed=N as in "
                "--source replay:night.gpumon,speed=10"
            )
    if not path:
        raise UsageError("replay: wants a recording, as in --source replay:night.gpumon,speed=10")
    try:
        speed = float(text)
    except ValueError:
        speed = math.nan
    if not _SLOWEST <= speed <= _FASTEST:
        raise UsageError(f"speed={text} is no speed: say one from {_SLOWEST:g} to {_FASTEST:g}")
    return Replay(path, speed)


def check_source_word(word: str) -> str:
    """The same word; one that can never name a source is refused.

    Raises:
        UsageError: It names no source.
    """
    kind, _, rest = word.partition(":")
    if kind == "simulated":
        from gpumon.sources.simulated import script_called

        script_called(rest)
    elif kind == "follow":
        if not rest:
            raise UsageError("follow: wants a file, as in --source follow:/tmp/busy.jsonl")
    elif replay_of(word) is None and word != "nvml":
        raise UsageError(
            f"unknown source {word!r}: use nvml, simulated:SCRIPT, follow:FILE or replay:FILE"
        )
    return word


def open_source(
    word: str, clock: Clock, nvml: NvmlOptions = DEFAULT_OPTIONS, *, period_s: float = 1.0
) -> GpuSource:
    """Open the source of that word; imports only what that one needs.

    Args:
        word: As after ``--source``, and checked.
        clock: The system's.
        nvml: What the driver is asked, where it is the source.
        period_s: How often the source is read, in seconds.

    Raises:
        UsageError: It names a recording.
        SourceUnavailableError: It cannot be read on this machine.
    """
    replay = replay_of(word)
    if replay is not None:
        raise UsageError(
            f"{word} is a recording, which cannot be asked anything more: "
            f"`gpumon replay {replay.path}` shows what it holds"
        )
    kind, _, rest = word.partition(":")
    if kind == "simulated":
        from gpumon.sources.simulated import SimulatedSource

        return SimulatedSource(rest, clock)
    if kind == "follow":
        from gpumon.sources.follow import FollowSource

        return FollowSource(Path(rest), clock)
    from gpumon.sources.nvml.source import NvmlSource

    return NvmlSource(clock, options=nvml, period_s=period_s)


def watch_machine(
    word: str,
    clock: Clock,
    nvml: NvmlOptions,
    *,
    period_ns: int,
    folders: Iterable[str],
    unlink: Unlink = unlink_if_ours,
) -> MachineWatch:
    """This machine, through a source of that word. Nothing is opened yet.

    Args:
        word: As after ``--source``.
        clock: The system's.
        nvml: What the driver is asked, where it is the source.
        period_ns: Time between two ticks.
        folders: Where the rings of trainings lie, as shell patterns.
        unlink: Removes the ring of a run that ended long ago.
    """
    boot_id, kind = read_boot_id(), word.partition(":")[0]
    facts = MonitorFacts(
        source=word,
        source_kind=kind,
        simulated=kind in _MADE_UP,
        period_ns=period_ns,
        boot_id=boot_id,
        started_wall_time_s=clock.wall_time_s(),
    )
    rings = PhaseRingReader(folders, boot_id=boot_id, unlink=unlink)
    return MachineWatch(
        lambda: open_source(word, clock, nvml, period_s=seconds(period_ns)), rings, facts, clock
    )


def watch_replay(replay: Replay, clock: Clock) -> ReplayWatch:
    """A recording that is played.

    Raises:
        UnreadableLogError: It is none, or cannot be read.
    """
    return ReplayWatch(RecordingFile(replay.path), clock, read_boot_id(), speed=replay.speed)


def add_nvml_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the driver is asked; each may be said several times, with words or commas."""
    fields = [field for field in NVML_FIELDS if field.name != ALWAYS_ON]
    for way, said in (("off", "do not ask the driver for"), ("on", "ask it, too, for")):
        names = ", ".join(field.name for field in fields if field.opt_in is (way == "on"))
        parser.add_argument(
            f"--nvml-{way}",
            metavar="FIELD",
            type=partial(_checked, way),
            nargs="+",
            action="extend",
            default=[],
            help=f"{said}: {names}",
        )


def nvml_options_of(args: argparse.Namespace) -> NvmlOptions:
    """What the words of both options amount to; ``args.source`` is the source they are for.

    Raises:
        UsageError: A word names no field, or one that cannot be switched, or
            the source is not NVML.
    """
    off, on = _names(args.nvml_off), _names(args.nvml_on)
    if not off and not on:
        return DEFAULT_OPTIONS
    if args.source != "nvml":
        option = "--nvml-off" if off else "--nvml-on"
        raise UsageError(f"{option} is for --source nvml: {args.source} does not ask the driver")
    return nvml_options(off=off, on=on)


def _checked(way: str, words: str) -> str:
    """The same words, if they name fields that can be switched so."""
    nvml_options(**{way: _names([words])})
    return words


def _names(words: list[str]) -> list[str]:
    return [name for word in words for name in word.replace(",", " ").split()]
