"""Specification of `dstat --gpu` on GPUs cut by MIG: instances work, so they have columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.state import GpuState
from tests.builders.dstat import Table, gpu, publish
from tests.builders.state import GIB


def part(number: int, observed_s: float = 100, **of_device: Any) -> GpuState:
    """An instance of GPU 0."""
    return gpu(
        0, observed_s=observed_s, busy_s=(0.25 + 0.5 * number) * observed_s,
        **{"uuid": f"MIG-{number}", "parent_uuid": "GPU-0", "mig_index": number, **of_device},
    )  # fmt: skip


def parent() -> GpuState:
    return gpu(0, observed_s=0, mig_enabled=True)


class TestTheColumns:
    @pytest.mark.parametrize(
        ("instances", "names", "busy"),
        [
            ([part(0), part(1)], ["gpu0:0", "gpu0:1"], [25, 75]),
            (
                [part(0), part(1, uuid="MIG-new"), part(1)._replace(present=False, listed=False)],
                ["gpu0:0", "gpu0:1"],
                [25, 75],
            ),
            ([part(0), part(1, observed_s=0)], ["gpu0:0", "gpu0:1"], [25, -1]),
        ],
        ids=["", "but for one that was there before", "also without an answer"],
    )
    def test_are_those_of_the_instances(
        self, runtime: Path, instances: list[GpuState], names: list[str], busy: list[int]
    ) -> None:
        publish(runtime, parent(), *instances)
        table = Table()
        table.row()

        assert table.plugin.name == names
        assert [table.plugin.val[name.removeprefix("gpu")][0] for name in names] == busy

    def test_stand_beside_those_of_whole_gpus(self, runtime: Path) -> None:
        publish(runtime, parent(), part(0), gpu(1))

        assert Table(full=True).plugin.name == ["gpu0:0", "gpu1"]

    def test_can_be_named(self, runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        publish(runtime, parent(), part(0), part(1))
        monkeypatch.setenv("DSTAT_GPU", "0:1")

        assert Table().plugin.name == ["gpu0:1"]

    def test_can_be_named_before_the_daemon_is_there(
        self, runtime: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DSTAT_GPU", "0:1,2")

        assert Table().plugin.name == ["gpu0:1", "gpu2"]

    def test_in_total_count_no_memory_twice(self, runtime: Path) -> None:
        half = {"memory_capacity_bytes": 60 * GIB}
        publish(runtime, parent(), part(0, **half), part(1, **half), gpu(1))
        table = Table()
        table.row()

        assert table.plugin.name == ["gpu-tot"]
        assert table.plugin.val["total"][1] == pytest.approx(100 * 180 / 240)

    @pytest.mark.parametrize(
        "label", [None, "", "0:\x1b[2J", ["0"], "1234567890", "\u0663", "\u00b2"]
    )
    def test_are_named_by_index_where_the_label_is_none(self, runtime: Path, label: object) -> None:
        publish(runtime, gpu(3))
        path = runtime / "state.json"
        document = json.loads(path.read_text())
        document["gpus"][0]["label"] = label
        path.write_text(json.dumps(document))

        assert Table().plugin.name == ["gpu3"]
