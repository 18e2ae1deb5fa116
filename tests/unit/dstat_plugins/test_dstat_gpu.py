"""Specification of `dstat --gpu`: what each cell says, and in which colour."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.state import GpuState
from tests.builders.dstat import DASHES, Table, as_read, gpu, publish, state_of
from tests.builders.state import GIB


def cells_after(runtime: Path, *states: GpuState) -> list[str]:
    """The row after the last of these states of a GPU; there was one after each before it."""
    publish(runtime, states[0])
    table = Table()
    for state in states:
        publish(runtime, state)
        cells = table.cells()
    return cells


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
        ],
        ids=[
            "the first covers the time since the daemon started",
            "has dashes while nothing was observed yet",
            "later ones cover the reader's own interval",
            "repeats the last one where no counter moved",
            "starts again with a daemon that was restarted",
            "never says more than 100 for time that settled late",
        ],
    )
    def test_is_of_what_was_counted_meanwhile(
        self, runtime: Path, states: list[GpuState], cells: list[str]
    ) -> None:
        assert cells_after(runtime, *states) == cells

    def test_ceases_to_be_repeated_after_three_of_the_longest_waits_for_samples(self) -> None:
        table = Table()
        table.plugin.vars = ["0"]
        states = [as_read(state_of(BUSY)), *(as_read(state_of(LATER)) for _ in range(17))]
        shown = []
        for second, document in enumerate(states):  # nothing new of the GPU from the second one on
            answer = ({**document, "monotonic_ns": second * 1e9}, None)
            table.plugin._fresh_state = lambda answer=answer: answer
            shown.append(table.cells())

        assert shown[1:] == [["25", "50", "50"]] * 16 + [["-", "50", "-"]]

    def test_starts_again_also_where_the_new_daemon_has_counted_longer(self, runtime: Path) -> None:
        publish(runtime, gpu(observed_s=10, busy_s=10))
        table = Table()
        table.row()
        publish(runtime, gpu(observed_s=100, busy_s=55))
        path = runtime / "state.json"
        document = json.loads(path.read_bytes())
        path.write_text(json.dumps({**document, "pid": document["pid"] + 1}), encoding="ascii")

        assert table.cells() == ["55", "50", "0"]


class TestAPauseThatHasNotEnded:
    @pytest.mark.parametrize(
        ("states", "cells"),
        [
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
            "is shown while it lasts where the GPU keeps starving",
            "is not shown again when it has",
            "is not known where it may be the end of a job",
            "is shown for a minute",
            "is not known after that",
            "takes nothing from what is proved where it was that",
        ],
    )
    def test_is_shown_where_it_is_sure(
        self, runtime: Path, states: list[GpuState], cells: list[str]
    ) -> None:
        assert cells_after(runtime, *states) == cells


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


class TestTheLastCell:
    @pytest.mark.parametrize(
        ("state", "cell"),
        [
            (gpu(starved_s=0), "<green>  0 "),
            (gpu(starved_s=4), "<green>  4 "),
            (gpu(starved_s=5), "<yellow>  5 "),
            (gpu(starved_s=20), "<red> 20 "),
            (gpu(starved_s=19.6), "<red> 20 "),  # by the number that is shown
            (gpu(busy_s=100, starved_now=True), "<red>  0 "),  # though this row was not
            (gpu(starved_s=10, suspected_s=20), "<red> 30?"),
            (gpu(starved_s=20, suspected_s=20), "<red> 40 "),
            (gpu(starved_s=20, suspected_s=10), "<red> 30 "),
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
    def test_stands_for_a_gpu_also_one(self, runtime: Path, now: list[GpuState]) -> None:
        publish(runtime, gpu(0, busy_s=100), gpu(1, busy_s=100))
        table = Table()
        publish(runtime, *now)

        assert table.cells() == ["100", "50", "0", *DASHES]

    def test_gives_way_when_the_daemon_is_back(self, runtime: Path) -> None:
        table = Table()
        assert table.cells() == DASHES

        publish(runtime, gpu(busy_s=30))

        assert table.cells() == ["30", "0", "0"]
