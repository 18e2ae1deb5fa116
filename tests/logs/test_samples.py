"""Each format reads the same scenario from its samples.

For 60 rows, GPU 0 has four rows near 96 % and three at 0 % in turn, and GPU 1 is at 97 %; both
hold 12,000 MiB. A sample is called ``<format>--<variant>.<anything>``. If the format cannot express
all of it, ``<sample>.json`` has the differences, with the keys of ``Story``. ``shapes`` has logs of
other scenarios, in the forms that users have.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from gpumon.core.report.report import Report
from gpumon.sources.logs.detect import FORMATS, reader_for
from gpumon.sources.logs.formats.dmon import DcgmiDmonLog, NvidiaSmiDmonLog
from gpumon.sources.logs.formats.gpustat import GpustatJsonLog, GpustatTextLog
from gpumon.sources.logs.formats.keyed_csv import KeyedCsvLog
from gpumon.sources.logs.formats.nvidia_smi_csv import NvidiaSmiCsvLog
from gpumon.sources.logs.formats.nvidia_smi_q import NvidiaSmiQueryLog
from gpumon.sources.logs.formats.nvidia_smi_table import NvidiaSmiTableLog
from gpumon.sources.logs.formats.prometheus_json import PrometheusLog
from gpumon.sources.logs.formats.wide_table import WideCsvLog, WideJsonLog
from gpumon.sources.logs.gpu_log import GpuLog
from gpumon.sources.logs.log_sample import LogOptions, LogSample
from gpumon.sources.logs.log_text import LogText, head_of
from tests.builders.logs import analyse_file
from tests.builders.logs import samples_of as read_samples

FOLDER = Path(__file__).parent / "samples"
FORMAT_OF: dict[str, type[GpuLog]] = {
    "dcgmi_dmon": DcgmiDmonLog,
    "gpustat_json": GpustatJsonLog,
    "gpustat_text": GpustatTextLog,
    "keyed_csv": KeyedCsvLog,
    "nvidia_smi_csv": NvidiaSmiCsvLog,
    "nvidia_smi_dmon": NvidiaSmiDmonLog,
    "nvidia_smi_q": NvidiaSmiQueryLog,
    "nvidia_smi_table": NvidiaSmiTableLog,
    "prometheus_json": PrometheusLog,
    "wide_csv": WideCsvLog,
    "wide_json": WideJsonLog,
}
"""The first part of a sample's name, and its reader."""


@dataclass(frozen=True, kw_only=True)
class Story:
    """What must be read from a sample.

    Attributes:
        rows: Of each GPU.
        memory_mib: Memory in use; ``None``: the format has none.
        notes: A part of each expected note.
        verdicts: Of the first GPUs.
        started_at: Time of the first row; ``None``: unknown; empty: any.
    """

    gpus: int = 2
    rows: int = 60
    period_s: float = 1.0
    skipped: int = 0
    memory_mib: int | None = 12_000
    notes: tuple[str, ...] = ()
    verdicts: tuple[str, ...] = ("partial", "healthy")
    started_at: str | None = ""


def sidecar_of(sample: Path) -> Path:
    return sample.with_name(f"{sample.name}.json")


def samples_in(folder: Path) -> list[Path]:
    """All files except those that describe another one."""
    found = sorted(path for path in folder.iterdir() if path.is_file())
    sidecars = {sidecar_of(path) for path in found}
    return [path for path in found if path not in sidecars]


def story_of(sample: Path) -> Story:
    sidecar = sidecar_of(sample)
    return Story(**json.loads(sidecar.read_text("utf-8"))) if sidecar.exists() else Story()


def format_of(sample: Path) -> type[GpuLog]:
    return FORMAT_OF[sample.name.split("--")[0]]


SAMPLES = samples_in(FOLDER)
SHAPES = samples_in(FOLDER.with_name("shapes"))


@cache
def report_of(sample: Path) -> Report:
    """Its report, read once for all tests."""
    return analyse_file(str(sample), LogOptions())


@cache
def samples_of(sample: Path) -> list[LogSample]:
    """Its rows with a utilisation."""
    with LogText(str(sample)) as text:
        reader = reader_for(text.lines(), name=text.name, options=LogOptions())
        return [one for one in read_samples(reader) if one.busy_ratio is not None]


@pytest.fixture(params=[*SAMPLES, *SHAPES], ids=lambda path: path.name)
def sample(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


class TestEverySample:
    def test_has_one_format(self, sample: Path) -> None:
        with LogText(str(sample)) as text:
            head = head_of(text.lines())

        its_own = format_of(sample)
        assert [one for one in FORMATS if one.mark(head)] == [
            one for one in FORMATS if one is its_own
        ]

    def test_is_read_completely(self, sample: Path) -> None:
        story, report = story_of(sample), report_of(sample)

        assert report.skipped_lines == story.skipped
        assert len(report.gpus) == story.gpus
        for gpu in report.gpus[: len(story.verdicts)]:
            observed_s = gpu.totals.observed_ns / 1e9
            first_s = min(1.0, story.period_s)  # the time before is unknown
            expected_s = (story.rows - 1) * story.period_s + first_s
            assert observed_s == pytest.approx(expected_s, rel=0.001)
        assert story.started_at in ("", report.started_at)
        for note in story.notes:
            assert any(note in message for message in report.notes), report.notes
        verdicts = [gpu.verdict.name.value for gpu in report.gpus]
        assert verdicts[: len(story.verdicts)] == [*story.verdicts[: story.gpus]]

    def test_has_the_memory_in_use_if_its_format_has_it(self, sample: Path) -> None:
        used_bytes = [one.memory_used_bytes for one in samples_of(sample)]

        memory_mib = story_of(sample).memory_mib
        if memory_mib is None:
            assert set(used_bytes) == {None}
        else:
            assert None not in used_bytes
            used_mib = [used / (1 << 20) for used in used_bytes if used is not None]
            assert used_mib == pytest.approx([memory_mib] * len(used_bytes), rel=0.01)


class TestTheScenario:
    @pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
    def test_is_read_row_by_row(self, sample: Path) -> None:
        samples, period_ns = samples_of(sample), story_of(sample).period_s * 1e9

        for gpu in (0, 1):
            rows = [one for one in samples if one.gpu == gpu]
            numbers = [round((one.stamp_ns - rows[0].stamp_ns) / period_ns) for one in rows]
            shares = [one.busy_ratio or 0.0 for one in rows]
            assert [share > 0 for share in shares] == [gpu or at % 7 < 4 for at in numbers]
            assert all(share > 0.9 for share in shares if share)


def test_every_format_has_a_sample() -> None:
    assert {*FORMATS} <= {*map(format_of, SAMPLES)}
