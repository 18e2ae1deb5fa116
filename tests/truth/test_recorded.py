"""Specification of the stretches that are cut from real boards' recordings."""

from __future__ import annotations

import numpy as np
import pytest

from tests.truth.recorded import RECORDINGS, Case, cases, recorded, starved_ratio
from tests.truth.workloads.spans import total_ms

LABELS = {
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


@pytest.fixture(scope="module")
def all_cases() -> list[Case]:
    return list(cases())


def parts_of(case: Case) -> tuple[str, str]:
    recording, stretch, *_ = case.name.split("/")
    return recording, stretch


def test_every_run_by_itself_has_the_label_that_its_kind_has(all_cases: list[Case]) -> None:
    labels = {parts_of(case)[1]: case.starved_ratio >= 0.05 for case in all_cases}

    assert {run: labels[run] for run in LABELS} == LABELS


def test_there_are_both_labels_at_every_period(all_cases: list[Case]) -> None:
    found = {(case.period_s, case.starved_ratio >= 0.05) for case in all_cases}

    assert found == {(period_s, late) for period_s in (0.2, 1.0, 5.0) for late in (True, False)}


def test_readings_come_in_order_a_period_apart(all_cases: list[Case]) -> None:
    assert len({case.name for case in all_cases}) == len(all_cases)
    for case in all_cases:
        assert case.stamps_ns.size == case.percents.size >= 20
        assert np.diff(case.stamps_ns) == pytest.approx(case.period_s * 1e9, rel=0.05)
        assert case.percents.max() <= 100
        assert 0 <= case.starved_ratio <= 1


@pytest.mark.parametrize(("name", "waited_s"), [(H200, 62.7), (H100, 18.4)])
def test_waits_last_as_long_as_the_rings_counted(name: str, waited_s: float) -> None:
    assert total_ms(recorded(name).waits) / 1_000 == pytest.approx(waited_s, abs=0.2)


def test_waits_of_a_keras_training_starve_as_long_as_its_loader_slept() -> None:
    """300 steps of 65 ms, each waits 60 ms; later its process lives on without a job."""
    assert starved_ratio(recorded(H100), 0, 62_000) == pytest.approx(60 / 130, abs=0.03)


def test_the_newest_window_is_mostly_what_nvidia_smi_wrote_beside_the_recording() -> None:
    """Not always: its column is no copy of the driver's windows, so both are cases."""
    made = recorded(H200)
    at_ms, written = made.rows[made.rows[:, 0] > 1_000].T

    newest = np.searchsorted(made.windows_ms[:, 1], at_ms, side="right") - 1
    differ = np.abs(np.rint(100 * made.busy_ratio[newest]) - written)
    assert written.size > 440
    assert np.mean(differ <= 1) > 0.8
