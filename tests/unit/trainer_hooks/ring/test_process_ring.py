"""The one run of a process: its name, its taggers, how its batches are split."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.ring_format.events import RingKind
from tests.ring_contents import count_rings
from tests.unit.trainer_hooks.ring.ring_contents import events, facts
from trainer_hooks import phase, step
from trainer_hooks.ring import mapped_file, process_ring
from trainer_hooks.ring.process_ring import announce_run, describe_run, withdraw_run
from trainer_hooks.ring.ring_writer import RingWriter

pytestmark = pytest.mark.usefixtures("own_folder", "new_process")


def writer() -> RingWriter:
    """The writer of this process's ring."""
    found = process_ring.process_ring().writer
    assert found is not None
    return found


class TestTheNameOfARun:
    def test_may_change_until_its_first_step_and_then_stays_with_one_warning(
        self, recwarn: pytest.WarningsRecorder
    ) -> None:
        process_ring.ProcessRing(None).report_shares({"0": 1.0})  # nothing, without a writer
        describe_run(run="first")
        describe_run(run="lr-0.1")
        writer().step()
        describe_run(run="lr-0.1")  # may be repeated
        assert len(recwarn) == 0

        with pytest.warns(
            RuntimeWarning, match=r"'lr-0.01' as a separate.*'lr-0.1'.*its own process"
        ):
            describe_run(run="lr-0.01")
        describe_run(run="lr-0.001")

        assert len(recwarn) == 0
        assert writer().facts.run == "lr-0.1"


class TestATaggerThatIsMade:
    def test_new_tagger_keeps_the_facts_of_what_has_trained(self) -> None:
        announce_run(run="lr-0.1", gpus=[0], framework="keras/jax")
        writer().step()
        with pytest.warns(RuntimeWarning, match="'lr-0.01' as a separate run"):
            announce_run(run="lr-0.01", gpus=[1], framework="lightning")

        recorded = facts(writer())
        assert (recorded.run, recorded.gpus, recorded.framework) == ("lr-0.1", ("0",), "keras/jax")

    @pytest.mark.parametrize(
        "act",
        [
            step,
            lambda: phase("checkpoint").__enter__(),
            lambda: process_ring.process_ring().report_shares({"0": 0.5, "1": 0.5}),
        ],
        ids=["a step", "a phase", "shares"],
    )
    def test_withdrawing_keeps_a_used_ring(self, tmp_path: Path, act: Callable[[], None]) -> None:
        announce_run(run="mistaken", gpus=None, framework="lightning")
        act()
        withdraw_run()

        assert count_rings(tmp_path) == 1
        assert writer().enabled

    def test_withdrawing_deletes_an_unused_ring_and_allows_another(self, tmp_path: Path) -> None:
        announce_run(run="mistaken", gpus=None, framework="lightning")
        assert count_rings(tmp_path) == 1
        withdraw_run()
        withdraw_run()
        assert count_rings(tmp_path) == 0
        announce_run(run="meant", gpus=None, framework="huggingface")
        step()

        assert count_rings(tmp_path) == 1
        assert (facts(writer()).run, writer().steps) == ("meant", 1)


class TestASignalThatComesWhileTheRingIsMade:
    """Its handler may save a checkpoint, and tag that."""

    @pytest.fixture(autouse=True)
    def signalled(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        make, saved = mapped_file.make_ring, phase("checkpoint")

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

        assert (writer().steps, count_rings(tmp_path)) == (1, 1)


class TestSharesOfEachBatch:
    @pytest.mark.parametrize(
        ("recorded", "changes"),
        [
            ([{"0": 0.6, "1": 0.4}], 0),
            ([{"0": 0.5, "1": 0.5}, {"1": 0.4, "0": 0.6}, {"0": 0.6, "1": 0.4}], 1),
            ([{"0": 0.5, "1": 0.5}, {"0": 0.6, "1": 0.4}, {"0": 0.7, "1": 0.3}], 2),
            ([{"0": 0.5, "1": 0.5}, {}, {"0": 0.6, "1": 0.4}], 0),
        ],
        ids=["before training", "others, and again", "others twice", "forgotten between"],
    )
    def test_shares_are_recorded_and_changes_counted_and_marked(
        self, recorded: list[dict[str, float]], changes: int
    ) -> None:
        for shares in recorded:
            process_ring.process_ring().report_shares(shares)

        recorded_facts = facts(writer())
        assert (recorded_facts.shares, recorded_facts.ratio_changes) == (recorded[-1], changes)
        marks = [event.value for event in events(writer()) if event.kind is RingKind.EVENT]
        assert marks == list(range(1, changes + 1))

    def test_stay_when_the_run_reports_more_of_itself(self) -> None:
        process_ring.process_ring().report_shares({"0": 0.5, "1": 0.5})
        process_ring.process_ring().report_shares({"0": 0.6, "1": 0.4})
        describe_run(run="named", gpus=[0, 1], framework="keras/tensorflow")

        recorded_facts = facts(writer())
        assert (recorded_facts.shares, recorded_facts.ratio_changes) == ({"0": 0.6, "1": 0.4}, 1)

    @pytest.mark.parametrize(
        "shares", [{"0": 0.9, "1": 0.9}, {"0": float("nan")}, {"0": "much"}, None]
    )
    def test_invalid_shares_warn_once_and_are_not_recorded(
        self, shares: dict[str, float], recwarn: pytest.WarningsRecorder
    ) -> None:
        ring = process_ring.process_ring()
        ring.report_shares({"0": 0.5, "1": 0.5})

        ring.report_shares(shares)
        ring.report_shares(shares)

        assert "batches" in str(recwarn.pop(RuntimeWarning).message)
        assert len(recwarn) == 0
        assert facts(writer()).shares == {"0": 0.5, "1": 0.5}
        assert writer().enabled
