"""The mapped control file, as the parts of ``FakeNvml`` see it."""

from __future__ import annotations

import time
from typing import Any

from tests.fakenvml.layout import FUNCTIONS


class ControlAccess:
    """Records of the control file, to be read and written field by field (see ``fake.h``)."""

    # Any: ctypes' own stubs do not know the fields of a structure.
    control: Any

    def gpu(self, slot: int) -> Any:
        """The record of the GPU in this slot."""
        return self.control.gpus[slot]

    def function(self, name: str) -> Any:
        """The record of a function of the driver."""
        return self.control.functions[FUNCTIONS.index(name)]

    def now_ns(self) -> int:
        """What the driver takes for CLOCK_MONOTONIC, in nanoseconds."""
        return int(self.control.virtual_now_ns) or time.monotonic_ns()
