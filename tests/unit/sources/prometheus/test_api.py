"""Tests of queries over HTTP: each server that is of no use ends in one sentence, soon."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpumon.errors import PrometheusError, UsageError
from gpumon.sources.prometheus.api import MAX_ANSWER_BYTES, PrometheusApi, checked_address
from gpumon.sources.prometheus.http_config import HttpAccess
from tests import fake_prometheus
from tests.fake_prometheus import FakePrometheus, Reply
from tests.needs import needed
from tests.serving import free_port
from tests.waiting import PATIENCE_S


@pytest.fixture
def fake() -> Iterator[FakePrometheus]:
    with fake_prometheus.running(FakePrometheus()) as fake:
        yield fake


def document(result: Any, **more: Any) -> bytes:
    data = {"resultType": "vector", "result": result}
    return json.dumps({"status": "success", "data": data, **more}).encode()


def instant(value: Any) -> bytes:
    return document([{"metric": {}, "value": [1, value]}])


def error_of(fake: FakePrometheus, reply: Reply | None = None, **settings: Any) -> str:
    """The sentence that the answer ends with."""
    fake.misbehave = lambda query: reply
    api = PrometheusApi(fake.address, **settings)
    with pytest.raises(PrometheusError) as caught:
        api.ask("up")
    api.close()
    return str(caught.value)


class TestAnAnswer:
    def test_has_labels_and_values(self, fake: FakePrometheus) -> None:
        rows = [{"metric": {"run": "a"}, "value": [7, "1.5"]}]
        fake.misbehave = lambda query: Reply(document(rows))

        (sample,) = PrometheusApi(fake.address).ask("up")

        assert (sample.labels, sample.value) == ({"run": "a"}, 1.5)

    def test_just_below_zero_is_zero(self, fake: FakePrometheus) -> None:
        fake.misbehave = lambda query: Reply(instant("-1e-9"))

        assert PrometheusApi(fake.address).ask("up")[0].value == 0.0

    def test_on_a_connection_that_the_server_closed_is_asked_for_again(
        self, fake: FakePrometheus
    ) -> None:
        fake.misbehave = lambda query: Reply(instant("1"), head={"Connection": "close"})
        api = PrometheusApi(fake.address)

        assert [api.ask("up")[0].value, api.ask("up")[0].value] == [1.0, 1.0]

    def test_keeps_what_the_server_warns_of(self, fake: FakePrometheus) -> None:
        fake.misbehave = lambda query: Reply(document([], warnings=["store 3 is\nmissing"] * 9))
        api = PrometheusApi(fake.address)
        api.ask("up")

        assert api.warnings == ["store 3 is\N{REPLACEMENT CHARACTER}missing"]

    @pytest.mark.parametrize("date", ["", "yesterday", None])
    def test_may_have_no_date(self, fake: FakePrometheus, date: str | None) -> None:
        fake.date = date
        api = PrometheusApi(fake.address)
        api.ask("vector(1)")

        assert api.server_time_s is None


class TestAServer:
    def test_that_is_not_there(self) -> None:
        address = f"http://127.0.0.1:{free_port()}"
        with pytest.raises(PrometheusError, match=r"does not answer \(Connection refused\): check"):
            PrometheusApi(address).ask("up")

    def test_without_a_name(self) -> None:
        with pytest.raises(PrometheusError, match="does not answer"):
            PrometheusApi("http://no-such-host.invalid").ask("up")

    def test_whose_name_is_not_resolved(self, monkeypatch: pytest.MonkeyPatch) -> None:
        waiting = threading.Event()
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: waiting.wait(PATIENCE_S))

        with pytest.raises(PrometheusError, match=r"was not resolved within 0\.1 s: check"):
            PrometheusApi("http://prometheus", patience_s=0.1).ask("up")
        waiting.set()

    def test_that_says_nothing(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = f"http://127.0.0.1:{listener.getsockname()[1]}"
            with pytest.raises(PrometheusError, match=r"no complete answer within 0\.2 s: if"):
                PrometheusApi(address, patience_s=0.2).ask("up")

    def test_that_answers_for_ever(self, fake: FakePrometheus) -> None:
        fake.delay_s = 0.02

        assert "gave no complete answer within 0.3 s" in error_of(fake, patience_s=0.3)

    def test_whose_answer_breaks_off(self, fake: FakePrometheus) -> None:
        short = Reply(instant("1"), head={"Content-Length": "900", "Connection": "close"})

        assert "does not answer (its answer breaks off)" in error_of(fake, short)

    def test_that_sends_too_much(self, fake: FakePrometheus) -> None:
        assert "is longer than 4 MiB" in error_of(fake, Reply(b" " * (MAX_ANSWER_BYTES + 1)))

    def test_that_wants_credentials(self, fake: FakePrometheus) -> None:
        assert "wants credentials" in error_of(fake, Reply(b"", 401))
        access = HttpAccess(path="prom.yml", authorization="Bearer x")
        sentence = error_of(fake, Reply(b"", 401), access=access)
        assert "does not accept the credentials of prom.yml" in sentence

    def test_that_permits_no_queries(self, fake: FakePrometheus) -> None:
        access = HttpAccess(path="prom.yml", authorization="Bearer x")

        assert "without credentials (status 403): put them" in error_of(fake, Reply(b"", 403))
        assert "with the credentials of prom.yml (status 403): if they" in error_of(
            fake, Reply(b"", 403), access=access
        )

    def test_that_fails(self, fake: FakePrometheus) -> None:
        body = json.dumps({"status": "error", "error": "query timed out\n"}).encode()

        assert error_of(fake, Reply(body, 503)).endswith(
            "could not answer (status 503): query timed out\N{REPLACEMENT CHARACTER}"
        )
        assert error_of(fake, Reply(body)).endswith("timed out\N{REPLACEMENT CHARACTER}")
        assert error_of(fake, Reply(b"oops", 500)).endswith(
            "could not answer (status 500): check the address, and the log of the server"
        )
        assert "(status 503): if it has just started, wait" in error_of(fake, Reply(b"", 503))

    def test_that_is_another_one(self, fake: FakePrometheus) -> None:
        page = Reply(b"<!DOCTYPE html><title>Grafana</title>", kind="text/html; charset=utf-8")

        assert error_of(fake, page).endswith("is no Prometheus: it answers with a web page")
        assert error_of(fake, Reply(b"nothing", 404)).endswith("with its path, if it has one")

    @pytest.mark.parametrize("status", [405, 501])
    def test_that_takes_no_queries(self, fake: FakePrometheus, status: int) -> None:
        sentence = error_of(fake, Reply(b"no POST", status))

        assert sentence.endswith(f"is no Prometheus: it accepts no queries (status {status})")

    def test_that_is_a_daemon_of_gpumon(self, fake: FakePrometheus) -> None:
        sentence = error_of(fake, Reply(b"", 405, head={"Server": "gpumon"}))

        assert sentence.endswith(
            "is a daemon of gpumon: name the Prometheus server that scrapes it, "
            "such as http://prometheus:9090"
        )

    def test_that_speaks_tls_is_asked_by_https(self, fake: FakePrometheus) -> None:
        reply = Reply(b"Client sent an HTTP request to an HTTPS server.\n", 400)

        assert error_of(fake, reply).endswith("speaks TLS: begin the address with https://")

    def test_that_speaks_no_tls_is_asked_by_http(self, fake: FakePrometheus) -> None:
        address = fake.address.replace("http:", "https:")
        with pytest.raises(PrometheusError, match="speaks no TLS: begin the address with http://"):
            PrometheusApi(address).ask("up")

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"\n",
            b"{",
            b"[" * 100_000,
            b"\xff\xfe",
            b"7",
            b"{}",
            b'{"status": "success"}',
            b'{"status": "success", "data": []}',
            document("up"),
            document([7]),
            document([{"metric": {}}]),
            document([{"metric": {}, "value": [1]}]),
            document([{"metric": {}, "values": []}]),
            document([{"metric": {"a": 1}, "value": [1, "1"]}]),
            document([{"metric": [], "value": [1, "many"]}]),
            document([{"metric": {}, "histogram": [1, {}]}]),
        ],
        ids=lambda body: body[:40].decode(errors="replace"),
    )
    def test_that_does_not_speak_the_api(self, fake: FakePrometheus, body: bytes) -> None:
        assert "is no Prometheus: its answer" in error_of(fake, Reply(body))

    @pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-3600", "1e300"])
    def test_whose_values_are_no_amounts(self, fake: FakePrometheus, value: str) -> None:
        assert "where an amount is expected, to up" in error_of(fake, Reply(instant(value)))

    @pytest.mark.parametrize("status", [301, 302, 307, 308])
    def test_that_redirects_never_learns_where_else_to_ask(
        self, fake: FakePrometheus, status: int
    ) -> None:
        elsewhere = Reply(b"", status, head={"Location": "http://evil.example/\x1b"})

        sentence = error_of(fake, elsewhere)

        assert "redirects to http://evil.example/" in sentence
        assert sentence.isprintable()
        assert len(fake.queries) == 1


class TestAnAddress:
    @pytest.mark.parametrize(
        ("address", "reason"),
        [
            ("prometheus:9090", "is not the address of a server"),
            ("ftp://prometheus", "is not the address of a server"),
            ("http://", "is not the address of a server"),
            ("http://prometheus:port", "is not the address of a server"),
            ("http://[::1", "is not the address of a server"),
            ("http://ann:secret@prometheus", "a password on the command line"),
            ("http://ann@prometheus", "a password on the command line"),
            ("http://prometheus/graph?g0.expr=up", "without a query"),
        ],
    )
    def test_is_refused_without_its_password(self, address: str, reason: str) -> None:
        with pytest.raises(UsageError, match=reason) as caught:
            checked_address(address)

        assert "secret" not in str(caught.value)

    def test_may_have_a_path(self, fake: FakePrometheus) -> None:
        PrometheusApi(f"{fake.address}/prometheus/").ask("vector(1)")

        assert fake.paths == ["/prometheus/api/v1/query"]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    subprocess.run(
        [
            needed("openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            "-subj", "/CN=prometheus.example",
            "-addext", "subjectAltName=DNS:prometheus.example",
            "-keyout", str(path), "-out", str(path.with_suffix(".crt")),
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    return path


@pytest.mark.parametrize(
    ("address", "authorization", "is_open"),
    [
        ("http://prometheus", "Bearer x", True),
        ("http://prometheus", None, False),
        ("https://prometheus", "Bearer x", False),
        ("http://localhost:9090", "Bearer x", False),
        ("http://[::1]:9090", "Bearer x", False),
    ],
)
def test_secrets_are_open_without_tls_beyond_this_machine(
    address: str, authorization: str | None, is_open: bool
) -> None:
    access = HttpAccess(authorization=authorization)

    assert PrometheusApi(address, access).sends_secrets_openly == is_open


class TestTls:
    """A server with a certificate for prometheus.example, signed by itself."""

    @pytest.fixture
    def address(self, fake: FakePrometheus, certificate: Path) -> str:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.with_suffix(".crt"), certificate)
        fake.serve_with(context)
        return fake.address.replace("http:", "https:")

    def test_is_refused_with_an_unknown_certificate(self, address: str) -> None:
        with pytest.raises(PrometheusError, match="certificate is not accepted"):
            PrometheusApi(address).ask("vector(1)")

    def test_accepts_the_certificate_for_its_name_only(
        self, address: str, certificate: Path
    ) -> None:
        tls = ssl.create_default_context(cafile=certificate.with_suffix(".crt"))

        api = PrometheusApi(address, HttpAccess(tls=tls, server_name="prometheus.example"))
        assert api.ask("vector(1)")[0].value == 1.0
        api.close()
        with pytest.raises(PrometheusError, match="certificate is not accepted"):
            PrometheusApi(address, HttpAccess(tls=tls)).ask("vector(1)")
