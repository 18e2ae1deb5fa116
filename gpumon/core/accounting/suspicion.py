"""How likely unexplained pauses are waits for input, and what else they may be."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.core.accounting.cycles import Cycle, Cycles, PauseShape
from gpumon.core.clock import nanoseconds
from gpumon.core.settings.detector import DetectorSettings
from gpumon.core.settings.input_model import (
    DECIDED_FROM,
    EVIDENCE,
    LIKELY,
    PRIOR,
    RARE,
    TERMS,
    UNLIKELY,
    WEIGHTS,
    Term,
)
from gpumon.core.verdict import LikelyCause

_PRIOR_LOG_ODDS: Final = math.log(PRIOR / (1 - PRIOR))
_WEIGHTS: Final = tuple(WEIGHTS[name] for name in TERMS)


class Suspicion(NamedTuple):
    """What a job's pauses may be.

    Attributes:
        input_probability: Probability that the GPU loses time worth a verdict to late input:
            ``LIKELY``, ``PRIOR`` if the shape decides nothing, ``UNLIKELY``, or at most ``RARE``.
        likely_causes: Possible causes, the likeliest first; ``open`` comes first if the
            shape decides nothing.
        shape: Shape of the pauses; ``None`` if the report was read back.
        began_ns: Start of the GPU's last few pauses, of any job; empty if read back.
    """

    input_probability: float
    likely_causes: tuple[LikelyCause, ...]
    shape: PauseShape | None = None
    began_ns: tuple[int, ...] = ()


class JobSuspicion:
    """Follows the pauses of one job, and how likely they are waits for input.

    Memory is constant.

    Attributes:
        suspicion: What the last pauses may be; ``None``: they are too few.
        cycle_ns: Time from one pause to the next if the last ones were regular.
    """

    def __init__(self, settings: DetectorSettings) -> None:
        self._settings = settings
        self._cycles = Cycles(settings)
        self.forget()

    def forget(self) -> None:
        self._cycles.forget()
        self.suspicion: Suspicion | None = None
        self.cycle_ns: int | None = None
        self._untagged_ns = self._weighed_ns = 0
        self._seen_as_input = self._seen_as_other = 0

    @property
    def is_complete(self) -> bool:
        """Whether it has enough pauses for a job: fewer count as the beginning of the next.

        Interactive use, with a minute of thinking between requests, seems to begin a job each time.
        """
        return self._cycles.count >= self._settings.min_cycles

    @property
    def likely_ns(self) -> float:
        """How much of its pauses was probably a wait for input."""
        suspicion = self.suspicion
        return 0.0 if suspicion is None else suspicion.input_probability * self._weighed_ns

    def add(
        self,
        cycle: Cycle,
        untagged_ns: int,
        sample_s: float,
        *,
        is_pattern: bool,
        is_input: bool | None = None,
    ) -> None:
        """Add a burst and the pause after it.

        Args:
            cycle: Their lengths.
            untagged_ns: Part of the pause that no tag explains.
            sample_s: Length of the newest sample.
            is_pattern: Whether there are enough pauses, as verdicts count them.
            is_input: Whether stack samples show that the pause is a wait for input; ``None``:
                there were none, or they do not agree.
        """
        self._seen_as_input += is_input is True
        self._seen_as_other += is_input is False
        cycles, remembered = self._cycles, self._settings.remembered_cycles
        cycles.add(cycle)
        self._untagged_ns += untagged_ns
        # Weighing all remembered cycles is the largest cost here, so do it seldom.
        if cycles.count > remembered and cycles.count % (remembered // 2):
            return
        self.cycle_ns = cycles.steady_ns
        shape = cycles.shape(sample_s) if is_pattern or self.is_complete else None
        if shape is not None and self._untagged_ns:
            self._weighed_ns = self._untagged_ns
            probability = self._after_seeing(input_probability(shape))
            causes = _likely_causes(probability, shape, self._settings)
            self.suspicion = Suspicion(probability, causes, shape)

    def _after_seeing(self, probability: float) -> float:
        """The probability for pauses without stack samples, given what those of others show.

        The shape counts as much as ``shape_weight`` pauses, so the result is never 0 or 1.
        """
        weight = self._settings.shape_weight
        seen = self._seen_as_input + self._seen_as_other
        return (
            (weight * probability + self._seen_as_input) / (weight + seen) if seen else probability
        )


def input_probability(shape: PauseShape, weights: Sequence[float] = _WEIGHTS) -> float:
    """The probability by the model in ``settings.input_model``.

    ``LIKELY``, ``PRIOR``, ``UNLIKELY``, or at most ``RARE``. ``weights`` are in the order of
    ``TERMS``.
    """
    evidence = sum(map(operator.mul, weights, term_values(shape)))
    probability = 1 / (1 + math.exp(-(_PRIOR_LOG_ODDS + evidence)))
    if shape.paused_ratio < RARE:
        return min(RARE, probability)
    if probability >= DECIDED_FROM:
        return LIKELY
    return UNLIKELY if probability <= UNLIKELY else PRIOR


def term_values(shape: PauseShape) -> list[float]:
    """The value of each of ``TERMS``, -1 to 1, times the weight of the evidence."""
    count_weight = shape.pauses / (shape.pauses + EVIDENCE.half_at_pauses)
    bursts = _share(shape.burst_s / shape.grain_s, *EVIDENCE.burst_grains)
    evidence = count_weight * bursts * _share(shape.pause_s / shape.grain_s, *EVIDENCE.pause_grains)
    return [evidence * _value(term, shape) for term in TERMS.values()]


def _value(term: Term, shape: PauseShape) -> float:
    """The value of one term, -1 or 0 to 1; 0 if the samples are too coarse."""
    measured = getattr(shape, term.measure)
    if measured is None or measured <= 0:
        return 0.0
    value = math.log(measured / term.zero_at) / math.log(term.full_at / term.zero_at)
    return min(1.0, max(-1.0 if term.is_two_sided else 0.0, value))


def _share(value: float, none_at: float, all_at: float) -> float:
    return min(1.0, max(0.0, (value - none_at) / (all_at - none_at)))


def _likely_causes(
    probability: float, shape: PauseShape, settings: DetectorSettings
) -> tuple[LikelyCause, ...]:
    """Late input by its probability; the others by the bursts before the pauses."""
    late, other = (LikelyCause.LATE_INPUT,), _others(shape, settings)
    if probability >= settings.suspected_from:
        return late + other
    if probability >= settings.unlikely_below:
        return (LikelyCause.OPEN, *late, *other)
    return other


def _others(shape: PauseShape, settings: DetectorSettings) -> tuple[LikelyCause, ...]:
    if (shape.burst_variation or 0.0) >= settings.requests_from:
        return (LikelyCause.REQUESTS, LikelyCause.OTHER_MACHINES)
    is_seldom = nanoseconds(shape.burst_s) >= settings.every_n_steps_from_ns
    if is_seldom or (shape.resolved_level_ratio or 0.0) > settings.copies_from:
        return (LikelyCause.EVERY_N_STEPS, LikelyCause.OTHER_MACHINES)
    return (LikelyCause.OTHER_MACHINES, LikelyCause.EVERY_N_STEPS)
