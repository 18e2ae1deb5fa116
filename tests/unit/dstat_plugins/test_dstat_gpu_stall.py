"""Specification of `dstat --gpu-stall`: what was lost of each GPU's time, and mainly to what.

Where it looks, what it trusts and which GPUs it shows is as of `dstat --gpu`, which is the same
file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpumon.core.phase import CAUSES, OUT_OF_USE, IdleCause
from gpumon.core.state import GpuState
from tests.builders.dstat import DASHES, Table, gpu, publish, retell
from tests.builders.state import S

CHECKPOINT, STEP = IdleCause.CHECKPOINT, IdleCause.WITHIN_STEP
COLD = {"disk_bound": 30, "cpu_bound": 10}


def stall(**options: Any) -> Table:
    return Table("dstat_gpu_stall", **options)


def cells_after(runtime: Path, *states: GpuState) -> list[str]:
    """The row after the last of these states of a GPU; there was one after each before it."""
    publish(runtime, states[0])
    table = stall()
    for state in states:
        publish(runtime, state)
        cells = table.cells()
    return cells


def cells_of(runtime: Path, state: GpuState, fields: Mapping[str, Any]) -> list[str]:
    """The first row of a GPU with these fields in the state."""
    publish(runtime, state)
    retell(runtime, fields)
    return stall().cells()


BUSY = gpu(observed_s=100, busy_s=100)
WAITED = gpu(observed_s=104, busy_s=101, starved_s=2, idle_s={CHECKPOINT: 1})
PAUSES = gpu(observed_s=101, busy_s=100.4, pending_s=0.6)


class TestARow:
    @pytest.mark.parametrize(
        ("states", "cells"),
        [
            ([gpu(busy_s=40, starved_s=50, idle_s={CHECKPOINT: 10})], ["60", "50", "input"]),
            ([BUSY, WAITED], ["75", "50", "input"]),
            ([BUSY, WAITED, WAITED], ["75", "50", "input"]),
            ([BUSY, gpu(observed_s=10, busy_s=3, idle_s={STEP: 7})], ["70", "70", "step"]),
            ([BUSY, gpu(observed_s=101, busy_s=101)], ["0", "-", "-"]),
            ([gpu(busy_s=99.6, starved_s=0.4)], ["0", "-", "-"]),
            ([gpu(idle_s={IdleCause.NOT_IN_USE: 60, IdleCause.START_UP: 40})], ["0", "-", "-"]),
            ([gpu(observed_s=0)], ["-", "-", "-"]),
        ],
        ids=[
            "the first covers the time since the daemon started",
            "later ones cover the reader's own interval",
            "repeats the last one where no counter moved",
            "starts again with a daemon that was restarted",
            "names no cause where nothing was lost",
            "names no cause of what is shown as nothing",
            "counts nothing as lost where the GPU was unused",
            "has dashes while nothing was observed yet",
        ],
    )
    def test_is_of_what_was_counted_meanwhile(
        self, runtime: Path, states: list[GpuState], cells: list[str]
    ) -> None:
        assert cells_after(runtime, *states) == cells

    def test_in_total_adds_the_gpus_up_before_it_looks_for_the_main_cause(
        self, runtime: Path
    ) -> None:
        publish(
            runtime,
            gpu(0, busy_s=70, starved_s=30, waited_s={"gil_bound": 30}),
            gpu(1, busy_s=80, idle_s={CHECKPOINT: 20}),
            gpu(2, busy_s=80, idle_s={CHECKPOINT: 20}),
            gpu(3, present=False),
        )

        table = stall()
        assert table.cells() == ["23", "0", "checkpoint"]
        assert table.plugin.val["total"] == pytest.approx([70 / 3, 40 / 3, "checkpoint"], abs=1e-6)

    def test_of_a_gpu_that_goes_is_dashes_beside_the_others(self, runtime: Path) -> None:
        publish(runtime, gpu(0, starved_s=100), gpu(1, starved_s=100))
        table = stall()
        publish(runtime, gpu(0, starved_s=100))

        assert table.cells() == ["100", "100", "input", *DASHES]


class TestAPauseThatHasNotEnded:
    @pytest.mark.parametrize(
        ("states", "cells"),
        [
            ([BUSY, gpu(observed_s=101, busy_s=100.6, pending_s=0.4)], ["0", "-", "-"]),
            ([BUSY, PAUSES], ["-", "-", "pending"]),
            (
                [BUSY, PAUSES, gpu(observed_s=102, busy_s=101, idle_s={CHECKPOINT: 1})],
                ["40", "40", "checkpoint"],
            ),
        ],
        ids=[
            "is not lost",
            "leaves a row without an answer that it mostly fills",
            "is shown as far as it passed in the row in which it ends",
        ],
    )
    def test(self, runtime: Path, states: list[GpuState], cells: list[str]) -> None:
        assert cells_after(runtime, *states) == cells


class TestTheCause:
    @pytest.mark.parametrize("cause", sorted(set(CAUSES) - set(OUT_OF_USE)))
    def test_is_a_word_of_its_own_that_fits(self, runtime: Path, cause: IdleCause) -> None:
        publish(runtime, gpu(idle_s={cause: 99}))
        row = stall().row()

        word = row.rpartition("<text>")[2]
        assert len(word) == len("          ")
        assert word.strip() not in ("-", "other")
        assert word.strip()[:4] in cause.value or cause is IdleCause.HOST_TO_DEVICE

    def test_is_only_suspected_where_no_tag_proves_it(self, runtime: Path) -> None:
        assert cells_after(runtime, gpu(busy_s=40, suspected_s=40)) == ["60", "40", "input?"]
        assert cells_after(runtime, gpu(busy_s=40, suspected_s=20)) == ["60", "40", "unknown"]

    def test_of_a_newer_daemon_is_lost_without_its_name(self, runtime: Path) -> None:
        idle_ns = {"gone \x1b[31m fishing": 30 * S, "checkpoint": 20 * S}

        cells = cells_of(runtime, gpu(busy_s=50), {"idle_ns": idle_ns})

        assert cells == ["50", "30", "other"]


class TestTheReason:
    @pytest.mark.parametrize(
        ("waited_s", "cause"),
        [
            (COLD, "input/disk"),
            ({"cpu_bound": 40}, "input/cpu"),
            ({"gil_bound": 40}, "input/gil"),
            ({"network_bound": 40}, "input/net"),
            ({"memory_pressure": 40}, "input/mem"),
            ({"latency_bound": 40}, "input/lat"),
            ({"disk_bound": 10, "unknown": 30}, "input"),
            ({"gone_fishing": 40}, "input"),
            ({"disk_bound": 0, "unknown": 0}, "input"),
        ],
    )
    def test_is_the_main_one_of_a_wait_for_input(
        self, runtime: Path, waited_s: dict[str, float], cause: str
    ) -> None:
        state = gpu(busy_s=60, starved_s=40, waited_s=waited_s)

        assert cells_after(runtime, state) == ["40", "40", cause]

    def test_is_that_of_the_row_and_not_of_all_time(self, runtime: Path) -> None:
        before = gpu(observed_s=100, busy_s=60, starved_s=40, waited_s=COLD)
        after = gpu(
            observed_s=110, busy_s=65, starved_s=45, waited_s={**COLD, "cpu_bound": 15}
        )  # fmt: skip

        assert cells_after(runtime, before, after) == ["50", "50", "input/cpu"]

    @pytest.mark.parametrize(
        ("in_step_s", "cause"),
        [
            ({"gil_bound": 25, "unknown": 15}, "step/gil"),
            ({"gil_bound": 15, "unknown": 25}, "step"),
        ],
    )
    def test_is_that_of_time_lost_within_the_step(
        self, runtime: Path, in_step_s: dict[str, float], cause: str
    ) -> None:
        state = gpu(busy_s=60, idle_s={STEP: 40}, in_step_s=in_step_s)

        assert cells_after(runtime, state) == ["40", "40", cause]

    def test_is_not_reported_by_an_older_daemon(self, runtime: Path) -> None:
        fields = dict.fromkeys(("input_wait_by_reason_ns", "within_step_by_reason_ns"), ...)

        cells = cells_of(runtime, gpu(busy_s=60, idle_s={STEP: 40}), fields)

        assert cells == ["40", "40", "step"]

    def test_is_of_no_other_cause(self, runtime: Path) -> None:
        state = gpu(busy_s=50, starved_s=20, waited_s=COLD, idle_s={CHECKPOINT: 30})

        assert cells_after(runtime, state) == ["50", "30", "checkpoint"]


class TestAStateThatLacksSomething:
    @pytest.mark.parametrize(
        ("fields", "cells"),
        [
            ({"idle_ns": ...}, DASHES),
            ({"idle_ns": None}, DASHES),
            ({"idle_ns": {"input_wait": -1}}, DASHES),
            ({"idle_ns": {"input_wait": "long"}}, DASHES),
            ({"pending_ns": ...}, DASHES),
            ({"input_wait_by_reason_ns": ...}, ["40", "40", "input"]),
            ({"input_wait_by_reason_ns": []}, ["40", "40", "input"]),
            ({"input_wait_by_reason_ns": {"disk_bound": None}}, ["40", "40", "input"]),
        ],
    )
    def test_says_no_more_than_is_known(
        self, runtime: Path, fields: dict[str, Any], cells: list[str]
    ) -> None:
        state = gpu(busy_s=60, starved_s=40, waited_s=COLD)

        assert cells_of(runtime, state, fields) == cells

    def test_of_one_gpu_leaves_the_others_their_rows(self, runtime: Path) -> None:
        publish(runtime, gpu(0, starved_s=100), gpu(1, busy_s=70, starved_s=30))
        retell(runtime, {"idle_ns": ...})

        assert stall().cells() == [*DASHES, "30", "30", "input"]

    def test_is_shown_as_no_answer_in_the_colour_of_an_error(self, runtime: Path) -> None:
        publish(runtime, gpu(starved_s=100), age_s=3.5)

        assert stall().row() == "<error>   - <error>   - <error>-         "

    def test_is_reported_once_with_the_name_of_the_option(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        stall()

        assert "--gpu-stall " in capsys.readouterr().err


class TestTheColumns:
    def test_paint_what_is_lost_by_the_number_that_is_shown(self, runtime: Path) -> None:
        publish(runtime, gpu(0, starved_s=19.6, busy_s=80.4), gpu(1, starved_s=5, busy_s=95))

        assert stall().row() == (
            "<red>  20 <text>  20 <text>input     :<yellow>   5 <text>   5 <text>input     "
        )

    def test_stay_where_they_are_whatever_they_say(self, runtime: Path) -> None:
        table = stall()
        widths = {len(re.sub("<[^>]*>", "", table.row()))}
        for state in (BUSY, PAUSES, gpu(starved_s=100, waited_s=COLD), gpu(present=False)):
            publish(runtime, state)
            widths.add(len(re.sub("<[^>]*>", "", table.row())))

        assert widths == {table.plugin.statwidth()} == {20}

    def test_give_up_the_share_of_the_main_cause_on_a_narrow_terminal(self, runtime: Path) -> None:
        publish(runtime, gpu(starved_s=30, busy_s=70))
        table = stall()
        assert table.plugin.statwidth() == 20
        assert table.plugin.subtitle().split() == ["lost", "main", "cause"]

        table.scope.update(cols=20, totlist=[table.plugin])

        assert table.plugin.statwidth() == 15
        assert table.plugin.subtitle().split() == ["lost", "cause"]
        assert table.cells() == ["30", "input"]

    def test_stand_beside_those_of_the_other_option(self, runtime: Path) -> None:
        publish(runtime, gpu(0, starved_s=30, busy_s=70))
        table = stall()
        use = SimpleNamespace(statwidth=lambda: 12)
        table.scope.update(cols=12 + 1 + 20 + 1, totlist=[use, table.plugin])

        assert table.plugin.statwidth() == 20

    @pytest.mark.parametrize("name", ["dstat_gpu_stall", "/home/a/.dool/dool_gpu_stall.py"])
    def test_are_chosen_by_what_the_host_calls_the_file(self, runtime: Path, name: str) -> None:
        publish(runtime, gpu())

        assert Table(name).plugin.nick == ("lost", "main", "cause")
        assert Table(name.replace("_stall", "")).plugin.nick == ("use", "mem", "strv")

    def test_are_of_the_gpus_that_the_user_names(
        self, runtime: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        publish(runtime, gpu(0), gpu(1))
        monkeypatch.setenv("DSTAT_GPU", "1,7")

        assert stall().plugin.name == ["gpu1"]
        assert "no GPU is called 7" in capsys.readouterr().err

    def test_are_words_and_empty_cells_in_a_file(self, runtime: Path) -> None:
        publish(
            runtime, gpu(0, busy_s=68.75, starved_s=31.25, waited_s=COLD), gpu(1, present=False)
        )
        table = stall()
        table.plugin.extract()

        assert table.plugin.showcsv() == "31.250,31.250,input/disk,,,"
