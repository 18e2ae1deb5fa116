"""The page on GPUs that are busy and under-filled, and on a GPU that MIG has cut into instances."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import pytest

from gpumon.core.documents.report_codec import encode_report
from gpumon.core.judge.verdict_rules import judge
from gpumon.core.state import GpuState, MonitorState
from gpumon.core.time.totals import GpuTotals
from gpumon.outlets.http.server import HttpServer
from gpumon.pipeline.reports import report_of
from tests.builders_fill import gpm_fill, power_fill
from tests.builders_state import device, healthy_gpu, monitor_state, starved_gpu
from tests.e2e.open_page import recent, showing

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def watching(*gpus: GpuState) -> AbstractContextManager[HttpServer]:
    """A page with the report that the daemon would make of these GPUs."""
    state: MonitorState = monitor_state(gpus=gpus, runs=(), collectors=())
    return showing(recent(state), report=lambda _: encode_report(report_of(state)))


def parent() -> GpuState:
    me = device(0, "GPU-a", mig_enabled=True)
    silent = healthy_gpu(device=me, totals=GpuTotals(), last_sample_at_ns=None)
    return silent._replace(verdict=judge(GpuTotals()))


def part(number: int, like: GpuState) -> GpuState:
    me = replace(like.device, uuid=f"MIG-{number}", index=0, parent_uuid="GPU-a", mig_index=number)
    return like._replace(device=me)


class TestAnUnderFilledGpu:
    def test_is_named_in_the_headline_with_its_evidence_and_what_to_try(self, visit: Any) -> None:
        with watching(healthy_gpu(fill=gpm_fill(0.24))) as server:
            page = visit(server)
            page.until(
                "#sentence",
                "GPU 1 is busy 99.%, but on average 24.% of its multiprocessors have work",
            )
            page.until(
                "#why",
                "in which it was busy more than 90 %: 24 % of the multiprocessors had work",
            )
            page.until("#next", "first a larger batch")

            assert page.page.locator("#verdict").get_attribute("data-tone") == "warn"
            assert "under-filled: on average 24 % of its multiprocessors have work" in page.text(
                ".gpu-line"
            )
            assert page.text("#causes caption").endswith("healthy")
            assert not page.page.locator("#gain").is_visible()

    def test_is_only_suggested_by_power(self, visit: Any) -> None:
        with watching(healthy_gpu(fill=power_fill(180.0))) as server:
            page = visit(server)

            page.until("#sentence", "but power 180 of 700.W suggests that little of it works")
            assert page.page.locator("#verdict").get_attribute("data-tone") == "warn"

    def test_gives_way_to_a_real_loss(self, visit: Any) -> None:
        with watching(starved_gpu(), healthy_gpu(fill=gpm_fill(0.24))) as server:
            page = visit(server)
            page.until("#sentence", "waiting for input cost")

            assert "under-filled: on average 24 %" in page.text(".gpu-line >> nth=1")

    def test_is_not_what_a_throttled_one_is(self, visit: Any) -> None:
        with watching(healthy_gpu(fill=power_fill(180.0, held=0.8))) as server:
            page = visit(server)
            page.until("#sentence", "^GPU 1 had the clocks held down 80 % .*GPU 1 is kept busy")

            page.until("#why", "GPU 1 had the clocks held down 80 % of the busy time by heat")
            page.until("#next", "GPU 1: look at its fans and filters")
            assert page.page.locator("#verdict").get_attribute("data-tone") == "warn"
            assert "clocks held down 80 % of its busy time: hw thermal slowdown" in page.text(
                ".gpu-line"
            )
            assert page.page.locator(".gpu.empty").count() == 1


class TestAGpuCutByMig:
    def test_is_a_line_above_its_instances_and_no_idle_gpu(self, visit: Any) -> None:
        with watching(parent(), part(0, healthy_gpu()), part(1, starved_gpu())) as server:
            page = visit(server)
            page.until("#sentence", "GPU 0:1 is starved: waiting for input cost")

            assert page.text(".gpu-name >> nth=1").startswith("GPU 0:0")
            assert "MIG is on: its instances are below" in page.text(".gpu-line >> nth=0")
            lanes = page.page.locator("canvas.lane")
            assert [lanes.nth(at).is_visible() for at in range(3)] == [False, True, True]
            assert page.page.locator("#causes table").count() == 2
            assert page.faults == []

    def test_has_instances_that_are_unknown_where_nothing_tells(self, visit: Any) -> None:
        mute = part(0, parent())
        mute = mute._replace(device=replace(mute.device, mig_enabled=False))
        with watching(parent(), mute) as server:
            page = visit(server)
            page.until("#sentence", "GPU 0:0 does not tell how busy it is")

            assert "by GPM, which comes with Hopper" in page.text(".gpu-line >> nth=1")
            assert page.page.locator("#causes table").count() == 0
            assert page.faults == []

    def test_has_an_instance_taken_away_without_an_alarm(self, visit: Any) -> None:
        gone = part(1, healthy_gpu())._replace(present=False, listed=False)
        with watching(parent(), part(0, healthy_gpu()), gone) as server:
            page = visit(server)
            page.until("#sentence", "^GPU 0:0 is kept busy")

            assert page.text(".gpu-line >> nth=2") == "no longer there"
