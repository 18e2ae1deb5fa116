"""Specification of a thread that uses CUDA while another one captures a graph."""

from __future__ import annotations

import ctypes
from contextlib import suppress

import pytest

from tests.cuda_driver import show_driver
from trainer_hooks.ring.cuda_captures import captures_left_alone


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
