"""The golden words of the page: what it says of small machines, in its lanes and its tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpumon.core.accounting.suspicion import Suspicion
from gpumon.core.accounting.totals import GapTotals, GpuTotals, NowVerdict
from gpumon.core.device.held import HeldGpu
from gpumon.core.device.troubles import ErrorTimes
from gpumon.core.diagnosis.verdict_rules import diagnose
from gpumon.core.phase import IdleCause, InputWaitReason, TrainingPhase
from gpumon.core.report.report import Advice, Report
from gpumon.core.ring_format.silence import RunSilence
from gpumon.core.state import CollectorState, GpuState, MonitorState
from gpumon.core.verdict import LikelyCause, VerdictName
from tests.builders.report import gpm_fill, power_fill, seen
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
from tests.story_of_states import machine

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
WHY = seen(InputWaitReason.CPU_BOUND, tasks=4, wanted=4.0, given=2.0, usable=2)
HELD_STEP = seen(
    InputWaitReason.GIL_BOUND, tasks=3, wanted=1.2, given=1.0, cause=IdleCause.WITHIN_STEP
)
OTHER_ADVICE = (
    replace(ADVICE, cause="imbalance", lost_seconds=45.0, speedup_upper_bound=1.42,
            evidence="It waited for a slower GPU.", text="Split them 5:9.",
            gpus=("1", "2", "0:1")),
    replace(ADVICE, cause="unknown", lost_seconds=9.5, speedup_upper_bound=None,
            evidence="Nothing tells why.", text="Tag the training.", gpus=("2",)),
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


def suspected(index: int = 0, probability: float = 0.82) -> GpuState:
    one = used(55, index=index, unknown=25)
    is_late = probability >= 0.5
    totals = one.totals._replace(
        suspected_ns=25 * S if is_late else 0, pauses=PAUSES, gaps=PAUSES,
        suspicion=Suspicion(probability, LATE if is_late else CHECKPOINTS),
    )  # fmt: skip
    return one._replace(totals=totals, verdict=diagnose(totals))


def late_at_first() -> GpuState:
    """Of 30 s of waiting 27 were for the first batch; 8 s of checkpoints were lost."""
    return starved_gpu(totals=starved_gpu().totals._replace(first_input_wait_ns=27 * S))


def held_in_its_steps() -> GpuState:
    one = used(80, index=1, within_step=20)
    by_reason = {"gil_bound": 15 * S, "unknown": 5 * S}
    return one._replace(totals=one.totals._replace(within_step_by_reason_ns=by_reason))


def with_xid(gpu: GpuState, xid: int) -> GpuState:
    return gpu._replace(xid_errors=((xid, 2),), errors=ErrorTimes(((xid, ORIGIN_NS),)))


def cut() -> GpuState:
    me = device(0, "GPU-a", mig_enabled=True)
    return healthy_gpu(device=me, totals=NO_TIME, verdict=diagnose(NO_TIME), last_sample_at_ns=None)


def part(number: int, like: GpuState) -> GpuState:
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

    def says(*gpus: GpuState, **changes: Any) -> str:
        """How grave it is, the first words of the page, what else it advises, and of each GPU."""
        shown(*gpus, **changes)
        lines = [f"[{page.tone}] {page.page.title()}".replace("\u00a0", " ")]
        lines += [page.text(name) for name in READ_FIRST if page.page.locator(name).is_visible()]
        # What there is to read in advice is pinned by stories of its own.
        lines += [f"+ {item.splitlines()[0]}" for item in page.texts("#advice li")]
        # The page moves no lane at once: their order is specified in test_page_many_gpus.py.
        lines += sorted(map(line_of, page.page.locator(".gpu").all()))
        return "\n".join(
            [*lines, *sorted(f"table of {one}" for one in page.texts("#causes caption"))]
        )

    def line_of(card: Any) -> str:
        name, line = (card.locator(part).inner_text() for part in (".gpu-name", ".gpu-line"))
        looks = card.get_attribute("data-verdict")
        looks += " and more" * ("empty" in card.get_attribute("class").split())
        looks += ", no lane" * (not card.locator("canvas").is_visible())
        return f"{name}: {line} [{looks}]".replace("\u00a0", " ")

    def advised(shown: tuple[Advice, ...], *gpus: GpuState) -> str:
        """... where it is given that advice, which is reported wholly."""
        nonlocal advice
        advice = shown
        words = f"{says(*gpus)}\n{without_gaps(page.text('#more'))}"
        advice = None
        return words

    def tables(*gpus: GpuState, **changes: Any) -> str:
        shown(*gpus, **changes)
        return without_gaps(f"{page.text('#causes')}\n{page.text('#runs')}".replace("\t", " | "))

    lost = starved_gpu(present=False, error=LOST)
    gone = CollectorState("nvml", False, 0.0, 1, "the driver is not loaded: run `modprobe`")
    instance = part(1, healthy_gpu())
    ended = run("old", alive=False, phase=None)
    first = late_at_first()
    with showing(change=noted) as server:
        page = visit(server.address)
        return {
            "no GPU": says(),
            "a healthy one": says(used(98, index=1, unknown=2)),
            "one that is made up": says(used(98, index=1, unknown=2), simulated=True),
            "one of a recording": says(used(98, index=1, unknown=2), replayed=True),
            "one that waits for input, and more is suspected": says(starved_gpu()),
            "one that waited for its very first batch": says(first),
            "one that lost nothing else to its input": says(
                first._replace(verdict=diagnose(first.totals))
            ),
            "one that saves": says(used(80, checkpoint=20)),
            "two that are held up": says(
                used(80, checkpoint=20), used(88, index=1, imbalance=8, within_step=4)
            ),
            "one that saves, and more is unknown": says(used(70, checkpoint=14, unknown=16)),
            "two that pause": says(suspected(), suspected(3)),
            "one whose pauses look like checkpoints": says(suspected(probability=0.12)),
            "one whose pauses can be either": says(suspected(probability=0.41)),
            "one at a level": says(used(50, unknown=50)),
            "one that has just begun": says(used(4)),
            "one that has just begun beside another": says(used(4), healthy_gpu()),
            "one without work": says(healthy_gpu(totals=NO_TIME, verdict=diagnose(NO_TIME))),
            "one that a process holds, beside one without work": says(
                held(), healthy_gpu(device=device(1, "GPU-1"), totals=NO_TIME, verdict=UNUSED)
            ),
            "one that saves, one that waits, and one that does well": says(
                *list(machine(140, ROLES))[-1].gpus
            ),
            "one that is busy and empty": says(healthy_gpu(fill=gpm_fill(0.24))),
            "one that is busy and empty beside one that waits": says(
                starved_gpu(), healthy_gpu(fill=gpm_fill(0.24))
            ),
            "one of which power suggests that": says(healthy_gpu(fill=power_fill(180.0))),
            "one that heat holds down": says(healthy_gpu(fill=power_fill(180.0, held=0.8))),
            "one that is lost": says(lost),
            "one that is lost beside another": says(lost, healthy_gpu()),
            "one that was lost before the daemon began": says(
                healthy_gpu(), collectors=(gone._replace(message=f"GPU 7: {LOST}"),)
            ),
            "one that vanished beside another": says(
                starved_gpu(present=False, listed=False), healthy_gpu()
            ),
            "a driver that is gone": says(collectors=(gone,)),
            "a driver that is gone, and with it the GPU": says(
                healthy_gpu(present=False), collectors=(gone,)
            ),
            "one with XID 79, and one that waits": says(starved_gpu(), with_xid(healthy_gpu(), 79)),
            "one that is lost after XID 79, and one that waits": says(
                starved_gpu(), with_xid(healthy_gpu(present=False, error=LOST), 79)
            ),
            "one with XID 48 that does well": says(with_xid(healthy_gpu(), 48)),
            "one with XID 31, and one that waits": says(starved_gpu(), with_xid(healthy_gpu(), 31)),
            "one that is cut, and its instance works": says(cut(), instance),
            "one that is cut, and one of two instances waits": says(
                cut(), part(0, healthy_gpu()), part(1, starved_gpu())
            ),
            "one that is cut, and an instance is taken away": says(
                cut(), part(0, healthy_gpu()), instance._replace(present=False, listed=False)
            ),
            "one that is cut, and its instance does not tell": says(cut(), part(1, cut())),
            "one that is cut, and has none": says(cut()),
            "one whose training is over": says(starved_gpu(), runs=(ended,)),
            "one whose training is not the first": says(starved_gpu(), runs=(ended, run())),
            "one that starves now, and has not before": says(at_present(VerdictName.STARVED)),
            "one that has recovered": says(
                at_present(VerdictName.HEALTHY, before=VerdictName.STARVED)
            ),
            "one whose job has ended": says(at_present(VerdictName.NOT_IN_USE, is_over=True)),
            "one whose run hangs": says(
                at_present(VerdictName.HANGING), runs=(run(silence=SILENCE, gpu_uuids=("GPU-0",)),)
            ),
            "one whose run is suspended": says(
                at_present(VerdictName.NOT_IN_USE, is_suspended=True),
                runs=(run(suspended_since_ns=ORIGIN_NS + 60 * S, gpu_uuids=("GPU-0",)),),
            ),
            "advice on its own cause, which is not the first": advised(
                (replace(ADVICE, cause="start_up", text="Hurry."), ADVICE), starved_gpu()
            ),
            "advice on what two that are held up lost most to": advised(
                (replace(ADVICE, cause="within_step", text="Compile."), OTHER_ADVICE[0]),
                stalled(starved_gpu(), imbalance=9),
                stalled(healthy_gpu(), within_step=4, input_wait=2),
            ),
            "advice on much else": advised(
                (replace(ADVICE, gpus=("0",)), *OTHER_ADVICE), starved_gpu()
            ),
            "tables of two, and no run": tables(starved_gpu(), healthy_gpu()),
            "tables of one that was late, and two runs": tables(
                stalled(starved_gpu(), start_up=45, checkpoint=9), runs=(ended, run())
            ),
            "tables of a run that is held up by too few cores, and of one by Python's lock": tables(
                starved_gpu(),
                held_in_its_steps(),
                runs=(run(reasons=(WHY, HELD_STEP)), run("bert", reasons=(HELD_STEP,))),
            ),
            "tables of a run that splits its batches": tables(
                starved_gpu(), healthy_gpu(), runs=(run(gpu_uuids=tuple(SHARES), shares=SHARES),)
            ),
        }  # fmt: skip
