"""Tests of reading the view of a daemon, once and tick by tick."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gpumon.core.view.view import MonitorView
from gpumon.errors import NoDaemonError
from gpumon.outlets.http.clients import WebToken
from gpumon.sources.daemon_view import DaemonAddress, ViewStream, fetch_view
from tests.builders.state import monitor_state
from tests.builders.time import s
from tests.serving import answering, serving

TOKEN = "0123456789abcdef0123"


@contextmanager
def streaming(body: bytes) -> Iterator[ViewStream]:
    with answering(body) as address:
        yield ViewStream(DaemonAddress(address))


class TestTheNewestView:
    def test_is_that_of_the_daemon(self) -> None:
        with serving(monitor_state()) as server:
            view = fetch_view(DaemonAddress(server.address))

        assert view is not None
        assert view.gpus

    def test_is_none_before_the_first_tick(self) -> None:
        with serving() as server:
            assert fetch_view(DaemonAddress(server.address)) is None

    @pytest.mark.parametrize(
        ("body", "status", "why"),
        [
            (b"Nothing here: try /\n", 404, "is older than this gpumon"),
            (b"{}", 200, "is no gpumon daemon"),
            (b'{"schema": "gpumon.view/1"}', 200, "lacks the field"),
            (b"<html>", 200, "does not answer"),
            (b"[" * 100_000, 200, "does not answer"),
            (b"no", 500, "status 500"),
            (b"no", 403, "only with a token"),
            (b"no", 401, "only with a token"),
        ],
    )
    def test_is_refused_in_a_sentence(self, body: bytes, status: int, why: str) -> None:
        with answering(body, status) as address, pytest.raises(NoDaemonError, match=why):
            fetch_view(DaemonAddress(address))

    def test_needs_the_token_that_the_daemon_was_given(self) -> None:
        with answering(b"no", 401) as address, pytest.raises(NoDaemonError, match="not accept"):
            fetch_view(DaemonAddress(address, TOKEN))

    def test_sends_the_token(self) -> None:
        headers = DaemonAddress("x:1", TOKEN).headers

        assert WebToken(TOKEN.encode()).is_shown(headers["Authorization"])


class TestTheStream:
    def test_has_each_tick(self) -> None:
        found: list[MonitorView] = []
        with serving(monitor_state()) as server:
            stream = ViewStream(DaemonAddress(server.address))
            for view in stream.views():
                found.append(view)
                if len(found) == 3:
                    break
                server.publish(monitor_state(taken_at_ns=s(2000 + len(found))))

        assert len({view.monotonic_seconds for view in found}) == 3

    def test_ends_with_a_sentence_when_the_daemon_does(self) -> None:
        with serving(monitor_state()) as server:
            views = ViewStream(DaemonAddress(server.address)).views()
            next(views)
            server.close()
            with pytest.raises(NoDaemonError, match="does not answer"):
                list(views)

    def test_ends_when_it_is_closed_by_another_thread(self) -> None:
        with serving(monitor_state()) as server:
            stream = ViewStream(DaemonAddress(server.address))
            views = stream.views()
            next(views)
            threading.Timer(0.1, stream.close).start()
            with pytest.raises(NoDaemonError):
                list(views)

    def test_of_a_daemon_that_is_silent_ends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gpumon.sources.daemon_view._SILENT_S", 0.1)
        monkeypatch.setattr("gpumon.sources.daemon_view._SILENT_PERIODS", 0.0)
        with serving(monitor_state()) as server:
            views = ViewStream(DaemonAddress(server.address)).views()
            next(views)
            with pytest.raises(NoDaemonError, match="it sends nothing"):
                list(views)

    @pytest.mark.parametrize("data", [b'{"state": {}}', b"[]", b"7", b"{", b"[" * 100_000])
    def test_without_views_is_of_an_older_daemon(self, data: bytes) -> None:
        with (
            streaming(b"event: tick\nid: 1\ndata: " + data + b"\n\n") as stream,
            pytest.raises(NoDaemonError, match="is older than this gpumon"),
        ):
            list(stream.views())

    def test_of_something_else_is_refused(self) -> None:
        with (
            streaming(b'event: tick\ndata: {"view": {"schema": "x"}}\n\n') as stream,
            pytest.raises(NoDaemonError, match="is no gpumon daemon"),
        ):
            list(stream.views())

    def test_is_not_of_a_server_that_is_gone(self) -> None:
        with answering(b"") as address:
            pass
        with pytest.raises(NoDaemonError, match="does not answer"):
            ViewStream(DaemonAddress(address))

    @pytest.mark.parametrize("status", [401, 503])
    def test_is_refused_in_a_sentence(self, status: int) -> None:
        with answering(b"no", status) as address, pytest.raises(NoDaemonError):
            ViewStream(DaemonAddress(address))
