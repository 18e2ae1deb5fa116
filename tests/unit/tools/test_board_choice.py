"""Which board the capture measures, and that it begins nothing that it cannot write down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gpumon.sources.nvml.probe.probe import NvmlProbe, ProbeLimits
from gpumon.sources.nvml.probe.probed import ProbedGpu
from gpumon.sources.system_clock import SystemClock
from tests.fakenvml.control import FakeNvml
from tests.tools.board_capture.__main__ import chosen_gpu, main


@pytest.fixture
def gpus(fake_nvml: FakeNvml) -> Sequence[ProbedGpu]:
    probe = NvmlProbe(SystemClock(), limits=ProbeLimits(times=1))
    try:
        return probe.ask_all().gpus
    finally:
        probe.close()


class TestTheBoard:
    @pytest.mark.parametrize(
        ("visible", "index"), [(None, 0), ("1", 1), ("1,0", 1), ("", None), ("7", None)]
    )
    def test_is_the_first_that_cuda_may_use(
        self, gpus: Sequence[ProbedGpu], visible: str | None, index: int | None
    ) -> None:
        chosen = chosen_gpu(gpus, visible)

        assert (None if chosen is None else chosen.index) == index

    def test_is_never_one_that_is_cut_or_lost(self, gpus: Sequence[ProbedGpu]) -> None:
        first, second = gpus
        cut, lost = replace(first, mig_enabled=True), replace(first, lost="GPU is lost")

        assert chosen_gpu((cut, second), None) is second
        assert chosen_gpu((lost, second), None) is second
        assert chosen_gpu((cut,), None) is None


class TestAFolderThatCannotBeWritten:
    def test_is_refused_before_anything_is_measured(
        self, fake_nvml: FakeNvml, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "file").touch()

        code = main(["--quick", "--into", str(tmp_path / "file" / "below")])

        said = capsys.readouterr()
        assert (code, said.out) == (1, "")
        assert "cannot write into" in said.err
        assert "--into FOLDER" in said.err
