"""The view of a running daemon: once, or each tick as it comes."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from gpumon.core.codecs.view_codec import decode_view
from gpumon.core.view.view import MonitorView
from gpumon.core.wording import label_text
from gpumon.errors import NoDaemonError, UsageError
from gpumon.sources.daemon import ask_daemon, daemon_url

_OK: Final = 200
_REFUSED: Final = (401, 403)
_NOTHING_YET: Final = 503
_MAX_EVENT_BYTES: Final = 16 << 20
_PATIENCE_S: Final = 10.0
_SILENT_PERIODS: Final = 2.5
_SILENT_S: Final = 2.0
"""A daemon without a tick for both, one after the other, no longer shows the present."""


class DaemonAddress(NamedTuple):
    """Where a daemon answers.

    Attributes:
        place: ``HOST:PORT``.
        token: The token of its ``--web-token-file``; empty: none.
    """

    place: str
    token: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """What each request has to carry."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


def fetch_view(address: DaemonAddress) -> MonitorView | None:
    """The newest view of a daemon; ``None`` before its first tick.

    Raises:
        NoDaemonError: It does not answer, refuses, is too old, or is no gpumon daemon.
    """
    url = f"{daemon_url(address.place)}/api/v1/view"
    status, body, document = ask_daemon(url, address.headers)
    if status == _NOTHING_YET and body.startswith(b"nothing yet"):
        return None
    if status in _REFUSED:
        raise NoDaemonError(_refusal(address))
    if status != _OK:
        raise NoDaemonError(f"the gpumon daemon does not answer at {url} (status {status})")
    return _decoded(document, address)


class ViewStream:
    """The views of a daemon, each as soon as it is there.

    Raises:
        NoDaemonError: It does not answer, or refuses.
    """

    def __init__(self, address: DaemonAddress) -> None:
        from http.client import HTTPConnection, HTTPException  # takes 15 ms to import

        self._address = address
        parts = urlsplit(daemon_url(address.place))
        self._connection = HTTPConnection(parts.netloc, timeout=_PATIENCE_S)
        try:
            self._connection.connect()
            self._socket = self._connection.sock  # which the connection forgets with its answer
            self._connection.request("GET", "/api/v1/stream", headers=address.headers)
            self._answer = self._connection.getresponse()
        except (OSError, ValueError, HTTPException) as error:
            self._connection.close()
            raise self._silent(str(error) or type(error).__name__) from error
        status = self._answer.status
        if status != _OK:
            self._answer.close()
            is_refused = status in _REFUSED
            raise (
                NoDaemonError(_refusal(address)) if is_refused else self._silent(f"status {status}")
            )

    def views(self) -> Iterator[MonitorView]:
        """Wait for each tick.

        Raises:
            NoDaemonError: The daemon has gone, is silent, or sends something else.
        """
        from http.client import HTTPException

        is_tick = False
        with closing(self._answer):
            try:
                while line := self._answer.readline(_MAX_EVENT_BYTES):
                    if line.startswith(b"event:"):
                        is_tick = line.strip() == b"event: tick"
                    elif line.startswith(b"data:") and is_tick:
                        view = self._view(line)
                        if view is not None:
                            self._wait_for(view.period_seconds)
                            yield view
            except (OSError, HTTPException) as error:
                reason = "it sends nothing" if isinstance(error, TimeoutError) else str(error)
                raise self._silent(reason or type(error).__name__) from error
        raise self._silent("it has ended")

    def close(self) -> None:
        """End the stream, from any thread; a reader that waits gets ``NoDaemonError``."""
        with suppress(OSError):  # it has ended
            self._socket.shutdown(socket.SHUT_RDWR)

    def _view(self, line: bytes) -> MonitorView | None:
        try:
            event = json.loads(line[len(b"data:") :])
            document = event["view"]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise NoDaemonError(
                f"the gpumon daemon at {self._address.place} sends no view: it is older than this "
                "gpumon; restart it"
            ) from error
        return None if document is None else _decoded(document, self._address)

    def _wait_for(self, period_s: float) -> None:
        self._socket.settimeout(_SILENT_PERIODS * max(period_s, 0.0) + _SILENT_S)

    def _silent(self, reason: str) -> NoDaemonError:
        return NoDaemonError(
            f"the gpumon daemon does not answer at {self._address.place} "
            f"({label_text(reason, 200)})"
        )


def _decoded(document: object, address: DaemonAddress) -> MonitorView:
    try:
        return decode_view(document)
    except UsageError as error:
        raise NoDaemonError(
            f"what answers at {address.place} is no gpumon daemon: {error}"
        ) from error


def _refusal(address: DaemonAddress) -> str:
    if address.token:
        return (
            f"the gpumon daemon at {address.place} does not accept the token of --token-file: "
            "name the file that it was given as --web-token-file"
        )
    return (
        f"the gpumon daemon at {address.place} shows its GPUs beyond loopback only with a token: "
        "start it with --web-token-file FILE, and name the file with --token-file"
    )
