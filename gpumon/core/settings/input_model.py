"""How the shape of a job's pauses is weighed: whether they are waits for late input.

Each ``Term`` is one statement about how GPUs pause. Its value grows with the logarithm of one
measure of ``PauseShape`` and is multiplied by its weight; the sum is multiplied by the share of
evidence that the readings carry (``EVIDENCE``), and added to the logarithm of the prior odds.
From ``DECIDED_FROM`` on the answer is ``LIKELY``, up to ``UNLIKELY`` it is that; in between the
shape decides nothing, and the prior is the answer.

Origin of the weights: ``python -m tests.truth.input_model fit`` fits them on three generators of
machines that were written independently of each other, and writes what stands between the marks.
How right the result is on a generator that it was not fitted on stands in docs/accuracy.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple


class Term(NamedTuple):
    """One statement about pauses, as the model weighs it.

    Attributes:
        measure: The field or property of ``PauseShape`` that it reads.
        zero_at: Where that says nothing, in the measure's own unit.
        full_at: Where it says all it can.
        is_two_sided: Whether it speaks below ``zero_at``, too, the other way round.
        says: What a large value of the measure means, and why; a sentence.
    """

    measure: str
    zero_at: float
    full_at: float
    is_two_sided: bool
    says: str


TERMS: Final[Mapping[str, Term]] = MappingProxyType(
    {
        "varying_bursts": Term(
            "burst_variation",
            0.10,
            0.25,
            True,
            "A fixed number of steps takes the same time, so equal bursts point to a checkpoint or "
            "an evaluation; a prefetch queue runs dry after bursts that vary.",
        ),
        "wild_bursts": Term(
            "burst_variation",
            1.5,
            3.0,
            False,
            "A queue that runs dry does so after like amounts of work; bursts that vary by more "
            "than their own length are requests, or work of several kinds.",
        ),
        "long_bursts": Term(
            "burst_s",
            13.4,
            60.0,
            True,
            "A loader that is too slow empties its queue within seconds; what comes after a minute "
            "of work is mostly done every so many steps.",
        ),
        "long_pauses": Term(
            "pause_s",
            8.0,
            30.0,
            False,
            "A batch is late by seconds; half a minute is an evaluation, a round, or a person.",
        ),
        "wild_pauses": Term(
            "pause_variation",
            1.0,
            2.0,
            False,
            "Times between requests vary by more than their own length: half are short, and "
            "some very long.",
        ),
        "mostly_idle": Term(
            "paused_ratio",
            0.5,
            0.8,
            False,
            "A GPU that pauses most of the time mostly has nobody who asks for work.",
        ),
        "busy_pauses": Term(
            "resolved_level_ratio",
            0.05,
            0.15,
            False,
            "A GPU that works a little in its pauses copies a state or computes for somebody; one "
            "that waits for a batch does nothing.",
        ),
    }
)

PRIOR: Final = 0.35
"""The probability where the shape decides nothing. Origin: ours, below the share of starved GPUs
among those that pause in any of the generators (0.45 to 0.49)."""
DECIDED_FROM: Final = 0.68
"""From this sum on, the shape speaks for late input. Origin: ours; chosen on seeds of generators
left out that no figure in docs/accuracy.md is from."""
LIKELY: Final = 0.80
"""The answer where the shape speaks for late input. Origin: of 95 such machines of generators left
out, on seeds that nobody had seen, 80 were starved."""
UNLIKELY: Final = 0.20
"""The answer where the shape speaks against late input. Origin: of such machines of generators
left out, 30 % were starved; and the same machine, read at another rate, says at most 0.15 more."""
RARE: Final = 0.05
"""The most where pauses take less time than is worth a verdict: late input cannot cost more."""

AT_LEAST: Final[Mapping[str, float]] = {"varying_bursts": 1.5, "wild_pauses": 1.0}
"""The least that these weigh in a fit. Origin: ours; two generators have many late loaders with
equal bursts or with wild pauses, and without this a checkpoint or a server is called as likely."""

# fitted: from here
WEIGHTS: Final[Mapping[str, float]] = {
    "varying_bursts": 1.5,
    "wild_bursts": -0.83,
    "long_bursts": -1.15,
    "long_pauses": -0.76,
    "wild_pauses": -1.0,
    "mostly_idle": -1.12,
    "busy_pauses": -0.92,
}
# fitted: to here


class Readings(NamedTuple):
    """How much of the evidence readings carry, 0 to 1; the product of the three shares.

    Attributes:
        burst_grains: Median burst, in times between two readings, that tells nothing, and that
            tells all: what is hardly longer than a reading has no measurable length.
        pause_grains: The same of the median pause.
        half_at_pauses: So many pauses carry half of it.
    """

    burst_grains: tuple[float, float]
    pause_grains: tuple[float, float]
    half_at_pauses: int


EVIDENCE: Final = Readings(burst_grains=(1.5, 4.5), pause_grains=(1.0, 3.0), half_at_pauses=12)
"""Origin: ours; each end of a burst is known to one reading at best."""
EQUAL_BELOW: Final = 0.02
"""Bursts that differ by no more than readings can tell are evidence of equal ones only where a
reading is shorter than this share of a burst. Origin: ours; a fixed number of steps varies by
1 %."""
VARIES_FROM_GRAINS: Final = 2.0
"""Bursts vary where most of them lie further apart than this many readings. Origin: each of the
two ends of a burst is known to one reading."""
