"""The page on a GPU that is not like others: in trouble, under-filled, or cut up by MIG."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.board.troubles import ErrorTimes
from gpumon.core.judge.verdict_rules import judge
from gpumon.core.state import CollectorState, GpuState
from gpumon.core.time.totals import GpuTotals
from tests.builders_fill import gpm_fill, power_fill
from tests.builders_state import device, healthy_gpu, starved_gpu
from tests.e2e.open_page import Show

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LOST = "the GPU is lost (NVML 15): look for Xid 79 in `dmesg`"


def with_xids(gpu: GpuState, *xids: tuple[int, int]) -> GpuState:
    """The GPU with these errors, all of them new."""
    return gpu._replace(xid_errors=xids, errors=ErrorTimes(tuple((xid, 2**62) for xid, _ in xids)))


def parent() -> GpuState:
    me = device(0, "GPU-a", mig_enabled=True)
    nothing = GpuTotals()
    return healthy_gpu(device=me, totals=nothing, last_sample_at_ns=None, verdict=judge(nothing))


def part(number: int, like: GpuState) -> GpuState:
    me = replace(like.device, uuid=f"MIG-{number}", index=0, parent_uuid="GPU-a", mig_index=number)
    return like._replace(device=me)


class TestAGpuInTrouble:
    def test_that_is_lost_after_xid_79_is_all_that_is_read_first(self, watch: Show) -> None:
        page = watch(starved_gpu(), with_xids(healthy_gpu(present=False, error=LOST), (79, 1)))
        page.until("#sentence", r"^GPU 1 cannot be read, and reported XID 79 \(the GPU fell off")
        page.until("#next", "GPU 1: reboot, or cut the machine's power")

        assert "GPU 0 is starved" in page.text("#sentence")
        assert page.tone == "bad"
        line = page.text(".gpu-line >> nth=0")  # the worst first
        assert line.startswith(f"not answering: {LOST} · reported XID 79 (the GPU fell off")
        assert page.page.title() == "GPU 1: lost · gpumon"

    def test_that_still_works_is_not_only_kept_busy(self, watch: Show) -> None:
        page = watch(with_xids(healthy_gpu(), (48, 2)))
        page.until("#sentence", r"^GPU 1 reported XID 48 \(two bits .*\)\. GPU 1 is kept busy")
        page.until("#why", r"^GPU 1 reported XID 48 \(two bits .*\) 2 times\.")

        assert page.text(".gpu-line").startswith("reported XID 48")
        assert page.text("#causes caption").endswith(": XID 48, healthy")
        assert page.page.locator(".gpu").get_attribute("data-verdict") == "absent"

    def test_by_a_program_stands_after_a_loss(self, watch: Show) -> None:
        page = watch(starved_gpu(), with_xids(healthy_gpu(), (31, 3)))

        page.until("#sentence", r"^GPU 0 is starved.*\. GPU 1 reported XID 31 \(")

    def test_that_vanished_says_so_in_its_lane(self, watch: Show) -> None:
        page = watch(starved_gpu(present=False, listed=False), healthy_gpu())
        page.until("#sentence", r"^GPU 0 \(GPU-11111111…\) vanished\. GPU 1 is kept busy")

        assert page.text(".gpu-line >> nth=0") == "vanished: the driver lists it no longer"

    def test_that_was_lost_before_the_daemon_began_is_told_all_the_same(self, watch: Show) -> None:
        source = CollectorState("nvml", False, 0.0, 1, f"GPU 7: {LOST}")
        page = watch(healthy_gpu(), collectors=(source,))

        page.until("#sentence", r"^GPU 7 cannot be read\. GPU 1 is kept busy")
        page.until("#next", "GPU 7: look for Xid 79")

    def test_is_the_first_of_many_and_none_that_is_folded(self, watch: Show) -> None:
        eight = [healthy_gpu(device=device(index, f"GPU-{index}-aaaa")) for index in range(8)]
        eight[5] = with_xids(eight[5], (79, 1))
        eight[6] = with_xids(eight[6], (31, 1))
        page = watch(*eight)
        page.until("#sentence", r"^GPU 5 reported XID 79 .* GPU 6 reported XID 31 ")

        cards = page.page.locator(".gpu")
        names = [page.text(f".gpu-name >> nth={at}").split(" NV")[0] for at in range(3)]
        assert names == ["GPU 5", "GPU 6", "GPU 0"]
        is_open = [cards.nth(at).evaluate("card => card.open") for at in range(3)]
        assert is_open == [True, True, False]


class TestAnUnderFilledGpu:
    def test_is_named_in_the_headline_with_its_evidence_and_what_to_try(self, watch: Show) -> None:
        page = watch(healthy_gpu(fill=gpm_fill(0.24)))
        page.until(
            "#sentence", "GPU 1 is busy 99.%, but on average 24.% of its multiprocessors have work"
        )
        page.until(
            "#why", "in which it was busy more than 90 %: 24 % of the multiprocessors had work"
        )
        page.until("#next", "first a larger batch")

        assert page.tone == "warn"
        line = page.text(".gpu-line")
        assert "under-filled: on average 24 % of its multiprocessors have work" in line
        assert page.text("#causes caption").endswith("healthy")
        assert page.is_hidden("#gain")

    def test_is_only_suggested_by_power(self, watch: Show) -> None:
        page = watch(healthy_gpu(fill=power_fill(180.0)))
        page.until("#sentence", "but power 180 of 700.W suggests that little of it works")

        assert page.tone == "warn"

    def test_gives_way_to_a_real_loss(self, watch: Show) -> None:
        page = watch(starved_gpu(), healthy_gpu(fill=gpm_fill(0.24)))
        page.until("#sentence", "waiting for input cost")

        assert "under-filled: on average 24 %" in page.text(".gpu-line >> nth=1")

    def test_is_not_what_a_throttled_one_is(self, watch: Show) -> None:
        page = watch(healthy_gpu(fill=power_fill(180.0, held=0.8)))
        page.until("#sentence", "^GPU 1 had the clocks held down 80 % .*GPU 1 is kept busy")
        page.until("#why", "GPU 1 had the clocks held down 80 % of the busy time by heat")
        page.until("#next", "GPU 1: look at its fans and filters")

        assert page.tone == "warn"
        line = page.text(".gpu-line")
        assert "clocks held down 80 % of its busy time: hw thermal slowdown" in line
        assert page.count(".gpu.empty") == 1


class TestAGpuCutByMig:
    def test_is_a_line_above_its_instances_and_no_idle_gpu(self, watch: Show) -> None:
        page = watch(parent(), part(0, healthy_gpu()), part(1, starved_gpu()))
        page.until("#sentence", "GPU 0:1 is starved: waiting for input cost")

        assert page.text(".gpu-name >> nth=1").startswith("GPU 0:0")
        assert "MIG is on: its instances are below" in page.text(".gpu-line >> nth=0")
        lanes = page.page.locator("canvas.lane")
        assert [lanes.nth(at).is_visible() for at in range(3)] == [False, True, True]
        assert page.count("#causes table") == 2

    def test_has_instances_that_are_unknown_where_nothing_tells(self, watch: Show) -> None:
        mute = part(0, parent())
        page = watch(parent(), mute._replace(device=replace(mute.device, mig_enabled=False)))
        page.until("#sentence", "GPU 0:0 does not tell how busy it is")

        assert "by GPM, which comes with Hopper" in page.text(".gpu-line >> nth=1")
        assert page.count("#causes table") == 0

    def test_has_an_instance_taken_away_without_an_alarm(self, watch: Show) -> None:
        gone = part(1, healthy_gpu(present=False, listed=False))
        page = watch(parent(), part(0, healthy_gpu()), gone)
        page.until("#sentence", "^GPU 0:0 is kept busy")

        assert page.text(".gpu-line >> nth=2") == "no longer there"
