"""A GPU's errors in the log: each XID once, and that it vanished, with what to do."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from gpumon.core.state import GpuState
from gpumon.core.troubles import vanished
from gpumon.core.xid_texts import xid_sentence


class XidLog:
    """Logs an XID of a GPU when it is the first of its kind there, and a GPU that vanished."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._seen: dict[str, tuple[tuple[int, int], ...]] = {}
        self._vanished: set[str] = set()

    def follow(self, gpus: Iterable[GpuState]) -> None:
        """Take the errors that the GPUs had up to now, and who is listed."""
        for gpu in gpus:
            uuid, pairs = gpu.device.uuid, gpu.xid_errors
            if gpu.listed is (uuid in self._vanished):
                self._take_listed(gpu)
            before = self._seen.get(uuid, ())
            if not pairs or pairs is before:
                continue
            said = {xid for xid, _ in before}
            for xid, _ in pairs:
                if xid not in said:
                    self._log.warning("GPU %s (%s): %s", gpu.device.label, uuid, xid_sentence(xid))
            self._seen[uuid] = pairs

    def _take_listed(self, gpu: GpuState) -> None:
        uuid, label = gpu.device.uuid, gpu.device.label
        if gpu.listed:
            self._vanished.discard(uuid)
            self._log.info("GPU %s (%s) is listed again", label, uuid)
        elif gpu.device.parent_uuid is None:  # instances come and go all day long
            self._vanished.add(uuid)
            trouble = vanished()
            self._log.warning(
                "GPU %s (%s) %s. What to do: %s.", label, uuid, trouble.text, trouble.advice
            )
