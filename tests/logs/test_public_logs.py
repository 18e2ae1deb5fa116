"""Published logs of other people, which are not part of this repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpumon.sources.logs.log_sample import LogOptions
from tests.builders.logs import analyse_file

FOLDER = Path(os.environ.get("GPUMON_PUBLIC_LOGS", Path(__file__).parents[3] / "shared/traces"))


@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no public logs in {FOLDER}")
class TestPublicLogs:
    @pytest.mark.parametrize(
        ("name", "model", "samples", "period_s"),
        [
            ("aucurriculum_a40.log", "NVIDIA A40", 134, 60.0),
            ("miris_v100s.csv", "Tesla V100S-PCIE-32GB", 107, 1.001),
            ("piranha_vgg16.csv", None, 2_173, 0.275),
            ("plato_fl.csv", None, 1_923, 5.008),
        ],
    )
    def test_are_read_completely_without_options(
        self, name: str, model: str | None, samples: int, period_s: float
    ) -> None:
        report = analyse_file(str(FOLDER / name), LogOptions())

        (gpu,) = report.gpus
        assert gpu.name == model
        assert report.skipped_lines == 0
        assert report.period_ns / 1e9 == pytest.approx(period_s)
        assert gpu.totals.observed_ns / 1e9 == pytest.approx(samples * period_s, rel=0.01)
