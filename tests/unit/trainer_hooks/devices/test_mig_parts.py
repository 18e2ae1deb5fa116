"""Specification of which part a process may use of a GPU that MIG has cut."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fakenvml.control import FakeNvml
from trainer_hooks import devices

Visible = Callable[[str], list[int]]
"""Sets ``$CUDA_VISIBLE_DEVICES`` and gives the indices that are left."""


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

        assert [gpu.index for gpu in devices.visible_gpus()] == [1, 2, 3]

    @pytest.mark.parametrize("name", ["MIG-", "MIG-no-such", "MIG-GPU-fa4e/7", "MIG-GPU-x/7/0/1"])
    def test_has_no_part_of_a_name_that_fits_none_or_several(
        self, visible: Visible, machine: FakeNvml, name: str
    ) -> None:
        machine.cut(0, parts=2)

        assert visible(name) == []
