"""A threshold as a field of a settings type: its value, what it decides, where it comes from."""

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
    """What a threshold counts, and so which values it can have."""

    SHARE = "share"
    """A part of a whole, 0 to 1."""
    NANOSECONDS = "nanoseconds"
    """A time, above 0."""
    COUNT = "count"
    """A number of things, above 0."""
    TIMES = "times"
    """A multiple of something, above 0."""
    BYTES = "bytes"
    """An amount of memory, above 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """One threshold of a settings type.

    Attributes:
        name: As rules name it: the field's, after its group's and a dot where
            it stands in one: ``lost_share``, ``fill.busy_above``.
        what: What it decides, in a sentence.
        origin: Where the number comes from: a system or guide that uses it,
            or ``ours:`` and why.
    """

    name: str
    value: int | float
    unit: Unit
    what: str
    origin: str

    @property
    def text(self) -> str:
        """The value as people read it: ``5 %``, ``10 s``, ``3``, ``2.5 x``."""
        if self.unit is Unit.SHARE:
            return f"{100 * self.value:g} %"
        if self.unit is Unit.NANOSECONDS:
            return f"{self.value / NS_PER_S:g} s"
        if self.unit is Unit.BYTES:
            is_small = self.value < 1 << 30
            return f"{self.value / 1e6:g} MB" if is_small else f"{self.value / (1 << 30):g} GiB"
        return f"{self.value:g} x" if self.unit is Unit.TIMES else f"{self.value:g}"


def _threshold(unit: Unit, default: _Number, what: str, *, origin: str) -> _Number:
    """Declare a threshold, as a field of a settings type; arguments as in ``Threshold``."""
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
        UsageError: A share is outside 0 to 1, or anything else is not above 0.
    """

    def __post_init__(self) -> None:
        for one in _declared(self, ""):
            if one.unit is Unit.SHARE:
                if not 0.0 <= one.value <= 1.0:
                    raise UsageError(f"{one.name} must be within 0..1, got {one.value!r}")
            elif not one.value > 0:
                raise UsageError(f"{one.name} must be positive, got {one.value!r}")


def thresholds_of(settings: Settings, group: str = "") -> Iterator[Threshold]:
    """All thresholds of some settings, then of the groups in them, which their names begin with."""
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
