"""Shows the fake GPUs to this very process."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakenvml.control import FakeNvml
from tests.fakenvml.generations import DriverGeneration


@contextmanager
def shown_to_this_process(
    library: Path,
    control: Path,
    driver: DriverGeneration,
    *,
    gpus: int = 2,
    kind: type[FakeNvml] = FakeNvml,
) -> Iterator[FakeNvml]:
    """GPUs that pynvml sees in this process, by that library.

    A library that is loaded already is found by its name before any folder is
    searched, so whoever asks for libnvidia-ml.so.1 gets the present driver's;
    pynvml gets the one that is given, present or old. ``kind`` is what is made.
    """
    import pynvml

    names: Any = pynvml  # its private names are in no stub
    loaded_before = names.nvmlLib
    names.nvmlLib = ctypes.CDLL(str(library))
    names._nvmlGetFunctionPointer_cache.clear()
    with pytest.MonkeyPatch.context() as patch, kind(control, gpus=gpus, driver=driver) as fake:
        patch.setenv("FAKENVML_CTL", str(fake.path))
        # A source ends after its wait for events: let that be soon.
        patch.setattr("gpumon.sources.nvml.events.WAIT_MS", 20)
        try:
            yield fake
        finally:
            # The next test's control file is mapped when NVML is opened afresh.
            try:
                while True:
                    pynvml.nvmlShutdown()
            except pynvml.NVMLError:
                pass
            names.nvmlLib = loaded_before
            names._nvmlGetFunctionPointer_cache.clear()
