"""A hundred training runs, three hundred files: what a reader, and a daemon, make of them."""

from __future__ import annotations

import re
from pathlib import Path

from gpumon.core.ring_format.format import RING_BYTES
from tests.builders.ring import of_version
from tests.daemon import RunningDaemon
from tests.e2e.ring_programs import MANY
from tests.patience import wait_until
from tests.training_processes import process


def following(folder: Path) -> RunningDaemon:
    spans = folder / "busy.jsonl"
    spans.touch()
    return RunningDaemon(folder, "--source", f"follow:{spans}", "--period", "0.25")


class TestAHundredRuns:
    def test_are_all_shown_by_a_daemon_and_most_have_series(self, tmp_path: Path) -> None:
        with following(tmp_path) as daemon:
            with process(MANY, tmp_path, str(daemon.runtime_dir), "100"):
                state = daemon.wait_for(lambda state: len(state["runs"]) == 100)
                series = daemon.metrics()
            wait_until(lambda: not any(run["alive"] for run in daemon.state()["runs"]))

        assert {run["run"] for run in state["runs"]} == {f"run-{n}" for n in range(100)}
        assert all(run["alive"] for run in state["runs"])
        with_series = [name for name in series if name.startswith("gpumon_training_steps_total{")]
        assert len(with_series) == 64
        assert series['gpumon_label_sets_dropped_total{family="gpumon_training"}'] >= 36
        assert series['gpumon_collector_errors_total{collector="phase_rings"}'] == 0


class TestARingOfAnotherVersion:
    def test_is_reported_with_its_file_both_versions_and_what_to_update(
        self, tmp_path: Path
    ) -> None:
        def noted(version: int, name: str, length: int) -> list[str]:
            of_version(daemon.runtime_dir / "phases", version, name=name, length=length)
            daemon.wait_for(lambda state: f"version {version}" in str(state["collectors"]))
            notes: list[str] = daemon.report()["notes"]
            # Not that a busy machine held the source up.
            return [note for note in notes if note.startswith("phase_rings: ")]

        with following(tmp_path) as daemon:
            newer = noted(2, "12-newer.ring", 4096)
            older = noted(0, "11-older.ring", RING_BYTES)
            errors = daemon.metrics()['gpumon_collector_errors_total{collector="phase_rings"}']

        for (note,), name, version, to_update in (
            (newer, "12-newer.ring", 2, "this gpumon"),
            (older, "11-older.ring", 0, "the gpumon of the training"),
        ):
            assert note.startswith(f"phase_rings: {name}: ")
            assert re.findall(r"version (\d)", note) == [str(version), "1"]
            assert f"update {to_update}" in note
        assert "(2 " in older[0]
        assert errors == 2
        assert f"gpumon: {newer[0].partition(', and')[0]}" in daemon.log()
