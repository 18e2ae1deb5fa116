"""A running daemon: found by the state that it renews, and asked over its own web server."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

from gpumon.core.clock import NS_PER_S, Clock, seconds
from gpumon.core.codecs.report_codec import decode_report, decode_report_with_lanes
from gpumon.core.report.lanes import ReportWithLanes
from gpumon.core.report.report import Report
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
from gpumon.sources.ring_reader.daemon_folder import folder_distrust, holder_of
from gpumon.sources.ring_reader.ring_folder import matching_paths

_START_ONE: Final = "start one with `gpumon serve`"
END_OR_WAIT: Final = "end it by its pid, or wait"
"""What to do about a daemon that is silent."""
_MAX_REPORT_BYTES: Final = 16 << 20
_MAX_SENTENCE_BYTES: Final = 2_000
_OK: Final = 200
_NOT_FOUND: Final = 404
_NO_SUCH_PATH: Final = b"Nothing here"  # what a daemon begins with where it knows no such address
_ASKED_WRONGLY: Final = (400, _NOT_FOUND)  # such as a run that is none
_NOT_FOR_US: Final = (401, 403)
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_MAX_URL: Final = 200
_PATIENCE_S: Final = 10.0
_Told = TypeVar("_Told")


def find_state_file(
    environ: Mapping[str, str] = os.environ, *, now_ns: int | None = None
) -> Path | None:
    """The state file of a daemon that runs now; ``None`` where none does."""
    now_ns = time.monotonic_ns() if now_ns is None else now_ns
    fresh = (folder for folder, state in _found_states(environ) if _is_fresh(state, now_ns))
    return next((folder / STATE_FILE for folder in fresh), None)


def _found_states(environ: Mapping[str, str]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Each state in a reader's folders, however old, with its folder."""
    uid = os.geteuid()
    is_explicit = uid == 0 or explicit_folder(environ) is not None  # who reads everybody's
    for folder in matching_paths(reader_patterns(environ, uid)):
        try:
            is_believed = folder_distrust(folder, uid, explicit=is_explicit) is None
            state = _document(folder / STATE_FILE) if is_believed else None
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(state, dict):
            yield folder, state


def _document(path: Path) -> object:
    """What is written there, without following a link or waiting for a writer."""
    with os.fdopen(os.open(path, FILE_FLAGS), "rb") as file:
        return json.loads(file.read(MAX_STATE_BYTES) or b"")  # a FIFO may have nothing yet


def _is_fresh(state: Mapping[str, Any], now_ns: int) -> bool:
    """Whether a daemon wrote the state so lately that it runs."""
    taken_ns, period_ns = state.get("monotonic_ns"), state.get("period_ns")
    if not isinstance(taken_ns, int) or not isinstance(period_ns, int):
        return False
    return is_fresh(taken_ns, period_ns, now_ns)


class SilentDaemon(NamedTuple):
    """A daemon that lives and has not spoken for so long."""

    pid: int
    silent_ns: int

    @property
    def claim(self) -> str:
        """What is known of it, as the beginning of a sentence."""
        since = in_time(round(seconds(self.silent_ns)) * NS_PER_S)
        return (
            f"the gpumon daemon (pid {self.pid}) has not spoken for {since}: it is stopped or "
            "held up"
        )


def find_silent_daemon(
    environ: Mapping[str, str] = os.environ, *, now_ns: int | None = None
) -> SilentDaemon | None:
    """A daemon that still holds the folder in which its last state lies, a stale one.

    Its pid alone says nothing: another process may have it by now.
    """
    now_ns = time.monotonic_ns() if now_ns is None else now_ns
    for folder, state in _found_states(environ):
        pid, spoke_ns = state.get("pid"), state.get("monotonic_ns")
        if not isinstance(pid, int) or not isinstance(spoke_ns, int) or spoke_ns > now_ns:
            continue
        if not _is_fresh(state, now_ns) and pid == holder_of(folder):
            return SilentDaemon(pid, now_ns - spoke_ns)
    return None


def read_state(
    path: Path | None, clock: Clock, boot_id: str, looked_in: str = ""
) -> dict[str, Any]:
    """The state file of a daemon that is alive; ``None``: there is none in ``looked_in``.

    A stamp of another boot than the kernel's present one means nothing.

    Raises:
        NoDaemonError: No file, an unreadable one, or one that nobody renews any more.
    """
    if path is None:
        where = f" (looked for {STATE_FILE} in {looked_in})" if looked_in else ""
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
        age = f"{seconds(age_ns):,.0f} s ago" if same_boot else "before this machine was rebooted"
        raise NoDaemonError(f"the gpumon daemon has stopped: it last spoke {age}; {_START_ONE}")
    return dict(state)


def fetch_report(
    state: dict[str, Any], since_s: float | None = None, run: str | None = None
) -> Report:
    """What the daemon behind a state file reports now.

    Args:
        state: The state file's document.
        since_s: Of the last so many seconds only; ``None``: since it began.
        run: Of the run with this label only, instead.

    Raises:
        UsageError: There is no such run, or no such length of time; says what there is.
        NoDaemonError: It serves no page, does not answer, or answers something else.
    """
    return _asked(state, "report", since_s, run, decode_report)


def fetch_report_with_lanes(
    state: dict[str, Any], since_s: float | None = None, run: str | None = None
) -> ReportWithLanes:
    """The same, with what happened when.

    Raises:
        UsageError: As ``fetch_report``.
        NoDaemonError: As ``fetch_report``, or the daemon is too old to tell.
    """
    return _asked(state, "report/lanes", since_s, run, decode_report_with_lanes)


def _asked(
    state: dict[str, Any],
    what: str,
    since_s: float | None,
    run: str | None,
    decoded: Callable[[object], _Told],
) -> _Told:
    address = state.get("address")
    if not isinstance(address, str) or not address:
        raise NoDaemonError("the gpumon daemon serves no report: start it with --listen")
    base = address if "://" in address else f"http://{address}"
    url = f"{base.rstrip('/')}/api/v1/{what}"
    if run is not None:
        url += f"?run={quote(run.encode('utf-8', 'surrogateescape'), safe='')}"
    elif since_s is not None:
        url += f"?since={since_s:g}"
    try:
        status, body = answer_of(url, patience_s=_PATIENCE_S, most_bytes=_MAX_REPORT_BYTES + 1)
        if len(body) > _MAX_REPORT_BYTES:
            raise ValueError(f"it sends more than {_MAX_REPORT_BYTES >> 20} MiB")
        document = json.loads(body) if status == _OK else None
    except (OSError, ValueError) as error:
        reason = str(error) or type(error).__name__
        raise NoDaemonError(f"the gpumon daemon does not answer at {url} ({reason})") from error
    if status != _OK:
        if status == _NOT_FOUND and body.startswith(_NO_SUCH_PATH):
            raise NoDaemonError(
                f"the gpumon daemon is older than this gpumon, and tells nothing at {url}: "
                "start it anew"
            )
        if status in _ASKED_WRONGLY and (run is not None or since_s is not None):
            told = body[:_MAX_SENTENCE_BYTES].decode("utf-8", "replace")
            raise UsageError(label_text(told.strip(), _MAX_SENTENCE_BYTES))
        raise NoDaemonError(_refusal(status, url))
    try:
        return decoded(document)
    except UsageError as error:
        raise NoDaemonError(f"what answers at {url} is no gpumon daemon: {error}") from error


def answer_of(url: str, *, patience_s: float, most_bytes: int) -> tuple[int, bytes]:
    """The status and the body of what answers there, on this machine.

    No proxy is asked, whatever ``$http_proxy`` says, and no redirect is followed.

    Args:
        url: An http address.
        patience_s: How long the whole answer may take.
        most_bytes: What is beyond is not read.

    Raises:
        OSError: Nobody answers, or not in HTTP, or not in time, or with a redirect.
        ValueError: It is no http address.
    """
    from http.client import HTTPConnection, HTTPException  # most of the time nobody is asked

    parts = urlsplit(url)
    if parts.scheme != "http":
        raise ValueError("not an http address")
    try:
        connection = HTTPConnection(parts.netloc, timeout=patience_s)
    except HTTPException as error:
        raise OSError(str(error)) from error
    answers: list[tuple[int, bytes] | Exception] = []
    sockets: list[socket.socket] = []

    def ask() -> None:
        try:
            connection.connect()
            sockets.append(connection.sock)
            connection.request("GET", urlunsplit(("", "", parts.path, parts.query, "")))
            with connection.getresponse() as answer:
                if answer.status in _REDIRECTS:
                    where = label_text(answer.getheader("Location") or "nowhere", _MAX_URL)
                    raise OSError(f"it redirects to {where}, which gpumon does not follow")
                answers.append((answer.status, answer.read(most_bytes)))
        except HTTPException as error:
            answers.append(OSError(str(error) or type(error).__name__))
        except (OSError, ValueError) as error:
            answers.append(error)
        finally:
            connection.close()

    # The timeout of a socket is that of one read: whoever sends a byte at a time never meets it.
    asking = threading.Thread(target=ask, name="gpumon-ask", daemon=True)
    asking.start()
    asking.join(patience_s)
    if not answers or isinstance(answers[0], TimeoutError):  # of a single read
        for opened in sockets:
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)  # the thread reads no more, and ends
        raise TimeoutError(f"no complete answer within {patience_s:g} s")
    (answer,) = answers
    if isinstance(answer, Exception):
        raise answer
    return answer


def _refusal(status: int, url: str) -> str:
    if status in _NOT_FOR_US:
        return (
            f"the gpumon daemon gives no report at {url}, which is not loopback: start it with "
            "--listen 127.0.0.1:19835 as well"
        )
    return f"the gpumon daemon does not answer at {url} (status {status})"
