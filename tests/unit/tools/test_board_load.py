"""The process that keeps a board busy, on a board that is only pretended: a clock with a queue."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.board_capture.load import Load, LoadError

SIDE_S = 0.03
"""What a product of the largest matrices takes there: too long, so smaller ones are taken."""
PRETENDED_TORCH = f"""
import time
from pathlib import Path

BROKEN = Path(__file__).with_name("broken")
__version__ = "2.0"
float16, bfloat16, float32 = "torch.float16", "torch.bfloat16", "torch.float32"

class Matrix:
    def __init__(self, side):
        self.side = side

    def to(self, kind):
        return self

    def add_(self, number):
        if BROKEN.exists():
            raise RuntimeError("the board fell off")

def rand(side, _, device):
    assert device == "cuda"
    return Matrix(side)

def empty_like(matrix):
    return matrix

def matmul(a, b, out):
    cuda.done_s = max(cuda.done_s, time.monotonic()) + {SIDE_S} * (a.side / 8192) ** 3

class cuda:
    done_s = 0.0
    get_device_capability = staticmethod(lambda: (9, 0))
    get_device_name = staticmethod(lambda: "Pretended")

    @staticmethod
    def synchronize():
        time.sleep(max(0.0, cuda.done_s - time.monotonic()))

    class Event:
        def __init__(self, enable_timing=False):
            pass

        def record(self):
            self.at_s = max(cuda.done_s, time.monotonic())

        def synchronize(self):
            time.sleep(max(0.0, self.at_s - time.monotonic()))

        def elapsed_time(self, other):
            return (other.at_s - self.at_s) * 1000
"""


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    (tmp_path / "torch.py").write_text(PRETENDED_TORCH)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    child = Load(gpu_uuid="GPU-0")
    yield child
    child.close()


class TestTheLoad:
    def test_takes_products_that_end_soon(self, load: Load) -> None:
        assert load.name == "torch 2.0 on Pretended, 4096 x 4096 products in bfloat16"

    def test_tells_spans_as_long_as_the_device_says(self, load: Load) -> None:
        load.begin({"do": "wave", "busy_s": 0.1, "idle_s": 0.05, "seconds": 0.4})
        said = load.result()

        lengths_s = [(end - start) / 1e9 for start, end in said["spans"]]
        assert len(lengths_s) >= 2
        for length_s, device_s in zip(lengths_s, said["device_s"], strict=True):
            assert 0.1 <= device_s <= length_s

    def test_that_failed_answers_what_it_is_told_next_and_nothing_else(self, load: Load) -> None:
        load.begin({"do": "steps"})
        with pytest.raises(LoadError, match="KeyError"):
            load.result()
        load.begin({"do": "wave", "busy_s": 0.02, "idle_s": 0.02, "seconds": 0.1})  # never asked

        load.run("full")
        load.stop()
        load.begin({"do": "steps", "seconds": 0.1})

        assert load.result()["steps"] > 0

    def test_that_fails_while_it_runs_says_so_when_it_is_to_stop(
        self, load: Load, tmp_path: Path
    ) -> None:
        load.run("small")
        (tmp_path / "broken").touch()
        time.sleep(0.05)

        with pytest.raises(LoadError, match="the board fell off"):
            load.stop()
        load.stop()
