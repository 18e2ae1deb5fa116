"""What the ring says after a run: what was under way before it, on whatever thread it ended."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from gpumon.core.ring.events import RingKind
from trainer_hooks import phase
from trainer_hooks.ring.process_ring import process_ring

if TYPE_CHECKING:
    from tests.keras import builders_keras as b

BACKENDS = ("tensorflow", "jax", "torch")
pytestmark = pytest.mark.parametrize(
    "backend",
    [pytest.param(name, marks=getattr(pytest.mark, f"keras_{name}")) for name in BACKENDS],
)
STEPS = 4


@pytest.fixture(autouse=True)
def builders(framework: str) -> Iterator[None]:
    """Keras is imported only where it is there; nothing is collected but where a test says so.

    Nor is the framework itself looked through for it.
    """
    from tests.keras import builders_keras

    globals()["b"] = builders_keras
    gc.disable()
    gc.freeze()
    yield
    gc.unfreeze()
    gc.enable()


def at_the_end(does: Callable[[], None]) -> Any:
    """A callback that does something at the end of the first epoch."""
    import keras

    return keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: does())


def fail() -> None:
    raise OSError("no room for the plot")


def fit(does: Callable[[], None]) -> None:
    b.fit(b.small_model(), b.SlowBatches(0.0), b.tagger(), at_the_end(does), steps=STEPS, epochs=1)


def fit_that_raises() -> list[BaseException]:
    """All that keeps the fit from being collected: its error."""
    try:
        fit(fail)
    except OSError as error:
        return [error]
    raise AssertionError("it did not raise")


def elsewhere(does: Callable[[], object]) -> None:
    """Do it on a thread of its own, and wait for that."""
    thread = threading.Thread(target=does)
    thread.start()
    thread.join()


def let_go_of(kept: list[BaseException]) -> None:
    kept.clear()
    gc.collect()


def present() -> tuple[str, int]:
    """The phase under way, and its mode."""
    entered = [e for e in b.records() if e.kind is RingKind.ENTER]
    return entered[-1].phase.value, entered[-1].value


def steps_told() -> int:
    return max(e.value for e in b.records() if e.kind is RingKind.STEP)


class TestAFitThatRaised:
    def test_says_its_phase_until_somebody_knows_that_it_is_over(self, backend: str) -> None:
        kept = fit_that_raises()

        assert present() == ("callbacks", 0)
        let_go_of(kept)
        assert present() == ("other", 0)

    def test_has_told_how_long_its_callbacks_took(self, backend: str) -> None:
        import keras

        slept_ns: list[int] = []

        def sleep(*_: object, **__: object) -> None:
            began_ns = time.monotonic_ns()
            time.sleep(0.01)
            slept_ns.append(time.monotonic_ns() - began_ns)

        slow = keras.callbacks.LambdaCallback(
            on_train_batch_end=sleep, on_epoch_end=lambda *_, **__: fail()
        )
        with pytest.raises(OSError, match="no room") as kept:
            b.fit(b.small_model(), b.SlowBatches(0.0), b.tagger(), slow, steps=STEPS, epochs=1)
        del kept
        gc.collect()

        writer = process_ring().writer
        assert writer is not None
        told_ns = writer.facts.callback_ns["LambdaCallback"]
        assert len(slept_ns) == STEPS
        assert told_ns == pytest.approx(sum(slept_ns), rel=0.1, abs=5_000_000)


class TestAFitThatIsCollectedOnAnotherThread:
    def test_ends_in_other_while_its_own_thread_waits(self, backend: str) -> None:
        kept = fit_that_raises()
        elsewhere(lambda: let_go_of(kept))

        assert present() == ("other", 0)

    def test_ends_in_other_when_its_own_thread_is_gone(self, backend: str) -> None:
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

    def test_lets_a_region_that_its_thread_is_in_end_first(self, backend: str) -> None:
        kept = fit_that_raises()
        with phase("checkpoint"):
            elsewhere(lambda: let_go_of(kept))
            assert present() == ("checkpoint", 0)

        assert present() == ("other", 0)

    def test_goes_back_to_the_region_around_it(self, backend: str) -> None:
        with phase("validation"):
            kept = fit_that_raises()
            elsewhere(lambda: let_go_of(kept))
            assert present() == ("validation", 1)

        assert present() == ("other", 0)

    def test_says_nothing_once_the_region_around_it_is_over(self, backend: str) -> None:
        with phase("validation"):
            kept = fit_that_raises()
        with phase("checkpoint"):
            elsewhere(lambda: let_go_of(kept))
            assert present() == ("checkpoint", 0)

        assert present() == ("other", 0)

    @pytest.mark.parametrize("where", [elsewhere, lambda does: does()], ids=["there", "here"])
    def test_says_nothing_in_the_middle_of_another_fit(self, backend: str, where: Any) -> None:
        kept, seen = fit_that_raises(), []

        def let_go() -> None:
            where(lambda: let_go_of(kept))
            seen.append(present())

        fit(let_go)

        assert seen == [("callbacks", 0)]
        assert present() == ("other", 0)
        assert steps_told() == 2 * STEPS


class TestATaggerThatWasNotSetUp:
    def test_lets_the_fit_go_on(self, backend: str) -> None:
        from trainer_hooks import PhaseTagger

        class Forgetful(PhaseTagger):
            def __init__(self) -> None:
                """It calls no other, as callbacks of Keras need not."""

        rows, sums = b.rows_and_sums(32)
        with pytest.warns(RuntimeWarning, match="gpumon tags no phases"):
            history = b.small_model().fit(rows, sums, verbose=0, callbacks=[Forgetful()])

        assert len(history.history["loss"]) == 1


class TestInsideARegionOfTheUsersOwn:
    @pytest.mark.parametrize("what", ["fit", "evaluate", "predict"])
    def test_it_goes_back_to_the_region(self, backend: str, what: str) -> None:
        rows, sums = b.rows_and_sums(32)
        model = b.small_model()
        data = (rows,) if what == "predict" else (rows, sums)
        with phase("validation"):
            getattr(model, what)(*data, verbose=0, callbacks=[b.tagger()])
            assert present() == ("validation", 1)

        assert present() == ("other", 0)

    def test_an_evaluation_by_a_callback_with_a_tagger_of_its_own_goes_back_to_the_callback(
        self, backend: str
    ) -> None:
        rows, sums = b.rows_and_sums(32)
        other, seen = b.small_model(), []

        def evaluate() -> None:
            with phase("checkpoint"):
                other.evaluate(rows, sums, verbose=0, callbacks=[b.tagger()])
                seen.append(present())
            seen.append(present())
            other.evaluate(rows, sums, verbose=0, callbacks=[b.tagger()])
            seen.append(present())

        fit(evaluate)

        assert seen == [("checkpoint", 0), ("callbacks", 0), ("callbacks", 0)]
        assert present() == ("other", 0)
