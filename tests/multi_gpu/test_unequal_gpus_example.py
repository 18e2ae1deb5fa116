"""The example on unequal GPUs splits as it is told, by words or while it trains."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.imported_later import ImportedLater
from tests.patience import wait_until
from tests.processes import ending

ROOT = Path(__file__).resolve().parent.parent.parent
INTERRUPTIBLE = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
runpy.run_path("examples/unequal_gpus.py", run_name="__main__")
"""

example: Any = ImportedLater("examples.unequal_gpus")

pytestmark = pytest.mark.multi_gpu


def after_typing(*read: bytes | None) -> Any:
    """The model of a training at whose batches' ends this could be read."""
    to_read = iter(read)
    typed = example.TypedRatios(lambda: next(to_read))
    typed.set_model(SimpleNamespace(ratios=[1, 1], stop_training=False))
    for batch in range(len(read)):
        typed.on_train_batch_end(batch)
    return typed.model


class TestWhatIsTyped:
    @pytest.mark.parametrize("line", [b"3 2\n", b"3:2\n", b" 3.0  2 \r\n"])
    def test_is_the_new_ratios(self, line: bytes) -> None:
        assert after_typing(line).ratios == [3, 2]

    def test_counts_once_the_line_is_whole(self) -> None:
        assert after_typing(b"3 ").ratios == [1, 1]
        assert after_typing(b"3 ", b"2\n4 ").ratios == [3, 2]

    def test_changes_nothing_where_it_is_no_numbers(self, capsys: Any) -> None:
        assert after_typing(b"three to two\n").ratios == [1, 1]
        assert "'three to two'" in capsys.readouterr().out

    def test_may_end_the_training(self) -> None:
        assert after_typing(b"stop\n").stop_training

    def test_is_not_asked_for_again_once_nobody_can_type(self) -> None:
        asked: list[None] = []
        typed = example.TypedRatios(lambda: asked.append(None))

        typed.on_train_batch_end(0)
        typed.on_train_batch_end(1)

        assert asked == [None]


@pytest.mark.measured
def test_a_gpu_takes_a_time_in_proportion_to_its_samples() -> None:
    spans: list[tuple[int, int]] = []
    gpu = example.SleepingGpu(1_000, lambda *span: spans.append(span))

    for _ in range(4):
        gpu.compute([0] * 100, 0.5)

    assert sum(end_ns - began_ns for began_ns, end_ns in spans) / 1e9 == pytest.approx(
        0.2, abs=0.05
    )


class TestTheExample:
    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (["--ratios", "3", "2", "1"], "one number for each GPU"),
            (["--ratios", "3", "0"], "positive, finite numbers"),
            (["--speeds", "480", "0"], "at least 1"),
        ],
    )
    def test_refuses_what_cannot_be_before_it_trains(
        self, words: list[str], says: str, tmp_path: Path, capsys: Any
    ) -> None:
        with pytest.raises(SystemExit) as ended:
            example.main(["--spans", str(tmp_path / "busy.jsonl"), *words])

        assert ended.value.code == 2
        assert says in capsys.readouterr().err

    def test_tells_what_the_gpus_did_when_it_is_interrupted(self, tmp_path: Path) -> None:
        spans = tmp_path / "busy.jsonl"
        training = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTIBLE, "--spans", str(spans), "--steps", "1000"],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        with ending(training):
            wait_until(lambda: spans.is_file() and spans.stat().st_size > 500, 60)
            training.send_signal(signal.SIGINT)
            out, _ = training.communicate(timeout=60)

        told = json.loads(out.splitlines()[-1])
        assert training.returncode == 130
        assert told["steps"] > 0
        assert min(told["busy_seconds"]) > 0
