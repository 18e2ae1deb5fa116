"""Queries to the HTTP API of a Prometheus server, bounded in bytes and time."""

from __future__ import annotations

import json
import math
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

from gpumon.core.wording import label_text
from gpumon.errors import PrometheusError, UsageError
from gpumon.sources.prometheus.http_config import OPTION, HttpAccess

PATIENCE_S: Final = 10.0
"""For one answer. The server gets a little less, so that it can answer why it stopped."""
_CONNECT_S: Final = 4.0
"""For each address that a name has."""
MAX_ANSWER_BYTES: Final = 4 << 20
"""Queries add up on the server, so answers have kilobytes; this is room for 10,000 rows."""
_MAX_WARNINGS: Final = 5
_MAX_SHOWN: Final = 300
_OK: Final = 200
_BAD_REQUEST: Final = 400
_UNKNOWN_CLIENT: Final = 401
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_NO_POST: Final = (405, 501)
_UNAVAILABLE: Final = 503
_DAEMON: Final = "gpumon"
"""What our own daemon names itself in its answers."""
_PLAIN_HTTP: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE",
                      "PACKET_LENGTH_TOO_LONG")  # fmt: skip
"""What versions of OpenSSL say of a server that does not speak TLS."""
_SPEAKS_TLS: Final = b"to an HTTPS server"
"""What Prometheus, or anything else in Go, says to a client that does not."""
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_LEAST: Final = -1.0
"""Seconds or joules: rules subtract floating-point numbers, so that a zero may be just below."""
_MOST: Final = 1e18


class ServerAnswer(NamedTuple):
    """An answer as it came.

    Attributes:
        status: Of HTTP.
        kind: Its content type.
        server: What the server names itself.
        body: At most ``MAX_ANSWER_BYTES``.
    """

    status: int
    kind: str
    server: str
    body: bytes


class Sample(NamedTuple):
    """One series of an answer.

    Attributes:
        points: Unix times and values: one of an instant, several of a span.
    """

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]

    @property
    def value(self) -> float:
        return self.points[-1][1]

    @property
    def total(self) -> float:
        """The sum of its points."""
        return sum(value for _, value in self.points)


def checked_address(text: str) -> str:
    """The address of a server, without what belongs elsewhere.

    Raises:
        UsageError: It is no http address, or has credentials in it.
    """
    try:
        parts = urlsplit(text)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port  # raises for a port that is none
    except ValueError:
        is_address = False
    if not is_address:
        shown = "" if "@" in text else f" {label_text(text, 100)!r}"
        raise UsageError(
            f"--prometheus{shown} is not the address of a server, such as http://prometheus:9090"
        )
    if "@" in parts.netloc:
        raise UsageError(
            "--prometheus: a password on the command line can be seen by all users: put it into "
            f"a file, and name that with {OPTION}"
        )
    if parts.query or parts.fragment:
        raise UsageError(
            "--prometheus needs the address of the server without a query, such as "
            f"{parts.scheme}://{label_text(parts.netloc, 100)}"
        )
    return text.rstrip("/")


class PrometheusApi:
    """A connection to one server.

    Attributes:
        address: As the user typed it, without credentials.
        server_time_s: The server's clock with its first answer, Unix time; ``None``: it has
            none, or nothing was asked yet.
        warnings: What the server says of its answers, such as that they are partial.
        queries: How many were answered.
    """

    def __init__(
        self, address: str, access: HttpAccess | None = None, *, patience_s: float = PATIENCE_S
    ) -> None:
        self.address = checked_address(address)
        self.server_time_s: float | None = None
        self.warnings: list[str] = []
        self.queries = 0
        self.on_answer: Callable[[int], object] = lambda count: None
        self._access = access or HttpAccess()
        self._patience_s = patience_s
        self._parts = urlsplit(self.address)
        self._connection: HTTPConnection | None = None

    @property
    def sends_secrets_openly(self) -> bool:
        """Whether the network can read the credentials."""
        is_local = self._parts.hostname in _LOCAL
        return self._access.authorization is not None and not is_local and not self._is_tls

    @property
    def _is_tls(self) -> bool:
        return self._parts.scheme == "https"

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ask(self, query: str, at_s: float | None = None) -> list[Sample]:
        """The result of a query: of numbers, each a time or an energy.

        Args:
            query: In PromQL.
            at_s: Unix time; ``None``: the server's present.

        Raises:
            PrometheusError: No answer, a refusal, or an answer that is no result of a query.
        """
        words = {"query": query, "timeout": f"{0.9 * self._patience_s:g}s"}
        if at_s is not None:
            words["time"] = f"{at_s:.3f}"
        document = self._document(self._fetch(urlencode(words)))
        try:
            self._keep_warnings(document)
            result = document["data"]["result"]
            samples = [_sample(row) for row in result]
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise self._stranger("its answer has another form") from error
        samples = [self._checked(sample, query) for sample in samples]
        self.queries += 1
        self.on_answer(self.queries)
        return samples

    # -- one exchange ------------------------------------------------------------

    def _fetch(self, words: str) -> ServerAnswer:
        """The answer to a query."""
        is_reused = self._connection is not None
        try:
            return self._exchange(words)
        except TimeoutError as error:
            self.close()
            raise PrometheusError(
                f"{self.address} gave no complete answer within {self._patience_s:g} s: if it is "
                "busy, ask for less, with --since"
            ) from error
        except (OSError, HTTPException, ValueError) as error:
            self.close()
            # A server may close a connection that it has kept for long.
            if is_reused and isinstance(error, ConnectionError | HTTPException):
                return self._fetch(words)
            if isinstance(error, ssl.SSLError) and error.reason in _PLAIN_HTTP:
                raise PrometheusError(
                    f"{self.address} speaks no TLS: begin the address with http://"
                ) from error
            raise PrometheusError(
                f"{self.address} does not answer ({label_text(_reason(error), _MAX_SHOWN)}): check "
                "the address, and that the server runs"
            ) from error

    def _exchange(self, words: str) -> ServerAnswer:
        # A socket's timeout is for one read, which a server that sends single bytes never exceeds:
        # so the connection is shut down at the deadline.
        deadline_s = time.monotonic() + self._patience_s
        connection = self._connection or self._new_connection()
        hang_up = threading.Timer(self._patience_s, _hang_up, [connection])
        hang_up.daemon = True
        hang_up.start()
        try:
            if self._connection is None:
                self._resolve(connection)
                connection.connect()
                connection.sock.settimeout(self._patience_s)
                self._connection = connection
            path = f"{self._parts.path}/api/v1/query"
            connection.request("POST", path, words, self._head())
            with connection.getresponse() as answer:
                body = answer.read(MAX_ANSWER_BYTES + 1)
                self._refuse_redirect(answer)
                if len(body) > MAX_ANSWER_BYTES:
                    raise self._stranger(f"its answer is longer than {MAX_ANSWER_BYTES >> 20} MiB")
                if answer.length:
                    raise ConnectionError("its answer breaks off")
                self._keep_time(answer)
                if answer.will_close:
                    self.close()
                kind, server = (answer.getheader(name) or "" for name in ("Content-Type", "Server"))
                return ServerAnswer(answer.status, kind, server, body)
        except (OSError, HTTPException) as error:
            if time.monotonic() >= deadline_s:  # the error comes from being shut down
                raise TimeoutError from error
            raise
        finally:
            hang_up.cancel()

    def _resolve(self, connection: HTTPConnection) -> None:
        """Resolve the name once, because a resolver cannot be interrupted.

        Raises:
            PrometheusError: It takes too long.
        """
        done = threading.Event()

        def look_up() -> None:
            with suppress(OSError):  # connecting fails in the same way
                socket.getaddrinfo(connection.host, connection.port)
            done.set()

        threading.Thread(target=look_up, daemon=True).start()
        if not done.wait(self._patience_s):
            raise PrometheusError(
                f"the name in {self.address} was not resolved within {self._patience_s:g} s: check "
                "the address, and DNS"
            )

    def _new_connection(self) -> HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        wait_s = min(_CONNECT_S, self._patience_s)
        if not self._is_tls:
            return HTTPConnection(host, port, timeout=wait_s)
        context = self._access.tls or ssl.create_default_context()
        connection = _TlsConnection(host, port, timeout=wait_s, context=context)
        connection.server_name = self._access.server_name
        return connection

    def _head(self) -> dict[str, str]:
        head = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
            "User-Agent": "gpumon",
        }
        if self._access.authorization is not None:
            head["Authorization"] = self._access.authorization
        return head

    def _refuse_redirect(self, answer: HTTPResponse) -> None:
        if answer.status in _REDIRECTS:
            where = label_text(answer.getheader("Location") or "nowhere", 200)
            raise PrometheusError(
                f"{self.address} redirects to {where}, which is not followed: if that is the "
                "server, name its address"
            )

    def _keep_time(self, answer: HTTPResponse) -> None:
        if self.server_time_s is None:
            with suppress(TypeError, ValueError, OverflowError):
                stamp = parsedate_to_datetime(answer.getheader("Date") or "")
                self.server_time_s = stamp.timestamp()

    # -- what came ---------------------------------------------------------------

    def _document(self, answer: ServerAnswer) -> Any:  # noqa: ANN401  (JSON)
        if answer.status in (_UNKNOWN_CLIENT, _FORBIDDEN):
            raise self._not_let_in(answer.status)
        try:
            document = json.loads(answer.body)
        except (ValueError, RecursionError) as error:
            raise self._without_json(answer) from error
        if not isinstance(document, dict) or document.get("status") not in ("success", "error"):
            raise self._without_json(answer)
        if answer.status != _OK or document["status"] == "error":
            reason = label_text(document.get("error") or "no reason given", _MAX_SHOWN)
            raise PrometheusError(
                f"{self.address} could not answer (status {answer.status}): {reason}"
            )
        return document

    def _not_let_in(self, status: int) -> PrometheusError:
        has_credentials = self._access.authorization is not None
        put_into_file = f"put them into a file, and name that with {OPTION}"
        if status == _FORBIDDEN:
            whose = f"the credentials of {self._access.path}" if has_credentials else "credentials"
            then = "if they are correct, they lack the permission to query"
            return PrometheusError(
                f"{self.address} permits no queries {'with' if has_credentials else 'without'} "
                f"{whose} (status {status}): {then if has_credentials else put_into_file}"
            )
        if has_credentials:
            return PrometheusError(
                f"{self.address} does not accept the credentials of {self._access.path} (status "
                f"{status}): correct them"
            )
        return PrometheusError(
            f"{self.address} wants credentials (status {status}): {put_into_file}"
        )

    def _without_json(self, answer: ServerAnswer) -> PrometheusError:
        status = answer.status
        if answer.server == _DAEMON:
            return PrometheusError(
                f"what answers at {self.address} is a daemon of gpumon: name the Prometheus server "
                "that scrapes it, such as http://prometheus:9090"
            )
        if status == _NOT_FOUND:
            return PrometheusError(
                f"{self.address} has no /api/v1/query (status 404): name the server with its path, "
                "if it has one"
            )
        if status == _BAD_REQUEST and _SPEAKS_TLS in answer.body:
            return PrometheusError(f"{self.address} speaks TLS: begin the address with https://")
        if status in _NO_POST:
            return self._stranger(f"it accepts no queries (status {status})")
        if status != _OK:
            advice = "check the address, and the log of the server"
            if status == _UNAVAILABLE:
                advice = "if it has just started, wait; otherwise check the address"
            return PrometheusError(f"{self.address} could not answer (status {status}): {advice}")
        if not answer.body.strip():
            return self._stranger("its answer is empty")
        if "html" in answer.kind or answer.body.lstrip()[:1] == b"<":
            return self._stranger("it answers with a web page")
        return self._stranger("its answer is not JSON of the HTTP API")

    def _stranger(self, why: str) -> PrometheusError:
        return PrometheusError(f"what answers at {self.address} is no Prometheus: {why}")

    def _keep_warnings(self, document: Mapping[str, Any]) -> None:
        for warning in document.get("warnings") or ():
            text = label_text(warning, _MAX_SHOWN)
            if text not in self.warnings and len(self.warnings) < _MAX_WARNINGS:
                self.warnings.append(text)

    def _checked(self, sample: Sample, query: str) -> Sample:
        """The sample, its values 0 or more."""
        for _, value in sample.points:
            if not math.isfinite(value) or not _LEAST <= value <= _MOST:
                raise PrometheusError(
                    f"{self.address} answers {value:g} where an amount is expected, to "
                    f"{label_text(query, 300)}"
                )
        return Sample(
            sample.labels, tuple((at_s, max(0.0, value)) for at_s, value in sample.points)
        )


class _TlsConnection(HTTPSConnection):
    """Checks the certificate for a name of its own, if one is given."""

    server_name: str | None = None

    def connect(self) -> None:
        HTTPConnection.connect(self)
        context: ssl.SSLContext = self._context  # type: ignore[attr-defined]
        # The handshake comes after, so that the deadline ends it, too.
        self.sock = context.wrap_socket(
            self.sock,
            server_hostname=self.server_name or self.host,
            do_handshake_on_connect=False,
        )
        self.sock.do_handshake()


def _hang_up(connection: HTTPConnection) -> None:
    with suppress(OSError, AttributeError):  # not connected yet, or closed meanwhile
        connection.sock.shutdown(socket.SHUT_RDWR)


def _sample(row: Mapping[str, Any]) -> Sample:
    labels = row["metric"]
    points = row["values"] if "values" in row else [row["value"]]
    pairs = tuple((float(at_s), float(value)) for at_s, value in points)
    if not pairs or not all(type(text) is str for text in (*labels, *labels.values())):
        raise ValueError("no series")
    return Sample(dict(labels), pairs)


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted ({error.verify_message})"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
