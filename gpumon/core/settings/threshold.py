"""A threshold as a field of a settings type: its value, what it decides, and its origin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from functools import partial
from typing import Final, TypeVar

from gpumon.core.clock import NS_PER_S
from gpumon.errors import UsageError

_Number = TypeVar("_Number", int, float)
_KEY: Final = "threshold"


class Unit(str, Enum):
    """Unit of a threshold. A share is within 0 and 1, any other value above 0."""

    SHARE = "share"
    NANOSECONDS = "nanoseconds"
    COUNT = "count"
    TIMES = "times"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """One threshold of a settings type.

    Attributes:
        name: The field's, after its group's: ``lost_share``, ``fill.busy_above``.
        what: What it decides, as a sentence.
        origin: A system or guide that uses the number, or ``ours:`` and why.
    """

    name: str
    value: int | float
    unit: Unit
    what: str
    origin: str

    @property
    def text(self) -> str:
        """The value with its unit: ``5 %``, ``10 s``, ``3``, ``2.5 x``."""
        if self.unit is Unit.SHARE:
            return f"{100 * self.value:g} %"
        if self.unit is Unit.NANOSECONDS:
            return f"{self.value / NS_PER_S:g} s"
        if self.unit is Unit.BYTES:
            is_small = self.value < 1 << 30
            return f"{self.value / 1e6:g} MB" if is_small else f"{self.value / (1 << 30):g} GiB"
        return f"{self.value:g} x" if self.unit is Unit.TIMES else f"{self.value:g}"


def _threshold(unit: Unit, default: _Number, what: str, origin: str) -> _Number:
    """Declare a threshold as a field of a settings type."""
    declared = Threshold(name="", value=default, unit=unit, what=what, origin=origin)
    return field(default=default, metadata={_KEY: declared})


share = partial(_threshold, Unit.SHARE)
time_ns = partial(_threshold, Unit.NANOSECONDS)
count = partial(_threshold, Unit.COUNT)
times = partial(_threshold, Unit.TIMES)
amount_bytes = partial(_threshold, Unit.BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A settings type: its fields are thresholds, and groups of them.

    Raises:
        UsageError: A value is out of range.
    """

    def __post_init__(self) -> None:
        for one in _declared(self, ""):
            if one.unit is Unit.SHARE:
                if not 0.0 <= one.value <= 1.0:
                    raise UsageError(f"{one.name} must be within 0..1, got {one.value!r}")
            elif not one.value > 0:
                raise UsageError(f"{one.name} must be positive, got {one.value!r}")


def thresholds_of(settings: Settings, group: str = "") -> Iterator[Threshold]:
    """All thresholds, then those of the groups, whose names start with the group's."""
    yield from _declared(settings, group)
    for each in fields(settings):
        value = getattr(settings, each.name)
        if isinstance(value, Settings):
            yield from thresholds_of(value, f"{group}{each.name}.")


def _declared(settings: Settings, group: str) -> Iterator[Threshold]:
    for each in fields(settings):
        declared = each.metadata.get(_KEY)
        if declared is not None:
            value = getattr(settings, each.name)
            yield replace(declared, name=f"{group}{each.name}", value=value)
