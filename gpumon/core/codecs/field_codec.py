"""Records as JSON objects and back, by their types and an explicit list of JSON names."""

from __future__ import annotations

import inspect
import json
import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
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

_MOST_TEXT: Final = 4_096
"""Characters of one text that gpumon keeps for itself."""
_MOST_SENTENCES: Final = 1 << 16
"""Characters of all that gpumon says of one thing; it never has so much to say."""
_MOST_WHOLE: Final = 1 << 62
"""Beyond it no whole number is read: neither stamps nor bytes reach that far."""
_MOST_ITEMS: Final = 1 << 16
"""Of one list."""

Record = TypeVar("Record")
_Turn = Callable[[Any], Any]


class Ways(NamedTuple):
    """How values of one kind are written, and how they are read."""

    write: _Turn
    read: _Turn


class MalformedError(ValueError):
    """A document that is not what this version, or a newer one of the same schema, writes."""


class MissingFieldError(MalformedError):
    """A document without a field that every version writes; its text is the field's name."""


def bounded(text: str) -> str:
    """As much of a text as is ever read again."""
    return text[:_MOST_TEXT]


class Style(NamedTuple):
    """How a kind of document tells what its records hold.

    Attributes:
        in_seconds: Whether nanoseconds, in fields ``…_ns``, are told as ``…_seconds``.
        tells_none: Whether *no answer* is told, as ``null``; else the field is left out.
        text: How a text is written, and how it is read.
    """

    in_seconds: bool
    tells_none: bool
    text: Ways


class _Field(NamedTuple):
    name: str
    told_as: str
    ways: Ways
    may_be_none: bool
    is_needed: bool


class FieldCodec(Generic[Record]):
    """Writes and reads one type of record.

    Args:
        kind: A named tuple or a dataclass whose fields are numbers, texts, flags,
            members of enumerations, such records, tuples or tables of these, or
            any of these and ``None``.
        style: How its documents tell them.
        names: The JSON names in the order in which they are written, separated by spaces.
            ``name=attribute`` where the attribute has another name; a ``_seconds`` finds its
            ``_ns`` by itself. ``?`` at the end: documents of older versions lack it.
            Attributes without a name here are written and read by the caller.
        within: The names of the records in its fields, by their types.

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
        self._kind, self._style = kind, style
        given = inspect.signature(kind).parameters.values()
        bare = {one.name for one in given if one.default is one.empty}
        self._fields = []
        for entry in names.split():
            told_as, _, name = entry.rstrip("?").partition("=")
            in_ns = f"{told_as.removesuffix('_seconds')}_ns"
            name = name or (in_ns if told_as not in hints and in_ns in hints else told_as)
            if name not in hints:
                raise TypeError(f"{kind.__name__} has no attribute {name!r}")
            kinds = _kinds(hints[name])
            may_be_none = type(None) in kinds
            may_be_missing = entry.endswith("?") or (may_be_none and not style.tells_none)
            if may_be_missing and name in bare and not may_be_none:
                raise TypeError(f"{kind.__name__}.{name} needs a default value to be missing")
            ways = _ways_of(kinds, style, within, name.endswith("_ns"))
            self._fields.append(_Field(name, told_as, ways, may_be_none, not may_be_missing))
        self._by_told = {field.told_as: field for field in self._fields}
        nullable = (field.name for field in self._fields if field.may_be_none)
        self._unsaid = dict.fromkeys(name for name in nullable if name in bare)

    @property
    def names(self) -> tuple[str, ...]:
        """What its fields are called in the document, in order."""
        return tuple(self._by_told)

    def encode(self, record: Record, *, since: Record | None = None) -> dict[str, Any]:
        """The fields as the document has them.

        Args:
            record: What to write.
            since: The record that the document told before: then only what differs
                is written, ``null`` where it has no answer any more.
        """
        document = {}
        for field in self._fields:
            value = getattr(record, field.name)
            if since is not None:
                if value == getattr(since, field.name):
                    continue
            elif value is None and not self._style.tells_none:
                continue
            document[field.told_as] = None if value is None else field.ways.write(value)
        return document

    def decode(self, document: object, **others: object) -> Record:
        """The record; fields that this version does not know are passed over.

        Args:
            document: What was read.
            others: The fields that are somebody else's to read.

        Raises:
            MalformedError: A field is missing or of another type.
        """
        fields = mapping(document)
        for field in self._fields:
            if field.is_needed and field.told_as not in fields:
                raise MissingFieldError(repr(field.told_as))
        try:
            return self._kind(**{**self._unsaid, **self.values(fields), **others})
        except TypeError as error:
            raise MalformedError(f"no whole {self._kind.__name__}") from error

    def values(self, document: Mapping[str, object]) -> dict[str, Any]:
        """The known fields of a document, checked, by their names in the record.

        Raises:
            MalformedError: One is of another type.
        """
        found: dict[str, Any] = {}
        for told_as, value in document.items():
            field = self._by_told.get(told_as)
            if field is None:
                continue
            if value is None and field.may_be_none:
                found[field.name] = None
                continue
            try:
                found[field.name] = field.ways.read(value)
            except MissingFieldError:
                raise
            except MalformedError as error:
                raise MalformedError(f"{told_as}: {error}") from error
        return found


def encode_document(document: object) -> bytes:
    """A document as one line of ASCII JSON, with a line break at its end."""
    return _ENCODE(document).encode("ascii") + b"\n"


# No document has circular references; not looking for them saves a fifth of the time.
_ENCODE: Final = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode


def in_order(told: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The same document with these fields first, in this order, and all others after them."""
    return {**{name: told[name] for name in names}, **told}


def mapping(value: object) -> Mapping[str, object]:
    """An object, or ``MalformedError``."""
    if not isinstance(value, dict):
        raise MalformedError("something else where an object is due")
    return cast("dict[str, object]", value)


def items(value: object, most: int = _MOST_ITEMS) -> list[object]:
    """A list of at most so many, or ``MalformedError``."""
    if not isinstance(value, list) or len(value) > most:
        raise MalformedError("no list, or too long a one")
    return value


def row(value: object, count: int, what: str = "one thing") -> list[object]:
    """A list of so many values that each mean something else, or ``MalformedError``."""
    if len(values := items(value, count)) != count:
        raise MalformedError(f"fewer than {count} values of {what}")
    return values


def whole(value: object) -> int:
    """A whole number from 0 on, or ``MalformedError``."""
    if type(value) is not int or not 0 <= value < _MOST_WHOLE:
        raise MalformedError("no whole number within bounds")
    return value


def difference(value: object) -> int:
    """A difference of stamps, which may be negative, or ``MalformedError``."""
    if type(value) is not int:
        raise MalformedError("no difference of stamps")
    return whole(abs(value)) * (1 if value >= 0 else -1)


def number(value: object) -> float:
    """A finite number, or ``MalformedError``."""
    if type(value) is int and abs(value) < _MOST_WHOLE:
        return value
    if type(value) is not float or not math.isfinite(value):
        raise MalformedError("no number within bounds")
    return value


def text(value: object) -> str:
    """A text of bounded length, or ``MalformedError``."""
    if type(value) is not str or len(value) > _MOST_TEXT:
        raise MalformedError("no text, or too long a one")
    return value


def flag(value: object) -> bool:
    """Yes or no, or ``MalformedError``."""
    if type(value) is not bool:
        raise MalformedError("neither true nor false")
    return value


def time_ns(value: object) -> int:
    """A number of seconds in nanoseconds, or ``MalformedError``."""
    try:
        return nanoseconds(float(number(value)))
    except OverflowError as error:
        raise MalformedError("no time within bounds") from error


def finite(value: float | None) -> float | None:
    """JSON has no word for *not a number*: such an answer is none."""
    return value if value is not None and math.isfinite(value) else None


def _as_it_is(value: object) -> object:
    return value


def shown(max_length: int) -> Ways:
    """How texts are written and read that are shown to people: both ways through the one gate."""
    return Ways(
        lambda value: label_text(value, max_length),
        lambda value: label_text(_any_text(value), max_length),
    )


def _any_text(value: object) -> str:
    if type(value) is not str:
        raise MalformedError("no text")
    return value


KEPT: Final = Style(in_seconds=False, tells_none=False, text=Ways(bounded, text))
"""For gpumon alone: nothing is lost, and what need not be said is not."""
TOLD: Final = Style(in_seconds=True, tells_none=True, text=shown(MAX_LABEL_LENGTH))
"""For whoever asks: in base units, with every field, and safe to show."""
OURS: Final = TOLD._replace(text=Ways(_as_it_is, shown(_MOST_SENTENCES).read))
"""The same, of sentences that gpumon made: they are safe as they are, until a file has them."""

_PLAIN: Final[Mapping[object, Ways]] = {
    int: Ways(_as_it_is, whole),
    float: Ways(finite, number),
    bool: Ways(_as_it_is, flag),
}


def _ways_of(
    kinds: Iterable[Any], style: Style, within: Mapping[type[Any], str], is_ns: bool
) -> Ways:
    ways = {one: _ways_of_one(one, style, within, is_ns) for one in kinds if one is not type(None)}
    if len(ways) == 1:
        return next(iter(ways.values()))

    def write(value: object) -> object:
        return None if value is None else ways[type(value)].write(value)

    def read(value: object) -> object:
        if value is None and type(None) in kinds:
            return None
        if type(value) not in ways:
            raise MalformedError("neither text nor number")
        return ways[type(value)].read(value)

    return Ways(write, read)


def _ways_of_one(
    kind: type[Any], style: Style, within: Mapping[type[Any], str], is_ns: bool
) -> Ways:
    if get_origin(kind) is not None:
        inner = [
            _ways_of(_kinds(each), style, within, is_ns)
            for each in get_args(kind)
            if each is not Ellipsis
        ]
        if get_origin(kind) is not tuple:
            return _ways_of_table(*inner)
        return _ways_of_list(inner[0]) if Ellipsis in get_args(kind) else _ways_of_row(inner)
    if kind is str:
        return style.text
    if kind is int and is_ns and style.in_seconds:
        return Ways(seconds, time_ns)
    if kind in _PLAIN:
        return _PLAIN[kind]
    if issubclass(kind, Enum):
        return _ways_of_member(kind)
    if kind in within:
        codec: FieldCodec[Any] = FieldCodec(kind, style, within[kind], within)
        return Ways(codec.encode, codec.decode)
    raise TypeError(f"no way to write a field of type {kind!r}")


def _ways_of_list(one: Ways) -> Ways:
    return Ways(
        lambda values: [one.write(value) for value in values],
        lambda values: tuple([one.read(value) for value in items(values)]),
    )


def _ways_of_row(inner: Sequence[Ways]) -> Ways:
    """Of a tuple whose values each mean something else."""
    return Ways(
        lambda values: [ways.write(value) for ways, value in zip(inner, values, strict=True)],
        lambda values: tuple(
            [ways.read(one) for ways, one in zip(inner, row(values, len(inner)), strict=True)]
        ),
    )


def _ways_of_table(key: Ways, value: Ways) -> Ways:
    return Ways(
        lambda table: {key.write(name): value.write(one) for name, one in table.items()},
        lambda table: {key.read(name): value.read(one) for name, one in mapping(table).items()},
    )


def _ways_of_member(kind: type[Enum]) -> Ways:
    def read(value: object) -> object:
        if kind is TrainingPhase:
            return phase_named(text(value))  # one that this version does not know is `other`
        try:
            return kind(value)
        except ValueError as error:
            raise MalformedError(str(error)) from error

    return Ways(lambda member: member.value, read)


def _kinds(hint: object) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
