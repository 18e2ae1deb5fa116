"""Specification of the one run that a process is."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.ring.events import RunFacts
from gpumon.core.ring.facts import parse_facts
from gpumon.core.ring.format import FACTS_OFFSET, parse_header
from trainer_hooks import phase, step
from trainer_hooks.ring import process_ring, ring_file
from trainer_hooks.ring.quiet_warning import QuietWarningOnce
from trainer_hooks.ring.ring_writer import RingWriter


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(process_ring._Slot, "ring", None)
    monkeypatch.setattr(process_ring, "_warn_of_name", QuietWarningOnce())


def writer() -> RingWriter:
    pen = process_ring.process_ring().writer
    assert pen is not None
    return pen


def name() -> str:
    return writer().facts.run


def facts_told() -> RunFacts:
    """As whoever reads the ring is told."""
    page = writer()._memory.path.read_bytes()
    return parse_facts(page[FACTS_OFFSET : FACTS_OFFSET + parse_header(page).facts_bytes])


class TestTheNameOfARun:
    def test_may_be_given_until_its_first_step(self) -> None:
        process_ring.describe_run(run="first")
        process_ring.describe_run(run="second")

        assert name() == "second"

    def test_is_kept_after_it_and_one_warning_says_so(self) -> None:
        process_ring.describe_run(run="lr-0.1")
        writer().step()

        with pytest.warns(RuntimeWarning, match=r"'lr-0.01' from 'lr-0.1'.*a process"):
            process_ring.describe_run(run="lr-0.01")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            process_ring.describe_run(run="lr-0.001")

        assert name() == "lr-0.1"

    def test_may_be_said_again(self) -> None:
        process_ring.describe_run(run="lr-0.1")
        writer().step()

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            process_ring.describe_run(run="lr-0.1")

        assert name() == "lr-0.1"


def rings(folder: Path) -> list[Path]:
    return list((folder / "phases").glob("*.ring"))


class TestATaggerThatIsMade:
    def test_says_what_it_is_for_before_anything_has_trained(self) -> None:
        process_ring.announce_run(run="lr-0.1", gpus=[1], framework="keras/jax")

        facts = facts_told()
        assert (facts.run, facts.gpus, facts.framework) == ("lr-0.1", ("1",), "keras/jax")

    def test_changes_nothing_of_what_has_trained_until_its_own_training_begins(self) -> None:
        process_ring.announce_run(run="lr-0.1", gpus=[0], framework="keras/jax")
        writer().step()
        with pytest.warns(RuntimeWarning, match="'lr-0.01' from 'lr-0.1'"):
            process_ring.announce_run(run="lr-0.01", gpus=[1], framework="lightning")

        facts = facts_told()
        assert (facts.run, facts.gpus, facts.framework) == ("lr-0.1", ("0",), "keras/jax")

    def test_and_refused_leaves_no_run(self, tmp_path: Path) -> None:
        process_ring.announce_run(run="mistaken", gpus=None, framework="lightning")
        assert len(rings(tmp_path)) == 1
        process_ring.withdraw_run()

        assert rings(tmp_path) == []

    @pytest.mark.parametrize("tells", [step, lambda: phase("checkpoint").__enter__()])
    def test_and_refused_leaves_a_run_that_something_else_was_told_of(
        self, tmp_path: Path, tells: Callable[[], None]
    ) -> None:
        process_ring.announce_run(run="mistaken", gpus=None, framework="lightning")
        tells()
        process_ring.withdraw_run()

        assert len(rings(tmp_path)) == 1
        assert writer().enabled

    def test_and_refused_is_in_nobodys_way(self, tmp_path: Path) -> None:
        process_ring.announce_run(run="mistaken", gpus=None, framework="lightning")
        process_ring.withdraw_run()
        process_ring.withdraw_run()
        process_ring.announce_run(run="meant", gpus=None, framework="huggingface")
        step()

        assert len(rings(tmp_path)) == 1
        assert (facts_told().run, writer().steps) == ("meant", 1)


class TestASignalThatComesWhileTheRingIsMade:
    """Its handler may save a checkpoint, and tag that."""

    @pytest.fixture(autouse=True)
    def signalled(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        make, saved = ring_file.make_ring, phase("checkpoint")

        def interrupted(*args: Any, **named: Any) -> Any:
            signal.raise_signal(signal.SIGUSR1)
            return make(*args, **named)

        def save(*_: object) -> None:
            with saved:
                step()

        monkeypatch.setattr(process_ring, "make_ring", interrupted)
        before = signal.signal(signal.SIGUSR1, save)
        yield
        signal.signal(signal.SIGUSR1, before)

    def test_does_not_hold_up_the_training(self, tmp_path: Path) -> None:
        with phase("train_step"):
            step()

        assert (writer().steps, len(rings(tmp_path))) == (1, 1)
