"""Specification of what ``$CUDA_VISIBLE_DEVICES`` leaves, of GPUs and their parts, as CUDA says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpumon.core.attribution.visible_devices import cuda_devices
from gpumon.core.sample import Device
from tests.fakenvml.control import FakeNvml
from trainer_hooks import devices

SMALLER = b"NVIDIA L4"

Visible = Callable[[str], list[int]]
"""Sets ``$CUDA_VISIBLE_DEVICES`` and gives the indices that are left."""


class TestTheVisibleDevices:
    def test_are_all_where_the_variable_is_unset(self) -> None:
        assert [gpu.index for gpu in devices.visible_gpus()] == [0, 1, 2, 3]
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
            ("1gpu,+2,0x3", [1, 2, 0]),  # as C reads numbers
        ],
    )
    def test_are_those_the_variable_numbers(
        self, visible: Visible, text: str, seen: object
    ) -> None:
        assert visible(text) == seen

    @pytest.mark.parametrize("wrong", ["-1", "4", "9" * 20, "x", "", "GPU-fa4e"])
    def test_end_before_a_number_that_is_none(self, visible: Visible, wrong: str) -> None:
        assert visible(f"2,{wrong},1") == [2]

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

    def test_need_a_name_that_is_more_than_its_kind(self) -> None:
        """CUDA finds nothing by ``GPU-`` where there is one GPU alone, whose UUID begins so."""
        whole = Device(uuid="GPU-8932f937", index=0)
        cut = Device(uuid="GPU-1", index=0, mig_enabled=True)
        instance = Device(uuid="MIG-8932", index=0, parent_uuid="GPU-1", mig_index=0)

        assert cuda_devices("GPU-", [whole]) == ()
        assert cuda_devices("MIG-", [cut, instance]) == ()

    @pytest.mark.parametrize("other", ["0", "MIG-1", "8932"])
    def test_end_where_uuids_change_to_another_kind(
        self, visible: Visible, machine: FakeNvml, other: str
    ) -> None:
        assert visible(f"{machine.uuid(1)},{other},{machine.uuid(0)}") == [1]

    def test_are_read_again_by_every_call(self, visible: Visible, machine: FakeNvml) -> None:
        assert (visible("0"), visible("1,2"), visible("")) == ([0], [1, 2], [])
        assert machine.calls("nvmlInitWithFlags") == 1

    def test_may_be_an_endless_list_of_nonsense(self, visible: Visible) -> None:
        assert visible(",".join("0" for _ in range(100_000))) == []


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
    def test_is_certain_among_different_models_only_where_something_reports_so(
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

    def test_hides_the_complete_gpus_beside_it(self, machine: FakeNvml) -> None:
        parts = machine.cut(2, parts=1)

        assert [gpu.uuid for gpu in devices.visible_gpus()] == [*parts]

    def test_is_nothing_without_a_part(self, machine: FakeNvml) -> None:
        machine.cut(0, parts=0)

        assert [gpu.index for gpu in devices.visible_gpus()] == [1, 2, 3]

    @pytest.mark.parametrize("name", ["MIG-", "MIG-no-such", "MIG-GPU-fa4e/7", "MIG-GPU-x/7/0/1"])
    def test_has_no_part_of_a_name_that_fits_none_or_several(
        self, visible: Visible, machine: FakeNvml, name: str
    ) -> None:
        machine.cut(0, parts=2)

        assert visible(name) == []
