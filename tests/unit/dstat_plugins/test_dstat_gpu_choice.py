"""Specification of DSTAT_GPU: which GPUs have columns, and the note on unknown names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders.dstat import Table, gpu, publish

EIGHT = [str(index) for index in range(8)]


@pytest.fixture(params=["dstat_gpu", "dstat_gpu_stall"])
def option(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def groups(monkeypatch: pytest.MonkeyPatch, value: str, option: str = "dstat_gpu") -> list[str]:
    monkeypatch.setenv("DSTAT_GPU", value)
    return list(Table(option).plugin.vars)


class TestTheGpusThatAreNamed:
    @pytest.mark.parametrize(
        ("value", "chosen"),
        [
            ("0 1", ["0", "1"]),
            ("0,1", ["0", "1"]),
            (" 0 ,\t1 , ", ["0", "1"]),
            ("4-6", ["4", "5", "6"]),
            ("4 - 6, 0", ["4", "5", "6", "0"]),
            ("all", EIGHT),
            ("ALL,Total", [*EIGHT, "total"]),
            ("2, 0,total,2", ["2", "0", "total"]),
            ("007", ["7"]),
            ("6-6", ["6"]),
            ("", ["total"]),
            (" , ", ["total"]),
        ],
    )
    def test_have_columns_in_their_order(
        self, runtime: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
        option: str, value: str, chosen: list[str],
    ) -> None:  # fmt: skip
        publish(runtime, *map(gpu, range(8)))

        assert groups(monkeypatch, value, option) == chosen
        assert capsys.readouterr().err == ""

    @pytest.mark.parametrize(
        ("value", "chosen"),
        [
            ("0", ["0:0", "0:1"]),
            ("0:1", ["0:1"]),
            ("0-1", ["0:0", "0:1", "1"]),
            ("all", ["0:0", "0:1", "1"]),
        ],
    )
    def test_are_instances_where_mig_cuts_them(
        self, runtime: Path, monkeypatch: pytest.MonkeyPatch, value: str, chosen: list[str]
    ) -> None:
        instances = [
            gpu(0, uuid=f"MIG-{n}", parent_uuid="GPU-0", mig_index=n) for n in range(2)
        ]  # fmt: skip
        publish(runtime, gpu(0, mig_enabled=True), *instances, gpu(1))

        assert groups(monkeypatch, value) == chosen

    @pytest.mark.parametrize(
        ("value", "chosen"),
        [("4-6", ["4", "5", "6"]), ("0:1 3", ["0:1", "3"]), ("all", ["total"])],
    )
    def test_are_taken_at_their_word_before_a_daemon_runs(
        self, monkeypatch: pytest.MonkeyPatch, value: str, chosen: list[str]
    ) -> None:
        assert groups(monkeypatch, value) == chosen


class TestANameThatIsNone:
    @pytest.mark.parametrize(
        ("value", "chosen", "named"),
        [
            ("1,7,x", ["1"], "7, x"),
            ("1-3", ["1"], "2, 3"),
            ("1-0", ["0", "1"], "1-0"),
            ("-1", ["0", "1"], "-1"),
            ("0-99999", ["0", "1"], "0-99999"),
            ("0-999", ["0", "1"], "0-999"),
            ("0;1", ["0", "1"], "0;1"),
            ("MIG-7a/0/1", ["0", "1"], "MIG-7a/0/1"),
            ("0:1", ["0", "1"], "0:1"),
            ("\u0663", ["0", "1"], r"\u0663"),
            ("0 \x1b[2J", ["0"], r"\x1b[2J"),
            ("9" * 5000, ["0", "1"], "9" * 16),
            ("10-200", ["0", "1"], "10, 11, 12, 13, 14, 15, 16, 17, ..."),
        ],
    )  # fmt: skip
    def test_is_left_out_with_one_sentence_that_says_what_there_is(
        self, runtime: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
        value: str, chosen: list[str], named: str,
    ) -> None:  # fmt: skip
        publish(runtime, gpu(0), gpu(1))

        assert groups(monkeypatch, value) == chosen
        assert capsys.readouterr().err == (
            f"gpumon: DSTAT_GPU: no GPU is called {named}, only 0, 1, all, total\n"
        )

    def test_is_reported_before_a_daemon_runs(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert groups(monkeypatch, "x") == ["total"]
        assert "no GPU is called x, only indices such as 0,2 or 4-6, all, total\n" in (
            capsys.readouterr().err
        )
