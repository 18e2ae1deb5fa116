"""A running daemon's state as a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from types import MappingProxyType
from typing import Final

from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.attribution.visible_devices import (
    BEGINNING_NS,
    GpuName,
    problem_with_names,
    problem_with_work,
)
from gpumon.core.device.troubles import error_of
from gpumon.core.diagnosis.advice import advise
from gpumon.core.diagnosis.imbalance_advice import imbalance_notes
from gpumon.core.diagnosis.silence_messages import run_named, silence_sentence
from gpumon.core.diagnosis.verdict_rules import diagnose
from gpumon.core.report.report import GpuReport, Report, RunReport
from gpumon.core.ring_format.events import RingCounts
from gpumon.core.ring_format.facts import has_gross_waits
from gpumon.core.state import (
    GpuState,
    MonitorState,
    RunState,
    clock_of,
    gpu_troubles,
    origin_of,
    refusal_note,
    reported_troubles,
    source_message,
    unknown_gpu,
)
from gpumon.core.wording import capital, gpus_named, listed

_MAX_NAMED: Final = 4
_MAX_NOTES: Final = 8
NO_COUNTS: Final[Mapping[int, RingCounts]] = MappingProxyType({})


def report_of(state: MonitorState, newest: Mapping[int, RingCounts] = NO_COUNTS) -> Report:
    """Report where the time went since the daemon began.

    ``newest`` has counts of runs since the state was taken, by pid, so that the last steps of a
    run that has just ended are included.
    """
    gpus = [
        GpuReport(
            index=gpu.device.index,
            uuid=gpu.device.uuid,
            name=gpu.device.name,
            totals=gpu.totals,
            verdict=gpu.verdict,
            error=gpu.error,
            fill=gpu.fill,
            mig_enabled=gpu.device.mig_enabled,
            parent_uuid=gpu.device.parent_uuid,
            mig_index=gpu.device.mig_index,
            listed=gpu.listed,
            in_job=gpu.in_job,
            reported_troubles=reported_troubles(gpu, state),
            unsettled=gpu.unsettled,
            now=gpu.now,
            waits_for=gpu.waits_for,
            held=gpu.held,
            stacks=gpu.stacks,
        )
        for gpu in state.gpus
    ]
    gpus = sorted([*gpus, *_unknown(state)], key=lambda gpu: gpu.index)
    runs = tuple(
        _run(run, newest.get(run.pid) if run.alive else None, simulated=state.simulated)
        for run in state.runs
    )
    started, origin_ns = origin_of(state)
    return Report(
        source=state.source,
        simulated=state.simulated,
        replayed=state.replayed,
        started_at=started.isoformat(),
        origin_ns=origin_ns,
        observed_ns=max((gpu.totals.observed_ns for gpu in gpus), default=0),
        period_ns=state.period_ns,
        skipped_lines=0,
        gpus=tuple(gpus),
        runs=runs,
        advice=advise([gpu.at_present for gpu in gpus], runs),
        notes=(
            *_notes(state),
            *_joining_notes(state),
            *_gross_notes(state),
            *imbalance_notes(gpus, runs),
        ),
        source_error=None if gpus else source_message(state),
    )


def _unknown(state: MonitorState) -> Iterator[GpuReport]:
    """A GPU that was lost before the daemon could identify it."""
    found = unknown_gpu(state)
    if found is None:
        return
    device, error = found
    yield GpuReport(
        index=device.index,
        mig_index=device.mig_index,
        uuid=None,
        name=None,
        totals=GpuTotals(),
        verdict=diagnose(GpuTotals()),
        error=error,
    )


def _run(run: RunState, newest: RingCounts | None, *, simulated: bool) -> RunReport:
    on_cpu = run.on_cpu and not simulated
    if newest is None and run.samples != 0 and on_cpu == run.on_cpu:
        return run  # as most, and there may be hundreds
    counts = newest or RingCounts(0, 0)
    return replace(
        run,
        steps=max(run.steps, counts.steps),
        wall_ns=max(run.wall_ns, counts.wall_ns),
        samples=max(run.samples or 0, counts.samples) or None,
        on_cpu=on_cpu,
    )


def _notes(state: MonitorState) -> Iterator[str]:
    for gpu in state.gpus:
        if gpu.error is not None:
            yield f"GPU {gpu.device.label}: {error_of(gpu_troubles(gpu, state))}"
        elif not gpu.listed:
            yield f"GPU {gpu.device.label} ({gpu.device.uuid}) is no longer there."
    if unknown_gpu(state) is not None:
        yield f"{state.collectors[0].message}"
    for collector in state.collectors:
        note = refusal_note(collector)
        if note is None and not collector.success and collector.message:
            note = None if state.gpus else f"{collector.name}: {collector.message}"
        if note is not None:
            yield note
    yield from _refusals(state)
    yield from islice(_standstills(state), _MAX_NOTES)


def _standstills(state: MonitorState) -> Iterator[str]:
    """Runs that are suspended, or hang while another one works."""
    hanging = {gpu.device.uuid for gpu in state.gpus if gpu.totals.hanging_now}
    for run in state.runs:
        name, silence = capital(run_named(run)), run.silence
        if run.suspended_since_ns is not None:
            since = clock_of(state, run.suspended_since_ns)
            yield f"{name} has been suspended since {since}: its time does not count as in use."
        elif silence is not None and silence.is_hanging:
            is_in_verdict = hanging and (not run.gpu_uuids or hanging.intersection(run.gpu_uuids))
            if not is_in_verdict:
                yield f"{name} hangs. {silence_sentence(run, silence, 'It')}"


def _refusals(state: MonitorState) -> Iterator[str]:
    """A note for each user whose runs name a GPU without a process of that user."""
    label_of = {gpu.device.uuid: gpu.device.label for gpu in state.gpus}
    hidden = {gpu.device.uuid for gpu in state.gpus if _hides_owners(gpu)}
    refused_of: dict[int | None, list[RunState]] = {}
    for run in state.runs:
        if run.refused_uuids:
            refused_of.setdefault(run.owner_uid, []).append(run)
    for uid, runs in sorted(refused_of.items(), key=str):
        names = listed([run.run for run in runs], most=_MAX_NAMED)
        uuids = dict.fromkeys(uuid for run in runs for uuid in run.refused_uuids)
        gpus = gpus_named(label_of.get(uuid, uuid) for uuid in uuids)
        one, it = len(runs) == 1, "it" if len(uuids) == 1 else "them"
        if hidden.isdisjoint(uuids):
            why = f"no process of that user is on {it}"
            remedy = "If another user's process does the computing, tag that process."
        else:
            why = f"/proc hides which user the processes on {it} belong to (hidepid)"
            remedy = (
                "Run gpumon serve as root, or add its user to the group that /proc is mounted "
                "with (gid=)."
            )
        yield (
            f"{'Run' if one else 'Runs'} {names} (user {uid}) {'names' if one else 'name'} "
            f"{gpus}, but {why}: {'its tags do' if one else 'their tags do'} not count there. "
            f"{remedy}"
        )


def _hides_owners(gpu: GpuState) -> bool:
    listed = () if gpu.latest is None else gpu.latest.processes or ()
    return any(process.is_hidden for process in listed)


def _joining_notes(state: MonitorState) -> Iterator[str]:
    """Why runs are matched with no GPU, or not with all that they name."""
    gpus = [GpuName(gpu.device.label, gpu.device.uuid) for gpu in state.gpus]
    notes = [
        f"Run {run.run} {problem}."
        for run in (state.runs if gpus else ())
        if not run.ended_before and (problem := _problem_with_gpus(run, gpus, state)) is not None
    ]
    yield from notes[:_MAX_NOTES]
    if len(notes) > _MAX_NOTES:
        yield f"So it is with {len(notes) - _MAX_NOTES} more."


def _problem_with_gpus(run: RunState, gpus: Sequence[GpuName], state: MonitorState) -> str | None:
    if run.refused_uuids:
        return None  # see _refusals
    if run.gpu_uuids:
        return problem_with_names(run.named_gpus, gpus)
    # A run that has just begun may come to use a GPU.
    is_known = not run.alive or (run.steps > 0 and run.wall_ns >= BEGINNING_NS)
    if not is_known and not (state.simulated and run.named_gpus is None):
        return problem_with_names(run.named_gpus, gpus)
    return problem_with_work(
        run.named_gpus, gpus, simulated=state.simulated, pid=run.pid, on_cpu=run.on_cpu
    )


def _gross_notes(state: MonitorState) -> Iterator[str]:
    for run in state.runs:
        if has_gross_waits(run.loader):
            yield (
                f"The input waits of {run.run} are upper bounds: it fetches several batches per "
                "execution, partly while the GPU computes, so the time that the GPU lost is an "
                "estimate. With steps_per_execution=1 it is measured."
            )
