"""Whatever is asked of a history is a span of time, or one sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.outlets.http.routes import LONGEST_HISTORY_S, history_span

NOW_S = 1_790_000_000.0
NUMBERS = st.one_of(
    st.integers(-(10**20), 10**20).map(str), st.floats().map(str), st.text(max_size=50)
)


@given(st.one_of(st.text(max_size=80), st.builds("from={}&to={}".format, NUMBERS, NUMBERS)))
def test_any_query_is_a_span_or_a_sentence(query: str) -> None:
    found = history_span(query, NOW_S)

    if isinstance(found, str):
        assert found.endswith(".")
        assert found.isprintable()
    else:
        assert 0 <= found[0] < found[1]
        assert found[1] - found[0] <= LONGEST_HISTORY_S + 1


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("from=1789999000&to=1789999500", (1_789_999_000.0, 1_789_999_500.0)),
        ("to=1789999500&from=1789999000.5", (1_789_999_000.5, 1_789_999_500.0)),
        ("from=1789999000&to=1790000030", (1_789_999_000.0, NOW_S)),  # a clock ahead of ours
    ],
)
def test_ends_no_later_than_now(query: str, expected: tuple[float, float]) -> None:
    assert history_span(query, NOW_S) == expected
