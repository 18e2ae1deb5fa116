"""Specification of asking a caller's frame: an answer, and no trace."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from trainer_hooks.ring import call_frames
from trainer_hooks.ring.call_frames import caller_named, is_calling, is_in_our_code, local_in

HOOKS = Path(call_frames.__file__).parents[1]


class Model:
    """Something that a user lets go of."""


class TestALocalVariable:
    def test_is_found_whether_an_argument_or_shared_with_a_function_inside(self) -> None:
        def caller(argument: int) -> tuple[object, object, Callable[[], int]]:
            shared = 2
            frame = sys._getframe()
            return local_in(frame, "argument"), local_in(frame, "shared"), lambda: shared

        assert caller(1)[:2] == (1, 2)

    def test_missing_variable_is_none(self) -> None:
        assert local_in(sys._getframe(), "epoch_iterator") is None

    @pytest.mark.parametrize(
        "look",
        [
            lambda: local_in(sys._getframe(1), "epoch_iterator"),
            lambda: caller_named("epoch_iterator", lambda _: True),
            lambda: is_calling(object()),
        ],
        ids=["there", "among the callers", "of an object that calls nothing"],
    )
    def test_missing_variable_leaves_the_frame_free_to_delete_others(
        self, look: Callable[[], object]
    ) -> None:
        model = Model()
        seen = weakref.ref(model)

        assert not look()
        del model

        assert seen() is None


class TestAThread:
    @pytest.mark.parametrize(
        ("file", "is_ours"),
        [
            (HOOKS / "keras" / "tagging.py", True),
            (HOOKS / "phases.py", True),
            (HOOKS / "examples" / "keras_training.py", False),
            (HOOKS.parent / "train.py", False),
            (HOOKS.with_name(f"{HOOKS.name}_of_my_own") / "train.py", False),
        ],
        ids=["a room", "the folder", "an example", "a user's", "a user's whose folder is alike"],
    )
    def test_is_in_our_code_while_a_file_of_the_hooks_is_called(
        self, file: Path, is_ours: bool
    ) -> None:
        came, go = threading.Event(), threading.Event()
        names = {"came": came, "go": go}
        code = compile("came.set(); go.wait(10)", str(file), "exec")
        thread = threading.Thread(target=exec, args=(code, names))
        thread.start()
        came.wait(10)

        found = is_in_our_code(thread.ident or 0)

        go.set()
        thread.join()
        assert found is is_ours

    def test_ended_thread_is_not_in_our_code(self) -> None:
        assert not is_in_our_code(0)
