"""What the loggers of a trainer receive about a stretch of its training."""

from __future__ import annotations

import os
from collections.abc import Callable
from time import monotonic_ns

from trainer_hooks.ring import phase_modes as modes
from trainer_hooks.ring.daemon_counters import GpuRatios
from trainer_hooks.ring.daemon_state import state_folders
from trainer_hooks.ring.ring_writer import RingWriter

_INPUT_WAIT = modes.INPUT_WAIT[modes.TRAIN_MODE][0]


class LoggedRatios:
    """Ratios since the last answer, 0 to 1, as the Keras tagger adds them to ``logs``.

    ``input_wait_ratio``
        time the run waited for input over the time of the stretch, both on the host.
    ``gpu_busy_ratio``, ``starved_ratio``
        of this run's GPUs, where a daemon runs.

    A value that is unknown has no key. After an error there are no more.
    """

    def __init__(self, writer: RingWriter, warn: Callable[[str], None]) -> None:
        """Begin a stretch. ``warn`` receives trouble as a sentence."""
        self._writer, self._warn = writer, warn
        self._are_given = True
        self._gpus = GpuRatios(state_folders(os.environ, os.geteuid()), writer.facts.boot_id)
        self.begin()

    def begin(self) -> None:
        """Begin a stretch, and forget what was before."""
        self._began_ns, self._waited_before_ns = monotonic_ns(), self._writer.spent_ns(_INPUT_WAIT)
        self._gpus.begin()

    def give(self, log: Callable[[dict[str, float]], object]) -> None:
        """End the stretch, hand its ratios to ``log``, and begin another. Never raises."""
        if not self._are_given or not self._writer.enabled:
            return
        try:
            ratios = self._ratios()
            if ratios:
                log(ratios)
        except Exception as error:  # noqa: BLE001 (training goes on, whatever a logger does)
            self._are_given = False
            self._warn(f"gpumon's PhaseTagger gives no ratios to the loggers: {error!r}")

    def _ratios(self) -> dict[str, float]:
        now_ns, waited_ns = monotonic_ns(), self._writer.spent_ns(_INPUT_WAIT)
        ratios = dict(self._gpus.since_then(self._writer.facts))
        if now_ns > self._began_ns:
            waits = (waited_ns - self._waited_before_ns) / (now_ns - self._began_ns)
            ratios["input_wait_ratio"] = min(1.0, max(0.0, waits))
        self._began_ns, self._waited_before_ns = now_ns, waited_ns
        return ratios
