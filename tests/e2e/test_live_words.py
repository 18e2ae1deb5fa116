"""Training runs that hang beside a real daemon: what its report says of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from tests.e2e.hurried_daemon import ROOT, HurriedDaemon, started_training
from tests.e2e.live_training import STEPS_BEFORE_HANG
from tests.patience import wait_until
from tests.programs import gpumon

pytestmark = pytest.mark.slow

PROGRAM = ROOT / "tests" / "e2e" / "live_training.py"
KINDS = ("first_batch", "later")
"""By the number of its GPU."""
LINE = next(
    number
    for number, line in enumerate(PROGRAM.read_text(encoding="utf-8").splitlines(), 1)
    if " in timed(" in line
)


class Words(NamedTuple):
    """What was reported while two of the training runs hung, and after these had been ended.

    Attributes:
        pids: Of the training runs, by kind.
        whole: The printed report on all of them.
        alone: The printed report on one of them, by kind.
        report: The same for scripts, on all of them.
        after: ... once those that hang were ended.
        whole_after: The printed report then.
    """

    pids: dict[str, int]
    whole: str
    alone: dict[str, str]
    report: dict[str, Any]
    after: dict[str, Any]
    whole_after: str

    def gpu(self, kind: str) -> dict[str, Any]:
        found: dict[str, Any] = self.report["gpus"][KINDS.index(kind)]
        return found


def printed(daemon: HurriedDaemon, *words: str) -> str:
    """A report in one line."""
    done = gpumon("report", *words, environ={**daemon.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


def first_sentence(text: str) -> str:
    return text.partition(" Why: ")[0]


def hanging(report: dict[str, Any]) -> list[str]:
    return [kind for kind, gpu in zip(KINDS, report["gpus"], strict=True) if is_hanging(gpu)]


def is_hanging(gpu: dict[str, Any]) -> bool:
    return "hanging" in (gpu["verdict"], gpu["now"]["verdict"])


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Words]:
    daemon = HurriedDaemon(tmp_path_factory.mktemp("words"), gpus=len(KINDS))

    def both_hang() -> bool:
        report = daemon.report()
        later = report["gpus"][KINDS.index("later")]
        return hanging(report) == [*KINDS] and later["hanging_seconds"] > 1

    with daemon, ExitStack() as stack:
        runs = {
            kind: stack.enter_context(started_training(daemon, PROGRAM, kind, gpu, kind))
            for gpu, kind in enumerate(KINDS)
        }
        wait_until(both_hang, 60)
        report, whole = daemon.report(), printed(daemon)
        alone = {kind: printed(daemon, "--run", kind) for kind in KINDS}
        for training in runs.values():
            training.kill()
        wait_until(lambda: hanging(daemon.report()) == [])
        pids = {kind: process.pid for kind, process in runs.items()}
        yield Words(pids, whole, alone, report, daemon.report(), printed(daemon))


class TestATrainingThatWaitsForABatchThatNeverComes:
    def test_is_the_first_sentence_with_since_when(self, words: Words) -> None:
        assert re.match(r"Verdict: Hanging since \d\d:\d\d UTC: Run ", words.whole)
        assert "healthy" not in first_sentence(words.whole)

    def test_is_named_with_process_phase_file_and_line(self, words: Words) -> None:
        later = (
            rf"[Rr]un later \(pid {words.pids['later']}\) has counted no step for [\d.]+ s: "
            rf"it is waiting for input, in batches_that_end\(\) \(live_training\.py:{LINE}\)"
        )

        assert re.search(later, first_sentence(words.whole))
        assert re.search(later, first_sentence(words.alone["later"]))

    def test_counted_steps_before(self, words: Words) -> None:
        assert f"had counted {STEPS_BEFORE_HANG} steps by then" in words.alone["later"]

    def test_is_advised_to_look_at_its_process_and_at_no_worker(self, words: Words) -> None:
        text = words.alone["later"]

        assert f"py-spy dump --pid {words.pids['later']}" in text
        for word in ("worker", "healthy", "times as fast", "release it"):
            assert word not in text.lower()

    def test_hangs_for_all_time_beyond_the_limit_and_is_not_starved_then(
        self, words: Words
    ) -> None:
        gpu = words.gpu("later")

        assert gpu["hanging_seconds"] > 0
        assert gpu["starved_seconds"] == pytest.approx(
            gpu["idle_by_cause"]["input_wait"] - gpu["hanging_seconds"], abs=0.2
        )


class TestATrainingWhoseFirstBatchNeverComes:
    def test_is_named_with_process_file_and_line(self, words: Words) -> None:
        pid = words.pids["first_batch"]
        waits = (
            rf"[Rr]un first_batch \(pid {pid}\) has waited for its first batch for [\d.]+ s, in "
            rf"no_batch\(\) \(live_training\.py:{LINE}\)"
        )

        assert re.search(waits, first_sentence(words.whole))
        assert re.search(rf"(py-spy dump --|the same for )pid [^.]*\b{pid}\b", words.whole)

    def test_used_its_gpu_for_nothing_that_could_be_starved(self, words: Words) -> None:
        gpu = words.gpu("first_batch")

        assert (gpu["in_use_seconds"], gpu["starved_seconds"]) == (0, 0)


class TestOnceThoseThatHangAreEnded:
    def test_neither_verdict_is_hanging_any_more(self, words: Words) -> None:
        assert not any(is_hanging(gpu) for gpu in words.after["gpus"])
        assert "hang" not in first_sentence(words.whole_after).lower()

    def test_the_time_that_they_hung_is_kept(self, words: Words) -> None:
        gpu = words.after["gpus"][KINDS.index("later")]

        assert gpu["hanging_seconds"] >= words.gpu("later")["hanging_seconds"]
