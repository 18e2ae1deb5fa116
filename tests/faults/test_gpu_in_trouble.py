"""What report, page and recording say of a GPU in trouble: a machine with one is not "healthy"."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.faulty_machine import Machine, gpu

BROKEN = 5
HW_THERMAL = 0x40


@pytest.fixture
def eight(tmp_path: Path, fake_library: Path) -> Iterator[Machine]:
    """Eight GPUs, all busy."""
    made = Machine(tmp_path, fake_library.parent, gpus=8)
    for slot in range(8):
        made.fake.wave(slot, period_s=1.0, busy_ratio=1.0)
    yield made
    made.fake.close()


def first_lines(text: str) -> str:
    """Verdict, Why and Next, unwrapped."""
    return " ".join(text.split("\n\n")[0].split())


class TestXid79OnGpu5OfEight:
    def test_is_what_report_and_page_begin_with(self, eight: Machine) -> None:
        with eight.serve() as daemon:
            daemon.wait_for(lambda state: gpu(state, 7)["observed_ns"] > 2e9)
            eight.fake.report_xid(BROKEN, 79)
            eight.fake.lose(BROKEN)
            daemon.wait_for(lambda state: not gpu(state, BROKEN)["present"])
            told = eight.gpumon("report").stdout
            over_web = daemon.report()["gpus"][BROKEN]
            state: dict[str, Any] = json.loads(daemon.get("/api/v1/state")[1])

        said = first_lines(told)
        assert said.startswith("Verdict: GPU lost: GPU 5 cannot be read. It reported XID 79 (the")
        assert "fell off the bus" in said
        assert "Next: GPU 5: reboot, or cut the machine's power" in said
        assert [(one["kind"], one["code"], one["count"]) for one in over_web["troubles"]] == [
            ("lost", None, None),
            ("xid", 79, 1),
        ]
        assert over_web["verdict"] != "lost"  # that word is of time
        (row,) = [line for line in told.splitlines() if line.startswith("5 ")]
        assert row.endswith("  lost")
        assert state["gpus"][BROKEN]["troubles"] == over_web["troubles"]
        assert state["gpus"][0]["troubles"] == []
