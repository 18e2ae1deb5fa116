"""Lightning and the Hugging Face Trainer, asked for the same things in the same words."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from gpumon.core.ring.facts import parse_facts
from gpumon.core.ring.format import FACTS_OFFSET, parse_header
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
        events: Its names for the events of a training.
    """

    name: ClassVar[str]
    events: ClassVar[dict[str, str]]
    _package: ClassVar[str]
    _callback: ClassVar[str]

    def __init__(self) -> None:
        self.b: Any = import_module(f"tests.loops.builders_{self.name}")
        self.package: Any = import_module(self._package)

    @property
    def tagger_class(self) -> Any:
        return import_module(f"trainer_hooks.{self.name}").PhaseTagger

    def tagger(self) -> Any:
        return self.tagger_class()

    def callback(self, name: str, does: Callable[[], object], *events: str) -> Any:
        """One of a class of that name, which does something at these events."""

        def method(*_: object, **__: object) -> None:
            does()

        methods = {self.events[event]: method for event in events}
        return type(name, (getattr(self.package, self._callback),), methods)()

    def train(self, folder: Path, *callbacks: Any, **asked: Any) -> None:
        """Train a small model.

        Args:
            folder: What is written goes there.
            callbacks: Of the trainer.
            asked: The fields of ``Asked``.
        """
        self._train(folder, callbacks, Asked(**asked))

    @abstractmethod
    def _train(self, folder: Path, callbacks: Sequence[Any], asked: Asked) -> None: ...

    @abstractmethod
    def evaluate(self, folder: Path, *callbacks: Any) -> None:
        """Evaluate a small model that nobody trains."""


class OnLightning(Adapter):
    """Trains with Lightning."""

    name, _package, _callback = "lightning", "lightning.pytorch", "Callback"
    events: ClassVar[dict[str, str]] = {
        "epoch_begin": "on_train_epoch_start",
        "batch_begin": "on_train_batch_start",
        "batch_end": "on_train_batch_end",
        "epoch_end": "on_train_epoch_end",
        "validation_end": "on_validation_end",
    }

    def _train(self, folder: Path, callbacks: Sequence[Any], asked: Asked) -> None:
        model = self.b.model(self.package, asked.waits or Waits())
        if asked.changed is not None:
            model.linear = asked.changed(model.linear)
        trainer = self.b.trainer(self.package, folder, *callbacks, max_epochs=asked.epochs)
        validated = self.b.loader(asked.validated) if asked.validated else None
        trainer.fit(model, self.b.loader(asked.batches), validated)

    def evaluate(self, folder: Path, *callbacks: Any) -> None:
        trainer = self.b.trainer(self.package, folder, *callbacks)
        trainer.validate(self.b.model(self.package, Waits()), self.b.loader(2), verbose=False)


class OnHuggingFace(Adapter):
    """Trains with the Hugging Face Trainer."""

    name, _package, _callback = "huggingface", "transformers", "TrainerCallback"
    events: ClassVar[dict[str, str]] = {
        "epoch_begin": "on_epoch_begin",
        "batch_begin": "on_step_begin",
        "batch_end": "on_step_end",
        "epoch_end": "on_epoch_end",
        "validation_end": "on_evaluate",
    }

    def _train(self, folder: Path, callbacks: Sequence[Any], asked: Asked) -> None:
        trainer = self.b.trainer(
            folder,
            asked.waits or Waits(),
            *callbacks,
            batches=asked.batches,
            evaluated=max(1, asked.validated),
            num_train_epochs=asked.epochs,
            eval_strategy="epoch" if asked.validated else "no",
        )
        if asked.changed is not None:
            trainer.model.classifier = asked.changed(trainer.model.classifier)
        trainer.train()

    def evaluate(self, folder: Path, *callbacks: Any) -> None:
        self.b.trainer(folder, Waits(), *callbacks, evaluated=2).evaluate()


ADAPTERS: dict[str, type[Adapter]] = {one.name: one for one in (OnLightning, OnHuggingFace)}
