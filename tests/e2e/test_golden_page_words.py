"""The golden words of the page: what it says first of small machines, and what each lane says."""

from __future__ import annotations

from typing import Any

import pytest

from gpumon.core.board.troubles import ErrorTimes
from gpumon.core.documents.report_codec import encode_report
from gpumon.core.judge.verdict_rules import judge
from gpumon.core.phase import IdleCause
from gpumon.core.state import GpuState, MonitorState
from gpumon.core.time.totals import GapTotals, GpuTotals
from gpumon.pipeline.reports import report_of
from tests.builders_fill import gpm_fill, power_fill
from tests.builders_state import S, device, healthy_gpu, monitor_state, run, starved_gpu
from tests.e2e.open_page import recent, showing
from tests.golden_files import Chapters, golden_story

pytestmark = [pytest.mark.browser, pytest.mark.slow]

READ_FIRST = ("#sentence", "#why", "#next", "#gain")
UNKNOWN, SAVE = IdleCause.UNKNOWN, IdleCause.CHECKPOINT
NO_TIME = GpuTotals()
PAUSES = GapTotals(count=10, total_ns=25 * S, longest_ns=3 * S, p50_ns=5 * S // 2)


def used(busy_s: int, *, index: int = 0, **idle_s: int) -> GpuState:
    """A GPU that was in use for all that time."""
    idle_ns = {IdleCause(cause): seconds * S for cause, seconds in idle_s.items()}
    whole_ns = busy_s * S + sum(idle_ns.values())
    totals = GpuTotals(
        observed_ns=whole_ns, busy_ns=busy_s * S, idle_ns=idle_ns, in_use_ns=whole_ns,
        in_use_busy_ns=busy_s * S, low_ns=whole_ns - busy_s * S, high_ns=busy_s * S,
    )  # fmt: skip
    return healthy_gpu(device=device(index, f"GPU-{index}"), totals=totals, verdict=judge(totals))


def suspected(index: int = 0) -> GpuState:
    one = used(55, index=index, unknown=25)
    totals = one.totals._replace(suspected_ns=25 * S, pauses=PAUSES, gaps=PAUSES)
    return one._replace(totals=totals, verdict=judge(totals))


def with_xid(gpu: GpuState, xid: int) -> GpuState:
    return gpu._replace(xid_errors=((xid, 2),), errors=ErrorTimes(((xid, 2**62),)))


@golden_story
def test_words_of_the_page(visit: Any) -> Chapters:
    states: list[MonitorState] = []

    def reported(_: object) -> dict[str, Any]:
        """The report of the newest state; a note tells the page which one that is."""
        return {**encode_report(report_of(states[-1])), "notes": [f"State {len(states)}."]}

    def said(*gpus: GpuState, **changes: Any) -> str:
        """The first words of the page, and the line of each GPU."""
        told = {"runs": (), "collectors": (), "gpus": gpus, **changes}
        states.append(recent(monitor_state(**told)))
        server.publish(states[-1])
        page.until("#notes", f"^State {len(states)}\\.$")
        lines = [page.text(name) for name in READ_FIRST if page.page.locator(name).is_visible()]
        # The page moves no lane at once: their order is specified in test_page_many_gpus.py.
        lanes = sorted(zip(page.texts(".gpu-name"), page.texts(".gpu-line"), strict=True))
        return "\n".join([*lines, *(f"{name}: {line}" for name, line in lanes)])

    cut = healthy_gpu(device=device(0, "GPU-a", mig_enabled=True), totals=NO_TIME)
    cut = cut._replace(verdict=judge(NO_TIME), last_sample_at_ns=None)
    instance: dict[str, Any] = {"uuid": "MIG-1", "parent_uuid": "GPU-a", "mig_index": 1}
    lost = starved_gpu(present=False, error="the GPU is lost (NVML 15): look for Xid 79 in `dmesg`")
    with showing(report=reported) as server:
        page = visit(server.address)
        return {
            "no GPU": said(),
            "a healthy one": said(used(98, index=1, unknown=2)),
            "one that waits for input, and more is suspected": said(starved_gpu()),
            "one that saves": said(used(80, checkpoint=20)),
            "two that are held up": said(
                used(80, checkpoint=20), used(88, index=1, imbalance=8, within_step=4)
            ),
            "one that saves, and more is unknown": said(used(70, checkpoint=14, unknown=16)),
            "two that pause": said(suspected(), suspected(3)),
            "one at a level": said(used(50, unknown=50)),
            "one that has just begun": said(used(4)),
            "one without work": said(healthy_gpu(totals=NO_TIME, verdict=judge(NO_TIME))),
            "one that is busy and empty": said(healthy_gpu(fill=gpm_fill(0.24))),
            "one of which power suggests that": said(healthy_gpu(fill=power_fill(180.0))),
            "one that heat holds down": said(healthy_gpu(fill=power_fill(180.0, held=0.8))),
            "one that is lost": said(lost),
            "one that is lost beside another": said(lost, healthy_gpu()),
            "one that vanished beside another": said(
                starved_gpu(present=False, listed=False), healthy_gpu()
            ),
            "one with XID 79, and one that waits": said(starved_gpu(), with_xid(healthy_gpu(), 79)),
            "one with XID 31, and one that waits": said(starved_gpu(), with_xid(healthy_gpu(), 31)),
            "one that is cut, and its instance works": said(
                cut, healthy_gpu(device=device(0, **instance))
            ),
            "one that is cut, and its instance does not tell": said(
                cut, cut._replace(device=device(0, **instance))
            ),
            "one that is cut, and has none": said(cut),
            "one whose training is over": said(
                starved_gpu(), runs=(run(alive=False, phase=None),)
            ),
        }  # fmt: skip
