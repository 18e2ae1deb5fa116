"""Which phase follows which in a Keras training: pure rules, and no Keras."""

from __future__ import annotations

from math import inf
from typing import Final, NamedTuple, Protocol

from gpumon.core.phase import PHASE_NUMBER, TrainingMode, TrainingPhase
from gpumon.core.ring_format.format import MODE_SHIFT
from trainer_hooks.ring.phase_modes import PREDICT_MODE, TRAIN_MODE, VALIDATION_MODE, PhaseMode

START_UP: Final = PHASE_NUMBER[TrainingPhase.START_UP]
COMPILE: Final = PHASE_NUMBER[TrainingPhase.COMPILE]
INPUT_WAIT: Final = PHASE_NUMBER[TrainingPhase.INPUT_WAIT]
TRAIN_STEP: Final = PHASE_NUMBER[TrainingPhase.TRAIN_STEP]
DEVICE_SYNC: Final = PHASE_NUMBER[TrainingPhase.DEVICE_SYNC]
CALLBACKS: Final = PHASE_NUMBER[TrainingPhase.CALLBACKS]
CHECKPOINT: Final = PHASE_NUMBER[TrainingPhase.CHECKPOINT]
VALIDATION: Final = PHASE_NUMBER[TrainingPhase.VALIDATION]
PREDICT: Final = PHASE_NUMBER[TrainingPhase.PREDICT]
BETWEEN_EPOCHS: Final = PHASE_NUMBER[TrainingPhase.BETWEEN_EPOCHS]
OTHER: Final = PHASE_NUMBER[TrainingPhase.OTHER]

_BESIDE_STEP: Final = int(TrainingMode.BESIDE_STEP)
_CALLBACKS_SPAN: Final = CALLBACKS | TRAIN_MODE << MODE_SHIFT
_WORK: Final = {
    TRAIN_MODE: TRAIN_STEP,
    VALIDATION_MODE: VALIDATION,
    PREDICT_MODE: PREDICT,
}


class StepWriter(Protocol):
    """What the machine writes with: a ``RingWriter``, which see, or a list in a test."""

    @property
    def present(self) -> PhaseMode: ...
    @property
    def span(self) -> int: ...
    def enter(self, phase: int, mode: int = 0, *, is_done: bool = False) -> None: ...
    def count(self, steps: int, samples: int) -> None: ...
    def epoch(self, epoch: int) -> None: ...
    def spent_ns(self, phase: int) -> int: ...


class Interrupted(NamedTuple):
    """What was under way, and in which mode, when a step of another mode began."""

    place: PhaseMode
    mode: int


class PhaseMachine:
    """Turns what Keras does into phases.

    In training every moment has a phase of its own; inside validation and
    prediction only the wait for input is told apart. Until a first batch was
    seen to pass, the time after its announcement is ``start_up``: whether it
    is a wait or a step, nobody can tell yet.

    Attributes:
        mode: What Keras is running, as the number of a ``TrainingMode``.
        sees_steps: Whether fetching and computing can be told apart.
        has_seen_steps: Whether a batch passed where it is computed with.
        is_calling_back: Whether callbacks are called on the thread that trains: a step
            of the model is then somebody's own, and none of this training.
        awaits_batch: Whether the epoch has more batches, whose fetching is seen.
    """

    def __init__(
        self,
        writer: StepWriter,
        *,
        sees_steps: bool,
        fetches_first: bool = False,
        waits_each_step: bool = False,
    ) -> None:
        """Write nothing yet.

        Args:
            writer: Where the phases go.
            sees_steps: Whether fetching and computing can be told apart on
                this backend; where not, both are ``other``.
            fetches_first: Whether a batch is fetched before the callbacks
                that announce it, as on torch: the step follows them at once.
            waits_each_step: Whether Keras waits for the results of each step,
                for callbacks at its end.
        """
        self._writer = writer
        self.sees_steps = sees_steps
        self._fetches_first = sees_steps and fetches_first
        self._waits_each_step = waits_each_step
        self.has_seen_steps = False
        self._set_mode(TRAIN_MODE)
        self._is_training = self.is_calling_back = self.awaits_batch = False
        self._rest = START_UP
        self._after_announcing = START_UP if sees_steps else OTHER
        self._epoch_steps = inf
        self._epoch_steps_done = 0
        self._left_training_at_ns = self._waited_elsewhere_ns = 0

    @property
    def training_wait_ns(self) -> int:
        """Nanoseconds of ``input_wait`` so far, without those of validation and prediction."""
        return self._writer.spent_ns(INPUT_WAIT) - self._waited_elsewhere_ns

    def see_no_steps(self) -> None:
        """Steps pass by unseen: from now on the wait for input and the step are ``other``."""
        self.sees_steps = self._fetches_first = self.awaits_batch = False
        self._after_announcing = OTHER

    def train_begin(self, epoch_steps: int | None) -> None:
        """``fit`` begins; an epoch has ``epoch_steps`` steps, where that is known."""
        self._switch_to(TRAIN_MODE)
        self._is_training = True
        self._epoch_steps = inf if epoch_steps is None else epoch_steps
        self.is_calling_back = True
        self._writer.enter(CALLBACKS, TRAIN_MODE)

    def train_end(self) -> None:
        """``fit`` is over, by its end or by an exception."""
        self._switch_to(TRAIN_MODE)
        self._is_training = self.is_calling_back = self.awaits_batch = False
        self._writer.enter(OTHER, TRAIN_MODE)

    def epoch_begin(self, epoch: int) -> None:
        """Epoch ``epoch`` begins, with the callbacks for it, whatever became of a validation."""
        self._switch_to(TRAIN_MODE)
        self._epoch_steps_done = 0
        self._writer.epoch(epoch)
        self.callbacks_begin()

    def callbacks_begin(self) -> None:
        """Somebody's callbacks are called."""
        self.is_calling_back = True
        if self.mode == TRAIN_MODE:
            self._writer.enter(CALLBACKS, TRAIN_MODE)

    def batch_announced(self) -> None:
        """Those before a batch are called, maybe right after those at the end of the last."""
        self.is_calling_back = True
        if self._writer.span != _CALLBACKS_SPAN:
            self.callbacks_begin()

    def callbacks_end(self) -> None:
        """They returned, between two epochs."""
        self.is_calling_back = False
        if self.mode == TRAIN_MODE:
            self._writer.enter(self._rest, TRAIN_MODE)

    def batch_callbacks_end(self) -> None:
        """They returned, and what comes next is a batch, or the end of the epoch.

        The way from here to the next fetch is a few lines of Keras: they stay
        with the callbacks, for that costs no record. Where no fetch is seen,
        it may be all of one.
        """
        self.is_calling_back = False
        if self.mode != TRAIN_MODE:
            return
        if not self.sees_steps:
            self._writer.enter(OTHER, TRAIN_MODE)
        elif self._epoch_steps_done >= self._epoch_steps:
            self._writer.enter(BETWEEN_EPOCHS, TRAIN_MODE)

    def batch_begins(self) -> None:
        """The callbacks before a batch returned."""
        self.is_calling_back = False
        if self.mode == TRAIN_MODE:
            if self._after_announcing != START_UP:
                self._rest = BETWEEN_EPOCHS
            self._writer.enter(self._after_announcing, TRAIN_MODE)

    def checkpoint_begin(self) -> None:
        """A callback that writes checkpoints is called."""
        if self.mode == TRAIN_MODE:
            self._writer.enter(CHECKPOINT, TRAIN_MODE)

    def checkpoint_end(self) -> None:
        """It returned; other callbacks follow."""
        self.callbacks_begin()

    def fetch_begin(self) -> None:
        """The next batch is asked for."""
        self._rest = BETWEEN_EPOCHS
        if self._writer.span != self._waiting_span:
            self._writer.enter(INPUT_WAIT, self.mode)

    def fetch_beside_begin(self) -> None:
        """A further batch of the same execution: the device may be at work on the one before."""
        self._writer.enter(INPUT_WAIT, _BESIDE_STEP)

    def fetch_end(self) -> None:
        """It is there: the step follows at once."""
        if self._writer.span != self._working_span:  # twice would say: one more step
            self._writer.enter(self._work, self.mode)

    def compile_begin(self) -> None:
        """The step that follows is traced and compiled first: it counts as that."""
        if self.mode == TRAIN_MODE:
            self._writer.enter(COMPILE, TRAIN_MODE)

    def compile_end(self) -> None:
        """It is compiled: the step goes on."""
        self.fetch_end()

    def fetch_exhausted(self) -> None:
        """There is no next batch."""
        rest = BETWEEN_EPOCHS if self.mode == TRAIN_MODE else self._work
        self._writer.enter(rest, self.mode)

    def dispatched(self, steps: int, samples: int) -> None:
        """The device has its work.

        Args:
            steps: Batches in it; 0 where none was left.
            samples: Samples in them, where that could be seen.
        """
        self._epoch_steps_done += steps
        self.awaits_batch = self.sees_steps and self._epoch_steps_done < self._epoch_steps
        if not self.has_seen_steps and steps:
            self._see_first_steps()
        self._writer.count(steps, samples)
        if self._waits_each_step:
            self._writer.enter(DEVICE_SYNC, TRAIN_MODE)
        elif self._epoch_steps_done >= self._epoch_steps:
            self._writer.enter(BETWEEN_EPOCHS, TRAIN_MODE)

    def step_returned(self) -> None:
        """Keras waited for a step's results; the callbacks for its end are called."""
        self.is_calling_back = True
        if self.mode == TRAIN_MODE:
            self._writer.enter(CALLBACKS, TRAIN_MODE, is_done=self.sees_steps)

    def run_begin(self, mode: int) -> None:
        """``evaluate`` or ``predict`` begins, inside ``fit`` or alone."""
        self._switch_to(mode)
        self._writer.enter(_WORK[mode], mode)

    def run_end(self) -> None:
        """It is over."""
        self._switch_to(TRAIN_MODE)
        self._writer.enter(BETWEEN_EPOCHS if self._is_training else OTHER, TRAIN_MODE)

    def interrupt(self, mode: int) -> Interrupted | None:
        """A step of that mode, which may be another than what runs, as when a callback evaluates.

        Returns:
            What ``resume`` needs: what was under way goes on after it.
        """
        if self.mode == mode:
            return None
        before = Interrupted(self._writer.present, self.mode)
        self._switch_to(mode)
        self._writer.enter(_WORK[mode], mode)
        return before

    def resume(self, before: Interrupted | None) -> None:
        """It is over."""
        if before is not None:
            self._switch_to(before.mode)
            self._writer.enter(*before.place)

    def flush_begin(self) -> PhaseMode | None:
        """Keras waits for its other threads, and so for the device.

        Returns:
            What ``flush_end`` needs; ``None``: it is no part of the training.
        """
        if self.mode != TRAIN_MODE:
            return None
        before = self._writer.present
        self._writer.enter(DEVICE_SYNC, TRAIN_MODE)
        return before

    def flush_end(self, before: PhaseMode) -> None:
        """They are done."""
        phase, mode = before
        # To enter ``train_step`` again would say that one more step began.
        self._writer.enter(BETWEEN_EPOCHS if phase == TRAIN_STEP else phase, mode)

    def _see_first_steps(self) -> None:
        self.has_seen_steps = True
        if self.sees_steps:
            self._after_announcing = TRAIN_STEP if self._fetches_first else INPUT_WAIT
            self._rest = BETWEEN_EPOCHS

    def _switch_to(self, mode: int) -> None:
        """Keep what other modes wait for input out of what the training waits."""
        if self.mode == TRAIN_MODE and mode != TRAIN_MODE:
            self._left_training_at_ns = self._writer.spent_ns(INPUT_WAIT)
        elif self.mode != TRAIN_MODE and mode == TRAIN_MODE:
            waited_ns = self._writer.spent_ns(INPUT_WAIT) - self._left_training_at_ns
            self._waited_elsewhere_ns += waited_ns
        self._set_mode(mode)

    def _set_mode(self, mode: int) -> None:
        self.mode, self._work = mode, _WORK[mode]
        self._waiting_span = INPUT_WAIT | mode << MODE_SHIFT
        self._working_span = self._work | mode << MODE_SHIFT
