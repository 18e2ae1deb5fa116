"""What a user sees of ``trainer-bench``: the article's lines, its errors, and what is new."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.programs import ran_python
from trainer_hooks.trainer_bench.main import main

SIMULATED = "SIMULATED: no GPU is used, and no figure here is a real one's"
NO_BATCH = "You must specify at least one batch size"
ONE_FOR_EACH = "You must specify a batch size for each GPU"


@pytest.fixture
def bench(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the command; its exit code and what it said."""

    def run(*words: str) -> tuple[int, str, str]:
        try:
            code = main(words)
        except SystemExit as left:
            code = int(left.code or 0)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def told(bench: Any) -> Any:
    """Run the command on simulated GPUs; what it says for programs."""

    def run(*words: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(bench("--simulate", *words, "--json")[1])
        return answer

    return run


def speed_in(line: str) -> int:
    found = re.search(r"(\d+)sps$", line)
    assert found, line
    return int(found[1])


class TestRow5TheArticlesCommands:
    """Row 5 of the acceptance table: ``--gpus``/``--batches``, same lines, same two errors."""

    def test_row_5_two_gpus_print_the_same_lines(self, bench: Any) -> None:
        code, out, err = bench("--simulate", "--gpus", "0", "1", "--batches", "512", "355")

        lines = out.splitlines()
        start = lines.index("Each of the 3 training runs should take about 10 seconds...")
        assert (code, err) == (0, "")
        assert [line.split("  ")[0] for line in lines[1:3]] == ["GPU:0", "GPU:1"]
        run = lines[start + 1 : start + 5]
        assert run[0] == "After 20808 samples"
        assert [re.sub(r"\d+sps", "", line) for line in run[1:]] == [
            "GPU:0[512] ",
            "GPU:1[355] ",
            "Total:[867] ",
        ]
        assert speed_in(run[1]) == pytest.approx(1196, rel=0.03)
        assert speed_in(run[2]) == pytest.approx(829, rel=0.03)
        assert speed_in(run[3]) == pytest.approx(2025, rel=0.03)
        assert [line for line in lines if line.startswith("After")][1] == "After 41616 samples"

    @pytest.mark.parametrize(
        ("words", "name", "speed"),
        [
            (["--batches", "64"], "default GPU:", 683),
            (["--gpus", "1", "--batches", "512"], "GPU:1", 878),
        ],
    )  # fmt: skip
    def test_row_5_one_gpu_prints_one_line_a_run(
        self, bench: Any, words: list[str], name: str, speed: int
    ) -> None:
        _, out, _ = bench("--simulate", *words)

        runs = [line for line in out.splitlines() if line.startswith("After")]
        assert len(runs) == 3
        assert all(re.fullmatch(rf"After \d+ samples {name} \d+sps", line) for line in runs)
        assert speed_in(runs[0]) == pytest.approx(speed, rel=0.02)

    @pytest.mark.parametrize(
        ("words", "error"),
        [
            ([], NO_BATCH),
            (["--gpus", "0", "1"], NO_BATCH),
            (["--gpus", "0", "1", "--batches", "512"], ONE_FOR_EACH),
            (["--batches", "512", "355"], ONE_FOR_EACH),
        ],
    )  # fmt: skip
    def test_row_5_the_same_two_errors(self, bench: Any, words: list[str], error: str) -> None:
        code, out, err = bench("--simulate", *words)

        assert (code, out) == (2, "")
        assert err.startswith(f"trainer-bench: {error}")
        assert len(err.splitlines()) == 1

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (
                ["--gpus", "0", "1", "--batches", "1024", "710"],
                "out of memory on GPU:1, which does not hold 710 samples",
            ),
            (
                ["--batches", "100000", "--balance"],
                "take a smaller one (--find-batch tells what each GPU holds)",
            ),
        ],
    )
    def test_memory_that_runs_out_gets_a_sentence(
        self, bench: Any, words: list[str], said: str
    ) -> None:
        code, _, err = bench("--simulate", *words)

        assert code == 1
        assert said in err


class TestWrongWords:
    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["--batches", "0"], "'0' is no whole number"),
            (["--batches", "9" * 12], "999999999999 is too large"),
            (["--batches", "sixty"], "'sixty' is no whole number"),
            (["--batches", "64", "--gpus", "TPU:0"], "'TPU:0' is no GPU"),
            (["--batches", "64", "64", "--gpus", "0", "0"], "names a GPU twice"),
            (["--batches", "64", "--gpus", "7"], "there is no GPU:7 here"),
            (["--batches", "64", "--seconds", "nan"], "'nan' is not a number of seconds"),
            (["--batches", "64", "--plot", "a.jpg"], "a plot is a .png, a .svg or a .pdf"),
            (["--batches", "64", "--scaling", "1", "4"], "asks for 4 GPUs, and there are 2"),
            (["--batches", "64", "--scaling", "4"], "--simulate fast,fast,slow,slow has four"),
            (["fast,tpu", "--batches", "64"], "there is no simulated GPU 'tpu'"),
            (["--batches", "64", "--balance", "--gpus", "0"], "--balance needs two GPUs"),
            (["--find-batch", "--margin", "1"], "'1' is not a part from 0 to 0.9"),
            (["--balance", "--find-batch"], "not allowed with"),
            (["--balance", "--batches", "1"], "--batches 1 leaves a GPU without a sample"),
            (["--balance", "--plot", "/not/there/a.svg"], "there is no folder /not/there"),
            (["--batches", "64", "32"], "several GPUs are named with --gpus 0 1"),
        ],
    )
    def test_get_a_sentence_and_exit_2(self, bench: Any, words: list[str], said: str) -> None:
        code, out, err = bench("--simulate", *words)

        assert code == 2
        assert said in err
        assert "sps" not in out
        assert "Traceback" not in err

    def test_refuse_a_plot_before_anything_is_measured(self, bench: Any, tmp_path: Path) -> None:
        folder = tmp_path / "folder.svg"
        folder.mkdir()

        code, out, err = bench("--simulate", "--balance", "--plot", str(folder))

        assert (code, out) == (2, "")
        assert f"{folder} is a folder" in err

    def test_without_tensorflow_is_no_gpu(
        self, bench: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "tensorflow", None)

        code, _, err = bench("--batches", "64")

        assert code == 3
        assert "TensorFlow is not installed here (`pip install tensorflow`)" in err
        assert "--simulate needs neither" in err


class TestSimulated:
    @pytest.mark.parametrize(
        "words",
        [
            ["--batches", "64"],
            ["--batches", "1388", "--balance"],
            ["--find-batch"],
            ["--batches", "64", "--scaling", "1", "2"],
        ],
    )
    def test_says_so_in_every_output(
        self, bench: Any, told: Any, tmp_path: Path, words: list[str]
    ) -> None:
        plot = tmp_path / "plot.svg"

        _, text, _ = bench("--simulate", *words)

        assert text.splitlines()[0] == SIMULATED
        assert told(*words, "--plot", str(plot))["simulated"] is True
        assert "(SIMULATED)" in plot.read_text(encoding="utf-8")
        ElementTree.parse(plot)


class TestTheNotice:
    @pytest.mark.parametrize(
        ("batches", "comes"), [(["256", "256"], False), (["256", "257"], True)]
    )
    def test_comes_where_the_global_batch_passes_512(
        self, bench: Any, batches: list[str], comes: bool
    ) -> None:
        _, out, _ = bench("--simulate", "--gpus", "0", "1", "--batches", *batches)

        assert ("generalises worse" in out) == comes
        assert ("docs/multi-gpu.md" in out) == comes

    def test_comes_once_where_several_gpus_are_searched(self, told: Any) -> None:
        found = told("--gpus", "0", "1", "--find-batch")

        (notice,) = found["notices"]
        assert f"of {max(row['advised'] for row in found['gpus'])} is past" in notice


class TestBalance:
    def test_ends_with_ratios_ready_to_paste_and_says_what_they_are_held_against(
        self, bench: Any
    ) -> None:
        _, out, _ = bench("--simulate", "--batches", "1388", "--balance")

        assert "ratios=[3, 2]" in out.splitlines()
        assert "GPU:1[694]: out of memory" in out
        assert "of what they did alone (GPU:0[694], GPU:1[347])" in out

    def test_says_why_all_together_do_more_than_each_alone(self, bench: Any, told: Any) -> None:
        _, out, _ = bench("--simulate", "--batches", "1388", "--balance")

        assert "103.4% of what they did alone" in out
        why = told("--batches", "1388", "--balance")["notices"][0]
        assert f"Notice: {why}\n" in out
        assert why == (
            "3.4% above what they did alone, because larger parts are worked off faster: GPU:0 had "
            "694 samples a step alone and has 836 here, GPU:1 had 347 samples a step alone and has "
            "552 here"
        )

    def test_says_nothing_of_it_where_they_do_less(self, told: Any) -> None:
        found = told("--batches", "1024", "--balance")

        assert found["part_of_solo_speeds"] < 1
        assert [notice for notice in found["notices"] if "alone" in notice] == []

    def test_takes_512_samples_a_gpu_if_it_is_told_no_batch(self, told: Any) -> None:
        assert sum(told("--balance")["batches"]) == 1024


class TestScaling:
    def test_tells_speed_up_and_efficiency(self, told: Any) -> None:
        words = ["fast,fast,fast,fast", "--batches", "256", "--scaling", "1", "2", "4"]

        rows = told(*words)["rows"]
        assert [row["gpu_count"] for row in rows] == [1, 2, 4]
        assert [row["global_batch"] for row in rows] == [256, 512, 1024]
        for row in rows:
            speed_up = row["samples_per_second"] / rows[0]["samples_per_second"]
            assert row["speed_up"] == pytest.approx(speed_up)
            assert row["efficiency"] == pytest.approx(speed_up / row["gpu_count"], rel=0.01)

    def test_holds_unequal_gpus_against_what_each_does_alone(
        self, bench: Any, told: Any, tmp_path: Path
    ) -> None:
        """Four times the first is something that the two slow ones cannot do."""
        plot = tmp_path / "plot.svg"
        words = ["fast,fast,slow,slow", "--batches", "256", "--scaling", "1", "2", "4"]

        _, out, _ = bench("--simulate", *words, "--plot", str(plot))
        found = told(*words)

        alone, rows = [one["samples_per_second"] for one in found["alone"]], found["rows"]
        assert alone == pytest.approx([1130, 1130, 772, 772], rel=0.01)
        for row in rows:
            of_possible = row["samples_per_second"] / sum(alone[: row["gpu_count"]])
            assert row["efficiency"] == pytest.approx(of_possible, rel=1e-4)
        assert rows[-1]["efficiency"] == pytest.approx(0.818, abs=0.005)
        assert rows[0]["samples_per_second"] == pytest.approx(alone[0], rel=1e-4)
        assert "the GPUs are unequal, 1130 samples a second on GPU:1 and 77" in out
        assert "--balance finds the ratio" in out
        assert "sum of each alone" in plot.read_text(encoding="utf-8")

    def test_says_how_it_comes_above_a_hundred_percent(self, bench: Any) -> None:
        _, out, _ = bench("--simulate", "fast,fast", "--batches", "256", "--scaling", "1", "2")

        assert re.search(r"   2     512 +\d+ +2\.02x +101\.\d%", out)
        why = re.search(r"Notice: 2 GPUs are 1\.\d% above what they did alone: (.+)", out)
        assert why
        assert why[1].startswith("in each step no GPU is at its samples for 7.0 ms")
        assert "the GPUs are unequal" not in out

    def test_of_equal_gpus_below_it_says_neither(self, told: Any) -> None:
        assert told("slow", "--batches", "256", "--scaling", "1")["notices"] == []

    def test_holds_more_gpus_against_the_fewest_in_whatever_order(self, told: Any) -> None:
        rows = told("--batches", "64", "--scaling", "2", "1", "2")["rows"]

        assert [row["gpu_count"] for row in rows] == [1, 2]


class TestFindBatch:
    def test_finds_what_each_gpu_of_the_article_holds(self, told: Any) -> None:
        rows = told("--gpus", "0", "1", "--find-batch")["gpus"]

        assert [(row["gpu"], row["fits"]) for row in rows] == [("GPU:0", 1024), ("GPU:1", 640)]
        assert all(row["advised"] <= 0.95 * row["fits"] for row in rows)
        assert any(one["samples_per_second"] is None for one in rows[0]["tries"])


def test_the_help_ends_with_examples_that_work(bench: Any) -> None:
    code, out, _ = bench("--help")

    examples = re.findall(r"^  trainer-bench (--simulate .*?)(?:  .*)?$", out, re.MULTILINE)
    assert code == 0
    assert examples
    assert [bench(*example.split())[0] for example in examples] == [0] * len(examples)


def test_the_command_runs_as_a_module_without_a_framework() -> None:
    done = ran_python("-m", "trainer_hooks.trainer_bench", "--simulate", "--batches", "64")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(SIMULATED)


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
"""


@pytest.fixture(scope="module")
def real() -> tuple[list[str], str]:
    environ = {"CUDA_VISIBLE_DEVICES": "", **NOT_FOR_THE_BENCH}
    done = ran_python("-c", REAL, environ=environ, timeout_s=180)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("---\n"), done.stderr


@pytest.mark.keras_tensorflow
class TestTheRealEngine:
    """One process: TensorFlow takes seconds to start."""

    def test_trains_unequal_parts_on_parts_of_a_cpu(self, real: tuple[list[str], str]) -> None:
        told = json.loads(real[0][0])

        first, last = told["runs"]
        assert told["simulated"] is False
        assert [gpu["batch"] for gpu in last["gpus"]] == [24, 8]
        assert last["steps"] > first["steps"] >= 1
        assert last["samples"] == 32 * last["steps"]
        assert last["samples_per_second"] == pytest.approx(last["samples"] / last["seconds"], 0.01)

    def test_survives_running_out_of_memory(self, real: tuple[list[str], str]) -> None:
        found = json.loads(real[0][1])["gpus"]

        assert [row["gpu"] for row in found] == ["CPU:1"]
        assert all(58 <= row["fits"] <= 60 for row in found)
        assert all(row["tries"][-1]["samples_per_second"] > 0 for row in found)

    def test_says_what_failed_and_where_no_gpu_is(self, real: tuple[list[str], str]) -> None:
        out, err = real

        assert json.loads(out[2]) == [0, 0, 1, 3, 3]
        assert "trainer-bench: out of memory with 60 + 60 samples on CPU:1 CPU:2" in err
        assert "trainer-bench: no GPU can be seen; --simulate needs none" in err
        assert "trainer-bench: GPU:0 is not here; --simulate needs none" in err
