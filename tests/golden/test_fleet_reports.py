"""Reports on many machines, pinned word for word, and what is printed if a server is no use."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path

import pytest

from gpumon.cli import fleet_report
from gpumon.sources.prometheus import api
from tests import fake_prometheus
from tests.builders.state import StoppedClock
from tests.command_line import Ended, Shell
from tests.fake_prometheus import NOW_S, WEEK_S, FakePrometheus, Reply, Series, fleet
from tests.golden_files import Chapters, golden_story
from tests.serving import free_port

SHOWN_ADDRESS = "http://prometheus:9090"
WHOLE_S = 20 * 8 * WEEK_S
LOST = "cause:gpumon_gpu_lost_seconds"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakePrometheus]:
    """A server of twenty hosts whose clock this machine has, too."""
    monkeypatch.setattr(fleet_report, "SystemClock", StoppedClock)
    monkeypatch.chdir(tmp_path)
    with fake_prometheus.running(FakePrometheus(fleet())) as fake:
        yield fake


def asked(gpumon: Shell, address: str, options: str) -> Ended:
    ended = gpumon("report", "--prometheus", address, *shlex.split(options))
    return Ended(*(str(part).replace(address, SHOWN_ADDRESS) for part in ended))  # type: ignore[arg-type]


def head(text: str) -> str:
    """What is before the tables, and the notes after them."""
    blocks = text.split("\n\n")
    return "\n\n".join([*blocks[:2], *(block for block in blocks if block.startswith("Note:"))])


def with_owners(fake: FakePrometheus) -> None:
    fake.counters["gpumon_gpu_job_info"] = [
        ({"run": f"late-{n}", "user": f"ann-{n % 2}", "instance": f"node-0{n}:19835"}, 1.0)
        for n in range(4)
    ]


@golden_story
def test_fleet_reports(gpumon: Shell, fake: FakePrometheus) -> Chapters:
    with_owners(fake)
    texts = {}
    for options in ("", "--price 2.50 --price-kwh 0.30 --by run"):
        ended = asked(gpumon, fake.address, options)
        texts[f"gpumon report --prometheus URL {options}".rstrip()] = ended.out + ended.err
    return texts


def lost_to(fake: FakePrometheus, **causes: float) -> None:
    """Let the fleet have lost these shares of its time, in no run."""
    fake.series = [
        one for one in fake.series if "cause" not in one.labels and "run:" not in one.record
    ]
    fake.series += [
        Series(LOST, {"cause": name}, share * WHOLE_S) for name, share in causes.items()
    ]


def without(fake: FakePrometheus, *records: str) -> None:
    fake.series = [one for one in fake.series if not one.record.startswith(records)]


def down(fake: FakePrometheus) -> None:
    without(fake, "gpumon:gpu_expected")
    fake.series.append(Series("gpumon:gpu_expected_seconds", {}, 1.25 * WHOLE_S))


def down_and_missing(fake: FakePrometheus) -> None:
    down(fake)
    fake.missing = frozenset([*range(8), 20, 21])


def unscraped(fake: FakePrometheus) -> None:
    down(fake)
    fake.counters["(up["] = [({}, 3.0)]


def newly_loaded(fake: FakePrometheus) -> None:
    """Let the rules have recorded one tile of five minutes."""
    fake.counters["increase1h"] = []
    fake.missing = frozenset(range(287))


def of_unknown_cause(fake: FakePrometheus) -> None:
    """Let no run be tagged."""
    without(fake, "run", "user")
    fake.series = [
        one._replace(
            labels={**one.labels, **({"cause": "unknown"} if "cause" in one.labels else {})}
        )
        for one in fake.series
    ]


def in_many_runs(fake: FakePrometheus) -> None:
    """Let all losses to checkpoints be those of twelve runs."""
    lost_to(fake, checkpoint=0.12)
    record = "run_cause:gpumon_training_gpu_lost_seconds"
    fake.series += [
        Series(record, {"run": f"run-{n:02}", "cause": "checkpoint"}, 0.01 * WHOLE_S)
        for n in range(12)
    ]


def raw(fake: FakePrometheus) -> None:
    fake.series = []
    fake.counters["count (gpumon_gpu_observed_seconds_total)"] = [({}, 8.0)]
    fake.counters["last_over_time(gpumon_gpu_observed_seconds_total"] = [({}, 8.0)]
    fake.counters["sum by (cause)"] = [({"cause": "input_wait"}, 86_400.0)]
    fake.counters["increase(gpumon_gpu_observed_seconds_total"] = [({}, 4 * 86_400.0)]
    fake.counters["increase(gpumon_gpu_busy_seconds_total"] = [({}, 2 * 86_400.0)]
    fake.counters["sum (max without"] = [({}, 86_400.0)]


def newly_scraped(fake: FakePrometheus) -> None:
    raw(fake)
    fake.counters["increase(gpumon_gpu_observed_seconds_total"] = [({}, 30.0)]
    fake.counters["increase(gpumon_gpu_busy_seconds_total"] = [({}, 20.0)]
    fake.counters["sum by (cause)"] = [({"cause": "input_wait"}, 8.0)]
    fake.counters["sum (max without"] = [({}, 0.0)]


HEADS: dict[str, tuple[Callable[[FakePrometheus], object], str]] = {
    "few runs of known users": (with_owners, ""),
    "a cause of many runs": (lambda fake: lost_to(fake, checkpoint=0.1, input_wait=0.05), ""),
    "a cause of many named runs": (in_many_runs, ""),
    "no runs": (lambda fake: without(fake, "run", "user"), ""),
    "no known cause on known hosts": (of_unknown_cause, ""),
    "no known cause": (lambda fake: lost_to(fake, unknown=0.2), ""),
    "mainly no known cause": (lambda fake: lost_to(fake, unknown=0.2, compile=0.1), ""),
    "a cause of a newer daemon": (lambda fake: lost_to(fake, lunch=0.2), ""),
    "little lost": (lambda fake: lost_to(fake, input_wait=0.01), "--price 2"),
    "nothing lost": (lost_to, ""),
    "nothing in use": (
        lambda fake: without(fake, "cause:", "gpumon:gpu_busy", "run", "user", "host_cause"), ""
    ),
    "rules since half of the week": (
        lambda fake: setattr(fake, "missing", frozenset(range(84))), ""
    ),
    "missed evaluations": (lambda fake: setattr(fake, "missing", frozenset(range(9, 21))), ""),
    "hosts down": (down, ""),
    "both": (down_and_missing, ""),
    "unknown coverage": (lambda fake: without(fake, "gpumon:gpu_expected"), ""),
    "partial answers": (lambda fake: fake.warnings.append("store-3: connection refused"), ""),
    "another time of day": (
        lambda fake: setattr(fake, "date", formatdate(NOW_S + 400, usegmt=True)), ""
    ),
    "a renamed host": (
        lambda fake: fake.series.append(
            Series("host:gpumon_gpu_observed_seconds", {"host": "old"}, 60.0)
        ), "",
    ),
    "two sites": (
        lambda fake: fake.series.extend(
            [Series(one.record, {**one.labels, "site": "west"}, one.whole) for one in fake.series]
        ), "",
    ),
    "hosts that did not answer": (unscraped, ""),
    "new rules": (newly_loaded, ""),
    "newly scraped": (newly_scraped, "--since 1d"),
    "an unknown energy": (lambda fake: without(fake, "use:"), "--price-kwh 0.30"),
    "two daemons of one host": (
        lambda fake: fake.counters.update(
            {"count by (instance) (gpumon_build_info)": [({"host": "node-00"}, 2.0)]}
        ), "",
    ),
    "a day of raw counters": (raw, "--since 1d"),
    "raw counters unless more is asked for": (raw, ""),
}  # fmt: skip


@golden_story
def test_heads_of_fleet_reports(gpumon: Shell, fake: FakePrometheus) -> Chapters:
    texts = {}
    for title, (change, options) in HEADS.items():
        fake.reset(fleet())
        change(fake)
        ended = asked(gpumon, fake.address, options)
        assert not ended.err
        texts[title] = head(ended.out)
    return texts


def failed(status: int, reason: str) -> Reply:
    return Reply(json.dumps({"status": "error", "error": reason}).encode(), status)


REPLIES: dict[str, Reply] = {
    "credentials are missing": Reply(b"", 401),
    "it is broken": Reply(b"Internal Server Error", 500),
    "its query took too long": failed(503, "query timed out in expression evaluation"),
    "a login page": Reply(b"<!DOCTYPE html>", kind="text/html"),
    "nothing": Reply(b""),
    "other JSON": Reply(b'{"message": "hello"}'),
    "another form": Reply(b'{"status": "success", "data": {"result": 7}}'),
    "another path": Reply(b"404 page not found", 404),
    "another host": Reply(b"", 302, head={"Location": "https://sso.example/"}),
    "too much": Reply(b" " * (api.MAX_ANSWER_BYTES + 1)),
    "half of an answer": Reply(b"{", head={"Content-Length": "9", "Connection": "close"}),
    "NaN": Reply(b'{"status":"success","data":{"result":[{"metric":{},"value":[1,"NaN"]}]}}'),
}


@golden_story
def test_refusals_of_fleet_reports(
    gpumon: Shell, fake: FakePrometheus, monkeypatch: pytest.MonkeyPatch
) -> Chapters:
    ends = {}
    for title, reply in REPLIES.items():
        fake.reset(fleet())
        fake.misbehave = lambda query, reply=reply: reply  # type: ignore[misc]
        ends[title] = asked(gpumon, fake.address, "")
    fake.reset(fleet())
    ends["not there"] = asked(gpumon, f"http://127.0.0.1:{free_port()}", "")
    fake.reset([])
    ends["no figures"] = asked(gpumon, fake.address, "")
    raw(fake)
    ends["no rules, for a week"] = asked(gpumon, fake.address, "--since 7d")
    fake.reset(fleet())
    ends["a limit"] = asked(gpumon, fake.address, "--by cause --fail-if-lost-above 20")
    without(fake, "cause:", "gpumon:gpu_busy")
    ends["a limit and no GPU in use"] = asked(
        gpumon, fake.address, "--by cause --fail-if-lost-above 20"
    )
    for words in (
        "night.gpumon", "--compare a b", "--run train", "--fail-if-starved-above 5", "--html -",
        "--price free", "--http-config gone.yml",
    ):  # fmt: skip
        ends[words] = asked(gpumon, fake.address, words)
    for words in ("--price 2", "--by user", "--http-config prom.yml", *(
        f"--prometheus {address}"
        for address in ("prometheus:9090", "http://ann:secret@prometheus", "http://p/graph?g0=1")
    )):  # fmt: skip
        ends[f"gpumon report {words}"] = gpumon("report", *words.split())
    assert not any("secret" in ended.err for ended in ends.values())
    return {
        title: f"exit {ended.code}{', after a report' if ended.out else ''}\n"
        + ended.err.rpartition(": error: ")[2].partition("\nexample:")[0]
        for title, ended in ends.items()
    }
