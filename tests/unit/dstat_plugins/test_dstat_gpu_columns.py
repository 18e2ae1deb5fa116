"""Specification of `dstat --gpu`: which columns there are, on screen and in a file."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.bare_dstat import Table
from tests.builders_dstat import gpu, publish
from tests.builders_state import GIB


class TestTheGroups:
    @pytest.mark.parametrize(
        ("gpus", "is_full", "named", "names"),
        [
            (2, False, None, ["gpu0", "gpu1"]),
            (3, False, None, ["gpu-tot"]),
            (3, True, None, ["gpu0", "gpu1", "gpu2"]),
            (3, True, "2, 0,total,2", ["gpu2", "gpu0", "gpu-tot"]),
        ],
        ids=["one for each of two", "one in total for more", "all with -f", "those that are named"],
    )
    def test_are_of_the_gpus_that_there_are(
        self, runtime: Path, monkeypatch: pytest.MonkeyPatch, gpus: int, is_full: bool,
        named: str | None, names: list[str],
    ) -> None:  # fmt: skip
        publish(runtime, *map(gpu, range(gpus)))
        if named is not None:
            monkeypatch.setenv("DSTAT_GPU", named)

        assert Table(full=is_full).plugin.name == names

    def test_leave_out_an_unknown_one_with_a_sentence(
        self, runtime: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        publish(runtime, gpu(0), gpu(1))
        monkeypatch.setenv("DSTAT_GPU", "1,7,x")

        assert Table().plugin.name == ["gpu1"]
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert re.search("7, x, .* 0, 1, total$", said)

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

        assert Table().cells() == ["75", "100", "25?"]


class TestWithoutADaemon:
    def test_there_is_a_total_and_it_fills_when_one_starts(self, runtime: Path) -> None:
        table = Table()
        assert table.plugin.name == ["gpu-tot"]

        publish(runtime, *(gpu(index, busy_s=25) for index in range(4)))

        assert table.cells() == ["25", "50", "0"]

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


class TestCsv:
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
