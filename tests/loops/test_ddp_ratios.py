"""Ranks with unequal shares of each batch learn what one process learns from whole batches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.programs import ran_python

pytestmark = pytest.mark.keras_torch

RANK_COUNTS = (2, 3)
JOBS = [pytest.param(world, id=f"{world} ranks") for world in RANK_COUNTS]
EXACT = [
    "uneven ratios",
    "a last batch smaller than the world",
    "a last batch that is left out",
    "two shuffled epochs",
    "an epoch from its third step on",
    "uneven micro-batches",
    "micro-batches without a sample of a rank",
    "sums",
    "weighted classes",
    "other ratios in mid-run",
]
EXACTLY = 1e-6
"""How far off the weights of float32 may be."""


class Jobs:
    """What all ranks of all jobs wrote down, and what one process learned."""

    def __init__(self, folder: Path) -> None:
        self.alone = json.loads((folder / "alone.json").read_text())
        self._of_rank = {
            (world, rank): json.loads((folder / f"{world}-{rank}.json").read_text())
            for world in RANK_COUNTS
            for rank in range(world)
        }
        self.spans = [
            json.loads(line) for line in (folder / "spans.jsonl").read_text().splitlines()
        ]

    def recorded(self, world: int, name: str) -> list[Any]:
        """What each rank of a job says of something."""
        return [self._of_rank[world, rank][name] for rank in range(world)]

    def samples(self, world: int, lesson: str) -> list[tuple[int, ...]]:
        """Of each rank in each batch."""
        return list(zip(*(rank["samples"] for rank in self.recorded(world, lesson)), strict=True))


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    """Everything is computed at once: starting torch takes longer than all of it."""
    folder = tmp_path_factory.mktemp("ranks")
    counts = map(str, RANK_COUNTS)
    quiet = {"OMP_NUM_THREADS": "1", "GPUMON_RUNTIME_DIR": str(folder / "run")}
    done = ran_python(
        "-m", "tests.loops.ddp_ranks", folder, "gloo", *counts, environ=quiet, timeout_s=150
    )
    assert done.returncode == 0, done.stderr
    return Jobs(folder)


def furthest(ones: list[float], others: list[float]) -> float:
    return max(abs(one - other) for one, other in zip(ones, others, strict=True))


@pytest.mark.parametrize("world", JOBS)
class TestTheRanksOfAJob:
    @pytest.mark.parametrize("lesson", EXACT)
    def test_learn_what_one_process_does_with(self, jobs: Jobs, world: int, lesson: str) -> None:
        for recorded in jobs.recorded(world, lesson):
            assert furthest(recorded["weights"], jobs.alone[lesson]) <= EXACTLY

    def test_would_be_far_off_without_the_weights(self, jobs: Jobs, world: int) -> None:
        lesson = "unweighted losses"
        for recorded in jobs.recorded(world, lesson):
            assert furthest(recorded["weights"], jobs.alone[lesson]) > 1000 * EXACTLY

    def test_are_left_without_a_sample_where_there_are_too_few(
        self, jobs: Jobs, world: int
    ) -> None:
        last = jobs.samples(world, "a last batch smaller than the world")[-1]
        tiny = jobs.samples(world, "micro-batches without a sample of a rank")

        assert last == (1, 0, 0)[:world]
        assert any(0 in batch[1:] and sum(batch) > 0 for batch in tiny)

    def test_change_their_ratios_in_the_same_step_though_one_has_drawn_ahead(
        self, jobs: Jobs, world: int
    ) -> None:
        from_steps = [
            recorded["changed_from"] for recorded in jobs.recorded(world, "other ratios in mid-run")
        ]
        samples = jobs.samples(world, "other ratios in mid-run")

        (at,) = from_steps[0]
        assert from_steps == [[at]] * world
        assert 4 < at < 10, "in the midst of the first epoch, after what was drawn"
        assert samples[:at] == [{2: (7, 5), 3: (5, 4, 3)}[world]] * at
        assert samples[at] == {2: (2, 10), 3: (2, 7, 3)}[world]

    def test_keep_their_model_finite_and_alike_where_batches_are_normalised_and_weigh_nothing(
        self, jobs: Jobs, world: int
    ) -> None:
        lesson = "batch norm of each rank"
        learned = [recorded["weights"] for recorded in jobs.recorded(world, lesson)]
        parameters = (6 + 1) * 8 + 2 * 4 + (8 + 1) * 3

        assert 0 in jobs.samples(world, lesson)[-1]
        assert all(abs(weight) < 100 for weights in learned for weight in weights)
        assert all(weights[:parameters] == learned[0][:parameters] for weights in learned)

    def test_know_the_mean_and_the_sum_over_all_of_them(self, jobs: Jobs, world: int) -> None:
        means, sums = {2: 10 / 3, 3: 30 / 6}[world], {2: 3.0, 3: 6.0}[world]

        assert jobs.recorded(world, "mean") == pytest.approx([means] * world)
        assert jobs.recorded(world, "sum") == [sums] * world
        assert jobs.recorded(world, "no mean") == [None] * world


@pytest.mark.parametrize("world", JOBS)
class TestRanksThatAreNotAgreed:
    @pytest.mark.parametrize(
        ("about", "sentence"),
        [
            ("seeds", "all ranks must have the same seed: rank 0 has 0, and rank 1 has 1"),
            ("lengths", "all ranks must have the same samples: rank 0 has 60, and rank 1 has 61"),
            ("ratios", "all ranks must have the same ratios: rank 0 has (1, 1"),
            ("step", "all ranks must have the same from_step: rank 0 has 0, and rank 1 has 1"),
            ("epoch", "all ranks must have the same epoch: rank 0 has 0, and rank 1 has 1"),
            ("group", "give a group, or rank and world_size, but not both"),
        ],
    )
    def test_are_all_recorded_the_same_about(
        self, jobs: Jobs, world: int, about: str, sentence: str
    ) -> None:
        recorded = {refusals[about] for refusals in jobs.recorded(world, "refusals")}

        assert len(recorded) == 1
        assert recorded.pop().startswith(sentence)

    @pytest.mark.parametrize(("about", "rank"), [("start", 0), ("zero", 1)])
    def test_are_recorded_of_the_one_that_cannot_go_on(
        self, jobs: Jobs, world: int, about: str, rank: int
    ) -> None:
        recorded = [refusals[about] for refusals in jobs.recorded(world, "refusals")]

        assert recorded[rank].startswith("ratios must")
        assert recorded[1 - rank].startswith(f"rank {rank} cannot")

    def test_go_on_as_before(self, jobs: Jobs, world: int) -> None:
        kept = {refusals["ratios afterwards"] for refusals in jobs.recorded(world, "refusals")}

        assert kept == {str((1,) * world)}


@pytest.mark.parametrize("world", JOBS)
class TestRanksThatAreNotEquallyFast:
    def test_are_balanced_from_one_step_on(self, jobs: Jobs, world: int) -> None:
        recorded = jobs.recorded(world, "levelling")
        shares = {2: [2 / 3, 1 / 3], 3: [6 / 11, 3 / 11, 2 / 11]}[world]

        assert [word["levelled"] for word in recorded] == [pytest.approx(shares)] * world
        sizes = list(zip(*(word["sizes"] for word in recorded), strict=True))
        assert sizes[world:] == [{2: (80, 40), 3: (65, 33, 22)}[world]] * (10 - world)
        assert sizes[:world] == [(120 // world,) * world] * world

    def test_stay_as_they_are_where_little_is_to_gain_or_a_time_is_unknown(
        self, jobs: Jobs, world: int
    ) -> None:
        for word in jobs.recorded(world, "levelling"):
            assert (word["unknown"], word["again"]) == (None, None)


class TestTheExampleOfUnequalRanks:
    """The first rank sleeps 1 ms for each sample, the second 2 ms; 10 steps of 48 an epoch."""

    def test_learns(self, jobs: Jobs) -> None:
        recorded, silent = jobs.recorded(2, "example")

        assert recorded["steps"] == 30
        assert recorded["losses"][2] < recorded["losses"][1] < recorded["losses"][0]
        assert silent is None

    def test_gives_the_faster_rank_more_after_an_epoch(self, jobs: Jobs) -> None:
        recorded = jobs.recorded(2, "example")[0]["ratios"]
        shares = [first / (first + second) for first, second in recorded]

        assert shares[0] == 0.5
        assert shares[1:] == pytest.approx([2 / 3] * 2, abs=0.05)

    def test_lets_both_ranks_compute_for_equally_long_then(self, jobs: Jobs) -> None:
        busy = [[0.0, 0.0] for _ in range(3)]
        for gpu in (0, 1):
            spans = [span for span in jobs.spans if span["gpu"] == gpu]
            for number, span in enumerate(spans):
                busy[number // 10][gpu] += (span["end_ns"] - span["start_ns"]) / 1e9

        skews = [max(pair) / min(pair) for pair in busy]
        assert skews[0] > 1.6
        assert skews[2] < 1.25
