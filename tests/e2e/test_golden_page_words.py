"""The page, pinned word for word: small machines in its headline, lanes and tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpumon.core.accounting.suspicion import Suspicion
from gpumon.core.accounting.totals import GapTotals, GpuTotals, NowVerdict
from gpumon.core.device.idle_holder import HeldGpu
from gpumon.core.device.troubles import ErrorTimes
from gpumon.core.diagnosis.verdict_rules import diagnose
from gpumon.core.phase import IdleCause, InputWaitReason, TrainingPhase
from gpumon.core.report.report import Advice, Report
from gpumon.core.ring_format.silence import RunSilence
from gpumon.core.settings.input_model import LIKELY, UNLIKELY
from gpumon.core.state import CollectorState, GpuState, MonitorState
from gpumon.core.verdict import LikelyCause, VerdictName
from tests.builders.report import gpm_fill, power_fill, wait
from tests.builders.state import (
    HEALTHY_UUID,
    STARVED_UUID,
    S,
    device,
    healthy_gpu,
    monitor_state,
    run,
    starved_gpu,
)
from tests.e2e.open_page import ADVICE, recent, showing
from tests.golden_files import Chapters, golden_story
from tests.state_sequence import machine

pytestmark = [pytest.mark.browser, pytest.mark.slow]

READ_FIRST = ("#simulated", "#replayed", "#sentence", "#why", "#next")
NO_TIME = GpuTotals()
UNUSED = diagnose(NO_TIME)
PAUSES = GapTotals(count=10, total_ns=25 * S, longest_ns=3 * S, p50_ns=5 * S // 2)
LATE = (LikelyCause.LATE_INPUT,)
CHECKPOINTS = (LikelyCause.EVERY_N_STEPS, LikelyCause.OTHER_MACHINES)
ORIGIN_NS = monitor_state().taken_at_ns - 100 * S
SILENCE = RunSilence(
    ORIGIN_NS, TrainingPhase.INPUT_WAIT, 95 * S, hanging_from_ns=1, sleeps_in="futex_wait_queue"
)
LOST = "the GPU is lost (NVML 15): look for Xid 79 in `dmesg`"
ROLES = (VerdictName.STALLED, VerdictName.STARVED, VerdictName.HEALTHY)
SHARES = {STARVED_UUID: 0.6, HEALTHY_UUID: 0.4}
WHY = wait(InputWaitReason.CPU_BOUND, tasks=4, wanted=4.0, given=2.0, usable=2)
HELD_STEP = wait(
    InputWaitReason.GIL_BOUND, tasks=3, wanted=1.2, given=1.0, cause=IdleCause.WITHIN_STEP
)
OTHER_ADVICE = (
    replace(ADVICE, cause="imbalance", lost_seconds=45.0, speedup_upper_bound=1.42,
            evidence="It waited for a slower GPU.", text="Split them 5:9.",
            gpus=("1", "2", "0:1")),
    replace(ADVICE, cause="unknown", lost_seconds=9.5, speedup_upper_bound=None,
            evidence="The cause is unknown.", text="Tag the run.", gpus=("2",)),
    replace(ADVICE, cause="under_filled", lost_seconds=0.0, speedup_upper_bound=1.0,
            evidence="It is busy and empty.", text="Larger batches.", gpus=("3",)),
)  # fmt: skip


def used(busy_s: int, *, index: int = 0, **idle_s: int) -> GpuState:
    """A GPU that was in use for all that time."""
    idle_ns = {IdleCause(cause): seconds * S for cause, seconds in idle_s.items()}
    whole_ns = busy_s * S + sum(idle_ns.values())
    totals = GpuTotals(
        observed_ns=whole_ns, busy_ns=busy_s * S, idle_ns=idle_ns, in_use_ns=whole_ns,
        in_use_busy_ns=busy_s * S, low_ns=whole_ns - busy_s * S, high_ns=busy_s * S,
    )  # fmt: skip
    return healthy_gpu(
        device=device(index, f"GPU-{index}"), totals=totals, verdict=diagnose(totals)
    )


def stalled(gpu: GpuState, **idle_s: int) -> GpuState:
    idle_ns = {IdleCause(cause): seconds * S for cause, seconds in idle_s.items()}
    totals = gpu.totals._replace(
        idle_ns=idle_ns, suspected_ns=0, pending_ns=0,
        observed_ns=gpu.totals.busy_ns + sum(idle_ns.values()),
    )  # fmt: skip
    return gpu._replace(totals=totals, verdict=gpu.verdict._replace(name=VerdictName.STALLED))


def suspected(index: int = 0, probability: float = LIKELY) -> GpuState:
    one = used(55, index=index, unknown=25)
    is_late = probability == LIKELY
    totals = one.totals._replace(
        suspected_ns=25 * S if is_late else 0, pauses=PAUSES, gaps=PAUSES,
        suspicion=Suspicion(probability, LATE if is_late else CHECKPOINTS),
    )  # fmt: skip
    return one._replace(totals=totals, verdict=diagnose(totals))


def held_in_its_steps() -> GpuState:
    one = used(80, index=1, within_step=20)
    by_reason = {"gil_bound": 15 * S, "unknown": 5 * S}
    return one._replace(totals=one.totals._replace(within_step_by_reason_ns=by_reason))


def with_xid(gpu: GpuState, xid: int) -> GpuState:
    return gpu._replace(xid_errors=((xid, 2),), errors=ErrorTimes(((xid, ORIGIN_NS),)))


def partitioned() -> GpuState:
    me = device(0, "GPU-a", mig_enabled=True)
    return healthy_gpu(device=me, totals=NO_TIME, verdict=diagnose(NO_TIME), last_sample_at_ns=None)


def instance(number: int, like: GpuState) -> GpuState:
    me = device(0, f"MIG-{number}", parent_uuid="GPU-a", mig_index=number)
    return like._replace(device=me)


def at_present(
    name: VerdictName,
    *,
    before: VerdictName | None = None,
    is_over: bool = False,
    is_suspended: bool = False,
) -> GpuState:
    """A GPU whose last minute differs from the ten before."""
    has_starved = before is not None or is_over
    one = used(300, input_wait=300) if has_starved else used(600, input_wait=2)
    is_well = name is VerdictName.HEALTHY
    lately = used(60, input_wait=1).totals if is_well else used(45, input_wait=15).totals
    since_ns = ORIGIN_NS + 60 * S
    now = NowVerdict(
        name,
        since_ns,
        lately,
        diagnose(lately),
        since_ns if is_over else None,
        is_suspended,
        before,
    )
    return one._replace(now=now)


def held() -> GpuState:
    """A GPU of one hour on which a process has been for as long, and nothing has run."""
    totals = GpuTotals(observed_ns=3600 * S, idle_ns={IdleCause.NOT_IN_USE: 3600 * S})
    by = HeldGpu(4711, "1000", None, 20 << 30, ORIGIN_NS + 30 * S)
    return healthy_gpu(device=device(0, "GPU-0"), totals=totals, verdict=diagnose(totals), held=by)


def without_gaps(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line.strip())


@golden_story
def test_words_of_the_page(visit: Any) -> Chapters:
    states: list[MonitorState] = []
    advice: tuple[Advice, ...] | None = None

    def noted(report: Report) -> Report:
        """A note says the page which state it is on."""
        shown = replace(report, notes=(f"State {len(states)}.",))
        return shown if advice is None else replace(shown, advice=advice)

    def shown(*gpus: GpuState, **changes: Any) -> None:
        quiet = {"simulated": False, "runs": (), "collectors": ()}
        states.append(recent(monitor_state(**{**quiet, "gpus": gpus, **changes})))
        server.publish(states[-1])
        page.until("#notes", f"^State {len(states)}\\.$")

    def lines_on(*gpus: GpuState, **changes: Any) -> str:
        """The tone, the headline, the other advice, and what a reader sees of each GPU."""
        shown(*gpus, **changes)
        lines = [f"[{page.tone}] {page.page.title()}".replace("\u00a0", " ")]
        lines += [page.text(name) for name in READ_FIRST if page.page.locator(name).is_visible()]
        # What there is to read in advice is pinned by stories of its own.
        lines += [f"+ {item.splitlines()[0]}" for item in page.texts("#advice li")]
        places = page.page.locator(".tile-place").all()
        lines += [f"{tile_of(place)} [{place.get_attribute('data-tone')}]" for place in places]
        return "\n".join([*lines, *map(lane_of, page.page.locator(".lane").all())])

    def tile_of(place: Any) -> str:
        return " | ".join(place.inner_text().replace("\u00a0", " ").split("\n"))

    def lane_of(lane: Any) -> str:
        about = lane.locator(".about").inner_text().replace("\u00a0", " ")
        return "\n".join([line.strip() for line in about.splitlines() if line.strip()])

    def advised(shown: tuple[Advice, ...], *gpus: GpuState) -> str:
        """... where it is given that advice, which is reported wholly."""
        nonlocal advice
        advice = shown
        words = f"{lines_on(*gpus)}\n{without_gaps(page.text('#more'))}"
        advice = None
        return words

    def tables(*gpus: GpuState, **changes: Any) -> str:
        shown(*gpus, **changes)
        closed = page.page.locator(".open-details[aria-expanded=false]")
        while closed.count():
            closed.first.click()
        tables = [*page.texts(".times"), page.text("#run-table")]
        return without_gaps("\n".join(tables).replace("\t", " | "))

    lost = starved_gpu(present=False, error=LOST)
    gone = CollectorState("nvml", False, 0.0, 1, "the driver is not loaded: run `modprobe`")
    ended = run("old", alive=False, phase=None)
    with showing(change=noted) as server:
        page = visit(server.address)
        return {
            "no GPU": lines_on(),
            "a healthy one": lines_on(used(98, index=1, unknown=2)),
            "a simulated one": lines_on(used(98, index=1, unknown=2), simulated=True),
            "one of a recording": lines_on(used(98, index=1, unknown=2), replayed=True),
            "one that waits for input, and more pauses are suspected": lines_on(starved_gpu()),
            "two that pause": lines_on(suspected(), suspected(3)),
            "one whose pauses look like checkpoints": lines_on(suspected(probability=UNLIKELY)),
            "one that has just begun, and another": lines_on(used(4), healthy_gpu()),
            "one without work": lines_on(healthy_gpu(totals=NO_TIME, verdict=diagnose(NO_TIME))),
            "one that a process holds, and one without work": lines_on(
                held(), healthy_gpu(device=device(1, "GPU-1"), totals=NO_TIME, verdict=UNUSED)
            ),
            "one that saves, one that waits, and a healthy one": lines_on(
                *list(machine(140, ROLES))[-1].gpus
            ),
            "one with low SM utilisation": lines_on(healthy_gpu(fill=gpm_fill(0.24))),
            "one with low power": lines_on(healthy_gpu(fill=power_fill(180.0))),
            "one that is lost, and another": lines_on(lost, healthy_gpu()),
            "one that vanished, and another": lines_on(
                starved_gpu(present=False, listed=False), healthy_gpu()
            ),
            "a driver that is gone": lines_on(collectors=(gone,)),
            "one with XID 79, and one that waits": lines_on(
                starved_gpu(), with_xid(healthy_gpu(), 79)
            ),
            "one with XID 31, and one that waits": lines_on(
                starved_gpu(), with_xid(healthy_gpu(), 31)
            ),
            "a MIG-partitioned one, and one of two instances waits": lines_on(
                partitioned(), instance(0, healthy_gpu()), instance(1, starved_gpu())
            ),
            "a MIG-partitioned one, and its instance has no utilisation data": lines_on(
                partitioned(), instance(1, partitioned())
            ),
            "a MIG-partitioned one without an instance": lines_on(partitioned()),
            "one whose run is over": lines_on(starved_gpu(), runs=(ended,)),
            "one that starves now, and has not before": lines_on(at_present(VerdictName.STARVED)),
            "one that has recovered": lines_on(
                at_present(VerdictName.HEALTHY, before=VerdictName.STARVED)
            ),
            "one whose job has ended": lines_on(at_present(VerdictName.NOT_IN_USE, is_over=True)),
            "one whose run hangs": lines_on(
                at_present(VerdictName.HANGING), runs=(run(silence=SILENCE, gpu_uuids=("GPU-0",)),)
            ),
            "one whose run is suspended": lines_on(
                at_present(VerdictName.NOT_IN_USE, is_suspended=True),
                runs=(run(suspended_since_ns=ORIGIN_NS + 60 * S, gpu_uuids=("GPU-0",)),),
            ),
            "advice on the greatest losses of two": advised(
                (replace(ADVICE, cause="within_step", text="Compile."), OTHER_ADVICE[0]),
                stalled(starved_gpu(), imbalance=9),
                stalled(healthy_gpu(), within_step=4, input_wait=2),
            ),
            "advice on much else": advised(
                (replace(ADVICE, gpus=("0",)), *OTHER_ADVICE), starved_gpu()
            ),
            "tables of one that started late, and two runs": tables(
                stalled(starved_gpu(), start_up=45, checkpoint=9), runs=(ended, run())
            ),
            "tables of a run with too few cores, and of one that waits for the GIL": tables(
                starved_gpu(),
                held_in_its_steps(),
                runs=(run(reasons=(WHY, HELD_STEP)), run("bert", reasons=(HELD_STEP,))),
            ),
            "tables of a run that splits its batches": tables(
                starved_gpu(), healthy_gpu(), runs=(run(gpu_uuids=tuple(SHARES), shares=SHARES),)
            ),
        }  # fmt: skip
