"""Logs of synthetic machines, cut at several lengths, and the report of gpumon on each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np

from gpumon.core.accounting.suspicion import Suspicion
from gpumon.core.report.report import GpuReport
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from tests.truth import programs, recorded, renewal, workloads
from tests.truth.score.detectors import report_on, samples_of
from tests.truth.workloads.catalog import MS_PER_HOUR
from tests.truth.workloads.seeing import SeenLog, seen_all
from tests.truth.workloads.spans import clipped, no_spans, total_ms
from tests.truth.workloads.truth import STARVED_FROM, GpuTruth, Workload

_LONG_HOURS: Final = 2.0
_SHORT_HOURS: Final = (0.05, 0.25)
_SHORTEST_MS: Final = 180_000
_LONG_CUTS: Final = (0.125, 0.25, 0.5, 1.0)
_SHORT_CUTS: Final = (0.5, 1.0)
_PERIODS_S: Final = (0.2, 0.2, 1.0, 1.0, 1.0, 5.0)
_NS_PER_MS: Final = 1_000_000
RECORDED: Final = "recorded"


class Family(NamedTuple):
    """One generator: its kinds, and what makes a machine of a kind from a seed and hours."""

    kinds: Sequence[str]
    machine: Callable[[str, int, float], Workload]


FAMILIES: Final[Mapping[str, Family]] = MappingProxyType(
    {
        "workloads": Family([*workloads.KINDS], workloads.workload),
        "renewal": Family([*renewal.KINDS], renewal.machine),
        "programs": Family([*programs.KINDS], programs.machine),
    }
)
"""A queue of batches, step by step; bursts and pauses of any tail; programs that contend."""


class Case(NamedTuple):
    """One GPU in one log of a known length.

    Attributes:
        family: Key of ``FAMILIES``, or ``RECORDED``.
        minutes: Length of the log.
        period_s: Between two rows.
        pauses: As verdicts count them.
        lost_s: Reported idle time in use.
        starved_ratio: True share of its time in use.
        truly_lost_s: True idle time in use; ``None``: unknown.
    """

    family: str
    kind: str
    seed: int
    minutes: float
    gpu: int
    period_s: float
    pauses: int
    lost_s: float
    suspicion: Suspicion | None
    starved_ratio: float
    truly_lost_s: float | None

    @property
    def is_graded(self) -> bool:
        """Whether it has enough pauses for a probability."""
        return self.suspicion is not None and self.pauses >= DEFAULT_SETTINGS.min_pauses

    @property
    def is_starved(self) -> bool:
        return self.starved_ratio >= STARVED_FROM

    @property
    def machine(self) -> tuple[str, str, int, float, float]:
        """Shared by the cases of one machine in one log."""
        return self.family, self.kind, self.seed, self.minutes, self.period_s


def cases_of(family: str, kind: str, seed: int, periods_s: Sequence[float] = ()) -> list[Case]:
    """The reports on one machine. Every second machine is short.

    Args:
        family: Key of ``FAMILIES``.
        kind: One of its kinds.
        seed: Of the machine.
        periods_s: Between two readings; empty: drawn.
    """
    rng = np.random.default_rng([seed, len(kind), *kind.encode()])
    is_long = bool(seed % 2)
    hours = _LONG_HOURS if is_long else float(rng.uniform(*_SHORT_HOURS))
    drawn_s = float(rng.choice(_PERIODS_S))
    made = FAMILIES[family].machine(kind, seed, hours)
    cases = []
    for period_s in periods_s or (max(1.0, drawn_s) if is_long else drawn_s,):
        seen = seen_all(made, period_s, rng)
        for cut in _LONG_CUTS if is_long else _SHORT_CUTS:
            until_ms = round(cut * made.duration_ms)
            if until_ms < _SHORTEST_MS:
                continue
            logs = [_until(log, until_ms) for log in seen]
            rows = [samples_of(at, log, made.gpus[at]) for at, log in enumerate(logs)]
            for at, report in enumerate(sorted(report_on(rows).gpus, key=lambda gpu: gpu.index)):
                truth = made.gpus[at]
                in_use_ms = total_ms(clipped(truth.jobs, 0, until_ms))
                starved_ms = total_ms(clipped(truth.starved, 0, until_ms))
                case = _case(family, kind, seed, until_ms * 60 / MS_PER_HOUR, period_s, report)
                lost_ms = total_ms(clipped(truth.lost, 0, until_ms))
                cases.append(
                    case._replace(
                        starved_ratio=starved_ms / in_use_ms if in_use_ms else 0.0,
                        truly_lost_s=lost_ms / 1_000,
                    )
                )
    return cases


def recorded_cases() -> list[Case]:
    """Parts of the recordings of real boards."""
    no_one = GpuTruth(no_spans(), no_spans(), no_spans())
    cases = []
    for seed, case in enumerate(recorded.cases()):
        log = SeenLog(case.stamps_ns, case.percents, 0.0)
        minutes = float(case.stamps_ns[-1] - case.stamps_ns[0]) / 60e9
        (report,) = report_on([samples_of(0, log, no_one)]).gpus
        read = _case(RECORDED, case.name, seed, minutes, case.period_s, report)
        cases.append(read._replace(starved_ratio=case.starved_ratio))
    return cases


def all_cases(
    families: Sequence[str],
    seeds: Iterable[int],
    done: Callable[[], None],
    periods_s: Sequence[float] = (),
) -> Iterator[Case]:
    """The cases of all machines, in order, on all cores; ``done`` is called after each machine."""
    work = [
        (name, kind, seed) for seed in seeds for name in families for kind in FAMILIES[name].kinds
    ]
    names, kinds, numbers = zip(*work, strict=True)
    with ProcessPoolExecutor() as pool:
        for cases in pool.map(
            cases_of, names, kinds, numbers, [periods_s] * len(work), chunksize=4
        ):
            yield from cases
            done()


def worst_of_each_machine(cases: Iterable[Case]) -> list[tuple[Case, bool]]:
    """The GPU of each machine that lost most, and whether any of its GPUs is starved."""
    machines: dict[tuple[str, str, int, float, float], list[Case]] = {}
    for case in cases:
        machines.setdefault(case.machine, []).append(case)
    return [
        (max(graded, key=lambda case: case.lost_s), any(case.is_starved for case in gpus))
        for gpus in machines.values()
        if (graded := [case for case in gpus if case.is_graded])
    ]


def _until(log: SeenLog, until_ms: int) -> SeenLog:
    count = int(np.searchsorted(log.stamps_ns, until_ms * _NS_PER_MS))
    return log._replace(stamps_ns=log.stamps_ns[:count], percents=log.percents[:count])


def _case(
    family: str, kind: str, seed: int, minutes: float, period_s: float, report: GpuReport
) -> Case:
    """A case without its truth."""
    totals = report.totals
    return Case(
        family, kind, seed, minutes, report.index, period_s, totals.pauses.count,
        totals.lost_ns / 1e9, totals.suspicion, starved_ratio=0.0, truly_lost_s=None,
    )  # fmt: skip
