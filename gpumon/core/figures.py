"""Seconds, shares and counts as people read them, the same in every sentence."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.core.units import seconds


def in_seconds(duration_ns: int) -> str:
    """A duration with its unit.

    >>> in_seconds(1_234_560_000_000), in_seconds(40_000_000), in_seconds(0)
    ('1,234.6 s', '0.04 s', '0.0 s')
    """
    duration_s = seconds(duration_ns)
    if 0.0 < abs(duration_s) < 0.095:
        return f"{duration_s:.2g} s"
    return f"{duration_s:,.1f} s"


def in_percent(ratio: float | None) -> str:
    """A share as a whole percentage, finer where it is small.

    >>> in_percent(0.4133), in_percent(0.0042), in_percent(0.9996), in_percent(None)
    ('41 %', '0.4 %', '99.96 %', 'unknown')
    """
    if ratio is None:
        return "unknown"
    percent = 100.0 * ratio
    if 0.0 < percent < 9.95:
        return f"{percent:.1f} %"
    if 99.5 <= percent < 100.0:
        # Never rounded to a whole that was not reached.
        return f"{min(percent, 99.99):.2f} %"
    return f"{percent:.0f} %"


def counted(count: int, one: str, many: str) -> str:
    """A count with its noun.

    >>> counted(1, "pause", "pauses"), counted(1200, "pause", "pauses")
    ('1 pause', '1,200 pauses')
    """
    return f"{count:,} {one if count == 1 else many}"


def listed(words: Sequence[str], most: int = 4) -> str:
    """Words as a list to be read aloud.

    >>> listed(["GPU 0"]), listed(["GPU 0", "GPU 1", "GPU 2"]), listed(list("abcdef"), most=2)
    ('GPU 0', 'GPU 0, GPU 1 and GPU 2', 'a, b and 4 more')
    """
    if len(words) > most:
        words = [*words[:most], f"{len(words) - most} more"]
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"
