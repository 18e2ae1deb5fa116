"""The phase after a run: the one before it, on whatever thread the run ended.

How a fit that raised is known to be over depends on the backend. The rest does not, and runs on
torch, which makes no graphs.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import trainer_hooks
from gpumon.core.ring_format.events import RingKind
from tests.keras.later import builders
from trainer_hooks import phase
from trainer_hooks.ring.process_ring import process_ring

STEPS = 4


@pytest.fixture(autouse=True)
def collected_only_where_a_test_says_so(framework: str) -> Iterator[None]:
    """Nor is the framework itself looked through for it."""
    builders.small_model()  # all that there is to import
    gc.disable()
    gc.freeze()
    yield
    gc.unfreeze()
    gc.enable()


def fail() -> None:
    raise OSError("no room for the plot")


def fit(does: Callable[[], None], *callbacks: Any) -> None:
    """Something is done at the end of its one epoch."""
    last = builders.Does(lambda _: does(), "on_epoch_end")
    callbacks = (builders.tagger(), *callbacks, last)
    builders.fit(
        builders.small_model(), builders.SlowBatches(0.0), *callbacks, steps=STEPS, epochs=1
    )


def fit_that_raises(*callbacks: Any) -> list[BaseException]:
    """All that keeps the fit from being collected: its error."""
    try:
        fit(fail, *callbacks)
    except OSError as error:
        return [error]
    raise AssertionError("it did not raise")


def elsewhere(does: Callable[[], object]) -> None:
    """Do it on a thread of its own, and wait for that."""
    thread = threading.Thread(target=does)
    thread.start()
    thread.join()


def here(does: Callable[[], object]) -> None:
    does()


here_and_there = pytest.mark.parametrize("where", [elsewhere, here])


def let_go_of(kept: list[BaseException]) -> None:
    kept.clear()
    gc.collect()


def present() -> tuple[str, int]:
    """The phase under way, and its mode."""
    entered = [e for e in builders.records() if e.kind is RingKind.ENTER]
    return entered[-1].phase.value, entered[-1].value


@pytest.mark.usefixtures("each_backend")
class TestAFitThatRaised:
    @here_and_there
    def test_reports_its_phase_until_it_is_known_to_be_over(self, where: Any) -> None:
        sleeper = builders.SleepingCallback("on_train_batch_end", seconds=0.01)
        kept = fit_that_raises(sleeper)

        assert present() == ("callbacks", 0)
        where(lambda: let_go_of(kept))
        assert present() == ("other", 0)
        assert sleeper.times == STEPS
        if where is here:  # another thread writes no times
            assert builders.facts().callback_ns["SleepingCallback"] >= sleeper.spent_ns


@pytest.mark.keras_torch
class TestAFitThatIsCollectedOnAnotherThread:
    def test_ends_in_other_when_its_own_thread_is_gone(self) -> None:
        process_ring()  # this thread is the one that counts, but for the fit
        kept: list[BaseException] = []
        is_gone = threading.Event()

        def collect() -> None:
            assert is_gone.wait(60)
            let_go_of(kept)

        collector = threading.Thread(target=collect)
        collector.start()  # first: else it may be taken for the one that is gone
        elsewhere(lambda: kept.extend(fit_that_raises()))
        is_gone.set()
        collector.join()

        assert present() == ("other", 0)
        with phase("checkpoint"):
            assert present() == ("checkpoint", 0)

    @here_and_there
    def test_reports_nothing_in_the_middle_of_another_fit(self, where: Any) -> None:
        kept, seen = fit_that_raises(), []

        def let_go() -> None:
            where(lambda: let_go_of(kept))
            seen.append(present())

        fit(let_go)

        assert seen == [("callbacks", 0)]
        assert present() == ("other", 0)
        assert max(builders.marks(RingKind.STEP)) == 2 * STEPS


@pytest.mark.keras_torch
class TestATaggerThatWasNotSetUp:
    def test_lets_the_fit_go_on(self) -> None:
        class Forgetful(trainer_hooks.PhaseTagger):
            def __init__(self) -> None:
                """It calls no other, as callbacks of Keras need not."""

        with pytest.warns(RuntimeWarning, match="gpumon tags no phases"):
            history = builders.fit_rows(builders.small_model(), 32, Forgetful())

        assert len(history.history["loss"]) == 1


@pytest.mark.keras_torch
class TestInsideARegionOfTheUsersOwn:
    def test_an_evaluation_by_a_callback_with_a_tagger_of_its_own_goes_back_to_the_callback(
        self,
    ) -> None:
        data, other = builders.rows_and_sums(32), builders.small_model()
        seen: list[Any] = []

        def evaluate() -> None:
            with phase("checkpoint"):
                other.evaluate(*data, verbose=0, callbacks=[builders.tagger()])
                seen.append(present())
            seen.append(present())
            other.evaluate(*data, verbose=0, callbacks=[builders.tagger()])
            seen.append(present())

        fit(evaluate)

        assert seen == [("checkpoint", 0), ("callbacks", 0), ("callbacks", 0)]
        assert present() == ("other", 0)
