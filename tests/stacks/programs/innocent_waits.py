"""Waits that may be for input or not: the stack does not show it."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.stacks.programs.cycle import run_in_turn, turn


def work() -> None:
    time.sleep(0.1)


def train(results: queue.Queue[int]) -> None:
    while True:
        work()
        results.put(1)


def generate() -> Iterator[None]:
    while True:
        work()
        yield


RESULTS, REQUESTS, BATCHES = queue.Queue[int](1), queue.Queue[int](), generate()


def queue_of_one_thread() -> None:
    for _ in turn():
        RESULTS.get()


def result_of_a_thread() -> None:
    for _ in turn():
        THREADS.submit(work).result()


def generator() -> None:
    for _ in turn():
        next(BATCHES)


def queue_of_a_server() -> None:
    try:
        REQUESTS.get(timeout=0.35)
    except queue.Empty:
        return


if __name__ == "__main__":
    THREADS = ThreadPoolExecutor(1)
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Thread(target=train, args=(RESULTS,), daemon=True).start()
    run_in_turn(queue_of_one_thread, result_of_a_thread, generator, queue_of_a_server)
