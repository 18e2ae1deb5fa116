"""Specification of instants in documents: ISO 8601 text of the wall clock, and back."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.codecs.field_codec import MalformedError
from gpumon.core.codecs.moments import Moments, began_at
from tests.builders_time import s

BEGAN = datetime(2026, 11, 28, 14, 0, tzinfo=timezone.utc)
MOMENTS = Moments(BEGAN, origin_ns=s(7))


class TestAnInstant:
    def test_is_written_by_the_wall_clock(self) -> None:
        assert MOMENTS.encode(s(187.5)) == "2026-11-28T14:03:00.500000+00:00"

    def test_before_the_beginning_is_written_as_well(self) -> None:
        assert MOMENTS.encode(s(1)) == "2026-11-28T13:59:54+00:00"

    def test_is_not_written_where_there_is_none_or_no_wall_clock(self) -> None:
        assert MOMENTS.encode(None) is None
        assert Moments(None).encode(s(9)) is None

    def test_is_not_read_where_there_is_none_or_no_wall_clock(self) -> None:
        assert MOMENTS.decode(None) is None
        assert Moments(None).decode("2026-11-28T14:03:00+00:00") is None

    @given(st.integers(0, 10**18))
    def test_comes_back_to_the_microsecond(self, at_ns: int) -> None:
        back = MOMENTS.decode(MOMENTS.encode(at_ns))

        assert back is not None
        assert abs(back - at_ns) <= 1_000

    def test_is_read_in_any_zone(self) -> None:
        assert MOMENTS.decode("2026-11-28T16:03:00+02:00") == s(187)

    @pytest.mark.parametrize("value", [7, [], {"at": 1}])
    def test_that_is_no_text_is_refused(self, value: object) -> None:
        with pytest.raises(MalformedError):
            MOMENTS.decode(value)

    def test_that_is_no_moment_is_refused(self) -> None:
        with pytest.raises(ValueError, match="lunch"):
            MOMENTS.decode("lunch")


class TestWhenAReportBegan:
    def test_is_what_it_says(self) -> None:
        assert began_at("2026-11-28T16:00:00+02:00") == BEGAN
        assert began_at("2026-11-28T14:00:00.250000+00:00") == BEGAN + timedelta(seconds=0.25)

    def test_is_not_known_where_it_says_nothing(self) -> None:
        assert began_at(None) is None
