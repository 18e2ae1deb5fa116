"""Lightning and the Hugging Face Trainer, asked for the same things in the same words."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from gpumon.core.ring_facts import parse_facts
from gpumon.core.ring_format import FACTS_OFFSET, parse_header
from tests.loops.builders_loops import Waits, writer


def callback_ns() -> dict[str, int]:
    """Nanoseconds by class of callback, as this process' ring says them to others."""
    raw = writer()._memory.path.read_bytes()
    return parse_facts(raw[FACTS_OFFSET : FACTS_OFFSET + parse_header(raw).facts_bytes]).callback_ns


class OnLightning:
    """Trains with Lightning."""

    events: ClassVar[dict[str, str]] = {
        "epoch_begin": "on_train_epoch_start",
        "batch_begin": "on_train_batch_start",
        "batch_end": "on_train_batch_end",
        "epoch_end": "on_train_epoch_end",
        "validation_end": "on_validation_end",
    }

    def __init__(self) -> None:
        self.b: Any = import_module("tests.loops.builders_lightning")
        self.package: Any = import_module("lightning.pytorch")

    def tagger(self) -> Any:
        return import_module("trainer_hooks.lightning").PhaseTagger()

    def callback(self, name: str, does: Callable[[], None], *events: str) -> Any:
        """One of a class of that name, which does something at these events."""
        methods = {self.events[event]: lambda *_: does() for event in events}
        return type(name, (self.package.Callback,), methods)()

    def train(
        self,
        folder: Path,
        *callbacks: Any,
        waits: Waits | None = None,
        batches: int = 6,
        epochs: int = 2,
        validated: int = 0,
        changed: Callable[[Any], Any] | None = None,
    ) -> None:
        """Train a small model.

        Args:
            folder: What is written goes there.
            callbacks: Of the trainer.
            waits: Where the training sleeps.
            batches: In an epoch.
            epochs: How many.
            validated: Batches of a validation after each; 0: none.
            changed: Makes another module of the one that has the weights.
        """
        model = self.b.model(self.package, waits or Waits())
        if changed is not None:
            model.linear = changed(model.linear)
        trainer = self.b.trainer(self.package, folder, *callbacks, max_epochs=epochs)
        loaders = (self.b.loader(batches), self.b.loader(validated) if validated else None)
        trainer.fit(model, *loaders)


class OnHuggingFace:
    """Trains with the Hugging Face Trainer."""

    events: ClassVar[dict[str, str]] = {
        "epoch_begin": "on_epoch_begin",
        "batch_begin": "on_step_begin",
        "batch_end": "on_step_end",
        "epoch_end": "on_epoch_end",
        "validation_end": "on_evaluate",
    }

    def __init__(self) -> None:
        self.b: Any = import_module("tests.loops.builders_huggingface")
        self.package: Any = import_module("transformers")

    def tagger(self) -> Any:
        return import_module("trainer_hooks.huggingface").PhaseTagger()

    def callback(self, name: str, does: Callable[[], None], *events: str) -> Any:
        """One of a class of that name, which does something at these events."""
        methods = {self.events[event]: lambda *_, **__: does() for event in events}
        return type(name, (self.package.TrainerCallback,), methods)()

    def train(
        self,
        folder: Path,
        *callbacks: Any,
        waits: Waits | None = None,
        batches: int = 6,
        epochs: int = 2,
        validated: int = 0,
        changed: Callable[[Any], Any] | None = None,
    ) -> None:
        """As ``OnLightning.train``."""
        said = {"eval_strategy": "epoch"} if validated else {}
        trainer = self.b.trainer(
            folder,
            waits or Waits(),
            *callbacks,
            batches=batches,
            evaluated=max(1, validated),
            num_train_epochs=epochs,
            **said,
        )
        if changed is not None:
            trainer.model.classifier = changed(trainer.model.classifier)
        trainer.train()


Adapter = OnLightning | OnHuggingFace
ADAPTERS: dict[str, type[Adapter]] = {"lightning": OnLightning, "huggingface": OnHuggingFace}
