"""A training run on unequal GPUs and a real daemon: who waits for whom, and what balances them.

The GPUs are logical devices that sleep in proportion to their samples, and note when they did.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import pytest

from tests.daemon import RunningDaemon
from tests.e2e.runs_under_serve import Training, training
from tests.needs import missing
from tests.training_processes import read, reader_of
from tests.waiting import wait_until
from trainer_hooks.examples.busy_spans import imbalance_seconds

pytestmark = [pytest.mark.multi_gpu, pytest.mark.alone]

PATIENCE_S = 120.0
UUIDS = ("GPU-followed-0", "GPU-followed-1")
BALANCED_FOR_S = 3.5

Spans = list[tuple[int, int]]


@dataclass
class Seen:
    """One report, and what the GPUs themselves had noted by then.

    Attributes:
        report: gpumon's.
        metrics: gpumon's.
        at_ns: When it was asked, by CLOCK_MONOTONIC.
        spans_ns: Of each GPU, when it computed.
    """

    report: dict[str, Any]
    metrics: dict[str, float]
    at_ns: int
    spans_ns: list[Spans]

    def run(self) -> dict[str, Any]:
        (run,) = self.report["runs"]
        return dict(run)

    def imbalance_ratios(self, since: Seen | None = None) -> list[float]:
        """How long gpumon says that GPU 0 and 1 waited for each other, of all the time noted.

        What gpumon calls their time in use begins earlier, by what a busy machine takes to trace.
        """
        before_s = since._imbalances_s() if since else [0.0, 0.0]
        return [
            (now_s - was_s) / self._passed_s(since)
            for now_s, was_s in zip(self._imbalances_s(), before_s, strict=True)
        ]

    def true_imbalance_ratios(self, since: Seen | None = None) -> list[float]:
        """How long GPU 0 and 1 waited for the other by their own notes, of all the time noted.

        Where each waits for the other now and then, as the machine lets them oversleep, neither
        is the slower one: what lasts is the difference.
        """
        one_s, other_s = imbalance_seconds(self._spans_since(since))
        lasting_s = max(0.0, one_s - other_s), max(0.0, other_s - one_s)
        return [seconds / self._passed_s(since) for seconds in lasting_s]

    def true_skew_ratio(self, since: Seen | None = None) -> float:
        """1 - least busy / most busy, by their notes."""
        busy_ns = [sum(end - start for start, end in spans) for spans in self._spans_since(since)]
        return 1 - min(busy_ns) / max(busy_ns)

    def _imbalances_s(self) -> list[float]:
        return [gpu["idle_by_cause"]["imbalance"] for gpu in self.report["gpus"][:2]]

    def _passed_s(self, since: Seen | None) -> float:
        spans_ns = self._spans_since(since)
        begun_ns = min(spans[0][0] for spans in spans_ns)
        return (max(spans[-1][1] for spans in spans_ns) - begun_ns) / 1e9

    def _spans_since(self, since: Seen | None) -> list[Spans]:
        from_ns = since.at_ns if since else 0
        return [[span for span in spans if span[0] >= from_ns] for spans in self.spans_ns[:2]]


def started(daemon: RunningDaemon) -> AbstractContextManager[Training]:
    words = ("--run", "unequal", "--epochs", "1", "--steps", "100000")
    return training(daemon, "unequal_gpus", "unequal", *words, KERAS_BACKEND="tensorflow")


def look(daemon: RunningDaemon) -> Seen:
    spans: list[Spans] = [[], []]
    for line in (daemon.folder / "busy.jsonl").read_text().splitlines():
        span = json.loads(line)
        spans[span["gpu"]].append((span["start_ns"], span["end_ns"]))
    return Seen(daemon.report(), daemon.metrics(), time.monotonic_ns(), spans)


@dataclass
class Watched:
    """What was seen of a training run with even ratios that is given better ones in mid-fit.

    Attributes:
        ring_shares: What its ring reported of its shares while they were even.
        even: Once the report had advice.
        changed: A moment after the new ratios.
        balanced: At the end.
        applied: The new ratios.
        steps: That it did.
    """

    ring_shares: dict[str, float]
    even: Seen
    changed: Seen
    balanced: Seen
    applied: tuple[float, ...]
    steps: int


def watch(daemon: RunningDaemon, unequal: Training) -> Watched:
    """Follow a training run and do what the report says."""

    def advice() -> list[str]:
        return [advice["cause"] for advice in daemon.report()["advice"]]

    wait_until(lambda: "imbalance" in advice(), PATIENCE_S)
    even = look(daemon)
    rings = read(reader_of(daemon.runtime_dir)).rings
    (ring_shares,) = (ring.facts.shares for ring in rings)

    applied = tuple(even.run()["levelled_ratios"][uuid] for uuid in UUIDS)
    unequal.type(" ".join(str(ratio) for ratio in applied))
    wait_until(lambda: look(daemon).run()["ratio_changes"] == 1)
    time.sleep(1.0)  # by then the last even step is in the counters
    changed = look(daemon)
    time.sleep(BALANCED_FOR_S)
    unequal.type("stop")
    steps = unequal.result()["steps"]
    daemon.settled_report()
    return Watched(ring_shares, even, changed, look(daemon), applied, steps)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    if find_spec("tensorflow") is None:
        missing("tensorflow is not installed")
    folder = tmp_path_factory.mktemp("unequal")
    source = f"follow:{folder / 'busy.jsonl'}"
    with (
        RunningDaemon(folder, "--source", source, "--period", "0.5") as daemon,
        started(daemon) as unequal,
    ):
        yield watch(daemon, unequal)


class TestTwoGpusThatAreUnequalAndGetTheSame:
    def test_wait_for_each_other_as_long_as_they_noted_themselves(self, watched: Watched) -> None:
        assert watched.even.true_imbalance_ratios()[0] > 0.25

        assert watched.even.imbalance_ratios() == pytest.approx(
            watched.even.true_imbalance_ratios(), abs=0.02
        )

    def test_are_called_skewed_by_as_much_as_they_noted_themselves(self, watched: Watched) -> None:
        assert watched.even.run()["skew_ratio"] == pytest.approx(
            watched.even.true_skew_ratio(), abs=0.02
        )

    def test_are_reported_the_ratios_of_their_speeds_and_advised_to_use_these(
        self, watched: Watched
    ) -> None:
        assert watched.applied == pytest.approx((0.6, 0.4), abs=0.01)
        (advice,) = (
            advice for advice in watched.even.report["advice"] if advice["cause"] == "imbalance"
        )

        assert "skew 3" in advice["text"]
        assert "`multi_gpu_model(model, gpus=[0, 1], ratios=[3, 2])`" in advice["text"]
        assert advice["speedup_upper_bound"] == pytest.approx(1.25, abs=0.07)

    def test_have_their_shares_in_the_ring_and_in_the_metrics(self, watched: Watched) -> None:
        assert watched.ring_shares == {"0": 0.5, "1": 0.5}
        assert shares_in(watched.even.metrics) == (0.5, 0.5)
        assert changes_in(watched.even.metrics) == 0


class TestTheRatiosOfTheReportGivenToTheTrainingInMidFit:
    def test_balance_the_gpus_as_far_as_they_noted_themselves(self, watched: Watched) -> None:
        balanced = watched.balanced.imbalance_ratios(since=watched.changed)

        assert max(balanced) < 0.02
        assert balanced == pytest.approx(
            watched.balanced.true_imbalance_ratios(since=watched.changed), abs=0.02
        )

    def test_make_the_skew_fall_to_what_the_gpus_noted_themselves(self, watched: Watched) -> None:
        skew = watched.balanced.run()["skew_ratio"]

        assert skew == pytest.approx(watched.balanced.true_skew_ratio(watched.changed), abs=0.02)
        assert skew < 0.04 < watched.even.run()["skew_ratio"]

    def test_are_reported_and_their_change_is_counted(self, watched: Watched) -> None:
        assert shares_in(watched.changed.metrics) == pytest.approx(watched.applied)
        assert changes_in(watched.changed.metrics) == 1
        assert watched.balanced.run()["ratio_changes"] == 1

    def test_cost_no_step(self, watched: Watched) -> None:
        assert watched.balanced.run()["steps"] == watched.steps


def shares_in(metrics: dict[str, float]) -> tuple[float, ...]:
    name = "gpumon_training_share_ratio"
    return tuple(metrics[f'{name}{{run="unequal",uuid="{uuid}"}}'] for uuid in UUIDS)


def changes_in(metrics: dict[str, float]) -> float:
    return metrics['gpumon_training_ratio_changes_total{run="unequal"}']
