"""``trainer-bench`` on real GPUs, held to the figures of the sources: the targets on hardware."""

from __future__ import annotations

import pytest

from tests.gpu_multi.conftest import BENCH, MEASURED

pytestmark = pytest.mark.gpu_multi

PART_OF_SOLO = 0.956
"""2123 samples a second of the 2220 that the author's two boards did alone."""
THREE_BOARDS = 2.56
FOUR_BOARDS = 0.966
SCALING_BATCH = 512


class TestTheArticlesModel:
    def test_trains_in_the_articles_batches_on_two_boards(
        self, trainer_bench: BENCH, measured: MEASURED
    ) -> None:
        told = trainer_bench("--gpus", 0, 1, "--batches", 512, 355, "--seconds", 5)

        last = told["runs"][-1]
        measured("samples a second at 512 + 355", f"{last['samples_per_second']:.0f}", "")
        assert last["samples_per_second"] > 0

    def test_is_given_ratios_with_which_two_boards_do_what_they_did_alone(
        self, trainer_bench: BENCH, measured: MEASURED
    ) -> None:
        told = trainer_bench("--gpus", 0, 1, "--batches", 1388, "--balance", "--seconds", 5)

        share = told["part_of_solo_speeds"]
        measured(
            f"two boards at ratios {told['ratios']}, {told['samples_per_second']:.0f} samples "
            f"a second, of what they did alone ({told['run_count']} runs)",
            f"{share:.1%}",
            f"at least {PART_OF_SOLO:.1%} (2123 of 2220)",
        )
        assert share >= PART_OF_SOLO


class TestScaling:
    def test_on_three_boards_is_2_56_times(
        self, boards: tuple[str, ...], trainer_bench: BENCH, measured: MEASURED
    ) -> None:
        if len(boards) < 3:
            pytest.skip(f"needs three GPUs, and TensorFlow sees {len(boards)}")

        told = trainer_bench("--batches", SCALING_BATCH, "--scaling", 1, 3, "--seconds", 5)

        speed_up = told["rows"][-1]["speed_up"]
        measured("speed of three boards", f"{speed_up:.2f} times one", f"at least {THREE_BOARDS}")
        assert speed_up >= THREE_BOARDS

    def test_on_four_boards_leaves_96_6_percent_of_each(
        self, boards: tuple[str, ...], trainer_bench: BENCH, measured: MEASURED
    ) -> None:
        if len(boards) < 4:
            pytest.skip(f"needs four GPUs, and TensorFlow sees {len(boards)}")

        told = trainer_bench("--batches", SCALING_BATCH, "--scaling", 1, 2, 4, "--seconds", 5)

        efficiency = told["rows"][-1]["efficiency"]
        measured("efficiency of four boards", f"{efficiency:.1%}", f"at least {FOUR_BOARDS:.1%}")
        assert efficiency >= FOUR_BOARDS

    def test_on_two_boards_is_measured(self, trainer_bench: BENCH, measured: MEASURED) -> None:
        told = trainer_bench("--batches", SCALING_BATCH, "--scaling", 1, 2, "--seconds", 5)

        rows = told["rows"]
        measured("efficiency of two boards", f"{rows[-1]['efficiency']:.1%}", "")
        assert rows[-1]["speed_up"] > 1


class TestFindingTheLargestBatch:
    def test_meets_the_end_of_memory_and_goes_on(
        self, trainer_bench: BENCH, measured: MEASURED
    ) -> None:
        told = trainer_bench("--gpus", 0, "--batches", 4096, "--find-batch", "--seconds", 0.5)

        (found,) = told["gpus"]
        too_large = [t["batch"] for t in found["tries"] if t["samples_per_second"] is None]
        measured("largest batch of the article's model on the first board", str(found["fits"]), "")
        assert too_large, "memory never ran out, so nothing was shown"
        assert found["advised"] <= found["fits"] < min(too_large)
