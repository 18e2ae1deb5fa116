"""Tests of the doctor's sampler run: the answer of each call, and its cost."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gpumon.cli.doctor.driver_answers import DriverAnswers
from gpumon.cli.doctor.sampler_run import run_sampler
from gpumon.sources.gpu_source import ReadNow
from gpumon.sources.nvml.codes import code_name
from gpumon.sources.nvml.fields.table import NVML_FIELDS, nvml_options
from gpumon.sources.system_clock import SystemClock
from tests.builders.driver import DriverStory
from tests.builders.driver_faults import DRAIN, LIST, POWER
from tests.fakenvml import codes
from tests.fakenvml.control import FakeNvml

PCIE, ENERGY = "nvmlDeviceGetPcieThroughput", "nvmlDeviceGetTotalEnergyConsumption"
OPT_INS = [field.name for field in NVML_FIELDS if field.opt_in]


def answers(*, on: Sequence[str] = (), off: Sequence[str] = ()) -> DriverAnswers:
    options = nvml_options(on=on, off=off)
    _, driver = run_sampler(SystemClock(), options, readings=3, every_s=0.15)
    return driver


class TestEveryField:
    def test_is_read_and_nothing_stays_allocated(self, fake_nvml: FakeNvml) -> None:
        fake_nvml.run(0, 4711)
        fake_nvml.run(1, 4712)

        driver = answers(on=OPT_INS)

        assert [gpu.index for gpu in driver.gpus] == [0, 1]
        for gpu in driver.gpus:
            assert [one.field.name for one in gpu.fields if not one.works] == []
            calls = [call for one in gpu.fields for call in one.calls.items()]
            assert [name for name, one in calls if one.code == codes.INVALID_ARGUMENT] == []
        assert fake_nvml.gpm_samples_held == fake_nvml.event_sets_held == 0

    @pytest.mark.parametrize(
        ("field", "off"), [("pcie", []), ("energy", ["energy"])], ids=["opt-in", "switched off"]
    )
    def test_is_read_only_on_request(self, fake_nvml: FakeNvml, field: str, off: list[str]) -> None:
        unread = answers(off=off).gpus[0].field(field)

        assert (unread.calls, unread.works, unread.wanted) == ({}, False, False)
        assert fake_nvml.calls(PCIE if field == "pcie" else ENERGY) == 0


class TestAFieldThatCannotBeRead:
    @pytest.mark.parametrize(
        "code",
        [codes.NOT_SUPPORTED, codes.NO_PERMISSION, codes.FUNCTION_NOT_FOUND, codes.GPU_IS_LOST],
    )
    def test_has_the_code_of_the_refusal(self, fake_nvml: FakeNvml, code: int) -> None:
        for function in ("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit"):
            fake_nvml.fail(function, code, gpu=0)

        refused, complete = (gpu.field("power_limit") for gpu in answers().gpus)

        assert refused.refusal is not None
        assert refused.refusal[1] == code
        assert complete.works

    def test_without_gpm_is_not_blamed_on_the_driver(
        self, fake_nvml_of_both_generations: FakeNvml
    ) -> None:
        fake = fake_nvml_of_both_generations
        is_old = "nvmlGpmQueryDeviceSupport" in fake.driver.lacks
        fake.gpm(0, supported=False)

        refusal = answers().gpus[0].field("activity").refusal

        code = codes.FUNCTION_NOT_FOUND if is_old else codes.NOT_SUPPORTED
        assert refusal == ("nvmlGpmSampleGet", code)


class TestTheCost:
    def test_is_what_the_sampler_then_spends(self, fake_nvml: FakeNvml) -> None:
        for function in (
            DRAIN, POWER, LIST, "nvmlDeviceGetClockInfo", "nvmlDeviceGetTotalEccErrors"
        ):  # fmt: skip
            fake_nvml.delay(function, 8_000)  # far more than a busy machine adds to it

        promised = sum(gpu.seconds_per_second for gpu in answers(off=["activity"]).gpus)
        story = DriverStory(fake_nvml, options=nvml_options(off=["activity"]))
        story.reads = ReadNow.NOTHING
        story.pass_s(5)
        before_s = story.state.call_seconds
        story.tick(20)

        story.close()
        spent_s = sum(s for _, s in story.state.call_seconds) - sum(s for _, s in before_s)
        assert spent_s / 20 == pytest.approx(promised, rel=0.4)


class TestTheRings:
    def test_are_listed_with_depth_cadence_span_and_type(self, fake_nvml: FakeNvml) -> None:
        fake_nvml.wave(0, period_s=1.0, busy_ratio=0.5, window_s=0.2)
        fake_nvml.gpu(0).ring_depth = 40

        rings = {ring.name: ring for ring in answers().gpus[0].rings}

        kept, missing = rings["gpu_utilization"], rings["ofa_utilization"]
        assert (kept.count, kept.value_type) == (40, "unsigned int")
        assert kept.cadence_s == pytest.approx(0.2)
        assert kept.span_s == pytest.approx(39 * 0.2)
        assert (missing.count, missing.answer) == (0, code_name(codes.NOT_SUPPORTED))


def test_each_call_is_announced_with_its_gpu(fake_nvml: FakeNvml) -> None:
    calls: list[str] = []
    run_sampler(SystemClock(), nvml_options(), calls.append, readings=1, every_s=0.1)

    assert calls[0] == "nvmlInit"
    assert "GPU 1: nvmlDeviceGetTotalEnergyConsumption" in calls
