"""Three trainings, each slow for a reason of its own: what the report advises is worth it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from gpumon.core.documents.report_codec import decode_report
from gpumon.core.report.report import Report
from tests.daemon import RunningDaemon
from tests.e2e.trainings_under_serve import training
from tests.truth.advice.followed import followed_of, is_kept
from tests.truth.host.surroundings import NotHereError, cold_file, must_read_from_a_device
from tests.truth.host.work import MIB


class SlowTraining(NamedTuple):
    """One of the examples.

    Attributes:
        reason: For which it waits.
        steps: Enough for a verdict before the change, and for a pace after it.
        change: The argument that makes it.
        names: What the advice must name.
    """

    reason: str
    steps: tuple[int, int]
    change: tuple[str, ...]
    names: tuple[str, ...]


DISK = SlowTraining("disk_bound", (300, 250), ("--keep-in-memory",), ("memory",))
GIL = SlowTraining(
    "gil_bound", (500, 400), ("--processes",), ("process", "Texts", "slow_by_the_gil.py:")
)
FEW = SlowTraining(
    "cpu_bound", (350, 300), ("--workers", "2"),
    ("num_workers=2", "DataLoader(Photos, num_workers=1)", "slow_by_few_workers.py:"),
)  # fmt: skip


def report_of(example: str, folder: Path, *words: str) -> Report:
    folder.mkdir()
    source = f"follow:{folder / 'busy.jsonl'}"
    with (
        RunningDaemon(folder, "--source", source) as daemon,
        training(daemon, example, "slow", *words, GPUMON_GPUS="0", OMP_NUM_THREADS="1") as slow,
    ):
        slow.result()
        return decode_report(daemon.settled_report(patience_s=60))


def holds(example: str, slow: SlowTraining, folder: Path) -> None:
    """The report names the reason and the change, and what that gains is within its bound."""
    before, after = (
        report_of(example, folder / side, "--steps", str(steps), *words)
        for side, steps, words in zip(
            ("before", "after"), slow.steps, ((), slow.change), strict=True
        )
    )
    followed = followed_of("input_wait", before, after)

    assert followed.reason == slow.reason
    assert [name for name in slow.names if name not in followed.text] == []
    assert is_kept(followed), followed


@pytest.mark.slow
@pytest.mark.measured
def test_a_cold_disk(tmp_path: Path) -> None:
    try:
        with cold_file(tmp_path, MIB) as file:
            must_read_from_a_device(file, 0)
    except NotHereError as reason:
        pytest.skip(str(reason))

    holds("slow_by_a_disk", DISK, tmp_path)


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.measured
def test_threads_that_share_pythons_lock(tmp_path: Path) -> None:
    holds("slow_by_the_gil", GIL, tmp_path)


@pytest.mark.keras_torch
@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.measured
def test_too_few_workers(tmp_path: Path) -> None:
    holds("slow_by_few_workers", FEW, tmp_path)
