"""How evenly the GPUs of a training share its steps, and the ratios that would level them.

The GPUs of one job finish a step together: who is done early waits for the slowest. A GPU's busy
part of the time in steps says how long it computes at its present share of each batch, hence how
fast it is, and hence which share it should have.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from gpumon.core.attribution.batch_shares import levelled_ratios
from gpumon.core.report.report import JobKey, RunReport
from gpumon.core.settings.detector import DEFAULT_SETTINGS, AdviceSettings
from gpumon.core.settings.rule import RuleKind, rule

_EVEN_IN_ONE_PROCESS: Final = frozenset({"keras/tensorflow", "keras/jax"})
"""Frameworks whose own way to train on several GPUs in one process splits batches evenly."""
_NOT_KNOWN_TO_BE_EVEN: Final = frozenset({"", "loop"})
"""Ranks of anything else are fed by a sampler that gives each the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBalance:
    """The GPUs of one job, from the last change of its ratios on.

    Attributes:
        busy_ratios: The busy part, 0 to 1, of the time in training steps, by
            UUID of the job's GPUs on this machine: two or more, by rank and in
            the order in which the training names them.
        shares: Of each batch, by UUID; ``None``: neither told nor known.
        is_told: Whether the training told its shares; else they are even.
    """

    busy_ratios: dict[str, float]
    shares: dict[str, float] | None
    is_told: bool

    @property
    def skew_ratio(self) -> float | None:
        """1 - least busy / most busy: the part of its work for which the least busy GPU waits.

        ``None`` where no GPU was busy.
        """
        most = max(self.busy_ratios.values())
        return 1.0 - min(self.busy_ratios.values()) / most if most > 0 else None

    @property
    def is_level(self) -> bool:
        """Whether there is nothing to gain from other shares."""
        return not is_unequal(self)

    @property
    def levelled_ratios(self) -> dict[str, float] | None:
        """Shares under which all would be busy for equally long, adding up to 1, by UUID.

        ``None`` where the present ones are not known, or a GPU was never busy.
        """
        return None if self.shares is None else self._levelled(self.shares)

    @property
    def levelled_if_even(self) -> dict[str, float] | None:
        """What ``levelled_ratios`` would be if each GPU were given the same now."""
        return self._levelled(dict.fromkeys(self.busy_ratios, 1.0))

    def _levelled(self, shares: dict[str, float]) -> dict[str, float] | None:
        if min(shares.values()) <= 0:
            return None
        levelled = levelled_ratios(
            [shares[uuid] for uuid in self.busy_ratios], [*self.busy_ratios.values()]
        )
        return None if levelled is None else dict(zip(self.busy_ratios, levelled, strict=True))

    @property
    def levelled_busy_ratio(self) -> float | None:
        """How busy the slowest GPU would be with ``levelled_ratios``, of the present step's time.

        Each GPU takes ``busy / share`` for a whole batch; together they take one over the sum of
        what each does of it at a time. Speeds are taken to be the same at any share.
        """
        if self.levelled_ratios is None or self.shares is None:
            return None
        whole = sum(self.shares[uuid] for uuid in self.busy_ratios)
        speeds = [self.shares[uuid] / busy for uuid, busy in self.busy_ratios.items()]
        return whole / sum(speeds)

    @property
    def gain_part(self) -> float | None:
        """What part, 0 to 1, of the wait of the least busy GPU a step becomes shorter by.

        The rest of that wait it spends on the work it takes over. 0 where they are level.
        """
        levelled = self.levelled_busy_ratio
        if levelled is None:
            return None
        most, least = max(self.busy_ratios.values()), min(self.busy_ratios.values())
        return 0.0 if self.is_level else (most - levelled) / (most - least)


@rule(
    "unequal_gpus",
    RuleKind.ADVICE,
    says="other shares of each batch would level the GPUs of a job",
    evidence="How busy each of them was in the training's steps.",
    thresholds=("advice.level_within",),
    measured_with=("advice.min_step_ns",),
)
def is_unequal(balance: JobBalance, settings: AdviceSettings = DEFAULT_SETTINGS.advice) -> bool:
    """Whether the GPUs of a job are busy so unequally that other shares would win time."""
    return (balance.skew_ratio or 0.0) >= settings.level_within


def balances(runs: Iterable[RunReport]) -> dict[JobKey, JobBalance]:
    """Every job of which two GPUs or more can be compared, in the order of its first run.

    Of two runs on one GPU the newer counts: they come oldest first.
    """
    of_job: defaultdict[JobKey, list[RunReport]] = defaultdict(list)
    for run in runs:
        of_job[run.job_key].append(run)
    found = {job: _balance(own) for job, own in of_job.items()}
    return {job: balance for job, balance in found.items() if balance is not None}


def _balance(runs: Iterable[RunReport]) -> JobBalance | None:
    of_job = sorted(runs, key=attrgetter("rank"))
    busy_ratios: dict[str, float] = {}
    shares: dict[str, float] = {}
    for run in of_job:
        in_order = [uuid for uuid in run.shares if uuid in run.step_busy_ratios]
        busy_ratios |= {uuid: run.step_busy_ratios[uuid] for uuid in in_order}
        busy_ratios |= run.step_busy_ratios
        shares |= run.shares
    if len(busy_ratios) < 2:
        return None
    is_told = busy_ratios.keys() <= shares.keys()
    if not is_told and not shares and _splits_evenly(of_job):
        shares = dict.fromkeys(busy_ratios, 1 / len(busy_ratios))
    known = busy_ratios.keys() <= shares.keys()
    return JobBalance(
        busy_ratios=busy_ratios,
        shares={uuid: shares[uuid] for uuid in busy_ratios} if known else None,
        is_told=is_told,
    )


def _splits_evenly(runs: Sequence[RunReport]) -> bool:
    if any(len(run.step_busy_ratios) > 1 for run in runs):
        return all(run.framework in _EVEN_IN_ONE_PROCESS for run in runs)
    return not any(run.framework in _NOT_KNOWN_TO_BE_EVEN for run in runs)
