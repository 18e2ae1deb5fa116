"""A threshold as a field of a settings type: its value, what it decides, where it comes from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field, dataclass, field, fields, is_dataclass
from enum import Enum
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


@dataclass(frozen=True, slots=True)
class _Declared:
    unit: Unit
    what: str
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """One threshold of a settings type.

    Attributes:
        name: As rules name it: the field's, after its group's and a dot where
            it stands in one: ``lost_share``, ``fill.busy_above``.
        value: Its value in these settings, in its unit.
        unit: What it counts.
        what: What it decides, in a sentence.
        origin: Where the number comes from: whose it is, or that it is ours, and why.
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
            return f"{self.value / (1 << 30):g} GiB"
        return f"{self.value:g} x" if self.unit is Unit.TIMES else f"{self.value:g}"


def share(default: float, what: str, *, origin: str) -> float:
    """Declare a threshold, as a field of a settings type, that is a part of a whole.

    Args:
        default: Its value where nobody says otherwise.
        what: What it decides, in a sentence.
        origin: Where the number comes from: a system or guide that uses it,
            or ``ours:`` and why.
    """
    return _threshold(default, Unit.SHARE, what, origin)


def time_ns(default: int, what: str, *, origin: str) -> int:
    """The same of a time; arguments as those of ``share``."""
    return _threshold(default, Unit.NANOSECONDS, what, origin)


def count(default: int, what: str, *, origin: str) -> int:
    """The same of a number of things."""
    return _threshold(default, Unit.COUNT, what, origin)


def times(default: float, what: str, *, origin: str) -> float:
    """The same of a multiple of something."""
    return _threshold(default, Unit.TIMES, what, origin)


def amount_bytes(default: int, what: str, *, origin: str) -> int:
    """The same of an amount of memory."""
    return _threshold(default, Unit.BYTES, what, origin)


def _threshold(default: _Number, unit: Unit, what: str, origin: str) -> _Number:
    return field(default=default, metadata={_KEY: _Declared(unit, what, origin)})


def thresholds_of(settings: object, group: str = "") -> Iterator[Threshold]:
    """All thresholds of a settings object, and then of the groups in it, in its fields' order.

    Args:
        settings: An object of a settings type.
        group: What their names begin with.
    """
    yield from _declared(settings, group)
    for each in _fields(settings):
        value = getattr(settings, each.name)
        if is_dataclass(value):
            yield from thresholds_of(value, f"{group}{each.name}.")


def check_thresholds(settings: object) -> None:
    """Refuse values that a threshold's unit does not allow.

    Raises:
        UsageError: A share outside 0 to 1, or anything else that is not above 0.
    """
    for one in _declared(settings, ""):
        if one.unit is Unit.SHARE:
            if not 0.0 <= one.value <= 1.0:
                raise UsageError(f"{one.name} must be within 0..1, got {one.value!r}")
        elif not one.value > 0:
            raise UsageError(f"{one.name} must be positive, got {one.value!r}")


def _declared(settings: object, group: str) -> Iterator[Threshold]:
    for each in _fields(settings):
        declared = each.metadata.get(_KEY)
        if declared is not None:
            yield Threshold(
                name=f"{group}{each.name}",
                value=getattr(settings, each.name),
                unit=declared.unit,
                what=declared.what,
                origin=declared.origin,
            )


def _fields(settings: object) -> tuple[Field[object], ...]:
    if not is_dataclass(settings):
        raise TypeError(f"{settings!r} has no thresholds")
    return fields(settings)
