"""The rules for phases in a Keras training, independent of Keras."""

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
    """What the machine writes with: a ``RingWriter``, or a list in a test."""

    @property
    def present(self) -> PhaseMode: ...
    @property
    def span(self) -> int: ...
    def enter(self, phase: int, mode: int = 0, *, is_done: bool = False) -> None: ...
    def count(self, steps: int, samples: int) -> None: ...
    def epoch(self, epoch: int) -> None: ...
    def spent_ns(self, phase: int) -> int: ...


class Interrupted(NamedTuple):
    """The phase and mode that a step of another mode interrupted."""

    phase_mode: PhaseMode
    mode: int


class PhaseMachine:
    """Turns what Keras does into phases.

    In training all time has a phase; in validation and prediction only the wait for input is
    separate. Until a first batch has passed, the time after its announcement is ``start_up``:
    whether it is a wait or a step is unknown.

    Attributes:
        mode: What Keras is running, as the number of a ``TrainingMode``.
        sees_steps: Whether fetching and computing are distinguished.
        has_seen_steps: Whether a batch has passed.
        is_calling_back: Whether callbacks run on the training thread: a step of the model then
            belongs to a callback, not to this run.
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
            sees_steps: Whether fetching and computing are distinguished on this backend; if not,
                both are ``other``.
            fetches_first: Whether a batch is fetched before the callbacks that announce it, as on
                torch: the step follows them at once.
            waits_each_step: Whether Keras waits for the results of each step, for callbacks at its
                end.
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
        """Nanoseconds of ``input_wait`` so far, without validation and prediction."""
        return self._writer.spent_ns(INPUT_WAIT) - self._waited_elsewhere_ns

    def see_no_steps(self) -> None:
        """Steps are not seen: from now on the wait for input and the step are ``other``."""
        self.sees_steps = self._fetches_first = self.awaits_batch = False
        self._after_announcing = OTHER

    def train_begin(self, epoch_steps: int | None) -> None:
        """``fit`` begins; an epoch has ``epoch_steps`` steps, if known."""
        self._switch_to(TRAIN_MODE)
        self._is_training = True
        self._epoch_steps = inf if epoch_steps is None else epoch_steps
        self.is_calling_back = True
        self._writer.enter(CALLBACKS, TRAIN_MODE)

    def train_end(self) -> None:
        self._switch_to(TRAIN_MODE)
        self._is_training = self.is_calling_back = self.awaits_batch = False
        self._writer.enter(OTHER, TRAIN_MODE)

    def epoch_begin(self, epoch: int) -> None:
        """Epoch ``epoch`` begins with its callbacks, whatever happened to a validation."""
        self._switch_to(TRAIN_MODE)
        self._epoch_steps_done = 0
        self._writer.epoch(epoch)
        self.callbacks_begin()

    def callbacks_begin(self) -> None:
        self.is_calling_back = True
        if self.mode == TRAIN_MODE:
            self._writer.enter(CALLBACKS, TRAIN_MODE)

    def batch_announced(self) -> None:
        """Callbacks before a batch are called, perhaps right after those at the end of the last."""
        self.is_calling_back = True
        if self._writer.span != _CALLBACKS_SPAN:
            self.callbacks_begin()

    def callbacks_end(self) -> None:
        """Callbacks between two epochs have returned."""
        self.is_calling_back = False
        if self.mode == TRAIN_MODE:
            self._writer.enter(self._rest, TRAIN_MODE)

    def batch_callbacks_end(self) -> None:
        """Callbacks after a batch have returned; a batch or the end of the epoch follows.

        The few lines of Keras until the next fetch stay with the callbacks, which saves a record.
        If no fetch is seen, they may include a fetch.
        """
        self.is_calling_back = False
        if self.mode != TRAIN_MODE:
            return
        if not self.sees_steps:
            self._writer.enter(OTHER, TRAIN_MODE)
        elif self._epoch_steps_done >= self._epoch_steps:
            self._writer.enter(BETWEEN_EPOCHS, TRAIN_MODE)

    def batch_begins(self) -> None:
        """The callbacks before a batch have returned."""
        self.is_calling_back = False
        if self.mode == TRAIN_MODE:
            if self._after_announcing != START_UP:
                self._rest = BETWEEN_EPOCHS
            self._writer.enter(self._after_announcing, TRAIN_MODE)

    def checkpoint_begin(self) -> None:
        if self.mode == TRAIN_MODE:
            self._writer.enter(CHECKPOINT, TRAIN_MODE)

    def checkpoint_end(self) -> None:
        self.callbacks_begin()

    def fetch_begin(self) -> None:
        self._rest = BETWEEN_EPOCHS
        if self._writer.span != self._waiting_span:
            self._writer.enter(INPUT_WAIT, self.mode)

    def fetch_outside_steps_begin(self) -> None:
        """Another batch of the same execution is requested; the device may be busy."""
        self._writer.enter(INPUT_WAIT, _BESIDE_STEP)

    def fetch_end(self) -> None:
        """The batch is there: the step follows at once."""
        if self._writer.span != self._working_span:  # entering again would mean one more step
            self._writer.enter(self._work, self.mode)

    def compile_begin(self) -> None:
        """The step that follows is traced and compiled first."""
        if self.mode == TRAIN_MODE:
            self._writer.enter(COMPILE, TRAIN_MODE)

    def compile_end(self) -> None:
        self.fetch_end()

    def fetch_exhausted(self) -> None:
        rest = BETWEEN_EPOCHS if self.mode == TRAIN_MODE else self._work
        self._writer.enter(rest, self.mode)

    def dispatched(self, steps: int, samples: int) -> None:
        """The work was handed to the device.

        Args:
            steps: Batches in it; 0 where none was left.
            samples: Samples in them, where known.
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
        """Keras has waited for a step's results; the callbacks at its end are called."""
        self.is_calling_back = True
        if self.mode == TRAIN_MODE:
            self._writer.enter(CALLBACKS, TRAIN_MODE, is_done=self.sees_steps)

    def run_begin(self, mode: int) -> None:
        """``evaluate`` or ``predict`` begins, inside ``fit`` or alone."""
        self._switch_to(mode)
        self._writer.enter(_WORK[mode], mode)

    def run_end(self) -> None:
        self._switch_to(TRAIN_MODE)
        self._writer.enter(BETWEEN_EPOCHS if self._is_training else OTHER, TRAIN_MODE)

    def interrupt(self, mode: int) -> Interrupted | None:
        """Begin a step of that mode; a callback may evaluate during training.

        Returns:
            For ``resume``, which goes back to the current phase; ``None``: same mode.
        """
        if self.mode == mode:
            return None
        before = Interrupted(self._writer.present, self.mode)
        self._switch_to(mode)
        self._writer.enter(_WORK[mode], mode)
        return before

    def resume(self, before: Interrupted | None) -> None:
        if before is not None:
            self._switch_to(before.mode)
            self._writer.enter(*before.phase_mode)

    def flush_begin(self) -> PhaseMode | None:
        """Keras waits for its other threads, and so for the device.

        Returns:
            For ``flush_end``; ``None``: outside training.
        """
        if self.mode != TRAIN_MODE:
            return None
        before = self._writer.present
        self._writer.enter(DEVICE_SYNC, TRAIN_MODE)
        return before

    def flush_end(self, before: PhaseMode) -> None:
        phase, mode = before
        # Entering ``train_step`` again would mean one more step.
        self._writer.enter(BETWEEN_EPOCHS if phase == TRAIN_STEP else phase, mode)

    def _see_first_steps(self) -> None:
        self.has_seen_steps = True
        if self.sees_steps:
            self._after_announcing = TRAIN_STEP if self._fetches_first else INPUT_WAIT
            self._rest = BETWEEN_EPOCHS

    def _switch_to(self, mode: int) -> None:
        """Keep the waits of other modes out of ``training_wait_ns``."""
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
