"""Specification of who is served, and what: read-only, local, and nothing else."""

from __future__ import annotations

import pytest

from gpumon.errors import UsageError
from gpumon.outlets.http_routes import ReportScope, Routes, host_name, is_loopback
from gpumon.outlets.live_state import LiveState
from gpumon.outlets.prometheus import MetricsExporter
from tests.builders_state import StoppedClock


def routes(bound_host: str = "127.0.0.1") -> Routes:
    clock = StoppedClock()
    return Routes(
        live=LiveState(clock),
        exporter=MetricsExporter(clock=clock, version="0"),
        report=None,
        bound_host=bound_host,
    )


def status(bound_host: str, path: str, *hosts: str) -> int | None:
    refused = routes(bound_host).refusal(path, list(hosts))
    return None if refused is None else refused.status


class TestOnLoopback:
    @pytest.mark.parametrize(
        "host",
        [
            "localhost:19835",
            "127.0.0.1",
            "127.0.0.1:8080",
            "[::1]:19835",
            "LOCALHOST",
            "a.localhost",
        ],
    )
    def test_a_local_name_is_served_at_any_port(self, host: str) -> None:
        assert status("127.0.0.1", "/", host) is None

    @pytest.mark.parametrize(
        "host",
        ["evil.example", "evil.example:19835", "127.0.0.1.evil.example", "localhost.evil.example",
         "10.0.0.7", "[2001:db8::1]:80", "127.evil.0.1", "0.0.0.0:19835", ""],
    )  # fmt: skip
    @pytest.mark.parametrize("path", ["/", "/metrics", "/api/v1/state", "/api/v1/stream"])
    def test_a_name_that_was_made_to_point_here_is_refused(self, host: str, path: str) -> None:
        assert status("127.0.0.1", path, host) == 403

    def test_a_second_host_header_does_not_help(self) -> None:
        assert status("127.0.0.1", "/", "localhost", "evil.example") == 403

    def test_a_probe_without_a_host_header_is_served(self) -> None:
        assert status("127.0.0.1", "/-/healthy") is None


class TestBeyondLoopback:
    @pytest.mark.parametrize("path", ["/metrics", "/-/healthy", "/-/ready"])
    def test_metrics_and_health_are_served_under_any_name(self, path: str) -> None:
        assert status("0.0.0.0", path, "gpu-node-7:19835") is None

    @pytest.mark.parametrize(
        "path",
        ["/", "/page.js", "/api/v1/state", "/api/v1/report", "/api/v1/history", "/api/v1/stream"],
    )
    def test_everything_else_is_refused_even_under_a_local_name(self, path: str) -> None:
        assert status("0.0.0.0", path, "localhost") == 403
        assert status("10.1.2.3", path, "127.0.0.1") == 403


class TestNames:
    @pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost", "LocalHost."])
    def test_that_can_only_mean_this_machine(self, host: str) -> None:
        assert is_loopback(host)

    @pytest.mark.parametrize(
        "host", ["0.0.0.0", "::", "10.0.0.1", "127.0.0.1.example", "local", ""]
    )
    def test_that_may_mean_another(self, host: str) -> None:
        assert not is_loopback(host)

    def test_lose_their_port(self) -> None:
        assert [host_name(header) for header in ("a:1", "[::1]:2", "[::1]", "::1", "a")] == [
            "a", "::1", "::1", "::1", "a",
        ]  # fmt: skip


class TestPaths:
    @pytest.mark.parametrize(
        "path", ["/../errors.py", "/web/page.js", "//metrics", "/metrics/", "/%2e%2e/x", "*", ""]
    )
    def test_that_are_not_on_the_list_do_not_exist(self, path: str) -> None:
        assert routes().answer(path, None).status == 404


class TestAReport:
    def asked(self, query: str) -> tuple[int, list[ReportScope]]:
        """Status, and what the report was asked for."""
        scopes: list[ReportScope] = []

        def report(scope: ReportScope) -> dict[str, object]:
            scopes.append(scope)
            if scope.run == "nobody":
                raise UsageError("no run is called 'nobody' here: there are train")
            return {}

        clock = StoppedClock()
        exporter = MetricsExporter(clock=clock, version="0")
        there = Routes(live=LiveState(clock), exporter=exporter, report=report, bound_host="::1")
        return there.answer("/api/v1/report", None, query).status, scopes

    @pytest.mark.parametrize(
        ("query", "scope"),
        [
            ("", ReportScope()),
            ("since=90", ReportScope(since_s=90.0)),
            ("run=train-r0", ReportScope(run="train-r0")),
            ("run=a%20b%26c%2F%C3%A9", ReportScope(run="a b&c/é")),
        ],
    )
    def test_may_be_of_all_of_the_last_while_or_of_one_run(
        self, query: str, scope: ReportScope
    ) -> None:
        assert self.asked(query) == (200, [scope])

    @pytest.mark.parametrize(
        "query", ["run=", "runs=x", "since=-1", "since=nan", "run=" + "x" * 3000]
    )
    def test_of_anything_else_is_refused(self, query: str) -> None:
        assert self.asked(query) == (400, [])

    def test_of_a_run_that_is_none_is_not_found(self) -> None:
        assert self.asked("run=nobody")[0] == 404
