"""Lightning and the Hugging Face Trainer behind one interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from gpumon.core.ring_format.facts import parse_facts
from gpumon.core.ring_format.format import FACTS_OFFSET, parse_header
from tests.loops.builders_loops import Waits, writer


def callback_ns() -> dict[str, int]:
    """Nanoseconds by class of callback, as readers of this process' ring see them."""
    raw = writer()._memory.path.read_bytes()
    return parse_facts(raw[FACTS_OFFSET : FACTS_OFFSET + parse_header(raw).facts_bytes]).callback_ns


class Wanted(NamedTuple):
    """A training run.

    Attributes:
        batches: Per epoch.
        validated: Batches of the validation after each epoch; 0: none.
        changed: Replaces the module with the weights.
    """

    waits: Waits | None = None
    batches: int = 6
    epochs: int = 2
    validated: int = 0
    changed: Callable[[Any], Any] | None = None


class Adapter(ABC):
    """One of the trainers.

    Attributes:
        name: Of the module with its tagger, in ``trainer_hooks``.
        other: The name of the other trainer.
        events: Its names for the events of a run.
        folder: For its files.
        builders: The module with its builders.
        tagger: Makes its tagger.
    """

    name: ClassVar[str]
    other: ClassVar[str]
    events: ClassVar[dict[str, str]]

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.builders: Any = import_module(f"tests.loops.builders_{self.name}")
        self.tagger = self.builders.tagger

    def callback(self, name: str, does: Callable[[], object], *events: str) -> Any:
        """A callback of a class of that name, which acts at these events."""

        def method(*_: object, **__: object) -> None:
            does()

        made = self.builders.callback(**{self.events[event]: method for event in events})
        type(made).__name__ = name
        return made

    def train(self, *callbacks: Any, **wanted: Any) -> Any:
        """Train a small model, as given by the fields of ``Wanted``; the results."""
        return self._train(callbacks, Wanted(**wanted))

    @abstractmethod
    def _train(self, callbacks: Sequence[Any], wanted: Wanted) -> Any: ...

    @abstractmethod
    def evaluate(self, *callbacks: Any) -> None:
        """Evaluate a small untrained model."""


class OnLightning(Adapter):
    """Trains with Lightning."""

    name, other = "lightning", "huggingface"
    events: ClassVar[dict[str, str]] = {
        "epoch_begin": "on_train_epoch_start",
        "batch_begin": "on_train_batch_start",
        "batch_end": "on_train_batch_end",
        "epoch_end": "on_train_epoch_end",
        "validation_end": "on_validation_end",
    }

    def _train(self, callbacks: Sequence[Any], wanted: Wanted) -> Any:
        model = self.builders.model(wanted.waits)
        if wanted.changed is not None:
            model.linear = wanted.changed(model.linear)
        trainer = self.builders.trainer(self.folder, *callbacks, max_epochs=wanted.epochs)
        validated = self.builders.loader(wanted.validated) if wanted.validated else None
        trainer.fit(model, self.builders.loader(wanted.batches), validated)
        return model.losses, self.builders.weights(model)

    def evaluate(self, *callbacks: Any) -> None:
        trainer = self.builders.trainer(self.folder, *callbacks)
        trainer.validate(self.builders.model(), self.builders.loader(2), verbose=False)


class OnHuggingFace(Adapter):
    """Trains with the Hugging Face Trainer."""

    name, other = "huggingface", "lightning"
    events: ClassVar[dict[str, str]] = {
        "epoch_begin": "on_epoch_begin",
        "batch_begin": "on_step_begin",
        "batch_end": "on_step_end",
        "epoch_end": "on_epoch_end",
        "validation_end": "on_evaluate",
    }

    def _train(self, callbacks: Sequence[Any], wanted: Wanted) -> Any:
        trainer = self.builders.trainer(
            self.folder,
            *callbacks,
            waits=wanted.waits,
            batches=wanted.batches,
            evaluated=max(1, wanted.validated),
            num_train_epochs=wanted.epochs,
            eval_strategy="epoch" if wanted.validated else "no",
        )
        if wanted.changed is not None:
            trainer.model.classifier = wanted.changed(trainer.model.classifier)
        trainer.train()
        return self.builders.outcome(trainer)

    def evaluate(self, *callbacks: Any) -> None:
        self.builders.trainer(self.folder, *callbacks, evaluated=2).evaluate()


ADAPTERS: dict[str, type[Adapter]] = {one.name: one for one in (OnLightning, OnHuggingFace)}
