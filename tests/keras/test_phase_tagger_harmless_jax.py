"""``PhaseTagger`` on JAX leaves the pace and the callbacks of a training as they were."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.ring.events import RingKind
from tests.keras.later import b, keras

pytestmark = pytest.mark.keras_jax
MS = 1_000_000


class TestTheTraining:
    @pytest.mark.oldest_keras
    def test_stays_asynchronous(self) -> None:
        def period_s(*callbacks: Any) -> float:
            began = time.monotonic()
            b.fit(model, b.SlowBatches(0.015), *callbacks, steps=20, epochs=1)
            return time.monotonic() - began

        model = b.small_model(b.SleepingCompute(0.015))
        period_s()
        bare = min(period_s() for _ in range(3))
        tagged = min(period_s(b.tagger()) for _ in range(3))

        assert tagged < 1.3 * bare

    def test_has_its_callbacks_back_when_it_is_over(self) -> None:
        mine = keras.callbacks.CallbackList([b.tagger()], add_history=True)
        before = list(mine.callbacks)
        model = b.small_model()
        mine.set_model(model)

        b.fit_rows(model, 32, callbacks=mine)

        assert mine.callbacks == before

    def test_goes_on_where_no_ring_can_be_made(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(tmp_path / "file"))

        with pytest.warns(RuntimeWarning, match="records no phases"):
            hook = b.tagger()
        history = b.fit_rows(b.small_model(), 32, hook)

        assert len(history.history["loss"]) == 1


class TestAnotherBackend:
    @pytest.fixture(autouse=True)
    def backend(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(keras.backend, "backend", lambda: "openvino")

    def test_is_said_once_to_have_no_wait_for_input_and_none_is_told(self) -> None:
        sleeper = b.SleepingCallback("on_epoch_end", seconds=0.02)
        model, hook = b.small_model(), b.tagger()

        with pytest.warns(RuntimeWarning, match="the wait for input and the step are both 'other'"):
            b.fit(model, b.SlowBatches(0.01), hook, sleeper, steps=5)
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            b.fit(model, b.SlowBatches(0.01), hook, sleeper, steps=5)

        told = b.phase_ns()
        assert (told["input_wait"], told["train_step"]) == (0, 0)
        assert told["callbacks"] >= sleeper.spent_ns
        assert told["other"] >= 2 * 8 * 10 * MS
        assert b.marks(RingKind.STEP)[-1] == 20
