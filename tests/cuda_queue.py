"""A fake device with a queue, as strict as CUDA, whose steps end at known times."""

from __future__ import annotations

from trainer_hooks.taps.cuda_events import CudaEvents

MS = 1_000_000


class Gpu:
    """A device with a queue and its own clock, which is slightly fast."""

    def __init__(self, *, fast_by: float = 5e-5) -> None:
        self.host_ns = 5_000_000_000_000
        self.free_at_ns = 0
        self.questions = self.records = self.events = 0
        self._fast_by = fast_by
        self._ahead_ms, self._jumped_at_ns = 0.0, 0

    def jump(self, ahead_ms: float) -> None:
        """Let the device's clock jump ahead."""
        self._ahead_ms, self._jumped_at_ns = ahead_ms, self.host_ns

    def event(self) -> Event:
        self.events += 1
        return Event(self)

    def work(self, duration_ms: float) -> None:
        """Enqueue work."""
        self.free_at_ns = max(self.free_at_ns, self.host_ns) + round(duration_ms * MS)

    def pass_ms(self, duration_ms: float) -> None:
        self.host_ns += round(duration_ms * MS)

    def wait_for_it(self) -> None:
        """The host waits for the device."""
        self.host_ns = max(self.host_ns, self.free_at_ns)

    def ticks_ms(self, host_ns: int) -> float:
        return host_ns * (1 + self._fast_by) / MS + self._ahead_ms * (host_ns > self._jumped_at_ns)


class Event:
    """An event in that queue, as strict as CUDA's."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._due_ns: int | None = None

    def record(self) -> None:
        assert self._due_ns is None or self._is_past, "this event still stands in the queue"
        self._gpu.records += 1
        self._due_ns = max(self._gpu.free_at_ns, self._gpu.host_ns)

    def query(self) -> bool:
        self._gpu.questions += 1
        return self._is_past

    def elapsed_time(self, end_event: object) -> float:
        assert isinstance(end_event, Event)
        assert self._is_past, "an event that is not done has no time"
        assert end_event._is_past, "an event that is not done has no time"
        assert self._due_ns is not None
        assert end_event._due_ns is not None
        return self._gpu.ticks_ms(end_event._due_ns) - self._gpu.ticks_ms(self._due_ns)

    @property
    def _is_past(self) -> bool:
        return self._due_ns is not None and self._gpu.host_ns >= self._due_ns


class Training:
    """A loop of steps whose true times are known."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.reported_ns: dict[int, int] = {}
        self.true_ns: dict[int, int] = {}
        self.witness = CudaEvents(
            gpu.event, self.reported_ns.__setitem__, now_ns=lambda: gpu.host_ns
        )

    def steps(
        self, count: int, *, fetch_ms: float, dispatch_ms: float, work_ms: float, waits: bool
    ) -> None:
        gpu = self.gpu
        for _ in range(count):
            gpu.pass_ms(fetch_ms)
            self.witness.step_begins()
            gpu.work(work_ms)
            gpu.pass_ms(dispatch_ms)
            step = len(self.true_ns) + 1
            self.true_ns[step] = gpu.free_at_ns
            self.witness.step_ended(step)
            if waits:
                gpu.wait_for_it()

    def worst_error_ms(self) -> float:
        return max(abs(at - self.true_ns[step]) for step, at in self.reported_ns.items()) / MS
