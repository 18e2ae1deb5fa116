"""Specification of a speed-up: what is promised at most, and whether a promise was kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.diagnosis.speedup import promise_was_kept, speedup_upper_bound


class TestAPromise:
    @given(st.integers(0, 10**15), st.integers(0, 10**15))
    def test_is_at_least_1_and_never_infinite(self, in_use_ns: int, lost_ns: int) -> None:
        assert 1.0 <= speedup_upper_bound(in_use_ns, lost_ns) < float("inf")

    @pytest.mark.parametrize(
        ("bound", "measured", "kept"), [(2.0, 1.9, True), (2.0, 2.03, True), (2.0, 2.05, False)]
    )
    def test_is_kept_give_or_take_two_percent(
        self, bound: float, measured: float, kept: bool
    ) -> None:
        assert promise_was_kept(bound, measured) is kept
