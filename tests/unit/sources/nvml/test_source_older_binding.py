"""The oldest nvidia-ml-py that is supported declares less; gpumon asks the driver all the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pynvml
import pytest

from gpumon.sources.nvml import binding
from gpumon.sources.nvml.fields.table import NVML_FIELDS
from tests.builders_driver import Fake
from tests.fakenvml.build import fake_env

NOT_YET_DECLARED = (
    "NVML_FI_DEV_PCIE_COUNT_RX_BYTES",
    "NVML_FI_DEV_PCIE_COUNT_TX_BYTES",
    "ProcessesUtilizationInfo_v1",
    "c_nvmlProcessUtilizationInfo_v1_t",
    "c_nvmlProcessesUtilizationInfo_v1_t",
    "c_nvmlTemperature_v1_t",
    "nvmlTemperature_v1",
)
PROGRAM = f"""
import pynvml
for name in {NOT_YET_DECLARED}:
    delattr(pynvml, name)
from gpumon.sources.nvml.source import NvmlSource
from gpumon.sources.nvml.fields.table import NVML_FIELDS, nvml_options
from gpumon.sources.nvml.probe.probe import NvmlProbe
from gpumon.sources.system_clock import SystemClock

options = nvml_options(on=[field.name for field in NVML_FIELDS if field.opt_in])
source = NvmlSource(SystemClock(), options=options)
gpu = source.read().gpus[0]
source.close()
probe = NvmlProbe(SystemClock(), options=options)
found = probe.ask_all().gpus[0]
probe.close()
refused = [one.field.name for one in found.fields if not one.works]
print(gpu.error, gpu.temperature_celsius, len(gpu.processes), refused)
"""


class TestAnOlderBinding:
    def test_is_enough_for_every_field(self, fake: Fake, fake_library: Path) -> None:
        fake.run(0, 4711)

        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=fake_env(fake.path, fake_library.parent),
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

        assert done.stdout == "None 54.0 1 []\n", done.stderr

    @pytest.mark.parametrize(
        ("ours", "theirs"),
        [
            ("TemperatureV1", "c_nvmlTemperature_v1_t"),
            ("ProcessUtilizationInfoV1", "c_nvmlProcessUtilizationInfo_v1_t"),
            ("ProcessesUtilizationInfoV1", "c_nvmlProcessesUtilizationInfo_v1_t"),
        ],
    )
    def test_is_helped_with_what_a_newer_one_declares(self, ours: str, theirs: str) -> None:
        def places(structure: object) -> list[tuple[str, int, int]]:
            fields = [name for name, *_ in structure._fields_]  # type: ignore[attr-defined]
            found = [(name, getattr(structure, name)) for name in fields]
            return [(name, field.offset, field.size) for name, field in found]

        assert places(getattr(binding, ours)) == places(getattr(pynvml, theirs))

    def test_is_helped_with_the_same_numbers(self) -> None:
        numbers = {one.told_as: one.field_id for field in NVML_FIELDS for one in field.counters}
        assert numbers == {
            "pcie_transmitted_bytes_per_second": pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
            "pcie_received_bytes_per_second": pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES,
            "nvlink_transmitted_bytes_per_second": pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
            "nvlink_received_bytes_per_second": pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
        }
        assert pynvml.nvmlTemperature_v1 == binding.TEMPERATURE_V1
        assert pynvml.ProcessesUtilizationInfo_v1 == binding.PROCESSES_UTILIZATION_V1
