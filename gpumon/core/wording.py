"""How things are said, the same in every sentence: times, shares, counts, lists, and names.

What came from outside (names, labels, messages) goes through the one gate, ``label_text``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Final

from gpumon.core.clock import seconds

_MOST_DIGITS: Final = 6
"""Who is nearer to a limit than that is at it, for all that a reader can do about it."""
_LEAST_SHOWN_NS: Final = 50_000_000
_LEAST_SHOWN_SHARE: Final = 0.0005


def plainly(value: float, digits: int = 6) -> str:
    """A number to so many digits that count, however large or small: never as a power of ten.

    >>> plainly(0.25), plainly(86_400.0, 3), plainly(0.0000741, 2)
    ('0.25', '86,400', '0.000074')
    """
    return f"{Decimal(f'{value:.{digits}g}'):,f}"


def in_seconds(duration_ns: int) -> str:
    """A duration with its unit.

    >>> in_seconds(1_234_560_000_000), in_seconds(40_000_000), in_seconds(74_000), in_seconds(0)
    ('1,234.6 s', '0.04 s', '0.000074 s', '0.0 s')
    """
    duration_s = seconds(duration_ns)
    if 0.0 < abs(duration_s) < 0.095:
        return f"{plainly(duration_s, 2)} s"
    return f"{duration_s:,.1f} s"


def in_time(duration_ns: int) -> str:
    """A duration of any length as people say it, to three digits.

    >>> in_time(60_000_000_000), in_time(720_000_000_000), in_time(7_560_000_000_000)
    ('60 s', '12 min', '2.1 h')
    """
    return _in_largest_unit(duration_ns, 3)


def in_about(duration_ns: int) -> str:
    """A duration of any length to two digits, where more would be false: a median, a mean.

    >>> in_about(27_911_861_342), in_about(1_319_070_931_588), in_about(3_060_000_000)
    ('28 s', '22 min', '3.1 s')
    """
    return _in_largest_unit(duration_ns, 2)


def in_gpu_time(duration_ns: int) -> str:
    """Time summed over GPUs.

    >>> in_gpu_time(90_000_000_000), in_gpu_time(44_280_000_000_000)
    ('1.5 GPU-minutes', '12.3 GPU-hours')
    """
    minutes = seconds(duration_ns) / 60
    if minutes < 119.5:
        return f"{plainly(minutes, 3)} GPU-minutes"
    return f"{_to_digits(minutes / 60, 3)} GPU-hours"


def _in_largest_unit(duration_ns: int, digits: int) -> str:
    """Seconds up to two minutes, minutes up to two hours, hours."""
    about_s = float(f"{seconds(duration_ns):.{digits}g}")
    if about_s < 119.5:
        return f"{plainly(about_s, 3)} s"
    minutes = seconds(duration_ns) / 60
    if minutes < 119.5:
        return f"{_to_digits(minutes, digits)} min"
    return f"{_to_digits(minutes / 60, digits)} h"


def _to_digits(value: float, digits: int) -> str:
    """So many digits, or all of a whole number that has more."""
    has_more = value >= 10 ** (digits - 1) - 0.05
    return f"{value:,.0f}" if has_more else f"{value:.{digits}g}"


def in_gibibytes(amount_bytes: int) -> str:
    """Memory, as nvidia-smi counts it.

    >>> in_gibibytes(73 << 30), in_gibibytes(1 << 29)
    ('73.0 GiB', '0.5 GiB')
    """
    return f"{amount_bytes / (1 << 30):,.1f} GiB"


def is_next_to_nothing(amount_ns: int, whole_ns: int) -> bool:
    """Whether a part of some time is so short and so small that a line on it says nothing.

    >>> is_next_to_nothing(40_000_000, 400_000_000_000), is_next_to_nothing(40_000_000, 10**9)
    (True, False)
    """
    is_short = amount_ns < _LEAST_SHOWN_NS and amount_ns < _LEAST_SHOWN_SHARE * whole_ns
    return is_short or not amount_ns


def in_percent(ratio: float | None, *limits: float) -> str:
    """A share as a whole percentage, finer where it is small.

    Args:
        ratio: The share, usually 0 to 1; ``None``: unknown.
        limits: Shares that it was held against: it is never rounded to one
            of them, or across it, for the figure would contradict the verdict.

    >>> in_percent(0.4133), in_percent(0.0042), in_percent(0.9996), in_percent(None)
    ('41 %', '0.4 %', '99.96 %', 'unknown')
    >>> in_percent(0.8997), in_percent(0.8997, 0.9), in_percent(0.9, 0.9)
    ('90 %', '89.97 %', '90 %')
    """
    if ratio is None:
        return "unknown"
    percent = 100.0 * ratio
    digits = 0
    if 0.0 < percent < 9.95:
        digits = 1
    if 99.5 <= percent < 100.0:
        digits, percent = 2, min(percent, 99.99)  # never rounded to a whole that was not reached
    passed = [100.0 * limit for limit in limits if ratio != limit]
    while digits < _MOST_DIGITS and any(
        _side(round(percent, digits), limit) != _side(percent, limit) for limit in passed
    ):
        digits += 1
    return f"{percent:.{digits}f} %"


def _side(percent: float, limit: float) -> int:
    return (percent > limit) - (percent < limit)


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


def gpu_label(index: int, mig_index: int | None) -> str:
    """How people and tools number a GPU, and a MIG instance of one.

    >>> gpu_label(0, None), gpu_label(0, 1)
    ('0', '0:1')
    """
    return str(index) if mig_index is None else f"{index}:{mig_index}"


def gpus_named(labels: Iterable[str]) -> str:
    """GPUs as a list to be read aloud.

    >>> gpus_named(["0"]), gpus_named(["0", "1:0"])
    ('GPU 0', 'GPU 0 and GPU 1:0')
    """
    return listed([f"GPU {label}" for label in labels])


MAX_LABEL_LENGTH: Final = 128
"""Characters of outside text that any outlet repeats."""

_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
_CUT_MARK: Final = "\N{HORIZONTAL ELLIPSIS}"


def label_text(raw: object, max_length: int = MAX_LABEL_LENGTH) -> str:
    r"""Outside text made safe for a scrape, a terminal and a page.

    Control characters, line breaks, bytes that were no UTF-8 (lone
    surrogates) and characters that turn the writing direction are each
    replaced with U+FFFD; letters of right-to-left scripts stay. A longer text
    is cut and ends with an ellipsis. ``None`` becomes the empty text, which
    Prometheus reads as *no such label*.

    Args:
        raw: Text, or anything that has a ``str()``.
        max_length: Most characters kept.

    Returns:
        Printable text that encodes as UTF-8, at most ``max_length`` characters.

    >>> label_text("train\n\x1b[31mred"), label_text(None)
    ('train��[31mred', '')
    """
    if raw is None:
        return ""
    text = raw if type(raw) is str else str(raw)
    if len(text) > max_length:
        text = text[: max_length - 1] + _CUT_MARK
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _REPLACEMENT for character in text)


def is_cut(text: str) -> bool:
    """Whether ``label_text`` had to cut this."""
    return text.endswith(_CUT_MARK)
