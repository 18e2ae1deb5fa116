"""What the driver is asked for, how often, and what is reported about a GPU."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from tests.fakenvml import codes
from tests.fakenvml.build import fake_env
from tests.fakenvml.control import FakeNvml
from tests.needs import without_driver
from tests.programs import ran_python
from trainer_hooks import devices


class TestAGpu:
    def test_is_recorded_as_the_driver_describes_it(self, machine: FakeNvml) -> None:
        assert devices.visible_gpus()[1] == devices.Gpu(
            number=1,
            index=1,
            uuid=machine.uuid(1),
            name="NVIDIA H100 80GB HBM3",
            memory_bytes=85_520_809_984,
            parent_uuid=None,
            is_certain=True,
        )

    def test_has_cudas_number_beside_the_machines(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")

        assert [(gpu.number, gpu.index) for gpu in devices.visible_gpus()] == [(0, 3), (1, 1)]

    def test_lost_gpu_has_no_number_and_the_others_move_up(self, machine: FakeNvml) -> None:
        machine.lose(1)

        assert [(gpu.number, gpu.index) for gpu in devices.visible_gpus()] == [
            (0, 0),
            (1, 2),
            (2, 3),
        ]

    def test_whose_memory_cannot_be_asked_has_no_answer_there(self, machine: FakeNvml) -> None:
        machine.fail("nvmlDeviceGetMemoryInfo", 3)

        assert {gpu.memory_bytes for gpu in devices.visible_gpus()} == {None}


class TestTheDriver:
    def test_is_asked_once_and_let_go(self, machine: FakeNvml) -> None:
        for _ in range(5):
            devices.visible_gpus()
            devices.gpu_count()

        assert machine.calls("nvmlInitWithFlags") == machine.calls("nvmlShutdown") == 1

    def test_is_asked_again_after_a_refresh(self, machine: FakeNvml) -> None:
        before = devices.gpu_count()
        machine.control.gpu_count = 2
        remembered = devices.gpu_count()
        devices.refresh()

        assert (before, remembered, devices.gpu_count()) == (4, 4, 2)

    def test_is_asked_once_by_many_threads(self, machine: FakeNvml) -> None:
        machine.delay("nvmlInitWithFlags", 20_000)
        counts: list[int] = []
        threads = [
            threading.Thread(target=lambda: counts.append(devices.gpu_count())) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert counts == [4] * 8
        assert machine.calls("nvmlInitWithFlags") == 1

    @pytest.mark.parametrize("function", ["nvmlInitWithFlags", "nvmlDeviceGetCount_v2"])
    def test_failing_driver_gives_no_gpu_and_no_error(
        self, machine: FakeNvml, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, function: str
    ) -> None:
        monkeypatch.setattr(devices, "PROC_GPUS", tmp_path / "none")
        machine.fail(function, codes.DRIVER_NOT_LOADED)

        assert devices.visible_gpus() == ()
        assert devices.gpu_count() == 0

    def test_without_nvml_is_read_from_its_kernel_module(
        self, machine: FakeNvml, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        machine.fail("nvmlInitWithFlags", codes.DRIVER_NOT_LOADED)
        gpus = tmp_path / "gpus"
        monkeypatch.setattr(devices, "PROC_GPUS", gpus)
        for bus, uuid in (("0000:3b:00.0", "GPU-8932f937"), ("0000:1a:00.0", "GPU-????????")):
            (gpus / bus).mkdir(parents=True)
            (gpus / bus / "information").write_text(
                f"Model: \t\t NVIDIA A10\nIRQ:   \t\t 49\nGPU UUID: \t {uuid}\n"
                f"Video BIOS: \t 94.02\nBus Location: \t {bus}\n"
            )

        assert [(gpu.index, gpu.name, gpu.uuid) for gpu in devices.visible_gpus()] == [
            (0, "NVIDIA A10", None),
            (1, "NVIDIA A10", "GPU-8932f937"),
        ]


class TestAFreshProcess:
    SCRIPT = """
import json, sys, threading
import trainer_hooks
before = sorted(sys.modules)
count = trainer_hooks.devices.gpu_count()
loaded = {name.partition(".")[0] for name in sys.modules}
print(json.dumps([count, "pynvml" in before, sorted(loaded), threading.active_count()]))
"""

    def ask(self, environ: dict[str, str]) -> tuple[int, bool, set[str], int]:
        done = ran_python("-c", self.SCRIPT, environ=environ)
        count, early, loaded, threads = json.loads(done.stdout)
        assert done.stderr == ""
        return count, early, set(loaded), threads

    def test_counts_gpus_without_importing_any_framework(
        self, machine: FakeNvml, fake_library: Path
    ) -> None:
        count, early, loaded, threads = self.ask(fake_env(machine.path, fake_library.parent))

        assert (count, early, threads) == (4, False, 1)
        assert "pynvml" in loaded
        assert loaded & {"torch", "tensorflow", "jax", "keras", "numpy", "cupy"} == set()

    def test_without_a_driver_counts_none(self) -> None:
        assert self.ask(without_driver())[0] == 0
