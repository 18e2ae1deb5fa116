"""By how much one GPU lastingly exceeds another, whose sample windows are not the same."""

from __future__ import annotations


class LastingExcess:
    """Amounts by which one thing exceeds another, from window to window, less what is noise.

    Each GPU has sample windows of its own, so that what a peer did in one of ours is known to
    about one of its windows only: two GPUs that pause in the same step seem busier than each
    other in turn. What fell short a moment ago therefore makes up for what exceeds now, by at
    most one window. An excess that lasts is hardly the smaller for it.

    >>> excess = LastingExcess()
    >>> [excess.of("GPU-1", amount, most_ns=100) for amount in (-30, 20, 30, -500, 50, 60)]
    [0, 0, 20, 0, 0, 10]
    """

    def __init__(self) -> None:
        self._short_ns: dict[str, int] = {}  # 0 or less

    def of(self, name: str, amount_ns: int, most_ns: int) -> int:
        """How much of an amount is in excess; to be asked once for each window.

        Args:
            name: Of what is compared.
            amount_ns: By how much it exceeds in this window; below 0: falls short.
            most_ns: The longest window of the two: no more is made up for.
        """
        amount_ns += self._short_ns.get(name, 0)
        self._short_ns[name] = min(0, max(amount_ns, -most_ns))
        return max(0, amount_ns)
