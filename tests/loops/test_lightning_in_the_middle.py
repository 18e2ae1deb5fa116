"""What is done in the middle of a tagged Lightning training, against the same done untagged."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

from tests.loops.builders_loops import RingContents, WrongInTheMiddleError, raise_error
from tests.loops.in_the_middle import (
    Act,
    Does,
    Outer,
    PhaseMode,
    Recorded,
    alone,
    before_each,
    train,
    train_bare_and_tagged,
    undisturbed,
)
from tests.needs import in_make_truth

pytestmark = [pytest.mark.keras_torch, pytest.mark.usefixtures("frozen_heap")]

BATCHES, EPOCHS = 5, 2
STEPS = BATCHES * EPOCHS
IN_A_STEP, IN_A_CALLBACK = "training_step", "on_train_batch_end"
AROUND = {IN_A_STEP: ("train_step", 0), IN_A_CALLBACK: ("callbacks", 0)}
VALIDATED = {("start_up", 0), ("input_wait", 1), ("validation", 1)}


class OnLightning(Outer):
    """The training of a model, whose weights are what comes of it."""

    # In the middle of each epoch.
    at = dict.fromkeys(AROUND, (2, 8))
    _builders = "tests.loops.builders_lightning"

    def __init__(self, folder: Path, hook: Any) -> None:
        super().__init__(folder, hook)
        self.model = self.b.model()

    def run(self, where: str, act: Act, *more: Any) -> tuple[tuple[Any, ...], int]:
        hooks = [*self.taggers("the same"), *more]
        if where == IN_A_STEP:
            step = before_each(act, self.model.training_step)
            # Lightning looks at the names of the arguments.
            self.model.training_step = lambda batch, batch_idx: step(batch, batch_idx)
        else:
            hooks.append(self.b.callback(**{where: act}))
        self.trainer = self.b.trainer(self.folder, *hooks, max_epochs=EPOCHS)
        profiler = self.trainer.profiler
        self.trainer.fit(self.model, self.b.loader(BATCHES), self.b.loader(1))
        assert self.trainer.profiler is profiler
        validated = float(self.trainer.callback_metrics["validated"])
        results = self.model.losses, self.b.weights(self.model), validated
        return results, self.trainer.global_step

    def fit(self, whose: str, model: Any = None) -> None:
        """Train a model aside: this one, or another."""
        model = model or self.model
        trainer = self.b.trainer(self.folder, *self.taggers(whose), max_epochs=1)
        trainer.fit(model, self.b.loader(3))
        self.model.trainer = self.trainer  # as whoever lends it out must
        self.others.append(self.b.weights(model))

    def validate(self, whose: str, model: Any = None) -> None:
        trainer = self.b.trainer(self.folder, *self.taggers(whose), max_epochs=1)
        trainer.validate(model or self.model, self.b.loader(2), verbose=False)
        self.model.trainer = self.trainer

    def loop(self) -> None:
        self.model.eval()
        with self.b.torch.no_grad():
            self.others.append([float(self.model(batch).sum()) for batch in self.b.loader(2)])
        self.model.train()

    def save(self) -> None:
        self.trainer.save_checkpoint(self.folder / "saved.ckpt")

    def fail(self, stage: str, whose: str) -> None:
        model = self.b.model(fails_at=1)
        model.validation_step = raise_error
        with pytest.raises(WrongInTheMiddleError):
            getattr(self, stage)(whose, model)


DONE: dict[str, tuple[Does, set[PhaseMode]]] = {
    "a loop over a loader": (OnLightning.loop, set()),
    "save": (OnLightning.save, {("checkpoint", 0)}),
    "validate, of no tagger": (lambda outer: outer.validate("no"), set()),
    "validate, of the same tagger": (lambda outer: outer.validate("the same"), set()),
    "validate, of its own tagger": (lambda outer: outer.validate("its own"), VALIDATED),
    "validate of another, of the same tagger": (
        lambda outer: outer.validate("the same", outer.b.model()),
        set(),
    ),
    "validate that raises, of the same tagger": (
        lambda outer: outer.fail("validate", "the same"),
        set(),
    ),
    "validate that raises, of its own tagger": (
        lambda outer: outer.fail("validate", "its own"),
        VALIDATED,
    ),
    "fit, of no tagger": (lambda outer: outer.fit("no"), set()),
    "fit, of the same tagger": (lambda outer: outer.fit("the same"), set()),
    "fit of another, of no tagger": (lambda outer: outer.fit("no", outer.b.model()), set()),
    "fit of another, of the same tagger": (
        lambda outer: outer.fit("the same", outer.b.model()),
        set(),
    ),
    "fit that raises, of the same tagger": (lambda outer: outer.fail("fit", "the same"), set()),
}
"""What is done, and its own phases; what has none is part of the step or callback."""


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return undisturbed(OnLightning, tmp_path_factory.mktemp("calm"), IN_A_CALLBACK)


@pytest.mark.parametrize("where", [pytest.param(IN_A_STEP, marks=in_make_truth), IN_A_CALLBACK])
class TestInTheMiddleOfATraining:
    @pytest.mark.parametrize("what", DONE)
    def test_changes_no_result_no_step_and_no_other_phase(
        self, b: Any, tmp_path: Path, calm: Recorded, where: str, what: str
    ) -> None:
        does, phases = DONE[what]
        seen, recorded = train_bare_and_tagged(OnLightning, tmp_path, does, where)

        assert recorded == calm._replace(inside={AROUND[where], *phases}, after={AROUND[where]})
        assert recorded.steps == seen.steps == STEPS
        assert recorded.samples == STEPS * b.BATCH

    def test_a_fit_with_a_tagger_of_its_own_is_recorded_beside_it(
        self, tmp_path: Path, calm: Recorded, where: str
    ) -> None:
        def fit(outer: OnLightning) -> None:
            outer.fit("its own", outer.b.model())

        _, recorded = train_bare_and_tagged(OnLightning, tmp_path, fit, where)

        assert recorded.steps == STEPS + 2 * 3  # a process is one run
        assert {("train_step", 0), ("input_wait", 0)} <= recorded.inside
        assert recorded.outside == calm.outside
        assert recorded.present == ("other", 0)

    @pytest.mark.parametrize("stage", ["validate", "fit"])
    def test_the_trainer_itself_raises_what_it_raises_untagged_and_is_tagged_the_next_time(
        self, b: Any, tmp_path: Path, where: str, stage: str
    ) -> None:
        """Lightning goes on neither after its ``validate`` nor after its ``fit``."""

        def again(outer: OnLightning) -> None:
            getattr(outer.trainer, stage)(outer.model, b.loader(2))

        for hook in (None, b.tagger()):
            with pytest.raises(AssertionError):
                train(OnLightning, tmp_path / f"{hook is None}", again, where, hook)

        b.trainer(tmp_path, hook, max_epochs=1).fit(b.model(), b.loader(BATCHES))
        contents = RingContents()
        assert (contents.steps, contents.present) == (BATCHES, "other")


class TestAValidationOutsideOfTraining:
    def test_goes_on_after_a_fit_with_the_same_tagger_in_it(self, b: Any, tmp_path: Path) -> None:
        outer, seen = OnLightning(tmp_path, b.tagger()), []

        def fit(*_: object) -> None:
            outer.fit("the same", b.model())
            seen.append(RingContents().phases()[-1])

        acting = b.callback(on_validation_batch_end=fit)
        outer.trainer = b.trainer(tmp_path, outer.hook, acting, inference_mode=False)
        outer.trainer.validate(outer.model, b.loader(1), verbose=False)

        contents = RingContents()
        assert seen == [("validation", 1)]
        assert (contents.steps, contents.present) == (0, "other")


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

    def outcome(self, b: Any, folder: Path, finds: str, *hooks: Any) -> tuple[Any, ...]:
        from torch.utils.data import DataLoader

        model, seen = b.model(), []
        model.learning_rate, model.batch_size = 0.05, b.BATCH
        model.train_dataloader = lambda: DataLoader(b.loader(6).dataset, model.batch_size)
        if finds != "learning rate later":  # else Lightning tries no rate there
            model.val_dataloader = lambda: b.loader(1)
        model.on_train_epoch_start = lambda: seen.append(RingContents().phases()[-1:])
        often = {"max_epochs": 4, "val_check_interval": 2 if finds == "learning rate" else 1.0}
        trainer = b.trainer(folder, *hooks, self.finder(b.pl, finds), **often)
        trainer.fit(model)
        assert not hooks or seen[-3] == [("callbacks", 0)]  # in the second epoch of four
        return trainer.global_step, model.losses, b.weights(model)

    @pytest.mark.parametrize("finds", ["learning rate", "learning rate later", "batch size"])
    def test_makes_no_step_of_the_training(self, b: Any, tmp_path: Path, finds: str) -> None:
        bare = self.outcome(b, tmp_path, finds)
        tagged = self.outcome(b, tmp_path, finds, b.tagger())

        contents = RingContents()
        phases = [phase for phase, _ in contents.phases()]
        assert tagged == bare
        assert contents.steps == tagged[0] < len(tagged[1])
        assert phases.count("train_step") == tagged[0]
        validations = {"learning rate": 4 * 3, "learning rate later": 0, "batch size": 4}[finds]
        assert phases.count("validation") == 2 * validations  # none of them its own
        assert (contents.samples, phases[-1]) == (4 * 6 * b.BATCH, "other")


class TestATrainingThatRaisedAndWasCaught:
    FAILS_IN = ("a step", "a callback", "the loader", "a validation", "on_exception too")

    def fit(self, b: Any, trainer: Any, fails_in: str = "") -> Any:
        model = b.model(fails_at=3 if fails_in == "a step" else None)
        loader = b.loader(BATCHES)
        if fails_in == "a validation":
            model.validation_step = raise_error
        elif fails_in == "the loader":
            loader.collate_fn = before_each(Act(raise_error, 3), loader.collate_fn)
        trainer.fit(model, loader, b.loader(1))
        return b.weights(model), model.losses, trainer.global_step

    def trainer(self, b: Any, folder: Path, fails_in: str, *hooks: Any) -> Any:
        methods = {
            "a callback": {"on_train_batch_end": Act(raise_error, 3)},
            "on_exception too": {
                "on_train_batch_end": Act(raise_error, 3),
                "on_exception": Act(raise_error, 1),
            },
        }
        acting = b.callback(**methods.get(fails_in, {}))
        return b.trainer(folder, acting, *hooks, max_epochs=EPOCHS)

    @pytest.mark.parametrize("fails_in", FAILS_IN)
    @pytest.mark.parametrize("again", ["the same trainer", "a fresh one"])
    def test_is_followed_by_one_that_is_tagged_as_ever(
        self, b: Any, tmp_path: Path, calm: Recorded, fails_in: str, again: str
    ) -> None:
        outcomes = []
        for hooks in ([], [b.tagger()]):
            with alone(tmp_path / f"{len(hooks)}"):
                trainer = self.trainer(b, tmp_path, fails_in, *hooks)
                fresh = self.trainer(b, tmp_path, "", *hooks)
                profiler = trainer.profiler
                with pytest.raises(WrongInTheMiddleError) as kept:
                    self.fit(b, trainer, fails_in)
                before = RingContents()
                outcomes.append(self.fit(b, trainer if again == "the same trainer" else fresh))
                contents = RingContents()
        assert kept.tb is not None
        assert outcomes[0] == outcomes[1]
        assert contents.steps - before.steps == len(outcomes[1][1])
        assert contents.present == "other"
        assert trainer.profiler is profiler
        phases = contents.phases()[len(before.phases()) :]
        assert ("start_up", 0) in phases
        if again == "a fresh one":
            assert [p for i, p in enumerate(phases) if p != phases[i - 1]] == calm.outside

    @pytest.mark.parametrize("fails_in", FAILS_IN[:-1])
    def test_leaves_nothing_behind(self, b: Any, tmp_path: Path, fails_in: str) -> None:
        hook, threads = b.tagger(), set(threading.enumerate())
        trainer = self.trainer(b, tmp_path, fails_in, hook)
        with pytest.raises(WrongInTheMiddleError):
            self.fit(b, trainer, fails_in)

        assert RingContents().phases()[-1] == ("other", 0)
        assert RingContents().steps == trainer.global_step > 0
        assert set(threading.enumerate()) == threads
        gone = weakref.ref(trainer)
        del trainer, hook  # to which, as to any callback, Lightning lends the module's ``log``
        gc.collect()
        assert gone() is None
