"""How much of a known rhythm one reading a second recovers, through the real NVML binding."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakenvml.build import NoCompilerError, build_fake, fake_env
from tests.fakenvml.control import FakeNvml
from tests.needs import missing

_WATCH = """
import json, sys
from pathlib import Path
import pynvml
from benchmarks.bench_square_wave import watch
from tests.fakenvml.control import FakeNvml

with FakeNvml(Path(sys.argv[1]), gpus=2) as fake:
    pynvml.nvmlInit()
    rows = watch(fake, ((1.0, 0.7), (3.0, 0.8)), int(sys.argv[2]))
print(json.dumps([row._asdict() for row in rows]))
"""


@pytest.fixture(scope="module")
def recovered(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, float]]:
    """What was seen of two GPUs in 25 seconds, in a process that loads the fake."""
    folder = tmp_path_factory.mktemp("wave")
    try:
        library = build_fake(folder)
    except NoCompilerError as error:
        missing(str(error))
        raise
    FakeNvml(folder / "control", gpus=2).close()
    done = subprocess.run(
        [sys.executable, "-c", _WATCH, str(folder / "control"), "25"],
        env=fake_env(folder / "control", library.parent), cwd=Path(__file__).parents[2],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return rows


class TestOneReadingASecond:
    def test_of_a_gpu_in_a_rhythm_of_one_second_finds_its_busy_time_within_one_percent(
        self, recovered: list[dict[str, float]]
    ) -> None:
        assert recovered[0]["drained_ratio"] == pytest.approx(recovered[0]["true_ratio"], abs=0.01)

    def test_finds_all_its_pauses_but_one_at_most(self, recovered: list[dict[str, float]]) -> None:
        assert recovered[0]["true_gaps"] >= 23
        assert recovered[0]["drained_gaps"] >= recovered[0]["true_gaps"] - 1

    def test_is_what_a_poll_of_the_rate_cannot_do(self, recovered: list[dict[str, float]]) -> None:
        assert abs(recovered[0]["polled_ratio"] - recovered[0]["true_ratio"]) > 0.2
