"""What is done in the middle of a tagged training run, compared with the same done untagged."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

from tests.imported_later import ImportedLater
from tests.loops.builders_loops import RingContents, WrongInTheMiddleError
from tests.loops.in_the_middle import (
    FAILS_IN,
    Act,
    Does,
    InnerTagger,
    OnHuggingFace,
    OnLightning,
    Outer,
    PhaseMode,
    Recorded,
    alone,
    train,
    train_bare_and_tagged,
)
from tests.needs import in_make_truth

on_lightning: Any = ImportedLater("tests.loops.builders_lightning")
on_huggingface: Any = ImportedLater("tests.loops.builders_huggingface")

pytestmark = [pytest.mark.keras_torch, pytest.mark.usefixtures("frozen_heap")]

BATCH = 4
KINDS: list[type[Outer]] = [OnLightning, OnHuggingFace]
on_each = pytest.mark.parametrize("kind", KINDS)
VALIDATED, PREDICTED = (
    {("input_wait", mode), (name, mode)} for name, mode in (("validation", 1), ("predict", 2))
)
SAVED = {("checkpoint", 0)}
NOTHING: set[PhaseMode] = set()

Acts = dict[str, tuple[Does, set[PhaseMode]]]
"""What is done, and its own phases; without any it is part of the step or callback."""

LIGHTNING: Acts = {
    "save": (OnLightning.save, SAVED),
    "validate, without a tagger": (lambda outer: outer.validate(InnerTagger.NONE), NOTHING),
    "validate, with the same tagger": (lambda outer: outer.validate(InnerTagger.SHARED), NOTHING),
    "validate, with its own tagger": (
        lambda outer: outer.validate(InnerTagger.OWN),
        {("start_up", 0), *VALIDATED},
    ),
    "validate that raises, with its own tagger": (
        lambda outer: outer.fail("validate", InnerTagger.OWN),
        {("start_up", 0), *VALIDATED},
    ),
    "fit, without a tagger": (lambda outer: outer.fit(InnerTagger.NONE), NOTHING),
    "fit, with the same tagger": (lambda outer: outer.fit(InnerTagger.SHARED), NOTHING),
    "fit that raises, with the same tagger": (lambda o: o.fail("fit", InnerTagger.SHARED), NOTHING),
}
HUGGINGFACE: Acts = {
    "evaluate": (lambda outer: outer.evaluate(outer.trainer), VALIDATED),
    "predict": (OnHuggingFace.predict, PREDICTED),
    "evaluate that raises": (
        lambda outer: outer.fail("evaluate", of=outer.trainer, within="prediction_step"),
        VALIDATED,
    ),
    "evaluate, with the same tagger": (
        lambda o: o.evaluate(o.another(InnerTagger.SHARED)),
        NOTHING,
    ),
    "evaluate, with its own tagger": (lambda o: o.evaluate(o.another(InnerTagger.OWN)), VALIDATED),
    "evaluate on a thread": (OnHuggingFace.evaluate_on_a_thread, NOTHING),
    "save_model": (OnHuggingFace.save, SAVED),
    "save_model that raises": (
        lambda outer: outer.fail("save_model", "x", of=outer.trainer, within="_save"),
        SAVED,
    ),
    "train, without a tagger": (lambda outer: outer.train(InnerTagger.NONE), NOTHING),
    "train, with the same tagger": (lambda outer: outer.train(InnerTagger.SHARED), NOTHING),
    "train that raises, with the same tagger": (
        lambda outer: outer.fail(
            "train", of=outer.another(InnerTagger.SHARED), within="compute_loss"
        ),
        NOTHING,
    ),
}
ACTS: dict[type[Outer], Acts] = {OnLightning: LIGHTNING, OnHuggingFace: HUGGINGFACE}
CASES: list[Any] = (
    [
        pytest.param(kind, act, step, marks=in_make_truth)
        for kind, step in ((OnLightning, "training_step"), (OnHuggingFace, "compute_loss"))
        for act in ACTS[kind]
    ]
    + [(OnLightning, act, "on_train_batch_end") for act in LIGHTNING]
    + [(OnHuggingFace, act, "on_step_end") for act in HUGGINGFACE]
    + [
        (OnHuggingFace, "evaluate", "on_log"),
        (OnHuggingFace, "train, with the same tagger", "on_epoch_end"),
        (OnHuggingFace, "evaluate", OnHuggingFace.between),
        (OnHuggingFace, "evaluate on a thread", OnHuggingFace.between),
    ]
)
IN_A_CALLBACK: list[tuple[type[Outer], str]] = [
    (OnLightning, "on_train_batch_end"),
    (OnHuggingFace, "on_step_end"),
]


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> dict[type[Outer], Recorded]:
    """What a ring shows where nothing is done in the middle."""

    def of(kind: type[Outer], where: str) -> Recorded:
        return train_bare_and_tagged(
            kind, tmp_path_factory.mktemp("calm"), lambda outer: None, where
        )

    return {kind: of(kind, where) for kind, where in IN_A_CALLBACK}


class TestInTheMiddleOfARun:
    @pytest.mark.parametrize(("kind", "what", "where"), CASES, ids=str)
    def test_changes_no_result_no_step_and_no_other_phase(
        self, tmp_path: Path, calm: Any, kind: type[Outer], what: str, where: str
    ) -> None:
        does, phases = ACTS[kind][what]

        recorded = train_bare_and_tagged(kind, tmp_path, does, where)

        around = kind.around[where]
        assert recorded == calm[kind]._replace(inside={around, *phases}, after={around})
        assert recorded.steps == kind.total_steps
        assert recorded.samples == kind.total_steps * BATCH

    @pytest.mark.parametrize(("kind", "where"), IN_A_CALLBACK)
    def test_a_run_with_its_own_tagger_is_recorded_too(
        self, tmp_path: Path, calm: Any, kind: type[Outer], where: str
    ) -> None:
        recorded = train_bare_and_tagged(kind, tmp_path, lambda o: o.train(InnerTagger.OWN), where)

        others = {OnLightning: 2 * 3, OnHuggingFace: 2}[kind]  # a process is one run
        assert recorded.steps == kind.total_steps + others
        assert {("train_step", 0), ("input_wait", 0)} <= recorded.inside
        assert recorded.outside == calm[kind].outside
        assert recorded.present == ("other", 0)


@on_each
def test_an_evaluation_continues_after_a_run_with_the_same_tagger_in_it(
    tmp_path: Path, kind: type[Outer]
) -> None:
    outer, seen = kind(tmp_path), []
    outer.hook = outer.builders.tagger()

    def act(*_: object) -> None:
        outer.train(InnerTagger.SHARED)
        seen.append(RingContents().phases()[-1])

    outer.evaluate_with(act)

    assert seen == [("validation", 1)]
    assert (RingContents().steps, RingContents().present) == (0, "other")


def test_a_fit_of_the_trainer_itself_raises_as_untagged_and_the_next_is_tagged(
    tmp_path: Path,
) -> None:
    """Lightning cannot continue after its own ``fit`` inside it."""
    outers, steps, raised_in = [], [], []

    def fit(outer: OnLightning) -> None:
        outers.append(outer)
        outer.trainer.fit(outer.model, on_lightning.loader(2))
        steps.append(RingContents().steps if outer.hook else len(outer.model.losses))

    for hook in (None, on_lightning.tagger()):
        with pytest.raises(AssertionError) as kept:
            train(OnLightning, tmp_path / f"{hook is None}", fit, "on_train_batch_end", hook)
        raised_in.append((str(kept.value), kept.traceback[-1].name))
    assert raised_in[0] == raised_in[1]
    assert steps[0] == steps[1]
    bare, tagged = (outer.trainer.profiler for outer in outers)
    assert type(tagged) is type(bare)

    trainer = on_lightning.trainer(tmp_path, hook, max_epochs=1)
    trainer.fit(on_lightning.model(), on_lightning.loader(5))
    assert (RingContents().steps, RingContents().present) == (5, "other")


# In Lightning the optimizer's step is part of ``training_step``.
@pytest.mark.parametrize(
    ("kind", "fails_in"),
    [*((kind, where) for kind in KINDS for where in FAILS_IN), (OnHuggingFace, "the optimizer")],
)
def test_a_run_that_raised_leaves_nothing_behind_and_the_next_is_tagged_as_usual(
    tmp_path: Path, kind: type[Outer], fails_in: str
) -> None:
    outer, outcomes, threads = kind(tmp_path), [], set(threading.enumerate())
    for hooks in ([], [outer.builders.tagger()]):
        with alone(tmp_path / f"{len(hooks)}"):
            trainer, fit = outer.failing(fails_in, *hooks)
            before = outer.patched(trainer)
            with pytest.raises(WrongInTheMiddleError) as kept:
                fit(fails=True)
            failed, failed_after = RingContents(), outer.steps_of(trainer)
            outcome, steps = fit(fails=False)
            outcomes.append(outcome)
            contents = RingContents()
            assert kept.tb is not None
            assert outer.patched(trainer) == before

    phases = contents.phases()[len(failed.phases()) :]
    assert outcomes[0] == outcomes[1]
    assert failed.steps == failed_after
    assert phases[-1] == ("other", 0)
    # Between two steps nothing shows an error while it is kept.
    assert failed.phases()[-1] == ("other", 0) or fails_in == "the optimizer"
    assert contents.steps - failed.steps == steps
    assert phases.count(("train_step", 0)) >= steps
    assert set(threading.enumerate()) == threads
    gone = weakref.ref(trainer)
    del trainer, fit, kept, hooks  # Lightning lends the module's ``log`` to its callbacks
    gc.collect()
    assert gone() is None


class TestACallbackThatTrainsToFindASetting:
    """It runs the loop of the trainer itself, with other callbacks, and takes all of it back."""

    def finder(self, pl: Any, finds: str) -> Any:
        if finds == "batch size":
            return pl.callbacks.BatchSizeFinder(steps_per_trial=2, max_trials=2)
        return pl.callbacks.LearningRateFinder(num_training_steps=8, early_stop_threshold=None)

    def outcome(self, folder: Path, finds: str, *hooks: Any) -> tuple[Any, ...]:
        from torch.utils.data import DataLoader

        builders = on_lightning
        model, seen = builders.model(), []
        model.learning_rate, model.batch_size = 0.05, builders.BATCH
        model.train_dataloader = lambda: DataLoader(builders.loader(6).dataset, model.batch_size)
        model.val_dataloader = lambda: builders.loader(1)
        model.on_train_epoch_start = lambda: seen.append(RingContents().phases()[-1:])
        often = {"max_epochs": 4, "val_check_interval": 2 if finds == "learning rate" else 1.0}
        trainer = builders.trainer(folder, *hooks, self.finder(builders.pl, finds), **often)
        trainer.fit(model)
        assert not hooks or seen[-3] == [("callbacks", 0)]  # in the second epoch of four
        return trainer.global_step, model.losses, builders.weights(model)

    @pytest.mark.parametrize("finds", ["learning rate", "batch size"])
    def test_makes_no_step_of_the_run(self, tmp_path: Path, finds: str) -> None:
        bare = self.outcome(tmp_path, finds)
        tagged = self.outcome(tmp_path, finds, on_lightning.tagger())

        contents = RingContents()
        phases = [phase for phase, _ in contents.phases()]
        assert tagged == bare
        assert contents.steps == tagged[0] < len(tagged[1])
        assert phases.count("train_step") == tagged[0]
        validations = {"learning rate": 4 * 3, "batch size": 4}[finds]
        assert phases.count("validation") == 2 * validations  # none of them its own
        assert (contents.samples, phases[-1]) == (4 * 6 * BATCH, "other")


def test_a_run_that_begins_again_with_smaller_batches_has_the_same_result(tmp_path: Path) -> None:
    def out_of_memory() -> None:
        raise RuntimeError("CUDA out of memory.")

    builders, outcomes = on_huggingface, []
    settings = {**OnHuggingFace.short, "auto_find_batch_size": True, "num_train_epochs": 1}
    for hooks in ([], [builders.tagger()]):
        failing = builders.callback(on_step_begin=Act(out_of_memory, 2))
        trainer = builders.trainer(tmp_path, failing, *hooks, **settings)
        trainer.train()
        outcomes.append((builders.outcome(trainer), trainer.state.global_step))

    assert outcomes[0] == outcomes[1]
    assert (RingContents().steps, RingContents().present) == (1 + outcomes[1][1], "other")
