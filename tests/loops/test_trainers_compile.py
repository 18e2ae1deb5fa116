"""What torch compiles inside a step of Lightning or the Hugging Face Trainer is ``compile``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.loops.builders_loops import RingContents, Sleeps, Waits, stretch
from tests.loops.builders_trainers import Adapter

pytestmark = pytest.mark.keras_torch
COMPILE_S = 0.4


@pytest.fixture
def on(on: Adapter) -> Iterator[Adapter]:
    on.builders.torch._dynamo.reset()
    yield on
    on.builders.torch._dynamo.reset()


def compiled_by(sleeps: Sleeps) -> Any:
    """Compiles a module with a backend that sleeps."""
    import torch

    def backend(graph: Any, _: Any) -> Any:
        sleeps()
        return graph.forward

    return lambda module: torch.compile(module, backend=backend)


class CompilingElsewhere(Sleeps):
    """A step in which another thread compiles, as torch does for the backward pass on a GPU."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.compiles = Sleeps(seconds)

    @contextmanager
    def around(self) -> Iterator[None]:
        with super().around():
            thread = threading.Thread(target=self._compile)
            thread.start()
            thread.join()
            yield

    def _compile(self) -> None:
        from torch._dynamo.callback import CallbackTrigger, callback_handler

        with callback_handler.install_callbacks(CallbackTrigger.LAZY_BACKWARD, "0/0"):
            self.compiles()


class TestAModelThatIsCompiledInItsFirstStep:
    @pytest.mark.measured
    def test_has_that_time_as_compile_and_none_of_it_in_the_step(self, on: Adapter) -> None:
        compiles, waits = Sleeps(COMPILE_S), Waits(step=0.005)
        on.train(changed=compiled_by(Sleeps()))  # what torch does once
        with stretch() as found:
            on.train(on.tagger(), waits=waits, changed=compiled_by(compiles))

        recorded_ns, first = found[0].phase_ns, waits.step.spans_ns[0]
        first_step_ns = first[1] - first[0]
        assert compiles.times == 1
        assert compiles.spent_ns <= recorded_ns["compile"] <= first_step_ns
        in_steps_ns = waits.step.spent_ns
        assert recorded_ns["compile"] + recorded_ns["train_step"] == pytest.approx(
            in_steps_ns, rel=0.2
        )
        assert recorded_ns["train_step"] < in_steps_ns - 0.9 * compiles.spent_ns

    def test_counts_its_steps_as_usual_and_leaves_no_callback_in_torch(self, on: Adapter) -> None:
        from torch._dynamo.callback import callback_handler

        on.train(on.tagger(), changed=compiled_by(Sleeps()), batches=5)

        assert RingContents().steps == 10
        assert (RingContents().present, RingContents().mode) == ("other", 0)
        assert (callback_handler.start_callbacks, callback_handler.end_callbacks) == ([], [])


class TestCompilingElsewhere:
    @pytest.mark.measured
    def test_compiling_in_a_validation_is_validation(self, on: Adapter) -> None:
        compiles = Sleeps(COMPILE_S)
        with stretch() as found:
            on.train(on.tagger(), changed=compiled_by(compiles), validated=2, epochs=1)

        in_training, in_validation = (end - start for start, end in compiles.spans_ns)
        recorded_ns = found[0].phase_ns
        assert in_training <= recorded_ns["compile"] < in_training + in_validation
        assert recorded_ns["validation"] >= in_validation

    @pytest.mark.measured
    def test_compiling_on_another_thread_in_a_step_is_compile(self, on: Adapter) -> None:
        waits = Waits()
        waits.step = elsewhere = CompilingElsewhere(0.03)
        with stretch() as found:
            on.train(on.tagger(), waits=waits, batches=4, epochs=1)

        compiles = elsewhere.compiles
        about = pytest.approx(compiles.spent_ns, rel=0.1, abs=compiles.held_up_ns)
        assert compiles.times == 4
        assert found[0].phase_ns["compile"] == about
