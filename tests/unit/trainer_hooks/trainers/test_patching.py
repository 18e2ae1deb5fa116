"""Specification of shadows: methods of one object, replaced and given back."""

from __future__ import annotations

from collections.abc import Callable

from trainer_hooks.trainers.patching import PatchedMethods


class Trainer:
    def train(self) -> str:
        return "trained"


def louder(method: Callable[[], str]) -> Callable[[], str]:
    return lambda: method().upper()


class TestAShadow:
    def test_is_in_front_of_the_method_of_its_object_alone(self) -> None:
        one, other = Trainer(), Trainer()

        assert PatchedMethods().place(one, "train", louder)
        assert (one.train(), other.train()) == ("TRAINED", "trained")

    def test_is_gone_after_remove(self) -> None:
        trainer, shadows = Trainer(), PatchedMethods()
        shadows.place(trainer, "train", louder)
        shadows.remove()

        assert trainer.train() == "trained"
        assert vars(trainer) == {}

    def test_gives_back_what_the_object_had_of_its_own(self) -> None:
        trainer, shadows = Trainer(), PatchedMethods()
        trainer.train = own = lambda: "own"  # type: ignore[method-assign]
        shadows.place(trainer, "train", louder)
        assert trainer.train() == "OWN"
        shadows.remove()

        assert trainer.train is own

    def test_leaves_alone_what_somebody_put_in_front_of_it(self) -> None:
        trainer, shadows = Trainer(), PatchedMethods()
        shadows.place(trainer, "train", louder)
        trainer.train = newer = lambda: "newer"  # type: ignore[method-assign]
        shadows.remove()

        assert trainer.train is newer

    def test_of_what_is_not_there_is_none(self) -> None:
        assert not PatchedMethods().place(Trainer(), "evaluate", louder)
