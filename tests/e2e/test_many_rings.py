"""A hundred trainings, three hundred files: what a reader, and a daemon, make of them."""

from __future__ import annotations

import os
from pathlib import Path

from tests.builders_hostile_ring import of_version
from tests.daemon import RunningDaemon
from tests.patience import wait_until
from tests.trainings import process, read, reader_of

MANY = """
import sys, time
from pathlib import Path
from gpumon.sources.system_clock import read_boot_id
from tests.builders_ring import phases_folder, run_facts, sparse_ring
made = []
for number in range(int(sys.argv[2])):
    facts = run_facts(run=f"run-{number}", pid=100_000 + number, boot_id=read_boot_id())
    made.append(sparse_ring(phases_folder(Path(sys.argv[1])), facts))
    made[-1].step(number, number)
print("there", flush=True)
for line in sys.stdin:
    for writer in made:
        writer.step(1, 1)
    print("stepped", flush=True)
"""
"""One process that holds many rings: their locks are its own, and nothing else tells them apart."""


class TestAHundredTrainings:
    def test_are_all_read_from_tick_to_tick(self, tmp_path: Path) -> None:
        reader = reader_of(tmp_path)
        with process(MANY, tmp_path, str(tmp_path), "100") as trainings:
            first = read(reader)
            assert trainings.stdin is not None
            assert trainings.stdout is not None
            print("go", file=trainings.stdin, flush=True)
            assert trainings.stdout.readline() == "stepped\n"
            second = read(reader)
        ended = read(reader)

        steps = [{run.facts.run: run.steps for run in reading.rings} for reading in (first, second)]
        assert steps[0] == {f"run-{number}": number for number in range(100)}
        assert steps[1] == {f"run-{number}": number + 1 for number in range(100)}
        assert all(run.alive for run in second.rings)
        assert {len(run.events) for run in second.rings} == {2}
        assert (len(ended.rings), any(run.alive for run in ended.rings)) == (100, False)
        assert (ended.rejected, ended.message) == (0, None)

    def test_are_all_shown_by_a_daemon_and_most_have_series(self, tmp_path: Path) -> None:
        words = ("--source", f"follow:{tmp_path / 'busy.jsonl'}", "--period", "0.25")
        with RunningDaemon(tmp_path, *words) as daemon:
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


class TestThreeHundredTrainings:
    def test_are_read_up_to_256_and_the_others_counted_and_told(self, tmp_path: Path) -> None:
        reader = reader_of(tmp_path)
        with process(MANY, tmp_path, str(tmp_path), "300"):
            readings = [read(reader) for _ in range(3)]

        assert [len(reading.rings) for reading in readings] == [256] * 3
        assert [reading.left_out for reading in readings] == [((os.getuid(), 44),)] * 3
        assert [reading.rejected for reading in readings] == [0] * 3
        assert "44 phase rings are not read" in (readings[0].message or "")

    def test_make_room_for_new_ones_as_they_end(self, tmp_path: Path) -> None:
        reader = reader_of(tmp_path)
        with process(MANY, tmp_path, str(tmp_path), "256"):
            read(reader)
            with process(MANY, tmp_path, str(tmp_path), "10"):
                full = read(reader)
        read(reader)  # now all of them have ended
        with process(MANY, tmp_path, str(tmp_path), "20") as newest:
            seen = read(reader)

        assert (len(full.rings), full.left_out) == (256, ((os.getuid(), 10),))
        living = [run for run in seen.rings if run.alive]
        assert {run.host_pid for run in living} == {newest.pid}
        assert (len(living), len(seen.rings)) == (20, 256)
        assert (seen.left_out, seen.rejected) == ((), 0)


class TestARingOfAnotherVersion:
    def test_is_told_with_its_file_both_versions_and_what_to_update(self, tmp_path: Path) -> None:
        words = ("--source", f"follow:{tmp_path / 'busy.jsonl'}", "--period", "0.25")
        (tmp_path / "busy.jsonl").touch()
        with RunningDaemon(tmp_path, *words) as daemon:
            phases = daemon.runtime_dir / "phases"
            of_version(phases, 2, name="12-newer.ring", length=4096)
            daemon.wait_for(lambda state: "version 2" in str(state["collectors"]))
            newer = daemon.report()
            of_version(phases, 0, name="11-older.ring")
            daemon.wait_for(lambda state: "version 0" in str(state["collectors"]))
            older = daemon.report()
            errors = daemon.metrics()['gpumon_collector_errors_total{collector="phase_rings"}']

        assert of_rings(newer["notes"]) == [
            "phase_rings: 12-newer.ring: a phase ring of version 2, and this reads version 1: "
            "update this gpumon"
        ]
        assert of_rings(older["notes"]) == [
            "phase_rings: 11-older.ring: a phase ring of version 0, and this reads version 1: "
            "update the gpumon of the training (2 refused so far)"
        ]
        assert errors == 2
        assert "gpumon: phase_rings: 12-newer.ring: a phase ring of version 2" in daemon_log(
            tmp_path
        )


def of_rings(notes: list[str]) -> list[str]:
    """Not that a busy machine held the source up."""
    return [note for note in notes if note.startswith("phase_rings: ")]


def daemon_log(folder: Path) -> str:
    return (folder / "daemon.log").read_text()
