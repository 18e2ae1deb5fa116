"""What the time between two samples of a log lets anybody see."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.core.settings.detector import DEFAULT_SETTINGS, DetectorSettings


class Sampling(NamedTuple):
    """How finely a log was sampled.

    Attributes:
        period_ns: Time between two samples of one GPU, as it was for most of the log.
        shortest_visible_pause_ns: Shorter pauses cannot be told from none.
        is_coarse: Whether that is too long for the pauses of a training.
    """

    period_ns: int
    shortest_visible_pause_ns: int
    is_coarse: bool


def sampling_of(period_ns: int, settings: DetectorSettings = DEFAULT_SETTINGS) -> Sampling:
    """What a log of that period can show.

    A sample is a mean over the driver's window, 1/6 s to 1 s, that ends at
    its stamp. One low sample says only that the GPU was idle in that window:
    two in a row are the least that says that a pause lasted. Stamps are one
    period apart, at any phase, so a pause is sure to hold two of them only if
    it is two periods long. Where the period is the window or less, samples
    cover all the time, and it comes to the same: one whole sample, at any
    phase, lies surely only in a pause of two.

    >>> sampling_of(60_000_000_000)
    Sampling(period_ns=60000000000, shortest_visible_pause_ns=120000000000, is_coarse=True)
    """
    return Sampling(
        period_ns=period_ns,
        shortest_visible_pause_ns=2 * period_ns,
        is_coarse=period_ns >= settings.log.coarse_from_ns,
    )
