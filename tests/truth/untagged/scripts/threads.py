"""Four threads parse texts in Python, so only one of them runs at a time."""

from __future__ import annotations

import json
import queue
import threading

from tests.truth.untagged import board

LINE = json.dumps({"text": "a b c " * 200, "label": 3})


def parse(line: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for letter in json.loads(line)["text"]:
        counts[letter] = counts.get(letter, 0) + 1
    return counts


def load(batches: queue.Queue[list[dict[str, int]]]) -> None:
    while True:
        batches.put([parse(LINE) for _ in range(12_000)])


def main() -> None:
    batches: queue.Queue[list[dict[str, int]]] = queue.Queue(2)
    for _ in range(4):
        threading.Thread(target=load, args=(batches,), daemon=True).start()
    while True:
        board.does("input_wait")
        batches.get()
        board.does("step")
        board.compute(0.3)


main()
