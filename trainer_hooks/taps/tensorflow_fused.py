"""Several steps an execution on TensorFlow: the step fetches inside its own graph."""

from __future__ import annotations

from time import monotonic_ns
from typing import Any, Final

from trainer_hooks.keras_fit.phase_machine import PhaseMachine
from trainer_hooks.quiet_warning import warn_quietly
from trainer_hooks.taps import StepListener
from trainer_hooks.taps.tensorflow_accounts import Accounts, Execution
from trainer_hooks.taps.tensorflow_functions import form_of, traces_of
from trainer_hooks.taps.tensorflow_steps import ENDS_OF_DATA, ITERATORS
from trainer_hooks.taps.tensorflow_timers import GraphTotals, TimedFetches, totals_in

_WORTH_TELLING_NS: Final = 1_000_000
"""Most data end at once."""


class FusedStep:
    """Calls the step as it is, with timers traced into it around what fetches a batch.

    Where several batches are fetched in one execution, the next one is
    fetched beside the compute of the one before: the wait is *gross*, an
    upper bound of what the device felt.
    """

    def __init__(self, function: Any, listener: StepListener, *, batches: int) -> None:  # noqa: ANN401
        """Find the timers.

        Args:
            function: The step function.
            listener: Told of each execution.
            batches: Most batches of an execution.
        """
        self._function = function
        self._listener = listener
        self._batches = batches
        self._fused = form_of(function).fused
        self._totals = None if self._fused is None else totals_in(self._fused)
        self._fetches = None if self._totals is None else _timed_fetches(self._totals)
        self._was_unheard = False
        self._accounts: Accounts | None = None
        if self._totals is not None and self._fetches is not None:
            self._accounts = Accounts(self._totals.read, batches)

    @property
    def has_gross_wait(self) -> bool:
        """Whether what it tells as a wait for input may have passed beside the compute."""
        return self._accounts is not None and self._batches > 1

    def __call__(self, iterator: Any) -> Any:  # noqa: ANN401
        """One execution, as the bare function takes it."""
        machine = self._listener.machine_here
        is_calling_back = machine is not None and machine.is_calling_back
        if machine is None or (is_calling_back and self._listener.is_calling_back()):
            self._was_unheard = True
            return self._function(iterator)
        if not isinstance(iterator, ITERATORS):
            return self._function(iterator)
        traces = traces_of(self._fused)
        if self._accounts is not None:
            self._check_accounts(traces)
        machine.fetch_end()  # the timers tell what of it was a wait
        if traces == 0:
            machine.compile_begin()
        began_ns = monotonic_ns()
        try:
            logs = self._call(iterator)
        except ENDS_OF_DATA:
            self._tell_of_no_batch(monotonic_ns() - began_ns, traces)
            machine.fetch_exhausted()
            raise
        except BaseException:
            self._listener.failed()
            raise
        self._tell(machine, monotonic_ns() - began_ns, traces)
        return logs

    def _call(self, iterator: Any) -> Any:  # noqa: ANN401
        if self._fetches is None:
            return self._function(iterator)
        return self._fetches.call(self._function, iterator)

    def _tell(self, machine: PhaseMachine, took_ns: int, traces: int | None) -> None:
        listener, told = self._listener, Execution(0, self._batches, 0)
        has_traced = traces_of(self._fused) != traces
        if has_traced:
            self._check_timers()
        if self._accounts is not None:
            try:
                told = self._accounts.executed(took_ns, monotonic_ns())
            except Exception as error:  # noqa: BLE001 (the training goes on without timers)
                self._see_one_phase(error)
        if told.wait_ns:
            listener.waited(told.wait_ns)
        if has_traced and traces:
            listener.compiled(took_ns - told.wait_ns)
        machine.dispatched(told.steps, told.samples)

    def _tell_of_no_batch(self, took_ns: int, traces: int | None) -> None:
        """An execution that only found the end of the data waited for it, and was no step."""
        if self._accounts is None:
            return
        try:
            wait_ns = self._accounts.found_nothing(took_ns)
        except Exception as error:  # noqa: BLE001
            self._see_one_phase(error)
            return
        if wait_ns >= _WORTH_TELLING_NS and traces == traces_of(self._fused):
            self._listener.waited(wait_ns)

    def _check_accounts(self, traces: int | None) -> None:
        """Another thread may have had the word meanwhile: what passed then is not told here."""
        totals = self._totals
        if totals is None or traces != totals.traces:
            self._see_one_phase("it was traced while another training was tagged")
        elif self._was_unheard:
            self._was_unheard = False
            try:
                self._accounts = Accounts(totals.read, self._batches)
            except Exception as error:  # noqa: BLE001
                self._see_one_phase(error)

    def _check_timers(self) -> None:
        """A trace was made: the timers must have gone into it."""
        if self._totals is None or self._fetches is None or self._accounts is None:
            return
        if self._fetches.made:
            self._fetches.made = 0
            self._totals.traces = traces_of(self._fused) or 0
        else:
            self._see_one_phase("no operation that fetches a batch went by while it was traced")

    def _see_one_phase(self, reason: object) -> None:
        self._accounts = self._fetches = None
        warn_blind(reason)


def _timed_fetches(totals: GraphTotals) -> TimedFetches | None:
    try:
        return TimedFetches(totals)
    except Exception as error:  # noqa: BLE001 (another TensorFlow may look otherwise inside)
        warn_blind(error)
        return None


def warn_blind(reason: object) -> None:
    """Say that the wait cannot be told from the compute."""
    warn_quietly(
        "gpumon cannot see the wait for input inside the steps of this training, "
        f"it counts as train_step: {reason}"
    )
