"""The labelled parts of recordings of real boards."""

from __future__ import annotations

import numpy as np
import pytest

from tests.truth.recorded import RECORDINGS, cases, recorded, starved_ratio
from tests.truth.workloads.spans import total_ms

IS_STARVED = {
    "late_loader": True,
    "checkpoints": False,
    "shard_fetch": True,
    "requests": False,
    "rounds": False,
    "erratic_storage": True,
    "asynchronous_checkpoints": False,
    "late_validation": True,
    "keras-torch": True,
}
H200, H100 = RECORDINGS


def test_each_run_is_starved_as_its_kind_and_read_at_every_period() -> None:
    found = list(cases())

    starved = {case.name.split("/")[1]: case.starved_ratio >= 0.05 for case in found}
    assert {run: starved[run] for run in IS_STARVED} == IS_STARVED
    assert {case.period_s for case in found} == {0.2, 1.0, 5.0}
    for case in found:
        assert case.stamps_ns.size == case.percents.size >= 20
        assert np.diff(case.stamps_ns) == pytest.approx(case.period_s * 1e9, rel=0.05)
        assert case.percents.max() <= 100


@pytest.mark.parametrize(("name", "waited_s"), [(H200, 62.7), (H100, 18.4)])
def test_waits_last_as_long_as_the_rings_counted(name: str, waited_s: float) -> None:
    assert total_ms(recorded(name).waits) / 1_000 == pytest.approx(waited_s, abs=0.2)


def test_a_keras_run_is_starved_as_long_as_its_loader_slept() -> None:
    """300 steps of 65 ms, each waits 60 ms; later its process lives on without a job."""
    assert starved_ratio(recorded(H100), 0, 62_000) == pytest.approx(60 / 130, abs=0.03)
