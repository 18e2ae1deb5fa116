"""What a device is asked every few seconds, field by field, each for itself.

A field that is slow is asked less often; one that nobody could read for three
of its periods has no answer any more; and one whose calls fail is told as
failing, until one of them answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Final

from gpumon.core.board.latest_values import LatestValues, holds_for_ns
from gpumon.core.clock import NS_PER_S
from gpumon.core.sample import FieldFault, GpuDetails
from gpumon.sources.nvml.binding import FieldCalls
from gpumon.sources.nvml.codes import code_name
from gpumon.sources.nvml.details.fields import NvmlOptions

_RESTED_TIMES: Final = 50
"""A field that took that long rests for so many times as long: it gets 2 % of the time at most."""

_LONGEST_REST_NS: Final = 60 * NS_PER_S

_DETAILS: Final = frozenset(GpuDetails._fields)

_HANGS_AFTER_NS: Final = 3 * NS_PER_S
"""A call that takes so long is told of: what is behind it waits."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the devices of one source have in common.

    Attributes:
        options: Which fields are read.
        monotonic_ns: Tells the time.
        period_ns: Time between two ticks.
        slow_period_ns: Time between two readings of what changes slowly.
        after_reading: Runs something when no slow reading is under way: now, or by
            the thread that reads.
    """

    options: NvmlOptions
    monotonic_ns: Callable[[], int]
    period_ns: int
    slow_period_ns: int
    after_reading: Callable[[Callable[[], None]], None]


def details_in(values: Mapping[str, Any]) -> GpuDetails | None:
    """What is among these values, by name, of a board's details; ``None``: nothing was read."""
    if "read_at_ns" not in values:
        return None
    return GpuDetails(**{name: value for name, value in values.items() if name in _DETAILS})


class FieldFaults:
    """Which fields of one device fail now.

    Attributes:
        failing: They, in the order in which they began to.
    """

    def __init__(self) -> None:
        self.failing: tuple[FieldFault, ...] = ()
        self._hanging: str | None = None

    def note(self, field: str, function: str, code: int, now_ns: int) -> None:
        """A call of that field failed."""
        self.begin(field, f"{function} answers {code_name(code)}", now_ns)

    def begin(self, field: str, reason: str, now_ns: int) -> None:
        """That field fails; since when is kept where it did before."""
        for fault in self.failing:
            if fault.field == field:
                return
        self.failing = (*self.failing, FieldFault(field, reason, now_ns))

    def hang(self, field: str | None, now_ns: int) -> None:
        """That field's call does not come back; ``None``: no call hangs any more."""
        if self._hanging is not None and self._hanging != field:
            self.end(self._hanging)
        self._hanging = field
        if field is not None:
            self.begin(field, "the call has not come back", now_ns)

    def end(self, field: str) -> None:
        """That field was answered."""
        if self.failing:
            self.failing = tuple([fault for fault in self.failing if fault.field != field])


class Turn:
    """One field's reading.

    Attributes:
        field: What users call it.
        read: Asks the driver, at an instant of CLOCK_MONOTONIC; gives the values by name.
        calls: What it asks through.
        period_ns: How often it is asked.
    """

    def __init__(
        self,
        field: str,
        read: Callable[[int], Mapping[str, Any]],
        calls: FieldCalls,
        period_ns: int,
    ) -> None:
        self.field, self.read, self.calls, self.period_ns = field, read, calls, period_ns
        self.rests_until_ns = 0


class Turns:
    """The fields of one device that are read every few seconds, in their order.

    One thread takes the turns; another may look at what they brought, and at
    what is under way.

    Attributes:
        latest: What they said.
        faults: Which of them fail.
    """

    def __init__(self, monotonic_ns: Callable[[], int]) -> None:
        self.latest = LatestValues()
        self.faults = FieldFaults()
        self._monotonic_ns = monotonic_ns
        self._turns: list[Turn] = []
        self._under_way: tuple[str, int] | None = None

    def add(self, turn: Turn) -> None:
        """One more field."""
        self._turns.append(turn)

    def take(self) -> None:
        """Ask for everything that is due."""
        for turn in self._turns:
            now_ns = self._monotonic_ns()
            if now_ns < turn.rests_until_ns:
                continue
            started_ns = perf_counter_ns()
            values = self._ask(turn, now_ns)
            rest_ns = min(_RESTED_TIMES * (perf_counter_ns() - started_ns), _LONGEST_REST_NS)
            turn.rests_until_ns = now_ns + rest_ns
            # A field that rests is asked later, and only then it can be late.
            self._tell(turn, values, max(0, rest_ns - turn.period_ns))

    def take_one(self, turn: Turn) -> None:
        """Ask for a field whose turns somebody else counts."""
        self._tell(turn, self._ask(turn, self._monotonic_ns()), 0)

    def _ask(self, turn: Turn, now_ns: int) -> Mapping[str, Any]:
        calls = turn.calls
        calls.begin()
        self._under_way = turn.field, now_ns
        values = turn.read(now_ns)
        self._under_way = None
        if calls.error is not None:
            self.faults.note(turn.field, *calls.error, now_ns)
        elif calls.answered:
            self.faults.end(turn.field)
        return values

    def _tell(self, turn: Turn, values: Mapping[str, Any], later_ns: int) -> None:
        until_ns = self._monotonic_ns() + later_ns + holds_for_ns(turn.period_ns)
        self.latest.tell(turn.field, values, until_ns)

    def hanging(self, now_ns: int) -> str | None:
        """The field whose call has not returned for seconds; ``None``: there is none."""
        under_way = self._under_way
        if under_way is None or now_ns - under_way[1] < _HANGS_AFTER_NS:
            return None
        return under_way[0]
