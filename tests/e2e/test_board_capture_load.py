"""The process that keeps a board busy, tried on the CPU: what it says is what it did."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.tools.board_capture.load import Load

pytestmark = pytest.mark.keras_torch


@pytest.fixture(scope="module")
def load() -> Iterator[Load]:
    child = Load(gpu_uuid=None, device="cpu")
    yield child
    child.close()


class TestTheLoad:
    def test_says_what_computes(self, load: Load) -> None:
        assert load.name.startswith("torch ")
        assert "CPU" in load.name
        assert "256 x 256" in load.name

    def test_shows_spans_that_lie_within_the_time_it_was_asked_for(self, load: Load) -> None:
        before_ns = time.monotonic_ns()
        load.begin({"do": "wave", "busy_s": 0.1, "idle_s": 0.1, "seconds": 0.8})
        printed = load.result()
        spans = printed["spans"]
        after_ns = time.monotonic_ns()

        assert printed["device_s"] == [None] * len(spans)  # the CPU has no clock of its own
        assert before_ns <= spans[0][0]
        assert spans[-1][1] <= after_ns
        assert all(end - start >= 100_000_000 for start, end in spans)
        assert all(b[0] - a[1] >= 99_000_000 for a, b in pairwise(spans))

    def test_computes_until_it_is_reported_to_stop(self, load: Load) -> None:
        load.run("full")
        time.sleep(0.2)
        load.stop()
        load.run("small")
        load.stop()

        load.begin({"do": "steps", "seconds": 0.3})
        printed = load.result()

        assert printed["seconds"] >= 0.3
        assert printed["steps"] * printed["median_ms"] / 2 <= 1000 * printed["seconds"]
        assert printed["median_ms"] <= printed["p99_ms"] <= printed["worst_ms"]
