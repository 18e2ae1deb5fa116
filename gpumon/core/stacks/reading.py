"""The stack samples that were read of the processes on this machine's GPUs since the last tick."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.core.stacks.stack import StackSample

_NONE_PENDING: Mapping[str, int] = MappingProxyType({})


class StacksReading(NamedTuple):
    """What was read since the last tick.

    Attributes:
        samples: Each with the UUIDs of the GPUs that its process is on.
        pending_from_ns: By UUID of a GPU, the CLOCK_MONOTONIC from which a stack sample may yet
            come of the process on it.
    """

    samples: tuple[tuple[tuple[str, ...], StackSample], ...] = ()
    pending_from_ns: Mapping[str, int] = _NONE_PENDING


NO_STACKS: Final = StacksReading()
