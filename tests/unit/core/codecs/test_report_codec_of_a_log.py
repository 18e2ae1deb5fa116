"""Tests of the parts of a report document that only a log has."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gpumon.core.codecs.report_codec import decode_report, encode_report
from gpumon.core.log_summary.common_pauses import Together
from gpumon.core.log_summary.held_memory import HeldMemory
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import Report, sampling_of
from tests.builders.report import gpu, report
from tests.builders.time import s

JOINED = Together(
    in_use_ns=s(60), all_paused_ns=s(20), all_pauses=4, in_use_gpu_ns=s(120), paused_gpu_ns=s(48),
    by_chance_ns=s(9), in_use=(0, 1), idle_beside_peer_ns=(0, s(8)),
)  # fmt: skip
HELD = HeldMemory(s(7_200), s(3_600), 70 << 30)


def of_a_log() -> Report:
    one = gpu(40, {IdleCause.UNKNOWN: 20, IdleCause.NOT_IN_USE: 40})
    other = gpu(32, {IdleCause.UNKNOWN: 28, IdleCause.START_UP: 40}, index=1)
    return replace(
        report(
            replace(one, idle_beside_peer_ns=0),
            replace(other, idle_beside_peer_ns=s(8), held_memory=HELD),
        ),
        together=JOINED,
        sampling=sampling_of(s(60)),
    )


@pytest.fixture
def document() -> dict[str, Any]:
    written: dict[str, Any] = json.loads(json.dumps(encode_report(of_a_log())))
    return written


class TestTheMachine:
    def test_is_the_sum_of_its_gpus(self, document: dict[str, Any]) -> None:
        machine = document["machine"]

        assert machine["gpus"] == 2
        assert machine["observed_seconds"] == pytest.approx(200)
        assert (machine["busy_ratio"], machine["lost_ratio"]) == (0.36, 0.24)
        assert machine["not_in_use_ratio"] == 0.4
        assert machine["all_paused_seconds"] == 20.0
        assert machine["observed_seconds"] == pytest.approx(
            sum(machine[f"{part}_seconds"] for part in ("busy", "lost", "not_in_use", "pending"))
        )


class TestADocument:
    def test_is_read_back(self, document: dict[str, Any]) -> None:
        decoded = decode_report(document)

        assert encode_report(decoded) == document
        assert (decoded.together, decoded.sampling) == (JOINED, sampling_of(s(60)))
        assert [one.held_memory for one in decoded.gpus] == [None, HELD]

    def test_has_held_memory_and_the_shortest_visible_pause(self, document: dict[str, Any]) -> None:
        assert document["gpus"][1]["held_memory"] == {
            "idle_seconds": 7200.0, "longest_seconds": 3600.0, "peak_bytes": 70 << 30,
        }  # fmt: skip
        assert document["sampling"] == {
            "period_seconds": 60.0, "shortest_visible_pause_seconds": 120.0, "is_coarse": True,
        }  # fmt: skip

    def test_may_lack_these_parts_if_of_an_older_version(self, document: dict[str, Any]) -> None:
        for name in ("machine", "sampling", "findings"):
            del document[name]
        for one in document["gpus"]:
            del one["idle_beside_peer_seconds"], one["held_memory"]

        decoded = decode_report(document)

        assert (decoded.together, decoded.sampling) == (None, None)
        assert decoded.gpus[1].held_memory is None
