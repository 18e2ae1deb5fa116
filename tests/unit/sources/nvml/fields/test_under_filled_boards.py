"""Tests of low SM utilisation, from the driver's counters to the report."""

from __future__ import annotations

from gpumon.core.report.report import UNDER_FILLED, Report
from gpumon.core.verdict import VerdictName
from gpumon.pipeline.state_report import report_of
from gpumon.sources.nvml.fields.table import nvml_options
from tests.builders.driver import DriverStory, Fake
from tests.fakenvml.control import FakeNvml


def works(fake: FakeNvml, slot: int, *, watts: float, sm: float | None = None) -> None:
    """97 % busy at its highest clock, like a training run without input stalls."""
    fake.wave(slot, period_s=0.1, busy_ratio=0.97)
    fake.draw(slot, busy_watts=watts)
    fake.gpu(slot).sm_clock_mhz = fake.gpu(slot).max_sm_clock_mhz
    if sm is not None:
        fake.gpm(slot, sm=sm, occupancy=sm / 2, tensor=0.02, dram=0.1)


def watched(story: DriverStory) -> Report:
    return report_of(story.tick(75))


def findings(report: Report) -> list[str]:
    return [advice.evidence for advice in report.advice if advice.cause == UNDER_FILLED]


class TestABoardWithGpm:
    def test_is_distinguished_from_an_equally_busy_one(self, fake: Fake) -> None:
        works(fake, 0, watts=620.0, sm=0.96)
        works(fake, 1, watts=180.0, sm=0.25)

        report = watched(fake.story())

        (evidence,) = findings(report)
        assert evidence.startswith("GPU 1 ")
        assert " 24 % " in evidence
        assert {gpu.verdict.name for gpu in report.gpus} == {VerdictName.HEALTHY}
        assert report.gpus[0].totals.idle_ns == report.gpus[1].totals.idle_ns


class TestABoardWithoutGpm:
    def test_is_diagnosed_by_its_power(self, fake_nvml_of_both_generations: FakeNvml) -> None:
        fake = fake_nvml_of_both_generations
        limit_watts = fake.gpu(0).enforced_limit_mw / 1000
        works(fake, 0, watts=0.25 * limit_watts)
        works(fake, 1, watts=0.9 * limit_watts)
        story = DriverStory(fake, options=nvml_options(off=["activity"]))

        (evidence,) = findings(watched(story))
        story.close()

        watts = f"{0.25 * limit_watts:.0f} of {limit_watts:.0f} W"
        assert evidence.startswith("GPU 0 ")
        assert f"only {watts}" in evidence
        assert "GPU 1" not in evidence
