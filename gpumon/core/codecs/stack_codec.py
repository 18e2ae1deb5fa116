"""What stack samples show, as a part of a ``gpumon.report/1`` document.

Folders of the user's own files are only for their owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from gpumon.core.codecs.field_codec import (
    PUBLIC,
    FieldCodec,
    MalformedError,
    items,
    mapping,
    number,
)
from gpumon.core.phase import IdleCause
from gpumon.core.stacks.evidence import PlaceCount, StackFinding, UserFunction
from gpumon.core.stacks.frame_text import MAX_PATH, shown_path, whole_path
from gpumon.core.stacks.stack import StackFrame
from gpumon.core.wording import label_text

_MOST_PLACES: Final = 3
_COUNTS: Final = FieldCodec(
    StackFinding,
    PUBLIC,
    "idle_samples busy_samples mixed_samples unobserved_samples failed_samples",
)


class Viewer(NamedTuple):
    """Who reads a document.

    Attributes:
        uid: Their user; ``None``: unknown.
        is_trusted: Whether they showed the token, or are the daemon's own user.
    """

    uid: int | None = None
    is_trusted: bool = False

    def may_see_paths(self, finding: StackFinding | None) -> bool:
        """Whether they may see the folders of the process's files."""
        if finding is None:
            return False
        return self.is_trusted or (self.uid is not None and self.uid == finding.owner_uid)


ANYBODY: Final = Viewer()
TRUSTED: Final = Viewer(is_trusted=True)


def encode_finding(finding: StackFinding | None, viewer: Viewer = ANYBODY) -> dict[str, Any] | None:
    """``places`` are the most frequent ones of the idle samples, at most three."""
    if finding is None:
        return None
    function, has_paths = finding.function, viewer.may_see_paths(finding)

    def encoded(frame: StackFrame | None) -> dict[str, Any] | None:
        if frame is None:
            return None
        is_shown = has_paths and frame.path.startswith("/")
        return {**encode_frame(frame), "path": whole_path(frame) if is_shown else None}

    return {
        **_COUNTS.encode(finding),
        "places": [
            {
                "cause": place.cause.value,
                "what": label_text(place.what),
                "frame": encoded(place.frame),
                "caller": encoded(place.caller),
                "samples": place.samples,
            }
            for place in finding.places[:_MOST_PLACES]
        ],
        "function": None
        if function is None
        else {
            "frame": encoded(function.frame),
            "called_from": encoded(function.called_from),
            "idle_samples": function.idle_samples,
            "busy_samples": function.busy_samples,
            "is_compared": function.is_compared,
        },
    }


def decode_finding(document: object) -> StackFinding | None:
    """The finding, without shares: its counts and places.

    Raises:
        MalformedError: It is not written like that.
        KeyError: It lacks a field; so does ``MissingFieldError``.
        ValueError: A value is out of range.
    """
    if document is None:
        return None
    fields = mapping(document)
    places = tuple(_decode_place(mapping(place)) for place in items(fields["places"]))
    function = fields["function"]
    return _COUNTS.decode(
        fields,
        places=places[:_MOST_PLACES],
        function=None if function is None else _decode_function(mapping(function)),
    )


def encode_frame(frame: StackFrame) -> dict[str, Any]:
    """A call, with its file's name and none of the user's own folders."""
    return {
        "function": label_text(frame.function),
        "file": shown_path(frame.path),
        "line": frame.line,
    }


def _decode_frame(document: object) -> StackFrame | None:
    if document is None:
        return None
    fields = mapping(document)
    line, path = fields["line"], fields.get("path")
    return StackFrame(
        label_text(fields["function"]),
        label_text(fields["file"]) if path is None else label_text(path, MAX_PATH),
        None if line is None else _count(line),
    )


def _decode_place(fields: Mapping[str, Any]) -> PlaceCount:
    return PlaceCount(
        IdleCause(fields["cause"]),
        label_text(fields["what"]),
        _decode_frame(fields["frame"]),
        _decode_frame(fields["caller"]),
        _count(fields["samples"]),
    )


def _decode_function(fields: Mapping[str, Any]) -> UserFunction:
    frame = _decode_frame(fields["frame"])
    if frame is None:
        raise MalformedError("a function without a frame")
    return UserFunction(
        frame,
        _decode_frame(fields["called_from"]),
        _count(fields["idle_samples"]),
        _count(fields["busy_samples"]),
        fields["is_compared"] is True,
    )


def _count(value: object) -> int:
    found = int(number(value))
    if found < 0:
        raise MalformedError("a negative count")
    return found
