"""Specification of the flag: is the GPU starved now?"""

from __future__ import annotations

from gpumon.core.accounting.starved_flag import StarvedFlag
from gpumon.core.settings.detector import DetectorSettings
from tests.builders.time import s


def flag_after(*shares: float) -> StarvedFlag:
    """The flag after one in-use second with each of these starved shares."""
    flag, starved_ns = StarvedFlag(DetectorSettings()), 0
    for second, share in enumerate(shares, start=1):
        starved_ns += s(share)
        flag.update(s(second), starved_ns)
    return flag


class TestTheFlag:
    def test_is_down_at_first(self) -> None:
        assert not flag_after().raised

    def test_waits_for_ten_seconds_of_use(self) -> None:
        assert not flag_after(*[1.0] * 9).raised
        assert flag_after(*[1.0] * 10).raised

    def test_rises_at_five_percent(self) -> None:
        assert not flag_after(*[0.049] * 60).raised
        assert flag_after(*[0.05] * 60).raised

    def test_stays_up_between_three_and_five_percent(self) -> None:
        assert flag_after(*[0.10] * 60, *[0.04] * 120).raised

    def test_falls_below_three_percent_of_the_last_minute(self) -> None:
        flag = flag_after(*[0.10] * 60, *[0.0] * 60)

        assert not flag.raised
        assert flag.episodes == 1

    def test_counts_each_rise_as_an_episode(self) -> None:
        assert flag_after(*([0.10] * 60 + [0.0] * 60) * 3).episodes == 3
