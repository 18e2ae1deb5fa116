"""What `gpumon why` finds in real training scripts without any tag."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpumon.sources.stacks.py_spy import find_py_spy
from tests.e2e.pty_terminal import on_a_terminal
from tests.fakenvml.build import fake_env
from tests.fakenvml.control import FakeNvml
from tests.needs import missing
from tests.processes import ending
from tests.programs import ROOT, gpumon
from tests.waiting import wait_until

HEAD = """\
import multiprocessing, sys, time
from pathlib import Path

sys.path.insert(0, sys.argv[2])
from trainer_hooks.examples.busy_spans import BusySpans


"""
GENERATOR = f"""\
{HEAD}
def read_shard():
    while True:
        time.sleep(1.2)
        yield 1


def train(gpu):
    for batch in read_shard():
        for _ in range(3):
            gpu.sleep(0.1)


with BusySpans(Path(sys.argv[1])) as gpu:
    train(gpu)
"""
WORKERS = f"""\
{HEAD}
def decode(number):
    time.sleep(2.4)
    return number


def work(batches):
    while True:
        batches.put(decode(1))


def main():
    context = multiprocessing.get_context("fork")
    batches = context.Queue(1)
    for _ in range(2):
        context.Process(target=work, args=(batches,), daemon=True).start()
    with BusySpans(Path(sys.argv[1])) as gpu:
        for _ in range(int(sys.argv[3])):
            batches.get()
            gpu.sleep(0.2)
    print("trained")
    sys.exit(3)


main()
"""
LOOP = """\
import time


def wait_for_shard():
    while True:
        time.sleep(0.1)


wait_for_shard()
"""


@pytest.fixture(autouse=True)
def _has_py_spy() -> None:
    if find_py_spy() is None:
        missing("py-spy is not installed (pip install -e '.[stacks]')")


@contextmanager
def training(folder: Path, script: str) -> Iterator[subprocess.Popen[bytes]]:
    """A training script that has worked already; its spans are in ``busy.jsonl``."""
    (folder / "train.py").write_text(script)
    spans = folder / "busy.jsonl"
    words = [sys.executable, str(folder / "train.py"), str(spans), str(ROOT)]
    with ending(subprocess.Popen(words)) as process:
        wait_until(lambda: spans.exists() and spans.stat().st_size > 0)
        yield process


class TestAPlainGenerator:
    @pytest.mark.measured  # on a busy machine the spans come late, and no sample is of work alone
    def test_is_named_with_its_caller_and_its_stacks_are_kept(self, tmp_path: Path) -> None:
        record, plot = tmp_path / "stacks.json", tmp_path / "stacks.svg"
        with training(tmp_path, GENERATOR) as process:
            shown = gpumon(
                "why", str(process.pid), "--source", f"follow:{tmp_path / 'busy.jsonl'}",
                "--for", "12", "--record", str(record), "--plot", str(plot),
            )  # fmt: skip

        assert shown.returncode == 0, shown.stderr
        text, lines = " ".join(shown.stdout.split()), GENERATOR.splitlines()
        sleeps = lines.index("        time.sleep(1.2)") + 1
        loops = lines.index("    for batch in read_shard():") + 1
        assert f"is in read_shard (train.py:{sleeps}), called from train.py:{loops}" in text
        assert record.stat().st_mode & 0o777 == 0o600
        profiles = json.loads(record.read_bytes())["profiles"]
        assert {profile["name"] for profile in profiles} >= {"GPU idle", "GPU busy"}
        assert plot.read_text().startswith("<?xml")


class TestACommand:
    def test_is_started_and_its_workers_are_seen(self, tmp_path: Path) -> None:
        script, spans = tmp_path / "train.py", tmp_path / "busy.jsonl"
        script.write_text(WORKERS)
        shown = gpumon(
            "why", "--json", "--source", f"follow:{spans}", "--for", "30", "--",
            sys.executable, str(script), str(spans), str(ROOT), "8",
        )  # fmt: skip

        assert shown.returncode == 3, shown.stderr  # the command's own
        document, _ = json.JSONDecoder().raw_decode(shown.stdout[shown.stdout.index("{") :])
        assert "trained" in shown.stdout
        assert document["ended_by"] == "process_ended"
        assert document["workers"]["count"] == 2
        assert document["workers"]["user_call"]["function"] == "decode"
        assert document["causes"][0]["cause"] == "input_wait"

    def test_that_does_not_exist_is_refused(self, tmp_path: Path) -> None:
        source = f"follow:{tmp_path / 'busy.jsonl'}"
        shown = gpumon("why", "--source", source, "--", "no-such-program", "--for")

        assert shown.returncode == 127
        assert "'no-such-program' cannot be run" in shown.stderr

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
    def test_ends_with_gpumon_while_it_has_not_used_a_gpu(
        self, tmp_path: Path, fake_library: Path, number: signal.Signals
    ) -> None:
        script = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
        words = [sys.executable, "-m", "gpumon", "why", "--", sys.executable, "-c", script]
        with FakeNvml(tmp_path / "gpus"):
            environ = fake_env(tmp_path / "gpus", fake_library.parent)
            with ending(
                subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, text=True)
            ) as process:
                assert process.stdout is not None
                pid = int(process.stdout.readline())
                process.send_signal(number)
                code = process.wait(20)

        assert code == 128 + number
        assert not Path(f"/proc/{pid}").exists()


class TestOnABoard:
    def test_the_process_of_the_only_gpu_in_use_is_found(
        self, tmp_path: Path, fake_library: Path
    ) -> None:
        (tmp_path / "train.py").write_text(LOOP)
        with (
            FakeNvml(tmp_path / "gpus", gpus=2) as fake,
            ending(subprocess.Popen([sys.executable, str(tmp_path / "train.py")])) as process,
        ):
            fake.wave(1, period_s=2.0, busy_ratio=0.3)
            fake.run(1, process.pid)
            environ = fake_env(tmp_path / "gpus", fake_library.parent)
            shown = gpumon("why", "--json", "--for", "8", environ=environ)

        assert shown.returncode == 0, shown.stderr
        document = json.loads(shown.stdout)
        assert (document["device"]["gpu"], document["pid"]) == ("1", process.pid)
        assert 0.6 <= document["idle_seconds"] / document["observed_seconds"] <= 0.8
        assert document["places"][0]["caller"]["function"] == "wait_for_shard"
        function = document["function"]  # it is there while the GPU works, too
        assert function is None or not function["is_compared"]
        assert document["samples"]["idle"] >= 5

    def test_an_unused_board_has_nothing_to_explain(
        self, tmp_path: Path, fake_library: Path
    ) -> None:
        with FakeNvml(tmp_path / "gpus", gpus=2):
            environ = fake_env(tmp_path / "gpus", fake_library.parent)
            shown = gpumon("why", environ=environ)

        assert shown.returncode == 1
        assert "no process uses any GPU" in shown.stderr


class TestOnATerminal:
    def test_ctrl_c_prints_what_was_found(self, tmp_path: Path) -> None:
        with training(tmp_path, GENERATOR) as process:
            shown = on_a_terminal(
                [
                    sys.executable, "-m", "gpumon", "why", str(process.pid),
                    "--source", f"follow:{tmp_path / 'busy.jsonl'}",
                ],
                environ=os.environ,
                ctrl_c_at=r"\d stack samples? at ",
            )  # fmt: skip

        assert shown.exit_code == 0
        assert any(line.startswith("gpumon: watching GPU 0") for line in shown.lines)
        assert any(line.startswith("GPU 0 was idle for") for line in shown.lines)
