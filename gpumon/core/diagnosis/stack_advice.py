"""What to change where stack samples show the cause of idle time: the advice of a tagged run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
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
_NO_REASONS: Final[Mapping[str, int]] = MappingProxyType({})


class SeenProcess(NamedTuple):
    """The process whose stacks were read.

    Attributes:
        name: Its script or program: ``"train.py"``.
        workers: How many processes work for it; 0: none.
        reasons: Why it waited for input, as the machine showed.
        by_reason_ns: That time by the value of its ``InputWaitReason``.
    """

    name: str
    pid: int
    workers: int = 0
    reasons: tuple[WaitReason, ...] = ()
    by_reason_ns: Mapping[str, int] = _NO_REASONS


def stack_advice(
    device: Device, busy_ns: int, idle_ns: int, finding: StackFinding, process: SeenProcess
) -> Advice | None:
    """The advice on the main cause of the idle samples; ``None``: it is unknown, or costs little.

    The lower end of the interval is proved; fewer than ten samples that agree promise no speed-up.
    """
    main = finding.main
    if main is None or main.cause is IdleCause.UNKNOWN:
        return None
    totals = _totals(busy_ns, idle_ns, finding.causes, process)
    gpu = GpuReport(
        index=device.index,
        uuid=device.uuid,
        name=device.name,
        totals=totals,
        verdict=diagnose(totals),
        mig_index=device.mig_index,
    )
    found = advise([gpu], [_run(process, device, busy_ns + idle_ns, _loader(finding, process))])
    advice = next((one for one in found if one.cause == main.cause.value), None)
    if advice is not None and main.samples < ENOUGH_SAMPLES:
        advice = replace(advice, speedup_upper_bound=None)
    return advice


def _totals(
    busy_ns: int, idle_ns: int, causes: tuple[CauseShare, ...], process: SeenProcess
) -> GpuTotals:
    by_cause = {share.cause: round(share.ratio * idle_ns) for share in causes}
    main = causes[0]
    by_cause[main.cause] += idle_ns - sum(by_cause.values())
    point_ns = by_cause[main.cause]
    return GpuTotals(
        observed_ns=busy_ns + idle_ns,
        busy_ns=busy_ns,
        idle_ns=by_cause,
        in_use_ns=busy_ns + idle_ns,
        in_use_busy_ns=busy_ns,
        may_be_less_ns={main.cause: max(0, point_ns - round(main.low * idle_ns))},
        may_be_more_ns={main.cause: max(0, round(main.high * idle_ns) - point_ns)},
        input_wait_by_reason_ns=process.by_reason_ns,
    )


def _loader(finding: StackFinding, process: SeenProcess) -> LoaderFacts:
    """What the stacks show of the loader."""
    what = next((one.what for one in finding.places if one.cause is IdleCause.INPUT_WAIT), "")
    kind = next((one for one in _KINDS if what.startswith(one)), None)
    return {} if kind is None else {"kind": kind, "workers": process.workers}


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
