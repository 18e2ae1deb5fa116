"""Specification of which GPUs a process may use: CUDA's answer, from NVML, without CUDA."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakenvml.build import fake_env
from tests.fakenvml.control import DRIVER_NOT_LOADED, FakeNvml
from trainer_hooks import devices

ROOT = Path(__file__).resolve().parents[3]
SMALLER = b"NVIDIA L4"

Visible = Callable[[str], list[int]]
"""Sets ``$CUDA_VISIBLE_DEVICES`` and gives the indices that are left."""


@pytest.fixture(autouse=True)
def machine(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNvml]:
    """Four equal GPUs, nothing said about which are visible, and nothing remembered."""
    fake_nvml.control.gpu_count = 4
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    devices.refresh()
    yield fake_nvml
    devices.refresh()


@pytest.fixture
def visible(monkeypatch: pytest.MonkeyPatch) -> Visible:
    def indices_with(text: str) -> list[int]:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", text)
        return [gpu.index for gpu in devices.visible_gpus()]

    return indices_with


def indices() -> list[int]:
    return [gpu.index for gpu in devices.visible_gpus()]


class TestAGpu:
    def test_is_told_as_the_driver_describes_it(self, machine: FakeNvml) -> None:
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

    def test_that_is_lost_has_no_number_and_the_others_move_up(self, machine: FakeNvml) -> None:
        machine.lose(1)

        assert [(gpu.number, gpu.index) for gpu in devices.visible_gpus()] == [
            (0, 0),
            (1, 2),
            (2, 3),
        ]

    def test_whose_memory_cannot_be_asked_has_no_answer_there(self, machine: FakeNvml) -> None:
        machine.fail("nvmlDeviceGetMemoryInfo", 3)

        assert {gpu.memory_bytes for gpu in devices.visible_gpus()} == {None}


class TestTheVisibleDevices:
    def test_are_all_where_the_variable_is_unset(self) -> None:
        assert indices() == [0, 1, 2, 3]
        assert devices.gpu_count() == 4

    @pytest.mark.parametrize(
        ("text", "seen"),
        [
            ("2", [2]),
            ("3,0", [3, 0]),
            (" 1 , 2 ", [1, 2]),
            ("0,1,", [0, 1]),
            ("", []),
            (" ", []),
            ("-1", []),
            ("NoDevFiles", []),
            ("void", []),
            ("none", []),
            ("all", []),
            (",0", []),
        ],
    )
    def test_are_those_the_variable_numbers(
        self, visible: Visible, text: str, seen: object
    ) -> None:
        assert visible(text) == seen

    @pytest.mark.parametrize("wrong", ["-1", "4", "9" * 20, "x", "", "GPU-fa4e"])
    def test_end_before_a_number_that_is_none(self, visible: Visible, wrong: str) -> None:
        assert visible(f"2,{wrong},1") == [2]

    def test_are_numbered_as_c_reads_numbers(self, visible: Visible) -> None:
        assert visible("1gpu,+2,0x3") == [1, 2, 0]

    @pytest.mark.parametrize("text", ["0,0", "1,2,1", "0,-1,0", "GPU-{3},GPU-{3}"])
    def test_are_none_where_one_is_named_twice_before_the_end(
        self, visible: Visible, machine: FakeNvml, text: str
    ) -> None:
        text = text.replace("GPU-{3}", machine.uuid(3))

        assert visible(text) == ([0] if "-1" in text else [])

    def test_may_be_named_by_uuid(self, visible: Visible, machine: FakeNvml) -> None:
        assert visible(f"{machine.uuid(2)}, {machine.uuid(0)}") == [2, 0]

    def test_may_be_named_by_the_beginning_of_a_uuid_if_only_one_begins_so(
        self, visible: Visible, machine: FakeNvml
    ) -> None:
        machine.gpu(1).uuid = b"GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
        machine.gpu(2).uuid = b"GPU-8944aaaa-d72c-4106-c12f-20bd9faed9f6"

        assert visible("GPU-8932f9,GPU-894") == [1, 2]
        assert visible("GPU-8932f9,GPU-89,GPU-8944") == [1]
        assert visible("GPU-") == []
        assert visible("GPU-8932f9,GPU-8932") == []

    @pytest.mark.parametrize("other", ["0", "MIG-1", "8932"])
    def test_end_where_uuids_change_to_another_kind(
        self, visible: Visible, machine: FakeNvml, other: str
    ) -> None:
        assert visible(f"{machine.uuid(1)},{other},{machine.uuid(0)}") == [1]

    def test_are_read_anew_by_every_call(self, visible: Visible, machine: FakeNvml) -> None:
        assert (visible("0"), visible("1,2"), visible("")) == ([0], [1, 2], [])
        assert machine.calls("nvmlInitWithFlags") == 1

    def test_may_be_an_endless_list_of_nonsense(self, visible: Visible) -> None:
        assert visible(",".join("0" for _ in range(100_000))) == []


class TestAGpuThatMigHasCut:
    def test_is_not_there_itself_but_its_first_part_is(
        self, visible: Visible, machine: FakeNvml
    ) -> None:
        first, _ = machine.cut(1, parts=2)
        visible("1")

        (part,) = devices.visible_gpus()
        assert (part.index, part.uuid, part.parent_uuid) == (1, first, machine.uuid(1))
        assert part.name == "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
        assert part.memory_bytes == 85_520_809_984 // 8

    @pytest.mark.parametrize("name", ["uuid", "prefix", "old"])
    def test_has_parts_that_may_be_named(
        self, monkeypatch: pytest.MonkeyPatch, machine: FakeNvml, name: str
    ) -> None:
        second = machine.cut(2, parts=3)[1]
        names = {"uuid": second, "prefix": second[:10], "old": f"MIG-{machine.uuid(2)}/8/0"}
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", names[name])

        assert [gpu.uuid for gpu in devices.visible_gpus()] == [second]
        assert devices.visible_gpus()[0].is_certain

    def test_gives_one_part_however_many_are_named(
        self, monkeypatch: pytest.MonkeyPatch, machine: FakeNvml
    ) -> None:
        parts = machine.cut(0, parts=3)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(reversed(parts)))

        assert [gpu.uuid for gpu in devices.visible_gpus()] == [parts[2]]

    def test_hides_the_whole_gpus_beside_it(self, machine: FakeNvml) -> None:
        parts = machine.cut(2, parts=1)

        assert [gpu.uuid for gpu in devices.visible_gpus()] == [*parts]

    def test_is_nothing_without_a_part(self, machine: FakeNvml) -> None:
        machine.cut(0, parts=0)

        assert indices() == [1, 2, 3]

    @pytest.mark.parametrize("name", ["MIG-", "MIG-no-such", "MIG-GPU-fa4e/7", "MIG-GPU-x/7/0/1"])
    def test_has_no_part_of_a_name_that_fits_none_or_several(
        self, visible: Visible, machine: FakeNvml, name: str
    ) -> None:
        machine.cut(0, parts=2)

        assert visible(name) == []


class TestTheOrderOfCudasNumbers:
    @pytest.mark.parametrize(
        ("order", "text", "certain"),
        [
            (None, None, False),
            ("FASTEST_FIRST", "0", False),
            ("PCI_BUS_ID", "0", True),
            (None, "GPU-fa4e0000-0000-0000-0000-000000000003", True),
        ],
    )
    def test_is_certain_among_different_models_only_where_something_says_so(
        self,
        monkeypatch: pytest.MonkeyPatch,
        machine: FakeNvml,
        order: str | None,
        text: str | None,
        certain: bool,
    ) -> None:
        machine.gpu(3).name = SMALLER
        for name, value in (("CUDA_DEVICE_ORDER", order), ("CUDA_VISIBLE_DEVICES", text)):
            if value is not None:
                monkeypatch.setenv(name, value)

        assert {gpu.is_certain for gpu in devices.visible_gpus()} == {certain}

    def test_follows_the_bus_as_nvml_does(self, machine: FakeNvml) -> None:
        machine.reorder([2, 0])

        assert [gpu.uuid for gpu in devices.visible_gpus()] == [machine.uuid(2), machine.uuid(0)]


class TestTheDriver:
    def test_is_asked_once_and_let_go(self, machine: FakeNvml) -> None:
        for _ in range(5):
            devices.visible_gpus()
            devices.gpu_count()

        assert machine.calls("nvmlInitWithFlags") == machine.calls("nvmlShutdown") == 1

    def test_is_asked_anew_after_a_refresh(self, machine: FakeNvml) -> None:
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
    def test_that_fails_is_no_gpu_and_no_error(
        self, machine: FakeNvml, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, function: str
    ) -> None:
        monkeypatch.setattr(devices, "PROC_GPUS", tmp_path / "none")
        machine.fail(function, DRIVER_NOT_LOADED)

        assert devices.visible_gpus() == ()
        assert devices.gpu_count() == 0

    def test_without_nvml_is_read_from_its_kernel_module(
        self, machine: FakeNvml, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        machine.fail("nvmlInitWithFlags", DRIVER_NOT_LOADED)
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
        done = subprocess.run(
            [sys.executable, "-c", self.SCRIPT],
            env={**environ, "PYTHONPATH": str(ROOT)}, cwd=ROOT,
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
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
        environ = {**os.environ, "LD_LIBRARY_PATH": ""}
        if Path("/proc/driver/nvidia/gpus").exists():
            pytest.skip("there is a driver on this machine")

        assert self.ask(environ)[0] == 0
