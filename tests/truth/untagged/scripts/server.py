"""Answers each request of ``client.py`` in a thread, with the GPU."""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.truth.untagged import board


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        board.compute(0.4)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


board.does("requests")
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answers).serve_forever()
