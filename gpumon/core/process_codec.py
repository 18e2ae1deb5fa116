"""The processes of a GPU as ``/api/v1/state`` shows them; never in files that all can read."""

from __future__ import annotations

from typing import Any, Final

from gpumon.core.label_text import label_text
from gpumon.core.sample import ProcessSample
from gpumon.core.state import GpuState

MOST_PROCESSES: Final = 64
"""As many of a GPU are shown, those with the most memory first."""


def process_documents(gpu: GpuState) -> list[dict[str, Any]] | None:
    """Who computes on that GPU now.

    Returns:
        One dictionary for each process: ``pid``, ``memory_used_bytes`` and
        ``sm_ratio`` (``None``: no answer), and where names were asked for
        ``name`` and ``user``. ``None`` where the list is not to be had.
    """
    if not gpu.present or gpu.latest is None or gpu.latest.processes is None:
        return None
    by_memory = sorted(gpu.latest.processes, key=lambda process: -(process.memory_used_bytes or 0))
    return [_document(process) for process in by_memory[:MOST_PROCESSES]]


def _document(process: ProcessSample) -> dict[str, Any]:
    document: dict[str, Any] = {
        "pid": process.pid,
        "memory_used_bytes": process.memory_used_bytes,
        "sm_ratio": process.sm_ratio,
    }
    if process.name is not None:
        document["name"] = label_text(process.name)
    if process.user is not None:
        document["user"] = label_text(process.user)
    return document
