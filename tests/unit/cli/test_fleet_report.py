"""Tests of `gpumon report --prometheus`; its sentences are in ``tests/golden``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.cli import fleet_report
from tests import fake_prometheus
from tests.builders.state import StoppedClock
from tests.command_line import Shell
from tests.fake_prometheus import WEEK_S, FakePrometheus, Reply, fleet

LOST_S = 0.25 * 20 * 8 * WEEK_S
URL = "http://127.0.0.1:1"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakePrometheus]:
    monkeypatch.setattr(fleet_report, "SystemClock", StoppedClock)
    with fake_prometheus.running(FakePrometheus(fleet())) as fake:
        yield fake


class TestJson:
    def test_has_seconds_joules_and_ratios(self, gpumon: Shell, fake: FakePrometheus) -> None:
        options = ("--json", "--price", "2.5", "--price-kwh", "0.25")
        found = gpumon("report", "--prometheus", fake.address, *options).document

        assert found["schema"] == "gpumon.fleet/1"
        assert found["ended_at"] == "2023-11-14T22:13:20+00:00"
        assert found["started_at"] == "2023-11-07T22:13:20+00:00"
        assert found["lost_seconds"] == pytest.approx(LOST_S)
        assert found["lost_ratio"] == pytest.approx(0.25 / 0.9)
        assert found["lost_price"] == pytest.approx(LOST_S / 3_600 * 2.5)
        assert found["lost_energy_price"] == pytest.approx(LOST_S * 100 / 3.6e6 * 0.25)
        assert found["worst"]["run"]["worst"][0]["lost_price"] == pytest.approx(
            5 / 2 * 0.4 * 8 * WEEK_S / 3_600 * 2.5 * 1.2
        )
        assert [*found["worst"]] == ["run", "user", "host"]

    def test_keeps_its_names(self, gpumon: Shell, fake: FakePrometheus) -> None:
        found = gpumon("report", "--prometheus", fake.address, "--json").document

        assert [*found] == [
            "schema", "source", "started_at", "ended_at", "tile_seconds", "known_tiles",
            "all_tiles", "first_tile_at", "hosts", "gpus", "coverage_ratio", "expected_seconds",
            "observed_seconds", "busy_seconds", "lost_seconds", "lost_ratio",
            "not_in_use_seconds", "lost_by_cause", "input_wait_by_reason",
            "energy_joules_by_use", "price_per_gpu_hour", "price_per_kwh", "lost_price",
            "not_in_use_price", "lost_energy_price", "few_runs", "worst", "warnings", "notes",
        ]  # fmt: skip
        assert [*found["few_runs"][0]] == ["cause", "runs", "users", "lost_seconds"]
        runs = found["worst"]["run"]
        assert [*runs] == ["worst", "others", "unassigned_lost_seconds"]
        assert [*runs["others"]] == ["count", "lost_seconds"]
        assert [*runs["worst"][0]] == [
            "name", "busy_seconds", "lost_seconds", "lost_ratio", "lost_by_cause", "lost_price",
            "users", "hosts",
        ]  # fmt: skip

    def test_has_null_for_what_is_unknown(self, gpumon: Shell, fake: FakePrometheus) -> None:
        dropped = ("gpumon:gpu_expected_seconds", "gpumon:hosts", "gpumon:gpus")
        fake.series = [one for one in fake.series if one.record not in dropped]

        found = gpumon("report", "--prometheus", fake.address, "--json", "--by", "run").document

        for key in (
            "coverage_ratio", "expected_seconds", "hosts", "gpus", "price_per_gpu_hour",
            "lost_price", "lost_energy_price",
        ):  # fmt: skip
            assert found[key] is None
        assert found["worst"]["run"]["worst"][0]["users"] is None
        assert (found["worst"]["user"], found["worst"]["host"]) == (None, None)


class TestSince:
    def test_is_a_week_if_there_are_hourly_figures(
        self, gpumon: Shell, fake: FakePrometheus
    ) -> None:
        out = gpumon("report", "--prometheus", fake.address).out

        assert "The 7 days until" in out
        fake.counters["increase1h"] = []
        fake.counters["count (gpumon_gpu_observed_seconds_total)"] = [({}, 8.0)]
        ended = gpumon("report", "--prometheus", fake.address)
        assert (ended.code, ended.err) == (0, "")
        assert "The 24 hours until" in ended.out


class TestBy:
    @pytest.mark.parametrize("by", ["run", "user", "host"])
    def test_shows_one_table(self, gpumon: Shell, fake: FakePrometheus, by: str) -> None:
        out = gpumon("report", "--prometheus", fake.address, "--by", by).out

        assert out.count("The worst") == 1
        assert f"{by}s:" in out

    def test_cause_shows_none(self, gpumon: Shell, fake: FakePrometheus) -> None:
        out = gpumon("report", "--prometheus", fake.address, "--by", "cause").out

        assert "The worst" not in out
        assert "lost, waiting for input" in out


class TestALimit:
    @pytest.mark.parametrize(("percent", "code"), [("28", 0), ("27", 1), ("0", 1)])
    def test_is_on_the_lost_share(
        self, gpumon: Shell, fake: FakePrometheus, percent: str, code: int
    ) -> None:
        ended = gpumon("report", "--prometheus", fake.address, "--fail-if-lost-above", percent)

        assert ended.code == code
        assert ended.out
        assert bool(ended.err) == bool(code)

    def test_needs_gpus_in_use(self, gpumon: Shell, fake: FakePrometheus) -> None:
        kept = ("gpumon:gpu_observed_seconds", "gpumon:gpu_not_in_use_seconds")
        fake.series = [one for one in fake.series if one.record in kept]

        ended = gpumon("report", "--prometheus", fake.address, "--fail-if-lost-above", "5")

        assert ended.code == 5
        assert ended.out.startswith("Verdict:  No GPU was in use")


class TestThePage:
    def test_is_written(self, gpumon: Shell, fake: FakePrometheus, tmp_path: Path) -> None:
        page = tmp_path / "fleet.html"

        ended = gpumon("report", "--prometheus", fake.address, "--html", page)

        assert (ended.code, ended.err) == (0, "")
        assert "late-0" in page.read_text(encoding="utf-8")

    def test_needs_no_matplotlib(
        self, gpumon: Shell, fake: FakePrometheus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib", None)

        page = tmp_path / "fleet.html"
        assert gpumon("report", "--prometheus", fake.address, "--html", page).code == 0

    def test_that_cannot_be_written_ends_with_1(self, gpumon: Shell, fake: FakePrometheus) -> None:
        ended = gpumon("report", "--prometheus", fake.address, "--html", "/nowhere/p.html")

        assert ended.code == 1
        assert ended.is_refused_in_a_sentence
        assert (ended.out, fake.queries) == ("", [])


class TestAServerOfNoUse:
    def test_ends_with_1_and_one_sentence(self, gpumon: Shell, fake: FakePrometheus) -> None:
        fake.misbehave = lambda query: Reply(b"<html>", kind="text/html")

        ended = gpumon("report", "--prometheus", fake.address)

        assert (ended.code, ended.out) == (1, "")
        assert ended.is_refused_in_a_sentence

    def test_in_the_middle_of_a_report_prints_no_part_of_it(
        self, gpumon: Shell, fake: FakePrometheus
    ) -> None:
        broken = Reply(json.dumps({"status": "error", "error": "too many"}).encode(), 422)
        fake.misbehave = lambda query: broken if "reason" in query else None

        ended = gpumon("report", "--prometheus", fake.address)

        assert (ended.code, ended.out) == (1, "")
        assert ended.is_refused_in_a_sentence


class TestAPrice:
    @pytest.mark.parametrize("text", ["free", "2,50", "$2.50"])
    def test_that_is_no_number_is_refused_with_an_example(self, gpumon: Shell, text: str) -> None:
        ended = gpumon("report", "--prometheus", URL, "--price", text)

        assert ended.code == 2
        assert f"{text!r} is not a price: use a number such as 2.50" in ended.err


class TestArguments:
    @pytest.mark.parametrize(
        "words",
        [
            f"--prometheus {URL} night.gpumon",
            f"--prometheus {URL} --compare a b",
            f"--prometheus {URL} --run train",
            f"--prometheus {URL} --fail-if-starved-above 5",
            f"--prometheus {URL} --price=-1",
            f"--prometheus {URL} --price=nan",
            f"--prometheus {URL} --by gpu",
            f"--prometheus {URL} --html -",
            f"--prometheus {URL} --http-config /nowhere",
            "--prometheus http://ann:secret@prometheus",
            "--price 2",
            "--price-kwh 2",
            "--by run",
            "--http-config /nowhere",
        ],
    )
    def test_that_do_not_go_together_end_with_2(self, gpumon: Shell, words: str) -> None:
        ended = gpumon("report", *words.split())

        assert (ended.code, ended.out) == (2, "")
        assert "secret" not in ended.err
