"""What a call takes of the CPU on an H100 and an H200, for ``FakeNvml.burn``.

``python -m tests.fakenvml.call_prices`` prints what the recordings report.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from gpumon.sources.recording import RecordingFile

CALL_US: Final[Mapping[str, float]] = {
    # Means of gpumon's own calls in tests/recordings/nvidia-*.gpumon; a test compares them.
    "nvmlDeviceGetTotalEnergyConsumption": 3_410,
    "nvmlDeviceGetProcessesUtilizationInfo": 1_720,
    "nvmlGpmMetricsGet": 1_440,
    "nvmlDeviceGetSamples": 1_240,
    "nvmlDeviceGetMigMode": 297,
    "nvmlGpmSampleGet": 199,
    "nvmlDeviceGetComputeRunningProcesses_v3": 110,
    "nvmlDeviceGetMemoryInfo_v2": 63,
    "nvmlDeviceGetPersistenceMode": 32,
    "nvmlDeviceGetEnforcedPowerLimit": 9,
    "nvmlDeviceGetTemperatureV": 7,
    "nvmlDeviceGetTotalEccErrors": 6,
    "nvmlDeviceGetCurrentClocksEventReasons": 5.5,
    "nvmlDeviceGetClockInfo": 4.4,
    "nvmlDeviceGetPerformanceState": 4,
    "nvmlDeviceGetIndex": 3.7,
    "nvmlDeviceGetCount_v2": 1.9,
    # Medians under full kernels in docs/measured, the mean of both boards.
    "nvmlDeviceGetMaxClockInfo": 1_330,
    "nvmlDeviceGetFanSpeed": 515,
    "nvmlDeviceGetFieldValues": 350,
    "nvmlDeviceGetPowerManagementLimit": 123,
    # The same, halved: nvitop asks for the size first, which is assumed to cost nothing.
    "nvmlDeviceGetProcessUtilization": 990,
    # Assumed: as its sisters.
    "nvmlGpmMigSampleGet": 199,
    "nvmlDeviceGetGraphicsRunningProcesses_v3": 110,
    # Assumed: as the temperature. In a loop all three take less than 1 us, except the first call.
    # No board has shown yet what these two take once a second.
    "nvmlDeviceGetUtilizationRates": 7,
    "nvmlDeviceGetPowerUsage": 7,
}
"""CPU microseconds of a call, by function. Others take nothing: they are below a microsecond, or
rare, or wait without the CPU, as ``nvmlDeviceGetPcieThroughput`` does for 21 ms."""


def recorded_call_us(recordings: Iterable[Path]) -> dict[str, float]:
    """Mean microseconds of a call in these recordings, by function."""
    spent_s: defaultdict[str, float] = defaultdict(float)
    calls: Counter[str] = Counter()
    for path in recordings:
        with RecordingFile(path) as recording:
            ticks = [reading.tick for reading in recording.readings()]
        frames = [frame for tick in ticks for frame in tick.frames if frame.call_seconds]
        # What the first frame has counted includes the opening of the driver.
        for frame, sign in ((frames[0], -1), (frames[-1], 1)):
            for name, seconds in frame.call_seconds:
                spent_s[name] += sign * seconds
            for name, count in frame.call_counts:
                calls[name] += sign * count
    return {name: 1e6 * spent_s[name] / count for name, count in calls.items() if count}


if __name__ == "__main__":
    paths = [Path(word) for word in sys.argv[1:]]
    measured_us = recorded_call_us(paths or Path("tests/recordings").glob("nvidia-*.gpumon"))
    for function in sorted(measured_us, key=lambda name: -measured_us[name]):
        print(f"{function:<44}{measured_us[function]:>9.1f} us")
