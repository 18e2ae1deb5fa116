"""The warnings that a hook may give, and its calls of CUDA while a graph is captured."""

from __future__ import annotations

import ctypes
import inspect
import sysconfig
import warnings
from contextlib import suppress
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest

from tests.cuda_driver import show_driver
from trainer_hooks.ring import guard
from trainer_hooks.ring.guard import QuietWarningOnce, captures_left_alone, warn_quietly

HOOKS = Path(guard.__file__).parents[1]
CALLS_IT = "def call(hook, *texts):\n    hook(*texts)\n"


def code_in(file: Path | str, text: str) -> ModuleType:
    """A module whose code claims to lie in that file."""
    module = ModuleType("made_here")
    exec(compile(text, str(file), "exec"), module.__dict__)
    return module


hook = code_in(HOOKS / "ring" / "some_hook.py", "def hook(warn):\n    warn('a warning')\n").hook


def here() -> int:
    frame = inspect.currentframe()
    assert isinstance(frame, FrameType)
    assert frame.f_back is not None
    return frame.f_back.f_lineno


class TestAWarning:
    @pytest.mark.parametrize(
        "library",
        [
            HOOKS.parent / "gpumon" / "core" / "ring" / "facts.py",
            Path(sysconfig.get_path("stdlib")) / "contextlib.py",
            Path(sysconfig.get_path("purelib")) / "keras" / "trainer.py",
            "/usr/lib/python3/dist-packages/keras/trainer.py",
            "<frozen runpy>",
        ],
    )
    def test_points_past_libraries_at_the_users_own_line(self, library: Path | str) -> None:
        call = code_in(library, CALLS_IT).call

        for warn in (warn_quietly, QuietWarningOnce()):
            line = here() + 2
            with pytest.warns(RuntimeWarning, match="a warning") as recorded:
                call(hook, warn)

            assert (recorded[0].filename, recorded[0].lineno) == (__file__, line)

    def test_counts_an_example_of_ours_as_the_users(self) -> None:
        example = HOOKS / "examples" / "training.py"

        with pytest.warns(RuntimeWarning, match="a warning") as recorded:
            code_in(example, CALLS_IT).call(hook, warn_quietly)

        assert recorded[0].filename == str(example)

    def test_ends_nothing_where_warnings_are_errors(self, monkeypatch: pytest.MonkeyPatch) -> None:
        bare, came = warnings.warn_explicit, []

        def warn_explicit(*args: Any, **more: Any) -> None:
            try:
                bare(*args, **more)
            except RuntimeWarning as error:
                came.append(str(error))
                raise

        monkeypatch.setattr(warnings, "warn_explicit", warn_explicit)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warn_quietly("a warning")
            came.append("next")

        assert came == ["a warning", "next"]

    def test_ends_nothing_where_it_cannot_be_written(self, monkeypatch: pytest.MonkeyPatch) -> None:
        tried: list[str] = []

        def show(message: Warning, *_: object, **__: object) -> None:
            tried.append(str(message))
            raise ValueError("I/O operation on closed file")

        with warnings.catch_warnings():
            warnings.simplefilter("always")
            monkeypatch.setattr(warnings, "showwarning", show)
            warn_quietly("a warning")
            tried.append("next")

        assert tried == ["a warning", "next"]

    def test_is_recorded_once_a_line_as_any_other(self, recwarn: pytest.WarningsRecorder) -> None:
        module = code_in("/home/me/train.py", CALLS_IT)

        warnings.simplefilter("default")
        for _ in range(3):
            module.call(hook, warn_quietly)

        assert [str(warning.message) for warning in recwarn] == ["a warning"]


def test_a_thread_is_as_before_afterwards_whatever_happened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = show_driver(monkeypatch)

    with suppress(ZeroDivisionError), captures_left_alone():
        driver.noted.append("in between")
        raise ZeroDivisionError

    assert driver.noted == ["thread-local", "in between", "global"]


@pytest.mark.parametrize("driver", [None, object()], ids=["none", "one from before CUDA 10.1"])
def test_without_a_driver_that_can_record_nothing_is_changed_and_nothing_raised(
    monkeypatch: pytest.MonkeyPatch, driver: object
) -> None:
    def open_it(name: str) -> object:
        if driver is None:
            raise OSError(f"{name}: cannot open shared object file")
        return driver

    monkeypatch.setattr(ctypes, "CDLL", open_it)
    entered = False

    with captures_left_alone():
        entered = True

    assert entered
