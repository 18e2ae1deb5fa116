"""Drives the fake libnvidia-ml.so.1 through the file it maps.

::

    with FakeNvml(path, gpus=8) as fake:
        fake.wave(0, period_s=1.0, busy_ratio=0.7)
        fake.fail("nvmlDeviceGetPowerUsage", NOT_SUPPORTED, gpu=3)
        process = subprocess.Popen([...], env=fake_env(fake.path, lib_dir))
        fake.lose(2)                      # seen at that process's next call
        assert fake.calls("nvmlDeviceGetSamples") < 100

What a field means is said once, in ``fake.h``.
"""

from __future__ import annotations

import ctypes
import mmap
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.fakenvml.layout import (
    FUNCTIONS,
    MAGIC,
    MAX_GPUS,
    NO_OVERRIDE,
    RING,
    UNSIGNED_INT,
    WAVE,
    ControlFile,
    raw_value,
)

SUCCESS = 0
UNINITIALIZED = 1
NOT_SUPPORTED = 3
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
GPU_IS_LOST = 15
VERSION_MISMATCH = 18
UNKNOWN = 999

WINDOW_S = 1 / 6
"""What the fake's utilisation windows last unless told otherwise, in seconds."""


def clock_offset_us(clock_id: int) -> int:
    """Microseconds that this clock is ahead of the monotonic one."""
    return (time.clock_gettime_ns(clock_id) - time.monotonic_ns()) // 1000


class FakeNvml:
    """The GPUs of one control file, and everything that can go wrong with them.

    GPUs are named here by their slot, which stays; ``reorder`` changes the
    index that NVML gives them. At first every GPU is idle, its ring 120 deep
    with a window of 1/6 s, and its stamps count wall-clock microseconds.
    """

    def __init__(self, path: Path, *, gpus: int = 1) -> None:
        self.path = path
        path.write_bytes(bytes(ctypes.sizeof(ControlFile)))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        # Any: ctypes' own stubs do not know the fields of a structure.
        self.control: Any = ControlFile.from_buffer(self._memory)
        self.control.size = ctypes.sizeof(ControlFile)
        self.control.gpu_count = gpus
        self.control.driver_version = b"580.95.05"
        self.control.nvml_version = b"13.580.95.05"
        self.control.cuda_version = 13_000
        # 30 s back, so that the rings are full when a test begins.
        self.control.origin_ns = max(1, time.monotonic_ns() - 30_000_000_000)
        self.stamps_count(clock_offset_us(time.CLOCK_REALTIME))
        for slot in range(MAX_GPUS):
            self.control.slot_of_index[slot] = slot
            self._set_up(slot)
        self.control.magic = MAGIC

    def __enter__(self) -> FakeNvml:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file; processes that map it go on."""
        self.control = None
        self._memory.close()

    def _set_up(self, slot: int) -> None:
        gpu = self.gpu(slot)
        gpu.uuid = self.uuid(slot).encode()
        gpu.name = b"NVIDIA H100 80GB HBM3"
        gpu.bus_id = f"00000000:{0x18 + slot:02X}:00.0".encode()
        gpu.memory_total = 85_520_809_984
        gpu.memory_used = 20_480 << 20
        gpu.memory_reserved = 600 << 20
        gpu.energy_mj = 5_000_000
        gpu.power_mw = 310_500
        gpu.temperature_c = 54
        gpu.sm_clock_mhz = 1_755
        gpu.mem_clock_mhz = 2_619
        gpu.value_type = UNSIGNED_INT
        gpu.ring_depth = 120
        gpu.rates_percent = NO_OVERRIDE
        self.wave(slot, period_s=1.0, busy_ratio=0.0)

    def uuid(self, slot: int) -> str:
        """The UUID that this GPU was given."""
        return f"GPU-fa4e0000-0000-0000-0000-{slot:012d}"

    def gpu(self, slot: int) -> Any:
        """The GPU's record, to be read and written field by field (see ``fake.h``)."""
        return self.control.gpus[slot]

    # -- what a GPU does ---------------------------------------------------

    def wave(
        self,
        slot: int,
        *,
        period_s: float,
        busy_ratio: float,
        phase_s: float = 0.0,
        window_s: float = WINDOW_S,
        dry_when_idle: bool = False,
    ) -> None:
        """Busy for a share of each period, then idle; no writer is needed.

        Args:
            slot: Which GPU.
            period_s: Length of one round, in seconds.
            busy_ratio: Share of it that is busy, 0 to 1.
            phase_s: How far into the round the origin lies, in seconds.
            window_s: What one sample covers, in seconds.
            dry_when_idle: Windows of 0 % are never put into the ring.
        """
        gpu = self.gpu(slot)
        gpu.signal = WAVE
        gpu.period_ns = round(period_s * 1e9)
        gpu.busy_ns = round(period_s * 1e9 * busy_ratio)
        gpu.phase_ns = round(phase_s * 1e9)
        gpu.window_ns = round(window_s * 1e9)
        gpu.dry_when_idle = dry_when_idle

    def busy_ns(self, slot: int, start_ns: int, end_ns: int) -> int:
        """The truth: nanoseconds of that stretch in which the wave was busy."""
        gpu = self.gpu(slot)

        def until(at_ns: int) -> int:
            rounds, within = divmod(at_ns - self.control.origin_ns + gpu.phase_ns, gpu.period_ns)
            return int(rounds * gpu.busy_ns + min(within, gpu.busy_ns))

        return until(end_ns) - until(start_ns)

    def ring(self, slot: int, entries: Sequence[tuple[int, float]]) -> None:
        """Replace the wave by these ``(stamp_us, value)``, oldest first.

        Values are written in the GPU's ``value_type``; set that before.
        """
        gpu = self.gpu(slot)
        gpu.signal = RING
        gpu.ring_count = 0
        for at, (stamp_us, value) in enumerate(entries):
            gpu.ring[at].stamp_us = stamp_us
            gpu.ring[at].raw = raw_value(value, gpu.value_type)
        gpu.ring_count = len(entries)

    def push(self, slot: int, *entries: tuple[int, float]) -> None:
        """Add ``(stamp_us, value)`` to the end of an explicit ring."""
        gpu = self.gpu(slot)
        for stamp_us, value in entries:
            gpu.ring[gpu.ring_count].stamp_us = stamp_us
            gpu.ring[gpu.ring_count].raw = raw_value(value, gpu.value_type)
            gpu.ring_count += 1

    def run(
        self,
        slot: int,
        pid: int,
        *,
        name: bytes = b"python",
        memory_bytes: int = 1 << 30,
        sm: int = 50,
    ) -> None:
        """Add a process that computes on this GPU."""
        process = self.control.processes[self.control.process_count]
        process.gpu, process.pid, process.name = slot, pid, name
        process.memory_bytes, process.sm_percent = memory_bytes, sm
        self.control.process_count += 1

    def cut(self, slot: int, parts: int) -> tuple[str, ...]:
        """Turn MIG on, with that many instances of one slice each; gives their UUIDs."""
        gpu = self.gpu(slot)
        gpu.mig_enabled, gpu.part_count = 1, parts
        uuids = tuple(f"MIG-c1{slot:02d}{at:02d}00-0000-0000-0000-{at:012d}" for at in range(parts))
        for at, uuid in enumerate(uuids):
            part = gpu.parts[at]
            part.uuid, part.name = uuid.encode(), gpu.name + b" MIG 1g.10gb"
            part.memory_total = gpu.memory_total // 8
            part.gpu_instance, part.compute_instance = at + 7, 0
        return uuids

    # -- which clock stamps the samples ------------------------------------

    def stamps_count(self, offset_us: int) -> None:
        """From now on, and for what is in the ring: stamp = monotonic us + offset."""
        self.control.offset_since_ns = 0
        self.control.stamp_offset_us = offset_us

    def stamps_jump(self, by_us: int) -> None:
        """The clock of the stamps is set; what is in the ring keeps its old stamps."""
        self.control.earlier_offset_us = self.control.stamp_offset_us
        self.control.stamp_offset_us += by_us
        self.control.offset_since_ns = time.monotonic_ns()

    def stamp_us(self, monotonic_ns: int) -> int:
        """The stamp that the driver gives to this instant."""
        return int(monotonic_ns // 1000 + self.control.stamp_offset_us)

    # -- what goes wrong ---------------------------------------------------

    def fail(self, function: str, code: int, *, gpu: int | None = None) -> None:
        """Let a function answer ``code``, for one GPU or for all; 0 ends it."""
        record = self._function(function)
        if gpu is None:
            record.error = code
        else:
            record.gpu_error[gpu] = code

    def delay(self, function: str, microseconds: int, *, gpu: int | None = None) -> None:
        """Let a function take that long; 0 also releases the calls that wait now."""
        record = self._function(function)
        if gpu is None:
            record.latency_us = microseconds
        else:
            record.gpu_latency_us[gpu] = microseconds

    def waiting(self, function: str) -> int:
        """How many calls of the function are inside such a delay now."""
        return int(self._function(function).waiting)

    def lose(self, slot: int, code: int = GPU_IS_LOST) -> None:
        """Every call on this GPU answers ``code``."""
        self.gpu(slot).error = code

    def find(self, slot: int) -> None:
        """The GPU answers again."""
        self.gpu(slot).error = SUCCESS

    def fail_everything(self, code: int) -> None:
        """Every call but init and shutdown answers ``code``; 0 ends it."""
        self.control.general_error = code

    def reload_driver(self) -> None:
        """Handles and inits of before are void: 1 UNINITIALIZED until init is called again."""
        self.control.generation += 1

    def reorder(self, slots: Sequence[int]) -> None:
        """Give the GPUs new indices: ``slots[i]`` becomes index ``i``."""
        for index, slot in enumerate(slots):
            self.control.slot_of_index[index] = slot
        self.control.gpu_count = len(slots)

    # -- what was asked ----------------------------------------------------

    def calls(self, function: str) -> int:
        """How often a function was called since ``forget_calls``."""
        return int(self._function(function).calls)

    def all_calls(self) -> dict[str, int]:
        """The functions that were called, and how often."""
        counts = {name: self.calls(name) for name in FUNCTIONS}
        return {name: count for name, count in counts.items() if count}

    def forget_calls(self) -> None:
        """Set every counter to zero."""
        for name in FUNCTIONS:
            self._function(name).calls = 0

    def _function(self, name: str) -> Any:
        return self.control.functions[FUNCTIONS.index(name)]
