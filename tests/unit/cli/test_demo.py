"""Specification of `gpumon demo`: each of its two reports is of its own training alone."""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace

import pytest

from gpumon.cli.demo import DemoCommand, _of_one_stage
from gpumon.core.phase import IdleCause
from gpumon.errors import GpumonError
from tests.builders_report import gpu, report
from tests.builders_time import s

WAIT = IdleCause.INPUT_WAIT
STARTED_AT = "2026-11-21T08:00:00+00:00"
ADDED_UP = "The figures of GPU 0 add up 2 runs since the daemon began."


class TestTheReportOfTheSecondTraining:
    def test_begins_where_the_first_one_ended(self) -> None:
        first = replace(report(gpu(13.0, {WAIT: 17.0})), started_at=STARTED_AT)
        both = replace(report(gpu(23.0, {WAIT: 17.0})), started_at=STARTED_AT)

        second = _of_one_stage(first, both)

        assert second.started_at == "2026-11-21T08:00:30+00:00"
        assert second.origin_ns == both.origin_ns + s(30)
        assert second.gpus[0].totals.busy_ns == s(10)

    def test_does_not_say_that_it_adds_up_both(self) -> None:
        first, both = report(gpu(13.0, {WAIT: 17.0})), report(gpu(23.0, {WAIT: 17.0}))

        second = _of_one_stage(first, replace(both, notes=(ADDED_UP,)))

        assert second.notes == ()


class TestAMachineWithNoRoomForIt:
    def test_is_told_what_to_set(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tempfile, "tempdir", "/proc/nowhere")

        with pytest.raises(GpumonError, match="set TMPDIR to one that you may write"):
            DemoCommand().run(argparse.Namespace(steps=20, keras=False, keep=False))


class TestKerasThatIsNotThere:
    def test_is_told_how_to_get_it_and_that_the_demo_needs_it_not(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

        with pytest.raises(GpumonError, match="pip install keras jax; without --keras the demo"):
            DemoCommand().run(argparse.Namespace(steps=20, keras=True, keep=False))
