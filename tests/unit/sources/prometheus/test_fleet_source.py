"""Tests of the report on many machines that a Prometheus of known figures gives."""

from __future__ import annotations

from collections.abc import Iterator
from email.utils import formatdate

import pytest

from gpumon.core.fleet.fleet_report import (
    NO_PRICES,
    RUNS,
    USERS,
    Dimension,
    FleetReport,
    Prices,
    Ranking,
)
from gpumon.errors import PrometheusError
from gpumon.sources.prometheus.api import PrometheusApi
from gpumon.sources.prometheus.fleet_source import read_fleet_report
from tests import fake_prometheus
from tests.builders.state import StoppedClock
from tests.fake_prometheus import NOW_S, WEEK_S, FakePrometheus, Reply, Series, fleet

WHOLE_S = 20 * 8 * WEEK_S
LOST_BY_RUN = "run_cause:gpumon_training_gpu_lost_seconds"
EMPTY = Reply(b'{"status": "success", "data": {"resultType": "vector", "result": []}}')
OBSERVED, EXPECTED = "gpumon:gpu_observed_seconds", "gpumon:gpu_expected_seconds"


@pytest.fixture
def fake() -> Iterator[FakePrometheus]:
    with fake_prometheus.running(FakePrometheus(fleet())) as fake:
        yield fake


def read(
    fake: FakePrometheus, since_s: float | None = WEEK_S, *, prices: Prices = NO_PRICES
) -> FleetReport:
    api = PrometheusApi(fake.address)
    try:
        return read_fleet_report(api, since_s, StoppedClock(), prices=prices)
    finally:
        api.close()


def ranking(report: FleetReport, dimension: Dimension) -> Ranking:
    (found,) = [one for one in report.rankings if one.dimension is dimension]
    return found


def lost_by_cause(lost_s: float) -> Series:
    return Series("cause:gpumon_gpu_lost_seconds", {"cause": "compile"}, lost_s)


def lost_by_run(labels: dict[str, str], lost_s: float) -> Series:
    return Series(LOST_BY_RUN, {"cause": "input_wait", **labels}, lost_s)


class TestTheReport:
    def test_adds_up_to_what_is_known(self, fake: FakePrometheus) -> None:
        report = read(fake)

        assert report.observed_seconds == pytest.approx(WHOLE_S)
        assert report.busy_seconds == pytest.approx(0.65 * WHOLE_S)
        assert report.lost_by_cause == {
            "input_wait": pytest.approx(0.2 * WHOLE_S), "checkpoint": pytest.approx(0.05 * WHOLE_S)
        }  # fmt: skip
        assert report.not_in_use_seconds == pytest.approx(0.1 * WHOLE_S)
        assert report.energy_by_use["lost"] == pytest.approx(100 * 0.25 * WHOLE_S)
        assert report.input_wait_by_reason == {"cpu_bound": pytest.approx(0.2 * WHOLE_S)}
        assert (report.hosts, report.gpus) == (20, 160)
        assert report.coverage_ratio == pytest.approx(1.0)

    def test_ranks_hosts_runs_and_users(self, fake: FakePrometheus) -> None:
        report = read(fake)

        runs, users = ranking(report, RUNS), ranking(report, USERS)
        assert [one.name for one in runs.worst[:4]] == ["late-0", "late-1", "late-2", "late-3"]
        assert runs.worst[0].lost_ratio == pytest.approx(0.4)
        assert runs.rest is not None
        assert runs.rest.number == 4
        assert runs.rest.lost_seconds == pytest.approx(4 * 0.1 * 8 * WEEK_S)
        assert [(one.name, one.main_cause) for one in users.worst] == [
            ("ann-0", "input_wait"), ("ann-1", "input_wait"), ("bob", "checkpoint"),
        ]  # fmt: skip

    def test_names_the_few_runs_behind_a_cause_and_their_users(self, fake: FakePrometheus) -> None:
        fake.counters["gpumon_gpu_job_info"] = [
            ({"run": f"late-{n}", "user": f"ann-{n % 2}", "instance": f"node-{n}:19835"}, 1.0)
            for n in range(4)
        ]

        (few,) = read(fake).few_runs

        assert few.runs == ("late-0", "late-1", "late-2", "late-3")
        assert few.users == ("ann-0", "ann-1")
        assert few.lost_seconds == pytest.approx(0.2 * WHOLE_S)

    def test_names_no_users_unless_those_of_each_run_are_known(self, fake: FakePrometheus) -> None:
        fake.counters["gpumon_gpu_job_info"] = [({"run": "late-0", "user": "ann-0"}, 1.0)]

        (few,) = read(fake).few_runs

        assert few.users == ()

    def test_asks_at_the_time_of_the_server(self, fake: FakePrometheus) -> None:
        assert read(fake).ended_at == NOW_S

    @pytest.mark.parametrize(
        ("days", "tile"), [(0.001, "5m"), (1, "5m"), (1.01, "1h"), (7, "1h"), (400, "1h")]
    )
    def test_uses_short_tiles_for_a_day(self, fake: FakePrometheus, days: float, tile: str) -> None:
        report = read(fake, days * 86_400)

        assert f":increase{tile}[" in fake.queries[1]
        assert report.all_tiles == -(-days * 86_400 // {"5m": 300, "1h": 3_600}[tile])


class TestAServerWithoutHourlyTiles:
    """Its rules were loaded less than an hour ago."""

    @pytest.fixture(autouse=True)
    def _forget_hours(self, fake: FakePrometheus) -> None:
        fake.misbehave = lambda query: EMPTY if "increase1h" in query else None

    def test_gives_a_day_unless_more_was_asked_for(self, fake: FakePrometheus) -> None:
        fake.counters["count (gpumon_gpu_observed_seconds_total)"] = [({}, 8.0)]
        report = read(fake, None)

        assert report.ended_at - report.started_at == 86_400
        assert report.tile_seconds == 300
        assert report.notes == (
            "The server has no hourly figures yet, so this is the last day instead of 7 days.",
        )

    def test_has_no_week(self, fake: FakePrometheus) -> None:
        fake.counters["count (gpumon_gpu_observed_seconds_total)"] = [({}, 8.0)]

        with pytest.raises(PrometheusError, match=r"no hourly figures .* ask for --since 1d"):
            read(fake)


class TestTimeThatWasPendingBefore:
    def test_is_observed(self, fake: FakePrometheus) -> None:
        fake.series.append(lost_by_cause(0.2 * WHOLE_S))

        report = read(fake)

        parts = report.in_use_seconds + (report.not_in_use_seconds or 0.0)
        assert report.observed_seconds == pytest.approx(parts)


class TestRanks:
    def test_of_a_job_are_one_run(self, fake: FakePrometheus) -> None:
        fake.series += [lost_by_run({"run": f"bert-r{rank}"}, WHOLE_S / 16) for rank in range(16)]
        fake.counters["gpumon_gpu_job_info"] = [
            ({"run": f"bert-r{rank}", "user": "eve", "instance": f"n{rank}:1"}, 1.0)
            for rank in range(2)
        ]

        worst = ranking(read(fake), RUNS).worst[0]

        assert worst.lost_seconds == pytest.approx(WHOLE_S)
        assert (worst.name, worst.users, worst.hosts) == ("bert", ("eve",), ("n0", "n1"))


class TestTimeThatBelongsToNoRun:
    def test_is_not_ranked(self, fake: FakePrometheus) -> None:
        fake.series += [lost_by_run({}, 5 * WHOLE_S), lost_by_run({"run": "_other"}, 4 * WHOLE_S)]

        runs = ranking(read(fake), RUNS)

        assert runs.worst[0].name == "late-0"
        assert runs.unnamed_lost_seconds == pytest.approx(5 * WHOLE_S)
        assert runs.rest is not None
        assert runs.rest.number is None
        assert runs.rest.lost_seconds == pytest.approx(4 * WHOLE_S + 4 * 0.1 * 8 * WEEK_S)


class TestManyRuns:
    def test_are_summed_as_others(self, fake: FakePrometheus) -> None:
        fake.series += [lost_by_run({"run": f"short-{n}"}, 60.0) for n in range(10_000)]

        runs = ranking(read(fake), RUNS)

        assert len(runs.worst) == 10
        assert runs.rest is not None
        assert runs.rest.number == 10_004
        assert runs.rest.lost_seconds == pytest.approx(600_000 + 4 * 0.1 * 8 * WEEK_S)

    def test_with_names_of_any_letters_are_matched_exactly(self, fake: FakePrometheus) -> None:
        names = ['a"b\\', "c|d", "e{}f", "(g", "h.*", "\N{SNOWMAN}\N{GRINNING FACE}"]
        fake.series += [lost_by_run({"run": name}, 2 * WHOLE_S) for name in names]

        worst = ranking(read(fake), RUNS).worst

        assert {one.name for one in worst} > {*names}
        assert [one.lost_seconds for one in worst[:6]] == [pytest.approx(2 * WHOLE_S)] * 6


class TestCoverage:
    def test_counts_a_missed_evaluation_as_expected_and_never_as_zero_loss(
        self, fake: FakePrometheus
    ) -> None:
        fake.missing = frozenset(range(100, 142))

        report = read(fake)

        assert report.coverage_ratio == pytest.approx(0.75)
        assert (report.known_tiles, report.all_tiles) == (126, 168)
        assert report.lost_ratio == pytest.approx(0.25 / 0.9)

    def test_begins_when_the_rules_did(self, fake: FakePrometheus) -> None:
        fake.missing = frozenset(range(84))

        report = read(fake)

        assert report.first_tile_at == NOW_S - 60 - 84 * 3_600
        assert report.coverage_ratio == pytest.approx(0.5)

    def test_of_hosts_that_are_down_is_lower(self, fake: FakePrometheus) -> None:
        fake.series = [one for one in fake.series if one.record != EXPECTED]
        fake.series.append(Series(EXPECTED, {}, 1.25 * WHOLE_S))

        assert read(fake).coverage_ratio == pytest.approx(0.8)

    def test_says_who_was_down_only_where_it_is_low(self, fake: FakePrometheus) -> None:
        fake.counters["min_over_time(up["] = [({}, 3.0)]
        assert read(fake).unscraped_daemons is None
        fake.missing = frozenset(range(84))

        assert read(fake).unscraped_daemons == 3

    def test_does_not_need_to_know_who_was_down(self, fake: FakePrometheus) -> None:
        refused = Reply(b'{"status": "error", "error": "too many samples"}', 422)
        fake.misbehave = lambda query: refused if "(up[" in query else None
        fake.missing = frozenset(range(84))

        assert read(fake).unscraped_daemons is None

    def test_is_unknown_without_its_rule(self, fake: FakePrometheus) -> None:
        fake.series = [one for one in fake.series if one.record != EXPECTED]

        assert read(fake).coverage_ratio is None


class TestTwoServers:
    def test_with_the_same_series_count_once(self, fake: FakePrometheus) -> None:
        whole = read(fake)
        fake.series = [
            Series(one.record, {**one.labels, "replica": replica}, share * one.whole)
            for one in fake.series
            for replica, share in (("a", 0.9), ("b", 1.0))
        ]

        twice = read(fake)

        assert twice.observed_seconds == pytest.approx(whole.observed_seconds)
        assert twice.lost_by_cause == pytest.approx(whole.lost_by_cause)
        assert twice.coverage_ratio == pytest.approx(1.0)
        assert twice.notes == ()

    def test_of_two_sites_are_added_with_a_note(self, fake: FakePrometheus) -> None:
        fake.series = [
            Series(one.record, {**one.labels, "site": site}, one.whole)
            for one in fake.series
            for site in ("east", "west")
        ]

        report = read(fake)

        assert report.observed_seconds == pytest.approx(2 * WHOLE_S)
        assert report.coverage_ratio == pytest.approx(1.0)
        assert "2 servers were added up (site=east; site=west)" in report.notes[0]


class TestNotes:
    @pytest.mark.parametrize(
        ("ahead_s", "side"), [(420, "7 min behind"), (-420, "7 min ahead of"), (30, None)]
    )
    def test_compare_the_clocks(
        self, fake: FakePrometheus, ahead_s: float, side: str | None
    ) -> None:
        fake.date = formatdate(NOW_S + ahead_s, usegmt=True)

        notes = read(fake).notes

        assert [f"is {side} the server's" in note for note in notes] == [True] * (side is not None)

    def test_say_where_a_host_may_have_been_renamed(self, fake: FakePrometheus) -> None:
        fake.series.append(Series("host:gpumon_gpu_observed_seconds", {"host": "old"}, 60.0))

        (note,) = read(fake).notes

        assert note.startswith("21 hosts have figures, 20 are there now.")

    def test_say_which_host_is_several_daemons(self, fake: FakePrometheus) -> None:
        fake.counters["count by (instance) (gpumon_build_info)"] = [({"host": "node-1"}, 2.0)]

        assert read(fake).notes == (
            "The host node-1 has 2 daemons, whose instances differ only in their ports. Its "
            "figures are of all of them.",
        )

    def test_say_why_a_table_is_missing(self, fake: FakePrometheus) -> None:
        fake.series = [one for one in fake.series if not one.record.startswith(("run", "user"))]

        notes = read(fake).notes

        assert [note.partition(",")[0] for note in notes] == [
            "There is no table of runs", "There is no table of users",
        ]  # fmt: skip
        fake.series = [one for one in fake.series if not one.record.startswith("cause")]
        assert read(fake).notes == ()

    def test_say_where_energy_has_no_price(self, fake: FakePrometheus) -> None:
        assert read(fake, prices=Prices(kwh=0.3)).notes == ()
        fake.series = [one for one in fake.series if not one.record.startswith("use:")]
        assert read(fake).notes == ()

        (note,) = read(fake, prices=Prices(kwh=0.3)).notes

        assert note.startswith("The energy is unknown, and so is its price")

    def test_say_why_users_are_unknown(self, fake: FakePrometheus) -> None:
        refused = Reply(b'{"status": "error", "error": "too many samples"}', 422)
        fake.misbehave = lambda query: refused if "job_info" in query else None

        report = read(fake)

        assert ranking(report, RUNS).worst
        assert report.notes == (
            f"Users and hosts of runs are unknown: {fake.address} could not answer (status 422): "
            "too many samples.",
        )

    def test_give_warnings_of_the_server(self, fake: FakePrometheus) -> None:
        fake.warnings = ["store 3 does not answer"]

        assert read(fake).warnings == ("store 3 does not answer",)


class TestAServerWithoutOurRules:
    @pytest.fixture
    def raw(self) -> Iterator[FakePrometheus]:
        with fake_prometheus.running(FakePrometheus()) as fake:
            fake.counters["count (gpumon_gpu_observed_seconds_total)"] = [({}, 8.0)]
            yield fake

    def test_is_asked_for_counters_up_to_a_day(self, raw: FakePrometheus) -> None:
        raw.counters["last_over_time(gpumon_gpu_observed_seconds_total"] = [({}, 8.0)]
        raw.counters["increase(gpumon_gpu_observed_seconds_total"] = [({}, 4 * 86_400.0)]

        report = read(raw, 86_400)

        assert report.tile_seconds is None
        assert report.coverage_ratio == pytest.approx(0.5)
        assert "no figures of prometheus/rules.yml" in report.notes[0]
        assert any("increase(gpumon_gpu_idle_seconds_total" in query for query in raw.queries)

    def test_gives_a_day_unless_more_was_asked_for(self, raw: FakePrometheus) -> None:
        report = read(raw, None)

        assert report.ended_at - report.started_at == 86_400
        assert "the last day instead of 7 days" in report.notes[0]
        assert "raw counters were read" in report.notes[1]

    def test_is_refused_beyond_a_day(self, raw: FakePrometheus) -> None:
        with pytest.raises(PrometheusError, match="which more than a day needs"):
            read(raw)

    def test_is_refused_where_nothing_is_scraped(self) -> None:
        with (
            fake_prometheus.running(FakePrometheus()) as empty,
            pytest.raises(PrometheusError, match="has no figures of gpumon: let it scrape"),
        ):
            read(empty)
