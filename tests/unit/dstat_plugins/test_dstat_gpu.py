"""`dstat --gpu` and `--gpu-stall`: the text and colour of each cell."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.phase import CAUSES, OUT_OF_USE, IdleCause
from gpumon.core.state import GpuState
from tests.builders.dstat import DASHES, Table, alter_state, as_read, gpu, publish, state_of
from tests.builders.state import GIB, S

CHECKPOINT, STEP = IdleCause.CHECKPOINT, IdleCause.WITHIN_STEP
COLD = {"disk_bound": 30, "cpu_bound": 10}


def cells_after(runtime: Path, *states: GpuState, option: str = "dstat_gpu") -> list[str]:
    """The row after the last of these states of a GPU; there was one after each before it."""
    publish(runtime, states[0])
    table = Table(option)
    for state in states:
        publish(runtime, state)
        cells = table.cells()
    return cells


def stall_after(runtime: Path, *states: GpuState) -> list[str]:
    return cells_after(runtime, *states, option="dstat_gpu_stall")


def stall_cells(runtime: Path, state: GpuState, fields: Mapping[str, Any]) -> list[str]:
    """The first row of a GPU with these fields in the state."""
    publish(runtime, state)
    alter_state(runtime, fields)
    return Table("dstat_gpu_stall").cells()


BUSY = gpu(observed_s=100, busy_s=100)
LATER = gpu(observed_s=104, busy_s=101, starved_s=2)
STARVES = gpu(observed_s=100, busy_s=50, suspected_s=50, starved_now=True)
PAUSES = gpu(observed_s=101, busy_s=50, suspected_s=50, pending_s=1, starved_now=True)
LASTS, LASTS_LONGER = (
    gpu(observed_s=100 + s, busy_s=50, suspected_s=50, pending_s=s, starved_now=True)
    for s in (60, 61)
)


class TestARow:
    @pytest.mark.parametrize(
        ("states", "cells"),
        [
            ([gpu(observed_s=200, busy_s=80, starved_s=100)], ["40", "50", "50"]),
            ([gpu(observed_s=0)], ["-", "50", "-"]),
            ([BUSY, LATER], ["25", "50", "50"]),
            ([BUSY, LATER, LATER], ["25", "50", "50"]),
            ([BUSY, gpu(observed_s=10, busy_s=3)], ["30", "50", "0"]),
            ([STARVES, gpu(observed_s=101, busy_s=50, suspected_s=53)], ["0", "50", "100?"]),
            ([STARVES, PAUSES], ["0", "50", "100?"]),
            (
                [STARVES, PAUSES, gpu(observed_s=102, busy_s=51, suspected_s=51, starved_now=True)],
                ["100", "50", "0"],
            ),
            ([BUSY, gpu(observed_s=101, busy_s=100, pending_s=1)], ["0", "50", "-"]),
            ([STARVES, LASTS], ["0", "50", "100?"]),
            ([STARVES, LASTS, LASTS_LONGER], ["0", "50", "-"]),
            (
                [
                    gpu(observed_s=100, busy_s=60, pending_s=40, starved_now=True),
                    gpu(observed_s=110, busy_s=60, starved_s=5, starved_now=True),
                ],
                ["0", "50", "50"],
            ),
        ],
        ids=[
            "the first covers the time since the daemon started",
            "has dashes while nothing was observed yet",
            "later ones cover the reader's own interval",
            "repeats the last one where no counter moved",
            "starts again with a daemon that was restarted",
            "never shows more than 100 for time that settled late",
            "shows an open pause while the GPU keeps starving",
            "does not show a pause again when it has ended",
            "has a dash for a pause that may be the end of a job",
            "shows an open pause for a minute",
            "has a dash for an open pause after that",
            "takes nothing from what is proved for a pause",
        ],
    )
    def test_is_of_what_was_counted_meanwhile(
        self, runtime: Path, states: list[GpuState], cells: list[str]
    ) -> None:
        assert cells_after(runtime, *states) == cells

    @pytest.mark.parametrize(
        ("fields", "period_s", "repeated"),
        [
            ({}, 1, 10),
            ({"settled_until_ns": ...}, 1, 10),
            ({"settled_until_ns": None, "last_sample_ns": None}, 1, 18),
            ({"settled_until_ns": ..., "last_sample_ns": ...}, 1, 18),
            ({}, 5, 15),
        ],
        ids=["that is known", "of an older daemon", "before any sample", "that is not known",
             "in three long periods"],
    )  # fmt: skip
    def test_is_repeated_for_ten_seconds_after_the_newest_time(
        self, fields: dict[str, Any], period_s: int, repeated: int
    ) -> None:
        table = Table()
        table.plugin.vars = ["0"]
        shown = []
        for second in range(20):  # nothing new of the GPU from the second one on
            document = as_read(state_of(LATER if second else BUSY, period_ns=period_s * S))
            settled_ns = min(second, 1) * 1e9
            stated = {"settled_until_ns": settled_ns, "last_sample_ns": settled_ns, **fields}
            known = {**document["gpus"]["0"], **stated}
            known = {name: value for name, value in known.items() if value is not ...}
            answer = ({**document, "gpus": {"0": known}, "monotonic_ns": second * 1e9}, None)
            table.plugin._fresh_state = lambda answer=answer: answer
            shown.append(table.cells())

        at_last = [["-", "50", "-"]] * (18 - repeated)
        assert shown[1:] == [["25", "50", "50"]] * (repeated + 1) + at_last

    def test_starts_again_also_where_the_new_daemon_has_counted_longer(self, runtime: Path) -> None:
        publish(runtime, gpu(observed_s=10, busy_s=10))
        table = Table()
        table.row()
        publish(runtime, gpu(observed_s=100, busy_s=55))
        path = runtime / "state.json"
        document = json.loads(path.read_bytes())
        path.write_text(json.dumps({**document, "pid": document["pid"] + 1}), encoding="ascii")

        assert table.cells() == ["55", "50", "0"]

    def test_in_the_making_is_darker_and_begins_where_the_last_finished_one_ended(
        self, runtime: Path
    ) -> None:
        publish(runtime, gpu(observed_s=100))
        table = Table(delay=3)
        table.row()
        for step, cells in ((1, ["100", "50", "0"]), (2, ["50", "50", "0"])):
            table.scope["step"] = step
            publish(runtime, gpu(observed_s=100 + step, busy_s=1))
            assert table.cells() == cells

        assert table.row() == "<dim text> 50 <dim text> 50 <dim green>  0 "


class TestTheStarvedCell:
    @pytest.mark.parametrize(
        ("state", "cell"),
        [
            (gpu(starved_s=4), "<green>  4 "),
            (gpu(starved_s=5), "<yellow>  5 "),
            (gpu(starved_s=19.6), "<red> 20 "),  # by the number that is shown
            (gpu(busy_s=100, starved_now=True), "<red>  0 "),  # though this row was not
            (gpu(starved_s=10, suspected_s=20), "<red> 30?"),
            (gpu(starved_s=20, suspected_s=20), "<red> 40 "),
        ],
    )
    def test_has_the_colour_of_what_is_lost_and_a_mark_where_most_is_suspected(
        self, runtime: Path, state: GpuState, cell: str
    ) -> None:
        publish(runtime, state)

        assert Table().row().endswith(cell)


class TestADash:
    @pytest.mark.parametrize(
        ("memory", "state", "row"),
        [
            (None, {}, "<text>100 <text>  - <green>  0 "),
            (GIB, {"age_s": 3.5}, "<error>  - <error>  - <error>  - "),
            (GIB, {"boot_id": "another"}, "<error>  - <error>  - <error>  - "),
            (60 * GIB, {"age_s": 10, "period_ns": 5 * 10**9}, "<text>100 <text> 50 <green>  0 "),
        ],
        ids=["unknown memory", "a state over three seconds old",
             "one of before the last boot", "no state of a slow daemon for three periods"],
    )  # fmt: skip
    def test_stands_for(
        self, runtime: Path, memory: int | None, state: dict[str, Any], row: str
    ) -> None:
        publish(runtime, gpu(busy_s=100, memory_used_bytes=memory), **state)

        assert Table().row() == row

    @pytest.mark.parametrize(
        "now", [[gpu(0, busy_s=100), gpu(1, busy_s=100, present=False)], [gpu(0, busy_s=100)]],
        ids=["that fell off the bus", "that the daemon no longer reports"],
    )  # fmt: skip
    def test_stands_for_a_gpu(self, runtime: Path, now: list[GpuState]) -> None:
        publish(runtime, gpu(0, busy_s=100), gpu(1, busy_s=100))
        table = Table()
        publish(runtime, *now)

        assert table.cells() == ["100", "50", "0", *DASHES]


class TestTheLostShare:
    @pytest.mark.parametrize(
        ("states", "cells"),
        [
            ([gpu(busy_s=40, starved_s=50, idle_s={CHECKPOINT: 10})], ["60", "50", "input"]),
            ([BUSY, gpu(observed_s=101, busy_s=101)], ["0", "-", "-"]),
            ([gpu(busy_s=99.6, starved_s=0.4)], ["0", "-", "-"]),
            ([gpu(idle_s={IdleCause.NOT_IN_USE: 60, IdleCause.START_UP: 40})], ["0", "-", "-"]),
            ([gpu(observed_s=0)], ["-", "-", "-"]),
            ([BUSY, gpu(observed_s=101, busy_s=100.6, pending_s=0.4)], ["0", "-", "-"]),
            ([BUSY, gpu(observed_s=101, busy_s=100.4, pending_s=0.6)], ["-", "-", "pending"]),
            (
                [
                    BUSY,
                    gpu(observed_s=101, busy_s=100.4, pending_s=0.6),
                    gpu(observed_s=102, busy_s=101, idle_s={CHECKPOINT: 1}),
                ],
                ["40", "40", "checkpoint"],
            ),
        ],
        ids=[
            "is that of the row with the main cause",
            "has no cause where nothing was lost",
            "has no cause of what is shown as nothing",
            "has nothing of an unused GPU",
            "is not known while nothing was observed yet",
            "has nothing of a short open pause",
            "is pending where an open pause fills most of the row",
            "has what passed of a pause in the row in which it ends",
        ],
    )
    def test(self, runtime: Path, states: list[GpuState], cells: list[str]) -> None:
        assert stall_after(runtime, *states) == cells

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

        table = Table("dstat_gpu_stall")
        assert table.cells() == ["23", "0", "checkpoint"]
        assert table.plugin.val["total"] == pytest.approx([70 / 3, 40 / 3, "checkpoint"], abs=1e-6)

    def test_has_the_colour_of_the_number_that_is_shown(self, runtime: Path) -> None:
        publish(runtime, gpu(0, starved_s=19.6, busy_s=80.4), gpu(1, starved_s=5, busy_s=95))

        assert Table("dstat_gpu_stall").row() == (
            "<red>  20 <text>  20 <text>input     :<yellow>   5 <text>   5 <text>input     "
        )


class TestTheCause:
    @pytest.mark.parametrize("cause", sorted(set(CAUSES) - set(OUT_OF_USE)))
    def test_has_a_name_of_its_own_that_fits(self, runtime: Path, cause: IdleCause) -> None:
        publish(runtime, gpu(idle_s={cause: 99}))
        name = Table("dstat_gpu_stall").row().rpartition("<text>")[2]

        assert len(name) == len("          ")
        assert name.strip() not in ("-", "other")
        assert name.strip()[:4] in cause.value or cause is IdleCause.HOST_TO_DEVICE

    @pytest.mark.parametrize(
        ("state", "cells"),
        [
            (gpu(busy_s=40, suspected_s=40), ["60", "40", "input?"]),
            (gpu(busy_s=40, suspected_s=20), ["60", "40", "unknown"]),
            *(
                (gpu(busy_s=60, starved_s=40, waited_s=waited_s), ["40", "40", cause])
                for waited_s, cause in (
                    (COLD, "input/disk"),
                    ({"cpu_bound": 40}, "input/cpu"),
                    ({"gil_bound": 40}, "input/gil"),
                    ({"network_bound": 40}, "input/net"),
                    ({"memory_pressure": 40}, "input/mem"),
                    ({"latency_bound": 40}, "input/lat"),
                    ({"disk_bound": 10, "unknown": 30}, "input"),
                    ({"of a newer daemon": 40}, "input"),
                    ({"disk_bound": 0, "unknown": 0}, "input"),
                )
            ),
            *(
                (gpu(busy_s=60, idle_s={STEP: 40}, in_step_s=in_step_s), ["40", "40", cause])
                for in_step_s, cause in (
                    ({"gil_bound": 25, "unknown": 15}, "step/gil"),
                    ({"gil_bound": 15, "unknown": 25}, "step"),
                )
            ),
            (
                gpu(busy_s=50, starved_s=20, waited_s=COLD, idle_s={CHECKPOINT: 30}),
                ["50", "30", "checkpoint"],
            ),
        ],
    )
    def test_has_the_main_reason_of_that_cause(
        self, runtime: Path, state: GpuState, cells: list[str]
    ) -> None:
        assert stall_after(runtime, state) == cells

    def test_has_the_reason_of_the_row_and_not_of_all_time(self, runtime: Path) -> None:
        before = gpu(observed_s=100, busy_s=60, starved_s=40, waited_s=COLD)
        after = gpu(observed_s=110, busy_s=65, starved_s=45, waited_s={**COLD, "cpu_bound": 15})

        assert stall_after(runtime, before, after) == ["50", "50", "input/cpu"]

    def test_of_a_newer_daemon_is_lost_without_its_name(self, runtime: Path) -> None:
        idle_ns = {"gone \x1b[31m fishing": 30 * S, "checkpoint": 20 * S}

        cells = stall_cells(runtime, gpu(busy_s=50), {"idle_ns": idle_ns})

        assert cells == ["50", "30", "other"]

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
    def test_is_no_more_than_a_damaged_or_older_state_has(
        self, runtime: Path, fields: dict[str, Any], cells: list[str]
    ) -> None:
        state = gpu(busy_s=60, starved_s=40, waited_s=COLD)

        assert stall_cells(runtime, state, fields) == cells
