"""What to change where stack samples show the cause of idle time: the advice of a tagged run."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.diagnosis.advice import advise
from gpumon.core.diagnosis.verdict_rules import diagnose
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import Advice, GpuReport, RunReport
from gpumon.core.ring_format.events import LoaderFacts
from gpumon.core.sample import Device
from gpumon.core.stacks.evidence import ENOUGH_SAMPLES, CauseShare, StackFinding
from gpumon.core.waits.reasons import WaitReason

_KINDS: Final = ("DataLoader", "PyDataset", "grain", "tf.data")
"""Loaders whose settings the advice names."""
_LEAST_INPUT: Final = 0.5
"""With less of its idle time in a wait for input, what the machine shows may be of the rest."""


class SeenProcess(NamedTuple):
    """The process whose stacks were read.

    Attributes:
        name: Its script or program: ``"train.py"``.
        reasons: Why it waited, as the machine showed, of all idle time.
    """

    name: str
    pid: int
    reasons: tuple[WaitReason, ...] = ()


class SeenIdle(NamedTuple):
    """Idle time that was watched.

    Attributes:
        seen_ns: Part of it in pauses that were long enough to see.
    """

    idle_ns: int
    seen_ns: int


def held_up_by(finding: StackFinding, process: SeenProcess) -> WaitReason | None:
    """What mostly held its input up; ``None``: unknown, or the stacks show another cause."""
    main = finding.main
    if main is None or main.cause is not IdleCause.INPUT_WAIT or main.ratio < _LEAST_INPUT:
        return None
    return next((one for one in process.reasons if one.figures is not None), None)


def stack_advice(
    device: Device, busy_ns: int, idle: SeenIdle, finding: StackFinding, process: SeenProcess
) -> Advice | None:
    """The advice on the main cause of the idle samples; ``None``: it is unknown, or costs little.

    The speed-up is that of its share of the pauses that were long enough to see; fewer than ten
    samples that agree promise none.
    """
    main = finding.main
    if main is None or main.cause is IdleCause.UNKNOWN:
        return None
    totals = _totals(busy_ns, idle, finding.causes, process)
    gpu = GpuReport(
        index=device.index,
        uuid=device.uuid,
        name=device.name,
        totals=totals,
        verdict=diagnose(totals),
        mig_index=device.mig_index,
    )
    found = advise([gpu], [_run(process, device, busy_ns + idle.idle_ns, _loader(finding))])
    advice = next((one for one in found if one.cause == main.cause.value), None)
    if advice is not None and main.samples < ENOUGH_SAMPLES:
        advice = replace(advice, speedup_upper_bound=None)
    return advice


def _totals(
    busy_ns: int, idle: SeenIdle, causes: tuple[CauseShare, ...], process: SeenProcess
) -> GpuTotals:
    main, idle_ns = causes[0], idle.idle_ns
    by_cause = {share.cause: round(share.ratio * idle.seen_ns) for share in causes}
    by_cause[main.cause] += idle.seen_ns - sum(by_cause.values())
    unseen_ns = idle_ns - idle.seen_ns
    by_cause[IdleCause.UNKNOWN] = by_cause.get(IdleCause.UNKNOWN, 0) + unseen_ns
    return GpuTotals(
        observed_ns=busy_ns + idle_ns,
        busy_ns=busy_ns,
        idle_ns=by_cause,
        in_use_ns=busy_ns + idle_ns,
        in_use_busy_ns=busy_ns,
        input_wait_by_reason_ns=_by_reason(main, process),
    )


def _by_reason(main: CauseShare, process: SeenProcess) -> dict[str, int]:
    if main.cause is not IdleCause.INPUT_WAIT or main.ratio < _LEAST_INPUT:
        return {}
    return {one.reason.value: round(main.ratio * one.waited_ns) for one in process.reasons}


def _loader(finding: StackFinding) -> LoaderFacts:
    """What the stacks show of the loader."""
    what = next((one.what for one in finding.places if one.cause is IdleCause.INPUT_WAIT), "")
    kind = next((one for one in _KINDS if what.startswith(one)), None)
    if kind is None:
        return {}
    if finding.workers is not None:
        return {"kind": kind, "workers": finding.workers.number}
    # The user's own function within the call is on the stack of the training thread itself.
    loads_alone = finding.inside is not None and finding.function is not None
    return {"kind": kind, "workers": 0} if loads_alone else {"kind": kind}


def _run(process: SeenProcess, device: Device, watched_ns: int, loader: LoaderFacts) -> RunReport:
    return RunReport(
        run=process.name,
        job="",
        rank=0,
        pid=process.pid,
        framework="",
        steps=0,
        gpu_uuids=(device.uuid,),
        wall_ns=watched_ns,
        phase_ns={},
        loader=loader,
        reasons=process.reasons,
        alive=True,
    )
