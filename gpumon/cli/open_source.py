"""The ``--source`` word, one everywhere."""

from __future__ import annotations

from pathlib import Path

from gpumon.core.clock import Clock
from gpumon.errors import UsageError
from gpumon.sources.nvml_catalog import DEFAULT_OPTIONS, NvmlOptions
from gpumon.sources.protocols import GpuSource

SOURCE_HELP = (
    "nvml (default), simulated:SCRIPT (input-bound, healthy, checkpointing, imbalanced, flat, "
    "idle, falls-off, under-filled, mig, eight) or follow:FILE (busy spans that another process "
    "writes)"
)


def check_source_word(word: str) -> None:
    """Refuse a word that can never name a source.

    Raises:
        UsageError: It names no source.
    """
    kind, _, rest = word.partition(":")
    if kind == "simulated":
        from gpumon.sources.simulated import SCRIPTS

        if rest not in SCRIPTS:
            raise UsageError(
                f"no simulated script called {rest!r}: choose one of {', '.join(sorted(SCRIPTS))}"
            )
    elif kind == "follow":
        if not rest:
            raise UsageError("follow: wants a file, as in --source follow:/tmp/busy.jsonl")
    elif word != "nvml":
        raise UsageError(f"unknown source {word!r}: use nvml, simulated:SCRIPT or follow:FILE")


def open_source(word: str, clock: Clock, nvml: NvmlOptions = DEFAULT_OPTIONS) -> GpuSource:
    """Open the source of that word; imports only what that one needs.

    Args:
        word: As after ``--source``.
        clock: The monotonic clock.
        nvml: What the driver is asked, where it is the source.

    Raises:
        UsageError: It names no source.
        SourceUnavailableError: It cannot be read on this machine.
    """
    check_source_word(word)
    kind, _, rest = word.partition(":")
    if kind == "simulated":
        from gpumon.sources.simulated import SimulatedSource

        return SimulatedSource(rest, clock)
    if kind == "follow":
        from gpumon.sources.follow import FollowSource

        return FollowSource(Path(rest), clock)
    from gpumon.sources.nvml import NvmlSource

    return NvmlSource(clock, options=nvml)


def is_simulated(word: str) -> bool:
    """Whether the GPUs of that source are made up."""
    return word.partition(":")[0] in {"simulated", "follow"}
