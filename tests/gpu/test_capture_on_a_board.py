"""The capture's load on a real board: its own times and the samples of the board agree."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from gpumon.cli.doctor.driver_answers import GpuAnswers
from gpumon.cli.doctor.sampler_run import run_sampler
from gpumon.errors import SourceUnavailableError
from gpumon.sources.nvml.fields.table import DEFAULT_OPTIONS
from gpumon.sources.system_clock import SystemClock
from tests.tools.board_capture.__main__ import chosen_gpu
from tests.tools.board_capture.accuracy import watch_wave
from tests.tools.board_capture.load import Load, LoadError

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def gpu() -> GpuAnswers:
    try:
        _, driver = run_sampler(SystemClock(), DEFAULT_OPTIONS, readings=3, every_s=0.2)
    except SourceUnavailableError as error:
        pytest.skip(f"no GPU here: {error}")
    found = chosen_gpu(driver.gpus, os.environ.get("CUDA_VISIBLE_DEVICES"))
    if found is None:
        pytest.skip("no GPU that CUDA may use is without MIG and not lost")
    return found


@pytest.fixture(scope="module")
def load(gpu: GpuAnswers) -> Iterator[Load]:
    pytest.importorskip("torch")
    try:
        child = Load(gpu_uuid=gpu.uuid)
    except LoadError as error:
        pytest.skip(f"nothing computes on this GPU: {error}")
    yield child
    child.close()


class TestARealBoard:
    def test_has_the_fields_of_every_board(self, gpu: GpuAnswers) -> None:
        works = {one.field.name for one in gpu.fields if one.works}

        assert {"utilization", "memory", "temperature", "clocks"} <= works

    def test_is_as_busy_as_the_load_reports(self, gpu: GpuAnswers, load: Load) -> None:
        command = {"do": "wave", "busy_s": 1.5, "idle_s": 1.5, "seconds": 15.0}

        found = watch_wave(SystemClock(), str(gpu.uuid), load, command)

        assert found["busy, gpumon, %"] == pytest.approx(found["busy, truth, %"], abs=10)
        assert found["pauses, truth"] > 0
