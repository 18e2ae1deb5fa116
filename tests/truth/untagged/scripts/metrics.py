"""Sends its metrics every 4 steps, and waits for the answer of ``metrics_server.py``."""

from __future__ import annotations

import contextlib
import json
import sys
import urllib.request

from tests.truth.untagged import board


def send_metrics(port: str, step: int) -> None:
    body = json.dumps({"step": step, "loss": [1 / step] * 1000}).encode()
    with contextlib.suppress(OSError):  # the server has not begun yet
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", body, timeout=10).read()


def main(port: str) -> None:
    for step in range(1, 1_000_000):
        board.does("step")
        board.compute(0.2)
        if step % 4 == 0:
            board.does("send_metrics")
            send_metrics(port, step)


main(sys.argv[1])
