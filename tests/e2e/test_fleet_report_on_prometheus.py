"""`gpumon report --prometheus` on a real Prometheus whose blocks hold a fleet of known losses."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import islice, product
from pathlib import Path
from typing import Any, TextIO

import pytest

from benchmarks.fleet_block import (
    HOUR_S,
    STARVED,
    TILE_S,
    FleetScript,
    Job,
    Span,
    make_blocks,
    typical_jobs,
    write_raw,
    write_rules,
)
from tests.command_line import Shell
from tests.e2e.prometheus_server import running_prometheus, wait_until
from tests.needs import missing, needed
from tests.processes import ending
from tests.serving import free_port

pytestmark = [pytest.mark.prometheus, pytest.mark.slow]

DAY_S, WEEK_S = 86_400, 7 * 86_400
RANKS = tuple(Job(f"ranked-r{rank}", "rita", STARVED, {"cpu_bound": 1.0}) for rank in range(2))
FLEET = FleetScript(hosts=50, jobs=(*RANKS, *typical_jobs(48)))
SMALL = FleetScript(hosts=5, gpus=2, jobs=typical_jobs(5))
MISSED_S = 6 * HOUR_S
PRICE = 2.5
BCRYPT_OF_TEST = "$2b$12$hNf2lSsxfm0.i4a.1kVpSOVyBCfIB51VRjgBUyv6kdnyTlgWj81Ay"
"""The hash of `test`, from Prometheus' own documentation."""


def served(folder: Path, text: Path) -> Iterator[str]:
    """The address of a Prometheus with these samples."""
    make_blocks(text, folder / "tsdb")
    with running_prometheus(needed("prometheus"), folder, []) as server:
        yield server.url


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A week of hourly tiles, and a day of short ones, without six hours of evaluations."""
    folder, now_s = tmp_path_factory.mktemp("fleet"), time.time()
    week, day = (
        Span.of_days(days, until_s=now_s, tile_s=tile_s) for days, tile_s in ((7, HOUR_S), (1, 300))
    )
    missed = Span(day.first_s + 2 * HOUR_S, day.first_s + 2 * HOUR_S + MISSED_S)
    with (folder / "fleet.txt").open("w") as text:
        write_rules(text, FLEET, week, tile_s=HOUR_S)
        write_rules(text, FLEET, day, tile_s=TILE_S, missed=(missed,))
        write_owners(text, FLEET, week)
    yield from served(folder, folder / "fleet.txt")


@pytest.fixture(scope="module")
def raw_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A day of what daemons export, without any of our rules."""
    folder = tmp_path_factory.mktemp("raw")
    with (folder / "raw.txt").open("w") as text:
        span = Span.of_days(1.1, until_s=time.time(), tile_s=60)
        write_raw(text, SMALL, span, step_s=60)
    yield from served(folder, folder / "raw.txt")


def write_owners(text: TextIO, script: FleetScript, span: Span) -> None:
    """The jobs of the first GPU of each host."""
    for host, job in script:
        labels = f'instance="{host}:19835",uuid="GPU-{host}",run="{job.run}",user="{job.user}"'
        if job.run:
            text.writelines(
                f"gpumon_gpu_job_info{{{labels}}} 1 {at}\n" for at in span.times(HOUR_S)
            )


def by_run(sums: Mapping[str, float]) -> dict[str, float]:
    """Of runs, without their ranks."""
    whole: dict[str, float] = defaultdict(float)
    for name, value in sums.items():
        whole[name.partition("-r")[0] if name.startswith("ranked") else name] += value
    return whole


def report(gpumon: Shell, address: str, *options: str) -> Any:
    return gpumon("report", "--prometheus", address, "--json", *options).document


def near(sums: Mapping[str, float]) -> Any:
    """Within 1 % of the truth."""
    return pytest.approx({name: value for name, value in sums.items() if value}, rel=0.01)


class TestAWeek:
    def test_is_within_a_hundredth_of_the_truth(self, gpumon: Shell, address: str) -> None:
        found = report(gpumon, address, "--price", str(PRICE))

        by_cause = FLEET.lost_seconds("cause", WEEK_S)
        assert found["lost_by_cause"] == near(by_cause)
        assert found["input_wait_by_reason"] == near(FLEET.lost_seconds("reason", WEEK_S))
        assert found["energy_joules_by_use"] == near(FLEET.joules(WEEK_S))
        lost_hours = sum(by_cause.values()) / HOUR_S
        assert found["lost_price"] == pytest.approx(lost_hours * PRICE, rel=0.01)
        assert found["coverage_ratio"] == pytest.approx(1.0, rel=0.01)

    @pytest.mark.parametrize("by", ["host", "run", "user"])
    def test_ranks_by_the_truth(self, gpumon: Shell, address: str, by: str) -> None:
        ranking = report(gpumon, address, "--by", by)["worst"][by]

        truth, busy = (
            by_run(sums)
            for sums in (FLEET.lost_seconds(by, WEEK_S), FLEET.busy_seconds(by, WEEK_S))
        )
        worst = {one["name"]: one["lost_seconds"] for one in ranking["worst"]}
        assert worst == near({name: truth[name] for name in worst})
        assert min(worst.values()) >= 0.99 * sorted(truth.values(), reverse=True)[9]
        assert {one["name"]: one["busy_seconds"] for one in ranking["worst"]} == near(
            {name: busy[name] for name in worst}
        )
        others = (ranking["others"] or {"lost_seconds": 0.0})["lost_seconds"]
        assert sum(worst.values()) + others == pytest.approx(sum(truth.values()), rel=0.01)

    def test_names_the_starved_runs_and_their_users(self, gpumon: Shell, address: str) -> None:
        text = gpumon("report", "--prometheus", address).out

        assert "to input stalls of 5 runs of 3 users" in text.replace("\n          ", " ")
        assert "starved-0 (late-0)" in text
        assert "ranked (rita)" in text


class TestADayWithMissedEvaluations:
    def test_has_their_coverage_and_never_zero_loss(self, gpumon: Shell, address: str) -> None:
        found = report(gpumon, address, "--since", "1d")

        assert found["coverage_ratio"] == pytest.approx(1 - MISSED_S / DAY_S, abs=0.01)
        assert found["lost_by_cause"] == near(FLEET.lost_seconds("cause", DAY_S - MISSED_S))
        truth = FLEET.lost_seconds("cause", 1.0)
        in_use = sum(truth.values()) + sum(FLEET.busy_seconds("run", 1.0).values())
        assert found["lost_ratio"] == pytest.approx(sum(truth.values()) / in_use, rel=0.01)


class TestAServerWithoutRules:
    def test_gives_a_day_from_raw_counters(self, gpumon: Shell, raw_address: str) -> None:
        found = report(gpumon, raw_address, "--since", "1d")

        assert found["tile_seconds"] is None
        assert found["lost_by_cause"] == near(SMALL.lost_seconds("cause", DAY_S))
        assert found["energy_joules_by_use"] == near(SMALL.joules(DAY_S))
        for by in ("host", "run", "user"):
            ranking = found["worst"][by]["worst"]
            truth = SMALL.lost_seconds(by, DAY_S)
            assert {one["name"]: one["lost_seconds"] for one in ranking} == near(
                {one["name"]: truth[one["name"]] for one in ranking}
            )
        assert found["coverage_ratio"] == pytest.approx(1.0, rel=0.01)

    def test_gives_no_more_than_a_day(self, gpumon: Shell, raw_address: str) -> None:
        found = report(gpumon, raw_address)

        assert found["lost_by_cause"] == near(SMALL.lost_seconds("cause", DAY_S))

    def test_has_no_week(self, gpumon: Shell, raw_address: str) -> None:
        ended = gpumon("report", "--prometheus", raw_address, "--since", "7d")

        assert (ended.code, ended.out) == (1, "")
        assert "prometheus/rules.yml is loaded" in ended.err
        assert ended.is_refused_in_a_sentence


@pytest.fixture(scope="module")
def new_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Two daemons of one host, first scraped two minutes ago, and no rules."""
    folder, now = tmp_path_factory.mktemp("new"), round(time.time())
    with (folder / "raw.txt").open("w") as text:
        for port in (1, 2):
            daemon = f'job="gpumon",instance="127.0.0.1:{port}"'
            times = range(now - 120, now + 1, 15)
            text.writelines(f"gpumon_build_info{{{daemon}}} 1 {at}\n" for at in times)
            text.writelines(f"up{{{daemon}}} {int(at > now - 60)} {at}\n" for at in times)
            for gpu, (name, more, share) in product(
                range(2),
                (
                    ("observed", "", 1.0), ("busy", "", 0.8),
                    ("idle", ',cause="input_wait"', 0.1), ("idle", ',cause="not_in_use"', 0.1),
                ),
            ):  # fmt: skip
                series = f'gpumon_gpu_{name}_seconds_total{{{daemon},uuid="GPU-{gpu}"{more}}}'
                # The idle time of the first half was pending, and is attributed at once.
                lines = (f"{series} {share * (at - now + 120)} {at}\n" for at in times)
                text.writelines(lines if share == 1 else islice(lines, 4, None))
    yield from served(folder, folder / "raw.txt")


class TestTwoDaemonsOfOneHostThatAreNew:
    def test_are_four_gpus_of_one_host(self, gpumon: Shell, new_address: str) -> None:
        found = report(gpumon, new_address, "--since", "10m")

        assert (found["hosts"], found["gpus"], found["tile_seconds"]) == (1, 4, None)
        assert [one["name"] for one in found["worst"]["host"]["worst"]] == ["127.0.0.1"]
        assert any("127.0.0.1 has 2 daemons" in note for note in found["notes"])

    def test_have_shares_that_add_up(self, gpumon: Shell, new_address: str) -> None:
        found = report(gpumon, new_address, "--since", "10m")

        assert found["coverage_ratio"] == pytest.approx(0.2, rel=0.15)
        parts = found["busy_seconds"] + found["lost_seconds"] + found["not_in_use_seconds"]
        assert parts <= found["observed_seconds"] + 1e-6

    def test_say_that_they_could_not_be_scraped(self, gpumon: Shell, new_address: str) -> None:
        text = gpumon("report", "--prometheus", new_address, "--since", "10m").out

        assert "2 daemons could not be scraped at times (`min_over_time(up[10m]) == 0`)" in (
            text.replace("\n          ", " ")
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1, and the files of a client."""
    folder = tmp_path_factory.mktemp("closed")
    subprocess.run(
        [
            needed("openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            "-subj", "/CN=prometheus", "-addext", "subjectAltName=IP:127.0.0.1",
            "-keyout", "server.key", "-out", "server.crt",
        ],
        check=True, capture_output=True, cwd=folder,
    )  # fmt: skip
    web = {
        "tls_server_config": {"cert_file": "server.crt", "key_file": "server.key"},
        "basic_auth_users": {"ann": BCRYPT_OF_TEST},
    }
    client = {
        "basic_auth": {"username": "ann", "password_file": "password"},
        "tls_config": {"ca_file": "server.crt"},
    }
    (folder / "password").write_text("test\n")
    (folder / "password").chmod(0o600)
    for name, document in (
        ("web.yml", web),
        ("client.yml", client),
        ("untrusting.yml", {"basic_auth": client["basic_auth"]}),
        ("prometheus.yml", {}),
    ):
        (folder / name).write_text(json.dumps(document))  # JSON is YAML
    return folder


@pytest.fixture(scope="module")
def closed(folder: Path) -> Iterator[str]:
    address = f"127.0.0.1:{free_port()}"
    command = [
        needed("prometheus"),
        "--config.file=prometheus.yml",
        "--web.config.file=web.yml",
        f"--web.listen-address={address}",
    ]
    with (
        (folder / "prometheus.log").open("wb") as log,
        ending(subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)),
    ):
        wait_until("it listens", lambda: b"Server is ready" in log_of(folder), seconds=30)
        yield f"https://{address}"


class TestAServerWithTlsAndPasswords:
    """Prometheus' own, by its ``--web.config.file``."""

    @pytest.mark.parametrize(
        ("client", "sentence"),
        [
            (None, "its certificate is not accepted"),
            ("untrusting.yml", "its certificate is not accepted"),
            ("client.yml", "has no figures of gpumon"),
        ],
    )
    def test_is_asked_with_a_password_by_those_who_trust_it(
        self, gpumon: Shell, closed: str, folder: Path, client: str | None, sentence: str
    ) -> None:
        if client is not None and importlib.util.find_spec("yaml") is None:
            missing("PyYAML is not installed")
        options = () if client is None else ("--http-config", folder / client)

        ended = gpumon("report", "--prometheus", closed, *options)

        assert ended.code == 1
        assert ended.is_refused_in_a_sentence
        assert sentence in ended.err


def log_of(folder: Path) -> bytes:
    return (folder / "prometheus.log").read_bytes()
