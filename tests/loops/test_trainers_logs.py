"""What the loggers of Lightning and of the Hugging Face Trainer receive."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.keras.fake_daemon import FakeDaemon
from tests.loops.builders_loops import Waits
from tests.loops.builders_trainers import Adapter, OnHuggingFace, OnLightning

pytestmark = pytest.mark.keras_torch

RATIO = "input_wait_ratio"


def logged(
    on: Adapter, tagger: Any, waits: Waits, *others: Any, logger: Any = None
) -> list[dict[str, float]]:
    """Train for two epochs; what a logger of that trainer receives with a ratio."""
    if isinstance(on, OnLightning):
        logger = logger or on.builders.KeepingLogger()
        trainer = on.builders.trainer(on.folder, tagger, *others, logger=logger)
        trainer.fit(on.builders.model(waits), on.builders.loader(6, waits.fetch))
        received = logger.received
    else:
        received = []
        keeping = on.builders.callback(
            on_log=lambda *_, logs, **__: received.append(logs)  # before the tagger, as W&B's
        )
        trainer = on.builders.trainer(
            on.folder, keeping, tagger, *others, waits=waits, logging_steps=6
        )
        trained = trainer.train()
        assert RATIO not in trained.metrics
        assert all(RATIO not in line for line in trainer.state.log_history)
    return [one for one in received if RATIO in one]


class TestTheLogger:
    def test_receives_the_wait_for_input(self, on: Adapter) -> None:
        waits = Waits(fetch=0.03, step=0.01)

        ratios = [one[RATIO] for one in logged(on, on.tagger(), waits)]

        assert len(ratios) >= 2
        assert all(0 < ratio <= 1 for ratio in ratios)
        slept_ns = waits.fetch.spent_ns + waits.step.spent_ns
        assert max(ratios) > 0.5 * waits.fetch.spent_ns / slept_ns

    def test_receives_nothing_of_a_wait_that_was_not(self, on: Adapter) -> None:
        ratios = [one[RATIO] for one in logged(on, on.tagger(), Waits(step=0.05))]

        assert ratios
        assert max(ratios) < 0.5

    def test_receives_nothing_if_that_is_asked_for(self, on: Adapter) -> None:
        assert logged(on, on.tagger(logs=False), Waits()) == []

    def test_receives_what_a_daemon_counted(self, on: Adapter) -> None:
        daemon = FakeDaemon(on.folder)
        daemon.counts(observed_s=10, busy_s=2, in_use_s=10, starved_s=8)

        def count() -> None:
            daemon.counts(observed_s=20, busy_s=7, in_use_s=20, starved_s=12)

        waits = Waits(fetch=0.05)
        counting = on.callback("Counting", count, "batch_end")

        received = logged(on, on.tagger(gpus=[0]), waits, counting)

        assert received[0]["gpu_busy_ratio"] == pytest.approx(0.5)
        assert received[0]["starved_ratio"] == pytest.approx(0.4)
        assert not any(math.isnan(value) for one in received for value in one.values())


def test_a_logger_that_fails_is_left_alone_and_the_run_is_tagged(on_lightning: OnLightning) -> None:
    from tests.loops.builders_loops import RingContents

    with pytest.warns(RuntimeWarning, match="gives no ratios to the loggers.*no network"):
        logged(
            on_lightning,
            on_lightning.tagger(),
            Waits(),
            logger=on_lightning.builders.FailingLogger(),
        )

    assert RingContents().steps == 12


def test_an_evaluation_is_logged_as_without_a_tagger(on_huggingface: OnHuggingFace) -> None:
    received: list[dict[str, float]] = []
    on = on_huggingface
    keeping = on.builders.callback(on_log=lambda *_, logs, **__: received.append(logs))
    trainer = on.builders.trainer(
        on.folder, on.tagger(), keeping, batches=4, eval_strategy="epoch", logging_steps=100
    )
    trainer.train()
    trainer.evaluate()

    assert received
    assert all(RATIO not in one for one in received)
