"""Waits for the work of threads and processes."""

from __future__ import annotations

import multiprocessing
import queue
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

from tests.stacks.programs.cycle import run_in_turn, turn


def load(number: int = 0) -> int:
    time.sleep(0.1)
    return number


def fill(batches: Any) -> None:
    while True:
        batches.put(load())


def send(connection: Any) -> None:
    while True:
        connection.send(load())


FORK = multiprocessing.get_context("fork")
OF_PROCESS, OF_THREADS = FORK.Queue(1), queue.Queue[int](1)
HERE, THERE = FORK.Pipe()


def queue_of_a_process() -> None:
    for _ in turn():
        OF_PROCESS.get()


def pipe_of_a_process() -> None:
    for _ in turn():
        HERE.recv()


def imap_of_a_pool() -> None:
    for _ in turn():
        list(POOL.imap(load, range(2)))


def map_of_a_pool() -> None:
    for _ in turn():
        POOL.map(load, range(2))


def map_of_an_executor() -> None:
    for _ in turn():
        list(THREADS.map(load, range(2)))


def result_of_a_process() -> None:
    for _ in turn():
        PROCESSES.submit(load).result()


def queue_of_two_threads() -> None:
    for _ in turn():
        OF_THREADS.get()


if __name__ == "__main__":
    FORK.Process(target=fill, args=(OF_PROCESS,), daemon=True).start()
    FORK.Process(target=send, args=(THERE,), daemon=True).start()
    POOL = FORK.Pool(2)
    PROCESSES = ProcessPoolExecutor(1, FORK)
    PROCESSES.submit(load).result()
    THREADS = ThreadPoolExecutor(2)
    for _ in range(2):
        threading.Thread(target=fill, args=(OF_THREADS,), daemon=True).start()
    run_in_turn(
        queue_of_a_process, pipe_of_a_process, imap_of_a_pool, map_of_a_pool, map_of_an_executor,
        result_of_a_process, queue_of_two_threads,
    )  # fmt: skip
