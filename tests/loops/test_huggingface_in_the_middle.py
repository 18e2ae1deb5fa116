"""What is done in the middle of a tagged Hugging Face training, against the same done untagged."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from itertools import groupby
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

BATCHES, EPOCHS = 3, 2
STEPS = BATCHES * EPOCHS
SHORT = {"batches": BATCHES, "evaluated": 1, "num_train_epochs": EPOCHS}
BETWEEN = "_get_learning_rate"
"""Called after a step of the optimizer, by the loop itself."""
AT = {"compute_loss": 2, BETWEEN: 2, "on_step_end": 2, "on_log": 1, "on_epoch_end": 1}
"""Where something is done, and at which call: an epoch follows."""
AROUND = {name: ("callbacks" if name.startswith("on_") else "train_step", 0) for name in AT}
VALIDATED, PREDICTED = (
    {("input_wait", mode), (name, mode)} for name, mode in (("validation", 1), ("predict", 2))
)
SAVED = {("checkpoint", 0)}
in_a_step_and_a_callback = pytest.mark.parametrize("where", ["compute_loss", "on_step_end"])


class OnHuggingFace(Outer):
    """The training of a trainer, which has its model and its data."""

    at = {name: (call,) for name, call in AT.items()}  # noqa: RUF012
    _builders = "tests.loops.builders_huggingface"

    def run(self, where: str, act: Act, *more: Any) -> tuple[tuple[Any, ...], int]:
        hooks = [*self.taggers("the same"), *more]
        if where.startswith("on_"):
            hooks.append(self.b.callback(**{where: act}))
        self.trainer = self.b.trainer(self.folder, *hooks, **SHORT)
        if not where.startswith("on_"):
            setattr(self.trainer, where, before_each(act, getattr(self.trainer, where)))
        before = self.b.shadowed(self.trainer)
        self.trainer.train()
        assert self.b.shadowed(self.trainer) == before
        return self.b.outcome(self.trainer), self.trainer.state.global_step

    def another(self, whose: str) -> Any:
        """Another trainer, whose tagger is that of this training, its own, or nobody's."""
        short = {**SHORT, "batches": 2, "num_train_epochs": 1}
        return self.b.trainer(self.folder / "aside", *self.taggers(whose), **short)

    def train(self, whose: str, *, is_of_this_model: bool = False) -> None:
        other = self.another(whose)
        if is_of_this_model:
            other.model = other.model_wrapped = self.trainer.model
        other.train()
        self.others.append(self.b.outcome(other))

    def evaluate(self, trainer: Any) -> None:
        self.others.append(trainer.evaluate()["eval_loss"])

    def evaluate_on_a_thread(self) -> None:
        beside = threading.Thread(target=self.evaluate, args=[self.another("the same")])
        beside.start()
        beside.join()

    def predict(self) -> None:
        found = self.trainer.predict(self.trainer.eval_dataset)
        self.others.append(found.metrics["test_loss"])

    def save(self) -> None:
        self.trainer.save_model(str(self.folder / "saved"))

    def save_checkpoint(self) -> None:
        self.trainer._save_checkpoint(self.trainer.model, trial=None)

    def fail(self, method: str, *args: Any, of: Any, within: str) -> None:
        """Have a trainer's method raise, and catch that."""
        setattr(of, within, raise_error)
        with pytest.raises(WrongInTheMiddleError):
            getattr(of, method)(*args)
        delattr(of, within)


DONE: dict[str, tuple[Does, set[PhaseMode]]] = {
    "evaluate": (lambda outer: outer.evaluate(outer.trainer), VALIDATED),
    "predict": (OnHuggingFace.predict, PREDICTED),
    "evaluate that raises": (
        lambda outer: outer.fail("evaluate", of=outer.trainer, within="prediction_step"),
        VALIDATED,
    ),
    "evaluate, of the same tagger": (lambda o: o.evaluate(o.another("the same")), set()),
    "evaluate, of its own tagger": (lambda o: o.evaluate(o.another("its own")), VALIDATED),
    "evaluate on a thread, of the same tagger": (OnHuggingFace.evaluate_on_a_thread, set()),
    "save_model": (OnHuggingFace.save, SAVED),
    "_save_checkpoint": (OnHuggingFace.save_checkpoint, SAVED),
    "save_model that raises": (
        lambda outer: outer.fail("save_model", "x", of=outer.trainer, within="_save"),
        SAVED,
    ),
    "train, of no tagger": (lambda outer: outer.train("no"), set()),
    "train, of the same tagger": (lambda outer: outer.train("the same"), set()),
    "train of its model, of no tagger": (
        lambda outer: outer.train("no", is_of_this_model=True),
        set(),
    ),
    "train of its model, of the same tagger": (
        lambda outer: outer.train("the same", is_of_this_model=True),
        set(),
    ),
    "train that raises, of the same tagger": (
        lambda outer: outer.fail("train", of=outer.another("the same"), within="compute_loss"),
        set(),
    ),
}
CASES: list[Any] = (
    [pytest.param(what, "compute_loss", marks=in_make_truth) for what in DONE]
    + [(what, "on_step_end") for what in DONE]
    + [
        (what, where)
        for what in ("evaluate", "train, of the same tagger")
        for where in ("on_log", "on_epoch_end")
    ]
    + [("evaluate", BETWEEN), ("evaluate on a thread, of the same tagger", BETWEEN)]
)


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return undisturbed(OnHuggingFace, tmp_path_factory.mktemp("calm"), "on_step_end")


class TestInTheMiddleOfATraining:
    @pytest.mark.parametrize(("what", "where"), CASES, ids=str)
    def test_changes_no_result_no_step_and_no_other_phase(
        self, b: Any, tmp_path: Path, calm: Recorded, what: str, where: str
    ) -> None:
        does, phases = DONE[what]
        seen, recorded = train_bare_and_tagged(OnHuggingFace, tmp_path, does, where)

        assert recorded == calm._replace(inside={AROUND[where], *phases}, after={AROUND[where]})
        assert recorded.steps == seen.steps == STEPS
        assert recorded.samples == STEPS * b.BATCH

    @in_a_step_and_a_callback
    def test_a_training_with_a_tagger_of_its_own_is_recorded_beside_it(
        self, tmp_path: Path, calm: Recorded, where: str
    ) -> None:
        def does(outer: OnHuggingFace) -> None:
            outer.train("its own")

        _, recorded = train_bare_and_tagged(OnHuggingFace, tmp_path, does, where)

        assert recorded.steps == STEPS + 2  # a process is one run
        assert {("train_step", 0), ("input_wait", 0)} <= recorded.inside
        assert recorded.outside == calm.outside
        assert recorded.present == ("other", 0)

    @pytest.mark.parametrize("raises", [False, True], ids=["", "and raises"])
    @in_a_step_and_a_callback
    def test_the_trainer_itself_trains_no_step_of_the_outer_training(
        self, b: Any, tmp_path: Path, where: str, raises: bool
    ) -> None:
        """Its ``train`` inside its ``train`` takes its state along: the outer one ends soon."""
        stepped: list[int] = []

        def again(outer: OnHuggingFace) -> None:
            before = len(stepped)
            if raises:
                outer.fail("train", of=outer.trainer, within=BETWEEN)
            else:
                outer.trainer.train()
            del stepped[before:]  # they are not its own

        seen = []
        for hook in (None, b.tagger()):
            stepped.clear()
            noting = b.callback(on_step_end=lambda *_, **__: stepped.append(1))
            folder = tmp_path / f"{hook is None}"
            seen.append(train(OnHuggingFace, folder, again, where, hook, noting))

        assert seen[1].results == seen[0].results
        assert seen[1].recorded is not None
        assert seen[1].recorded.steps == len(stepped) > 0
        assert seen[1].recorded.present == ("other", 0)


class TestAnEvaluationOutsideOfTraining:
    def test_goes_on_after_a_training_with_the_same_tagger_in_it(
        self, b: Any, tmp_path: Path
    ) -> None:
        outer, seen = OnHuggingFace(tmp_path, b.tagger()), []
        trainer = b.trainer(tmp_path, outer.hook, **SHORT)

        def computed(_: Any) -> dict[str, float]:
            outer.train("the same")
            seen.append(RingContents().phases()[-1])
            return {}

        trainer.compute_metrics = computed
        trainer.evaluate()

        contents = RingContents()
        assert seen == [("validation", 1)]
        assert (contents.steps, contents.present) == (0, "other")


class TestAnErrorThatTheTrainerSurvives:
    @pytest.mark.parametrize(
        ("catches_in", "settings"),
        [
            ("_maybe_log_save_evaluate", {"eval_strategy": "epoch"}),
            ("_evaluate", {"eval_on_start": True}),
        ],
    )
    def test_of_an_evaluation_that_its_own_kind_catches_leaves_it_tagged(
        self, b: Any, tmp_path: Path, catches_in: str, settings: dict[str, Any]
    ) -> None:
        def catching(self: Any, *args: Any, **named: Any) -> None:
            with suppress(OSError):
                getattr(super(kind, self), catches_in)(*args, **named)

        kind = type("Catching", (b.SleepingTrainer,), {catches_in: catching})
        outcomes = []
        for hooks in ([], [b.tagger()]):
            trainer = b.trainer(tmp_path, *hooks, **SHORT, **settings)
            trainer.__class__, trainer.prediction_step = kind, raise_error
            trainer.train()
            outcomes.append(b.outcome(trainer))

        assert outcomes[0] == outcomes[1]
        contents = RingContents()
        phases = contents.phases()
        assert (contents.steps, phases.count(("train_step", 0))) == (STEPS, STEPS)
        assert ("validation", 1) in phases

    def test_of_memory_has_it_begin_again_with_smaller_batches(
        self, b: Any, tmp_path: Path
    ) -> None:
        def out_of_memory() -> None:
            raise RuntimeError("CUDA out of memory.")

        outcomes = []
        for hooks in ([], [b.tagger()]):
            failing = b.callback(on_step_begin=Act(out_of_memory, 2))
            settings = {**SHORT, "auto_find_batch_size": True, "num_train_epochs": 1}
            trainer = b.trainer(tmp_path, failing, *hooks, **settings)
            trainer.train()
            outcomes.append((b.outcome(trainer), trainer.state.global_step))

        assert outcomes[0] == outcomes[1]
        contents = RingContents()
        assert (contents.steps, contents.present) == (1 + outcomes[1][1], "other")


class TestATrainingThatRaisedAndWasCaught:
    FAILS_IN = ("a step", "a callback", "the loader", "an evaluation", "the optimizer")

    def made(self, b: Any, folder: Path, *hooks: Any) -> Any:
        return b.trainer(folder, *hooks, **SHORT, eval_strategy="epoch")

    def failing(self, b: Any, trainer: Any, fails_in: str) -> Callable[[], object]:
        """Have it fail; what is returned mends it."""
        failing = Act(raise_error, 2)
        if fails_in == "a callback":
            one = b.callback(on_step_end=failing)
            trainer.add_callback(one)
            return lambda: trainer.remove_callback(one)
        if fails_in == "the loader":
            collate = trainer.data_collator
            trainer.data_collator = before_each(failing, collate)
            return lambda: setattr(trainer, "data_collator", collate)
        name, does = {
            "a step": ("compute_loss", raise_error),
            "an evaluation": ("prediction_step", raise_error),
            "the optimizer": (BETWEEN, failing),  # whose step is between the trainer's own
        }[fails_in]
        setattr(trainer, name, does)
        return lambda: delattr(trainer, name)

    @pytest.mark.parametrize("fails_in", FAILS_IN)
    @pytest.mark.parametrize("again", ["the same trainer", "a fresh one"])
    def test_is_followed_by_one_that_is_tagged_as_ever(
        self, b: Any, tmp_path: Path, fails_in: str, again: str
    ) -> None:
        outcomes = []
        for hooks in ([], [b.tagger()]):
            with alone(tmp_path / f"{len(hooks)}"):
                trainer = self.made(b, tmp_path, *hooks)
                before, mend = b.shadowed(trainer), self.failing(b, trainer, fails_in)
                with pytest.raises(WrongInTheMiddleError) as kept:
                    trainer.train()
                mend()
                before_it = RingContents()
                second = trainer if again == "the same trainer" else self.made(b, tmp_path, *hooks)
                second.train()
                outcomes.append(b.outcome(second))
                contents = RingContents()
                assert kept.tb is not None
                assert b.shadowed(trainer) == b.shadowed(second) == before
        phases = contents.phases()[len(before_it.phases()) :]

        assert outcomes[0] == outcomes[1]
        assert contents.steps - before_it.steps == STEPS == phases.count(("train_step", 0))
        assert [place for place, _ in groupby(phases)][-2:] == [("callbacks", 0), ("other", 0)]

    @pytest.mark.parametrize("fails_in", FAILS_IN)
    def test_leaves_nothing_behind(self, b: Any, tmp_path: Path, fails_in: str) -> None:
        hook, threads = b.tagger(), set(threading.enumerate())
        trainer = self.made(b, tmp_path, hook)
        before, mend = b.shadowed(trainer), self.failing(b, trainer, fails_in)
        with pytest.raises(WrongInTheMiddleError):
            trainer.train()
        mend()
        gc.collect()

        assert RingContents().phases()[-1] == ("other", 0)
        assert RingContents().steps == trainer.state.global_step
        assert b.shadowed(trainer) == before
        assert set(threading.enumerate()) == threads
        gone = weakref.ref(trainer)
        del trainer, mend
        gc.collect()
        assert gone() is None
        assert hook.tags_now is False
