"""Find a running daemon by its state file, and fetch reports from its web server."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

from gpumon.core.clock import NS_PER_S, Clock, seconds
from gpumon.core.ring_format.runtime_paths import (
    FILE_FLAGS,
    MAX_STATE_BYTES,
    RUNTIME_VARIABLE,
    STATE_FILE,
    explicit_folder,
    is_fresh,
    reader_patterns,
    stale_after_ns,
)
from gpumon.core.wording import in_time, label_text
from gpumon.errors import NoDaemonError, UsageError
from gpumon.sources.ring_reader.daemon_folder import folder_distrust, holder_of, matching_paths

if TYPE_CHECKING:
    from gpumon.core.report.lanes import ReportWithLanes
    from gpumon.core.report.report import Report

_START_ONE: Final = "start one with `gpumon serve`"
END_OR_WAIT: Final = "end it by its pid, or wait"
"""What to do about a daemon that does not answer."""
_MAX_REPORT_BYTES: Final = 16 << 20
_MAX_SENTENCE_BYTES: Final = 2_000
_OK: Final = 200
_NOT_FOUND: Final = 404
_NO_SUCH_PATH: Final = b"Nothing here"  # how a daemon answers for an unknown path
_ASKED_WRONGLY: Final = (400, _NOT_FOUND)  # such as an unknown run
_NOT_FOR_US: Final = (401, 403)
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_MAX_URL: Final = 200
_PATIENCE_S: Final = 10.0
_Decoded = TypeVar("_Decoded")


def find_state_file(
    environ: Mapping[str, str] = os.environ, *, now_ns: int | None = None
) -> Path | None:
    """The state file of a running daemon; ``None``: there is none."""
    now_ns = time.monotonic_ns() if now_ns is None else now_ns
    fresh = (folder for folder, state in _found_states(environ) if _is_fresh(state, now_ns))
    return next((folder / STATE_FILE for folder in fresh), None)


def _found_states(environ: Mapping[str, str]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """States in all folders that this user reads, however old, with their folders."""
    uid = os.geteuid()
    is_explicit = uid == 0 or explicit_folder(environ) is not None  # reads all users' folders
    for folder in matching_paths(reader_patterns(environ, uid)):
        try:
            is_believed = folder_distrust(folder, uid, explicit=is_explicit) is None
            state = _document(folder / STATE_FILE) if is_believed else None
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(state, dict):
            yield folder, state


def _document(path: Path) -> object:
    """Read a document without following a link or waiting for a writer."""
    with os.fdopen(os.open(path, FILE_FLAGS), "rb") as file:
        return json.loads(file.read(MAX_STATE_BYTES) or b"")  # a FIFO may have nothing yet


def _is_fresh(state: Mapping[str, Any], now_ns: int) -> bool:
    taken_ns, period_ns = state.get("monotonic_ns"), state.get("period_ns")
    if not isinstance(taken_ns, int) or not isinstance(period_ns, int):
        return False
    return is_fresh(taken_ns, period_ns, now_ns)


class SilentDaemon(NamedTuple):
    """A daemon that lives but has not updated its state in time."""

    pid: int
    silent_ns: int

    @property
    def description(self) -> str:
        since = in_time(round(seconds(self.silent_ns)) * NS_PER_S)
        return (
            f"the gpumon daemon (pid {self.pid}) has not updated its state for {since}: "
            "it is stopped or blocked"
        )


def find_silent_daemon(
    environ: Mapping[str, str] = os.environ, *, now_ns: int | None = None
) -> SilentDaemon | None:
    """A daemon with a stale state that still has its folder locked.

    Its pid alone proves nothing: another process may have it by now.
    """
    now_ns = time.monotonic_ns() if now_ns is None else now_ns
    for folder, state in _found_states(environ):
        pid, spoke_ns = state.get("pid"), state.get("monotonic_ns")
        if not isinstance(pid, int) or not isinstance(spoke_ns, int) or spoke_ns > now_ns:
            continue
        if not _is_fresh(state, now_ns) and pid == holder_of(folder):
            return SilentDaemon(pid, now_ns - spoke_ns)
    return None


def read_state(path: Path | None, clock: Clock, boot_id: str, searched: str = "") -> dict[str, Any]:
    """Read the state file of a running daemon; ``None``: there is none in ``searched``.

    A state of another boot of the machine is stale.

    Raises:
        NoDaemonError: The file is missing, unreadable or stale.
    """
    if path is None:
        where = f" (looked for {STATE_FILE} in {searched})" if searched else ""
        raise NoDaemonError(
            f"no gpumon daemon is running here{where}: {_START_ONE}, or if one runs elsewhere, "
            f"name its folder in ${RUNTIME_VARIABLE}"
        )
    try:
        state: Any = _document(path)
        stamp_ns, period_ns = int(state["monotonic_ns"]), int(state["period_ns"])
        same_boot = state["boot_id"] == boot_id
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise NoDaemonError(f"{path} cannot be read ({error}): {_START_ONE}") from error
    age_ns = clock.monotonic_ns() - stamp_ns
    if not same_boot or age_ns > stale_after_ns(period_ns):
        age = f"{seconds(age_ns):,.0f} s ago" if same_boot else "before the last reboot"
        raise NoDaemonError(
            f"the gpumon daemon has stopped: its last state is from {age}; {_START_ONE}"
        )
    return dict(state)


def fetch_report(
    state: dict[str, Any], since_s: float | None = None, run: str | None = None
) -> Report:
    """Fetch the report of a daemon, of the last ``since_s`` or of one run if given.

    Raises:
        UsageError: There is no such run, or the time is invalid; says what is possible.
        NoDaemonError: It serves no page, does not answer, or is no gpumon daemon.
    """
    from gpumon.core.codecs.report_codec import decode_report  # `gpumon top` needs no report

    return _fetched(state, "report", since_s, run, decode_report)


def fetch_report_with_lanes(
    state: dict[str, Any], since_s: float | None = None, run: str | None = None
) -> ReportWithLanes:
    """Fetch a report with lanes.

    Raises:
        UsageError: As ``fetch_report``.
        NoDaemonError: As ``fetch_report``, or the daemon is too old for lanes.
    """
    from gpumon.core.codecs.report_codec import decode_report_with_lanes

    return _fetched(state, "report/lanes", since_s, run, decode_report_with_lanes)


def _fetched(
    state: dict[str, Any],
    what: str,
    since_s: float | None,
    run: str | None,
    decoded: Callable[[object], _Decoded],
) -> _Decoded:
    address = state.get("address")
    if not isinstance(address, str) or not address:
        raise NoDaemonError("the gpumon daemon serves no report: start it with --listen")
    query = ""
    if run is not None:
        query = f"?run={quote(run.encode('utf-8', 'surrogateescape'), safe='')}"
    elif since_s is not None:
        query = f"?since={since_s:g}"
    url = f"{daemon_url(address)}/api/v1/{what}{query}"
    status, body, document = ask_daemon(url)
    if status != _OK:
        if status in _ASKED_WRONGLY and (run is not None or since_s is not None):
            text = body[:_MAX_SENTENCE_BYTES].decode("utf-8", "replace")
            raise UsageError(label_text(text.strip(), _MAX_SENTENCE_BYTES))
        raise NoDaemonError(_refusal(status, url))
    try:
        return decoded(document)
    except UsageError as error:
        raise NoDaemonError(f"what answers at {url} is no gpumon daemon: {error}") from error


def daemon_url(address: str) -> str:
    """The URL of a daemon at ``HOST:PORT``, or of one that named its URL itself."""
    return (address if "://" in address else f"http://{address}").rstrip("/")


def ask_daemon(
    url: str, headers: Mapping[str, str] = MappingProxyType({})
) -> tuple[int, bytes, object]:
    """Ask a daemon for a document.

    Returns:
        The status, the body, and the document in it; ``None`` unless the status is 200.

    Raises:
        NoDaemonError: There is no complete answer, or the daemon is too old for this URL.
    """
    try:
        status, body = answer_of(
            url, patience_s=_PATIENCE_S, max_bytes=_MAX_REPORT_BYTES + 1, headers=headers
        )
        if len(body) > _MAX_REPORT_BYTES:
            raise ValueError(f"it sends more than {_MAX_REPORT_BYTES >> 20} MiB")
        document = json.loads(body) if status == _OK else None
    except (OSError, ValueError, RecursionError) as error:
        reason = str(error) or type(error).__name__
        raise NoDaemonError(
            f"the gpumon daemon does not answer at {url} ({reason}): if it has ended, {_START_ONE}"
        ) from error
    if status == _NOT_FOUND and body.startswith(_NO_SUCH_PATH):
        raise NoDaemonError(
            f"the gpumon daemon is older than this gpumon, and does not know {url}: restart it"
        )
    return status, body, document


def answer_of(
    url: str,
    *,
    patience_s: float,
    max_bytes: int,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> tuple[int, bytes]:
    """Fetch a URL; return status and body.

    No proxy is used, whatever ``$http_proxy`` is, and no redirect is followed.

    Raises:
        OSError: No answer, not in HTTP, not complete within ``patience_s``, or a redirect.
        ValueError: It is no http address.
    """
    from http.client import HTTPConnection, HTTPException  # seldom needed

    parts = urlsplit(url)
    if parts.scheme != "http":
        raise ValueError("not an http address")
    found: tuple[int, bytes] | None = None
    deadline_s = time.monotonic() + patience_s
    try:
        with closing(HTTPConnection(parts.netloc, timeout=patience_s)) as connection:
            connection.connect()
            # A socket's timeout is for one read, which a server that sends single bytes never
            # exceeds: so the connection is shut down at the deadline.
            hang_up = threading.Timer(deadline_s - time.monotonic(), _shut_down, [connection.sock])
            hang_up.daemon = True
            hang_up.start()
            try:
                path = urlunsplit(("", "", parts.path, parts.query, ""))
                connection.request("GET", path, headers=dict(headers))
                with connection.getresponse() as answer:
                    if answer.status in _REDIRECTS:
                        where = label_text(answer.getheader("Location") or "nowhere", _MAX_URL)
                        raise OSError(f"it redirects to {where}, which gpumon does not follow")
                    found = answer.status, answer.read(max_bytes)
            finally:
                hang_up.cancel()
    except TimeoutError:
        found = None
    except OSError:
        if time.monotonic() < deadline_s:  # else it comes from being shut down
            raise
    except HTTPException as error:
        if time.monotonic() < deadline_s:
            raise OSError(str(error) or type(error).__name__) from error
    if found is None or time.monotonic() >= deadline_s:
        raise TimeoutError(f"no complete answer within {patience_s:g} s")
    return found


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):  # closed meanwhile
        connection.shutdown(socket.SHUT_RDWR)


def _refusal(status: int, url: str) -> str:
    if status in _NOT_FOR_US:
        return (
            f"the gpumon daemon gives no report at {url}, which is not loopback: start it with "
            "--listen 127.0.0.1:19835 as well"
        )
    return f"the gpumon daemon does not answer at {url} (status {status})"
