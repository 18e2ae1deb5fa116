"""Where a training run enters the hooks, found by profiling every call."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

import trainer_hooks
from trainer_hooks.ring import guard

_OURS = f"{Path(trainer_hooks.__file__).parent}/"
_EXAMPLES = f"{_OURS}examples/"


class BrokenError(RuntimeError):
    """What a broken function of ours raises."""


def is_ours(code: CodeType) -> bool:
    """Whether a function belongs to the hooks, but not to the guard itself."""
    file = code.co_filename
    return file.startswith(_OURS) and not file.startswith(_EXAMPLES) and file != guard.__file__


def name_of(code: CodeType) -> str:
    """Such as ``taps/tap.py FetchedBatches.__next__``."""
    return f"{code.co_filename.removeprefix(_OURS)} {code.co_qualname}"


class Borders:
    """The calls of our functions during a training run.

    Attributes:
        guarded: Functions that a guard called.
        open: Functions that foreign code called without a guard, and the caller.
    """

    def __init__(self, run: Callable[[], object]) -> None:
        self.guarded: dict[str, CodeType] = {}
        self.open: dict[str, str] = {}
        with _profiled(self._observe):
            run()

    def _observe(self, frame: FrameType) -> None:
        code, caller = frame.f_code, _nearest_of_ours(frame)
        if not is_ours(code) or code.co_name == "<module>":
            return
        if code in guard.PASS_THROUGH or code in guard.GUARDS_ITSELF:
            return
        calling = None if frame.f_back is None else frame.f_back.f_code
        if calling is not None and (
            calling.co_filename == guard.__file__ or calling in guard.GUARDS_ITSELF
        ):
            self.guarded[name_of(code)] = code
        elif caller is None or caller in guard.PASS_THROUGH or caller in guard.GUARDS_ITSELF:
            self.open[name_of(code)] = "theirs" if caller is None else name_of(caller)


def _nearest_of_ours(frame: FrameType) -> CodeType | None:
    """The nearest caller in the hooks, including the guard, if any."""
    caller = frame.f_back
    while caller is not None:
        if caller.f_code.co_filename == guard.__file__ or is_ours(caller.f_code):
            return caller.f_code
        caller = caller.f_back
    return None


@contextmanager
def broken(code: CodeType) -> Iterator[list[None]]:
    """Every call of that function is recorded and raises."""
    calls: list[None] = []

    def observe(frame: FrameType) -> None:
        if frame.f_code is code:
            calls.append(None)
            raise BrokenError(name_of(code))

    with _profiled(observe):
        yield calls


@contextmanager
def _profiled(observe: Callable[[FrameType], None]) -> Iterator[None]:
    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            try:
                observe(frame)
            except BrokenError:
                sys.setprofile(profile)  # Python removes a profiler that raises
                raise

    before = sys.getprofile()
    sys.setprofile(profile)
    threading.setprofile(profile)  # Keras runs callbacks on other threads, too
    try:
        yield
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
