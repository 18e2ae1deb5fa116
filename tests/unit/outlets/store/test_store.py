"""The store keeps where the time went, and answers for any span of it."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import gpumon.outlets.store.database as database_module
from gpumon.core.clock import NS_PER_S
from gpumon.core.phase import IdleCause
from gpumon.outlets.store.database import Kept
from gpumon.outlets.store.store import Store, kept_for
from tests.builders.state import run
from tests.builders.store import START_S, Card, Machine, store_in, sums


@pytest.fixture
def machine() -> Machine:
    return Machine(Store(None))


class TestTimeOfAGpu:
    def test_is_in_the_cells_in_which_it_passed(self, machine: Machine) -> None:
        machine.work(5)
        machine.work(15, busy_ratio=0.5)

        gpu = machine.history(0, 20)["gpus"]["GPU-0"]

        assert gpu["parts"] == {"busy": [7.5, 5.0], "pending": [2.5, 5.0]}
        assert gpu["observed"] == [10.0, 10.0]

    def test_that_was_pending_gets_its_cause_where_it_passed(self, machine: Machine) -> None:
        machine.work(15, busy_ratio=0.0)
        machine.history(0, 20)  # written as pending
        machine.cards[0].settle(IdleCause.INPUT_WAIT)
        machine.work(5)

        gpu = machine.history(0, 20)["gpus"]["GPU-0"]

        assert gpu["parts"] == {"busy": [0.0, 5.0], "input_wait": [10.0, 5.0]}

    def test_is_settled_in_order_the_oldest_first(self, machine: Machine) -> None:
        machine.work(20, busy_ratio=0.0)
        machine.cards[0].settle(IdleCause.START_UP, 8 * NS_PER_S)
        machine.cards[0].settle(IdleCause.UNKNOWN, 7 * NS_PER_S)
        machine.tick(0.0)

        gpu = machine.history(0, 20)["gpus"]["GPU-0"]

        assert gpu["parts"] == {
            "start_up": [8.0, 0.0],
            "unknown": [2.0, 5.0],
            "pending": [0.0, 5.0],
        }

    def test_that_is_suspected_is_no_longer_unknown(self, machine: Machine) -> None:
        machine.work(10, busy_ratio=0.0)
        machine.cards[0].settle(IdleCause.UNKNOWN)
        machine.cards[0].suspected_ns = 6 * NS_PER_S
        machine.tick(0.0)

        assert machine.history(0, 10)["gpus"]["GPU-0"]["parts"] == {
            "unknown": [4.0],
            "suspected": [6.0],
        }

    def test_has_the_means_of_its_levels(self, machine: Machine) -> None:
        machine.work(11)

        levels = machine.history(0, 10)["gpus"]["GPU-0"]["levels"]

        assert levels == {
            "memory_used_bytes": [float(8 << 30)],
            "power_watts": [300.0],
            "sm_clock_hertz": [1.7e9],
            "temperature_celsius": [50.0],
        }

    def test_that_was_not_observed_is_left_out(self, machine: Machine) -> None:
        machine.work(10)
        machine.tick(10.0)
        machine.work(10)

        gpu = machine.history(0, 30)["gpus"]["GPU-0"]

        assert gpu["observed"] == [10.0, 0.0, 10.0]

    def test_names_the_runs_on_it(self, machine: Machine) -> None:
        machine.work(1, runs=(run("resnet", gpu_uuids=("GPU-0",)),))
        machine.history(0, 1)
        machine.work(9, runs=(run("resnet", gpu_uuids=("GPU-0",)),))

        assert machine.history(0, 10)["gpus"]["GPU-0"]["runs"] == [
            [START_S + 1, START_S + 10, "resnet"]
        ]

    def test_has_names_from_outside_as_text(self, machine: Machine) -> None:
        name = "\ud800\x1b[2J</script>"
        machine.work(1, runs=(run(name, gpu_uuids=("GPU-0",)),))

        ((_, _, shown),) = machine.history(0, 1)["gpus"]["GPU-0"]["runs"]
        assert "\x1b" not in shown
        assert machine.store.trouble is None

    def test_has_no_level_that_is_no_number(self, machine: Machine) -> None:
        machine.cards[0].power_watts = float("nan")
        machine.work(11)

        levels = machine.history(0, 10)["gpus"]["GPU-0"]["levels"]
        assert (levels["power_watts"], levels["temperature_celsius"]) == ([None], [50.0])


class TestASpan:
    def test_has_at_most_six_hundred_cells(self, machine: Machine) -> None:
        machine.work(30)

        answer = machine.history(-86_400, 30)

        (gpu,) = answer["gpus"].values()
        assert answer["cell_seconds"] == 180
        assert len(gpu["observed"]) <= 600
        assert sums(gpu) == {"busy": 30.0}

    def test_that_is_older_than_is_kept_says_from_when_it_is(self, machine: Machine) -> None:
        machine.work(30)

        assert machine.history(-600, 30)["kept_from_s"] == START_S

    def test_before_anything_is_kept_has_no_gpus(self, machine: Machine) -> None:
        machine.work(30)

        assert machine.history(-600, -300)["gpus"] == {}

    def test_names_the_time_in_which_gpumon_was_not_running(self, tmp_path: Path) -> None:
        first = Machine(store_in(tmp_path))
        first.work(30)
        first.store.close()
        second = Machine(store_in(tmp_path))
        second.begin(START_S + 50)
        second.work(30)

        answer = second.history(0, 80)

        assert answer["not_running"] == [[START_S + 30, START_S + 50]]
        assert sums(answer["gpus"]["GPU-0"]) == {"busy": 60.0}

    def test_of_one_source_has_no_rows_of_another(self, tmp_path: Path) -> None:
        first = Machine(store_in(tmp_path), source="simulated:healthy")
        first.work(30)
        first.store.close()
        second = Machine(store_in(tmp_path))
        second.begin(START_S + 50)
        second.work(10)

        answer = second.history(0, 80)

        assert sums(answer["gpus"]["GPU-0"]) == {"busy": 10.0}
        assert answer["kept_from_s"] == START_S + 50

    def test_over_which_the_clock_was_set_back_closes(
        self, machine: Machine, caplog: pytest.LogCaptureFixture
    ) -> None:
        machine.work(20)
        machine.wall_s -= 15
        machine.work(20, busy_ratio=0.5)

        gpu = machine.history(0, 30)["gpus"]["GPU-0"]

        (logged,) = caplog.messages
        assert "the clock was set back by 15 s" in logged
        assert all(seconds <= 10 for seconds in gpu["observed"])
        for cell, observed in enumerate(gpu["observed"]):
            parts = sum(cells[cell] for cells in gpu["parts"].values())
            assert parts == pytest.approx(observed, abs=0.002)


class TestTheTimeBeforeTheStart:
    def test_has_the_totals_of_earlier_processes(self, tmp_path: Path) -> None:
        first = Machine(store_in(tmp_path), Card(), Card("GPU-1", 1))
        first.work(60, busy_ratio=0.5)
        first.cards[0].settle(IdleCause.INPUT_WAIT)
        first.tick(0.0)
        first.store.close()
        second = Machine(store_in(tmp_path), Card())
        second.begin(START_S + 100)
        second.work(10)

        earlier = second.store.earlier(START_S - 3600)

        assert earlier is not None
        totals = earlier.totals["GPU-0"]
        assert (totals.observed_ns, totals.busy_ns) == (60 * NS_PER_S, 30 * NS_PER_S)
        assert totals.idle_ns == {IdleCause.INPUT_WAIT: 30 * NS_PER_S}
        assert totals.input_wait_by_reason_ns == {"disk_bound": 30 * NS_PER_S}
        assert (totals.in_use_ns, totals.in_use_busy_ns) == (60 * NS_PER_S, 30 * NS_PER_S)
        assert earlier.totals["GPU-1"].pending_ns == 30 * NS_PER_S
        assert earlier.gaps == ((START_S + 60, START_S + 100),)
        assert earlier.is_cut

    def test_is_none_in_the_first_process(self, machine: Machine) -> None:
        machine.work(60)

        assert machine.store.earlier(START_S - 3600) is None

    def test_is_none_of_a_span_that_began_later(self, tmp_path: Path) -> None:
        first = Machine(store_in(tmp_path))
        first.work(60)
        first.store.close()
        second = Machine(store_in(tmp_path))
        second.begin(START_S + 7200)
        second.work(10)

        assert second.store.earlier(START_S + 3600) is None

    def test_says_which_pauses_there_were(self, tmp_path: Path) -> None:
        first = Machine(store_in(tmp_path))
        for _ in range(3):
            first.work(2, busy_ratio=0.0)
            first.cards[0].settle(IdleCause.UNKNOWN)
            first.work(8)
        first.store.close()
        second = Machine(store_in(tmp_path))
        second.begin(START_S + 100)
        second.work(1)

        earlier = second.store.earlier(START_S)

        assert earlier is not None
        pauses = earlier.totals["GPU-0"].pauses
        assert (pauses.count, pauses.total_ns) == (3, 6 * NS_PER_S)


class TestItsFile:
    def test_has_no_text_but_of_sources_gpus_and_runs(self, tmp_path: Path) -> None:
        store_in(tmp_path).close()
        with closing(sqlite3.connect(tmp_path / "state" / "store.sqlite3")) as database:
            tables = database.execute("SELECT sql FROM sqlite_master WHERE sql NOT NULL").fetchall()

        columns = {name for (sql,) in tables for name in re.findall(r"(\w+) (?:TEXT|BLOB)", sql)}
        assert columns == {
            "source", "boot_id", "version", "uuid", "label", "name", "run", "tier",
        }  # fmt: skip

    def test_keeps_what_is_older_for_a_time_only(self, tmp_path: Path) -> None:
        machine = Machine(store_in(tmp_path))
        machine.work(60)
        machine.history(0, 60)
        machine.wall_s += 86_400
        machine.work(60)
        machine.store.close()
        again = Machine(store_in(tmp_path))
        again.begin(machine.wall_s + 29 * 86_400)
        again.work(60)
        answer = again.history(0, 60)

        assert sum(busy_ms for (busy_ms,) in again.store.rows("tens", ("busy",))) == 60_000
        assert START_S + 60 <= answer["kept_from_s"] <= START_S + 120
        assert answer["gpus"] == {}

    def test_forgets_gpus_that_left_long_ago(self, tmp_path: Path) -> None:
        machine = Machine(store_in(tmp_path))
        for number in range(5):
            machine.cards = (Card(f"MIG-{number}"),)
            machine.work(5)
            machine.history(0, 5)
        machine.wall_s += 31 * 86_400
        machine.work(60)
        machine.store.close()

        with closing(sqlite3.connect(tmp_path / "state" / "store.sqlite3")) as database:
            assert database.execute("SELECT uuid FROM devices").fetchall() == [("MIG-4",)]

    def test_loses_little_by_a_clock_that_is_wrong_for_a_minute(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(database_module, "_PRUNED_AT_ONCE", 5)
        machine = Machine(store_in(tmp_path))
        for _ in range(30):
            machine.work(60)
            machine.history(0, 1)
        machine.store.close()
        again = Machine(store_in(tmp_path), Card("GPU-1", 1))
        again.begin(machine.wall_s + 10 * 365 * 86_400)
        again.work(1)
        again.history(0, 1)
        again.wall_s = machine.wall_s + 10
        again.work(1)

        busy = sums(again.history(0, 1860)["gpus"]["GPU-0"])["busy"]
        assert 1500 <= busy <= 1801

    def test_keeps_less_of_many_gpus(self) -> None:
        cards = [Card(f"GPU-{number}", number) for number in range(64)]
        machine = Machine(Store(None), *cards)
        machine.work(1)

        assert kept_for(16) == Kept()
        assert kept_for(64) == Kept(86_400 / 4, 30 * 86_400 / 4)
        assert len(machine.history(-1000, 1)["gpus"]["GPU-63"]["observed"]) <= 150

    def test_drops_the_oldest_minutes_before_it_is_too_large(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(database_module, "MAX_FILE_BYTES", 400_000)
        machine = Machine(store_in(tmp_path), *[Card(f"GPU-{n}", n) for n in range(16)])
        for _ in range(400):
            machine.work(1)
            machine.tick(59.0)
            assert machine.store.earlier(0.0) is None  # written
        machine.store.close()

        path = tmp_path / "state" / "store.sqlite3"
        assert path.stat().st_size <= 400_000
        again = Machine(store_in(tmp_path))
        again.begin(machine.wall_s + 10)
        again.work(1)
        assert again.history(0, 60)["kept_from_s"] > START_S + 60
