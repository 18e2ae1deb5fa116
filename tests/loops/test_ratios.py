"""Ranks with unequal shares of each batch, in own loops and trainers, learn as one device does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.imported_later import ImportedLater
from tests.loops.ratio_courses import (
    BALANCED,
    COURSES_OF,
    EXACT,
    IN_MID_RUN,
    LAST_OF_ONE,
    OWN_NORM,
    RATIOS,
    TINY,
    UNWEIGHTED,
    courses_of,
)
from tests.programs import ROOT, ran_python
from trainer_hooks.accelerate import split_by_ratios, why_not_split

huggingface: Any = ImportedLater("trainer_hooks.huggingface")
lightning: Any = ImportedLater("trainer_hooks.lightning")

pytestmark = pytest.mark.keras_torch

EXACTLY = 5e-7
"""How far off weights of float32 may be after 20 steps or more."""
TRAINERS = ("lightning", "accelerate", "trainer")
of_every_job = pytest.mark.parametrize("world", [2, 3])


class Jobs:
    """What all ranks of all jobs wrote down, and what one process learned."""

    def __init__(self, folder: Path) -> None:
        self.alone = json.loads((folder / "alone.json").read_text())
        self._of_rank = {
            (world, rank): json.loads((folder / f"{world}-{rank}.json").read_text())
            for world in RATIOS
            for rank in range(world)
        }
        spans = (folder / "spans.jsonl").read_text().splitlines()
        self.spans = [json.loads(line) for line in spans]

    def of_ranks(self, world: int, name: str) -> list[Any]:
        """What each rank of a job reports of something."""
        return [self._of_rank[world, rank][name] for rank in range(world)]

    def samples(self, world: int, course: str) -> list[tuple[int, ...]]:
        """Of each rank in each batch, by DDP."""
        ranks = self.of_ranks(world, f"ddp: {course}")
        return list(zip(*(rank["samples"] for rank in ranks), strict=True))


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    """All is trained at once: importing the trainers lasts longer than training with them."""
    folder = tmp_path_factory.mktemp("ranks")
    environ = {"OMP_NUM_THREADS": "1", "GPUMON_RUNTIME_DIR": str(folder / "run")}
    counts = map(str, RATIOS)
    done = ran_python(
        "-m", "tests.loops.ratio_ranks", folder, "gloo", *counts, environ=environ, timeout_s=250
    )
    assert done.returncode == 0, done.stderr
    return Jobs(folder)


class TestTheRanksOfAJob:
    @pytest.mark.parametrize(
        ("world", "trainer", "course"),
        [
            (world, trainer, course)
            for world in RATIOS
            for trainer in COURSES_OF
            for course in courses_of(trainer, world)
            if course in EXACT
        ],
    )
    def test_learn_what_one_process_does_in_as_many_steps(
        self, jobs: Jobs, world: int, trainer: str, course: str
    ) -> None:
        weights, steps = jobs.alone[str(world)][course]

        assert steps >= 20
        for learned in jobs.of_ranks(world, f"{trainer}: {course}"):
            assert learned["steps"] == steps
            assert learned["weights"] == pytest.approx(weights, rel=0, abs=EXACTLY)

    @of_every_job
    def test_would_be_far_off_without_the_weights(self, jobs: Jobs, world: int) -> None:
        weights, _ = jobs.alone[str(world)][UNWEIGHTED]

        for learned in jobs.of_ranks(world, f"ddp: {UNWEIGHTED}"):
            assert learned["weights"] != pytest.approx(weights, rel=0, abs=1000 * EXACTLY)

    @of_every_job
    def test_are_left_without_a_sample_where_there_are_too_few(
        self, jobs: Jobs, world: int
    ) -> None:
        assert jobs.samples(world, LAST_OF_ONE)[-1] == (1, 0, 0)[:world]
        assert any(0 in batch[1:] and sum(batch) > 0 for batch in jobs.samples(world, TINY))

    @of_every_job
    def test_change_their_ratios_in_the_same_step_though_one_has_drawn_ahead(
        self, jobs: Jobs, world: int
    ) -> None:
        ranks = jobs.of_ranks(world, f"ddp: {IN_MID_RUN}")
        samples = jobs.samples(world, IN_MID_RUN)

        (at,) = ranks[0]["changed_from"]
        assert [rank["changed_from"] for rank in ranks] == [[at]] * world
        assert 4 < at < 10, "in the middle of the first epoch, after what was drawn"
        assert samples[:at] == [{2: (5, 3), 3: (7, 4, 1)}[world]] * at
        assert samples[at] == {2: (1, 7), 3: (2, 7, 3)}[world]

    @of_every_job
    def test_keep_their_models_finite_and_equal_where_batches_are_normalised_and_weigh_nothing(
        self, jobs: Jobs, world: int
    ) -> None:
        learned = [rank["weights"] for rank in jobs.of_ranks(world, f"ddp: {OWN_NORM}")]
        parameters = (6 + 1) * 8 + 2 * 4 + (8 + 1) * 3

        assert 0 in jobs.samples(world, OWN_NORM)[-1]
        assert all(abs(weight) < 100 for weights in learned for weight in weights)
        assert all(weights[:parameters] == learned[0][:parameters] for weights in learned)

    @of_every_job
    def test_have_the_mean_and_the_sum_over_all_of_them(self, jobs: Jobs, world: int) -> None:
        mean, total = {2: (10 / 3, 3.0), 3: (30 / 6, 6.0)}[world]

        for sums in jobs.of_ranks(world, "sums"):
            assert sums == {"mean": pytest.approx(mean), "sum": total, "no mean": None}


@of_every_job
class TestRanksThatDisagree:
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
    def test_all_raise_the_same(self, jobs: Jobs, world: int, about: str, sentence: str) -> None:
        (raised,) = {rank[about] for rank in jobs.of_ranks(world, "disagreements")}

        assert raised.startswith(sentence)

    @pytest.mark.parametrize(("about", "rank"), [("start", 0), ("zero", 1)])
    def test_name_the_one_that_cannot_continue(
        self, jobs: Jobs, world: int, about: str, rank: int
    ) -> None:
        raised = [refusals[about] for refusals in jobs.of_ranks(world, "disagreements")]

        assert raised[rank].startswith("ratios must")
        assert raised[1 - rank].startswith(f"rank {rank} cannot")

    def test_continue_as_before(self, jobs: Jobs, world: int) -> None:
        kept = {rank["ratios afterwards"] for rank in jobs.of_ranks(world, "disagreements")}

        assert kept == {str((1,) * world)}


@of_every_job
class TestRanksOfUnequalSpeed:
    def test_are_balanced_from_one_step_on(self, jobs: Jobs, world: int) -> None:
        ranks = jobs.of_ranks(world, "balancing")
        shares = {2: [2 / 3, 1 / 3], 3: [6 / 11, 3 / 11, 2 / 11]}[world]

        assert [rank["balanced"] for rank in ranks] == [pytest.approx(shares)] * world
        sizes = list(zip(*(rank["sizes"] for rank in ranks), strict=True))
        assert sizes[world:] == [{2: (80, 40), 3: (65, 33, 22)}[world]] * (10 - world)
        assert sizes[:world] == [(120 // world,) * world] * world

    def test_stay_as_they_are_where_little_is_to_gain_or_a_time_is_unknown(
        self, jobs: Jobs, world: int
    ) -> None:
        for rank in jobs.of_ranks(world, "balancing"):
            assert (rank["unknown"], rank["again"]) == (None, None)


@pytest.mark.parametrize("trainer", ["ddp", "lightning"])
def test_a_balancer_gives_a_rank_of_half_the_speed_half_as_much(jobs: Jobs, trainer: str) -> None:
    """That it changes no result is tested with the other courses."""
    first, second = jobs.of_ranks(2, f"{trainer}: {BALANCED}")

    assert first["changes"] == second["changes"]
    epoch, step, ratios = first["changes"][0]
    assert (epoch, step) == (0, 4), "after a step that is not measured, and four that are"
    assert ratios == pytest.approx([2 / 3, 1 / 3], abs=0.1)


class TestTheExampleOfUnequalRanks:
    """The first rank sleeps 1 ms for each sample, the second 2 ms; 10 steps of 48 an epoch."""

    def test_balances_each_epoch_by_the_times_of_the_one_before(self, jobs: Jobs) -> None:
        printed, silent = jobs.of_ranks(2, "example")
        busy = [[0.0, 0.0] for _ in range(3)]
        for gpu in (0, 1):
            spans = [span for span in jobs.spans if span["gpu"] == gpu]
            for number, span in enumerate(spans):
                busy[number // 10][gpu] += (span["end_ns"] - span["start_ns"]) / 1e9

        assert (printed["steps"], silent) == (30, None)
        assert printed["losses"][2] < printed["losses"][1] < printed["losses"][0]
        first, second, _ = printed["ratios"]
        assert first == [1, 1]
        assert second[0] / second[1] == pytest.approx(busy[0][1] / busy[0][0], rel=0.02)
        assert second[0] / second[1] > 1.3


class TestWhatCannotBeSplit:
    @pytest.mark.parametrize(
        ("trainer", "what", "sentence"),
        [
            *((trainer, "ratios", "must have the same ratios") for trainer in TRAINERS),
            *((trainer, "stream", "make it a dataset with len()") for trainer in TRAINERS),
            ("lightning", "too many ratios", "3 for 2 ranks"),
            ("lightning", "one rank", "give the DataLoader shuffle=True or shuffle=False"),
            ("lightning", "weighted", "the order of a WeightedRandomSampler: give"),
            ("lightning", "twice", "give the DataLoader as it was made"),
            ("lightning", "batches", "make one DataLoader of a dataset that joins theirs"),
            ("lightning", "iterator", "write training_step(batch, batch_idx)"),
            ("lightning", "accumulation", "leave GradientAccumulationScheduler out"),
            ("lightning", "resumed too early", "leave trainer.estimated_stepping_batches out"),
            ("lightning", "drawn too early", "leave trainer.estimated_stepping_batches out"),
            ("lightning", "unlike balancers", "same every: rank 0 has 5, and rank 1 has 6"),
            ("accelerate", "balanced", "RatioBalancer works in your own loop"),
            ("trainer", "balanced", "RatioBalancer works in your own loop"),
            ("accelerate", "one rank", "-2 is not one"),
            ("accelerate", "one of two models", "pass torch.nn.ModuleList([enc, head])"),
            ("accelerate", "a list of models", "pass torch.nn.ModuleList([enc, head])"),
            ("accelerate", "frozen model", "it was not refused"),
            ("accelerate", "split", "leave split_batches out"),
            ("accelerate", "dispatched", "set dispatch_batches=False"),
            ("accelerate", "stateful", "leave use_stateful_dataloader out"),
            ("accelerate", "unprepared", "prepare the model and the loader first"),
            ("accelerate", "skipped before", "write loader.set_epoch(epoch, start_step=steps)"),
            ("accelerate", "together", "make one DataLoader of a dataset that joins theirs"),
            ("accelerate", "twice", "call split_by_ratios once"),
            ("accelerate", "drawn", "prepare a DataLoader with batch_size= and shuffle="),
            ("accelerate", "skipped", "write loader.set_epoch(epoch, start_step=steps)"),
            ("trainer", "grouped", "group_by_length and batch_rebalance assume equal ranks"),
            ("trainer", "own tokens", "set average_tokens_across_devices=True"),
            ("trainer", "too few", "set dataloader_drop_last=True"),
            ("trainer", "own loss", "set loss_is_scaled_for_ga = False"),
            ("trainer", "split", "leave split_batches out"),
        ],
    )  # fmt: skip
    def test_is_refused_on_every_rank_with_what_to_write(
        self, jobs: Jobs, trainer: str, what: str, sentence: str
    ) -> None:
        first, second = (report[what] for report in jobs.of_ranks(2, f"{trainer}: refusals"))

        assert sentence in second
        assert first == (f"rank 1 cannot continue: {second}" if what == "one rank" else second)

    def test_is_a_trainer_that_divides_losses_otherwise(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(huggingface.Trainer, "training_step", lambda *_: None)

        refusal = huggingface._why_not(object(), None, None, None)
        assert "upgrade it to 4.55 or newer" in str(refusal)

    def test_is_a_single_process(self) -> None:
        with pytest.raises(ValueError, match="start the script with accelerate launch"):
            split_by_ratios(SimpleNamespace(num_processes=1), None, None, ratios=[1])

    @pytest.mark.parametrize(
        ("name", "make"),
        [
            ("RatioStrategy", lambda: lightning.RatioStrategy()),
            ("RatioCallback", lambda: huggingface.RatioCallback()),
        ],
    )
    def test_is_a_trainer_without_ratios(self, name: str, make: Callable[[], Any]) -> None:
        with pytest.raises(TypeError, match=rf"write {name}\(\[3, 2\]\)"):
            make()

    def test_is_an_engine_with_gradients_of_its_own(self) -> None:
        engine = SimpleNamespace(distributed_type=SimpleNamespace(name="FSDP"))

        assert "with FSDP here: train in your own loop" in str(why_not_split(engine, None))


@pytest.mark.parametrize("name", ["unequal_lightning", "unequal_accelerate", "unequal_trainer"])
class TestAnExample:
    def test_adds_at_most_three_lines_to_an_ordinary_script(self, name: str) -> None:
        lines = (ROOT / "examples" / f"{name}.py").read_text().splitlines()
        added = [line for line in lines if "# added" in line]

        assert 1 < len(added) <= 3
        assert [line for line in lines if "Ratio" in line or "ratios" in line] == added

    def test_gives_the_first_of_two_ranks_three_samples_of_five(
        self, jobs: Jobs, name: str
    ) -> None:
        first, second = jobs.of_ranks(2, name)

        assert first["samples"] == [60, 60, 60, 60, 48] * 5
        assert second["samples"] == [40, 40, 40, 40, 32] * 5
        assert first["weights"] == second["weights"]
