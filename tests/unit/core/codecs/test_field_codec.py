"""Specification of the codec: a record is written and read by what its fields are said to be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from gpumon.core.codecs.field_codec import (
    KEPT,
    OURS,
    TOLD,
    FieldCodec,
    MalformedError,
    MissingFieldError,
    in_order,
    shown,
)
from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.verdict import Severity

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


WHOLE = Whole(
    name="a", busy_ns=3 * S // 2, severity=Severity.HIGH, ratio=0.25, parts=(Part(S),),
    rows=((1, "one"),), idle_ns={IdleCause.INPUT_WAIT: S}, phase_ns={TrainingPhase.COMPILE: S},
    facts={"workers": 4, "prefetch": False, "why": None},
)  # fmt: skip
CODEC = FieldCodec(
    Whole,
    TOLD,
    "name busy_seconds severity ratio? parts? rows? idle_by_cause=idle_ns phase_seconds facts",
    {Part: "waited_seconds label"},
)
PART = "waited_seconds label?"


def told(**changes: Any) -> dict[str, Any]:
    return {**CODEC.encode(WHOLE), **changes}


class TestWhatIsTold:
    def test_has_times_in_seconds_members_by_value_and_records_as_objects(self) -> None:
        assert told() == {
            "name": "a", "busy_seconds": 1.5, "severity": "high", "ratio": 0.25,
            "parts": [{"waited_seconds": 1.0, "label": "part"}], "rows": [[1, "one"]],
            "idle_by_cause": {"input_wait": 1.0}, "phase_seconds": {"compile": 1.0},
            "facts": {"workers": 4, "prefetch": False, "why": None},
        }  # fmt: skip

    def test_comes_back(self) -> None:
        assert CODEC.decode(told()) == WHOLE

    def test_has_the_fields_that_are_asked_for_in_that_order(self) -> None:
        some = FieldCodec(Whole, TOLD, "busy_seconds name")

        assert list(some.encode(WHOLE)) == list(some.names) == ["busy_seconds", "name"]

    def test_is_safe_to_show_both_ways(self) -> None:
        short = FieldCodec(Part, TOLD._replace(text=shown(4)), PART)
        odd = Part(0, "a\x1bbcdef")

        assert short.encode(odd)["label"] == "a\ufffdb…"
        assert short.decode({"waited_seconds": 0, "label": "\x1b"}).label == "\ufffd"
        assert FieldCodec(Part, OURS, PART).encode(odd)["label"] == "a\x1bbcdef"

    def test_is_cut_where_a_file_has_more_than_gpumon_ever_says(self) -> None:
        told = FieldCodec(Part, OURS, PART)
        endless = {**told.encode(Part(1, "a")), "label": "a" * 100_000}

        assert len(told.decode(endless).label) == 65_536

    @pytest.mark.parametrize("odd", [math.nan, math.inf])
    def test_that_is_no_number_is_no_answer(self, odd: float) -> None:
        codec = FieldCodec(Whole, TOLD, "ratio")

        assert codec.encode(Whole(**{**vars(WHOLE), "ratio": odd})) == {"ratio": None}


class TestWhatIsKept:
    CODEC = FieldCodec(Whole, KEPT, "name busy_ns severity ratio")

    def test_has_whole_nanoseconds_and_leaves_out_what_has_no_answer(self) -> None:
        silent = Whole(**{**vars(WHOLE), "severity": None, "ratio": None})

        assert self.CODEC.encode(silent) == {"name": "a", "busy_ns": 3 * S // 2}

    def test_says_what_differs_and_what_has_no_answer_any_more(self) -> None:
        silent = Whole(**{**vars(WHOLE), "ratio": None})

        assert self.CODEC.encode(WHOLE, since=WHOLE) == {}
        assert self.CODEC.encode(silent, since=WHOLE) == {"ratio": None}


class TestWhatIsRefused:
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
    def test_names_the_field(self, change: dict[str, object]) -> None:
        with pytest.raises(MalformedError, match=f"^{next(iter(change))}: "):
            CODEC.decode(told(**change))

    @pytest.mark.parametrize("name", ["name", "busy_seconds", "severity", "idle_by_cause"])
    def test_names_a_field_that_every_version_writes(self, name: str) -> None:
        document = told()
        del document[name]

        with pytest.raises(MissingFieldError, match=f"^'{name}'$"):
            CODEC.decode(document)

    def test_is_a_record_within_that_lacks_anything(self) -> None:
        with pytest.raises(MissingFieldError, match="'label'"):
            CODEC.decode(told(parts=[{"waited_seconds": 1}]))

    def test_is_at_once_a_field_of_a_type_that_nobody_can_write(self) -> None:
        class Odd(NamedTuple):
            when: bytes

        with pytest.raises(TypeError, match="bytes"):
            FieldCodec(Odd, KEPT, "when")

    def test_is_at_once_a_name_without_an_attribute(self) -> None:
        with pytest.raises(TypeError, match="Part has no attribute 'lunch'"):
            FieldCodec(Part, KEPT, "lunch")

    @pytest.mark.parametrize("other", [None, [], "a", 7])
    def test_is_what_is_no_object(self, other: object) -> None:
        with pytest.raises(MalformedError, match="object"):
            CODEC.decode(other)


class TestAnotherVersion:
    def test_may_lack_what_is_marked(self) -> None:
        document = told()
        del document["ratio"], document["parts"]

        assert (CODEC.decode(document).ratio, CODEC.decode(document).parts) == (None, ())

    def test_may_lack_no_more_than_what_is_marked(self) -> None:
        strict = FieldCodec(Part, TOLD, "waited_seconds label")

        with pytest.raises(MissingFieldError, match="'label'"):
            strict.decode({"waited_seconds": 1})

    def test_may_add_what_it_likes(self) -> None:
        assert CODEC.decode(told(mood=1)) == WHOLE

    def test_may_name_a_phase_that_this_one_does_not_know(self) -> None:
        read = CODEC.decode(told(phase_seconds={"lunch": 1}))

        assert read.phase_ns == {TrainingPhase.OTHER: S}


def test_an_order_puts_fields_first_and_loses_none() -> None:
    assert list(in_order({"a": 1, "b": 2, "c": 3}, ("c", "a"))) == ["c", "a", "b"]
