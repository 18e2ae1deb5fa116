"""How likely it is that pauses that nothing explains wait for input, and what else they may be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.core.clock import nanoseconds
from gpumon.core.settings.detector import DetectorSettings
from gpumon.core.settings.input_model import (
    CENTRES,
    FARTHEST,
    LESS_FOR_FEW,
    SCALES,
    WEIGHT_OF_A_LOOK,
    WEIGHTS,
)
from gpumon.core.time.cycles import Cycle, Cycles, PauseShape
from gpumon.core.verdict import LikelyCause

_LEAST: Final = 1e-6
"""Nothing is told to be more certain, nor its contrary."""
_NO_FACTOR: Final = len(PauseShape._fields)


def _factors(names: Sequence[str]) -> tuple[int, int, int]:
    """Where the three factors of a product stand: the number of a feature, or of a one."""
    first, second, third, *_ = (*map(PauseShape._fields.index, names), *[_NO_FACTOR] * 3)
    return first, second, third


_PRODUCTS: Final = [(weight, _factors(names)) for names, weight in WEIGHTS.items()]
_PLACES: Final = [(CENTRES[name], SCALES[name]) for name in PauseShape._fields]


class Suspicion(NamedTuple):
    """What a job's pauses look like.

    Attributes:
        input_probability: That the GPU loses time worth a verdict to late input, 0 to 1.
        likely_causes: What its pauses can be, the likeliest first.
        shape: What both were told from; ``None`` where a report was read back.
        began_ns: When the last few pauses began; empty likewise.
    """

    input_probability: float
    likely_causes: tuple[LikelyCause, ...]
    shape: PauseShape | None = None
    began_ns: tuple[int, ...] = ()


class JobSuspicion:
    """Follows the pauses of one job, and how likely they are to wait for input.

    The probability is told from what the pauses look like now, and from what they looked like as
    each of them ended, by its time: two looks that agree are surer than one. So a job that
    starved at first, and has one pause of another kind later, is not told by that one alone.
    Memory is constant.

    Attributes:
        suspicion: What its pauses look like; ``None``: they are too few.
        cycle_ns: From one pause to the next, where the last ones came like a clock.
    """

    def __init__(self, settings: DetectorSettings) -> None:
        self._settings = settings
        self._cycles = Cycles(settings)
        self.forget()

    def forget(self) -> None:
        """What comes now is of another job."""
        self._cycles.forget()
        self.suspicion: Suspicion | None = None
        self.cycle_ns: int | None = None
        self._weighed_ns = self._unweighed_ns = 0
        self._looked_likely_ns = 0.0

    @property
    def is_whole(self) -> bool:
        """Whether its pauses are enough for a job: fewer are taken for the beginning of the next.

        A person who thinks for a minute seems to begin a new job with each request.
        """
        return self._cycles.count >= self._settings.min_cycles

    @property
    def likely_ns(self) -> float:
        """How much of its paused time probably waited for input."""
        said = self.suspicion
        return 0.0 if said is None else said.input_probability * self._weighed_ns

    def add(self, cycle: Cycle, untagged_ns: int, sample_s: float, *, is_pattern: bool) -> None:
        """A burst and the pause after it have ended.

        Args:
            cycle: How long they were.
            untagged_ns: What no tag explains of the pause.
            sample_s: How long the newest sample was.
            is_pattern: Whether there are enough pauses, as verdicts count them.
        """
        cycles, remembered = self._cycles, self._settings.remembered_cycles
        cycles.add(cycle)
        self._unweighed_ns += untagged_ns
        is_explained = not (self._weighed_ns or self._unweighed_ns)
        # A look at all that is remembered costs more than all else here: now and then will do.
        if cycles.count <= remembered or cycles.count % (remembered // 2) == 0:
            self.cycle_ns = cycles.steady_ns
            if is_explained or not (is_pattern or self.is_whole):
                return
            shape = cycles.shape(sample_s)
            if shape is not None:
                self._look(shape)

    def _look(self, shape: PauseShape) -> None:
        settings, cycles = self._settings, self._cycles
        probability = input_probability(shape)
        self._looked_likely_ns += probability * self._unweighed_ns
        self._weighed_ns += self._unweighed_ns
        self._unweighed_ns = 0
        looked_likely = self._looked_likely_ns / self._weighed_ns
        both = _log_odds(probability) + _log_odds(looked_likely)
        short_of = max(0, settings.enough_pauses - cycles.count)
        probability = _from_odds(WEIGHT_OF_A_LOOK * both - LESS_FOR_FEW * short_of)
        causes = _likely_causes(probability, shape, settings)
        self.suspicion = Suspicion(probability, causes, shape, cycles.latest_ns)


def input_probability(shape: PauseShape) -> float:
    """What the model of ``settings.input_model`` says of this shape, 0 to 1.

    A feature that is no number counts as its centre: as one that says nothing.
    """
    offs = [_off(value, *place) for value, place in zip(shape, _PLACES, strict=True)]
    offs.append(1.0)
    return _from_odds(sum([w * offs[a] * offs[b] * offs[c] for w, (a, b, c) in _PRODUCTS]))


def _from_odds(log_odds: float) -> float:
    return 1 / (1 + math.exp(-log_odds))


def _log_odds(probability: float) -> float:
    """Of a probability that is no certainty."""
    probability = min(1 - _LEAST, max(_LEAST, probability))
    return math.log(probability / (1 - probability))


def _off(value: float, centre: float, scale: float) -> float:
    """How far from the centre, in scales; no farther than any world of the training was."""
    if not math.isfinite(value):
        return 0.0
    return min(FARTHEST, max(-FARTHEST, (value - centre) / scale))


def _likely_causes(
    probability: float, shape: PauseShape, settings: DetectorSettings
) -> tuple[LikelyCause, ...]:
    """Late input by its probability; of the others what the bursts before the pauses tell."""
    late, other = (LikelyCause.LATE_INPUT,), _others(shape, settings)
    if probability >= settings.promised_from:
        return late
    if probability >= settings.suspected_from:
        return late + other
    if probability >= 1 - settings.promised_from:
        return (LikelyCause.OPEN, *late, *other)
    return other


def _others(shape: PauseShape, settings: DetectorSettings) -> tuple[LikelyCause, ...]:
    if shape.burst_variation > settings.requests_from:
        return (LikelyCause.REQUESTS,)
    is_seldom = nanoseconds(math.exp(shape.burst)) >= settings.every_n_steps_from_ns
    if is_seldom or shape.level > settings.copies_from:
        return (LikelyCause.EVERY_N_STEPS, LikelyCause.OTHER_MACHINES)
    return (LikelyCause.OTHER_MACHINES, LikelyCause.EVERY_N_STEPS)
