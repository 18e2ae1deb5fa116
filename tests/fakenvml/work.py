"""Who works on the GPUs of the fake, how much of them works, and what they report."""

from __future__ import annotations

import ctypes
import platform
from typing import Any, Final

from tests.fakenvml.layout import MAX_EVENTS, MAX_PROCESSES, NO_INSTANCE, ControlFile
from tests.fakenvml.signals import Signals

_LIBC: Final = ctypes.CDLL(None)
_FUTEX: Final = 98 if platform.machine() == "aarch64" else 202
_FUTEX_WAKE, _EVERYBODY = 1, 1 << 30

SINGLE_BIT_ECC = 0x1
DOUBLE_BIT_ECC = 0x2
XID = 0x8

COMPUTE, GRAPHICS, MPS = 0, 1, 2
"""What a process does."""


class Work(Signals):
    """Processes, GPM's ratios, throttling, and events."""

    def run(
        self,
        slot: int,
        pid: int,
        *,
        name: bytes = b"python",
        memory_bytes: int = 1 << 30,
        sm: int = 50,
        memory: int = 10,
        kind: int = COMPUTE,
        part: int | None = None,
    ) -> Any:
        """Add a process that has used this GPU since ever.

        Args:
            slot: Which GPU.
            pid: Its process id.
            name: What the driver calls it.
            memory_bytes: What it holds.
            sm: Percent of the SMs it keeps busy; more than 100 is not refused.
            memory: Percent of the memory bandwidth.
            kind: ``COMPUTE``, ``GRAPHICS`` or ``MPS``.
            part: Which MIG instance of the GPU, by its index.

        Returns:
            Its record (see ``fake.h``).
        """
        assert self.control.process_count < MAX_PROCESSES
        process = self.control.processes[self.control.process_count]
        process.gpu, process.pid, process.name = slot, pid, name
        process.memory_bytes, process.graphics = memory_bytes, kind
        process.sm_percent, process.memory_percent = sm, memory
        process.gpu_instance = process.compute_instance = NO_INSTANCE
        if part is not None:
            process.gpu_instance = self.gpu(slot).parts[part].gpu_instance
            process.compute_instance = self.gpu(slot).parts[part].compute_instance
        process.computes_from_ns = process.computes_until_ns = process.use_stamp_us = 0
        self.control.process_count += 1
        return process

    def keep_busy(self, *slots: int) -> None:
        """These GPUs are busy all the time, each by a process of its own."""
        for slot in slots:
            self.wave(slot, period_s=1.0, busy_ratio=1.0)
            self.run(slot, 1000 + slot)

    def start(self, slot: int, pid: int, **more: Any) -> Any:
        """Add a process as ``run`` does that begins only now."""
        process = self.run(slot, pid, **more)
        process.computes_from_ns = self.now_ns()
        return process

    def end(self, pid: int) -> None:
        """The process is gone; what it used stays in the driver's buffer for a while."""
        for process in self.processes(pid):
            process.computes_until_ns = self.now_ns()

    def processes(self, pid: int) -> list[Any]:
        """The records of that process, one for each GPU that it uses."""
        all_of_them = self.control.processes[: self.control.process_count]
        return [process for process in all_of_them if process.pid == pid]

    def gpm(
        self,
        slot: int,
        *,
        sm: float | None = None,
        occupancy: float | None = None,
        tensor: float | None = None,
        dram: float | None = None,
        part: int | None = None,
        supported: bool = True,
    ) -> None:
        """Of the time that the GPU, or a part of it, is busy: how much works, 0 to 1."""
        self.gpu(slot).gpm_supported = supported
        owner = self.gpu(slot) if part is None else self.gpu(slot).parts[part]
        ratios = {"sm": sm, "occupancy": occupancy, "tensor": tensor, "dram": dram}
        for word, ratio in ratios.items():
            if ratio is not None:
                setattr(owner.activity, f"{word}_ratio", ratio)

    def throttle(self, slot: int, reasons: int) -> None:
        """The clocks are reduced for these reasons, bits of nvmlClocksEventReason; 0: not."""
        self.gpu(slot).throttle_reasons = reasons

    # -- events ------------------------------------------------------------

    def report(self, slot: int, kind: int, data: int = 0, *, part: int | None = None) -> None:
        """Report an event to whoever waits for its kind on this GPU."""
        event = self.control.events[self.control.event_count % MAX_EVENTS]
        event.slot, event.type, event.data = slot, kind, data
        event.gpu_instance = event.compute_instance = NO_INSTANCE
        if part is not None:
            event.gpu_instance = self.gpu(slot).parts[part].gpu_instance
            event.compute_instance = self.gpu(slot).parts[part].compute_instance
        self.control.event_count += 1  # last: whoever waits looks at this
        where = ctypes.addressof(self.control) + ControlFile.event_count.offset
        _LIBC.syscall(_FUTEX, ctypes.c_void_p(where), _FUTEX_WAKE, _EVERYBODY, None, None, 0)

    def report_xid(self, slot: int, xid: int, *, part: int | None = None) -> None:
        """Report an XID error."""
        self.report(slot, XID, xid, part=part)

    def report_ecc(self, slot: int, *, uncorrected: bool) -> None:
        """Count one memory error, and report it."""
        if uncorrected:
            self.gpu(slot).ecc_uncorrected += 1
        else:
            self.gpu(slot).ecc_corrected += 1
        self.report(slot, DOUBLE_BIT_ECC if uncorrected else SINGLE_BIT_ECC)
