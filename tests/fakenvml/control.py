"""Drives the fake libnvidia-ml.so.1 through the file it maps.

::

    with FakeNvml(path, gpus=8) as fake:
        fake.wave(0, period_s=1.0, busy_ratio=0.7)
        fake.fail("nvmlDeviceGetPowerUsage", codes.NOT_SUPPORTED, gpu=3)
        process = subprocess.Popen([...], env=fake_env(fake.path, lib_dir))
        fake.lose(2)                      # seen at that process's next call
        assert fake.calls("nvmlDeviceGetSamples") < 100

What a field means is reported once, in ``fake.h``; what the fake can and cannot
do, and what of it is assumed, in README.md.
"""

from __future__ import annotations

import ctypes
import mmap
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from tests.fakenvml import codes
from tests.fakenvml.generations import PRESENT_DRIVER, DriverGeneration
from tests.fakenvml.layout import MAGIC, MAX_GPUS, NO_OVERRIDE, UNSIGNED_INT, ControlFile
from tests.fakenvml.parts import Parts
from tests.fakenvml.signals import WINDOW_S, clock_offset_us
from tests.fakenvml.troubles import Troubles
from tests.fakenvml.work import Work

__all__ = ["WINDOW_S", "FakeNvml"]

_ORDINARY_EVENTS = 0x1F
"""Single and double bit ECC, P-state, XID, clock."""


class FakeNvml(Troubles, Work, Parts):
    """The GPUs of one control file, and everything that can go wrong with them.

    GPUs are named here by their slot, which stays; ``reorder`` changes the
    index that NVML gives them. At first every GPU is idle, its ring 120 deep
    with a window of 1/6 s, and its stamps count wall-clock microseconds.
    """

    def __init__(
        self, path: Path, *, gpus: int = 1, driver: DriverGeneration = PRESENT_DRIVER
    ) -> None:
        self.path, self.driver = path, driver
        path.write_bytes(bytes(ctypes.sizeof(ControlFile)))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        self.control = control = ControlFile.from_buffer(self._memory)
        control.size = ctypes.sizeof(ControlFile)
        control.gpu_count = gpus
        control.driver_version = driver.driver_version.encode()
        control.nvml_version = f"{driver.cuda_version // 1000}.{driver.driver_version}".encode()
        control.cuda_version = driver.cuda_version
        control.newest_field = driver.newest_field
        control.process_buffer_ns = 20_000_000_000
        control.process_size_error = codes.INSUFFICIENT_SIZE
        control.gpm_shortest_ns = 100_000_000
        control.gpm_too_short_error = codes.UNKNOWN
        # 30 s back, so that the rings are full when a test begins.
        control.origin_ns = max(1, time.monotonic_ns() - 30_000_000_000)
        self.stamps_count(clock_offset_us(time.CLOCK_REALTIME))
        for slot in range(MAX_GPUS):
            control.slot_of_index[slot] = slot
            self._set_up(slot)
        control.magic = MAGIC

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
        with suppress(BufferError):  # a record is still held: closed when that is let go
            self._memory.close()

    def _set_up(self, slot: int) -> None:
        gpu = self.gpu(slot)
        gpu.uuid = self.uuid(slot).encode()
        gpu.name = self.driver.gpu_name.encode()
        gpu.bus_id = f"00000000:{0x18 + slot:02X}:00.0".encode()
        gpu.compute_capability = self.driver.compute_capability
        gpu.memory_total = 85_520_809_984
        gpu.memory_used = 20_480 << 20
        gpu.memory_reserved = 600 << 20
        gpu.energy_mj = 5_000_000
        gpu.power_mw = 310_500
        gpu.power_window_ns = 20_000_000
        gpu.power_average_ns = 1_000_000_000
        gpu.power_limit_mw = gpu.enforced_limit_mw = self.driver.power_limit_mw
        gpu.temperature_c = 54
        gpu.max_sm_clock_mhz = self.driver.sm_clock_mhz
        gpu.sm_clock_mhz = min(1_755, gpu.max_sm_clock_mhz)
        gpu.mem_clock_mhz, gpu.max_mem_clock_mhz = 2_619, 2_619
        gpu.persistence_mode = 1
        gpu.fan_percent = 30
        gpu.pcie_tx_bytes_per_s, gpu.pcie_rx_bytes_per_s = 1 << 20, 2 << 20
        gpu.nvlink_count = self.driver.nvlink_count
        gpu.supported_events = _ORDINARY_EVENTS
        gpu.mig_pending = NO_OVERRIDE
        gpu.value_type = UNSIGNED_INT
        gpu.ring_depth = 120
        gpu.rates_percent = NO_OVERRIDE
        self.gpm(slot, sm=1.0, occupancy=0.5, tensor=0.4, dram=0.3, supported=self.driver.has_gpm)
        self.wave(slot, period_s=1.0, busy_ratio=0.0)

    def uuid(self, slot: int) -> str:
        """The UUID that this GPU was given."""
        return f"GPU-fa4e0000-0000-0000-0000-{slot:012d}"
