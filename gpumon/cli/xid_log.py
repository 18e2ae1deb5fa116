"""The driver's errors in the log: each XID of each GPU once, with what it means and what to do."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from gpumon.core.state import GpuState
from gpumon.core.xid_texts import xid_sentence


class XidLog:
    """Logs an XID of a GPU when it is the first of its kind there."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._seen: dict[str, tuple[tuple[int, int], ...]] = {}

    def follow(self, gpus: Iterable[GpuState]) -> None:
        """Take the errors that the GPUs had up to now."""
        for gpu in gpus:
            uuid, pairs = gpu.device.uuid, gpu.xid_errors
            before = self._seen.get(uuid, ())
            if not pairs or pairs is before:
                continue
            said = {xid for xid, _ in before}
            for xid, _ in pairs:
                if xid not in said:
                    self._log.warning("GPU %s (%s): %s", gpu.device.label, uuid, xid_sentence(xid))
            self._seen[uuid] = pairs
