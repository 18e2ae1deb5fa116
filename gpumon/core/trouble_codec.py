"""A GPU's troubles as objects of JSON, in the report and in the state alike, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from gpumon.core.label_text import label_text
from gpumon.core.troubles import Trouble, TroubleKind
from gpumon.core.units import nanoseconds, seconds
from gpumon.core.verdict import Severity

_MOST_TEXT = 600


def encode_troubles(
    troubles: Sequence[Trouble], origin: datetime | None, origin_ns: int
) -> list[dict[str, Any]]:
    """The troubles, the worst first.

    Args:
        troubles: Of one GPU.
        origin: The wall clock's time at ``origin_ns``; ``None``: it is not known.
        origin_ns: An instant on the clock of their times.
    """
    return [_encode(one, origin, origin_ns) for one in troubles]


def _encode(trouble: Trouble, origin: datetime | None, origin_ns: int) -> dict[str, Any]:
    last_at = None
    if origin is not None and trouble.last_ns is not None:
        last_at = origin + timedelta(seconds=seconds(trouble.last_ns - origin_ns))
    return {
        "kind": trouble.kind.value,
        "severity": trouble.severity.value,
        "code": trouble.code,
        "reason": trouble.reason,
        "count": trouble.times,
        "seconds": None if trouble.duration_ns is None else seconds(trouble.duration_ns),
        "last_seen_at": None if last_at is None else last_at.isoformat(),
        "text": label_text(trouble.text, _MOST_TEXT),
        "advice": label_text(trouble.advice, _MOST_TEXT),
    }


def decode_troubles(
    documents: Sequence[Mapping[str, Any]], origin: datetime | None
) -> tuple[Trouble, ...]:
    """The troubles, with times that count from ``origin``.

    Raises:
        KeyError: A field is missing.
        TypeError: A value is of another kind.
        ValueError: It is out of range.
    """
    return tuple(_decode(one, origin) for one in documents)


def _decode(document: Mapping[str, Any], origin: datetime | None) -> Trouble:
    duration_s, last_at = document["seconds"], document["last_seen_at"]
    last_ns = None
    if origin is not None and last_at is not None:
        last_ns = (datetime.fromisoformat(last_at) - origin) // timedelta(microseconds=1) * 1_000
    return Trouble(
        kind=TroubleKind(document["kind"]),
        severity=Severity(document["severity"]),
        text=label_text(str(document["text"]), _MOST_TEXT),
        advice=label_text(str(document["advice"]), _MOST_TEXT),
        code=_whole(document["code"]),
        reason=None if document["reason"] is None else label_text(str(document["reason"])),
        times=_whole(document["count"]),
        duration_ns=None if duration_s is None else nanoseconds(float(duration_s)),
        last_ns=last_ns,
    )


def _whole(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is no count")
    return value
