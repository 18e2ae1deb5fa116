"""Specification of `dstat --gpu`: which columns there are, on screen and in a file."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpumon.core.phase import IdleCause
from tests.builders.dstat import Table, gpu, publish
from tests.builders.state import GIB


class TestTheGroups:
    @pytest.mark.parametrize(
        ("gpus", "is_full", "names"),
        [
            (2, False, ["gpu0", "gpu1"]),
            (3, False, ["gpu-tot"]),
            (3, True, ["gpu0", "gpu1", "gpu2"]),
        ],
        ids=["one for each of two", "one in total for more", "all with -f"],
    )
    def test_are_of_the_gpus_that_there_are(
        self, runtime: Path, gpus: int, is_full: bool, names: list[str]
    ) -> None:
        publish(runtime, *map(gpu, range(gpus)))

        assert Table(full=is_full).plugin.name == names

    @pytest.mark.parametrize(
        ("made_up", "name"),
        [
            ({"simulated": True}, "gpu0-sim"),
            ({"replayed": True}, "gpu0-rec"),
            ({"simulated": True, "replayed": True}, "gpu0-rec"),
        ],
    )
    def test_say_in_their_titles_that_gpus_are_made_up(
        self, runtime: Path, made_up: dict[str, bool], name: str
    ) -> None:
        publish(runtime, gpu(0), **made_up)

        assert Table().plugin.name == [name]

    def test_in_total_weigh_each_gpu_by_its_observed_time(self, runtime: Path) -> None:
        publish(
            runtime,
            gpu(0, observed_s=300, busy_s=300, memory_used_bytes=120 * GIB),
            gpu(1, observed_s=100, suspected_s=100, memory_used_bytes=None),
            gpu(2, present=False),
        )

        table = Table()
        assert table.cells() == ["75", "1", "25?"]
        assert table.plugin.val["total"] == [75, 100, 25]


class TestWithoutADaemon:
    def test_there_is_a_total_and_it_fills_when_one_starts(self, runtime: Path) -> None:
        table = Table()
        assert table.plugin.name == ["gpu-tot"]

        publish(runtime, *(gpu(index, busy_s=25) for index in range(4)))

        assert table.cells() == ["25", "0", "0"]

    def test_gpus_that_the_user_names_are_taken_at_their_word(
        self, runtime: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DSTAT_GPU", "1")
        table = Table()
        publish(runtime, gpu(0, busy_s=10), gpu(1, busy_s=90))

        assert table.cells() == ["90", "50", "0"]


class TestANarrowTerminal:
    def test_costs_the_memory_column_rather_than_all(self, runtime: Path) -> None:
        publish(runtime, gpu(0, busy_s=100), gpu(1))
        table = Table()
        assert table.plugin.statwidth() == 25

        table.scope.update(cols=24, totlist=[table.plugin])

        assert table.plugin.statwidth() == 17
        assert table.plugin.subtitle() == "use strv:use strv"
        assert table.cells() == ["100", "0", "0", "0"]

    def test_is_shared_with_the_columns_before_it(self, runtime: Path) -> None:
        publish(runtime, gpu(0), gpu(1))
        table = Table()
        before, after = SimpleNamespace(statwidth=lambda: 54), SimpleNamespace()
        table.scope["totlist"] = [before, table.plugin, after]

        table.scope["cols"] = 54 + 1 + 25 + 1
        assert table.plugin.statwidth() == 25

        table.scope["cols"] -= 1
        assert table.plugin.statwidth() == 17

    def test_that_grows_again_gets_a_new_header(self, runtime: Path) -> None:
        publish(runtime, gpu(0))
        table = Table()
        table.scope.update(cols=10, totlist=[table.plugin], showheader=False)
        table.plugin.statwidth()
        assert table.scope["showheader"]

        table.scope.update(cols=80, showheader=False)
        table.plugin.statwidth()

        assert table.scope["showheader"]
        assert table.plugin.subtitle().split() == ["use", "mem", "strv"]

    def test_that_fits_none_of_them_is_reported_once_how_to_choose(
        self, runtime: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        publish(runtime, gpu(0), gpu(1))
        use, stall = Table("dstat_gpu"), Table("dstat_gpu_stall")
        others = [SimpleNamespace(statwidth=lambda: 43), use.plugin, stall.plugin]
        for table in (use, stall):
            table.scope.update(totlist=others, cols=80, loop=0)
        for _ in range(2):
            assert use.plugin.statwidth() == 25
            assert stall.plugin.statwidth() == 31

        assert capsys.readouterr().err == (
            "gpumon: --gpu-stall does not fit here: show fewer GPUs "
            "(DSTAT_GPU=0 or DSTAT_GPU=total) or fewer other columns\n"
        )

    def test_says_what_to_leave_out_of_a_single_gpu_on_a_line_below_the_table(
        self, runtime: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        publish(runtime, gpu(0))
        table = Table()
        table.scope.update(totlist=[table.plugin], cols=5, loop=9)
        table.plugin.statwidth()

        assert capsys.readouterr().err == (
            "\ngpumon: --gpu does not fit here: show fewer other columns\n"
        )


class TestATotal:
    """A total has the worst GPU where a GPU has its memory, or its main share."""

    GPUS = (
        gpu(0, busy_s=100),
        gpu(1, busy_s=20, starved_s=10, idle_s={IdleCause.CHECKPOINT: 70}),
        gpu(2, busy_s=50, starved_s=50),
    )

    @pytest.mark.parametrize("option", ["dstat_gpu", "dstat_gpu_stall"])
    def test_names_the_gpu_that_loses_most_in_the_same_width(
        self, runtime: Path, option: str
    ) -> None:
        publish(runtime, *self.GPUS)
        table = Table(option)

        assert table.plugin.subtitle().split()[1] == "wst"
        assert table.cells()[1] == "1"
        widths = {len(table.plugin.subtitle()), table.plugin.statwidth()}
        assert widths == {len(re.sub("<[^>]*>", "", table.row()))}

    def test_names_the_worst_of_the_row_and_not_of_all_time(self, runtime: Path) -> None:
        publish(runtime, *self.GPUS)
        table = Table()
        table.row()
        idle_s = {IdleCause.CHECKPOINT: 70}
        publish(
            runtime,
            gpu(0, observed_s=110, busy_s=110),
            gpu(1, observed_s=110, busy_s=30, starved_s=10, idle_s=idle_s),
            gpu(2, observed_s=110, busy_s=57, starved_s=53),
        )

        assert table.cells()[1] == "2"

    def test_names_none_where_none_loses_any(self, runtime: Path) -> None:
        publish(runtime, *(gpu(index, busy_s=100) for index in range(3)))

        assert Table().cells() == ["100", "-", "0"]

    @pytest.mark.parametrize(("label", "shown"), [("5:1", "5:1"), ("15:6", "15")])
    def test_names_the_gpu_of_an_instance_where_that_one_s_name_is_too_long(
        self, runtime: Path, monkeypatch: pytest.MonkeyPatch, label: str, shown: str
    ) -> None:
        number, part = map(int, label.split(":"))
        of_device: dict[str, Any] = {"uuid": "MIG-1", "parent_uuid": "GPU-5", "mig_index": part}
        publish(runtime, gpu(number, starved_s=100, **of_device), gpu(1, busy_s=100))
        monkeypatch.setenv("DSTAT_GPU", "total")

        assert f"<text>{shown:>3} " in Table().row()


class TestBothOptionsInOneHost:
    def test_show_the_same_moment_though_the_daemon_writes_between_them(
        self, runtime: Path
    ) -> None:
        publish(runtime, gpu(0, busy_s=100))
        use, stall = Table("dstat_gpu"), Table("dstat_gpu_stall")
        for table in (use, stall):
            table.scope["totlist"] = [use.plugin, stall.plugin]
        use.cells()
        publish(runtime, gpu(0, busy_s=60, starved_s=40))

        assert stall.cells() == ["0", "-", "-"]
        assert use.cells() == ["60", "50", "40"]

    def test_say_once_what_both_have_to_say(
        self, runtime: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        publish(runtime, gpu(0))
        monkeypatch.setenv("DSTAT_GPU", "7")
        first = Table("dstat_gpu")
        second = Table("dstat_gpu_stall", before=[first.plugin])

        assert second.plugin.vars == ["0"]
        assert capsys.readouterr().err.count("DSTAT_GPU") == 1


class TestCsv:
    def test_of_a_total_has_its_memory_and_its_main_share(self, runtime: Path) -> None:
        publish(runtime, *TestATotal.GPUS)
        cells = []
        for option in ("dstat_gpu", "dstat_gpu_stall"):
            table = Table(option)
            table.plugin.extract()
            cells += table.plugin.showcsv().split(",")

        assert cells == ["56.667", "50.000", "20.000", "43.333", "23.333", "checkpoint"]

    def test_has_an_empty_cell_for_what_is_not_known(self, runtime: Path) -> None:
        publish(runtime, gpu(0, busy_s=31.25, memory_used_bytes=None), gpu(1, present=False))
        table = Table()
        table.plugin.extract()

        assert table.plugin.showcsv() == "31.250,,0.000,,,"

    def test_gets_the_module_that_dstat_forgot_to_import(self) -> None:
        table = Table(output="x.csv")

        assert isinstance([], table.scope["types"].ListType)
        assert isinstance((), table.scope["types"].TupleType)
        assert isinstance("", table.scope["types"].StringType)

    def test_leaves_the_host_alone_where_none_is_written(self) -> None:
        assert "types" not in Table().scope
