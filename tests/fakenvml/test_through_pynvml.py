"""Specification of the fake driver, as the real pynvml sees it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from tests.fakenvml import layout
from tests.fakenvml.build import fake_env
from tests.fakenvml.control import FakeNvml
from tests.fakenvml.layout import FUNCTIONS
from tests.processes import ending


@pytest.fixture
def nvml(fake_nvml: FakeNvml) -> Iterator[FakeNvml]:
    pynvml.nvmlInit()
    yield fake_nvml
    fake_nvml.fail_everything(0)


def stamps_and_percents(index: int = 0, after_us: int = 0) -> list[tuple[int, int]]:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    _, samples = pynvml.nvmlDeviceGetSamples(handle, pynvml.NVML_GPU_UTILIZATION_SAMPLES, after_us)
    return [(sample.timeStamp, sample.sampleValue.uiVal) for sample in samples]


class TestTheFakeDriver:
    def test_answers_what_pynvml_asks_of_a_gpu(self, nvml: FakeNvml) -> None:
        handle = pynvml.nvmlDeviceGetHandleByIndex(1)

        assert pynvml.nvmlDeviceGetCount() == 2
        assert pynvml.nvmlSystemGetDriverVersion() == "580.95.05"
        assert pynvml.nvmlDeviceGetUUID(handle) == nvml.uuid(1)
        assert pynvml.nvmlDeviceGetName(handle) == "NVIDIA H100 80GB HBM3"
        assert pynvml.nvmlDeviceGetPciInfo(handle).busId == "00000000:19:00.0"
        assert pynvml.nvmlDeviceGetPowerUsage(handle) == 310_500
        assert pynvml.nvmlDeviceGetMemoryInfo(handle).total == 85_520_809_984

    def test_lists_processes(self, nvml: FakeNvml) -> None:
        nvml.run(1, os.getpid(), memory_bytes=5 << 30, sm=42)
        handle = pynvml.nvmlDeviceGetHandleByIndex(1)

        (process,) = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        (use,) = pynvml.nvmlDeviceGetProcessUtilization(handle, 0)

        assert (process.pid, process.usedGpuMemory) == (os.getpid(), 5 << 30)
        assert (use.pid, use.smUtil) == (os.getpid(), 42)

    def test_adds_up_the_time_that_calls_were_told_to_take(self, nvml: FakeNvml) -> None:
        nvml.delay("nvmlDeviceGetCount_v2", 100)
        nvml.forget_calls()

        for _ in range(30):
            pynvml.nvmlDeviceGetCount()

        assert nvml.seconds_inside() == {"nvmlDeviceGetCount_v2": pytest.approx(0.003)}

    def test_counts_every_call(self, nvml: FakeNvml) -> None:
        nvml.forget_calls()

        for _ in range(3):
            pynvml.nvmlDeviceGetCount()

        assert nvml.all_calls() == {"nvmlDeviceGetCount_v2": 3}

    def test_exports_every_function_that_it_counts(self, fake_library: Path) -> None:
        import ctypes

        library = ctypes.CDLL(str(fake_library))

        assert [name for name in FUNCTIONS if not hasattr(library, name)] == []


class TestTheControlFile:
    def test_has_the_members_of_the_header_in_their_order(self) -> None:
        header = Path(layout.__file__).with_name("fake.h").read_text(encoding="utf-8")
        structs = re.findall(r"^struct fake_(\w+) \{(.*?)^\};", header, re.DOTALL | re.MULTILINE)
        members = {
            name: tuple(re.findall(r"^    [\w ]+ (\w+)(?:\[\w+\])?;", body, re.MULTILINE))
            for name, body in structs
        }

        mirrored = {
            "gpu": layout.GpuRecord,
            "part": layout.PartRecord,
            "process": layout.ProcessRecord,
            "function": layout.FunctionRecord,
            "event": layout.EventRecord,
            "entry": layout.EntryRecord,
            "wave": layout.WaveRecord,
            "activity": layout.ActivityRecord,
            "control": layout.ControlFile,
        }
        assert members == {
            name: tuple(field for field, *_ in record._fields_) for name, record in mirrored.items()
        }


class TestASignal:
    def test_is_a_wave_of_which_every_window_is_true(self, nvml: FakeNvml) -> None:
        nvml.wave(0, period_s=1.0, busy_ratio=0.7, phase_s=0.3)

        samples = stamps_and_percents()

        assert len(samples) == 120
        window_ns = nvml.gpu(0).window_ns
        for stamp_us, percent in samples:
            end_ns = (stamp_us - nvml.control.stamp_offset_us) * 1000
            truth = nvml.busy_ns(0, end_ns - window_ns, end_ns) / window_ns
            assert percent == pytest.approx(100 * truth, abs=0.6)

    def test_gives_only_what_is_newer_than_was_asked_for(self, nvml: FakeNvml) -> None:
        nvml.wave(0, period_s=60.0, busy_ratio=0.7)
        seen = stamps_and_percents()

        assert stamps_and_percents(after_us=seen[-4][0])[:3] == seen[-3:]

    def test_leaves_idle_windows_out_where_it_is_dry_when_idle(self, nvml: FakeNvml) -> None:
        nvml.wave(0, period_s=2.0, busy_ratio=0.5, dry_when_idle=True)

        samples = stamps_and_percents()

        assert 40 < len(samples) < 80
        assert all(percent > 0 for _, percent in samples)

    def test_is_not_found_where_nothing_is_new(self, nvml: FakeNvml) -> None:
        nvml.ring(0, [])

        with pytest.raises(pynvml.NVMLError_NotFound):
            stamps_and_percents()

    def test_can_be_any_ring_at_all(self, nvml: FakeNvml) -> None:
        nvml.ring(0, [(5, 30), (3, 255), (9, 100)])

        assert stamps_and_percents() == [(5, 30), (3, 255), (9, 100)]


class TestATrouble:
    def test_can_be_of_one_function_on_one_gpu(self, nvml: FakeNvml) -> None:
        nvml.fail("nvmlDeviceGetPowerUsage", 3, gpu=1)
        first, second = (pynvml.nvmlDeviceGetHandleByIndex(index) for index in (0, 1))

        assert pynvml.nvmlDeviceGetPowerUsage(first) == 310_500
        with pytest.raises(pynvml.NVMLError_NotSupported):
            pynvml.nvmlDeviceGetPowerUsage(second)

    def test_can_be_of_a_whole_gpu(self, nvml: FakeNvml) -> None:
        nvml.lose(1)

        with pytest.raises(pynvml.NVMLError_GpuIsLost):
            pynvml.nvmlDeviceGetHandleByIndex(1)
        assert pynvml.nvmlDeviceGetHandleByIndex(0)

    def test_can_be_of_everything(self, nvml: FakeNvml) -> None:
        nvml.fail_everything(999)

        with pytest.raises(pynvml.NVMLError_Unknown):
            pynvml.nvmlDeviceGetCount()

    def test_can_make_handles_void(self, nvml: FakeNvml) -> None:
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        nvml.reload_driver()

        with pytest.raises(pynvml.NVMLError_Uninitialized):
            pynvml.nvmlDeviceGetPowerUsage(handle)
        pynvml.nvmlInit()
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceGetPowerUsage(handle)

    def test_can_be_a_hang_that_the_test_ends(self, nvml: FakeNvml) -> None:
        nvml.delay("nvmlDeviceGetCount_v2", 30_000_000)
        asker = threading.Thread(target=pynvml.nvmlDeviceGetCount)
        started_s = time.monotonic()

        asker.start()
        while not nvml.waiting("nvmlDeviceGetCount_v2") and time.monotonic() < started_s + 5:
            time.sleep(0.01)
        assert asker.is_alive()
        nvml.delay("nvmlDeviceGetCount_v2", 0)
        asker.join(5)

        assert not asker.is_alive()
        assert time.monotonic() - started_s < 5


def test_another_process_sees_the_same_gpus_and_what_changes(
    fake_library: Path, tmp_path: Path
) -> None:
    with FakeNvml(tmp_path / "control", gpus=3) as fake:
        asker = subprocess.Popen(
            [
                sys.executable,
                "-uc",
                "import pynvml, sys; pynvml.nvmlInit(); h = pynvml.nvmlDeviceGetHandleByIndex(2)\n"
                "for _ in sys.stdin: print(pynvml.nvmlDeviceGetPowerUsage(h))",
            ],
            env=fake_env(fake.path, fake_library.parent),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with ending(asker) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            answers = []
            for milliwatts in (70_000, 700_000):
                fake.gpu(2).power_mw = milliwatts
                process.stdin.write("\n")
                process.stdin.flush()
                answers.append(process.stdout.readline().strip())

    assert answers == ["70000", "700000"]
