"""Training runs that mislead tools which take the host's wait for the GPU's, or miss steps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.daemon import FollowingDaemon
from tests.imported_later import ImportedLater
from tests.keras.conftest import framework, own_runtime_folder
from tests.truth.keras_cells import BACKENDS, loaded_machine

if TYPE_CHECKING:
    from tests.truth import keras_truth as k
else:  # Keras is imported only where it is there.
    k = ImportedLater("tests.truth.keras_truth")

__all__ = ["framework", "own_runtime_folder"]


def on(*backends: str) -> pytest.MarkDecorator:
    """Once with Keras on each of them."""
    marked = [pytest.param(name, marks=getattr(pytest.mark, f"keras_{name}")) for name in backends]
    return pytest.mark.parametrize("backend", marked)


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FollowingDaemon]:
    """A real daemon, for the ring of this very process and a simulated GPU."""
    with FollowingDaemon(tmp_path) as running:
        monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(running.runtime_dir))
        monkeypatch.setenv("GPUMON_GPUS", "0")
        yield running


@on("jax")
class TestAHostThatWaitsWhileTheDeviceIsBusy:
    @pytest.mark.measured
    def test_loses_nothing_to_input(self, backend: str, daemon: FollowingDaemon) -> None:
        from tests.truth.asynchronous_jax import train_asynchronously

        truth = train_asynchronously(daemon.spans, step_s=0.016, input_s=0.015)
        gpu = daemon.settled_report()["gpus"][0]

        assert truth.host_waited_s > 3.5
        assert gpu["busy_seconds"] == pytest.approx(truth.busy_s, rel=0.02)
        lost_s = gpu["idle_by_cause"]["input_wait"]
        assert lost_s <= truth.idle_s + 0.02 * truth.wall_s
        assert gpu["hidden_input_wait_seconds"] > 0.9 * (truth.host_waited_s - truth.idle_s)


@on(*BACKENDS)
class TestATrainingOnALoadedMachine:
    @pytest.mark.measured
    def test_is_still_reported_as_it_was(self, backend: str, tmp_path: Path) -> None:
        with loaded_machine():
            outcome = k.train(k.Fit("input", 0.030, steps=30), tmp_path)

        assert outcome.row("input_wait").is_met, outcome
        assert outcome.recorded_steps == 60


@on(*BACKENDS)
class TestAFitThatRaises:
    @pytest.mark.measured
    def test_leaves_the_next_one_as_truthful_as_the_first(
        self, backend: str, tmp_path: Path
    ) -> None:
        import keras

        class GiveUp(keras.callbacks.Callback):  # type: ignore[misc]
            def on_train_batch_end(self, batch: int, logs: object = None) -> None:
                if batch == 7:
                    raise RuntimeError("enough")

        fit = k.Fit("input", 0.030, steps=20)
        with pytest.raises(RuntimeError, match="enough"):
            k.train(fit, tmp_path, GiveUp())
        time.sleep(0.5)  # belongs to no phase of either training

        outcome = k.train(fit, tmp_path)

        assert outcome.missed == []
        assert outcome.recorded_steps == 8 + 40


@on(*BACKENDS)
class TestASchedulerMadeFirst:
    def test_hides_no_step(self, backend: str, tmp_path: Path) -> None:
        import keras

        scheduler = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9)
        plateau = keras.callbacks.ReduceLROnPlateau(monitor="loss")

        outcome = k.train(k.Fit("input", 0.010, steps=30), tmp_path, scheduler, plateau)

        assert (outcome.recorded_steps, outcome.steps_made) == (60, 60)
        assert outcome.row("input_wait").is_met, outcome
