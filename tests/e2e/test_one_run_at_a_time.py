"""Two real training runs under one daemon: added up, and each alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import RunningDaemon
from tests.patience import PATIENCE_S, wait_until
from tests.processes import ending
from tests.programs import gpumon

TRAINING = """
import json, sys, time
from pathlib import Path
from trainer_hooks import phase, step
from trainer_hooks.examples.busy_spans import BusySpans
cause, steps = sys.argv[2], int(sys.argv[3])
lost_ns = 0
with BusySpans(Path(sys.argv[1]), 0) as spans:
    for _ in range(steps):
        with phase(cause):
            began_ns = time.monotonic_ns()
            time.sleep(0.4)
            lost_ns += time.monotonic_ns() - began_ns
        with phase("train_step"):
            began_ns = time.monotonic_ns()
            time.sleep(0.4)
            spans.note(began_ns, time.monotonic_ns())
        step()
    print(json.dumps({"lost": lost_ns / 1e9, "busy": spans.busy_ns / 1e9}), flush=True)
    sys.stdin.read()
"""
STEPS = {"slow": 10, "saves": 9}
CAUSE = {"slow": "input_wait", "saves": "checkpoint"}


class TwoRuns:
    """What the training runs reported of themselves, and the reports asked for afterwards."""

    def __init__(self, daemon: RunningDaemon, spans: Path) -> None:
        self._daemon, self._spans = daemon, spans
        self.truth: dict[str, dict[str, float]] = {}
        self.steps_at_once: dict[str, int] = {}
        for name in STEPS:
            self._train(name)
        self.whole = self.report()
        self.alone = {name: self.report("--run", name) for name in STEPS}

    def report(self, *words: str) -> dict[str, Any]:
        asked = self.ask("--json", *words)
        assert asked.returncode == 0, asked.stderr
        document: dict[str, Any] = json.loads(asked.stdout)
        return document

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        return gpumon("report", *words, environ=self._daemon.environ)

    def _train(self, name: str) -> None:
        training = subprocess.Popen(
            [sys.executable, "-c", TRAINING, str(self._spans), CAUSE[name], str(STEPS[name])],
            env={**self._daemon.environ, "GPUMON_GPUS": "0", "GPUMON_RUN": name},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        with ending(training) as process:
            assert process.stdout is not None
            self.truth[name] = json.loads(process.stdout.readline())
            runs = {run["run"]: run for run in self._daemon.report()["runs"]}
            self.steps_at_once[name] = runs[name]["steps"]
            process.communicate("", timeout=PATIENCE_S)
        wait_until(lambda: self._is_over(name))
        self._daemon.settled_report()  # what follows within a reading of its end counts for it

    def _is_over(self, name: str) -> bool:
        return not next(run for run in self._daemon.state()["runs"] if run["run"] == name)["alive"]


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoRuns]:
    folder = tmp_path_factory.mktemp("two-runs")
    spans = folder / "busy.jsonl"
    with RunningDaemon(folder, "--source", f"follow:{spans}", "--period", "2") as daemon:
        yield TwoRuns(daemon, spans)


class TestTheWholeReport:
    def test_adds_both_runs_up_and_says_how_to_see_one(self, two_runs: TwoRuns) -> None:
        busy_s = sum(truth["busy"] for truth in two_runs.truth.values())

        assert two_runs.whole["gpus"][0]["busy_seconds"] == pytest.approx(busy_s, rel=0.02)
        assert any("--run NAME" in note for note in two_runs.whole["notes"])


@pytest.mark.parametrize("name", STEPS)
class TestTheReportOfOneRun:
    def test_was_busy_as_long_as_that_one_computed(self, two_runs: TwoRuns, name: str) -> None:
        gpu = two_runs.alone[name]["gpus"][0]

        assert gpu["busy_seconds"] == pytest.approx(two_runs.truth[name]["busy"], rel=0.02)

    def test_lost_what_that_one_slept_and_nothing_of_the_other(
        self, two_runs: TwoRuns, name: str
    ) -> None:
        idle_s = two_runs.alone[name]["gpus"][0]["idle_by_cause"]
        (other,) = CAUSE.keys() - {name}

        assert idle_s[CAUSE[name]] == pytest.approx(two_runs.truth[name]["lost"], rel=0.1)
        assert idle_s[CAUSE[other]] == 0

    def test_lists_that_run_only(self, two_runs: TwoRuns, name: str) -> None:
        assert [run["run"] for run in two_runs.alone[name]["runs"]] == [name]

    def test_had_all_its_steps_as_soon_as_they_were_made(
        self, two_runs: TwoRuns, name: str
    ) -> None:
        # The daemon looks every two seconds; the last two steps are younger than that.
        assert two_runs.steps_at_once[name] == STEPS[name]


def test_a_run_that_is_none_is_refused_with_the_names_of_those_there_are(
    two_runs: TwoRuns,
) -> None:
    asked = two_runs.ask("--run", "fast")

    assert asked.returncode == 2
    assert "'fast'" in asked.stderr
    assert all(name in asked.stderr for name in STEPS)
