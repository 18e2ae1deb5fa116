"""Collects the requests of ``client.py`` in a queue; a thread writes a line now and then."""

from __future__ import annotations

import queue
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.truth.untagged import board

Request = tuple[bytes, threading.Event]
REQUESTS: queue.Queue[Request] = queue.Queue()


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        done = threading.Event()
        REQUESTS.put((self.path.encode(), done))
        done.wait()
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def report_health() -> None:
    while True:
        time.sleep(5)
        print(REQUESTS.qsize(), "requests wait", flush=True)


def main(port: str) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", int(port)), Answers)
    for work in (server.serve_forever, report_health):
        threading.Thread(target=work, daemon=True).start()
    board.does("requests")
    while True:
        _, done = REQUESTS.get()
        board.compute(0.4)
        done.set()


main(sys.argv[1])
