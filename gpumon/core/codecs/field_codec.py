"""Records as JSON objects and back, by their types and an explicit list of JSON names."""

from __future__ import annotations

import inspect
import json
import math
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import (
    Any,
    Final,
    Generic,
    NamedTuple,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from gpumon.core.clock import nanoseconds, seconds
from gpumon.core.phase import TrainingPhase, phase_named
from gpumon.core.wording import MAX_LABEL_LENGTH, label_text

_MAX_TEXT: Final = 4_096
_MAX_SENTENCES: Final = 1 << 16
_INTEGER_LIMIT: Final = 1 << 62
"""Above every timestamp and every number of bytes."""
_MAX_ITEMS: Final = 1 << 16
_ENTRY: Final = re.compile(r"(\w+)(?:([=@])(\w+))?(\??)")

Record = TypeVar("Record")


class MalformedError(ValueError):
    """A document that neither this version nor a newer one of the same schema writes."""


class MissingFieldError(MalformedError):
    """A document without a field that every version writes; its text is the field's name."""


class ValueCodec(NamedTuple):
    """Writes and reads one kind of value."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


class Style(NamedTuple):
    """How a kind of document writes the values of its records.

    Attributes:
        in_seconds: Whether attributes ``…_ns`` are written in seconds.
        writes_none: Whether ``None`` is written as ``null``; otherwise the field is left out.
    """

    in_seconds: bool
    writes_none: bool
    text: ValueCodec


class WallClock(NamedTuple):
    """Converts times to ISO 8601 text and back.

    Attributes:
        origin: Wall clock at ``origin_ns``; ``None`` if unknown: then no time can be written.
        origin_ns: The same time on the clock of the records.
    """

    origin: datetime | None
    origin_ns: int = 0

    @classmethod
    def starting_at(cls, text: str | None, origin_ns: int = 0) -> WallClock:
        """The clock of a document whose times count from this ISO 8601 time."""
        return cls(None if text is None else datetime.fromisoformat(text), origin_ns)

    def encode(self, at_ns: int | None) -> str | None:
        if at_ns is None or self.origin is None:
            return None
        return (self.origin + timedelta(seconds=seconds(at_ns - self.origin_ns))).isoformat()

    def decode(self, value: object) -> int | None:
        """The time that ``encode`` wrote, to a microsecond.

        Raises:
            MalformedError: It is not text.
            ValueError: It is not a time.
        """
        if value is None or self.origin is None:
            return None
        passed = datetime.fromisoformat(text(value)) - self.origin
        return self.origin_ns + passed // timedelta(microseconds=1) * 1_000


_NO_CLOCK: Final = WallClock(None)


class _Field(NamedTuple):
    attribute: str
    json_name: str
    value: ValueCodec
    may_be_none: bool
    is_required: bool


class FieldCodec(Generic[Record]):
    """Writes and reads one type of record.

    Args:
        kind: A named tuple or a dataclass of numbers, texts, flags, enum members, records,
            tuples or mappings of these, or any of these and ``None``.
        names: The JSON names in the order in which they are written, separated by spaces:

            * ``name=attribute`` where the attribute has another name; ``…_seconds`` finds ``…_ns``;
            * ``name@attribute`` for a time that is written as ISO 8601 text;
            * ``?`` at the end: documents of older versions lack it.

            The caller writes and reads attributes that are not listed.
        within: The names of records in its fields, by their types.

    Raises:
        TypeError: An attribute does not exist or has an unsupported type, or a record in it
            has no names.
    """

    def __init__(
        self,
        kind: type[Record],
        style: Style,
        names: str,
        within: Mapping[type[Any], str] = types.MappingProxyType({}),
    ) -> None:
        hints = get_type_hints(kind)
        given = inspect.signature(kind).parameters.values()
        without_default = {one.name for one in given if one.default is one.empty}
        self._kind, self._style = kind, style
        self._fields: list[_Field] = []
        self._times: list[tuple[str, str]] = []
        for entry in names.split():
            json_name, mark, attribute, is_later = _parsed(entry)
            in_ns = f"{json_name.removesuffix('_seconds')}_ns"
            if not attribute:
                attribute = in_ns if json_name not in hints and in_ns in hints else json_name
            if attribute not in hints:
                raise TypeError(f"{kind.__name__} has no attribute {attribute!r}")
            kinds = _kinds(hints[attribute])
            may_be_none = type(None) in kinds
            if mark == "@":
                value, is_later = ValueCodec(_unchanged, _unchanged), True
                self._times.append((attribute, json_name))
            else:
                value = _codec_of(kinds, style, within, attribute.endswith("_ns"))
            is_optional = is_later or (may_be_none and not style.writes_none)
            field = _Field(attribute, json_name, value, may_be_none, not is_optional)
            self._fields.append(field)
        self._by_json_name = {field.json_name: field for field in self._fields}
        nullable = {field.attribute for field in self._fields if field.may_be_none}
        self._defaults: dict[str, Any] = dict.fromkeys(nullable & without_default)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._by_json_name)

    def encode(
        self, record: Record, clock: WallClock = _NO_CLOCK, *, since: Record | None = None
    ) -> dict[str, Any]:
        """The record as a JSON object.

        With ``since``, the record written before, only what differs is
        written: ``null`` where there is no answer any more.
        """
        document = {}
        for field in self._fields:
            value = getattr(record, field.attribute)
            if since is not None:
                if value == getattr(since, field.attribute):
                    continue
            elif value is None and not self._style.writes_none:
                continue
            document[field.json_name] = None if value is None else field.value.write(value)
        for attribute, json_name in self._times:
            document[json_name] = clock.encode(getattr(record, attribute))
        return document

    def decode(self, document: object, clock: WallClock = _NO_CLOCK, **others: object) -> Record:
        """The record, with ``others`` for attributes that this codec does not read.

        Fields that this version does not know are ignored.

        Raises:
            MalformedError: A field is missing or of another type.
        """
        fields = mapping(document)
        for field in self._fields:
            if field.is_required and field.json_name not in fields:
                raise MissingFieldError(repr(field.json_name))
        values = {**self._defaults, **self.values(fields), **others}
        for attribute, json_name in self._times:
            values[attribute] = clock.decode(fields.get(json_name))
        try:
            return self._kind(**values)
        except TypeError as error:
            raise MalformedError(f"incomplete {self._kind.__name__}") from error

    def values(self, document: Mapping[str, object]) -> dict[str, Any]:
        """The known fields of a document, checked, by attribute.

        Raises:
            MalformedError: One is of another type.
        """
        found: dict[str, Any] = {}
        for json_name, value in document.items():
            field = self._by_json_name.get(json_name)
            if field is None:
                continue
            if value is None and field.may_be_none:
                found[field.attribute] = None
                continue
            try:
                found[field.attribute] = field.value.read(value)
            except MissingFieldError:
                raise
            except MalformedError as error:
                raise MalformedError(f"{json_name}: {error}") from error
        return found


def encode_document(document: object) -> bytes:
    """A document as one line of ASCII JSON, with a line break at its end."""
    return _ENCODE(document).encode("ascii") + b"\n"


# No document has circular references; not looking for them saves a fifth of the time.
_ENCODE: Final = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode


def in_order(document: Mapping[str, Any], names: str) -> dict[str, Any]:
    """The document with these fields first, in this order, and all others after them."""
    return {**{name: document[name] for name in names.split()}, **document}


# -- checks: each returns the value, or raises MalformedError -------------------------


def mapping(value: object) -> Mapping[str, object]:
    """A JSON object."""
    if not isinstance(value, dict):
        raise MalformedError("expected an object")
    return cast("dict[str, object]", value)


def items(value: object, most: int = _MAX_ITEMS) -> list[object]:
    """A list of at most so many items."""
    if not isinstance(value, list) or len(value) > most:
        raise MalformedError(f"expected a list of at most {most:,} items")
    return value


def row(value: object, count: int) -> list[object]:
    """A list of exactly so many values."""
    if not isinstance(value, list) or len(value) != count:
        raise MalformedError(f"expected a list of {count} values")
    return value


def whole(value: object) -> int:
    """An integer that is not negative."""
    if type(value) is not int or not 0 <= value < _INTEGER_LIMIT:
        raise MalformedError("expected an integer of at least 0")
    return value


def difference(value: object) -> int:
    """A difference of timestamps, which may be negative."""
    if type(value) is not int or abs(value) >= _INTEGER_LIMIT:
        raise MalformedError("expected an integer")
    return value


def number(value: object) -> float:
    """A finite number."""
    if type(value) is int and abs(value) < _INTEGER_LIMIT:
        return value
    if type(value) is not float or not math.isfinite(value):
        raise MalformedError("expected a finite number")
    return value


def text(value: object) -> str:
    """A text of bounded length."""
    if type(value) is not str or len(value) > _MAX_TEXT:
        raise MalformedError(f"expected a text of at most {_MAX_TEXT:,} characters")
    return value


def flag(value: object) -> bool:
    """True or false."""
    if type(value) is not bool:
        raise MalformedError("expected true or false")
    return value


def time_ns(value: object) -> int:
    """A number of seconds, as nanoseconds."""
    try:
        return nanoseconds(float(number(value)))
    except OverflowError as error:
        raise MalformedError("expected a time within bounds") from error


# -- the codec of a type ---------------------------------------------------------------


def bounded(text: str) -> str:
    """A text, truncated to what ``text`` accepts."""
    return text[:_MAX_TEXT]


def shown(max_length: int) -> ValueCodec:
    """Writes and reads text that is shown to people: printable and of bounded length."""

    def read(value: object) -> str:
        if type(value) is not str:
            raise MalformedError("expected a text")
        return label_text(value, max_length)

    return ValueCodec(lambda value: label_text(value, max_length), read)


def _unchanged(value: object) -> object:
    return value


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


KEPT: Final = Style(in_seconds=False, writes_none=False, text=ValueCodec(bounded, text))
"""For gpumon alone: whole nanoseconds, and no field without a value."""
PUBLIC: Final = Style(in_seconds=True, writes_none=True, text=shown(MAX_LABEL_LENGTH))
"""For other programs: base units, every field, and text that is safe to show."""
OWN_SENTENCES: Final = PUBLIC._replace(text=ValueCodec(_unchanged, shown(_MAX_SENTENCES).read))
"""Like ``PUBLIC``, for sentences that gpumon wrote: safe as they are, until read from a file."""

_SIMPLE: Final[Mapping[object, ValueCodec]] = {
    int: ValueCodec(_unchanged, whole),
    float: ValueCodec(_finite, number),
    bool: ValueCodec(_unchanged, flag),
}


def _parsed(entry: str) -> tuple[str, str | None, str | None, bool]:
    parts = _ENTRY.fullmatch(entry)
    if parts is None:
        raise TypeError(f"not a JSON name: {entry!r}")
    return parts[1], parts[2], parts[3], bool(parts[4])


def _kinds(hint: object) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _codec_of(
    kinds: Iterable[Any], style: Style, within: Mapping[type[Any], str], is_ns: bool
) -> ValueCodec:
    by_kind = {
        kind: _codec_of_one(kind, style, within, is_ns) for kind in kinds if kind is not type(None)
    }
    if len(by_kind) == 1:
        return next(iter(by_kind.values()))

    def write(value: object) -> object:
        return None if value is None else by_kind[type(value)].write(value)

    def read(value: object) -> object:
        if value is None and type(None) in kinds:
            return None
        if type(value) not in by_kind:
            raise MalformedError("expected a text or a number")
        return by_kind[type(value)].read(value)

    return ValueCodec(write, read)


def _codec_of_one(
    kind: type[Any], style: Style, within: Mapping[type[Any], str], is_ns: bool
) -> ValueCodec:
    if get_origin(kind) is not None:
        args = get_args(kind)
        inner = [
            _codec_of(_kinds(each), style, within, is_ns) for each in args if each is not Ellipsis
        ]
        if get_origin(kind) is not tuple:
            return _codec_of_mapping(*inner)
        return _codec_of_list(inner[0]) if Ellipsis in args else _codec_of_row(inner)
    if kind is str:
        return style.text
    if kind is int and is_ns and style.in_seconds:
        return ValueCodec(seconds, time_ns)
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if issubclass(kind, Enum):
        return _codec_of_member(kind)
    if kind in within:
        codec: FieldCodec[Any] = FieldCodec(kind, style, within[kind], within)
        return ValueCodec(codec.encode, codec.decode)
    raise TypeError(f"no JSON names for {kind!r}")


def _codec_of_list(one: ValueCodec) -> ValueCodec:
    return ValueCodec(
        lambda values: [one.write(value) for value in values],
        lambda values: tuple([one.read(value) for value in items(values)]),
    )


def _codec_of_row(inner: Sequence[ValueCodec]) -> ValueCodec:
    """The codec of a tuple of fixed length."""
    return ValueCodec(
        lambda values: [one.write(value) for one, value in zip(inner, values, strict=True)],
        lambda values: tuple(
            [one.read(value) for one, value in zip(inner, row(values, len(inner)), strict=True)]
        ),
    )


def _codec_of_mapping(key: ValueCodec, value: ValueCodec) -> ValueCodec:
    return ValueCodec(
        lambda table: {key.write(name): value.write(one) for name, one in table.items()},
        lambda table: {key.read(name): value.read(one) for name, one in mapping(table).items()},
    )


def _codec_of_member(kind: type[Enum]) -> ValueCodec:
    def read(value: object) -> object:
        if kind is TrainingPhase:
            return phase_named(text(value))  # a phase that this version does not know is `other`
        try:
            return kind(value)
        except ValueError as error:
            raise MalformedError(str(error)) from error

    return ValueCodec(lambda member: member.value, read)
