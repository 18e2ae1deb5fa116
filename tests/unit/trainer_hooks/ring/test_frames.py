"""Specification of asking a caller's frame: an answer, and no trace."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable

from trainer_hooks.ring.frames import local_in


class Model:
    """Something that a user lets go of."""


class TestALocalVariable:
    def test_is_found_whether_an_argument_or_shared_with_a_function_inside(self) -> None:
        def caller(argument: int) -> tuple[object, object, Callable[[], int]]:
            shared = 2
            frame = sys._getframe()
            return local_in(frame, "argument"), local_in(frame, "shared"), lambda: shared

        assert caller(1)[:2] == (1, 2)

    def test_that_is_none_of_a_frame_is_nothing(self) -> None:
        assert local_in(sys._getframe(), "epoch_iterator") is None

    def test_that_is_none_of_a_frame_leaves_it_free_to_delete_the_others(self) -> None:
        model = Model()
        seen = weakref.ref(model)

        local_in(sys._getframe(), "epoch_iterator")
        del model

        assert seen() is None
