"""Clients that never complete their request, and the time of a scrape meanwhile."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from tests.waiting import PATIENCE_S

BEGUN = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
_RENEWED_EVERY_S = 1.5
"""The server closes a half-open connection after 2 s."""


def _parts(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


@contextmanager
def half_open_clients(address: str, count: int) -> Iterator[None]:
    """Keep ``count`` connections half-open, each renewed before the server closes it."""
    done = threading.Event()
    held: deque[socket.socket] = deque()

    def begin() -> None:
        client = socket.create_connection(_parts(address), timeout=PATIENCE_S)
        client.sendall(BEGUN)
        held.append(client)

    def renew() -> None:
        # One after the other: all at once would delay a scrape from this process.
        while not done.wait(_RENEWED_EVERY_S / count):
            begin()
            held.popleft().close()

    for _ in range(count):
        begin()
    renewing = threading.Thread(target=renew)
    if count:
        renewing.start()
    try:
        yield
    finally:
        done.set()
        if count:
            renewing.join()
        for client in held:
            client.close()


def scrape_times(address: str, count: int) -> list[float]:
    """Seconds of each scrape, the shortest first."""
    times_s = []
    for _ in range(count):
        began_s = time.perf_counter()
        client = http.client.HTTPConnection(*_parts(address), timeout=PATIENCE_S)
        try:
            client.request("GET", "/metrics")
            answer = client.getresponse()
            body = answer.read()
        finally:
            client.close()
        times_s.append(time.perf_counter() - began_s)
        assert (answer.status, body[:1]) == (200, b"#"), answer.status
    return sorted(times_s)


def quantile(times_s: list[float], share: float) -> float:
    """Of sorted times."""
    return times_s[min(len(times_s) - 1, int(share * len(times_s)))]
