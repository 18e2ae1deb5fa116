"""Logs of made-up machines, cut at several lengths, and what ``gpumon analyze`` says of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Final, NamedTuple

import numpy as np

from gpumon.core.report.report import GpuReport
from gpumon.core.time.suspicion import Suspicion
from gpumon.core.verdict import VerdictName
from tests.truth.score.baselines import gpuprof, mean_below_70, sagemaker_in_jobs
from tests.truth.score.by_log import reported, samples_of
from tests.truth.score.evaluation import GPUPROF, MEAN, SAGEMAKER
from tests.truth.worlds import GpuTruth, world
from tests.truth.worlds.kind import MS_PER_HOUR
from tests.truth.worlds.seeing import SeenLog, seen_all
from tests.truth.worlds.spans import clipped, total_ms
from tests.truth.worlds.truth import STARVED_FROM

_LONG_HOURS: Final = 2.0
_SHORT_HOURS: Final = (0.05, 0.25)
_SHORTEST_MS: Final = 180_000
_LONG_CUTS: Final = (0.125, 0.25, 0.5, 1.0)
_SHORT_CUTS: Final = (0.5, 1.0)
_PERIODS_S: Final = (0.2, 0.2, 1.0, 1.0, 1.0, 1.0, 5.0)
_NS_PER_MS: Final = 1_000_000


class Case(NamedTuple):
    """One GPU in one log of a known length.

    Attributes:
        kind: Of the world.
        seed: Of the world.
        minutes: How long the log is.
        gpu: Which one.
        period_s: Between two rows.
        pauses: As verdicts count them.
        lost_s: Idle time in use, as told.
        lost_ratio: Its share of the time in use, as told.
        verdict: As told.
        suspicion: As told.
        starved_ratio: True share of its time in use until then.
        accused_by: What other tools' rules say of the same log, by their names.
    """

    kind: str
    seed: int
    minutes: float
    gpu: int
    period_s: float
    pauses: int
    lost_s: float
    lost_ratio: float
    verdict: VerdictName
    suspicion: Suspicion | None
    starved_ratio: float
    accused_by: Mapping[str, bool]

    @property
    def probability(self) -> float:
        """That it waits for input, as told; 0 where nothing is: too little is lost."""
        return self.suspicion.input_probability if self.suspicion and self.is_graded else 0.0

    @property
    def is_graded(self) -> bool:
        """Whether a probability is told of it."""
        return self.suspicion is not None and self.lost_ratio >= STARVED_FROM

    @property
    def is_starved(self) -> bool:
        return self.starved_ratio >= STARVED_FROM

    @property
    def machine(self) -> tuple[str, int, float]:
        """Cases of one machine in one log share it."""
        return self.kind, self.seed, self.minutes


def cases_of(kind: str, seed: int) -> list[Case]:
    """What is told of one world: every second one is short, some fine, some coarse."""
    rng = np.random.default_rng([seed, len(kind), *kind.encode()])
    is_long = bool(seed % 2)
    hours = _LONG_HOURS if is_long else float(rng.uniform(*_SHORT_HOURS))
    period_s = float(rng.choice(_PERIODS_S))
    if is_long:
        period_s = max(1.0, period_s)
    made = world(kind, seed, hours)
    seen, told = seen_all(made, period_s, rng), []
    for cut in _LONG_CUTS if is_long else _SHORT_CUTS:
        until_ms = round(cut * made.duration_ms)
        if until_ms < _SHORTEST_MS:
            continue
        logs = [_until(log, until_ms) for log in seen]
        rows = [samples_of(at, log, made.gpus[at]) for at, log in enumerate(logs)]
        for at, report in enumerate(sorted(reported(rows).gpus, key=lambda gpu: gpu.index)):
            others = _others(logs[at], made.gpus[at], is_whole=cut == 1.0)
            told.append(_case(made.kind, seed, period_s, until_ms, made.gpus[at], report, others))
    return told


def all_cases(
    kinds: Sequence[str], seeds: Iterable[int], heard: Callable[[], None]
) -> Iterator[Case]:
    """Those of all worlds, in order, on all cores; ``heard`` is called after each world."""
    work = [(kind, seed) for seed in seeds for kind in kinds]
    with ProcessPoolExecutor() as pool:
        for told in pool.map(cases_of, *zip(*work, strict=True), chunksize=4):
            yield from told
            heard()


def _until(log: SeenLog, until_ms: int) -> SeenLog:
    count = int(np.searchsorted(log.stamps_ns, until_ms * _NS_PER_MS))
    return log._replace(stamps_ns=log.stamps_ns[:count], percents=log.percents[:count])


def _others(log: SeenLog, gpu: GpuTruth, *, is_whole: bool) -> dict[str, bool]:
    """Other rules; gpuprof is built into the training, and asked when it is over."""
    found = {
        MEAN: mean_below_70(log.percents).is_starved,
        SAGEMAKER: sagemaker_in_jobs(log, gpu).is_starved,
    }
    return found | ({GPUPROF: gpuprof(gpu).is_starved} if is_whole else {})


def _case(
    kind: str,
    seed: int,
    period_s: float,
    until_ms: int,
    gpu: GpuTruth,
    told: GpuReport,
    others: Mapping[str, bool],
) -> Case:
    in_use_ms = total_ms(clipped(gpu.jobs, 0, until_ms))
    starved_ms = total_ms(clipped(gpu.starved, 0, until_ms))
    return Case(
        kind=kind,
        seed=seed,
        minutes=until_ms * 60 / MS_PER_HOUR,
        gpu=told.index,
        period_s=period_s,
        pauses=told.totals.pauses.count,
        lost_s=told.totals.lost_ns / 1e9,
        lost_ratio=told.verdict.lost_ratio or 0.0,
        verdict=told.verdict.name,
        suspicion=told.totals.suspicion,
        starved_ratio=starved_ms / in_use_ms if in_use_ms else 0.0,
        accused_by=others,
    )
