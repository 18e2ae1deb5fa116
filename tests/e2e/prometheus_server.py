"""A real Prometheus on loopback, for as long as one test module."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.processes import ending
from tests.serving import free_port
from tests.waiting import PATIENCE_S, until

Sample = dict[str, Any]


def fetched(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        body: bytes = answer.read()
        return body


def wait_until(what: str, is_so: Any, *, seconds: float) -> None:
    """Repeat until it is true, whatever errors the question raises until then."""

    def holds() -> bool:
        with suppress(OSError, ValueError, KeyError):
            return bool(is_so())
        return False

    assert until(holds, seconds, every_s=0.1), f"waited {seconds:.0f} s in vain until {what}"


class Prometheus:
    """A client of the HTTP API."""

    def __init__(self, address: str) -> None:
        self.address = address

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def is_ready(self) -> bool:
        return b"Ready" in fetched(f"http://{self.address}/-/ready")

    def own_metrics(self) -> str:
        """What the server exports of itself."""
        return fetched(f"http://{self.address}/metrics").decode()

    def ask(self, path: str, **words: str) -> Any:
        """Return the ``data`` of an answer.

        Raises:
            AssertionError: Prometheus refused; its reason is the message.
        """
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(words)}"
        try:
            answer = json.loads(fetched(url))
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from error
        assert answer["status"] == "success", answer
        return answer["data"]

    def body(self, path: str, **words: object) -> bytes:
        """An answer as it comes over the wire."""
        return fetched(f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(words)}")

    def now(self, expr: str, **words: str) -> list[Sample]:
        """The value now, or at the given ``time``."""
        samples: list[Sample] = self.ask("query", query=expr, **words)["result"]
        return samples

    def over_time(
        self, expr: str, *, seconds: int, step: int, end: float | None = None
    ) -> list[Sample]:
        """Values each ``step`` seconds, until now or the given ``end``."""
        end = time.time() if end is None else end
        series: list[Sample] = self.ask(
            "query_range", query=expr, start=str(end - seconds), end=str(end), step=str(step)
        )["result"]
        return series

    def value(self, expr: str, **words: str) -> float:
        (sample,) = self.now(expr, **words)
        return float(sample["value"][1])

    def alerts(self, name: str = "Gpumon.*", *, over: str = "1h") -> list[dict[str, str]]:
        """Labels of every alert that was pending or firing at any time over the last hour."""
        expr = f'last_over_time(ALERTS{{alertname=~"{name}"}}[{over}])'
        return [one["metric"] for one in self.now(expr)]

    def troubles_of_rules(self) -> dict[str, str]:
        """Why rules could not be evaluated, by their names; ``unknown`` where they were not yet.

        Without those that are evaluated once an hour.
        """
        groups = [one for one in self.ask("rules")["groups"] if one["interval"] < 3600]
        rules = [one for group in groups for one in group["rules"]]
        return {
            one["name"]: one.get("lastError") or one["health"]
            for one in rules
            if one["health"] != "ok"
        }


@contextmanager
def running_prometheus(
    binary: str,
    folder: Path,
    scrape_jobs: list[dict[str, Any]],
    *,
    rules: tuple[Path, ...] = (),
    evaluation_interval: str = "1m",
    flags: tuple[str, ...] = (),
) -> Iterator[Prometheus]:
    """A Prometheus with these jobs (JSON is YAML) and rules, for as long as the block.

    Blocks that are in ``folder / "tsdb"`` belong to it.
    """
    document = {
        "global": {"evaluation_interval": evaluation_interval},
        "rule_files": [str(path) for path in rules],
        "scrape_configs": scrape_jobs,
    }
    with started_prometheus(binary, folder, document, *flags) as server:
        yield server


@contextmanager
def started_prometheus(
    binary: str, folder: Path, document: dict[str, Any], *flags: str, address: str | None = None
) -> Iterator[Prometheus]:
    """A Prometheus with this configuration and these flags, for as long as the block.

    Args:
        binary: Its path.
        folder: Of its configuration, log and data; a second one with it continues the first.
        document: Configuration.
        flags: With ``--storage.agent.path`` it gets no ``--storage.tsdb.path``.
        address: Default: a free port on loopback.
    """
    config = folder / "prometheus.yml"
    config.write_text(json.dumps(document), encoding="utf-8")
    address = address or f"127.0.0.1:{free_port()}"
    is_agent = any(flag.startswith("--storage.agent.path") for flag in flags)
    data = (
        f"--storage.tsdb.path={folder / 'tsdb'}",
        "--storage.tsdb.retention.time=100y",  # blocks of scripts are old
    )
    command = [
        binary,
        f"--config.file={config}",
        f"--web.listen-address={address}",
        *(() if is_agent else data),
        *flags,
    ]
    with (folder / "prometheus.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        with ending(process):
            server = Prometheus(address)
            wait_until("Prometheus is ready", server.is_ready, seconds=30)
            yield server
