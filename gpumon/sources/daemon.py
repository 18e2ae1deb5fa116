"""The report of a running daemon, asked over its own web server."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from gpumon.core.clock import NS_PER_S, Clock, seconds
from gpumon.core.documents.report_codec import decode_report
from gpumon.core.report.report import Report
from gpumon.core.ring.runtime_paths import RUNTIME_VARIABLE, STATE_FILE
from gpumon.core.wording import in_time, label_text
from gpumon.errors import NoDaemonError, UsageError
from gpumon.sources.rings.runtime_dir import found_states, holder_of, is_fresh

_START_ONE: Final = "start one with `gpumon serve`"
END_OR_WAIT: Final = "end it by its pid, or wait"
"""What to do about a daemon that is silent."""
_MAX_STATE_BYTES: Final = 4 << 20
_MAX_REPORT_BYTES: Final = 16 << 20
_MAX_SENTENCE_BYTES: Final = 2_000
_ASKED_WRONGLY: Final = (400, 404)  # such as a run that is none
_NOT_FOR_US: Final = (401, 403)
_PATIENCE_S: Final = 5.0
_STALE_PERIODS: Final = 3
_STALE_NS: Final = 3 * NS_PER_S


class SilentDaemon(NamedTuple):
    """A daemon that lives and does not speak.

    Attributes:
        pid: Of its process.
        silent_ns: How long it has not spoken.
    """

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
    environ: Mapping[str, str] | None = None,
    uid: int | None = None,
    *,
    now_ns: int | None = None,
) -> SilentDaemon | None:
    """A daemon that still holds the folder in which its last state lies, a stale one.

    Its pid alone says nothing: another process may have it by now.

    Args:
        environ: Environment variables; this process' own by default.
        uid: Who asks; the effective user by default.
        now_ns: CLOCK_MONOTONIC; now by default.
    """
    now_ns = time.monotonic_ns() if now_ns is None else now_ns
    for folder, state in found_states(environ, uid):
        pid, spoke_ns = state.get("pid"), state.get("monotonic_ns")
        if not isinstance(pid, int) or not isinstance(spoke_ns, int) or spoke_ns > now_ns:
            continue
        if not is_fresh(state, now_ns) and pid == holder_of(folder):
            return SilentDaemon(pid, now_ns - spoke_ns)
    return None


def read_state(
    path: Path | None, clock: Clock, boot_id: str, looked_in: str = ""
) -> dict[str, Any]:
    """The state file of a daemon that is alive.

    Args:
        path: Where it is; ``None``: there is none.
        clock: The clock its stamp is held against.
        boot_id: The kernel's present boot id: stamps of another boot mean nothing.
        looked_in: The folders in which there is none, for the sentence.

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
        with path.open("rb") as stream:
            state = json.loads(stream.read(_MAX_STATE_BYTES))
        stamp_ns, period_ns = int(state["monotonic_ns"]), int(state["period_ns"])
        same_boot = state["boot_id"] == boot_id
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise NoDaemonError(f"{path} cannot be read ({error}): {_START_ONE}") from error
    age_ns = clock.monotonic_ns() - stamp_ns
    if not same_boot or age_ns > max(_STALE_PERIODS * period_ns, _STALE_NS):
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
    address = state.get("address")
    if not isinstance(address, str) or not address:
        raise NoDaemonError("the gpumon daemon serves no report: start it with --listen")
    base = address if "://" in address else f"http://{address}"
    url = f"{base.rstrip('/')}/api/v1/report"
    if run is not None:
        url += f"?run={quote(run.encode('utf-8', 'surrogateescape'), safe='')}"
    elif since_s is not None:
        url += f"?since={since_s:g}"
    try:
        document = json.loads(_body(url))
    except urllib.error.HTTPError as error:
        asked_for_some = run is not None or since_s is not None
        raise _refusal(error, url, asked_for_some=asked_for_some) from error
    except (OSError, HTTPException, ValueError) as error:
        raise NoDaemonError(
            f"the gpumon daemon does not answer at {url} ({_reason(error)})"
        ) from error
    try:
        return decode_report(document)
    except UsageError as error:
        raise NoDaemonError(f"what answers at {url} is no gpumon daemon: {error}") from error


def _body(url: str) -> bytes:
    if not url.startswith(("http://", "https://")):
        raise ValueError("not an http address")
    # No proxy: the daemon is on this machine, whatever $http_proxy says.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=_PATIENCE_S) as answer:
        body: bytes = answer.read(_MAX_REPORT_BYTES)
    return body


def _refusal(
    error: urllib.error.HTTPError, url: str, *, asked_for_some: bool
) -> UsageError | NoDaemonError:
    with error:  # it holds the connection
        if asked_for_some and error.code in _ASKED_WRONGLY:
            return UsageError(_sentence(error))
    if error.code in _NOT_FOR_US:
        return NoDaemonError(
            f"the gpumon daemon gives no report at {url}, which is not loopback: start it with "
            "--listen 127.0.0.1:19835 as well"
        )
    return NoDaemonError(f"the gpumon daemon does not answer at {url} (status {error.code})")


def _sentence(error: urllib.error.HTTPError) -> str:
    text = error.read(_MAX_SENTENCE_BYTES).decode("utf-8", "replace")
    return label_text(text.strip(), _MAX_SENTENCE_BYTES)


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.URLError):
        return str(error.reason)
    return str(error) or type(error).__name__
