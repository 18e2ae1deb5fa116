"""The advice on GPUs that wait for a slower one: how long, why it is slow, what to change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gpumon.core.attribution.batch_shares import simple_ratios
from gpumon.core.device.driver_codes import SLOWDOWNS
from gpumon.core.diagnosis import messages
from gpumon.core.diagnosis.fill_advice import HELD_BY
from gpumon.core.diagnosis.imbalance import (
    JobImbalance,
    LowerClocks,
    MoreWork,
    OtherTenant,
    SlowCause,
    SlowGpu,
    counted_runs,
    has_more_work,
    imbalances,
    missing_ranks,
)
from gpumon.core.diagnosis.loss_range import cost_ns, speedup_upper_bound
from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.report.job_balance import JobBalance
from gpumon.core.report.report import GpuReport, JobKey, RunReport, runs_by_job
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.wording import in_percent, in_time, label_text, listed

_KERAS_ON_TENSORFLOW: Final = "keras/tensorflow"
_MEETS_IN_NCCL_ALONE: Final = "keras/jax"
"""One process of it, too, adds gradients up by NCCL."""
_MAX_SLOW: Final = 3
_POWER_CAP: Final = "sw_power_cap"


def imbalance_text(
    waiting: Sequence[GpuReport], gpus: Sequence[GpuReport], runs: Sequence[RunReport]
) -> str:
    """What to change so that the GPUs of a job, where some wait, finish at the same time.

    Empty where it is not known how busy they were in its steps.
    """
    labels = {gpu.uuid: gpu.label for gpu in gpus if gpu.uuid is not None}
    sentences: list[str] = []
    for job, found in _concerned(waiting, gpus, runs):
        of_job = [run for run in runs if run.job_key == job]
        sentences += _of_job(found, waiting, labels, of_job)
    return " ".join(sentences)


def imbalance_bound(
    waiting: Sequence[GpuReport], gpus: Sequence[GpuReport], runs: Sequence[RunReport]
) -> float | None:
    """How many times faster balanced GPUs can be at most; ``None`` where shares are unknown.

    By other ratios a GPU that waits does not win all its wait back, because it takes work over.
    It does where what makes the other one slow can be ended.
    """
    of_jobs = [found for _, found in _concerned(waiting, gpus, runs)]
    covered = {uuid for found in of_jobs for uuid in found.balance.busy_ratios}
    if not all(gpu.uuid in covered for gpu in waiting):
        return None
    bounds = [1.0]
    for found in of_jobs:
        busy, part = found.balance.busy_ratios, found.balance.gain_part
        causes = [cause for slow in found.slow for cause in slow.causes]
        if any(isinstance(cause, (LowerClocks, OtherTenant)) for cause in causes):
            part = 1.0
        if part is None:
            return None
        longest = max((gpu for gpu in waiting if gpu.uuid in busy), key=_waited_ns)
        bounds.append(speedup_upper_bound(longest.totals.in_use_ns, part * _waited_ns(longest)))
    return max(bounds)


def imbalance_notes(gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> Iterator[str]:
    """The waits for each other that are not visible, a sentence for each kind."""
    of_job = runs_by_job(counted_runs(runs))
    # Before their first step, ranks may still come.
    under_way = [own for own in of_job.values() if any(run.steps for run in own)]
    if elsewhere := [_names_of(own) for own in under_way if missing_ranks(own)]:
        yield messages.NOTE_RANKS_ELSEWHERE.format(runs=listed(elsewhere))
    hidden = [
        _names_of(of_job[job])
        for job, found in imbalances(gpus, runs).items()
        if found.may_wait_unseen and _meets_in_nccl(of_job[job]) and _has_worked(of_job[job])
    ]
    if hidden:
        yield messages.NOTE_WAITS_INSIDE_NCCL.format(runs=listed(hidden))


def may_wait_unseen(gpu: GpuReport, gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> bool:
    """Whether a GPU may wait for others of its job in a way that reads as busy."""
    counted = counted_runs(runs)
    return any(
        gpu.uuid in found.balance.busy_ratios
        and found.may_wait_unseen
        and _meets_in_nccl([run for run in counted if run.job_key == job])
        for job, found in imbalances(gpus, runs).items()
    )


def shares_text(parts: Mapping[str, float], labels: Mapping[str, str]) -> str:
    """Parts of a batch, or of a time, as one reads them.

    >>> shares_text({"GPU-a": 0.6, "GPU-b": 0.4}, {"GPU-a": "0", "GPU-b": "1"})
    'GPU 0 60 % and GPU 1 40 %'
    """
    named = [f"{_name(uuid, labels)} {in_percent(part)}" for uuid, part in parts.items()]
    return listed(named, most=8)


def _of_job(
    found: JobImbalance,
    waiting: Sequence[GpuReport],
    labels: Mapping[str, str],
    runs: Sequence[RunReport],
) -> Iterator[str]:
    balance, names = found.balance, _names_of(runs)
    busy, has_changed = balance.busy_ratios, any(run.ratio_changes for run in runs)
    shares = shares_text(busy, labels)
    if balance.is_level:
        row = messages.BALANCED_SINCE if has_changed else messages.BALANCED
        yield row.format(runs=names, shares=shares)
        return
    slow = [one.uuid for one in found.slow] or [max(busy, key=lambda uuid: busy[uuid])]
    waits = [
        f"GPU {gpu.label} ({in_time(_waited_ns(gpu))})"
        for gpu in waiting
        if gpu.uuid in busy and gpu.uuid not in slow
    ]
    if waits:
        slow_names = listed([_name(uuid, labels) for uuid in slow])
        yield messages.WAITED_FOR.format(runs=names, waits=listed(waits), slow=slow_names)
    if found.missing_ranks:
        yield messages.RANKS_ELSEWHERE.of(found.missing_ranks)
    row = messages.BUSY_IN_STEPS_SINCE if has_changed else messages.BUSY_IN_STEPS
    yield row.format(shares=shares, skew=in_percent(balance.skew_ratio))
    slowest = found.slow[:_MAX_SLOW]
    for one in slowest:
        yield from _why(one, found, labels)
    to_fix = [(one.uuid, ways) for one in slowest if (ways := _ways(one, labels))]
    for uuid, ways in to_fix:
        yield messages.FIX_FIRST.format(gpu=_name(uuid, labels), ways=", and ".join(ways))
    if to_fix:
        yield messages.UNTIL_FIXED
    yield _what_to_write(balance, labels, runs)


def _why(slow: SlowGpu, found: JobImbalance, labels: Mapping[str, str]) -> Iterator[str]:
    peer, shares = _name(found.peer, labels), found.balance.shares
    causes = [_cause(cause, peer) for cause in slow.causes]
    if len(causes) > 1 or not slow.is_explained:
        causes = [
            messages.SLOW_CAUSE_TIMES.format(cause=text, times=f"{cause.times:.2f}")
            if cause.times
            else text
            for text, cause in zip(causes, slow.causes, strict=True)
        ]
    yield (messages.SLOWER_BECAUSE if causes else messages.SLOWER).format(
        gpu=_name(slow.uuid, labels), times=f"{slow.times:.2f}", peer=peer, causes="; ".join(causes)
    )
    if shares and has_more_work(shares[found.peer], shares[slow.uuid]):
        yield messages.THOUGH_GIVEN_LESS.format(
            share=in_percent(shares[slow.uuid]),
            peer=peer,
            peer_share=in_percent(shares[found.peer]),
        )
    if causes and not slow.is_explained:
        yield messages.EXPLAINS_A_PART


def _cause(cause: SlowCause, peer: str) -> str:
    match cause:
        case LowerClocks():
            return _clocks(cause, peer)
        case OtherTenant(computing_ratio=None):
            share = in_percent(cause.present_ratio)
            return messages.SLOW_BY_OTHERS_PRESENT.format(processes=_processes(cause), share=share)
        case OtherTenant():
            share = in_percent(cause.computing_ratio)
            return messages.SLOW_BY_OTHERS.format(processes=_processes(cause), share=share)
        case MoreWork():
            share, peer_share = in_percent(cause.share), in_percent(cause.peer_share)
            return messages.SLOW_BY_SHARE.format(share=share, peer=peer, peer_share=peer_share)
    name, peer_name = label_text(cause.name, 40), label_text(cause.peer_name, 40)
    return messages.SLOW_BY_MODEL.format(name=name, peer=peer, peer_name=peer_name)


def _clocks(cause: LowerClocks, peer: str) -> str:
    fields = {
        "share": in_percent(cause.held_ratio),
        "what": listed(list(dict.fromkeys(HELD_BY.get(one, one) for one in cause.held_by))),
        "reasons": ", ".join(cause.held_by),
    }
    if cause.clock_ratio is None:
        return messages.SLOW_BY_HELD_CLOCKS.format(**fields)
    clock = f"{in_percent(cause.clock_ratio)} of its maximum"
    if cause.peer_clock_ratio is not None:
        clock += f" ({peer}: {in_percent(cause.peer_clock_ratio)})"
    row = messages.SLOW_BY_CLOCKS if cause.held_by else messages.SLOW_BY_CLOCKS_UNKNOWN
    return row.format(clock=clock, **fields)


def _ways(slow: SlowGpu, labels: Mapping[str, str]) -> list[str]:
    """What to do about what makes a GPU slow, where something can be done."""
    label, ways = labels.get(slow.uuid, ""), list[str]()
    which = f" -i {label}" if label.isdecimal() else ""  # not a MIG instance, "0:1"
    for cause in slow.causes:
        if isinstance(cause, OtherTenant):
            ways.append(messages.END_OR_MOVE.format(processes=_processes(cause)))
        elif isinstance(cause, LowerClocks):
            known = [SLOWDOWNS[one].advice for one in cause.held_by if one in SLOWDOWNS]
            ways += dict.fromkeys(known)
            if _POWER_CAP in cause.held_by:
                ways.append(messages.RAISE_POWER_LIMIT.format(which=which))
            if not cause.held_by:
                ways.append(messages.CHECK_CLOCKS.format(which=which))
    return ways


def _processes(cause: OtherTenant) -> str:
    named = [
        f"process {pid}" if uid is None else f"process {pid} of user {uid}"
        for pid, uid in zip(cause.pids, cause.uids, strict=True)
    ]
    return listed(named, most=2)


def _what_to_write(
    balance: JobBalance, labels: Mapping[str, str], runs: Sequence[RunReport]
) -> str:
    # What even parts would need is the best guess there is, and called one.
    ratios_of = balance.balanced_ratios or balance.levelled_if_even
    if ratios_of is None:
        return messages.ONE_WITHOUT_WORK
    ratios = simple_ratios([*ratios_of.values()])
    wanted, call = _colons(ratios), _call(ratios, ratios_of, labels, runs)
    if balance.balanced_ratios is None:
        return messages.SPLIT_UNKNOWN.format(wanted=wanted, call=call)
    if not balance.has_reported_shares or balance.shares is None:
        return messages.SPLIT_EVENLY.format(wanted=wanted, call=call)
    now = _colons(simple_ratios([*balance.shares.values()]))
    keeper = "a `RatioBalancer`" if len(runs) == 1 else "`RatioSampler.level`"
    return messages.SPLIT.format(now=now, wanted=wanted, call=call, keeper=keeper)


def _call(
    ratios: Sequence[int],
    ratios_of: Mapping[str, float],
    labels: Mapping[str, str],
    runs: Sequence[RunReport],
) -> str:
    gpus = [labels[uuid] for uuid in ratios_of if uuid in labels]
    is_keras = all(run.framework == _KERAS_ON_TENSORFLOW for run in runs) and len(runs) == 1
    if is_keras and all(label.isdecimal() for label in gpus):  # not a MIG instance, "0:1"
        return f"`multi_gpu_model(model, gpus=[{', '.join(gpus)}], ratios={list(ratios)})`"
    if sorted(run.rank for run in runs) == list(range(len(ratios))):
        return f"`RatioSampler(dataset, batch_size, ratios={list(ratios)})`, ratios by rank"
    return f"{listed([_name(uuid, labels) for uuid in ratios_of])} in this order"


def _colons(ratios: Sequence[int]) -> str:
    return ":".join(map(str, ratios))


def _name(uuid: str, labels: Mapping[str, str]) -> str:
    return f"GPU {labels[uuid]}" if uuid in labels else uuid


def _concerned(
    waiting: Sequence[GpuReport], gpus: Sequence[GpuReport], runs: Sequence[RunReport]
) -> Iterator[tuple[JobKey, JobImbalance]]:
    uuids = {gpu.uuid for gpu in waiting}
    for job, found in imbalances(gpus, runs).items():
        if uuids & found.balance.busy_ratios.keys():
            yield job, found


def _names_of(runs: Sequence[RunReport]) -> str:
    return listed([run.run for run in runs])


def _meets_in_nccl(of_job: Sequence[RunReport]) -> bool:
    return len(of_job) > 1 or of_job[0].framework == _MEETS_IN_NCCL_ALONE


def _has_worked(of_job: Sequence[RunReport]) -> bool:
    in_steps_ns = [run.phase_ns.get(TrainingPhase.TRAIN_STEP, 0) for run in of_job]
    return min(in_steps_ns) >= DEFAULT_SETTINGS.imbalance.compared_from_ns


def _waited_ns(gpu: GpuReport) -> int:
    return cost_ns(gpu.totals, IdleCause.IMBALANCE)
