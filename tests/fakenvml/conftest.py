"""pynvml, opened on two fake GPUs whose clock stands still."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pynvml
import pytest

from tests.fakenvml.control import FakeNvml
from tests.patience import wait_until

Begin = Callable[[str, Callable[[], Any]], Callable[[], Any]]
"""Calls a function that waits inside the driver; what it gives is called for the answer."""


@pytest.fixture
def nvml(fake_nvml: FakeNvml) -> FakeNvml:
    pynvml.nvmlInit()
    fake_nvml.stop_clock()
    return fake_nvml


@pytest.fixture
def handle(nvml: FakeNvml) -> Any:
    """The first GPU, as pynvml has it."""
    return pynvml.nvmlDeviceGetHandleByIndex(0)


@pytest.fixture
def begin(nvml: FakeNvml) -> Begin:
    """Calls in a thread, and returns when the call is known to be inside the driver."""

    def begun(function: str, call: Callable[[], Any]) -> Callable[[], Any]:
        found: list[Any] = []

        def ask() -> None:
            try:
                found.append(call())
            except pynvml.NVMLError as error:
                found.append(error.value)

        asker = threading.Thread(target=ask)
        asker.start()
        wait_until(lambda: nvml.waiting(function) > 0)

        def answer() -> Any:
            asker.join(5)
            assert not asker.is_alive()
            return found[0]

        assert found == []
        return answer

    return begun
