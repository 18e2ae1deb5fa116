"""From the words of a command to what it watches."""

from __future__ import annotations

from collections.abc import Iterable

from gpumon.cli.open_source import Replay, is_simulated, open_source
from gpumon.core.clock import Clock
from gpumon.core.units import NS_PER_S
from gpumon.pipeline.monitor import MonitorFacts
from gpumon.pipeline.replay import ReplayWatch
from gpumon.pipeline.watch import MachineWatch
from gpumon.sources.nvml_catalog import NvmlOptions
from gpumon.sources.phase_rings import PhaseRingReader, Unlink
from gpumon.sources.recording import RecordingFile
from gpumon.sources.ring_opening import unlink_if_ours
from gpumon.sources.system_clock import read_boot_id


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
    boot_id = read_boot_id()
    facts = MonitorFacts(
        source=word,
        source_kind=word.partition(":")[0],
        simulated=is_simulated(word),
        period_ns=period_ns,
        boot_id=boot_id,
        started_wall_time_s=clock.wall_time_s(),
    )
    rings = PhaseRingReader(folders, boot_id=boot_id, unlink=unlink)
    return MachineWatch(
        lambda: open_source(word, clock, nvml, period_s=period_ns / NS_PER_S), rings, facts, clock
    )


def watch_replay(replay: Replay, clock: Clock) -> ReplayWatch:
    """A recording that is played.

    Raises:
        UnreadableLogError: It is none, or cannot be read.
    """
    return ReplayWatch(RecordingFile(replay.path), clock, read_boot_id(), speed=replay.speed)
