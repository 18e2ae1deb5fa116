"""Which GPUs the live screen shows, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from gpumon.core.view.view import GpuView
from gpumon.outlets.screen.gpu_rows import cause_of, command_of, gpu_name, user_of


class SortOrder(NamedTuple):
    """An order of the GPUs.

    Attributes:
        name: Its name on the screen.
        key: What is compared; ``None``: the view's own order.
        is_descending: Whether the greatest comes first.
    """

    name: str
    key: Callable[[GpuView], Any] | None
    is_descending: bool = True


SORT_ORDERS: Final = (
    SortOrder("need", None),
    SortOrder("number", lambda gpu: (gpu.number, gpu.label), is_descending=False),
    SortOrder("busy", lambda gpu: _known(gpu.utilization_ratio)),
    SortOrder("lost", lambda gpu: _known(gpu.lost_ratio)),
    SortOrder("memory", lambda gpu: _known(gpu.memory_used_bytes)),
    SortOrder("power", lambda gpu: _known(gpu.power_watts)),
    SortOrder("user", lambda gpu: (not user_of(gpu), user_of(gpu)), is_descending=False),
)


def shown_gpus(gpus: Sequence[GpuView], order: SortOrder, wanted: str) -> list[GpuView]:
    """The GPUs that have all words of ``wanted``, in an order."""
    words = wanted.casefold().split()
    found = [gpu for gpu in gpus if all(word in _searched(gpu) for word in words)]
    if order.key is None:
        return found
    return sorted(found, key=order.key, reverse=order.is_descending)


def _known(value: float | None) -> float:
    return -1.0 if value is None else value


def _searched(gpu: GpuView) -> str:
    pids = [str(process.pid) for process in gpu.processes or ()]
    texts = (
        gpu_name(gpu), gpu.status.word, gpu.name or "", gpu.uuid, cause_of(gpu), user_of(gpu),
        command_of(gpu), *gpu.runs, *pids,
    )  # fmt: skip
    return "\n".join(texts).casefold()
