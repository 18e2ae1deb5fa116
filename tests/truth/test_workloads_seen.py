"""How workloads are seen: the driver's windows, the logger's rows, a CSV, and a person's look."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.truth.workloads import KINDS, Workload, as_csv, memory_used_mib, seen_all
from tests.truth.workloads.__main__ import main
from tests.truth.workloads.csv_log import power_watts
from tests.truth.workloads.in_brief import chance, gpu_busy, half_an_hour
from tests.truth.workloads.seeing import Driver
from tests.truth.workloads.spans import spans_of


class TestADriver:
    DRIVER = Driver(window_ms=500.0, phase_ms=100.0, delay_ms=50.0)

    def seen_at(self, *at_ms: float, busy: tuple[int, int]) -> list[int]:
        return [*map(int, self.DRIVER.percents(gpu_busy(busy), np.array(at_ms)))]

    def test_shows_the_share_of_the_newest_window_that_has_ended(self) -> None:
        # Windows are 600 to 1,100 ms, 1,100 to 1,600 ms, ...
        assert self.seen_at(1_149, 1_150, 1_650, 2_150, busy=(850, 1_225)) == [0, 50, 25, 0]

    def test_knows_nothing_of_the_time_before_the_workload(self) -> None:
        assert self.seen_at(0, 149, 150, busy=(0, 90)) == [0, 0, 18]

    @pytest.mark.parametrize("kind", ["worker_waves", "short_stalls", "inference_server"])
    def test_loses_no_busy_time(self, kind: str) -> None:
        made = half_an_hour(kind)

        for seed in range(3):
            (log,) = seen_all(made, 0.1, chance(seed))
            reported = float(log.percents.mean()) / 100.0

            assert reported == pytest.approx(made.gpus[0].busy_ms / made.duration_ms, abs=0.01)

    def test_has_windows_of_a_sixth_of_a_second_to_a_second(self) -> None:
        made = Workload("made", 0, 9_000, (gpu_busy((0, 9_000)),))
        lengths_ms = [seen_all(made, 1.0, chance(seed))[0].window_ms for seed in range(99)]

        assert 1_000 / 6 <= min(lengths_ms) < 250
        assert 900 < max(lengths_ms) <= 1_000


class TestABoard:
    def test_draws_what_it_does_when_it_works_rests_and_waits_for_its_peers(self) -> None:
        gpu = replace(gpu_busy((2_000, 9_000)), spins=spans_of([(5_000, 9_000)]))

        drawn_w = power_watts(gpu, np.array([1_000, 2_500, 4_000, 7_000, 10_000]))

        assert drawn_w.tolist() == [128.0, 409.0, 690.0, 250.0, 128.0]


class TestALogger:
    @pytest.mark.parametrize("period_s", [0.1, 1, 5, 15, 60])
    def test_writes_a_row_about_every_period_until_the_workload_ends(self, period_s: float) -> None:
        made = half_an_hour("worker_waves")
        (log,) = seen_all(made, period_s, chance())
        apart_s = np.diff(log.stamps_ns) / 1e9

        assert log.stamps_ns.dtype == np.int64
        assert log.percents.dtype == np.uint8
        assert log.stamps_ns[0] <= period_s * 1e9
        assert made.duration_ms * 1e6 - 5 * period_s * 1e9 < log.stamps_ns[-1]
        assert log.stamps_ns[-1] < made.duration_ms * 1e6
        assert period_s <= np.median(apart_s) <= 1.04 * period_s
        assert apart_s.min() >= 0.999 * period_s

    def test_is_late_at_times(self) -> None:
        (log,) = seen_all(half_an_hour("worker_waves"), 0.1, chance())
        is_late = np.diff(log.stamps_ns) > 0.125e9

        assert 0 < is_late.mean() < 0.01

    def test_reads_all_gpus_of_a_workload_some_milliseconds_apart(self) -> None:
        first, second = seen_all(half_an_hour("shared_loader"), 1.0, chance())
        apart_ns = second.stamps_ns - first.stamps_ns

        assert first.window_ms == second.window_ms
        assert apart_ns.min() > 0
        assert apart_ns.max() < 5e6

    def test_sees_the_same_with_the_same_chance(self) -> None:
        made = half_an_hour("worker_waves")
        one, other = (seen_all(made, 1.0, chance(7))[0] for _ in range(2))

        assert one.stamps_ns.tolist() == other.stamps_ns.tolist()
        assert one.percents.tolist() == other.percents.tolist()


class TestACsv:
    def test_looks_as_nvidia_smi_writes_it(self) -> None:
        made = half_an_hour("shared_loader")
        head, first, second, *_ = as_csv(made, 60.0, chance()).splitlines()

        assert head == "timestamp, index, utilization.gpu [%], memory.used [MiB], power.draw [W]"
        assert re.fullmatch(r"2026/03/02 09:0\d:\d\d\.\d{3}, 0, \d+ %, \d+ MiB, \d+\.\d\d W", first)
        assert re.fullmatch(
            r"2026/03/02 09:0\d:\d\d\.\d{3}, 1, \d+ %, \d+ MiB, \d+\.\d\d W", second
        )

    def test_has_the_rows_of_the_log(self) -> None:
        made = half_an_hour("rounds")
        (log,) = seen_all(made, 5.0, chance(3))
        rows = [row.split(", ") for row in as_csv(made, 5.0, chance(3)).splitlines()[1:]]

        assert [int(row[2].removesuffix(" %")) for row in rows] == log.percents.tolist()

    def test_holds_memory_while_a_process_lives(self) -> None:
        (gpu,) = half_an_hour("rounds").gpus
        began_ms = int(gpu.held[0, 0])

        before, after = memory_used_mib(gpu, np.array([began_ms - 1, began_ms])).tolist()

        assert after - before == gpu.memory_mib > 0


class TestTheCommand:
    def test_lists_the_kinds(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([]) == 0

        listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
        assert listed == [*KINDS]

    def test_shows_a_workload_and_its_log(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["shared_loader", "1", "--hours", "0.5", "--period", "1"]) == 0

        out = capsys.readouterr().out
        first = half_an_hour("shared_loader").gpus[0]
        assert f"starved {first.starved_ms / 1000:.1f} s" in out
        assert [out.count(f"  {lane} ") for lane in ("busy", "starved", "seen")] == [2, 2, 2]

    def test_prints_a_log_for_gpumon(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["rounds", "1", "--hours", "0.5", "--csv"]) == 0

        assert capsys.readouterr().out == as_csv(half_an_hour("rounds"), 1.0, chance(1))

    @pytest.mark.parametrize("words", [["no_such_kind"], ["rounds", "1", "--hours", "0"]])
    def test_refuses_what_there_is_not(self, words: list[str]) -> None:
        with pytest.raises(SystemExit) as refused:
            main(words)

        assert refused.value.code == 2
