"""Flat records (numbers, texts, flags) as JSON and back, by what their fields are said to be.

A field that is added to a record is written and read without a word here.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, TypeVar, Union, cast, get_args, get_origin, get_type_hints

MAX_TEXT: Final = 4_096
"""Characters of one text."""
MAX_WHOLE: Final = 1 << 62
"""Beyond it no whole number is read: neither stamps nor bytes reach that far."""
MAX_TEXTS: Final = 256

Record = TypeVar("Record")
_Reader = Callable[[object], Any]


class MalformedError(ValueError):
    """A document that is not what this version, or a newer one of the same schema, writes."""


class FlatCodec(Generic[Record]):
    """Writes and reads one type of record.

    Args:
        kind: A named tuple or a dataclass whose fields are numbers, texts,
            flags or tuples of texts, or any of these and ``None``.
        without: Fields that are somebody else's to write; they must have defaults.

    Raises:
        TypeError: A field is of another type: it needs a codec of its own.
    """

    def __init__(self, kind: type[Record], *, without: Iterable[str] = ()) -> None:
        left_out = frozenset(without)
        hints = {n: h for n, h in get_type_hints(kind).items() if n not in left_out}
        self._kind = kind
        self._readers = {name: _reader_of(hint) for name, hint in hints.items()}
        needed = _without_default(kind)
        self._unsaid = {
            name: None for name, hint in hints.items() if name in needed and None in _kinds(hint)
        }

    @property
    def names(self) -> tuple[str, ...]:
        """The fields, in order."""
        return tuple(self._readers)

    def encode(self, record: Record) -> dict[str, Any]:
        """The fields that say anything."""
        fields = ((name, getattr(record, name)) for name in self._readers)
        return {name: told for name, value in fields if (told := plain(value)) is not None}

    def decode(self, document: object) -> Record:
        """The record; fields that this version does not know are passed over.

        Raises:
            MalformedError: A field is missing or of another type.
        """
        told = {n: v for n, v in self.values(mapping(document)).items() if v is not None}
        try:
            return self._kind(**{**self._unsaid, **told})
        except TypeError as error:
            raise MalformedError(f"no whole {self._kind.__name__}") from error

    def values(self, document: Mapping[str, object]) -> dict[str, Any]:
        """The known fields of a document, checked.

        Raises:
            MalformedError: One is of another type.
        """
        readers = self._readers
        return {
            name: None if value is None else readers[name](value)
            for name, value in document.items()
            if name in readers
        }


def plain(value: object) -> object:
    """A value as JSON has it: a number that is none is no answer, a text has its bounds."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str):
        return value[:MAX_TEXT]
    return [*value] if isinstance(value, tuple) else value


def mapping(value: object) -> Mapping[str, object]:
    """An object, or ``MalformedError``."""
    if not isinstance(value, dict):
        raise MalformedError("something else where an object is due")
    return cast("dict[str, object]", value)


def items(value: object, most: int) -> list[object]:
    """A list of at most so many, or ``MalformedError``."""
    if not isinstance(value, list) or len(value) > most:
        raise MalformedError("no list, or too long a one")
    return value


def whole(value: object) -> int:
    """A whole number from 0 on, or ``MalformedError``."""
    if type(value) is not int or not 0 <= value < MAX_WHOLE:
        raise MalformedError("no whole number within bounds")
    return value


def number(value: object) -> float:
    """A finite number, or ``MalformedError``."""
    if type(value) is int and abs(value) < MAX_WHOLE:
        return value
    if type(value) is not float or not math.isfinite(value):
        raise MalformedError("no number within bounds")
    return value


def text(value: object) -> str:
    """A text of bounded length, or ``MalformedError``."""
    if type(value) is not str or len(value) > MAX_TEXT:
        raise MalformedError("no text, or too long a one")
    return value


def flag(value: object) -> bool:
    """Yes or no, or ``MalformedError``."""
    if type(value) is not bool:
        raise MalformedError("neither true nor false")
    return value


def texts(value: object) -> tuple[str, ...]:
    """Several texts, or ``MalformedError``."""
    return tuple(text(one) for one in items(value, MAX_TEXTS))


_READERS: Final[Mapping[object, _Reader]] = {
    int: whole,
    float: number,
    str: text,
    bool: flag,
    tuple[str, ...]: texts,
}


def _without_default(kind: type) -> frozenset[str]:
    """The fields that must be given when one is made."""
    if dataclasses.is_dataclass(kind):
        told = dataclasses.fields(kind)
        missing = dataclasses.MISSING
        return frozenset(
            one.name for one in told if one.default is missing and one.default_factory is missing
        )
    names: Iterable[str] = getattr(kind, "_fields", ())
    return frozenset(names) - frozenset(getattr(kind, "_field_defaults", ()))


def _kinds(hint: object) -> tuple[object, ...]:
    """What a field may be; ``None`` for *no answer*."""
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return tuple(None if kind is type(None) else kind for kind in kinds)


def _reader_of(hint: object) -> _Reader:
    kinds = [kind for kind in _kinds(hint) if kind is not None]
    if len(kinds) != 1 or kinds[0] not in _READERS:
        raise TypeError(f"no way to write a field of type {hint!r}")
    return _READERS[kinds[0]]
