"""Specification of the one run that a process is."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from trainer_hooks.quiet_warning import QuietWarningOnce
from trainer_hooks.ring import process_ring


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(process_ring._Slot, "ring", None)
    monkeypatch.setattr(process_ring, "_warn_of_name", QuietWarningOnce())


def name() -> str:
    writer = process_ring.process_ring().writer
    assert writer is not None
    return writer.facts.run


class TestTheNameOfARun:
    def test_may_be_given_until_its_first_step(self) -> None:
        process_ring.describe_run(run="first")
        process_ring.describe_run(run="second")

        assert name() == "second"

    def test_is_kept_after_it_and_one_warning_says_so(self) -> None:
        process_ring.describe_run(run="lr-0.1")
        writer = process_ring.process_ring().writer
        assert writer is not None
        writer.step()

        with pytest.warns(RuntimeWarning, match=r"'lr-0.01' from 'lr-0.1'.*a process"):
            process_ring.describe_run(run="lr-0.01")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            process_ring.describe_run(run="lr-0.001")

        assert name() == "lr-0.1"

    def test_may_be_said_again(self) -> None:
        process_ring.describe_run(run="lr-0.1")
        writer = process_ring.process_ring().writer
        assert writer is not None
        writer.step()

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            process_ring.describe_run(run="lr-0.1")

        assert name() == "lr-0.1"
