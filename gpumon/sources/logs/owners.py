"""GPUs of several hosts or runs in one log, which may have the same index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from gpumon.sources.logs.log_sample import LoggedGpu

_NAMED_IN_NOTE: Final = 8


def told_apart(
    gpus: Sequence[LoggedGpu], owners: Sequence[str]
) -> tuple[tuple[LoggedGpu, ...], tuple[str, ...]]:
    """The GPUs under numbers and names that tell them apart, and a sentence that says so.

    Args:
        gpus: As the log knows them.
        owners: The host or run of each, in the same order; ``""``: the log does not say.

    Nothing changes where all of them have the same owner.
    """
    if len(set(owners)) < 2:
        return tuple(gpus), ()
    renamed = tuple(
        replace(gpu, index=None, name=_name(gpu, owner))
        for gpu, owner in zip(gpus, owners, strict=True)
    )
    said = [
        f"GPU {position} is {_of(gpu, owner)}"
        for position, (gpu, owner) in enumerate(zip(gpus, owners, strict=True))
    ]
    more = len(said) - _NAMED_IN_NOTE
    listed = ", ".join(said[:_NAMED_IN_NOTE]) + (f" and {more} more" if more > 0 else "")
    return renamed, (f"The log speaks of GPUs in several places: {listed}.",)


def _name(gpu: LoggedGpu, owner: str) -> str:
    return f"{gpu.name or 'GPU'} of {owner or 'nobody named'}"


def _of(gpu: LoggedGpu, owner: str) -> str:
    which = "the one" if gpu.index is None else str(gpu.index)
    return f"{which} of {owner or 'nobody named'}"
