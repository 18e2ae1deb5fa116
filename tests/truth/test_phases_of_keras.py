"""Every phase that ``PhaseTagger`` reports is as long as what happened below it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.daemon import FollowingDaemon
from tests.imported_later import ImportedLater
from tests.keras.conftest import framework, own_runtime_folder
from tests.needs import in_make_truth
from tests.truth.keras_cells import BACKENDS, CELLS, is_possible, run

if TYPE_CHECKING:
    from tests.truth import keras_truth as k
else:  # Keras is imported only where it is installed
    k = ImportedLater("tests.truth.keras_truth")

__all__ = ["framework", "own_runtime_folder"]

PHASE_OF = {"input": "input_wait", "callback": "callbacks"}


def on(*backends: str) -> pytest.MarkDecorator:
    """Once with Keras on each of them."""
    marked = [pytest.param(name, marks=getattr(pytest.mark, f"keras_{name}")) for name in backends]
    return pytest.mark.parametrize("backend", marked)


def quick_cells() -> list[Any]:
    return [
        pytest.param(backend, name, marks=getattr(pytest.mark, f"keras_{backend}"))
        for backend in BACKENDS
        for name, cell in CELLS.items()
        if cell.is_quick and is_possible(name, backend)
    ]


@pytest.mark.measured
@pytest.mark.parametrize(("backend", "name"), quick_cells())
def test_a_slow_run_is_reported_as_it_was_in_every_phase(
    backend: str, name: str, framework: str, tmp_path: Path
) -> None:
    outcome = run(name, backend, tmp_path)

    assert outcome.missed == []
    assert (outcome.recorded_steps, outcome.steps_made) == (80, 80)
    cause = CELLS[name].cause
    if "hidden" in name:
        assert outcome.row("input_wait").reported_s < outcome.slept_s / 5
    else:
        assert outcome.row(PHASE_OF.get(cause, cause)).truth_s > 0.2 * outcome.wall_s


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FollowingDaemon]:
    """A real daemon, which reads the ring of this process and a simulated GPU."""
    with FollowingDaemon(tmp_path) as running:
        monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(running.runtime_dir))
        monkeypatch.setenv("GPUMON_GPUS", "0")
        yield running


@in_make_truth
@on("jax")
@pytest.mark.measured
def test_a_host_that_waits_while_the_device_is_busy_loses_nothing_to_input(
    backend: str, framework: str, daemon: FollowingDaemon
) -> None:
    from tests.truth.asynchronous_jax import train_asynchronously

    truth = train_asynchronously(daemon.spans, step_s=0.016, input_s=0.015)
    gpu = daemon.settled_report()["gpus"][0]

    assert truth.host_waited_s > 3.5
    assert gpu["busy_seconds"] == pytest.approx(truth.busy_s, rel=0.02)
    assert gpu["idle_by_cause"]["input_wait"] <= truth.idle_s + 0.02 * truth.wall_s
    assert gpu["hidden_input_wait_seconds"] > 0.9 * (truth.host_waited_s - truth.idle_s)


@on(*BACKENDS)
@pytest.mark.measured
def test_a_fit_after_one_that_raised_is_reported_as_it_was(
    backend: str, framework: str, tmp_path: Path
) -> None:
    import keras

    class GiveUp(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            if batch == 7:
                raise RuntimeError("enough")

    fit = k.Fit("input", 0.030, steps=20)
    with pytest.raises(RuntimeError, match="enough"):
        k.train(fit, tmp_path, GiveUp())
    time.sleep(0.5)  # belongs to no phase of either run

    outcome = k.train(fit, tmp_path)

    assert outcome.missed == []
    assert outcome.recorded_steps == 8 + 40


@on(*BACKENDS)
def test_schedulers_before_the_tagger_hide_no_step(
    backend: str, framework: str, tmp_path: Path
) -> None:
    import keras

    scheduler = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9)
    plateau = keras.callbacks.ReduceLROnPlateau(monitor="loss")

    outcome = k.train(k.Fit("input", 0.010, steps=30), tmp_path, scheduler, plateau)

    assert (outcome.recorded_steps, outcome.steps_made) == (60, 60)
    assert outcome.row("input_wait").is_met, outcome
