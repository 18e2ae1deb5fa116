"""Looks at the GPUs from a thread of its own, so that a driver that hangs can be told of."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar

from rich.console import Console
from rich.status import Status

from gpumon.errors import SourceUnavailableError

_Found = TypeVar("_Found")
_LOOK_EVERY_S = 0.1
_PATIENCE_S = 30.0
"""To open NVML takes seconds on a box with many boards that nobody holds open."""

Beat = Callable[[str], None]


class _Work(Generic[_Found]):
    """What the thread does, and how far it is."""

    def __init__(self, look: Callable[[Beat], _Found]) -> None:
        self._look = look
        self.now = "the driver"
        self.beat_at_s = monotonic()
        self.found: _Found | None = None
        self.error: BaseException | None = None
        self.done = threading.Event()

    def beat(self, what: str) -> None:
        self.now, self.beat_at_s = what, monotonic()

    def run(self) -> None:
        try:
            self.found = self._look(self.beat)
        except BaseException as error:  # noqa: BLE001 (handed to the thread that waits)
            self.error = error
        finally:
            self.done.set()


def patiently(look: Callable[[Beat], _Found], *, patience_s: float = _PATIENCE_S) -> _Found:
    """What ``look`` gives; a terminal sees on standard error what it asks meanwhile.

    Args:
        look: Is handed a function that it calls with whatever it asks next.
        patience_s: How long one question may take.

    Raises:
        SourceUnavailableError: A question has not been answered for that long.
    """
    work = _Work(look)
    threading.Thread(target=work.run, daemon=True).start()
    with _Screen() as screen:
        while not work.done.wait(_LOOK_EVERY_S):
            screen.show(work.now)
            if monotonic() - work.beat_at_s > patience_s:
                raise SourceUnavailableError(
                    f"the driver has not answered for {patience_s:.0f} s ({work.now}): read "
                    "`dmesg`, and reboot if processes that use the GPU cannot be ended"
                )
    if work.error is not None:
        raise work.error
    assert work.found is not None
    return work.found


class _Screen:
    """One line that is renewed, on a terminal only."""

    def __init__(self) -> None:
        self._status: Status | None = None
        if sys.stderr.isatty():
            self._status = Status("looking", console=Console(stderr=True))

    def __enter__(self) -> _Screen:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def show(self, what: str) -> None:
        """Say what is asked now."""
        if self._status is not None:
            self._status.update(f"asking {what}")
