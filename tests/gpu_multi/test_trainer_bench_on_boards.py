"""``trainer-bench`` on real GPUs, compared with the figures of its sources."""

from __future__ import annotations

import pytest

from tests.gpu_multi.conftest import BENCH, MEASURED

pytestmark = pytest.mark.gpu_multi

PART_OF_SOLO = 0.956
"""2123 samples a second of the 2220 that the author's two boards did alone."""
SCALING_BATCH = 512


class TestTheArticlesModel:
    def test_trains_in_the_articles_batches(self, trainer_bench: BENCH, measured: MEASURED) -> None:
        reported = trainer_bench("--gpus", 0, 1, "--batches", 512, 355, "--seconds", 5)

        last = reported["runs"][-1]
        measured("samples a second at 512 + 355", f"{last['samples_per_second']:.0f}", "")
        assert last["samples_per_second"] > 0

    def test_gets_ratios_for_the_speed_of_both_boards_alone(
        self, trainer_bench: BENCH, measured: MEASURED
    ) -> None:
        reported = trainer_bench("--gpus", 0, 1, "--batches", 1388, "--balance", "--seconds", 5)

        share = reported["part_of_solo_speeds"]
        measured(
            f"two boards at ratios {reported['ratios']}, {reported['samples_per_second']:.0f} "
            f"samples a second, of what they did alone ({reported['run_count']} runs)",
            f"{share:.1%}",
            f"at least {PART_OF_SOLO:.1%} (2123 of 2220)",
        )
        assert share >= PART_OF_SOLO


class TestScaling:
    @pytest.mark.parametrize(
        ("sizes", "figure", "target"),
        [
            pytest.param((1, 2), "speed_up", 1.0, id="two boards"),
            pytest.param((1, 3), "speed_up", 2.56, id="three boards"),
            pytest.param((1, 2, 4), "efficiency", 0.966, id="four boards"),
        ],
    )
    def test_reaches_the_articles(
        self,
        boards: tuple[str, ...],
        trainer_bench: BENCH,
        measured: MEASURED,
        sizes: tuple[int, ...],
        figure: str,
        target: float,
    ) -> None:
        *_, most = sizes
        if len(boards) < most:
            pytest.skip(f"needs {most} GPUs, and TensorFlow sees {len(boards)}")

        reported = trainer_bench("--batches", SCALING_BATCH, "--scaling", *sizes, "--seconds", 5)

        found = reported["rows"][-1][figure]
        measured(f"{figure} of {most} boards", f"{found:.3g}", f"at least {target}")
        assert found >= target


class TestFindingTheLargestBatch:
    def test_continues_after_running_out_of_memory(
        self, trainer_bench: BENCH, measured: MEASURED
    ) -> None:
        reported = trainer_bench("--gpus", 0, "--batches", 4096, "--find-batch", "--seconds", 0.5)

        (found,) = reported["gpus"]
        too_large = [t["batch"] for t in found["tries"] if t["samples_per_second"] is None]
        measured("largest batch of the article's model on the first board", str(found["fits"]), "")
        assert too_large, "memory never ran out, so nothing was shown"
        assert found["advised"] <= found["fits"] < min(too_large)
