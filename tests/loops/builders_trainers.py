"""Lightning and the Hugging Face Trainer, asked for the same things in the same words."""

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
    """Nanoseconds by class of callback, as this process' ring says them to others."""
    raw = writer()._memory.path.read_bytes()
    return parse_facts(raw[FACTS_OFFSET : FACTS_OFFSET + parse_header(raw).facts_bytes]).callback_ns


class Asked(NamedTuple):
    """What a training is to be like.

    Attributes:
        waits: Where it sleeps.
        batches: In an epoch.
        epochs: How many.
        validated: Batches of a validation after each; 0: none.
        changed: Makes another module of the one that has the weights.
    """

    waits: Waits | None = None
    batches: int = 6
    epochs: int = 2
    validated: int = 0
    changed: Callable[[Any], Any] | None = None


class Adapter(ABC):
    """Trains with one of them.

    Attributes:
        name: Of the module with its tagger, in ``trainer_hooks``.
        other: The name of the other one.
        events: Its names for the events of a training.
        folder: What is written goes there.
        b: What its trainings are built with.
        tagger: Makes its tagger.
    """

    name: ClassVar[str]
    other: ClassVar[str]
    events: ClassVar[dict[str, str]]

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.b: Any = import_module(f"tests.loops.builders_{self.name}")
        self.tagger = self.b.tagger

    def callback(self, name: str, does: Callable[[], object], *events: str) -> Any:
        """One of a class of that name, which does something at these events."""

        def method(*_: object, **__: object) -> None:
            does()

        made = self.b.callback(**{self.events[event]: method for event in events})
        type(made).__name__ = name
        return made

    def train(self, *callbacks: Any, **asked: Any) -> Any:
        """Train a small model, asked for by the fields of ``Asked``; what came of it."""
        return self._train(callbacks, Asked(**asked))

    @abstractmethod
    def _train(self, callbacks: Sequence[Any], asked: Asked) -> Any: ...

    @abstractmethod
    def evaluate(self, *callbacks: Any) -> None:
        """Evaluate a small model that nobody trains."""


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

    def _train(self, callbacks: Sequence[Any], asked: Asked) -> Any:
        model = self.b.model(asked.waits)
        if asked.changed is not None:
            model.linear = asked.changed(model.linear)
        trainer = self.b.trainer(self.folder, *callbacks, max_epochs=asked.epochs)
        validated = self.b.loader(asked.validated) if asked.validated else None
        trainer.fit(model, self.b.loader(asked.batches), validated)
        return model.losses, self.b.weights(model)

    def evaluate(self, *callbacks: Any) -> None:
        trainer = self.b.trainer(self.folder, *callbacks)
        trainer.validate(self.b.model(), self.b.loader(2), verbose=False)


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

    def _train(self, callbacks: Sequence[Any], asked: Asked) -> Any:
        trainer = self.b.trainer(
            self.folder,
            *callbacks,
            waits=asked.waits,
            batches=asked.batches,
            evaluated=max(1, asked.validated),
            num_train_epochs=asked.epochs,
            eval_strategy="epoch" if asked.validated else "no",
        )
        if asked.changed is not None:
            trainer.model.classifier = asked.changed(trainer.model.classifier)
        trainer.train()
        return self.b.outcome(trainer)

    def evaluate(self, *callbacks: Any) -> None:
        self.b.trainer(self.folder, *callbacks, evaluated=2).evaluate()


ADAPTERS: dict[str, type[Adapter]] = {one.name: one for one in (OnLightning, OnHuggingFace)}
