"""Tests of the NVML binding, also with the oldest supported nvidia-ml-py, which declares less."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pynvml
import pytest

from gpumon.errors import SourceUnavailableError
from gpumon.sources.nvml import binding
from gpumon.sources.nvml.binding import CallAccounts, NvmlLibrary
from gpumon.sources.nvml.fields.table import NVML_FIELDS
from tests.builders.driver import DriverStory, Fake
from tests.builders.driver_faults import DRAIN, INIT, LIST, POWER, RATES, TEMPERATURE
from tests.fakenvml import codes
from tests.fakenvml.build import fake_env

NO_DATA = 21
NOT_YET_DECLARED = (
    "NVML_FI_DEV_PCIE_COUNT_RX_BYTES",
    "NVML_FI_DEV_PCIE_COUNT_TX_BYTES",
    "ProcessesUtilizationInfo_v1",
    "c_nvmlProcessUtilizationInfo_v1_t",
    "c_nvmlProcessesUtilizationInfo_v1_t",
    "c_nvmlTemperature_v1_t",
    "nvmlTemperature_v1",
)
WITH_THE_OLDEST = f"""
import pynvml
for name in {NOT_YET_DECLARED}:
    delattr(pynvml, name)
from gpumon.cli.doctor.sampler_run import run_sampler
from gpumon.sources.nvml.fields.table import NVML_FIELDS, nvml_options
from gpumon.sources.system_clock import SystemClock

options = nvml_options(on=[field.name for field in NVML_FIELDS if field.opt_in])
frames, driver = run_sampler(SystemClock(), options, readings=3, every_s=0.18)
gpu = frames[-1].gpus[0]
refused = [one.field.name for one in driver.gpus[0].fields if not one.works]
print(gpu.error, gpu.temperature_celsius, len(gpu.processes), refused)
"""


class TestALibraryThatCannotBeOpened:
    def test_counts_as_an_error_of_that_call(self, fake: Fake) -> None:
        fake.fail(INIT, codes.UNKNOWN)
        accounts = CallAccounts()

        with pytest.raises(SourceUnavailableError):
            NvmlLibrary(accounts)

        assert accounts.totals().errors == ((INIT, codes.UNKNOWN, 1),)


class TestAnOpenLibrary:
    def test_leaves_the_functions_of_pynvml_unchanged(self, fake: Fake, handle: int) -> None:
        other = pynvml.nvmlDeviceGetHandleByIndex(1)

        assert pynvml.nvmlDeviceGetUUID(other) == fake.uuid(1)


class TestTextFromTheDriver:
    @pytest.mark.parametrize(
        ("raw", "shown"),
        [
            (b"/usr/bin/python3", "/usr/bin/python3"),
            (b"tr\xe4in", "tr\ufffdin"),
            (b"two\nlines", "two\ufffdlines"),
            ("\u202eevil".encode(), "\ufffdevil"),
            (b"x" * 1000, "x" * 128),
        ],
    )
    def test_of_a_process_is_printable_and_short(
        self, fake: Fake, library: NvmlLibrary, raw: bytes, shown: str
    ) -> None:
        fake.run(0, 4000, name=raw)

        assert library.process_name(4000) == shown


def errors(story: DriverStory) -> dict[tuple[str, int], int]:
    return {(name, code): count for name, code, count in story.state.call_errors}


class TestAnErrorOfTheDriver:
    @pytest.mark.parametrize(
        "ring", [codes.NOT_SUPPORTED, codes.NOT_FOUND], ids=["no-ring", "a-dry-ring"]
    )
    @pytest.mark.parametrize(
        ("function", "field"),
        [
            (POWER, "power"),
            (TEMPERATURE, "temperature"),
            ("nvmlDeviceGetMemoryInfo_v2", "memory"),
            ("nvmlDeviceGetTotalEccErrors", "ecc"),
            ("nvmlDeviceGetClockInfo", "clocks"),
            (LIST, "processes"),
            ("nvmlGpmSampleGet", "activity"),
        ],
    )
    def test_is_counted_and_is_a_fault_of_its_field_until_it_ends(
        self, fake: Fake, function: str, field: str, ring: int
    ) -> None:
        fake.wave(0, period_s=1.0, busy_ratio=1.0)
        story = fake.story(after_s=2)
        assert errors(story) == {}
        fake.fail(DRAIN, ring)
        fake.fail(function, codes.UNKNOWN, gpu=0)
        began_ns = fake.now_ns()

        story.tick(60)

        counted = errors(story)
        assert set(counted) == {(function, codes.UNKNOWN)}
        assert counted[function, codes.UNKNOWN] >= 3
        assert story.state.collectors[0].errors_total == sum(counted.values())
        (fault,) = story.sample(0).faults
        assert fault.field == field
        assert fault.since_ns - began_ns <= 16e9
        assert story.sample(1).faults == ()
        printed = story.message or ""
        assert printed.startswith("GPU 0: ")
        assert printed.endswith(f"its {field} fails: {fault.reason}")

        fake.fail(function, 0, gpu=0)
        story.tick(16)

        assert story.sample(0).faults == ()
        assert story.message is None
        assert errors(story) == counted

    @pytest.mark.parametrize(
        "code", [codes.NOT_SUPPORTED, codes.NOT_FOUND, codes.FUNCTION_NOT_FOUND, NO_DATA, 25]
    )
    def test_is_not_a_function_without_data(self, fake: Fake, code: int) -> None:
        fake.run(0, 4000)
        story = fake.story()
        for function in ("TemperatureV", "ProcessesUtilizationInfo", "ProcessUtilization"):
            fake.fail(f"nvmlDeviceGet{function}", code)

        story.tick(20)

        assert errors(story) == {}
        assert story.message is None

    @pytest.mark.parametrize("code", [codes.NOT_SUPPORTED, codes.NOT_FOUND])
    def test_is_not_utilisation_without_data_after_the_ring_ran_dry(
        self, fake: Fake, code: int
    ) -> None:
        fake.ring(0, [])
        fake.fail(RATES, code, gpu=0)
        story = fake.story()

        story.tick(20)

        assert story.sample(0).faults == ()
        assert story.message is None

    def test_of_permission_is_counted_once(self, fake: Fake) -> None:
        fake.fail(TEMPERATURE, codes.NO_PERMISSION, gpu=0)
        story = fake.story()

        story.tick(20)

        assert errors(story) == {(TEMPERATURE, codes.NO_PERMISSION): 1}
        assert story.message is None

    def test_on_two_threads_is_never_lost(self) -> None:
        accounts = CallAccounts()

        def add() -> None:
            for _ in range(20_000):
                accounts.count_call("f", 1, 999)

        threads = [threading.Thread(target=add) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert dict(accounts.totals().counts) == {"f": 40_000}
        assert accounts.totals().errors == (("f", 999, 40_000),)


class TestAnOlderBinding:
    def test_is_enough_for_every_field(self, fake: Fake, fake_library: Path) -> None:
        fake.run(0, 4711)

        environ = fake_env(fake.path, fake_library.parent)
        words = [sys.executable, "-c", WITH_THE_OLDEST]
        ended = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=60)

        assert ended.stdout == "None 54.0 1 []\n", ended.stderr

    @pytest.mark.parametrize(
        ("ours", "theirs"),
        [
            ("TemperatureV1", "c_nvmlTemperature_v1_t"),
            ("ProcessUtilizationInfoV1", "c_nvmlProcessUtilizationInfo_v1_t"),
            ("ProcessesUtilizationInfoV1", "c_nvmlProcessesUtilizationInfo_v1_t"),
        ],
    )
    def test_gets_the_structures_of_a_newer_one(self, ours: str, theirs: str) -> None:
        def places(structure: object) -> list[tuple[str, int, int]]:
            fields = [name for name, *_ in structure._fields_]  # type: ignore[attr-defined]
            found = [(name, getattr(structure, name)) for name in fields]
            return [(name, field.offset, field.size) for name, field in found]

        assert places(getattr(binding, ours)) == places(getattr(pynvml, theirs))

    def test_gets_the_constants_of_a_newer_one(self) -> None:
        numbers = {one.attribute: one.field_id for field in NVML_FIELDS for one in field.counters}
        assert numbers == {
            "pcie_transmitted_bytes_per_second": pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
            "pcie_received_bytes_per_second": pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES,
            "nvlink_transmitted_bytes_per_second": pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
            "nvlink_received_bytes_per_second": pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
        }
        assert pynvml.nvmlTemperature_v1 == binding.TEMPERATURE_V1
        assert pynvml.ProcessesUtilizationInfo_v1 == binding.PROCESSES_UTILIZATION_V1
