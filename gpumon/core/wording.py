"""How all messages write times, shares, counts, lists and names.

Text from outside (names, labels, messages) goes through ``label_text``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from gpumon.core.clock import NS_PER_S, seconds

_MAX_DIGITS: Final = 6
"""A share closer to a limit than this is shown as the limit."""
_MIN_SHOWN_SHARE: Final = 0.0005
_NS_OF_UNIT: Final = {"s": NS_PER_S, "min": 60 * NS_PER_S, "h": 3600 * NS_PER_S}
_SECONDS_BELOW_S: Final = 90
_MINUTES_BELOW_S: Final = 90 * 60
_GPU_UNITS: Final = {"s": "GPU-seconds", "min": "GPU-minutes", "h": "GPU-hours"}
_GRAINS_S: Final = ((600, 10), (_MINUTES_BELOW_S, 60), (36_000, 600))
"""Below the first of each pair, a duration is rounded to the second."""
_TO: Final = "\N{EN DASH}"


def plainly(value: float, digits: int = 6) -> str:
    """A number with ``digits`` significant digits, never as a power of ten.

    >>> plainly(0.25), plainly(86_400.0, 3), plainly(0.0000741, 2)
    ('0.25', '86,400', '0.000074')
    """
    from decimal import Decimal  # a daemon without a reader needs none

    return f"{Decimal(f'{value:.{digits}g}'):,f}"


def in_time(duration_ns: int) -> str:
    """A duration of any length, as people say it.

    Below 90 seconds it has three digits, or two decimals of a second; below 90 minutes, minutes
    and seconds; beyond that, hours and minutes.

    >>> in_time(2_000_000_000), in_time(59_800_000_000), in_time(58_800_000), in_time(0)
    ('2 s', '59.8 s', '0.06 s', '0 s')
    >>> in_time(97_700_000_000), in_time(322_300_000_000), in_time(8_198_900_000_000)
    ('1 min 38 s', '5 min 22 s', '2 h 17 min')
    """
    duration_s = seconds(duration_ns)
    if abs(duration_s) < 1:
        return f"{plainly(round(duration_s, 2) or duration_s, 2)} s"
    if duration_s < _SECONDS_BELOW_S:
        return f"{plainly(duration_s, 3)} s"
    return _in_two_units(duration_s)


def part_of(part_ns: int, whole_ns: int) -> str:
    """A part of some time and the whole; they share a unit where both are short.

    >>> part_of(15_000_000_000, 29_000_000_000), part_of(97_700_000_000, 322_300_000_000)
    ('15 of 29 s', '1 min 38 s of 5 min 22 s')
    """
    return _joined(in_time(part_ns), "of", in_time(whole_ns))


def time_range(low_ns: int, high_ns: int) -> str:
    """A range of durations.

    >>> time_range(1_400_000_000, 5_000_000_000), time_range(0, 90_000_000_000)
    ('1.4 to 5 s', '0 s to 1 min 30 s')
    """
    return _joined(in_time(low_ns), "to", in_time(high_ns))


def _joined(first: str, between: str, second: str) -> str:
    if first.count(" ") == second.count(" ") == 1 and first.split()[1] == second.split()[1]:
        first = first.split()[0]
    return f"{first} {between} {second}"


def in_unit_of(whole_ns: int, amount_ns: int) -> str:
    """An amount of time for a column, whose cells share a unit and a number of decimals.

    >>> in_unit_of(10_920_000_000_000, 72_000_000_000), in_unit_of(29_000_000_000, 15_000_000_000)
    ('0.02 h', '15.0 s')
    """
    unit_s, unit = _unit_of(whole_ns, 3)
    decimals = 2 if seconds(whole_ns) / unit_s < 10 else 1
    return f"{seconds(amount_ns) / unit_s:,.{decimals}f} {unit}"


def parts_in_unit_of(like_ns: int, parts_ns: Sequence[int]) -> list[str | None]:
    """The parts of an amount for a column, rounded so that they add up to the rounded amount.

    Args:
        like_ns: As ``whole_ns`` of ``in_unit_of``.
        parts_ns: None is negative.

    Returns:
        Cells that sum to ``in_unit_of(like_ns, sum(parts_ns))``; ``None`` for a part that would
        be zero there.

    >>> parts_in_unit_of(29_000_000_000, [1_440_000_000, 1_440_000_000, 20_000_000])
    ['1.5 s', '1.4 s', None]
    >>> in_unit_of(29_000_000_000, 2_900_000_000)
    '2.9 s'
    """
    figure, unit = in_unit_of(like_ns, sum(parts_ns)).replace(",", "").split(" ")
    decimals = len(figure.partition(".")[2])
    grain_ns = _NS_OF_UNIT[unit] // 10**decimals
    grains = [part_ns // grain_ns for part_ns in parts_ns]
    missing = int(figure.replace(".", "")) - sum(grains)
    by_remainder = sorted(range(len(grains)), key=lambda at: -(parts_ns[at] % grain_ns))
    for at in by_remainder[:missing]:
        grains[at] += 1
    return [f"{count / 10**decimals:,.{decimals}f} {unit}" if count else None for count in grains]


def in_about(duration_ns: int) -> str:
    """A duration rounded to about two digits, for medians and means.

    >>> in_about(27_911_861_342), in_about(131_000_000_000), in_about(1_319_070_931_588)
    ('28 s', '2 min 10 s', '22 min')
    """
    duration_s = seconds(duration_ns)
    if duration_s < _SECONDS_BELOW_S:
        return f"{_to_digits(duration_s, 2)} s"
    grain_s = next((grain_s for below_s, grain_s in _GRAINS_S if duration_s < below_s), 3600)
    return _in_two_units(grain_s * round(duration_s / grain_s))


def in_gpu_time(duration_ns: int, like_ns: int | None = None) -> str:
    """Time summed over GPUs.

    Args:
        duration_ns: The time.
        like_ns: Another time, whose unit in a column to use (``in_unit_of``).

    >>> in_gpu_time(4_000_000_000), in_gpu_time(90_000_000_000), in_gpu_time(44_280_000_000_000)
    ('4 GPU-seconds', '1.5 GPU-minutes', '12.3 GPU-hours')
    >>> in_gpu_time(90_000_000_000, 44_280_000_000_000)
    '0.025 GPU-hours'
    """
    duration_s = seconds(duration_ns)
    if like_ns is not None:
        unit_s, unit = _unit_of(like_ns, 3)
        return f"{_to_digits(duration_s / unit_s, 3)} {_GPU_UNITS[unit]}"
    if duration_s < _SECONDS_BELOW_S:
        return f"{in_time(duration_ns).removesuffix(' s')} GPU-seconds"
    if duration_s < _MINUTES_BELOW_S:
        return f"{plainly(duration_s / 60, 3)} GPU-minutes"
    return f"{_to_digits(duration_s / 3600, 3)} GPU-hours"


def _in_two_units(duration_s: float) -> str:
    """Minutes and seconds, or hours and minutes; whole hours from a hundred on."""
    if duration_s < _MINUTES_BELOW_S - 0.5:
        first, second = divmod(round(duration_s), 60)
        units = "min", "s"
    else:
        first, second = divmod(round(duration_s / 60), 60)
        units = "h", "min"
        second = second if first < 100 else 0
    return f"{first:,} {units[0]}" + (f" {second} {units[1]}" if second else "")


def _unit_of(duration_ns: int, digits: int) -> tuple[int, str]:
    """Seconds up to two minutes, minutes up to two hours, hours."""
    about_s = float(f"{seconds(duration_ns):.{digits}g}")
    if about_s < 119.5:
        return 1, "s"
    return (60, "min") if about_s / 60 < 119.5 else (3600, "h")


def _to_digits(value: float, digits: int) -> str:
    """Write a value with ``digits`` digits, or all of a longer integer."""
    has_more = value >= 10 ** (digits - 1) - 0.05
    return f"{value:,.0f}" if has_more else plainly(value, digits)


def in_gibibytes(amount_bytes: int) -> str:
    """Memory, as nvidia-smi counts it.

    >>> in_gibibytes(73 << 30), in_gibibytes(1 << 29)
    ('73.0 GiB', '0.5 GiB')
    """
    return f"{amount_bytes / (1 << 30):,.1f} GiB"


def is_next_to_nothing(amount_ns: int, whole_ns: int) -> bool:
    """Whether a part of some time is too small to be worth a line.

    >>> is_next_to_nothing(190_000_000, 400_000_000_000), is_next_to_nothing(40_000_000, 10**9)
    (True, False)
    """
    return amount_ns < _MIN_SHOWN_SHARE * whole_ns or not amount_ns


def in_percent(ratio: float | None, *limits: float) -> str:
    """A share as a whole percentage, finer where it is small.

    Args:
        ratio: The share, usually 0 to 1; ``None``: unknown.
        limits: Shares that it was compared with: it is never rounded to or across one of them,
            because the figure would contradict the verdict.

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
    while digits < _MAX_DIGITS and any(
        _side(round(percent, digits), limit) != _side(percent, limit) for limit in passed
    ):
        digits += 1
    return f"{percent:.{digits}f} %"


def percent_range(low: float, high: float, *limits: float) -> str:
    """A range of shares, 0 to 1; limits as in ``in_percent``.

    >>> percent_range(0.231, 0.408)
    '23 to 41 %'
    """
    return f"{in_percent(low, *limits).removesuffix(' %')} to {in_percent(high, *limits)}"


def _side(percent: float, limit: float) -> int:
    return (percent > limit) - (percent < limit)


def counted(count: int, one: str, many: str) -> str:
    """A count with its noun.

    >>> counted(1, "pause", "pauses"), counted(1200, "pause", "pauses")
    ('1 pause', '1,200 pauses')
    """
    return f"{count:,} {one if count == 1 else many}"


def listed(words: Sequence[str], most: int = 4) -> str:
    """Words as a list in a sentence.

    >>> listed(["GPU 0"]), listed(["GPU 0", "GPU 1", "GPU 2"]), listed(list("abcdef"), most=2)
    ('GPU 0', 'GPU 0, GPU 1 and GPU 2', 'a, b and 4 more')
    """
    if len(words) > most:
        words = [*words[:most], f"{len(words) - most} more"]
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def capital(text: str) -> str:
    """The text, its first letter in upper case."""
    return text[:1].upper() + text[1:]


def time_of_day(at: datetime, now: datetime) -> str:
    """The time of day, with its zone if known, and the day if it is not today.

    >>> began = datetime.fromisoformat("2026-11-27T23:59:10+00:00")
    >>> time_of_day(began, began), time_of_day(began, datetime.fromisoformat("2026-11-28"))
    ('23:59 UTC', '2026-11-27 23:59 UTC')
    """
    day = "" if at.date() == now.date() else f"{at:%Y-%m-%d} "
    zone = ""
    if at.tzinfo is not None:
        zone = f" {at:%z}" if at.utcoffset() else " UTC"
    return f"{day}{at:%H:%M}{zone}"


def gpu_label(index: int, mig_index: int | None) -> str:
    """How people and tools number a GPU or a MIG instance.

    >>> gpu_label(0, None), gpu_label(0, 1)
    ('0', '0:1')
    """
    return str(index) if mig_index is None else f"{index}:{mig_index}"


def gpus_named(labels: Iterable[str], most: int = 4) -> str:
    """GPUs as a list in a sentence, adjacent ones as a range; at most ``most`` names or ranges.

    >>> gpus_named(["0"]), gpus_named(["0", "1:0"]), gpus_named("4 5 6 7 9".split())
    ('GPU 0', 'GPUs 0 and 1:0', 'GPUs 4–7 and 9')
    """  # noqa: RUF002  (ranges have an en dash)
    names = list(labels)
    runs: list[list[str]] = []
    for name in names:
        if runs and name.isdecimal() and runs[-1][-1] == str(int(name) - 1):
            runs[-1].append(name)
        else:
            runs.append([name])
    spans = [[f"{run[0]}{_TO}{run[-1]}"] if len(run) > 2 else run for run in runs]
    text = listed([one for span in spans for one in span], most)
    return f"GPUs {text}" if len(names) > 1 else f"GPU {text}"


MAX_LABEL_LENGTH: Final = 128
"""Characters of outside text that an outlet shows."""

_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
_CUT_MARK: Final = "\N{HORIZONTAL ELLIPSIS}"


def label_text(raw: object, max_length: int = MAX_LABEL_LENGTH) -> str:
    r"""Outside text made safe for metrics, a terminal and a page.

    Control characters, line breaks, lone surrogates and characters that change the writing
    direction are each replaced with U+FFFD; right-to-left letters stay. Longer text ends with an
    ellipsis. ``None`` becomes empty text, which Prometheus reads as *no such label*.

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


def is_truncated(text: str) -> bool:
    """Whether ``label_text`` truncated this."""
    return text.endswith(_CUT_MARK)
