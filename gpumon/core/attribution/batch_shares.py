"""Split a batch over unequal GPUs: ratios, sample counts, and the ratios that balance them.

The ratio model, the loaders, ``trainer-bench`` and the report's advice all use these functions,
so that a ratio means the same number of samples everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from typing import Final, Literal

FINEST: Final = 1 << 24
"""The largest sum of integer ratios: in 64 bits, a batch of 2**38 samples is still exact."""
_NEARLY: Final = 0.01
_WITHOUT_A_PART: Final = {
    "GPU": "leave a GPU out of gpus where it is to have nothing",
    "rank": "start fewer ranks where one is to have nothing",
}


def checked_ratios(
    ratios: Sequence[float], count: int, *, each: Literal["GPU", "rank"] = "GPU"
) -> tuple[float, ...]:
    """The ratios, if they are valid.

    Args:
        ratios: One number for each GPU or rank; only their proportions count.
        count: How many there are.
        each: What messages call them.

    Raises:
        ValueError: No list, not one for each, or one is not a positive, finite number.

    >>> checked_ratios([3, 2], 2)
    (3, 2)
    """
    try:
        if isinstance(ratios, (str, bytes, Mapping, Set)):
            raise TypeError("text, or without an order")
        given = tuple(ratios)
    except TypeError:
        raise ValueError(
            f"ratios must be a list with one number for each {each}, in the order of "
            f"{each.lower()}s, such as [3, 2]; {ratios!r} is of type {type(ratios).__name__}"
        ) from None
    if len(given) != count:
        raise ValueError(
            f"ratios must have one number for each {each}: {len(given)} for {count} {each}s were "
            f"given, {list(given)}"
        )
    for ratio in given:
        is_text = isinstance(ratio, (str, bytes))
        if is_text:
            raise ValueError(f"ratios must be numbers, and {ratio!r} is text: leave out the quotes")
        number = not isinstance(ratio, bool) and hasattr(ratio, "__float__")
        if not number or not math.isfinite(ratio) or ratio <= 0:
            raise ValueError(
                f"ratios must be positive, finite numbers, and {ratio!r} is not one; "
                f"{_WITHOUT_A_PART[each]}"
            )
    return given


def whole_ratios(ratios: Sequence[float]) -> tuple[int, ...]:
    """The same proportions in integers that add up to ``FINEST`` or less.

    Small integers stay as they are; others are rounded to within one part in ``FINEST``, but
    never to 0.

    >>> whole_ratios([3, 2]), whole_ratios([0.5, 0.5])
    ((3, 2), (8388607, 8388607))
    """
    if all(float(ratio).is_integer() for ratio in ratios) and sum(ratios) <= FINEST:
        return tuple(int(ratio) for ratio in ratios)
    room = FINEST - len(ratios)
    return tuple(max(1, round(room * share)) for share in shares_of(ratios))


def split_counts(total: int, ratios: Sequence[float]) -> tuple[int, ...]:
    """Split ``total`` samples by largest remainder, with at least one for each GPU if possible.

    If rounding would leave a GPU with nothing although there are enough samples, each gets one
    first and the ratios split the rest. With fewer samples than GPUs, some get 0.

    Args:
        total: Samples in the batch, 0 or more.
        ratios: One positive number for each GPU.

    Returns:
        Samples for each GPU, adding up to ``total``. The first of equal remainders wins.

    Raises:
        ValueError: ``total`` is negative.

    >>> split_counts(100, [768, 560]), split_counts(2, [4, 3, 2]), split_counts(3, [10, 1])
    ((58, 42), (1, 1, 0), (2, 1))
    """
    if total < 0:
        raise ValueError(f"a batch of {total} samples cannot be split")
    weights = whole_ratios(ratios)
    counts = _largest_remainder(total, weights)
    if total >= len(weights) and 0 in counts:
        counts = [1 + count for count in _largest_remainder(total - len(weights), weights)]
    return tuple(counts)


def _largest_remainder(total: int, weights: tuple[int, ...]) -> list[int]:
    sum_of_weights = sum(weights)
    counts = [total * weight // sum_of_weights for weight in weights]
    by_remainder = sorted(
        range(len(weights)), key=lambda at: -(total * weights[at] % sum_of_weights)
    )
    for at in by_remainder[: total - sum(counts)]:
        counts[at] += 1
    return counts


def shares_of(ratios: Sequence[float]) -> tuple[float, ...]:
    """The part, 0 to 1, of each batch that each GPU is given.

    >>> shares_of([3, 2])
    (0.6, 0.4)
    """
    # A power of two is exact, and keeps the sum of huge ratios finite.
    exponent = math.frexp(max(ratios))[1]
    parts = [math.ldexp(ratio, -exponent) for ratio in ratios]
    total = math.fsum(parts)
    return tuple(part / total for part in parts)


def balanced_ratios(
    ratios: Sequence[float], busy_seconds: Sequence[float]
) -> tuple[float, ...] | None:
    """The ratios with which all GPUs would have been busy for equally long.

    Assumes that a GPU's speed is its share over its busy time, whatever the share: accurate for
    nearly balanced GPUs, so repeat it if they were far from that.

    Args:
        ratios: Ratios during ``busy_seconds``.
        busy_seconds: Busy time of each GPU, over the same steps.

    Returns:
        Shares, 0 to 1, adding up to 1; ``None`` if a GPU was hardly ever busy.

    >>> balanced_ratios([1, 1], [3.0, 1.0])
    (0.25, 0.75)
    """
    if not busy_seconds or min(busy_seconds) <= 0:
        return None
    speeds = [share / busy for share, busy in zip(shares_of(ratios), busy_seconds, strict=True)]
    return shares_of(speeds) if all(map(math.isfinite, speeds)) else None


def simple_ratios(ratios: Sequence[float]) -> tuple[int, ...]:
    """The smallest integers in nearly the same proportions, as people write them.

    Each share changes by a factor of ``_NEARLY`` at most.

    >>> simple_ratios([0.602, 0.398]), simple_ratios([820, 568]), simple_ratios([5, 5])
    ((3, 2), (10, 7), (1, 1))
    """
    shares = shares_of(ratios)
    for total in range(len(shares), 1_000):
        counts = split_counts(total, ratios)
        if all(
            abs(count / total - share) <= _NEARLY * share
            for count, share in zip(counts, shares, strict=True)
        ):
            return counts
    return split_counts(1_000, ratios)
