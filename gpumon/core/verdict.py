"""The words of a verdict, and what it rests on."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from gpumon.core.phase import IdleCause


class VerdictName(str, Enum):
    """What the time of one GPU looks like, in the order in which the rules are tried."""

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
    def is_judged(self) -> bool:
        """Whether it is about the time the GPU was in use, and there was enough of that."""
        return self not in (
            self.HANGING, self.TOO_FEW_SAMPLES, self.NOT_IN_USE, self.TOO_SHORT_TO_JUDGE
        )  # fmt: skip

    @property
    def is_of_a_loss(self) -> bool:
        """Whether it says that time worth a word was lost."""
        return self.is_judged and self is not self.HEALTHY


class Severity(str, Enum):
    """How much of the in-use time is lost, or how bad a trouble is; the gravest last."""

    NONE = "none"
    MODERATE = "moderate"
    HIGH = "high"

    @property
    def gravity(self) -> int:
        """The higher, the graver."""
        return [*Severity].index(self)


class Pattern(str, Enum):
    """What utilisation alone shows."""

    UNUSED = "unused"
    BUSY = "busy"
    BURSTY = "bursty"
    PARTIAL = "partial"


class LikelyCause(str, Enum):
    """What pauses that nothing explains look like."""

    LATE_INPUT = "late_input"
    EVERY_N_STEPS = "every_n_steps"
    OTHER_MACHINES = "other_machines"
    REQUESTS = "requests"
    OPEN = "open"


class Verdict(NamedTuple):
    """One GPU's verdict with what it rests on.

    Attributes:
        main_cause: The cause with the most lost time; ``None`` where none is lost, and where
            tags leave open which it is.
        lost_ratio: Idle share of in-use time, 0 to 1; ``None`` without in-use time.
        starved_ratio: (starved + suspected) / in-use, 0 to 1; ``None`` without in-use time.
        coverage_ratio: Share of in-use time that is busy or has a cause
            other than ``unknown``; ``None`` without in-use time.
        input_probability: That it loses time worth a verdict to late input, 0 to 1, as its pauses
            look; ``None``: they are too few to say.
        likely_causes: What its pauses can be, the likeliest first; ``None``: likewise.
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
