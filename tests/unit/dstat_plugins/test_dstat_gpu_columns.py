"""`dstat --gpu` and `--gpu-stall`: which columns there are, on screen and in a file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpumon.core.phase import IdleCause
from gpumon.core.state import GpuState
from tests.builders.dstat import Table, gpu, publish
from tests.builders.state import GIB

EIGHT = [str(index) for index in range(8)]
STALL = "dstat_gpu_stall"


def groups(monkeypatch: pytest.MonkeyPatch, value: str) -> list[str]:
    """The GPUs that have columns for this ``DSTAT_GPU``."""
    monkeypatch.setenv("DSTAT_GPU", value)
    return list(Table().plugin.vars)


def instance(number: int, observed_s: float = 100, **of_device: Any) -> GpuState:
    """A MIG instance of GPU 0."""
    return gpu(
        0, observed_s=observed_s, busy_s=(0.25 + 0.5 * number) * observed_s,
        **{"uuid": f"MIG-{number}", "parent_uuid": "GPU-0", "mig_index": number, **of_device},
    )  # fmt: skip


PARTITIONED = gpu(0, observed_s=0, mig_enabled=True)


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
        ("value", "chosen"),
        [
            ("0 1", ["0", "1"]),
            (" 0 ,\t1 , ", ["0", "1"]),
            ("4 - 6, 0", ["4", "5", "6", "0"]),
            ("ALL,Total", [*EIGHT, "total"]),
            ("2, 0,total,2", ["2", "0", "total"]),
            ("007", ["7"]),
            ("6-6", ["6"]),
            (" , ", ["total"]),
        ],
    )
    def test_are_those_that_the_user_names_in_that_order(
        self, runtime: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
        value: str, chosen: list[str],
    ) -> None:  # fmt: skip
        publish(runtime, *map(gpu, range(8)))

        assert groups(monkeypatch, value) == chosen
        assert capsys.readouterr().err == ""

    @pytest.mark.parametrize(
        ("value", "chosen", "named"),
        [
            ("1,7,x", ["1"], "7, x"),
            ("1-3", ["1"], "2, 3"),
            ("1-0", ["0", "1"], "1-0"),
            ("-1", ["0", "1"], "-1"),
            ("0-999", ["0", "1"], "0-999"),
            ("MIG-7a/0/1", ["0", "1"], "MIG-7a/0/1"),
            ("0:1", ["0", "1"], "0:1"),
            ("\u0663", ["0", "1"], r"\u0663"),
            ("0 \x1b[2J", ["0"], r"\x1b[2J"),
            ("9" * 5000, ["0", "1"], "9" * 16),
            ("10-200", ["0", "1"], "10, 11, 12, 13, 14, 15, 16, 17, ..."),
        ],
    )  # fmt: skip
    def test_leave_out_unknown_names_with_one_sentence_that_lists_the_known_ones(
        self, runtime: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
        value: str, chosen: list[str], named: str,
    ) -> None:  # fmt: skip
        publish(runtime, gpu(0), gpu(1))

        assert groups(monkeypatch, value) == chosen
        assert capsys.readouterr().err == (
            f"gpumon: DSTAT_GPU: no GPU is called {named}, only 0, 1, all, total\n"
        )

    @pytest.mark.parametrize(
        ("value", "chosen"),
        [("4-6", ["4", "5", "6"]), ("0:1 3", ["0:1", "3"]), ("all", ["total"]), ("x", ["total"])],
    )
    def test_are_the_named_ones_before_a_daemon_runs(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
        value: str, chosen: list[str],
    ) -> None:  # fmt: skip
        assert groups(monkeypatch, value) == chosen
        unknown = "no GPU is called x, only indices such as 0,2 or 4-6, all, total\n"
        assert (unknown in capsys.readouterr().err) is (value == "x")

    @pytest.mark.parametrize(
        ("marks", "name"),
        [
            ({"simulated": True}, "gpu0-sim"),
            ({"replayed": True}, "gpu0-rec"),
            ({"simulated": True, "replayed": True}, "gpu0-rec"),
        ],
    )
    def test_have_titles_with_a_mark_where_gpus_are_not_real(
        self, runtime: Path, marks: dict[str, bool], name: str
    ) -> None:
        publish(runtime, gpu(0), **marks)

        assert Table().plugin.name == [name]

    @pytest.mark.parametrize("label", [None, "", "0:\x1b[2J", ["0"], "1234567890", "\u0663"])
    def test_are_named_by_index_where_the_label_is_not_valid(
        self, runtime: Path, label: object
    ) -> None:
        publish(runtime, gpu(3))
        path = runtime / "state.json"
        document = json.loads(path.read_text())
        document["gpus"][0]["label"] = label
        path.write_text(json.dumps(document))

        assert Table().plugin.name == ["gpu3"]

    @pytest.mark.parametrize("name", [STALL, "/home/a/.dool/dool_gpu_stall.py"])
    def test_have_the_columns_of_the_name_of_the_file(self, runtime: Path, name: str) -> None:
        publish(runtime, gpu())

        assert Table(name).plugin.nick == ("lost", "main", "cause")
        assert Table(name.replace("_stall", "")).plugin.nick == ("use", "mem", "strv")


class TestTheGroupsOfMigInstances:
    @pytest.mark.parametrize(
        ("value", "chosen"),
        [
            ("0", ["0:0", "0:1"]),
            ("0:1", ["0:1"]),
            ("0-1", ["0:0", "0:1", "1"]),
            ("all", ["0:0", "0:1", "1"]),
        ],
    )
    def test_stand_for_their_gpu(
        self, runtime: Path, monkeypatch: pytest.MonkeyPatch, value: str, chosen: list[str]
    ) -> None:
        publish(runtime, PARTITIONED, instance(0), instance(1), gpu(1))

        assert groups(monkeypatch, value) == chosen

    @pytest.mark.parametrize(
        ("second", "busy"),
        [
            ([instance(1, uuid="MIG-new"), instance(1)._replace(present=False, listed=False)], 75),
            ([instance(1, observed_s=0)], -1),
        ],
        ids=["but for one that was there before", "also without an answer"],
    )
    def test_are_of_the_present_ones(
        self, runtime: Path, second: list[GpuState], busy: int
    ) -> None:
        publish(runtime, PARTITIONED, instance(0), *second)
        table = Table()
        table.row()

        assert table.plugin.name == ["gpu0:0", "gpu0:1"]
        assert [table.plugin.val[label][0] for label in ("0:0", "0:1")] == [25, busy]

    def test_in_total_count_no_memory_twice(self, runtime: Path) -> None:
        half = {"memory_capacity_bytes": 60 * GIB}
        publish(runtime, PARTITIONED, instance(0, **half), instance(1, **half), gpu(1))
        table = Table()
        table.row()

        assert table.plugin.val["total"][1] == pytest.approx(100 * 180 / 240)


class TestANarrowTerminal:
    def test_costs_a_column_of_each_gpu_rather_than_all(self, runtime: Path) -> None:
        publish(runtime, gpu(0, busy_s=100), gpu(1))
        table = Table()
        before, after = SimpleNamespace(statwidth=lambda: 54), SimpleNamespace()
        table.scope["totlist"] = [before, table.plugin, after]

        table.scope["cols"] = 54 + 1 + 25 + 1
        assert table.plugin.statwidth() == 25
        assert table.plugin.subtitle() == "use mem strv:use mem strv"

        table.scope["cols"] -= 1
        assert table.plugin.statwidth() == 17
        assert table.plugin.subtitle() == "use strv:use strv"
        assert table.cells() == ["100", "0", "0", "0"]

    def test_that_grows_again_gets_a_new_header(self, runtime: Path) -> None:
        publish(runtime, gpu(starved_s=30, busy_s=70))
        table = Table(STALL)
        table.scope.update(cols=20, totlist=[table.plugin], showheader=False)
        assert (table.plugin.statwidth(), table.scope["showheader"]) == (15, True)
        assert table.plugin.subtitle().split() == ["lost", "cause"]

        table.scope.update(cols=80, showheader=False)
        assert (table.plugin.statwidth(), table.scope["showheader"]) == (20, True)
        assert table.plugin.subtitle().split() == ["lost", "main", "cause"]

    def test_that_fits_none_of_them_is_reported_once_how_to_choose(
        self, runtime: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        publish(runtime, gpu(0), gpu(1))
        use, stall = Table(), Table(STALL)
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


class TestATotal:
    """A total has the worst GPU where a GPU has its memory, or its main share."""

    GPUS = (
        gpu(0, busy_s=100),
        gpu(1, busy_s=20, starved_s=10, idle_s={IdleCause.CHECKPOINT: 70}),
        gpu(2, busy_s=50, starved_s=50),
    )

    def test_weighs_each_gpu_by_its_observed_time(self, runtime: Path) -> None:
        publish(
            runtime,
            gpu(0, observed_s=300, busy_s=300, memory_used_bytes=120 * GIB),
            gpu(1, observed_s=100, suspected_s=100, memory_used_bytes=None),
            gpu(2, present=False),
        )

        table = Table()
        assert table.cells() == ["75", "1", "25?"]
        assert table.plugin.val["total"] == [75, 100, 25]

    @pytest.mark.parametrize("option", ["dstat_gpu", STALL])
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

    @pytest.mark.parametrize(("label", "shown"), [("5:1", "5:1"), ("15:6", "15")])
    def test_names_the_gpu_of_an_instance_whose_name_is_too_long(
        self, runtime: Path, monkeypatch: pytest.MonkeyPatch, label: str, shown: str
    ) -> None:
        number, part = map(int, label.split(":"))
        of_device: dict[str, Any] = {"uuid": "MIG-1", "parent_uuid": "GPU-5", "mig_index": part}
        publish(runtime, gpu(number, starved_s=100, **of_device), gpu(1, busy_s=100))
        monkeypatch.setenv("DSTAT_GPU", "total")

        assert f"<text>{shown:>3} " in Table().row()


class TestBothOptionsInOneHost:
    def test_show_the_same_state_though_the_daemon_writes_between_them(self, runtime: Path) -> None:
        publish(runtime, gpu(0, busy_s=100))
        use, stall = Table(), Table(STALL)
        for table in (use, stall):
            table.scope["totlist"] = [use.plugin, stall.plugin]
        use.cells()
        publish(runtime, gpu(0, busy_s=60, starved_s=40))

        assert stall.cells() == ["0", "-", "-"]
        assert use.cells() == ["60", "50", "40"]

    def test_report_once_what_concerns_both(
        self, runtime: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        publish(runtime, gpu(0))
        monkeypatch.setenv("DSTAT_GPU", "7")
        first = Table()
        second = Table(STALL, before=[first.plugin])

        assert second.plugin.vars == ["0"]
        assert capsys.readouterr().err.count("DSTAT_GPU") == 1


class TestCsv:
    def test_of_a_total_has_its_memory_and_its_main_share(self, runtime: Path) -> None:
        publish(runtime, *TestATotal.GPUS)
        cells = []
        for option in ("dstat_gpu", STALL):
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
        types = Table(output="x.csv").scope["types"]

        assert (types.ListType, types.TupleType, types.StringType) == (list, tuple, str)
        assert "types" not in Table().scope
