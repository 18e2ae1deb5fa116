"""Specification of the flag: is the GPU starved now?"""

from __future__ import annotations

import pytest

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


FLAGS: dict[str, tuple[list[float], bool]] = {
    "is down at first": ([], False),
    "is down before ten seconds of use": ([1.0] * 9, False),
    "rises after ten seconds of use": ([1.0] * 10, True),
    "is down below five percent": ([0.049] * 60, False),
    "rises at five percent": ([0.05] * 60, True),
    "stays up between three and five percent": ([0.10] * 60 + [0.04] * 120, True),
    "falls below three percent of the last minute": ([0.10] * 60 + [0.0] * 60, False),
}


@pytest.mark.parametrize("what", FLAGS)
def test_the_flag(what: str) -> None:
    shares, is_raised = FLAGS[what]

    assert flag_after(*shares).raised is is_raised


def test_each_rise_of_the_flag_is_an_episode() -> None:
    assert flag_after(*([0.10] * 60 + [0.0] * 60) * 3).episodes == 3
