"""A mistake in the figures of a ``fit`` costs the figures, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.keras.later import b

pytestmark = pytest.mark.keras_jax


def fail(*_: object, **__: object) -> Any:
    raise RuntimeError("a mistake")


class TestFiguresThatFail:
    @pytest.mark.parametrize("where", ["state_folders", "closing_line", "StepTimes"])
    def test_are_missed_with_one_warning_by_a_training_that_is_tagged(
        self, where: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        from trainer_hooks.keras import fit_figures

        monkeypatch.setattr(fit_figures, where, fail)
        with pytest.warns(RuntimeWarning, match="no figures of this training") as caught:
            b.fit_rows(b.small_model(), 4 * b.BATCH, b.tagger(), epochs=2, verbose=2)

        assert len([one for one in caught if "gpumon" in str(one.message)]) == 1
        assert "gpumon:" not in capsys.readouterr().out
        entered = [event.phase.value for event in b.records()]
        assert {"train_step", "input_wait"} <= set(entered)
        assert b.present_phase().value == "other"
