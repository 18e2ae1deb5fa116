"""Patched methods that are restored, and loaders that report each fetch."""

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


class TestAPatchedMethod:
    def test_is_patched_on_its_object_until_it_is_removed(self) -> None:
        trainer, other, patched = Trainer(), Trainer(), PatchedMethods()

        assert patched.install(trainer, "train", louder)
        assert not patched.install(trainer, "evaluate", louder)
        assert (trainer.train(), other.train()) == ("TRAINED", "trained")
        patched.remove()
        assert trainer.train() == "trained"
        assert vars(trainer) == {}

    def test_leaves_what_the_user_has_set_before_or_since(self) -> None:
        trainer, patched = Trainer(), PatchedMethods()
        trainer.train = own = lambda: "own"  # type: ignore[method-assign]
        patched.install(trainer, "train", louder)
        assert trainer.train() == "OWN"
        patched.remove()
        assert trainer.train is own

        patched.install(trainer, "train", louder)
        trainer.train = newer = lambda: "newer"  # type: ignore[method-assign]
        patched.remove()
        assert trainer.train is newer


class Notes:
    """What a listener received."""

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
    def test_are_reported_one_by_one_with_the_last(self) -> None:
        notes = Notes()
        batches = TimedBatches(Reader(), notes, 2)

        assert [next(batches), next(batches)] == ["a", "b"]
        assert notes.recorded == [
            ("begins",),
            ("ends", "a", False),
            ("begins",),
            ("ends", "b", True),
        ]

    def test_seem_to_be_the_original(self) -> None:
        assert list(TimedBatches(Reader(), Notes(), 8)) == ["a", "b", "c"]
        assert TimedBatches(Reader(), Notes(), 2).epoch == 3
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
        assert list(loader) == list(loader) == ["a", "b"]

    def test_reports_every_fetch_and_the_one_that_finds_nothing(self) -> None:
        notes = Notes()
        for _ in TimedLoader(Loader(["a"]), notes):
            notes.recorded.append(("evaluates",))

        assert notes.recorded == [
            ("begins",), ("ends", "a", True), ("evaluates",), ("begins",), ("ends", None, True),
        ]  # fmt: skip
