"""Tests of the codec that writes and reads records by type and JSON name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.codecs.field_codec import (
    KEPT,
    OWN_SENTENCES,
    PUBLIC,
    FieldCodec,
    MalformedError,
    MissingFieldError,
    WallClock,
)
from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.verdict import Severity
from tests.builders.time import s

S = 1_000_000_000


class Part(NamedTuple):
    waited_ns: int
    label: str = "part"


@dataclass(frozen=True, kw_only=True)
class Whole:
    name: str
    busy_ns: int
    severity: Severity | None
    ratio: float | None = None
    parts: tuple[Part, ...] = ()
    rows: tuple[tuple[int, str], ...] = ()
    idle_ns: Mapping[IdleCause, int]
    phase_ns: dict[TrainingPhase, int]
    facts: dict[str, str | int | float | bool | None]
    began_ns: int | None = None


WHOLE = Whole(
    name="a", busy_ns=3 * S // 2, severity=Severity.HIGH, ratio=0.25, parts=(Part(S),),
    rows=((1, "one"),), idle_ns={IdleCause.INPUT_WAIT: S}, phase_ns={TrainingPhase.COMPILE: S},
    facts={"workers": 4, "prefetch": False, "why": None}, began_ns=S,
)  # fmt: skip
CODEC = FieldCodec(
    Whole,
    PUBLIC,
    "name busy_seconds severity ratio? parts? rows? began_at@began_ns idle_by_cause=idle_ns"
    " phase_seconds facts",
    {Part: "waited_seconds label"},
)
PART = "waited_seconds label?"
CLOCK = WallClock(datetime(2026, 11, 28, 14, 0, tzinfo=timezone.utc), origin_ns=s(7))


def document(**changes: Any) -> dict[str, Any]:
    return {**CODEC.encode(WHOLE, CLOCK), **changes}


class TestAPublicDocument:
    def test_has_the_listed_names_in_order_times_in_seconds_and_members_by_value(self) -> None:
        assert list(document()) == list(CODEC.names)
        assert document() == {
            "name": "a", "busy_seconds": 1.5, "severity": "high", "ratio": 0.25,
            "parts": [{"waited_seconds": 1.0, "label": "part"}], "rows": [[1, "one"]],
            "began_at": "2026-11-28T13:59:54+00:00",
            "idle_by_cause": {"input_wait": 1.0}, "phase_seconds": {"compile": 1.0},
            "facts": {"workers": 4, "prefetch": False, "why": None},
        }  # fmt: skip

    def test_is_read_back(self) -> None:
        assert CODEC.decode(document(), CLOCK) == WHOLE
        assert CODEC.decode(document()) == replace(WHOLE, began_ns=None)

    def test_has_own_sentences_unchanged_but_reads_them_bounded(self) -> None:
        codec = FieldCodec(Part, OWN_SENTENCES, PART)

        assert codec.encode(Part(0, "a\x1bbcdef"))["label"] == "a\x1bbcdef"
        assert len(codec.decode({"waited_seconds": 1, "label": "a" * 100_000}).label) == 65_536

    @pytest.mark.parametrize("odd", [math.nan, math.inf])
    def test_has_null_for_what_is_not_finite(self, odd: float) -> None:
        assert CODEC.encode(replace(WHOLE, ratio=odd))["ratio"] is None


class TestAKeptDocument:
    CODEC = FieldCodec(Whole, KEPT, "name busy_ns severity ratio")

    def test_has_nanoseconds_and_omits_none(self) -> None:
        unknown = replace(WHOLE, severity=None, ratio=None)

        assert self.CODEC.encode(unknown) == {"name": "a", "busy_ns": 3 * S // 2}

    def test_has_only_differences_since_another_record(self) -> None:
        unknown = replace(WHOLE, ratio=None)

        assert self.CODEC.encode(WHOLE, since=WHOLE) == {}
        assert self.CODEC.encode(unknown, since=WHOLE) == {"ratio": None}


class TestRefusals:
    @pytest.mark.parametrize(
        "change",
        [
            {"name": 7}, {"name": None}, {"busy_seconds": True}, {"busy_seconds": "1"},
            {"busy_seconds": 1e308}, {"severity": "bad luck"}, {"severity": []},
            {"ratio": math.nan}, {"parts": {}}, {"parts": [[]]}, {"rows": [[1]]},
            {"rows": [[1, "a", 2]]}, {"idle_by_cause": {"lunch": 1}}, {"idle_by_cause": []},
            {"facts": {"workers": []}},
        ],
    )  # fmt: skip
    def test_name_the_malformed_field(self, change: dict[str, object]) -> None:
        with pytest.raises(MalformedError, match=f"^{next(iter(change))}: "):
            CODEC.decode(document(**change))

    def test_by_the_codec_itself_are_of_an_unsupported_type_and_an_unknown_name(self) -> None:
        class Odd(NamedTuple):
            when: bytes

        with pytest.raises(TypeError, match="bytes"):
            FieldCodec(Odd, KEPT, "when")
        with pytest.raises(TypeError, match="Part has no attribute 'lunch'"):
            FieldCodec(Part, KEPT, "lunch")
        with pytest.raises(TypeError, match="not a JSON name: 'a-b'"):
            FieldCodec(Part, KEPT, "a-b")


class TestAnotherVersion:
    def test_may_lack_only_fields_that_are_marked(self) -> None:
        older = document()
        del older["ratio"], older["parts"]

        assert (CODEC.decode(older).ratio, CODEC.decode(older).parts) == (None, ())
        with pytest.raises(MissingFieldError, match="'label'"):
            FieldCodec(Part, PUBLIC, "waited_seconds label").decode({"waited_seconds": 1})

    def test_may_name_an_unknown_phase(self) -> None:
        assert CODEC.decode(document(phase_seconds={"lunch": 1})).phase_ns == {
            TrainingPhase.OTHER: S
        }


class TestWallClock:
    @given(st.integers(0, 10**18))
    def test_reads_what_it_writes_to_a_microsecond(self, at_ns: int) -> None:
        back = CLOCK.decode(CLOCK.encode(at_ns))

        assert back is not None
        assert abs(back - at_ns) <= 1_000

    @pytest.mark.parametrize("value", [7, [], "lunch"])
    def test_refuses_what_is_no_time(self, value: object) -> None:
        with pytest.raises(ValueError, match=r"text|lunch"):
            CLOCK.decode(value)
