"""What a user sees of ``trainer-bench``: the article's lines, its errors, and what is new."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import pytest

from tests.golden_files import Chapters, golden_story
from tests.needs import in_make_truth
from tests.programs import ran_python
from trainer_hooks.trainer_bench.main import main

RUNS = {
    "of two GPUs": "--gpus 0 1 --batches 512 355",
    "of the default GPU": "--batches 64",
    "of one that is named": "--gpus 1 --batches 512",
    "of as many samples as need no notice": "--gpus 0 1 --batches 256 256",
    "of one more": "--gpus 0 1 --batches 256 257",
    "that balance": "--batches 1388 --balance",
    "that balance where they do less together": "--batches 1024 --balance",
    "that balance without a batch": "--balance",
    "that scale over unequal GPUs": "fast,fast,slow,slow --batches 256 --scaling 1 2 4",
    "that scale over equal ones": "fast,fast --batches 256 --scaling 1 2",
    "that scale to one": "slow --batches 256 --scaling 1",
    "that scale in another order": "--batches 64 --scaling 2 1 2",
    "that look for the largest batch": "--gpus 0 1 --find-batch",
    "on batches made ahead": "--batches 64 --prefetch 60",
}
OUT_OF_MEMORY = ("--gpus 0 1 --batches 1024 710", "--batches 100000 --balance")
WRONG = (
    "",
    "--gpus 0 1",
    "--gpus 0 1 --batches 512",
    "--batches 512 355",
    "--batches 0",
    "--batches 999999999999",
    "--batches sixty",
    "--batches 64 --gpus TPU:0",
    "--batches 64 64 --gpus 0 0",
    "--batches 64 --gpus 7",
    "--batches 64 --seconds nan",
    "--batches 64 --plot a.jpg",
    "--batches 64 --scaling 1 4",
    "--batches 64 --scaling 4",
    "fast,tpu --batches 64",
    "--batches 64 --balance --gpus 0",
    "--find-batch --margin 1",
    "--batches 64 --prefetch",
    "--batches 64 --prefetch 0",
    "--gpus 0 1 --batches 64 --prefetch 20",
    "--balance --find-batch",
    "--balance --batches 1",
    "--balance --plot /not/there/a.svg",
    "--batches 64 32",
)


@pytest.fixture
def bench(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the command; its exit code and what it reported."""

    def run(*words: str) -> tuple[int, str, str]:
        try:
            code = main(words)
        except SystemExit as left:
            code = int(left.code or 0)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@golden_story
def test_words_of_trainer_bench(bench: Any, monkeypatch: pytest.MonkeyPatch) -> Chapters:
    chapters = {}
    for title, words in RUNS.items():
        code, out, err = bench("--simulate", *words.split())
        assert (code, err) == (0, "")
        chapters[f"runs {title}: {words}"] = out
    for words in (*OUT_OF_MEMORY, *WRONG):
        code, out, err = bench("--simulate", *words.split())
        *usage, sentence = err.splitlines()
        assert not usage or usage[0].startswith("usage: trainer-bench ")
        assert words in OUT_OF_MEMORY or "sps" not in out
        chapters[f"exit {code}: {words}"] = sentence
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    code, _, sentence = bench("--batches", "64")
    return {**chapters, f"exit {code}: without TensorFlow": sentence}


class TestRow5TheArticlesCommands:
    """Row 5 of the acceptance table; the lines and the two errors are those of the story above."""

    @pytest.mark.parametrize(
        ("words", "speeds"),
        [
            ("--gpus 0 1 --batches 512 355", [1196, 829, 2025]),
            ("--batches 64", [683]),
            ("--gpus 1 --batches 512", [878]),
        ],
    )
    def test_row_5_measure_the_articles_speeds(
        self, bench: Any, words: str, speeds: list[int]
    ) -> None:
        _, out, _ = bench("--simulate", *words.split())

        runs = [int(speed) for speed in re.findall(r"(\d+)sps$", out, re.MULTILINE)]
        assert runs == pytest.approx(3 * speeds, rel=0.03)


def test_the_help_ends_with_examples_that_work(bench: Any) -> None:
    code, out, _ = bench("--help")

    examples = re.findall(r"^  trainer-bench (--simulate .*?)(?:  .*)?$", out, re.MULTILINE)
    assert code == 0
    assert examples
    assert [bench(*example.split())[0] for example in examples] == [0] * len(examples)


NOT_FOR_THE_BENCH = {"KERAS_BACKEND": "jax", "GPUMON_STAND_IN_GPUS": "many"}

REAL = """
import json, sys
from trainer_hooks.trainer_bench import keras_engine
from tests.programs import ran_python
from trainer_hooks.trainer_bench.main import main

tf = keras_engine._tensorflow()

on_cpus = ["--gpus", "CPU:1", "CPU:2", "--model", "small", "--json"]
trained_once = keras_engine.KerasEngine._train_once

def with_little_memory(engine, model, images, labels):
    if len(images) > 60:
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")
    trained_once(engine, model, images, labels)

codes = [main([*on_cpus, "--batches", "24", "8", "--runs", "2", "--seconds", "0.2"])]
print("---")
keras_engine.KerasEngine._train_once = with_little_memory
on_one = ["--gpus", "CPU:1", "--model", "small", "--json"]
codes.append(main([*on_one, "--find-batch", "--batches", "50", "--seconds", "0.01"]))
print("---")
codes.append(main([*on_cpus, "--batches", "60", "60"]))
codes.append(main(["--gpus", "GPU:0", "--batches", "64"]))
codes.append(main(["--gpus", "CPU:1", "GPU:0", "--batches", "8", "8"]))
print(json.dumps(codes))
print("---")
codes.append(main([*on_cpus, "--batches", "24", "8", "--prefetch", "30", "--seconds", "1"]))
"""


@pytest.fixture(scope="module")
def real() -> tuple[list[str], str]:
    environ = {"CUDA_VISIBLE_DEVICES": "", **NOT_FOR_THE_BENCH}
    done = ran_python("-c", REAL, environ=environ, timeout_s=180)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("---\n"), done.stderr


@in_make_truth
@pytest.mark.keras_tensorflow
class TestTheRealEngine:
    """One process: TensorFlow takes seconds to start."""

    def test_trains_unequal_parts_on_parts_of_a_cpu(self, real: tuple[list[str], str]) -> None:
        result = json.loads(real[0][0])

        first, last = result["runs"]
        assert result["simulated"] is False
        assert [gpu["batch"] for gpu in last["gpus"]] == [24, 8]
        assert last["steps"] > first["steps"] >= 1
        assert last["samples"] == 32 * last["steps"]
        assert last["samples_per_second"] == pytest.approx(last["samples"] / last["seconds"], 0.01)

    def test_measures_the_gap_between_batches(self, real: tuple[list[str], str]) -> None:
        on_demand, ahead = json.loads(real[0][3])["runs"]

        assert on_demand["gap_ms"] >= 30
        assert ahead["gap_ms"] < on_demand["gap_ms"]

    def test_survives_running_out_of_memory(self, real: tuple[list[str], str]) -> None:
        found = json.loads(real[0][1])["gpus"]

        assert [row["gpu"] for row in found] == ["CPU:1"]
        assert all(58 <= row["fits"] <= 60 for row in found)
        assert all(row["tries"][-1]["samples_per_second"] > 0 for row in found)

    def test_says_what_failed_and_where_no_gpu_is(self, real: tuple[list[str], str]) -> None:
        out, err = real

        assert json.loads(out[2]) == [0, 0, 1, 3, 3]
        printed = [line for line in err.splitlines() if line.startswith("trainer-bench: ")]
        assert len(printed) == 3
        assert "60 + 60 samples on CPU:1 CPU:2" in printed[0]
        assert "GPU:0" not in printed[1]  # not one of them can be seen
        assert "GPU:0" in printed[2]
