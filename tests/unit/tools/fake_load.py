"""A load for the fake board: it makes the wave it was told, on a clock that sleep moves."""

from __future__ import annotations

from typing import Any

from tests.fakenvml.control import FakeNvml
from tests.tools.board_capture.load import Load

STEPS_PER_SECOND = 1_000
STEPS_LOST_BY_A_CALL = 2


class FakeLoad(Load):
    """Says of GPU 0 what the fake then shows; a step is slower where the driver is asked more."""

    name = "a fake load"

    def __init__(self, fake: FakeNvml, *, window_s: float = 1 / 6) -> None:
        self._fake, self._window_s = fake, window_s
        self._command: dict[str, Any] = {}
        self._began_ns = self._calls = 0
        self.stop()

    def run(self, kind: str) -> None:
        self._wave(1.0, 1.0)
        self._fake.gpm(0, sm=0.9 if kind == "full" else 0.05)

    def stop(self) -> None:
        self._wave(1.0, 0.0)

    def begin(self, command: dict[str, Any]) -> None:
        self._command = command
        self._began_ns = self._fake.now_ns()
        self._calls = sum(self._fake.all_calls().values())
        if command["do"] == "wave":
            period_s = command["busy_s"] + command["idle_s"]
            since_s = (self._began_ns - self._fake.control.origin_ns) / 1e9
            self._wave(period_s, command["busy_s"] / period_s, period_s - since_s % period_s)

    def result(self) -> dict[str, Any]:
        command, seconds = self._command, self._command["seconds"]
        if command["do"] == "steps":
            asked = sum(self._fake.all_calls().values()) - self._calls
            steps = STEPS_PER_SECOND * seconds - STEPS_LOST_BY_A_CALL * asked
            return {
                "steps": steps, "seconds": seconds,
                "median_ms": 1.0, "p99_ms": 1.5, "worst_ms": 2.0,
            }  # fmt: skip
        busy_ns = round(command["busy_s"] * 1e9)
        period_ns = round((command["busy_s"] + command["idle_s"]) * 1e9)
        rounds = range(self._began_ns, self._began_ns + round(seconds * 1e9), period_ns)
        spans = [(start_ns, start_ns + busy_ns) for start_ns in rounds]
        self.stop()
        return {"spans": spans, "device_s": [command["busy_s"] - 0.001] * len(spans)}

    def close(self) -> None:
        self.stop()

    def _wave(self, period_s: float, busy_ratio: float, phase_s: float = 0.0) -> None:
        self._fake.wave(
            0, period_s=period_s, busy_ratio=busy_ratio, phase_s=phase_s, window_s=self._window_s
        )
