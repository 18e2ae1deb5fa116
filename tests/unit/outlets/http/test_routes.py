"""Which client gets which answer: read-only, and mostly local."""

from __future__ import annotations

import base64
import os

import pytest

from gpumon.core.clock import LONGEST_LOOK_BACK_S
from gpumon.core.codecs.stack_codec import Viewer
from gpumon.errors import UsageError
from gpumon.outlets.http import clients
from gpumon.outlets.http.clients import Client, WebToken, client_of
from gpumon.outlets.http.live_state import LiveState
from gpumon.outlets.http.request import Request
from gpumon.outlets.http.routes import ReportReader, ReportScope, Response, Routes
from gpumon.outlets.metrics.prometheus import MetricsExporter
from tests.builders.state import StoppedClock
from tests.serving import new_views, no_report

TOKEN = "correct-horse-battery-staple"
ONLY_HERE = client_of("127.0.0.1", "127.0.0.1")
HERE = client_of("127.0.0.1", "0.0.0.0")
FROM_ELSEWHERE = client_of("10.1.2.3", "0.0.0.0")
REST = ["/", "/page.js", "/api/v1/state", "/api/v1/report", "/api/v1/report/lanes",
        "/api/v1/history", "/api/v1/stream"]  # fmt: skip
OPEN = ["/metrics", "/-/healthy", "/-/ready"]


def routes(report: ReportReader = no_report, token: WebToken | None = None) -> Routes:
    clock = StoppedClock()
    exporter = MetricsExporter(clock=clock, version="0")
    return Routes(live=LiveState(clock, new_views()), exporter=exporter, report=report, token=token)


def asking(path: str, host: str | None = None, query: str = "", **fields: str) -> Request:
    return Request("GET", path, query, host, fields)


def status(client: Client, path: str, host: str | None) -> int | None:
    refused = routes().refusal(asking(path, host), client)
    return None if refused is None else refused.status


class TestWhoComesFromLoopback:
    @pytest.mark.parametrize("client", [ONLY_HERE, HERE], ids=["to-loopback", "to-every-address"])
    @pytest.mark.parametrize(
        "host",
        [None, "localhost:19835", "127.0.0.1", "127.0.0.1:8080", "[::1]:19835", "[::1]", "::1",
         "LOCALHOST", "a.localhost"],
    )  # fmt: skip
    def test_is_served_everything_under_a_local_name(
        self, host: str | None, client: Client
    ) -> None:
        assert [status(client, path, host) for path in (*OPEN, *REST)] == [None] * 10

    @pytest.mark.parametrize("client", [ONLY_HERE, HERE], ids=["to-loopback", "to-every-address"])
    @pytest.mark.parametrize(
        "host",
        ["evil.example", "evil.example:19835", "127.0.0.1.evil.example", "localhost.evil.example",
         "10.0.0.7", "[2001:db8::1]:80", "127.evil.0.1", "0.0.0.0:19835", ""],
    )  # fmt: skip
    def test_is_refused_under_a_name_that_was_made_to_point_here(
        self, host: str, client: Client
    ) -> None:
        assert [status(client, path, host) for path in REST] == [403] * 7

    @pytest.mark.parametrize("path", OPEN)
    def test_scrapes_under_any_name_only_if_other_machines_can_reach_it(self, path: str) -> None:
        assert status(ONLY_HERE, path, "evil.example") == 403
        assert status(HERE, path, "gpu-node-7:19835") is None


class TestWhoComesFromBeyond:
    @pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "gpu-node-7:19835", None])
    def test_gets_metrics_and_health_and_nothing_else(self, host: str | None) -> None:
        assert [status(FROM_ELSEWHERE, path, host) for path in OPEN] == [None] * 3
        assert [status(FROM_ELSEWHERE, path, host) for path in REST] == [403] * 7


class TestWhoMaySeeWholePaths:
    def viewer(
        self, client: Client, uid: int | None, authorization: str = "", **fields: str
    ) -> Viewer:
        ends = ("127.0.0.1", 50_000), ("127.0.0.1", 19_835)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(clients, "peer_user", lambda peer, own: uid)
            one = routes(token=WebToken(TOKEN.encode()))
            request = asking("/api/v1/state", authorization=authorization, **fields)
            return one.viewer(request, client._replace(ends=ends))

    def test_the_user_of_the_daemon_and_who_shows_the_token_see_all(self) -> None:
        assert self.viewer(HERE, os.geteuid()).is_trusted
        assert self.viewer(HERE, None, f"Bearer {TOKEN}").is_trusted
        assert self.viewer(FROM_ELSEWHERE, None, f"Bearer {TOKEN}").is_trusted

    @pytest.mark.parametrize("field", ["forwarded", "via", "x-forwarded-for", "x-real-ip"])
    def test_who_comes_through_a_proxy_sees_them_with_the_token_alone(self, field: str) -> None:
        through = {field: "192.0.2.7"}

        assert self.viewer(HERE, os.geteuid(), **through) == Viewer()
        assert self.viewer(HERE, os.geteuid(), f"Bearer {TOKEN}", **through).is_trusted

    def test_others_see_at_most_their_own(self) -> None:
        other = os.geteuid() + 1

        assert self.viewer(HERE, other) == Viewer(other)
        assert self.viewer(HERE, None) == Viewer()
        assert self.viewer(HERE, other, "Bearer wrong-wrong-wrong-wrong") == Viewer(other)
        assert self.viewer(FROM_ELSEWHERE, os.geteuid()) == Viewer()


class TestTheToken:
    def asked(self, authorization: str, client: Client = FROM_ELSEWHERE) -> Response | None:
        request = asking("/api/v1/state", "gpu-node-7", authorization=authorization)
        return routes(token=WebToken(TOKEN.encode())).refusal(request, client)

    @pytest.mark.parametrize("user", ["", "a b"])
    def test_as_a_password_of_any_user_or_as_bearer_opens_everything(self, user: str) -> None:
        shown = base64.b64encode(f"{user}:{TOKEN}".encode()).decode()

        assert self.asked(f"Basic {shown}") is None
        assert self.asked(f"basic  {shown}") is None
        assert self.asked(f"Bearer {TOKEN}") is None

    @pytest.mark.parametrize(
        "authorization",
        [
            "",
            "Basic",
            "Basic !!!",
            "Basic " + base64.b64encode(TOKEN.encode()).decode(),
            "Basic " + base64.b64encode(b"user:" + TOKEN.encode()[:-1]).decode(),
            f"Bearer {TOKEN}x",
            f"Digest {TOKEN}",
            TOKEN,
            "Bearer \xff\u20ac",
        ],
    )
    def test_is_required_where_it_is_wrong_or_missing(self, authorization: str) -> None:
        refused = self.asked(authorization)

        assert refused is not None
        assert refused.status == 401
        assert dict(refused.headers)["WWW-Authenticate"].startswith('Basic realm="gpumon"')

    def test_does_not_help_a_page_in_a_browser_of_this_machine(self) -> None:
        refused = self.asked(f"Bearer {TOKEN}", HERE)

        assert refused is not None
        assert refused.status == 403


class TestAPeer:
    @pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
    def test_on_loopback_is_local(self, host: str) -> None:
        assert client_of(host, "::").is_local

    @pytest.mark.parametrize("host", ["10.0.0.1", "::ffff:10.0.0.1", "fe80::1%eth0", "::7f00:1"])
    def test_elsewhere_is_not(self, host: str) -> None:
        assert not client_of(host, "::").is_local

    def test_is_one_address_or_one_network_of_ipv6(self) -> None:
        def key(host: str) -> str:
            return client_of(host, "::").key

        assert key("10.0.0.1") == key("::ffff:10.0.0.1") != key("10.0.0.2")
        assert key("2001:db8::1") == key("2001:db8::ffff:1") != key("2001:db8:0:1::1")


class TestPaths:
    @pytest.mark.parametrize(
        "path",
        ["/../errors.py", "/web/page.js", "//metrics", "/metrics/", "/%6detrics", "/%2e%2e/x",
         "/%00", "*", ""],
    )  # fmt: skip
    def test_that_are_not_on_the_list_do_not_exist(self, path: str) -> None:
        assert routes().answer(asking(path), HERE).status == 404


class TestAReport:
    def asked(self, query: str, path: str = "/api/v1/report") -> tuple[Response, list[ReportScope]]:
        """The answer, and what the report was asked for."""
        scopes: list[ReportScope] = []

        def report(scope: ReportScope) -> dict[str, object]:
            scopes.append(scope)
            if scope.run == "missing":
                raise UsageError("no run is called 'missing' here; the runs here: train")
            return {}

        return routes(report).answer(asking(path, query=query), HERE), scopes

    def test_may_come_with_its_lanes(self) -> None:
        answer, scopes = self.asked("run=train", "/api/v1/report/lanes")

        assert (answer.status, scopes) == (200, [ReportScope(run="train", has_lanes=True)])

    @pytest.mark.parametrize(
        ("query", "scope"),
        [
            ("", ReportScope()),
            ("since=90", ReportScope(since_s=90.0)),
            ("since=3.6e+06", ReportScope(since_s=3.6e6)),
            (f"since={LONGEST_LOOK_BACK_S:.0f}", ReportScope(since_s=LONGEST_LOOK_BACK_S)),
            ("run=train-r0", ReportScope(run="train-r0")),
            ("run=" + "x" * 512, ReportScope(run="x" * 512)),
            ("run=a%20b%26c%2F%C3%A9", ReportScope(run="a b&c/é")),
        ],
    )
    def test_may_be_of_all_of_the_last_while_or_of_one_run(
        self, query: str, scope: ReportScope
    ) -> None:
        answer, scopes = self.asked(query)

        assert (answer.status, scopes) == (200, [scope])

    @pytest.mark.parametrize(
        "text",
        ["1e308", "1e9", "nan", "inf", "-inf", "-1", "0", "-0", "1e-300", "", " 1", "lunch", "0x10",
         "9" * 5000, "1_0", "%31", "\u0663"],
    )  # fmt: skip
    def test_of_an_impossible_while_is_refused_naming_what_is_allowed(self, text: str) -> None:
        answer, scopes = self.asked(f"since={text}")

        assert (answer.status, scopes) == (400, [])
        assert answer.body.decode().startswith(f"since={text[:20]}")
        assert len(answer.body) < 200

    @pytest.mark.parametrize(
        "query",
        [
            "run=",
            "runs=x",
            "run=" + "x" * 513,
            "run=" + "%41" * 513,
            "run=a%00b",
            "run=a%0d%0ab",
            "since=1&since=2",
            "since=1&run=x",
            "run=x&run=x",
            "&",
            "=",
            "since",
            "lunch=1",
            "%73ince=1",
        ],
    )
    def test_of_anything_else_is_refused(self, query: str) -> None:
        answer, scopes = self.asked(query)

        assert (answer.status, scopes) == (400, [])
        assert answer.body.decode().isprintable() or answer.body.endswith(b".\n")
        assert len(answer.body) < 300

    def test_of_a_run_that_is_none_is_not_found(self) -> None:
        assert self.asked("run=missing")[0].status == 404
