"""Specification of shadows, methods of one object that are given back, and of clocks on batches."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from trainer_hooks.trainers.patching import PatchedMethods, TimedBatches, TimedLoader


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

    def test_leaves_alone_what_a_user_put_in_front_of_it(self) -> None:
        trainer, shadows = Trainer(), PatchedMethods()
        shadows.place(trainer, "train", louder)
        trainer.train = newer = lambda: "newer"  # type: ignore[method-assign]
        shadows.remove()

        assert trainer.train is newer

    def test_of_what_is_not_there_is_none(self) -> None:
        assert not PatchedMethods().place(Trainer(), "evaluate", louder)


class Notes:
    """What a listener was told."""

    def __init__(self) -> None:
        self.recorded: list[tuple[object, ...]] = []

    def fetch_begins(self) -> None:
        self.recorded.append(("begins",))

    def fetch_ends(self, batch: Any, *, is_last: bool) -> None:
        self.recorded.append(("ends", batch, is_last))


class Loader(list[str]):
    """One with an attribute of its own."""

    sampler = "by length"


class Reader:
    """An iterator with an attribute of its own."""

    epoch = 3

    def __init__(self) -> None:
        self._left = ["a", "b", "c"]

    def __iter__(self) -> Reader:
        return self

    def __next__(self) -> str:
        if not self._left:
            raise StopIteration
        return self._left.pop(0)


class TestTheBatchesOfAStep:
    def test_are_recorded_of_one_by_one_and_which_is_the_last(self) -> None:
        notes = Notes()
        batches = TimedBatches(Reader(), notes, 2)

        assert [next(batches), next(batches)] == ["a", "b"]
        assert notes.recorded == [
            ("begins",),
            ("ends", "a", False),
            ("begins",),
            ("ends", "b", True),
        ]

    def test_end_with_those_of_the_original(self) -> None:
        assert list(TimedBatches(Reader(), Notes(), 8)) == ["a", "b", "c"]

    def test_have_the_attributes_of_the_original(self) -> None:
        assert TimedBatches(Reader(), Notes(), 2).epoch == 3

    def test_lack_what_the_original_lacks(self) -> None:
        with pytest.raises(AttributeError, match="nothing"):
            _ = TimedBatches(Reader(), Notes(), 2).nothing

    @pytest.mark.parametrize("copied", [copy.copy, lambda it: pickle.loads(pickle.dumps(it))])
    def test_can_be_copied(self, copied: Any) -> None:
        assert next(copied(TimedBatches(Reader(), Notes(), 2))) == "a"


class TestTheLoaderOfAnEvaluation:
    def test_seems_to_be_the_original(self) -> None:
        loader = TimedLoader(Loader(["a", "b"]), Notes())

        assert isinstance(loader, Loader)
        assert (len(loader), loader.sampler) == (2, "by length")

    def test_can_be_gone_through_again(self) -> None:
        loader = TimedLoader(Loader(["a", "b"]), Notes())

        assert list(loader) == list(loader) == ["a", "b"]

    def test_records_of_every_fetch_and_of_the_one_that_finds_nothing(self) -> None:
        notes = Notes()
        for _ in TimedLoader(Loader(["a"]), notes):
            notes.recorded.append(("evaluates",))

        assert notes.recorded == [
            ("begins",), ("ends", "a", True), ("evaluates",), ("begins",), ("ends", None, True),
        ]  # fmt: skip
