"""The page on a machine with a GPU in trouble: headline, what to do, lane, table and title."""

from __future__ import annotations

from typing import Any

import pytest

from gpumon.core.board.troubles import ErrorTimes
from gpumon.core.documents.report_codec import encode_report
from gpumon.core.state import CollectorState, GpuState
from gpumon.pipeline.reports import report_of
from tests.builders_state import device, healthy_gpu, monitor_state, starved_gpu
from tests.e2e.open_page import recent, showing

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LOST = "the GPU is lost (NVML 15): look for Xid 79 in `dmesg`"


def with_xids(gpu: GpuState, *xids: tuple[int, int]) -> GpuState:
    """The GPU with these errors, all of them new."""
    return gpu._replace(xid_errors=xids, errors=ErrorTimes(tuple((xid, 2**62) for xid, _ in xids)))


def watching(*gpus: GpuState, collectors: tuple[CollectorState, ...] = ()) -> Any:
    state = recent(monitor_state(gpus=gpus, runs=(), collectors=collectors))
    return showing(state, report=lambda _: encode_report(report_of(state)))


class TestAGpuInTrouble:
    def test_that_is_lost_after_xid_79_is_all_that_is_read_first(self, visit: Any) -> None:
        lost = with_xids(healthy_gpu(present=False, error=LOST), (79, 1))
        with watching(starved_gpu(), lost) as server:
            page = visit(server)
            page.until(
                "#sentence", r"^GPU 1 cannot be read, and reported XID 79 \(the GPU fell off"
            )
            page.until("#next", "GPU 1: reboot, or cut the machine's power")

            assert "GPU 0 is starved" in page.text("#sentence")
            assert page.page.locator("#verdict").get_attribute("data-tone") == "bad"
            line = page.text(".gpu-line >> nth=0")  # the worst first
            assert line.startswith(f"not answering: {LOST} · reported XID 79 (the GPU fell off")
            assert page.page.title() == "GPU 1: lost · gpumon"
            assert page.faults == []

    def test_that_still_works_is_not_only_kept_busy(self, visit: Any) -> None:
        with watching(with_xids(healthy_gpu(), (48, 2))) as server:
            page = visit(server)
            page.until("#sentence", r"^GPU 1 reported XID 48 \(two bits .*\)\. GPU 1 is kept busy")
            page.until("#why", r"^GPU 1 reported XID 48 \(two bits .*\) 2 times\.")

            assert page.text(".gpu-line").startswith("reported XID 48")
            assert page.text("#causes caption").endswith(": XID 48, healthy")
            assert page.page.locator(".gpu").get_attribute("data-verdict") == "absent"

    def test_by_a_program_stands_after_a_loss(self, visit: Any) -> None:
        with watching(starved_gpu(), with_xids(healthy_gpu(), (31, 3))) as server:
            page = visit(server)
            page.until("#sentence", r"^GPU 0 is starved.*\. GPU 1 reported XID 31 \(")

    def test_that_vanished_says_so_in_its_lane(self, visit: Any) -> None:
        with watching(starved_gpu(present=False, listed=False), healthy_gpu()) as server:
            page = visit(server)
            page.until("#sentence", r"^GPU 0 \(GPU-11111111…\) vanished\. GPU 1 is kept busy")

            assert page.text(".gpu-line >> nth=0") == "vanished: the driver lists it no longer"

    def test_that_was_lost_before_the_daemon_began_is_told_all_the_same(self, visit: Any) -> None:
        source = CollectorState("nvml", False, 0.0, 1, f"GPU 7: {LOST}")
        with watching(healthy_gpu(), collectors=(source,)) as server:
            page = visit(server)
            page.until("#sentence", r"^GPU 7 cannot be read\. GPU 1 is kept busy")
            page.until("#next", "GPU 7: look for Xid 79")

    def test_is_the_first_of_many_and_none_that_is_folded(self, visit: Any) -> None:
        eight = [healthy_gpu(device=device(index, f"GPU-{index}-aaaa")) for index in range(8)]
        eight[5] = with_xids(eight[5], (79, 1))
        eight[6] = with_xids(eight[6], (31, 1))
        with watching(*eight) as server:
            page = visit(server)
            page.until("#sentence", r"^GPU 5 reported XID 79 .* GPU 6 reported XID 31 ")

            cards = page.page.locator(".gpu")
            names = [page.text(f".gpu-name >> nth={at}").split(" NV")[0] for at in range(3)]
            assert names == ["GPU 5", "GPU 6", "GPU 0"]
            is_open = [cards.nth(at).evaluate("card => card.open") for at in range(3)]
            assert is_open == [True, True, False]
