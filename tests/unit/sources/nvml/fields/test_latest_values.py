"""Specification of the newest answers of a device: each until it is too old to be one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.clock import NS_PER_S
from gpumon.sources.nvml.fields.latest_values import LatestValues, holds_for_ns


class TestAnAnswer:
    def test_holds_for_three_periods_and_at_least_three_seconds(self) -> None:
        assert [holds_for_ns(n * NS_PER_S // 10) for n in (1, 10, 50)] == [
            3 * NS_PER_S,
            3 * NS_PER_S,
            15 * NS_PER_S,
        ]

    def test_is_there_until_then_and_not_after(self) -> None:
        latest = LatestValues()
        latest.put("memory", {"memory_used_bytes": 7}, 100)

        assert latest.at(99) == {"memory_used_bytes": 7}
        assert latest.holds_until_ns == 100
        assert latest.at(100) == {}

    def test_takes_the_place_of_the_one_before_it_also_where_it_is_none(self) -> None:
        latest = LatestValues()
        latest.put("memory", {"memory_used_bytes": 7}, 100)
        latest.put("memory", {"memory_used_bytes": None}, 200)

        assert latest.at(0) == {"memory_used_bytes": None}

    def test_is_news_until_it_was_looked_at(self) -> None:
        latest = LatestValues()
        latest.at(0)
        seen = [latest.has_news]
        latest.put("memory", {}, 1)
        seen.append(latest.has_news)
        latest.at(0)

        assert [*seen, latest.has_news] == [False, True, False]

    @given(st.dictionaries(st.text(max_size=3), st.integers(0, 50)), st.integers(0, 60))
    def test_is_never_older_than_it_may_be(self, untils: dict[str, int], now_ns: int) -> None:
        latest = LatestValues()
        for field, until_ns in untils.items():
            latest.put(field, {field: until_ns}, until_ns)

        held = {field: until_ns for field, until_ns in untils.items() if now_ns < until_ns}
        assert latest.at(now_ns) == held
        assert latest.holds_until_ns == min(held.values(), default=LatestValues().holds_until_ns)
