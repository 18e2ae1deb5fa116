"""Training runs in whose middle something is done, and what their ring then shows."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest

from gpumon.core.ring_format.events import RingKind
from tests.loops.builders_loops import (
    RingContents,
    WrongInTheMiddleError,
    own_ring,
    present,
    raise_error,
)

PhaseMode = tuple[str, int]
"""A phase and its mode."""
FAILS_IN = ("a step", "a callback", "the loader", "an evaluation")


class Act:
    """Does something at the calls with these numbers, but not inside itself, and notes when."""

    def __init__(self, does: Callable[[], object], *at_calls: int) -> None:
        self._does, self._at_calls = does, at_calls
        self._calls, self._is_acting = 0, False
        self.spans_ns: list[tuple[int, int]] = []

    def __call__(self, *_: object, **__: object) -> None:
        if self._is_acting:
            return
        self._calls += 1
        if self._calls not in self._at_calls:
            return
        self._is_acting, began_ns = True, time.monotonic_ns()
        try:
            self._does()
        finally:
            self._is_acting = False
            self.spans_ns.append((began_ns, time.monotonic_ns()))


class Recorded(NamedTuple):
    """What a ring shows of a run and of the act in its middle.

    Attributes:
        present: The phase after the run.
        inside: The phases during the act.
        after: The phase right after it.
        outside: The other phases in order, without one that lasted over the end of an act.
    """

    steps: int
    samples: int
    present: PhaseMode
    inside: set[PhaseMode]
    after: set[PhaseMode]
    outside: list[PhaseMode]


def recorded(act: Act, after: set[PhaseMode]) -> Recorded:
    contents = RingContents()
    inside: set[PhaseMode] = set()
    outside: list[PhaseMode] = []
    entered = [e for e in contents.records if e.kind is RingKind.ENTER]
    for event, ends_ns in zip(
        entered, [e.at_ns for e in entered[1:]] + [contents.at_ns], strict=True
    ):
        phase = (event.phase.value, event.value)
        if any(began < ends_ns and event.at_ns < ended for began, ended in act.spans_ns):
            inside.add(phase)
        if not any(began <= event.at_ns < ended for began, ended in act.spans_ns):
            outside.append(phase)
    outside = [phase for phase, _ in groupby(outside)]
    return Recorded(
        contents.steps, contents.samples, (contents.present, contents.mode), inside, after, outside
    )


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """A ring for one of several runs in a test."""
    folder.mkdir()
    with own_ring(folder):
        yield


def before_each(does: Callable[[], object], method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, and before each call something else."""

    def both(*args: Any, **named: Any) -> Any:
        does()
        return method(*args, **named)

    return both


class InnerTagger(Enum):
    """Which tagger another trainer has, inside a tagged run."""

    NONE = auto()
    SHARED = auto()  # that of the outer run
    OWN = auto()


class Outer(ABC):
    """A training run in whose middle something is done.

    Attributes:
        at: Where, and at which calls.
        around: The phase there.
        total_steps: Of the run.
        hook: Its tagger; ``None``: it is not tagged.
        trainer: Its trainer.
        others: The results of what was done.
    """

    name: ClassVar[str]
    at: ClassVar[dict[str, tuple[int, ...]]]
    around: ClassVar[dict[str, PhaseMode]]
    total_steps: ClassVar[int]

    def __init__(self, folder: Path, hook: Any = None) -> None:
        self.builders: Any = import_module(f"tests.loops.builders_{self.name}")
        self.folder, self.hook = folder, hook
        self.trainer: Any = None
        self.others: list[Any] = []

    def taggers(self, tagger: InnerTagger) -> list[Any]:
        """The taggers of another trainer; none if this run has none."""
        if self.hook is None or tagger is InnerTagger.NONE:
            return []
        return [self.hook if tagger is InnerTagger.SHARED else self.builders.tagger()]

    @abstractmethod
    def run(self, where: str, act: Act) -> tuple[tuple[Any, ...], int]:
        """Train, with that act there; the results and the steps."""

    @abstractmethod
    def train(self, tagger: InnerTagger) -> None:
        """Train another model."""

    @abstractmethod
    def evaluate_with(self, act: Callable[..., Any]) -> None:
        """Evaluate outside of training, and act in its middle."""

    @abstractmethod
    def failing(self, fails_in: str, *hooks: Any) -> tuple[Any, Callable[..., Any]]:
        """A trainer, and what trains with it, failing there or not; the results and steps."""

    @abstractmethod
    def patched(self, trainer: Any) -> object:
        """What a tagger patches and must restore."""

    @abstractmethod
    def steps_of(self, trainer: Any) -> int:
        """The steps that a trainer has counted."""


class OnLightning(Outer):
    name = "lightning"
    batches, epochs = 5, 2
    total_steps = batches * epochs
    # In the middle of each epoch.
    at: ClassVar = {"training_step": (2, 8), "on_train_batch_end": (2, 8)}
    around: ClassVar = {"training_step": ("train_step", 0), "on_train_batch_end": ("callbacks", 0)}

    def __init__(self, folder: Path, hook: Any = None) -> None:
        super().__init__(folder, hook)
        self.model = self.builders.model()

    def run(self, where: str, act: Act) -> tuple[tuple[Any, ...], int]:
        hooks = self.taggers(InnerTagger.SHARED)
        if where == "training_step":
            step = before_each(act, self.model.training_step)
            # Lightning looks at the names of the arguments.
            self.model.training_step = lambda batch, batch_idx: step(batch, batch_idx)
        else:
            hooks.append(self.builders.callback(**{where: act}))
        self.trainer = self.builders.trainer(self.folder, *hooks, max_epochs=self.epochs)
        profiler = self.trainer.profiler
        self.trainer.fit(self.model, self.builders.loader(self.batches), self.builders.loader(1))
        assert self.trainer.profiler is profiler
        validated = float(self.trainer.callback_metrics["validated"])
        results = self.model.losses, self.builders.weights(self.model), validated
        return results, self.trainer.global_step

    def train(self, tagger: InnerTagger) -> None:
        self.fit(tagger, self.builders.model())

    def fit(self, tagger: InnerTagger, model: Any = None) -> None:
        """Train this model, or another, with another trainer."""
        model = model or self.model
        trainer = self.builders.trainer(self.folder, *self.taggers(tagger), max_epochs=1)
        trainer.fit(model, self.builders.loader(3))
        self.model.trainer = self.trainer  # restore the trainer
        self.others.append(self.builders.weights(model))

    def validate(self, tagger: InnerTagger, model: Any = None) -> None:
        trainer = self.builders.trainer(self.folder, *self.taggers(tagger), max_epochs=1)
        trainer.validate(model or self.model, self.builders.loader(2), verbose=False)
        self.model.trainer = self.trainer

    def save(self) -> None:
        self.trainer.save_checkpoint(self.folder / "saved.ckpt")

    def fail(self, stage: str, tagger: InnerTagger) -> None:
        model = self.builders.model(fails_at=1)
        model.validation_step = raise_error
        with pytest.raises(WrongInTheMiddleError):
            getattr(self, stage)(tagger, model)

    def evaluate_with(self, act: Callable[..., Any]) -> None:
        acting = self.builders.callback(on_validation_batch_end=act)
        self.trainer = self.builders.trainer(self.folder, self.hook, acting, inference_mode=False)
        self.trainer.validate(self.model, self.builders.loader(1), verbose=False)

    def failing(self, fails_in: str, *hooks: Any) -> tuple[Any, Callable[..., Any]]:
        acting = self.builders.callback(on_train_batch_end=Act(raise_error, 3))
        failing = [acting] if fails_in == "a callback" else []
        trainer = self.builders.trainer(self.folder, *failing, *hooks, max_epochs=self.epochs)

        def train(*, fails: bool) -> Any:
            is_in = fails_in if fails else ""
            model = self.builders.model(fails_at=3 if is_in == "a step" else None)
            loader = self.builders.loader(self.batches)
            if is_in == "an evaluation":
                model.validation_step = raise_error
            elif is_in == "the loader":
                loader.collate_fn = before_each(Act(raise_error, 3), loader.collate_fn)
            trainer.fit(model, loader, self.builders.loader(1))
            return (self.builders.weights(model), model.losses, trainer.global_step), len(
                model.losses
            )

        return trainer, train

    def patched(self, trainer: Any) -> object:
        return trainer.profiler

    def steps_of(self, trainer: Any) -> int:
        return int(trainer.global_step)


class OnHuggingFace(Outer):
    """The run of a trainer, which has its model and its data."""

    name = "huggingface"
    between = "_get_learning_rate"
    """Called after a step of the optimizer, by the loop itself."""
    short: ClassVar = {"batches": 3, "evaluated": 1, "num_train_epochs": 2}
    total_steps = 6
    # An epoch follows.
    at: ClassVar = {
        "compute_loss": (2,),
        "on_step_end": (2,),
        "on_log": (1,),
        "on_epoch_end": (1,),
        between: (2,),
    }
    around: ClassVar = {
        name: ("callbacks" if name.startswith("on_") else "train_step", 0) for name in at
    }

    def run(self, where: str, act: Act) -> tuple[tuple[Any, ...], int]:
        hooks = self.taggers(InnerTagger.SHARED)
        if where.startswith("on_"):
            hooks.append(self.builders.callback(**{where: act}))
        self.trainer = self.builders.trainer(self.folder, *hooks, **self.short)
        if not where.startswith("on_"):
            setattr(self.trainer, where, before_each(act, getattr(self.trainer, where)))
        before = self.builders.shadowed(self.trainer)
        self.trainer.train()
        assert self.builders.shadowed(self.trainer) == before
        return self.builders.outcome(self.trainer), self.trainer.state.global_step

    def another(self, tagger: InnerTagger) -> Any:
        short = {**self.short, "batches": 2, "num_train_epochs": 1}
        return self.builders.trainer(self.folder / "aside", *self.taggers(tagger), **short)

    def train(self, tagger: InnerTagger) -> None:
        other = self.another(tagger)
        other.train()
        self.others.append(self.builders.outcome(other))

    def evaluate(self, trainer: Any) -> None:
        self.others.append(trainer.evaluate()["eval_loss"])

    def evaluate_on_a_thread(self) -> None:
        thread = threading.Thread(target=self.evaluate, args=[self.another(InnerTagger.SHARED)])
        thread.start()
        thread.join()

    def predict(self) -> None:
        found = self.trainer.predict(self.trainer.eval_dataset)
        self.others.append(found.metrics["test_loss"])

    def save(self) -> None:
        self.trainer.save_model(str(self.folder / "saved"))

    def fail(self, method: str, *args: Any, of: Any, within: str) -> None:
        """Let a trainer's method raise, and catch that."""
        setattr(of, within, raise_error)
        with pytest.raises(WrongInTheMiddleError):
            getattr(of, method)(*args)
        delattr(of, within)

    def evaluate_with(self, act: Callable[..., Any]) -> None:
        trainer = self.builders.trainer(self.folder, self.hook, **self.short)
        trainer.compute_metrics = lambda _: act() or {}
        trainer.evaluate()

    def failing(self, fails_in: str, *hooks: Any) -> tuple[Any, Callable[..., Any]]:
        trainer = self.builders.trainer(self.folder, *hooks, **self.short, eval_strategy="epoch")

        def train(*, fails: bool) -> Any:
            repair = self._break(trainer, fails_in) if fails else lambda: None
            try:
                trainer.train()
            finally:
                repair()
            return self.builders.outcome(trainer), self.total_steps

        return trainer, train

    def _break(self, trainer: Any, fails_in: str) -> Callable[[], object]:
        """Let it fail; what is returned repairs it."""
        failing = Act(raise_error, 2)
        if fails_in == "a callback":
            callback = self.builders.callback(on_step_end=failing)
            trainer.add_callback(callback)
            return lambda: trainer.remove_callback(callback)
        if fails_in == "the loader":
            collate = trainer.data_collator
            trainer.data_collator = before_each(failing, collate)
            return lambda: setattr(trainer, "data_collator", collate)
        name, does = {
            "a step": ("compute_loss", raise_error),
            "an evaluation": ("prediction_step", raise_error),
            "the optimizer": (self.between, failing),  # its step is between the trainer's own
        }[fails_in]
        setattr(trainer, name, does)
        return lambda: delattr(trainer, name)

    def patched(self, trainer: Any) -> object:
        return self.builders.shadowed(trainer)

    def steps_of(self, trainer: Any) -> int:
        return int(trainer.state.global_step)


Does = Callable[[Any], object]
"""What is done to the outer run."""


class Seen(NamedTuple):
    """The results of a run and of what was done, and its ring if it was tagged."""

    results: tuple[Any, ...]
    recorded: Recorded | None


def train(kind: type[Outer], folder: Path, does: Does, where: str, hook: Any) -> Seen:
    """Train, and do something in the middle of it."""
    with alone(folder):
        outer, after = kind(folder, hook), set()

        def acts() -> None:
            does(outer)
            after.update([present()] if hook is not None else [])

        act = Act(acts, *kind.at[where])
        results, steps = outer.run(where, act)
        assert len(act.spans_ns) == len(kind.at[where])
        return Seen((*results, outer.others, steps), hook and recorded(act, after))


def train_bare_and_tagged(kind: type[Outer], folder: Path, does: Does, where: str) -> Recorded:
    """The ring of the tagged run, whose results are those of the same without a tagger."""
    bare = train(kind, folder / "bare", does, where, None)
    tagged = train(kind, folder / "tagged", does, where, kind(folder).builders.tagger())
    assert tagged.results == bare.results
    assert tagged.recorded is not None
    return tagged.recorded
