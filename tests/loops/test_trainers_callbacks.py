"""The time of each class of callback in Lightning and the Hugging Face Trainer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.loops.builders_loops import Sleeps, Waits, stretch
from tests.loops.builders_trainers import Adapter, OnHuggingFace, OnLightning, callback_ns

pytestmark = pytest.mark.keras_torch


def about(truth: Sleeps) -> Any:
    """Within 10 % of sleeps that timed themselves, or what the machine itself took."""
    return pytest.approx(truth.spent_ns, rel=0.1, abs=truth.held_up_ns)


class TestTheTimeOfACallback:
    @pytest.mark.parametrize("first", [True, False], ids=["tagger first", "tagger last"])
    def test_is_recorded_by_its_class(self, on: Adapter, first: bool) -> None:
        uploads, notifies = Sleeps(0.02), Sleeps(0.03)
        others = [
            on.callback("Upload", uploads, "batch_end", "epoch_end"),
            on.callback("Notify", notifies, "epoch_begin", "batch_begin"),
        ]

        on.train(*([on.tagger(), *others] if first else [*others, on.tagger()]))

        assert (uploads.times, notifies.times) == (14, 14)
        assert callback_ns()["Upload"] == about(uploads)
        assert callback_ns()["Notify"] == about(notifies)

    def test_is_recorded_after_validations_too(self, on: Adapter) -> None:
        plots = Sleeps(0.04)

        on.train(on.tagger(), on.callback("Plot", plots, "validation_end"), validated=2)

        assert plots.times == 2
        assert callback_ns()["Plot"] == about(plots)

    def test_is_recorded_for_one_that_raised(self, on: Adapter) -> None:
        uploads = Sleeps(0.05)

        def fail() -> None:
            uploads()
            raise OSError("no network")

        with pytest.raises(OSError, match="no network"):
            on.train(on.tagger(), on.callback("Remote", fail, "batch_end"))

        assert callback_ns()["Remote"] == about(uploads)

    @pytest.mark.measured
    def test_is_left_out_where_a_callback_does_nothing(self, on: Adapter) -> None:
        on.train(on.tagger(), on.callback("Idle", Sleeps()))

        assert "Idle" not in callback_ns()
        assert not any("Flow" in name or "Tagger" in name for name in callback_ns())

    @pytest.mark.measured
    def test_checkpoint_callback_is_checkpoint(self, on_lightning: OnLightning) -> None:
        on, waits = on_lightning, Waits(checkpoint=0.2)
        with stretch() as found:
            on.train(on.tagger(), on.builders.slow_checkpoints(waits, on.folder))

        assert callback_ns()["SlowCheckpoint"] == about(waits.checkpoint)
        assert found[0].phase_ns["checkpoint"] == about(waits.checkpoint)
        assert found[0].phase_ns["callbacks"] < waits.checkpoint.spent_ns / 4

    @pytest.mark.measured
    def test_excludes_an_evaluation_in_it(self, on_huggingface: OnHuggingFace) -> None:
        on, thinks, waits = on_huggingface, Sleeps(0.05), Waits(validation_step=0.05)

        def evaluate() -> None:
            thinks()
            trainer.evaluate()
            thinks()

        probe = on.callback("Probe", evaluate, "epoch_end")
        trainer = on.builders.trainer(on.folder, on.tagger(), probe, waits=waits, batches=2)
        with stretch() as found:
            trainer.train()

        assert callback_ns()["Probe"] == about(thinks)
        assert found[0].phase_ns["validation"] >= waits.validation_step.spent_ns


class TestTheCallbacksOfATrainer:
    def test_are_the_same_list_as_before(self, on_huggingface: OnHuggingFace) -> None:
        on, seen = on_huggingface, []
        listing = on.callback(
            "Listing", lambda: seen.append(list(trainer.callback_handler.callbacks)), "epoch_end"
        )
        trainer = on.builders.trainer(on.folder, on.tagger(), listing, batches=2)
        before = trainer.callback_handler.callbacks
        kept = list(before)
        trainer.train()

        assert trainer.callback_handler.callbacks is before
        assert seen == [kept, kept]

    def test_may_be_added_during_a_run(self, on_huggingface: OnHuggingFace) -> None:
        on, late = on_huggingface, Sleeps(0.02)
        added = on.callback("Late", late, "batch_end")
        adding = on.callback("Adding", lambda: trainer.add_callback(added), "epoch_end")
        trainer = on.builders.trainer(on.folder, on.tagger(), adding, batches=5)
        trainer.train()

        assert late.times >= 5
        assert trainer.callback_handler.callbacks.count(added) == 2
        assert callback_ns()["Late"] == about(late)
