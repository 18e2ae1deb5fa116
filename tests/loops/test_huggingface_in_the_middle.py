"""What is done in the middle of a tagged Hugging Face training, against the same done untagged."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.loops.builders_loops import RingSays, Waits
from tests.loops.in_the_middle import Act, Told, alone, before_each, told

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


def tagger() -> Any:
    from trainer_hooks.huggingface import PhaseTagger

    return PhaseTagger()


def callback(**methods: Any) -> Any:
    import transformers

    return type("Acting", (transformers.TrainerCallback,), methods)()


def fail(*_: object, **__: object) -> Any:
    raise OSError("out of memory, say")


class Outer:
    """The training in whose middle something is done.

    Attributes:
        hook: Its tagger; ``None``: it is not tagged.
        others: What was computed aside.
    """

    def __init__(self, b: Any, folder: Path, hook: Any) -> None:
        self.b, self.folder, self.hook = b, folder, hook
        self.trainer: Any = None
        self.others: list[Any] = []

    def another(self, whose: str, **said: Any) -> Any:
        """Another trainer, whose tagger is that of this training, its own, or nobody's."""
        hooks = {"no": [], "its own": [tagger()] if self.hook else [], "the same": [self.hook]}
        taggers = [hook for hook in hooks[whose] if hook is not None]
        short = {**SHORT, "batches": 2, "num_train_epochs": 1, **said}
        return self.b.trainer(self.folder / "aside", Waits(), *taggers, **short)

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
        setattr(of, within, fail)
        with pytest.raises(OSError, match="out of memory"):
            getattr(of, method)(*args)
        delattr(of, within)


class Seen(NamedTuple):
    """What came out of it."""

    results: tuple[Any, ...]
    told: Told | None
    trainer: Any


def train(
    b: Any, folder: Path, what: Callable[[Outer], object], where: str, hook: Any, *more: Any
) -> Seen:
    """Train, and do something in the middle of it."""
    with alone(folder):
        outer = Outer(b, folder, hook)
        act = Act(lambda: what(outer), AT[where])
        does = callback(**{where: act} if where.startswith("on_") else {})
        hooks = [] if hook is None else [hook]
        outer.trainer = b.trainer(folder, Waits(), *hooks, does, *more, **SHORT)
        if not where.startswith("on_"):
            setattr(outer.trainer, where, before_each(act, getattr(outer.trainer, where)))
        before = shadowed(outer.trainer)
        outer.trainer.train()
        assert act.spans_ns
        assert shadowed(outer.trainer) == before
        results = b.outcome(outer.trainer), outer.others, outer.trainer.state.global_step
        return Seen(results, None if hook is None else told(act), outer.trainer)


def shadowed(trainer: Any) -> set[str]:
    """Methods that are in front of those of its class, and of its handler's."""
    return {
        name
        for owner in (trainer, trainer.callback_handler)
        for name in vars(owner)
        if callable(getattr(type(owner), name, None))
    }


@pytest.fixture(scope="module")
def undisturbed(b: Any, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What a ring says where nothing is done in the middle."""
    folder = tmp_path_factory.mktemp("undisturbed") / "it"
    seen = train(b, folder, lambda outer: None, "on_step_end", tagger())
    assert seen.told is not None
    return seen.told


DONE: dict[str, tuple[Callable[[Outer], object], set[tuple[str, int]]]] = {
    "evaluate": (lambda outer: outer.evaluate(outer.trainer), VALIDATED),
    "predict": (Outer.predict, PREDICTED),
    "evaluate that raises": (
        lambda outer: outer.fail("evaluate", of=outer.trainer, within="prediction_step"),
        VALIDATED,
    ),
    "evaluate, of the same tagger": (lambda o: o.evaluate(o.another("the same")), set()),
    "evaluate, of its own tagger": (lambda o: o.evaluate(o.another("its own")), VALIDATED),
    "evaluate on a thread, of the same tagger": (Outer.evaluate_on_a_thread, set()),
    "save_model": (Outer.save, SAVED),
    "_save_checkpoint": (Outer.save_checkpoint, SAVED),
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
CASES = (
    [(what, where) for what in DONE for where in ("compute_loss", "on_step_end")]
    + [
        (what, where)
        for what in ("evaluate", "train, of the same tagger")
        for where in ("on_log", "on_epoch_end")
    ]
    + [("evaluate", BETWEEN), ("evaluate on a thread, of the same tagger", BETWEEN)]
)


class TestInTheMiddleOfATraining:
    @pytest.mark.parametrize(("what", "where"), CASES, ids=lambda one: one)
    def test_changes_no_result_no_step_and_no_other_phase(
        self, b: Any, tmp_path: Path, undisturbed: Told, what: str, where: str
    ) -> None:
        does, phases = DONE[what]
        bare = train(b, tmp_path / "bare", does, where, None)
        tagged = train(b, tmp_path / "tagged", does, where, tagger())

        assert tagged.results == bare.results
        assert tagged.told == undisturbed._replace(inside={AROUND[where], *phases})
        assert tagged.told.steps == tagged.trainer.state.global_step == STEPS
        assert tagged.told.samples == STEPS * b.BATCH

    @in_a_step_and_a_callback
    def test_a_training_with_a_tagger_of_its_own_is_told_beside_it(
        self, b: Any, tmp_path: Path, undisturbed: Told, where: str
    ) -> None:
        def does(outer: Outer) -> None:
            outer.train("its own")

        bare = train(b, tmp_path / "bare", does, where, None)
        tagged = train(b, tmp_path / "tagged", does, where, tagger())

        assert tagged.results == bare.results
        assert tagged.told is not None
        assert tagged.told.steps == STEPS + 2  # a process is one run
        assert {("train_step", 0), ("input_wait", 0)} <= tagged.told.inside
        assert tagged.told.outside == undisturbed.outside
        assert tagged.told.present == ("other", 0)


class TestTheTrainerItself:
    """Its ``train`` inside its ``train`` takes its state along: the outer one then ends soon."""

    @pytest.mark.parametrize("raises", [False, True], ids=["", "and raises"])
    @in_a_step_and_a_callback
    def test_trains_no_step_of_the_outer_training(
        self, b: Any, tmp_path: Path, where: str, raises: bool
    ) -> None:
        stepped: list[int] = []

        def again(outer: Outer) -> None:
            before = len(stepped)
            if raises:
                outer.fail("train", of=outer.trainer, within="_get_learning_rate")
            else:
                outer.trainer.train()
            del stepped[before:]  # they are not its own

        seen = []
        for hook in (None, tagger()):
            stepped.clear()
            noting = callback(on_step_end=lambda *_, **__: stepped.append(1))
            seen.append(train(b, tmp_path / f"{hook is None}", again, where, hook, noting))

        assert seen[1].results == seen[0].results
        assert seen[1].told is not None
        assert seen[1].told.steps == len(stepped) > 0
        assert seen[1].told.present == ("other", 0)


class TestAnEvaluationOutsideOfTraining:
    def test_goes_on_after_a_training_with_the_same_tagger_in_it(
        self, b: Any, tmp_path: Path
    ) -> None:
        hook, seen = tagger(), []
        outer = Outer(b, tmp_path, hook)
        trainer = b.trainer(tmp_path, Waits(), hook, **SHORT)

        def computed(_: Any) -> dict[str, float]:
            outer.train("the same")
            seen.append(RingSays().phases()[-1])
            return {}

        trainer.compute_metrics = computed
        trainer.evaluate()

        says = RingSays()
        assert seen == [("validation", 1)]
        assert (says.steps, says.present) == (0, "other")


class TestAnErrorThatTheTrainerSurvives:
    @pytest.mark.parametrize(
        ("catches_in", "said"),
        [
            ("_maybe_log_save_evaluate", {"eval_strategy": "epoch"}),
            ("_evaluate", {"eval_on_start": True}),
        ],
    )
    def test_of_an_evaluation_that_its_own_kind_catches_leaves_it_tagged(
        self, b: Any, tmp_path: Path, catches_in: str, said: dict[str, Any]
    ) -> None:
        def catching(self: Any, *args: Any, **named: Any) -> None:
            with suppress(OSError):
                getattr(super(kind, self), catches_in)(*args, **named)

        kind = type("Catching", (b.SleepingTrainer,), {catches_in: catching})
        outcomes = []
        for hook in (None, tagger()):
            hooks = [] if hook is None else [hook]
            trainer = b.trainer(tmp_path, Waits(), *hooks, **SHORT, **said)
            trainer.__class__, trainer.prediction_step = kind, fail
            trainer.train()
            outcomes.append(b.outcome(trainer))

        assert outcomes[0] == outcomes[1]
        says = RingSays()
        phases = says.phases()
        assert (says.steps, phases.count(("train_step", 0))) == (STEPS, STEPS)
        assert ("validation", 1) in phases

    def test_of_memory_has_it_begin_again_with_smaller_batches(
        self, b: Any, tmp_path: Path
    ) -> None:
        outcomes = []
        for hook in (None, tagger()):

            def out_of_memory() -> None:
                raise RuntimeError("CUDA out of memory.")

            failing = Act(out_of_memory, 2)
            hooks = [callback(on_step_begin=failing), *([] if hook is None else [hook])]
            said = {**SHORT, "auto_find_batch_size": True, "num_train_epochs": 1}
            trainer = b.trainer(tmp_path, Waits(), *hooks, **said)
            trainer.train()
            outcomes.append((b.outcome(trainer), trainer.state.global_step))

        assert outcomes[0] == outcomes[1]
        says = RingSays()
        assert (says.steps, says.present) == (1 + outcomes[1][1], "other")


class TestATrainingThatRaisedAndWasCaught:
    FAILS_IN = ("a step", "a callback", "the loader", "an evaluation", "the optimizer")

    def made(self, b: Any, folder: Path, *hooks: Any) -> Any:
        return b.trainer(folder, Waits(), *hooks, **SHORT, eval_strategy="epoch")

    def failing(self, trainer: Any, fails_in: str) -> Callable[[], object]:
        """Have it fail; what is returned mends it."""
        failing = Act(fail, 2)
        if fails_in in ("a callback", "the optimizer"):  # whose step is between the trainer's own
            one = callback(on_step_end=failing)
            if fails_in == "a callback":
                trainer.add_callback(one)
                return lambda: trainer.remove_callback(one)
            trainer._get_learning_rate = failing
            return lambda: delattr(trainer, "_get_learning_rate")
        if fails_in == "the loader":
            collate = trainer.data_collator
            trainer.data_collator = before_each(failing, collate)
            return lambda: setattr(trainer, "data_collator", collate)
        name = {"a step": "compute_loss", "an evaluation": "prediction_step"}[fails_in]
        setattr(trainer, name, fail)
        return lambda: delattr(trainer, name)

    @pytest.mark.parametrize("fails_in", FAILS_IN)
    @pytest.mark.parametrize("again", ["the same trainer", "a fresh one"])
    def test_is_followed_by_one_that_is_tagged_as_ever(
        self, b: Any, tmp_path: Path, fails_in: str, again: str
    ) -> None:
        outcomes = []
        for hook in (None, tagger()):
            with alone(tmp_path / f"{hook is None}"):
                hooks = [] if hook is None else [hook]
                trainer = self.made(b, tmp_path, *hooks)
                before, mend = shadowed(trainer), self.failing(trainer, fails_in)
                with pytest.raises(OSError, match="out of memory") as kept:
                    trainer.train()
                mend()
                before_it = RingSays()
                second = trainer if again == "the same trainer" else self.made(b, tmp_path, *hooks)
                second.train()
                outcomes.append(b.outcome(second))
                says = RingSays()
                assert kept.tb is not None
                assert shadowed(trainer) == shadowed(second) == before
        phases = says.phases()[len(before_it.phases()) :]

        assert outcomes[0] == outcomes[1]
        assert says.steps - before_it.steps == STEPS == phases.count(("train_step", 0))
        assert [place for place, _ in groupby(phases)][-2:] == [("callbacks", 0), ("other", 0)]

    @pytest.mark.parametrize("fails_in", FAILS_IN)
    def test_leaves_nothing_behind(self, b: Any, tmp_path: Path, fails_in: str) -> None:
        hook, threads = tagger(), set(threading.enumerate())
        trainer = self.made(b, tmp_path, hook)
        before, mend = shadowed(trainer), self.failing(trainer, fails_in)
        with pytest.raises(OSError, match="out of memory"):
            trainer.train()
        mend()
        gc.collect()

        assert RingSays().phases()[-1] == ("other", 0)
        assert shadowed(trainer) == before
        assert set(threading.enumerate()) == threads
        gone = weakref.ref(trainer)
        del trainer, mend
        gc.collect()
        assert gone() is None
        assert hook.tags_now is False
