"""What `gpumon why` refuses, each in one sentence with the right exit code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.cli import why, why_reader
from gpumon.core.diagnosis.stack_advice import SeenIdle, SeenProcess, stack_advice
from gpumon.core.phase import IdleCause, InputWaitReason
from gpumon.core.sample import Device
from gpumon.core.stacks.evidence import StackEvidence
from gpumon.core.stacks.place import Place
from gpumon.core.stacks.sample_join import SampleKind
from gpumon.core.stacks.stack import ProcessStack, StackFrame, ThreadStack
from gpumon.core.waits.reasons import WaitFigures, WaitReason
from gpumon.outlets.text.why_text import Why
from gpumon.pipeline.stack_watch import Ending, WatchedTime
from gpumon.sources.stacks.permission import StackRefusal
from tests.builders.time import s
from tests.command_line import Shell
from tests.processes import ending
from tests.programs import ROOT
from tests.waiting import wait_until

SIMULATED = ("--source", "simulated:input-bound")
SLEEPING = "import sys, time\nprint(flush=True)\ntime.sleep(60)"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A Python process that sleeps."""
    words = [sys.executable, "-c", SLEEPING]
    with ending(subprocess.Popen(words, stdout=subprocess.PIPE)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        wait_until(lambda: ") S " in Path(f"/proc/{process.pid}/stat").read_text())
        yield process


class TestItRefuses:
    @pytest.mark.parametrize(
        ("words", "code", "says"),
        [
            (("--for", "0", "1"), 2, "must be positive"),
            (("--for", "-1", "1"), 2, "must be positive"),
            (("--for", "soon", "1"), 2, "is not a time"),
            (("--source", "simulated:input-bound"), 2, "a simulated GPU has no list of processes"),
            (("--source", "replay:night.gpumon", "1"), 2, "a recording has no processes"),
            (("--record", "", "1", *SIMULATED), 2, "--record needs the name of a file"),
            (("--once",), 2, "--once wants a process"),
            (("4194303",), 1, "there is no process 4194303"),
            (("no-such-command", *SIMULATED), 127, "'no-such-command' cannot be run"),
            (("/dev/null", *SIMULATED), 126, "'/dev/null' cannot be run: Permission denied"),
        ],
    )
    def test_in_a_sentence(
        self, gpumon: Shell, words: tuple[str, ...], code: int, says: str
    ) -> None:
        refused = gpumon("why", *words)

        assert (refused.code, refused.out) == (code, "")
        assert says in refused.err

    def test_itself(self, gpumon: Shell) -> None:
        assert gpumon("why", str(os.getpid()), *SIMULATED).code == 2

    def test_a_zombie(self, gpumon: Shell) -> None:
        child = os.fork()
        if child == 0:
            os._exit(0)
        try:
            wait_until(lambda: ") Z " in Path(f"/proc/{child}/stat").read_text())
            refused = gpumon("why", str(child), *SIMULATED)
        finally:
            os.waitpid(child, 0)

        assert refused.code == 1
        assert "zombie" in refused.err

    def test_a_gpu_that_is_not_there(self, gpumon: Shell, sleeper: subprocess.Popen[bytes]) -> None:
        refused = gpumon("why", str(sleeper.pid), "--gpu", "7", *SIMULATED)

        assert refused.code == 2
        assert "there is no GPU 7: this source has GPUs 0 and 1" in refused.err

    def test_to_record_into_a_missing_folder(
        self, gpumon: Shell, tmp_path: Path, sleeper: subprocess.Popen[bytes]
    ) -> None:
        path = tmp_path / "none" / "stacks.json"
        refused = gpumon("why", str(sleeper.pid), "--record", path, *SIMULATED)

        assert refused.code == 1
        assert refused.is_refused_in_a_sentence

    def test_to_replace_a_file(
        self, gpumon: Shell, tmp_path: Path, sleeper: subprocess.Popen[bytes]
    ) -> None:
        path = tmp_path / "train.py"
        path.write_text("precious")
        refused = gpumon("why", str(sleeper.pid), "--record", path, *SIMULATED)

        assert refused.code == 2
        assert path.read_text() == "precious"

    def test_a_plot_that_is_no_picture(
        self, gpumon: Shell, sleeper: subprocess.Popen[bytes]
    ) -> None:
        assert gpumon("why", str(sleeper.pid), "--plot", "a.gif", *SIMULATED).code == 2

    def test_without_leaving_an_empty_record(
        self, gpumon: Shell, tmp_path: Path, sleeper: subprocess.Popen[bytes]
    ) -> None:
        path = tmp_path / "stacks.json"
        gpumon("why", str(sleeper.pid), "--gpu", "7", "--record", path, *SIMULATED)

        assert not path.exists()


class TestWhereStacksCannotBeRead:
    def test_the_remedy_comes_first_and_then_what_the_kernel_shows(
        self, gpumon: Shell, monkeypatch: pytest.MonkeyPatch, sleeper: subprocess.Popen[bytes]
    ) -> None:
        remedy = f"sudo gpumon why {sleeper.pid}"
        refusal = StackRefusal("only root may read stacks on this machine", remedy)
        monkeypatch.setattr(why_reader, "refusal", lambda _pid: refusal)
        shown = gpumon("why", str(sleeper.pid), *SIMULATED)

        assert shown.code == 3
        assert remedy in shown.err
        assert "its main thread sleeps" in shown.out

    def test_a_missing_py_spy_is_named(
        self, gpumon: Shell, monkeypatch: pytest.MonkeyPatch, sleeper: subprocess.Popen[bytes]
    ) -> None:
        monkeypatch.setattr(why_reader, "find_py_spy", lambda: None)
        shown = gpumon("why", str(sleeper.pid), *SIMULATED)

        assert shown.code == 3
        assert "pip install -e '.[stacks]'" in shown.err
        assert "its main thread sleeps" in shown.out

    def test_a_program_without_python_shows_its_sleep(self, gpumon: Shell) -> None:
        with ending(subprocess.Popen(["sleep", "60"])) as process:
            wait_until(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n")
            shown = gpumon("why", str(process.pid), "--once")

        assert shown.code == 0, shown.err
        assert "sleep" in shown.out

    def test_no_argument_is_ever_shown(
        self, gpumon: Shell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(why_reader, "find_py_spy", lambda: None)
        words = [sys.executable, "-c", SLEEPING, "--password=hush"]
        with ending(subprocess.Popen(words, env={**os.environ, "KEY": "hush"})) as process:
            shown = gpumon("why", str(process.pid), *SIMULATED)

        assert "hush" not in shown.out + shown.err


class TestTheCommandLine:
    def test_a_number_is_a_process_and_else_a_command(self) -> None:
        assert why._pid_or_command(["4711"]) == (4711, [])
        assert why._pid_or_command(["python", "train.py"]) == (None, ["python", "train.py"])


class TestTheDocument:
    def test_has_no_key_that_docs_do_not_explain(self) -> None:
        frame = StackFrame("train", "/job/train.py", 41)
        evidence = StackEvidence()
        for _ in range(20):
            place = Place(IdleCause.INPUT_WAIT, frame, frame, (frame,), "Queue.get", frame)
            worker = ProcessStack(8, 7, "python", (ThreadStack(8, (frame,)),))
            evidence.add(SampleKind.IDLE, place, (worker,))
        figures = WaitFigures(4.0, 3.9, 2.0, 2.0, None, None, None, None, None, None)
        reason = WaitReason(
            IdleCause.INPUT_WAIT, InputWaitReason.CPU_BOUND, s(21), 1.0, figures=figures
        )
        device = Device(uuid="GPU-0", index=0)
        watched = WatchedTime(
            device=device, pid=7, observed_ns=s(60), busy_ns=s(30), lowest_ratio=0.0,
            window_ns=s(1), ending=Ending.TIME, finding=evidence.finding(), seen_idle_ns=s(30),
            reasons=(reason,), passed_ns=s(60),
        )  # fmt: skip
        idle = SeenIdle(s(30), s(30))
        process = SeenProcess("train.py", 7, (reason,))
        advice = stack_advice(device, s(30), idle, watched.finding, process)
        result = Why(watched, "train.py", advice, lambda _: "")
        document = why._document(result, "python train.py")

        explained = set(re.findall(r"`(\w+)`", (ROOT / "docs" / "why.md").read_text()))
        assert keys_of(document) - explained == set()
        assert sum(share["ratio"] for share in document["causes"]) == pytest.approx(1)
        assert document["idle_seconds"] + document["busy_seconds"] == document["observed_seconds"]


def keys_of(value: object) -> set[str]:
    """All keys, at any depth."""
    if isinstance(value, dict):
        return set(value) | {key for one in value.values() for key in keys_of(one)}
    if isinstance(value, list):
        return {key for one in value for key in keys_of(one)}
    return set()
