"""Logs that gpustat, nvitop and Prometheus wrote themselves, of GPUs with known readings."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpumon.sources.logs.log_sample import LogFacts, LogSample
from gpumon.sources.logs.log_text import LogText
from tests.builders.logs import read_log
from tests.e2e.prometheus_server import running_prometheus
from tests.fakenvml.build import fake_env
from tests.fakenvml.control import FakeNvml
from tests.fakenvml.generations import PRESENT_DRIVER, DriverGeneration
from tests.needs import needed

BIN = Path(sys.executable).parent
READINGS = ((96, 3), (0, 97))
"""Utilisation of two GPUs at each reading, percent."""
USED_BYTES = 12_000 << 20
COLLECTED = "metrics.jsonl"
COLLECTOR = """
import json
from nvitop import Device, ResourceMetricCollector

with ResourceMetricCollector(Device.all())(tag="run") as collector:
    print(json.dumps(collector.collect()))
"""
IN_A_LOOP = {
    "gpustat.json": ("gpustat", "--json"),
    "gpustat.txt": ("gpustat", "-cupF"),
}


@dataclass(frozen=True, slots=True)
class Machine:
    """Two GPUs, and the environment in which a tool finds them."""

    fake: FakeNvml
    environment: dict[str, str]

    def show(self, percents: tuple[int, ...]) -> None:
        for slot, percent in enumerate(percents):
            self.fake.gpu(slot).rates_percent = percent

    def append_output(self, log: Path, tool: str, *arguments: str) -> None:
        """Run ``tool >> log``, as a loop in a shell does."""
        with log.open("ab") as written:
            subprocess.run(
                [str(BIN / tool), *arguments],
                env=self.environment,
                stdout=written,
                check=True,
                timeout=60,
            )


@pytest.fixture(scope="module")
def machine(
    library_of: Callable[[DriverGeneration], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machine]:
    control = tmp_path_factory.mktemp("tools") / "gpus.control"
    with FakeNvml(control, gpus=2) as fake:
        for slot in (0, 1):
            fake.gpu(slot).memory_used = USED_BYTES
        library = library_of(PRESENT_DRIVER).parent
        yield Machine(fake, {**os.environ, **fake_env(fake.path, library), "COLUMNS": "100"})


def read(log: Path) -> tuple[list[LogSample], LogFacts]:
    with LogText(str(log)) as text:
        return read_log("".join(text.lines()))


@pytest.fixture(scope="module")
def folder(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs of all tools, of the same readings."""
    folder = tmp_path_factory.mktemp("logs")
    for percents in READINGS:
        time.sleep(1 - time.time() % 1)  # printed dates have seconds
        machine.show(percents)
        for name, command in IN_A_LOOP.items():
            machine.append_output(folder / name, *command)
        # Each collection is the mean since its collector began: a new one for each reading.
        machine.append_output(folder / COLLECTED, sys.executable, "-c", COLLECTOR)
    return folder


class TestALogWritten:
    @pytest.mark.parametrize("name", [*IN_A_LOOP, COLLECTED])
    def test_by_the_tool_has_the_readings(self, folder: Path, name: str) -> None:
        samples, facts = read(folder / name)

        for gpu in (0, 1):
            of_it = [sample for sample in samples if sample.gpu == gpu]
            assert [one.busy_ratio for one in of_it] == [one[gpu] / 100 for one in READINGS]
            assert all(one.memory_used_bytes == USED_BYTES for one in of_it)
            assert all(abs(time.time() - one.stamp_ns / 1e9) < 86_400 for one in of_it)
        assert [gpu.index for gpu in facts.gpus] == [0, 1]
        assert facts.skipped_lines == 0


class TestAnAnswerOfPrometheus:
    def test_has_the_scraped_values(self, tmp_path: Path) -> None:
        began_s = int(time.time()) - 3_600
        answer = tmp_path / "answer.json"
        store(tmp_path, began_s)

        with running_prometheus(needed("prometheus"), tmp_path, []) as server:
            query = '{__name__=~"DCGM_FI_DEV_(GPU_UTIL|FB_USED)"}'
            words = {"query": query, "start": began_s, "end": began_s + 59, "step": 1}
            answer.write_bytes(server.body("query_range", **words))

        samples, facts = read(answer)
        for gpu in (0, 1):
            of_it = [sample for sample in samples if sample.gpu == gpu]
            assert [one.busy_ratio for one in of_it] == [story(gpu, at) / 100 for at in range(60)]
            assert [one.stamp_ns for one in of_it] == [
                (began_s + at) * 1_000_000_000 for at in range(60)
            ]
        assert facts.skipped_lines == 0


def story(gpu: int, at: int) -> int:
    """Percent: bursts and pauses, or steady."""
    return 97 if gpu else 96 * (at % 7 < 4)


def store(folder: Path, began_s: int) -> None:
    """Write a minute of two GPUs into the storage of a Prometheus before it starts."""
    lines: list[str] = []
    for name in ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED"):
        lines.append(f"# TYPE {name} gauge")
        for gpu in (0, 1):
            labels = f'{{gpu="{gpu}",UUID="GPU-{gpu}",Hostname="node-a",modelName="NVIDIA A40"}}'
            values = [12_000] * 60 if "FB" in name else [story(gpu, at) for at in range(60)]
            lines += [f"{name}{labels} {value} {began_s + at}" for at, value in enumerate(values)]
    scraped = folder / "scraped.txt"
    scraped.write_text("\n".join([*lines, "# EOF", ""]))
    words = ("tsdb", "create-blocks-from", "openmetrics", str(scraped), str(folder / "tsdb"))
    promtool = needed("promtool", "prometheus")
    subprocess.run([promtool, *words], check=True, capture_output=True, timeout=60)
