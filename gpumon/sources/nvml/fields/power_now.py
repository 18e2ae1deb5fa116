"""What one GPU draws at one moment: where the driver's own figure is a mean of a second.

Not yet measured on a board.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from gpumon.sources.nvml.binding import FieldCalls
from gpumon.sources.nvml.codes import NO_ERROR, SUCCESS
from gpumon.sources.nvml.fields.links import HOPELESS, CounterCall
from gpumon.sources.nvml.fields.table import (
    FIELD_VALUES,
    MILLIWATTS,
    MOST_MILLIWATTS,
    POWER_NOW_FIELD,
    NvmlCounter,
)

_UNSIGNED_INT: Final = 1
_FIELD: Final = NvmlCounter("power_now_watts", POWER_NOW_FIELD, 0, 1, 0, may_wrap=False)


class PowerNow:
    """Reads the draw at one moment; nothing more once the driver refuses."""

    def __init__(self, calls: FieldCalls, handle: int, refuse: Callable[[], None]) -> None:
        """Make no call yet; ``refuse`` counts an impossible value."""
        self._calls, self._refuse = calls, refuse
        self._call = CounterCall(calls, handle, [_FIELD])

    def read(self, at_ns: int) -> Mapping[str, Any]:
        """Return watts and their time, by their names in ``GpuSample``; empty: no answer."""
        if not self._call.supported or self._call.call() != SUCCESS:
            return {}
        ((_, value),) = self._call.answers()
        if value.nvmlReturn != SUCCESS:
            if value.nvmlReturn in HOPELESS:
                self._call.supported = False
            elif value.nvmlReturn not in NO_ERROR:
                self._calls.count_error(FIELD_VALUES.function, value.nvmlReturn)
            return {}
        milliwatts = int(value.value.uiVal)
        if value.valueType != _UNSIGNED_INT or milliwatts > MOST_MILLIWATTS:
            self._refuse()
            return {}
        return {"power_now_watts": MILLIWATTS.convert(milliwatts), "power_now_at_ns": at_ns}
