"""The advice on GPUs that wait for a slower one: who for whom, how long, and what to write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpumon.core.join.batch_shares import simple_ratios
from gpumon.core.judge.speedup import speedup_upper_bound
from gpumon.core.phase import IdleCause
from gpumon.core.report.job_balance import JobBalance, balances
from gpumon.core.report.report import GpuReport, JobKey, RunReport
from gpumon.core.wording import in_percent, in_time, listed

_KERAS_ON_TENSORFLOW = "keras/tensorflow"


def imbalance_text(
    waiting: Sequence[GpuReport], gpus: Sequence[GpuReport], runs: Sequence[RunReport]
) -> str:
    """What to write so that the GPUs of a job, of which some wait, are done at the same time.

    Empty where it is not known how busy they were in its steps.
    """
    names = {gpu.uuid: gpu.label for gpu in gpus if gpu.uuid is not None}
    sentences = [
        " ".join(_of_job(balance, waiting, names, [run for run in runs if run.job_key == job]))
        for job, balance in _concerned(waiting, runs)
    ]
    return " ".join(sentences)


def imbalance_bound(waiting: Sequence[GpuReport], runs: Sequence[RunReport]) -> float | None:
    """How many times faster level GPUs can be at most; ``None`` where shares are unknown.

    A GPU that waits does not win all its wait back: it takes work over.
    """
    of_jobs = dict(_concerned(waiting, runs)).values()
    covered = {uuid for balance in of_jobs for uuid in balance.busy_ratios}
    if not all(gpu.uuid in covered for gpu in waiting):
        return None
    bounds = [1.0]
    for balance in of_jobs:
        if balance.gain_part is None:
            return None
        longest = max((gpu for gpu in waiting if gpu.uuid in balance.busy_ratios), key=_waited_ns)
        won_ns = balance.gain_part * _waited_ns(longest)
        bounds.append(speedup_upper_bound(longest.totals.in_use_ns, won_ns))
    return max(bounds)


def shares_text(parts: Mapping[str, float], label_of: Mapping[str, str]) -> str:
    """Parts of a batch, or of a time, as one reads them.

    >>> shares_text({"GPU-a": 0.6, "GPU-b": 0.4}, {"GPU-a": "0", "GPU-b": "1"})
    'GPU 0 60 % and GPU 1 40 %'
    """
    named = [f"{_name(uuid, label_of)} {in_percent(part)}" for uuid, part in parts.items()]
    return listed(named, most=8)


def _of_job(
    balance: JobBalance,
    waiting: Sequence[GpuReport],
    label_of: Mapping[str, str],
    runs: Sequence[RunReport],
) -> Iterator[str]:
    name, busy = listed([run.run for run in runs]), balance.busy_ratios
    since = " since its ratios last changed" if any(run.ratio_changes for run in runs) else ""
    if balance.is_level:
        yield (
            f"The GPUs of {name} are level{since}, busy {shares_text(busy, label_of)} of the time "
            "in training steps: leave the ratios as they are."
        )
        return
    slowest = max(busy, key=lambda uuid: busy[uuid])
    waits = [
        f"GPU {gpu.label} ({in_time(_waited_ns(gpu))})"
        for gpu in waiting
        if gpu.uuid in busy and gpu.uuid != slowest
    ]
    if waits:
        yield f"In {name}, {listed(waits)} waited for {_name(slowest, label_of)}."
    yield (
        f"Of the time in training steps{since} they were busy {shares_text(busy, label_of)} "
        f"(skew {in_percent(balance.skew_ratio)})."
    )
    yield _what_to_write(balance, label_of, runs)


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
    waiting: Sequence[GpuReport], runs: Sequence[RunReport]
) -> Iterator[tuple[JobKey, JobBalance]]:
    uuids = {gpu.uuid for gpu in waiting}
    for job, balance in balances(runs).items():
        if uuids & balance.busy_ratios.keys():
            yield job, balance


def _waited_ns(gpu: GpuReport) -> int:
    return gpu.totals.idle_ns.get(IdleCause.IMBALANCE, 0)
