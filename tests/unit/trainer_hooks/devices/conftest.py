"""A machine with four equal GPUs: which of them may a process use?"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.fakenvml.control import FakeNvml
from trainer_hooks import devices


@pytest.fixture(autouse=True)
def machine(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNvml]:
    """Four equal GPUs, no variable that hides any, and nothing cached."""
    fake_nvml.control.gpu_count = 4
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    devices.refresh()
    yield fake_nvml
    devices.refresh()


@pytest.fixture
def visible(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[int]]:
    """Sets ``$CUDA_VISIBLE_DEVICES`` and gives the indices that are left."""

    def indices_with(text: str) -> list[int]:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", text)
        return [gpu.index for gpu in devices.visible_gpus()]

    return indices_with
