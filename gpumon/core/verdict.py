"""The verdict on one GPU."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from gpumon.core.phase import IdleCause


class VerdictName(str, Enum):
    """Verdicts, in the order in which their rules are tried."""

    HANGING = "hanging"
    TOO_FEW_SAMPLES = "too_few_samples"
    NOT_IN_USE = "not_in_use"
    TOO_SHORT_TO_JUDGE = "too_short_to_judge"
    HEALTHY = "healthy"
    STARVED = "starved"
    STALLED = "stalled"
    STARVATION_SUSPECTED = "starvation_suspected"
    PARTIAL = "partial"

    @property
    def is_conclusive(self) -> bool:
        """Whether it is about the time in use, and there was enough of it."""
        return self not in (
            self.HANGING, self.TOO_FEW_SAMPLES, self.NOT_IN_USE, self.TOO_SHORT_TO_JUDGE
        )  # fmt: skip

    @property
    def is_of_a_loss(self) -> bool:
        return self.is_conclusive and self is not self.HEALTHY


class Severity(str, Enum):
    """How much of the time in use is lost, or how bad a trouble is."""

    NONE = "none"
    MODERATE = "moderate"
    HIGH = "high"

    @property
    def gravity(self) -> int:
        """Higher is worse."""
        return [*Severity].index(self)


class Pattern(str, Enum):
    """The pattern of utilisation."""

    UNUSED = "unused"
    BUSY = "busy"
    BURSTY = "bursty"
    PARTIAL = "partial"


class LikelyCause(str, Enum):
    """What unexplained pauses look like."""

    LATE_INPUT = "late_input"
    EVERY_N_STEPS = "every_n_steps"
    OTHER_MACHINES = "other_machines"
    REQUESTS = "requests"
    OPEN = "open"


class Verdict(NamedTuple):
    """One GPU's verdict and its figures. Ratios are ``None`` without time in use.

    Attributes:
        main_cause: The cause with the most lost time; ``None`` if no time is lost, or tags leave
            the cause open.
        lost_ratio: Idle share of the time in use, 0 to 1.
        starved_ratio: (starved + suspected) / in use, 0 to 1.
        coverage_ratio: Share of the time in use that is busy or has a cause
            other than ``unknown``, 0 to 1.
        input_probability: Probability, by the shape of its pauses, that it loses time worth a
            verdict to late input, 0 to 1; ``None``: too few pauses.
        likely_causes: What its pauses may be, most likely first; ``None``: too few pauses.
    """

    name: VerdictName
    severity: Severity
    pattern: Pattern
    main_cause: IdleCause | None
    lost_ratio: float | None
    starved_ratio: float | None
    coverage_ratio: float | None
    input_probability: float | None = None
    likely_causes: tuple[LikelyCause, ...] | None = None
