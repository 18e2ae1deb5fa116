"""How evenly the GPUs of a job share its steps, and the ratios that would balance them.

The GPUs of a job finish a step together, so that all wait for the slowest. The busy part of a GPU's
time in steps shows how fast it is at its present share of each batch, and so which share it should
have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from gpumon.core.attribution.batch_shares import balanced_ratios
from gpumon.core.report.report import JobKey, RunReport, runs_by_job
from gpumon.core.settings.detector import DEFAULT_SETTINGS, AdviceSettings
from gpumon.core.settings.rule import RuleKind, rule

_EVEN_IN_ONE_PROCESS: Final = frozenset({"keras/tensorflow", "keras/jax"})
"""Frameworks that split batches evenly over the GPUs of one process."""
_NOT_KNOWN_TO_BE_EVEN: Final = frozenset({"", "loop"})
"""Ranks of any other framework get equal shares from their sampler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBalance:
    """The GPUs of one job since its ratios last changed.

    Attributes:
        busy_ratios: Busy part, 0 to 1, of the time in training steps, by UUID
            of the job's GPUs on this machine: two or more, by rank and in
            the order of the run.
        shares: Of each batch, by UUID; ``None``: unknown.
        has_reported_shares: Whether the run reported its shares; otherwise they are even.
    """

    busy_ratios: dict[str, float]
    shares: dict[str, float] | None
    has_reported_shares: bool

    @property
    def skew_ratio(self) -> float | None:
        """1 - least busy / most busy; ``None`` where no GPU was busy."""
        most = max(self.busy_ratios.values())
        return 1.0 - min(self.busy_ratios.values()) / most if most > 0 else None

    @property
    def is_level(self) -> bool:
        """Whether other shares would gain nothing."""
        return not is_unequal(self)

    @property
    def balanced_ratios(self) -> dict[str, float] | None:
        """Shares, adding up to 1, that would keep all GPUs busy equally long, by UUID.

        ``None`` where the present ones are unknown, or a GPU was never busy.
        """
        return None if self.shares is None else self._levelled(self.shares)

    @property
    def levelled_if_even(self) -> dict[str, float] | None:
        """``balanced_ratios`` if all GPUs had equal shares now."""
        return self._levelled(dict.fromkeys(self.busy_ratios, 1.0))

    def _levelled(self, shares: dict[str, float]) -> dict[str, float] | None:
        if min(shares.values()) <= 0:
            return None
        levelled = balanced_ratios(
            [shares[uuid] for uuid in self.busy_ratios], [*self.busy_ratios.values()]
        )
        return None if levelled is None else dict(zip(self.busy_ratios, levelled, strict=True))

    @property
    def levelled_busy_ratio(self) -> float | None:
        """Busy part of the present step time that all GPUs would have with ``balanced_ratios``.

        Each GPU takes ``busy / share`` for a complete batch, so its speed is the inverse. Speeds
        are assumed to be the same at any share.
        """
        if self.balanced_ratios is None or self.shares is None:
            return None
        whole = sum(self.shares[uuid] for uuid in self.busy_ratios)
        speeds = [self.shares[uuid] / busy for uuid, busy in self.busy_ratios.items()]
        return whole / sum(speeds)

    @property
    def gain_part(self) -> float | None:
        """Part, 0 to 1, of the least busy GPU's wait by which a step would become shorter.

        It would spend the rest of its wait on work it takes over. 0 if the job is balanced.
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
    evidence="How busy each of them was in training steps.",
    thresholds=("advice.level_within",),
    measured_with=("advice.min_step_ns",),
)
def is_unequal(balance: JobBalance, settings: AdviceSettings = DEFAULT_SETTINGS.advice) -> bool:
    """Whether the GPUs of a job are busy so unequally that other shares would save time."""
    return (balance.skew_ratio or 0.0) >= settings.level_within


def balances(runs: Iterable[RunReport]) -> dict[JobKey, JobBalance]:
    """Every job with at least two comparable GPUs, in the order of its first run.

    Runs come oldest first; of two runs on one GPU the newer counts.
    """
    found = {job: _balance(own) for job, own in runs_by_job(runs).items()}
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
    has_reported_shares = busy_ratios.keys() <= shares.keys()
    if not has_reported_shares and not shares and _splits_evenly(of_job):
        shares = dict.fromkeys(busy_ratios, 1 / len(busy_ratios))
    known = busy_ratios.keys() <= shares.keys()
    return JobBalance(
        busy_ratios=busy_ratios,
        shares={uuid: shares[uuid] for uuid in busy_ratios} if known else None,
        has_reported_shares=has_reported_shares,
    )


def _splits_evenly(runs: Sequence[RunReport]) -> bool:
    if any(len(run.step_busy_ratios) > 1 for run in runs):
        return all(run.framework in _EVEN_IN_ONE_PROCESS for run in runs)
    return not any(run.framework in _NOT_KNOWN_TO_BE_EVEN for run in runs)
