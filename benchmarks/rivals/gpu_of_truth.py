"""A fake driver that shows what the device of a training run really did."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.fakenvml.build import build_fake, fake_env
from tests.fakenvml.control import WINDOW_S, FakeNvml


class GpuOfTruth:
    """One GPU of the fake libnvidia-ml.so.1, as busy as the spans in a file say.

    Utilisation is renewed six times a second and looks back over that time,
    as a driver's does. The rivals read it through NVML.
    """

    def __init__(self, folder: Path, spans: Path) -> None:
        """Build the library, if need be.

        Raises:
            NoCompilerError: There is no C compiler.
        """
        library = build_fake(folder)
        self._fake = FakeNvml(folder / "control")
        self._fake.gpu(0).rates_percent = 0
        self._spans = spans
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self.environ = fake_env(self._fake.path, library.parent)

    def __enter__(self) -> GpuOfTruth:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped.set()
        self._thread.join()
        self._fake.close()

    def _follow(self) -> None:
        self._spans.touch()
        with self._spans.open(encoding="ascii") as file:
            before_ns = time.monotonic_ns()
            while not self._stopped.wait(WINDOW_S):
                now_ns = time.monotonic_ns()
                busy_ns = sum(_length_ns(line) for line in file)
                share = min(1.0, busy_ns / (now_ns - before_ns))
                self._fake.gpu(0).rates_percent = round(100 * share)
                before_ns = now_ns


def _length_ns(line: str) -> int:
    with contextlib.suppress(ValueError):  # half a line: its span is lost to one window
        span: dict[str, Any] = json.loads(line)
        return int(span["end_ns"] - span["start_ns"])
    return 0
