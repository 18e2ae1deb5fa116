"""When the GPU finished each step, from events in its queue that are never waited for."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from time import monotonic_ns
from typing import Any, Final, Protocol

from trainer_hooks.ring.guard import captures_left_alone, warn_quietly

_NS_PER_MS: Final = 1e6
_RESOLUTION_NS: Final = 1_000
"""CUDA promises half a microsecond, and returns elapsed times as 32-bit floats."""
_DRIFT: Final = 6e-4
"""Two clocks of one machine drift apart by less, as a ratio: NTP slews the host's by 5e-4."""
_REFERENCE_AGE_NS: Final = 1_000_000_000
"""A 32-bit float of a second resolves 60 ns, and the clocks drift 0.6 ms at most meanwhile."""


class Event(Protocol):
    """A mark in the device's queue, such as ``torch.cuda.Event``."""

    def record(self) -> None:
        """Put the mark behind the work in the queue."""

    def query(self) -> bool:
        """Whether the device has passed it. Returns at once."""

    def elapsed_time(self, end_event: object) -> float:
        """Milliseconds from this mark to another; the device has passed both."""


class DeviceClock:
    """Relates the device's clock to the host's by bounds that every event must satisfy.

    The host knows that each event happened after one time (it had not been recorded, or was found
    unfinished) and before another (it was found finished). The device says how far apart two events
    are. So each event bounds the reference's time, and all of them bound it closely.

    Attributes:
        reference: The event that others are measured from; it must not be recorded again
            meanwhile.
    """

    def __init__(self) -> None:
        self.reference: Event | None = None
        self._earliest_ns = self._latest_ns = 0.0

    def instant_of(self, event: Event, after_ns: int, by_ns: int) -> tuple[int, int]:
        """Return when a finished event happened, and the largest error.

        Args:
            event: Finished, by ``query``.
            after_ns: It had not happened then.
            by_ns: It had happened then.

        Raises:
            RuntimeError: By the device's library, for events of two devices.
        """
        since_ns = 0.0
        if self.reference is not None:
            since_ns = self.reference.elapsed_time(event) * _NS_PER_MS
        unsure_ns = _RESOLUTION_NS + abs(since_ns) * _DRIFT
        earliest_ns = max(self._earliest_ns + since_ns - unsure_ns, after_ns)
        latest_ns = min(self._latest_ns + since_ns + unsure_ns, by_ns)
        if self.reference is None or earliest_ns > latest_ns:
            # The first event, or the clocks jumped: the machine may have been suspended.
            earliest_ns, latest_ns, since_ns = float(after_ns), float(by_ns), _REFERENCE_AGE_NS
        if since_ns >= _REFERENCE_AGE_NS:
            self.reference = event
            self._earliest_ns, self._latest_ns = earliest_ns, latest_ns
        else:
            self._earliest_ns = max(self._earliest_ns, earliest_ns - since_ns - unsure_ns)
            self._latest_ns = min(self._latest_ns, latest_ns - since_ns + unsure_ns)
        middle_ns = (earliest_ns + latest_ns) / 2
        return round(middle_ns), round((latest_ns - earliest_ns) / 2)


_MOST_EVENTS: Final = 64
_SPACING_NS: Final = 1_000_000
"""Not all steps shorter than this are recorded: two events cost some 20 us."""
_MOST_ERROR_NS: Final = 5_000_000
"""A less certain time is not reported; NVML's own samples are 160 ms wide."""
_PATIENCE_S: Final = 0.02
_STOP_PATIENCE_S: Final = 0.1


@dataclass(slots=True)
class _Mark:
    event: Event
    after_ns: int
    step: int | None  # None: a step begins here


class CudaEvents:
    """Records when the device finished steps, more precisely than NVML can.

    An event before each step and one after it are put in the queue of the current stream. The one
    after it says when the step was done; the one before it happens at once on an idle device, and
    so relates the two clocks closely.

    Later steps query which events have passed; while the run is elsewhere, such as waiting for
    input, a thread does. It does not query while a step is being handed over: the step would have
    to wait.

    On any error it warns once and stops.
    """

    def __init__(
        self,
        make_event: Callable[[], Event],
        report: Callable[[int, int], None],
        *,
        now_ns: Callable[[], int] = monotonic_ns,
        is_capturing: Callable[[], bool] = lambda: False,
        in_thread: Callable[[], AbstractContextManager[None]] | None = None,
    ) -> None:
        """Record nothing yet.

        Args:
            make_event: Creates an event with timing.
            report: Called with a training step's number and the time it was done,
                CLOCK_MONOTONIC nanoseconds, on any thread.
            now_ns: CLOCK_MONOTONIC.
            is_capturing: Whether the current stream is captured into a graph.
            in_thread: Creates the context of the querying thread, which must not break the user's
                graph captures; ``None``: no thread.
        """
        self._make_event = make_event
        self._report = report
        self._now_ns = now_ns
        self._is_capturing = is_capturing
        self._in_thread = in_thread
        self._clock = DeviceClock()
        self._free: list[Event] = []
        self._made = 0
        self._pending: deque[_Mark] = deque()
        self._last_ns = 0
        self._end_event: Event | None = None
        self._last_begin_ns = 0
        self._lock = threading.Lock()
        self._is_outside = True
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def step_begins(self) -> None:
        """The next step is about to be handed to the device."""
        with self._lock:
            self._is_outside = False
        if self._is_over.is_set():
            return
        try:
            if self._is_capturing():
                return
            self._ask()
            now_ns = self._now_ns()
            if now_ns - self._last_begin_ns < _SPACING_NS:
                return
            pair = self._two_events()
            if pair is None:
                return  # the device is many steps behind
            begin, self._end_event = pair
            begin.record()
            self._pending.append(_Mark(begin, now_ns, None))
            self._last_begin_ns = now_ns
        except Exception as error:  # noqa: BLE001 (training goes on)
            self._give_up(error)

    def step_ended(self, step: int) -> None:
        """A step was handed over; it, or the last of several, was training step ``step``."""
        end, self._end_event = self._end_event, None
        if end is not None and not self._is_over.is_set():
            try:
                now_ns = self._now_ns()
                end.record()
                self._pending.append(_Mark(end, now_ns, step))
                self._ask()
                self._ask_meanwhile()
            except Exception as error:  # noqa: BLE001
                self._give_up(error)
        self._is_outside = True

    def stop(self) -> None:
        """Query a last time. Waits for the thread, 0.1 s at most."""
        if not self._is_over.is_set():
            # After an error of the device this fails too, and the run says why.
            with contextlib.suppress(Exception), self._lock:
                self._ask()
        self._is_over.set()
        if self._thread is not None:
            self._thread.join(_STOP_PATIENCE_S)
            self._thread = None

    def _ask(self) -> None:
        """Process the events that the device has passed, oldest first."""
        while self._pending:
            mark = self._pending[0]
            asked_ns = self._now_ns()
            if not mark.event.query():
                mark.after_ns = asked_ns
                return
            self._pending.popleft()
            self._passed(mark, self._now_ns())

    def _passed(self, mark: _Mark, by_ns: int) -> None:
        old_reference = self._clock.reference
        at_ns, error_ns = self._clock.instant_of(mark.event, mark.after_ns, by_ns)
        self._last_ns = at_ns = max(at_ns, self._last_ns)  # the queue is in order
        if self._clock.reference is not mark.event:
            self._free.append(mark.event)
        elif old_reference is not None:
            self._free.append(old_reference)
        if mark.step is not None and error_ns <= _MOST_ERROR_NS:
            self._report(mark.step, at_ns)

    def _two_events(self) -> tuple[Event, Event] | None:
        while len(self._free) < 2:
            if self._made >= _MOST_EVENTS:
                return None
            self._free.append(self._make_event())
            self._made += 1
        return self._free.pop(), self._free.pop()

    def _ask_meanwhile(self) -> None:
        if self._thread is None and self._in_thread is not None:
            self._thread = threading.Thread(
                target=self._ask_now_and_then,
                args=(self._in_thread,),
                name="gpumon-cuda",
                daemon=True,
            )
            self._thread.start()

    def _ask_now_and_then(self, in_thread: Callable[[], AbstractContextManager[None]]) -> None:
        try:
            with in_thread():
                while not self._is_over.wait(_PATIENCE_S):
                    with self._lock:
                        if self._is_outside and not self._is_over.is_set():
                            self._ask()
        except Exception as error:  # noqa: BLE001
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        if not self._is_over.is_set():
            self._is_over.set()
            warn_quietly(f"gpumon no longer asks CUDA when a step is done: {error!r}")


def events_of_this_device(report: Callable[[int, int], None]) -> CudaEvents | None:
    """Return events of the current device; ``None`` if this process has not used CUDA.

    Initialises nothing.
    """
    torch: Any = sys.modules.get("torch")
    try:
        if torch is None or not torch.cuda.is_initialized():
            return None
        device = torch.cuda.current_device()

        @contextlib.contextmanager
        def in_thread() -> Iterator[None]:
            with captures_left_alone(), torch.cuda.device(device):
                yield

        return CudaEvents(
            lambda: torch.cuda.Event(enable_timing=True),
            report,
            is_capturing=torch.cuda.is_current_stream_capturing,
            in_thread=in_thread,
        )
    except Exception as error:  # noqa: BLE001
        warn_quietly(f"gpumon cannot ask CUDA when a step is done: {error!r}")
        return None
