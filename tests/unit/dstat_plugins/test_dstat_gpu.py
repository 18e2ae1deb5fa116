"""Specification of `dstat --gpu`: what each cell says, and in which colour."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bare_dstat import DASHES, Table
from tests.builders_dstat import gpu, publish


class TestTheFirstRow:
    def test_covers_the_time_since_the_daemon_started(self, runtime: Path) -> None:
        publish(runtime, gpu(observed_s=200, busy_s=80, starved_s=100))

        assert Table().cells() == ["40", "50", "50"]

    def test_has_dashes_while_nothing_was_observed_yet(self, runtime: Path) -> None:
        publish(runtime, gpu(observed_s=0))

        assert Table().cells() == ["-", "50", "-"]


class TestEachLaterRow:
    def test_covers_the_readers_own_interval(self, runtime: Path) -> None:
        publish(runtime, gpu(observed_s=100, busy_s=100))
        table = Table()
        table.row()
        publish(runtime, gpu(observed_s=104, busy_s=101, starved_s=2))

        assert table.cells() == ["25", "50", "50"]

    def test_repeats_the_last_one_where_no_counter_moved(self, runtime: Path) -> None:
        publish(runtime, gpu(observed_s=100, busy_s=100))
        table = Table()
        table.row()
        publish(runtime, gpu(observed_s=104, busy_s=101, starved_s=2))
        table.row()

        assert table.cells() == ["25", "50", "50"]

    def test_ceases_to_repeat_it_after_three_seconds_without_an_observation(
        self, runtime: Path
    ) -> None:
        publish(runtime, gpu(observed_s=100, busy_s=100), age_s=2.5)
        table = Table()
        table.row()
        shown = []
        for age_s in (1.5, 0.0, -1.0, -2.0):  # the daemon ticks on, the GPU tells it nothing
            publish(runtime, gpu(observed_s=104, busy_s=101, starved_s=2), age_s=age_s)
            shown.append(table.cells())

        assert shown == [["25", "50", "50"]] * 3 + [["-", "50", "-"]]

        publish(runtime, gpu(observed_s=105, busy_s=102, starved_s=2), age_s=-2.5)
        assert table.cells() == ["100", "50", "0"]

    def test_starts_again_with_a_daemon_that_was_restarted(self, runtime: Path) -> None:
        publish(runtime, gpu(observed_s=100, busy_s=100))
        table = Table()
        table.row()
        publish(runtime, gpu(observed_s=10, busy_s=3))

        assert table.cells() == ["30", "50", "0"]

    def test_starts_again_also_where_the_new_daemon_has_counted_longer(self, runtime: Path) -> None:
        publish(runtime, gpu(observed_s=10, busy_s=10))
        table = Table()
        table.row()
        publish(runtime, gpu(observed_s=100, busy_s=55))
        change_pid(runtime)

        assert table.cells() == ["55", "50", "0"]

    def test_never_says_more_than_100_for_time_that_settled_late(self, runtime: Path) -> None:
        publish(runtime, gpu(observed_s=100, busy_s=50))
        table = Table()
        table.row()
        publish(runtime, gpu(observed_s=101, busy_s=50, suspected_s=3))

        assert table.cells() == ["0", "50", "100?"]


class TestAPauseThatHasNotEnded:
    def test_is_shown_while_it_lasts_where_the_gpu_keeps_starving(self, runtime: Path) -> None:
        publish(runtime, gpu(observed_s=100, busy_s=50, suspected_s=50, starved_now=True))
        table = Table()
        table.row()
        publish(
            runtime,
            gpu(observed_s=101, busy_s=50, suspected_s=50, pending_s=1, starved_now=True),
        )
        assert table.cells() == ["0", "50", "100?"]

        publish(runtime, gpu(observed_s=102, busy_s=51, suspected_s=51, starved_now=True))

        assert table.cells() == ["100", "50", "0"]

    def test_is_not_taken_for_starvation_where_it_may_be_the_end_of_a_job(
        self, runtime: Path
    ) -> None:
        publish(runtime, gpu(observed_s=100, busy_s=100))
        table = Table()
        table.row()
        publish(runtime, gpu(observed_s=101, busy_s=100, pending_s=1))

        assert table.cells() == ["0", "50", "0"]

    def test_that_was_the_end_of_a_job_takes_nothing_from_what_is_proved(
        self, runtime: Path
    ) -> None:
        publish(runtime, gpu(observed_s=100, busy_s=60, pending_s=40, starved_now=True))
        table = Table()
        table.row()
        publish(runtime, gpu(observed_s=110, busy_s=60, starved_s=5, starved_now=True))

        assert table.cells() == ["0", "50", "50"]


class TestARowInTheMaking:
    def test_begins_where_the_last_finished_one_ended(self, runtime: Path) -> None:
        publish(runtime, gpu(observed_s=100))
        table = Table(delay=3)
        table.row()
        table.scope["step"] = 1
        publish(runtime, gpu(observed_s=101, busy_s=1))
        assert table.cells() == ["100", "50", "0"]

        table.scope["step"] = 2
        publish(runtime, gpu(observed_s=102, busy_s=1))

        assert table.cells() == ["50", "50", "0"]

    def test_is_shown_darker(self, runtime: Path) -> None:
        publish(runtime, gpu(busy_s=60, starved_s=40))
        table = Table(delay=3)
        table.scope["step"] = 1

        assert table.row() == "<dim text> 60 <dim text> 50 <dim red> 40 "


def change_pid(runtime: Path) -> None:
    """Let the state come from another process."""
    path = runtime / "state.json"
    document = json.loads(path.read_bytes())
    path.write_text(json.dumps({**document, "pid": document["pid"] + 1}), encoding="ascii")


class TestColours:
    @pytest.mark.parametrize(
        ("starved_s", "color"), [(0, "green"), (4, "green"), (5, "yellow"), (20, "red")]
    )
    def test_tell_how_much_is_lost(self, runtime: Path, starved_s: float, color: str) -> None:
        publish(runtime, gpu(starved_s=starved_s))

        assert Table().row() == f"<text>  0 <text> 50 <{color}>{starved_s:>3} "

    def test_are_red_while_the_daemon_says_starved_though_this_row_was_not(
        self, runtime: Path
    ) -> None:
        publish(runtime, gpu(busy_s=100, starved_now=True))

        assert Table().row() == "<text>100 <text> 50 <red>  0 "

    def test_follow_the_number_that_is_shown(self, runtime: Path) -> None:
        publish(runtime, gpu(starved_s=19.6))

        assert Table().row().endswith("<red> 20 ")


class TestTheQuestionMark:
    def test_says_that_most_of_it_is_only_suspected(self, runtime: Path) -> None:
        publish(runtime, gpu(starved_s=10, suspected_s=20))

        assert Table().cells()[2] == "30?"

    @pytest.mark.parametrize("suspected_s", [0, 10, 20])
    def test_is_left_out_where_at_least_half_is_proved(
        self, runtime: Path, suspected_s: float
    ) -> None:
        publish(runtime, gpu(starved_s=20, suspected_s=suspected_s))

        assert Table().cells()[2] == f"{20 + suspected_s}"


class TestADash:
    def test_stands_for_memory_that_the_gpu_does_not_tell(self, runtime: Path) -> None:
        publish(runtime, gpu(busy_s=100, memory_used_bytes=None))

        assert Table().row() == "<text>100 <text>  - <green>  0 "

    def test_stands_for_a_gpu_that_fell_off_the_bus(self, runtime: Path) -> None:
        publish(runtime, gpu(0, busy_s=100), gpu(1, busy_s=100))
        table = Table()
        table.row()
        publish(runtime, gpu(0, busy_s=100), gpu(1, busy_s=100, present=False))

        assert table.cells() == ["100", "50", "0", *DASHES]

    def test_stands_for_a_gpu_of_which_the_daemon_says_no_more(self, runtime: Path) -> None:
        publish(runtime, gpu(0, busy_s=100), gpu(1, busy_s=100))
        table = Table()
        publish(runtime, gpu(0, busy_s=100))

        assert table.cells() == ["100", "50", "0", *DASHES]

    def test_is_white_on_red_once_the_state_is_over_three_seconds_old(self, runtime: Path) -> None:
        publish(runtime, gpu(busy_s=100), age_s=3.5)

        assert Table().row() == "<error>  - <error>  - <error>  - "

    def test_waits_three_periods_of_a_slow_daemon(self, runtime: Path) -> None:
        publish(runtime, gpu(busy_s=100), age_s=10, period_ns=5 * 10**9)

        assert Table().cells() == ["100", "50", "0"]

    def test_stands_for_what_was_left_before_the_last_boot(self, runtime: Path) -> None:
        publish(runtime, gpu(busy_s=100), boot_id="another")

        assert Table().cells() == DASHES

    def test_gives_way_when_the_daemon_is_back(self, runtime: Path) -> None:
        table = Table()
        assert table.cells() == DASHES

        publish(runtime, gpu(busy_s=30))

        assert table.cells() == ["30", "50", "0"]
