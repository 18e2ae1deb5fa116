"""The advice on GPUs that wait for a slower one: who for whom, how long, why, what to change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gpumon.core.attribution.batch_shares import simple_ratios
from gpumon.core.device.driver_codes import SLOWDOWNS
from gpumon.core.device.fill import Evidence
from gpumon.core.diagnosis.fill_texts import HELD_BY
from gpumon.core.diagnosis.imbalance import (
    JobImbalance,
    LowerClocks,
    MoreWork,
    OtherTenant,
    SlowCause,
    SlowGpu,
    UnseenWait,
    counted_runs,
    has_more_work,
    imbalances,
    missing_ranks,
)
from gpumon.core.diagnosis.loss_range import cost_ns
from gpumon.core.diagnosis.speedup import speedup_upper_bound
from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.report.job_balance import JobBalance
from gpumon.core.report.report import UNSEEN_IMBALANCE, Advice, GpuReport, JobKey, RunReport
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.wording import counted, in_percent, in_time, label_text, listed

_KERAS_ON_TENSORFLOW: Final = "keras/tensorflow"
_MEETS_IN_NCCL_ALONE: Final = "keras/jax"
"""One process of it, too, adds gradients up by NCCL."""
_MOST_SLOW: Final = 3
_POWER_CAP: Final = "sw_power_cap"


def imbalance_text(
    waiting: Sequence[GpuReport], gpus: Sequence[GpuReport], runs: Sequence[RunReport]
) -> str:
    """What to change so that the GPUs of a job, of which some wait, are done at the same time.

    Empty where it is not known how busy they were in its steps.
    """
    names = _labels(gpus)
    sentences = [
        " ".join(_of_job(found, waiting, names, _runs_of(job, runs)))
        for job, found in _concerned(waiting, gpus, runs)
    ]
    return " ".join(sentences)


def imbalance_bound(
    waiting: Sequence[GpuReport], gpus: Sequence[GpuReport], runs: Sequence[RunReport]
) -> float | None:
    """How many times faster level GPUs can be at most; ``None`` where shares are unknown.

    A GPU that waits does not win all its wait back by other ratios: it takes work over. It does
    where what makes the other one slow is ended.
    """
    of_jobs = [found for _, found in _concerned(waiting, gpus, runs)]
    covered = {uuid for found in of_jobs for uuid in found.balance.busy_ratios}
    if not all(gpu.uuid in covered for gpu in waiting):
        return None
    bounds = [1.0]
    for found in of_jobs:
        busy, part = found.balance.busy_ratios, found.balance.gain_part
        if any(_can_be_ended(cause) for slow in found.slow for cause in slow.causes):
            part = 1.0
        if part is None:
            return None
        longest = max((gpu for gpu in waiting if gpu.uuid in busy), key=_waited_ns)
        bounds.append(speedup_upper_bound(longest.totals.in_use_ns, part * _waited_ns(longest)))
    return max(bounds)


def unseen_imbalance_advice(gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> Advice | None:
    """On GPUs that read as busy and probably wait for a peer; ``None`` where there is none."""
    names = _labels(gpus)
    found = [(job, job.unseen) for job in imbalances(gpus, runs).values() if job.unseen]
    if not found:
        return None
    waits = [wait for _, unseen in found for wait in unseen]
    return Advice(
        cause=UNSEEN_IMBALANCE,
        lost_seconds=0.0,
        speedup_upper_bound=None,
        evidence=" ".join(_does_less(wait, names) for wait in waits[:_MOST_SLOW]),
        text=(
            f"{' '.join(_unseen_text(job, unseen, names) for job, unseen in found)} For how long "
            "they wait is not known: take the time of each rank from the start of a step to the "
            "exchange of gradients, and give less to the one that takes longest (on PyTorch, "
            "`RatioSampler.level` takes those seconds)."
        ),
        gpus=tuple(names[wait.uuid] for wait in waits if wait.uuid in names),
    )


def imbalance_notes(gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> Iterator[str]:
    """What cannot be seen of who waits for whom, a sentence for each kind of it."""
    of_job: dict[JobKey, list[RunReport]] = {}
    for run in counted_runs(runs):
        of_job.setdefault(run.job_key, []).append(run)
    # Before their first step ranks still come.
    under_way = [own for own in of_job.values() if any(run.steps for run in own)]
    away = [_names_of(own) for own in under_way if missing_ranks(own)]
    if away:
        yield (
            f"Not all ranks of {listed(away)} are seen here: some are on other machines, or not "
            "tagged. Where its GPUs wait for one of those, that reads as busy or as idle within "
            "the step: read the report of that machine, too."
        )
    blind = [
        _names_of(of_job[job])
        for job, found in imbalances(gpus, runs).items()
        if found.unseen is None and _meets_in_nccl(of_job[job]) and _has_worked(of_job[job])
    ]
    if blind:
        yield (
            f"Whether GPUs of {listed(blind)} wait for each other inside NCCL cannot be seen: "
            "there waiting reads as busy, and neither the activity of their multiprocessors nor "
            "their power can be compared."
        )


def may_wait_unseen(gpu: GpuReport, gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> bool:
    """Whether a GPU may wait for others of its job in a way that reads as busy."""
    counted = counted_runs(runs)
    return any(
        gpu.uuid in found.balance.busy_ratios
        and found.unseen != ()
        and _meets_in_nccl([run for run in counted if run.job_key == job])
        for job, found in imbalances(gpus, runs).items()
    )


def shares_text(parts: Mapping[str, float], label_of: Mapping[str, str]) -> str:
    """Parts of a batch, or of a time, as one reads them.

    >>> shares_text({"GPU-a": 0.6, "GPU-b": 0.4}, {"GPU-a": "0", "GPU-b": "1"})
    'GPU 0 60 % and GPU 1 40 %'
    """
    named = [f"{_name(uuid, label_of)} {in_percent(part)}" for uuid, part in parts.items()]
    return listed(named, most=8)


def _of_job(
    found: JobImbalance,
    waiting: Sequence[GpuReport],
    label_of: Mapping[str, str],
    runs: Sequence[RunReport],
) -> Iterator[str]:
    balance, name = found.balance, _names_of(runs)
    busy = balance.busy_ratios
    since = " since its ratios last changed" if any(run.ratio_changes for run in runs) else ""
    if balance.is_level:
        yield (
            f"The GPUs of {name} are level{since}, busy {shares_text(busy, label_of)} of the time "
            "in training steps: leave the ratios as they are."
        )
        return
    slow = [one.uuid for one in found.slow] or [max(busy, key=lambda uuid: busy[uuid])]
    waits = [
        f"GPU {gpu.label} ({in_time(_waited_ns(gpu))})"
        for gpu in waiting
        if gpu.uuid in busy and gpu.uuid not in slow
    ]
    if waits:
        names = listed([_name(uuid, label_of) for uuid in slow])
        yield f"In {name}, {listed(waits)} waited for {names}."
    if found.missing_ranks:
        ranks = counted(found.missing_ranks, "rank", "ranks")
        yield f"Another {ranks} of the job are not seen here, and may be slower still."
    yield (
        f"Of the time in training steps{since} they were busy {shares_text(busy, label_of)} "
        f"(skew {in_percent(balance.skew_ratio)})."
    )
    for one in found.slow[:_MOST_SLOW]:
        yield _why(one, found, label_of)
    remedies = [_remedy(one.uuid, one.causes, label_of) for one in found.slow[:_MOST_SLOW]]
    told = [remedy for remedy in remedies if remedy]
    if told:
        yield f"First, {'; '.join(told)}. Until that is done, other ratios level them."
    yield _what_to_write(balance, label_of, runs)


def _why(slow: SlowGpu, found: JobImbalance, label_of: Mapping[str, str]) -> str:
    """Why a GPU is slow, what explains most first."""
    other, shares = _name(found.peer, label_of), found.balance.shares
    longer = f"{_name(slow.uuid, label_of)} computes {slow.times:.2f} times as long as {other}"
    if shares and has_more_work(shares[found.peer], shares[slow.uuid]):
        less, more = in_percent(shares[slow.uuid]), in_percent(shares[found.peer])
        longer += f", though it is given {less} of each batch, and {other} {more}"
    if not slow.causes:
        return (
            f"{longer}, and nothing that is known of its share, clocks, processes and model "
            "shows why."
        )
    clauses = [_clause(cause, other) for cause in slow.causes]
    if len(clauses) > 1 or not slow.is_explained:
        parts = [f", which makes {one.times:.2f} times" if one.times else "" for one in slow.causes]
        clauses = [f"{clause}{part}" for clause, part in zip(clauses, parts, strict=True)]
    rest = "" if slow.is_explained else " That explains only a part of it."
    return f"{longer}: {'; '.join(clauses)}.{rest}"


def _clause(cause: SlowCause, other: str) -> str:
    if isinstance(cause, LowerClocks):
        return _clocks(cause, other)
    if isinstance(cause, OtherTenant):
        whose = _processes(cause)
        if cause.computing_ratio is not None:
            return f"{whose} computed there {in_percent(cause.computing_ratio)} of the time"
        return (
            f"{whose} was there {in_percent(cause.present_ratio)} of the time, and the driver does "
            "not tell whether it computed"
        )
    if isinstance(cause, MoreWork):
        shares = in_percent(cause.share), in_percent(cause.peer_share)
        return f"it is given {shares[0]} of each batch, and {other} {shares[1]}"
    names = label_text(cause.name, 40), label_text(cause.peer_name, 40)
    return f"it is another board ({names[0]}, and {other} {names[1]})"


def _clocks(cause: LowerClocks, other: str) -> str:
    held = "held down"
    if cause.held_ratio is not None:
        held += f" {in_percent(cause.held_ratio)} of its busy time"
    words = list(dict.fromkeys(HELD_BY.get(reason, reason) for reason in cause.held_by))
    held += f" by {listed(words)} ({', '.join(cause.held_by)})"
    if cause.clock_ratio is None:
        return f"its clocks were {held}"
    clock = f"its clock was at {in_percent(cause.clock_ratio)} of the highest"
    if cause.peer_clock_ratio is not None:
        clock += f" ({other}: {in_percent(cause.peer_clock_ratio)})"
    if not cause.held_by:
        return f"{clock}, and its board does not say what holds it down"
    return f"{clock}, {held}"


def _remedy(uuid: str, causes: Sequence[SlowCause], label_of: Mapping[str, str]) -> str:
    """What to end, where something can be: as a clause; else empty."""
    ways = [way for cause in causes for way in _ways(cause, label_of.get(uuid, ""))]
    return f"for {_name(uuid, label_of)}: {', and '.join(ways)}" if ways else ""


def _ways(cause: SlowCause, label: str) -> Iterator[str]:
    where = f" -i {label}" if label.isdecimal() else ""  # not a MIG instance, "0:1"
    if isinstance(cause, OtherTenant):
        yield f"end or move {_processes(cause)}"
    elif isinstance(cause, LowerClocks):
        yield from dict.fromkeys(SLOWDOWNS[one].advice for one in cause.held_by if one in SLOWDOWNS)
        if _POWER_CAP in cause.held_by:
            yield f"give it the power limit of its peers (`nvidia-smi{where} -q -d POWER`)"
        if not cause.held_by:
            yield f"see what its clocks are set to (`nvidia-smi{where} -q -d CLOCK,PERFORMANCE`)"


def _can_be_ended(cause: SlowCause) -> bool:
    return isinstance(cause, (LowerClocks, OtherTenant))


def _processes(cause: OtherTenant) -> str:
    named = [
        f"process {pid}" if uid is None else f"process {pid} of user {uid}"
        for pid, uid in zip(cause.pids, cause.uids, strict=True)
    ]
    return listed(named, most=2)


def _does_less(wait: UnseenWait, label_of: Mapping[str, str]) -> str:
    less = in_percent(wait.less_ratio)
    does = f"draws {less} less power"
    if wait.evidence is Evidence.GPM:
        does = f"has work on {less} fewer of its multiprocessors"
    both = _name(wait.uuid, label_of), _name(wait.waits_for, label_of)
    return f"{both[0]} reads as busy as {both[1]}, but {does}."


def _unseen_text(
    job: JobImbalance, waits: Sequence[UnseenWait], label_of: Mapping[str, str]
) -> str:
    """Who probably waits for whom inside NCCL, and why, as far as it is known."""
    longest = waits[0]
    worker, waiting = (_name(uuid, label_of) for uuid in (longest.waits_for, longest.uuid))
    who = listed([_name(wait.uuid, label_of) for wait in waits])
    said = (
        f"In {listed(job.runs)}, {who} probably {'wait' if len(waits) > 1 else 'waits'} for "
        f"{worker} inside NCCL, where waiting reads as busy."
    )
    if not longest.causes:
        return (
            f"{said} Nothing that is known of its share, clocks and processes shows why {worker} "
            "is last: compare its batches with those of the others, for longer samples take longer."
        )
    clauses = "; ".join(_clause(cause, waiting) for cause in longest.causes)
    remedy = _remedy(longest.waits_for, longest.causes, label_of)
    return f"{said} Of {worker}: {clauses}." + (f" First, {remedy}." if remedy else "")


def _what_to_write(
    balance: JobBalance, label_of: Mapping[str, str], runs: Sequence[RunReport]
) -> str:
    # What even parts would need is the best guess there is, and said to be one.
    levelled = balance.levelled_ratios or balance.levelled_if_even
    if levelled is None:
        return "One of them did none of the work: give it a part of each batch, or leave it out."
    ratios = simple_ratios([*levelled.values()])
    wanted, call = _colons(ratios), _call(ratios, levelled, label_of, runs)
    if balance.levelled_ratios is None:
        return f"How batches are split is not known; if evenly, {wanted} would level them: {call}."
    if not balance.is_told or balance.shares is None:
        return f"Batches are split evenly; split them {wanted}: {call}."
    now = _colons(simple_ratios([*balance.shares.values()]))
    keeper = "a `RatioBalancer`" if len(runs) == 1 else "`RatioSampler.level`"
    return (
        f"Batches are split {now}; split them {wanted}: {call}, or let {keeper} find "
        "and keep the ratios while it trains."
    )


def _call(
    ratios: Sequence[int],
    levelled: Mapping[str, float],
    label_of: Mapping[str, str],
    runs: Sequence[RunReport],
) -> str:
    gpus = [label_of[uuid] for uuid in levelled if uuid in label_of]
    is_keras = all(run.framework == _KERAS_ON_TENSORFLOW for run in runs) and len(runs) == 1
    if is_keras and all(label.isdecimal() for label in gpus):  # not a MIG instance, "0:1"
        return f"`multi_gpu_model(model, gpus=[{', '.join(gpus)}], ratios={list(ratios)})`"
    if sorted(run.rank for run in runs) == list(range(len(ratios))):
        return f"`RatioSampler(dataset, batch_size, ratios={list(ratios)})`, ratios by rank"
    return f"{listed([_name(uuid, label_of) for uuid in levelled])} in this order"


def _colons(ratios: Sequence[int]) -> str:
    return ":".join(map(str, ratios))


def _name(uuid: str, label_of: Mapping[str, str]) -> str:
    return f"GPU {label_of[uuid]}" if uuid in label_of else uuid


def _concerned(
    waiting: Sequence[GpuReport], gpus: Sequence[GpuReport], runs: Sequence[RunReport]
) -> Iterator[tuple[JobKey, JobImbalance]]:
    uuids = {gpu.uuid for gpu in waiting}
    for job, found in imbalances(gpus, runs).items():
        if uuids & found.balance.busy_ratios.keys():
            yield job, found


def _runs_of(job: JobKey, runs: Sequence[RunReport]) -> list[RunReport]:
    return [run for run in runs if run.job_key == job]


def _names_of(runs: Sequence[RunReport]) -> str:
    return listed([run.run for run in runs])


def _labels(gpus: Sequence[GpuReport]) -> dict[str, str]:
    return {gpu.uuid: gpu.label for gpu in gpus if gpu.uuid is not None}


def _meets_in_nccl(of_job: Sequence[RunReport]) -> bool:
    return len(of_job) > 1 or of_job[0].framework == _MEETS_IN_NCCL_ALONE


def _has_worked(of_job: Sequence[RunReport]) -> bool:
    """Whether it has trained for long enough for its GPUs to be compared."""
    in_steps_ns = [run.phase_ns.get(TrainingPhase.TRAIN_STEP, 0) for run in of_job]
    return min(in_steps_ns) >= DEFAULT_SETTINGS.imbalance.compared_from_ns


def _waited_ns(gpu: GpuReport) -> int:
    return cost_ns(gpu.totals, IdleCause.IMBALANCE)
