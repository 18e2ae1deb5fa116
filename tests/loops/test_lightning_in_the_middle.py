"""What is done in the middle of a tagged Lightning training, against the same done untagged."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.loops.builders_loops import RingSays, Waits
from tests.loops.in_the_middle import Act, Told, alone, before_each, told

pytestmark = [pytest.mark.keras_torch, pytest.mark.usefixtures("frozen_heap")]

BATCHES, EPOCHS = 5, 2
STEPS = BATCHES * EPOCHS
AT = (2, 8)
"""In the middle of each epoch."""
IN_A_STEP, IN_A_CALLBACK = "training_step", "on_train_batch_end"
AROUND = {IN_A_STEP: ("train_step", 0), IN_A_CALLBACK: ("callbacks", 0)}


def tagger() -> Any:
    from trainer_hooks.lightning import PhaseTagger

    return PhaseTagger()


class Outer:
    """The training in whose middle something is done.

    Attributes:
        hook: Its tagger; ``None``: it is not tagged.
        others: Weights of the models that were trained aside.
    """

    def __init__(self, b: Any, pl: Any, folder: Path, hook: Any) -> None:
        self.b, self.pl, self.folder, self.hook = b, pl, folder, hook
        self.model = b.model(pl, Waits())
        self.trainer: Any = None
        self.others: list[Any] = []

    def trainer_of(self, whose: str) -> Any:
        """Another trainer, whose tagger is that of this training, its own, or nobody's."""
        hooks = {"no": [], "its own": [tagger()] if self.hook else [], "the same": [self.hook]}
        taggers = [hook for hook in hooks[whose] if hook is not None]
        return self.b.trainer(self.pl, self.folder, *taggers, max_epochs=1)

    def fit(self, whose: str, model: Any) -> None:
        """Train a model aside, be it the one that is trained."""
        self.trainer_of(whose).fit(model, self.b.loader(3))
        self.model.trainer = self.trainer  # as whoever lends it out must
        self.others.append(weights(model))

    def validate(self, whose: str, model: Any) -> None:
        self.trainer_of(whose).validate(model, self.b.loader(2), verbose=False)
        self.model.trainer = self.trainer

    def another(self, **said: Any) -> Any:
        return self.b.model(self.pl, Waits(), **said)

    def loop(self) -> None:
        import torch

        self.model.eval()
        with torch.no_grad():
            self.others.append([float(self.model(batch).sum()) for batch in self.b.loader(2)])
        self.model.train()

    def save(self) -> None:
        self.trainer.save_checkpoint(self.folder / "saved.ckpt")

    def fail(self, stage: str, whose: str) -> None:
        model = self.another(fails_at=1)
        model.validation_step = fail
        with pytest.raises(OSError, match="out of memory"):
            getattr(self, stage)(whose, model)


def fail(*_: object, **__: object) -> None:
    raise OSError("out of memory, say")


def weights(model: Any) -> Any:
    return [weight.tolist() for weight in model.parameters()]


class Seen(NamedTuple):
    """What came out of it."""

    results: tuple[Any, ...]
    told: Told | None
    trainer: Any


def train(
    b: Any, pl: Any, folder: Path, what: Callable[[Outer], object], where: str, hook: Any
) -> Seen:
    """Train, and do something in the middle of it."""
    with alone(folder):
        outer = Outer(b, pl, folder, hook)
        act = Act(lambda: what(outer), *AT)
        callback = type("Acting", (pl.Callback,), {where: act} if where == IN_A_CALLBACK else {})()
        if where == IN_A_STEP:
            step = outer.model.training_step

            def training_step(batch: Any, batch_idx: int) -> Any:
                act()
                return step(batch, batch_idx)

            outer.model.training_step = training_step
        hooks = [] if hook is None else [hook]
        outer.trainer = b.trainer(pl, folder, *hooks, callback, max_epochs=EPOCHS)
        profiler = outer.trainer.profiler
        outer.trainer.fit(outer.model, b.loader(BATCHES), b.loader(1))
        assert len(act.spans_ns) == len(AT)
        assert outer.trainer.profiler is profiler
        results = (
            outer.model.losses, weights(outer.model), outer.others, outer.trainer.global_step,
            float(outer.trainer.callback_metrics["validated"]),
        )  # fmt: skip
        return Seen(results, None if hook is None else told(act), outer.trainer)


@pytest.fixture(scope="module")
def undisturbed(b: Any, pl: Any, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What a ring says where nothing is done in the middle."""
    folder = tmp_path_factory.mktemp("undisturbed") / "it"
    seen = train(b, pl, folder, lambda outer: None, IN_A_CALLBACK, tagger())
    assert seen.told is not None
    return seen.told


UNSEEN: dict[str, Callable[[Outer], object]] = {
    "a loop over a loader": Outer.loop,
    "validate, of no tagger": lambda outer: outer.validate("no", outer.model),
    "validate, of the same tagger": lambda outer: outer.validate("the same", outer.model),
    "validate of another, of the same tagger": lambda o: o.validate("the same", o.another()),
    "fit, of no tagger": lambda outer: outer.fit("no", outer.model),
    "fit, of the same tagger": lambda outer: outer.fit("the same", outer.model),
    "fit of another, of no tagger": lambda outer: outer.fit("no", outer.another()),
    "fit of another, of the same tagger": lambda outer: outer.fit("the same", outer.another()),
    "fit that raises, of the same tagger": lambda outer: outer.fail("fit", "the same"),
    "validate that raises, of the same tagger": lambda outer: outer.fail("validate", "the same"),
}  # fmt: skip
SEEN: dict[str, tuple[Callable[[Outer], object], set[tuple[str, int]]]] = {
    "save": (Outer.save, {("checkpoint", 0)}),
    "validate, of its own tagger": (
        lambda outer: outer.validate("its own", outer.model),
        {("start_up", 0), ("input_wait", 1), ("validation", 1)},
    ),
    "validate that raises, of its own tagger": (
        lambda outer: outer.fail("validate", "its own"),
        {("start_up", 0), ("input_wait", 1), ("validation", 1)},
    ),
}


@pytest.mark.parametrize("where", [IN_A_STEP, IN_A_CALLBACK])
class TestInTheMiddleOfATraining:
    @pytest.mark.parametrize("what", UNSEEN)
    def test_what_is_nobodys_phase_is_that_of_the_step_or_callback(
        self, b: Any, pl: Any, tmp_path: Path, undisturbed: Told, where: str, what: str
    ) -> None:
        bare = train(b, pl, tmp_path / "bare", UNSEEN[what], where, None)
        tagged = train(b, pl, tmp_path / "tagged", UNSEEN[what], where, tagger())

        assert tagged.results == bare.results
        assert tagged.told == undisturbed._replace(inside={AROUND[where]})
        assert tagged.told.steps == tagged.trainer.global_step == STEPS
        assert tagged.told.samples == STEPS * b.BATCH

    @pytest.mark.parametrize("what", SEEN)
    def test_what_is_a_phase_of_its_own_is_followed_by_the_step_or_callback(
        self, b: Any, pl: Any, tmp_path: Path, undisturbed: Told, where: str, what: str
    ) -> None:
        does, phases = SEEN[what]
        bare = train(b, pl, tmp_path / "bare", does, where, None)
        tagged = train(b, pl, tmp_path / "tagged", does, where, tagger())

        assert tagged.results == bare.results
        assert tagged.told == undisturbed._replace(inside={AROUND[where], *phases})
        assert tagged.told.steps == tagged.trainer.global_step == STEPS

    def test_a_fit_with_a_tagger_of_its_own_is_told_beside_it(
        self, b: Any, pl: Any, tmp_path: Path, undisturbed: Told, where: str
    ) -> None:
        def fit(outer: Outer) -> None:
            outer.fit("its own", outer.another())

        bare = train(b, pl, tmp_path / "bare", fit, where, None)
        tagged = train(b, pl, tmp_path / "tagged", fit, where, tagger())

        assert tagged.results == bare.results
        assert tagged.told is not None
        assert tagged.told.steps == STEPS + 3 * len(AT)  # a process is one run
        assert {("train_step", 0), ("input_wait", 0)} <= tagged.told.inside
        assert tagged.told.outside == undisturbed.outside
        assert tagged.told.present == ("other", 0)


class TestTheTrainerItself:
    """Lightning goes on neither after a ``validate`` nor after a ``fit`` of the same trainer."""

    @pytest.mark.parametrize("stage", ["validate", "fit"])
    @pytest.mark.parametrize("where", [IN_A_STEP, IN_A_CALLBACK])
    def test_raises_what_it_raises_untagged_and_is_tagged_the_next_time(
        self, b: Any, pl: Any, tmp_path: Path, where: str, stage: str
    ) -> None:
        def again(outer: Outer) -> None:
            getattr(outer.trainer, stage)(outer.model, b.loader(2))

        for hook in (None, tagger()):
            with pytest.raises(AssertionError):
                train(b, pl, tmp_path / f"{hook is None}", again, where, hook)

        b.trainer(pl, tmp_path, hook, max_epochs=1).fit(b.model(pl, Waits()), b.loader(BATCHES))
        says = RingSays()
        assert (says.steps, says.present) == (BATCHES, "other")


class TestAValidationOutsideOfTraining:
    def test_goes_on_after_a_fit_with_the_same_tagger_in_it(
        self, b: Any, pl: Any, tmp_path: Path
    ) -> None:
        outer, seen = Outer(b, pl, tmp_path, tagger()), []

        def fit(*_: object) -> None:
            outer.fit("the same", outer.another())
            seen.append(RingSays().phases()[-1])

        acting = type("Acting", (pl.Callback,), {"on_validation_batch_end": fit})()
        outer.trainer = b.trainer(pl, tmp_path, outer.hook, acting, inference_mode=False)
        outer.trainer.validate(outer.model, b.loader(1), verbose=False)

        says = RingSays()
        assert seen == [("validation", 1)]
        assert (says.steps, says.present) == (0, "other")


class TestACallbackThatTrainsToFindASetting:
    """It runs the loop of the trainer itself, with other callbacks, and takes all of it back."""

    def finder(self, pl: Any, finds: str) -> Any:
        class Later(pl.callbacks.LearningRateFinder):  # type: ignore[misc]
            def on_fit_start(self, *_: object) -> None:
                """Not yet."""

            def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
                if trainer.current_epoch == 1:
                    self.lr_find(trainer, pl_module)

        if finds == "batch size":
            return pl.callbacks.BatchSizeFinder(steps_per_trial=2, max_trials=2)
        kind = Later if finds == "learning rate later" else pl.callbacks.LearningRateFinder
        return kind(num_training_steps=8, early_stop_threshold=None)

    def outcome(self, b: Any, pl: Any, folder: Path, finds: str, *hooks: Any) -> tuple[Any, ...]:
        from torch.utils.data import DataLoader

        model, seen = b.model(pl, Waits()), []
        model.learning_rate, model.batch_size = 0.05, b.BATCH
        model.train_dataloader = lambda: DataLoader(b.loader(6).dataset, model.batch_size)
        if finds != "learning rate later":  # else Lightning tries no rate there
            model.val_dataloader = lambda: b.loader(1)
        model.on_train_epoch_start = lambda: seen.append(RingSays().phases()[-1:])
        finder = self.finder(pl, finds)
        validated_after = 2 if finds == "learning rate" else 1.0  # batches, or epochs
        trainer = b.trainer(
            pl, folder, *hooks, finder, max_epochs=4, val_check_interval=validated_after
        )
        trainer.fit(model)
        assert not hooks or seen[-3] == [("callbacks", 0)]  # in the second epoch of four
        return trainer.global_step, model.losses, weights(model)

    @pytest.mark.parametrize("finds", ["learning rate", "learning rate later", "batch size"])
    def test_makes_no_step_of_the_training(
        self, b: Any, pl: Any, tmp_path: Path, finds: str
    ) -> None:
        bare = self.outcome(b, pl, tmp_path, finds)
        tagged = self.outcome(b, pl, tmp_path, finds, tagger())

        says = RingSays()
        phases = [phase for phase, _ in says.phases()]
        assert tagged == bare
        assert says.steps == tagged[0] < len(tagged[1])
        assert phases.count("train_step") == tagged[0]
        validations = {"learning rate": 4 * 3, "learning rate later": 0, "batch size": 4}[finds]
        assert phases.count("validation") == 2 * validations  # none of them its own
        assert (says.samples, phases[-1]) == (4 * 6 * b.BATCH, "other")


class TestATrainingThatRaisedAndWasCaught:
    FAILS_IN = ("a step", "a callback", "the loader", "a validation", "on_exception too")

    def fit(self, b: Any, pl: Any, trainer: Any, fails_in: str = "") -> Any:
        model = b.model(pl, Waits(), fails_at=3 if fails_in == "a step" else None)
        loader = b.loader(BATCHES)
        if fails_in == "a validation":
            model.validation_step = fail
        elif fails_in == "the loader":
            loader.collate_fn = before_each(Act(fail, 3), loader.collate_fn)
        trainer.fit(model, loader, b.loader(1))
        return weights(model), model.losses, trainer.global_step

    def acting(self, pl: Any, fails_in: str) -> Any:
        methods = {
            "a callback": {"on_train_batch_end": Act(fail, 3)},
            "on_exception too": {"on_train_batch_end": Act(fail, 3), "on_exception": Act(fail, 1)},
        }
        return type("Acting", (pl.Callback,), methods.get(fails_in, {}))()

    @pytest.mark.parametrize("fails_in", FAILS_IN)
    @pytest.mark.parametrize("again", ["the same trainer", "a fresh one"])
    def test_is_followed_by_one_that_is_tagged_as_ever(
        self, b: Any, pl: Any, tmp_path: Path, undisturbed: Told, fails_in: str, again: str
    ) -> None:
        outcomes = []
        for hook in (None, tagger()):
            with alone(tmp_path / f"{hook is None}"):
                hooks = [] if hook is None else [hook]
                made = [
                    b.trainer(pl, tmp_path, self.acting(pl, fails), *hooks, max_epochs=EPOCHS)
                    for fails in (fails_in, "")
                ]
                profiler = made[0].profiler
                with pytest.raises(OSError, match="out of memory") as kept:
                    self.fit(b, pl, made[0], fails_in)
                second = made[0] if again == "the same trainer" else made[1]
                before = RingSays()
                outcomes.append(self.fit(b, pl, second))
                says = RingSays()
        assert kept.tb is not None
        assert outcomes[0] == outcomes[1]
        assert says.steps - before.steps == len(outcomes[1][1])
        assert says.present == "other"
        assert made[0].profiler is profiler
        phases = says.phases()[len(before.phases()) :]
        assert ("start_up", 0) in phases
        if again == "a fresh one":
            assert [p for i, p in enumerate(phases) if p != phases[i - 1]] == undisturbed.outside

    @pytest.mark.parametrize("fails_in", FAILS_IN[:-1])
    def test_leaves_nothing_behind(self, b: Any, pl: Any, tmp_path: Path, fails_in: str) -> None:
        hook, threads = tagger(), set(threading.enumerate())
        trainer = b.trainer(pl, tmp_path, hook, self.acting(pl, fails_in))
        with pytest.raises(OSError, match="out of memory"):
            self.fit(b, pl, trainer, fails_in)

        assert RingSays().phases()[-1] == ("other", 0)
        assert set(threading.enumerate()) == threads
        gone = weakref.ref(trainer)
        del trainer, hook  # to which, as to any callback, Lightning lends the module's ``log``
        gc.collect()
        assert gone() is None
