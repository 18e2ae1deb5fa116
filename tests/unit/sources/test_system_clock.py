"""A sleep that a signal handler ends, whenever the signal comes."""

from __future__ import annotations

import subprocess
import sys

from tests.waiting import PATIENCE_S

WOKEN_BY_SIGNALS = """
import signal, time
from gpumon.sources.system_clock import SystemClock

for number in range(20_000):
    clock, is_over = SystemClock(), []
    def wake(*_):
        clock.wake()
        clock.wake()
        is_over.append(True)
    signal.signal(signal.SIGALRM, wake)
    signal.setitimer(signal.ITIMER_REAL, 1e-5 + number % 50 * 2e-6)
    while not is_over:
        clock.sleep_until_ns(time.monotonic_ns() + 2_000)
    began_ns = time.monotonic_ns()
    clock.sleep_until_ns(began_ns + 10**12)
print("woken")
"""


def test_a_signal_at_any_moment_ends_the_sleep_and_all_later_ones() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WOKEN_BY_SIGNALS],
        capture_output=True, text=True, timeout=3 * PATIENCE_S, check=False,
    )  # fmt: skip

    assert (done.stdout, done.stderr) == ("woken\n", "")
