"""A callback of ours given as its class: the training goes on as if it had its brackets."""

from __future__ import annotations

from typing import Any

import pytest

import trainer_hooks
from tests.keras.later import b, keras

pytestmark = pytest.mark.keras_jax


def with_a_name() -> Any:
    """Somebody's own tagger, which cannot be made of nothing."""

    class WithAName(trainer_hooks.PhaseTagger):
        def __init__(self, name: str) -> None:
            super().__init__(run=name)

    return WithAName


def of_the_old_school() -> Any:
    """It calls the method of its base by the base's name."""

    class OfTheOldSchool(trainer_hooks.PhaseTagger):
        def set_model(self, model: Any) -> None:
            self.was_called = True
            trainer_hooks.PhaseTagger.set_model(self, model)

    return OfTheOldSchool()


def fit(callbacks: Any) -> Any:
    return b.fit_rows(b.small_model(), 8 * b.BATCH, epochs=2, callbacks=callbacks).history


def names_in(said: pytest.WarningsRecorder) -> list[str]:
    """The classes of which brackets were said to be missing."""
    texts = [str(one.message) for one in said]
    return [text.split("[")[1].split("]")[0] for text in texts if "brackets" in text]


class TestACallbackThatIsGivenAsItsClass:
    def test_does_what_an_instance_does_and_says_so(self) -> None:
        callbacks = [trainer_hooks.PhaseTagger]

        with pytest.warns(RuntimeWarning, match=r"write PhaseTagger\(\), with brackets") as said:
            logs = fit(callbacks)

        assert names_in(said) == ["PhaseTagger"]
        assert callbacks == [trainer_hooks.PhaseTagger]  # the user's list
        assert len(logs["input_wait_ratio"]) == 2
        assert b.steps_told() == 16

    @pytest.mark.versions
    def test_may_stand_without_a_list(self) -> None:
        with pytest.warns(RuntimeWarning, match=r"write PhaseTagger\(\), with brackets"):
            assert len(fit(trainer_hooks.PhaseTagger)["loss"]) == 2

    def test_may_stand_beside_others(self) -> None:
        ends: list[int] = []
        noting = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: ends.append(epoch))

        with pytest.warns(RuntimeWarning, match="with brackets") as said:
            fit([trainer_hooks.NaNGuard, noting, trainer_hooks.PhaseTagger])

        assert ends == [0, 1]
        assert names_in(said) == ["NaNGuard", "PhaseTagger"]

    def test_that_needs_arguments_is_taken_for_ours(self) -> None:
        with pytest.warns(RuntimeWarning, match=r"takes PhaseTagger\(\) for it"):
            assert len(fit([with_a_name()])["input_wait_ratio"]) == 2


class TestACallbackThatIsGivenAsItIs:
    def test_hears_nothing_of_brackets(self, recwarn: pytest.WarningsRecorder) -> None:
        tagger = of_the_old_school()

        assert len(fit([tagger])["input_wait_ratio"]) == 2
        assert tagger.was_called
        assert [one for one in recwarn if "brackets" in str(one.message)] == []
