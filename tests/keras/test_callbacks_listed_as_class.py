"""A callback of ours listed as its class, ``callbacks=[PhaseTagger]``, is refused."""

from __future__ import annotations

from typing import Any

import pytest

import trainer_hooks
from tests.keras.later import b

pytestmark = pytest.mark.keras_jax


def fit(callbacks: Any) -> Any:
    return b.fit_rows(b.small_model(), 8 * b.BATCH, epochs=2, callbacks=callbacks).history


@pytest.mark.versions
@pytest.mark.parametrize("name", ["PhaseTagger", "NaNGuard"])
def test_a_listed_class_is_refused(name: str) -> None:
    kind = getattr(trainer_hooks, name)
    with pytest.raises(TypeError, match=rf"lists the class: write {name}\(\) instead"):
        fit([kind])


def test_a_subclass_may_call_its_base_by_name() -> None:
    class Subclass(trainer_hooks.PhaseTagger):
        def set_model(self, model: Any) -> None:
            self.was_called = True
            trainer_hooks.PhaseTagger.set_model(self, model)

    tagger = Subclass()

    assert len(fit([tagger])["input_wait_ratio"]) == 2
    assert tagger.was_called
