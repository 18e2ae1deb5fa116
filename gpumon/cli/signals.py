"""What ends a command from outside: the same for every command that goes on until it is told."""

from __future__ import annotations

import signal
from collections.abc import Callable


def end_on_signals(stop: Callable[[], object]) -> None:
    """Call this on Ctrl-C, on SIGTERM, and when the terminal goes.

    Args:
        stop: Ends the command soon. Called in a signal handler.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # Under nohup the terminal may go.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda *_: stop())
