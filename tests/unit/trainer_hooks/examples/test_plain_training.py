"""Specification of the training behind `gpumon demo`: it learns, waits, and needs no library."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path

import pytest

from tests.programs import ROOT, ran_python
from trainer_hooks.examples.plain_training import SHAPE, PlainNet, passes_for, read_batch
from trainer_hooks.examples.slow_store import SlowStore


class TestTheNet:
    def test_is_right_about_batches_that_it_was_not_shown(self, tmp_path: Path) -> None:
        store, net = SlowStore(tmp_path, 64, 0.0, shape=SHAPE), PlainNet()

        losses = [net.train(read_batch(store, k % 7), passes=1) for k in range(700)]

        assert losses[0] == pytest.approx(1.4, abs=0.15)  # a guess among four
        assert net.train(read_batch(store, 7), passes=1) < 1.2


class TestTheLengthOfAStep:
    def test_is_that_of_a_machine_that_does_nothing_else(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        spent_s = 0.0
        took_s = itertools.cycle([0.003, 0.001, 0.002])

        def train(net: PlainNet, batch: object, *, passes: int) -> None:
            nonlocal spent_s
            spent_s += sum(itertools.islice(took_s, passes))

        monkeypatch.setattr(PlainNet, "train", train)
        monkeypatch.setattr(time, "thread_time", lambda: spent_s)

        assert passes_for(0.045, []) == 45


class TestTheProgram:
    def test_runs_on_the_standard_library_alone(self, tmp_path: Path) -> None:
        program = (
            "import runpy, sys; sys.path.insert(0, sys.argv.pop(1));"
            "runpy.run_module('trainer_hooks.examples.plain_training', run_name='__main__')"
        )
        spans = tmp_path / "busy.jsonl"
        words = ["--spans", str(spans), "--steps", "20", "--workers", "2", "--latency-ms", "1"]
        alone = ["-I", "-S"]  # neither the environment nor any site-packages

        environ = {"GPUMON_RUNTIME_DIR": str(tmp_path)}
        done = ran_python(*alone, "-c", program, ROOT, *words, environ=environ)

        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert result["steps"] == 20
        assert result["loss"] < result["first_loss"] / 4
        assert len(spans.read_text().splitlines()) == 20
