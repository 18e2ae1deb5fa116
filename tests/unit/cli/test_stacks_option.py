"""Whose stacks `gpumon serve` reads."""

from __future__ import annotations

import argparse
import os

import pytest

from gpumon.cli.stacks_option import StackUsers, stack_users_of, user_argument
from gpumon.errors import UsageError

ANN, BOB, ROOT = 1_000, 1_001, 0


def users(
    monkeypatch: pytest.MonkeyPatch, own: int, *, stacks: bool = True, of: list[int] | None = None
) -> StackUsers | None:
    """As a daemon of the user ``own``."""
    monkeypatch.setattr(os, "geteuid", lambda: own)
    args = argparse.Namespace(stacks=stacks, stacks_of=of, source="nvml", period=1.0)
    return stack_users_of(args)


class TestTheUsers:
    def test_are_none_by_default(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert users(monkeypatch, ROOT, stacks=False) is None

    def test_are_the_daemons_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert users(monkeypatch, ANN) == StackUsers(frozenset([ANN]))

    def test_are_all_for_root_unless_it_names_some(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert users(monkeypatch, ROOT) == StackUsers(None)
        assert users(monkeypatch, ROOT, of=[ANN]) == StackUsers(frozenset([ROOT, ANN]))

    def test_are_those_named_besides_the_daemons_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert users(monkeypatch, ANN, of=[BOB]) == StackUsers(frozenset([ANN, BOB]))

    def test_are_refused_without_stacks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(UsageError, match="--stacks-of needs --stacks"):
            users(monkeypatch, ANN, stacks=False, of=[BOB])


class TestAUser:
    def test_is_a_name_or_a_number(self) -> None:
        assert (user_argument("root"), user_argument("1042")) == (0, 1_042)

    @pytest.mark.parametrize("text", ["no such user", "-1", "", "a\0b"])
    def test_that_does_not_exist_is_refused(self, text: str) -> None:
        with pytest.raises(argparse.ArgumentTypeError, match="there is no user"):
            user_argument(text)
